//! The operations of a channel as things to wait on ([`ChanOp`]), and the blocking calls: sending, receiving, reserving, watching the other
//! side. `op` defines the operations; this file waits for them.
//!
//! A wait looks again under the lock when it publishes itself, so a blocking operation may call this file without a try before. What
//! `publish` did stands, even if cancellation claimed the wait meanwhile: the cancellation is then delivered at the next wait.
//!
//! Above: `hot`, the handles, `future`, and `select`. Below: `any`, `op`, and the waist (`wait`).

use std::mem::{self, ManuallyDrop, MaybeUninit};
use std::panic::Location;
use std::ptr;
use std::task::Waker;

use super::any::AnyChan;
use super::chan::Chan;
use super::op::ChanOpKind;
use super::reason::Side;
use super::spot::Spot;
use super::state::{Peer, Try, hint};
use crate::wait::park::{Wait, Waitable, wait};
use crate::wait::reason::WaitReason;
use crate::wait::waitable::Published;
use crate::wait::wake;
use crate::waiter::node::{Node, Outcome, Role, WaiterRef};

/// Which operation is waited for, and how: a type of its own for each blocking call, so that each has its own short code; a value for a
/// select, and for a future.
pub(crate) trait Asks: Copy {
    /// A fiber or thread that waits for this alone: then the simplest way to link its node is tried first.
    const ALONE: bool = false;
    fn op(self) -> ChanOpKind;
    fn role(self) -> Role {
        self.op().role()
    }
    fn spot(self) -> Spot {
        Spot::Back
    }
}

impl Asks for ChanOpKind {
    fn op(self) -> ChanOpKind {
        self
    }
}

/// The operation of a future, which is notified and does the operation when it is polled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Called(pub(super) ChanOpKind, pub(super) Spot);

impl Asks for Called {
    fn op(self) -> ChanOpKind {
        self.0
    }
    fn role(self) -> Role {
        Role::Call
    }
    fn spot(self) -> Spot {
        self.1
    }
}

macro_rules! asks {
    ($($name:ident: $op:expr;)+) => {$(
        #[derive(Clone, Copy)]
        struct $name;
        impl Asks for $name {
            const ALONE: bool = true;
            #[inline(always)]
            fn op(self) -> ChanOpKind {
                $op
            }
        }
    )+};
}
asks! {
    Receives: ChanOpKind::Recv;
    Sends: ChanOpKind::Send;
    // The same, for callers other than `hot`: so that the wait of `hot` is the only one of its type, and is inlined there.
    ReceivesPatiently: ChanOpKind::Recv;
    SendsInTime: ChanOpKind::Send;
    Reserves: ChanOpKind::Reserve;
    WatchesSenders: ChanOpKind::Gone(Side::Senders);
    WatchesReceivers: ChanOpKind::Gone(Side::Receivers);
}

/// One operation on a channel, as something to wait on.
///
/// A select takes it apart: it locks all its channels, in the order of their ids, looks again, links all its nodes and unlocks, so that
/// of two selects that meet one finds the other parked. For that there are the methods with `held` in their name, which the holder of the
/// channel's lock calls; [`publish`](Waitable::publish) is the same for one channel.
///
/// A few words, which a blocking call passes on by value.
pub(crate) struct ChanOp<'a, C: ?Sized, A> {
    chan: &'a C,
    asks: A,
    /// What the operation needs; see [`ChanState::attempt`](super::state::ChanState::attempt).
    slot: *mut (),
}

impl<C: ?Sized, A: Copy> Clone for ChanOp<'_, C, A> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<C: ?Sized, A: Copy> Copy for ChanOp<'_, C, A> {}

impl<'a, C: AnyChan + ?Sized, A: Asks> ChanOp<'a, C, A> {
    /// # Safety
    /// For as long as it lives, `slot` is what the operation needs: room for a value, or a value, of the channel's type. If it ends as
    /// `Done`, its owner acts on it: a value was written, or moved away.
    #[inline(always)]
    pub(crate) unsafe fn new(chan: &'a C, asks: A, slot: *mut ()) -> Self {
        Self { chan, asks, slot }
    }

