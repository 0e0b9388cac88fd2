//! How far apart a worker without work wakes for its timers, by how many of them have become due lately.
//!
//! To sleep and to wake costs a worker as much as firing tens to hundreds of timers. So where many are set and many are due in each
//! millisecond, one wake serves what became due in a pause; where few are, each is served when it is due. Ten thousand time-outs that
//! never come make no sleep longer where few timers fire beside them. And a pause is as long as it takes for [`ENOUGH`] of them, since
//! a longer one would save little more.
//!
//! Above: `timing.rs`. Below: nothing.

use std::cell::Cell;

/// Nanoseconds at least over which is counted how many fire.
const WINDOW: u64 = 2_000_000;
/// With fewer timers than this, each is served when it is due: few fibers that sleep again and again are to sleep no longer than they ask.
const MANY: usize = 256;
/// So many for one wake, and it hardly counts beside them.
const ENOUGH: u64 = 128;
/// The longest pause. The goal is that a timer is less than 2 ms late.
const LONGEST: u64 = 1_500_000;

/// How long a pause is if so many fire in a millisecond.
fn pause_at(rate: u64) -> u64 {
    match rate {
        0..2 => 0,
        2..8 => 500_000,
        8..32 => 1_000_000,
        _ => (ENOUGH * 1_000_000 / rate).min(LONGEST),
    }
}

/// See the header.
#[derive(Debug)]
pub(in crate::sched) struct Pace {
    /// When the window began, and how many have fired in it.
    since: Cell<u64>,
    fired: Cell<u64>,
    pause: Cell<u64>,
}

impl Pace {
    pub(in crate::sched) fn new() -> Self {
        Self { since: Cell::new(0), fired: Cell::new(0), pause: Cell::new(0) }
    }

    /// At `now` so many were found due.
    pub(super) fn note(&self, fired: u64, now: u64) {
        let (all, length) = (self.fired.get() + fired, now.saturating_sub(self.since.get()));
        self.fired.set(all);
        if length < WINDOW {
            return;
        }
        self.pause.set(pause_at(all.saturating_mul(1_000_000) / length));
        self.since.set(now);
        self.fired.set(0);
    }

    /// How long after it last fired timers a sleeping worker that has so many wakes for the next at the earliest.
    pub(super) fn pause(&self, timers: usize) -> u64 {
        if timers < MANY { 0 } else { self.pause.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::{ENOUGH, LONGEST, MANY, Pace, WINDOW};

    const MILLISECOND: u64 = 1_000_000;

    /// The pause of a worker on which one timer is due every so many nanoseconds, after twenty milliseconds; and how often it woke in them.
    fn paced(every: u64, timers: usize) -> (u64, u64) {
        let (pace, mut now, mut served, mut wakes) = (Pace::new(), MILLISECOND, MILLISECOND, 0);
        while now < 21 * MILLISECOND {
            now = (served + every).max(now + pace.pause(timers));
            let due = (now - served) / every;
            served += due * every;
            wakes += 1;
            pace.note(due, now);
        }
        (pace.pause(timers), wakes)
    }

    #[test]
    fn wakes_are_farther_apart_the_more_timers_are_due() {
        assert_eq!(paced(MILLISECOND, MANY).0, 0, "one a millisecond is served when it is due");
        assert_eq!(paced(MILLISECOND / 3, MANY).0, MILLISECOND / 2);
        assert_eq!(paced(MILLISECOND / 10, MANY).0, MILLISECOND);
        let (pause, wakes) = paced(MILLISECOND / 50, MANY);
        assert_eq!(pause, LONGEST);
        assert!(wakes < 150, "a hundred until it is noticed, and thirteen: {wakes}");
    }

    #[test]
    fn no_pause_is_longer_than_it_takes_for_enough_of_them() {
        let (pause, _) = paced(MILLISECOND / 500, MANY);
        assert!((MILLISECOND / 5..MILLISECOND / 3).contains(&pause), "{pause}, for {ENOUGH}");
    }

    #[test]
    fn few_fibers_that_sleep_again_and_again_have_no_pause() {
        assert_eq!(paced(MILLISECOND / 10, 1).0, 0);
        assert_eq!(paced(MILLISECOND / 50, MANY - 1).0, 0);
    }

    #[test]
    fn many_at_once_after_a_long_time_are_few() {
        let pace = Pace::new();
        (1..100).for_each(|second| pace.note(1_000, second * 1_000 * MILLISECOND));
        assert_eq!(pace.pause(MANY), 0);
    }

    #[test]
    fn it_ends_when_few_are_due() {
        let pace = Pace::new();
        (1..100).for_each(|step| pace.note(80, step * MILLISECOND));
        assert_eq!(pace.pause(MANY), LONGEST);
        pace.note(1, 100 * MILLISECOND);
        pace.note(1, 100 * MILLISECOND + WINDOW);
        pace.note(1, 100 * MILLISECOND + 2 * WINDOW);
        assert_eq!(pace.pause(MANY), 0);
    }
}
