//! Calls: a message with a [`Reply`] in it, and the wait for the answer.
//!
//! Above: `addr`. Below: `channel::answer`, by which the answer goes to the stack of a caller that waits, `channel::oneshot`, by which it
//! goes to one in async code, and `core`, which knows the handler that runs here.
//!
//! Invariants
//! * A reply answers once. One that is dropped answers with an error: `Dropped`, or, if its handler or actor failed, `Crashed`, or, if its
//!   actor ended, `Stopped`. In a handler the answer waits until the handler has returned, since only then it is known which; but not in
//!   a handler of the actor that has made the call, which may wait for it, and not if an overflow policy drops the message.
//! * An actor that waits in a call has an edge to the one it calls, until the answer is there. The actor that adds an edge looks along the
//!   edges from its callee; if they lead back to it, the call fails at once. Both ends of a circle may see it, and then both fail.

use std::fmt;
use std::sync::Arc;

use super::core::{AnyCell, CallEdge, Marks, Refuse, current_id, plain_mode};
use super::error::{ActorId, CallError};
use crate::cancel::is_unwinding;
use crate::channel::answer::Answerer;
use crate::channel::{OneshotReceiver, OneshotSender, oneshot};
use crate::prim::atomic::{AtomicBool, Ordering};
use crate::wait::watch;

pub(super) type Answer<R> = Result<R, CallError>;

/// The right to answer a call, once. Dropped without an answer, it answers with an error.
///
/// ```
/// use fibra::actor::{self, Actor, CallError, Context, Failure, Reply};
///
/// struct Echo;
/// enum Ask { Say(u32, Reply<u32>), Forget(Reply<u32>) }
/// impl Actor for Echo {
///     type Message = Ask;
///     fn handle(&mut self, ask: Ask, _: &mut Context<Self>) -> Result<(), Failure> {
///         match ask {
///             Ask::Say(n, reply) => reply.send(n),
///             Ask::Forget(_) => {}
///         }
///         Ok(())
///     }
/// }
/// fibra::run(|| {
///     let echo = actor::spawn(Echo);
///     assert_eq!(echo.call(|reply| Ask::Say(7, reply)), Ok(7));
///     assert_eq!(echo.call(Ask::Forget), Err(CallError::Dropped));
/// });
/// ```
#[must_use = "dropped, it answers the caller with an error"]
pub struct Reply<R: Send + 'static> {
    inner: Option<Inner<R>>,
}

struct Inner<R> {
    way: Way<Answer<R>>,
    edge: Option<Arc<CallEdge>>,
    /// The actor whose handler has made the call.
    caller: Option<ActorId>,
}

/// How the answer goes to the caller.
enum Way<T> {
    /// To its stack, where it waits.
    Stack(Answerer<T>),
    /// To its future.
    Future(OneshotSender<T>),
}

impl<R> Inner<R> {
    /// (In line, so that the answer is written straight to the stack of the caller; see `prim::slot`.)
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn send(self, answer: Answer<R>) -> Result<(), Answer<R>> {
        let Self { way, edge, caller: _ } = self;
        if let Some(edge) = &edge {
            edge.has_ended();
        }
        match way {
            Way::Stack(answerer) => answerer.send(answer),
            Way::Future(sender) => send_to_future(sender, answer),
        }
    }
}

#[cold]
#[inline(never)]
fn send_to_future<R>(sender: OneshotSender<Answer<R>>, answer: Answer<R>) -> Result<(), Answer<R>> {
    sender.send(answer)
}

impl<R: Send> Refuse for Inner<R> {
    fn refuse(self: Box<Self>, why: CallError) {
        let _ = self.send(Err(why));
    }
}

