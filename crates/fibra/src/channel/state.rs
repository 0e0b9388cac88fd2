//! The state that a channel's lock guards: the buffer, the waiters at both ends, and whether it is closed; and how a value goes from a
//! sender to a receiver.
//!
//! Below: the nodes and claims of `wait`. Above: `chan` holds the lock, `sender`, `receiver`, `future` and `select` bring the waits.
//!
//! The [`Role`] of a waiter's node says what the waiter wants; the thread that completes the wait says with an [`Outcome`] how it ended:
//!
//! | list | role | slot | what completing it means |
//! |---|---|---|---|
//! | receivers | FILL | where the value goes | the value is there |
//! | receivers, senders | CALL | | a future: nothing moved; it looks again when polled, or passes the notification on when dropped |
//! | receivers, senders | OBSERVE | | nothing moved and nothing is owed: the waiter only asked whether it could (`ready`) |
//! | senders | TAKE | where the value lies | the value was taken |
//! | senders | GRANT | | one place was reserved for it |
//!
//! (A sending CALL may also be INVITED, by a receiver that looked.)
//!
//! Order (S4-73, S4-74): a send goes to a waiting receiver, else into the buffer, else it parks; a receive takes from the buffer, else from
//! a waiting sender, else it parks. Both lists are FIFO. On a rendezvous, a caller that does not wait, and finds only waiters that cannot
//! be served where they wait, leaves something for them: see "Callers that look" in `settle` (decision 42). No user code runs in here:
//! dropped values and wakers go into an [`Aftermath`](super::rare::Aftermath), which the thread that unlocks drops and calls.
//!
//! Invariants, whenever the lock is free:
//! * a FILL waits only if the buffer is empty, a TAKE only if there is no room. The exception is a value or a place that a reservation, or
//!   a future that was notified, holds back until it is used or given up, which settles the channel;
//! * `reserved` places belong to their permits: they count as taken for every other sender;
//! * closed means that nothing is admitted; what was admitted before stays deliverable (C-23).

use std::task::Waker;

use super::rare::Rare;
use super::reason::{CloseReason, Side};
use super::ring::Ring;
use super::spot::Spot;
use super::timed::Timed;
use crate::prim::bug::seeded_bug;
use crate::wait::wake::{self, QueueEnd};
use crate::waiter::node::{Node, Outcome, Role, WaitList, WaiterRef};
use crate::waiter::record::Claimed;

/// Hints on what may be possible without waiting. Written under the lock; read without it to decide whether a try is worth the lock. A
/// blocking operation that trusts a "no" looks again under the lock before it parks; a `try_` operation never answers from a hint alone.
pub(crate) mod hint {
    pub(crate) const RECV: u8 = 1;
    pub(crate) const SEND: u8 = 2;
    pub(crate) const SENDERS_GONE: u8 = 4;
    pub(crate) const RECEIVERS_GONE: u8 = 8;
    /// A rendezvous that is open, without reservations, policy or clock, and with nothing in its buffer: a value goes from stack to
    /// stack, or its sender waits. Asked under the lock; see `hot`.
    pub(crate) const PLAIN: u8 = 16;
    /// The same with a buffer, which is empty: a receiver that waits gets the next value from stack to stack. (There is room, so SEND holds
    /// whether one waits or not.) Asked under the lock.
    pub(crate) const DIRECT: u8 = 32;
    /// The buffer is empty and far larger than an empty one should be: a thread that sees that, and holds no lock, takes it away.
    pub(crate) const SPARE: u8 = 64;
}

/// Bytes of buffer that a channel without a bound keeps when it is empty. What a flood needed beyond that is freed with its last message,
/// and amortised by the flood. (With a bound the program has said how much there may be, and counts on sends that allocate nothing.)
const KEPT_BYTES: usize = 64 << 10;

/// A waiter whose wait was just completed: to be set going when the lock is free.
#[derive(Debug)]
#[must_use = "the peer sleeps until it is set going"]
pub(crate) struct Peer(Claimed);

impl Peer {
    /// Completes the wait of `node`, which was just unlinked, as `outcome`, unless it is completed already.
    #[inline(always)]
    pub(super) fn claim(node: &Node, outcome: Outcome) -> Option<Self> {
        let (waiter, ticket, arm) = node.target();
        let claimed = Claimed::of(waiter, ticket, arm)?;
        node.outcome.set(outcome);
        Some(Self(claimed.marked(node.several.get())))
    }

