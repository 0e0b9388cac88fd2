//! What happens at a moment.
//!
//! In reading order:
//!
//! ```text
//! heap.rs    timers of one owner, earliest first        timing.rs  those of a worker, and when it looks at them
//! wheel.rs   deadlines that fire although a worker is stuck
//! alarms.rs  wakers that are called at a moment
//! ```
//!
//! Above: the worker's loop, `monitor`, the waits, `machine` (whose loops have a heap of their own). Below: `prim`, `waiter`.

#[cfg(not(any(loom, shuttle)))]
pub(crate) mod alarms;
pub(crate) mod heap;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod timing;
pub(crate) mod wheel;
