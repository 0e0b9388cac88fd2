//! When a worker that has more started fibers than it can run gives new ones to another.
//!
//! A started fiber stays where it is, and a new one is started within a few turns, before a thief would take it (`patience.rs`). So a
//! program that grows while it runs (a chain of filters, a server) would fill one worker and leave the others idle. What can still be
//! placed are the fibers that it spawns from then on: a worker on which [`MANY`] fibers could run, all the time for [`LONG`], gives new
//! ones away if another worker has less than half as many that could. Fibers that are spawned one after the other talk to one another,
//! more often than not, so it gives a block: as many as it has itself, unless the other worker becomes the busier one before.
//!
//! A group that is spawned at once is not torn apart by this: it has started long before [`LONG`] is over. Nor are fibers that wait for one
//! another most of the time (a ring, a pair): few of them can run at any moment. What is given goes through the injector, from which
//! any worker takes; the giver, which would take it first, looks there less often.
//!
//! A worker that does not have its processor for itself gives nothing: there is none to spare, and two workers that share one would
//! pay for every message between them with a switch of threads.
//!
//! A worker looks at its own load at every fair point, for a few instructions; at that of others only when it has something to give.
//!
//! Above: `worker.rs`, which asks when it takes an unstarted fiber. Below: `stretch.rs`, `stats.rs`, `idle.rs`, the injector.

use std::cell::Cell;

use super::phase::Phase;
use super::queue::Entry;
use super::stretch::{Stretch, Times};
use super::worker::Worker;
use crate::prim::policy;

/// So many fibers that could run are more than a worker needs.
const MANY: u64 = 8;
/// Cycles for which they have to be there (1 to 5 ms). Then its processor time is measured over as many.
const LONG: u64 = 5_000_000;
/// A worker that gives takes from the injector at every so many fair points only (0.1 ms and more apart).
const TAKES_BACK: u32 = 64;

/// See the header. A worker's memory of its load.
#[derive(Debug)]
pub(super) struct Overload {
    /// For how long it has been under load. If that is long, a new fiber is given away, if there is a worker to give it to.
    load: Stretch,
    /// So many more belong to the block that it gives.
    left: Cell<u64>,
}

impl Overload {
    pub(super) fn new() -> Self {
        Self { load: Stretch::new(), left: Cell::new(0) }
    }

    /// Is a new fiber to be given away, if there is a worker to give it to?
    #[inline(always)]
    pub(super) fn is_long(&self) -> bool {
        self.load.is_long()
    }

    /// At this moment, in cycles, so many fibers could run.
    fn note(&self, runnable: u64, now: impl FnOnce() -> u64, times: impl FnOnce() -> Times) {
        if runnable < MANY {
            self.load.end();
            self.left.set(0);
        } else if !self.is_long() {
            self.load.note(now(), LONG, times);
        }
    }

    /// Is a fiber given away by a worker that has started so many, of which `own` could run, to one of which `other` could, or soon will?
    fn gives(&self, own: u64, started: u64, other: u64, now: impl FnOnce() -> u64) -> bool {
        let left = self.left.get();
        let gives = if left > 0 { other <= 2 * own + MANY } else { own >= MANY && other < own / 2 };
        let left = match (gives, left) {
            (false, _) => 0,
            (true, 0) => started.saturating_sub(1),
            (true, left) => left - 1,
        };
        self.left.set(left);
        if left == 0 {
            self.load.begin(now());
        }
        gives
    }
}

impl Worker {
    /// At a fair point.
    pub(super) fn note_load(&self) {
        if !self.alone {
            self.overload.note(self.stats().runnable(), policy::cycles, || self.times());
        }
    }

    /// Does this worker leave what is in the injector to others, at this fair point?
    pub(super) fn leaves_injected(&self) -> bool {
        self.overload.left.get() > 0 && !self.looks.rounds.get().is_multiple_of(TAKES_BACK)
    }

