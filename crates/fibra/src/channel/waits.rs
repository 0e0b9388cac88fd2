//! The waits of a channel, each with its node on the waiting stack: sending, receiving, reserving, watching the other side. What these are,
//! `op` says; here is how one waits for them.
//!
//! A wait looks again under the lock when it publishes itself, so a blocking operation may come straight here. What `publish` did stands,
//! even if cancellation claimed the wait meanwhile: it then comes at the next one.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop, MaybeUninit};
use std::panic::Location;
use std::ptr;
use std::task::Waker;

use super::chan::Chan;
use super::op::Op;
use super::reason::Side;
use super::spot::Spot;
use super::state::hint;
use crate::wait::node::{Node, Outcome, WaiterRef};
use crate::wait::park::{Ended, Wait, Waitable, wait};
use crate::wait::reason::WaitReason;
use crate::wait::wake;
use crate::wait::word::Ticket;

/// Which operation is waited for: a type, so that each has its own short code.
trait Asks {
    const OP: Op;
    const REASON: WaitReason;
}

macro_rules! asks {
    ($($name:ident: $op:expr, $reason:ident;)+) => {$(
        struct $name;
        impl Asks for $name {
            const OP: Op = $op;
            const REASON: WaitReason = WaitReason::$reason;
        }
    )+};
}
asks! {
    Receives: Op::Recv, ChannelRecv;
    Sends: Op::Send, ChannelSend;
    // The same, for those who wait in other ways than `hot` does: so that its own wait is the only one of its kind, and becomes part of it.
    ReceivesPatiently: Op::Recv, ChannelRecv;
    SendsInTime: Op::Send, ChannelSend;
    Reserves: Op::Reserve, ChannelReserve;
    WatchesSenders: Op::Gone(Side::Senders), ChannelClosed;
    WatchesReceivers: Op::Gone(Side::Receivers), ChannelClosed;
}

/// A wait for one operation. Nothing of it is written before it is needed: a wait is begun often, and its parts are written once.
struct OpWait<'a, T, A> {
    chan: &'a Chan<T>,
    asks: PhantomData<A>,
    /// What the operation needs; see [`State::attempt`].
    slot: *mut (),
    /// Made by a `publish` that links it.
    node: Cell<MaybeUninit<Node>>,
    /// Given by a `publish` that did not park: how it ended, and the waker of the peer whose wait it completed.
    answer: Cell<MaybeUninit<(Outcome, Option<Waker>)>>,
}

/// Does the operation, in one wait: `Retry` if that was in vain. It looks first, under the lock.
///
/// # Safety
/// `slot` is what the operation needs: room for a `T`, or a `T`, which is the channel's if the answer is `Done`.
#[inline(always)]
unsafe fn once<T, A: Asks>(
    _: A,
    chan: &Chan<T>,
    slot: *mut (),
    deadline: Option<u64>,
    site: &'static Location<'static>,
) -> Outcome {
    let (node, answer) = (Cell::new(MaybeUninit::uninit()), Cell::new(MaybeUninit::uninit()));
    let op_wait = OpWait { chan, asks: PhantomData::<A>, slot, node, answer };
    match wait(&op_wait, Wait { reason: A::REASON, object: chan.id(), site, deadline }) {
        // SAFETY: it was published.
        Ended::Completed(_) => unsafe { op_wait.node() }.outcome.get(),
        Ended::TimedOut => Outcome::TimedOut,
        // SAFETY: `publish` said that there is nothing to wait for, and gave its answer.
        Ended::NotParked | Ended::Overtaken(_) => unsafe { op_wait.conclude() },
        Ended::Cancelled => unreachable!("`wait` unwinds"),
    }
}

