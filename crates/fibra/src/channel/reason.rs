//! Why a channel is closed, or why one of its sides is gone.
//!
//! Above: `state`, the handles, and users. Below: `cancel`, which knows whether the dropping fiber panics or is cancelled.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::fiber::id::FiberId;

/// One of the two sides of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Senders,
    Receivers,
}

/// Why a channel is closed, or why its other side is gone.
///
/// ```
/// use fibra::channel::{CloseReason, bounded};
///
/// let (tx, rx) = bounded::<u32>(1);
/// tx.close_with("the disk is full");
/// assert_eq!(rx.closed().to_string(), "the disk is full");
/// assert!(matches!(rx.finish(), Err(CloseReason::Error(_))));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CloseReason {
    /// The last handle of that side was dropped.
    Dropped,
    /// The program called `close` or `close_now`.
    Explicit,
    /// The program called `close_with`.
    Error(Arc<dyn Error + Send + Sync>),
    /// The last handle of that side was dropped by a panic.
    Panicked {
        /// The fiber that panicked. A plain thread counts as fiber number 0, which does not exist otherwise.
        fiber: FiberId,
    },
    /// The last handle of that side was dropped by a fiber that was cancelled.
    Cancelled,
}

impl CloseReason {
    /// Why the calling fiber or thread drops its handle: it panics, is cancelled, or neither.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn of_drop() -> Self {
        use crate::cancel::{Unwinding, unwinding};
        match unwinding() {
            None => Self::Dropped,
            Some(Unwinding::Cancelled) => Self::Cancelled,
            Some(Unwinding::Panicked(fiber)) => Self::Panicked { fiber },
        }
    }
    #[cfg(any(loom, shuttle))]
    pub(super) fn of_drop() -> Self {
        Self::Dropped
    }

    /// Did that side end in order: dropped or closed, not by an error, a panic or a cancellation?
    ///
    /// ```
    /// let (tx, rx) = fibra::channel::bounded::<u32>(1);
    /// drop(tx);
    /// assert!(rx.closed().is_orderly());
    /// ```
    pub fn is_orderly(&self) -> bool {
        matches!(self, Self::Dropped | Self::Explicit)
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dropped => f.write_str("the last handle of that side was dropped"),
            Self::Explicit => f.write_str("the channel was closed"),
            Self::Error(error) => error.fmt(f),
            Self::Panicked { fiber } if fiber.as_u64() == 0 => {
                f.write_str("a thread that held the last handle panicked")
            }
            Self::Panicked { fiber } => write!(f, "fiber {fiber}, which held the last handle, panicked"),
            Self::Cancelled => f.write_str("the fiber that held the last handle was cancelled"),
        }
    }
}

impl Error for CloseReason {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Error(error) => Some(&**error),
            _ => None,
        }
    }
}
