//! Delivering cancellation: whatever runs here unwinds, quietly, from the blocking call it is in up to the scope that was cancelled, or to
//! the end of the fiber.
//!
//! The request (flag and claim) is `sched::cancel`'s and `sched::scope`'s. Here: when somebody may be unwound, and how. It is held off
//! while a `shield` is open and while *this fiber* unwinds already (a second unwinding out of a destructor would abort the process).
//!
//! **Who unwinds.** `thread::panicking()` belongs to the whole worker: it is true for every fiber while one is parked in a destructor that
//! unwinding called. So it settles nothing but the usual case, that nothing unwinds. Otherwise the number behind it is read
//! (`prim::panics`), and what the parked neighbours have in it is taken off; each adds its share to the thread's `suspended_unwindings`
//! when it leaves. What remains is this fiber's own, whether a hook was called for it or not, and goes down when the fiber catches it.
//! Where the number cannot be read, signs must do: a flag that the hook and our own unwinding set. A catch leaves no sign, so there a
//! fiber that had caught a panic is not cancelled while a neighbour is parked in a destructor; see `guess_unwinding`.
//!
//! **Levels.** A fiber stands in several scopes at once: the one it is a child of, and those whose bodies it runs. A shield holds off what
//! comes from outside of it, not the time-out of a scope that is opened inside. So each open scope remembers how much was held off
//! when it was opened (`hold`: open shields, and what unwinds), and is concerned if no more than that is held off now; the fiber
//! itself, if nothing is. Behind a shield with a scope inside, waits are revocable for the inner scope only: that is what `BARRIER` and
//! the scopes' `barrier` tell cancellers. Shields end when the grace of a scope is over; what unwinds holds off for as long as it does, and
//! so counts for more than any number of shields ([`UNWINDS`]), also in a scope that a destructor opens meanwhile: `CLEANUP`, and the
//! scopes' `cleanups`, tell that to the one who ends a grace.

use std::any::Any;
use std::panic::resume_unwind;

use super::node::WaiterRef;
use super::waker::ThreadRecord;
use super::word::WaitKind;
use crate::cancel::reason::{CancelReason, ReasonKind};
use crate::fiber::frame::{FlagSet, FrameRef, flag};
use crate::fiber::id::FiberId;
use crate::fiber::top::{FiberTop, Standing};
use crate::prim::atomic::{AtomicBool, Ordering};
use crate::prim::{clock, panics};
use crate::sched::current;
use crate::sched::scope::{NEVER, Reach, ScopeRecord, ScopeRef};
use crate::sched::shared::Shared;
use crate::sched::worker::{Worker, signal};

/// How much an unwinding holds off: more than all the shields that could be open, which count 1 each and may end before it.
const UNWINDS: u32 = 1 << 20;

/// The payload of a quiet unwinding.
struct Cancelled;

/// True if this panic payload is fibra's cancellation and not somebody's panic: code that catches panics should pass it on with
/// [`std::panic::resume_unwind`].
///
/// ```
/// use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
/// use std::time::Duration;
///
/// fibra::run(|| {
///     let sleeper = fibra::spawn(|| {
///         let caught = catch_unwind(AssertUnwindSafe(|| fibra::sleep(Duration::from_secs(3600))));
///         let payload = caught.unwrap_err();
///         assert!(fibra::is_cancellation(&*payload));
///         resume_unwind(payload)
///     });
///     fibra::yield_now();
///     sleeper.cancel();
///     assert!(sleeper.join().unwrap_err().is_cancelled());
/// });
/// ```
pub fn is_cancellation(payload: &(dyn Any + Send)) -> bool {
    payload.is::<Cancelled>()
}

/// Whatever runs here, as far as cancellation is concerned: a fiber, or a plain thread.
#[derive(Clone, Copy)]
pub(crate) struct Here<'a> {
    pub(crate) waiter: WaiterRef,
    pub(crate) standing: &'a Standing,
    pub(crate) fiber: Option<(&'a Worker, FrameRef)>,
}

impl<'a> Here<'a> {
    /// `None` on a worker's own stack, and on a thread that is being torn down.
    pub(crate) fn new() -> Option<Self> {
        match current::worker() {
            Some(worker) => worker.current.get().map(|frame| Self::on(worker, frame)),
            None => ThreadRecord::mine().map(Self::on_thread),
        }
    }

