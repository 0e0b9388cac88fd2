//! The lock of actors without its value: what is released belongs to the next in the queue before that one runs.
//!
//! Above: `lock`. Below: the gate of `sync`, which holds the queue: failing to get the lock and joining the queue are one step under its
//! lock. Compiled for the models as it ships.
//!
//! Invariant: LOCKED, and whether a waiter is queued, lie in one word. A newcomer takes the lock by one compare-exchange, and only if no
//! waiter is queued: so there is no barging, unlike in `sync::Mutex`.

use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::prim::atomic::{AtomicU64, Ordering};
use crate::prim::bug::seeded_bug;
use crate::sync::gate::{Ask, Gate, GateTask, Rules};
use crate::wait::reason::WaitReason;
use crate::waiter::node::Outcome;

/// A waiter is queued: the fiber that unlocks hands the lock over.
const WAITING: u64 = 1;
/// It is held.
const LOCKED: u64 = 2;

struct LockRules(AtomicU64);

impl LockRules {
    fn take(&self, if_waiting: bool) -> bool {
        // Relaxed: the compare-exchange does the ordering.
        let mut word = self.0.load(Ordering::Relaxed);
        while word & LOCKED == 0 && (if_waiting || word & WAITING == 0) {
            // Acquire: pairs with the release of the owner before. Relaxed on failure: tried again.
            match self.0.compare_exchange_weak(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(actual) => word = actual,
            }
        }
        false
    }
}

impl Rules for LockRules {
    fn grant(&self, _: usize) -> bool {
        self.take(true)
    }

    fn revoke(&self, _: usize) {
        // Release: as in `unlock`; the settling that calls this goes on.
        self.0.fetch_and(!LOCKED, Ordering::Release);
    }

    fn is_grantable(&self, _: usize) -> bool {
        // Relaxed: a waiter that is told yes comes back and takes it.
        self.0.load(Ordering::Relaxed) & LOCKED == 0
    }

    fn set_waiting(&self, waiting: bool) {
        // Relaxed: one word; a release after this in its order finds the flag, one before it is found by the try that follows.
        if waiting {
            self.0.fetch_or(WAITING, Ordering::Relaxed);
        } else {
            // Relaxed: as above.
            self.0.fetch_and(!WAITING, Ordering::Relaxed);
        }
    }
}

/// See the header.
pub(super) struct Baton(Gate<LockRules>);

impl Baton {
    pub(super) fn new() -> Self {
        Self(Gate::new(LockRules(AtomicU64::new(0))))
    }

    /// Takes it if it is free and no other waits for it.
    #[inline]
    #[must_use]
    pub(super) fn try_take(&self) -> bool {
        self.0.rules().take(seeded_bug("actor_lock_barges"))
    }

    /// Waits for it in order. False: not in time. Cancellation unwinds.
    #[must_use]
    pub(super) fn take(&self, object: u64, deadline: Option<u64>, site: &'static Location<'static>) -> bool {
        let ask = Ask { want: 1, first: false, reason: WaitReason::ActorLock, object, site, deadline };
        self.0.wait(ask) == Outcome::Done
    }

    /// The same as a future.
    pub(super) fn take_async(&self) -> BatonFuture<'_> {
        BatonFuture { baton: self, task: GateTask::new() }
    }

    pub(super) fn is_taken(&self) -> bool {
        !self.0.rules().is_grantable(1)
    }

    /// Is a waiter queued?
    #[cfg(all(test, any(loom, shuttle)))]
    pub(super) fn is_waited_for(&self) -> bool {
        // Relaxed: a look.
        self.0.rules().0.load(Ordering::Relaxed) & WAITING != 0
    }

    /// Gives it to the next in the queue, or leaves it free.
    #[inline]
    pub(super) fn give(&self) {
        // Release: pairs with the acquire of the next owner.
        let word = self.0.rules().0.fetch_and(!LOCKED, Ordering::Release);
        if word & WAITING != 0 && !seeded_bug("actor_unlock_silent") {
            self.0.settle();
        }
    }
}

/// See [`Baton::take_async`]: when it is ready, the caller has the lock.
#[must_use = "futures do nothing unless polled"]
pub(super) struct BatonFuture<'a> {
    baton: &'a Baton,
    task: GateTask,
}

impl Future for BatonFuture<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.task.poll(&this.baton.0, 1, cx).map(drop)
    }
}

impl Drop for BatonFuture<'_> {
    fn drop(&mut self) {
        self.task.leave(&self.baton.0);
    }
}
