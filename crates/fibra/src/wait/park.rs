//! Park: the one way to wait (law 2), written once for fibers, threads and models.
//!
//! ```text
//!  RUNNING ── begin_park ──▶ PARKING ── publish ──▶ (visible to owners) ── leave ──▶ PARKED ── claimed ──▶ RUNNABLE ──▶ RUNNING
//!     ▲                         │                                       (commit: `revoke.rs`)
//!     └──── abort_park ─────────┘  publish said "nothing to wait for"
//! ```
//!
//! The waiter brings the node, which lies on its stack; the [`Waitable`] links it. A [`Parker`] supplies how it leaves and comes back, and
//! what of shields and scopes it has around it (`fiber.rs`, `thread.rs`). Cancellation is looked at before the wait begins, and after the
//! park is committed; from then on the canceller claims the wait like any owner. It is never looked at on the way out of a completed
//! wait. No user code runs between PARKING and the switch.

use std::task::Waker;

pub(crate) use super::here::*;
use super::reason::WaitReason;
pub(crate) use super::waitable::{Wait, Waitable};
use crate::prim::bug::seeded_bug;
use crate::waiter::flags::flag;
pub(crate) use crate::waiter::node::Outcome;
use crate::waiter::node::{Node, WaiterRef};
use crate::waiter::record::{call, call_all};
use crate::waiter::word::{ARM_CANCEL, ARM_TIMEOUT, Arm, Ticket, WaitKind};

/// One who waits.
pub(crate) trait Parker: Copy {
    /// Its record.
    fn waiter(self) -> WaiterRef;

    /// Is it not cancelled, and is there nothing about it that holds cancellation off or forbids to wait? Then the rest of this is not
    /// asked.
    fn is_plain(self) -> bool;

    /// What cancellation may do to a wait that begins now, of which this is asked. Panics if it must not wait.
    fn kind(self, asked: WaitKind, reason: WaitReason) -> WaitKind;

    /// Asked if a flag says that it is cancelled: may that end a wait of this kind, or, if `settled`, only take what it waits for?
    fn is_due(self, kind: WaitKind, settled: &dyn Fn() -> bool) -> bool;

    /// Has this deadline come?
    fn is_over(self, deadline: u64) -> bool;

    /// Its deadline had come before it waited: others run all the same. A fiber that asks again and again, or sleeps for a moment at a
    /// time, must not keep them from it.
    fn pass(self);

    /// Goes away, with its word PARKING and its wait published; is back with the word RUNNING, when the wait was completed or the deadline
    /// has come. The word's arm says which. `plainly`: it was [plain](Self::is_plain) when it began, and so it is now.
    fn leave(self, ticket: Ticket, how: &Wait, plainly: bool);

    /// It is about to wait, and was not plain: tells its watch, if it has one.
    fn is_about_to_wait(self, _how: &Wait) {}

    /// The wait of which [`is_about_to_wait`](Self::is_about_to_wait) told is over.
    fn has_waited(self) {}

    /// The same in a wait that is not published but claimed: until its owner lets it go on.
    fn await_owner(self);
}

/// What a caller wants of cancellation, beyond what the reason of the wait says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Plain,
    /// To know of it as such, also where it is held off and would not be delivered.
    Watching,
    /// To be interrupted by it, where it could be delivered, although the wait is binding: the caller passes it on, and then waits on.
    PassingOn,
}

impl Manner {
    /// What cancellation may do to such a wait, as far as the caller goes.
    #[inline(always)]
    fn kind(self, how: &Wait) -> WaitKind {
        match self {
            Manner::PassingOn => WaitKind::Revocable,
            Manner::Watching if !how.reason.is_binding() => WaitKind::Watching,
            Manner::Plain | Manner::Watching => how.kind(),
        }
    }
}

/// Waits, as what runs here, and says how that ended: as `publish` said, if that found nothing to wait for; as the owner noted who
/// completed it; or `TimedOut`. Cancellation unwinds.
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

/// The same for a caller that wants to know of cancellation as such, also where it is held off and would not be delivered.
pub(crate) fn wait_watching(waitable: impl Waitable + Copy, how: Wait) -> Outcome {
    wait_here(waitable, how, Manner::Watching).0
}

/// A binding wait that cancellation interrupts all the same, where it could be delivered, with [`Outcome::Cancelled`]: for a caller that
/// passes it on to the one it waits for, and then waits on, without this.
pub(crate) fn wait_to_pass_on(waitable: impl Waitable + Copy, how: Wait) -> Outcome {
    debug_assert!(how.reason.is_binding(), "a revocable wait is interrupted anyway");
    wait_here(waitable, how, Manner::PassingOn).0
}

