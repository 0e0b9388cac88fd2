//! The operations of a channel, defined once for blocking calls, futures, and arms of a select.
//!
//! Above: `waits`, which brings the waits. Beside: `state`, which does the work. Each operation has three steps,
//! all under the lock: it is tried ([`ChanState::attempt`]); if the try failed, a node is linked for it ([`ChanState::link`]); and the node
//! is taken out of its list again when the wait is over ([`ChanOpKind::list`]).

use super::reason::Side;
use super::spot::Spot;
use super::state::{ChanState, Try, hint};
use crate::prim::atomic::{AtomicU8, Ordering};
use crate::waiter::node::{Node, Outcome, Role, WaitList, WaiterRef};

/// See the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChanOpKind {
    /// Receive into the slot.
    Recv,
    /// Send from the slot.
    Send,
    /// Reserve a place, to send later.
    Reserve,
    /// The same for a sender that was invited; see [`ChanState::reserve_invited`].
    ReserveInvited,
    /// Find out that a receive is worth a try.
    ReadyRecv,
    /// Find out that a send is worth a try.
    ReadySend,
    /// Find out that this side is gone.
    Gone(Side),
}

impl ChanOpKind {
    /// The node's role.
    pub(crate) fn role(self) -> Role {
        match self {
            ChanOpKind::Recv => Role::Fill,
            ChanOpKind::Send => Role::Take,
            ChanOpKind::Reserve | ChanOpKind::ReserveInvited => Role::Grant,
            ChanOpKind::ReadyRecv | ChanOpKind::ReadySend | ChanOpKind::Gone(_) => Role::Observe,
        }
    }

    /// The operation that only finds out whether this one is worth a try.
    pub(crate) fn asked(self) -> ChanOpKind {
        match self {
            ChanOpKind::Recv => ChanOpKind::ReadyRecv,
            ChanOpKind::Send | ChanOpKind::Reserve | ChanOpKind::ReserveInvited => ChanOpKind::ReadySend,
            other => other,
        }
    }

    /// Is a try worth the lock?
    #[inline(always)]
    pub(crate) fn may_be_ready(self, hints: &AtomicU8) -> bool {
        // Relaxed: see `Chan::hints`.
        hints.load(Ordering::Relaxed) & self.hint() != 0
    }

    /// The hint that a try is worth the lock.
    #[inline(always)]
    pub(crate) fn hint(self) -> u8 {
        match self {
            ChanOpKind::Recv | ChanOpKind::ReadyRecv => hint::RECV,
            ChanOpKind::Send | ChanOpKind::Reserve | ChanOpKind::ReserveInvited | ChanOpKind::ReadySend => hint::SEND,
            ChanOpKind::Gone(Side::Senders) => hint::SENDERS_GONE,
            ChanOpKind::Gone(Side::Receivers) => hint::RECEIVERS_GONE,
        }
    }

    /// Where its nodes are linked.
    pub(crate) fn list<T>(self) -> fn(&ChanState<T>) -> &WaitList {
        match self {
            ChanOpKind::Recv | ChanOpKind::ReadyRecv => |state| &state.receivers,
            ChanOpKind::Send | ChanOpKind::Reserve | ChanOpKind::ReserveInvited | ChanOpKind::ReadySend => {
                |state| &state.senders
            }
            ChanOpKind::Gone(Side::Senders) => |state| &state.receiver_watch,
            ChanOpKind::Gone(Side::Receivers) => |state| &state.sender_watch,
        }
    }
}

impl<T> ChanState<T> {
    /// Tries the operation, as `me`. `Retry` is the answer to an operation that only finds out: the real one may succeed.
    ///
    /// # Safety
    /// `slot` is what the operation needs: room for a `T`, or a `T`, which is the channel's if DONE; anything for those that need none.
    #[inline]
    pub(crate) unsafe fn attempt(&mut self, op: ChanOpKind, slot: *mut (), me: Option<WaiterRef>) -> Try {
        let ready = |is_ready, outcome| (if is_ready { outcome } else { Outcome::Pending }, None);
        match op {
            // SAFETY: the contract: room for a `T`.
            ChanOpKind::Recv => unsafe { self.take(slot.cast(), me) },
            ChanOpKind::Send => loop {
                // SAFETY: the contract: a `T`, which is forgotten by its owner if DONE.
                match unsafe { self.offer(slot.cast(), me) } {
                    (Outcome::Retry, _) => self.make_room(),
                    tried => return tried,
                }
            },
            ChanOpKind::Reserve => (self.reserve(me), None),
            ChanOpKind::ReserveInvited => (self.reserve_invited(me), None),
            ChanOpKind::ReadyRecv => ready(self.is_ready_to_take(me), Outcome::Retry),
            ChanOpKind::ReadySend => ready(self.is_ready_to_offer(me), Outcome::Retry),
            ChanOpKind::Gone(_) => ready(self.has(op.hint()), Outcome::Done),
        }
    }

    /// The last try of a caller that does not wait: waiters of the other side that it could not serve learn of it.
    ///
    /// # Safety
    /// As [`attempt`](Self::attempt).
    pub(crate) unsafe fn last_attempt(&mut self, op: ChanOpKind, slot: *mut ()) -> Try {
        // SAFETY: passed on.
        let tried = unsafe { self.attempt(op, slot, None) };
        if tried.0 != Outcome::Pending {
            return tried;
        }
        match op {
            ChanOpKind::Recv | ChanOpKind::ReadyRecv => self.invite(),
            // SAFETY: the contract: a `T`, which is forgotten by its owner if DONE.
            ChanOpKind::Send => return unsafe { self.offer_or_leave(slot.cast()) },
            ChanOpKind::Reserve | ChanOpKind::ReserveInvited | ChanOpKind::ReadySend | ChanOpKind::Gone(_) => {}
        }
        tried
    }

    /// Links a prepared node for an operation whose try failed.
    ///
    /// # Safety
    /// The node is linked nowhere and stays where it is until it is unlinked.
    pub(crate) unsafe fn link(&mut self, op: ChanOpKind, node: &Node, spot: Spot) {
        // SAFETY: passed on; the lock is held.
        unsafe {
            match op {
                ChanOpKind::Recv | ChanOpKind::ReadyRecv => self.link_receiver(node, spot),
                ChanOpKind::Send | ChanOpKind::Reserve | ChanOpKind::ReserveInvited | ChanOpKind::ReadySend => {
                    self.link_sender(node, spot)
                }
                ChanOpKind::Gone(_) => spot.link(op.list()(self), node),
            }
        }
    }
}
