//! The places of a bounded mailbox, as permits: a sender has one before it appends a message, and the turn that takes the message gives
//! it back.
//!
//! Above: `desk` and the forms of `send`. Below: the gate of `sync`, so that senders wait in order, as fibers, threads, futures and arms.
//!
//! Invariants: what is free, whether it is closed and whether a sender is queued lie in one word, so no wake is lost (see `sync::gate`);
//! newcomers do not overtake a queued sender; after [`close`](Places::close) no place is given, and every waiter is refused.

use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::prim::atomic::{AtomicU64, Ordering};
use crate::sync::gate::{Ask, Gate, GateTask, GateWait, Rules};
use crate::wait::reason::WaitReason;
use crate::waiter::node::Outcome;

/// A sender is queued.
const WAITING: u64 = 1;
/// No place is given any more.
const CLOSED: u64 = 2;
/// One free place; their number is the rest of the word.
const ONE: u64 = 4;

/// The largest mailbox.
pub(super) const MOST: usize = 1 << 40;

pub(super) struct PlaceRules(AtomicU64);

impl PlaceRules {
    /// Takes a place; Err: the word that says why not.
    #[inline]
    fn take(&self, if_waiting: bool) -> Result<(), u64> {
        // Relaxed: the compare-exchange does the ordering, and a no is a moment's.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & CLOSED != 0 || word < ONE || (word & WAITING != 0 && !if_waiting) {
                return Err(word);
            }
            // Relaxed, both: a place is a number; the message it is for, and what comes with it, are published by the mailbox's lock.
            match self.0.compare_exchange_weak(word, word - ONE, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(actual) => word = actual,
            }
        }
    }
}

impl Rules for PlaceRules {
    fn grant(&self, _: usize) -> bool {
        self.take(true).is_ok()
    }

    fn revoke(&self, _: usize) {
        // Relaxed: as in `take`.
        self.0.fetch_add(ONE, Ordering::Relaxed);
    }

    fn is_grantable(&self, _: usize) -> bool {
        // Relaxed: a sender that is told yes comes back and takes it.
        let word = self.0.load(Ordering::Relaxed);
        word & CLOSED == 0 && word >= ONE
    }

    fn refuses(&self, _: usize) -> bool {
        // Relaxed: closed under the gate's lock, which the caller holds.
        self.0.load(Ordering::Relaxed) & CLOSED != 0
    }

    fn set_waiting(&self, waiting: bool) {
        // Relaxed: one word; a place that is given after this in its order finds the flag, and one given before is found by the try that
        // follows.
        if waiting {
            self.0.fetch_or(WAITING, Ordering::Relaxed);
        } else {
            // Relaxed: as above.
            self.0.fetch_and(!WAITING, Ordering::Relaxed);
        }
    }
}

/// Why there is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoPlace {
    Full,
    Closed,
    TimedOut,
}

/// See the header.
pub(super) struct Places(Gate<PlaceRules>);

impl Places {
    pub(super) fn new(capacity: usize) -> Self {
        Self(Gate::new(PlaceRules(AtomicU64::new(capacity.min(MOST) as u64 * ONE))))
    }

    /// Takes a place if one is free and no sender is queued for it.
    #[inline]
    pub(super) fn try_take(&self) -> Result<(), NoPlace> {
        match self.0.rules().take(false) {
            Ok(()) => Ok(()),
            Err(word) if word & CLOSED != 0 => Err(NoPlace::Closed),
            Err(_) => Err(NoPlace::Full),
        }
    }

    /// Takes a place, waiting for it in order. Cancellation unwinds.
    #[cold]
    pub(super) fn take(&self, deadline: Option<u64>, site: &'static Location<'static>) -> Result<(), NoPlace> {
        let object = std::ptr::from_ref(self).addr() as u64;
        let ask = Ask { want: 1, first: false, reason: WaitReason::ActorSend, object, site, deadline };
        match self.0.wait(ask) {
            Outcome::Done => Ok(()),
            Outcome::Closed => Err(NoPlace::Closed),
            _ => Err(NoPlace::TimedOut),
        }
    }

    /// The same as a future.
    pub(super) fn take_async(&self) -> PlaceFuture<'_> {
        PlaceFuture { places: self, task: GateTask::new() }
    }

    /// The same as a part of an arm.
    pub(super) fn arm(&self) -> GateWait<'_, PlaceRules> {
        self.0.arm(1)
    }

    pub(super) fn is_closed(&self) -> bool {
        // Relaxed: it stays so.
        self.0.rules().0.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Gives a place back.
    #[inline]
    pub(super) fn give(&self) {
        // Relaxed: as in `take`.
        if self.0.rules().0.fetch_add(ONE, Ordering::Relaxed) & WAITING != 0 {
            self.0.settle();
        }
    }

    /// No place is given any more; a task that waits for one is refused.
    pub(super) fn close(&self) {
        // Relaxed: under the gate's lock.
        self.0.update(|rules| rules.0.fetch_or(CLOSED, Ordering::Relaxed));
    }
}

impl std::fmt::Debug for Places {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Relaxed: a number for people.
        f.debug_struct("Places").field("free", &(self.0.rules().0.load(Ordering::Relaxed) / ONE)).finish()
    }
}

/// See [`Places::take_async`]: true, it has a place; false, the mailbox is closed.
#[must_use = "futures do nothing unless polled"]
pub(super) struct PlaceFuture<'a> {
    places: &'a Places,
    task: GateTask,
}

impl Future for PlaceFuture<'_> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let this = &mut *self;
        this.task.poll(&this.places.0, 1, cx)
    }
}

impl Drop for PlaceFuture<'_> {
    fn drop(&mut self) {
        self.task.leave(&self.places.0);
    }
}
