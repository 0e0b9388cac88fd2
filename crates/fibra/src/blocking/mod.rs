//! OS threads for calls that block.
//!
//! In reading order:
//!
//! ```text
//! pool.rs    the elastic pool of a runtime
//! strays.rs  threads of the process for calls that shutdown does not join
//! ```
//!
//! Above: `task::blocking`, which waits for such a call, and `net`, `io`, `process`. Below: `sched`, whose `RuntimeShared` keeps the pool
//! of a runtime without knowing its type.

pub(crate) mod pool;
pub(crate) mod strays;

use crate::sched::shared::RuntimeShared;

impl RuntimeShared {
    /// The pool of this runtime.
    pub(crate) fn blocking(&self) -> &pool::BlockingPool {
        self.blocking.get_or_init(|| pool::BlockingPool::new(&self.config.name, self.config.max_blocking))
    }
}
