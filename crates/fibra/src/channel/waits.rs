//! The waits of a channel, each with its node on the waiting stack: sending, receiving, reserving, watching the other side.
//!
//! A wait looks again under the lock when it publishes itself, so a blocking operation may come straight here. What `publish` did stands,
//! even if cancellation claimed the wait meanwhile: it then comes at the next one.

use std::cell::Cell;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::Location;
use std::ptr;
use std::task::Waker;

use super::chan::{Chan, Locked};
use super::reason::Side;
use super::spot::Spot;
use super::state::{State, Try, hint};
use crate::wait::node::{Node, Outcome, Role, WaitList, WaiterRef};
use crate::wait::park::{Ended, Wait, Waitable, wait};
use crate::wait::reason::WaitReason;
use crate::wait::wake;
use crate::wait::word::Ticket;

/// What the waits have in common. Nothing of it is written before it is needed: a wait is begun often, and its parts are written once.
struct Common<'a, T> {
    chan: &'a Chan<T>,
    /// Made by `publish`, before anything else.
    node: Cell<MaybeUninit<Node>>,
    /// Given by a `publish` that did not park: how it ended, and the waker of the peer whose wait it completed.
    answer: Cell<MaybeUninit<(Outcome, Option<Waker>)>>,
}

impl<'a, T> Common<'a, T> {
    #[inline(always)]
    fn new(chan: &'a Chan<T>) -> Self {
        Self { chan, node: Cell::new(MaybeUninit::uninit()), answer: Cell::new(MaybeUninit::uninit()) }
    }

    /// One wait, from publishing to its outcome.
    #[inline(always)]
    fn wait(
        &self,
        waitable: &impl Waitable,
        reason: WaitReason,
        deadline: Option<u64>,
        site: &'static Location<'static>,
    ) -> Outcome {
        match wait(waitable, Wait { reason, object: self.chan.id(), site, deadline }) {
            // SAFETY: it was published.
            Ended::Completed(_) => unsafe { self.node() }.outcome.get(),
            Ended::TimedOut => Outcome::TimedOut,
            // SAFETY: `publish` said that there is nothing to wait for, and gave its answer.
            Ended::NotParked | Ended::Overtaken(_) => unsafe { self.conclude() },
            Ended::Cancelled => unreachable!("`wait` unwinds"),
        }
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

    /// Makes the node of this wait.
    #[inline(always)]
    fn prepare(&self, waiter: WaiterRef, ticket: Ticket, role: Role, slot: *mut ()) -> &Node {
        self.node.set(MaybeUninit::new(Node::of_wait(waiter, ticket, role, slot)));
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

    /// `publish`, after a look under the lock: if nothing came of it, `link` links the node and the caller parks.
    ///
    /// # Safety
    /// The node was made.
    #[inline(always)]
    unsafe fn publish(&self, mut locked: Locked<'_, T>, tried: Try, link: impl FnOnce(&mut State<T>, &Node)) -> bool {
        let (outcome, peer) = tried;
        let parks = outcome == Outcome::Pending;
        if parks {
            // SAFETY: the contract.
            link(locked.state(), unsafe { self.node() });
        }
        let waker = locked.unlock_parking(peer);
        if !parks {
            self.answer.set(MaybeUninit::new((outcome, waker)));
        }
        parks
    }

    /// Takes the node out of the list it was linked in.
    fn unlink(&self, list: fn(&State<T>) -> &WaitList) {
        // SAFETY: asked of a wait that was published.
        self.chan.unlink(list, unsafe { self.node() }, false);
    }
}

// ---- Sending --------------------------------------------------------------------------------------------------------------

struct SendWait<'a, T> {
    common: Common<'a, T>,
    /// The caller's, and the channel's if DONE.
    value: *mut T,
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
    let wait = SendWait { common: Common::new(chan), value };
    let ended = wait.common.wait(&wait, WaitReason::ChannelSend, deadline, site);
    // From here on nothing unwinds: the value is not dropped with the wait.
    std::mem::forget(wait);
    ended
}

impl<T> SendWait<'_, T> {
    /// `publish`, with a node that is prepared.
    ///
    /// # Safety
    /// The lock is held; it is free afterwards.
    #[inline(never)]
    unsafe fn publish_locked(&self, waiter: WaiterRef) -> bool {
        // SAFETY: the lock is held, and given up with the guard.
        let mut locked = unsafe { self.common.chan.held() };
        // SAFETY: the value is ours, and the channel's if DONE.
        let mut tried = unsafe { locked.state().offer(self.value, Some(waiter)) };
        if tried.0 == Outcome::Retry {
            // Rare, and only here: an unbounded channel never comes this far but for a race with its own growth.
            locked.state().make_room();
            // SAFETY: as above.
            tried = unsafe { locked.state().offer(self.value, Some(waiter)) };
        }
        // SAFETY: under the lock; the node was made, and stays on this stack until it is unlinked.
        unsafe { self.common.publish(locked, tried, |state, node| state.link_sender(node, Spot::Back)) }
    }
}

impl<T> Drop for SendWait<'_, T> {
    fn drop(&mut self) {
        // SAFETY: unwound by cancellation: the wait is over, nobody took the value, and the caller does not drop it.
        unsafe { self.value.drop_in_place() };
    }
}

impl<T> Waitable for SendWait<'_, T> {
    #[inline(always)]
    fn publish(&self, waiter: WaiterRef, ticket: Ticket) -> bool {
        let chan = self.common.chan;
        let node = self.common.prepare(waiter, ticket, Role::Take, self.value.cast());
        chan.lock_raw();
        // SAFETY: the lock is held; the node stays on this stack until it is unlinked.
        unsafe { chan.link_plainly(true, node) || self.publish_locked(waiter) }
    }

    fn unpublish(&self) {
        self.common.unlink(|state| &state.senders);
    }
}

