//! The channel itself: the lock, the hints beside it, the two counted sides, and the life of the whole.
//!
//! Above: `sender`, `receiver` and the operations of `waits`. Below: `state` (what the lock guards), `ring`, `prim::home_lock`.
//!
//! Invariants: both kinds of handle point here, and the memory is freed by the later of the two sides (S0-33). Only this module and
//! `state` touch what the lock guards.

use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::ptr::NonNull;
use std::task::Waker;

use super::order;
use super::rare::{Aftermath, Closing, Rare};
use super::reason::{CloseReason, Side};
use super::ring::Ring;
use super::state::{ChanState, Overflow, Peer, hint};
use super::timed::Timed;
use crate::cancel::is_unwinding;
#[cfg(not(any(loom, shuttle)))]
use crate::monitor::objects::{self, Asked, ChannelFacts, Link};
use crate::prim::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::cell::UnsafeCell;
use crate::prim::home_lock::HomeLock;
use crate::prim::{FirstPanic, discard_payload};
use crate::wait::park::lane;
use crate::wait::wake;
use crate::waiter::node::{Node, Outcome, WaitList};

/// Buffers up to this many bytes are allocated with the channel; larger ones grow as they fill.
const EAGER_BYTES: usize = 4096;
/// The first buffer of one that grows.
const FIRST_GROWN: usize = 32;

/// Called with what an overflow policy dropped.
type OnOverflow<T> = Box<dyn Fn(T) + Send + Sync>;

/// See the header.
pub(crate) struct Chan<T> {
    pub(super) lock: HomeLock,
    pub(super) hints: AtomicU8,
    /// Unique, ascending: the lock order.
    id: u64,
    pub(super) state: UnsafeCell<ChanState<T>>,
    /// Handles per side.
    senders: AtomicU32,
    receivers: AtomicU32,
    /// Sides that still have a handle.
    sides: AtomicU8,
    bounded: bool,
    is_timed: bool,
    is_never: bool,
    /// What the builder was told, if it was.
    told: Option<Box<Told<T>>>,
    /// By which a report finds it. (Models have no registry.)
    #[cfg(not(any(loom, shuttle)))]
    link: Link,
    /// Where it was made.
    #[cfg(not(any(loom, shuttle)))]
    site: &'static Location<'static>,
}

// One for each of a million fibers: 176 bytes of the C library's memory, not 288.
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Chan<u64>>() <= 168);

/// What few channels are given, and what belongs to it.
struct Told<T> {
    on_overflow: Option<OnOverflow<T>>,
    name: Option<Box<str>>,
    /// Values that an overflow policy has dropped.
    dropped: AtomicU64,
}

// SAFETY: everything but the state is atomic or never changes; the state is only touched under the lock, and moves `T`s between threads.
unsafe impl<T: Send> Sync for Chan<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Chan<T> {}

/// How a channel is built.
pub(crate) struct Plan<T> {
    pub(super) capacity: Option<usize>,
    pub(super) overflow: Overflow,
    pub(super) on_overflow: Option<OnOverflow<T>>,
    pub(super) name: Option<Box<str>>,
    pub(super) timed: Option<Timed<T>>,
    /// Are there senders at all?
    pub(super) senders: bool,
    /// Where it is made.
    pub(super) site: &'static Location<'static>,
}

impl<T> Plan<T> {
    #[track_caller]
    pub(super) fn new(capacity: Option<usize>) -> Self {
        let site = Location::caller();
        Self { capacity, overflow: Overflow::Block, on_overflow: None, name: None, timed: None, senders: true, site }
    }
}

