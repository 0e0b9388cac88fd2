//! The system monitor: one thread per runtime that looks after its workers.
//!
//! * *Rescue.* A worker judges its surplus when it switches. One that spawns and then computes never does, so somebody else has to look:
//!   once a millisecond, while a worker has unstarted fibers. Of use only where another worker could take them.
//! * *Growth.* It asks the gate of `elastic.rs` at each look, while some worker is awake, and adds a worker if that says so.
//! * *Deadlines.* What must fire although the worker that keeps it is stuck (`wheel.rs`) is fired here, when it is late.
//! * *Stalls.* A worker that runs one fiber for a second without a switch is reported (`stall.rs`): a look every quarter of that, while
//!   some worker is awake. When all have slept from one look to the next, it leaves, and the first that wakes calls it (`idle.rs`).
//!
//! * *Deadlocks.* When all workers have slept from one look to the next, it asks the inspector whether anything can wake them (`quiet.rs`).
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

use super::elastic::{Gate, PoolStats};
use super::errands;
use super::quiet::Quiet;
use super::shared::{Config, Shared};
use super::stall::{StallConfig, StallWatch};
use crate::prim::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::prim::sync::{Condvar, Mutex};
use crate::prim::{policy, thread};

/// Between two looks for surplus, while armed.
const TICK: Duration = Duration::from_millis(1);
/// Between two looks at workers that run without surplus: so many per `stall_after`, within these bounds.
const LOOKS_PER_STALL: u32 = 4;
const PERIOD: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// A deadline that is so late is not going to be kept by its own worker: sysmon fires it.
const LATE_NANOS: u64 = 5_000_000;
/// Deadlines of a seat that are fired at one look: looks stay short, however many fall due at once.
pub(crate) const MOST_DEADLINES: u64 = 64;
/// At the end of a runtime what is to be said gets so much time.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// Looks without any surplus before it disarms: spawners that come and go do not have to wake it each time.
const IDLE_TICKS: u32 = 20;

/// See the header.
#[derive(Debug)]
pub(crate) struct Sysmon {
    rescues: bool,
    stall: Option<StallConfig>,
    armed: AtomicBool,
    /// May workers be added?
    grows: bool,
    looks_for_deadlocks: bool,
    /// Between two looks, while no worker has surplus.
    period: Duration,
    /// Counted by the thread, read by anybody.
    stalls: AtomicU64,
    pub(crate) pool: PoolStats,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Somebody has unstarted fibers.
    armed: bool,
    /// Somebody woke after the watcher had left.
    called: bool,
    /// It starts when it is armed or called.
    late: bool,
    thread: Option<thread::JoinHandle<()>>,
    stop: bool,
}

impl Sysmon {
    pub(crate) fn new(config: &Config) -> Self {
        let rescues = config.sysmon && config.workers > 1;
        let grows = config.sysmon && config.max_workers > 1;
        let period = (config.elastic.stall_after / LOOKS_PER_STALL).clamp(PERIOD.0, PERIOD.1);
        let pool = PoolStats::default();
        pool.most_workers.set(config.workers as u64);
        Self {
            rescues,
            stall: config.stall.filter(|_| config.sysmon),
            grows,
            looks_for_deadlocks: config.sysmon && config.quiet.is_some(),
            period,
            pool,
            // No rescue: armed for good, so that nobody tries to arm it.
            armed: AtomicBool::new(!rescues),
            stalls: AtomicU64::new(0),
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        }
    }

    /// Does it look for workers that stand still?
    pub(crate) fn watches(&self) -> bool {
        self.stall.is_some() || self.grows || self.looks_for_deadlocks
    }

    /// How many stalls it has seen.
    pub(crate) fn stalls(&self) -> u64 {
        // Relaxed: a number for people.
        self.stalls.load(Ordering::Relaxed)
    }

    /// A worker has pushed unstarted work.
    #[inline(always)]
    pub(crate) fn arm(&self, shared: &Arc<Shared>) {
        // Relaxed: advisory; a stale value costs a tick.
        if !self.armed.load(Ordering::Relaxed) {
            self.arm_slow(shared);
        }
    }

    /// A worker has something to do beside its first fiber, that another worker could not take.
    #[inline]
    pub(crate) fn start_if_late(&self, shared: &Arc<Shared>) {
        if !self.rescues {
            self.arm(shared);
        }
    }

    #[cold]
    #[inline(never)]
    fn arm_slow(&self, shared: &Arc<Shared>) {
        if self.rescues { self.arm_now() } else { self.call(shared) }
    }

