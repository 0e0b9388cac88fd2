//! A stack that goes from a fiber that has returned straight to the next unstarted one, without a switch through the scheduler's stack.
//!
//! A batch of short fibers would otherwise pay for two switches each, and for giving a stack back and taking it again. What the
//! scheduler's stack is for is not left out:
//!
//! * *The end.* DONE is published when nothing of the fiber is on its stack any more (S1-17): the stack is its successor's by then, and
//!   only [`fiber_main`](super::worker) is on it. An end that concerns others (a joiner to wake, a scope, a daemon, a root, a half, a
//!   task, a cap of fibers) is made on the scheduler's stack; if a joiner comes in the last moment, `call_on_scheduler` goes there for
//!   it.
//! * *The turn.* Each succession is a turn, and every sixteenth is the scheduler's in any case: the one in which the oldest is taken. So
//!   is the fair point, and every turn in which there is mail, a timer or the driver is due, a fiber is in `next`, it is the turn of
//!   `ready` and something is there, or a fiber waits for a stack. Surplus is judged as after every pop. That the loop is over is decided
//!   by ends that are made on the scheduler's stack, and by other threads, which wait at most that long.
//! * *The stack.* Both fibers have stacks of the worker's usual size, and the first one has left it clean.
//!
//! Above: `fiber_main` in `worker.rs`, which calls it. Below: `queue/fresh.rs`, `ending.rs`, `started.rs`.

use std::ptr;

use crate::fiber::frame::{Frame, FrameRef};
use crate::fiber::outcome::{FiberEnd, Finish};
use crate::fiber::stack::StackTop;
use crate::fiber::top::FiberTop;
use crate::prim::atomic::Ordering;
use crate::prim::bug::seeded_bug;
use crate::prim::policy::Pick;
use crate::sched::shared::RootRef;
use crate::sched::worker::Worker;

impl Worker {
    /// Where fibers may go on elsewhere than where they began, a stack does not stay either.
    const HANDS_ON: bool = !cfg!(feature = "unstable-migration");

    /// On the stack of `frame`, the current fiber, which has returned and left its value in the frame. True: the stack and the rest of the
    /// turn went to a successor, which is current and RUNNING now, and `frame` has ended. False: nothing was done.
    // Not inlined where nothing is optimised: what it keeps would then lie on every stack, under what the fiber needs.
    #[cfg_attr(debug_assertions, inline(never))]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(in crate::sched) fn hand_stack_on(&self, frame: FrameRef) -> bool {
        if !Self::HANDS_ON || frame.join.is_joined() || !frame.is_plain() {
            return false;
        }
        // SAFETY: a running fiber has a stack.
        let stack = unsafe { &*frame.stack.load(Ordering::Relaxed) }; // Relaxed: this worker's own.
        if !FiberTop::of(stack).is_clean() {
            return false;
        }
        if self.is_called() || !self.caches.hands_on.get() {
            return false;
        }
        let turn = self.looks.turn.get() - 1;
        match self.policy.with(|policy| policy.pick(turn)) {
            Pick::FreshThenReady => {}
            Pick::ReadyThenFresh if turn != 0 && self.queues.ready.is_empty() => {}
            _ => return false,
        }
        let fresh = &self.remote().fresh;
        // SAFETY: this thread is the owner of its worker's deque.
        let Some(newest) = (unsafe { fresh.newest() }) else { return false };
        // SAFETY: entries hold addresses of frames. If the take below succeeds, this is the life of the frame that was seen here.
        let next = unsafe { Frame::from_address(newest.entry.frame) };
        // SAFETY: the fiber has not been counted out of its root.
        let root = unsafe { RootRef::from_ptr(frame.root.get()) };
        if !next.is_plain() || !newest.entry.is_sole() || !self.residents.tally.is_turned_to(root) {
            return false;
        }
        // SAFETY: as above, and nothing was pushed or popped since.
        if !unsafe { fresh.take(newest) } {
            return false;
        }
        let started = newest.entry.start(&next.waiter.word);
        debug_assert!(started, "a sole entry is never stale");
        self.looks.turn.set(turn);
        self.judge_surplus(newest.entry, false);
        self.move_in(frame, next, stack);
        self.end_here(frame);
        true
    }

    /// The stack of `frame`, the current fiber, is `next`'s.
    #[inline(always)]
    fn move_in(&self, frame: FrameRef, next: FrameRef, stack: &StackTop) {
        // Release: the overflow report reads it from a signal handler on this thread.
        stack.owner.store(ptr::from_ref(next).cast_mut().cast(), Ordering::Release);
        // Relaxed: this worker's own; a census takes it as it comes.
        next.home.store(self.index as u32, Ordering::Relaxed);
        // Release: pairs with the acquire in `Frame::top`; a reader that finds the stack finds its record initialised.
        next.stack.store(frame.stack.load(Ordering::Relaxed), Ordering::Release);
        // Relaxed, here and in the line above: this worker's own.
        frame.stack.store(ptr::null_mut(), Ordering::Relaxed);
        self.succeed_in_list(frame, next);
        self.caches.stacks.with(|stacks| stacks.note_reuse());
        self.current.set(Some(next));
        self.stats().switches.add(1);
    }

    /// The end of a fiber whose stack is another's by now: see `ending.rs` for the order.
    #[inline(always)]
    fn end_here(&self, frame: FrameRef) {
        self.stats().ended.add(1);
        frame.waiter.word.finish(false);
        match frame.join.finish_unless_joined(FiberEnd::Value) {
            Some(Finish::Recycle) => self.recycle(frame),
            Some(_) => {}
            None => self.end_on_scheduler(frame),
        }
        self.residents.tally.count_end_here();
    }

    /// A joiner has come just now: it is woken on the scheduler's stack.
    #[cold]
    #[inline(never)]
    fn end_on_scheduler(&self, frame: FrameRef) {
        if seeded_bug("successor_forgets_joiner") {
            return;
        }
        struct End<'a>(&'a Worker, FrameRef);
        unsafe extern "C" fn end(data: *mut ()) {
            // SAFETY: made below, and there until this returns.
            let End(worker, frame) = unsafe { &*data.cast::<End<'_>>() };
            worker.publish_end(frame, FiberEnd::Value);
        }
        let successor = self.current.take();
        // SAFETY: on the stack of the current fiber; `end` neither unwinds nor suspends.
        unsafe { self.call_on_scheduler(end, ptr::from_ref(&End(self, frame)).cast_mut().cast()) };
        self.current.set(successor);
    }
}