    /// One of several arms wakes behind what is ready; the partner of a hand-over runs next.
    #[inline(always)]
    fn place(&self) -> QueueEnd {
        if self.0.is_marked() { QueueEnd::Tail } else { QueueEnd::Next }
    }

    /// Sets the waiter going. The caller does so at once: before any user code and before it may suspend, because a waiter that withdraws a
    /// claimed wait meanwhile waits for this. (No user code runs in here, so it may be done under a lock.) Returns a waker to be called
    /// when no lock is held and outside PARKING.
    #[must_use]
    #[inline(always)]
    pub(crate) fn make_runnable(self) -> Option<Waker> {
        let place = self.place();
        wake::make_runnable(self.0, place)
    }
}

/// A [`Peer`] that is a fiber and was parked, as most are: claimed by one compare-exchange, and set going without a release. (In a model
/// it is a thread that waits: there it is claimed and set going in the general way.)
#[derive(Debug)]
#[must_use = "the peer sleeps until it is set going"]
pub(super) struct ParkedPeer(Claimed, QueueEnd);

impl ParkedPeer {
    /// Completes the wait of `node`, which is still linked. `None`: it is no such wait, or not any more; nothing was changed.
    ///
    /// # Safety
    /// The node is in a list of a channel: such a one stands for a wait.
    #[inline(always)]
    pub(super) unsafe fn claim(node: &Node, outcome: Outcome) -> Option<Self> {
        // SAFETY: the contract.
        let (waiter, ticket, arm) = unsafe { node.target_of_wait() };
        let claimed = if cfg!(any(loom, shuttle)) {
            Claimed::of(waiter, ticket, arm)?
        } else {
            Claimed::of_parked(waiter, ticket, arm)?
        };
        node.outcome.set(outcome);
        Some(Self(claimed, if node.several.get() { QueueEnd::Tail } else { QueueEnd::Next }))
    }

    /// Sets the fiber going. Called where no lock is held and user code may run.
    #[inline(always)]
    pub(super) fn make_runnable(self) {
        #[cfg(not(any(loom, shuttle)))]
        wake::make_parked_runnable(self.0, self.1);
        #[cfg(any(loom, shuttle))]
        if let Some(waker) = wake::make_runnable(self.0, self.1) {
            wake::call_waker(waker);
        }
    }
}

/// The result of a try under the lock: its outcome, and the waiter whose wait it completed, to be set going when the lock is free.
pub(crate) type Try = (Outcome, Option<Peer>);

/// What to do with a value for which there is no room.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Overflow {
    /// The sender waits.
    #[default]
    Block,
    /// The new value is dropped.
    DropNewest,
    /// The oldest value in the buffer is dropped to make room. (If all places are reserved by permits, the new value is dropped instead.)
    DropOldest,
}

/// See the header.
#[derive(Debug)]
pub(crate) struct ChanState<T> {
    pub(super) buffer: Ring<T>,
    pub(crate) receivers: WaitList,
    pub(crate) senders: WaitList,
    /// Not more than this; 0 is a rendezvous, `usize::MAX` no bound.
    pub(super) capacity: usize,
    pub(super) reserved: usize,
    /// One of these places was promised because a receiver looked, and no receiver waits for it: at most one at a time. See
    /// [`ChanState::invite`].
    pub(super) looked: bool,
    /// How many lengths of the buffer, from 1 on, are such that the buffer is neither empty nor full, both before and after a push. 0 if a
    /// push or a pop concerns more than the buffer: a waiter is at one of the ends, or nothing is admitted. At such lengths a push leaves
    /// the hints as they are, and so does the pop that undoes it. Kept by [`ChanState::refresh`].
    /// (A longer buffer counts as one of 2^32.)
    pub(super) easy: u32,
    /// Hints that hold for good: closed, gone, timed, never full.
    pub(super) always: u8,
    pub(super) closed: bool,
    /// The last receiver was dropped: nothing can be delivered any more.
    pub(super) abandoned: bool,
    /// What few channels have; see [`ChanState::rare`].
    pub(super) rare: Option<Box<Rare<T>>>,
}

// SAFETY (all blocks of this impl): `&mut ChanState` is only had under the channel's lock, and nodes in its lists are alive until they are
// unlinked under that lock; a node that was just unlinked stays alive until its claimed wait is set going, which is what `Peer` is for. A
// lost claim leaves the node alone: its owner waits for the lock to unlink it, and finds that done. The slot of a FILL is memory for a
// `T` that is written once, the slot of a TAKE holds a `T` that is read once: by the thread that claimed the wait.
impl<T> ChanState<T> {
    /// The rare parts, made now if the channel had none.
    #[cold]
    pub(super) fn rare(&mut self) -> &mut Rare<T> {
        self.rare.get_or_insert_with(|| Rare::new(Overflow::Block, None))
    }