impl<T> Chan<T> {
    pub(super) fn new(plan: Plan<T>) -> NonNull<Self> {
        let capacity = plan.capacity.unwrap_or(usize::MAX);
        let eager = capacity.checked_mul(size_of::<T>()).is_some_and(|bytes| bytes <= EAGER_BYTES);
        let always = if plan.timed.is_some() { hint::RECV } else { 0 }
            | if plan.overflow == Overflow::Block { 0 } else { hint::SEND };
        let is_timed = plan.timed.is_some();
        let has_policy = plan.overflow != Overflow::Block;
        let is_told = has_policy || plan.on_overflow.is_some() || plan.name.is_some();
        let told = || Box::new(Told { on_overflow: plan.on_overflow, name: plan.name, dropped: AtomicU64::new(0) });
        let mut state = ChanState {
            buffer: if eager { Ring::with_capacity(capacity) } else { Ring::new() },
            receivers: WaitList::new(),
            senders: WaitList::new(),
            capacity,
            reserved: 0,
            looked: false,
            easy: 0,
            always,
            closed: false,
            abandoned: false,
            rare: (is_timed || has_policy).then(|| Rare::new(plan.overflow, plan.timed)),
        };
        let hints = state.refresh();
        let id = order::next_id();
        let chan = Self {
            lock: HomeLock::new(),
            hints: AtomicU8::new(hints),
            id,
            state: UnsafeCell::new(state),
            senders: AtomicU32::new(1),
            receivers: AtomicU32::new(1),
            sides: AtomicU8::new(if plan.senders { 2 } else { 1 }),
            bounded: plan.capacity.is_some(),
            is_timed,
            is_never: !plan.senders && !is_timed,
            told: is_told.then(told),
            #[cfg(not(any(loom, shuttle)))]
            link: Link::new(Self::describe),
            #[cfg(not(any(loom, shuttle)))]
            site: plan.site,
        };
        let chan = NonNull::from(Box::leak(Box::new(chan)));
        #[cfg(not(any(loom, shuttle)))]
        if plan.senders {
            // SAFETY: a new channel, whose memory is freed only after `unlist`. (The address of a field.)
            unsafe { objects::add(&raw const (*chan.as_ptr()).link, id) };
        }
        chan
    }

    /// What it says of itself in a report; nothing if only unbounded channels are asked, and it is none.
    ///
    /// # Safety
    /// `link` is that of a channel of this type, which is there.
    #[cfg(not(any(loom, shuttle)))]
    unsafe fn describe(link: *const Link, asked: Asked) -> Option<ChannelFacts> {
        // SAFETY: the caller's promise: the channel is around its link.
        let chan = unsafe { &*link.byte_sub(mem::offset_of!(Self, link)).cast::<Self>() };
        if asked == Asked::Unbounded && chan.bounded {
            return None;
        }
        order::enter(chan.id);
        let look = chan.lock.lock_to_look(lane());
        // SAFETY: the lock is held.
        let (len, capacity, closed) =
            chan.state.with(|state| unsafe { ((*state).buffer.len(), (*state).capacity, (*state).closed) });
        chan.lock.end_look(look);
        order::leave();
        Some(ChannelFacts {
            id: chan.id,
            address: std::ptr::from_ref(chan).addr(),
            name: chan.name().map(Box::from),
            site: chan.site,
            capacity: chan.bounded.then_some(capacity),
            len,
            // Relaxed, both: a picture of a moving thing.
            senders: chan.senders.load(Ordering::Relaxed) as usize,
            receivers: chan.receivers.load(Ordering::Relaxed) as usize,
            closed,
        })
    }

    /// Before its memory goes.
    #[cfg(not(any(loom, shuttle)))]
    fn unlist(&self) {
        let is_listed = !self.is_timed && !self.is_never;
        if is_listed {
            // SAFETY: it was listed when it was made, and its memory goes once.
            unsafe { objects::remove(&self.link, self.id) };
        }
    }

    /// A channel that has no senders: only its receivers' side is counted.
    #[track_caller]
    pub(super) fn without_senders(capacity: usize) -> NonNull<Self> {
        Self::new(Plan { senders: false, ..Plan::new(Some(capacity)) })
    }

    #[track_caller]
    pub(super) fn timed(timed: Timed<T>) -> NonNull<Self> {
        Self::new(Plan { senders: false, timed: Some(timed), ..Plan::new(Some(1)) })
    }

