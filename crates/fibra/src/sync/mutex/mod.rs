//! [`Mutex`]: a value that one fiber, thread or future uses at a time. Above: users. Below: the gate, `owner`.
//!
//! ```text
//! raw.rs     the lock: one word, barging and hand-over            guard.rs    what one holds while one holds it
//! future.rs  locking in async code                                arm.rs      locking as an arm of a select
//! model.rs   loom models of all of it
//! ```

use std::cell::UnsafeCell;
use std::fmt;
use std::panic::Location;
use std::time::Duration;

use super::owner;
use crate::time::Instant;
use crate::wait::park;
use crate::wait::reason::WaitReason;
use crate::waiter::node::Outcome;

#[cfg(not(any(loom, shuttle)))]
mod arm;
mod future;
mod guard;
#[cfg(all(test, any(loom, shuttle)))]
mod model;
pub(super) mod raw;

#[cfg(not(any(loom, shuttle)))]
pub use arm::LockArm;
pub use future::LockFuture;
pub use guard::{AsyncMutexGuard, MappedMutexGuard, MutexGuard};
use raw::{RawMutex, Why};

/// Time for models, which have none: either no waiter has waited for long, or all have.
#[cfg(any(loom, shuttle))]
pub(crate) mod model_clock {
    use std::cell::Cell;

    thread_local! {
        static LATE: Cell<bool> = const { Cell::new(false) };
    }

    /// Have all waiters waited for too long, or none? (Loom runs all threads of a model on one.)
    pub(crate) fn all_waiters_are_late(late: bool) {
        LATE.set(late);
    }

    pub(crate) fn is_late() -> bool {
        LATE.get()
    }
}

/// A lock around a value. A waiter parks its fiber (or blocks its thread, or has its future called later); all three may share one mutex.
///
/// The shape is parking_lot's: [`lock`](Self::lock) returns the guard, and there is no poisoning. A fiber that panics or is cancelled
/// releases what it holds.
///
/// ```
/// use fibra::sync::Mutex;
///
/// static TOTAL: Mutex<u64> = Mutex::new(0);
///
/// fibra::run(|| {
///     let adders: Vec<_> = (1..=100).map(|n| fibra::spawn(move || *TOTAL.lock() += n)).collect();
///     for adder in adders {
///         adder.join().unwrap();
///     }
///     assert_eq!(*TOTAL.lock(), 5050);
/// });
/// ```
///
/// A guard may be held across blocking calls of fibra: others wait. It stays with its fiber (it is not `Send`); the guard of
/// [`lock_async`](Self::lock_async) is `Send`.
///
/// * **Fairness**: a mutex that is free goes to the first caller that asks, even if others wait in the queue (that is what makes it fast).
///   But once the head of the queue has waited for about a millisecond, the unlocker hands the mutex over. Async waiters are only called
///   and may be overtaken.
/// * **Its own holder**: locking a mutex that the caller holds panics and says so; it does not wait for ever. (It goes unnoticed if the
///   mutex is held through an async guard, which belongs to no particular fiber.) See [`ReentrantMutex`](super::ReentrantMutex).
/// * **Cancellation**: a cancelled fiber that waits here unwinds, without the lock.
/// * A guard that is forgotten (`mem::forget`) leaves the mutex locked for ever.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    raw: RawMutex,
    value: UnsafeCell<T>,
}

// SAFETY: the lock makes access to the value exclusive, so sharing the mutex only ever moves the value between threads.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}
// SAFETY: it owns the value; the queue of the lock is empty while it moves, since a waiter borrows it.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}

