//! Which worker a fiber goes to that is to be spread (`Builder::spread`): an accepted connection, say. It stays there for good.
//!
//! By default that is the worker with the fewest fibers: connections that talk now and then cost the same wherever they are, and numbers do
//! not change from one moment to the next. But numbers do not tell that a worker has no processor (other programs share the machine), or
//! computes: whatever is dealt to it waits. So the worker with the fewest fibers is passed over while it is visibly busier than another
//! one: it has more fibers that could run, by more than [`MORE`], or it has not switched for [`STUCK`] while it is awake. Then the least
//! busy worker gets the fiber.
//!
//! Fibers that are on their way to a worker count in its number only: a worker that was just woken for them is not busy.
//!
//! All of it is read from counters of the workers, which pay nothing for it. The sign of a worker that stands still is the number of its
//! switches at an earlier deal: each deal leaves it for the next.
//!
//! Above: `task::builder`, `breadth.rs`. Below: `shared.rs`, `idle.rs`, `stats.rs`.

use super::current;
use super::phase::Phase;
use super::shared::RuntimeShared;
use crate::prim::atomic::{AtomicU64, Ordering};
use crate::prim::policy;

/// So many runnable fibers more than another worker has are no chance of the moment.
const MORE: u64 = 4;
/// Nanoseconds without a switch after which a worker stands still.
const STUCK: u64 = 10_000_000;
/// Counts as so many runnable fibers.
const STANDS_STILL: u64 = 1 << 32;

/// How a deal found a worker.
#[derive(Debug, Default)]
pub(crate) struct LastDeal {
    /// Its switches, and when a deal first found so many.
    switches: AtomicU64,
    at: AtomicU64,
}

/// What a worker has to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) worker: usize,
    /// Fibers that live there, or are on their way.
    pub(super) fibers: u64,
    /// Of those that live there, how many could run now.
    pub(super) runnable: u64,
    /// Fibers on their way there.
    pub(super) coming: u64,
    /// It sleeps or searches: it begins at once with what comes.
    pub(super) is_idle: bool,
}

impl Load {
    pub(super) fn stands_still(self) -> bool {
        self.runnable >= STANDS_STILL
    }
}

impl RuntimeShared {
    /// See the header.
    pub(crate) fn least_loaded(&self) -> usize {
        let now = policy::now();
        let here = current::worker().filter(|worker| std::ptr::eq(worker.shared_at, self)).map(|worker| worker.index);
        let loads = || self.accepting_workers().map(|worker| self.load_of(worker, here == Some(worker), now));
        let Some(fewest) = loads().min_by_key(|load| load.fibers) else { return 0 };
        let Some(idlest) = loads().min_by_key(|load| (load.runnable, load.fibers)) else { return 0 };
        if fewest.runnable > idlest.runnable + MORE { idlest.worker } else { fewest.worker }
    }

    /// `is_mine`: the caller runs there, and will not for ever.
    pub(super) fn load_of(&self, worker: usize, is_mine: bool, now: u64) -> Load {
        let remote = &self.remotes[worker];
        let stats = &remote.stats;
        // Relaxed: a gauge.
        let coming = remote.coming.load(Ordering::Relaxed);
        let (started, switches) = (stats.started.get(), stats.switches.get());
        let last = &remote.last_deal;
        // Relaxed, all: a mixture of two deals at a time is wrong by one deal. (0: this is the first deal.)
        let before = last.at.load(Ordering::Relaxed);
        let is_news = last.switches.swap(switches, Ordering::Relaxed) != switches || before == 0;
        if is_news {
            last.at.store(now, Ordering::Relaxed); // Relaxed: as above.
        }
        let is_active = self.idle.phase(worker) == Phase::Active;
        let stands_still = is_active && !is_mine && !is_news && now.saturating_sub(before) > STUCK;
        let awake = if is_active { stats.runnable().saturating_sub(u64::from(is_mine)) } else { 0 };
        let runnable = awake + if stands_still { STANDS_STILL } else { 0 };
        Load { worker, fibers: started + coming, runnable, coming, is_idle: !is_active }
    }
}
