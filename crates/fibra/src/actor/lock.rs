//! [`Lock`]: a lock that is handed over in order, for actors. [`lock_by_id`]: locks that are found by a number.
//!
//! Above: users' handlers. Below: `baton`, the lock without a value. The value lies in a `sync::Mutex` that is never contended, since only
//! the owner of the lock touches it.
//!
//! Invariant: `owner` is the actor (or the fiber or thread, if no handler runs) that has the lock; it is written
//! by the owner only.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::baton::Baton;
use super::core::{Detail, current_id, note};
use crate::monitor::names::{self, Name};
use crate::prim::atomic::{AtomicU64, Ordering};
use crate::sync::{AsyncMutexGuard, Mutex, MutexGuard};
use crate::task::current;
use crate::time::Instant;
use crate::wait::park;

/// What a report needs of a lock.
#[derive(Debug)]
pub(super) struct LockCore {
    pub(super) id: u64,
    /// The number of its owner, 0 if it has none: see [`me`].
    owner: AtomicU64,
}

impl LockCore {
    /// The actor that has it, if it is one.
    pub(super) fn owner(&self) -> Option<super::ActorId> {
        // Relaxed: for a report.
        let owner = self.owner.load(Ordering::Relaxed);
        (owner != 0 && owner & 1 == 0).then_some(super::ActorId(owner >> 1))
    }
}

/// What runs here, as a number: an actor, or a fiber or thread.
fn me() -> u64 {
    match current_id() {
        Some(actor) => actor.0 << 1,
        None => match current() {
            Some(fiber) => fiber.id().as_u64() << 1 | 1,
            // A thread: the address of a thread-local is its own. (Bit 63 tells it from a fiber.)
            None => thread_number() << 1 | 1 | 1 << 63,
        },
    }
}

fn thread_number() -> u64 {
    thread_local! {
        static MINE: u8 = const { 0 };
    }
    MINE.with(|mine| std::ptr::from_ref(mine).addr() as u64)
}

/// The owner of a lock that a task has: no actor, fiber or thread has this number, since one task may be polled by many, and many by one.
const A_TASK: u64 = u64::MAX;

/// Why a lock was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockError {
    /// The one that asks has it already, and would wait for itself.
    HeldByMe,
    /// It was not free, or not in time.
    TimedOut,
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HeldByMe => "this actor has the lock already, and would wait for itself: pass the guard on instead",
            Self::TimedOut => "the lock was not free in time",
        })
    }
}

impl std::error::Error for LockError {}

/// A lock around a value that is handed over in the order in which it was asked for: when it is released, it belongs to the next in the
/// queue before that one runs. (A [`sync::Mutex`](crate::sync::Mutex) may be taken by a newcomer meanwhile, which is faster, and no matter
/// as long as it is not held across a wait. Handlers hold locks across waits.)
///
/// Locking it twice is a panic that says so, or an error of [`checked_lock`](Self::checked_lock).
///
/// ```
/// use fibra::actor::Lock;
/// use std::sync::Arc;
///
/// fibra::run(|| {
///     let cents = Arc::new(Lock::new(0));
///     let fibers: Vec<_> = (0..4)
///         .map(|_| {
///             let cents = cents.clone();
///             fibra::spawn(move || *cents.lock() += 25)
///         })
///         .collect();
///     fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
///     assert_eq!(*cents.lock(), 100);
/// });
/// ```
pub struct Lock<T> {
    baton: Baton,
    core: Arc<LockCore>,
    value: Mutex<T>,
}

