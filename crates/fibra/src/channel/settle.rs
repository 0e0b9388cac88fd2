//! Settling and closing a channel: the cold paths that match senders with receivers.
//!
//! Beside: `state`, whose hot paths handle the common cases and call this file for the others; its header lists the roles of the waiters
//! and the invariants that hold whenever the lock is free. The functions here restore these invariants, and close the channel.

use std::collections::VecDeque;

use super::rare::{Aftermath, Rare};
use super::reason::{CloseReason, Side};
use super::state::{ChanState, Peer, Try, hint};
use crate::prim::bug::seeded_bug;
use crate::waiter::node::{Node, Outcome, Role, WaitList, WaiterRef};

// SAFETY (all blocks of this impl): as in `state`: `&mut ChanState` is only had under the channel's lock, nodes in its lists are alive
// until they are unlinked under it, and one that was just unlinked until its claimed wait is set going; slots are written or read once, by
// the thread that claimed the wait.
impl<T> ChanState<T> {
    // ---- Settling -------------------------------------------------------------------------------------------------------

    pub(super) fn aftermath(&mut self) -> &mut Aftermath<T> {
        let none = || Aftermath { wakers: Vec::new(), evicted: VecDeque::new() };
        self.rare().aftermath.get_or_insert_with(none)
    }

