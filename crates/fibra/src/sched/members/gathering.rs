//! The completion queue behind `JoinSet`: the ended fibers of a set, in the order of their ends, for an owner that waits for the next one.
//!
//! A *member* is a node in the list of joiners of one fiber that stands for no wait; its slot is the address of the gathering instead. When
//! the fiber has ended, its worker moves the node from that list to this queue and completes the owner's wait. So a member costs a node,
//! and neither its end nor taking it allocates or searches.
//!
//! Invariants:
//! * A member's node is in its fiber's list, or in `ended`, or (taken) in neither. It moves under the fiber's join lock; the gathering's
//!   lock is taken inside that one.
//! * The owner takes a member back by asking the fiber first (`JoinHandle::leave`), and goes on when the fiber's worker is done with the
//!   list. After that no worker touches the gathering because of this member, so the gathering may be dropped when all members have been
//!   taken or have left.
//!
//! Above: `ending.rs`, which brings members, and `task::gather`, which owns them. Below: `waiter::node`.

use std::ptr;
use std::task::Waker;

use crate::fiber::frame::Frame;
use crate::prim::spin::SpinLock;
use crate::sched::enqueue::{QueueEnd, enqueue};
use crate::waiter::node::{Node, WaitList};
use crate::waiter::record::Claimed;

/// See the header.
#[derive(Debug)]
pub(crate) struct Gathering(SpinLock<GatheringState>);

#[derive(Debug)]
struct GatheringState {
    /// Members whose fibers have ended; the oldest first.
    ended: WaitList,
    /// The waits for a member to end. Usually at most one, since only the owner waits; but a future of it may have been forgotten.
    waiters: WaitList,
}

impl Gathering {
    pub(crate) fn new() -> Self {
        Self(SpinLock::new(GatheringState { ended: WaitList::new(), waiters: WaitList::new() }))
    }

    /// Makes a node a member of this gathering, to be linked into its fiber's list of joiners.
    pub(crate) fn admit(&self, node: &Node) {
        debug_assert!(node.target_if_any().is_none(), "a member's node stands for no wait");
        node.slot.set(ptr::from_ref(self).cast_mut().cast());
    }

    /// The fiber of this member has ended. True if the owner waited: it has been set going, and async wakers are in `wakers`, to be called
    /// when no lock is held.
    ///
    /// # Safety
    /// The node was admitted by a gathering that is still alive, and is linked nowhere. The fiber's join lock is held, or the caller owns
    /// the gathering.
    pub(crate) unsafe fn arrive(node: &Node, wakers: &mut Vec<Waker>) -> bool {
        // SAFETY: the address is what `admit` wrote, and the caller promises that the gathering is still alive.
        let gathering = unsafe { &*node.slot.get().cast::<Self>() };
        gathering.0.with(|state| {
            // SAFETY: under the lock of the list; the node is linked nowhere else, and the owner keeps it until it was taken or has left.
            unsafe { state.ended.push_back(node) };
            let mut waited = false;
            // All waits are completed: one of them is the owner's, and the owner takes the member.
            // SAFETY: under the lock of the list.
            while let Some((waiter, ticket, arm)) = unsafe { state.waiters.pop_front() } {
                if let Some(claimed) = Claimed::of(waiter, ticket, arm) {
                    waited = true;
                    wakers
                        .extend(claimed.make_runnable_with(|fiber| enqueue(Frame::from_waiter(fiber), QueueEnd::Next)));
                }
            }
            waited
        })
    }

    /// The member that has ended first, without taking it.
    pub(crate) fn first(&self) -> Option<*const Node> {
        // SAFETY: under the lock of the list.
        self.0.with(|state| unsafe { state.ended.front() }.map(ptr::from_ref))
    }

    /// Takes a member out of `ended`, if it is there.
    ///
    /// # Safety
    /// The node is alive, and not in the list of a fiber.
    pub(crate) unsafe fn take_out(&self, node: *const Node) {
        // SAFETY: alive; in this list if it is linked at all (the caller's promise), and under its lock.
        self.0.with(|state| unsafe { state.ended.remove(&*node) });
    }

    /// Links the node of a wait. False: a member has ended, do not wait.
    pub(crate) fn publish(&self, node: &Node) -> bool {
        self.0.with(|state| {
            if !state.ended.is_empty() {
                return false;
            }
            // SAFETY: under the lock of the list; the node stays where it is until it is unlinked.
            unsafe { state.waiters.push_back(node) };
            true
        })
    }

    pub(crate) fn unpublish(&self, node: &Node) {
        // SAFETY: under the lock of the list.
        self.0.with(|state| unsafe { state.waiters.remove(node) });
    }
}
