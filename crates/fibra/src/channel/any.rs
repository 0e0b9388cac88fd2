//! A channel without the type of its values, which travel by pointer between slots that know it: what a select has, whose channels carry
//! values of several types.
//!
//! Above: `waits`, whose operations are on any channel, and through them `select`. Below: `chan`. For one who names the channel's type this
//! is no more than other names of what `chan`, `hot` and `op` do.

use std::task::Waker;

use super::chan::{Chan, Locked};
use super::op::Op;
use super::spot::Spot;
use super::state::Try;
use crate::waiter::node::{Node, Outcome, WaiterRef};

/// See the header. All methods with `held` in their name are called by whoever holds the lock.
pub(crate) trait AnyChan {
    /// The lock order.
    fn order(&self) -> u64;
    /// When time feeds it: when the next value is due.
    fn due(&self) -> Option<u64>;
    fn lock_it(&self);

    /// One try, locked for it. The peer has been set going.
    ///
    /// # Safety
    /// `slot` is what the operation needs: room for a value, or a value, of the channel's type.
    unsafe fn try_now(&self, op: Op, slot: *mut ()) -> Outcome;

    /// The last try of one who does not wait: those of the other side who wait, and could not be met, learn of it.
    ///
    /// # Safety
    /// As [`try_now`](Self::try_now).
    unsafe fn try_last(&self, op: Op, slot: *mut ()) -> Outcome;

    /// One try under the lock that `lock_it` took.
    ///
    /// # Safety
    /// As [`try_now`](Self::try_now), and the lock is held.
    unsafe fn try_held(&self, op: Op, slot: *mut (), me: WaiterRef) -> Try;

    /// Links a prepared node to send or to receive, and unlocks, if that is as simple as can be; see `hot`. False: it is not, and nothing
    /// was done.
    ///
    /// # Safety
    /// As [`link_held`](Self::link_held).
    unsafe fn link_plainly(&self, sends: bool, node: &Node) -> bool;

    /// Links a prepared node for the operation.
    ///
    /// # Safety
    /// The lock is held; the node is linked nowhere and stays where it is until it is unlinked.
    unsafe fn link_held(&self, op: Op, node: &Node, spot: Spot);

    /// Takes a node out again that was linked under this very lock.
    ///
    /// # Safety
    /// The lock is held.
    unsafe fn unlink_held(&self, op: Op, node: &Node);

    /// Ends `lock_it`, where no user code may run: returns the wakers to be called when none of the locks is held any more.
    ///
    /// # Safety
    /// The lock is held, and not used afterwards.
    unsafe fn unlock_held(&self) -> Vec<Waker>;

    /// Takes a node out of its list, if it is there.
    fn unlink(&self, op: Op, node: &Node);

    /// Puts a received value back to where it came from, as the next one.
    ///
    /// # Safety
    /// `slot` holds a value of the channel's type, which is the channel's afterwards.
    unsafe fn put_back(&self, slot: *mut ());

    /// Gives a reserved place back.
    fn give_back(&self);
}

impl<T> AnyChan for Chan<T> {
    fn order(&self) -> u64 {
        self.id()
    }

    fn due(&self) -> Option<u64> {
        if self.is_timed() { self.timed_deadline() } else { None }
    }

    #[inline(always)]
    fn lock_it(&self) {
        self.lock_raw();
    }

    #[inline]
    unsafe fn try_now(&self, op: Op, slot: *mut ()) -> Outcome {
        match op {
            // SAFETY: passed on.
            Op::Recv => return unsafe { self.try_take(slot.cast()) },
            // SAFETY: passed on.
            Op::Send => return unsafe { self.try_offer(slot.cast()) },
            _ => {}
        }
        let mut locked = self.lock();
        // SAFETY: passed on.
        let (outcome, peer) = unsafe { locked.state().attempt(op, slot, None) };
        locked.unlock_and_go(peer);
        outcome
    }

    unsafe fn try_last(&self, op: Op, slot: *mut ()) -> Outcome {
        let mut locked = self.lock();
        // SAFETY: passed on.
        let (outcome, peer) = unsafe { locked.state().last_attempt(op, slot) };
        locked.unlock_and_go(peer);
        outcome
    }

    #[inline]
    unsafe fn try_held(&self, op: Op, slot: *mut (), me: WaiterRef) -> Try {
        // SAFETY: the lock is held by the caller; the guard is forgotten, so it stays so.
        let mut locked = std::mem::ManuallyDrop::new(unsafe { self.held() });
        // SAFETY: passed on.
        unsafe { locked.state().attempt(op, slot, Some(me)) }
    }

    #[inline(always)]
    unsafe fn link_plainly(&self, sends: bool, node: &Node) -> bool {
        // SAFETY: passed on.
        unsafe { Chan::link_plainly(self, sends, || node) }
    }

    #[inline]
    unsafe fn link_held(&self, op: Op, node: &Node, spot: Spot) {
        // SAFETY: as in `try_held`.
        let mut locked = std::mem::ManuallyDrop::new(unsafe { self.held() });
        // SAFETY: passed on.
        unsafe { locked.state().link(op, node, spot) };
    }

    unsafe fn unlink_held(&self, op: Op, node: &Node) {
        // SAFETY: as in `try_held`.
        let mut locked = std::mem::ManuallyDrop::new(unsafe { self.held() });
        // SAFETY: linked in this list, if at all.
        unsafe { op.list()(locked.state()).remove(node) };
    }

    #[inline]
    unsafe fn unlock_held(&self) -> Vec<Waker> {
        // SAFETY: the lock is held by the caller, who gives it up.
        let locked: Locked<'_, T> = unsafe { self.held() };
        locked.unlock_owing()
    }

    fn unlink(&self, op: Op, node: &Node) {
        Chan::unlink(self, op.list(), node, false);
    }

    unsafe fn put_back(&self, slot: *mut ()) {
        let mut locked = self.lock();
        // SAFETY: the contract.
        locked.state().put_back(unsafe { slot.cast::<T>().read() });
        locked.unlock();
    }

    fn give_back(&self) {
        let mut locked = self.lock();
        locked.state().unreserve();
        locked.state().settle();
        locked.unlock();
    }
}
