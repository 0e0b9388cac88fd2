//! The lists of started fibers of a worker, in which cancellation and reports find the fibers that live there.
//!
//! Above: the life of a fiber (`sched::life`) and `cancel`. Below: `scope.rs`, which has the list of a scope's children, and the links
//! in `fiber::frame`.
//!
//! Invariant: only the owning worker touches a list, so there is no lock in it.

use std::cell::Cell;
use std::ptr;

use super::scope::ScopeRecord;
use crate::fiber::frame::{Frame, FrameRef, flag};
use crate::prim::atomic::Ordering;
use crate::sched::worker::Worker;

impl Worker {
    /// The list of started fibers that `frame` belongs to.
    #[inline(always)]
    pub(in crate::sched) fn list_of(&self, frame: FrameRef) -> &Cell<*const Frame> {
        // SAFETY: the flag is what `of` asks for.
        if frame.has(flag::SCOPED) { unsafe { ScopeRecord::of(frame) }.list_on(self) } else { &self.residents.started }
    }

    /// Links a fiber into its list of started fibers.
    #[inline(always)]
    pub(in crate::sched) fn link_started(&self, frame: FrameRef, list: &Cell<*const Frame>) {
        let first = list.replace(frame);
        frame.prev_started.set(ptr::null());
        frame.next_started.set(first);
        // SAFETY: frames live for ever.
        if let Some(first) = unsafe { first.as_ref() } {
            first.prev_started.set(frame);
        }
        self.stats().started.add(1);
    }

    /// `next` takes the place of `frame`, neither of which is in the list of a scope.
    #[inline(always)]
    pub(in crate::sched) fn succeed_in_list(&self, frame: FrameRef, next: FrameRef) {
        let (before, after) = (frame.prev_started.get(), frame.next_started.get());
        next.prev_started.set(before);
        next.next_started.set(after);
        // SAFETY: frames live for ever; both are in this worker's list.
        match unsafe { before.as_ref() } {
            None => self.residents.started.set(next),
            Some(before) => before.next_started.set(next),
        }
        // SAFETY: as above.
        if let Some(after) = unsafe { after.as_ref() } {
            after.prev_started.set(next);
        }
    }

    /// A fiber with extras is about to be started: if it was spread, it has arrived and no longer counts as coming.
    #[cold]
    pub(in crate::sched) fn note_arrival(&self, frame: FrameRef) {
        // SAFETY: the caller is about to run it, so it is not recycled.
        let extras = unsafe { frame.extras() };
        // Relaxed: published by the inbox.
        if extras.is_some_and(|extras| extras.coming.swap(false, Ordering::Relaxed)) {
            // SeqCst: as all changes of `coming` (`seats.rs`). From now on the started fiber keeps the worker from leaving.
            self.remote().coming.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Unlinks a fiber from its list of started fibers, which `list` gives.
    #[inline(always)]
    pub(in crate::sched) fn unlink_started<'a>(&self, frame: FrameRef, list: impl FnOnce() -> &'a Cell<*const Frame>) {
        let (prev, next) = (frame.prev_started.get(), frame.next_started.get());
        // SAFETY: frames live for ever; both are in this worker's list.
        match unsafe { prev.as_ref() } {
            None => list().set(next),
            Some(prev) => prev.next_started.set(next),
        }
        // SAFETY: as above.
        if let Some(next) = unsafe { next.as_ref() } {
            next.prev_started.set(prev);
        }
        self.stats().started.sub(1);
    }
}
