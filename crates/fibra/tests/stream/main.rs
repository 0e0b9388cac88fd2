//! Tests of streams, through the public API.
//!
//! One program for the whole room, so that it is linked once. A module is one promise.
#![cfg(not(any(loom, shuttle)))]

mod ends;
mod spec;
#[path = "../support/mod.rs"]
mod support;
mod table;
mod timed;
mod torn;
