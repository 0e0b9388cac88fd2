//! The start of a fiber about which something has to be considered: its run is cancelled, it is a daemon, or it has hooks.
//!
//! Above: `fiber_main` in `worker.rs`, on the fiber's own stack. Below: `root.rs`, and the hooks that the runtime was given.

use crate::fiber::frame::{FrameRef, RunResult, Thunk, flag};
use crate::fiber::outcome::FiberEnd;
use crate::sched::shared::RootRef;
use crate::sched::worker::Worker;

impl Worker {
    /// Runs the current fiber, which is about to start, if it is wanted, and calls its hooks.
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
    ) -> RunResult {
        if !self.is_wanted(frame, root) {
            // SAFETY: the caller's promise.
            unsafe { (thunk.discard)(frame) };
            return RunResult::Ended(FiberEnd::Cancelled);
        }
        // (Between two polls a task suspends by returning: there is nothing for hooks to put aside.)
        let hooks = self.shared.config.hooks.filter(|_| frame.flags().among(flag::HOOKED | flag::TASK) == flag::HOOKED);
        if let Some(hooks) = hooks {
            (hooks.started)(frame);
        }
        // SAFETY: the caller's promise.
        let result = unsafe { (thunk.run)(frame) };
        if let Some(hooks) = hooks {
            (hooks.ended)(frame);
        }
        result
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
