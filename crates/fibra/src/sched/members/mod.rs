//! Root scopes and scopes, which count fibers, and the lists in which fibers are found.
//!
//! In reading order:
//!
//! ```text
//! root.rs       counting fibers without a shared line
//! scope.rs      the record of a scope: the count of its children, and the state of its cancellation
//! started.rs    the lists of started fibers
//! gathering.rs  the completion queue behind JoinSet
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
