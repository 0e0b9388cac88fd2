//! The join state: how a finished fiber and its handle agree which side takes the result, which drops it, and which recycles the frame.
//!
//! One `AtomicU32` per frame. Two parties: the *fiber's side* (first the fiber on its own stack, then its worker) and the *handle's side*
//! (the join handle, held by one owner). Joiners are waiters that the handle's side links into the frame's list: through a shared handle
//! under the LOCKED bit; if the joiner owns the handle, it is the only one, links itself without the lock and announces that in one step.
//!
//! ```text
//!  fiber, own stack     publish_result ─ READY ────────────┐  the value is in the frame, the handle drops or takes it
//!  worker, own stack    finish ───────── DONE (+ READY) ───┤  nothing of the fiber runs any more; joiners are woken
//!  handle               detach ───────── DETACHED ─────────┘  no joiner will ask for the result
//! ```
//!
//! Invariants:
//! * A value with a destructor is dropped on the fiber's own stack if the handle went first, by the handle otherwise; never on
//!   the scheduler's stack.
//! * The later of `finish` and `detach` recycles the frame; if that is the handle, it first waits until LOCKED is clear, since the worker
//!   may still be walking the joiners.
//! * The fiber's side looks at the list only if JOINERS is set when it sets DONE, and locks it in that step. JOINERS is set while DONE is
//!   not (under LOCKED), or in a step that also sees DONE (`announce_joiner`): no joiner is overlooked, and none stays linked after DONE.
//! * Once DONE and LOCKED are set, only `detach` changes the word, and it waits for the unlock before it goes on: so the unlock is a store.

use crate::prim::atomic::{AtomicU32, Ordering};
use crate::prim::bug::seeded_bug;

const LOCKED: u32 = 1;
const JOINERS: u32 = 1 << 1;
const READY: u32 = 1 << 2;
const DONE: u32 = 1 << 3;
const DETACHED: u32 = 1 << 4;
const OUTCOME_SHIFT: u32 = 8;

/// How a fiber ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum FiberEnd {
    /// It returned; the value is in the frame's storage.
    Value = 1,
    /// It panicked; the payload is in the frame's storage.
    Panicked = 2,
    /// It was cancelled before it could return.
    Cancelled = 3,
    /// It never ran, because no stack could be had.
    NoStack = 4,
    /// The child of a scope that never ran: refused, or without a stack. The error for its scope is in the frame's storage.
    NotStarted = 5,
}

impl FiberEnd {
    #[cold]
    fn from_bits(bits: u32) -> Option<Self> {
        match bits >> OUTCOME_SHIFT {
            1 => Some(FiberEnd::Value),
            2 => Some(FiberEnd::Panicked),
            3 => Some(FiberEnd::Cancelled),
            4 => Some(FiberEnd::NoStack),
            5 => Some(FiberEnd::NotStarted),
            _ => None,
        }
    }
    fn to_bits(self) -> u32 {
        (self as u32) << OUTCOME_SHIFT
    }
}

/// What the worker must do after [`JoinState::finish`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Finish {
    /// The handle is still there and no joiner waits: do not touch the frame again.
    LeaveToHandle,
    /// The handle is gone: recycle the frame.
    Recycle,
    /// A joiner waits, and the list is locked: wake all, then [`JoinState::unlock_finished`].
    CompleteJoiners,
}

impl Finish {
    /// The step after DONE was set in a word that was `before`.
    #[inline(always)]
    fn after(before: u32) -> Self {
        if before & JOINERS != 0 {
            debug_assert!(before & DETACHED == 0, "a joiner keeps the handle alive");
            Finish::CompleteJoiners
        } else if before & DETACHED != 0 {
            Finish::Recycle
        } else {
            Finish::LeaveToHandle
        }
    }
}

/// LOCKED if a joiner is in the list.
#[inline(always)]
fn lock_for(now: u32) -> u32 {
    (now & JOINERS) / (JOINERS / LOCKED)
}

