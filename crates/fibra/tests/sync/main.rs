//! Tests of locks and their kin, of rates and retries, through the public API.
//!
//! One program for the whole room, so that it is linked once. A module is one promise. A test that needs a process of its own (limits of
//! the process, its variables and signals, what the kernel says about it) starts one: `support::rerun_self`.
#![cfg(not(any(loom, shuttle)))]

#[path = "../support/channels.rs"]
mod channels;
mod condvar;
mod departures;
mod exact;
mod extreme_rates;
mod mutex;
mod once;
mod rate_and_retry;
mod rwlock;
mod semaphore;
mod several;
mod spec;
#[path = "../support/mod.rs"]
mod support;
mod turns;
mod waiting_for_oneself;
