//! The start of a fiber about which something has to be considered: its run is cancelled, it is a daemon, it has hooks, or it wants
//! thread-locals of its own.
//!
//! Above: `fiber_main` in `worker.rs`, on the fiber's own stack. Below: `root.rs`, and the hooks that the runtime was given.

use crate::fiber::frame::{FrameRef, RunResult, Thunk, flag};
use crate::fiber::outcome::FiberEnd;
use crate::sched::current;
use crate::sched::shared::RootRef;
use crate::sched::worker::Worker;

/// The worker that runs here: not inlined, so that no address of a thread-local is kept from before.
#[inline(never)]
fn worker_now() -> *const Worker {
    current::worker().map_or(std::ptr::null(), std::ptr::from_ref)
}

impl Worker {
    /// Runs the current fiber, which is about to start, if it is wanted, with its own thread-locals if it wants them, and calls its hooks.
    /// Also gives the worker that it has ended on. (No thread-local is used in here: it may be another one after the run.)
    ///
    /// # Safety
    /// The closure is in the storage.
    #[cold]
    #[inline(never)]
    pub(in crate::sched) unsafe fn run_closely(
        &self,
        frame: FrameRef,
        root: RootRef,
        thunk: &'static Thunk,
    ) -> (RunResult, *const Worker) {
        // (Between two polls a task suspends by returning: there is nothing for hooks to put aside, and no thread-local is kept.)
        let odd = frame.flags().among(flag::HOOKED | flag::WANTS_LOCALS | flag::TASK | flag::HALF);
        let hooks = self.shared.config.hooks.filter(|_| odd.has(flag::HOOKED) && !odd.has(flag::TASK));
        let mut result = RunResult::Ended(FiberEnd::Cancelled);
        let mut run = |worker: &Worker| {
            if !worker.is_wanted(frame, root) {
                // SAFETY: the caller's promise.
                return unsafe { (thunk.discard)(frame) };
            }
            if let Some(hooks) = hooks {
                (hooks.started)(frame);
            }
            // SAFETY: the caller's promise; it is run once.
            result = unsafe { (thunk.run)(frame) };
            if let Some(hooks) = hooks {
                (hooks.ended)(frame);
            }
        };
        match self.shared.config.with_own_locals {
            Some(around) if odd.has(flag::WANTS_LOCALS) && !odd.has(flag::TASK | flag::HALF) => {
                if self.is_wanted(frame, root) {
                    around(frame, &|| self.is_wanted(frame, root), &mut || run(self));
                } else {
                    run(self);
                }
                (result, worker_now())
            }
            _ => {
                run(self);
                (result, self)
            }
        }
    }

    /// Is the current fiber, which is about to start, to be run although there may be a reason against it? Marks it as cancelled if not.
    fn is_wanted(&self, frame: FrameRef, root: RootRef) -> bool {
        let mut reason = root.cancelled();
        if reason.is_none() && frame.has(flag::DAEMON) {
            // Daemons outlive their run for a moment, and never the runtime.
            reason = root.daemons_cancelled().or_else(|| self.shared.daemons.daemons_cancelled());
        }
        if let Some(reason) = reason.filter(|_| !frame.has(flag::ROOT)) {
            // It runs, so there is no wait to be ended.
            frame.waiter.flags.request_cancel(reason);
        }
        frame.flags().among(flag::CANCEL | flag::ROOT | flag::HALF) != flag::CANCEL
    }
}
