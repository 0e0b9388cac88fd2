//! The system monitor: one thread per runtime that looks after its workers.
//!
//! * *Rescue.* A worker judges its surplus when it switches. One that spawns and then computes never does, so the monitor looks for it:
//!   once a millisecond, while a worker has unstarted fibers. Of use only where another worker could take them.
//! * *Growth.* It asks the gate of `elastic.rs` at each look, while some worker is awake, and adds a worker if that says so.
//! * *Deadlines.* What must fire although the worker that keeps it is stuck (`wheel.rs`) is fired here, when it is late.
//! * *Stalls.* A worker that runs one fiber for a second without a switch is reported (`stall.rs`): a look every quarter of that, while
//!   some worker is awake. When all have slept from one look to the next, it leaves, and the first that wakes calls it (`idle.rs`).
//!
//! * *Deadlocks.* When all workers have slept from one look to the next, it asks the inspector whether anything can wake them
//!   (`sched/quiet.rs`).
//!
//! The thread of `fibra::run` with one worker, where there is nothing to rescue, starts when something could be held up: with the first
//! fiber beside its own, or the first sleep. Starting and joining a thread costs more than a short run does otherwise.
//!
//! It waits for nothing that may take long: others print for it and call wakers (`errands.rs`), others name the functions in a report.
//!
//! When there is nothing to look at it sleeps without a time-out (law 9). It is advisory: with `FIBRA_SYSMON=0` nothing is lost but rescue
//! and reports. (Memory that is idle is given back by another, `fiber::trim`.)

use std::sync::Arc;
use std::time::Duration;

use super::elastic::Gate;
use super::errands;
use super::stall::StallWatch;
use super::{deep_channels, objects};
use crate::prim::atomic::Ordering;
use crate::prim::{fence, policy};
use crate::sched::quiet::Quiet;
use crate::sched::shared::RuntimeShared;
use crate::sched::sysmon::Sysmon;

/// Between two looks for surplus, while armed.
const TICK: Duration = Duration::from_millis(1);
/// Deadlines of a seat that are fired at one look: looks stay short, however many fall due at once.
pub(crate) const MOST_DEADLINES: u64 = 64;
/// At the end of a runtime what is to be said gets so much time.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// Between two looks at channels without a bound.
const CHANNELS_NANOS: u64 = 1_000_000_000;
/// Looks without any surplus before it disarms: spawners that come and go do not have to wake it each time.
const IDLE_TICKS: u32 = 20;

/// The thread of the monitor; see the header. `sched::sysmon` starts it.
pub(crate) fn run(shared: &Arc<RuntimeShared>) {
    shared.sysmon.run(shared);
}

impl Sysmon {
    fn run(&self, shared: &Arc<RuntimeShared>) {
        errands::this_is_the_monitor();
        let mut watch = self.stall.map(|stall| StallWatch::new(stall, shared.remotes.len()));
        self.look_until_stopped(shared, &mut watch);
        let late = watch.as_mut().map_or(0, StallWatch::finish);
        // Relaxed: as in `stalls`.
        self.stalls.fetch_add(late, Ordering::Relaxed);
        // What is still unsaid after that stays with a thread that the end of the runtime does not wait for.
        let _ = errands::said_within(LAST_WAIT);
    }

