//! Runtimes: building one, entering it, running in it, shutting it down.
//!
//! In reading order:
//!
//! ```text
//! builder.rs  the options, and the variables of the environment that set them
//! launch.rs   starting and stopping the threads; shutdown in numbered steps
//! runtime.rs  `Runtime`, `Handle`, `run`: entering, and carrying shutdown out
//! roots.rs    the life of a root scope: run its function, then wait for everything that was started in it
//! private.rs  what the attribute macros expand to
//! error.rs    a shutdown that took too long
//! ```
//!
//! Above: the libraries. Beside: `inspect`, since a runtime that hangs reports it itself, and `machine`, which it attaches. Below: `task`,
//! `scope`, `cancel`, `monitor`, `sched`. (The effects of a fork on a runtime are in `monitor::fork`.)

pub(crate) mod builder;
mod error;
pub(crate) mod launch;
pub(crate) mod private;
pub(crate) mod roots;
#[allow(clippy::module_inception)] // That is what it is about.
pub(crate) mod runtime;
#[cfg(test)]
mod tests;

pub use builder::{Cancellation, RuntimeBuilder};
pub use error::ShutdownError;
pub use runtime::{EnterGuard, Handle, Runtime, run};
