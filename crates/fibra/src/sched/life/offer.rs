//! The second half of a `join`, from the scheduler's side: a frame that is offered to free workers, and taken back if no worker has
//! started it.
//!
//! An offer is an unstarted fiber in the worker's deque like any other, but for three things. Its closure is not in the frame: it
//! lies on the stack of the joining fiber, which does not leave before the half has ended or is taken back ([`Offered`] is the frame's
//! way to it). It is counted by no root scope and in no metric until a worker starts it. And it usually comes back: the joining fiber
//! takes it out of the deque at the newest end, where it put it; or, if other entries lie above it or a thief carried it into
//! another deque without starting it, claims it by its ticket and leaves a stale entry behind, which the worker that meets
//! it drops.
//!
//! A worker judges its surplus when it switches, and a fiber that forks and joins may compute for long without a switch. So every so many
//! offers count as a switch in that respect, and a sleeper is woken if the oldest unstarted fiber has lain there since the last such look.
//!
//! Above: `task::fork_join`, which runs the halves. Below: `queue/fresh.rs`, and the frame's state word, which decides whether a worker or
//! the joiner runs the half.

use std::cell::Cell;

use super::newest;
use crate::fiber::frame::{FrameRef, flag};
use crate::fiber::slab::FrameCache;
use crate::fiber::stack::StackSize;
use crate::prim::atomic::Ordering;
use crate::sched::queue::Entry;
use crate::sched::worker::Worker;
use crate::waiter::word::Ticket;

/// Offers between two looks at the surplus: about a microsecond of forking and joining.
const LOOK_PERIOD: u32 = 64;

/// What the storage of an offered frame holds instead of a closure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offered {
    /// The half, on the joining stack; `task::fork_join` knows the type.
    pub(crate) half: *const (),
    pub(crate) joiner: FrameRef,
}

/// The stack size of a fiber that the caller is about to run for the first time, if it asked for one. A half has one as large as its
/// joiner's: a recursion that fits there must not depend on where its halves run.
#[cold]
#[inline(never)]
pub(in crate::sched) fn stack_size_of(frame: FrameRef) -> Option<StackSize> {
    if !frame.has(flag::HALF) {
        // SAFETY: the caller is about to run it, so it is not recycled.
        return unsafe { frame.extras() }.and_then(|extras| extras.stack_size);
    }
    // SAFETY: the joiner that offered the frame put it there, and it has not run; it is copied, so nothing is taken out.
    let offered = unsafe { frame.take::<Offered>() };
    // Relaxed: the joiner has been running on it since before the offer, and waits for us.
    // SAFETY: as said, it stays.
    let stack = unsafe { offered.joiner.stack.load(Ordering::Relaxed).as_ref() }?;
    StackSize::new(stack.size()).ok()
}

/// A worker's memory of its offers.
#[derive(Debug)]
pub(crate) struct Offers {
    /// Until the next look at the surplus.
    until_look: Cell<u32>,
    /// The position of the oldest unstarted fiber at the last look, if there was one.
    oldest: Cell<Option<u64>>,
}

impl Offers {
    pub(in crate::sched) fn new() -> Self {
        Self { until_look: Cell::new(LOOK_PERIOD), oldest: Cell::new(None) }
    }
}

impl Worker {
    /// Offers a half, whose frame is RUNNABLE with this ticket.
    #[inline(always)]
    pub(crate) fn offer(&self, frame: FrameRef, ticket: Ticket) {
        self.push_entry(Entry::contested(frame.address(), ticket.to_bits()));
        let left = self.offers.until_look.get() - 1;
        self.offers.until_look.set(left);
        if left == 0 {
            self.look_at_surplus();
        }
    }

    #[cold]
    #[inline(never)]
    fn look_at_surplus(&self) {
        self.offers.until_look.set(LOOK_PERIOD);
        let oldest = self.remote().fresh.oldest().map(|(position, _)| position);
        let has_aged = oldest.is_some() && self.offers.oldest.replace(oldest) == oldest;
        // A hint, unlike the look after a pop: if it comes too early for a worker that is going to sleep, the next one comes soon.
        if has_aged && !self.alone && self.shared.idle.has_gate_open() {
            self.wake_for_surplus();
        }
    }

    /// Takes an offer back. True: no worker has started it nor will, and the frame is in the pool again. False: it was started.
    #[inline(always)]
    pub(crate) fn take_back(&self, frame: FrameRef, ticket: Ticket) -> bool {
        let entry = Entry::contested(frame.address(), ticket.to_bits());
        // SAFETY: this thread is the owner of its worker's deque; the frame was offered here.
        if unsafe { newest::withdraw_newest(&self.remote().fresh, &frame.waiter.word, entry) } {
            self.caches.frames.with(|frames| FrameCache::give(frames, frame));
            return true;
        }
        self.claim_back(frame, ticket)
    }

    /// It is not at the newest end of this worker's deque: it was started, or the entry lies deeper or in another one.
    #[cold]
    #[inline(never)]
    fn claim_back(&self, frame: FrameRef, ticket: Ticket) -> bool {
        let is_ours = newest::claim_back(&frame.waiter.word, ticket);
        if is_ours {
            self.recycle(frame);
        }
        is_ours
    }
}
