//! Park: the one way to wait (law 2), written once for fibers, threads and models.
//!
//! ```text
//!  RUNNING ── begin_park ──▶ PARKING ── publish ──▶ (visible to owners) ── leave ──▶ PARKED ── claimed ──▶ RUNNABLE ──▶ RUNNING
//!     ▲                         │                                       (commit: `revoke.rs`)
//!     └──── abort_park ─────────┘  publish said "nothing to wait for"
//! ```
//!
//! The waiter brings the node, which lies on its stack; the [`Waitable`] links it. A [`Parker`] supplies the ways to leave and to come
//! back, and knows the shields and scopes around the waiter (`fiber.rs`, `thread.rs`). Cancellation is looked at before the wait begins,
//! and after the park is committed; from then on the canceller claims the wait like any owner. It is never looked at on the way out of a
//! completed wait. No user code runs between PARKING and the switch.
//!
//! Above: everything that blocks. Below: `waiter` (word, node, `revoke`); `fiber.rs` and `thread.rs`, the parkers.

use std::task::Waker;

pub(crate) use super::here::*;
pub(crate) use super::waitable::{Wait, Waitable};
use crate::prim::bug::seeded_bug;
use crate::wait::reason::WaitReason;
use crate::waiter::flags::flag;
pub(crate) use crate::waiter::node::Outcome;
use crate::waiter::node::{Node, WaiterRef};
use crate::waiter::record::{call_waker, call_wakers};
use crate::waiter::word::{ARM_CANCEL, ARM_TIMEOUT, CompletedBy, Ticket, WaitKind};

/// A waiter: a fiber, a thread, or a model's thread.
pub(crate) trait Parker: Copy {
    /// Its record.
    fn waiter(self) -> WaiterRef;

    /// Is the waiter not cancelled, and does nothing hold cancellation off or forbid to wait? Then the other questions are not asked.
    fn is_plain(self) -> bool;

    /// Which cancellations may end a wait that begins now. Panics if the waiter must not wait.
    fn kind(self, asked: WaitKind, how: &Wait) -> WaitKind;

    /// Asked if a flag says that the waiter is cancelled: may that end a wait of this kind? If `settled`, a child's panic may not: the
    /// waiter may be about to take it.
    fn is_due(self, kind: WaitKind, settled: &dyn Fn() -> bool) -> bool;

    /// Has this deadline come?
    fn is_over(self, deadline: u64) -> bool;

    /// The deadline had come before the wait began: other fibers run all the same. A fiber that asks again and again, or sleeps for a
    /// moment at a time, must not keep them from running.
    fn pass(self);

    /// Leaves, with its word PARKING and its wait published; comes back with the word RUNNING, when the wait was completed or the deadline
    /// has come. The word's arm says which. `plainly`: the waiter was [plain](Self::is_plain) when the wait began, and still is.
    fn leave(self, ticket: Ticket, how: &Wait, plainly: bool);

    /// It is about to wait, and was not plain: tells its watch, if it has one.
    fn is_about_to_wait(self, _how: &Wait) {}

    /// The wait of which [`is_about_to_wait`](Self::is_about_to_wait) told is over.
    fn has_waited(self) {}

    /// Makes the wait, if it was not plain: what is to be done before it leaves and after it came back is done around it.
    fn around<R>(self, wait: impl FnOnce() -> R) -> R {
        wait()
    }

    /// The same in a wait that is not published but claimed: until its owner lets the waiter go on.
    fn await_owner(self);
}

/// How the caller wants to learn of cancellation, beyond what the reason of the wait says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Plain,
    /// To learn of it as such, also where it is held off and would not be delivered.
    Watching,
    /// To be interrupted by it, where it could be delivered, although the wait is binding: the caller passes it on, and then waits on.
    PassingOn,
}

