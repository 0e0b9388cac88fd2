//! How a fiber waits: [`Parker`] for fibers, and the only place from which a fiber leaves its stack (law 3).
//!
//! A fiber suspends to its worker, which commits the park on its own stack, and asks the rules of cancellation if a cancel flag came up
//! meanwhile. A deadline is a timer of that worker, which claims the wait like any owner. Above: `park`. Below: `sched` (`Worker::suspend`,
//! timers).

use super::park::Parker;
use super::waitable::Wait;
use super::{hooks, own_locals, watch};
use crate::fiber::frame::{FlagSet, FrameRef, flag};
use crate::prim::policy;
use crate::sched::current;
use crate::sched::here::Here;
use crate::sched::shared::RuntimeShared;
use crate::sched::timers::heap::Timer;
use crate::sched::timers::timing::{Due, WheelDue};
use crate::sched::worker::{Worker, signal};
use crate::waiter::node::WaiterRef;
use crate::waiter::word::{ARM_TIMEOUT, Ticket, WaitKind};

/// The fiber that runs, and its worker.
#[derive(Clone, Copy)]
pub(crate) struct FiberParker<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) frame: FrameRef,
}

impl Parker for FiberParker<'_> {
    #[inline(always)]
    fn waiter(self) -> WaiterRef {
        self.frame.waiter_ref()
    }

    #[inline(always)]
    fn is_plain(self) -> bool {
        const ODD: FlagSet = flag::ANY_CANCEL
            .and(flag::HOLD_OFF)
            .and(flag::NO_SUSPEND)
            .and(flag::WATCHED)
            .and(flag::HOOKED)
            .and(flag::OWN_LOCALS);
        !self.frame.has(ODD) && !std::thread::panicking()
    }

    #[cold]
    fn kind(self, asked: WaitKind, how: &Wait) -> WaitKind {
        if self.frame.has(flag::NO_SUSPEND) {
            suspended_in_no_suspend(how);
        }
        // A shield, or a fiber of this thread that unwinds: only then is anything held off.
        let may_hold_off = self.frame.has(flag::HOLD_OFF) || std::thread::panicking();
        if asked == WaitKind::Revocable && may_hold_off { self.worker.rules().wait_kind(self.here()) } else { asked }
    }

    fn is_due(self, kind: WaitKind, settled: &dyn Fn() -> bool) -> bool {
        self.worker.rules().may_end(self.here(), kind, settled)
    }

    // Out of line: what reading the clock needs on the stack would be in the frame of every wait.
    #[inline(never)]
    fn is_over(self, deadline: u64) -> bool {
        deadline <= policy::now()
    }

    #[cold]
    #[inline(never)]
    fn pass(self) {
        // SAFETY: on the current fiber, whose word is RUNNING.
        unsafe { leave(self.worker, self.frame, signal::YIELD) };
    }

    #[inline(always)]
    fn leave(self, ticket: Ticket, how: &Wait, plainly: bool) {
        // SAFETY: it runs, so it has a stack.
        let top = unsafe { self.frame.top().unwrap_unchecked() };
        top.note_wait(how.reason as u8, how.object, how.site, self.worker.cached_now());
        match how.deadline {
            // SAFETY: on the current fiber, whose word is PARKING or claimed. (Nothing unwinds, and nothing is held off.)
            None if plainly => {
                // SAFETY: as below.
                unsafe { self.worker.suspend(self.frame, signal::PARK) };
            }
            // SAFETY: as above.
            None => unsafe { leave(self.worker, self.frame, signal::PARK) },
            Some(deadline) => {
                top.note_deadline(how.reason as u8);
                self.leave_until(ticket, deadline);
            }
        }
        top.clear_wait();
    }

    fn is_about_to_wait(self, how: &Wait) {
        if self.frame.has(flag::WATCHED) {
            watch::parks(self.frame, how);
        }
    }

    fn has_waited(self) {
        if self.frame.has(flag::WATCHED) {
            watch::is_back(self.frame);
        }
    }

    fn around<R>(self, wait: impl FnOnce() -> R) -> R {
        if self.frame.has(flag::HOOKED) { hooks::around(self.frame, wait) } else { wait() }
    }

    #[cold]
    fn await_owner(self) {
        // SAFETY: on the current fiber, whose word is PARKING and claimed.
        unsafe { leave(self.worker, self.frame, signal::PARK) };
    }
}