    pub(crate) fn on(worker: &'a Worker, frame: FrameRef) -> Self {
        let top = frame.top().expect("a running fiber has a stack");
        Self { waiter: frame.waiter_ref(), standing: &top.standing, fiber: Some((worker, frame)) }
    }

    pub(crate) fn on_thread(record: &'static ThreadRecord) -> Self {
        Self { waiter: record.waiter_ref(), standing: current::thread_standing(), fiber: None }
    }

    #[inline(always)]
    pub(crate) fn flags(&self) -> FlagSet {
        self.waiter.get().flags.look()
    }

    /// Does it unwind? In a scope that a destructor opened meanwhile: does anything unwind that began in there?
    #[inline]
    pub(crate) fn is_unwinding(&self) -> bool {
        if std::thread::panicking() {
            self.is_this_unwinding()
        } else {
            self.standing.unwinding.set(false);
            false
        }
    }

    /// Something on this thread unwinds: does this fiber, or the thread itself?
    #[cold]
    #[inline(never)]
    fn is_this_unwinding(&self) -> bool {
        match self.own_unwindings() {
            Some(own) => own > self.standing.inside_unwinding.get(),
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
            self.standing.unwinding.set(false);
            return 0;
        }
        self.own_unwindings().unwrap_or_else(|| {
            let around = self.standing.inside_unwinding.get();
            around + u32::from(self.guess_unwinding())
        })
    }

    /// Something on this thread unwinds, and how often is not known. It is this fiber if no neighbour is parked in a destructor. Otherwise
    /// signs decide, and rather say that it does: a second unwinding would abort the process, one that is held off comes later. The signs
    /// are the flag, and that a cancellation has arrived, which may have been caught and passed on. (All that is left is a fiber that
    /// passes on a panic from elsewhere with `resume_unwind`, for which no hook is called. To hold off for every fiber would be worse: a
    /// destructor that cancels other fibers and joins them would wait for ever.)
    fn guess_unwinding(&self) -> bool {
        let standing = self.standing;
        if standing.inside_unwinding.get() == 0 {
            if current::suspended_unwindings().get() == 0 {
                self.begin_unwinding();
            }
            standing.unwinding.get() || standing.deliveries.get() > 0
        } else {
            // The question would always be answered with yes.
            standing.unwinding.get()
        }
    }

    /// A scope is opened here by a destructor, during unwinding: what unwinds in there counts from now on. What it was before is to be
    /// given to [`leave_unwinding`](Self::leave_unwinding).
    pub(crate) fn enter_unwinding(&self) -> u32 {
        let share = self.share_of_unwindings();
        self.standing.unwinding.set(false);
        self.standing.inside_unwinding.replace(share)
    }

    /// That scope is closed.
    pub(crate) fn leave_unwinding(&self, before: u32) {
        self.standing.inside_unwinding.set(before);
        self.standing.unwinding.set(true);
    }

    /// How much holds cancellation off; see the header.
    pub(crate) fn hold(&self) -> u32 {
        self.hold_if(self.is_unwinding())
    }

    /// The same for one of which it is known whether it unwinds.
    fn hold_if(&self, unwinds: bool) -> u32 {
        let shields = if self.flags().has(flag::OVERDUE) { 0 } else { self.standing.shields.get() };
        shields + UNWINDS * (self.standing.cleanups.get() + u32::from(unwinds))
    }

    /// Is cancellation only seen here, and never delivered?
    pub(crate) fn is_cooperative(&self) -> bool {
        match self.fiber {
            Some((worker, _)) => worker.shared.config.cooperative,
            // SAFETY: an open scope of this thread's own.
            None => self.innermost().is_some_and(|scope| unsafe { scope.shared() }.config.cooperative),
        }
    }

    /// The innermost scope whose body runs here.
    pub(crate) fn innermost(&self) -> Option<ScopeRef> {
        ScopeRecord::from_ptr(self.standing.open.get())
    }

    /// The scopes whose bodies run here, from the inside out.
    fn open_scopes(&self) -> impl Iterator<Item = ScopeRef> + use<> {
        std::iter::successors(self.innermost(), |scope| scope.outer.get())
    }

    /// Is one of the scopes whose bodies run here a scope of this runtime?
    pub(crate) fn is_in_scope_of(&self, shared: &Shared) -> bool {
        // SAFETY: open scopes of our own.
        self.open_scopes().any(|scope| std::ptr::eq(unsafe { scope.shared() }, shared))
    }