    /// An unstarted fiber of this worker's, which has been under load for long: true if it was given away.
    #[cold]
    #[inline(never)]
    pub(super) fn give(&self, entry: Entry) -> bool {
        // A half of a `join` is waited for here, and a task does not stay.
        if !entry.is_sole() || self.is_ready_empty() {
            return false;
        }
        let others = self.shared.accepting_workers().filter(|worker| *worker != self.index);
        let least = others.map(|worker| self.load_of(worker)).min().unwrap_or(u64::MAX);
        let other = least.saturating_add(self.shared.injector.len() as u64);
        let gives = self.overload.gives(self.stats().runnable(), self.stats().started.get(), other, policy::cycles);
        if gives {
            self.shared.inject(entry);
        }
        gives
    }

    pub(super) fn times(&self) -> Times {
        let wall = policy::now();
        // One whose clock cannot be read always has the processor, as far as we know.
        Times { wall, processor: self.remote().cpu_nanos().unwrap_or(wall) }
    }

    /// How many fibers of another worker could run, with those that it has not started yet. On a worker that sleeps none can.
    fn load_of(&self, worker: usize) -> u64 {
        let remote = &self.shared.remotes[worker];
        if self.shared.idle.phase(worker) != Phase::Active {
            return 0;
        }
        remote.stats.runnable() + remote.fresh.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::{LONG, MANY, Overload, Times};

    /// How far apart looks are.
    const STEP: u64 = 10_000;

    /// Looked at often from cycle 1 on, until new fibers are given away: when that is. Cycles are nanoseconds here.
    fn first_long(overload: &Overload, runnable: impl Fn(u64) -> u64, processor: impl Fn(u64) -> u64) -> Option<u64> {
        (1..9 * LONG).step_by(STEP as usize).find(|&now| {
            overload.note(runnable(now), || now, || Times { wall: now, processor: processor(now) });
            overload.is_long()
        })
    }

    fn under_load() -> Overload {
        let overload = Overload::new();
        first_long(&overload, |_| 20, |now| now).expect("it is under load");
        overload
    }

    #[test]
    fn a_worker_gives_after_it_has_been_under_load_for_long() {
        let at = first_long(&Overload::new(), |_| MANY, |now| now).expect("it is under load");
        assert!((2 * LONG..2 * LONG + 4 * STEP).contains(&at), "{at}");
        assert_eq!(first_long(&Overload::new(), |_| MANY - 1, |now| now), None, "few fibers");
        let pause = LONG / 2 / STEP * STEP + 1;
        let with_pause = |now| if now == pause { 0 } else { MANY };
        let at = first_long(&Overload::new(), with_pause, |now| now).expect("it is under load");
        assert!((pause + 2 * LONG..pause + 2 * LONG + 5 * STEP).contains(&at), "it had a pause: {at}");
    }

    #[test]
    fn a_worker_that_shares_its_processor_gives_nothing() {
        assert_eq!(first_long(&Overload::new(), |_| 20, |now| now / 2), None);
        let at = first_long(&Overload::new(), |_| 20, |now| now.saturating_sub(4 * LONG)).expect("it has it again");
        assert!((5 * LONG..7 * LONG).contains(&at), "{at}");
    }

    #[test]
    fn it_gives_a_block_as_large_as_what_it_has() {
        let overload = under_load();
        let mut given = 0;
        while overload.is_long() {
            assert!(overload.gives(20, 100, given.min(30), || 7), "the other is not busier by far");
            given += 1;
        }
        assert_eq!(given, 100);
        assert_eq!(overload.load.began(), 7, "and then waits anew");
    }

    #[test]
    fn it_does_not_give_to_a_worker_that_is_busy_too() {
        let overload = under_load();
        assert!(!overload.gives(20, 100, 10, || 7), "it has half as many");
        assert!(!overload.is_long());
        let overload = under_load();
        assert!(overload.gives(20, 100, 9, || 7));
        assert!(overload.gives(20, 100, 48, || 7), "once begun it goes on");
        assert!(!overload.gives(20, 100, 49, || 7), "the other is the busier one now");
        assert_eq!(overload.left.get(), 0);
    }
}