    fn look_until_stopped(&self, shared: &Arc<RuntimeShared>, watch: &mut Option<StallWatch>) {
        let mut seen = vec![0u64; shared.remotes.len()];
        let mut quiet = 0;
        let mut next_channels = policy::now().saturating_add(CHANNELS_NANOS);
        let mut quiet_since = Quiet::new(shared.config.quiet);
        let mut gate = self.grows.then(|| Gate::new(shared.remotes.len()));
        // Workers begin awake, so it begins by watching them.
        let mut watching = self.watches();
        loop {
            let mut state = self.state.lock();
            let ticking = loop {
                if state.stop {
                    return;
                }
                if std::mem::take(&mut state.called) && !std::mem::replace(&mut watching, true) {
                    quiet_since.end();
                    watch.iter_mut().for_each(|watch| watch.resume(policy::now()));
                }
                if state.armed || watching {
                    break state.armed;
                }
                state = match quiet_since.left() {
                    None => self.changed.wait(state),
                    Some(Duration::ZERO) => {
                        drop(state);
                        quiet_since.look(shared);
                        self.state.lock()
                    }
                    Some(left) => self.changed.wait_timeout(state, left),
                };
            };
            let pause = if ticking { TICK } else { self.pause(shared, watch) };
            let state = self.changed.wait_timeout(state, pause);
            if state.stop {
                return;
            }
            drop(state);
            if ticking {
                quiet = if self.look(shared, &mut seen) { 0 } else { quiet + 1 };
                if quiet == IDLE_TICKS {
                    quiet = 0;
                    self.disarm(shared, &mut seen);
                }
            }
            if !watching && !ticking {
                continue;
            }
            if let Some(gate) = &mut gate {
                gate.look(shared, &self.pool, pause);
            }
            self.rescue_deadlines(shared);
            let now = policy::now();
            if now >= next_channels {
                // (A runtime with one worker never disarms.)
                fence::prepare_slowly();
                deep_channels::look(&objects::channels(objects::Asked::Unbounded));
                // Never so often that it takes more than a hundredth of the time.
                let took = policy::now().saturating_sub(now);
                next_channels = now.saturating_add(CHANNELS_NANOS.max(took.saturating_mul(100)));
            }
            if watching {
                watching = self.look_for_stalls(watch, shared);
                if !watching {
                    quiet_since.begin();
                }
            }
        }
    }

    /// Until the next look at workers of which none has surplus.
    fn pause(&self, shared: &RuntimeShared, watch: &Option<StallWatch>) -> Duration {
        let period = match watch {
            Some(watch) if !self.grows => watch.period(),
            Some(watch) => watch.period().min(self.period),
            None => self.period,
        };
        let remotes = shared.remotes[..shared.seats.made()].iter();
        let deadlines = remotes.flat_map(|remote| [remote.wheel.next_deadline(), remote.returns.since()]);
        match deadlines.flatten().min() {
            None => period,
            Some(next) => {
                let late =
                    Duration::from_nanos(next.saturating_add(shared.late.for_sysmon()).saturating_sub(policy::now()));
                late.clamp(TICK, period)
            }
        }
    }

    /// Fires the deadlines that a worker should have fired by now.
    pub(crate) fn rescue_deadlines(&self, shared: &RuntimeShared) {
        let due = policy::now().saturating_sub(shared.late.for_sysmon());
        for seat in 0..shared.seats.made() {
            // Deadlines above this bound are left for the next look, a tick later.
            self.pool.rescued_deadlines.add(shared.fire_deadlines(seat, due, MOST_DEADLINES));
            shared.rescue_returns(seat, due);
        }
    }

    /// No surplus for a while.
    fn disarm(&self, shared: &RuntimeShared, seen: &mut [u64]) {
        // (Not under the lock, for which a worker that pushes may wait.)
        fence::prepare_slowly();
        let mut state = self.state.lock();
        state.armed = false;
        self.bell.silence();
        drop(state);
        // A worker that pushed just before saw it armed: one more look, which sees what that worker pushed.
        if self.look(shared, seen) {
            self.arm_now();
        }
    }

    /// True if it goes on watching.
    fn look_for_stalls(&self, watch: &mut Option<StallWatch>, shared: &RuntimeShared) -> bool {
        let now = policy::now();
        let active = match watch {
            None => (0..shared.seats.made()).any(|seat| shared.idle.is_awake(seat)),
            Some(watch) if !watch.is_due(now) => return true,
            Some(watch) => {
                let looked = watch.look(shared, now);
                // Relaxed: as in `stalls`.
                self.stalls.fetch_add(looked.stalls, Ordering::Relaxed);
                looked.active
            }
        };
        // If workers only sleep between two pieces of work, calling it each time would cost them more than looking costs it.
        active || !shared.idle.dismiss_watcher()
    }

    /// True if any worker has unstarted fibers. Wakes a searcher for one that has not switched since the last look.
    fn look(&self, shared: &RuntimeShared, seen: &mut [u64]) -> bool {
        let mut surplus = false;
        for (remote, seen) in shared.remotes.iter().zip(seen) {
            let switches = remote.stats.switches.get();
            let stuck = std::mem::replace(seen, switches) == switches;
            if !remote.fresh.is_empty() {
                surplus = true;
                if stuck {
                    shared.wake_any_worker();
                }
            }
        }
        surplus
    }
}