    /// What to do with a value for which there is no room.
    #[inline(always)]
    pub(super) fn overflow(&self) -> Overflow {
        self.rare.as_ref().map_or(Overflow::Block, |rare| rare.overflow)
    }

    /// The clock that feeds it, if one does.
    pub(super) fn timed(&self) -> Option<&Timed<T>> {
        self.rare.as_ref().and_then(|rare| rare.timed.as_ref())
    }

    #[inline(always)]
    pub(super) fn has_room(&self) -> bool {
        self.buffer.len().saturating_add(self.reserved) < self.capacity
    }

    /// The hints that hold now. A thread that changed more than the buffer calls it before it unlocks.
    #[inline(always)]
    pub(super) fn refresh(&mut self) -> u8 {
        let recv = if self.senders.is_empty() { 0 } else { hint::RECV };
        let send = if self.receivers.is_empty() { 0 } else { hint::SEND };
        if self.capacity == 0 && self.buffer.is_empty() {
            let plain = if self.always == 0 && self.reserved == 0 { hint::PLAIN } else { 0 };
            return self.always | recv | send | plain;
        }
        self.refresh_buffered(recv | send)
    }

    /// Not inlined: that would cost the hot paths their registers.
    #[inline(never)]
    fn refresh_buffered(&mut self, waiting: u8) -> u8 {
        let room = self.capacity.saturating_sub(self.reserved);
        let len = self.buffer.len();
        let alone = (waiting == 0 || seeded_bug("channel_easy_beside_waiters")) && !self.closed;
        let easy = room.min(self.buffer.capacity()).saturating_sub(2);
        self.easy = if alone { u32::try_from(easy).unwrap_or(u32::MAX) } else { 0 };
        let mut hints = self.always | waiting;
        if len == 0 {
            let is_open = self.always & !hint::SEND == 0 && !self.closed;
            if is_open && self.reserved == 0 && waiting & hint::RECV == 0 {
                hints |= hint::DIRECT;
            }
            if self.is_spare() {
                hints |= hint::SPARE;
            }
        } else {
            hints |= hint::RECV;
        }
        if len < room {
            hints |= hint::SEND;
        }
        hints
    }

    fn is_spare(&self) -> bool {
        let bytes = self.buffer.capacity().saturating_mul(size_of::<T>());
        self.capacity == usize::MAX && self.buffer.is_empty() && bytes > KEPT_BYTES
    }

    /// Takes the memory of a buffer that is [`hint::SPARE`] out, to be freed without the lock.
    pub(super) fn take_spare(&mut self) -> Ring<T> {
        if self.is_spare() { std::mem::take(&mut self.buffer) } else { Ring::new() }
    }

    /// May a value simply be pushed, and the hints stay? See [`ChanState::easy`].
    #[inline(always)]
    pub(super) fn is_push_easy(&self) -> bool {
        self.buffer.len().wrapping_sub(1) < self.easy as usize
    }

    /// May a value simply be popped, and the hints stay?
    #[inline(always)]
    pub(super) fn is_pop_easy(&self) -> bool {
        self.buffer.len().wrapping_sub(2) < self.easy as usize
    }

    /// Closed, and nothing that was admitted is left.
    fn is_exhausted(&self) -> bool {
        let reserved = self.reserved != 0 && !seeded_bug("channel_permit_uncounted");
        self.closed && self.buffer.is_empty() && !reserved && self.senders.is_empty()
    }

    /// The same for a waiter at both ends: it cannot receive what it would send itself.
    pub(super) fn is_exhausted_for(&self, me: Option<WaiterRef>) -> bool {
        if !self.closed {
            return false;
        }
        self.is_exhausted()
            || me.is_some() && self.buffer.is_empty() && self.reserved == 0 && {
                // SAFETY: see the impl.
                let mut next = unsafe { self.senders.front() };
                while let Some(node) = next
                    && node.is_of(me)
                {
                    // SAFETY: see the impl.
                    next = unsafe { self.senders.after(node) };
                }
                next.is_none()
            }
    }

    // ---- Receiving ------------------------------------------------------------------------------------------------------

