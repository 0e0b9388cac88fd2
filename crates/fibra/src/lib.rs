//! fibra: plain blocking code, a million fibers.
#![cfg_attr(any(loom, shuttle), allow(dead_code, unused_imports))]

#[cfg(not(any(loom, shuttle)))]
mod driver;
mod fiber;
#[cfg(not(any(loom, shuttle)))]
mod machine;
#[cfg(not(any(loom, shuttle)))]
mod observe;
mod prim;
mod sched;
#[cfg(not(any(loom, shuttle)))]
mod scope;
#[cfg(not(any(loom, shuttle)))]
pub mod time;
mod wait;

#[cfg(not(any(loom, shuttle)))]
mod public {
    pub use crate::observe::metrics::{Metrics, WorkerMetrics};
    pub use crate::scope::{
        Builder, Cancellation, EnterGuard, Fiber, FiberId, FiberLocal, Handle, JoinError, JoinFuture, JoinHandle,
        Runtime, RuntimeBuilder, ShutdownError, block_on, blocking, cancel_reason, checkpoint, current, is_cancelled,
        no_suspend, run, shield, spawn, spawn_blocking, spawn_future, spawn_local, yield_now,
    };
    pub use crate::time::{sleep, sleep_until};
    pub use crate::wait::cancel::{CancelReason, is_cancellation};
    pub use crate::wait::reason::WaitReason;
    pub use fibra_macros::{main, test};
}
#[cfg(not(any(loom, shuttle)))]
pub use public::*;

/// What the macros expand to; not public API.
#[cfg(not(any(loom, shuttle)))]
#[doc(hidden)]
pub mod __private {
    pub use crate::scope::private::*;
}
