//! Tests of runtimes, fibers, tasks, timers and scheduling, through the public API.
//!
//! One program for the whole room, so that it is linked once. A module is one promise. A test that needs a process of its own (limits of
//! the process, its variables and signals, what the kernel says about it) starts one: `support::rerun_self`.
#![cfg(not(any(loom, shuttle)))]

mod auto_traits;
mod bad_input;
mod block_on;
mod blocking_calls;
mod burst;
mod compute;
mod current_thread;
mod elastic;
mod elastic_races;
mod ends_meet;
mod entry_options;
mod fairness;
mod fiber_locals;
mod futures_as_tasks;
mod hooks_are_not_left;
mod identity;
mod idle;
mod jobs_join_jobs;
mod jobs_run_by_joiners;
mod late_ends;
mod late_threads;
mod letting_others_run;
mod locals_and_threads;
mod macros;
mod many_fibers;
mod memory_returns;
mod memory_returns_in_need;
mod metrics_add_up;
mod migration;
mod misuse_is_located;
mod monitor_goes_on;
mod moving_fibers;
mod moving_fibers_in_scopes;
mod moving_libraries;
mod names;
mod narrow_windows;
mod no_resources;
mod no_syscalls;
mod own_locals;
mod panics;
mod panics_name_the_fiber;
mod park_a_lot;
mod placement;
mod places;
mod polls_that_block;
mod random_bytes;
mod recycling;
mod run_ends;
mod sanitizers;
mod several_runtimes;
mod sleeping;
mod spawn_limits;
mod spawn_order;
mod stall;
mod stall_trace;
mod start_stop;
#[path = "../support/mod.rs"]
mod support;
mod switch_hooks;
mod tasks;
#[path = "../support/tools.rs"]
mod tools;
mod unwinding;
mod unwinding_at_random;
mod unwindings_left_behind;
mod wait_reasons;
mod yielding;
