//! Metrics: the counters of a runtime, as plain numbers.
//!
//! Above: `Runtime::metrics`, `stats.rs`, which prints them, and `inspect`. Below: `sched::stats` and the counters of the pool.
//! Invariant: collecting stops nothing, so the numbers of different workers may be a moment apart.

use crate::prim::atomic::Ordering;
use crate::sched::phase::WorkerState;
use crate::sched::shared::{Remote, RuntimeShared};

/// The counters of a runtime since it was built. Collected without stopping anything: numbers of different workers may be a moment apart.
///
/// ```
/// let rt = fibra::Runtime::builder().workers(1).build()?;
/// rt.run(|| {
///     for _ in 0..10 {
///         fibra::spawn(|| ()).join().unwrap();
///     }
/// });
/// let metrics = rt.metrics();
/// assert!(metrics.spawned >= 11, "ten, and the root fiber");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// Fibers and tasks spawned.
    pub spawned: u64,
    /// Of those, alive now (unstarted ones included).
    pub live: u64,
    /// Started fibers and tasks that wait for something now.
    pub parked: u64,
    /// Unstarted fibers that an idle worker took from another one.
    pub stolen: u64,
    /// Switches into a fiber.
    pub switches: u64,
    /// Wakes by code on the fiber's own worker.
    pub wakes_local: u64,
    /// Wakes from other threads, through an inbox.
    pub wakes_remote: u64,
    /// Wakes by a timer.
    pub wakes_timer: u64,
    /// Sleeping workers woken because another one had more than it could run.
    pub wakes_surplus: u64,
    /// Cancellations delivered by unwinding.
    pub cancellations: u64,
    /// Times a worker stood still for long (a second, or `FIBRA_STALL_MS`): one fiber computed or blocked its thread, and no other could
    /// run there. Each was reported on standard error, unless the same worker had been reported a moment before. Not counted without the
    /// system monitor (`FIBRA_SYSMON=0`) nor by a current-thread runtime, which has none.
    pub stalls: u64,
    /// Fibers that panicked, and whose panic no joiner took and no scope passed on.
    pub detached_panics: u64,
    /// Stacks taken warm from a pool.
    pub stacks_reused: u64,
    /// Stacks that had to be made.
    pub stacks_fresh: u64,
    /// Entries pushed to the injector when its ring was full.
    pub injector_overflows: u64,
    /// Threads of the blocking pool now.
    pub blocking_threads: usize,
    /// Jobs that wait for a thread of the blocking pool.
    pub blocking_queued: usize,
    /// Most threads the blocking pool ever had.
    pub blocking_peak: usize,
    /// Per worker, workers that have left ([`WorkerState::Dead`]) included: the next worker that is added takes the place of one of those.
    pub workers: Vec<WorkerMetrics>,
    /// The elastic pool: workers that were added and left, and why no more were added.
    pub pool: PoolMetrics,
}

/// The counters of the elastic pool. A worker is added when one is stuck while work that any worker could do waits; each look of the system
/// monitor at which no worker was added is counted with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PoolMetrics {
    /// Workers now.
    pub workers: usize,
    /// Of those, how many stay for good: see [`Runtime::set_workers`](crate::Runtime::set_workers).
    pub base_workers: usize,
    /// The most there may be.
    pub max_workers: usize,
    /// The most there have been.
    pub most_workers: usize,
    /// Workers that execute fibers, approximately.
    pub active: usize,
    /// Workers that were added because others were stuck, or asked to stay when they were about to leave.
    pub promoted: u64,
    /// Workers that have left.
    pub retired: u64,
    /// Workers that could not be started: the system had no thread or descriptor left.
    pub not_started: u64,
    /// Looks at which another worker was needed.
    pub gate_passes: u64,
    /// Looks at which none was added, by reason.
    pub blocked: PoolBlocked,
    /// Fibers that can run minus those that do, at this moment. Below zero for a moment at most: its parts are read one after another.
    pub pressure: i64,
    /// Looks that found it above zero.
    pub positive_samples: u64,
    /// Looks that found it to be zero.
    pub zero_samples: u64,
    /// Looks that found it below zero.
    pub negative_samples: u64,
    /// The most of these in a row.
    pub negative_streak_max: u64,
    /// Deadlines of scopes that the system monitor fired because the worker that kept them was stuck.
    pub rescued_deadlines: u64,
    /// On how many of the workers that stay work is kept that [could go on elsewhere](crate::better_place). Less than there are: it is
    /// gathered, because workers got in each other's way.
    pub gathered_on: usize,
}

/// Why no worker was added: see [`PoolMetrics`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PoolBlocked {
    /// No unstarted fiber waits.
    pub no_work: u64,
    /// One waits, but no more fibers can run than do.
    pub nonpositive: u64,
    /// A worker sleeps, or is looking for work already.
    pub idle_capacity: u64,
    /// Every worker makes progress.
    pub not_stuck: u64,
    /// A worker was needed, but the last one was added less than [`scale_interval`](crate::RuntimeBuilder::scale_interval) ago.
    pub too_soon: u64,
    /// A worker was needed, but there are already [`max_workers`](crate::RuntimeBuilder::max_workers).
    pub at_ceiling: u64,
}

