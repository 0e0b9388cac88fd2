//! Completing a wait that needs no slot to be filled: claim, release, set going. For every kind of waiter.

use std::task::Waker;

use super::enqueue::{Place, enqueue};
use crate::fiber::frame::Frame;
use crate::wait::node::{Kind, WaiterRef};
use crate::wait::waker;
use crate::wait::word::{Arm, Claim, Release, Ticket};

/// Completes the wait named by (waiter, ticket) with `arm`, if nobody else has. May be called under a lock of the object: no user code
/// runs here. An async waiter's waker is returned instead, to be called when no lock is held.
#[must_use]
#[inline]
pub(crate) fn complete(waiter: WaiterRef, ticket: Ticket, arm: Arm, place: Place) -> Option<Waker> {
    let is_fiber = waiter.get().kind() == Kind::Fiber;
    let word = &waiter.get().word;
    match word.claim(ticket, arm, is_fiber) {
        Claim::Lost => None,
        Claim::Direct => {
            enqueue(Frame::from_waiter(waiter), place);
            None
        }
        Claim::Held => match word.release() {
            Release::Deferred => None,
            Release::Enqueue if is_fiber => {
                enqueue(Frame::from_waiter(waiter), place);
                None
            }
            Release::Enqueue => waker::unpark(waiter),
        },
    }
}
