//! Those of several fibers that have ended, in the order in which they did, for one who waits for the next: what sets of handles stand on.
//!
//! A *member* is a node in the list of joiners of one fiber that stands for no wait; its slot is the address of the gathering instead. When
//! the fiber has ended, its worker moves the node from there to here and completes whoever waits. So a member costs a node, and neither its
//! end nor taking it allocates or searches.
//!
//! Invariants:
//! * A member's node is in its fiber's list, or in `ended`, or (taken) in none. It moves under the fiber's join lock; the lock in here is
//!   taken inside that one.
//! * Whoever wants a member back asks the fiber first (`JoinHandle::leave`), and goes on when its worker is through with the list. After
//!   that nobody comes to the gathering because of this member, so it may go when all members have been taken or have left.
//!
//! Above: `ending.rs`, which brings members, and `task::gather`, which owns them. Below: `waiter::node`.

use std::ptr;
use std::task::Waker;

use crate::fiber::frame::Frame;
use crate::prim::spin::SpinLock;
use crate::sched::enqueue::{Place, enqueue};
use crate::waiter::node::{Node, WaitList};
use crate::waiter::record::Claimed;

/// See the header.
#[derive(Debug)]
pub(crate) struct Gathering(SpinLock<State>);

#[derive(Debug)]
struct State {
    /// Members whose fibers have ended; the oldest first.
    ended: WaitList,
    /// Who waits for one. Usually one at most: the owner, who is alone with it; but a future may have been forgotten.
    waiters: WaitList,
}

impl Gathering {
    pub(crate) fn new() -> Self {
        Self(SpinLock::new(State { ended: WaitList::new(), waiters: WaitList::new() }))
    }

    /// Makes a node a member of this gathering, to be linked into its fiber's list of joiners.
    pub(crate) fn admit(&self, node: &Node) {
        debug_assert!(node.target_if_any().is_none(), "a member's node stands for no wait");
        node.slot.set(ptr::from_ref(self).cast_mut().cast());
    }

    /// The fiber of this member has ended. True if somebody waited: it has been set going, and async wakers are in `wakers`, to be called
    /// when no lock is held.
    ///
    /// # Safety
    /// The node was admitted by a gathering that is still there, and is linked nowhere. The fiber's join lock is held, or the caller owns
    /// the gathering.
    pub(crate) unsafe fn arrive(node: &Node, wakers: &mut Vec<Waker>) -> bool {
        // SAFETY: the address that `admit` put there; it is still there, the caller says.
        let gathering = unsafe { &*node.slot.get().cast::<Self>() };
        gathering.0.with(|state| {
            // SAFETY: under the lock of the list; linked nowhere else, and the owner keeps it until it was taken or has left.
            unsafe { state.ended.push_back(node) };
            let mut waited = false;
            // All of them: one is the owner, who takes it.
            // SAFETY: under the lock of the list.
            while let Some((waiter, ticket, arm)) = unsafe { state.waiters.pop_front() } {
                if let Some(claimed) = Claimed::of(waiter, ticket, arm) {
                    waited = true;
                    wakers.extend(claimed.go_with(|fiber| enqueue(Frame::from_waiter(fiber), Place::Next)));
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

    /// Takes a member out of those that have ended, if it is one of them.
    ///
    /// # Safety
    /// The node is alive, and not in the list of a fiber.
    pub(crate) unsafe fn take_out(&self, node: *const Node) {
        // SAFETY: alive; in this list if it is linked at all (the caller's promise), and under its lock.
        self.0.with(|state| unsafe { state.ended.remove(&*node) });
    }

    /// Links the node of one who waits. False: somebody has ended.
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
