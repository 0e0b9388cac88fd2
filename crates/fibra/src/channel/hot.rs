//! The hot paths of sending and receiving, each from the call to its end: through the buffer, or from stack to stack.
//!
//! Above: the handles. Below: `chan` and `state`, which do everything else. A hot path is one short function: entry test, hints, lock,
//! move the value, unlock. For every unusual case it calls another function as its last step (a tail call), so that it needs no stack
//! frame of its own; the value travels in that call, and is dropped like any other if the call unwinds.
//!
//! ```text
//! send ─▶ entry ─▶ hints: room or a receiver? ─▶ lock ─▶ easy? push, unlock               buffered
//!          │no       │no                          │busy   │no
//!          ▼         ▼                            ▼       ▼
//!       entered   waits::send               contended   meet: a FILL is first? claim, unlink, copy, unlock, go      rendezvous
//!                                                         │no
//!                                                         ▼
//!                                                       send_locked: ChanState::offer, or wait
//! ```
//!
//! Receiving mirrors sending. A push or a pop is *easy* if it leaves the hints as they are: see [`ChanState::easy`].

use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::Location;

use super::chan::Chan;
use super::error::{RecvError, SendError};
use super::order;
use super::state::{ParkedPeer, hint};
use super::waits;
use crate::prim::atomic::Ordering;
use crate::prim::bug::seeded_bug;
use crate::prim::home_lock::Lane;
use crate::wait::park;
use crate::waiter::node::{Node, Outcome, Role};

/// Where a blocking call was made.
type Site = &'static Location<'static>;

impl<T> Chan<T> {
    // ---- Sending --------------------------------------------------------------------------------------------------------

