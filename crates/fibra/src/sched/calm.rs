//! Whether a worker is calm: for a while it has slept more than half of the time, and not in short sleeps.
//!
//! It says that work need not be gathered on few workers any more (`breadth.rs`): what was, for a load that is over, may spread again.
//!
//! * Time for which the thread could have run, but waited for a processor, is no sleep, though the worker does not see the difference: the
//!   kernel's count is subtracted.
//! * A sleep counts for at most a window. So a worker that wakes less than some thirty times a second is not calm, it is out of work: it
//!   cannot speak for those that have some.
//!
//! Above: `breadth.rs`. Below: nothing.

use std::cell::Cell;

/// Nanoseconds for which it is looked at before anything is said.
const WINDOW: u64 = 20_000_000;

/// See the header.
#[derive(Debug)]
pub(super) struct Calm {
    window: Cell<Option<Window>>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    since: u64,
    sleeps: u64,
    slept: u64,
    /// For how long the thread had waited for a processor before, if the kernel counts that.
    waited: u64,
}

impl Calm {
    pub(super) fn new() -> Self {
        Self { window: Cell::new(None) }
    }

    /// What was before does not count.
    pub(super) fn forget(&self) {
        self.window.set(None);
    }

    /// The worker has slept for so long, until now. `short`: sleeps of up to so many nanoseconds are short; `waited`: for how long its
    /// thread has waited for a processor, so far. True, once for each window: it is calm.
    pub(super) fn note_sleep(&self, nanos: u64, now: u64, short: u64, waited: impl Fn() -> Option<u64>) -> bool {
        let begin = || Window { since: now, sleeps: 0, slept: 0, waited: waited().unwrap_or(0) };
        let Some(Window { since, sleeps, slept, waited: before }) = self.window.get() else {
            self.window.set(Some(begin()));
            return false;
        };
        let (sleeps, slept, length) = (sleeps + 1, slept + nanos.min(WINDOW), now.saturating_sub(since));
        if length < WINDOW {
            self.window.set(Some(Window { since, sleeps, slept, waited: before }));
            return false;
        }
        let next = begin();
        self.window.set(Some(next));
        let slept = slept.saturating_sub(next.waited.saturating_sub(before));
        2 * slept > length && slept > short * sleeps
    }
}

#[cfg(test)]
mod tests {
    use super::{Calm, Cell, WINDOW};

    /// A worker that sleeps this share of the time, in sleeps of 50 µs; of them its thread waits for this share. How often is it calm in
    /// ten windows?
    fn times_calm(share: f64, waits: f64, short: u64) -> usize {
        let (calm, mut now, waited) = (Calm::new(), 1, Cell::new(0));
        let (sleep, period) = (50_000, (50_000.0 / share) as u64);
        let mut times = 0;
        while now < 10 * WINDOW {
            now += period;
            waited.set(waited.get() + (sleep as f64 * waits) as u64);
            times += usize::from(calm.note_sleep(sleep, now, short, || Some(waited.get())));
        }
        times
    }

    #[test]
    fn a_worker_that_sleeps_most_of_the_time_is_calm() {
        assert_eq!(times_calm(0.6, 0.0, 30_000), 9, "once for each window but the first sleep's");
        assert_eq!(times_calm(0.4, 0.0, 30_000), 0, "it works most of the time");
        assert_eq!(times_calm(0.6, 0.0, 60_000), 0, "its sleeps are short");
        assert_eq!(times_calm(0.6, 0.3, 30_000), 0, "it would have run");
        assert_eq!(times_calm(0.9, 0.3, 30_000), 9);
    }

    #[test]
    fn some_short_sleeps_are_none_the_less_calm() {
        let (calm, mut now, mut times) = (Calm::new(), 1, 0);
        while now < 10 * WINDOW {
            for nanos in [1_000, 2_000, 200_000] {
                now += nanos + 5_000;
                times += usize::from(calm.note_sleep(nanos, now, 30_000, || None));
            }
        }
        assert_eq!(times, 9);
    }

    #[test]
    fn a_worker_without_work_is_not_calm() {
        let calm = Calm::new();
        assert!(!calm.note_sleep(1, 1, 30_000, || None));
        assert!(!calm.note_sleep(40 * WINDOW, 1 + 40 * WINDOW, 30_000, || None));
    }

    #[test]
    fn what_is_forgotten_does_not_count() {
        let calm = Calm::new();
        assert!(!calm.note_sleep(WINDOW, WINDOW, 30_000, || None), "what was before is not known");
        assert!(calm.note_sleep(WINDOW, 2 * WINDOW, 30_000, || None));
        calm.forget();
        assert!(!calm.note_sleep(WINDOW, 3 * WINDOW, 30_000, || None));
        assert!(calm.note_sleep(WINDOW, 4 * WINDOW, 30_000, || None));
    }
}
