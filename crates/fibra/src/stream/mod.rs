//! Streams: pipelines as one draws them on a whiteboard.
//!
//! ```
//! use fibra::stream;
//!
//! fibra::run(|| {
//!     let out = stream::producer(|tx| (1..=1000u64).try_for_each(|n| tx.send(n)).unwrap_or_default())
//!         .filter(|n| n % 2 == 1)
//!         .map(|n| n * n)
//!         .chunks(100);
//!     assert_eq!(out.map(|chunk| chunk.iter().sum::<u64>()).collect::<Vec<_>>().len(), 5);
//! });
//! ```

mod chain;
mod cores;
mod home;
mod joins;
mod pipe;
mod run;
mod sinks;
mod source;
mod splits;
mod stages;
mod steps;

pub use cores::*;
pub use home::{AsScope, Home, InScope, Place, Root};
pub use joins::*;
pub use pipe::{Pipe, PipeIn};
pub use source::{Start, from_iter, from_receiver, lines, named, producer, tick, unfold, within};
pub use splits::*;
pub use steps::*;

/// The names of all stages, for the table of the tests; not public API.
#[doc(hidden)]
pub const STAGES: &[&[&str]] = &[steps::STEPS, steps::FOLDS, cores::CORES, joins::JOINS, splits::SPLITS];