impl<T, A: Asks> OpWait<'_, T, A> {
    #[inline(always)]
    fn make_node(&self, waiter: WaiterRef, ticket: Ticket) -> &Node {
        self.node.set(MaybeUninit::new(Node::of_wait(waiter, ticket, A::OP.role(), self.slot)));
        // SAFETY: just made.
        unsafe { self.node() }
    }

    /// # Safety
    /// It was made.
    #[inline(always)]
    unsafe fn node(&self) -> &Node {
        // SAFETY: the contract; it is written once, before any reference to it is there.
        unsafe { (*self.node.as_ptr()).assume_init_ref() }
    }

    /// `publish` in the general way.
    ///
    /// # Safety
    /// The lock is held; it is free afterwards.
    #[inline(never)]
    unsafe fn publish_locked(&self, waiter: WaiterRef, ticket: Ticket) -> bool {
        // SAFETY: the lock is held, and given up with the guard.
        let mut locked = unsafe { self.chan.held() };
        // SAFETY: what the operation needs, by the contract of `once`.
        let (outcome, peer) = unsafe { locked.state().attempt(A::OP, self.slot, Some(waiter)) };
        let parks = outcome == Outcome::Pending;
        if parks {
            // SAFETY: the node stays on this stack until it is unlinked.
            unsafe { locked.state().link(A::OP, self.make_node(waiter, ticket), Spot::Back) };
        }
        let waker = locked.unlock_parking(peer);
        if !parks {
            self.answer.set(MaybeUninit::new((outcome, waker)));
        }
        parks
    }

    /// The answer of a `publish` that did not park, after PARKING.
    ///
    /// # Safety
    /// It was given, and is taken once.
    #[cold]
    #[inline(never)]
    unsafe fn conclude(&self) -> Outcome {
        // SAFETY: the contract.
        let (outcome, waker) = unsafe { self.answer.replace(MaybeUninit::uninit()).assume_init() };
        if let Some(waker) = waker {
            wake::call(waker);
        }
        outcome
    }
}

impl<T, A: Asks> Waitable for OpWait<'_, T, A> {
    #[inline(always)]
    fn publish(&self, waiter: WaiterRef, ticket: Ticket) -> bool {
        let make = || self.make_node(waiter, ticket);
        self.chan.lock_raw();
        // SAFETY: the lock is held; the node stays on this stack until it is unlinked.
        unsafe {
            match A::OP {
                Op::Send => self.chan.link_plainly(true, make) || self.publish_locked(waiter, ticket),
                Op::Recv => self.chan.link_plainly(false, make) || self.publish_locked(waiter, ticket),
                _ => self.publish_locked(waiter, ticket),
            }
        }
    }

    fn unpublish(&self) {
        // SAFETY: it was published.
        self.chan.unlink(A::OP.list(), unsafe { self.node() }, false);
    }
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
            // SAFETY: unwound by cancellation: the wait is over, nobody took the value, and the caller does not drop it.
            unsafe { self.0.drop_in_place() };
        }
    }
    let unsent = Unsent(value);
    // SAFETY: passed on.
    let ended = unsafe {
        match deadline {
            None => once(Sends, chan, value.cast(), None, site),
            Some(_) => once(SendsInTime, chan, value.cast(), deadline, site),
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
    unsafe { once(Receives, chan, slot.cast(), None, site) }
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
        // A channel that time feeds is waited for with its own deadline.
        let due = if chan.is_timed() { chan.timed_deadline() } else { None };
        let until = match (deadline, due) {
            (Some(deadline), Some(due)) => Some(deadline.min(due)),
            (deadline, due) => deadline.or(due),
        };
        // SAFETY: passed on.
        match unsafe { once(ReceivesPatiently, chan, slot.cast(), until, site) } {
            Outcome::Retry => {}
            // (If it is due at the very deadline, it is there in time.)
            Outcome::TimedOut if due.is_some() && until == due => {
                // SAFETY: nobody else knows the slot: the wait is over.
                match unsafe { chan.try_take(slot) } {
                    // Somebody else took it: a tick, and there will be others.
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
    unsafe { once(Reserves, chan, ptr::null_mut(), deadline, site) }
}

/// Waits until `side` is gone.
pub(super) fn gone<T>(chan: &Chan<T>, side: Side, site: &'static Location<'static>) {
    // SAFETY: these operations have no slot.
    let _done = unsafe {
        match side {
            Side::Senders => once(WatchesSenders, chan, ptr::null_mut(), None, site),
            Side::Receivers => once(WatchesReceivers, chan, ptr::null_mut(), None, site),
        }
    };
}

/// Sends if that is possible without waiting. In a rendezvous the value may also be left for a receiver who waits and cannot be handed it.
#[inline]
pub(super) fn offer_or_leave<T>(chan: &Chan<T>, value: T) -> Result<(), (Outcome, T)> {
    let value = match offer_now(chan, value) {
        // Some wait to receive, all the same.
        Err((Outcome::Pending, value)) if chan.hints() & hint::SEND != 0 => ManuallyDrop::new(value),
        offered => return offered,
    };
    // SAFETY: `value` is not dropped here; it is the channel's if DONE, and moved out below otherwise.
    match unsafe { chan.offer_or_leave(&raw const *value) } {
        Outcome::Done => Ok(()),
        not => Err((not, ManuallyDrop::into_inner(value))),
    }
}

/// Receives if that is possible without waiting. In a rendezvous senders who have no value yet may learn that one is wanted.
#[inline]
pub(super) fn take_or_invite<T>(chan: &Chan<T>) -> Result<T, Outcome> {
    match take_now(chan) {
        // Some wait to send, all the same.
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