    #[inline(always)]
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.told.as_ref().and_then(|told| told.name.as_deref())
    }

    /// How many values an overflow policy has dropped.
    pub(super) fn dropped(&self) -> u64 {
        // Relaxed: a number.
        self.told.as_ref().map_or(0, |told| told.dropped.load(Ordering::Relaxed))
    }

    pub(crate) fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// Made by `never()`?
    pub(super) fn is_never(&self) -> bool {
        self.is_never
    }

    /// When the next value of a channel that time feeds is due.
    pub(crate) fn timed_deadline(&self) -> Option<u64> {
        let mut locked = self.lock();
        let deadline = locked.state().timed().and_then(Timed::deadline);
        locked.unlock();
        deadline
    }

    pub(super) fn capacity(&self) -> Option<usize> {
        self.bounded.then(|| self.lock().state().capacity)
    }

    /// See [`hint`].
    #[inline(always)]
    pub(crate) fn hints(&self) -> u8 {
        // Relaxed: a hint. A caller that acts on a "no" looks again under the lock; what happened before is seen by coherence.
        self.hints.load(Ordering::Relaxed)
    }

    /// The word they are in.
    pub(crate) fn hint_word(&self) -> &AtomicU8 {
        &self.hints
    }

    // ---- The lock -------------------------------------------------------------------------------------------------------

    #[inline(always)]
    pub(crate) fn lock(&self) -> Locked<'_, T> {
        self.lock_raw();
        Locked { chan: self }
    }

    /// Locks without a guard, for a select that holds many: [`Chan::held`] and a guard's `unlock` end it.
    #[inline(always)]
    pub(crate) fn lock_raw(&self) {
        order::enter(self.id);
        self.lock.lock(lane());
    }

    /// The guard of a lock that was taken by [`lock_raw`](Self::lock_raw).
    ///
    /// # Safety
    /// The caller holds the lock, and has no other guard of it.
    pub(crate) unsafe fn held(&self) -> Locked<'_, T> {
        Locked { chan: self }
    }

    /// For a receiver that has received, and holds no lock: was it the last message of a backlog?
    #[inline(always)]
    pub(crate) fn free_if_spare(&self) {
        if self.hints() & hint::SPARE != 0 {
            self.free_spare();
        }
    }

    /// Frees the memory of a buffer that was emptied, without the lock.
    #[cold]
    #[inline(never)]
    fn free_spare(&self) {
        let mut locked = self.lock();
        let unused = locked.state().take_spare();
        locked.unlock();
        drop(unused);
    }

    // ---- One try, for all kinds of callers ------------------------------------------------------------------------------

    /// Receives into `slot` if that is possible now.
    ///
    /// # Safety
    /// `slot` is valid for writing a `T`.
    #[inline]
    pub(crate) unsafe fn try_take(&self, slot: *mut T) -> Outcome {
        if seeded_bug("channel_hint_answers") && self.hints() & hint::RECV == 0 {
            return Outcome::Pending;
        }
        // SAFETY: the contract, passed on; the second one is called with the lock held.
        unsafe { if self.pop_easily(slot) { Outcome::Done } else { self.try_take_locked(slot) } }
    }

    /// # Safety
    /// As [`try_take`](Self::try_take), and the lock is held; it is free afterwards.
    #[inline(never)]
    unsafe fn try_take_locked(&self, slot: *mut T) -> Outcome {
        // SAFETY: the lock is held, and given up with the guard.
        let mut locked = unsafe { self.held() };
        // SAFETY: the contract.
        let (tried, peer) = unsafe { locked.state().take(slot, None) };
        locked.unlock_and_go(peer);
        self.free_if_spare();
        tried
    }

    /// Sends the value at `value` if that is possible now.
    ///
    /// # Safety
    /// `value` points to a `T`, which is the channel's if the answer is `Done`, and the caller's otherwise.
    #[inline]
    pub(crate) unsafe fn try_offer(&self, value: *const T) -> Outcome {
        // SAFETY: the contract, passed on; the second one is called with the lock held.
        unsafe { if self.push_easily(value) { Outcome::Done } else { self.try_offer_locked(value) } }
    }

    /// # Safety
    /// As [`try_offer`](Self::try_offer), and the lock is held; it is free afterwards.
    #[inline(never)]
    unsafe fn try_offer_locked(&self, value: *const T) -> Outcome {
        // SAFETY: the lock is held, and given up with the guard.
        let mut locked = unsafe { self.held() };
        loop {
            // SAFETY: the contract.
            let (tried, peer) = unsafe { locked.state().offer(value, None) };
            if tried == Outcome::Retry {
                let have = locked.state().buffer.capacity();
                locked.unlock();
                self.grow(have);
                locked = self.lock();
                continue;
            }
            locked.unlock_and_go(peer);
            return tried;
        }
    }

    /// [`try_take`](Self::try_take) for a receiver that does not wait, after it said "not now": see [`ChanState::invite`].
    ///
    /// # Safety
    /// As there.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn take_or_invite(&self, slot: *mut T) -> Outcome {
        let mut locked = self.lock();
        // SAFETY: the contract.
        let (tried, peer) = unsafe { locked.state().take_or_invite(slot) };
        locked.unlock_and_go(peer);
        tried
    }

    /// [`try_offer`](Self::try_offer) for a sender that does not wait, after it said "not now": see [`ChanState::offer_or_leave`].
    ///
    /// # Safety
    /// As there.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn offer_or_leave(&self, value: *const T) -> Outcome {
        let mut locked = self.lock();
        // SAFETY: the contract.
        let (tried, peer) = unsafe { locked.state().offer_or_leave(value) };
        locked.unlock_and_go(peer);
        // (It said "not now" a moment ago, so that it has to grow need not be seen to here.)
        if tried == Outcome::Retry { Outcome::Pending } else { tried }
    }

    /// Makes a buffer of `have` places larger. Memory is allocated and freed without the lock.
    #[cold]
    #[inline(never)]
    pub(super) fn grow(&self, have: usize) {
        let larger = Ring::with_capacity(have.saturating_mul(2).max(FIRST_GROWN));
        let mut locked = self.lock();
        let old = locked.state().grow_to(larger);
        locked.unlock();
        drop(old);
    }

    /// Takes the node of a wait that is over out of its list.
    pub(crate) fn unlink(&self, list: fn(&mut ChanState<T>) -> &WaitList, node: &Node, passes_on: bool) {
        let mut locked = self.lock();
        let state = locked.state();
        // SAFETY: under the lock; the node was linked in this list, if it is.
        unsafe { list(state).remove(node) };
        if passes_on || state.closed {
            state.settle();
        }
        locked.unlock();
    }

    // ---- Closing, and the end -------------------------------------------------------------------------------------------

    /// See [`ChanState::close`].
    pub(super) fn close(&self, by: Side, reason: &CloseReason, now: bool) -> bool {
        let mut locked = self.lock();
        let first = locked.state().close(by, reason, now);
        locked.unlock();
        first
    }

    pub(super) fn with_closing<R>(&self, f: impl FnOnce(&Closing) -> R) -> Option<R> {
        let mut locked = self.lock();
        let answer = locked.state().rare.as_ref().and_then(|rare| rare.closing.as_ref()).map(f);
        locked.unlock();
        answer
    }

    /// Why that side is gone, if it is.
    pub(crate) fn gone(&self, side: Side) -> Option<CloseReason> {
        self.with_closing(|closing| match side {
            Side::Senders => closing.senders.clone(),
            Side::Receivers => closing.receivers.clone(),
        })
        .flatten()
    }

    fn count(&self, side: Side) -> &AtomicU32 {
        match side {
            Side::Senders => &self.senders,
            Side::Receivers => &self.receivers,
        }
    }

    /// Asked by a receiver that is not cloned meanwhile: is it the only one?
    pub(super) fn is_only_receiver(&self) -> bool {
        // Relaxed: if others were there and are gone, their last act was to count down; nothing of theirs is read.
        self.receivers.load(Ordering::Relaxed) == 1
    }

    /// One more handle of that side.
    pub(super) fn add_handle(&self, side: Side) {
        // Relaxed: the caller has a handle, which keeps the count above zero; nothing is published by it.
        let before = self.count(side).fetch_add(1, Ordering::Relaxed);
        if before > i32::MAX as u32 {
            // Only by forgetting handles in a loop; going on would wrap round and free the channel under its users.
            std::process::abort();
        }
    }

    /// One handle less. The last of a side closes the channel, and the later side frees it.
    ///
    /// # Safety
    /// The caller owned a handle of that side and uses neither it nor `chan` afterwards.
    pub(super) unsafe fn drop_handle(chan: NonNull<Self>, side: Side, reason: impl FnOnce() -> CloseReason) {
        /// Dropping values is user code and may panic; the channel goes all the same.
        struct Leave<T>(NonNull<Chan<T>>);
        impl<T> Drop for Leave<T> {
            fn drop(&mut self) {
                // SAFETY: this side has not left yet, so the channel is there.
                let sides = unsafe { &self.0.as_ref().sides };
                // AcqRel: the side that frees comes after everything the other one did.
                let before = if seeded_bug("channel_sides_by_store") {
                    let before = sides.load(Ordering::Acquire);
                    sides.store(before - 1, Ordering::Release);
                    before
                } else {
                    sides.fetch_sub(1, Ordering::AcqRel)
                };
                if before == 1 {
                    // SAFETY: both sides have left, and the memory is there until the next line but one.
                    #[cfg(not(any(loom, shuttle)))]
                    unsafe { self.0.as_ref() }.unlist();
                    // SAFETY: allocated by `new`, and both sides have left: no other handle has a pointer to it.
                    let mut chan = unsafe { Box::from_raw(self.0.as_ptr()) };
                    let mut panics = FirstPanic::default();
                    panics.drop_each(chan.told.take().and_then(|told| told.on_overflow));
                    panics.catch(|| drop(chan));
                    panics.go_on(is_unwinding);
                }
            }
        }
        // SAFETY: the caller's handle keeps it alive.
        let this = unsafe { chan.as_ref() };
        // AcqRel: what was done through the other handles of this side comes before its end.
        if this.count(side).fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let leave = Leave(chan);
        let reason = reason();
        let mut locked = this.lock();
        let state = locked.state();
        match side {
            // Permits borrow from senders: what is still reserved was forgotten.
            Side::Senders => state.settle_unreserved(),
            Side::Receivers => state.abandoned = true,
        }
        let gives_back = side == Side::Receivers && !seeded_bug("channel_receivers_leave_silently");
        state.close(side, &reason, gives_back);
        // No receiver is left to take these values. They are dropped without the lock, since they may know the channel themselves.
        let unreceived = if side == Side::Receivers { mem::take(&mut locked.state().buffer) } else { Ring::new() };
        locked.unlock();
        let mut panics = FirstPanic::default();
        panics.drop_each(unreceived);
        panics.catch(|| drop(leave));
        panics.go_on(is_unwinding);
    }
}