    /// Receives into `slot`, as `me` (whose own nodes are passed over).
    ///
    /// # Safety
    /// `slot` is valid for writing a `T`.
    #[inline(always)]
    pub(crate) unsafe fn take(&mut self, slot: *mut T, me: Option<WaiterRef>) -> Try {
        if let Some(value) = self.buffer.pop_front() {
            // SAFETY: the contract.
            unsafe { slot.write(value) };
            return (Outcome::Done, if self.senders.is_empty() { None } else { self.refill() });
        }
        if !self.senders.is_empty()
            // SAFETY: the contract, passed on.
            && let Some(peer) = unsafe { self.take_from_sender(slot, me) }
        {
            return (Outcome::Done, peer);
        }
        // SAFETY: as above.
        unsafe { self.take_nothing(slot, me) }
    }

    #[inline(always)]
    unsafe fn take_from_sender(&mut self, slot: *mut T, me: Option<WaiterRef>) -> Option<Option<Peer>> {
        // SAFETY: see the impl.
        let mut next = unsafe { self.senders.front() };
        let mut passed_over = false;
        while let Some(node) = next {
            // SAFETY: see the impl.
            next = unsafe { self.senders.after(node) };
            if node.role.get() != Role::Take || node.is_of(me) {
                passed_over |= node.role.get() != Role::Observe;
            } else {
                // SAFETY: see the impl.
                unsafe { self.senders.remove(node) };
                let peer = Peer::claim(node, Outcome::Done);
                if peer.is_some() || seeded_bug("channel_take_unclaimed") {
                    // SAFETY: the value of a TAKE that we claimed, and the slot of the caller: moved once, straight from stack to stack.
                    unsafe { slot.copy_from_nonoverlapping(node.slot.get().cast::<T>(), 1) };
                    // Senders that wait for a place before they have a value would be passed over for ever by senders that have one.
                    if passed_over {
                        self.invite();
                    }
                    return Some(peer);
                }
            }
        }
        None
    }

    #[cold]
    unsafe fn take_nothing(&mut self, slot: *mut T, me: Option<WaiterRef>) -> Try {
        if let Some(timed) = self.rare.as_mut().and_then(|rare| rare.timed.as_mut())
            && let Some(value) = timed.take_due()
        {
            // SAFETY: the contract of `take`.
            unsafe { slot.write(value) };
            if timed.is_spent() {
                self.close(Side::Senders, &CloseReason::Dropped, false);
            }
            return (Outcome::Done, None);
        }
        (if self.is_exhausted_for(me) { Outcome::Closed } else { Outcome::Pending }, None)
    }

    /// A place became free and senders wait: the oldest one gets it.
    #[inline]
    fn refill(&mut self) -> Option<Peer> {
        // SAFETY: see the impl.
        while let Some(node) = unsafe { self.senders.front() }
            && self.has_room()
        {
            if node.role.get() != Role::Take {
                self.settle();
                return None;
            }
            // SAFETY: see the impl.
            unsafe { self.senders.remove(node) };
            if let Some(peer) = Peer::claim(node, Outcome::Done) {
                // SAFETY: see the impl.
                self.buffer.push_back(unsafe { node.slot.get().cast::<T>().read() });
                if !self.receivers.is_empty() {
                    self.settle();
                }
                return Some(peer);
            }
        }
        None
    }

    // ---- Sending --------------------------------------------------------------------------------------------------------

    /// Sends the value at `value`, as `me`. `Retry`: there is room, but the buffer has to be made larger first; see [`ChanState::grow_to`].
    ///
    /// # Safety
    /// `value` points to a `T`, which is the channel's if the answer is `Done`, and the caller's otherwise.
    #[inline]
    pub(crate) unsafe fn offer(&mut self, value: *const T, me: Option<WaiterRef>) -> Try {
        if self.closed {
            return (Outcome::Closed, None);
        }
        // SAFETY: see the impl.
        while let Some(node) = unsafe { self.receivers.front() } {
            if node.role.get() != Role::Fill || self.reserved != 0 || node.is_of(me) {
                // SAFETY: passed on.
                return unsafe { self.offer_slowly(value, me) };
            }
            // SAFETY: see the impl.
            unsafe { self.receivers.remove(node) };
            if let Some(peer) = Peer::claim(node, Outcome::Done) {
                // SAFETY: passed on.
                if unsafe { self.fill(node, value) } {
                    return (Outcome::Done, Some(peer));
                }
                self.make_peer_runnable(peer);
            }
        }
        // SAFETY: passed on.
        unsafe { self.offer_to_buffer(value) }
    }

