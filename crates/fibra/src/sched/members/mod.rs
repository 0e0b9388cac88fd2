//! What fibers count in, and the lists in which they are found.
//!
//! In reading order:
//!
//! ```text
//! root.rs       counting fibers without a shared line
//! scope.rs      the record of a scope: who counts in it, and who is cancelled with it
//! started.rs    the lists of started fibers
//! gathering.rs  those of several fibers that have ended, for one who waits for the next
//! ```
//!
//! Above: `cancel`, `scope`, `task`, `runtime`. Below: `fiber`, `waiter`, `prim`.

#[cfg(not(any(loom, shuttle)))]
pub(crate) mod gathering;
pub(crate) mod root;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod scope;
#[cfg(not(any(loom, shuttle)))]
mod started;
