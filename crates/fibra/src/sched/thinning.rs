//! Gives back the stack memory that fibers do not need while they wait for long: the pages that a deep call touched, below the point at
//! which the fiber waits.
//!
//! A fiber that did a TLS handshake, or parsed a large request, keeps the pages of its deepest call for as long as it lives, and most
//! connections of a server wait most of the time. So a worker that is about to sleep looks at the fibers that live on it, and gives the
//! memory below the stack pointer of those that have been parked for [`LONG`] to the system. The fiber gets zeroed pages when it calls
//! that deep again, for a page fault each.
//!
//! Why the memory may go: a suspended fiber needs what lies above its stack pointer, and some bytes below it (`context` says which). Only
//! the worker on which it lives resumes it, and that worker is here, on its own stack. Other threads that complete its wait write into its
//! nodes and slots, which lie above. With `unstable-migration`, and if the fiber may move or has thread-locals of its own
//! (`life/moving.rs`), nothing is given back.
//!
//! What it costs: nothing while fibers run. Nothing ticks (law 9): a worker that has slept through [`LONG`] looks once, while it counts
//! as asleep, and does not look again until it has run a fiber. A worker that never sleeps for long looks when it is about to sleep,
//! every [`LONG`] at most, and less and less often while it finds no fiber. A look goes through all frames of the process in steps
//! ([`STEP`]); between two steps the worker looks at its mail, sockets and timers. A wait is looked at once: looks divide the time at
//! which waits began among them.
//!
//! Above: `rest.rs`, `search.rs`. Below: `fiber` (frames, stacks), `stats.rs`. Decision 66.

use std::cell::Cell;

use super::worker::Worker;
use crate::fiber::context::{Context, kept_from};
use crate::fiber::frame::{FrameRef, flag};
use crate::fiber::slab;
use crate::fiber::stack::{StackTop, discard};
use crate::prim::atomic::Ordering;
use crate::prim::policy;
use crate::waiter::word::WaiterState;

/// Nanoseconds after which a wait is long: a page fault for each page that comes back is nothing against it.
const LONG: u64 = 5_000_000_000;
/// The most nanoseconds between two looks of a worker that does not rest: a look that finds nothing doubles the time to the next one.
const MOST: u64 = 64_000_000_000;
/// Frames that a step looks at, and stacks that it gives memory of back, at most.
const STEP: usize = 4096;
const STACKS: usize = 64;

/// A worker's memory of what it has looked at.
#[derive(Debug)]
pub(super) struct Thinning {
    /// Switches that the worker had counted when it last went to sleep, and when that was.
    switches: Cell<u64>,
    active_at: Cell<u64>,
    /// Waits that began up to this moment have been looked at.
    looked_to: Cell<u64>,
    /// When it looks next; 0: it need not.
    at: Cell<u64>,
    /// The time between two looks.
    pause: Cell<u64>,
    /// A look under way: the next frame, and the end of the time in which the waits began that it is about.
    next: Cell<Option<u32>>,
    to: Cell<u64>,
    /// It has found a fiber.
    found: Cell<bool>,
}

impl Thinning {
    pub(super) fn new() -> Self {
        Self {
            switches: Cell::new(0),
            active_at: Cell::new(0),
            looked_to: Cell::new(0),
            at: Cell::new(0),
            pause: Cell::new(LONG),
            next: Cell::new(None),
            to: Cell::new(0),
            found: Cell::new(false),
        }
    }

    /// When a worker that is about to block has to wake up for the next step. (However seldom it looks while it has work: when it has
    /// slept through [`LONG`], all its waits are long.)
    pub(super) fn due(&self) -> Option<u64> {
        let rested = self.active_at.get() + LONG;
        match self.at.get() {
            0 => None,
            at if self.is_through() => Some(at),
            at => Some(at.min(rested)),
        }
    }

    /// Has it looked at all waits that there are?
    fn is_through(&self) -> bool {
        self.active_at.get() <= self.looked_to.get()
    }

    /// It looks at the next frames in its next step, or is through.
    fn conclude_step(&self, next: Option<u32>, now: u64) {
        self.next.set(next);
        if next.is_some() {
            return self.at.set(now);
        }
        self.looked_to.set(self.to.get());
        let pause = if self.found.get() { LONG } else { (2 * self.pause.get()).min(MOST) };
        self.pause.set(pause);
        self.at.set(if self.is_through() { 0 } else { now + pause });
    }
}