    /// The scope that whatever is done here is done in: the innermost open one, or the one this fiber is a child of.
    pub(crate) fn scope(&self) -> Option<ScopeRef> {
        self.innermost().or_else(|| {
            let (_, frame) = self.fiber?;
            // SAFETY: the flag is what `of` asks for.
            frame.has(flag::SCOPED).then(|| unsafe { ScopeRecord::of(frame) })
        })
    }

    /// What may end a wait that begins now, if its reason lets anything.
    fn wait_kind(&self) -> WaitKind {
        let hold = self.hold();
        if self.is_cooperative() {
            WaitKind::Binding
        } else if hold == 0 || self.innermost().is_some_and(|scope| scope.hold.get() >= hold) {
            WaitKind::Revocable
        } else if self.is_unwinding() {
            WaitKind::Binding
        } else {
            WaitKind::Shielded
        }
    }

    /// Is there a cancellation that may be delivered now? Asked if a flag says that there may be.
    pub(crate) fn is_due(&self) -> bool {
        self.is_due_unless(false)
    }

    /// The same for one who need not wait if `settled` holds: then a child's panic is not due, because it may be what he is about to take.
    #[cold]
    #[inline(never)]
    pub(crate) fn is_due_unless(&self, settled: bool) -> bool {
        !self.is_cooperative() && self.is_due_at(self.hold(), settled)
    }

    /// May the cancellation behind the flags end a wait of this kind that is about to begin? `settled`: as in
    /// [`is_due_unless`](Self::is_due_unless).
    pub(crate) fn may_end(&self, kind: WaitKind, settled: bool) -> bool {
        match kind {
            WaitKind::Watching => self.is_observable_unless(settled),
            WaitKind::Revocable | WaitKind::Shielded => self.is_due_unless(settled),
            WaitKind::Binding => false,
        }
    }

    /// May it end the wait that this fiber has just parked in? Asked on its worker's own stack, where it cannot be told what unwinds: that
    /// was noted when the fiber left. Shields are counted now, because their time may have come to its end since. Nothing is settled: the
    /// wait was published.
    pub(crate) fn may_end_parked(&self, kind: WaitKind) -> bool {
        match kind {
            WaitKind::Shielded if !self.flags().has(flag::OVERDUE) => false,
            WaitKind::Revocable | WaitKind::Shielded => {
                self.is_due_at(self.hold_if(self.standing.left_unwinding.get()), false)
            }
            WaitKind::Watching => self.is_observable_unless(false),
            WaitKind::Binding => false,
        }
    }

    /// Is there a cancellation that may be delivered where this much holds it off?
    fn is_due_at(&self, hold: u32, settled: bool) -> bool {
        let flags = self.flags();
        if flags.has(flag::CANCEL) && hold == 0 {
            return true;
        }
        if !flags.has(flag::CANCEL_BODY) {
            return false;
        }
        if self.open_scopes().take_while(|scope| scope.hold.get() >= hold).any(|scope| scope.is_body_cancelled(settled))
        {
            return true;
        }
        // A child's panic that was taken by a join. If nothing else is behind the flag, nobody need look any more.
        self.lower_body_flag();
        false
    }

    /// Is there a cancellation, whether it may be delivered or not? Asked if a flag says that there may be.
    pub(crate) fn is_observable(&self) -> bool {
        self.is_observable_unless(false)
    }

    /// As [`is_due_unless`](Self::is_due_unless).
    #[cold]
    pub(crate) fn is_observable_unless(&self, settled: bool) -> bool {
        self.flags().has(flag::CANCEL) || self.open_scopes().any(|scope| scope.is_body_cancelled(settled))
    }

    /// A scope is closed, or was not cancelled after all: keeps the flag only if one that is open says so.
    pub(crate) fn lower_body_flag(&self) {
        let flags = &self.waiter.get().flags;
        // Whoever cancels a scope marks it and then announces the flag; we lower it and then look, each under the scope's lock. So one that
        // we do not see here sets the flag after this.
        flags.retract(flag::CANCEL_BODY);
        if self.open_scopes().any(|scope| scope.has_body_reason() || scope.has_told_failure()) {
            flags.announce(flag::CANCEL_BODY);
        }
    }