    /// Gives a claimed FILL its value: this one, or an older one, behind which this one then queues. False: there is no room for that (the
    /// older one was over the bound, as in a rendezvous it always is), so this one is the caller's still.
    #[inline(always)]
    unsafe fn fill(&mut self, node: &Node, value: *const T) -> bool {
        let slot = node.slot.get().cast::<T>();
        let Some(older) = self.buffer.pop_front() else {
            // SAFETY: the slot of a FILL that the caller claimed; the value is the channel's now.
            unsafe { slot.copy_from_nonoverlapping(value, 1) };
            return true;
        };
        // SAFETY: as above.
        unsafe { slot.write(older) };
        let room = self.has_room();
        if room {
            // SAFETY: the value is the channel's now.
            self.buffer.push_back(unsafe { value.read() });
        }
        room
    }

    #[inline(always)]
    unsafe fn offer_to_buffer(&mut self, value: *const T) -> Try {
        if !self.has_room() {
            if self.overflow() == Overflow::Block {
                return (Outcome::Pending, None);
            }
            // SAFETY: passed on.
            return unsafe { self.evict(value) };
        }
        if self.buffer.len() == self.buffer.capacity() {
            return (Outcome::Retry, None);
        }
        // SAFETY: the contract of `offer`.
        self.buffer.push_back(unsafe { value.read() });
        (Outcome::Done, None)
    }

    /// Sends where the oldest waiting receiver cannot simply be filled.
    #[cold]
    #[inline(never)]
    unsafe fn offer_slowly(&mut self, value: *const T, me: Option<WaiterRef>) -> Try {
        if self.has_room() {
            // SAFETY: the contract of `offer`.
            self.buffer.push_back(unsafe { value.read() });
            self.settle();
            return (Outcome::Done, None);
        }
        // In a rendezvous, senders that have reserved a receiver come first.
        if self.capacity > 0 || self.waiting_receivers(me) > self.spoken_for() {
            // SAFETY: see the impl.
            let mut next = unsafe { self.receivers.front() };
            while let Some(node) = next {
                // SAFETY: see the impl.
                next = unsafe { self.receivers.after(node) };
                if node.role.get() == Role::Fill && !node.is_of(me) {
                    // SAFETY: see the impl.
                    unsafe { self.receivers.remove(node) };
                    if let Some(peer) = Peer::claim(node, Outcome::Done) {
                        // SAFETY: passed on.
                        if unsafe { self.fill(node, value) } {
                            return (Outcome::Done, Some(peer));
                        }
                        self.make_peer_runnable(peer);
                    }
                }
            }
        }
        if self.overflow() == Overflow::Block {
            return (Outcome::Pending, None);
        }
        // SAFETY: passed on; it is the channel's once.
        unsafe { if self.leave(value, me) { (Outcome::Done, None) } else { self.evict(value) } }
    }

    /// There is no room, and the overflow policy says that the sender does not wait for any.
    #[cold]
    unsafe fn evict(&mut self, value: *const T) -> Try {
        // SAFETY: the contract of `offer`: `Done` is what we answer.
        let mut value = unsafe { value.read() };
        if self.overflow() == Overflow::DropOldest
            && let Some(oldest) = self.buffer.pop_front()
        {
            self.buffer.push_back(std::mem::replace(&mut value, oldest));
        }
        self.aftermath().evicted.push_back(value);
        (Outcome::Done, None)
    }

    /// Makes the buffer larger under the lock: for a caller that cannot let the lock go, such as a select that has locked several channels.
    pub(crate) fn make_room(&mut self) {
        self.buffer.reserve_one();
    }

    /// Room for more, in memory that was allocated without the lock. Returns what is to be freed without it.
    pub(super) fn grow_to(&mut self, mut larger: Ring<T>) -> Ring<T> {
        if larger.capacity() > self.buffer.capacity() {
            larger.take_all(&mut self.buffer);
            std::mem::swap(&mut self.buffer, &mut larger);
        }
        larger
    }

    // ---- For select -----------------------------------------------------------------------------------------------------

    /// Does this hint hold for good?
    pub(crate) fn has(&self, hint: u8) -> bool {
        self.always & hint != 0
    }

