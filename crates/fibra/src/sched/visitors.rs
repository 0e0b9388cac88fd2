//! Counts foreign threads inside a runtime, so that shutdown can wait for them. A foreign thread is no worker of the runtime and touches
//! it for a moment.
//!
//! Such a thread may wake a fiber of the runtime at any time. The fiber it has claimed keeps the runtime alive until it is
//! enqueued, but not after: the fiber may run, end, and be the last. So the thread enters before the push and leaves after its last
//! touch (the kick of a sleeping worker), and the last step of shutdown waits until no foreign thread is inside.
//!
//! Above: `reach.rs`, `shared.rs`, and shutdown in `runtime`. Below: `prim`.

use crate::prim::atomic::{AtomicI64, Ordering};

/// See the header.
#[derive(Debug)]
pub(crate) struct Visitors(AtomicI64);

impl Visitors {
    pub(crate) fn new() -> Self {
        Self(AtomicI64::new(0))
    }

    /// Called before the push that lets the claimed fiber go on.
    pub(crate) fn enter(&self) {
        // Relaxed would do: the push that follows publishes it, and the fiber's end comes after that. SeqCst, since this is no hot path.
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Called after the last touch of the runtime.
    pub(crate) fn leave(&self) {
        // SeqCst: its release half pairs with `await_none`.
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    /// The last step of shutdown: waits for all visitors. A visit is as long as a push and a system call.
    pub(crate) fn await_none(&self) {
        // SeqCst: its acquire half pairs with `leave`.
        while self.0.load(Ordering::SeqCst) != 0 {
            crate::prim::thread::yield_now();
        }
    }
}
