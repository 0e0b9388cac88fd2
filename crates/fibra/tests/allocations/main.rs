//! What allocates, and what is freed: a counting allocator under the runtime, channels, locks and machines.
//!
//! A program of its own, because a program has one allocator. Counted is what the worker's thread allocates: the test harness has threads
//! too, and sysmon keeps a list while it gives idle stacks back to the system. The pools of stacks and frames belong to the whole process,
//! so a test that says "nothing more is allocated" must be the only one that takes from them: it begins with [`alone`].
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::disallowed_types)] // The lock must not be one that is counted.

mod channel;
#[path = "../support/counting.rs"]
mod counting;
mod flood;
mod large_results;
mod machine;
mod runtime;
#[path = "../support/mod.rs"]
mod support;
mod sync;

/// One test at a time. A test that failed must not take the others along.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
