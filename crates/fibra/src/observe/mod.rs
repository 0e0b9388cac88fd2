//! Seeing what happens: counters, and the list of fibers with what each waits for.

pub(crate) mod metrics;
pub(crate) mod stats;
