//! Runtimes: building one, entering it, running in it, shutting it down.
//!
//! In reading order:
//!
//! ```text
//! builder.rs  what can be settled, and by which variables of the environment
//! launch.rs   starting and stopping the threads; shutdown in numbered steps
//! runtime.rs  `Runtime`, `Handle`, `run`: entering, and carrying shutdown out
//! roots.rs    the life of a root scope: run its function, then wait for everything that was started in it
//! private.rs  what the attribute macros expand to
//! ```
//!
//! Above: the libraries. Beside: `inspect`, since a runtime that hangs says so itself, and `machine`, which it attaches. Below: `task`,
//! `scope`, `cancel`, `monitor`, `sched`. (What a fork does to a runtime is in `monitor::fork`.)

pub(crate) mod builder;
pub(crate) mod launch;
pub(crate) mod private;
pub(crate) mod roots;
#[allow(clippy::module_inception)] // That is what it is about.
pub(crate) mod runtime;

pub use builder::{Cancellation, RuntimeBuilder};
pub use runtime::{EnterGuard, Handle, Runtime, ShutdownError, run};
