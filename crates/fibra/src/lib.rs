//! fibra: plain blocking code, a million fibers.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

#[cfg(not(loom))]
mod driver;
#[cfg(not(loom))]
mod machine;
mod prim;
#[cfg(not(loom))]
mod sched;
#[cfg(not(loom))]
pub mod time;
