//! The minimal system monitor: rescues unstarted fibers from a spawner that computes and does not switch.
//!
//! A worker judges its surplus when it switches. One that spawns and then computes never does, so somebody else has to look: this
//! thread, which ticks once a millisecond while a worker has unstarted fibers, and sleeps without a time-out otherwise (law 9).
//! It is advisory: with `FIBRA_SYSMON=0` nothing is lost but that rescue. It also gives the memory of idle stacks back.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use super::shared::Shared;
use crate::fiber::stack::trim_depot;
use crate::prim::atomic::{AtomicBool, Ordering};
use crate::prim::sync::{Condvar, Mutex};
use crate::prim::thread;

/// Between two looks, while armed.
const TICK: Duration = Duration::from_millis(1);
/// Looks without any surplus before it disarms: spawners that come and go do not have to wake it each time.
const IDLE_TICKS: u32 = 20;
/// Stacks trimmed at a time, when the process has gone quiet.
const TRIM_BATCH: usize = 256;

/// See the header.
#[derive(Debug)]
pub(crate) struct Sysmon {
    enabled: bool,
    armed: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    armed: bool,
    stop: bool,
}

impl Sysmon {
    pub(crate) fn new(enabled: bool) -> Self {
        Self {
            enabled,
            // Disabled: armed for good, so that nobody tries to arm it.
            armed: AtomicBool::new(!enabled),
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        }
    }

    /// A worker has pushed unstarted work.
    #[inline(always)]
    pub(crate) fn arm(&self) {
        // Relaxed: advisory; a stale value costs a tick.
        if !self.armed.load(Ordering::Relaxed) {
            self.arm_now();
        }
    }

    #[cold]
    #[inline(never)]
    fn arm_now(&self) {
        let mut state = self.state.lock();
        state.armed = true;
        // Relaxed: under the lock, see `arm`.
        self.armed.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Starts the thread, if there is to be one.
    pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<Option<thread::JoinHandle<()>>> {
        if !shared.sysmon.enabled {
            return Ok(None);
        }
        let shared = shared.clone();
        thread::start(format!("{}-sysmon", shared.config.name), move || shared.sysmon.watch(&shared)).map(Some)
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
    }

    fn watch(&self, shared: &Shared) {
        let seen = RefCell::new(vec![0u64; shared.remotes.len()]);
        loop {
            let mut state = self.state.lock();
            while !state.armed && !state.stop {
                state = self.changed.wait(state);
            }
            if state.stop {
                return;
            }
            drop(state);
            let mut quiet = 0;
            while quiet < IDLE_TICKS {
                let state = self.changed.wait_timeout(self.state.lock(), TICK);
                if state.stop {
                    return;
                }
                drop(state);
                quiet = if self.look(shared, &mut seen.borrow_mut()) { 0 } else { quiet + 1 };
            }
            let mut state = self.state.lock();
            state.armed = false;
            // Relaxed: under the lock, see `arm`.
            self.armed.store(false, Ordering::Relaxed);
            drop(state);
            // Whoever pushed just before saw it armed: one more look.
            if self.look(shared, &mut seen.borrow_mut()) {
                self.arm_now();
            } else {
                self.trim(|| trim_depot(TRIM_BATCH) == TRIM_BATCH);
            }
        }
    }

    /// Gives memory back, a batch at a time, while `batch` says that there may be more. Shutdown does not wait for it: what a million
    /// fibers leave behind takes seconds.
    fn trim(&self, mut batch: impl FnMut() -> bool) {
        while batch() && !self.state.lock().stop {}
    }

    /// True if any worker has unstarted fibers. Wakes a searcher for one that has not switched since the last look.
    fn look(&self, shared: &Shared, seen: &mut [u64]) -> bool {
        let mut surplus = false;
        for (remote, seen) in shared.remotes.iter().zip(seen) {
            let switches = remote.stats.switches.get();
            let stuck = std::mem::replace(seen, switches) == switches;
            if !remote.fresh.is_empty() {
                surplus = true;
                if stuck {
                    shared.wake_one();
                }
            }
        }
        surplus
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Sysmon;

    #[test]
    fn shutdown_does_not_wait_for_all_idle_memory_to_go() {
        let sysmon = Sysmon::new(true);
        let mut batches = 0;
        sysmon.trim(|| {
            batches += 1;
            assert!(batches < 10, "it was told to stop");
            if batches == 3 {
                sysmon.stop();
            }
            true
        });
        assert_eq!(batches, 3);
    }
}
