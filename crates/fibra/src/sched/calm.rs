//! Whether a worker is calm: for a while it has slept more than half of the time, and not in short sleeps.
//!
//! It says that work need not be gathered on few workers any more (`breadth.rs`): what was, for a load that is over, may spread again.
//!
//! * Time for which the thread could have run, but waited for a processor, is no sleep, though the worker does not see the difference: the
//!   kernel's count is subtracted.
//! * A sleep counts for at most a window. So a worker that had nothing to do for long is not calm, it is out of work: it cannot speak for
//!   those that have some.
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
    slept: u64,
    /// For how long the thread had waited for a processor before, if the kernel counts that.
    waited: u64,
}

impl Calm {
    pub(super) fn new() -> Self {
        Self { window: Cell::new(None) }
    }

    /// The worker has slept for so long, until now; are its sleeps short on average? `waited`: for how long its thread has waited for a
    /// processor, so far. True, once for each window: it is calm.
    pub(super) fn note_sleep(
        &self,
        nanos: u64,
        now: u64,
        is_short: bool,
        waited: impl FnOnce() -> Option<u64>,
    ) -> bool {
        if is_short {
            self.window.set(None);
            return false;
        }
        let Some(window) = self.window.get() else {
            self.window.set(Some(Window { since: now, slept: 0, waited: waited().unwrap_or(0) }));
            return false;
        };
        let window = Window { slept: window.slept + nanos.min(WINDOW), ..window };
        let length = now.saturating_sub(window.since);
        if length < WINDOW {
            self.window.set(Some(window));
            return false;
        }
        let waited = waited().unwrap_or(0);
        self.window.set(Some(Window { since: now, slept: 0, waited }));
        2 * window.slept.saturating_sub(waited.saturating_sub(window.waited)) > length
    }
}

#[cfg(test)]
mod tests {
    use super::{Calm, WINDOW};

    /// A worker that sleeps this share of the time, in sleeps of 50 µs; of them its thread waits for this share. How often is it calm in
    /// ten windows?
    fn times_calm(share: f64, waits: f64, is_short: bool) -> usize {
        let (calm, mut now, mut waited) = (Calm::new(), 1, 0);
        let (sleep, period) = (50_000, (50_000.0 / share) as u64);
        let mut times = 0;
        while now < 10 * WINDOW {
            now += period;
            waited += (sleep as f64 * waits) as u64;
            times += usize::from(calm.note_sleep(sleep, now, is_short, || Some(waited)));
        }
        times
    }

    #[test]
    fn a_worker_that_sleeps_most_of_the_time_is_calm() {
        assert_eq!(times_calm(0.6, 0.0, false), 9, "once for each window but the first sleep's");
        assert_eq!(times_calm(0.4, 0.0, false), 0, "it works most of the time");
        assert_eq!(times_calm(0.6, 0.0, true), 0, "its sleeps are short");
        assert_eq!(times_calm(0.6, 0.3, false), 0, "it would have run");
        assert_eq!(times_calm(0.9, 0.3, false), 9);
    }

    #[test]
    fn it_begins_anew_after_short_sleeps() {
        let calm = Calm::new();
        assert!(!calm.note_sleep(WINDOW, 10 * WINDOW, false, || None), "what was before is not known");
        assert!(calm.note_sleep(WINDOW, 11 * WINDOW, false, || None));
        assert!(!calm.note_sleep(1, 12 * WINDOW, true, || panic!("short ones cost nothing")));
        assert!(!calm.note_sleep(WINDOW, 13 * WINDOW, false, || None));
        assert!(calm.note_sleep(WINDOW, 14 * WINDOW, false, || None));
    }

    #[test]
    fn a_worker_without_work_is_not_calm() {
        let calm = Calm::new();
        assert!(!calm.note_sleep(1, 1, false, || None));
        assert!(!calm.note_sleep(40 * WINDOW, 1 + 40 * WINDOW, false, || None));
    }
}
