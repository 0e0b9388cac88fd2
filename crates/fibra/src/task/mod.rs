//! Fibers as programs see them: starting, joining, sets and combinators, blocking work, futures, fiber-locals.
//!
//! In reading order:
//!
//! ```text
//! spawn.rs        starting a fiber                       builder.rs    with a name, a stack size, a place
//! run.rs          running its function, publishing the result
//! join.rs         waiting for its result                 fiber.rs      the running fiber
//! gather.rs       several fibers, in the order they end  join_set.rs   the public form of it
//! combinators.rs  all, any, the first                    fork_join.rs  two closures, one of them offered to other workers
//! futures.rs      futures as fibers without a stack, and futures awaited by fibers
//! locals.rs       fiber-locals
//! place.rs        work that goes on elsewhere
//! compute.rs      fibers that compute for long           blocking.rs   calls that block, on other threads
//! turn.rs         the turn of an actor                   unread.rs     results that are dropped unread
//! ```
//!
//! Above: `select`, which joins as an arm, `runtime`, and all that starts fibers. Beside: `scope`. Below: `cancel`, `wait`, `blocking`,
//! `sched`.

pub(crate) mod blocking;
pub(crate) mod builder;
pub(crate) mod combinators;
pub(crate) mod compute;
pub(crate) mod fiber;
pub(crate) mod fork_join;
pub(crate) mod futures;
pub(crate) mod gather;
pub(crate) mod join;
pub(crate) mod join_set;
pub(crate) mod locals;
pub(crate) mod own_locals;
pub(crate) mod place;
pub(crate) mod run;
pub(crate) mod spawn;
#[cfg(test)]
mod tests;
pub(crate) mod turn;
mod unread;

pub use crate::fiber::id::FiberId;
pub(crate) use blocking::blocking_as;
pub use blocking::{blocking, spawn_blocking};
pub use builder::Builder;
pub use combinators::{any, join_all, par_map, race, try_join_all};
pub use compute::compute;
pub use fiber::{Fiber, cancel_reason, checkpoint, current, is_cancelled, no_suspend, shield, yield_now};
pub use fork_join::join;
pub use futures::{block_on, spawn_future};
pub(crate) use futures::{spawn_daemon_future, spawn_keeping_future};
pub(crate) use join::JoinWait;
pub use join::{JoinError, JoinFuture, JoinHandle};
pub use join_set::{JoinNext, JoinSet};
pub use locals::FiberLocal;
pub use place::{BetterPlace, better_place};
pub(crate) use spawn::no_runtime;
pub use spawn::{spawn, spawn_local};
pub(crate) use turn::launch;
