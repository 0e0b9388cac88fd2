//! The budget: fibers are not preempted, so a fiber that only makes calls which need not wait would keep its neighbours, its worker's
//! timers and its own deadline waiting. All such calls, blocking ones that are ready and those that never wait (`try_` forms, questions,
//! uncontended locks), count in one budget of the worker ([`CALLS_PER_TURN`]); the call that finds it used up lets other fibers run first.
//! It does so before it looks or takes anything, so its answer is fresh, and it holds no lock of its own meanwhile.
//!
//! Blocking calls count on entry, where they also learn of cancellation: [`entry`] and its kin. Above: every call of the public interface.
//! Below: `fiber.rs`, `cancel` by way of `sched::rules`.

use std::task::Context;

use super::fiber::step_aside;
use crate::fiber::frame::{FrameRef, flag};
use crate::prim::home_lock::Lane;
use crate::prim::panics;
use crate::sched::current;
use crate::sched::here::Here;
use crate::sched::worker::{CALLS_PER_TURN, Worker};
use crate::waiter::word::WaiterState;

/// The cost of a call, taken from the budget (see the header).
pub(crate) mod cost {
    use crate::sched::worker::CALLS_PER_TURN;

    /// A call that stays in this process.
    pub(crate) const CALL: i32 = 1;
    /// An operation on a socket, which is a system call: 16 of them in a row.
    pub(crate) const OPERATION: i32 = CALLS_PER_TURN / 16;
}

/// [`entry`] in its shortest form, for hot paths: counts the call, if a fiber runs here that has calls left and was not asked to end.
/// False: the call has to begin with `entry` (or [`count_call`], if it never waits), out of line. So a path that
/// calls this needs no stack frame of its own.
#[inline(always)]
pub(crate) fn passes() -> bool {
    passes_as().is_some()
}

/// The same, and by which lane the locks of channels know the worker.
#[inline(always)]
pub(crate) fn passes_as() -> Option<Lane> {
    let worker = current::worker()?;
    let frame = worker.current.get()?;
    if frame.has(flag::ANY_CANCEL) {
        return None;
    }
    // Below zero it is used up. (So one instruction counts and tells.)
    let left = worker.calls_left.get().wrapping_sub(cost::CALL);
    worker.calls_left.set(left);
    (left >= 0).then_some(worker.lane)
}

/// Who locks a channel here.
#[inline(always)]
pub(crate) fn lane() -> Lane {
    current::worker().map_or(Lane::NONE, |worker| worker.lane)
}

/// On entry to a blocking call, which may not have to wait: counts it in the budget (see the header), and unwinds if the current fiber or
/// thread is cancelled and may be unwound.
#[inline(always)]
pub(crate) fn entry() {
    entry_unless(|| false);
}

/// The same for a call that need not wait if `settled` says so; see [`Waitable::is_settled`].
#[inline(always)]
pub(crate) fn entry_unless(settled: impl Fn() -> bool) {
    entry_if(|| true, settled);
}

/// The same for a call that unwinds only if `unwinds` says so.
#[inline(always)]
pub(crate) fn entry_if(unwinds: impl FnOnce() -> bool, settled: impl Fn() -> bool) {
    enter(cost::CALL, unwinds, || checkpoint_unless(&settled));
}

/// [`entry`] of an operation on a socket.
#[inline(always)]
pub(crate) fn entry_of_operation() {
    enter(cost::OPERATION, || true, checkpoint);
}

#[inline(always)]
fn enter(cost: i32, unwinds: impl FnOnce() -> bool, checkpoint: impl FnOnce()) {
    match current::worker() {
        Some(worker) => {
            let Some(frame) = worker.current.get() else { return };
            spend(worker, frame, cost);
            if frame.has(flag::ANY_CANCEL) && unwinds() {
                checkpoint();
            }
        }
        None => thread_entry(unwinds, checkpoint),
    }
}

/// On entry to a blocking call of a plain thread. A thread itself is never cancelled, only the scopes whose bodies it runs.
#[inline(always)]
pub(super) fn thread_entry(unwinds: impl FnOnce() -> bool, checkpoint: impl FnOnce()) {
    if !current::thread_cancel_state().open.get().is_null() && unwinds() {
        checkpoint();
    }
}

/// Unwinds if the current fiber or thread is cancelled and may be unwound. (A call without arguments: a reference to something on the stack
/// would keep callers from leaving their stack frames to what they call last.)
#[cold]
#[inline(never)]
pub(super) fn checkpoint() {
    checkpoint_unless(&|| false);
}

/// Unwinds if the current fiber or thread is cancelled and may be unwound. `settled`: see [`Waitable::is_settled`].
#[inline(never)]
fn checkpoint_unless(settled: &dyn Fn() -> bool) {
    if let Some(here) = Here::new()
        && let Some(rules) = here.rules()
    {
        rules.checkpoint(here, settled);
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
pub(crate) fn count(cost: i32) {
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
pub(crate) fn is_used_up(cost: i32) -> bool {
    let Some(worker) = current::worker() else { return false };
    match worker.calls_left.get().wrapping_sub(cost) {
        left @ 0.. => worker.calls_left.set(left),
        _ if worker.current.get().is_some_and(|frame| !frame.has(flag::NO_SUSPEND)) => {
            worker.calls_left.set(CALLS_PER_TURN);
            return true;
        }
        _ => {}
    }
    false
}

#[inline(always)]
fn spend(worker: &Worker, frame: FrameRef, cost: i32) {
    match worker.calls_left.get().wrapping_sub(cost) {
        left @ 0.. => worker.calls_left.set(left),
        _ => let_others_run(worker, frame),
    }
}

#[cold]
#[inline(never)]
fn let_others_run(worker: &Worker, frame: FrameRef) {
    // Where it may not, the budget stays used up: the first call after that does. In a panic hook (one that took the place of ours, which
    // raises the flag) a neighbour's panic would abort the process, and its cancellation would spoil std's count.
    let may_not = frame.has(flag::NO_SUSPEND) || std::thread::panicking() && panics::is_in_hook();
    if !may_not {
        debug_assert!(frame.waiter.word.snapshot().is(WaiterState::Running), "no user code runs while PARKING");
        worker.calls_left.set(CALLS_PER_TURN);
        // SAFETY: on the current fiber, whose word is RUNNING: no user code, and so no call that counts, runs while it is PARKING.
        unsafe { step_aside(worker, frame) };
    }
}