/// The lock, held.
pub(crate) struct Locked<'a, T> {
    chan: &'a Chan<T>,
}

impl<T> Locked<'_, T> {
    #[inline(always)]
    pub(crate) fn state(&mut self) -> &mut ChanState<T> {
        // SAFETY: the lock is held for as long as `self` lives, so this is the only access; the reference borrows from `self`.
        self.chan.state.with_mut(|state| unsafe { &mut *state })
    }

    /// Unlocks, then does what is left: calls wakers, hands over what was dropped. User code.
    #[inline(always)]
    pub(crate) fn unlock(mut self) {
        if self.state().has_aftermath() {
            self.unlock_and_see_to(None);
        }
    }

    /// Unlocks and sets `peer` going, whose wait was completed under this lock; then the same.
    #[inline(always)]
    pub(crate) fn unlock_and_go(mut self, peer: Option<Peer>) {
        if self.state().has_aftermath() {
            return self.unlock_and_see_to(peer);
        }
        drop(self);
        if let Some(waker) = peer.and_then(Peer::make_runnable) {
            wake::call_waker(waker);
        }
    }

    #[cold]
    #[inline(never)]
    fn unlock_and_see_to(mut self, peer: Option<Peer>) {
        let chan = self.chan;
        let (aftermath, unused) = self.state().take_aftermath();
        drop(self);
        drop(unused);
        // Before the user code below, which may suspend or end the peer's future.
        let waker = peer.and_then(Peer::make_runnable);
        if let Some(aftermath) = aftermath {
            chan.see_to(aftermath);
        }
        if let Some(waker) = waker {
            wake::call_waker(waker);
        }
    }

    /// Unlocks where no user code may run, and returns the wakers that are to be called: by [`wake::call_wakers_soon`], when no lock is
    /// held. (What an overflow policy drops is dropped before the caller parks.)
    #[inline(always)]
    pub(crate) fn unlock_owing(mut self) -> Vec<Waker> {
        let (aftermath, unused) = self.state().take_aftermath();
        drop(self);
        drop(unused);
        let Some(aftermath) = aftermath else { return Vec::new() };
        debug_assert!(aftermath.evicted.is_empty(), "a channel with a policy never makes a sender wait");
        aftermath.wakers
    }
}

