//! Tests of files, processes, signals and standard streams, through the public API.
//!
//! One program for the whole room, so that it is linked once. A module is one promise. A test that needs a process of its own (limits of
//! the process, its variables and signals, what the kernel says about it) starts one: `support::rerun_self`.
#![cfg(not(any(loom, shuttle)))]

mod fs;
mod process;
mod signal;
mod standard_streams;
#[path = "../support/mod.rs"]
mod support;
