//! The elastic pool: which workers come, and which leave.
//!
//! Above: `monitor::elastic`, which adds workers, and `runtime` (`set_workers`). Below: `seats.rs`, which has the protocols.
//!
//! When one comes is decided by `monitor::elastic`; `compute` adds one too, where every idle worker has fibers of its own.
//!
//! # When one leaves
//!
//! A temporary worker that had nothing to run for `temp_idle_timeout`, or one that `set_workers` has made superfluous, becomes DRAINING: it
//! moves its unstarted fibers to the injector, takes no work of others, and is woken only by name. It goes on running the fibers that
//! have started on it, which cannot leave (and a child that one of them joins at once), and when there are none it gives its memory, its
//! sockets and its deadlines away and its thread ends.
//!
//! A temporary worker looks at the injector before its own queue, and steals one fiber at a time: it is there because others are stuck,
//! and may be stuck itself in the next moment.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::seats::{Stay, may_leave};
use super::threads::start_worker;
use crate::driver::Driver;
use crate::prim::atomic::Ordering;
use crate::prim::policy;
use crate::prim::thread::{self, JoinHandle};
use crate::sched::parts::WorkerIo;
use crate::sched::phase::Phase;
use crate::sched::reach::{self, Reach};
use crate::sched::shared::{Remote, RuntimeShared};
use crate::sched::sleep::Staying;
use crate::sched::stats::Counter;
use crate::sched::worker::Worker;

/// A worker that has not switched for so long is stuck.
pub(crate) const STALL_AFTER: Duration = Duration::from_millis(100);
/// Between two workers that are added.
pub(crate) const SCALE_INTERVAL: Duration = Duration::from_millis(100);
/// How long a temporary worker stays without work.
pub(crate) const TEMP_IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// What the builder settled (G-20).
#[derive(Debug, Clone, Copy)]
pub(crate) struct ElasticConfig {
    /// No progress for so long, with work waiting: a worker is added.
    pub(crate) stall_after: Duration,
    /// At most one per interval.
    pub(crate) scale_interval: Duration,
    /// A temporary worker without work leaves after this.
    pub(crate) temp_idle_timeout: Duration,
}

/// Why no worker was added, counted by looks.
#[derive(Debug, Default)]
pub(crate) struct Blocked {
    pub(crate) no_work: Counter,
    pub(crate) nonpositive: Counter,
    pub(crate) idle_capacity: Counter,
    pub(crate) not_stuck: Counter,
    /// The gate was open, but the last worker had come less than `scale_interval` ago.
    pub(crate) too_soon: Counter,
    /// The gate was open, but there are `max_workers`.
    pub(crate) at_ceiling: Counter,
}

/// What the pool has decided. Written by sysmon's thread alone, read by any.
#[derive(Debug, Default)]
pub(crate) struct PoolStats {
    pub(crate) positive_samples: Counter,
    pub(crate) zero_samples: Counter,
    pub(crate) negative_samples: Counter,
    pub(crate) negative_streak_max: Counter,
    pub(crate) gate_passes: Counter,
    pub(crate) promoted: Counter,
    pub(crate) not_started: Counter,
    pub(crate) most_workers: Counter,
    /// Deadlines of stuck workers that sysmon has fired.
    pub(crate) rescued_deadlines: Counter,
    pub(crate) blocked: Blocked,
}

impl RuntimeShared {
    /// See the header.
    pub(crate) fn pressure(&self) -> i64 {
        let of_worker = |(seat, remote): (usize, &Remote)| {
            let parked = remote.stats.parked.get() as i64;
            // Relaxed: a number; none before its thread runs.
            let has_thread = remote.thread.load(Ordering::Relaxed) != 0;
            let runs = has_thread && matches!(self.idle.phase(seat), Phase::Active | Phase::Draining);
            remote.stats.started.get() as i64 - parked - i64::from(runs) + remote.fresh.len() as i64
        };
        self.remotes[..self.seats.made()].iter().enumerate().map(of_worker).sum::<i64>() + self.injector.len() as i64
    }

    /// Does work wait that any worker could do?
    pub(crate) fn has_stealable_work(&self) -> bool {
        !self.injector.is_empty() || self.remotes[..self.seats.made()].iter().any(|remote| !remote.fresh.is_empty())
    }

    /// Adds a worker: one that is leaving stays, or a thread is started in a free seat. `Ok(false)`: there is no seat, or the runtime ends.
    pub(crate) fn add_worker(self: &Arc<Self>, stay: Stay) -> io::Result<bool> {
        let added = self.staff.hire(|threads| {
            for seat in 0..self.seats.made() {
                if self.seats.change(seat, Stay::Leaving, stay) {
                    reach::wake_worker(&**self, seat);
                    return Ok(true);
                }
            }
            Ok(self.fill_free_seat(stay, threads)?.is_some())
        });
        added.unwrap_or(Ok(false))
    }

