//! Park: the one way to wait (law 2). A fiber parks itself, a plain thread blocks; the code above cannot tell which.
//!
//! ```text
//!  RUNNING ── begin_park ──▶ PARKING ── publish ──▶ (visible to owners) ── switch ──▶ PARKED ── claimed ──▶ RUNNABLE ──▶ RUNNING
//!     ▲                         │                                        (on the scheduler's stack)
//!     └──── abort_park ─────────┘  publish said "nothing to wait for", or the cancel flag is up
//! ```
//!
//! Cancellation is looked at twice: on entry, and after PARKING is visible; after that the canceller claims the wait like any
//! owner. It is never looked at on the way out of a completed wait. No user code runs between PARKING and the switch.
//!
//! **The budget.** Fibers are not preempted, so one that makes calls which need not wait would keep its neighbours, its worker's timers and
//! its own deadline waiting. All such calls, blocking ones that are ready and those that never wait (`try_` forms, questions, uncontended
//! locks), count in one budget of the worker ([`CALLS_PER_TURN`]); the call that finds it used up lets others run first. It does so before
//! it looks or takes anything, so its answer is fresh, and no lock is held that it took itself.

use std::task::Context;
use std::time::Duration;

use super::cancel::{self, Here};
use super::node::WaiterRef;
use super::reason::WaitReason;
pub(crate) use super::waitable::{Ended, Wait, Waitable};
use super::waker::{ThreadRecord, ThreadWait};
use super::word::{ARM_BINDING, ARM_CANCEL, ARM_REVOCABLE, ARM_TIMEOUT, State, Ticket};
use crate::fiber::frame::{FrameRef, flag};
use crate::prim::atomic::{Ordering, handshake_load_u32};
use crate::prim::bug::seeded_bug;
use crate::prim::{clock, panics};
use crate::sched::current;
use crate::sched::worker::{CALLS_PER_TURN, Worker, signal};

/// Waits, as whatever runs here. Cancellation unwinds the fiber.
#[inline]
pub(crate) fn wait(waitable: &impl Waitable, how: Wait) -> Ended {
    match wait_or_cancelled(waitable, how) {
        Ended::Cancelled => cancel::deliver(),
        ended => ended,
    }
}

/// Waits, but returns [`Ended::Cancelled`] instead of unwinding: for callers that have something to take back first.
#[inline]
pub(crate) fn wait_or_cancelled(waitable: &impl Waitable, how: Wait) -> Ended {
    wait_as(waitable, how, Manner::Plain)
}

/// The same for one who wants to know of cancellation as such, also where it is held off and would not be delivered.
pub(crate) fn wait_watching(waitable: &impl Waitable, how: Wait) -> Ended {
    wait_as(waitable, how, Manner::Watching)
}

/// A binding wait that cancellation interrupts all the same, where it could be delivered, with [`Ended::Cancelled`]: for whoever passes it
/// on to the one he waits for, and then waits on, without this.
pub(crate) fn wait_to_pass_on(waitable: &impl Waitable, how: Wait) -> Ended {
    debug_assert!(how.reason.is_binding(), "a revocable wait is interrupted anyway");
    wait_as(waitable, how, Manner::PassingOn)
}

/// How a wait stands to cancellation, beyond what its reason says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Plain,
    Watching,
    PassingOn,
}

#[inline(always)]
fn wait_as(waitable: &impl Waitable, how: Wait, manner: Manner) -> Ended {
    match current::worker() {
        None => thread_wait(waitable, how, manner == Manner::Watching),
        Some(worker) => match worker.current.get() {
            Some(frame) => fiber_wait(worker, frame, waitable, how, manner),
            None => {
                panic!("fibra: a blocking call on a worker's own stack, where only machines run: they must not block")
            }
        },
    }
}

/// Is whatever runs here cancelled, whether that may be delivered or not? The answer of a look in passing.
pub(crate) fn is_cancelled() -> bool {
    Here::new().is_some_and(|here| here.flags() & flag::ANY_CANCEL != 0 && here.is_observable())
}

/// What a call takes from the budget (see the header).
pub(crate) mod cost {
    use crate::sched::worker::CALLS_PER_TURN;

