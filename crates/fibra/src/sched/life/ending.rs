//! The end of a fiber, on its worker: outcome, joiners, the way back into the pool, and its count in the root.
//!
//! Everything here runs on the scheduler's stack, when nothing of the fiber runs any more. (The end of a plain fiber without a
//! joiner may be made on a stack that has gone to its successor: `succession.rs`.) The order matters: DONE first, then the joiners, the
//! count last, because it may let the runtime's owner go on. Above: `worker.rs`, whose loop calls it. Below: `root.rs`, which counts.

use crate::fiber::frame::{FlagSet, Frame, FrameRef, flag};
use crate::fiber::outcome::{FiberEnd, Finish};
use crate::prim::atomic::Ordering;
use crate::sched::enqueue::QueueEnd;
use crate::sched::members::gathering::Gathering;
use crate::sched::members::root::RootWaiter;
use crate::sched::members::scope::{ScopeRecord, ScopeRef};
use crate::sched::shared::RootRef;
use crate::sched::worker::Worker;
use crate::waiter::node::WaiterRef;
use crate::waiter::record::Claimed;
use crate::waiter::word::{ARM_FIRST, CompletedBy, Ticket, WaiterState};

impl Worker {
    /// The end of a fiber that has returned, on the scheduler's stack: nothing of the fiber runs any more.
    #[inline(always)]
    pub(in crate::sched) fn end(&self, frame: FrameRef) {
        // A fiber that may move is also in the list of fibers that are on no worker, and must be taken out of it.
        if frame.is_plain() && !self.shared.migrates() {
            self.unbind_stack(frame, || &self.residents.started);
            self.finish_plain(frame);
        } else {
            self.end_as(frame, FiberEnd::Value);
        }
    }

    /// The end of a fiber that has not returned; `outcome` is the number that it suspended with.
    pub(in crate::sched) fn end_otherwise(&self, frame: FrameRef, outcome: usize) {
        let panicked = outcome == FiberEnd::Panicked as usize;
        self.end_as(frame, if panicked { FiberEnd::Panicked } else { FiberEnd::Cancelled });
    }

    /// The end of any fiber, however it ended.
    #[inline(never)]
    fn end_as(&self, frame: FrameRef, outcome: FiberEnd) {
        self.unbind_stack(frame, || self.list_of(frame));
        self.finish(frame, outcome);
    }

    /// [`finish`](Self::finish) of a plain fiber that has returned.
    #[inline(always)]
    fn finish_plain(&self, frame: FrameRef) {
        // SAFETY: the fiber was counted in this root and has not been counted out yet.
        let root = unsafe { RootRef::from_ptr(frame.root.get()) };
        self.stats().ended.add(1);
        frame.waiter.word.finish(false);
        self.publish_end(frame, FiberEnd::Value);
        self.count_end(root);
    }

    /// Publishes the end of a fiber that has no stack (any more): DONE, joiners, root.
    #[inline(never)]
    pub(in crate::sched) fn finish(&self, frame: FrameRef, outcome: FiberEnd) {
        let flags = frame.flags();
        // SAFETY: the fiber was counted in this root and has not been counted out yet.
        let root = unsafe { RootRef::from_ptr(frame.root.get()) };
        if flags.has(flag::TASK | flag::MOVES) || self.shared.migrates() {
            // Relaxed: the id of a live fiber does not change.
            self.shared.tasks.lock().remove(&frame.id.load(Ordering::Relaxed));
        }
        self.stats().ended.add(1);
        if !flags.has(flag::UNCAPPED) {
            self.shared.dismiss();
        }
        frame.waiter.word.check_is(WaiterState::Running);
        frame.waiter.word.finish(outcome == FiberEnd::Cancelled);
        let joined = self.publish_end(frame, outcome);
        // From here on the frame is not ours. The count goes last: it may let the runtime's owner go on.
        if flags.has(flag::HALF) {
            // The offered half of a `join` is not counted in the root: only its joiner knows of it.
        } else if !flags.has(flag::DAEMON | flag::ROOT | flag::SCOPED) {
            self.count_end(root);
        } else if flags.has(flag::SCOPED) {
            self.end_child(root, flags, outcome, joined);
        } else if flags.has(flag::DAEMON) {
            if flags.has(flag::CALLS_WAKERS) {
                self.residents.wakers_to_call.set(self.residents.wakers_to_call.get() - 1);
            }
            self.end_daemon(root);
        }
    }

    /// DONE, and what follows from it for joiners and for the frame. True if a joiner waits for this fiber: then the outcome goes to it.
    #[inline(always)]
    pub(in crate::sched) fn publish_end(&self, frame: FrameRef, outcome: FiberEnd) -> bool {
        match frame.join.finish(outcome) {
            Finish::LeaveToHandle => false,
            Finish::Recycle => {
                self.recycle(frame);
                false
            }
            Finish::CompleteJoiners => self.complete_joiners(frame, outcome),
        }
    }

