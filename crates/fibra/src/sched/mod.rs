//! The scheduler: the queues of a worker and of the runtime, and the protocol by which workers sleep and are woken.
//!
//! Below it lie `fiber`, `driver`, `machine` and `prim`; above it `wait` and everything that blocks.

pub(crate) mod idle;
pub(crate) mod queue;
