//! One async wait at a time: the common base of fibra's futures. A future publishes itself when it is polled in vain, and takes the wait
//! back when it is polled again or dropped. It is *notified, never filled*, so that a future that is no longer polled holds up nothing it
//! owns.
//!
//! Above: `task::join`, `channel`. Below: the records of `waiter::record`. The node lies in the record, which is recycled and never freed:
//! a future may be forgotten at any time.

use std::task::Waker;

use super::waitable::Waitable;
use crate::prim::bug::seeded_bug;
use crate::waiter::node::Outcome;
use crate::waiter::record::{TaskRecord, call_waker, call_wakers};
use crate::waiter::word::{Commit, WaiterState};

/// The wait of a future, if one is published.
#[derive(Debug, Default)]
pub(crate) struct TaskWait {
    record: Option<&'static TaskRecord>,
}

impl TaskWait {
    pub(crate) const fn new() -> Self {
        Self { record: None }
    }

    /// Has a poll published a wait, so that others ran meanwhile?
    pub(crate) fn is_published(&self) -> bool {
        self.record.is_some()
    }

    /// Polled again before an owner came: the wait keeps its place in the queue, and has this waker from now on. False: there is no wait,
    /// or it was completed; withdraw, and look.
    pub(crate) fn goes_on(&self, waker: &Waker) -> bool {
        let Some(record) = self.record else { return false };
        record.set_waker(Some(waker.clone()));
        // The waker first: an owner claims, and then takes the waker under its lock. An owner that took the old waker is seen here, because
        // this future had that lock afterwards; an owner that is not seen here will find the new waker.
        record.waiter().word.snapshot().is_waiting()
    }

    /// Ends the wait that the last poll published, whichever way it went. Gives what the completion owner noted; `Pending`: there was no
    /// completion owner, or no wait.
    pub(crate) fn withdraw(&mut self, waitable: &impl Waitable) -> Outcome {
        let Some(record) = self.record.take() else { return Outcome::Pending };
        let word = &record.waiter().word;
        let ended = if word.take_back() {
            Outcome::Pending
        } else {
            // Claimed: the owner unlinks the node and releases in a moment.
            while word.snapshot().is_claimed() && !seeded_bug("withdraw_impatient") {
                crate::prim::thread::yield_now();
            }
            word.resume();
            word.check_is(WaiterState::Running);
            record.node.outcome.get()
        };
        let mut owed = Vec::new();
        waitable.unpublish(&record.node, &mut owed);
        record.give();
        call_wakers(owed);
        ended
    }

    /// Publishes a wait. `Pending`: the completion owner calls the waker. `Retry`: it was completed in this very moment and the waker was
    /// not called for it, or there may be something now; withdraw, and look again. Any other value: there is nothing to wait for, and this
    /// is the outcome. No wait is published before this.
    pub(crate) fn publish(&mut self, waker: &Waker, waitable: &impl Waitable) -> Outcome {
        debug_assert!(self.record.is_none(), "one wait at a time");
        // User code: before the record is taken, lest it be lost if this panics.
        let waker = waker.clone();
        let record = TaskRecord::take();
        record.set_waker(Some(waker));
        record.node.begin(record.waiter_ref(), record.begin());
        let (published, peer) = waitable.publish(&record.node);
        if published == Outcome::Pending {
            self.record = Some(record);
            return match record.waiter().word.commit_park() {
                Commit::Parked => Outcome::Pending,
                Commit::Requeue => Outcome::Retry,
            };
        }
        let aborted = record.waiter().word.abort_park();
        debug_assert!(aborted, "a wait that was not published has no owner that could claim it");
        record.give();
        if let Some(waker) = peer {
            call_waker(waker);
        }
        published
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
