//! Acquiring permits of a [`Semaphore`] as a future, and as an arm of a select.

use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::{AcquireError, Permit, Permits, Semaphore};
use crate::select::case::{Case, Single};
use crate::select::{Arm, sealed};
use crate::sync::gate::{GateArm, GateTask};
use crate::wait::node::{Node, Outcome, WaiterRef};
use crate::wait::word::{Arm as ArmNumber, Ticket};

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
    arm: GateArm<'a, Permits>,
    /// It was completed without waiting, and in vain.
    refused: Cell<bool>,
}

impl Single for Wants<'_> {
    fn try_complete(&self) -> bool {
        let want = self.arm.want;
        self.refused.set(self.semaphore.refusal(want).is_some());
        self.refused.get() || want == 0 || self.arm.try_complete()
    }
    fn publish(&self, node: &Node, waiter: WaiterRef, ticket: Ticket, arm: ArmNumber) -> bool {
        self.arm.publish(node, waiter, ticket, arm)
    }
    fn unpublish(&self, node: &Node, owed: &mut Vec<Waker>) {
        self.arm.unpublish(node, owed);
    }
}

impl<'a> AcquireArm<'a> {
    pub(super) fn new(semaphore: &'a Semaphore, count: usize) -> Self {
        let arm = GateArm { gate: &semaphore.gate, want: count };
        Self { wants: Wants { semaphore, arm, refused: Cell::new(false) }, told: Cell::new(Outcome::Pending) }
    }

    /// Forgets whether it has won. `Some(true)`: it had, and the permits are taken for it; `Some(false)`: it had, in vain.
    fn take(&self) -> Option<bool> {
        let (told, refused) = (self.told.replace(Outcome::Pending), self.wants.refused.take());
        (told != Outcome::Pending).then_some(told == Outcome::Done && !refused)
    }

    /// Gives back what was won and not asked for.
    fn clear(&self) {
        if self.take() == Some(true) {
            self.wants.semaphore.give(self.wants.arm.want);
        }
    }
}

impl sealed::Sealed for AcquireArm<'_> {
    fn case(&mut self) -> Case<'_> {
        self.clear();
        Case::single(&self.wants, &self.told)
    }
}

impl<'a> Arm for AcquireArm<'a> {
    type Output = Result<Permit<'a>, AcquireError>;

    fn finish(&mut self) -> Self::Output {
        let (semaphore, count) = (self.wants.semaphore, self.wants.arm.want);
        match self.take().expect("fibra: the result of an arm that did not win") {
            true => Ok(Permit { semaphore, count }),
            // There may be enough again by now, but there were not when it was turned away.
            false => Err(semaphore
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
        f.debug_struct("AcquireArm").field("count", &self.wants.arm.want).finish_non_exhaustive()
    }
}
