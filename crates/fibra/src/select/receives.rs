//! What `recv(..)` of `select!` takes: the receiving end of any channel, or a pointer that leads to one.
//!
//! Above: `private::recv`, which the macro calls. Below: the channels and their arms. Beside [`Receiver`] these are the receivers of the
//! special channels whose receive gives a value. A pointer is whatever dereferences to one of them, at any depth.

use std::ops::Deref;

use super::arm::{Arm, RecvArm};
use crate::channel::{BroadcastArm, OneshotArm, OrderedArm};
use crate::channel::{BroadcastReceiver, OneshotReceiver, OrderedReceiver, Receiver};

/// See the header.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no receiver: `recv(..)` of `select!` cannot receive from it",
    label = "expected a receiver of a channel, found `{Self}`",
    note = "`recv(rx)` takes a `Receiver`, `OrderedReceiver`, `BroadcastReceiver` or `OneshotReceiver`, or a \
            pointer to one; a `Pipe` has `into_receiver()`; other operations are arms by `on(..)`, like \
            `on(watch.changing())`"
)]
pub trait Receives<'a> {
    /// Receiving, as an arm.
    type Arm: Arm;
    /// Makes it.
    fn receive(&'a self) -> Self::Arm;
}

impl<'a, T: 'a> Receives<'a> for Receiver<T> {
    type Arm = RecvArm<'a, T>;
    #[inline(always)]
    fn receive(&'a self) -> RecvArm<'a, T> {
        RecvArm::new(self)
    }
}

impl<'a, T: 'a> Receives<'a> for OrderedReceiver<T> {
    type Arm = OrderedArm<'a, T>;
    fn receive(&'a self) -> OrderedArm<'a, T> {
        self.receiving()
    }
}

impl<'a, T: Clone + 'a> Receives<'a> for BroadcastReceiver<T> {
    type Arm = BroadcastArm<'a, T>;
    fn receive(&'a self) -> BroadcastArm<'a, T> {
        self.receiving()
    }
}

impl<'a, T: 'a> Receives<'a> for OneshotReceiver<T> {
    type Arm = OneshotArm<'a, T>;
    fn receive(&'a self) -> OneshotArm<'a, T> {
        self.receiving()
    }
}

impl<'a, P: Deref> Receives<'a> for P
where
    P::Target: Receives<'a> + 'a,
{
    type Arm = <P::Target as Receives<'a>>::Arm;
    #[inline(always)]
    fn receive(&'a self) -> Self::Arm {
        (**self).receive()
    }
}
