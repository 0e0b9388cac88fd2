//! The error of a join: which fiber it was, and why there is no value. A panic's payload can be taken out, or raised again. Above: users.
//! Below: `waiter::cancel_reason`.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::cancel::{is_cancellation, pass_on};
use crate::fiber::id::FiberId;
use crate::prim::sync::Mutex;
use crate::task::fiber;
use crate::waiter::cancel_reason::CancelReason;

/// Why joining a fiber gave no value.
pub struct JoinError(Box<Inner>);

/// Boxed: errors are rare, and a small `Result` keeps `join` fast.
struct Inner {
    fiber: FiberId,
    name: Option<Arc<str>>,
    message: String,
    /// The payload behind a lock: it is `Send` but not `Sync`, and the error has to be both.
    kind: JoinErrorKind<Mutex<Box<dyn Any + Send>>>,
}

pub(super) enum JoinErrorKind<P> {
    Panicked(P),
    Cancelled(Option<CancelReason>),
    NoStack,
    SelfJoin,
}

impl JoinError {
    pub(super) fn new(fiber: FiberId, name: Option<Arc<str>>, kind: JoinErrorKind<Box<dyn Any + Send>>) -> Self {
        let (message, kind) = match kind {
            JoinErrorKind::Panicked(payload) => {
                let text = payload.downcast_ref::<&'static str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
                let text = text.unwrap_or_else(|| "a panic whose payload is not text".to_owned());
                (text, JoinErrorKind::Panicked(Mutex::new(payload)))
            }
            JoinErrorKind::Cancelled(reason) => (
                reason.as_ref().map_or_else(|| "cancelled".to_owned(), CancelReason::to_string),
                JoinErrorKind::Cancelled(reason),
            ),
            JoinErrorKind::NoStack => (
                "no stack could be had for it: raise vm.max_map_count, or run fewer fibers at once".to_owned(),
                JoinErrorKind::NoStack,
            ),
            JoinErrorKind::SelfJoin => ("a fiber cannot join itself".to_owned(), JoinErrorKind::SelfJoin),
        };
        Self(Box::new(Inner { fiber, name, message, kind }))
    }

    /// The error that a join of the current fiber would give, which was ended by this payload: for results that do not come by a handle.
    /// (On a thread, which drops a function that never ran: that it was cancelled.)
    pub(crate) fn of_this_fiber(payload: Option<Box<dyn Any + Send>>) -> Self {
        let here = fiber::current();
        let id = here.as_ref().map_or(FiberId::NONE, fiber::Fiber::id);
        let kind = match payload {
            Some(payload) if !is_cancellation(&*payload) => JoinErrorKind::Panicked(payload),
            _ => JoinErrorKind::Cancelled(fiber::cancel_reason()),
        };
        Self::new(id, here.as_ref().and_then(fiber::Fiber::name).map(Arc::from), kind)
    }

    /// Did it panic?
    pub fn is_panic(&self) -> bool {
        matches!(self.0.kind, JoinErrorKind::Panicked(_))
    }

    /// Was it cancelled, or refused because the runtime was shutting down or full?
    pub fn is_cancelled(&self) -> bool {
        matches!(self.0.kind, JoinErrorKind::Cancelled(_))
    }

    /// Did it never run because no stack could be had?
    pub fn is_no_stack(&self) -> bool {
        matches!(self.0.kind, JoinErrorKind::NoStack)
    }

    /// Why it was cancelled, if it was.
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        match &self.0.kind {
            JoinErrorKind::Cancelled(reason) => reason.clone(),
            _ => None,
        }
    }

    /// The panic's message, or in words why there is no value.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Which fiber it was.
    pub fn fiber(&self) -> FiberId {
        self.0.fiber
    }

    /// Its name, if it had one.
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// The panic's payload, for [`resume_unwind`](std::panic::resume_unwind).
    ///
    /// # Panics
    /// If the fiber did not panic; see [`try_into_panic`](Self::try_into_panic).
    #[track_caller]
    pub fn into_panic(self) -> Box<dyn Any + Send> {
        match self.try_into_panic() {
            Ok(payload) => payload,
            Err(error) => panic!("into_panic of an error that is no panic: {error}"),
        }
    }

    /// Passes the panic on: this fiber unwinds with the payload of the one that was joined. Unlike [`std::panic::resume_unwind`] it
    /// tells the runtime that this fiber unwinds, so that cancellation waits until it is done.
    ///
    /// # Panics
    /// Always: with the payload, or, if the fiber did not panic, with the error's own text.
    ///
    /// ```
    /// let caught = std::panic::catch_unwind(|| {
    ///     fibra::run(|| {
    ///         let child = fibra::spawn(|| std::panic::resume_unwind(Box::new("out of ink")));
    ///         child.join().unwrap_or_else(|error: fibra::JoinError| error.resume_unwind())
    ///     })
    /// });
    /// assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"out of ink"));
    /// ```
    #[track_caller]
    pub fn resume_unwind(self) -> ! {
        match self.try_into_panic() {
            Ok(payload) => pass_on(payload),
            Err(error) => panic!("{error}"),
        }
    }

    /// The panic's payload.
    ///
    /// # Errors
    /// The error itself if the fiber did not panic.
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send>, Self> {
        let inner = *self.0;
        match inner.kind {
            JoinErrorKind::Panicked(payload) => Ok(payload.into_inner()),
            kind => Err(Self(Box::new(Inner { kind, ..inner }))),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fiber {}", self.0.fiber)?;
        if let Some(name) = &self.0.name {
            write!(f, " \"{name}\"")?;
        }
        match &self.0.kind {
            JoinErrorKind::Panicked(_) => write!(f, " panicked: {}", self.0.message),
            JoinErrorKind::Cancelled(None) => f.write_str(" was cancelled"),
            JoinErrorKind::Cancelled(Some(reason)) => write!(f, " was cancelled: {reason}"),
            JoinErrorKind::NoStack | JoinErrorKind::SelfJoin => write!(f, ": {}", self.0.message),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinError({self})")
    }
}

impl std::error::Error for JoinError {}
