//! Putting a RUNNABLE fiber where it will run: the one way into the queues for everything above the scheduler.

use super::current;
use super::queue::Entry;
use super::shared::Shared;
use crate::fiber::frame::{FrameRef, NO_HOME, flag};
use crate::prim::atomic::Ordering;

/// Where a fiber that is woken on its own worker goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Before everything else: a rendezvous peer of the running fiber, the joiner of one that just ended.
    Next,
    /// Behind what is ready.
    Tail,
}

/// Enqueues a fiber that the caller has made RUNNABLE, once. Works from any thread. The caller must not touch the fiber afterwards.
#[inline]
pub(crate) fn enqueue(frame: FrameRef, place: Place) {
    match current::worker() {
        // Relaxed: compared only; written before the fiber was published.
        Some(worker) if std::ptr::eq(frame.runtime.load(Ordering::Relaxed).cast(), &*worker.shared) => {
            if is_between_polls(frame) {
                worker.push_task(frame);
            // Relaxed: a started fiber's home never changes.
            } else if frame.home.load(Ordering::Relaxed) as usize == worker.index {
                worker.wake_here(frame, place);
            } else {
                // Relaxed: as above.
                worker.shared.deliver(frame.home.load(Ordering::Relaxed) as usize, frame);
            }
        }
        _ => enqueue_from_outside(frame),
    }
}

/// A task without a stack, hence of no worker. One that blocks inside a poll has both, and is woken like any other started fiber.
#[inline(always)]
fn is_between_polls(frame: FrameRef) -> bool {
    // Relaxed: written by its worker before the park was committed, which the claim that made it RUNNABLE has seen.
    frame.has(flag::TASK) && frame.home.load(Ordering::Relaxed) == NO_HOME
}

#[cold]
#[inline(never)]
fn enqueue_from_outside(frame: FrameRef) {
    // SAFETY: the fiber is RUNNABLE and in our hands, so it has not ended and its runtime lives; the visit keeps it alive after that.
    let shared = unsafe { Shared::of(frame) };
    shared.visitors.enter();
    if is_between_polls(frame) {
        shared.inject(Entry { frame: frame.address(), ticket: frame.waiter.word.snapshot().ticket().to_bits() });
    } else {
        // Relaxed: a started fiber's home never changes.
        shared.deliver(frame.home.load(Ordering::Relaxed) as usize, frame);
    }
    shared.visitors.leave();
}
