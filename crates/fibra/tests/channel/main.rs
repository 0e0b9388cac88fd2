//! Tests of channels and select, through the public API.
//!
//! One program for the whole room, so that it is linked once. A module is one promise. A test that needs a process of its own (limits of
//! the process, its variables and signals, what the kernel says about it) starts one: `support::rerun_self`.
#![cfg(not(any(loom, shuttle)))]

mod alarms;
mod async_forms;
mod backlogs;
mod cancelled;
#[path = "../support/channels.rs"]
mod channels;
mod closing;
mod every_way_at_once;
mod from_crossbeam;
mod homes;
mod ledger;
mod linearizable;
mod misuse;
mod order_and_hand_off;
mod panicking_values;
mod parked_selects_are_fair;
mod permits_and_overflow;
mod permits_given_up;
mod programs;
mod reentrant_wakers;
mod rendezvous_fairness;
mod rendezvous_kinds;
mod rendezvous_looks;
mod rendezvous_meetings;
mod select_any_code;
mod select_constants;
mod select_dynamic;
mod select_macro;
mod select_moves;
mod select_temporaries;
mod spec;
mod special;
#[path = "../support/mod.rs"]
mod support;
mod timed;
#[path = "../support/tools.rs"]
mod tools;
mod traits;
mod waiting_futures;