    /// A call that stays in this process.
    pub(crate) const CALL: u32 = 1;
    /// An operation on a socket, which is a system call: 16 of them in a row.
    pub(crate) const OPERATION: u32 = CALLS_PER_TURN / 16;
}

/// On entry to a blocking call, which may not have to wait: counts it in the budget (see the header), and unwinds if whatever runs here is
/// cancelled and may be unwound.
#[inline(always)]
pub(crate) fn entry() {
    entry_unless(|| false);
}

/// The same for one who need not wait if `settled` says so; see [`Waitable::is_settled`].
#[inline(always)]
pub(crate) fn entry_unless(settled: impl FnOnce() -> bool) {
    entry_if(|| true, settled);
}

/// The same for one who is unwound only if `unwinds` says so.
#[inline(always)]
pub(crate) fn entry_if(unwinds: impl FnOnce() -> bool, settled: impl FnOnce() -> bool) {
    enter(cost::CALL, unwinds, settled);
}

/// [`entry`] of an operation on a socket.
#[inline(always)]
pub(crate) fn entry_of_operation() {
    enter(cost::OPERATION, || true, || false);
}

#[inline(always)]
fn enter(cost: u32, unwinds: impl FnOnce() -> bool, settled: impl FnOnce() -> bool) {
    match current::worker() {
        Some(worker) => {
            let Some(frame) = worker.current.get() else { return };
            spend(worker, frame, cost);
            if frame.has(flag::ANY_CANCEL) && unwinds() {
                cancel::checkpoint_unless(settled());
            }
        }
        None => cancel::thread_entry_unless(unwinds, settled),
    }
}

/// On entry to a call that never waits, or does not have to: counts it in the budget (see the header). Cancellation is not looked at. On a
/// plain thread, on a worker's own stack and inside `no_suspend` it does nothing.
#[inline(always)]
pub(crate) fn count_call() {
    count(cost::CALL);
}

/// The same for a call that takes `cost` from the budget.
#[inline(always)]
pub(crate) fn count(cost: u32) {
    if let Some(worker) = current::worker()
        && let Some(frame) = worker.current.get()
    {
        spend(worker, frame, cost);
    }
}

/// [`count_call`], and the fiber that made the call; `None` where no fiber runs.
#[inline(always)]
pub(crate) fn count_call_of() -> Option<FrameRef> {
    let worker = current::worker()?;
    let frame = worker.current.get()?;
    spend(worker, frame, cost::CALL);
    Some(frame)
}

/// [`count_call`] for the poll of a future, which lets others run in its own way: by being pending, with its waker called. True: it is. A
/// poll must not suspend its fiber: the executor around it may be another library's, which keeps things in thread-locals meanwhile.
pub(crate) fn lets_others_run(cx: &Context<'_>) -> bool {
    let has_to = is_used_up(cost::CALL);
    if has_to {
        cx.waker().wake_by_ref();
    }
    has_to
}

/// [`count`] for a future, see [`lets_others_run`]. True: it has to.
pub(crate) fn is_used_up(cost: u32) -> bool {
    let Some(worker) = current::worker() else { return false };
    match worker.calls_left.get().checked_sub(cost) {
        Some(left) => worker.calls_left.set(left),
        None if worker.current.get().is_some_and(|frame| !frame.has(flag::NO_SUSPEND)) => {
            worker.calls_left.set(CALLS_PER_TURN);
            return true;
        }
        None => {}
    }
    false
}

#[inline(always)]
fn spend(worker: &Worker, frame: FrameRef, cost: u32) {
    match worker.calls_left.get().checked_sub(cost) {
        Some(left) => worker.calls_left.set(left),
        None => let_others_run(worker, frame),
    }
}

#[cold]
#[inline(never)]
fn let_others_run(worker: &Worker, frame: FrameRef) {
    // Where it may not, the budget stays used up: the first call after that does. In a panic hook (one that took the place of ours, which
    // raises the flag) a neighbour's panic would abort the process, and its cancellation would spoil std's count.
    let may_not = frame.has(flag::NO_SUSPEND) || std::thread::panicking() && panics::is_in_hook();
    if !may_not {
        debug_assert!(frame.waiter.word.snapshot().is(State::Running), "no user code runs while PARKING");
        worker.calls_left.set(CALLS_PER_TURN);
        // SAFETY: on the current fiber, whose word is RUNNING: no user code, and so no call that counts, runs while it is PARKING.
        unsafe { leave(worker, frame, signal::YIELD) };
    }
}

