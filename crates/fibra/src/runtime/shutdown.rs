//! The end of a runtime: `shutdown_timeout`, dropping it, and the error of a shutdown that took too long.
//!
//! Above: users. Beside: `runtime.rs`. Below: `launch.rs`, which has the numbered steps of shutdown in its header, `own.rs`, `roots.rs`,
//! `cancel`.

use std::fmt;
use std::mem;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::launch;
use super::own::Lease;
use super::roots::{cancel_root, drain};
use super::runtime::Runtime;
use crate::cancel;
use crate::inspect::list;
use crate::monitor::fork;
use crate::sched::current;
use crate::sched::here::Here;
use crate::sched::members::scope::Reach;
use crate::sched::shared::RuntimeShared;
use crate::time::Instant;
use crate::wait::reason::WaitReason;
use crate::waiter::cancel_reason::{CancelReason, ReasonKind};

impl Runtime {
    /// Cancels everything and waits until it has ended, at most for `timeout`. A fiber that was spawned and has not started never runs: its
    /// closure is dropped, and its handle says cancelled. To have its work done, join it first, or spawn it inside [`run`](Self::run),
    /// which waits for all that its function spawned.
    ///
    /// # Errors
    /// The fibers and threads that are stuck. The runtime is then abandoned: its threads and the fibers on them stay behind.
    ///
    /// # Panics
    /// On a fiber of this runtime, which would wait for itself.
    #[track_caller]
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Result<(), ShutdownError> {
        self.refuse_on_own_fiber("shutdown_timeout");
        let result = self.shut_down(Some(Instant::after(timeout)));
        if result.is_err() {
            self.down = true;
            self.threads.lock().abandon();
            // The threads that stay behind use it.
            mem::forget(self.shared.clone());
        }
        result
    }

    fn is_own_fiber(&self) -> bool {
        current::worker().is_some_and(|worker| Arc::ptr_eq(&worker.shared, &self.shared))
    }

    /// Is this thread in a scope that is counted here?
    fn has_open_scope_here(&self) -> bool {
        current::worker().is_none() && Here::new().is_some_and(|here| here.is_in_scope_of(&self.shared))
    }

    fn refuse_on_own_fiber(&self, what: &str) {
        assert!(
            !self.is_own_fiber(),
            "fibra: {what} of a runtime inside one of its own fibers: it would wait for itself for ever"
        );
        let own = self.shared.blocking().is_served_here();
        assert!(
            !own,
            "fibra: {what} of a runtime inside one of its own blocking calls: it would wait for itself for ever"
        );
        assert!(
            !self.has_open_scope_here(),
            "fibra: {what} of a runtime inside a scope whose fibers it runs: it would wait for the scope for ever"
        );
    }

    /// The numbered steps of `runtime::launch`.
    fn shut_down(&mut self, deadline: Option<Instant>) -> Result<(), ShutdownError> {
        if mem::replace(&mut self.down, true) {
            return Ok(());
        }
        let shared = self.shared.clone();
        if shared.fork_epoch != fork::epoch() {
            self.threads.lock().forget();
            mem::forget(shared);
            return Ok(());
        }
        let site = Location::caller();
        // 1. Refuse.
        shared.refuse();
        // 2 and 3. On the thread of a current-thread runtime the fibers need a thread that runs them: a last fiber does the waiting.
        let drained = match &self.own {
            None => wind_down(&shared, site, deadline),
            Some(own) => {
                let leftover = own.lock();
                let elsewhere = leftover.thread.is_some_and(|thread| thread != std::thread::current().id());
                let stuck = elsewhere && leftover.worker.as_ref().is_some_and(|worker| worker.has_bound());
                drop(leftover);
                if stuck {
                    // They belong to another thread; resuming them here could break them. They are leaked instead.
                    crate::prim::say(format_args!(
                        "fibra: a current-thread runtime was dropped on another thread than the one its fibers \
                         live on; they are leaked: {}",
                        list::fibers_of(&shared)
                    ));
                    mem::forget(shared);
                    return Ok(());
                }
                let lease = Lease::take(own);
                let root = shared.take_root();
                let body = || wind_down(&shared, site, deadline);
                let result = self.drive(lease, body, site, root);
                shared.release_root(root);
                // No stack for the last fiber: the other fibers cannot be brought to their end.
                result.unwrap_or(Err(()))
            }
        };
        if drained.is_err() {
            return Err(ShutdownError { stuck: list::fibers_of(&shared), blocking: shared.blocking().threads() });
        }
        // 4. Stop.
        launch::stop(&shared);
        let deadline_nanos = deadline.map(Instant::as_nanos);
        drop(shared.blocking().close());
        if let Err(running) = shared.blocking().shutdown(deadline_nanos) {
            return Err(ShutdownError { stuck: String::new(), blocking: running });
        }
        // 5. Join.
        self.threads.lock().join();
        if let Some(own) = &self.own
            && let Some(worker) = own.lock().worker.take()
        {
            worker.retire();
        }
        shared.visitors.await_none();
        Ok(())
    }
}

/// Steps 2 and 3 of shutdown: cancel, and wait until everything has ended.
fn wind_down(shared: &RuntimeShared, site: &'static Location<'static>, deadline: Option<Instant>) -> Result<(), ()> {
    cancel_root(shared, shared.root, ReasonKind::Shutdown);
    let outside = shared.outside_scopes.lock().clone();
    for open in outside.into_iter().filter(|open| !open.shielded) {
        open.scope.cancel(open.life, &CancelReason::Shutdown, Reach::All);
    }
    drain(shared, shared.root, WaitReason::RunEnd, site, deadline)?;
    end_daemons(shared, site, deadline)
}

/// Cancels the daemons and waits for them.
pub(super) fn end_daemons(
    shared: &RuntimeShared,
    site: &'static Location<'static>,
    deadline: Option<Instant>,
) -> Result<(), ()> {
    cancel::cancel_daemons(shared, None, ReasonKind::Shutdown);
    drain(shared, shared.daemons, WaitReason::RuntimeEnd, site, deadline)
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if self.down {
            return;
        }
        let waits_for_itself =
            || self.is_own_fiber() || self.shared.blocking().is_served_here() || self.has_open_scope_here();
        if cancel::unwinding().is_some() && waits_for_itself() {
            // It is refused below, and a second panic would abort: leak it instead.
            self.threads.lock().abandon();
            mem::forget(self.shared.clone());
            return;
        }
        self.refuse_on_own_fiber("dropping");
        if self.shut_down(None).is_err() {
            // Something is left that refers to it.
            self.threads.lock().abandon();
            mem::forget(self.shared.clone());
        }
    }
}

/// A runtime did not come to its end in time.
#[derive(Debug, Clone)]
pub struct ShutdownError {
    stuck: String,
    blocking: usize,
}

impl ShutdownError {
    /// The fibers that have not ended, one per line, with what they wait for.
    pub fn stuck(&self) -> &str {
        &self.stuck
    }

    /// Threads of the blocking pool that were still there.
    pub fn blocking_threads(&self) -> usize {
        self.blocking
    }
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the runtime did not end in time")?;
        if !self.stuck.is_empty() {
            write!(f, "; these fibers are stuck:\n{}", self.stuck)?;
        }
        if self.blocking != 0 {
            write!(f, "; {} threads of the blocking pool have not ended", self.blocking)?;
        }
        Ok(())
    }
}

impl std::error::Error for ShutdownError {}