/// The counters of one worker.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WorkerMetrics {
    /// Its number.
    pub index: usize,
    /// What it is doing.
    pub state: WorkerState,
    /// Fibers and tasks spawned by code on it.
    pub spawned: u64,
    /// Fibers and tasks that ended on it.
    pub ended: u64,
    /// Started fibers that live on it now.
    pub started: u64,
    /// Of those, how many wait for something.
    pub parked: u64,
    /// Switches into a fiber.
    pub switches: u64,
    /// Fibers it took from other workers.
    pub stolen: u64,
    /// Fibers it took from the injector, or that were placed on it.
    pub injected: u64,
    /// Wakes by code that ran on it.
    pub wakes_local: u64,
    /// Wakes that came from other threads.
    pub wakes_remote: u64,
    /// Wakes by its timers.
    pub wakes_timer: u64,
    /// Times it went to sleep.
    pub sleeps: u64,
    /// Times that work which [could go on elsewhere](crate::better_place) was sent to another worker.
    pub departures: u64,
    /// Times it looked for work of other workers.
    pub searches: u64,
    /// Queue entries it dropped because a joiner had taken the fiber.
    pub stale_entries: u64,
    /// Time, in nanoseconds, in which its thread was blocked in a system call while it should have run fibers, short calls included: an
    /// estimate by the looks of the system monitor, 0 without one.
    pub blocked_nanos: u64,
    /// Unstarted fibers in its queue now.
    pub queued: usize,
}

impl Metrics {
    pub(crate) fn collect(shared: &RuntimeShared) -> Self {
        // Ends are read before spawns, so that the difference is never negative.
        let ended: u64 = shared.remotes.iter().map(|remote| remote.stats.ended.get()).sum();
        let workers: Vec<_> = (0..shared.seats.made()).map(|index| worker(shared, index)).collect();
        let sum = |field: fn(&WorkerMetrics) -> u64| workers.iter().map(field).sum::<u64>();
        let stats = |field: fn(&Remote) -> u64| shared.remotes.iter().map(field).sum::<u64>();
        // Relaxed, here and below: numbers for people.
        let spawned = sum(|worker| worker.spawned) + shared.spawned_outside.load(Ordering::Relaxed);
        let tasks_parked = shared.tasks_parked.load(Ordering::Relaxed) + shared.moving_parked.load(Ordering::Relaxed);
        Self {
            spawned,
            live: spawned.saturating_sub(ended),
            parked: sum(|worker| worker.parked) + tasks_parked.max(0) as u64,
            stolen: sum(|worker| worker.stolen),
            switches: sum(|worker| worker.switches),
            wakes_local: sum(|worker| worker.wakes_local),
            wakes_remote: sum(|worker| worker.wakes_remote),
            wakes_timer: sum(|worker| worker.wakes_timer),
            wakes_surplus: stats(|remote| remote.stats.surplus_wakes.get()),
            cancellations: stats(|remote| remote.stats.cancellations.get()),
            stalls: shared.sysmon.stalls(),
            detached_panics: shared.detached_panics.load(Ordering::Relaxed), // Relaxed: as above.
            stacks_reused: stats(|remote| remote.stats.stacks_reused.get()),
            stacks_fresh: stats(|remote| remote.stats.stacks_fresh.get()),
            injector_overflows: shared.injector.overflows(),
            blocking_threads: shared.blocking().threads(),
            blocking_queued: shared.blocking().queued(),
            blocking_peak: shared.blocking().peak(),
            workers,
            pool: pool(shared),
        }
    }
}

fn pool(shared: &RuntimeShared) -> PoolMetrics {
    let stats = &shared.sysmon.pool;
    let blocked = &stats.blocked;
    let alive = shared.idle.alive();
    PoolMetrics {
        workers: alive,
        base_workers: shared.base.load(Ordering::Relaxed), // Relaxed, here and below: numbers for people.
        max_workers: shared.remotes.len(),
        most_workers: alive.max(stats.most_workers.get() as usize),
        active: (0..shared.remotes.len())
            .filter(|seat| shared.idle.phase(*seat).state() == WorkerState::Active)
            .count(),
        promoted: stats.promoted.get(),
        retired: shared.retired.load(Ordering::Relaxed), // Relaxed: as above.
        not_started: stats.not_started.get(),
        gate_passes: stats.gate_passes.get(),
        blocked: PoolBlocked {
            no_work: blocked.no_work.get(),
            nonpositive: blocked.nonpositive.get(),
            idle_capacity: blocked.idle_capacity.get(),
            not_stuck: blocked.not_stuck.get(),
            too_soon: blocked.too_soon.get(),
            at_ceiling: blocked.at_ceiling.get(),
        },
        pressure: shared.pressure(),
        positive_samples: stats.positive_samples.get(),
        zero_samples: stats.zero_samples.get(),
        negative_samples: stats.negative_samples.get(),
        negative_streak_max: stats.negative_streak_max.get(),
        rescued_deadlines: stats.rescued_deadlines.get(),
        gathered_on: shared.gathered_on(),
    }
}

fn worker(shared: &RuntimeShared, index: usize) -> WorkerMetrics {
    let remote = &shared.remotes[index];
    let stats = &remote.stats;
    WorkerMetrics {
        index,
        state: shared.idle.phase(index).state(),
        spawned: stats.spawned.get(),
        ended: stats.ended.get(),
        started: stats.started.get(),
        parked: stats.parked.get(),
        switches: stats.switches.get(),
        stolen: stats.stolen.get(),
        injected: stats.injected.get(),
        wakes_local: stats.wakes_local.get(),
        wakes_remote: stats.wakes_remote.get(),
        wakes_timer: stats.wakes_timer.get(),
        sleeps: stats.sleeps.get(),
        departures: stats.departures.get(),
        searches: stats.searches.get(),
        stale_entries: stats.stale_entries.get(),
        blocked_nanos: stats.blocked_nanos.get(),
        queued: remote.fresh.len(),
    }
}
