//! Streams: pipelines as one draws them on a whiteboard.
//!
//! ```
//! use fibra::stream;
//!
//! fibra::run(|| {
//!     let sums = stream::producer(|tx| (1..=1000u64).try_for_each(|n| tx.send(n)).unwrap_or_default())
//!         .filter(|n| n % 2 == 1)
//!         .map(|n| n * n)
//!         .chunks(100)
//!         .par_map(4, |chunk| chunk.iter().sum::<u64>());
//!     assert_eq!(sums.collect::<Vec<_>>().len(), 5);
//! });
//! ```
//!
//! Each stage is one fiber between two channels, which hand items over unless they have a [buffer](Pipe::buffered). So a source is never
//! further ahead than there are stages and places, and whichever end is dropped, the whole pipeline is torn down: a stage watches the
//! death of its output before it looks at its input. The reason arrives at both ends ([`CloseReason`](crate::channel::CloseReason)).
//!
//! | form | | |
//! |---|---|---|
//! | downstream | [`rx.pipe()`](crate::channel::Receiver::pipe)`.map(f)` | from receiver to receiver: [`Pipe`] |
//! | upstream | [`tx.pipe_in()`](crate::channel::Sender::pipe_in)`.map(f)` | from sender to sender: [`PipeIn`] |
//! | free | [`stream::map(f)`](map()) | a pair of ends, with the stage between |
//!
//! Stages belong to the root scope, or to one that is [named](Pipe::in_scope), and may then borrow from it. [`fused`](Pipe::fused) runs
//! steps that follow each other on one fiber.
//!
//! # Layout
//!
//! ```text
//! pipe.rs     Pipe, PipeIn: how a stage is started       home.rs     where: the root scope, or another one
//! chain.rs    how items move through a stage, and how its end is passed on
//! stages.rs   how a stage is described, once for three forms
//! steps.rs    stages that are one operation on one item  cores.rs    stages with a loop of their own; run.rs has the loops
//! joins.rs    two inputs                                 splits.rs   several outputs
//! source.rs   where pipelines begin                      sinks.rs    where they end
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
pub use source::{Start, buffered, from_iter, from_receiver, lines, named, producer, tick, unfold, within};
pub use splits::*;
pub use steps::*;

/// The names of all stages, for the table of the tests; not public API.
#[doc(hidden)]
pub const STAGES: &[&[&str]] = &[steps::STEPS, steps::FOLDS, cores::CORES, joins::JOINS, splits::SPLITS];
