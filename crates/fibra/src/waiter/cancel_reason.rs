//! Why something was cancelled: [`CancelReason`] for people, and [`ReasonKind`], which is the same without words and fits into a waiter's
//! flags.
//!
//! Lowest floor: flags, roots and the records of scopes below keep one of the two. Between a kind and its bits is one pair of functions,
//! at the end of this file.

use std::sync::Arc;

/// Why a fiber, or the body of a scope, was cancelled.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum CancelReason {
    /// [`JoinHandle::cancel`](crate::JoinHandle::cancel), or its handle was dropped after `cancel_on_drop`.
    Handle,
    /// The runtime is shutting down.
    Shutdown,
    /// The root function of its `run` panicked or returned an error.
    RootFailed,
    /// It is a daemon, and the `run` it was started in is over.
    RunEnded,
    /// It never started: as many fibers as the runtime's cap allows were alive.
    Full,
    /// [`Scope::cancel`](crate::Scope::cancel) of the scope it is in.
    Scope,
    /// The deadline of a scope around it has come.
    TimedOut,
    /// A fiber of its scope panicked.
    Panicked,
    /// Its scope has failed: the body or one of its fibers returned an error, or the body panicked.
    Failed,
    /// A [`CancelToken`](crate::CancelToken) was cancelled.
    Token,
    /// Its scope was [drained](crate::Scope::drain), and the time for that was over.
    Drained,
    /// It is the second half of a [`join`](crate::join()) whose first half panicked.
    OtherHalf,
    /// A fiber of its scope could not be started: the runtime's cap of fibers was reached, or no stack could be had.
    NotStarted,
    /// In the words of whoever called [`CancelToken::cancel_with`](crate::CancelToken::cancel_with).
    Custom(Arc<str>),
}

impl CancelReason {
    /// The same without words.
    pub(crate) fn kind(&self) -> ReasonKind {
        match self {
            Self::Handle => ReasonKind::Handle,
            Self::Shutdown => ReasonKind::Shutdown,
            Self::RootFailed => ReasonKind::RootFailed,
            Self::RunEnded => ReasonKind::RunEnded,
            Self::Full => ReasonKind::Full,
            Self::Scope => ReasonKind::Scope,
            Self::TimedOut => ReasonKind::TimedOut,
            Self::Panicked => ReasonKind::Panicked,
            Self::Failed => ReasonKind::Failed,
            Self::Token => ReasonKind::Token,
            Self::Drained => ReasonKind::Drained,
            Self::OtherHalf => ReasonKind::OtherHalf,
            Self::NotStarted => ReasonKind::NotStarted,
            Self::Custom(_) => ReasonKind::Custom,
        }
    }
}

impl From<&str> for CancelReason {
    fn from(words: &str) -> Self {
        Self::Custom(words.into())
    }
}

impl From<String> for CancelReason {
    fn from(words: String) -> Self {
        Self::Custom(words.into())
    }
}

/// A clause that reads by itself and after "was cancelled: ".
impl std::fmt::Display for CancelReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Handle => "its handle asked for it",
            Self::Shutdown => "the runtime is shutting down",
            Self::RootFailed => "the root function failed",
            Self::RunEnded => "the run it was a daemon of has ended",
            Self::Full => "the runtime's cap of fibers was reached, so it never started",
            Self::Scope => "its scope was cancelled",
            Self::TimedOut => "the deadline of its scope has come",
            Self::Panicked => "a fiber of its scope panicked",
            Self::Failed => "its scope has failed",
            Self::Token => "its token was cancelled",
            Self::Drained => "its scope was drained and the time for that is over",
            Self::OtherHalf => "the other half of its join panicked",
            Self::NotStarted => "a fiber of its scope could not be started",
            Self::Custom(words) => words,
        })
    }
}

/// A [`CancelReason`] without words. From 1, so that 0 says "not cancelled" where only bits are kept; 4 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum ReasonKind {
    Handle = 1,
    Shutdown = 2,
    RootFailed = 3,
    RunEnded = 4,
    Full = 5,
    Scope = 6,
    TimedOut = 7,
    Panicked = 8,
    Failed = 9,
    Token = 10,
    Drained = 11,
    OtherHalf = 12,
    NotStarted = 13,
    /// The words are kept by the scope that was cancelled, and known while that is open.
    Custom = 15,
}

impl ReasonKind {
    /// The reason, if its words are not to be had: a custom one is a token's.
    pub(crate) fn without_words(self) -> CancelReason {
        match self {
            Self::Handle => CancelReason::Handle,
            Self::Shutdown => CancelReason::Shutdown,
            Self::RootFailed => CancelReason::RootFailed,
            Self::RunEnded => CancelReason::RunEnded,
            Self::Full => CancelReason::Full,
            Self::Scope => CancelReason::Scope,
            Self::TimedOut => CancelReason::TimedOut,
            Self::Panicked => CancelReason::Panicked,
            Self::Failed => CancelReason::Failed,
            Self::Token | Self::Custom => CancelReason::Token,
            Self::Drained => CancelReason::Drained,
            Self::OtherHalf => CancelReason::OtherHalf,
            Self::NotStarted => CancelReason::NotStarted,
        }
    }

    /// As bits: never 0.
    #[inline(always)]
    pub(crate) const fn to_bits(self) -> u32 {
        self as u32
    }

    /// The kind that [`to_bits`](Self::to_bits) made bits of; `None` for 0.
    pub(crate) const fn from_bits(bits: u32) -> Option<Self> {
        Some(match bits {
            1 => Self::Handle,
            2 => Self::Shutdown,
            3 => Self::RootFailed,
            4 => Self::RunEnded,
            5 => Self::Full,
            6 => Self::Scope,
            7 => Self::TimedOut,
            8 => Self::Panicked,
            9 => Self::Failed,
            10 => Self::Token,
            11 => Self::Drained,
            12 => Self::OtherHalf,
            13 => Self::NotStarted,
            15 => Self::Custom,
            _ => return None,
        })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::ReasonKind;

    #[test]
    fn every_kind_survives_its_bits_and_its_reason() {
        let kinds: Vec<ReasonKind> = (0..16).filter_map(ReasonKind::from_bits).collect();
        assert_eq!(kinds.len(), 14);
        for kind in kinds {
            assert_eq!(ReasonKind::from_bits(kind.to_bits()), Some(kind));
            let expected = if kind == ReasonKind::Custom { ReasonKind::Token } else { kind };
            assert_eq!(kind.without_words().kind(), expected);
        }
    }
}
