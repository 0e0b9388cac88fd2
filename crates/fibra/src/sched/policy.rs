//! The one seam for chance and time (law 10): what time it is, which victim to steal from, which queue to serve first.
//!
//! Every such decision of a worker is a method here, so that a deterministic run can own them all by standing in for this
//! one type. The real policy is inlined and costs nothing beyond what it decides.

use crate::prim::clock;
use crate::prim::random::Rng;

/// Turns between two looks at the injector before anything else (a prime, so that it does not fall in step with a program).
pub(crate) const INJECTOR_PERIOD: u32 = 61;
/// Every so many takes from `fresh` the owner takes the oldest, so that LIFO order starves nobody.
const OLDEST_PERIOD: u32 = 16;
/// Hand-overs through `next` in a row before the rest of the queue gets its turn.
const CHAIN_LIMIT: u32 = 16;

/// Where the next fiber comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pick {
    /// Started fibers first, then unstarted ones, newest first.
    ReadyThenFresh,
    /// Unstarted ones first, newest first.
    FreshThenReady,
    /// Unstarted ones first, oldest first.
    OldestThenReady,
}

/// The policy of one worker.
#[derive(Debug)]
pub(crate) struct Policy {
    rng: Rng,
}

impl Policy {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self { rng: seed.map_or_else(Rng::from_entropy, Rng::from_seed) }
    }

    /// Nanoseconds on fibra's clock.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        clock::now()
    }

    /// Whose turn it is.
    #[inline(always)]
    pub(crate) fn pick(&self, turn: u32) -> Pick {
        if turn & 1 == 0 {
            Pick::ReadyThenFresh
        } else if turn % OLDEST_PERIOD == 1 {
            Pick::OldestThenReady
        } else {
            Pick::FreshThenReady
        }
    }

    /// May `next` be served once more after so many in a row?
    #[inline(always)]
    pub(crate) fn may_chain(&self, chain: u32) -> bool {
        chain < CHAIN_LIMIT
    }

    /// Which of so many arms that are ready a select takes.
    #[inline]
    pub(crate) fn choose(&mut self, among: usize) -> usize {
        self.rng.below(among)
    }

    /// Where a search over `workers` starts.
    #[inline]
    pub(crate) fn first_victim(&mut self, workers: usize) -> usize {
        self.rng.below(workers)
    }
}
