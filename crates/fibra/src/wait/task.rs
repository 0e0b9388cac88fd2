//! One async wait at a time: what the futures of fibra share. A future publishes itself when it is polled in vain, and takes the wait back
//! when it is polled again or dropped; it is *notified, never filled*, so that a future that nobody polls any more holds up nothing
//! it owns.
//!
//! Above: `scope::join`, `channel`. Below: the records of `waker`. The node lies in the record, which is recycled and never freed: a future
//! may be forgotten at any time.

use std::task::Waker;

use super::node::{Node, WaiterRef};
use super::waker::TaskRecord;
use super::word::{Arm, Commit, Ticket};
use crate::prim::bug::seeded_bug;

/// The wait of a future, if one is published.
#[derive(Debug, Default)]
pub(crate) struct TaskWait {
    record: Option<&'static TaskRecord>,
}

/// What [`TaskWait::publish`] came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Published {
    /// Whoever completes the wait calls the waker.
    Pending,
    /// The object said that there is nothing to wait for.
    Refused,
    /// Completed in this very moment, and nobody has called the waker for it: withdraw, and look again.
    Completed,
}

impl TaskWait {
    pub(crate) const fn new() -> Self {
        Self { record: None }
    }

    /// Has a poll published a wait, so that others ran meanwhile?
    pub(crate) fn is_published(&self) -> bool {
        self.record.is_some()
    }

    /// Polled again before anybody came: the wait keeps its place in the queue, and has this waker from now on. False: there is no
    /// wait, or it was completed; withdraw, and look.
    pub(crate) fn goes_on(&self, waker: &Waker) -> bool {
        let Some(record) = self.record else { return false };
        record.set_waker(Some(waker.clone()));
        // The waker first: an owner claims, and then takes the waker under its lock. One who took the old waker is seen here, because that
        // lock was ours afterwards; one who is not seen here will find the new one.
        record.waiter().word.snapshot().is_waiting()
    }

    /// Ends the wait that the last poll published, whichever way it went. `unlink` takes the node out of its list, if it is still linked.
    /// `Some`: an owner had completed it, as this arm.
    pub(crate) fn withdraw(&mut self, unlink: impl FnOnce(&Node)) -> Option<Arm> {
        let record = self.record.take()?;
        let word = &record.waiter().word;
        let completed = if word.take_back() {
            None
        } else {
            // Claimed: the owner unlinks the node and releases in a moment.
            while word.snapshot().is_claimed() && !seeded_bug("withdraw_impatient") {
                crate::prim::thread::yield_now();
            }
            let arm = word.snapshot().arm();
            word.resume();
            Some(arm)
        };
        unlink(&record.node);
        record.give();
        completed
    }

    /// Publishes a wait: `publish` links the node, or says that there is nothing to wait for. No wait is published before this.
    pub(crate) fn publish(
        &mut self,
        waker: &Waker,
        publish: impl FnOnce(&'static Node, WaiterRef, Ticket) -> bool,
    ) -> Published {
        debug_assert!(self.record.is_none(), "one wait at a time");
        // User code: before the record is taken, lest it be lost if this panics.
        let waker = waker.clone();
        let record = TaskRecord::take();
        record.set_waker(Some(waker));
        let ticket = record.begin();
        if publish(&record.node, record.waiter_ref(), ticket) {
            self.record = Some(record);
            return match record.waiter().word.commit_park() {
                Commit::Parked => Published::Pending,
                Commit::Requeue => Published::Completed,
            };
        }
        let aborted = record.waiter().word.abort_park();
        debug_assert!(aborted, "nobody knows of a wait that was not published");
        record.give();
        Published::Refused
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
