//! Running and spawning: runtimes, root scopes, fibers, joining, sets and combinators, blocking work, futures, fiber-locals.

mod abandon;
mod arena;
#[cfg(test)]
mod asserted;
mod blocking;
mod body;
#[cfg(test)]
mod bounded_looks;
mod builder;
mod combine;
mod compute;
mod config;
mod fiber;
mod fork_join;
mod gather;
mod join;
mod join_set;
mod local;
mod machines;
mod nursery;
mod options;
pub(crate) mod private;
mod root;
mod runtime;
mod spawn;
mod task;
mod token;
mod turn;

pub use crate::fiber::id::FiberId;
pub(crate) use abandon::abandonable;
pub(crate) use blocking::blocking_as;
pub use blocking::{blocking, spawn_blocking};
pub use builder::{ScopeBuilder, ScopeError, TimedOut, TryScopeError, deadline, remaining, timeout};
pub use combine::{any, join_all, par_map, race, try_join_all};
pub use compute::compute;
pub use config::{Cancellation, RuntimeBuilder};
pub use fiber::{Fiber, cancel_reason, checkpoint, current, is_cancelled, no_suspend, shield, yield_now};
pub use fork_join::join;
pub(crate) use join::JoinWait;
pub use join::{JoinError, JoinFuture, JoinHandle};
pub use join_set::{JoinNext, JoinSet};
pub use local::FiberLocal;
pub use nursery::{Scope, TryScope, scope, try_scope};
pub use options::Builder;
pub use runtime::{EnterGuard, Handle, Runtime, ShutdownError, run};
pub(crate) use spawn::no_runtime;
pub use spawn::{spawn, spawn_local};
pub(crate) use task::spawn_daemon_future;
pub use task::{block_on, spawn_future};
pub use token::{CancelToken, Cancelled};
pub(crate) use turn::launch;
