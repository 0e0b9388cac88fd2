//! Locking in async code: the future is called when the lock may be free, and takes it inside `poll`. Above: `Mutex::lock_async`. Below:
//! `raw`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{AsyncMutexGuard, Mutex};
use crate::sync::gate::GateTask;
#[cfg(not(any(loom, shuttle)))]
use crate::sync::owner;

/// The future of [`Mutex::lock_async`].
#[must_use = "futures do nothing unless polled"]
pub struct LockFuture<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    wait: GateTask,
    /// Since when it has been waiting; 0 if it does not.
    since: u64,
}

impl<'a, T: ?Sized> LockFuture<'a, T> {
    pub(super) fn new(mutex: &'a Mutex<T>) -> Self {
        Self { mutex, wait: GateTask::new(), since: 0 }
    }
}

impl<'a, T: ?Sized> Future for LockFuture<'a, T> {
    type Output = AsyncMutexGuard<'a, T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let polled = this.mutex.raw().poll_lock(&mut this.wait, &mut this.since, cx);
        #[cfg(not(any(loom, shuttle)))]
        if polled.is_pending() && this.mutex.raw().owner() == owner::me() {
            owner::report_own("Mutex", "by `lock`");
        }
        // SAFETY: just locked, for this guard.
        polled.map(|()| unsafe { AsyncMutexGuard::new(this.mutex) })
    }
}

impl<T: ?Sized> Drop for LockFuture<'_, T> {
    fn drop(&mut self) {
        self.wait.leave(self.mutex.raw().gate());
    }
}

impl<T: ?Sized> fmt::Debug for LockFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockFuture").field("wait", &self.wait).finish_non_exhaustive()
    }
}