/// What the handle must do after [`JoinState::detach`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Detach {
    /// The fiber's side will clean up.
    LeaveToFiber,
    /// A result is in the frame: drop it, then call `detach` again with `result_taken`.
    TakeResult(FiberEnd),
    /// Everything is over and the result is gone: recycle the frame.
    Recycle,
}

/// The right to touch the joiner list of a fiber that has not ended.
#[derive(Debug)]
#[must_use = "the list stays locked until `unlock`"]
pub(crate) struct Locked {
    had_joiners: bool,
}

/// The join state of one frame.
#[derive(Debug)]
pub(crate) struct JoinState(AtomicU32);

impl JoinState {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// A new life of the frame; `attached` if a handle will exist.
    #[inline(always)]
    pub(crate) fn reset(&self, attached: bool) {
        // Relaxed: the frame is the spawner's alone; publication of the fiber orders this.
        self.0.store(if attached { 0 } else { DETACHED }, Ordering::Relaxed);
    }

    /// On the fiber's stack, with a result that has a destructor in the frame. False: the handle is gone, drop it here.
    #[inline]
    pub(crate) fn publish_result(&self, outcome: FiberEnd) -> bool {
        // Relaxed: confirmed by the compare-exchange.
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            if now & DETACHED != 0 && !seeded_bug("publish_result_blindly") {
                return false;
            }
            let to = now | READY | outcome.to_bits();
            // Release: pairs with the acquire in `detach` and `result`: the value is in the frame. Relaxed on failure: retried.
            match self.0.compare_exchange_weak(now, to, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(actual) => now = actual,
            }
        }
    }

    /// [`finish`](Self::finish) if there is no joiner to be woken. `None`: there is one, or it is just linking itself, and nothing was
    /// done.
    #[inline(always)]
    pub(crate) fn finish_unless_joined(&self, outcome: FiberEnd) -> Option<Finish> {
        let (now, over) = (self.look_at_end(), DONE | READY | outcome.to_bits());
        if now & (LOCKED | JOINERS) != 0 && !seeded_bug("finish_overlooks_joiner") {
            return None;
        }
        if now & DETACHED != 0 {
            return Some(self.finish_alone(now | over));
        }
        // AcqRel: as in `finish_contended`. Relaxed on failure: nothing was done.
        self.0.compare_exchange(now, now | over, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        Some(Finish::LeaveToHandle)
    }

    /// The word, to the fiber's side at its end.
    #[inline(always)]
    fn look_at_end(&self) -> u32 {
        // Acquire: pairs with `detach`, if DETACHED is seen; else a compare-exchange follows. (Relaxed: a bug.)
        self.0.load(if seeded_bug("finish_detached_relaxed") { Ordering::Relaxed } else { Ordering::Acquire })
    }

    /// There is no handle, so no other thread writes the word any more, or waits for what is in it.
    #[inline(always)]
    fn finish_alone(&self, over: u32) -> Finish {
        debug_assert!(over & JOINERS == 0, "a joiner keeps the handle alive");
        // Relaxed: the frame is this thread's alone.
        self.0.store(over, Ordering::Relaxed);
        Finish::Recycle
    }

    /// The fiber has ended, and nothing of it is left on its stack. If a joiner waits, the joiner list comes back locked.
    #[inline(always)]
    pub(crate) fn finish(&self, outcome: FiberEnd) -> Finish {
        let now = self.look_at_end();
        if now & (LOCKED | DETACHED) == 0 && !seeded_bug("finish_locks_late") {
            let over = now | DONE | READY | outcome.to_bits() | lock_for(now);
            // AcqRel: as below. Relaxed on failure: retried.
            if self.0.compare_exchange(now, over, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Finish::after(now);
            }
        } else if now & (LOCKED | JOINERS | DETACHED) == DETACHED {
            return self.finish_alone(now | DONE | READY | outcome.to_bits());
        }
        self.finish_contended(outcome)
    }

    /// [`finish`](Self::finish) while the handle's side changes the word, too.
    #[cold]
    #[inline(never)]
    fn finish_contended(&self, outcome: FiberEnd) -> Finish {
        let over = DONE | READY | outcome.to_bits();
        // Relaxed: confirmed by the compare-exchange.
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            if now & LOCKED != 0 && !seeded_bug("finish_ignores_lock") {
                // A joiner is just linking or unlinking itself: a few instructions.
                now = self.await_unlocked();
            }
            let lock = if seeded_bug("finish_locks_late") { 0 } else { lock_for(now) };
            // Release: pairs with the acquire in `result` and `detach`: a handle that sees DONE sees the result, and that the fiber's stack
            // is no longer used. Acquire: pairs with the joiners' unlock and with `detach`. Relaxed on failure: retried.
            match self.0.compare_exchange_weak(now, now | over | lock, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(actual) => now = actual,
            }
        }
        if now & JOINERS != 0 && seeded_bug("finish_locks_late") {
            self.0.fetch_or(LOCKED, Ordering::AcqRel);
        }
        Finish::after(now)
    }

    #[cold]
    fn await_unlocked(&self) -> u32 {
        loop {
            // Relaxed: confirmed by a compare-exchange of the caller's.
            let now = self.0.load(Ordering::Relaxed);
            if now & LOCKED == 0 {
                return now;
            }
            crate::prim::thread::yield_now();
        }
    }

    /// Does a joiner wait for the end, or is it about to? Asked by the fiber's side, before it ends.
    #[inline(always)]
    pub(crate) fn is_joined(&self) -> bool {
        // Relaxed: a hint; the step that sets DONE decides.
        self.0.load(Ordering::Relaxed) & (LOCKED | JOINERS) != 0
    }

    /// Has it returned a value, and has the fiber's side nothing to do with the frame any more? Then the handle's owner may take the value
    /// and recycle the frame.
    #[inline(always)]
    pub(crate) fn has_value(&self) -> bool {
        // Acquire: pairs with the release in `finish`, or in `unlock_finished`.
        self.0.load(Ordering::Acquire) == DONE | READY | ((FiberEnd::Value as u32) << OUTCOME_SHIFT)
    }

    /// Is it over? Then there is a [`result`](Self::result).
    #[inline(always)]
    pub(crate) fn is_over(&self) -> bool {
        // Acquire: pairs with the release in `finish`.
        self.0.load(Ordering::Acquire) & DONE != 0
    }

    /// Is it over, and how did it end? `Some` also means that the result may be taken (by the handle's owner).
    #[inline(always)]
    pub(crate) fn result(&self) -> Option<FiberEnd> {
        // Acquire: pairs with the release in `finish`.
        let now = self.0.load(Ordering::Acquire);
        if now & DONE == 0 {
            None
        } else if now >> OUTCOME_SHIFT == FiberEnd::Value as u32 {
            Some(FiberEnd::Value)
        } else {
            FiberEnd::from_bits(now)
        }
    }

    /// The handle goes. `result_taken`: the caller knows that the result is out of the frame (or never had a destructor).
    pub(crate) fn detach(&self, result_taken: bool) -> Detach {
        // Acquire: pairs with `publish_result` and `finish`.
        let mut now = self.0.load(Ordering::Acquire);
        loop {
            if now & READY != 0
                && !result_taken
                && let Some(outcome) = FiberEnd::from_bits(now)
            {
                return Detach::TakeResult(outcome);
            }
            // Release: the worker that recycles comes after everything that the handle's side did with the frame. Acquire: as above.
            match self.0.compare_exchange_weak(now, now | DETACHED, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if now & DONE != 0 => {
                    self.wait_until_unlocked();
                    return Detach::Recycle;
                }
                Ok(_) => return Detach::LeaveToFiber,
                Err(actual) => now = actual,
            }
        }
    }

    /// The handle has seen the end and taken the result; nothing else refers to the frame once the worker has let go of the joiners.
    #[inline(always)]
    pub(crate) fn wait_until_unlocked(&self) {
        if seeded_bug("recycle_while_locked") {
            return;
        }
        // Acquire: pairs with the release in `unlock_finished`.
        while self.0.load(Ordering::Acquire) & LOCKED != 0 {
            crate::prim::thread::yield_now();
        }
    }

    /// Takes the lock of the joiner list. `None`: the fiber has ended, there is nothing to lock any more.
    #[inline]
    pub(crate) fn lock(&self) -> Option<Locked> {
        let mut spins = 0u32;
        // Relaxed: confirmed by the compare-exchange.
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            if now & DONE != 0 {
                return None;
            }
            if now & LOCKED == 0 {
                // Acquire: pairs with the release in `unlock`; the list is as the last holder left it.
                match self.0.compare_exchange_weak(now, now | LOCKED, Ordering::AcqRel, Ordering::Relaxed) {
                    Ok(_) => return Some(Locked { had_joiners: now & JOINERS != 0 }),
                    Err(actual) => {
                        now = actual;
                        continue;
                    }
                }
            }
            spins += 1;
            if cfg!(any(loom, shuttle)) || spins > 1000 {
                crate::prim::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
            // Relaxed: as above.
            now = self.0.load(Ordering::Relaxed);
        }
    }

    /// The owner of the handle, which is the only possible joiner, has linked itself, without the lock. False: the fiber has ended, and its
    /// side has not looked at the list, nor will.
    #[inline(always)]
    pub(crate) fn announce_joiner(&self) -> bool {
        if seeded_bug("announce_by_store") {
            let now = self.0.load(Ordering::Acquire);
            self.0.store(now | JOINERS, Ordering::Release);
            return now & DONE == 0;
        }
        // Release: pairs with the acquire in `finish`, which then finds the joiner in the list. Acquire: pairs with the release there. An
        // addition, since JOINERS is not set: the processor has an instruction for it that returns the old value.
        self.0.fetch_add(JOINERS, Ordering::AcqRel) & DONE == 0
    }

    /// The same for a fiber that has not started and cannot before the joiner has parked, on the joiner's own thread: no other thread
    /// changes the word.
    #[inline(always)]
    pub(crate) fn announce_before_start(&self) {
        // Relaxed, both: the one thread that will start the fiber.
        debug_assert_eq!(self.0.load(Ordering::Relaxed), 0, "an unstarted fiber whose handle is owned");
        self.0.store(JOINERS, Ordering::Relaxed);
    }

    /// Gives the lock back; `joiners` says whether the list holds a joiner now. Only lock holders change JOINERS (no handle is shared and
    /// owned at once), so one addition does it.
    #[inline]
    pub(crate) fn unlock(&self, locked: Locked, joiners: bool) {
        let before = LOCKED + if locked.had_joiners { JOINERS } else { 0 };
        let after = if joiners { JOINERS } else { 0 };
        // Release: pairs with `lock` and with the acquire in `finish`.
        self.0.fetch_add(after.wrapping_sub(before), Ordering::Release);
    }

    /// The worker's unlock after it unlinked the joiners: its last touch of the frame. The joiner still had the handle when DONE was
    /// set, so the handle is the later one and recycles. A plain store, which may undo a DETACHED: no code reads that bit any more.
    #[inline(always)]
    pub(crate) fn unlock_finished(&self, outcome: FiberEnd) {
        // Release: pairs with `wait_until_unlocked`.
        let order = if seeded_bug("unlock_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        let over = DONE | READY | outcome.to_bits();
        // loom does not know that the compare-exchange in `detach` cannot undo a store that it has not read: there it is a
        // read-modify-write of the same order.
        #[cfg(loom)]
        self.0.swap(over, order);
        #[cfg(not(loom))]
        self.0.store(over, order);
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
