//! Fibers that could not get a stack: they stay unstarted while the others go on, and end with `NoStack` if nothing else can.
//!
//! This happens when the kernel has no mapping left to give: below Linux 6.13 every guard costs one, and `vm.max_map_count` is 65,530 by
//! default. It is said once. The worker tries again whenever a stack comes back to it and, since stacks also come back to other
//! workers, every few milliseconds. If for a while no worker of the runtime had anything to run and no timer is set here, then
//! no fiber is going to give a stack back: the oldest such fiber ends with `NoStack`, which may let its joiner go on. For the root
//! fiber of a `run` that joiner is `run` itself, which panics with the reason.

use crate::fiber::frame::{FrameRef, flag};
use crate::fiber::outcome::FiberEnd;
use crate::fiber::stack::NoStack;
use crate::prim::atomic::{AtomicBool, Ordering};
use crate::sched::members::scope::{NotStarted, ScopeRecord};
use crate::sched::rules::CancelRules;
use crate::sched::worker::Worker;

/// Between two tries.
const RETRY_NANOS: u64 = 5_000_000;
/// Tries in vain, with all workers asleep, before a fiber is given up.
const TRIES: u32 = 20;

impl Worker {
    /// A fiber that was just made RUNNING cannot get a stack.
    #[cold]
    #[inline(never)]
    pub(in crate::sched) fn no_stack(&self, frame: FrameRef, error: &NoStack) {
        static SAID: AtomicBool = AtomicBool::new(false);
        // Relaxed: said once or twice, no more depends on it.
        if !SAID.swap(true, Ordering::Relaxed) {
            crate::prim::say(format_args!("fibra: no stack for a new fiber, it waits until another one ends: {error}"));
        }
        self.queues.stackless.with(|waiting| waiting.push_back(frame));
        self.settle_hand_on();
    }

    /// Whether a stack may be handed on; see `succession.rs`.
    pub(in crate::sched) fn settle_hand_on(&self) {
        self.caches.hands_on.set(self.queues.stackless.with(|waiting| waiting.is_empty()) && !self.flight.is_on());
    }

    /// Tries to start the fibers that wait for a stack; gives the oldest up if nothing else can progress.
    #[cold]
    #[inline(never)]
    pub(in crate::sched) fn retry_stackless(&self) {
        while let Some(frame) = self.queues.stackless.with(|waiting| waiting.pop_front()) {
            let waiting = self.queues.stackless.with(|waiting| waiting.len());
            if self.bind_stack(frame).is_some() {
                self.search.starved_tries.set(0);
                frame.waiter.word.yielded();
                self.push_local(frame);
                continue;
            }
            // `bind_stack` has put it at the end again; put it back to the front.
            self.queues.stackless.with(|queue| {
                debug_assert_eq!(queue.len(), waiting + 1);
                queue.rotate_right(1);
            });
            break;
        }
        self.settle_hand_on();
        if self.queues.stackless.with(|waiting| waiting.is_empty()) {
            return;
        }
        let asleep = self.shared.idle.all_sleep_but(1);
        let stuck = asleep && !self.has_local_work() && self.wake_for_timers_at().is_none();
        let tries = if stuck { self.search.starved_tries.get() + 1 } else { 0 };
        self.search.starved_tries.set(tries);
        if tries > TRIES
            && let Some(frame) = self.queues.stackless.with(|waiting| waiting.pop_front())
        {
            self.settle_hand_on();
            self.give_up(frame);
        }
    }

    /// When to try again, if a fiber waits for a stack.
    pub(in crate::sched) fn stackless_retry_at(&self) -> Option<u64> {
        let waits = !self.queues.stackless.with(|waiting| waiting.is_empty());
        waits.then(|| self.cached_now() + RETRY_NANOS)
    }

    fn give_up(&self, frame: FrameRef) {
        let thunk = frame.thunk.get().expect("a published fiber has a thunk");
        // There is no stack to drop the closure on but this one; a destructor that blocks here panics, and that is caught.
        // SAFETY: RUNNING, never run: the closure is in the storage.
        unsafe { (thunk.discard)(frame) };
        let child = frame.flags().among(flag::SCOPED | flag::HALF) == flag::SCOPED;
        self.finish(frame, if child { fail_scope(frame, self.rules()) } else { FiberEnd::NoStack });
    }
}

/// The child of a scope is given up: the scope fails, unless the child still has a handle, whose joiner is told.
fn fail_scope(frame: FrameRef, rules: &dyn CancelRules) -> FiberEnd {
    // SAFETY: the caller has looked at the flag that `of` asks for; the storage is empty since the closure was dropped, and ours.
    unsafe { frame.put(ScopeRecord::of(frame).not_started(None)) };
    if !frame.join.publish_result(FiberEnd::NotStarted) {
        // SAFETY: just put there, and the handle is gone.
        let lost = unsafe { frame.take::<NotStarted>() };
        rules.child_failed(lost.scope, lost.life, true);
    }
    FiberEnd::NotStarted
}
