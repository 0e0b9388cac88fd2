//! `park` for models: whoever waits is one of the model's threads. loom has no clock, so a deadline is over whenever one looks, and the
//! race that remains is the one worth exploring: the waiter taking its wait back against an owner that claims it.

use std::time::Duration;

pub(crate) use super::waitable::{Ended, Wait, Waitable};
use super::waker::{ThreadRecord, ThreadWait};

/// Waits; nobody is cancelled here.
pub(crate) fn wait_or_cancelled(waitable: &impl Waitable, how: Wait) -> Ended {
    wait(waitable, how)
}

/// Waits, as the model's thread that runs here.
pub(crate) fn wait(waitable: &impl Waitable, how: Wait) -> Ended {
    // Type-stable for the rest of the model, like every record.
    let record = ThreadRecord::leaked();
    let left = || how.deadline.map(|_| Duration::ZERO);
    match record.wait(|waiter, ticket| waitable.publish(waiter, ticket), || waitable.unpublish(), left) {
        ThreadWait::NotParked => Ended::NotParked,
        ThreadWait::Overtaken(arm) => Ended::Overtaken(arm),
        ThreadWait::Completed(arm) => Ended::Completed(arm),
        ThreadWait::TimedOut => Ended::TimedOut,
    }
}
