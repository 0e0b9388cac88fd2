//! Select: waiting for several operations and doing exactly one of them.
//!
//! ```text
//! arm.rs      the arms of `select!`, with their types     dynamic.rs   `Select`, a set known at run time
//! join.rs     the end of a fiber, as an arm               private.rs   the functions that the macro's expansion calls
//! scope.rs    cancellation and draining, as arms
//! macros.rs   `select!`, `select_biased!`
//! engine.rs   the two passes
//! case.rs     an arm as the engine sees it                sheet.rs     what a parked select waits for, for reports
//! ```

pub(crate) mod arm;
pub(crate) mod case;
#[cfg(not(any(loom, shuttle)))]
mod dynamic;
mod engine;
#[cfg(not(any(loom, shuttle)))]
mod join;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod macros;
#[cfg(all(test, any(loom, shuttle)))]
pub(crate) mod model;
#[cfg(not(any(loom, shuttle)))]
#[doc(hidden)]
pub mod private;
#[cfg(not(any(loom, shuttle)))]
#[cfg(not(any(loom, shuttle)))]
mod scope;
pub(crate) mod sheet;

pub(crate) use arm::sealed;
pub use arm::{Arm, ClosedArm, RecvArm, SendArm};
#[cfg(not(any(loom, shuttle)))]
pub use dynamic::{Select, SelectedOperation};
