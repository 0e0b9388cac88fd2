//! Tests of runtimes, fibers, tasks, timers and scheduling, through the public API.
//!
//! One program for the whole room, so that it is linked once. A module is one promise; a test that needs a process of its own
//! (a counting allocator, limits of the process, what the kernel says about it) is a file beside this folder and says why.
#![cfg(not(any(loom, shuttle)))]

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tools.rs"]
mod tools;

mod narrow_windows;