    fn arm_now(&self) {
        let mut state = self.state.lock();
        state.armed = true;
        // Relaxed: under the lock, see `arm`.
        self.armed.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// A worker is awake and nobody watches: see `Idle::call_watcher`.
    #[cold]
    #[inline(never)]
    pub(crate) fn call(&self, shared: &Arc<Shared>) {
        let mut state = self.state.lock();
        state.called = true;
        if !std::mem::take(&mut state.late) {
            self.changed.notify_one();
            return;
        }
        drop(state);
        // Relaxed: as if it could not be armed, see `with`.
        self.armed.store(true, Ordering::Relaxed);
        shared.idle.watch();
        // If there is no thread to be had, nobody looks, and that is all.
        let _ = Self::start_now(shared);
    }

    /// Starts the thread, if there is to be one: at once, or when there is something to look at.
    pub(crate) fn start(shared: &Arc<Shared>, late: bool) -> std::io::Result<()> {
        let sysmon = &shared.sysmon;
        if !sysmon.rescues && !sysmon.watches() {
            return Ok(());
        }
        if !late || sysmon.rescues {
            return Self::start_now(shared);
        }
        sysmon.state.lock().late = true;
        // Relaxed: before any worker runs. The next to arm it starts it, and so does the next to wake.
        sysmon.armed.store(false, Ordering::Relaxed);
        shared.idle.dismiss_watcher_at_first();
        Ok(())
    }

    fn start_now(shared: &Arc<Shared>) -> std::io::Result<()> {
        let name = format!("{}-sysmon", shared.config.name);
        let body = shared.clone();
        let thread = thread::start_quiet(name, move || body.sysmon.run(&body))?;
        shared.sysmon.state.lock().thread = Some(thread);
        Ok(())
    }

    /// Waits for the end of the thread, after `stop`.
    pub(crate) fn join(&self) {
        let thread = self.state.lock().thread.take();
        // It may be the caller: it calls wakers if no other thread can be had, and one of them may drop the runtime. Then it ends by
        // itself, a little later.
        let is_other = |thread: &thread::JoinHandle<()>| thread.thread().id() != std::thread::current().id();
        // If it panicked, the hook has said so.
        let _ = thread.filter(is_other).map(thread::JoinHandle::join);
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
    }

    fn run(&self, shared: &Arc<Shared>) {
        errands::this_is_the_monitor();
        let mut watch = self.stall.map(|stall| StallWatch::new(stall, shared.remotes.len()));
        self.look_until_stopped(shared, &mut watch);
        let late = watch.as_mut().map_or(0, StallWatch::finish);
        // Relaxed: as in `stalls`.
        self.stalls.fetch_add(late, Ordering::Relaxed);
        // What is still unsaid after that stays with a thread that the end of the runtime does not wait for.
        let _ = errands::said_within(LAST_WAIT);
    }

    fn look_until_stopped(&self, shared: &Arc<Shared>, watch: &mut Option<StallWatch>) {
        let mut seen = vec![0u64; shared.remotes.len()];
        let mut quiet = 0;
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
            if watching {
                watching = self.look_for_stalls(watch, shared);
                if !watching {
                    quiet_since.begin();
                }
            }
        }
    }

    /// Until the next look at workers of which none has surplus.
    fn pause(&self, shared: &Shared, watch: &Option<StallWatch>) -> Duration {
        let period = match watch {
            Some(watch) if !self.grows => watch.period(),
            Some(watch) => watch.period().min(self.period),
            None => self.period,
        };
        let deadlines = shared.remotes[..shared.seats.made()].iter().filter_map(|remote| remote.wheel.next_deadline());
        match deadlines.min() {
            None => period,
            Some(next) => {
                let late = Duration::from_nanos(next.saturating_add(LATE_NANOS).saturating_sub(policy::now()));
                late.clamp(TICK, period)
            }
        }
    }

    /// Fires the deadlines that a worker should have fired by now.
    pub(crate) fn rescue_deadlines(&self, shared: &Shared) {
        let due = policy::now().saturating_sub(LATE_NANOS);
        for seat in 0..shared.seats.made() {
            // Those that are left are due at the next look, a tick later.
            self.pool.rescued_deadlines.add(shared.fire_deadlines(seat, due, MOST_DEADLINES));
        }
    }

    /// No surplus for a while.
    fn disarm(&self, shared: &Shared, seen: &mut [u64]) {
        let mut state = self.state.lock();
        state.armed = false;
        // Relaxed: under the lock, see `arm`.
        self.armed.store(false, Ordering::Relaxed);
        drop(state);
        // Whoever pushed just before saw it armed: one more look.
        if self.look(shared, seen) {
            self.arm_now();
        }
    }

    /// True if it goes on watching.
    fn look_for_stalls(&self, watch: &mut Option<StallWatch>, shared: &Shared) -> bool {
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
