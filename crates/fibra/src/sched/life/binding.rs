//! Makes a fiber that was taken out of a queue RUNNING, gives it a stack when it first runs, and takes the stack back.
//!
//! A stack is bound to a fiber from its first run to its end (a task: for one poll). It comes from the worker's own pool, which gives
//! the stack that was given back last. The loop of `fiber_main` is suspended on a pooled stack, and its context lies in the stack's
//! record. `succession.rs` goes from one fiber to the next without the pool.
//!
//! Above: `worker.rs`, `ending.rs`. Below: `fiber::stack`, `fiber::context`, and `stackless.rs` for a fiber that gets none.

use std::cell::Cell;
use std::ptr::{self, NonNull};

use super::offer::stack_size_of;
use crate::fiber::context::{self, Context};
use crate::fiber::frame::{Frame, FrameRef, flag};
use crate::fiber::stack::{Stack, StackSize};
use crate::fiber::top::FiberTop;
use crate::prim::atomic::Ordering;
use crate::sched::queue::Entry;
use crate::sched::worker::{Worker, fiber_main};

impl Worker {
    /// RUNNABLE → RUNNING of a fiber that was in an owner-only queue. None if it could not get a stack.
    #[inline(always)]
    pub(in crate::sched) fn set_running(&self, frame: FrameRef) -> Option<FrameRef> {
        // Relaxed: this worker wrote it.
        if !frame.stack.load(Ordering::Relaxed).is_null() {
            #[cfg(feature = "unstable-migration")]
            self.take_in(frame);
            frame.waiter.word.resume();
            return Some(frame);
        }
        frame.waiter.word.start_owned();
        self.bind_stack(frame)
    }

    /// Starts what an entry names, unless the entry is stale.
    #[inline(always)]
    pub(in crate::sched) fn start_entry(&self, entry: Entry) -> Option<FrameRef> {
        // SAFETY: entries hold addresses of frames.
        let frame = unsafe { Frame::from_address(entry.frame) };
        self.start(frame, entry)
    }

    /// RUNNABLE → RUNNING of an unstarted fiber, with a stack. None: stale, or no stack to be had (it stays unstarted).
    #[inline(always)]
    fn start(&self, frame: FrameRef, entry: Entry) -> Option<FrameRef> {
        if !entry.start(&frame.waiter.word) {
            return self.drop_stale();
        }
        #[cfg(feature = "unstable-migration")]
        if self.take_in(frame) {
            return Some(frame);
        }
        if frame.has(flag::TASK | flag::MOVES) {
            if frame.has(flag::TASK) {
                // Relaxed: a gauge.
                self.shared.tasks_parked.fetch_sub(1, Ordering::Relaxed);
            } else if self.go_on_here(frame) {
                return Some(frame);
            }
        }
        self.bind_stack(frame)
    }

    /// A stale entry was taken out.
    #[cold]
    fn drop_stale(&self) -> Option<FrameRef> {
        self.stats().stale_entries.add(1);
        None
    }

    /// Gives a RUNNING, stackless fiber a stack and makes this worker its home. None: there is none, and it waits for one.
    #[inline(always)]
    pub(in crate::sched) fn bind_stack(&self, frame: FrameRef) -> Option<FrameRef> {
        let flags = frame.flags();
        let size = if flags.has(flag::EXTRAS | flag::HALF) { self.arrival(frame) } else { self.caches.stack_size };
        let stack = match self.caches.stacks.with(|stacks| stacks.take_warm(size)) {
            Some(stack) => stack,
            None => self.take_cold(frame, size)?,
        };
        let record = stack.record();
        // Release: the overflow report reads it from a signal handler on this thread.
        record.owner.store(ptr::from_ref(frame).cast_mut().cast(), Ordering::Release);
        // SAFETY: the frame is RUNNING and ours.
        frame.context.with_mut(|slot| unsafe { *slot = Context::from_bits(stack.saved_context().get()) });
        FiberTop::of(record).clean();
        // Relaxed: this worker's own; a census takes it as it comes.
        frame.home.store(self.index as u32, Ordering::Relaxed);
        // Release: pairs with the acquire in `Frame::top`; a thread that finds the stack finds its record initialised.
        frame.stack.store(stack.into_raw().as_ptr(), Ordering::Release);
        self.link_started(frame, if flags.has(flag::SCOPED) { self.list_of(frame) } else { &self.residents.started });
        #[cfg(feature = "unstable-migration")]
        self.register_wanderer(frame);
        Some(frame)
    }

    /// A fiber that is not plain is about to start: notes its arrival if it was spread, and returns the size of its stack.
    #[cold]
    #[inline(never)]
    fn arrival(&self, frame: FrameRef) -> StackSize {
        if frame.has(flag::EXTRAS) {
            self.note_arrival(frame);
        }
        stack_size_of(frame).unwrap_or(self.caches.stack_size)
    }

    /// Makes a new stack: the worker's pool has none that ran before.
    #[cold]
    #[inline(never)]
    fn take_cold(&self, frame: FrameRef, size: StackSize) -> Option<Stack> {
        let stack = match self.caches.stacks.with(|stacks| stacks.take(size)) {
            Ok(stack) => stack,
            Err(error) => {
                self.no_stack(frame, &error);
                return None;
            }
        };
        if !stack.is_prepared() {
            // SAFETY: a stack of ours with nothing on it; `fiber_main` never returns.
            let context = unsafe { context::create(stack.top(), stack.limit(), fiber_main) };
            stack.saved_context().set(context.to_bits());
            // SAFETY: a pooled stack's word is the context that `fiber_main` suspended in, or one that has never run.
            unsafe { stack.set_prepared(retire_context) };
        }
        Some(stack)
    }

    /// Takes the stack off a fiber that does not need it any more, and the fiber out of its list, on the scheduler's stack.
    #[inline(always)]
    pub(in crate::sched) fn unbind_stack<'a>(&self, frame: FrameRef, list: impl FnOnce() -> &'a Cell<*const Frame>) {
        self.unlink_started(frame, list);
        // Relaxed, both: this worker's own.
        let top = frame.stack.load(Ordering::Relaxed);
        frame.stack.store(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: a started fiber has a stack. `bind_stack` made it from a `Stack`, and nothing runs on it: we are on the scheduler's own.
        // What is suspended on it is in its record: `fiber_main` saw to that.
        let stack = unsafe { Stack::from_raw(NonNull::new_unchecked(top)) };
        // Release: as in `bind_stack`.
        stack.record().owner.store(ptr::null_mut(), Ordering::Release);
        self.caches.stacks.with(|stacks| stacks.give(stack));
        if !self.queues.stackless.with(|waiting| waiting.is_empty()) {
            self.retry_stackless();
        }
    }
}

/// Called when a pooled stack gives up its memory: gives back what its context holds besides.
///
/// # Safety
/// `context` was saved in the record of a stack on which nothing runs, and is given up.
unsafe fn retire_context(context: usize) {
    // SAFETY: suspended in the loop of `fiber_main` (nothing there needs dropping), or never run; the caller gives it up.
    unsafe { context::destroy(Context::from_bits(context)) }
}
