//! Locks and their kin, in the shapes of `parking_lot` and `std`: for fibers, plain threads and async code, mixed on one object.
//!
//! A waiting fiber parks (a thread blocks, a future is called later); nothing here allocates. There is no poisoning: a fiber that panics or
//! is cancelled lets go of what it holds.
//!
//! | to | there is |
//! |---|---|
//! | use a value one at a time | [`Mutex`], [`ReentrantMutex`], several at once: [`lock_all`] |
//! | wait until a condition on it holds | [`Condvar`] |
//! | read together, write alone | [`RwLock`] |
//! | let at most so many in at a time | [`Semaphore`] |
//! | make or do something once | [`OnceLock`], [`LazyLock`], [`Once`] |
//! | wait for a signal, for a whole group, for the end | [`Event`], [`Barrier`], [`WaitGroup`] |

// ```text
// gate.rs       the one mechanism: rules, a queue, grants              (everything here stands on it)
// owner.rs      the holder of a lock, in one word
// mutex/        Mutex                reentrant.rs   ReentrantMutex
// condvar.rs    Condvar              all.rs         lock_all
// rwlock/       RwLock               semaphore/     Semaphore
// turns.rs      counts, a flag and the number of a turn: under event.rs, barrier.rs and wait_group.rs
// once.rs       Once                 once_lock.rs   OnceLock, LazyLock
// seen.rs       the state of a lock that a fiber waits for, read for a report
// ```

mod all;
mod barrier;
mod condvar;
mod event;
pub(crate) mod gate;
pub(crate) mod mutex;
mod once;
mod once_lock;
mod owner;
mod reentrant;
mod rwlock;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod seen;
mod semaphore;
mod turns;
mod wait_group;

pub use all::{LockAll, lock_all};
pub use barrier::{Barrier, BarrierFuture, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use event::Event;
#[cfg(not(any(loom, shuttle)))]
pub use mutex::LockArm;
pub use mutex::{AsyncMutexGuard, LockFuture, MappedMutexGuard, Mutex, MutexGuard};
pub use once::Once;
#[cfg(not(any(loom, shuttle)))]
pub use once_lock::LazyLock;
pub use once_lock::OnceLock;
pub use reentrant::{ReentrantMutex, ReentrantMutexGuard};
pub use rwlock::{
    Anywhere, AsyncRwLockReadGuard, AsyncRwLockWriteGuard, Here, MappedRwLockReadGuard, MappedRwLockWriteGuard,
    ReadArm, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard, WriteArm,
};
pub use semaphore::{
    AcquireArm, AcquireError, AcquireFuture, AcquireTimeoutError, OwnedPermit, Permit, Semaphore, TryAcquireError,
};
pub use turns::{TurnArm, TurnFuture};
pub use wait_group::WaitGroup;
