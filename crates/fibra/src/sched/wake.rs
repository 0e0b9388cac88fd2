//! Completing a wait that needs no slot to be filled, whatever waits.

use std::task::Waker;

use super::enqueue::{Place, enqueue};
use crate::fiber::frame::Frame;
use crate::waiter::node::WaiterRef;
use crate::waiter::record;
use crate::waiter::word::{Arm, Ticket};

/// Completes the wait named by (waiter, ticket) with `arm`, if nobody else has. May be called under a lock of the object: no user code
/// runs here. An async waiter's waker is returned instead, to be called when no lock is held.
#[must_use]
#[inline]
pub(crate) fn complete(waiter: WaiterRef, ticket: Ticket, arm: Arm, place: Place) -> Option<Waker> {
    record::complete_with(waiter, ticket, arm, |fiber| enqueue(Frame::from_waiter(fiber), place))
}