impl Default for RawMutex {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Mutex<T> {
    /// A mutex around `value`, unlocked. In a `static` too.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self { raw: RawMutex::new(), value: UnsafeCell::new(value) }
    }
    /// A mutex around `value`, unlocked.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self { raw: RawMutex::new(), value: UnsafeCell::new(value) }
    }

    /// The value; no guard of it can exist any more.
    ///
    /// ```
    /// assert_eq!(fibra::sync::Mutex::new(3).into_inner(), 3);
    /// ```
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks it, waiting if need be.
    ///
    /// # Panics
    /// If this fiber or thread holds it already: it would wait for ever.
    ///
    /// ```should_panic
    /// let mutex = fibra::sync::Mutex::new(1);
    /// let first = mutex.lock();
    /// let second = mutex.lock(); // panics: "... holds it already ..."
    /// ```
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.lock_as(owner::me_calling())
    }

    /// [`lock`](Self::lock) by `me`, the current fiber or thread, which has counted the call.
    #[track_caller]
    #[inline(always)]
    pub(super) fn lock_as(&self, me: usize) -> MutexGuard<'_, T> {
        if !self.raw.lock_fast(me) {
            self.wait_for(me, WaitReason::MutexLock, Location::caller());
        }
        // SAFETY: just locked, by us.
        unsafe { MutexGuard::new(self) }
    }

    /// Locks it if it is free.
    ///
    /// ```
    /// let mutex = fibra::sync::Mutex::new(1);
    /// let guard = mutex.try_lock().unwrap();
    /// assert!(mutex.try_lock().is_none());
    /// drop(guard);
    /// assert!(mutex.try_lock().is_some());
    /// ```
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        // SAFETY: just locked, by us.
        self.raw.try_lock(owner::me_calling()).then(|| unsafe { MutexGuard::new(self) })
    }

    /// Locks it, waiting for so long at most. `Duration::ZERO` tries, and lets others run if that fails; `Duration::MAX` is for ever.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// fibra::run(|| {
    ///     let mutex = std::sync::Arc::new(fibra::sync::Mutex::new(1));
    ///     let held = mutex.lock();
    ///     let other = mutex.clone();
    ///     let waiter = fibra::spawn(move || other.try_lock_for(Duration::from_millis(5)).is_none());
    ///     assert!(waiter.join().unwrap());
    ///     drop(held);
    ///     assert!(mutex.try_lock_for(Duration::MAX).is_some());
    /// });
    /// ```
    #[track_caller]
    pub fn try_lock_for(&self, timeout: Duration) -> Option<MutexGuard<'_, T>> {
        self.lock_at(|| Instant::after(timeout), Location::caller())
    }

    /// Locks it, waiting until `deadline` at most.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[track_caller]
    pub fn try_lock_until(&self, deadline: impl Into<Instant>) -> Option<MutexGuard<'_, T>> {
        self.lock_at(|| deadline.into(), Location::caller())
    }

    /// Locks it in async code. The guard is `Send`. Dropping the future gives its place in the queue away, and loses nothing.
    ///
    /// ```
    /// let mutex = fibra::sync::Mutex::new(vec![1]);
    /// fibra::block_on(async {
    ///     mutex.lock_async().await.push(2);
    /// });
    /// assert_eq!(mutex.into_inner(), [1, 2]);
    /// ```
    pub fn lock_async(&self) -> LockFuture<'_, T> {
        LockFuture::new(self)
    }

    /// Is it locked at this moment?
    pub fn is_locked(&self) -> bool {
        park::count_call();
        self.raw.owner() != 0
    }

    /// The value, without locking: the exclusive reference is the only one.
    ///
    /// ```
    /// let mut mutex = fibra::sync::Mutex::new(1);
    /// *mutex.get_mut() += 1;
    /// assert_eq!(mutex.into_inner(), 2);
    /// ```
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The address of the value. Only code that knows that the lock is held may follow the pointer.
    pub fn data_ptr(&self) -> *mut T {
        self.value.get()
    }

    pub(super) fn raw(&self) -> &RawMutex {
        &self.raw
    }

    fn lock_at(
        &self,
        deadline: impl FnOnce() -> Instant,
        site: &'static Location<'static>,
    ) -> Option<MutexGuard<'_, T>> {
        let me = owner::me_calling();
        if !self.raw.try_lock(me) {
            self.refuse_own(me, site);
            let deadline = Some(deadline().as_nanos());
            match self.raw.lock_slow(me, Why { reason: WaitReason::MutexLock, site, deadline }) {
                Outcome::Done => {}
                Outcome::TimedOut => return None,
                _ => cancelled(),
            }
        }
        // SAFETY: just locked, by us.
        Some(unsafe { MutexGuard::new(self) })
    }

    /// The slow way of [`lock`](Self::lock).
    #[cold]
    #[inline(never)]
    pub(super) fn wait_for(&self, me: usize, reason: WaitReason, site: &'static Location<'static>) {
        self.refuse_own(me, site);
        match self.raw.lock_slow(me, Why { reason, site, deadline: None }) {
            Outcome::Done => {}
            Outcome::TimedOut => unreachable!("there is no deadline"),
            _ => cancelled(),
        }
    }

    /// Panics if the caller holds the lock already: it must not wait for itself.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn refuse_own(&self, me: usize, site: &'static Location<'static>) {
        if self.raw.owner() == me {
            panic!(
                "fibra: {} holds this Mutex<{}> already and would wait for itself for ever (locking it at {site}). \
                 Drop the first guard before, hand on what it guards instead of locking again, or use a ReentrantMutex",
                owner::Words(me),
                std::any::type_name::<T>(),
            );
        }
    }
    #[cfg(any(loom, shuttle))]
    pub(super) fn refuse_own(&self, _: usize, _: &'static Location<'static>) {}
}

/// Unwinds: the wait was cancelled, and has given back what it had.
#[cold]
pub(super) fn cancelled() -> ! {
    #[cfg(not(any(loom, shuttle)))]
    crate::cancel::deliver();
    #[cfg(any(loom, shuttle))]
    std::panic::resume_unwind(Box::new(crate::wait::park::CancelledInModel));
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

/// The value if it is free, and otherwise its holder.
#[cfg(not(any(loom, shuttle)))]
impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = f.debug_struct("Mutex");
        // (Not `try_lock`, which may let others run.)
        // SAFETY: just locked, by us.
        match self.raw.try_lock(owner::me()).then(|| unsafe { MutexGuard::new(self) }) {
            Some(guard) => words.field("value", &&*guard),
            None => words.field("locked_by", &format_args!("{}", owner::Words(self.raw.owner()))),
        };
        words.finish()
    }
}
