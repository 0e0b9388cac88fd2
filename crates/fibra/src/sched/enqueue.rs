//! Putting a RUNNABLE fiber where it will run: the one way into the queues for everything above the scheduler.
//!
//! Above: `wake.rs`, `members::gathering`, `reactor::source` and `wait`, which make fibers RUNNABLE. Below: `worker.rs` (the queues of this
//! worker) and `reach.rs` (those of other workers).

use super::shared::RuntimeShared;
use super::worker::Worker;
use super::{current, flight, reach};
use crate::fiber::frame::{FrameRef, NO_HOME, flag};
use crate::prim::atomic::Ordering;

/// Where a fiber that is woken on its own worker goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueueEnd {
    /// Before everything else: a rendezvous peer of the running fiber, the joiner of one that just ended.
    Next,
    /// Behind what is ready.
    Tail,
}

/// Enqueues a fiber that the caller has made RUNNABLE, once. A fiber that waits has a home, the worker its stack belongs to; only
/// a task between two polls has none and goes to any worker (a task that blocks in the middle of a poll is a fiber like any other). Works
/// from any thread. The caller must not touch the fiber afterwards.
#[inline(always)]
pub(crate) fn enqueue(frame: FrameRef, place: QueueEnd) {
    match current::worker() {
        Some(worker) if worker.is_home_of(frame) => worker.wake_here(frame, place),
        _ => enqueue_elsewhere(frame, place),
    }
}

/// [`enqueue`] of a fiber that does not live on this worker, or on a thread that is none; or on a worker that records what it does
/// (`flight.rs`).
#[cold]
#[inline(never)]
fn enqueue_elsewhere(frame: FrameRef, place: QueueEnd) {
    match current::worker() {
        Some(worker) if worker.flight.is_on() => {
            worker.note_wake(frame);
            if worker.is_home_as(frame, worker.shared_at) {
                return worker.wake_here(frame, place);
            }
        }
        None if flight::is_on() => flight::note_wake_outside(frame),
        _ => {}
    }
    // Relaxed: compared only; written before the fiber was published.
    let runtime = frame.runtime.load(Ordering::Relaxed);
    match current::worker().filter(|worker| !frame.is_adrift() && std::ptr::eq(runtime.cast(), worker.shared_at)) {
        // Relaxed: written before the park was committed, which the claim has seen.
        Some(worker) => match frame.home.load(Ordering::Relaxed) {
            NO_HOME => worker.push_task(frame),
            home => worker.shared.deliver(home as usize, frame),
        },
        None => {
            // SAFETY: the fiber is RUNNABLE and in our hands, so it has not ended and its runtime lives until it is pushed.
            let shared = unsafe { RuntimeShared::of(frame) };
            // SAFETY: as above; it is not touched afterwards.
            unsafe { reach::enqueue_from_outside(shared, frame) };
        }
    }
}

impl Worker {
    /// [`enqueue`] on this worker's thread, of a fiber of whichever runtime.
    #[inline(always)]
    pub(super) fn enqueue(&self, frame: FrameRef, place: QueueEnd) {
        if self.is_home_of(frame) { self.wake_here(frame, place) } else { enqueue_elsewhere(frame, place) }
    }

    /// Does this fiber, which waits or has waited, live here? A worker that records what it does says no.
    #[inline(always)]
    fn is_home_of(&self, frame: FrameRef) -> bool {
        self.is_home_as(frame, self.flight.mark())
    }

    /// The same for the worker of the runtime at this address.
    #[inline(always)]
    fn is_home_as(&self, frame: FrameRef, runtime: *const RuntimeShared) -> bool {
        // Relaxed, both: compared only; written before the fiber was published, and before the commit that its claim has seen.
        !frame.is_adrift()
            && std::ptr::eq(frame.runtime.load(Ordering::Relaxed).cast(), runtime)
            && frame.home.load(Ordering::Relaxed) == self.index as u32
    }

    /// A new fiber that must stay here: behind what is ready.
    pub(crate) fn push_local(&self, frame: FrameRef) {
        if !frame.has(flag::ROOT) {
            self.shared.sysmon.start_if_late(&self.shared);
        }
        self.push_ready(frame);
    }
}
