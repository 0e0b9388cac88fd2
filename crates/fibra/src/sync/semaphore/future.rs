//! Acquiring permits of a [`Semaphore`] as a future, and as an arm of a select.

use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::{AcquireError, Permit, Permits, Semaphore};
use crate::select::case::Case;
use crate::select::{Arm, sealed};
use crate::sync::gate::{GateTask, GateWait};
use crate::wait::waitable::{Published, Waitable};
use crate::waiter::node::{Node, Outcome};

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
        if count == 0 && !semaphore.has_closed() {
            return Poll::Ready(Ok(Permit { semaphore, count }));
        }
        loop {
            match this.wait.poll(&semaphore.gate, count, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(true) => return Poll::Ready(Ok(Permit { semaphore, count })),
                Poll::Ready(false) => {
                    // (If there are enough again, it queues.)
                    if let Some(error) = semaphore.refusal(count) {
                        return Poll::Ready(Err(error));
                    }
                }
            }
        }
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
    wants: Wants<'a>,
    told: Cell<Outcome>,
}

/// What the engine sees of it.
struct Wants<'a> {
    semaphore: &'a Semaphore,
    wait: GateWait<'a, Permits>,
}

/// The gate's, but for what never waits: one who is refused, and one who wants nothing.
impl Waitable for Wants<'_> {
    fn try_now(&self) -> Outcome {
        match self.wait.want() {
            want if self.semaphore.refusal(want).is_some() => Outcome::Closed,
            0 => Outcome::Done,
            _ => self.wait.try_now(),
        }
    }

    fn publish(&self, node: &Node) -> Published {
        self.wait.publish(node)
    }

    fn unpublish(&self, node: &Node, owed: &mut Vec<Waker>) {
        self.wait.unpublish(node, owed);
    }
}

impl<'a> AcquireArm<'a> {
    pub(super) fn new(semaphore: &'a Semaphore, count: usize) -> Self {
        Self { wants: Wants { semaphore, wait: semaphore.gate.arm(count) }, told: Cell::new(Outcome::Pending) }
    }

    /// Forgets whether it has won: `Done`, the permits are taken for it; `Closed`, it has won in vain.
    fn take(&self) -> Outcome {
        self.told.replace(Outcome::Pending)
    }

    /// Gives back what was won and not asked for.
    fn clear(&self) {
        if self.take() == Outcome::Done {
            self.wants.semaphore.give(self.wants.wait.want());
        }
    }
}

impl sealed::Sealed for AcquireArm<'_> {
    fn case(&mut self) -> Case<'_> {
        self.clear();
        Case::object(&self.wants, &self.told)
    }
}

impl<'a> Arm for AcquireArm<'a> {
    type Output = Result<Permit<'a>, AcquireError>;

    fn finish(&mut self) -> Self::Output {
        let (semaphore, count) = (self.wants.semaphore, self.wants.wait.want());
        match self.take() {
            Outcome::Done => Ok(Permit { semaphore, count }),
            Outcome::Pending => panic!("fibra: the result of an arm that did not win"),
            // There may be enough again by now, but there were not when it was turned away.
            _ => Err(semaphore
                .refusal(count)
                .unwrap_or_else(|| AcquireError::TooMany { wanted: count, total: count.saturating_sub(1) })),
        }
    }
}

impl Drop for AcquireArm<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl fmt::Debug for AcquireArm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireArm").field("count", &self.wants.wait.want()).finish_non_exhaustive()
    }
}
