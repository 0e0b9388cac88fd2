//! For models: a select over receives and sends of numbers, as `select!` would make it. Above: the models of `channel`. Below: `arm.rs`,
//! `engine.rs`.

use std::cell::Cell;
use std::panic::Location;

use super::arm::sealed::Sealed;
use super::arm::{Arm, RecvArm, SendArm};
use super::case::Case;
use super::engine::{self, Patience};
use crate::channel::op::ChanOpKind;
use crate::channel::{Receiver, RecvError, Sender};
use crate::waiter::node::Outcome;

/// The arms, receives before sends.
#[derive(Default)]
pub(crate) struct Arms<'a> {
    recvs: Vec<RecvArm<'a, u32>>,
    sends: Vec<SendArm<'a, u32>>,
}

/// What the arm that won came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Won {
    Received(Result<u32, RecvError>),
    Sent(bool),
}

impl<'a> Arms<'a> {
    pub(crate) fn new() -> Self {
        Self::default()
    }
    pub(crate) fn recv(mut self, receiver: &'a Receiver<u32>) -> Self {
        self.recvs.push(RecvArm::new(receiver));
        self
    }
    pub(crate) fn send(mut self, sender: &'a Sender<u32>, value: u32) -> Self {
        self.sends.push(SendArm::new(sender, value));
        self
    }
}

/// Waits until a receive is worth a try, like `Select::ready`.
pub(crate) fn ready(receiver: &Receiver<u32>) {
    let (chan, told) = (receiver.chan(), Cell::new(Outcome::Pending));
    // SAFETY: this operation has no slot.
    let case = unsafe { Case::channel(chan, chan.hint_word(), ChanOpKind::ReadyRecv, std::ptr::null_mut(), &told) };
    engine::run(&mut [case], false, Patience::Endless, Location::caller()).expect("it is ready");
}

/// Completes one of them.
pub(crate) fn select(mut arms: Arms<'_>) -> Won {
    let mut cases: Vec<Case<'_>> =
        arms.recvs.iter_mut().map(Sealed::case).chain(arms.sends.iter_mut().map(Sealed::case)).collect();
    let index = engine::run(&mut cases, false, Patience::Endless, Location::caller()).expect("one of them");
    drop(cases);
    let recvs = arms.recvs.len();
    if index < recvs {
        Won::Received(arms.recvs[index].finish())
    } else {
        Won::Sent(arms.sends[index - recvs].finish().is_ok())
    }
}
