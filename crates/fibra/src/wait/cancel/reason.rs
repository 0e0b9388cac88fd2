//! Why something was cancelled, for people.

use std::sync::Arc;

use crate::fiber::frame::FrameRef;
use crate::sched::cancel::code;
use crate::sched::scope::Cause;

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
    pub(crate) fn cause(self) -> Cause {
        let code = match self {
            Self::Handle => code::HANDLE,
            Self::Shutdown => code::SHUTDOWN,
            Self::RootFailed => code::ROOT_FAILED,
            Self::RunEnded => code::RUN_ENDED,
            Self::Full => code::FULL,
            Self::Scope => code::SCOPE,
            Self::TimedOut => code::TIMED_OUT,
            Self::Panicked => code::PANICKED,
            Self::Failed => code::FAILED,
            Self::Token => code::TOKEN,
            Self::Drained => code::DRAINED,
            Self::OtherHalf => code::OTHER_HALF,
            Self::NotStarted => code::NOT_STARTED,
            Self::Custom(text) => return Cause { code: code::CUSTOM, text: Some(text) },
        };
        Cause { code, text: None }
    }

    /// `None` for code 0: not cancelled.
    pub(crate) fn of_cause(cause: Cause) -> Option<Self> {
        Some(match cause.code {
            code::HANDLE => Self::Handle,
            code::SHUTDOWN => Self::Shutdown,
            code::ROOT_FAILED => Self::RootFailed,
            code::RUN_ENDED => Self::RunEnded,
            code::FULL => Self::Full,
            code::SCOPE => Self::Scope,
            code::TIMED_OUT => Self::TimedOut,
            code::PANICKED => Self::Panicked,
            code::FAILED => Self::Failed,
            code::DRAINED => Self::Drained,
            code::OTHER_HALF => Self::OtherHalf,
            code::NOT_STARTED => Self::NotStarted,
            code::CUSTOM => cause.text.map_or(Self::Token, Self::Custom),
            code::TOKEN => Self::Token,
            _ => return None,
        })
    }

    /// The reason in a frame's flags, if it is cancelled. The words of a custom one are in its scope, and only known while that is open.
    pub(crate) fn of(frame: FrameRef) -> Option<Self> {
        Self::of_cause(Cause::from(frame.flags().cancel_reason()?))
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
