//! The one seam for time, chance and choice (law 10): the current time, waiting for a time, random numbers, and which queue a worker serves
//! next.
//!
//! Above: every other module. Below, private to this module: the system's clocks (`clock`) and the generator with its entropy (`random`).
//! Nothing else in fibra reads a clock, draws entropy or sleeps by the system's time; the tidy test refuses it. So a test that replaces
//! this one module controls all of them.
//!
//! In builds for tests a test can replace it: after `owned::own` the whole process goes by the time and the seed of that test. A wait for
//! a moment then asks for the time again every 200 µs ([`patience`]), since the system's clock does not end it. In other builds each
//! function here calls the system's, inlined.
//!
//! Invariants: time is in nanoseconds on one clock, never 0 and never backwards; two generators of one process do not give the same
//! numbers, unless they were given the same seed.

mod clock;
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) mod owned;
mod random;

#[cfg(not(any(loom, shuttle)))]
pub(crate) use clock::RunQueueClock;
#[cfg(not(loom))]
pub(crate) use clock::cpu_nanos;
pub(crate) use clock::{from_std, position_of_std, to_std};
pub(crate) use random::Rng;

/// Nanoseconds on fibra's clock; never 0, never backwards. Costs a `clock_gettime` (about 26 ns).
#[inline]
pub(crate) fn now() -> u64 {
    #[cfg(all(test, not(any(loom, shuttle))))]
    if let Some(now) = owned::now() {
        return now;
    }
    clock::now()
}

/// A counter that grows with time, cheap to read and of unknown but constant pace (1 to 5 per nanosecond).
/// Only differences mean something, and only as "a bounded time has passed".
#[inline(always)]
pub(crate) fn cycles() -> u64 {
    #[cfg(all(test, not(any(loom, shuttle))))]
    if let Some(now) = owned::now() {
        return now;
    }
    clock::cycles()
}

/// How long a wait of so many nanoseconds on fibra's clock may sleep by the system's clock before it asks for the time again.
#[inline(always)]
pub(crate) fn patience(nanos: u64) -> u64 {
    #[cfg(all(test, not(any(loom, shuttle))))]
    if owned::now().is_some() {
        return nanos.min(owned::LOOK_NANOS);
    }
    nanos
}

/// [`patience`] for a time in std's form.
#[inline(always)]
pub(crate) fn patient(time: std::time::Duration) -> std::time::Duration {
    #[cfg(all(test, not(any(loom, shuttle))))]
    if owned::now().is_some() {
        return time.min(std::time::Duration::from_nanos(owned::LOOK_NANOS));
    }
    time
}

/// Blocks this thread for so long.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn sleep(time: std::time::Duration) {
    let until = now().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    loop {
        let left = until.saturating_sub(now());
        if left == 0 {
            return;
        }
        clock::sleep(std::time::Duration::from_nanos(patience(left)));
    }
}

/// A random generator without a given seed.
pub(crate) fn chance() -> Rng {
    #[cfg(all(test, not(any(loom, shuttle))))]
    if let Some(seed) = owned::next_seed() {
        return Rng::from_seed(seed);
    }
    Rng::from_entropy()
}

/// Turns between two looks at the injector before anything else (a prime, so that it does not fall in step with a program).
pub(crate) const INJECTOR_PERIOD: u32 = 61;
/// Every so many takes from `fresh` the owner takes the oldest, so that LIFO order starves no fiber.
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

/// The choices of one worker.
#[derive(Debug)]
pub(crate) struct Policy {
    rng: Rng,
}

impl Policy {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self { rng: seed.map_or_else(chance, Rng::from_seed) }
    }

    /// The queue whose turn it is.
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

    /// At which hand-over through `next`, counted from here, the rest of the queue gets its turn.
    #[inline(always)]
    pub(crate) fn chain_length(&self) -> u32 {
        CHAIN_LIMIT
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