impl<'a> FiberParker<'a> {
    fn here(self) -> Here<'a> {
        Here::on(self.worker, self.frame)
    }

    /// Leaves, with a timer that may claim the wait.
    #[inline(never)]
    fn leave_until(self, ticket: Ticket, deadline: u64) {
        if needs_a_look(self.frame) {
            return self.leave_closely_until(ticket, deadline);
        }
        let timer = self.worker.set_timer(self.frame, ticket, deadline);
        // SAFETY: on the current fiber, whose word is PARKING or claimed.
        unsafe { self.worker.suspend(self.frame, signal::PARK_BOUND) };
        self.remove(timer);
    }

    /// The same for a fiber that may be unwinding, holds cancellation off, or has thread-locals of its own.
    #[cold]
    #[inline(never)]
    fn leave_closely_until(self, ticket: Ticket, deadline: u64) {
        if self.frame.has(flag::MOVES) && self.frame.has(flag::OWN_LOCALS) {
            return self.leave_anywhere_until(ticket, deadline);
        }
        let timer = self.worker.set_timer(self.frame, ticket, deadline);
        // SAFETY: on the current fiber, whose word is PARKING or claimed.
        unsafe { leave_unwinding(self.worker, self.frame, signal::PARK_BOUND) };
        self.remove(timer);
    }

    /// The same for a fiber that may go on on another worker: its timer fires even if this one is stuck, or gone by then.
    fn leave_anywhere_until(self, ticket: Ticket, deadline: u64) {
        let (frame, seat) = (self.frame, self.worker.index);
        // SAFETY: the runtime outlives its fibers, of which this is one.
        let shared: &RuntimeShared = unsafe { RuntimeShared::of(frame) };
        shared.late.begin();
        let timer = self.worker.set_wheel_timer(WheelDue::Wait(Due::new(frame, ticket)), deadline);
        // SAFETY: on the current fiber, whose word is PARKING or claimed. (The worker is not touched afterwards.)
        unsafe { leave_unwinding(self.worker, frame, signal::PARK) };
        if frame.waiter.word.snapshot().arm() != ARM_TIMEOUT {
            // (If its worker has left, the timer is another one's, and will find that its wait is over.)
            shared.remotes[seat].wheel.remove(timer);
        }
    }

    fn remove(self, timer: Timer) {
        // If the timer ended the wait there is nothing to take back. Otherwise it is in this worker still: the fiber was bound to it.
        if self.frame.waiter.word.snapshot().arm() != ARM_TIMEOUT {
            self.worker.remove_timer(timer);
        }
    }
}

/// Does this fiber, which is about to leave its stack, hold cancellation off, unwind, or have thread-locals of its own?
#[inline(always)]
fn needs_a_look(frame: FrameRef) -> bool {
    // A fiber that unwinds without the hook has no flag yet, and its neighbours must know that it unwinds.
    frame.has(flag::HOLD_OFF | flag::OWN_LOCALS) || std::thread::panicking()
}

/// Suspends the current fiber; see [`Worker::suspend`].
///
/// # Safety
/// As there.
#[inline(always)]
pub(crate) unsafe fn leave(worker: &Worker, frame: FrameRef, signal: usize) {
    if needs_a_look(frame) {
        // SAFETY: passed on.
        unsafe { leave_unwinding(worker, frame, signal) };
    } else {
        // SAFETY: passed on.
        unsafe { worker.suspend(frame, signal) };
    }
}

/// The same for a fiber that may be unwinding (it is inside a destructor), holds cancellation off, or has thread-locals of its own.
///
/// # Safety
/// As there.
#[cold]
#[inline(never)]
unsafe fn leave_unwinding(worker: &Worker, frame: FrameRef, signal: usize) {
    let (rules, here) = (worker.rules(), Here::on(worker, frame));
    let share = rules.leaves(here);
    if frame.has(flag::OWN_LOCALS) {
        // SAFETY: passed on.
        unsafe { own_locals::suspend(worker, frame, signal) };
        // (It may have come back on another worker.)
        return rules.is_back(Here::on(current::worker().unwrap_or(worker), frame), share);
    }
    // SAFETY: passed on.
    unsafe { worker.suspend(frame, signal) };
    rules.is_back(here, share);
}

/// Lets others run first, off the usual path. The current fiber, whose word is RUNNING.
///
/// # Safety
/// As [`leave`].
pub(crate) unsafe fn step_aside(worker: &Worker, frame: FrameRef) {
    // SAFETY: passed on.
    let leave = || unsafe { leave(worker, frame, signal::YIELD) };
    if frame.has(flag::HOOKED) { hooks::around(frame, leave) } else { leave() }
}

/// Lets others run first.
#[inline(always)]
pub(super) fn yield_fiber(worker: &Worker, frame: FrameRef) {
    if frame.has(flag::ANY_CANCEL | flag::NO_SUSPEND | flag::HOLD_OFF | flag::HOOKED | flag::OWN_LOCALS)
        || std::thread::panicking()
    {
        return yield_oddly(worker, frame);
    }
    // SAFETY: on the current fiber, whose word is RUNNING.
    unsafe { worker.suspend(frame, signal::YIELD) };
}

/// The yield of a fiber that is cancelled, unwinds, may not suspend, holds cancellation off or has hooks.
#[cold]
#[inline(never)]
fn yield_oddly(worker: &Worker, frame: FrameRef) {
    assert!(!frame.has(flag::NO_SUSPEND), "fibra: `yield_now` inside `no_suspend`");
    if frame.has(flag::ANY_CANCEL) {
        worker.rules().checkpoint(Here::on(worker, frame), &|| false);
    }
    // SAFETY: on the current fiber, whose word is RUNNING.
    unsafe { step_aside(worker, frame) };
}

#[cold]
#[inline(never)]
fn suspended_in_no_suspend(how: &Wait) -> ! {
    let Wait { reason, site, .. } = how;
    panic!(
        "fibra: a blocking call ({reason}, at {site}) inside `no_suspend`, which promises that this fiber does not \
         leave its worker's thread-locals half changed"
    );
}
