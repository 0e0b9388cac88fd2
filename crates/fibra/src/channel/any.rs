//! A channel without the type of its values, which travel by pointer between slots that know the type: for a select, whose channels carry
//! values of several types.
//!
//! Above: `waits`, whose operations are on any channel, and through them `select`. Below: `chan`. For a caller that knows the channel's
//! type, these methods are only other names for functions of `chan`, `hot` and `op`.

use std::task::Waker;

use super::chan::{Chan, Locked};
use super::op::ChanOpKind;
use super::spot::Spot;
use super::state::Try;
use crate::waiter::node::{Node, Outcome, WaiterRef};

/// See the header. Only the holder of the lock calls the methods with `held` in their name.
pub(crate) trait AnyChan {
    /// The lock order.
    fn order(&self) -> u64;
    /// For a timed channel: when the next value is due.
    fn due(&self) -> Option<u64>;
    fn lock_it(&self);

    /// Locks the channel for one try. A peer whose wait this completed has been set going.
    ///
    /// # Safety
    /// `slot` is what the operation needs: room for a value, or a value, of the channel's type.
    unsafe fn try_now(&self, op: ChanOpKind, slot: *mut ()) -> Outcome;

    /// The last try of a caller that does not wait: waiters of the other side that it could not serve learn of it.
    ///
    /// # Safety
    /// As [`try_now`](Self::try_now).
    unsafe fn try_last(&self, op: ChanOpKind, slot: *mut ()) -> Outcome;

    /// One try under the lock that `lock_it` took.
    ///
    /// # Safety
    /// As [`try_now`](Self::try_now), and the lock is held.
    unsafe fn try_held(&self, op: ChanOpKind, slot: *mut (), me: WaiterRef) -> Try;

    /// Links a prepared node to send or to receive, and unlocks, in the simple cases that `hot` handles. False: it is not such a case, and
    /// nothing was done.
    ///
    /// # Safety
    /// As [`link_held`](Self::link_held).
    unsafe fn link_plainly(&self, sends: bool, node: &Node) -> bool;

    /// Links a prepared node for the operation.
    ///
    /// # Safety
    /// The lock is held; the node is linked nowhere and stays where it is until it is unlinked.
    unsafe fn link_held(&self, op: ChanOpKind, node: &Node, spot: Spot);

    /// Takes a node out again that was linked under this very lock.
    ///
    /// # Safety
    /// The lock is held.
    unsafe fn unlink_held(&self, op: ChanOpKind, node: &Node);

    /// Ends `lock_it`, where no user code may run: returns the wakers to be called when none of the locks is held any more.
    ///
    /// # Safety
    /// The lock is held, and not used afterwards.
    unsafe fn unlock_held(&self) -> Vec<Waker>;

    /// Takes a node out of its list, if it is there.
    fn unlink(&self, op: ChanOpKind, node: &Node);

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
    unsafe fn try_now(&self, op: ChanOpKind, slot: *mut ()) -> Outcome {
        match op {
            // SAFETY: passed on.
            ChanOpKind::Recv => return unsafe { self.try_take(slot.cast()) },
            // SAFETY: passed on.
            ChanOpKind::Send => return unsafe { self.try_offer(slot.cast()) },
            _ => {}
        }
        let mut locked = self.lock();
        // SAFETY: passed on.
        let (outcome, peer) = unsafe { locked.state().attempt(op, slot, None) };
        locked.unlock_and_go(peer);
        outcome
    }

    unsafe fn try_last(&self, op: ChanOpKind, slot: *mut ()) -> Outcome {
        let mut locked = self.lock();
        // SAFETY: passed on.
        let (outcome, peer) = unsafe { locked.state().last_attempt(op, slot) };
        locked.unlock_and_go(peer);
        outcome
    }

    #[inline]
    unsafe fn try_held(&self, op: ChanOpKind, slot: *mut (), me: WaiterRef) -> Try {
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
    unsafe fn link_held(&self, op: ChanOpKind, node: &Node, spot: Spot) {
        // SAFETY: as in `try_held`.
        let mut locked = std::mem::ManuallyDrop::new(unsafe { self.held() });
        // SAFETY: passed on.
        unsafe { locked.state().link(op, node, spot) };
    }

    unsafe fn unlink_held(&self, op: ChanOpKind, node: &Node) {
        // SAFETY: as in `try_held`.
        let mut locked = std::mem::ManuallyDrop::new(unsafe { self.held() });
        // SAFETY: linked in this list, if at all.
        unsafe { op.list()(locked.state()).remove(node) };
    }

    #[inline]
    unsafe fn unlock_held(&self) -> Vec<Waker> {
        // SAFETY: the lock is held by the caller, which gives it up.
        let locked: Locked<'_, T> = unsafe { self.held() };
        locked.unlock_owing()
    }

    fn unlink(&self, op: ChanOpKind, node: &Node) {
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
