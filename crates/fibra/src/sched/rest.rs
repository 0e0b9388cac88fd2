//! Memory that an idle worker, or a worker that ends, gives back: the stacks and frames of its caches, the memory of its deque.
//!
//! Above: `search`, where a worker goes to sleep. Below: the caches of `fiber`, and its trimmer, which takes care of what they shed.
//!
//! A worker that goes to sleep with more than it needs sleeps for a second at most, once: then it sheds the surplus and sleeps until it is
//! woken. Nothing ticks (law 9): it does not shed again until it has worked again. A worker that is woken again and again, and sleeps in
//! between, sheds at most once a second, and gets back what it left in the depots for the price of a lock.

use std::cell::Cell;

use super::members::scope::ScopeCache;
use super::worker::Worker;
use crate::fiber::slab::FrameCache;
use crate::fiber::stack::StackCache;
use crate::fiber::trim;
use crate::prim::policy;
use crate::waiter::answer::AnswerCache;

/// How long a worker keeps what it does not need.
const KEPT_NANOS: u64 = 1_000_000_000;

/// See the header.
#[derive(Debug)]
pub(super) struct Rest {
    /// When the worker sheds; 0: since it last shed, it has not gone to sleep with too much.
    at: Cell<u64>,
}

impl Rest {
    pub(super) fn new() -> Self {
        Self { at: Cell::new(0) }
    }
}

impl Worker {
    /// Gives back what this worker holds for its runtime, at its end.
    pub(crate) fn retire(self) {
        self.abandon_sources();
        self.wake_root_owner(self.residents.tally.settle());
        self.caches.stacks.with(StackCache::flush);
        self.caches.frames.with(FrameCache::flush);
        self.caches.scopes.with(ScopeCache::flush);
        self.caches.answers.with(AnswerCache::flush);
        trim::see_to_it();
        if self.has_left() {
            self.leave_seat();
        }
    }

    /// Copies the figures of the stack pool into the counters that other threads may read.
    pub(super) fn publish_stack_counts(&self) {
        let (reused, fresh) = self.caches.stacks.with(|stacks| (stacks.reused(), stacks.fresh()));
        let (reused_before, fresh_before) = self.sitting.stacks_before;
        self.stats().stacks_reused.set(reused_before + reused);
        self.stats().stacks_fresh.set(fresh_before + fresh);
    }

    /// For a worker that is about to sleep: when it has to wake up to shed what it does not need. None: it has nothing to shed.
    pub(super) fn rest_at(&self) -> Option<u64> {
        if !self.is_fat() {
            self.rest.at.set(0);
            return None;
        }
        let now = policy::now();
        match self.rest.at.get() {
            0 => {
                self.rest.at.set(now + KEPT_NANOS);
                Some(now + KEPT_NANOS)
            }
            at if at > now => Some(at),
            _ => {
                self.rest.at.set(0);
                self.shed();
                None
            }
        }
    }

    /// The loop ends and may not run again for long: after a flood the worker keeps nothing.
    pub(super) fn leave_memory(&self) {
        if trim::is_astir() {
            self.shed();
        }
    }

    fn is_fat(&self) -> bool {
        self.caches.stacks.with(|stacks| stacks.is_fat())
            || self.caches.frames.with(|frames| frames.is_fat())
            || self.remote().fresh.is_fat()
    }

    #[cold]
    #[inline(never)]
    fn shed(&self) {
        self.caches.stacks.with(StackCache::shed);
        self.caches.frames.with(FrameCache::shed);
        // SAFETY: this thread is the owner of its worker's deque.
        unsafe { self.remote().fresh.give_back() };
        trim::see_to_it();
    }
}
