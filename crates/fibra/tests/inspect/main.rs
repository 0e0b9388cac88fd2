//! Tests of what a running program says about itself: snapshots, deadlocks, dumps.
#![cfg(not(any(loom, shuttle)))]

mod deadlocks;
mod deep_channels;
mod from_debugger;
mod from_outside;
mod in_a_browser;
#[path = "../support/json.rs"]
mod json;
mod lost_time;
mod snapshots;
mod stack_marks;
#[path = "../support/mod.rs"]
mod support;
mod traces;
mod unread;
