//! Runtimes: building one, entering it, running in it, shutting it down.
//!
//! In reading order:
//!
//! ```text
//! builder.rs  the options, and the variables of the environment that set them
//! launch.rs   starting and stopping the threads; shutdown in numbered steps
//! runtime.rs  `Runtime`, `run`: running functions and fibers          own.rs  the one worker of a current-thread runtime
//! handle.rs   `Handle`: spawning from other threads, entering
//! shutdown.rs carrying shutdown out, and its error
//! roots.rs    the life of a root scope: run its function, then wait for everything that was started in it
//! private.rs  what the attribute macros expand to
//! ```
//!
//! Above: the libraries. Beside: `inspect`, since a runtime that hangs reports it itself, and `machine`, which it attaches. Below: `task`,
//! `scope`, `cancel`, `monitor`, `sched`. (The effects of a fork on a runtime are in `monitor::fork`.)

pub(crate) mod builder;
pub(crate) mod handle;
pub(crate) mod launch;
mod own;
pub(crate) mod private;
pub(crate) mod roots;
#[allow(clippy::module_inception)] // That is what it is about.
pub(crate) mod runtime;
mod shutdown;
#[cfg(test)]
mod tests;

pub use builder::{Cancellation, Locals, RuntimeBuilder};
pub use handle::{EnterGuard, Handle};
pub use runtime::{Runtime, run};
pub use shutdown::ShutdownError;
