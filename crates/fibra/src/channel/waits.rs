//! The waits of a channel, each with its node on the waiting stack: sending, receiving, reserving, watching the other side.
//!
//! A wait looks again under the lock when it publishes itself, so a blocking operation may come straight here. What `publish` did stands,
//! even if cancellation claimed the wait meanwhile: it then comes at the next one.

use std::cell::Cell;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::Location;
use std::ptr;

use super::chan::{AfterPark, Chan};
use super::reason::Side;
use super::spot::Spot;
use super::state::{State, hint};
use crate::wait::node::{Node, Outcome, Role, WaitList, WaiterRef};
use crate::wait::park::{Ended, Wait, Waitable, wait};
use crate::wait::reason::WaitReason;
use crate::wait::wake;
use crate::wait::word::{ARM_FIRST, Ticket};

/// What the waits have in common.
struct Common<'a, T> {
    chan: &'a Chan<T>,
    node: Node,
    /// Set by a `publish` that did not park.
    verdict: Cell<Outcome>,
    /// Likewise. Taken by [`conclude`](Self::conclude), so there is none to be dropped.
    waker: ManuallyDrop<AfterPark>,
}

impl<'a, T> Common<'a, T> {
    #[inline(always)]
    fn new(chan: &'a Chan<T>, role: Role, slot: *mut ()) -> Self {
        let (verdict, waker) = (Cell::new(Outcome::Pending), ManuallyDrop::new(Cell::new(None)));
        Self { chan, node: Node::wanting(role, slot), verdict, waker }
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
            Ended::Completed(_) => self.node.outcome.get(),
            Ended::TimedOut => Outcome::TimedOut,
            Ended::NotParked | Ended::Overtaken(_) => self.conclude(),
            Ended::Cancelled => unreachable!("`wait` unwinds"),
        }
    }

    /// What a `publish` that did not park came to, after PARKING.
    #[cold]
    #[inline(never)]
    fn conclude(&self) -> Outcome {
        if let Some(waker) = self.waker.take() {
            wake::call(waker);
        }
        self.verdict.get()
    }

    #[inline(always)]
    fn prepare(&self, waiter: WaiterRef, ticket: Ticket) {
        self.node.set(waiter, ticket, ARM_FIRST);
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
    let wait = SendWait { common: Common::new(chan, Role::Take, value.cast()), value };
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
        let Common { chan, node, verdict, waker } = &self.common;
        // SAFETY: the lock is held, and given up with the guard.
        let mut locked = unsafe { chan.held() };
        // SAFETY: the value is ours, and the channel's if DONE.
        let mut tried = unsafe { locked.state().offer(self.value, Some(waiter)) };
        if tried.0 == Outcome::Retry {
            // Rare, and only here: an unbounded channel never comes this far but for a race with its own growth.
            locked.state().make_room();
            // SAFETY: as above.
            tried = unsafe { locked.state().offer(self.value, Some(waiter)) };
        }
        let parks = tried.0 == Outcome::Pending;
        if parks {
            // SAFETY: under the lock; the node stays on this stack until it is unlinked.
            unsafe { locked.state().link_sender(node, Spot::Back) };
        }
        verdict.set(tried.0);
        waker.set(locked.unlock_parking(tried.1));
        parks
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
        let Common { chan, node, .. } = &self.common;
        self.common.prepare(waiter, ticket);
        chan.lock_raw();
        // SAFETY: the lock is held; the node stays on this stack until it is unlinked.
        unsafe { chan.link_plainly(true, node) || self.publish_locked(waiter) }
    }

    fn unpublish(&self) {
        self.common.chan.unlink(|state| &state.senders, &self.common.node, false);
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
    let wait = RecvWait { common: Common::new(chan, Role::Fill, slot.cast()), slot };
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
        let Common { chan, node, verdict, waker } = &self.common;
        // SAFETY: the lock is held, and given up with the guard.
        let mut locked = unsafe { chan.held() };
        // SAFETY: the slot is ours, and empty.
        let tried = unsafe { locked.state().take(self.slot, Some(waiter)) };
        let parks = tried.0 == Outcome::Pending;
        if parks {
            // SAFETY: under the lock; the node stays on this stack until it is unlinked.
            unsafe { locked.state().link_receiver(node, Spot::Back) };
        }
        verdict.set(tried.0);
        waker.set(locked.unlock_parking(tried.1));
        parks
    }
}

impl<T> Waitable for RecvWait<'_, T> {
    #[inline(always)]
    fn publish(&self, waiter: WaiterRef, ticket: Ticket) -> bool {
        let Common { chan, node, .. } = &self.common;
        self.common.prepare(waiter, ticket);
        chan.lock_raw();
        // SAFETY: the lock is held; the node stays on this stack until it is unlinked.
        unsafe { chan.link_plainly(false, node) || self.publish_locked(waiter) }
    }

    fn unpublish(&self) {
        self.common.chan.unlink(|state| &state.receivers, &self.common.node, false);
    }
}

// ---- Reserving ------------------------------------------------------------------------------------------------------------

struct ReserveWait<'a, T>(Common<'a, T>);

/// Reserves a place, waiting if need be.
pub(super) fn reserve<T>(chan: &Chan<T>, deadline: Option<u64>, site: &'static Location<'static>) -> Outcome {
    let wait = ReserveWait(Common::new(chan, Role::Grant, ptr::null_mut()));
    wait.0.wait(&wait, WaitReason::ChannelReserve, deadline, site)
}

impl<T> Waitable for ReserveWait<'_, T> {
    fn publish(&self, waiter: WaiterRef, ticket: Ticket) -> bool {
        let Common { chan, node, verdict, .. } = &self.0;
        let mut locked = chan.lock();
        verdict.set(locked.state().reserve(Some(waiter)));
        let parks = verdict.get() == Outcome::Pending;
        if parks {
            self.0.prepare(waiter, ticket);
            // SAFETY: under the lock; the node stays on this stack until it is unlinked.
            unsafe { locked.state().link_sender(node, Spot::Back) };
        }
        let _nobody = locked.unlock_parking(None);
        parks
    }

    fn unpublish(&self) {
        self.0.chan.unlink(|state| &state.senders, &self.0.node, false);
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
    let wait = GoneWait { common: Common::new(chan, Role::Observe, ptr::null_mut()), side };
    wait.common.wait(&wait, WaitReason::ChannelClosed, deadline, site) != Outcome::TimedOut
}

impl<T> Waitable for GoneWait<'_, T> {
    fn publish(&self, waiter: WaiterRef, ticket: Ticket) -> bool {
        let (list, gone) = watch_list(self.side);
        let mut locked = self.common.chan.lock();
        let state = locked.state();
        let parks = state.always & gone == 0;
        if parks {
            self.common.prepare(waiter, ticket);
            // SAFETY: under the lock; the node stays on this stack until it is unlinked.
            unsafe { list(state).push_back(&self.common.node) };
        }
        let _nobody = locked.unlock_parking(None);
        parks
    }

    fn unpublish(&self) {
        self.common.chan.unlink(watch_list(self.side).0, &self.common.node, false);
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
