//! Fibers below the waist: the stacks they run on and what happens when one of these overflows.
//!
//! Uses `prim` only. Above it stand `wait` and `sched`.

#[cfg(not(loom))]
pub(crate) mod overflow;
pub(crate) mod stack;
#[cfg(all(test, not(loom)))]
mod testing;
