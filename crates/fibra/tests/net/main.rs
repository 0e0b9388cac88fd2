//! Tests of sockets, through the public API.
//!
//! One program for the whole room, so that it is linked once. A module is one promise. A test that needs a process of its own (limits of
//! the process, its variables and signals, what the kernel says about it) starts one: `support::rerun_self`.
#![cfg(not(any(loom, shuttle)))]

mod async_forms;
mod ends;
mod fairness;
mod faults;
mod faults_cancel;
mod faults_handles;
mod faults_limits;
mod faults_peers;
mod forks;
mod forms;
#[path = "../support/mod.rs"]
mod support;
mod tcp;
#[path = "../support/tools.rs"]
mod tools;
mod udp;
mod unix;
mod urgent;
mod waits_and_readers;
