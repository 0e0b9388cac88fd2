//! Tests of the server, through the public API: over sockets, against clients of std and foreign programs.
//!
//! One program, so that it is linked once; a module is one promise. `tests/allocations.rs` counts allocations.

mod clients;
mod descriptors;
mod examples;
mod layers;
mod limits;
mod lingering;
mod moving;
mod mutations;
mod own_panics;
mod prose;
mod requests;
mod responses;
mod slowness;
mod smuggling;
mod stopping;
#[path = "../support/mod.rs"]
mod support;
mod trickling;
