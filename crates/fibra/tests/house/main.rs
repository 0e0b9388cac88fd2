//! Tests of the repository itself: the house rules, the specification and its tests, the documents, what must not compile, the examples,
//! the lock file of a user, and the tools that the other tests use.
//!
//! Those that only read files need no second run under a sanitizer or on another switch, and say so.
#![cfg(not(any(loom, shuttle)))]

mod compile_fail;
mod contents_lists;
mod examples;
mod internals;
mod readers_test;
mod readme_dependency;
#[cfg(not(any(fibra_asan, fibra_tsan)))] // Read by modules that are left out there.
mod source;
mod spec_coverage;
#[path = "../support/mod.rs"]
mod support;
mod support_works;
mod thresholds;
mod tidy;
mod users_lock_file;