    /// Would a receive succeed now, or answer that the channel is closed?
    pub(crate) fn is_ready_to_take(&self, me: Option<WaiterRef>) -> bool {
        if !self.buffer.is_empty() || self.is_exhausted_for(me) || self.timed().is_some_and(|timed| timed.is_due()) {
            return true;
        }
        self.has_sender_with_value(me)
    }

    /// Does a sender other than `me` wait with a value?
    pub(super) fn has_sender_with_value(&self, me: Option<WaiterRef>) -> bool {
        // SAFETY: see the impl.
        let mut next = unsafe { self.senders.front() };
        while let Some(node) = next {
            if node.role.get() == Role::Take && !node.is_of(me) {
                return true;
            }
            // SAFETY: see the impl.
            next = unsafe { self.senders.after(node) };
        }
        false
    }

    /// A value that was received and not wanted after all is the next one again.
    pub(crate) fn put_back(&mut self, value: T) {
        self.buffer.push_front(value);
        self.settle();
    }

    // ---- Reservations ---------------------------------------------------------------------------------------------------

    /// Reserves a place, if there is one.
    pub(crate) fn reserve(&mut self, me: Option<WaiterRef>) -> Outcome {
        if self.closed {
            return Outcome::Closed;
        }
        if !self.can_reserve(me) {
            return Outcome::Pending;
        }
        self.reserved += 1;
        Outcome::Done
    }

    /// A place that was reserved is not needed any more, or is about to be used.
    pub(crate) fn unreserve(&mut self) {
        // All senders may be gone (a permit was forgotten), and the count with them.
        self.reserved = self.reserved.saturating_sub(1);
        // It is not known which reservation this was. If it was the one of a look, a value may be left over for the next receiver; to
        // assume that could keep a sender and a receiver apart for as long as the other reservation is held.
        self.looked &= self.reserved != 0;
    }

    /// Sends to a place that was reserved. False: the receivers are gone, and the value is still the caller's.
    ///
    /// # Safety
    /// `value` points to a `T`, which is the channel's if the answer is true.
    pub(crate) unsafe fn send_reserved(&mut self, value: *const T) -> bool {
        self.unreserve();
        if self.abandoned {
            return false;
        }
        if self.overflow() != Overflow::Block {
            // With an overflow policy every sender is promised a place, so there may be none: the policy decides, as for any other send.
            // SAFETY: the contract.
            unsafe { self.send_by_policy(value) };
            return true;
        }
        // In a rendezvous whose receiver has gone elsewhere this is one more than the capacity: the value waits here for the next receiver.
        // SAFETY: the contract.
        self.buffer.push_back(unsafe { value.read() });
        self.settle();
        true
    }

    /// Sends where senders do not wait: there is room, or a value is dropped.
    ///
    /// # Safety
    /// `value` points to a `T`, which is the channel's afterwards.
    #[cold]
    unsafe fn send_by_policy(&mut self, value: *const T) {
        loop {
            // SAFETY: the contract; it is the channel's once.
            match unsafe { self.offer(value, None) } {
                (Outcome::Done, peer) => {
                    if let Some(peer) = peer {
                        self.make_peer_runnable(peer);
                    }
                    break;
                }
                (Outcome::Retry, _) => self.make_room(),
                // The reservation was admitted before the close.
                _ => {
                    // SAFETY: the contract.
                    unsafe {
                        if self.has_room() {
                            self.buffer.push_back(value.read());
                        } else {
                            let _done = self.evict(value);
                        }
                    }
                    break;
                }
            }
        }
        self.settle();
    }

    // ---- Parking --------------------------------------------------------------------------------------------------------

    /// Links a receiver that found nothing. Senders without a value (they wait for a receiver to come) are told.
    ///
    /// # Safety
    /// The node is prepared, linked nowhere, and stays where it is until it is unlinked.
    #[inline]
    pub(crate) unsafe fn link_receiver(&mut self, node: &Node, spot: Spot) {
        // SAFETY: passed on; the lock is held.
        unsafe { spot.link(&self.receivers, node) };
        if !self.senders.is_empty() {
            self.settle();
        }
    }

    /// Links a sender that found no room. Receivers that cannot be filled (futures) are told.
    ///
    /// # Safety
    /// As [`link_receiver`](Self::link_receiver).
    #[inline]
    pub(crate) unsafe fn link_sender(&mut self, node: &Node, spot: Spot) {
        // SAFETY: passed on; the lock is held.
        unsafe { spot.link(&self.senders, node) };
        if !self.receivers.is_empty() {
            self.settle();
        }
    }
}
