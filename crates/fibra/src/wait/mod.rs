//! The waist: everything that can block goes through here (law 2), everything that wakes comes back through here.
//!
//! In reading order:
//!
//! ```text
//! reason.rs   why a fiber or thread waits
//! waitable.rs the trait of objects that can be waited on
//! park.rs     the wait: RUNNING → PARKING → PARKED → RUNNING, written once for fibers, threads and models
//! fiber.rs    how a fiber leaves and comes back
//! thread.rs   how a thread does
//! here.rs     the waiter: the current fiber or thread (here_model.rs: in a model)
//! budget.rs   calls that need not wait let other fibers run all the same
//! hooks.rs    functions of libraries that are called around the suspensions of fibers
//! watch.rs    the owner of a fiber learns that it waits
//! wake.rs     setting a claimed waiter going
//! task.rs     the wait of a future
//! poll.rs     waits without a node: futures that are polled by a fiber, a thread or the scheduler
//! io.rs       waiting for a descriptor: the loop around every operation on a socket, and its async form
//! ```
//!
//! Above: `cancel`, and everything that blocks. Below: `reactor` (sockets), `sched` (queues, timers), `waiter` (the word, nodes, records).

#[cfg(not(any(loom, shuttle)))]
mod budget;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod fiber;
#[cfg(not(any(loom, shuttle)))]
mod here;
#[cfg(any(loom, shuttle))]
#[path = "here_model.rs"]
mod here;
#[cfg(not(any(loom, shuttle)))]
pub mod hooks;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod io;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod own_locals;
pub(crate) mod park;
pub(crate) mod poll;
pub(crate) mod reason;
pub(crate) mod task;
mod thread;
pub(crate) mod waitable;
pub(crate) mod wake;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod watch;
