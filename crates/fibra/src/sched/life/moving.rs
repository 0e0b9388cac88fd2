//! Started fibers that go on on any worker: those with thread-locals of their own whose author has said that they may (`MOVES`).
//!
//! Such a fiber that suspends is between two runs what a task is between two polls: it belongs to no worker, is known to the runtime
//! (`Shared::tasks`, where cancellation and shutdown find it), and is stealable work once it is woken (`homing.rs` says where). Unlike a
//! task it keeps its stack, and may have scopes open. So wakes, stealing and shutdown know nothing of it.
//!
//! ```text
//! runs on A ── let_move (on A's scheduler stack) ──▶ on no worker ── entry in a deque or in the injector ── go_on_here ──▶ runs on B
//! ```
//!
//! Invariants
//! * The stack was left before the fiber can be taken (law 3); the queues order what was written there.
//! * A fiber suspends in this way only where nothing binds it to its worker: `wait::own_locals` decides.
//!
//! Above: `worker.rs`. Below: the queues, and `waiter::revoke` for the park.

use crate::fiber::frame::{FrameRef, NO_HOME};
use crate::prim::atomic::Ordering;
use crate::sched::members::scope::ScopeRecord;
use crate::sched::queue::Entry;
use crate::sched::staff::seats;
use crate::sched::worker::Worker;
use crate::waiter::revoke;
use crate::waiter::word::Commit;

/// 1 if the record of a suspended fiber says that it waits, and did not just yield: from before it leaves its stack until it goes on there.
fn is_waiting(frame: FrameRef) -> i64 {
    i64::from(frame.top().is_some_and(|top| top.wait_words().0 != 0))
}

impl Worker {
    /// On the scheduler's stack, after a fiber that moves has suspended.
    pub(in crate::sched) fn let_move(&self, frame: FrameRef, parks: bool) {
        self.unlink_started(frame, || self.list_of(frame));
        // Relaxed: published by the queue or by the commit.
        frame.home.store(NO_HOME, Ordering::Relaxed);
        // Relaxed: a gauge; the worker that runs the fiber again takes it back.
        self.shared.moving_parked.fetch_add(is_waiting(frame), Ordering::Relaxed);
        if parks {
            if let Some(top) = frame.top() {
                top.note_worker(self.index);
            }
            // It holds nothing off (`wait::own_locals`), so a cancellation that comes now is due: that of the fiber, and that of each scope
            // which is open on it. From the commit on the fiber may run elsewhere: what is needed of its own is read before.
            // (A select that has an arm for cancellation watches, and learns of it, too.)
            let (rules, owner) = (self.rules(), frame.waiter_ref());
            let outermost = frame.top().and_then(|top| ScopeRecord::outermost(&top.cancel));
            let outermost = outermost.map(|scope| (scope, scope.life()));
            let judge = || rules.may_end_elsewhere(owner, outermost);
            match revoke::commit_and_let_go(&frame.waiter, judge, |failure| rules.settle(failure)) {
                // From here on it may run anywhere.
                Commit::Parked => {}
                Commit::Requeue => self.push_fresh(frame),
            }
        } else {
            frame.waiter.word.yielded();
            if self.shared.config.force_moves {
                return self.send_on(frame);
            }
            let ticket = frame.waiter.word.snapshot().ticket().to_bits();
            // Behind all others, and where a free worker finds it.
            self.shared.inject(Entry::contested(frame.address(), ticket));
        }
    }

    /// For tests: sends a RUNNABLE fiber to the next worker, which lets it go on there.
    #[cold]
    pub(in crate::sched) fn send_on(&self, frame: FrameRef) {
        let next = self.shared.accepting_workers().find(|worker| *worker > self.index);
        let target = next.or_else(|| self.shared.accepting_workers().next()).unwrap_or(0);
        // That worker may be leaving, or gone.
        let target = self.shared.reserve(target);
        self.shared.deliver(target, frame);
        // From now on the fiber in the inbox keeps the worker from leaving.
        seats::unreserve(&*self.shared, target);
    }

    /// A fiber that was in this worker's inbox, and moves: is it on no worker yet? Then it goes on here.
    #[cold]
    pub(in crate::sched) fn arrives(&self, frame: FrameRef) -> bool {
        // Relaxed: written before it was sent.
        frame.home.load(Ordering::Relaxed) == NO_HOME && self.go_on_here(frame)
    }

    /// A fiber that moves, which this worker has taken out of a queue: it goes on here. False: it has not started yet.
    #[cold]
    #[inline(never)]
    pub(in crate::sched) fn go_on_here(&self, frame: FrameRef) -> bool {
        // Relaxed: written by the worker that let it go, before it was queued; this one has taken it.
        if frame.stack.load(Ordering::Relaxed).is_null() {
            return false;
        }
        // Relaxed: a gauge.
        self.shared.moving_parked.fetch_sub(is_waiting(frame), Ordering::Relaxed);
        // Relaxed: this worker's own now.
        frame.home.store(self.index as u32, Ordering::Relaxed);
        self.link_started(frame, self.list_of(frame));
        true
    }
}
