//! Why a [`Semaphore`](super::Semaphore) gave no permits: one small error type per way of asking. Above: users. Below: nothing.

use std::fmt;

/// Why [`Semaphore::acquire`](super::Semaphore::acquire) gave no permits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AcquireError {
    /// The semaphore is [closed](super::Semaphore::close).
    Closed,
    /// More were asked for than the semaphore has in all: waiting would never end.
    TooMany {
        /// How many were asked for.
        wanted: usize,
        /// How many there are.
        total: usize,
    },
}

/// Why [`Semaphore::try_acquire`](super::Semaphore::try_acquire) gave no permits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TryAcquireError {
    /// There are not so many now, or others wait for them already.
    NoPermits,
    /// As [`AcquireError::Closed`].
    Closed,
    /// As [`AcquireError::TooMany`].
    TooMany {
        /// How many were asked for.
        wanted: usize,
        /// How many there are.
        total: usize,
    },
}

/// Why [`Semaphore::acquire_timeout`](super::Semaphore::acquire_timeout) gave no permits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AcquireTimeoutError {
    /// Time was up first.
    TimedOut,
    /// As [`AcquireError::Closed`].
    Closed,
    /// As [`AcquireError::TooMany`].
    TooMany {
        /// How many were asked for.
        wanted: usize,
        /// How many there are.
        total: usize,
    },
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the semaphore is closed"),
            Self::TooMany { wanted, total } => {
                write!(f, "{wanted} permits were asked of a semaphore that has {total} in all")
            }
        }
    }
}

impl From<AcquireError> for TryAcquireError {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::Closed => Self::Closed,
            AcquireError::TooMany { wanted, total } => Self::TooMany { wanted, total },
        }
    }
}

impl From<AcquireError> for AcquireTimeoutError {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::Closed => Self::Closed,
            AcquireError::TooMany { wanted, total } => Self::TooMany { wanted, total },
        }
    }
}

impl fmt::Display for TryAcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoPermits => f.write_str("the semaphore has not so many permits now"),
            Self::Closed => AcquireError::Closed.fmt(f),
            Self::TooMany { wanted, total } => AcquireError::TooMany { wanted, total }.fmt(f),
        }
    }
}

impl fmt::Display for AcquireTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TimedOut => f.write_str("timed out waiting for permits of a semaphore"),
            Self::Closed => AcquireError::Closed.fmt(f),
            Self::TooMany { wanted, total } => AcquireError::TooMany { wanted, total }.fmt(f),
        }
    }
}

impl std::error::Error for AcquireError {}
impl std::error::Error for TryAcquireError {}
impl std::error::Error for AcquireTimeoutError {}
