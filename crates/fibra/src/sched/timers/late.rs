//! Deadlines that lie in the store of a seat whose worker does not come to fire them: another worker does.
//!
//! A fiber that moves can go on on any worker, so its time must not depend on the worker that it last ran on. A worker that looks at its
//! timers anyway, or finds nothing to do, also looks, with one load each, at the stores of the other seats, and fires what is late by
//! [`LATE_FOR_OTHERS`]: a worker that is not held up is faster than that. While all others sleep, sysmon looks, and wakes one for what it
//! fires.
//!
//! None of this is done in a runtime in which no fiber that moves has waited with a deadline ([`Late::begin`]).
//!
//! Above: `timing.rs`, `search.rs`, `monitor::sysmon`. Below: `wheel.rs`.
//!
//! Invariant: advisory, as all looks of one worker at another. What fires is decided under the lock of the store, once.

use crate::prim::atomic::{AtomicBool, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::policy;
use crate::sched::worker::Worker;

/// A deadline that is so late, in nanoseconds, is fired by another worker.
const LATE_FOR_OTHERS: u64 = 500_000;
/// So many of a seat at one look: a look stays short, and the next is soon.
const MOST_FOR_OTHERS: u64 = 64;
/// A deadline that is so late is not going to be kept by a worker: sysmon fires it. The first where fibers move, for whose sake a worker
/// can be woken; the second where most of what is late is so because the whole machine is busy.
const LATE_FOR_SYSMON: (u64, u64) = (1_000_000, 5_000_000);

/// Have fibers that move waited for time in this runtime?
#[derive(Debug)]
pub(crate) struct Late(AtomicBool);

impl Late {
    pub(in crate::sched) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// A fiber that moves is about to wait with a deadline.
    pub(crate) fn begin(&self) {
        // Relaxed, here and below: a hint. A worker that does not see it yet leaves the deadline to sysmon.
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed); // Relaxed: as above.
        }
    }

    /// Do workers look at each other's deadlines?
    #[inline(always)]
    pub(in crate::sched) fn is_looked_at(&self) -> bool {
        self.0.load(Ordering::Relaxed) // Relaxed: as above.
    }

    /// How late a deadline is, in nanoseconds, that sysmon fires.
    pub(crate) fn for_sysmon(&self) -> u64 {
        if self.is_looked_at() { LATE_FOR_SYSMON.0 } else { LATE_FOR_SYSMON.1 }
    }
}

impl Worker {
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.index;
        (0..self.shared.seats.made()).filter(move |seat| *seat != me)
    }

    /// A busy worker: fires what is late in the stores of others.
    #[inline(always)]
    pub(super) fn fire_late(&self, now: u64) {
        if self.shared.late.is_looked_at() {
            self.fire_late_of_others(now);
        }
    }

    #[cold]
    #[inline(never)]
    fn fire_late_of_others(&self, now: u64) {
        let due = now.saturating_sub(LATE_FOR_OTHERS);
        if seeded_bug("late_left_to_others") {
            return;
        }
        for seat in self.others() {
            // (Without its lock, if nothing is late there.)
            self.shared.fire_deadlines(seat, due, MOST_FOR_OTHERS);
            self.take_late_returns_of(seat, now);
        }
    }

    /// One that finds nothing to do: is there something late in the stores of others?
    #[inline(always)]
    pub(in crate::sched) fn sees_late(&self) -> bool {
        self.shared.late.is_looked_at() && self.sees_late_of_others()
    }

    #[cold]
    #[inline(never)]
    fn sees_late_of_others(&self) -> bool {
        let now = policy::now();
        let is_late = |next: u64| next.saturating_add(LATE_FOR_OTHERS) <= now;
        self.others().any(|seat| {
            let remote = &self.shared.remotes[seat];
            remote.wheel.next_deadline().is_some_and(is_late) || remote.returns.is_late(now)
        })
    }
}
