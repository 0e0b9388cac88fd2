//! The waits of a channel, each with its node on the waiting stack: sending, receiving, reserving, watching the other side.
//!
//! A wait looks again under the lock when it publishes itself, so a blocking operation may come straight here. What `publish` did stands,
//! even if cancellation claimed the wait meanwhile: it then comes at the next one.

use std::cell::Cell;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::Location;

use super::chan::{AfterPark, Chan, Tried};
use super::reason::Side;
use super::spot::Spot;
use super::state::{Offered, State, Taken, hint, outcome, role};
use crate::wait::node::{Node, WaitList, WaiterRef};
use crate::wait::park::{Ended, Wait, Waitable, wait};
use crate::wait::reason::WaitReason;
use crate::wait::wake;
use crate::wait::word::{ARM_FIRST, Ticket};

/// How a blocking operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Finished {
    Done,
    Closed,
    TimedOut,
}

/// What the waits have in common.
struct Common<'a, T> {
    chan: &'a Chan<T>,
    node: Node,
    /// Set by a `publish` that did not park.
    verdict: Cell<u8>,
    waker: AfterPark,
}

impl<'a, T> Common<'a, T> {
    fn new(chan: &'a Chan<T>) -> Self {
        Self { chan, node: Node::new(), verdict: Cell::new(0), waker: Cell::new(None) }
    }

    /// One wait, from publishing to its outcome.
    #[inline(always)]
    fn wait(
        &self,
        waitable: &impl Waitable,
        reason: WaitReason,
        deadline: Option<u64>,
        site: &'static Location<'static>,
    ) -> Option<u8> {
        let ended = wait(waitable, Wait { reason, object: self.chan.id(), site, deadline });
        match ended {
            Ended::NotParked | Ended::Overtaken(_) => {
                if let Some(waker) = self.waker.take() {
                    wake::call(waker);
                }
                Some(self.verdict.get())
            }
            Ended::Completed(_) => Some(self.node.outcome.get()),
            Ended::TimedOut => None,
            Ended::Cancelled => unreachable!("`wait` unwinds"),
        }
    }

