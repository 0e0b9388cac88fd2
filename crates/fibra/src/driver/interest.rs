//! The words in which a driver and those above it speak of descriptors: what is waited for, for whom, and what has come of it.
//!
//! Above: `reactor::readiness`, whose protocol is model checked with a driver of its own. Nothing here knows the kernel.

use std::ops::BitOr;

/// What of a descriptor is waited for: reading (accepting), writing (connecting), both, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interest(u8);

impl Interest {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const READ: Self = Self(1);
    pub(crate) const WRITE: Self = Self(2);

    #[inline(always)]
    pub(crate) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Interest {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Names the owner of a standing operation: its place in a table, and how often that place had been used before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    /// Never `u32::MAX`.
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The bit of a key's index that says that it belongs to a machine's descriptor; the other bits are the descriptor. Fibers' sockets have
/// indices below it.
pub(crate) const OF_MACHINE: u32 = 1 << 31;

impl Key {
    /// Does it belong to a machine's descriptor?
    #[inline(always)]
    pub(crate) fn is_of_machine(self) -> bool {
        self.index & OF_MACHINE != 0
    }
    pub(super) fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }
    pub(super) fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// What a standing operation has to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) key: Key,
    /// What may be possible now. An error or a hang-up makes both possible: trying tells.
    pub(crate) ready: Interest,
    /// There is more to be read than data: the end of the stream, an error, a mark. From here on one cannot tell from a read that it was
    /// the last one.
    pub(crate) ends: bool,
}
