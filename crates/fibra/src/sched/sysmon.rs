//! The bell of the monitor's thread: how workers arm it, call it, start it late and stop it.
//!
//! Above: `monitor::sysmon`, which is the thread and says what it looks at; it comes in as a function (`Config::monitor`). Below: `prim`.
//!
//! Invariant: while a worker has unstarted fibers, the thread is armed or about to look once more. All of it is advisory.

use std::sync::Arc;
use std::time::Duration;

use super::monitoring::StallConfig;
use super::shared::{Config, RuntimeShared};
use super::staff::elastic::PoolStats;
use crate::prim::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::prim::sync::{Condvar, Mutex};
use crate::prim::thread;

/// Between two looks at workers that run without surplus: so many per `stall_after`, within these bounds.
const LOOKS_PER_STALL: u32 = 4;
const PERIOD: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));

/// The monitor of a runtime; see the header.
#[derive(Debug)]
pub(crate) struct Sysmon {
    rescues: bool,
    pub(crate) stall: Option<StallConfig>,
    pub(crate) armed: AtomicBool,
    /// May workers be added?
    pub(crate) grows: bool,
    looks_for_deadlocks: bool,
    /// Between two looks, while no worker has surplus.
    pub(crate) period: Duration,
    /// Counted by the monitor's thread, read by any thread.
    pub(crate) stalls: AtomicU64,
    pub(crate) pool: PoolStats,
    pub(crate) state: Mutex<SysmonState>,
    pub(crate) changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct SysmonState {
    /// A worker has unstarted fibers.
    pub(crate) armed: bool,
    /// A worker woke after the monitor's thread had left.
    pub(crate) called: bool,
    /// It starts when it is armed or called.
    late: bool,
    thread: Option<thread::JoinHandle<()>>,
    pub(crate) stop: bool,
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
            looks_for_deadlocks: Self::is_wanted(config) && config.quiet.is_some(),
            period,
            pool,
            // No rescue: armed for good, so that no worker tries to arm it.
            armed: AtomicBool::new(!rescues),
            stalls: AtomicU64::new(0),
            state: Mutex::new(SysmonState::default()),
            changed: Condvar::new(),
        }
    }

    /// May there be such a thread? A current-thread runtime has none.
    pub(super) fn is_wanted(config: &Config) -> bool {
        config.sysmon && !config.current_thread
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
    pub(crate) fn arm(&self, shared: &Arc<RuntimeShared>) {
        // Relaxed: advisory; a stale value costs a tick.
        if !self.armed.load(Ordering::Relaxed) {
            self.arm_slow(shared);
        }
    }

    /// A worker has something to do beside its first fiber, that another worker could not take.
    #[inline]
    pub(crate) fn start_if_late(&self, shared: &Arc<RuntimeShared>) {
        if !self.rescues {
            self.arm(shared);
        }
    }

    #[cold]
    #[inline(never)]
    fn arm_slow(&self, shared: &Arc<RuntimeShared>) {
        if self.rescues { self.arm_now() } else { self.wake(shared) }
    }

    pub(crate) fn arm_now(&self) {
        let mut state = self.state.lock();
        state.armed = true;
        // Relaxed: under the lock, see `arm`.
        self.armed.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// A worker is awake and the monitor's thread has left: see `Idle::must_wake_sysmon`.
    #[cold]
    #[inline(never)]
    pub(crate) fn wake(&self, shared: &Arc<RuntimeShared>) {
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
        // If the system gives no thread, the workers go unmonitored: the monitor is advisory.
        let _ = Self::start_now(shared);
    }

    /// Starts the thread, if there is to be one: at once, or when there is something to look at.
    pub(crate) fn start(shared: &Arc<RuntimeShared>, late: bool) -> std::io::Result<()> {
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

    fn start_now(shared: &Arc<RuntimeShared>) -> std::io::Result<()> {
        let name = format!("{}-sysmon", shared.config.name);
        let body = shared.clone();
        let thread = thread::start_quiet(name, move || (body.config.monitor)(&body))?;
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
}