impl Manner {
    /// Which cancellations may end such a wait, as far as the caller goes.
    #[inline(always)]
    fn kind(self, how: &Wait) -> WaitKind {
        match self {
            Manner::PassingOn => WaitKind::Revocable,
            Manner::Watching if !how.reason.is_binding() => WaitKind::Watching,
            Manner::Plain | Manner::Watching => how.kind(),
        }
    }
}

/// Waits, as the current fiber or thread, and says how that ended: as `publish` said, if it found nothing to wait for; as the completion
/// owner noted; or `TimedOut`. Cancellation unwinds.
#[inline]
pub(crate) fn wait(waitable: impl Waitable + Copy, how: Wait) -> Outcome {
    let ended = wait_or_cancelled(waitable, how);
    if ended == Outcome::Cancelled {
        deliver();
    }
    ended
}

/// Waits, but returns [`Outcome::Cancelled`] instead of unwinding: for callers that have something to take back first.
#[inline]
pub(crate) fn wait_or_cancelled(waitable: impl Waitable + Copy, how: Wait) -> Outcome {
    wait_here(waitable, how, Manner::Plain).0
}

/// The same for a caller that wants to learn of cancellation as such, also where it is held off and would not be delivered.
pub(crate) fn wait_watching(waitable: impl Waitable + Copy, how: Wait) -> Outcome {
    wait_here(waitable, how, Manner::Watching).0
}

/// A binding wait that cancellation interrupts all the same, where it could be delivered, with [`Outcome::Cancelled`]: for a caller that
/// passes it on to the fiber it waits for, and then waits on, without this.
pub(crate) fn wait_to_pass_on(waitable: impl Waitable + Copy, how: Wait) -> Outcome {
    debug_assert!(how.reason.is_binding(), "a revocable wait is interrupted anyway");
    wait_here(waitable, how, Manner::PassingOn).0
}

/// The wait of a select. Also gives the arm that an owner completed, if one did: that is possible even if `publish` found nothing to wait
/// for, since some arms were visible by then. `watching`: the select has an arm for cancellation, which then ends the wait as
/// [`Outcome::Cancelled`]; otherwise cancellation unwinds.
pub(crate) fn wait_for_any(
    waitable: impl Waitable + Copy,
    how: Wait,
    watching: bool,
) -> (Outcome, Option<CompletedBy>) {
    match wait_here(waitable, how, if watching { Manner::Watching } else { Manner::Plain }) {
        (Outcome::Cancelled, _) if !watching => deliver(),
        ended => ended,
    }
}

/// A single operation, which is a select of one: tries, waits, and tries again, until it is completed or time is up (then it has tried once
/// more). Cancellation unwinds. Operations with a fast path of their own, or whose `publish` tries, have loops of their own.
pub(crate) fn complete(waitable: impl Waitable + Copy, how: Wait) -> Outcome {
    loop {
        match waitable.try_now() {
            Outcome::Pending => {}
            done => return done,
        }
        if wait(waitable, how) == Outcome::TimedOut {
            return match waitable.try_now() {
                Outcome::Pending => Outcome::TimedOut,
                done => done,
            };
        }
    }
}

/// The wait, with the plain case first: nothing about the waiter needs a closer look.
#[inline(always)]
pub(crate) fn wait_as<P: Parker, W: Waitable + Copy>(
    parker: P,
    waitable: W,
    how: Wait,
    manner: Manner,
) -> (Outcome, Option<CompletedBy>) {
    if !parker.is_plain() {
        // (Copies: the values that the plain case needs stay in registers.)
        return wait_closely(parker, &{ waitable }, &{ how }, manner);
    }
    park(parker, waitable, how, manner.kind(&how), true)
}

/// The plain case of a revocable wait alone. None: nothing was done, the waiter needs a closer look.
#[cfg(not(any(loom, shuttle)))]
#[inline(always)]
pub(super) fn wait_as_if_plain<P: Parker, W: Waitable + Copy>(parker: P, waitable: W, how: Wait) -> Option<Outcome> {
    debug_assert!(how.kind() == WaitKind::Revocable);
    parker.is_plain().then(|| park(parker, waitable, how, WaitKind::Revocable, true).0)
}

