//! Completes a wait that needs no slot to be filled, whether a fiber, a thread or a future waits.
//!
//! Above: the objects that fibers wait for. Below: `enqueue.rs` for fibers, and `waiter::record`, which decides the claim.

use std::task::Waker;

use super::enqueue::{QueueEnd, enqueue};
use crate::fiber::frame::Frame;
use crate::waiter::node::WaiterRef;
use crate::waiter::record;
use crate::waiter::word::{CompletedBy, Ticket};

/// Completes the wait named by (waiter, ticket) with `arm`, unless another thread has completed it. May be called under a lock of the
/// object: no user code runs here. An async waiter's waker is returned instead, to be called when no lock is held.
#[must_use]
#[inline]
pub(crate) fn complete_wait(waiter: WaiterRef, ticket: Ticket, arm: CompletedBy, place: QueueEnd) -> Option<Waker> {
    record::complete_with(waiter, ticket, arm, |fiber| enqueue(Frame::from_waiter(fiber), place))
}
