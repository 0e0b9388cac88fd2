//! The life of a fiber on its worker, from its first turn to its end.
//!
//! In reading order:
//!
//! ```text
//! newest.rs      taking back what one has spawned          offer.rs       the second half of a `join`: offered, and taken back
//! binding.rs     how a fiber comes by its stack            stackless.rs   when there is none to be had
//! succession.rs  a stack goes from a fiber to the next     ending.rs      the end of a fiber
//! starting.rs    a start with something to consider: cancelled, a daemon, hooks
//! migrate.rs     started fibers that move (`unstable-migration`)
//! moving.rs      started fibers that move because they have thread-locals of their own
//! homing.rs      where these go when they are woken
//! ```
//!
//! Above: the worker's loop. Below: `queue`, `members`, `fiber`, `waiter`.

#[cfg(not(any(loom, shuttle)))]
pub(super) mod binding;
#[cfg(not(any(loom, shuttle)))]
mod ending;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod homing;
#[cfg(all(not(any(loom, shuttle)), feature = "unstable-migration"))]
pub(crate) mod migrate;
#[cfg(all(test, any(loom, shuttle)))]
mod model;
#[cfg(not(any(loom, shuttle)))]
mod moving;
pub(super) mod newest;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod offer;
#[cfg(not(any(loom, shuttle)))]
mod stackless;
#[cfg(not(any(loom, shuttle)))]
mod starting;
#[cfg(not(any(loom, shuttle)))]
mod succession;