    pub(crate) fn chan(&self) -> &'a C {
        self.chan
    }

    pub(crate) fn op(&self) -> ChanOpKind {
        self.asks.op()
    }

    /// The last try of a caller that does not wait; see [`AnyChan::try_last`].
    pub(crate) fn try_last(&self) -> Outcome {
        // SAFETY: the contract of `new`.
        unsafe { self.chan.try_last(self.op(), self.slot) }
    }

    /// Writes into a node what it is linked for.
    #[inline(always)]
    fn prepare(&self, node: &Node) {
        node.role.set(self.asks.role());
        node.slot.set(self.slot);
    }

    /// One try, as `me`.
    ///
    /// # Safety
    /// The lock is held.
    #[inline(always)]
    pub(crate) unsafe fn try_held(&self, me: WaiterRef) -> Try {
        // SAFETY: passed on, and the contract of `new`.
        unsafe { self.chan.try_held(self.op(), self.slot, me) }
    }

    /// Links a node for it.
    ///
    /// # Safety
    /// The lock is held; the node is linked nowhere and stays where it is until it is unlinked.
    pub(crate) unsafe fn link_held(&self, node: &Node, spot: Spot) {
        self.prepare(node);
        // SAFETY: passed on.
        unsafe { self.chan.link_held(self.op(), node, spot) };
    }

    /// Takes a node out again that was linked under this very lock.
    ///
    /// # Safety
    /// The lock is held.
    pub(crate) unsafe fn unlink_held(&self, node: &Node) {
        // SAFETY: passed on.
        unsafe { self.chan.unlink_held(self.op(), node) };
    }

    /// `publish` in the general way.
    ///
    /// # Safety
    /// The lock is held; it is free afterwards. The node is prepared, linked nowhere, and stays where it is until it is unlinked.
    #[inline(never)]
    unsafe fn publish_locked(self, node: &Node) -> Published {
        // SAFETY: the lock is held until the last of these, and all of it is passed on.
        unsafe {
            let (outcome, peer) = self.try_held(node.target().0);
            if outcome == Outcome::Pending {
                self.chan.link_held(self.op(), node, self.asks.spot());
            }
            (outcome, unlock_parking(self.chan, peer))
        }
    }
}

/// Unlocks where no user code may run, because the caller is PARKING, and sets `peer` going: its waker is returned, to be called after
/// PARKING; other wakers are called soon, by another fiber.
///
/// # Safety
/// The lock is held, and not used afterwards.
#[must_use]
#[inline(always)]
unsafe fn unlock_parking<C: AnyChan + ?Sized>(chan: &C, peer: Option<Peer>) -> Option<Waker> {
    // SAFETY: passed on.
    let wakers = unsafe { chan.unlock_held() };
    let waker = peer.and_then(Peer::make_runnable);
    if !wakers.is_empty() {
        wake::call_wakers_soon(wakers);
    }
    waker
}

impl<C: AnyChan + ?Sized, A: Asks> Waitable for ChanOp<'_, C, A> {
    #[inline]
    fn try_now(&self) -> Outcome {
        // SAFETY: the contract of `new`.
        unsafe { self.chan.try_now(self.op(), self.slot) }
    }

    #[inline(always)]
    fn publish(&self, node: &Node) -> Published {
        self.prepare(node);
        self.chan.lock_it();
        // SAFETY: the lock is held; the node stays where it is until it is unlinked (the trait's contract).
        unsafe {
            let is_linked = match self.op() {
                ChanOpKind::Send if A::ALONE => self.chan.link_plainly(true, node),
                ChanOpKind::Recv if A::ALONE => self.chan.link_plainly(false, node),
                _ => false,
            };
            if is_linked { (Outcome::Pending, None) } else { self.publish_locked(node) }
        }
    }

    fn unpublish(&self, node: &Node, _: &mut Vec<Waker>) {
        self.chan.unlink(self.op(), node);
    }
}

/// Does the operation, in one wait: `Retry` if that was in vain. It looks first, under the lock.
///
/// # Safety
/// `slot` is what the operation needs: room for a `T`, or a `T`, which is the channel's if the answer is `Done`.
#[inline(always)]
unsafe fn once<T, A: Asks>(
    asks: A,
    reason: WaitReason,
    chan: &Chan<T>,
    slot: *mut (),
    deadline: Option<u64>,
    site: &'static Location<'static>,
) -> Outcome {
    // SAFETY: passed on.
    let operation = unsafe { ChanOp::new(chan, asks, slot) };
    wait(operation, Wait { reason, object: chan.id(), site, deadline })
}

/// Sends the value at `value`, waiting if need be.
///
/// # Safety
/// `value` points to a `T` that the caller does not drop. It is the channel's if the answer is `Done`, the caller's otherwise; and gone if
/// this unwinds.
#[inline(always)]
pub(super) unsafe fn send<T>(
    chan: &Chan<T>,
    value: *mut T,
    deadline: Option<u64>,
    site: &'static Location<'static>,
) -> Outcome {
    /// A value that is dropped if its wait unwinds.
    struct Unsent<T>(*mut T);
    impl<T> Drop for Unsent<T> {
        fn drop(&mut self) {
            // SAFETY: unwound by cancellation: the wait is over, no receiver took the value, and the caller does not drop it.
            unsafe { self.0.drop_in_place() };
        }
    }
    let unsent = Unsent(value);
    // SAFETY: passed on.
    let ended = unsafe {
        match deadline {
            None => once(Sends, WaitReason::ChannelSend, chan, value.cast(), None, site),
            Some(_) => once(SendsInTime, WaitReason::ChannelSend, chan, value.cast(), deadline, site),
        }
    };
    // From here on nothing unwinds.
    mem::forget(unsent);
    ended
}