    /// A worker for work that computes for long: one that sleeps and has no fibers; else a new temporary one, if there is a seat; else
    /// one that sleeps and has the fewest. None: every worker is busy, and no other is to be had.
    pub(crate) fn worker_to_compute_on(self: &Arc<Self>) -> Option<usize> {
        // A worker that was sent work is no sleeper any more, although it has not woken yet: two callers at once get two workers.
        let started = |worker: usize| self.remotes[worker].stats.started.get();
        let sleeper = self.idle.least_loaded_sleeper(started);
        if sleeper.is_some_and(|worker| started(worker) == 0) {
            return sleeper;
        }
        if self.idle.alive() < self.seats()
            // Without a thread to be had it is as if there were no seat.
            && let Some(Ok(Some(seat))) = self.staff.hire(|threads| self.fill_free_seat(Stay::Temporary, threads))
        {
            return Some(seat);
        }
        sleeper
    }

    /// Under the staff's lock: starts a worker in a free seat, if there is one.
    fn fill_free_seat(self: &Arc<Self>, stay: Stay, threads: &mut Vec<JoinHandle<()>>) -> io::Result<Option<usize>> {
        // The phase changes from DEAD under this lock only.
        let seat = (0..self.seats()).find(|seat| self.idle.phase(*seat) == Phase::Dead);
        if let Some(seat) = seat {
            self.fill_seat(seat, stay, threads)?;
        }
        Ok(seat)
    }

    fn fill_seat(self: &Arc<Self>, seat: usize, stay: Stay, threads: &mut Vec<JoinHandle<()>>) -> io::Result<()> {
        let remote = &self.remotes[seat];
        let driver = match remote.spare.lock().take() {
            Some(driver) => driver,
            None => Driver::new()?,
        };
        // The driver of a seat stays the same one.
        let _ = remote.kicker.set(driver.kicker());
        // The seat is taken when there is a thread for it: what is sent to it by name from then on is read.
        let arrive = || self.seats.take(&self.idle, seat, stay);
        start_worker(self, seat, driver, threads, arrive).map_err(|failed| {
            *remote.spare.lock() = Some(failed.driver);
            failed.error
        })?;
        // It comes awake. If all others sleep the watcher may have left, as when one wakes.
        if self.idle.must_wake_sysmon() {
            self.sysmon.wake(self);
        }
        Ok(())
    }

    /// The last step of a worker that leaves.
    fn vacate(&self, seat: usize) {
        self.seats.leave(&self.idle, seat);
        reach::serve_vacant(self, seat);
    }

    /// Makes `workers` the number of workers that stay. Those above it leave when their fibers have ended; what is missing is started.
    pub(crate) fn set_workers(self: &Arc<Self>, workers: usize) -> io::Result<()> {
        let set = self.staff.hire(|threads| {
            let mut kept = 0;
            for seat in 0..self.seats() {
                if kept < workers {
                    self.keep_seat(seat, threads)?;
                    kept += 1;
                } else if self.seats.change(seat, Stay::Permanent, Stay::Leaving)
                    || self.seats.change(seat, Stay::Temporary, Stay::Leaving)
                {
                    reach::wake_worker(&**self, seat);
                }
            }
            // Relaxed: a number for people.
            self.base.store(workers, Ordering::Relaxed);
            Ok(())
        });
        set.unwrap_or_else(|| {
            Err(io::Error::other("fibra: the runtime is shutting down: its workers are not changed any more"))
        })
    }

