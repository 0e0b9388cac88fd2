//! The byte spin lock that guards wait lists: locked for a handful of instructions, never across user code.
//!
//! Unlock is a plain release store (an unlock by swap doubled the cost of a buffered channel in the prototype). A waiter looks at the
//! lock only now and then: each look takes the line from the holder, which needs it to unlock, and mostly to lock it again. After a
//! bounded spin the waiter gives its time slice away, since the holder may have been preempted. Above: every wait list. Below: an atomic.

use super::atomic::{AtomicBool, AtomicU32, Ordering};
use super::cell::UnsafeCell;

/// Pauses before the waiter starts to give its time slice away.
const PAUSES_BEFORE_YIELD: u32 = 1000;
/// Pauses before the first look of a waiter at the lock, and before all others.
const FIRST_PAUSES: u32 = 4;
const NEXT_PAUSES: u32 = 8;

/// The waits of one waiter for a lock that another thread holds.
pub(super) struct Patience {
    pauses: u32,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self { pauses: 0 }
    }

    /// Waits, until the next look.
    pub(super) fn wait(&mut self) {
        #[cfg(not(any(loom, shuttle)))]
        if self.pauses < PAUSES_BEFORE_YIELD {
            let pauses = if self.pauses == 0 { FIRST_PAUSES } else { NEXT_PAUSES };
            (0..pauses).for_each(|_| std::hint::spin_loop());
            self.pauses += pauses;
            return;
        }
        super::thread::yield_now();
    }
}

/// The lock without data: for callers that keep what it guards elsewhere.
#[derive(Debug)]
pub(crate) struct RawSpin(AtomicBool);

impl RawSpin {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    #[inline]
    pub(crate) fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow();
        }
    }

    /// Takes the lock if it is free.
    #[inline(always)]
    #[must_use]
    pub(crate) fn try_lock(&self) -> bool {
        // Acquire: pairs with the release store in `unlock`; what the previous holder wrote is seen. A compare-exchange and not a
        // swap: loom lets a failed swap come after the unlocking store, which would lock it for ever. Relaxed on failure: nothing is read.
        self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    // Out of line: inlined, its loop would take registers from the callers.
    #[cold]
    #[inline(never)]
    fn lock_slow(&self) {
        let mut patience = Patience::new();
        loop {
            patience.wait();
            // Relaxed: only a hint that the compare-exchange may succeed, which does the ordering. (Models try it at once.)
            let is_held = cfg!(not(any(loom, shuttle))) && self.0.load(Ordering::Relaxed);
            if !is_held && self.try_lock() {
                return;
            }
        }
    }

    /// Gives the lock back. Only its holder may call this.
    #[inline]
    pub(crate) fn unlock(&self) {
        // Release: pairs with the acquire swap of the next holder.
        self.0.store(false, Ordering::Release);
    }
}

/// The lock around a value.
#[derive(Debug)]
pub(crate) struct SpinLock<T> {
    raw: RawSpin,
    value: UnsafeCell<T>,
}

// SAFETY: `raw` makes access to `value` exclusive, so sharing the lock only ever moves `T` between threads.
unsafe impl<T: Send> Sync for SpinLock<T> {}
// SAFETY: the lock owns its value.
unsafe impl<T: Send> Send for SpinLock<T> {}

impl<T> SpinLock<T> {
    #[cfg(not(loom))]
    pub(crate) const fn new(value: T) -> Self {
        Self { raw: RawSpin::new(), value: UnsafeCell::new(value) }
    }
    #[cfg(loom)]
    pub(crate) fn new(value: T) -> Self {
        Self { raw: RawSpin::new(), value: UnsafeCell::new(value) }
    }

    /// Runs `f` with the value, alone. `f` must be short and must not call user code.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.lock().with(f)
    }

    /// Locks it until the returned guard is dropped: for callers that go from lock to lock.
    #[inline]
    pub(crate) fn lock(&self) -> Locked<'_, T> {
        self.raw.lock();
        #[cfg(all(debug_assertions, not(any(loom, shuttle))))]
        held::change(1);
        Locked(self)
    }
}

/// A lock that is held. Unlocks also when something panics: a wait list must not stay locked because an assertion failed.
#[derive(Debug)]
pub(crate) struct Locked<'a, T>(&'a SpinLock<T>);

impl<T> Locked<'_, T> {
    /// See [`SpinLock::with`].
    #[inline]
    pub(crate) fn with<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: `raw` is held until this is dropped, and `self` is borrowed alone, so this is the only access.
        self.0.value.with_mut(|value| f(unsafe { &mut *value }))
    }
}

impl<T> Drop for Locked<'_, T> {
    #[inline]
    fn drop(&mut self) {
        #[cfg(all(debug_assertions, not(any(loom, shuttle))))]
        held::change(-1);
        self.0.raw.unlock();
    }
}

/// The lock whose word also holds the state of what it guards: 31 bits that any thread reads without the lock, and that change in the store
/// that unlocks it. So a change of the state and of the value behind it is one compare-exchange and one store, and no other thread sees
/// the one without the other.
pub(crate) struct WordLock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

