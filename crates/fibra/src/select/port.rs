//! A channel as a select sees it: without the type of its values, which travel by pointer between slots that know it.

use std::task::Waker;

use crate::channel::chan::{Chan, Locked};
use crate::channel::reason::Side;
use crate::channel::spot::Spot;
use crate::channel::state::{State, Try, hint};
use crate::channel::waits::watch_list;
use crate::prim::atomic::{AtomicU8, Ordering};
use crate::wait::node::{Node, Outcome, Role, WaitList, WaiterRef};

/// What an arm wants of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// Receive into the slot.
    Recv,
    /// Send from the slot.
    Send,
    /// Reserve a place, to send later.
    Reserve,
    /// Know that receiving is worth a try.
    ReadyRecv,
    /// Know that sending is worth a try.
    ReadySend,
    /// Know that this side is gone.
    Gone(Side),
}

/// See the header. All methods with `held` in their name are called by whoever holds the lock.
pub(crate) trait Port {
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

impl Op {
    /// The node's role.
    pub(super) fn role(self) -> Role {
        match self {
            Op::Recv => Role::Fill,
            Op::Send => Role::Take,
            Op::Reserve => Role::Grant,
            Op::ReadyRecv | Op::ReadySend | Op::Gone(_) => Role::Observe,
        }
    }

    /// The operation that only asks whether this one is worth a try.
    pub(super) fn asked(self) -> Op {
        match self {
            Op::Recv => Op::ReadyRecv,
            Op::Send | Op::Reserve => Op::ReadySend,
            other => other,
        }
    }

    /// Is a try worth the lock?
    #[inline(always)]
    pub(super) fn may_be_ready(self, hints: &AtomicU8) -> bool {
        // Relaxed: see `Chan::hints`.
        hints.load(Ordering::Relaxed) & self.hint() != 0
    }

    #[inline(always)]
    fn hint(self) -> u8 {
        match self {
            Op::Recv | Op::ReadyRecv => hint::RECV,
            Op::Send | Op::Reserve | Op::ReadySend => hint::SEND,
            Op::Gone(Side::Senders) => hint::SENDERS_GONE,
            Op::Gone(Side::Receivers) => hint::RECEIVERS_GONE,
        }
    }

    fn list<T>(self) -> fn(&State<T>) -> &WaitList {
        match self {
            Op::Recv | Op::ReadyRecv => |state| &state.receivers,
            Op::Send | Op::Reserve | Op::ReadySend => |state| &state.senders,
            Op::Gone(side) => watch_list(side).0,
        }
    }
}

/// # Safety
/// As [`Port::try_now`].
#[inline]
unsafe fn attempt<T>(state: &mut State<T>, op: Op, slot: *mut (), me: Option<WaiterRef>) -> Try {
    let ready = |is_ready, outcome| (if is_ready { outcome } else { Outcome::Pending }, None);
    match op {
        // SAFETY: the contract: room for a `T`.
        Op::Recv => unsafe { state.take(slot.cast(), me) },
        Op::Send => loop {
            // SAFETY: the contract: a `T`, which is forgotten by its owner if DONE.
            match unsafe { state.offer(slot.cast(), me) } {
                (Outcome::Retry, _) => state.make_room(),
                tried => return tried,
            }
        },
        Op::Reserve => (state.reserve(me), None),
        Op::ReadyRecv => ready(state.is_ready_to_take(me), Outcome::Retry),
        Op::ReadySend => ready(state.is_ready_to_offer(me), Outcome::Retry),
        Op::Gone(_) => ready(state.has(op.hint()), Outcome::Done),
    }
}

/// The same for one who does not wait.
///
/// # Safety
/// As [`Port::try_now`].
unsafe fn last_attempt<T>(state: &mut State<T>, op: Op, slot: *mut ()) -> Try {
    // SAFETY: passed on.
    let tried = unsafe { attempt(state, op, slot, None) };
    if tried.0 != Outcome::Pending {
        return tried;
    }
    match op {
        Op::Recv | Op::ReadyRecv => state.invite(),
        // SAFETY: the contract: a `T`, which is forgotten by its owner if DONE.
        Op::Send => return unsafe { state.offer_or_leave(slot.cast()) },
        Op::Reserve | Op::ReadySend | Op::Gone(_) => {}
    }
    tried
}

impl<T> Port for Chan<T> {
    fn order(&self) -> u64 {
        self.id()
    }

    fn due(&self) -> Option<u64> {
        if self.is_timed() { self.timed_deadline() } else { None }
    }

    fn lock_it(&self) {
        self.lock_raw();
    }

    #[inline]
    unsafe fn try_now(&self, op: Op, slot: *mut ()) -> Outcome {
        // SAFETY: passed on, both.
        match op {
            Op::Recv => return unsafe { self.try_take(slot.cast()) },
            Op::Send => return unsafe { self.try_offer(slot.cast()) },
            _ => {}
        }
        let mut locked = self.lock();
        // SAFETY: passed on.
        let (outcome, peer) = unsafe { attempt(locked.state(), op, slot, None) };
        locked.unlock_and_go(peer);
        outcome
    }

    unsafe fn try_last(&self, op: Op, slot: *mut ()) -> Outcome {
        let mut locked = self.lock();
        // SAFETY: passed on.
        let (outcome, peer) = unsafe { last_attempt(locked.state(), op, slot) };
        locked.unlock_and_go(peer);
        outcome
    }

    unsafe fn try_held(&self, op: Op, slot: *mut (), me: WaiterRef) -> Try {
        // SAFETY: the lock is held by the caller; the guard is forgotten, so it stays so.
        let mut locked = std::mem::ManuallyDrop::new(unsafe { self.held() });
        // SAFETY: passed on.
        unsafe { attempt(locked.state(), op, slot, Some(me)) }
    }

    unsafe fn link_held(&self, op: Op, node: &Node, spot: Spot) {
        // SAFETY: as in `try_held`.
        let mut locked = std::mem::ManuallyDrop::new(unsafe { self.held() });
        // SAFETY: passed on.
        unsafe {
            match op {
                Op::Recv | Op::ReadyRecv => locked.state().link_receiver(node, spot),
                Op::Send | Op::Reserve | Op::ReadySend => locked.state().link_sender(node, spot),
                Op::Gone(_) => spot.link(op.list()(locked.state()), node),
            }
        }
    }

    unsafe fn unlink_held(&self, op: Op, node: &Node) {
        // SAFETY: as in `try_held`.
        let mut locked = std::mem::ManuallyDrop::new(unsafe { self.held() });
        // SAFETY: linked in this list, if at all.
        unsafe { op.list()(locked.state()).remove(node) };
    }

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
