//! Tests of scopes, cancellation, joins and combinators, through the public API.
//!
//! One program for the whole room, so that it is linked once. A module is one promise. A test that needs a process of its own (limits of
//! the process, its variables and signals, what the kernel says about it) starts one: `support::rerun_self`.
#![cfg(not(any(loom, shuttle)))]

mod cancel;
mod cancel_limits;
mod cancelled_at_random;
mod cancellers_and_wakers;
mod combinators;
mod deep_trees;
mod edges;
mod join;
mod join_halves;
mod join_halves_contended;
mod join_set;
mod joined_at_random;
mod joins_make_progress;
mod locals_on_threads;
mod matrix;
mod neighbours_unwinding;
mod not_started;
mod scope_ends;
mod shields;
mod stacks_handed_on;
#[path = "../support/mod.rs"]
mod support;
mod token_trees;
#[path = "../support/tools.rs"]
mod tools;
#[path = "../support/unwinding.rs"]
mod unwinding;
