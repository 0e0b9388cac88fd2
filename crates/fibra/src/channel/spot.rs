//! Where in the queue of a channel a node is linked: first come, first served, with two exceptions.

use crate::waiter::node::{Node, WaitList};

/// Where in its queue a node is linked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spot {
    Back,
    /// It was called, came and found nothing.
    Front,
    /// One of several arms on this channel, perhaps: at the back, with the same chance as those; see [`WaitList::push_shuffled`].
    Shuffled(fn(usize) -> usize),
}

impl Spot {
    /// # Safety
    /// As [`WaitList::push_back`].
    #[inline(always)]
    pub(crate) unsafe fn link(self, list: &WaitList, node: &Node) {
        // SAFETY: passed on.
        unsafe {
            match self {
                Spot::Back => list.push_back(node),
                Spot::Front => list.push_front(node),
                Spot::Shuffled(choose) => list.push_shuffled(node, choose),
            }
        }
    }
}
