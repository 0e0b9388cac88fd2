//! The waist: everything that can block goes through here (law 2), everything that wakes comes back through here.
//!
//! ```text
//! word.rs     the state machine: one AtomicU64 per waiter          (lowest floor: `fiber` and `sched` name it too)
//! flags.rs    what a waiter is told and notes about itself: named bits (lowest floor)
//! node.rs     who waits for an object: nodes and lists              (lowest floor)
//! waker.rs    the records of threads and async waits, and unparking (lowest floor)
//! waitable.rs what can be waited on
//! revoke.rs   cancel against park, both sides                       (lowest floor)
//! park.rs     the wait: RUNNING → PARKING → PARKED → RUNNING, written once for all who wait
//! fiber.rs    how a fiber leaves and comes back
//! thread.rs   how a thread does
//! here.rs     who waits here (here_model.rs: in a model)
//! hooks.rs    what libraries want done around the suspensions of fibers
//! budget.rs   calls that need not wait let others run all the same
//! wake.rs     setting a claimed waiter going
//! task.rs     the wait of a future
//! notify.rs   waits without a node: futures that are polled by a fiber, a thread or the scheduler
//! io.rs       waiting for a descriptor: the loop around every operation on a socket, and its async form
//! reason.rs   why something waits
//! ```

#[cfg(not(any(loom, shuttle)))]
mod budget;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod fiber;
pub(crate) mod flags;
#[cfg(not(any(loom, shuttle)))]
mod here;
#[cfg(any(loom, shuttle))]
#[path = "here_model.rs"]
mod here;
#[cfg(not(any(loom, shuttle)))]
pub mod hooks;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod io;
pub(crate) mod node;
pub(crate) mod notify;
pub(crate) mod park;
pub(crate) mod reason;
pub(crate) mod revoke;
pub(crate) mod task;
mod thread;
pub(crate) mod waitable;
pub(crate) mod wake;
pub(crate) mod waker;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod watch;
pub(crate) mod word;
