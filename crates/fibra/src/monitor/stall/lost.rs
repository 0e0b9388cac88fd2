//! Time that workers lose in short blocking system calls, none of which is long enough for a stall: counted, and reported when it is much.
//!
//! At each look the watcher reads what the thread of a worker that is awake does. A thread that is blocked then counts as blocked for the
//! time since the last look: an estimate, right on average, for which no worker does anything. A worker that falls asleep during the look
//! does not count.
//!
//! A worker that was blocked for half of a window (five times the time that counts as a stall: five seconds) is reported, with the call and
//! the fiber of the last look, once per worker.
//!
//! Above: `stall.rs`. Below: `doing.rs`.

use std::time::Duration;

use super::{Doing, running};
use crate::monitor::errands;
use crate::sched::monitoring::StallConfig;
use crate::sched::shared::RuntimeShared;

/// A window is so many times what counts as a stall.
const WINDOW: u64 = 5;

/// What is remembered of a worker.
#[derive(Debug, Clone, Default)]
pub(super) struct Lost {
    /// Of the window so far: all of it, and the part in which it was blocked.
    window: u64,
    blocked: u64,
    said: bool,
}

impl Lost {
    /// The watcher was away, or the worker slept: what comes is another window. (The sleep itself is no lost time.)
    pub(super) fn pass(&mut self, elapsed: u64, after: u64) {
        self.count(elapsed, false, after);
    }

    /// A look at a worker that is awake.
    pub(super) fn look(
        &mut self,
        shared: &RuntimeShared,
        worker: usize,
        thread: u32,
        elapsed: u64,
        config: &StallConfig,
    ) {
        let sleeps = shared.remotes[worker].stats.sleeps.get();
        let doing = Doing::of(thread);
        let is_awake = running(shared, worker).is_some() && shared.remotes[worker].stats.sleeps.get() == sleeps;
        let is_blocked = doing != Doing::Computing && is_awake;
        if is_blocked {
            // (No other thread counts here.)
            shared.remotes[worker].stats.blocked_nanos.add(elapsed);
        }
        let after = config.after.as_nanos() as u64;
        let Some((blocked, window)) = self.count(elapsed, is_blocked, after) else { return };
        if is_blocked && !std::mem::replace(&mut self.said, true) {
            let running = (config.fibers)(shared, worker).running;
            let running =
                if running.is_empty() { String::new() } else { format!(" At the last look it ran\n{running}") };
            let call = doing.call_text();
            errands::say_soon(format!(
                "fibra: worker {worker} of \"{}\" was blocked in system calls for about {blocked:.1?} of {window:.1?}, \
                 each of them short (the last one: {call}). No other fiber of this worker ran meanwhile. \
                 fibra::spawn_blocking, fibra::blocking, or fibra's own sleep, sockets, files and locks leave the \
                 worker to others. This is said once.{}",
                shared.config.name,
                running.trim_end(),
            ));
        }
    }

    /// The window that is over now, if most of it is lost: its lost part, and all of it.
    fn count(&mut self, elapsed: u64, is_blocked: bool, after: u64) -> Option<(Duration, Duration)> {
        self.window += elapsed;
        self.blocked += if is_blocked { elapsed } else { 0 };
        if self.window < after.saturating_mul(WINDOW) {
            return None;
        }
        // It stays open until a look finds the worker blocked, so that the call can be named; a window with less begins anew.
        if self.blocked < self.window / 2 {
            (self.window, self.blocked) = (0, 0);
            return None;
        }
        let lost = (Duration::from_nanos(self.blocked), Duration::from_nanos(self.window));
        if is_blocked {
            (self.window, self.blocked) = (0, 0);
        }
        Some(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_window_is_much() {
        let mut lost = Lost::default();
        let few = (0..10).filter_map(|look| lost.count(100, look % 3 == 0, 200)).count();
        assert_eq!((few, lost.window), (0, 0), "four of ten looks");
        let much: Vec<_> = (0..10).filter_map(|look| lost.count(100, look % 2 == 1, 200)).collect();
        assert_eq!(much, [(Duration::from_nanos(500), Duration::from_nanos(1000))]);
        assert_eq!((lost.window, lost.blocked), (0, 0), "another window begins");
    }
}