    /// A scope whose shields had their time is closed; the same for that flag, which a child also has with the scope that it is in.
    pub(crate) fn lower_overdue_flag(&self) {
        let flags = &self.waiter.get().flags;
        // In this order: as above.
        flags.retract(flag::OVERDUE);
        // SAFETY: the flag is what `of` asks for; the scope is open while this child runs.
        let parent =
            self.fiber.filter(|(_, frame)| frame.has(flag::SCOPED)).map(|(_, frame)| unsafe { ScopeRecord::of(frame) });
        if parent.is_some_and(ScopeRecord::are_children_overdue) || self.open_scopes().any(ScopeRecord::is_overdue) {
            flags.announce(flag::OVERDUE);
        }
    }

    /// Is the fiber cancelled, or a scope around it, delivered or not? Looks at the clock too, since a worker that computes
    /// fires no timers.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.check_deadlines();
        let flags = self.flags();
        flags.has(flag::CANCEL)
            || flags.has(flag::CANCEL_BODY) && self.open_scopes().any(|scope| scope.has_body_reason())
    }

    /// The same, but only by what is not held off here: what unwinds goes on to there.
    pub(crate) fn is_cancelled_at_level(&self) -> bool {
        if !self.is_cancelled() {
            return false;
        }
        let hold = self.hold();
        self.flags().has(flag::CANCEL) && hold == 0
            || self.open_scopes().take_while(|scope| scope.hold.get() >= hold).any(|scope| scope.has_body_reason())
    }

    /// Why, if it is: the outermost first, since that is where unwinding ends.
    pub(crate) fn reason(&self) -> Option<CancelReason> {
        if let Some((_, frame)) = self.fiber
            && let Some(reason) = reason_of(frame)
        {
            // SAFETY: the flag is what `of` asks for; the scope is open while this child runs.
            let scope = frame.has(flag::SCOPED).then(|| unsafe { ScopeRecord::of(frame) });
            let words = scope.filter(|_| reason == CancelReason::Token).and_then(ScopeRecord::children_reason);
            return words.filter(|words| matches!(words, CancelReason::Custom(_))).or(Some(reason));
        }
        self.open_scopes().filter_map(ScopeRecord::body_reason).last()
    }

    /// Cancels the scopes around whose deadlines have come.
    fn check_deadlines(&self) {
        if self.nearest_deadline() != NEVER && self.nearest_deadline() <= clock::now() {
            for scope in self.open_scopes() {
                if scope.own_deadline.get() <= clock::now() {
                    scope.cancel(scope.life(), &CancelReason::TimedOut, Reach::All);
                }
            }
        }
    }

    /// The nearest deadline of the scopes around.
    pub(crate) fn nearest_deadline(&self) -> u64 {
        self.scope().map_or(NEVER, |scope| scope.deadline.get())
    }

    /// This fiber or thread unwinds from now on, until it is found not to any more.
    pub(crate) fn begin_unwinding(&self) {
        match self.fiber {
            Some((_, frame)) => begin_unwinding(frame, frame.top().expect("a running fiber has a stack")),
            None => self.standing.unwinding.set(true),
        }
    }
}

/// Why a fiber is cancelled, if it is. The words of a custom reason are in its scope, and only known while that is open.
pub(crate) fn reason_of(frame: FrameRef) -> Option<CancelReason> {
    frame.flags().cancel_reason().map(ReasonKind::without_words)
}

/// What may end a wait of the running fiber that begins now. Asked if HOLD_OFF is set or somebody on this thread unwinds, which say that
/// cancellation may have to wait.
#[cold]
#[inline(never)]
pub(crate) fn wait_kind(worker: &Worker, frame: FrameRef) -> WaitKind {
    let here = Here::on(worker, frame);
    let kind = here.wait_kind();
    // (A shield that holds nothing off for now, because the time for it is over in a scope that is open here, may do so again.)
    if kind == WaitKind::Revocable && here.hold() == 0 && here.standing.shields.get() == 0 {
        frame.lower(flag::HOLD_OFF);
    }
    kind
}

/// The same on a plain thread.
pub(crate) fn thread_wait_kind(record: &'static ThreadRecord) -> WaitKind {
    let here = Here::on_thread(record);
    // Without a scope there is nobody to cancel it.
    if here.innermost().is_none() { WaitKind::Revocable } else { here.wait_kind() }
}

/// A fiber unwinds from now on, until it is found not to any more.
pub(crate) fn begin_unwinding(frame: FrameRef, top: &FiberTop) {
    top.standing.unwinding.set(true);
    top.dirty.set(true);
    frame.raise(flag::HOLD_OFF);
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
    let delivered = here.standing.deliveries.get() > 0 && here.flags().has(flag::ANY_CANCEL);
    if here.share_of_unwindings() == 0 {
        return None;
    }
    let fiber = here.fiber.map_or(FiberId::NONE, |(_, frame)| FiberId::of(frame));
    Some(if delivered { Unwinding::Cancelled } else { Unwinding::Panicked(fiber) })
}

