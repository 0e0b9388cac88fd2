//! Scopes with a deadline, a token, a limit: the builder, and the results of its scopes; `timeout` and `remaining`. Above: users. Below:
//! `scope.rs`, `body.rs`.

use std::error::Error;
use std::fmt;
use std::panic::Location;
use std::time::Duration;

use super::body::Options;
use super::scope::{self, NoValue, Scope, TryEnded, TryScope};
use super::token::CancelToken;
use crate::prim::instant::Instant;
use crate::sched::here::Here;
use crate::sched::members::scope::NEVER;
use crate::waiter::cancel_reason::CancelReason;

/// A scope with choices; see [`Scope::builder`].
///
/// ```
/// use std::time::Duration;
/// use fibra::{Scope, ScopeError};
///
/// fibra::run(|| {
///     let outcome = Scope::builder().name("batch").timeout(Duration::from_millis(5)).max_concurrency(4).run(|s| {
///         for _ in 0..100 {
///             s.spawn(|| fibra::sleep(Duration::from_secs(3600)));
///         }
///         fibra::sleep(Duration::from_secs(3600)); // the body, too, is cancelled
///     });
///     assert_eq!(outcome, Err(ScopeError::TimedOut));
/// });
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until `run` or `try_run`"]
pub struct ScopeBuilder {
    options: Options,
}

impl ScopeBuilder {
    /// A scope like that of [`scope`](crate::scope).
    pub fn new() -> Self {
        Self::default()
    }

    /// Its name, for reports.
    pub fn name(mut self, name: impl AsRef<str>) -> Self {
        self.options.name = Some(name.as_ref().into());
        self
    }

    /// Cancels body and children when so much time has passed since `run` was called. `Duration::MAX` is no limit; with zero the body
    /// runs up to its first blocking call.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.deadline(Instant::after(timeout))
    }

    /// Cancels body and children at this moment. Of several the earliest counts; so do the deadlines of the enclosing scopes.
    pub fn deadline(mut self, deadline: impl Into<Instant>) -> Self {
        let deadline = deadline.into();
        if deadline != Instant::FAR_FUTURE {
            let earlier = self.options.deadline.unwrap_or(NEVER).min(deadline.as_nanos());
            self.options.deadline = Some(earlier);
        }
        self
    }

    /// Cancels body and children with this token. May be called several times.
    pub fn token(mut self, token: CancelToken) -> Self {
        self.options.tokens.push(token);
        self
    }

    /// Lets at most so many children run at once; more wait, unstarted, for their turn. (Children that are started with `spawn_local` or
    /// as futures do not count.)
    ///
    /// # Panics
    /// If `children` is 0: nothing could ever run.
    #[track_caller]
    pub fn max_concurrency(mut self, children: usize) -> Self {
        assert!(children > 0, "fibra: max_concurrency(0): no child of the scope could ever run");
        self.options.limit = Some(children);
        self
    }

    /// A child that panics, or cannot be started, concerns only its joiner: siblings and body go on, and nothing is raised at the end.
    /// [`Scope::panics`] says how many there were.
    pub fn isolate(mut self) -> Self {
        self.options.isolate = true;
        self
    }

    /// How long [`shield`](crate::shield) holds in here after the scope was cancelled. Without it, for ever. (Destructors that block while
    /// they unwind go on, and so do the children of a scope that was opened behind a shield: there is no way to end them.)
    pub fn grace(mut self, grace: Duration) -> Self {
        self.options.grace = u64::try_from(grace.as_nanos()).ok();
        self
    }

    /// Runs `f` in the scope.
    ///
    /// # Errors
    /// If the body was cancelled because of the scope's deadline or token (a body that returns before it notices gives its value), or if a
    /// child could not be started and was not joined.
    ///
    /// # Panics
    /// Like [`scope`](crate::scope).
    #[track_caller]
    pub fn run<'env, F, T>(self, f: F) -> Result<T, ScopeError>
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
    {
        // (No closure: it would lose the caller's line.)
        match scope::run(&self.options, "Scope::builder().run", Location::caller(), f) {
            Ok(value) => Ok(value),
            Err(cause) => Err(ScopeError::of(&cause)),
        }
    }

    /// Runs `f` in a scope whose children may fail.
    ///
    /// # Errors
    /// The errors of body and children, or that the body was cancelled because of the scope's deadline or token, or that a child could not
    /// be started and was not joined.
    ///
    /// # Panics
    /// Like [`scope`](crate::scope).
    #[track_caller]
    pub fn try_run<'env, F, T, E>(self, f: F) -> Result<T, TryScopeError<E>>
    where
        F: for<'scope> FnOnce(&'scope TryScope<'scope, 'env, E>) -> Result<T, E>,
        E: Send + 'static,
    {
        let ended = match scope::try_run(&self.options, "Scope::builder().try_run", Location::caller(), f) {
            Ok(value) => return Ok(value),
            Err(ended) => ended,
        };
        Err(match ended {
            TryEnded::Failed(first, others) => TryScopeError::Failed { first, others },
            TryEnded::NoValue(why) => match ScopeError::of(&why) {
                ScopeError::TimedOut => TryScopeError::TimedOut,
                ScopeError::Cancelled => TryScopeError::Cancelled,
                ScopeError::NotStarted => TryScopeError::NotStarted,
            },
        })
    }
}

/// Why a scope gave no value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ScopeError {
    /// Its deadline came while the body was waiting.
    TimedOut,
    /// It was cancelled while the body was waiting: by its token.
    Cancelled,
    /// A child could not be started, because the runtime's [cap of fibers](crate::RuntimeBuilder::max_fibers) was reached or no stack could
    /// be had, and it was not joined.
    NotStarted,
}

