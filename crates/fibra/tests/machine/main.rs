//! Tests of machines and event loops, through the public API.
//!
//! One program for the whole room, so that it is linked once. A module is one promise. A test that needs a process of its own (limits of
//! the process, its variables and signals, what the kernel says about it) starts one: `support::rerun_self`.
#![cfg(not(any(loom, shuttle)))]

mod basics;
mod beside_fibers;
mod mesh;
mod odd_moments;
mod platform_closing;
mod platform_odd_moments;
mod platform_receives;
mod platform_streams;
mod platform_workers;
mod spec;
#[path = "../support/mod.rs"]
mod support;
mod tree;
