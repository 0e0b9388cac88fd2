//! Counters of a worker. Only their owner writes them, any thread reads them, and no decision depends on them (S1-26).
//!
//! Above: the worker's loop, which counts, and `monitor::metrics` and reports, which read. Below: `prim`.

use crate::prim::atomic::{AtomicU64, Ordering};

/// A counter with one writer: adding is a load and a store, not a read-modify-write.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Only the owner may call this.
    #[inline(always)]
    pub(crate) fn add(&self, n: u64) {
        // Relaxed, both: one writer; readers want a number, not an order.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
    /// Only the owner may call this. For gauges.
    #[inline(always)]
    pub(crate) fn sub(&self, n: u64) {
        // Relaxed, both: as in `add`.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(n), Ordering::Relaxed);
    }
    /// Only the owner may call this.
    pub(crate) fn set(&self, n: u64) {
        // Relaxed: as in `add`.
        self.0.store(n, Ordering::Relaxed);
    }
    pub(crate) fn get(&self) -> u64 {
        // Relaxed: as in `add`.
        self.0.load(Ordering::Relaxed)
    }
}

/// What one worker counts.
#[derive(Debug, Default)]
pub(crate) struct WorkerStats {
    /// Fibers resumed (also the sign of progress that sysmon looks at).
    pub(crate) switches: Counter,
    /// Fibers and tasks spawned here.
    pub(crate) spawned: Counter,
    /// Fibers and tasks that ended here.
    pub(crate) ended: Counter,
    /// Started fibers that live here.
    pub(crate) started: Counter,
    /// Of those, how many are parked (a gauge).
    pub(crate) parked: Counter,
    /// Unstarted fibers taken from other workers.
    pub(crate) stolen: Counter,
    /// Unstarted fibers taken from the injector.
    pub(crate) injected: Counter,
    /// Wakes by the running fiber or its end, on this worker.
    pub(crate) wakes_local: Counter,
    /// Wakes that came through the inbox.
    pub(crate) wakes_remote: Counter,
    /// Wakes by a timer.
    pub(crate) wakes_timer: Counter,
    /// Times the worker went to sleep.
    pub(crate) sleeps: Counter,
    /// Times that work which asked for a better place was sent to one.
    pub(crate) departures: Counter,
    /// Time in which sysmon found its thread blocked in a call; sysmon alone counts it.
    pub(crate) blocked_nanos: Counter,
    /// Searches for work of other workers.
    pub(crate) searches: Counter,
    /// Sleeping workers this one woke because it had more than it could run.
    pub(crate) surplus_wakes: Counter,
    /// Queue entries dropped because another thread had taken the frame.
    pub(crate) stale_entries: Counter,
    /// Stacks taken warm from the pool.
    pub(crate) stacks_reused: Counter,
    /// Stacks that had to be made.
    pub(crate) stacks_fresh: Counter,
    /// Cancellations delivered by unwinding.
    pub(crate) cancellations: Counter,
}

impl WorkerStats {
    /// How many of the started fibers that live here could run.
    pub(crate) fn runnable(&self) -> u64 {
        self.started.get().saturating_sub(self.parked.get())
    }
}