    #[inline(always)]
    fn prepare(&self, waiter: WaiterRef, ticket: Ticket, role: u8) {
        self.node.set(waiter, ticket, ARM_FIRST);
        self.node.role.set(role);
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
) -> Finished {
    let wait = SendWait { common: Common::new(chan), value };
    let ended = wait.common.wait(&wait, WaitReason::ChannelSend, deadline, site);
    // From here on nothing unwinds: the value is not dropped with the wait.
    std::mem::forget(wait);
    match ended {
        Some(outcome::DONE) => Finished::Done,
        Some(_) => Finished::Closed,
        None => Finished::TimedOut,
    }
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
        let mut peer = None;
        // SAFETY: the value is ours, and the channel's if DONE.
        let mut offered = unsafe { locked.state().offer(self.value, Some(waiter)) };
        if let Offered::Grow = offered {
            // Rare, and only here: an unbounded channel never comes this far but for a race with its own growth.
            locked.state().make_room();
            // SAFETY: as above.
            offered = unsafe { locked.state().offer(self.value, Some(waiter)) };
        }
        let parks = match offered {
            Offered::Done(set_going) => {
                verdict.set(outcome::DONE);
                peer = set_going;
                false
            }
            Offered::Closed => {
                verdict.set(outcome::CLOSED);
                false
            }
            Offered::Full | Offered::Grow => {
                // SAFETY: under the lock; the node stays on this stack until it is unlinked.
                unsafe { locked.state().link_sender(node, Spot::Back) };
                true
            }
        };
        waker.set(locked.unlock_parking(peer));
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
        self.common.prepare(waiter, ticket, role::TAKE);
        node.slot.set(self.value.cast());
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

/// Receives into `slot`, waiting if need be.
///
/// # Safety
/// `slot` is valid for writing a `T`; one is there if the answer is `Done`.
#[inline(always)]
pub(super) unsafe fn recv<T>(
    chan: &Chan<T>,
    slot: *mut T,
    deadline: Option<u64>,
    site: &'static Location<'static>,
) -> Finished {
    let wait = RecvWait { common: Common::new(chan), slot };
    loop {
        // A channel that time feeds is waited for with its own deadline.
        let due = if chan.is_timed() { chan.timed_deadline() } else { None };
        let until = match (deadline, due) {
            (Some(deadline), Some(due)) => Some(deadline.min(due)),
            (deadline, due) => deadline.or(due),
        };
        match wait.common.wait(&wait, WaitReason::ChannelRecv, until, site) {
            Some(outcome::DONE) => {
                chan.free_if_spare();
                return Finished::Done;
            }
            Some(outcome::RETRY) => {}
            Some(_) => return Finished::Closed,
            // (If it is due at the very deadline, it is there in time.)
            None if due.is_some() && until == due => {
                // SAFETY: nobody else knows the slot: the wait is over.
                if unsafe { chan.try_take(slot) } == Tried::Done {
                    return Finished::Done;
                }
                // Somebody else took it.
                if deadline == due {
                    return Finished::TimedOut;
                }
            }
            None => return Finished::TimedOut,
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
        let mut peer = None;
        // SAFETY: the slot is ours, and empty.
        let parks = match unsafe { locked.state().take(self.slot, Some(waiter)) } {
            Taken::Value(set_going) => {
                verdict.set(outcome::DONE);
                peer = set_going;
                false
            }
            Taken::Closed => {
                verdict.set(outcome::CLOSED);
                false
            }
            Taken::Nothing => {
                // SAFETY: under the lock; the node stays on this stack until it is unlinked.
                unsafe { locked.state().link_receiver(node, Spot::Back) };
                true
            }
        };
        waker.set(locked.unlock_parking(peer));
        parks
    }
}

impl<T> Waitable for RecvWait<'_, T> {
    #[inline(always)]
    fn publish(&self, waiter: WaiterRef, ticket: Ticket) -> bool {
        let Common { chan, node, .. } = &self.common;
        self.common.prepare(waiter, ticket, role::FILL);
        node.slot.set(self.slot.cast());
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
pub(super) fn reserve<T>(chan: &Chan<T>, deadline: Option<u64>, site: &'static Location<'static>) -> Finished {
    let wait = ReserveWait(Common::new(chan));
    match wait.0.wait(&wait, WaitReason::ChannelReserve, deadline, site) {
        Some(outcome::DONE) => Finished::Done,
        Some(_) => Finished::Closed,
        None => Finished::TimedOut,
    }
}

impl<T> Waitable for ReserveWait<'_, T> {
    fn publish(&self, waiter: WaiterRef, ticket: Ticket) -> bool {
        let Common { chan, node, verdict, .. } = &self.0;
        let mut locked = chan.lock();
        let parks = match locked.state().reserve(Some(waiter)) {
            Some(true) => {
                verdict.set(outcome::DONE);
                false
            }
            None => {
                verdict.set(outcome::CLOSED);
                false
            }
            Some(false) => {
                self.0.prepare(waiter, ticket, role::GRANT);
                // SAFETY: under the lock; the node stays on this stack until it is unlinked.
                unsafe { locked.state().link_sender(node, Spot::Back) };
                true
            }
        };
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
    let wait = GoneWait { common: Common::new(chan), side };
    wait.common.wait(&wait, WaitReason::ChannelClosed, deadline, site).is_some()
}

impl<T> Waitable for GoneWait<'_, T> {
    fn publish(&self, waiter: WaiterRef, ticket: Ticket) -> bool {
        let (list, gone) = watch_list(self.side);
        let mut locked = self.common.chan.lock();
        let state = locked.state();
        let parks = state.always & gone == 0;
        if parks {
            self.common.prepare(waiter, ticket, role::OBSERVE);
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
pub(super) fn offer_or_leave<T>(chan: &Chan<T>, value: T) -> Result<(), (Tried, T)> {
    let value = match offer_now(chan, value) {
        // Some wait to receive, all the same.
        Err((Tried::NotNow, value)) if chan.hints() & hint::SEND != 0 => ManuallyDrop::new(value),
        offered => return offered,
    };
    // SAFETY: `value` is not dropped here; it is the channel's if DONE, and moved out below otherwise.
    match unsafe { chan.offer_or_leave(&raw const *value) } {
        Tried::Done => Ok(()),
        not => Err((not, ManuallyDrop::into_inner(value))),
    }
}

/// Receives if that is possible without waiting. In a rendezvous senders who have no value yet may learn that one is wanted.
#[inline]
pub(super) fn take_or_invite<T>(chan: &Chan<T>) -> Result<T, Tried> {
    match take_now(chan) {
        // Some wait to send, all the same.
        Err(Tried::NotNow) if chan.hints() & hint::RECV != 0 && !chan.is_timed() => {}
        taken => return taken,
    }
    let mut slot = MaybeUninit::uninit();
    // SAFETY: a slot for a `T`.
    match unsafe { chan.take_or_invite(slot.as_mut_ptr()) } {
        // SAFETY: written.
        Tried::Done => Ok(unsafe { slot.assume_init() }),
        not => Err(not),
    }
}

/// A value on its way into a channel: the channel's if the try says `Done`, otherwise it comes back.
#[inline(always)]
pub(super) fn offer_now<T>(chan: &Chan<T>, value: T) -> Result<(), (Tried, T)> {
    let value = ManuallyDrop::new(value);
    // SAFETY: `value` is not dropped here; it is the channel's if DONE, and moved out below otherwise.
    match unsafe { chan.try_offer(&raw const *value) } {
        Tried::Done => Ok(()),
        not => Err((not, ManuallyDrop::into_inner(value))),
    }
}

/// Receives if that is possible now.
#[inline(always)]
pub(super) fn take_now<T>(chan: &Chan<T>) -> Result<T, Tried> {
    let mut slot = MaybeUninit::uninit();
    // SAFETY: a slot for a `T`.
    match unsafe { chan.try_take(slot.as_mut_ptr()) } {
        // SAFETY: written.
        Tried::Done => Ok(unsafe { slot.assume_init() }),
        not => Err(not),
    }
}
