//! How long a state of a worker has lasted without a break, and whether its thread had a processor meanwhile.
//!
//! A state counts as long if it has held for a while, and then for as long again in which the worker's thread had a processor for three
//! quarters of the time. The second half is measured with two readings of the thread's clock, so that a state which comes and goes costs
//! none.
//!
//! Above: `overload.rs`, `breadth.rs`. Below: nothing.

use std::cell::Cell;

/// See the header.
#[derive(Debug)]
pub(super) struct Stretch {
    /// Since when the state holds, in cycles; 0: it does not.
    since: Cell<u64>,
    /// The time, and the thread's processor time, in the middle.
    middle: Cell<Option<Times>>,
    is_long: Cell<bool>,
}

/// The time, and the time for which the worker's thread has had a processor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) wall: u64,
    pub(super) processor: u64,
}

impl Times {
    /// Did it have a processor three quarters of the time since then?
    fn has_run_since(self, then: Times) -> bool {
        4 * self.processor.saturating_sub(then.processor) >= 3 * self.wall.saturating_sub(then.wall)
    }
}

impl Stretch {
    pub(super) fn new() -> Self {
        Self { since: Cell::new(0), middle: Cell::new(None), is_long: Cell::new(false) }
    }

    #[inline(always)]
    pub(super) fn is_long(&self) -> bool {
        self.is_long.get()
    }

    /// The state does not hold at the moment.
    #[inline(always)]
    pub(super) fn end(&self) {
        self.since.set(0);
        self.is_long.set(false);
    }

    /// It begins now (in cycles), whatever was before.
    pub(super) fn begin(&self, now: u64) {
        self.since.set(now.max(1));
        self.middle.set(None);
        self.is_long.set(false);
    }

    /// The state holds now (in cycles), and counts as long after twice `half` cycles.
    pub(super) fn note(&self, now: u64, half: u64, times: impl FnOnce() -> Times) {
        match self.since.get() {
            _ if self.is_long.get() => {}
            0 => self.begin(now),
            since if now.wrapping_sub(since) <= half => {}
            _ => {
                let times = times();
                let before = self.middle.replace(Some(times));
                self.since.set(now.max(1));
                self.is_long.set(before.is_some_and(|before| times.has_run_since(before)));
            }
        }
    }

    #[cfg(test)]
    pub(super) fn began(&self) -> u64 {
        self.since.get()
    }
}
