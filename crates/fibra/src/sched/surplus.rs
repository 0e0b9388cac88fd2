//! When a worker that has more than it can run wakes one that sleeps.
//!
//! It judges after it took its own next item from its deque: is there more, and does a worker sleep that should come for it? Waking one
//! costs as much as thousands of switches, and most surplus is gone before the sleeper is up. So it is done
//!
//! * when surplus *appears* (the deque was empty at the last look): what was taken may compute for long, with no other look meanwhile;
//! * while it *lasts*, at every sixteenth turn, when the oldest is taken;
//! * and in either case not again before a million cycles have passed (0.2 to 1 ms). A sleeper that came and did not take, because the
//!   owner makes progress (`patience.rs`), would not take then either. (Without sysmon, surplus that appears is always called for: a
//!   worker that sleeps has not seen it, and if the owner does not switch again, no other thread would call.)
//!
//! For what does not stay where it is started (halves of `join`, tasks) every look counts, as often as it comes.
//!
//! What is not woken for is not lost: the owner gets to it, since it takes the oldest every sixteenth time; it looks again at that turn; a
//! worker that saw it before it slept comes back after a millisecond; and for an owner that does not switch sysmon wakes one.
//!
//! Above: `worker.rs` and `succession.rs`, which pop. Below: `idle.rs`, the gate. Models run these lines (`sleep/model.rs`).

use std::cell::Cell;

use super::idle::Idle;
use super::queue::Entry;
use super::queue::fresh::Fresh;
use super::sleep::has_taker;
use crate::prim::bug::seeded_bug;
use crate::prim::policy;

/// Cycles between two wakes for surplus.
const WAKE_CYCLES: u64 = 1_000_000;

/// See the header. A worker's memory of its surplus.
#[derive(Debug)]
pub(crate) struct Surplus {
    /// It was judged, and the deque has not been found empty since.
    lasts: Cell<bool>,
    /// When it last woke one, in cycles.
    woke_at: Cell<u64>,
    /// Sysmon wakes a sleeper for an owner that does not switch.
    is_watched: bool,
}

impl Surplus {
    pub(super) fn new(is_watched: bool) -> Self {
        // Half the range away from every moment.
        Self { lasts: Cell::new(false), woke_at: Cell::new(policy::cycles().wrapping_sub(1 << 63)), is_watched }
    }

    /// The deque was found empty.
    #[inline(always)]
    pub(super) fn ends(&self) {
        self.lasts.set(false);
    }

    /// The worker took `taken` from its deque, as the oldest or not: is a sleeper to be woken for what is left?
    #[inline(always)]
    pub(super) fn calls_one(&self, taken: Entry, oldest: bool, fresh: &Fresh, idle: &Idle) -> bool {
        let stays = taken.is_sole();
        let looks = !stays || oldest || !self.lasts.get();
        looks && has_taker(fresh, idle) && (!stays || self.is_due())
    }

    #[cold]
    #[inline(never)]
    fn is_due(&self) -> bool {
        let appears = !self.lasts.replace(true);
        let now = policy::cycles();
        let is_time = now.wrapping_sub(self.woke_at.get()) > WAKE_CYCLES || appears && !self.is_watched;
        let is_due = is_time && !(appears && seeded_bug("surplus_appears_unseen"));
        if is_due {
            self.woke_at.set(now);
        }
        is_due
    }
}