/// Receives into `slot`, in one wait: `Retry` if it was in vain.
///
/// # Safety
/// `slot` is valid for writing a `T`; one is there if the answer is `Done`.
#[inline(always)]
pub(super) unsafe fn recv_once<T>(chan: &Chan<T>, slot: *mut T, site: &'static Location<'static>) -> Outcome {
    // SAFETY: passed on.
    unsafe { once(Receives, WaitReason::ChannelRecv, chan, slot.cast(), None, site) }
}

/// Receives into `slot`, waiting if need be.
///
/// # Safety
/// As [`recv_once`].
#[inline(never)]
pub(super) unsafe fn recv<T>(
    chan: &Chan<T>,
    slot: *mut T,
    deadline: Option<u64>,
    site: &'static Location<'static>,
) -> Outcome {
    loop {
        // The wait at a timed channel has the channel's own deadline.
        let due = if chan.is_timed() { chan.timed_deadline() } else { None };
        let until = match (deadline, due) {
            (Some(deadline), Some(due)) => Some(deadline.min(due)),
            (deadline, due) => deadline.or(due),
        };
        // SAFETY: passed on.
        match unsafe { once(ReceivesPatiently, WaitReason::ChannelRecv, chan, slot.cast(), until, site) } {
            Outcome::Retry => {}
            // (If it is due at the very deadline, it is there in time.)
            Outcome::TimedOut if due.is_some() && until == due => {
                // SAFETY: no other thread knows the slot: the wait is over.
                match unsafe { chan.try_take(slot) } {
                    // Another receiver took it: it was a tick, and there will be more.
                    Outcome::Pending if deadline == due => return Outcome::TimedOut,
                    Outcome::Pending => {}
                    ended => return ended,
                }
            }
            ended => {
                chan.free_if_spare();
                return ended;
            }
        }
    }
}

/// Reserves a place, waiting if need be.
pub(super) fn reserve<T>(chan: &Chan<T>, deadline: Option<u64>, site: &'static Location<'static>) -> Outcome {
    // SAFETY: this operation has no slot.
    unsafe { once(Reserves, WaitReason::ChannelReserve, chan, ptr::null_mut(), deadline, site) }
}

/// Waits until `side` is gone.
pub(super) fn gone<T>(chan: &Chan<T>, side: Side, site: &'static Location<'static>) {
    // SAFETY: these operations have no slot.
    let _done = unsafe {
        match side {
            Side::Senders => once(WatchesSenders, WaitReason::ChannelClosed, chan, ptr::null_mut(), None, site),
            Side::Receivers => once(WatchesReceivers, WaitReason::ChannelClosed, chan, ptr::null_mut(), None, site),
        }
    };
}

/// Sends if that is possible without waiting. In a rendezvous the value may also be left for a receiver that waits and cannot be handed it.
#[inline]
pub(super) fn offer_or_leave<T>(chan: &Chan<T>, value: T) -> Result<(), (Outcome, T)> {
    let value = match offer_now(chan, value) {
        // Receivers wait all the same.
        Err((Outcome::Pending, value)) if chan.hints() & hint::SEND != 0 => ManuallyDrop::new(value),
        offered => return offered,
    };
    // SAFETY: `value` is not dropped here; it is the channel's if DONE, and moved out below otherwise.
    match unsafe { chan.offer_or_leave(&raw const *value) } {
        Outcome::Done => Ok(()),
        not => Err((not, ManuallyDrop::into_inner(value))),
    }
}

/// Receives if that is possible without waiting. In a rendezvous senders that have no value yet may learn that one is wanted.
#[inline]
pub(super) fn take_or_invite<T>(chan: &Chan<T>) -> Result<T, Outcome> {
    match take_now(chan) {
        // Senders wait all the same.
        Err(Outcome::Pending) if chan.hints() & hint::RECV != 0 && !chan.is_timed() => {}
        taken => return taken,
    }
    let mut slot = MaybeUninit::uninit();
    // SAFETY: a slot for a `T`.
    match unsafe { chan.take_or_invite(slot.as_mut_ptr()) } {
        // SAFETY: written.
        Outcome::Done => Ok(unsafe { slot.assume_init() }),
        not => Err(not),
    }
}

/// A value on its way into a channel: the channel's if the try says `Done`, otherwise it comes back.
#[inline(always)]
pub(super) fn offer_now<T>(chan: &Chan<T>, value: T) -> Result<(), (Outcome, T)> {
    let value = ManuallyDrop::new(value);
    // SAFETY: `value` is not dropped here; it is the channel's if DONE, and moved out below otherwise.
    match unsafe { chan.try_offer(&raw const *value) } {
        Outcome::Done => Ok(()),
        not => Err((not, ManuallyDrop::into_inner(value))),
    }
}

/// Receives if that is possible now.
#[inline(always)]
pub(super) fn take_now<T>(chan: &Chan<T>) -> Result<T, Outcome> {
    let mut slot = MaybeUninit::uninit();
    // SAFETY: a slot for a `T`.
    match unsafe { chan.try_take(slot.as_mut_ptr()) } {
        // SAFETY: written.
        Outcome::Done => Ok(unsafe { slot.assume_init() }),
        not => Err(not),
    }
}
