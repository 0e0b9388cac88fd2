//! Child processes in the shapes of `std::process`, method for method: a fiber that waits for one parks, and its worker goes on with
//! another.
//!
//! ```
//! use fibra::process::{Command, Stdio};
//! use std::io::{Read, Write};
//!
//! fibra::run(|| -> std::io::Result<()> {
//!     let output = Command::new("echo").arg("hello").output()?;
//!     assert_eq!(output.stdout, b"hello\n");
//!
//!     let mut child = Command::new("tr").args(["a-z", "A-Z"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
//!     child.stdin.take().unwrap().write_all(b"loud")?;
//!     let mut answer = String::new();
//!     child.stdout.take().unwrap().read_to_string(&mut answer)?;
//!     assert_eq!(answer, "LOUD");
//!     assert!(child.wait()?.success());
//!     Ok(())
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! * Starting a process takes about a millisecond and is done on the [blocking pool](crate::blocking). Pipes and the wait for the
//!   exit go through the worker's event loop, like sockets, and take no thread.
//! * Cancelling a fiber that waits, or a [`timeout`](crate::timeout) around it, leaves the child and its pipes as they are; they can still
//!   be used. A child is an arm of [`select!`](crate::select): `on(child.exiting()) -> status`.
//! * Dropping a [`Child`] does what it does in std: nothing. The process goes on, and when it exits it stays in the table of processes
//!   until this one ends. Wait for it, or use [`kill_on_drop`](Command::kill_on_drop), which also takes it out of the table.
//! * Writing to a child that reads no more is an error (`BrokenPipe`), as in std.
//! * All of it works on plain threads too.

// ```text
// command.rs  Command                 child.rs  Child: waiting, killing      exit.rs  the wait, and its arm
// pipe.rs     its three pipes
// ```

mod child;
mod command;
mod exit;
mod pipe;

pub use child::Child;
pub use command::Command;
pub use exit::ExitArm;
pub use pipe::{ChildStderr, ChildStdin, ChildStdout};
pub use std::process::{ExitCode, ExitStatus, Output, Stdio, Termination, abort, exit, id};
