//! Timers, deadlines and alarms.
//!
//! In reading order:
//!
//! ```text
//! heap.rs    timers of one owner, earliest first        timing.rs  the timers of a worker, and when it looks at them
//! wheel.rs   deadlines that fire although a worker is stuck    late.rs    those that another worker fires
//! pace.rs    how far apart it wakes for them
//! alarms.rs  wakers that are called at a moment
//! ```
//!
//! Above: the worker's loop, `monitor`, the waits, `machine` (whose loops have a heap of their own). Below: `prim`, `waiter`.

#[cfg(not(any(loom, shuttle)))]
pub(crate) mod alarms;
pub(crate) mod heap;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod late;
#[cfg(not(any(loom, shuttle)))]
pub(in crate::sched) mod pace;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod timing;
pub(crate) mod wheel;
