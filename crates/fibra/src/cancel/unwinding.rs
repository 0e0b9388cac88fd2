//! Decides whether the current fiber unwinds, or only a neighbour on the same worker.
//!
//! `thread::panicking()` belongs to the whole worker: it is true for every fiber while one is parked in a destructor
//! that unwinding called. So it settles only the usual case, that nothing unwinds. Otherwise the count behind it is
//! read (`prim::panics`), and the shares of the parked neighbours are subtracted; each fiber adds its share to the
//! thread's `suspended_unwindings` when it leaves. The rest belongs to the current fiber, whether a hook was called for
//! it or not, and goes down when the fiber catches the panic. Where the count cannot be read, signs must do: a flag
//! that the hook and fibra's own unwinding set. A catch leaves no sign, so there a fiber that had caught a panic is not
//! cancelled while a neighbour is parked in a destructor; see `guess_unwinding`.
//!
//! Above: `levels.rs`, `delivery.rs`. Below: `prim::panics`, `sched::here`.

use crate::fiber::frame::flag;
use crate::fiber::id::FiberId;
use crate::prim::panics;
use crate::sched::current;
use crate::sched::here::Here;

impl Here<'_> {
    /// Does it unwind? In a scope that a destructor opened meanwhile: does an unwinding go on that began in that scope?
    #[inline]
    pub(crate) fn is_unwinding(&self) -> bool {
        if std::thread::panicking() {
            self.is_this_unwinding()
        } else {
            self.state.unwinding.set(false);
            false
        }
    }

    /// Something on this thread unwinds: is it the current fiber, or the thread itself?
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

    /// The share of the current fiber (or thread) in the unwindings on this thread, for `suspended_unwindings`.
    /// Includes those around a scope that a destructor opened.
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

    /// Something on this thread unwinds, and how often is not known. It is the current fiber if no neighbour is parked
    /// in a destructor. Otherwise signs decide, and in doubt the answer is yes: a second unwinding would abort the
    /// process, while a cancellation that is held off comes later. The signs are the flag, and that a cancellation has
    /// arrived, which may have been caught and passed on. (The only case left is a fiber that passes on a panic from
    /// elsewhere with `resume_unwind`, for which no hook is called. To hold off for every fiber would be worse: a
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

    /// A destructor opens a scope here, during unwinding: from now on only unwindings in that scope count. Gives the
    /// former count, for [`leave_unwinding`](Self::leave_unwinding).
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

    /// This fiber or thread unwinds from now on, until it is found to have ended the unwinding.
    pub(crate) fn begin_unwinding(&self) {
        self.state.unwinding.set(true);
        if let Some((_, frame)) = self.fiber {
            frame.top().expect("a running fiber has a stack").dirty.set(true);
            frame.raise(flag::HOLD_OFF);
        }
    }

    /// The fiber is about to be suspended, perhaps inside a destructor that unwinding called: its neighbours have to
    /// know, since `thread::panicking()` is true for them meanwhile. Gives the fiber's share, for
    /// [`note_back`](Self::note_back).
    pub(super) fn note_leaving(&self) -> u32 {
        let share = self.share_of_unwindings();
        self.state.left_unwinding.set(self.is_unwinding());
        let suspended = current::suspended_unwindings();
        suspended.set(suspended.get() + share);
        share
    }

    /// The fiber runs again, on the same thread: a fiber that unwinds is never moved to another.
    pub(super) fn note_back(&self, share: u32) {
        self.state.left_unwinding.set(false);
        if share > 0 {
            let suspended = current::suspended_unwindings();
            suspended.set(suspended.get() - share);
        }
    }
}

/// How the current fiber or thread is being unwound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unwinding {
    Cancelled,
    Panicked(FiberId),
}

/// Is the current fiber or thread being unwound, and by what?
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