// ---- Receiving ------------------------------------------------------------------------------------------------------------

struct RecvWait<'a, T> {
    common: Common<'a, T>,
    slot: *mut T,
}

/// Receives into `slot`, in one wait: `Retry` if it was in vain.
///
/// # Safety
/// `slot` is valid for writing a `T`; one is there if the answer is `Done`.
#[inline(always)]
pub(super) unsafe fn recv_once<T>(
    chan: &Chan<T>,
    slot: *mut T,
    deadline: Option<u64>,
    site: &'static Location<'static>,
) -> Outcome {
    let wait = RecvWait { common: Common::new(chan), slot };
    wait.common.wait(&wait, WaitReason::ChannelRecv, deadline, site)
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
        match unsafe { recv_once(chan, slot, until, site) } {
            Outcome::Retry => {}
            // (If it is due at the very deadline, it is there in time.)
            Outcome::TimedOut if due.is_some() && until == due => {
                // SAFETY: nobody else knows the slot: the wait is over.
                if unsafe { chan.try_take(slot) } == Outcome::Done {
                    return Outcome::Done;
                }
                // Somebody else took it.
                if deadline == due {
                    return Outcome::TimedOut;
                }
            }
            ended => {
                chan.free_if_spare();
                return ended;
            }
        }
    }
}

impl<T> RecvWait<'_, T> {
    /// `publish`, with a node that is prepared.
    ///
    /// # Safety
    /// The lock is held; it is free afterwards.
    #[inline(never)]
    unsafe fn publish_locked(&self, waiter: WaiterRef) -> bool {
        // SAFETY: the lock is held, and given up with the guard.
        let mut locked = unsafe { self.common.chan.held() };
        // SAFETY: the slot is ours, and empty.
        let tried = unsafe { locked.state().take(self.slot, Some(waiter)) };
        // SAFETY: under the lock; the node was made, and stays on this stack until it is unlinked.
        unsafe { self.common.publish(locked, tried, |state, node| state.link_receiver(node, Spot::Back)) }
    }
}

impl<T> Waitable for RecvWait<'_, T> {
    #[inline(always)]
    fn publish(&self, waiter: WaiterRef, ticket: Ticket) -> bool {
        let chan = self.common.chan;
        let node = self.common.prepare(waiter, ticket, Role::Fill, self.slot.cast());
        chan.lock_raw();
        // SAFETY: the lock is held; the node stays on this stack until it is unlinked.
        unsafe { chan.link_plainly(false, node) || self.publish_locked(waiter) }
    }

    fn unpublish(&self) {
        self.common.unlink(|state| &state.receivers);
    }
}

// ---- Reserving ------------------------------------------------------------------------------------------------------------

struct ReserveWait<'a, T>(Common<'a, T>);

/// Reserves a place, waiting if need be.
pub(super) fn reserve<T>(chan: &Chan<T>, deadline: Option<u64>, site: &'static Location<'static>) -> Outcome {
    let wait = ReserveWait(Common::new(chan));
    wait.0.wait(&wait, WaitReason::ChannelReserve, deadline, site)
}

impl<T> Waitable for ReserveWait<'_, T> {
    fn publish(&self, waiter: WaiterRef, ticket: Ticket) -> bool {
        self.0.prepare(waiter, ticket, Role::Grant, ptr::null_mut());
        let mut locked = self.0.chan.lock();
        let reserved = locked.state().reserve(Some(waiter));
        // SAFETY: under the lock; the node was made, and stays on this stack until it is unlinked.
        unsafe { self.0.publish(locked, (reserved, None), |state, node| state.link_sender(node, Spot::Back)) }
    }

    fn unpublish(&self) {
        self.0.unlink(|state| &state.senders);
    }
}

// ---- Watching the other side ----------------------------------------------------------------------------------------------

/// The list of those who wait for `side` to go, and the hint that it is gone.
pub(crate) fn watch_list<T>(side: Side) -> (fn(&State<T>) -> &WaitList, u8) {
    match side {
        Side::Senders => (|state| &state.receiver_watch, hint::SENDERS_GONE),
        Side::Receivers => (|state| &state.sender_watch, hint::RECEIVERS_GONE),
    }
}

struct GoneWait<'a, T> {
    common: Common<'a, T>,
    side: Side,
}

/// Waits until `side` is gone. False: time was up.
pub(super) fn gone<T>(chan: &Chan<T>, side: Side, deadline: Option<u64>, site: &'static Location<'static>) -> bool {
    let wait = GoneWait { common: Common::new(chan), side };
    wait.common.wait(&wait, WaitReason::ChannelClosed, deadline, site) != Outcome::TimedOut
}

impl<T> Waitable for GoneWait<'_, T> {
    fn publish(&self, waiter: WaiterRef, ticket: Ticket) -> bool {
        self.common.prepare(waiter, ticket, Role::Observe, ptr::null_mut());
        let (list, gone) = watch_list(self.side);
        let mut locked = self.common.chan.lock();
        let outcome = if locked.state().has(gone) { Outcome::Done } else { Outcome::Pending };
        // SAFETY: under the lock; the node was made, and stays on this stack until it is unlinked.
        unsafe { self.common.publish(locked, (outcome, None), |state, node| list(state).push_back(node)) }
    }

    fn unpublish(&self) {
        self.common.unlink(watch_list(self.side).0);
    }
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