#[inline]
fn fiber_wait(worker: &Worker, frame: FrameRef, waitable: &impl Waitable, how: Wait, manner: Manner) -> Ended {
    let watching = manner == Manner::Watching;
    let top = frame.top().expect("a running fiber has a stack");
    let flags = frame.flags();
    if flags & flag::NO_SUSPEND != 0 {
        suspended_in_no_suspend(how.reason);
    }
    // Most fibers are not shielded and nobody unwinds: then nothing holds cancellation off.
    let may_hold_off = flags & flag::HOLD_OFF != 0 || std::thread::panicking();
    let kind = match if manner == Manner::PassingOn { ARM_REVOCABLE } else { how.kind() } {
        ARM_REVOCABLE if may_hold_off && !watching => cancel::wait_kind(worker, frame),
        kind => kind,
    };
    let is_due = || {
        let (here, settled) = (Here::on(worker, frame), waitable.is_settled());
        if watching { here.is_observable_unless(settled) } else { here.is_due_unless(settled) }
    };
    if kind != ARM_BINDING && flags & flag::ANY_CANCEL != 0 && is_due() {
        return Ended::Cancelled;
    }
    if how.deadline.is_some_and(|deadline| deadline <= clock::now()) {
        // A yield: somebody who asks again and again, or sleeps for a moment at a time, must not keep the others from running.
        // SAFETY: on the current fiber, whose word is RUNNING.
        unsafe { leave(worker, frame, signal::YIELD) };
        return Ended::TimedOut;
    }
    let word = &frame.waiter.word;
    let _watching = (watching && flags & flag::BARRIER != 0).then(|| Watching::new(frame.waiter_ref()));
    let read_too_early = seeded_bug("park_reads_flag_first").then(|| frame.flags());
    let ticket = word.begin_park(kind);
    // After the word: the canceller sets the flag and then looks at the word. If it is not for this level, or not any more, somebody
    // who comes later finds the wait.
    let read_flags = || read_too_early.unwrap_or_else(|| handshake_load_u32(&frame.waiter.flags));
    if kind != ARM_BINDING && read_flags() & flag::ANY_CANCEL != 0 && is_due() {
        if !word.abort_park() {
            // The canceller was faster and has claimed the wait: let it finish.
            // SAFETY: on the current fiber, whose word is PARKING and claimed.
            unsafe { leave(worker, frame, signal::PARK) };
        }
        return Ended::Cancelled;
    }
    if !waitable.publish(frame.waiter_ref(), ticket) {
        if !word.abort_park() {
            // Cancelled meanwhile, or (a wait with several arms) completed by one that was visible already.
            // SAFETY: as above.
            unsafe { leave(worker, frame, signal::PARK) };
            return Ended::Overtaken(word.snapshot().arm());
        }
        return Ended::NotParked;
    }
    top.note_wait(how.reason as u8, how.object, how.site, worker.cached_now());
    match how.deadline {
        // SAFETY: on the current fiber, whose word is PARKING or claimed.
        None => unsafe { leave(worker, frame, signal::PARK) },
        Some(deadline) => suspend_until(worker, frame, ticket, deadline),
    }
    top.clear_wait();
    match word.snapshot().arm() {
        ARM_TIMEOUT => {
            waitable.unpublish();
            Ended::TimedOut
        }
        ARM_CANCEL => {
            waitable.unpublish();
            Ended::Cancelled
        }
        arm => Ended::Completed(arm),
    }
}

/// Says that a wait behind a shield wants to know of what happens outside.
struct Watching(WaiterRef);

impl Watching {
    fn new(waiter: WaiterRef) -> Self {
        // Relaxed: the waiter's own flag, ordered by the change of its word that follows.
        waiter.get().flags.fetch_or(flag::WATCHING, Ordering::Relaxed);
        Self(waiter)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // Relaxed: as above; what is seen late is a wait that is over.
        self.0.get().flags.fetch_and(!flag::WATCHING, Ordering::Relaxed);
    }
}

