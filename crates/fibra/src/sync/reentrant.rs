//! [`ReentrantMutex`]: a lock that its holder may take again. The lock of a mutex, who holds it, and how often.
//!
//! The name in the lock is not enough to be let in by: if its holder forgot the guard and ended, another fiber has that name next, while a
//! reference to the value may be left where the first one ran (in a thread-local). So the holder's number is noted beside it.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::Location;

use super::mutex::cancelled;
use super::mutex::raw::{RawMutex, Why};
use super::owner;
use crate::prim::atomic::{AtomicU64, Ordering};
use crate::wait::park;
use crate::wait::reason::WaitReason;
use crate::waiter::node::Outcome;

/// A lock that the fiber or thread that holds it may take again, as often as it likes. Because of that it gives shared access only:
/// put a `Cell` or a `RefCell` in it to change what it guards.
///
/// ```
/// use std::cell::Cell;
/// use fibra::sync::ReentrantMutex;
///
/// let depth = ReentrantMutex::new(Cell::new(0));
/// fn dive(depth: &ReentrantMutex<Cell<u32>>, left: u32) {
///     let guard = depth.lock();
///     guard.set(guard.get() + 1);
///     if left > 0 {
///         dive(depth, left - 1);
///     }
/// }
/// dive(&depth, 3);
/// assert_eq!(depth.into_inner().get(), 4);
/// ```
///
/// Otherwise it is like [`Mutex`](super::Mutex): barging and hand-over, no poisoning, and a cancelled fiber unwinds from
/// [`lock`](Self::lock). There is no async form: nobody in particular runs a future.
#[derive(Default)]
pub struct ReentrantMutex<T: ?Sized> {
    raw: RawMutex,
    /// The number of whoever holds it, or held it last.
    holder: AtomicU64,
    /// How often it is held beyond the first time. Its holder's.
    again: Cell<usize>,
    value: T,
}

// SAFETY: only the holder touches `again` and the value, so sharing the lock only ever moves the value between threads.
unsafe impl<T: ?Sized + Send> Sync for ReentrantMutex<T> {}
// SAFETY: it owns the value; nobody waits while it moves.
unsafe impl<T: ?Sized + Send> Send for ReentrantMutex<T> {}

impl<T> ReentrantMutex<T> {
    /// One around `value`, unlocked. In a `static` too.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self { raw: RawMutex::new(), holder: AtomicU64::new(0), again: Cell::new(0), value }
    }
    /// One around `value`, unlocked.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self { raw: RawMutex::new(), holder: AtomicU64::new(0), again: Cell::new(0), value }
    }

    /// The value; nobody else can have it any more.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T: ?Sized> ReentrantMutex<T> {
    /// Locks it, at once if this fiber or thread holds it already, waiting otherwise if need be.
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> ReentrantMutexGuard<'_, T> {
        let me = owner::me_calling();
        if !self.raw.lock_fast(me) {
            if self.enter_again(me) {
                return self.guard();
            }
            let why = Why { reason: WaitReason::ReentrantLock, site: Location::caller(), deadline: None };
            if self.raw.lock_slow(me, why) != Outcome::Done {
                cancelled();
            }
        }
        self.note_holder();
        self.guard()
    }

    /// Locks it if it is free, or held by this fiber or thread.
    ///
    /// ```
    /// let mutex = fibra::sync::ReentrantMutex::new(1);
    /// let (one, two) = (mutex.lock(), mutex.try_lock().unwrap());
    /// std::thread::scope(|s| {
    ///     s.spawn(|| assert!(mutex.try_lock().is_none()));
    /// });
    /// assert_eq!(*one + *two, 2);
    /// ```
    pub fn try_lock(&self) -> Option<ReentrantMutexGuard<'_, T>> {
        self.try_lock_as(owner::me_calling())
    }

    fn try_lock_as(&self, me: usize) -> Option<ReentrantMutexGuard<'_, T>> {
        if !self.enter_again(me) {
            if !self.raw.try_lock(me) {
                return None;
            }
            self.note_holder();
        }
        Some(self.guard())
    }

    /// Is it locked at this moment?
    pub fn is_locked(&self) -> bool {
        park::count_call();
        self.raw.owner() != 0
    }

    /// Does this fiber or thread hold it?
    pub fn is_mine(&self) -> bool {
        self.is_held_by(owner::me())
    }

    fn is_held_by(&self, me: usize) -> bool {
        // Relaxed: if we hold it, we wrote that ourselves; whatever else is there is not our number.
        self.raw.owner() == me && self.holder.load(Ordering::Relaxed) == owner::my_number()
    }

    fn note_holder(&self) {
        // Relaxed: as above.
        self.holder.store(owner::my_number(), Ordering::Relaxed);
    }

    /// The value, without locking: nobody else has a reference.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.value
    }

    fn enter_again(&self, me: usize) -> bool {
        let mine = self.is_held_by(me);
        if mine {
            self.again.set(self.again.get().checked_add(1).expect("fibra: a ReentrantMutex that is locked too often"));
        }
        mine
    }

    fn guard(&self) -> ReentrantMutexGuard<'_, T> {
        ReentrantMutexGuard { mutex: self, stays: PhantomData }
    }
}

impl<T> From<T> for ReentrantMutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

#[cfg(not(any(loom, shuttle)))]
impl<T: ?Sized + fmt::Debug> fmt::Debug for ReentrantMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = f.debug_struct("ReentrantMutex");
        // (Not `try_lock`, which may let others run.)
        match self.try_lock_as(owner::me()) {
            Some(guard) => words.field("value", &&*guard),
            None => words.field("locked_by", &format_args!("{}", owner::Words(self.raw.owner()))),
        };
        words.finish()
    }
}

/// The right to look at what a [`ReentrantMutex`] guards. It stays with its fiber.
#[must_use = "the mutex is unlocked when the guard is dropped"]
pub struct ReentrantMutexGuard<'a, T: ?Sized> {
    mutex: &'a ReentrantMutex<T>,
    /// Not `Send`: the lock is let go by the fiber or thread that took it.
    stays: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared access to the value, and nothing else.
unsafe impl<T: ?Sized + Sync> Sync for ReentrantMutexGuard<'_, T> {}

impl<T: ?Sized> Deref for ReentrantMutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.mutex.value
    }
}

impl<T: ?Sized> Drop for ReentrantMutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        match self.mutex.again.get() {
            0 => self.mutex.raw.unlock(),
            again => self.mutex.again.set(again - 1),
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for ReentrantMutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for ReentrantMutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}
