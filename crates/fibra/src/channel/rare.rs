//! The parts of a channel's state that few channels need, or need only for a moment.
//!
//! Above: `state`, which has them in a box of their own. Below: `timed`, the lists of waiters.

use std::collections::VecDeque;
use std::task::Waker;

use super::reason::CloseReason;
use super::state::Overflow;
use super::timed::Timed;
use crate::waiter::node::WaitList;

/// User code that is left to run when the lock is free: drops and wakers.
#[derive(Debug)]
pub(crate) struct Aftermath<T> {
    pub(super) wakers: Vec<Waker>,
    /// Values that an overflow policy dropped.
    pub(super) evicted: VecDeque<T>,
}

/// Why, and by which side, the channel was closed.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    /// The first reason.
    pub(super) first: Option<CloseReason>,
    /// Per side: why it is gone, if it is.
    pub(super) senders: Option<CloseReason>,
    pub(super) receivers: Option<CloseReason>,
}

/// The parts of the state that few channels need, or need only once they are closed: in a box of their own, since there may be a channel
/// for each of a million fibers.
#[derive(Debug)]
pub(crate) struct Rare<T> {
    pub(super) overflow: Overflow,
    pub(super) timed: Option<Timed<T>>,
    /// Waiters at the sending end for the end of the receivers; and the reverse.
    pub(super) receiver_watch: WaitList,
    pub(super) sender_watch: WaitList,
    pub(super) closing: Option<Closing>,
    /// What the next unlock has to see to.
    pub(super) aftermath: Option<Aftermath<T>>,
}

impl<T> Rare<T> {
    pub(super) fn new(overflow: Overflow, timed: Option<Timed<T>>) -> Box<Self> {
        Box::new(Self {
            overflow,
            timed,
            receiver_watch: WaitList::new(),
            sender_watch: WaitList::new(),
            closing: None,
            aftermath: None,
        })
    }

    /// Is there nothing in it that a channel without it would not have?
    pub(super) fn is_spare(&self) -> bool {
        self.overflow == Overflow::Block
            && self.timed.is_none()
            && self.closing.is_none()
            && self.aftermath.is_none()
            && self.receiver_watch.is_empty()
            && self.sender_watch.is_empty()
    }
}