/// Suspends the current fiber, whose word is PARKING or claimed, with a timer that may claim the wait.
#[inline(never)]
fn suspend_until(worker: &Worker, frame: FrameRef, ticket: Ticket, deadline: u64) {
    let timer = worker.set_timer(frame, ticket, deadline);
    // SAFETY: on the current fiber, whose word is PARKING or claimed.
    unsafe { leave(worker, frame, signal::PARK_BOUND) };
    // If the timer ended the wait there is nothing to take back. Otherwise it is in this worker still: the fiber was bound to it.
    if frame.waiter.word.snapshot().arm() != ARM_TIMEOUT {
        worker.remove_timer(timer);
    }
}

#[inline(never)]
fn thread_wait(waitable: &impl Waitable, how: Wait, watching: bool) -> Ended {
    let left = || how.deadline.map(|deadline| Duration::from_nanos(deadline.saturating_sub(clock::now())));
    let ended = ThreadRecord::with_mine(|record| {
        let publish = |waiter, ticket| waitable.publish(waiter, ticket);
        let kind = match how.kind() {
            ARM_REVOCABLE if !watching => cancel::thread_wait_kind(record),
            kind => kind,
        };
        let is_due = || {
            let (here, settled) = (Here::on_thread(record), waitable.is_settled());
            if watching { here.is_observable_unless(settled) } else { here.is_due_unless(settled) }
        };
        if left() == Some(Duration::ZERO) {
            // As on a fiber: also who does not wait learns that he is cancelled.
            let flags = Here::on_thread(record).flags();
            let due = kind != ARM_BINDING && flags & flag::ANY_CANCEL != 0 && is_due();
            return if due { ThreadWait::Cancelled } else { ThreadWait::TimedOut };
        }
        let waiter = record.waiter_ref();
        // Relaxed: the thread's own flag.
        let is_behind = waiter.get().flags.load(Ordering::Relaxed) & flag::BARRIER != 0;
        let _watching = (watching && is_behind).then(|| Watching::new(waiter));
        record.wait(publish, || waitable.unpublish(), left, kind, is_due)
    });
    match ended {
        ThreadWait::NotParked => Ended::NotParked,
        ThreadWait::Overtaken(arm) => Ended::Overtaken(arm),
        ThreadWait::Completed(arm) => Ended::Completed(arm),
        ThreadWait::TimedOut => Ended::TimedOut,
        ThreadWait::Cancelled => Ended::Cancelled,
    }
}

/// Lets others run first. On a plain thread this is the system's yield.
#[inline]
pub(crate) fn yield_now() {
    match current::worker() {
        Some(worker) => match worker.current.get() {
            Some(frame) => yield_fiber(worker, frame),
            None => panic!("fibra: yield_now on a worker's own stack"),
        },
        None => {
            cancel::thread_entry_unless(|| true, || false);
            crate::prim::thread::yield_now();
        }
    }
}

#[inline(always)]
fn yield_fiber(worker: &Worker, frame: FrameRef) {
    if frame.has(flag::ANY_CANCEL | flag::NO_SUSPEND) {
        before_yield(frame);
    }
    // SAFETY: on the current fiber, whose word is RUNNING.
    unsafe { leave(worker, frame, signal::YIELD) };
}

/// Suspends the current fiber; see [`Worker::suspend`].
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn leave(worker: &Worker, frame: FrameRef, signal: usize) {
    // Whoever unwinds without the hook has no flag yet, and its neighbours must know of it all the same.
    if frame.has(flag::HOLD_OFF) || std::thread::panicking() {
        // SAFETY: passed on.
        unsafe { cancel::suspend_unwinding(worker, frame, signal) };
    } else {
        // SAFETY: passed on.
        unsafe { worker.suspend(frame, signal) };
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn suspended_in_no_suspend(reason: WaitReason) -> ! {
    panic!(
        "fibra: a blocking call ({reason}) inside `no_suspend`, which promises that this fiber does not leave \
         its worker's thread-locals half changed"
    );
}

#[cold]
#[inline(never)]
fn before_yield(frame: FrameRef) {
    assert!(!frame.has(flag::NO_SUSPEND), "fibra: `yield_now` inside `no_suspend`");
    cancel::checkpoint();
}
