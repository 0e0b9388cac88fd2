//! The one worker of a current-thread runtime: the thread that calls `run` leases it. Above: `runtime.rs`, `shutdown.rs`. Below: `sched`.
//!
//! Invariant: one thread at a time has the worker, and a thread other than the last one only if no started fiber lives on it.

use std::thread::ThreadId;

use crate::prim::sync::Mutex;
use crate::sched::worker::Worker;

/// The worker of a current-thread runtime, and the thread its started fibers belong to.
pub(super) struct OwnWorker {
    /// Taken while a `run` is going on.
    pub(super) worker: Option<Box<Worker>>,
    pub(super) thread: Option<ThreadId>,
}

// SAFETY: a worker is owner-only; it is used by one thread at a time (taken out of the lock), and by another thread than before only if no
// started fiber lives on it (`Runtime::drive`), so nothing of the old thread's is on any of its stacks.
unsafe impl Send for OwnWorker {}

impl OwnWorker {
    pub(super) fn new(worker: Worker) -> Self {
        Self { worker: Some(Box::new(worker)), thread: None }
    }
}

/// The worker of a current-thread runtime, while a `run` uses it.
pub(super) struct Lease<'a> {
    own: &'a Mutex<OwnWorker>,
    worker: Option<Box<Worker>>,
}

impl<'a> Lease<'a> {
    #[track_caller]
    pub(super) fn take(own: &'a Mutex<OwnWorker>) -> Self {
        let me = std::thread::current().id();
        let mut slot = own.lock();
        let Some(worker) = slot.worker.take() else {
            panic!("fibra: this current-thread runtime is already running on another thread");
        };
        let moved = slot.thread.is_some_and(|thread| thread != me);
        if moved && worker.has_bound() {
            slot.worker = Some(worker);
            drop(slot);
            panic!(
                "fibra: fibers of this current-thread runtime were started on another thread and are still there: \
                 started fibers never change threads, so it can only run on that thread"
            );
        }
        slot.thread = Some(me);
        Self { own, worker: Some(worker) }
    }

    pub(super) fn worker(&self) -> &Worker {
        self.worker.as_ref().expect("given back only on drop")
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.own.lock().worker = self.worker.take();
    }
}
