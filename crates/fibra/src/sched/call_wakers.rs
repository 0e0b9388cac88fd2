//! Calling the wakers of async tasks. A waker is user code and must not run on the scheduler's stack, so a worker that has wakers to call
//! spawns a daemon fiber that calls them.
//!
//! Above: `completions.rs`, `life::ending`, `timers::alarms` and `wait::wake`, which have wakers to call. Below: `worker.rs`,
//! `waiter::record`.
//!
//! Invariant: no wake is lost. If the fiber is discarded before it starts, or can no longer be spawned, the wakers are called at once.

use std::cell::Cell;
use std::task::Waker;

use super::current;
use super::worker::Worker;
use crate::fiber::frame::{Frame, RunResult, Thunk, flag};
use crate::fiber::local::drop_all;
use crate::fiber::outcome::FiberEnd;
use crate::prim::atomic::Ordering;
use crate::waiter::record::call_wakers;
use crate::waiter::word::WaiterState;

thread_local! {
    /// How this thread, if it is no worker's, calls wakers: itself, unless it must not wait for them.
    static CALLED_BY: Cell<fn(Vec<Waker>)> = const { Cell::new(call_wakers) };
}

/// From now on the calling thread has wakers called in this way: for the monitor's.
pub(crate) fn call_by(call: fn(Vec<Waker>)) {
    CALLED_BY.set(call);
}

static CALL_WAKERS: Thunk = Thunk { run: call_carried, discard: call_anyway };

unsafe fn call_carried(frame: &Frame) -> RunResult {
    // SAFETY: `Worker::spawn_call_of_wakers` put them there, and this is the one run of this fiber.
    call_wakers(unsafe { frame.take::<Vec<Waker>>() });
    drop_locals(frame);
    RunResult::Ended(FiberEnd::Value)
}

unsafe fn call_anyway(frame: &Frame) {
    // SAFETY: as in `call_carried`. Shutdown cancels fibers that have not started, but a wake must not be lost.
    call_wakers(unsafe { frame.take::<Vec<Waker>>() });
    drop_locals(frame);
}

/// Wakers may use fiber-locals, and this stack serves other fibers next. (Without a stack they were the thread's.)
fn drop_locals(frame: &Frame) {
    if let Some(top) = frame.top() {
        drop_all(frame, top);
    }
}

impl Worker {
    /// Have all wakers been called? A worker's loop asks before it ends, if it may not be run again.
    pub(crate) fn has_called_wakers(&self) -> bool {
        self.residents.wakers_to_call.get() == 0
    }

    /// Has them called soon, on a fiber of this worker.
    pub(crate) fn spawn_call_of_wakers(&self, wakers: Vec<Waker>) {
        if wakers.is_empty() {
            return;
        }
        if !self.shared.daemons.try_add() {
            // The runtime is past its last fiber: no worker is left to run one. This is the thread of its owner.
            return call_wakers(wakers);
        }
        let frame = self.take_frame();
        self.shared.root.add_user();
        let flags = flag::PINNED | flag::DAEMON | flag::UNCAPPED | flag::CALLS_WAKERS;
        // (It calls wakers of others, and needs no thread-locals of its own for that.)
        let flags = flags | self.shared.base_flags.look().without(flag::WANTS_LOCALS);
        // Relaxed, all: the frame is ours until it is queued here.
        frame.waiter.flags.start_with(flags);
        frame.home.store(self.index as u32, Ordering::Relaxed);
        frame.id.store(self.take_id(), Ordering::Relaxed);
        // Relaxed, like the others.
        frame.runtime.store(std::ptr::from_ref(&*self.shared).cast_mut().cast(), Ordering::Relaxed);
        frame.root.set(self.shared.root.as_ptr());
        frame.site.set(std::panic::Location::caller());
        frame.thunk.set(Some(&CALL_WAKERS));
        frame.join.reset(false);
        // SAFETY: a fresh frame, its storage is empty.
        unsafe { frame.put(wakers) };
        self.stats().spawned.add(1);
        self.residents.wakers_to_call.set(self.residents.wakers_to_call.get() + 1);
        frame.waiter.word.publish_spawned();
        self.push_local(frame);
    }
}

/// Calls wakers, which are user code: here, if that may run here. Not on a worker's own stack, and not on a fiber that is PARKING: then
/// they are called soon, on a fiber of their own. And not on sysmon's thread: a waker may block.
pub(crate) fn call_wakers_where_fit(wakers: Vec<Waker>) {
    if let Some(worker) = current::worker() {
        let is_fit = worker.current.get().is_some_and(|frame| frame.waiter.word.snapshot().is(WaiterState::Running));
        if !is_fit {
            return worker.spawn_call_of_wakers(wakers);
        }
    }
    CALLED_BY.get()(wakers);
}