impl<R: Send + 'static> Reply<R> {
    /// That of a caller that waits, in a handler if there is an edge.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn to_stack(answerer: Answerer<Answer<R>>, edge: Option<&Waiting>) -> Self {
        let (caller, edge) = edge.map(|waiting| (waiting.caller.core().id, waiting.edge.clone())).unzip();
        Self { inner: Some(Inner { way: Way::Stack(answerer), edge, caller }) }
    }

    /// That of a caller in async code, and what it awaits.
    pub(super) fn to_future() -> (Self, OneshotReceiver<Answer<R>>) {
        let (sender, answer) = oneshot();
        (Self { inner: Some(Inner { way: Way::Future(sender), edge: None, caller: current_id() }) }, answer)
    }

    /// Answers. If the caller does not wait any more, the answer is dropped.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn send(mut self, answer: R) {
        let inner = self.inner.take();
        // There is nothing left to be dropped.
        std::mem::forget(self);
        if let Some(inner) = inner {
            let _ = inner.send(Ok(answer));
        }
    }

    /// Answers.
    ///
    /// # Errors
    /// The answer, if the caller does not wait any more.
    pub fn try_send(mut self, answer: R) -> Result<(), R> {
        let inner = self.inner.take();
        // There is nothing left to be dropped.
        std::mem::forget(self);
        match inner {
            Some(inner) => match inner.send(Ok(answer)) {
                Err(Ok(answer)) => Err(answer),
                _ => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Has the caller given up?
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| match &inner.way {
            Way::Stack(answerer) => answerer.is_closed(),
            Way::Future(sender) => sender.is_closed(),
        })
    }
}

impl<R: Send + 'static> Drop for Reply<R> {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        let mut inner = Some(inner);
        watch::with_current::<Marks, _>(|marks, _| {
            let Some(inner) = inner.take() else { return };
            let is_own = inner.caller == Some(marks.id);
            if marks.mode.get() == super::core::Mode::Handling && !is_own && !is_unwinding() {
                marks.note_unanswered(Box::new(inner));
            } else {
                let why = if is_unwinding() { CallError::Crashed } else { marks.mode.get().refusal() };
                let _ = inner.send(Err(why));
            }
        });
        if let Some(inner) = inner {
            let _ = inner.send(Err(plain_mode().refusal()));
        }
    }
}

impl<R: Send + 'static> fmt::Debug for Reply<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("is_abandoned", &self.is_abandoned()).finish()
    }
}

/// The edge of an actor that waits in a call, or for a child to start, until this is dropped.
pub(super) struct Waiting {
    caller: Arc<dyn AnyCell>,
    edge: Arc<CallEdge>,
}

impl Waiting {
    /// Adds the edge from the caller, and looks whether it closes a circle.
    #[cold]
    pub(super) fn begin(caller: Arc<dyn AnyCell>, callee: Arc<dyn AnyCell>) -> Result<Self, CallError> {
        let edge = Arc::new(CallEdge { callee, is_answered: AtomicBool::new(false) });
        caller.core().with_extra(|extra| extra.calls.push(edge.clone()));
        let waiting = Self { caller, edge };
        match circle(&waiting.caller, &waiting.edge.callee) {
            None => Ok(waiting),
            Some(names) => Err(CallError::Cycle(names)),
        }
    }
}

impl Waiting {
    /// The edge, to be marked when the wait is over, before this is dropped.
    pub(super) fn edge(&self) -> Arc<CallEdge> {
        self.edge.clone()
    }
}

impl CallEdge {
    /// What is waited for has come: the edge does not count any more.
    pub(super) fn has_ended(&self) {
        // Release: one who sees it sees what the caller is answered as well; the caller does not wait any more.
        self.is_answered.store(true, Ordering::Release);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mine = self.caller.core().if_extra(|extra| {
            let at = extra.calls.iter().position(|other| Arc::ptr_eq(other, &self.edge));
            at.map(|at| extra.calls.swap_remove(at))
        });
        drop(mine);
    }
}

/// The names along the edges from `caller` over `callee` back to it, if they lead there.
fn circle(caller: &Arc<dyn AnyCell>, callee: &Arc<dyn AnyCell>) -> Option<Vec<String>> {
    let goal = caller.core().id;
    let mut paths = vec![vec![callee.clone()]];
    let mut seen = Vec::new();
    while let Some(path) = paths.pop() {
        let last = path.last()?.clone();
        if last.core().id == goal {
            let names = std::iter::once(caller).chain(&path).map(|cell| cell.core().label());
            return Some(names.collect());
        }
        if seen.contains(&last.core().id) {
            continue;
        }
        seen.push(last.core().id);
        let next = last.core().if_extra(|extra| {
            // Acquire: pairs with the release of the answer.
            let waits = extra.calls.iter().filter(|edge| !edge.is_answered.load(Ordering::Acquire));
            waits.map(|edge| edge.callee.clone()).collect::<Vec<_>>()
        });
        paths.extend(next.into_iter().map(|cell| path.iter().cloned().chain([cell]).collect()));
    }
    None
}