    /// Sends, waiting if need be.
    #[cfg_attr(not(debug_assertions), inline(always))]
    #[cfg_attr(debug_assertions, inline)]
    pub(super) fn send(&self, value: T, site: Site) -> Result<(), SendError<T>> {
        let Some(me) = park::passes_as() else {
            return self.send_entering(value, site);
        };
        if self.hints() & hint::SEND == 0 {
            return self.send_waiting(value, site);
        }
        if !self.try_lock_raw(me) {
            return self.send_contended(value, site);
        }
        // SAFETY: the lock is held.
        let state = unsafe { &mut *self.state.with_mut(|state| state) };
        if !state.is_push_easy() {
            // SAFETY: the lock is held.
            return unsafe { self.send_meeting(value, site) };
        }
        // SAFETY: an easy push has room.
        unsafe { state.buffer.push_back_unchecked(value) };
        self.unlock_raw();
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn send_entering(&self, value: T, site: Site) -> Result<(), SendError<T>> {
        park::entry();
        self.send_contended(value, site)
    }

    #[cold]
    #[inline(never)]
    fn send_contended(&self, value: T, site: Site) -> Result<(), SendError<T>> {
        self.lock_raw();
        // SAFETY: the lock is held.
        unsafe { self.send_meeting(value, site) }
    }

    /// Sends to the receiver that waits first, in a plain rendezvous or past an empty buffer; else the general way.
    ///
    /// # Safety
    /// The lock is held; it is free afterwards.
    #[inline(never)]
    unsafe fn send_meeting(&self, value: T, site: Site) -> Result<(), SendError<T>> {
        let hints = self.hints();
        // SAFETY: the lock is held.
        let receivers = unsafe { &(*self.state.with_mut(|state| state)).receivers };
        // SAFETY: the lock is held; the node is alive until its wait is set going.
        let Some(node) = (unsafe { receivers.front() }) else {
            // SAFETY: passed on.
            return unsafe { self.send_locked(value, site) };
        };
        if hints & (hint::PLAIN | hint::DIRECT) == 0 || node.role.get() != Role::Fill {
            // SAFETY: passed on.
            return unsafe { self.send_locked(value, site) };
        }
        // SAFETY: a node of this channel.
        let Some(peer) = (unsafe { ParkedPeer::claim(node, Outcome::Done) }) else {
            if seeded_bug("channel_send_unclaimed") {
                // SAFETY: none: the bug.
                unsafe { node.slot.get().cast::<T>().write(value) };
                self.unlock_raw();
                return Ok(());
            }
            // SAFETY: passed on.
            return unsafe { self.send_locked(value, site) };
        };
        // SAFETY: the first node, and the lock is held.
        let others = unsafe { receivers.remove_front(node) };
        // SAFETY: the slot of a FILL that we claimed is room for a value.
        unsafe { node.slot.get().cast::<T>().write(value) };
        // (With a buffer there is room, whether other receivers wait or not.)
        if hints & hint::DIRECT == 0 && (!others || seeded_bug("channel_forgets_others")) {
            // Relaxed: see `Chan::hints`; under the lock they are exact.
            self.hints.store(hints & !hint::SEND, Ordering::Relaxed);
        }
        self.unlock_raw();
        peer.make_runnable();
        Ok(())
    }

    /// # Safety
    /// As [`send_meeting`](Self::send_meeting).
    #[inline(never)]
    unsafe fn send_locked(&self, value: T, site: Site) -> Result<(), SendError<T>> {
        let value = ManuallyDrop::new(value);
        // SAFETY: the lock is held, and given up with the guard.
        let mut locked = unsafe { self.held() };
        loop {
            // SAFETY: the value is the channel's if DONE, and moved on below otherwise.
            match unsafe { locked.state().offer(&raw const *value, None) } {
                (Outcome::Done, peer) => {
                    locked.unlock_and_go(peer);
                    return Ok(());
                }
                (Outcome::Retry, _) => {
                    let have = locked.state().buffer.capacity();
                    locked.unlock();
                    self.grow(have);
                    locked = self.lock();
                }
                (not, _) => {
                    locked.unlock();
                    let value = ManuallyDrop::into_inner(value);
                    return if not == Outcome::Closed { Err(SendError(value)) } else { self.send_waiting(value, site) };
                }
            }
        }
    }

    #[inline(never)]
    fn send_waiting(&self, value: T, site: Site) -> Result<(), SendError<T>> {
        self.lock.note_wait(park::lane());
        let mut value = ManuallyDrop::new(value);
        // SAFETY: the value is not dropped here; it is moved out if it was not sent.
        match unsafe { waits::send(self, &raw mut *value, None, site) } {
            Outcome::Done => Ok(()),
            _ => Err(SendError(ManuallyDrop::into_inner(value))),
        }
    }

    // ---- Receiving ------------------------------------------------------------------------------------------------------

    /// Receives, waiting if need be.
    #[inline]
    pub(super) fn recv(&self, site: Site) -> Result<T, RecvError> {
        let Some(me) = park::passes_as() else {
            return self.recv_entering(site);
        };
        if self.hints() & hint::RECV == 0 {
            return self.recv_waiting(site);
        }
        if !self.try_lock_raw(me) {
            return self.recv_contended(site);
        }
        // SAFETY: the lock is held.
        let state = unsafe { &mut *self.state.with_mut(|state| state) };
        if !state.is_pop_easy() {
            // SAFETY: the lock is held.
            return unsafe { self.recv_meeting(site) };
        }
        // SAFETY: for an easy pop there is a value.
        let value = unsafe { state.buffer.pop_front_unchecked() };
        self.unlock_raw();
        Ok(value)
    }

    #[cold]
    #[inline(never)]
    fn recv_entering(&self, site: Site) -> Result<T, RecvError> {
        park::entry();
        self.recv_contended(site)
    }

    #[cold]
    #[inline(never)]
    fn recv_contended(&self, site: Site) -> Result<T, RecvError> {
        self.lock_raw();
        // SAFETY: the lock is held.
        unsafe { self.recv_meeting(site) }
    }

    /// Receives from the sender that waits first, in a plain rendezvous; else the general way.
    ///
    /// # Safety
    /// The lock is held; it is free afterwards.
    #[inline(never)]
    unsafe fn recv_meeting(&self, site: Site) -> Result<T, RecvError> {
        let hints = self.hints();
        // SAFETY: the lock is held.
        let senders = unsafe { &(*self.state.with_mut(|state| state)).senders };
        // SAFETY: the lock is held; the node is alive until its wait is set going.
        let Some(node) = (unsafe { senders.front() }) else {
            // SAFETY: passed on.
            return unsafe { self.recv_locked(site) };
        };
        if hints & hint::PLAIN == 0 || node.role.get() != Role::Take {
            // SAFETY: passed on.
            return unsafe { self.recv_locked(site) };
        }
        // SAFETY: a node of this channel.
        let Some(peer) = (unsafe { ParkedPeer::claim(node, Outcome::Done) }) else {
            if seeded_bug("channel_recv_unclaimed") {
                self.unlock_raw();
                // SAFETY: none: the bug.
                return Ok(unsafe { node.slot.get().cast::<T>().read() });
            }
            // SAFETY: passed on.
            return unsafe { self.recv_locked(site) };
        };
        // SAFETY: the first node, and the lock is held.
        let others = unsafe { senders.remove_front(node) };
        // SAFETY: the slot of a TAKE that we claimed holds a value, which is ours now.
        let value = unsafe { node.slot.get().cast::<T>().read() };
        if !others || seeded_bug("channel_forgets_others") {
            // Relaxed: see `Chan::hints`; under the lock they are exact.
            self.hints.store(hints & !hint::RECV, Ordering::Relaxed);
        }
        self.unlock_raw();
        peer.make_runnable();
        Ok(value)
    }

    /// # Safety
    /// As [`recv_meeting`](Self::recv_meeting).
    #[inline(never)]
    unsafe fn recv_locked(&self, site: Site) -> Result<T, RecvError> {
        let mut slot = MaybeUninit::uninit();
        // SAFETY: the lock is held, and given up with the guard.
        let mut locked = unsafe { self.held() };
        // SAFETY: room for a value.
        match unsafe { locked.state().take(slot.as_mut_ptr(), None) } {
            (Outcome::Done, peer) => {
                locked.unlock_and_go(peer);
                self.free_if_spare();
                // SAFETY: it was written.
                Ok(unsafe { slot.assume_init() })
            }
            (not, _) => {
                locked.unlock();
                match not {
                    Outcome::Closed => Err(RecvError),
                    // (A timed channel always has the hint, so it comes this way.)
                    _ if self.is_timed() => self.recv_patiently(site),
                    _ => self.recv_waiting(site),
                }
            }
        }
    }

    #[inline(never)]
    fn recv_waiting(&self, site: Site) -> Result<T, RecvError> {
        debug_assert!(!self.is_timed(), "one that time feeds has a deadline of its own");
        self.lock.note_wait(park::lane());
        let mut slot = MaybeUninit::uninit();
        // SAFETY: room for a value, which is there if DONE.
        match unsafe { waits::recv_once(self, slot.as_mut_ptr(), site) } {
            Outcome::Done => {
                self.free_if_spare();
                // SAFETY: as above.
                Ok(unsafe { slot.assume_init() })
            }
            Outcome::Retry => self.recv_patiently(site),
            _ => Err(RecvError),
        }
    }

    /// Receives, in as many waits as it takes.
    #[cold]
    #[inline(never)]
    fn recv_patiently(&self, site: Site) -> Result<T, RecvError> {
        let mut slot = MaybeUninit::uninit();
        // SAFETY: room for a value, which is there if DONE.
        match unsafe { waits::recv(self, slot.as_mut_ptr(), None, site) } {
            // SAFETY: as above.
            Outcome::Done => Ok(unsafe { slot.assume_init() }),
            _ => Err(RecvError),
        }
    }

    // ---- For callers that do not wait, and for select -------------------------------------------------------------------

    /// Locks, and pushes the value at `value` if that is easy; then the lock is free again. False: it is held.
    ///
    /// # Safety
    /// `value` points to a `T`, which is the channel's if the answer is true.
    #[inline(always)]
    pub(super) unsafe fn push_easily(&self, value: *const T) -> bool {
        self.lock_raw();
        // SAFETY: the lock is held.
        let state = unsafe { &mut *self.state.with_mut(|state| state) };
        let easy = state.is_push_easy();
        if easy {
            // SAFETY: an easy push has room; the rest is the contract.
            unsafe { state.buffer.push_back_unchecked(value.read()) };
            self.unlock_raw();
        }
        easy
    }

    /// Locks, and pops a value into `slot` if that is easy; then the lock is free again. False: it is held.
    ///
    /// # Safety
    /// `slot` is valid for writing a `T`.
    #[inline(always)]
    pub(super) unsafe fn pop_easily(&self, slot: *mut T) -> bool {
        self.lock_raw();
        // SAFETY: the lock is held.
        let state = unsafe { &mut *self.state.with_mut(|state| state) };
        let easy = state.is_pop_easy();
        if easy {
            // SAFETY: for an easy pop there is a value; the rest is the contract.
            unsafe { slot.write(state.buffer.pop_front_unchecked()) };
            self.unlock_raw();
        }
        easy
    }

    // ---- Waiting --------------------------------------------------------------------------------------------------------

    /// Links the node of a wait in a plain rendezvous at whose other end no waiter is, or of a wait for a value in an empty buffer, and
    /// unlocks. False: it is no such case; nothing was done.
    ///
    /// # Safety
    /// The lock is held. What `make` makes is linked nowhere, and stays where it is until it is unlinked.
    #[inline(always)]
    pub(super) unsafe fn link_plainly<'n>(&self, sends: bool, make: impl FnOnce() -> &'n Node) -> bool {
        let (met_by, mine) = if sends { (hint::SEND, hint::RECV) } else { (hint::RECV, hint::SEND) };
        let hints = self.hints();
        // At an empty buffer no push is easy, so the next sender finds the receiver that waits.
        let at_buffer = !sends && hints & (hint::DIRECT | hint::RECV) == hint::DIRECT;
        if hints & (hint::PLAIN | met_by) != hint::PLAIN && !at_buffer {
            return false;
        }
        // SAFETY: the lock is held.
        let state = unsafe { &*self.state.with_mut(|state| state) };
        // SAFETY: passed on.
        unsafe { if sends { &state.senders } else { &state.receivers }.push_back(make()) };
        if !at_buffer && !seeded_bug("channel_waits_unannounced") {
            // Relaxed: see `Chan::hints`; under the lock they are exact.
            self.hints.store(hints | mine, Ordering::Relaxed);
        }
        self.unlock_raw();
        true
    }

    // ---- The lock, without a guard --------------------------------------------------------------------------------------

    /// Takes the lock if it is free and that is simple; [`unlock_raw`](Self::unlock_raw) gives it back.
    #[inline(always)]
    fn try_lock_raw(&self, me: Lane) -> bool {
        let locked = self.lock.try_lock(me);
        if locked {
            order::enter(self.id());
        }
        locked
    }

    /// Gives the lock back where the hints are right already.
    #[inline(always)]
    fn unlock_raw(&self) {
        self.lock.unlock();
        order::leave();
    }
}