/// The wait of a select, which also says as which arm an owner completed it, if one did: that may be so although `publish` found nothing to
/// wait for, since some arms were visible by then. `watching`: it has an arm for cancellation, which then ends the wait as
/// [`Outcome::Cancelled`]; otherwise cancellation unwinds.
pub(crate) fn wait_for_any(waitable: impl Waitable + Copy, how: Wait, watching: bool) -> (Outcome, Option<Arm>) {
    match wait_here(waitable, how, if watching { Manner::Watching } else { Manner::Plain }) {
        (Outcome::Cancelled, _) if !watching => deliver(),
        ended => ended,
    }
}

/// A single operation, which is a select of one: tries, waits, and tries again, until it is completed or time is up (then it has tried once
/// more). Cancellation unwinds. Operations with a faster way in front, or whose `publish` tries, have loops of their own.
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

/// The wait, with its usual way in front: nothing about the waiter has to be looked at closer.
#[inline(always)]
pub(crate) fn wait_as<P: Parker, W: Waitable + Copy>(
    parker: P,
    waitable: W,
    how: Wait,
    manner: Manner,
) -> (Outcome, Option<Arm>) {
    if !parker.is_plain() {
        // (Copies: what the usual way needs stays in registers.)
        return wait_closely(parker, &{ waitable }, &{ how }, manner);
    }
    park(parker, waitable, how, manner.kind(&how), true)
}

/// The wait of one that is cancelled, holds cancellation off, or may not wait.
#[cold]
#[inline(never)]
fn wait_closely<P: Parker, W: Waitable>(parker: P, waitable: &W, how: &Wait, manner: Manner) -> (Outcome, Option<Arm>) {
    let kind = parker.kind(manner.kind(how), how.reason);
    if is_cancelled_before(parker, kind, waitable) {
        return (Outcome::Cancelled, None);
    }
    // (Its watch may cancel it.)
    parker.is_about_to_wait(how);
    let ended = if is_cancelled_before(parker, kind, waitable) {
        (Outcome::Cancelled, None)
    } else {
        park(parker, waitable, *how, kind, false)
    };
    parker.has_waited();
    ended
}

/// The way from RUNNING to RUNNING, in a wait of this kind. `plainly`: see [`Parker::is_plain`]. The node of the wait lies here, on the
/// waiter's stack.
#[inline(always)]
fn park<P: Parker, W: Waitable + Copy>(
    parker: P,
    waitable: W,
    how: Wait,
    kind: WaitKind,
    plainly: bool,
) -> (Outcome, Option<Arm>) {
    let word = &parker.waiter().get().word;
    if how.deadline.is_some_and(|deadline| parker.is_over(deadline)) {
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
        return (end_otherwise(&{ waitable }, &node, arm), None);
    }
    (node.outcome.get(), Some(arm))
}

/// Time or cancellation was faster.
#[cold]
#[inline(never)]
fn end_otherwise(waitable: &impl Waitable, node: &Node, arm: Arm) -> Outcome {
    take_back(waitable, node);
    if arm == ARM_CANCEL { Outcome::Cancelled } else { Outcome::TimedOut }
}

/// There was nothing to wait for. What `publish` did stands, even if an owner has completed the wait in the moment in which it was visible:
/// cancellation, which then comes at the next wait; another arm of a select, whose number is returned; or a waker that was called twice.
#[inline]
fn call_off<P: Parker>(parker: P, waker: Option<Waker>) -> Option<Arm> {
    let word = &parker.waiter().get().word;
    let arm = if word.abort_park() || seeded_bug("abort_unanswered") {
        None
    } else {
        parker.await_owner();
        Some(word.snapshot().arm())
    };
    if let Some(waker) = waker {
        call(waker);
    }
    arm
}

/// Something else has ended the wait.
#[inline(always)] // What has no node is compiled without one.
fn take_back<W: Waitable>(waitable: &W, node: &Node) {
    let mut owed = Vec::new();
    waitable.unpublish(node, &mut owed);
    if !owed.is_empty() {
        call_all(owed);
    }
}

/// A look without any order; see the header.
fn is_cancelled_before<P: Parker>(parker: P, kind: WaitKind, waitable: &impl Waitable) -> bool {
    let flags = &parker.waiter().get().flags;
    kind != WaitKind::Binding && flags.has(flag::ANY_CANCEL) && parker.is_due(kind, &|| waitable.is_settled())
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
