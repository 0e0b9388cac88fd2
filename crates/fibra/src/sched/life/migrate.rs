//! Migration of started fibers between workers: only with the feature `unstable-migration`, and only in a runtime whose builder was told
//! so, by an unsafe call.
//!
//! Without migration a fiber lives for good on the worker where it started; with it, each suspension may end on another worker. A
//! fiber that yields, or parks without a deadline, is *adrift* until a worker runs it: it is in no worker's list of started fibers,
//! and its queue entry is stealable like that of an unstarted one. The worker that takes the entry takes the fiber in.
//!
//! ```text
//! runs on A ── let_go (on A's scheduler stack) ──▶ adrift ── entry in the injector, an inbox or a deque ── take_in ──▶ runs on B
//! ```
//!
//! * The stack was left before the fiber is adrift (law 3), and the queues order what was written there (S0-15).
//! * Shutdown finds adrift fibers in `RuntimeShared::tasks`, where futures are, too.
//! * Bound to their worker all the same: pinned fibers (`spawn_local`, `spread`, a root on its caller's thread); a wait with a deadline
//!   (its timer is in the worker that set it); polls of a future; fibers that are shielded or unwind (std counts panics per thread).
//!
//! Left out: the injector is the only queue for fibers adrift, so each suspension goes through one shared queue, and two fibers that talk
//! to each other are not kept on one worker.
//!
//! Above: `worker.rs`, which lets fibers go and takes them in. Below: `reach.rs`, the injector, and `waiter::revoke` for the park.

use crate::fiber::frame::{Frame, FrameRef, NO_HOME, flag};
use crate::prim::atomic::Ordering;
use crate::sched::queue::Entry;
use crate::sched::shared::RuntimeShared;
use crate::sched::staff::seats;
use crate::sched::worker::{Worker, signal};
use crate::waiter::revoke;
use crate::waiter::word::Commit;

/// Whether started fibers move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Migration {
    #[default]
    Off,
    /// Any worker that is free runs them.
    Free,
    /// To the next worker at every suspension: for tests.
    Forced,
}

/// In `home` of a fiber adrift, beside the worker that is to take it in.
const ADRIFT: u32 = 1 << 31;
/// It was parked, and counts as such.
const PARKED: u32 = 1 << 30;
/// Any worker may take it in.
const ANY_WORKER: u32 = (1 << 30) - 2;

impl Frame {
    /// Is this a started fiber that no worker has? The caller holds it: the fiber is RUNNABLE and was taken from a queue, or claimed.
    pub(crate) fn is_adrift(&self) -> bool {
        // Relaxed: written before it was queued or parked, and the caller took or claimed it.
        let home = self.home.load(Ordering::Relaxed);
        home & ADRIFT != 0 && home != NO_HOME
    }
}

impl RuntimeShared {
    /// Puts a RUNNABLE fiber that is adrift into a queue, where a worker will find it. The caller must not touch it afterwards.
    pub(in crate::sched) fn requeue_adrift(&self, frame: FrameRef) {
        // Relaxed: as in `is_adrift`.
        let target = frame.home.load(Ordering::Relaxed) & !(ADRIFT | PARKED);
        if target == ANY_WORKER {
            let ticket = frame.waiter.word.snapshot().ticket().to_bits();
            self.inject(Entry::contested(frame.address(), ticket));
        } else {
            // That worker may be leaving, or gone, since this was written.
            let target = self.reserve(target as usize);
            self.deliver(target, frame);
            // From now on the fiber in the inbox keeps the worker from leaving.
            seats::unreserve(self, target);
        }
    }
}

impl Worker {
    /// On the scheduler's stack, after a fiber suspended: lets it go, if it may move. False: it stays, and the worker handles `said`.
    pub(in crate::sched) fn let_go(&self, frame: FrameRef, said: usize) -> bool {
        let parks = said == signal::PARK;
        if !(parks || said == signal::YIELD) || !self.shared.migrates() {
            return false;
        }
        if frame.has(flag::PINNED | flag::TASK | flag::HOLD_OFF | flag::ANY_CANCEL) || std::thread::panicking() {
            return false;
        }
        self.unlink_started(frame, || self.list_of(frame));
        let target = match self.shared.config.migration {
            Migration::Forced => {
                let next = self.shared.accepting_workers().find(|worker| *worker > self.index);
                next.or_else(|| self.shared.accepting_workers().next()).unwrap_or(0) as u32
            }
            _ => ANY_WORKER,
        };
        // Relaxed: published by the queue or by the commit.
        frame.home.store(ADRIFT | if parks { PARKED } else { 0 } | target, Ordering::Relaxed);
        if parks {
            // Relaxed: a gauge; taken back by `take_in`.
            self.shared.tasks_parked.fetch_add(1, Ordering::Relaxed);
            // It was not cancelled a moment ago, and holds nothing off: a flag that is up is due.
            match revoke::commit(&frame.waiter, |_| true) {
                // From here on it may run anywhere.
                Commit::Parked => return true,
                Commit::Requeue => {}
            }
        } else {
            frame.waiter.word.yielded();
        }
        self.shared.requeue_adrift(frame);
        true
    }

    /// Makes this worker the home of a fiber adrift that it is about to run. False: it is not adrift.
    pub(in crate::sched) fn take_in(&self, frame: FrameRef) -> bool {
        if !frame.is_adrift() {
            return false;
        }
        // Relaxed: as in `is_adrift`.
        if frame.home.load(Ordering::Relaxed) & PARKED != 0 {
            // Relaxed: a gauge.
            self.shared.tasks_parked.fetch_sub(1, Ordering::Relaxed);
        }
        // Relaxed: this worker's own now.
        frame.home.store(self.index as u32, Ordering::Relaxed);
        self.link_started(frame, self.list_of(frame));
        true
    }

    /// Enters a fiber that starts and may move into the list where shutdown looks for fibers that are on no worker.
    pub(in crate::sched) fn register_wanderer(&self, frame: FrameRef) {
        if self.shared.migrates() && !frame.has(flag::PINNED | flag::TASK) {
            // Relaxed: the id of a live fiber does not change.
            self.shared.tasks.lock().insert(frame.id.load(Ordering::Relaxed), frame);
        }
    }
}
