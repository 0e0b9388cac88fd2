//! When a worker is added to the pool: the gate, which the monitor's thread asks.
//!
//! Above: `sysmon.rs`. Below: `sched::staff::elastic`, which adds the worker, and has the other half: how one leaves.
//!
//! # When one comes
//!
//! Sysmon looks at all workers whenever one is awake. A worker is added if the gate is open, at most one per `scale_interval`:
//!
//! 1. work that any worker could do waits (in a deque of unstarted fibers, or in the injector), else `no_work`;
//! 2. the pressure is positive, else `nonpositive`;
//! 3. no worker sleeps or searches, else `idle_capacity` (a sleeper is woken instead);
//! 4. some worker has made no progress for `stall_after`, else `not_stuck`. Progress is a switch of fibers. A thread that wants a
//!    processor and gets none is not stuck, only slow: another worker would not help.
//!
//! Then a worker that is leaving is asked to stay; if there is none, and fewer than `max_workers`, a thread is started in a free seat.
//!
//! # Pressure
//!
//! Fibers enqueued as RUNNABLE minus fibers dequeued to run (S4-83), over all workers. That is what lies in the queues: entries of the
//! deques and of the injector, and of the started fibers of a worker those that neither are parked nor run. All of it is counted anyway,
//! each part by its own worker without read-modify-writes, so pressure costs nothing on any path. (Fibers on their way to a worker by
//! name count from when it reads its mail.) The numbers are read a moment apart, so it may be below zero for a sample; if it stays so
//! while no worker switches, a counter is wrong, and debug builds say so.

use std::sync::Arc;
use std::time::Duration;

use super::errands;
use super::stall::is_slow;
use crate::prim::atomic::Ordering;
use crate::prim::policy;
use crate::sched::phase::Phase;
use crate::sched::shared::RuntimeShared;
use crate::sched::staff::elastic::PoolStats;
use crate::sched::staff::seats::Stay;

/// Samples in a row below zero, with no switch between them, after which a debug build takes a counter for wrong.
const NEGATIVE_LIMIT: u64 = 64;

/// What sysmon remembers of the workers, to see which of them are stuck.
#[derive(Debug)]
pub(crate) struct Gate {
    beats: Vec<Beat>,
    /// The watcher's own time, in nanoseconds: that of its looks. A process that was stopped has not stood still.
    time: u64,
    looked_at: u64,
    added_at: Option<u64>,
    negative_streak: u64,
    /// Of these, how many came with no switch in between.
    still_negative: u64,
    total_switches: u64,
}

/// The heartbeat of one worker.
#[derive(Debug, Clone, Copy, Default)]
struct Beat {
    switches: u64,
    since: u64,
    /// Processor time its thread had used then.
    cpu: Option<u64>,
}

impl Gate {
    pub(crate) fn new(seats: usize) -> Self {
        let beats = vec![Beat::default(); seats];
        Self {
            beats,
            time: 0,
            looked_at: policy::now(),
            added_at: None,
            negative_streak: 0,
            still_negative: 0,
            total_switches: 0,
        }
    }

    /// One look, at most `period` after the last unless sysmon itself was held up: samples the pressure, and adds a worker if it must.
    pub(crate) fn look(&mut self, shared: &Arc<RuntimeShared>, stats: &PoolStats, period: Duration) {
        let now = policy::now();
        let elapsed = now.saturating_sub(self.looked_at);
        self.looked_at = now;
        self.time += elapsed.min(2 * period.as_nanos() as u64);
        let pressure = shared.pressure();
        let remotes = &shared.remotes[..shared.seats.made()];
        self.sample(stats, pressure, remotes.iter().map(|remote| remote.stats.switches.get()).sum());
        let stuck = self.find_stuck(shared);
        let blocked = &stats.blocked;
        if !shared.has_stealable_work() {
            return blocked.no_work.add(1);
        }
        if pressure <= 0 {
            return blocked.nonpositive.add(1);
        }
        if shared.idle.sleeping() + shared.idle.searching() > 0 {
            // A worker sleeps although there is work for it: the worker that should have woken it is stuck.
            if stuck {
                shared.wake_any_worker();
            }
            return blocked.idle_capacity.add(1);
        }
        if !stuck {
            return blocked.not_stuck.add(1);
        }
        stats.gate_passes.add(1);
        let config = &shared.config.elastic;
        let interval = u64::try_from(config.scale_interval.as_nanos()).unwrap_or(u64::MAX);
        if self.added_at.is_some_and(|at| self.time - at < interval) {
            return blocked.too_soon.add(1);
        }
        match shared.add_worker(Stay::Temporary) {
            Ok(true) => {
                self.added_at = Some(self.time);
                stats.promoted.add(1);
                let alive = shared.idle.alive() as u64;
                stats.most_workers.set(stats.most_workers.get().max(alive));
            }
            Ok(false) => blocked.at_ceiling.add(1),
            Err(error) => {
                self.added_at = Some(self.time);
                if stats.not_started.get() == 0 {
                    errands::say_soon(format!(
                        "fibra: workers of \"{}\" are stuck while work waits, and no other can be started: {error}",
                        shared.config.name
                    ));
                }
                stats.not_started.add(1);
            }
        }
    }

