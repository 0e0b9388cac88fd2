//! Time and randomness under the control of a test. The control covers the whole process, so such a test runs in a process of its own.
//!
//! The clock stands still until [`Owner::advance`] moves it; generators get their seeds from the owner's, one after the other, so that
//! generators that are made in the same order draw the same numbers.

use crate::prim::atomic::{AtomicU64, Ordering};

/// How often a wait for a moment looks at the owner's clock, in nanoseconds of the system's clock.
pub(super) const LOOK_NANOS: u64 = 200_000;

/// The owner's time; 0: no test owns it.
static NOW: AtomicU64 = AtomicU64::new(0);
/// The seed of the next generator, plus one; 0: no test owns randomness.
static SEED: AtomicU64 = AtomicU64::new(0);

/// The owner of time and randomness; when it is dropped, both are the system's again.
#[derive(Debug)]
pub(crate) struct Owner(());

/// Takes ownership of the time, which stands still from now on, and of randomness.
pub(crate) fn own(seed: u64) -> Owner {
    // Relaxed, here and below: a wait for a moment looks at the time again and again.
    let before = NOW.swap(super::clock::now(), Ordering::Relaxed);
    assert_eq!(before, 0, "one owner at a time");
    SEED.store(seed + 1, Ordering::Relaxed);
    Owner(())
}

impl Owner {
    /// Moves the time forward by so much at once.
    pub(crate) fn advance(&self, by: std::time::Duration) {
        // Relaxed: as above.
        NOW.fetch_add(u64::try_from(by.as_nanos()).expect("a time that ends"), Ordering::Relaxed);
    }

    /// New generators are made from this seed.
    pub(crate) fn seed(&self, seed: u64) {
        SEED.store(seed + 1, Ordering::Relaxed); // Relaxed: as above.
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Relaxed, both: as above.
        NOW.store(0, Ordering::Relaxed);
        SEED.store(0, Ordering::Relaxed);
    }
}

pub(super) fn now() -> Option<u64> {
    // Relaxed: a time; a wait for a moment looks at it again and again.
    Some(NOW.load(Ordering::Relaxed)).filter(|now| *now != 0)
}

pub(super) fn next_seed() -> Option<u64> {
    // Relaxed: as above.
    let next = SEED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seed| (seed != 0).then_some(seed + 1));
    next.ok().map(|seed| seed - 1)
}
