//! The byte spin lock that guards wait lists: locked for a handful of instructions, never across user code.
//!
//! Unlock is a plain release store (an unlock by swap doubled the cost of a buffered channel in the prototype). After a
//! bounded spin the waiter gives its time slice away, since the holder may have been preempted. Above: every wait list. Below: an atomic.

use super::atomic::{AtomicBool, Ordering};
use super::cell::UnsafeCell;

/// Spins before the waiter starts to give its time slice away.
const SPINS_BEFORE_YIELD: u32 = 1000;

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
        let mut spins = 0;
        loop {
            #[cfg(not(any(loom, shuttle)))]
            // Relaxed: only a hint that the swap below may succeed; the swap does the ordering.
            while self.0.load(Ordering::Relaxed) {
                spins += 1;
                if spins < SPINS_BEFORE_YIELD {
                    std::hint::spin_loop();
                } else {
                    super::thread::yield_now();
                }
            }
            #[cfg(any(loom, shuttle))]
            {
                spins += 1;
                let _ = (spins, SPINS_BEFORE_YIELD);
                super::thread::yield_now();
            }
            if self.try_lock() {
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
