//! Locks and their kin: what one waits on that is not a value. Usable from fibers, plain threads and async code, mixed on one object.
//!
//! ```text
//! gate.rs       the one mechanism: rules, a queue, grants                      (everything here stands on it)
//! ```

pub(crate) mod gate;
