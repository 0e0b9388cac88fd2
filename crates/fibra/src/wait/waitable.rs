//! What can be waited on, and how a wait is described and ends: the words `park` and everything above it share.

use std::panic::Location;

use super::node::WaiterRef;
use super::reason::WaitReason;
use super::word::{Arm, Notice, Ticket, WaitKind};

/// Something one can wait on; holds its own nodes, on the stack of whoever waits.
pub(crate) trait Waitable {
    /// Is the wait one without a node, which a notice to the waiter ends? See `wait::notify`.
    #[inline(always)]
    fn ended_by(&self) -> Option<Notice> {
        None
    }
    /// Makes the wait visible to completion owners. False: it is complete (or refused) already, do not wait; then nothing stays published.
    fn publish(&self, waiter: WaiterRef, ticket: Ticket) -> bool;
    /// Takes it back after somebody else completed the wait. Does nothing if the owner has unlinked it already.
    fn unpublish(&self);
    /// Has what is waited for happened, for good? Asked by one who is about to be cancelled because a child has panicked: he may be about
    /// to join that child.
    fn is_settled(&self) -> bool {
        false
    }
}

/// How a wait goes about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) reason: WaitReason,
    /// Names the object in reports.
    pub(crate) object: u64,
    pub(crate) site: &'static Location<'static>,
    /// On fibra's clock.
    pub(crate) deadline: Option<u64>,
}

impl Wait {
    /// What may end it, as far as its reason goes.
    #[inline(always)]
    pub(crate) fn kind(&self) -> WaitKind {
        if self.reason.is_binding() { WaitKind::Binding } else { WaitKind::Revocable }
    }
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Ended {
    /// `publish` said that there is nothing to wait for.
    NotParked,
    /// It said so, but the wait had been visible for a moment and an owner completed it as this arm (cancellation, for one, which
    /// then comes at the next wait). What `publish` did stands; whether the arm counts too is for the caller to say.
    Overtaken(Arm),
    /// An owner completed it as this arm.
    Completed(Arm),
    /// The deadline came first.
    TimedOut,
    /// Cancellation came first. Only returned by [`wait_or_cancelled`]; [`wait`] unwinds instead.
    Cancelled,
}