impl<T> Lock<T> {
    /// A lock that is free.
    pub fn new(value: T) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1 << 48);
        // Relaxed: a number that is given once; above those that people choose.
        Self::with_id(value, NEXT.fetch_add(1, Ordering::Relaxed))
    }

    fn with_id(value: T, id: u64) -> Self {
        let core = Arc::new(LockCore { id, owner: AtomicU64::new(0) });
        Self { baton: Baton::new(), core, value: Mutex::new(value) }
    }

    /// Its number: the one it is found by, or one of its own.
    pub fn id(&self) -> u64 {
        self.core.id
    }

    fn guard(&self, me: u64) -> LockGuard<'_, T> {
        // Relaxed: only the owner writes it, and compares it with itself; others guess.
        self.core.owner.store(me, Ordering::Relaxed);
        let value = self.value.try_lock().expect("only the owner of the lock touches the value");
        LockGuard { value: Some(value), lock: self }
    }

    fn lock_until(
        &self,
        deadline: Option<u64>,
        site: &'static Location<'static>,
    ) -> Result<LockGuard<'_, T>, LockError> {
        park::entry();
        let me = me();
        if self.baton.try_take() {
            return Ok(self.guard(me));
        }
        // Relaxed: if it is this one, then this one wrote it.
        if self.core.owner.load(Ordering::Relaxed) == me {
            return Err(LockError::HeldByMe);
        }
        let _noted = note(|| Detail::Lock(self.core.clone()));
        if self.baton.take(self.core.id, deadline, site) { Ok(self.guard(me)) } else { Err(LockError::TimedOut) }
    }

    /// Takes the lock, waiting in order.
    ///
    /// # Panics
    /// If the actor (or fiber, or thread) has it already.
    #[track_caller]
    pub fn lock(&self) -> LockGuard<'_, T> {
        match self.lock_until(None, Location::caller()) {
            Ok(guard) => guard,
            Err(error) => panic!("fibra: {error}"),
        }
    }

    /// Takes the lock, waiting in order.
    ///
    /// # Errors
    /// If the actor (or fiber, or thread) has it already.
    #[track_caller]
    pub fn checked_lock(&self) -> Result<LockGuard<'_, T>, LockError> {
        self.lock_until(None, Location::caller())
    }

    /// Takes the lock if it is free and no other waits for it.
    #[must_use]
    pub fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        park::count_call();
        self.baton.try_take().then(|| self.guard(me()))
    }

    /// Takes the lock, waiting in order, for at most `timeout`.
    ///
    /// # Errors
    /// If time was up, or the actor (or fiber, or thread) has it already.
    #[track_caller]
    pub fn lock_timeout(&self, timeout: Duration) -> Result<LockGuard<'_, T>, LockError> {
        self.lock_deadline(Instant::after(timeout))
    }

    /// Takes the lock, waiting in order, until `deadline` at most.
    ///
    /// # Errors
    /// If time was up, or the actor (or fiber, or thread) has it already.
    #[track_caller]
    pub fn lock_deadline(&self, deadline: impl Into<Instant>) -> Result<LockGuard<'_, T>, LockError> {
        self.lock_until(Some(deadline.into().as_nanos()), Location::caller())
    }

    /// Takes the lock, waiting in order, as a future. A future that is dropped leaves the queue. (That a task has the lock already is not
    /// found out: it would wait for itself.)
    ///
    /// ```
    /// use fibra::actor::Lock;
    ///
    /// let cents = Lock::new(5);
    /// fibra::block_on(async {
    ///     *cents.lock_async().await += 1;
    /// });
    /// assert_eq!(*cents.lock(), 6);
    /// ```
    pub async fn lock_async(&self) -> AsyncLockGuard<'_, T> {
        self.baton.take_async().await;
        // (From here on it is released also if this future is dropped.)
        let mut guard = AsyncLockGuard { value: None, lock: self };
        // Relaxed: as in `guard`.
        self.core.owner.store(A_TASK, Ordering::Relaxed);
        guard.value = Some(self.value.lock_async().await);
        guard
    }

    /// Is it taken?
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.baton.is_taken()
    }

    /// The actor that has it, if an actor does.
    pub fn owner(&self) -> Option<super::ActorId> {
        self.core.owner()
    }

    fn unlock(&self) {
        // Relaxed: as in `guard`.
        self.core.owner.store(0, Ordering::Relaxed);
        self.baton.give();
    }
}

impl<T: fmt::Debug> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("id", &self.core.id).field("value", &self.value).finish()
    }
}

/// Holds a [`Lock`] until it is dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct LockGuard<'a, T> {
    /// Taken away before the lock is released.
    value: Option<MutexGuard<'a, T>>,
    lock: &'a Lock<T>,
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value.as_ref().expect("there until it is dropped")
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("there until it is dropped")
    }
}

impl<T> Drop for LockGuard<'_, T> {
    fn drop(&mut self) {
        drop(self.value.take());
        self.lock.unlock();
    }
}

/// Holds a [`Lock`] that was taken by [`lock_async`](Lock::lock_async) until it is dropped. It may go to another thread.
#[must_use = "the lock is released when the guard is dropped"]
pub struct AsyncLockGuard<'a, T> {
    /// Taken away before the lock is released.
    value: Option<AsyncMutexGuard<'a, T>>,
    lock: &'a Lock<T>,
}

impl<T> Deref for AsyncLockGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value.as_ref().expect("there until it is dropped")
    }
}

impl<T> DerefMut for AsyncLockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("there until it is dropped")
    }
}

impl<T> Drop for AsyncLockGuard<'_, T> {
    fn drop(&mut self) {
        drop(self.value.take());
        self.lock.unlock();
    }
}

impl<T: fmt::Debug> fmt::Debug for AsyncLockGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for LockGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The lock of this number: the same one for all who ask while one of them has it. For what has a number and no value here: an account, a
/// row of a table.
///
/// ```
/// use fibra::actor::{lock_both, lock_by_id};
///
/// fibra::run(|| {
///     let (from, to) = (lock_by_id(17), lock_by_id(4));
///     let _both = lock_both(&from, &to); // in an order that all keep
///     assert!(lock_by_id(17).is_locked());
/// });
/// ```
pub fn lock_by_id(id: u64) -> Arc<Lock<()>> {
    // (Under a lock that is held for a look: no OS thread is blocked for longer.)
    let fresh = Arc::new(Lock::with_id((), id));
    names::with(|names| {
        if let Some(lock) = names.get(&Name::Lock(id)).and_then(found) {
            return lock;
        }
        names.insert(Name::Lock(id), Arc::new(Arc::downgrade(&fresh)));
        // Locks to which no reference is left go when there is a new one: of many, a part at a time.
        let count = names.len();
        if count.is_power_of_two() {
            names.retain(|name, lock| !matches!(name, Name::Lock(_)) || found(lock).is_some());
        }
        fresh
    })
}

fn found(entry: &Arc<dyn Any + Send + Sync>) -> Option<Arc<Lock<()>>> {
    entry.downcast_ref::<Weak<Lock<()>>>()?.upgrade()
}

/// Takes two locks in the order of their numbers, so that two who want the same two never wait for each other.
///
/// # Panics
/// If they are the same, or one of them is held already.
#[track_caller]
pub fn lock_both<'a, T, U>(one: &'a Lock<T>, other: &'a Lock<U>) -> (LockGuard<'a, T>, LockGuard<'a, U>) {
    if one.id() < other.id() {
        let first = one.lock();
        (first, other.lock())
    } else {
        let second = other.lock();
        (one.lock(), second)
    }
}