    /// Is there something to see to after the unlock?
    #[inline(always)]
    pub(super) fn has_aftermath(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.aftermath.is_some())
    }

    /// What there is to see to; and the rare parts, if they were made for nothing else: they are freed without the lock.
    pub(super) fn take_aftermath(&mut self) -> (Option<Aftermath<T>>, Option<Box<Rare<T>>>) {
        let aftermath = self.rare.as_mut().and_then(|rare| rare.aftermath.take());
        (aftermath, self.rare.take_if(|rare| rare.is_spare()))
    }

    /// Unlinks `node` from `list`, completes its wait and sets it going. False: it was completed already.
    fn finish(&mut self, list: fn(&mut Self) -> &WaitList, node: &Node, outcome: Outcome) -> bool {
        // SAFETY: see the impl.
        unsafe { list(self).remove(node) };
        let Some(peer) = Peer::claim(node, outcome) else { return false };
        self.make_peer_runnable(peer);
        true
    }

    /// Sets a waiter going under the lock: its waker is user code, and is kept until the lock is free.
    pub(super) fn make_peer_runnable(&mut self, peer: Peer) {
        if let Some(waker) = peer.make_runnable() {
            self.aftermath().wakers.push(waker);
        }
    }

    fn the_receivers(&mut self) -> &WaitList {
        &self.receivers
    }

    fn the_senders(&mut self) -> &WaitList {
        &self.senders
    }

    /// Makes all progress that is possible: the cold path for cases that the hot ones do not handle, and for handles that are dropped.
    #[cold]
    #[inline(never)]
    pub(crate) fn settle(&mut self) {
        // Each settling notifies one future per list, and leaves the value or place for it: otherwise the waiters behind it would be served
        // in its stead, time and again. The thread that makes a second value or place available settles again.
        let (mut called_receiver, mut called_sender) = (false, false);
        loop {
            let mut progress = false;
            while self.buffer.len().saturating_add(self.reserved + usize::from(called_sender)) < self.capacity
                // SAFETY: see the impl.
                && let Some(node) = unsafe { self.senders.front() }
            {
                match node.role.get() {
                    Role::Take => {
                        // SAFETY: see the impl.
                        unsafe { self.senders.remove(node) };
                        if let Some(peer) = Peer::claim(node, Outcome::Done) {
                            // SAFETY: see the impl.
                            self.buffer.push_back(unsafe { node.slot.get().cast::<T>().read() });
                            self.make_peer_runnable(peer);
                            progress = true;
                        }
                    }
                    Role::Grant => self.reserved += usize::from(self.finish(Self::the_senders, node, Outcome::Done)),
                    Role::Call if called_sender => break,
                    other => {
                        let called = self.finish(Self::the_senders, node, Outcome::Retry);
                        called_sender |= called && other == Role::Call;
                    }
                }
            }
            while self.buffer.len() > usize::from(called_receiver)
                // SAFETY: see the impl.
                && let Some(node) = unsafe { self.receivers.front() }
            {
                match node.role.get() {
                    Role::Fill => {
                        // SAFETY: see the impl.
                        unsafe { self.receivers.remove(node) };
                        if let Some(peer) = Peer::claim(node, Outcome::Done)
                            && let Some(value) = self.buffer.pop_front()
                        {
                            // SAFETY: see the impl.
                            unsafe { node.slot.get().cast::<T>().write(value) };
                            self.make_peer_runnable(peer);
                            progress = true;
                        }
                    }
                    Role::Call if called_receiver => break,
                    other => {
                        let called = self.finish(Self::the_receivers, node, Outcome::Retry);
                        called_receiver |= called && other == Role::Call;
                    }
                }
            }
            if !progress {
                break;
            }
        }
        if self.buffer.is_empty() && !self.receivers.is_empty() && !self.senders.is_empty() {
            let _told = self.pair();
        }
        if self.closed {
            self.end_receivers();
        }
    }

    /// Nothing is in the buffer, there is no room in it, and both sides wait: a waiter cannot be served where it waits (without a value,
    /// without a slot), or was held back by a reservation that is gone. It is told to try again. True: a waiter was told that will take a
    /// value or a place.
    fn pair(&mut self) -> bool {
        // SAFETY: see the impl.
        let mut next = unsafe { self.senders.front() };
        while let Some(sender) = next {
            // SAFETY: see the impl.
            next = unsafe { self.senders.after(sender) };
            let me = Some(sender.target().0);
            match sender.role.get() {
                Role::Take => {
                    // A waiter that only observes is told all the same: receiving does not depend on reservations.
                    let held_back = self.capacity == 0 && self.waiting_receivers(me) <= self.spoken_for();
                    // SAFETY: see the impl.
                    let mut other = unsafe { self.receivers.front() };
                    while let Some(receiver) = other {
                        // SAFETY: see the impl.
                        other = unsafe { self.receivers.after(receiver) };
                        let observes = receiver.role.get() == Role::Observe;
                        if receiver.is_of(me) || held_back && !observes {
                            continue;
                        }
                        if self.finish(Self::the_receivers, receiver, Outcome::Retry) && !observes {
                            return true;
                        }
                    }
                }
                Role::Observe => {
                    if self.is_ready_to_offer(me) {
                        self.finish(Self::the_senders, sender, Outcome::Retry);
                    }
                }
                _ if self.capacity > 0 || !self.can_reserve(me) => {}
                Role::Grant => self.reserved += usize::from(self.finish(Self::the_senders, sender, Outcome::Done)),
                _ => {
                    if self.finish(Self::the_senders, sender, Outcome::Retry) {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// All reservations are gone at once: every waiter that they held back is told, not only the first.
    pub(super) fn settle_unreserved(&mut self) {
        self.reserved = 0;
        self.looked = false;
        self.settle();
        while self.buffer.is_empty() && !self.receivers.is_empty() && !self.senders.is_empty() && self.pair() {}
    }

    // ---- Callers that look, and do not wait -----------------------------------------------------------------------------

    /// Receives into `slot`, for a caller that does not wait; a sender that has no value yet learns of it.
    ///
    /// # Safety
    /// As [`take`](Self::take).
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn take_or_invite(&mut self, slot: *mut T) -> Try {
        // SAFETY: passed on.
        let taken = unsafe { self.take(slot, None) };
        if taken.0 == Outcome::Pending {
            self.invite();
        }
        taken
    }

    /// A receiver looked, found nothing, and does not wait. On a rendezvous senders may wait all the same: those that ask for a place
    /// before they have a value. A look counts as much as a receiver that waits: the first of these senders gets its place, or is told
    /// that it may have it, and its value lies here for the next look.
    #[cold]
    #[inline(never)]
    pub(crate) fn invite(&mut self) {
        if !self.may_invite() {
            return;
        }
        // SAFETY: see the impl.
        let mut next = unsafe { self.senders.front() };
        while let Some(sender) = next {
            // SAFETY: see the impl.
            next = unsafe { self.senders.after(sender) };
            let invited = match sender.role.get() {
                Role::Grant => {
                    let granted = self.finish(Self::the_senders, sender, Outcome::Done);
                    self.promise(granted && !seeded_bug("channel_look_uncounted"));
                    granted
                }
                // A future may never be polled again: nothing is reserved before it is polled.
                Role::Call => self.finish(Self::the_senders, sender, Outcome::Invited),
                _ => false,
            };
            if invited {
                return;
            }
        }
    }

    fn promise(&mut self, for_a_look: bool) {
        self.reserved += usize::from(for_a_look);
        self.looked |= for_a_look;
    }

    /// Is there no value yet for a receiver that looks, and no place promised to a sender?
    fn may_invite(&self) -> bool {
        let promised = self.looked || self.reserved > self.interested_receivers(None);
        self.capacity == 0 && !self.closed && self.buffer.is_empty() && !promised
    }

    /// Reserves a place for a sender that was invited.
    pub(crate) fn reserve_invited(&mut self, me: Option<WaiterRef>) -> Outcome {
        match self.reserve(me) {
            Outcome::Pending if self.may_invite() => {
                self.promise(true);
                Outcome::Done
            }
            reserved => reserved,
        }
    }

    /// Sends the value at `value`, for a caller that does not wait. On a rendezvous the value is left for a receiver that waits but cannot
    /// be handed it: a future, which takes it when it is polled, or a waiter that only observes.
    ///
    /// # Safety
    /// As [`offer`](Self::offer).
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn offer_or_leave(&mut self, value: *const T) -> Try {
        // SAFETY: passed on.
        match unsafe { self.offer(value, None) } {
            // SAFETY: passed on; it is the channel's once.
            (Outcome::Pending, _) if unsafe { self.leave(value, None) } => (Outcome::Done, None),
            offered => offered,
        }
    }

    /// Leaves the value at `value` for a receiver other than `me` that waits and cannot be handed it, if there is one.
    ///
    /// # Safety
    /// `value` points to a `T`, which is the channel's if the answer is true.
    pub(super) unsafe fn leave(&mut self, value: *const T, me: Option<WaiterRef>) -> bool {
        if !self.can_leave(me) {
            return false;
        }
        // SAFETY: see the impl.
        let mut next = unsafe { self.receivers.front() };
        while let Some(receiver) = next {
            // SAFETY: see the impl.
            next = unsafe { self.receivers.after(receiver) };
            let is_left_to = receiver.role.get() != Role::Fill && !receiver.is_of(me);
            if is_left_to && self.finish(Self::the_receivers, receiver, Outcome::Retry) {
                // SAFETY: the contract.
                self.buffer.push_back(unsafe { value.read() });
                // A waiter that only observes need not take the value: the other waiters are told too.
                if !seeded_bug("channel_left_untold") {
                    self.settle();
                }
                return true;
            }
        }
        false
    }

    // ---- Closing --------------------------------------------------------------------------------------------------------

    /// The channel is closed: ends the waits of receivers for which nothing is left.
    fn end_receivers(&mut self) {
        // SAFETY: see the impl.
        let mut next = unsafe { self.receivers.front() };
        while let Some(node) = next {
            // SAFETY: see the impl.
            next = unsafe { self.receivers.after(node) };
            if self.is_exhausted_for(Some(node.target().0)) {
                self.finish(Self::the_receivers, node, Outcome::Closed);
            }
        }
    }

    /// Closes the channel: no send is admitted any more. `by`: that side counts as gone. `now`: parked senders get their values back.
    /// False: it was closed before.
    pub(super) fn close(&mut self, by: Side, reason: &CloseReason, now: bool) -> bool {
        let first = !self.closed;
        self.closed = true;
        self.always |= hint::RECV | hint::SEND;
        let closing = self.rare().closing.get_or_insert_default();
        closing.first.get_or_insert_with(|| reason.clone());
        let gone = match by {
            Side::Senders => &mut closing.senders,
            Side::Receivers => &mut closing.receivers,
        };
        gone.get_or_insert_with(|| reason.clone());
        let (bit, watch): (u8, fn(&mut Self) -> &WaitList) = match by {
            Side::Senders => (hint::SENDERS_GONE, |state| &state.rare().receiver_watch),
            Side::Receivers => (hint::RECEIVERS_GONE, |state| &state.rare().sender_watch),
        };
        self.always |= bit;
        // SAFETY: see the impl.
        while let Some(node) = unsafe { watch(self).front() } {
            self.finish(watch, node, Outcome::Done);
        }
        // SAFETY: see the impl.
        let mut next = unsafe { self.senders.front() };
        while let Some(node) = next {
            // SAFETY: see the impl.
            next = unsafe { self.senders.after(node) };
            if now || node.role.get() != Role::Take {
                self.finish(Self::the_senders, node, Outcome::Closed);
            }
        }
        if !seeded_bug("channel_close_keeps_receivers") {
            self.settle();
        }
        first
    }
}