impl<T> Drop for Locked<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        let hints = self.state().refresh();
        // Relaxed: see `Chan::hints`.
        self.chan.hints.store(hints, Ordering::Relaxed);
        self.chan.lock.unlock();
        order::leave();
    }
}

impl<T> Chan<T> {
    #[cold]
    #[inline(never)]
    fn see_to(&self, aftermath: Aftermath<T>) {
        wake::call_wakers(aftermath.wakers);
        // A panic of these stays here, reported by the hook: the operation is done, and a select must be able to say so. (Its value
        // has moved out of a variable that the caller has yet to forget.)
        let told = self.told.as_deref();
        if let Some(told) = told {
            // Relaxed: a number. (Before the values go: `on_overflow` may ask for it.)
            told.dropped.fetch_add(aftermath.evicted.len() as u64, Ordering::Relaxed);
        }
        for value in aftermath.evicted {
            let dropped = catch_unwind(AssertUnwindSafe(|| match told.and_then(|told| told.on_overflow.as_ref()) {
                Some(on_overflow) => on_overflow(value),
                None => drop(value),
            }));
            if let Err(payload) = dropped {
                discard_payload(payload);
            }
        }
    }
}

impl<T> fmt::Debug for Chan<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut locked = self.lock();
        let state = locked.state();
        let (len, capacity, closed) = (state.buffer.len(), state.capacity, state.closed);
        locked.unlock();
        let mut debug = f.debug_struct("Channel");
        debug.field("id", &self.id);
        if let Some(name) = self.name() {
            debug.field("name", &name);
        }
        debug.field("len", &len);
        if self.bounded {
            debug.field("capacity", &capacity);
        }
        debug.field("closed", &closed).finish_non_exhaustive()
    }
}
