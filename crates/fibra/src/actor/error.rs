//! How sending and calling fail, why an actor ends, and what a failure is. Values, without a protocol.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::prim::FirstPanic;

/// Names an actor for as long as the process runs: unique, and never given to another one. A supervised actor keeps it over restarts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ActorId(pub(super) u64);

impl fmt::Display for ActorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "actor #{}", self.0)
    }
}

/// A message that was not delivered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendError<T> {
    /// The actor has ended, or was asked to stop.
    Stopped(T),
    /// An actor sends to itself, and its mailbox is full: only it could make room.
    WouldDeadlock(T),
}

/// A message that was not delivered at once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The mailbox is full.
    Full(T),
    /// The actor has ended, or was asked to stop.
    Stopped(T),
}

/// A message that was not delivered in time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendTimeoutError<T> {
    /// The mailbox was full all the time.
    Timeout(T),
    /// The actor has ended, or was asked to stop.
    Stopped(T),
    /// An actor sends to itself, and its mailbox is full: only it could make room.
    WouldDeadlock(T),
}

const STOPPED: &str = "the actor has ended or was asked to stop";
const OWN: &str =
    "an actor sends to its own full mailbox, and would wait for itself: use try_send, or a larger mailbox";
const FULL: &str = "the mailbox of the actor is full";

macro_rules! send_errors {
    ($($error:ident { $($variant:ident: $text:expr),* })*) => { $(
        impl<T> $error<T> {
            /// The message.
            pub fn into_inner(self) -> T {
                match self { $(Self::$variant(message) => message),* }
            }

            /// The same about another message.
            #[allow(dead_code)] // Not of all of them.
            pub(super) fn map<U>(self, f: impl FnOnce(T) -> U) -> $error<U> {
                match self { $(Self::$variant(message) => $error::$variant(f(message))),* }
            }
        }

        impl<T> fmt::Debug for $error<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant(_) => concat!(stringify!($variant), "(..)")),* })
            }
        }

        impl<T> fmt::Display for $error<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant(_) => $text),* })
            }
        }

        impl<T> Error for $error<T> {}
    )* };
}

send_errors! {
    SendError { Stopped: STOPPED, WouldDeadlock: OWN }
    TrySendError { Full: FULL, Stopped: STOPPED }
    SendTimeoutError { Timeout: FULL, Stopped: STOPPED, WouldDeadlock: OWN }
}

/// Why a call has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallError {
    /// The actors call each other in a circle, which none of them can leave: the names from the caller back to the caller.
    Cycle(Vec<String>),
    /// The actor failed while it had the message.
    Crashed,
    /// The actor has ended, or was asked to stop, before it handled the message.
    Stopped,
    /// The actor, or an overflow policy, dropped the [`Reply`](super::Reply) without an answer.
    Dropped,
    /// There was no answer in time.
    TimedOut,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cycle(names) => write!(
                f,
                "these actors would wait for each other for ever: {}; let one of them send instead of call",
                names.join(" calls ")
            ),
            Self::Crashed => f.write_str("the actor failed while it had the message"),
            Self::Stopped => f.write_str(STOPPED),
            Self::Dropped => f.write_str("the reply was dropped without an answer"),
            Self::TimedOut => f.write_str("the actor did not answer in time"),
        }
    }
}

impl Error for CallError {}

/// What made a handler fail: any error, by `?`, or a panic. Cheap to clone. A panic of the error's destructor is not passed on.
///
/// ```
/// use fibra::actor::Failure;
/// fn parse(text: &str) -> Result<i32, Failure> {
///     Ok(text.parse::<i32>()?)
/// }
/// assert!(parse("x").unwrap_err().message().contains("invalid digit"));
/// assert_eq!(Failure::msg("no money").to_string(), "no money");
/// ```
#[derive(Clone)]
pub struct Failure(Arc<FailureKind>);

enum FailureKind {
    Error(Caught),
    Panic(String),
    Message(String),
}

/// An error of the user's. Its destructor runs wherever the last clone of a failure is dropped: in a supervisor, in a report, at the end of
/// an actor. A panic of it stays here, since none of these has anything to do with it.
struct Caught(Option<Box<dyn Error + Send + Sync>>);

impl Drop for Caught {
    fn drop(&mut self) {
        FirstPanic::ignore(|| drop(self.0.take()));
    }
}

impl Failure {
    /// A failure that only has a text.
    pub fn msg(text: impl fmt::Display) -> Self {
        Self(Arc::new(FailureKind::Message(text.to_string())))
    }

    /// Of what a panic carried.
    pub(super) fn of_panic(payload: Box<dyn Any + Send>) -> Self {
        let text = match payload.downcast_ref::<&str>() {
            Some(text) => (*text).to_owned(),
            None => payload.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic without a text".to_owned()),
        };
        crate::prim::discard_payload(payload);
        Self(Arc::new(FailureKind::Panic(text)))
    }

    /// The text of the error, or of the panic.
    pub fn message(&self) -> String {
        match &*self.0 {
            FailureKind::Error(error) => error.0.as_ref().map(ToString::to_string).unwrap_or_default(),
            FailureKind::Panic(text) | FailureKind::Message(text) => text.clone(),
        }
    }

    /// Did the handler panic?
    pub fn is_panic(&self) -> bool {
        matches!(&*self.0, FailureKind::Panic(_))
    }

    /// The error, if it is one of this type.
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        match &*self.0 {
            FailureKind::Error(error) => error.0.as_ref()?.downcast_ref::<E>(),
            _ => None,
        }
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(Arc::new(FailureKind::Error(Caught(Some(Box::new(error))))))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            FailureKind::Panic(text) => write!(f, "panicked: {text}"),
            FailureKind::Error(_) | FailureKind::Message(_) => f.write_str(&self.message()),
        }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Failure({self})")
    }
}

/// Why an actor has ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StopReason {
    /// It was asked to, by [`Addr::stop`](super::Addr::stop) or [`Context::stop`](super::Context::stop), and has handled what was there.
    Stopped,
    /// By [`Addr::kill`](super::Addr::kill).
    Killed,
    /// The last address was dropped, and its mailbox is empty.
    Unreachable,
    /// A handler or hook returned an error or panicked, or the supervisor could not make it.
    Failed(Failure),
    /// An actor that it is linked to has ended with a failure.
    Linked(ActorId),
    /// Its supervisor or its runtime shuts down.
    Shutdown,
}

impl StopReason {
    /// Is it an end that was wanted? (Stopped, unreachable, shut down: not a failure, a kill or a link.)
    pub fn is_normal(&self) -> bool {
        matches!(self, Self::Stopped | Self::Unreachable | Self::Shutdown)
    }

    /// The failure, if it is one.
    pub fn failure(&self) -> Option<&Failure> {
        if let Self::Failed(failure) = self { Some(failure) } else { None }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Killed => f.write_str("killed"),
            Self::Unreachable => f.write_str("its last address was dropped"),
            Self::Failed(failure) => write!(f, "failed: {failure}"),
            Self::Linked(id) => write!(f, "linked to {id}, which has failed"),
            Self::Shutdown => f.write_str("shut down"),
        }
    }
}

/// What a [monitor](super::Context::monitor) is told: an actor has ended, or a life of one that is supervised.
#[derive(Clone, Debug)]
pub struct Down {
    /// Which one.
    pub id: ActorId,
    /// Its name, if it has one.
    pub name: Option<Arc<str>>,
    /// Why.
    pub reason: StopReason,
}
