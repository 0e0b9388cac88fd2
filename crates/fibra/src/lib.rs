//! fibra: plain blocking code, a million fibers.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

mod prim;

pub use fibra_macros::{main, test};
