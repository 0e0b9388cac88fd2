//! fibra: plain blocking code, a million fibers.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

#[cfg(not(loom))]
mod driver;
mod fiber;
#[cfg(not(loom))]
mod machine;
mod prim;
mod sched;
#[cfg(not(loom))]
pub mod time;
mod wait;
