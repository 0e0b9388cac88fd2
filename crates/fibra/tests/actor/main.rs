//! Tests of actors, through the public API.
//!
//! One program for the whole room, so that it is linked once. A module is one promise.
#![cfg(not(any(loom, shuttle)))]

mod calls;
mod dynamic;
mod ends;
mod feeding;
mod first_and_last;
mod locks;
mod matrix;
mod probe;
mod quiet;
mod review;
mod sending;
mod states;
mod supervised;
#[path = "../support/mod.rs"]
mod support;