    fn sample(&mut self, stats: &PoolStats, pressure: i64, switches: u64) {
        let has_switched = std::mem::replace(&mut self.total_switches, switches) != switches;
        match pressure {
            1.. => stats.positive_samples.add(1),
            0 => stats.zero_samples.add(1),
            _ => stats.negative_samples.add(1),
        }
        if pressure >= 0 {
            (self.negative_streak, self.still_negative) = (0, 0);
            return;
        }
        self.negative_streak += 1;
        self.still_negative = if has_switched { 0 } else { self.still_negative + 1 };
        stats.negative_streak_max.set(stats.negative_streak_max.get().max(self.negative_streak));
        // S4-85. While workers switch, the numbers are of different moments.
        debug_assert!(
            self.still_negative < NEGATIVE_LIMIT,
            "fibra: the pressure stays at {pressure} although no worker switches: a counter is wrong"
        );
    }

    /// Is there a worker that made no progress for `stall_after`, although it had a processor or waits in the kernel?
    fn find_stuck(&mut self, shared: &RuntimeShared) -> bool {
        let after = u64::try_from(shared.config.elastic.stall_after.as_nanos()).unwrap_or(u64::MAX);
        let mut stuck = false;
        for seat in 0..shared.seats.made() {
            let (beat, remote) = (&mut self.beats[seat], &shared.remotes[seat]);
            let switches = remote.stats.switches.get();
            // Relaxed: a number.
            let thread = remote.thread.load(Ordering::Relaxed);
            let is_running = thread != 0 && matches!(shared.idle.phase(seat), Phase::Active | Phase::Draining);
            if !is_running || beat.switches != switches {
                *beat = Beat { switches, since: self.time, cpu: None };
                continue;
            }
            let stood = self.time - beat.since;
            let used = policy::cpu_nanos(thread).unwrap_or(0);
            let first = *beat.cpu.get_or_insert(used);
            stuck |= stood >= after && !is_slow(thread, used.saturating_sub(first), after);
        }
        stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::stats::Counter;

    fn samples(pressures: &[i64]) -> (Gate, PoolStats) {
        let (mut gate, stats) = (Gate::new(2), PoolStats::default());
        gate.sample(&stats, 0, 7);
        pressures.iter().for_each(|pressure| gate.sample(&stats, *pressure, 7));
        (gate, stats)
    }

    // S4-84, S4-89: below zero for some samples is no harm, and the longest such stretch is kept.
    #[test]
    fn samples_are_counted_by_sign() {
        let (gate, stats) = samples(&[3, -1, -1, 0, -2, 5, -1, -1, -1, 1]);
        let counted = [&stats.positive_samples, &stats.zero_samples, &stats.negative_samples].map(Counter::get);
        assert_eq!((counted, stats.negative_streak_max.get()), ([3, 2, 6], 3));
        assert_eq!((gate.negative_streak, gate.still_negative), (0, 0));
    }

    // While workers switch, the parts of the sum are of different moments.
    #[test]
    fn pressure_below_zero_is_no_harm_while_workers_switch() {
        let (mut gate, stats) = (Gate::new(2), PoolStats::default());
        (0..1000).for_each(|switches| gate.sample(&stats, -1, switches));
        assert_eq!((stats.negative_samples.get(), stats.negative_streak_max.get()), (1000, 1000));
    }

    // S4-85: but not for ever, with nothing going on.
    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a counter is wrong")]
    fn pressure_that_stays_below_zero_is_noticed() {
        let _ = samples(&[-1; 2 * NEGATIVE_LIMIT as usize]);
    }
}