    /// Under the staff's lock: the worker of this seat stays for good, or is started.
    fn keep_seat(self: &Arc<Self>, seat: usize, threads: &mut Vec<JoinHandle<()>>) -> io::Result<()> {
        loop {
            if self.idle.phase_handshake(seat) == Phase::Dead {
                return self.fill_seat(seat, Stay::Permanent, threads);
            }
            match self.seats.stay(seat) {
                Stay::Permanent => return Ok(()),
                // On its last steps, which take no lock of ours.
                Stay::Vacant => thread::yield_now(),
                stay => {
                    if self.seats.change(seat, stay, Stay::Permanent) {
                        reach::wake_worker(&**self, seat);
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// A worker's memory of its stay.
#[derive(Debug, Default)]
pub(in crate::sched) struct Sitting {
    draining: Cell<bool>,
    /// Stacks that the seat's workers before this one had reused, and made.
    pub(in crate::sched) stacks_before: (u64, u64),
    left: Cell<bool>,
    /// The switches it had made when it was last found with nothing to do, and since when.
    switches: Cell<u64>,
    idle_since: Cell<u64>,
}

impl Sitting {
    pub(in crate::sched) fn new(seat: &Remote) -> Self {
        let stacks_before = (seat.stats.stacks_reused.get(), seat.stats.stacks_fresh.get());
        Self { stacks_before, ..Self::default() }
    }
}

impl Worker {
    /// Its loop is to end: it has left.
    pub(crate) fn has_left(&self) -> bool {
        self.sitting.left.get()
    }

    pub(in crate::sched) fn is_draining(&self) -> bool {
        self.sitting.draining.get()
    }

    /// Is it here for a while only? Then it serves the queue of all before its own.
    pub(in crate::sched) fn is_temporary(&self) -> bool {
        self.shared.seats.stay(self.index) != Stay::Permanent
    }

    /// Is it asked to leave? For a worker that has announced its sleep this is the second half of a handshake: the thread that changes
    /// the wish wakes the worker afterwards, by a read-modify-write on its word, like that of the announcement.
    pub(in crate::sched) fn is_leaving(&self) -> bool {
        self.shared.seats.stay(self.index) == Stay::Leaving
    }

    /// When a temporary worker that goes to sleep now has been idle for long enough.
    pub(in crate::sched) fn leave_at(&self) -> Option<u64> {
        let is_temporary = self.shared.seats.stay(self.index) == Stay::Temporary;
        is_temporary.then(|| self.sitting.idle_since.get().saturating_add(self.idle_nanos()))
    }

    fn idle_nanos(&self) -> u64 {
        u64::try_from(self.shared.config.elastic.temp_idle_timeout.as_nanos()).unwrap_or(u64::MAX)
    }

    /// A worker that has nothing to run looks whether it is to leave. Cheap for one that stays for good.
    pub(in crate::sched) fn sit(&self) -> Staying {
        let seats = &self.shared.seats;
        match seats.stay(self.index) {
            Stay::Permanent if !self.is_draining() => return Staying::Stays,
            Stay::Permanent => {}
            Stay::Temporary => {
                let (now, switches) = (policy::now(), self.stats().switches.get());
                if self.sitting.switches.replace(switches) != switches || self.sitting.idle_since.get() == 0 {
                    self.sitting.idle_since.set(now);
                }
                let idle = now.saturating_sub(self.sitting.idle_since.get());
                if idle >= self.idle_nanos() {
                    // If it fails it is wanted for something else.
                    seats.change(self.index, Stay::Temporary, Stay::Leaving);
                }
            }
            Stay::Leaving | Stay::Vacant => {}
        }
        let is_leaving = self.is_leaving();
        self.follow_wish(is_leaving);
        if !is_leaving {
            return Staying::Stays;
        }
        self.hand_fresh_on();
        if !self.has_bound()
            && may_leave(&*self.shared, self.index)
            && seats.change(self.index, Stay::Leaving, Stay::Vacant)
        {
            self.sitting.left.set(true);
            return Staying::Gone;
        }
        Staying::Draining
    }

    /// DRAINING, or no more, as it is wanted. Also for a worker that is never found without work: it must not take new work either.
    pub(in crate::sched) fn follow_wish(&self, is_leaving: bool) {
        if is_leaving != self.is_draining() {
            self.shared.idle.set_draining(self.index, is_leaving);
            self.sitting.draining.set(is_leaving);
            // From now on each turn begins with a fair point, where what its fibers spawn is handed on.
            self.looks.turn.set(1);
            self.sitting.idle_since.set(0);
        }
    }

    /// Moves the unstarted fibers to the injector: S4-79.
    pub(in crate::sched) fn hand_fresh_on(&self) {
        // SAFETY: this thread is the owner of its worker's deque.
        while let Some(entry) = unsafe { self.remote().fresh.pop_oldest() } {
            self.shared.inject(entry);
        }
    }

    /// After the loop of a worker that has left has ended and it has given back what it had: frees the seat, with its driver.
    pub(in crate::sched) fn leave_seat(self) {
        let Worker { shared, index, io: WorkerIo { driver, .. }, .. } = self;
        let remote = &shared.remotes[index];
        debug_assert_eq!((remote.stats.started.get(), remote.stats.parked.get()), (0, 0), "a worker left with fibers");
        // Grace and drain timers of scopes that live elsewhere.
        while let Some((due, at)) = remote.wheel.pop_any() {
            shared.set_wheel_timer(0, due, at);
        }
        *remote.spare.lock() = Some(driver.into_inner());
        shared.retired.fetch_add(1, Ordering::Relaxed); // Relaxed: a number for people.
        shared.vacate(index);
    }
}
