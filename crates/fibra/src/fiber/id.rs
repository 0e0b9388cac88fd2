//! [`FiberId`]: the number that names a fiber. Above: handles, reports, users. Below: nothing.

use std::fmt;

#[cfg(not(any(loom, shuttle)))]
use super::frame::FrameRef;
#[cfg(not(any(loom, shuttle)))]
use crate::prim::atomic::Ordering;

/// Names one fiber: unique in the process, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiberId(u64);

impl FiberId {
    /// Stands for a plain thread in places that name a fiber.
    pub(crate) const NONE: FiberId = FiberId(0);

    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn of(frame: FrameRef) -> Self {
        // Relaxed: the id of a live fiber does not change.
        Self(frame.id.load(Ordering::Relaxed))
    }

    /// Back from [`as_u64`](Self::as_u64), for reports.
    pub(crate) fn from_u64(id: u64) -> Self {
        Self(id)
    }

    /// The id as a number.
    pub fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FiberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Debug for FiberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FiberId({})", self.0)
    }
}
