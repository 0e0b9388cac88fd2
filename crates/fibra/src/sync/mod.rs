//! Locks and their kin, in the shapes of `parking_lot` and `std`: for fibers, plain threads and async code, mixed on one object.
//!
//! Whoever waits parks its fiber (a thread blocks, a future is called later); nothing here allocates. There is no poisoning: whoever panics
//! or is cancelled lets go of what it holds.
//!
//! | to | there is |
//! |---|---|
//! | use something one at a time | [`Mutex`], [`ReentrantMutex`], several at once: [`lock_all`] |
//! | wait until something is true of it | [`Condvar`] |

// ```text
// gate.rs       the one mechanism: rules, a queue, grants              (everything here stands on it)
// owner.rs      who holds a lock
// mutex/        Mutex                reentrant.rs   ReentrantMutex
// condvar.rs    Condvar              all.rs         lock_all
// ```

mod all;
mod condvar;
pub(crate) mod gate;
pub(crate) mod mutex;
mod owner;
mod reentrant;

pub use all::{LockAll, lock_all};
pub use condvar::{Condvar, WaitTimeoutResult};
#[cfg(not(any(loom, shuttle)))]
pub use mutex::LockArm;
pub use mutex::{AsyncMutexGuard, LockFuture, MappedMutexGuard, Mutex, MutexGuard};
pub use reentrant::{ReentrantMutex, ReentrantMutexGuard};