/// Suspends the running fiber, which may be unwinding (it is inside a destructor): its neighbours have to know, since
/// `thread::panicking()` is true for them meanwhile.
///
/// # Safety
/// As [`Worker::suspend`].
#[cold]
#[inline(never)]
pub(crate) unsafe fn suspend_unwinding(worker: &Worker, frame: FrameRef, signal: usize) {
    let here = Here::on(worker, frame);
    let share = here.share_of_unwindings();
    here.standing.left_unwinding.set(here.is_unwinding());
    let suspended = current::suspended_unwindings();
    suspended.set(suspended.get() + share);
    // SAFETY: passed on.
    unsafe { worker.suspend(frame, signal) };
    here.standing.left_unwinding.set(false);
    // On the same thread: a fiber that unwinds is moved to no other.
    if share > 0 {
        suspended.set(suspended.get() - share);
    }
}

/// On entry to a blocking call of a plain thread, which need not wait if `settled` says so; see [`Here::is_due_unless`]. Nobody cancels a
/// thread, but the scopes whose bodies it runs.
#[inline(always)]
pub(crate) fn thread_entry_unless(unwinds: impl FnOnce() -> bool, settled: impl FnOnce() -> bool) {
    if !current::thread_standing().open.get().is_null() && unwinds() {
        checkpoint_unless(settled());
    }
}

/// Unwinds if whatever runs here is cancelled and may be unwound.
pub(crate) fn checkpoint() {
    checkpoint_unless(false);
}

#[inline(never)]
pub(crate) fn checkpoint_unless(settled: bool) {
    let Some(here) = Here::new() else { return };
    if here.nearest_deadline() != NEVER {
        here.check_deadlines();
    }
    if here.flags().has(flag::ANY_CANCEL) && here.is_due_unless(settled) {
        deliver();
    }
}

/// Unwinds whatever runs here, which is cancelled and may be unwound.
#[cold]
#[inline(never)]
pub(crate) fn deliver() -> ! {
    let here = Here::new().expect("only fibers, and threads in a scope, are cancelled");
    let deliveries = here.standing.deliveries.get() + 1;
    here.standing.deliveries.set(deliveries);
    if let Some((worker, frame)) = here.fiber {
        worker.stats().cancellations.add(1);
        if deliveries > 1 {
            repeated(worker, frame);
        }
        crate::fiber::overflow_reserve(frame);
    }
    here.begin_unwinding();
    unwind_quietly()
}

/// Unwinds as a cancellation does.
pub(crate) fn unwind_quietly() -> ! {
    resume_unwind(payload())
}

/// What a cancellation unwinds with.
pub(crate) fn payload() -> Box<dyn Any + Send> {
    Box::new(Cancelled)
}

/// Somebody caught the cancellation and went on: others get a turn before it is delivered again, so that a loop around
/// `catch_unwind` does not hold up the worker; it is said once.
fn repeated(worker: &Worker, frame: FrameRef) {
    static SAID: AtomicBool = AtomicBool::new(false);
    // Relaxed: said once or twice, no more depends on it.
    if !SAID.swap(true, Ordering::Relaxed) {
        // Relaxed: the id of a running fiber does not change.
        let id = frame.id.load(Ordering::Relaxed);
        crate::prim::say(format_args!(
            "fibra: fiber #{id} caught its cancellation and made another blocking call; it is cancelled again. \
             Code that catches panics should pass on those for which fibra::is_cancellation is true."
        ));
    }
    if !frame.has(flag::NO_SUSPEND) {
        // SAFETY: on the current fiber, whose word is RUNNING.
        unsafe { suspend_unwinding(worker, frame, signal::YIELD) };
    }
}

/// Goes on here with a panic that was caught elsewhere. No hook is called for that, so the fiber notes by itself that it unwinds; and, if
/// it is a cancellation, that one has arrived.
pub(crate) fn pass_on(payload: Box<dyn Any + Send>) -> ! {
    if let Some(here) = Here::new() {
        if is_cancellation(&*payload) {
            here.standing.deliveries.set(here.standing.deliveries.get().max(1));
        }
        here.begin_unwinding();
    }
    resume_unwind(payload)
}
