//! Scopes: fibers that may borrow, since they end before what they borrow from does.
//!
//! In reading order:
//!
//! ```text
//! scope.rs    `Scope` and `TryScope`: starting children
//! body.rs     how a scope is opened, runs its body, waits for its children and is closed
//! builder.rs  deadlines, graces, tokens; what a scope that was cancelled gives
//! token.rs    `CancelToken`
//! arena.rs    memory for the closures of children
//! empty.rs    the wait for a root or scope to become empty
//! ```
//!
//! The record of a scope, in which the scheduler counts fibers and `cancel` finds them, is `sched::members::scope`. Above: `select` (arms
//! for tokens and draining), `runtime`. Beside: `task`. Below: `cancel`, `wait`, `sched`.

pub(crate) mod arena;
pub(crate) mod body;
pub(crate) mod builder;
pub(crate) mod empty;
#[allow(clippy::module_inception)] // That is what it is about.
pub(crate) mod scope;
pub(crate) mod token;

pub use builder::{ScopeBuilder, ScopeError, TimedOut, TryScopeError, deadline, remaining, timeout};
pub(crate) use empty::Empty;
pub use scope::{Scope, TryScope, scope, try_scope};
pub use token::{CancelToken, Cancelled};