impl Worker {
    /// For a worker that is about to sleep: takes the next step, if it is time. [`Thinning::due`] then says when the next one is.
    pub(super) fn thin_stacks(&self) {
        let thinning = &self.thinning;
        let switches = self.stats().switches.get();
        if thinning.switches.replace(switches) != switches {
            // (The clock that the records of waits are written with.)
            thinning.active_at.set(self.cached_now());
        }
        if cfg!(feature = "unstable-migration") || self.stats().parked.get() == 0 {
            thinning.at.set(0);
            return thinning.next.set(None);
        }
        match thinning.due() {
            None if thinning.is_through() => {}
            None => thinning.at.set(thinning.active_at.get() + thinning.pause.get()),
            Some(due) => {
                let now = policy::now();
                if due <= now {
                    self.thin_step(now);
                }
            }
        }
    }

    /// Looks at the next frames.
    #[cold]
    #[inline(never)]
    pub(super) fn thin_step(&self, now: u64) {
        let thinning = &self.thinning;
        let first = thinning.next.get().unwrap_or_else(|| {
            thinning.to.set(now.saturating_sub(LONG));
            thinning.found.set(false);
            0
        });
        let mut ranges = [(std::ptr::null_mut(), 0); STACKS];
        let mut count = 0;
        let mut next = first;
        let more = loop {
            let Some(frame) = slab::find(next) else { break false };
            next += 1;
            if let Some(range) = self.unneeded(frame) {
                ranges[count] = range;
                count += 1;
            }
            if count == STACKS || (next - first) as usize == STEP {
                break true;
            }
        };
        if count > 0 {
            thinning.found.set(true);
            // SAFETY: the unused ends of the stacks of fibers that only this thread can resume; see the header.
            unsafe { discard(ranges[..count].iter().copied()) };
        }
        thinning.conclude_step(more.then_some(next), now);
    }

    /// The memory below the point at which a fiber of this worker waits, if it has waited for long and was not looked at before.
    fn unneeded(&self, frame: FrameRef) -> Option<(*mut u8, usize)> {
        // (An acquire load, which pairs with the commit of the park.) If the frame is that of another worker's fiber by now, its `home` is
        // seen to be. If the fiber lives here, it stays parked or runnable until this worker runs it.
        if frame.waiter.word.snapshot().state() != WaiterState::Parked {
            return None;
        }
        // Other workers may resume it. (The flags stay as they are while it is parked.)
        if frame.has(flag::MOVES | flag::WANTS_LOCALS) {
            return None;
        }
        // Relaxed, both: see above.
        let (home, runtime) = (frame.home.load(Ordering::Relaxed), frame.runtime.load(Ordering::Relaxed));
        if home as usize != self.index || !std::ptr::eq(runtime.cast(), self.shared_at) {
            return None;
        }
        // Relaxed: written by this thread.
        let stack = frame.stack.load(Ordering::Relaxed);
        // SAFETY: the stack of a fiber that lives on this worker and has not ended.
        let stack: &StackTop = unsafe { stack.as_ref() }?;
        let (_, _, _, since) = frame.top()?.wait_record()?;
        if since > self.thinning.to.get() || since < self.thinning.looked_to.get() {
            return None;
        }
        // SAFETY: written by this thread, which alone suspends and resumes the fiber.
        let context = frame.context.with(|context: *const Context| unsafe { *context });
        stack.unused_below(kept_from(context)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // However long it waits between two looks that find nothing: a worker that rests looks when its waits are long.
    #[test]
    fn a_worker_that_rests_does_not_wait_for_its_next_look() {
        let thinning = Thinning::new();
        assert_eq!(thinning.due(), None);
        let look_at = |now: u64| {
            thinning.to.set(now - LONG);
            thinning.conclude_step(None, now);
        };
        // It had work when it first slept, at 1, and still when it looked and found nothing.
        thinning.active_at.set(LONG + 1);
        look_at(LONG + 1);
        assert_eq!(thinning.at.get(), LONG + 1 + 2 * LONG, "it looks less often");
        assert_eq!(thinning.due(), Some(LONG + 1 + LONG), "if it works on; now it rests");
        // It worked on, and rests later.
        thinning.active_at.set(5 * LONG / 2);
        assert_eq!(thinning.due(), Some(LONG + 1 + 2 * LONG));
        // It has rested for so long that it has seen everything.
        look_at(4 * LONG);
        assert_eq!(thinning.due(), None);
    }
}
