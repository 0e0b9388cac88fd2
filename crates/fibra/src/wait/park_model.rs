//! `park` for models: whoever waits is one of the model's threads. loom has no clock, so a deadline is over whenever one looks, and the
//! race that remains is the one worth exploring: the waiter taking its wait back against an owner that claims it.

use std::time::Duration;

use super::node::WaiterRef;
pub(crate) use super::waitable::{Ended, Wait, Waitable};
use super::waker::{ThreadRecord, ThreadWait};
use super::word::State;

#[cfg(loom)]
loom::thread_local! {
    static MINE: &'static ThreadRecord = ThreadRecord::leaked();
}
#[cfg(all(shuttle, not(loom)))]
shuttle::thread_local! {
    static MINE: &'static ThreadRecord = ThreadRecord::leaked();
}

/// What a model's thread unwinds with if it is cancelled in [`wait`].
pub(crate) struct CancelledInModel;

/// The record of the model's thread that runs here, to be given to whoever cancels it.
pub(crate) fn me() -> WaiterRef {
    MINE.with(|record| record.waiter_ref())
}

/// Cancels the thread whose [`me`] this is.
pub(crate) fn cancel(waiter: WaiterRef) {
    ThreadRecord::cancel(waiter);
}

/// Waits, as the model's thread that runs here. Unwinds with [`CancelledInModel`] if that is cancelled.
pub(crate) fn wait(waitable: &impl Waitable, how: Wait) -> Ended {
    match wait_or_cancelled(waitable, how) {
        Ended::Cancelled => std::panic::resume_unwind(Box::new(CancelledInModel)),
        ended => ended,
    }
}

/// Nobody is asked on entry in a model: only waits are cancelled.
pub(crate) fn entry() {}

/// As [`entry`].
pub(crate) fn entry_unless(_: impl FnOnce() -> bool) {}

/// As [`entry`].
pub(crate) fn entry_if(_: impl FnOnce() -> bool, _: impl FnOnce() -> bool) {}

/// Models have no budget.
pub(crate) fn count_call() {}

/// As [`count_call`].
pub(crate) fn lets_others_run(_: &std::task::Context<'_>) -> bool {
    false
}

/// No model looks in passing.
pub(crate) fn is_cancelled() -> bool {
    false
}

/// Like [`wait_or_cancelled`].
pub(crate) fn wait_watching(waitable: &impl Waitable, how: Wait) -> Ended {
    wait_or_cancelled(waitable, how)
}

/// Like [`wait`], but returns [`Ended::Cancelled`].
pub(crate) fn wait_or_cancelled(waitable: &impl Waitable, how: Wait) -> Ended {
    let mine = MINE.with(|record| *record);
    // One that is used while it is about to park (a waker that waits) takes another. Type-stable for the rest of the model, like every
    // record.
    let record = if me().get().word.snapshot().is(State::Running) { mine } else { ThreadRecord::leaked() };
    let left = || how.deadline.map(|_| Duration::ZERO);
    let publish = |waiter, ticket| waitable.publish(waiter, ticket);
    match record.wait(publish, || waitable.unpublish(), left, how.kind(), || true) {
        ThreadWait::NotParked => Ended::NotParked,
        ThreadWait::Overtaken(arm) => Ended::Overtaken(arm),
        ThreadWait::Completed(arm) => Ended::Completed(arm),
        ThreadWait::TimedOut => Ended::TimedOut,
        ThreadWait::Cancelled => Ended::Cancelled,
    }
}