impl ScopeError {
    #[track_caller]
    fn of(why: &NoValue) -> Self {
        match why {
            NoValue::Cancelled(CancelReason::TimedOut) => Self::TimedOut,
            NoValue::Cancelled(CancelReason::Panicked) => scope::panic_was_taken(),
            NoValue::Cancelled(CancelReason::NotStarted) | NoValue::NotStarted(_) => Self::NotStarted,
            NoValue::Cancelled(_) => Self::Cancelled,
        }
    }
}

impl fmt::Display for ScopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "the scope did not end before its deadline",
            Self::Cancelled => "the scope was cancelled",
            Self::NotStarted => {
                "a fiber of the scope could not be started: as many were alive as Runtime::builder().max_fibers() \
                 allows, or no stack could be had"
            }
        })
    }
}

impl Error for ScopeError {}

/// Why a scope whose children may fail gave no value.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TryScopeError<E> {
    /// The body or children returned errors, or they were given to [`TryScope::fail`].
    Failed {
        /// The error that came first, and cancelled the scope.
        first: E,
        /// The errors that came after it, until everything had ended, in the order in which they came.
        others: Vec<E>,
    },
    /// Its deadline came while the body was waiting.
    TimedOut,
    /// It was cancelled while the body was waiting: by its token.
    Cancelled,
    /// A child could not be started, and was not joined; see [`ScopeError::NotStarted`].
    NotStarted,
}

impl<E> TryScopeError<E> {
    /// The first error, if there is one.
    pub fn first(&self) -> Option<&E> {
        match self {
            Self::Failed { first, .. } => Some(first),
            _ => None,
        }
    }

    /// The first error, if there is one.
    pub fn into_first(self) -> Option<E> {
        match self {
            Self::Failed { first, .. } => Some(first),
            _ => None,
        }
    }

    /// The errors after the first.
    pub fn others(&self) -> &[E] {
        match self {
            Self::Failed { others, .. } => others,
            _ => &[],
        }
    }

    /// Did the deadline come?
    pub fn is_timed_out(&self) -> bool {
        matches!(self, Self::TimedOut)
    }

    /// Was it cancelled?
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled)
    }
}

impl<E: fmt::Display> fmt::Display for TryScopeError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { first, others } if others.is_empty() => write!(f, "{first}"),
            Self::Failed { first, others } => write!(f, "{first} (and {} more errors)", others.len()),
            Self::TimedOut => ScopeError::TimedOut.fmt(f),
            Self::Cancelled => ScopeError::Cancelled.fmt(f),
            Self::NotStarted => ScopeError::NotStarted.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> Error for TryScopeError<E> {}

/// Runs `f`, for so long at most: then it is cancelled, with everything that it has started in scopes of its own, and this returns when all
/// of that has ended. A value that `f` returns is there even if it comes late.
///
/// # Errors
/// [`TimedOut`] if `f` was unwound from a blocking call because time was up.
///
/// # Panics
/// Like [`scope`](crate::scope); with what `f` panicked with.
///
/// ```
/// use std::time::Duration;
///
/// fibra::run(|| {
///     assert_eq!(fibra::timeout(Duration::from_secs(60), || 7), Ok(7));
///     let slow = fibra::timeout(Duration::from_millis(1), || fibra::sleep(Duration::from_secs(3600)));
///     assert!(slow.is_err());
/// });
/// ```
#[track_caller]
pub fn timeout<F, T>(duration: Duration, f: F) -> Result<T, TimedOut>
where
    F: FnOnce() -> T,
{
    deadline(Instant::after(duration), f)
}

/// Like [`timeout`], with the moment at which time is up.
///
/// # Errors
/// [`TimedOut`] if `f` was unwound from a blocking call because time was up.
///
/// # Panics
/// Like [`timeout`].
///
/// ```
/// use std::time::Duration;
/// use fibra::time::Instant;
///
/// fibra::run(|| {
///     let moment = Instant::now() + Duration::from_millis(1);
///     assert!(fibra::deadline(moment, || fibra::sleep(Duration::from_secs(3600))).is_err());
/// });
/// ```
#[track_caller]
pub fn deadline<F, T>(deadline: impl Into<Instant>, f: F) -> Result<T, TimedOut>
where
    F: FnOnce() -> T,
{
    let builder = ScopeBuilder::new().deadline(deadline);
    match scope::run(&builder.options, "timeout", Location::caller(), |_| f()) {
        Ok(value) => Ok(value),
        Err(NoValue::Cancelled(CancelReason::TimedOut)) => Err(TimedOut(())),
        Err(why) => scope::unwind_for(&why),
    }
}

/// Time was up; see [`timeout`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TimedOut(pub(crate) ());

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("time was up")
    }
}

impl Error for TimedOut {}

impl From<TimedOut> for std::io::Error {
    fn from(error: TimedOut) -> Self {
        Self::new(std::io::ErrorKind::TimedOut, error)
    }
}

/// How long until the nearest deadline: of the scopes whose bodies this fiber runs, and of the scope it is a child of. Zero if it has
/// passed, `None` if there is none.
///
/// ```
/// use std::time::Duration;
///
/// fibra::run(|| {
///     assert_eq!(fibra::remaining(), None);
///     let _ = fibra::timeout(Duration::from_secs(60), || {
///         assert!(fibra::remaining().unwrap() <= Duration::from_secs(60));
///     });
/// });
/// ```
pub fn remaining() -> Option<Duration> {
    let deadline = Here::new()?.nearest_deadline();
    (deadline != NEVER).then(|| Instant::from_nanos(deadline).remaining())
}
