//! Acquiring permits of a [`Semaphore`] as a future, and as an arm of a select.

use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{AcquireError, Permit, Permits, Semaphore};
use crate::channel::state::outcome;
use crate::select::case::Case;
use crate::select::{Arm, sealed};
use crate::sync::gate::{GateArm, GateTask};

/// The future of [`Semaphore::acquire_async`].
#[must_use = "futures do nothing unless polled"]
pub struct AcquireFuture<'a> {
    semaphore: &'a Semaphore,
    count: usize,
    wait: GateTask,
}

impl<'a> AcquireFuture<'a> {
    pub(super) fn new(semaphore: &'a Semaphore, count: usize) -> Self {
        Self { semaphore, count, wait: GateTask::new() }
    }
}

impl<'a> Future for AcquireFuture<'a> {
    type Output = Result<Permit<'a>, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (semaphore, count) = (this.semaphore, this.count);
        if count == 0 && !semaphore.is_closed() {
            return Poll::Ready(Ok(Permit { semaphore, count }));
        }
        // More than there can be is more than there are.
        let want = count.min(Semaphore::MAX_PERMITS + 1);
        match this.wait.poll(&semaphore.gate, want, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => Poll::Ready(confirmed(semaphore, count, want)),
        }
    }
}

/// After a grant of `want`, which is as much of `count` as can be written.
fn confirmed(semaphore: &Semaphore, count: usize, want: usize) -> Result<Permit<'_>, AcquireError> {
    match semaphore.confirm(want) {
        Ok(()) => Ok(Permit { semaphore, count }),
        Err(AcquireError::TooMany { total, .. }) => Err(AcquireError::TooMany { wanted: count, total }),
        Err(error) => Err(error),
    }
}

impl Drop for AcquireFuture<'_> {
    fn drop(&mut self) {
        self.wait.leave(&self.semaphore.gate);
    }
}

impl fmt::Debug for AcquireFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireFuture").field("count", &self.count).finish_non_exhaustive()
    }
}

/// Acquiring, as an arm; see [`Semaphore::acquiring`].
pub struct AcquireArm<'a> {
    semaphore: &'a Semaphore,
    count: usize,
    single: GateArm<'a, Permits>,
    told: Cell<u8>,
}

impl<'a> AcquireArm<'a> {
    pub(super) fn new(semaphore: &'a Semaphore, count: usize) -> Self {
        // More than there can be is more than there are.
        let want = count.min(Semaphore::MAX_PERMITS + 1);
        Self { semaphore, count, single: GateArm { gate: &semaphore.gate, want }, told: Cell::new(0) }
    }

    /// Gives back what was won and not asked for.
    fn clear(&self) {
        if self.told.replace(0) == outcome::DONE {
            self.semaphore.give(self.single.want);
        }
    }
}

impl sealed::Sealed for AcquireArm<'_> {
    fn case(&mut self) -> Case<'_> {
        self.clear();
        Case::single(&self.single, &self.told)
    }
}

impl<'a> Arm for AcquireArm<'a> {
    type Output = Result<Permit<'a>, AcquireError>;

    fn finish(&mut self) -> Self::Output {
        assert_eq!(self.told.replace(0), outcome::DONE, "fibra: the result of an arm that did not win");
        confirmed(self.semaphore, self.count, self.single.want)
    }
}

impl Drop for AcquireArm<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl fmt::Debug for AcquireArm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireArm").field("count", &self.count).finish_non_exhaustive()
    }
}