/// The wait of a waiter that is cancelled, holds cancellation off, or may not wait.
#[cold]
#[inline(never)]
fn wait_closely<P: Parker, W: Waitable>(
    parker: P,
    waitable: &W,
    how: &Wait,
    manner: Manner,
) -> (Outcome, Option<CompletedBy>) {
    let kind = parker.kind(manner.kind(how), how);
    if is_cancelled_before(parker, kind, waitable) {
        return (Outcome::Cancelled, None);
    }
    // (Its watch may cancel it.)
    parker.is_about_to_wait(how);
    let ended = if is_cancelled_before(parker, kind, waitable) {
        (Outcome::Cancelled, None)
    } else {
        parker.around(|| park(parker, waitable, *how, kind, false))
    };
    parker.has_waited();
    ended
}

/// The transitions from RUNNING back to RUNNING, in a wait of this kind. `plainly`: see [`Parker::is_plain`]. The node of the wait lies
/// here, on the waiter's stack.
#[inline(always)]
fn park<P: Parker, W: Waitable + Copy>(
    parker: P,
    waitable: W,
    how: Wait,
    kind: WaitKind,
    plainly: bool,
) -> (Outcome, Option<CompletedBy>) {
    let word = &parker.waiter().get().word;
    // (A sleeper has just looked at the clock, and a timer that is set too late fires at once.)
    if how.reason != WaitReason::Sleep && how.deadline.is_some_and(|deadline| parker.is_over(deadline)) {
        parker.pass();
        return (Outcome::TimedOut, None);
    }
    let ticket = word.begin_park_as(kind, waitable.ended_by());
    let node = Node::of_wait(parker.waiter(), ticket);
    match waitable.publish(&node) {
        (Outcome::Pending, _) => {}
        (done, waker) => return (done, call_off(parker, waker)),
    }
    parker.leave(ticket, &how, plainly);
    let arm = word.snapshot().arm();
    if arm >= ARM_TIMEOUT {
        return (end_otherwise(waitable, &node, arm), None);
    }
    (node.outcome.get(), Some(arm))
}

/// Time or cancellation was faster.
#[cold]
#[inline(never)]
fn end_otherwise(waitable: impl Waitable, node: &Node, arm: CompletedBy) -> Outcome {
    take_back(&waitable, node);
    if arm == ARM_CANCEL { Outcome::Cancelled } else { Outcome::TimedOut }
}

/// There was nothing to wait for. The result of `publish` stands, even if an owner completed the wait in the moment in which it was
/// visible: a canceller, whose cancellation then comes at the next wait; another arm of a select, whose number is returned; or a waker that
/// was called twice.
#[inline]
fn call_off<P: Parker>(parker: P, waker: Option<Waker>) -> Option<CompletedBy> {
    let word = &parker.waiter().get().word;
    let arm = if word.abort_park() || seeded_bug("abort_unanswered") {
        None
    } else {
        parker.await_owner();
        Some(word.snapshot().arm())
    };
    if let Some(waker) = waker {
        call_waker(waker);
    }
    arm
}

/// Another event has ended the wait.
#[inline(always)] // What has no node is compiled without one.
fn take_back<W: Waitable>(waitable: &W, node: &Node) {
    let mut owed = Vec::new();
    waitable.unpublish(node, &mut owed);
    if !owed.is_empty() {
        call_wakers(owed);
    }
}

/// A load without any ordering; see the header.
fn is_cancelled_before<P: Parker>(parker: P, kind: WaitKind, waitable: &impl Waitable) -> bool {
    let flags = &parker.waiter().get().flags;
    kind != WaitKind::Binding && flags.has(flag::ANY_CANCEL) && parker.is_due(kind, &|| waitable.is_settled())
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
