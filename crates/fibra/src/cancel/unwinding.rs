//! Is it this fiber that unwinds?
//!
//! `thread::panicking()` belongs to the whole worker: it is true for every fiber while one is parked in a destructor that unwinding called.
//! So it settles nothing but the usual case, that nothing unwinds. Otherwise the number behind it is read (`prim::panics`), and what the
//! parked neighbours have in it is taken off; each adds its share to the thread's `suspended_unwindings` when it leaves. What remains is
//! this fiber's own, whether a hook was called for it or not, and goes down when the fiber catches it. Where the number cannot be read,
//! signs must do: a flag that the hook and our own unwinding set. A catch leaves no sign, so there a fiber that had caught a panic is not
//! cancelled while a neighbour is parked in a destructor; see `guess_unwinding`.

use crate::fiber::frame::flag;
use crate::fiber::id::FiberId;
use crate::prim::panics;
use crate::sched::current;
use crate::sched::here::Here;

impl Here<'_> {
    /// Does it unwind? In a scope that a destructor opened meanwhile: does anything unwind that began in there?
    #[inline]
    pub(crate) fn is_unwinding(&self) -> bool {
        if std::thread::panicking() {
            self.is_this_unwinding()
        } else {
            self.state.unwinding.set(false);
            false
        }
    }

    /// Something on this thread unwinds: does this fiber, or the thread itself?
    #[cold]
    #[inline(never)]
    fn is_this_unwinding(&self) -> bool {
        match self.own_unwindings() {
            Some(own) => own > self.state.inside_unwinding.get(),
            None => self.guess_unwinding(),
        }
    }

    /// How many unwindings of this fiber or thread have begun and have not been caught; None if the number cannot be read.
    fn own_unwindings(&self) -> Option<u32> {
        let all = panics::count()? as u32;
        Some(all - current::suspended_unwindings().get().min(all))
    }

    /// What is this fiber's (or thread's) share of the unwindings on this thread? For `suspended_unwindings`, and with those around a
    /// scope that a destructor opened.
    fn share_of_unwindings(&self) -> u32 {
        if !std::thread::panicking() {
            self.state.unwinding.set(false);
            return 0;
        }
        self.own_unwindings().unwrap_or_else(|| {
            let around = self.state.inside_unwinding.get();
            around + u32::from(self.guess_unwinding())
        })
    }

    /// Something on this thread unwinds, and how often is not known. It is this fiber if no neighbour is parked in a destructor. Otherwise
    /// signs decide, and rather say that it does: a second unwinding would abort the process, one that is held off comes later. The signs
    /// are the flag, and that a cancellation has arrived, which may have been caught and passed on. (All that is left is a fiber that
    /// passes on a panic from elsewhere with `resume_unwind`, for which no hook is called. To hold off for every fiber would be worse: a
    /// destructor that cancels other fibers and joins them would wait for ever.)
    fn guess_unwinding(&self) -> bool {
        let state = self.state;
        if state.inside_unwinding.get() == 0 {
            if current::suspended_unwindings().get() == 0 {
                self.begin_unwinding();
            }
            state.unwinding.get() || state.deliveries.get() > 0
        } else {
            // The question would always be answered with yes.
            state.unwinding.get()
        }
    }

    /// A scope is opened here by a destructor, during unwinding: what unwinds in there counts from now on. What it was before is to be
    /// given to [`leave_unwinding`](Self::leave_unwinding).
    pub(crate) fn enter_unwinding(&self) -> u32 {
        let share = self.share_of_unwindings();
        self.state.unwinding.set(false);
        self.state.inside_unwinding.replace(share)
    }

    /// That scope is closed.
    pub(crate) fn leave_unwinding(&self, before: u32) {
        self.state.inside_unwinding.set(before);
        self.state.unwinding.set(true);
    }

    /// This fiber or thread unwinds from now on, until it is found not to any more.
    pub(crate) fn begin_unwinding(&self) {
        self.state.unwinding.set(true);
        if let Some((_, frame)) = self.fiber {
            frame.top().expect("a running fiber has a stack").dirty.set(true);
            frame.raise(flag::HOLD_OFF);
        }
    }

    /// It is about to be suspended, perhaps inside a destructor that unwinding called: its neighbours have to know, since
    /// `thread::panicking()` is true for them meanwhile. Gives its share, for [`note_back`](Self::note_back).
    pub(super) fn note_leaving(&self) -> u32 {
        let share = self.share_of_unwindings();
        self.state.left_unwinding.set(self.is_unwinding());
        let suspended = current::suspended_unwindings();
        suspended.set(suspended.get() + share);
        share
    }

    /// It runs again, on the same thread: a fiber that unwinds is moved to no other.
    pub(super) fn note_back(&self, share: u32) {
        self.state.left_unwinding.set(false);
        if share > 0 {
            let suspended = current::suspended_unwindings();
            suspended.set(suspended.get() - share);
        }
    }
}

/// How whatever runs here is being unwound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unwinding {
    Cancelled,
    Panicked(FiberId),
}

/// Is whatever runs here being unwound, and by what?
pub(crate) fn unwinding() -> Option<Unwinding> {
    if !std::thread::panicking() {
        return None;
    }
    let Some(here) = Here::new() else { return Some(Unwinding::Panicked(FiberId::NONE)) };
    // A fiber that was told to end and then panicked on its way counts as cancelled.
    let delivered = here.state.deliveries.get() > 0 && here.flags().has(flag::ANY_CANCEL);
    if here.share_of_unwindings() == 0 {
        return None;
    }
    let fiber = here.fiber.map_or(FiberId::NONE, |(_, frame)| FiberId::of(frame));
    Some(if delivered { Unwinding::Cancelled } else { Unwinding::Panicked(fiber) })
}