    /// Wakes the joiners. True if one waits for this fiber: then the outcome goes to it. Usually there is one joiner.
    #[inline(always)]
    fn complete_joiners(&self, frame: FrameRef, outcome: FiberEnd) -> bool {
        // SAFETY: the list is guarded by the lock in `join`, which `finish` has taken, because a joiner is in it. (For all blocks here.)
        let node = unsafe { frame.joiners.front().unwrap_unchecked() };
        // SAFETY: as above.
        let is_last = unsafe { frame.joiners.after(node) }.is_none();
        let Some((waiter, ticket, arm)) = node.target_if_any().filter(|_| is_last) else {
            return self.complete_all_joiners(frame, outcome);
        };
        // SAFETY: as above.
        unsafe { frame.joiners.remove_front(node) };
        match Claimed::of_parked(waiter, ticket, arm) {
            Some(joiner) => {
                // Before the joiner goes on: it would only wait for this.
                frame.join.unlock_finished(outcome);
                self.enqueue(Frame::from_waiter(joiner.into_fiber()), QueueEnd::Next);
            }
            None => self.complete_joiner(frame, outcome, waiter, ticket, arm),
        }
        true
    }

    /// Wakes a joiner that is no fiber, or not parked; its node is out of the list.
    #[cold]
    #[inline(never)]
    fn complete_joiner(&self, frame: FrameRef, outcome: FiberEnd, waiter: WaiterRef, ticket: Ticket, arm: CompletedBy) {
        let claimed = Claimed::of_any(waiter, ticket, arm);
        // As above.
        frame.join.unlock_finished(outcome);
        if let Some(claimed) = claimed
            && let Some(waker) =
                claimed.make_runnable_with(|fiber| self.enqueue(Frame::from_waiter(fiber), QueueEnd::Next))
        {
            self.spawn_call_of_wakers(vec![waker]);
        }
    }

    /// Wakes several joiners, or members of a gathering.
    #[cold]
    #[inline(never)]
    fn complete_all_joiners(&self, frame: FrameRef, outcome: FiberEnd) -> bool {
        let mut wakers = Vec::new();
        let mut joined = false;
        // SAFETY: the list is guarded by the lock in `join`, which `finish` has taken.
        while let Some(node) = unsafe { frame.joiners.pop_front_node() } {
            match node.target_if_any() {
                Some((waiter, ticket, arm)) => {
                    wakers.extend(crate::sched::complete::complete_wait(waiter, ticket, arm, QueueEnd::Next));
                    joined = true;
                }
                // SAFETY: a node without a waiter is a member of a gathering; just taken out of its fiber's list, under that one's lock.
                None => joined |= unsafe { Gathering::arrive(node, &mut wakers) },
            }
        }
        frame.join.unlock_finished(outcome);
        // Wakers are user code: called after the lock, and on a fiber of their own, never on this stack.
        if !wakers.is_empty() {
            self.spawn_call_of_wakers(wakers);
        }
        joined
    }

    /// Puts the frame back into the pool. Only stale tickets still refer to it.
    #[inline(always)]
    pub(crate) fn recycle(&self, frame: FrameRef) {
        // Relaxed: the frame is this worker's alone.
        debug_assert!(frame.stack.load(Ordering::Relaxed).is_null(), "a frame is free while it has a stack");
        frame.clear_extras();
        frame.waiter.word.recycle();
        self.caches.frames.with(|frames| frames.give(frame));
    }

    // ---- counting (see `root.rs`)

    /// A fiber of `root` is about to be published by this worker. False: the root is closed.
    #[inline(always)]
    pub(crate) fn count_spawn(&self, root: RootRef) -> bool {
        self.residents.tally.count_spawn(root, |owner| self.wake_root_owner(owner))
    }

    #[inline(always)]
    fn count_end(&self, root: RootRef) {
        self.residents.tally.count_end(root, |owner| self.wake_root_owner(owner));
    }

    /// A child of a scope has ended. The record is that scope's until the child is counted out.
    #[inline(always)]
    fn end_child(&self, root: RootRef, flags: FlagSet, outcome: FiberEnd, joined: bool) {
        // SAFETY: the root of a SCOPED fiber is the first field of its record, and records live for ever.
        let scope: ScopeRef = unsafe { &*root.as_ptr().cast::<ScopeRecord>() };
        match outcome {
            FiberEnd::Panicked if !joined => self.rules().child_failed(scope, scope.life(), false),
            FiberEnd::Cancelled => scope.note_cut_short(),
            _ => {}
        }
        if !flags.has(flag::PINNED | flag::TASK)
            && let Some(next) = scope.next_in_turn()
        {
            let ticket = next.waiter.word.snapshot().ticket();
            self.push_spawned(next, ticket);
        }
        self.wake_root_owner(scope.count_end(self));
    }

    #[cold]
    #[inline(never)]
    fn end_daemon(&self, root: RootRef) {
        self.shared.release_root(root);
        self.wake_root_owner(self.shared.daemons.add(-1));
    }

    pub(in crate::sched) fn wake_root_owner(&self, owner: Option<RootWaiter>) {
        if let Some((waiter, ticket)) = owner {
            let waker = crate::sched::complete::complete_wait(waiter, ticket, ARM_FIRST, QueueEnd::Tail);
            self.spawn_call_of_wakers(waker.into_iter().collect());
        }
    }
}
