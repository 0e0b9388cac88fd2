//! The one random source: a small generator per owner (worker, thread), seeded from the process's entropy or from a given seed.
//!
//! Above: the seam (`policy`), which alone draws entropy. Below: std.

use std::hash::{BuildHasher, RandomState};

/// A SplitMix64 generator: one addition and a mix per number, and any seed will do.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A generator that yields the same numbers for the same seed.
    pub(crate) fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator seeded from the entropy that std keeps for its hash maps.
    pub(super) fn from_entropy() -> Self {
        Self(RandomState::new().hash_one(0x66_6962_7261_u64))
    }

    #[inline]
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound` (which must not be 0), by multiplication instead of division; the bias is below 2^-32.
    #[inline]
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        debug_assert!(bound > 0 && bound <= u32::MAX as usize);
        (((self.next_u64() >> 32) * bound as u64) >> 32) as usize
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::Rng;

    #[test]
    fn below_stays_below_and_reaches_everything() {
        let mut rng = Rng::from_seed(7);
        let mut seen = [0u32; 5];
        for _ in 0..5000 {
            seen[rng.below(5)] += 1;
        }
        assert!(seen.iter().all(|&n| n > 800), "{seen:?}");
    }
}