/// A thread holds the lock. The other bits of the word belong to the state.
const LOCKED: u32 = 1 << 31;

// SAFETY: LOCKED makes access to `value` exclusive, so sharing the lock only ever moves `T` between threads.
unsafe impl<T: Send> Sync for WordLock<T> {}
// SAFETY: the lock owns its value.
unsafe impl<T: Send> Send for WordLock<T> {}

impl<T> WordLock<T> {
    /// A lock that is free, with this state.
    pub(crate) fn new(state: u32, value: T) -> Self {
        Self { word: AtomicU32::new(state & !LOCKED), value: UnsafeCell::new(value) }
    }

    /// The state, without the lock: as the last holder left it.
    #[inline]
    pub(crate) fn look(&self) -> u32 {
        // Acquire: pairs with the release store of the unlock; what was done in the state that is seen is seen with it.
        self.word.load(Ordering::Acquire) & !LOCKED
    }

    /// Runs `f` with the state and the value, alone. `f` must be short and must not call user code.
    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut u32, &mut T) -> R) -> R {
        let mut held = self.lock();
        let state = &mut held.state;
        // SAFETY: LOCKED is ours until `held` is dropped, so this is the only access.
        self.value.with_mut(|value| f(state, unsafe { &mut *value }))
    }

    /// Locks it until the answer is dropped: for paths on which not even a closure may come between (which is in line or not as the
    /// compiler likes). As short as [`with`](Self::with), and without user code.
    #[inline(always)]
    pub(crate) fn lock(&self) -> HeldWord<'_, T> {
        match self.try_lock() {
            Some(held) => held,
            None => self.lock_slow(),
        }
    }

    /// The same if it is free.
    #[inline(always)]
    pub(crate) fn try_lock(&self) -> Option<HeldWord<'_, T>> {
        // Relaxed: a guess; the compare-exchange does the ordering.
        let seen = self.word.load(Ordering::Relaxed);
        // Acquire: pairs with the release store of the unlock. Relaxed on failure: nothing is read.
        let taken = seen & LOCKED == 0
            && self.word.compare_exchange(seen, seen | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok();
        taken.then(|| self.held(seen))
    }

    #[inline(always)]
    fn held(&self, state: u32) -> HeldWord<'_, T> {
        #[cfg(all(debug_assertions, not(any(loom, shuttle))))]
        held::change(1);
        HeldWord { lock: self, state }
    }

    // Out of line, as in `RawSpin`.
    #[cold]
    #[inline(never)]
    fn lock_slow(&self) -> HeldWord<'_, T> {
        // Relaxed: a guess.
        let mut free = self.word.load(Ordering::Relaxed) & !LOCKED;
        let mut patience = Patience::new();
        loop {
            // Acquire: as in `lock`. Relaxed on failure: tried again.
            match self.word.compare_exchange(free, free | LOCKED, Ordering::Acquire, Ordering::Relaxed) {
                Ok(state) => return self.held(state),
                Err(actual) => free = actual & !LOCKED,
            }
            patience.wait();
            #[cfg(not(any(loom, shuttle)))]
            // Relaxed: only a hint that the compare-exchange may succeed.
            while self.word.load(Ordering::Relaxed) & LOCKED != 0 {
                patience.wait();
            }
        }
    }
}

impl<T> std::fmt::Debug for WordLock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WordLock").field("state", &self.look()).finish_non_exhaustive()
    }
}

/// A [`WordLock`] that is held, and the state that it is left in. Unlocks also when something panics.
pub(crate) struct HeldWord<'a, T> {
    lock: &'a WordLock<T>,
    state: u32,
}

impl<T> HeldWord<'_, T> {
    /// State and value.
    #[inline(always)]
    pub(crate) fn parts(&mut self) -> (&mut u32, &mut T) {
        // SAFETY: LOCKED is ours until this is dropped, and this is borrowed as long as the answer lives: it is the only access.
        (&mut self.state, self.lock.value.with_mut(|value| unsafe { &mut *value }))
    }
}

impl<T> Drop for HeldWord<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(all(debug_assertions, not(any(loom, shuttle))))]
        held::change(-1);
        // Release: pairs with the acquire of the next holder, and of a look. A store: no other thread writes a word that is locked.
        self.lock.word.store(self.state & !LOCKED, Ordering::Release);
    }
}

/// How many of these locks a thread holds, for the checker of the order of locks: no channel may be locked while one is held.
#[cfg(all(debug_assertions, not(any(loom, shuttle))))]
pub(crate) mod held {
    use std::cell::Cell;

    thread_local! {
        static HELD: Cell<i32> = const { Cell::new(0) };
    }

    // (Not while the thread is being torn down.)
    pub(super) fn change(by: i32) {
        let _ = HELD.try_with(|held| held.set(held.get() + by));
    }

    pub(crate) fn count() -> i32 {
        HELD.try_with(Cell::get).unwrap_or(0)
    }
}
