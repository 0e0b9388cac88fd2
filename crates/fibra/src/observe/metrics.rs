//! Metrics: what a runtime has counted, as plain numbers.

use crate::prim::atomic::Ordering;
use crate::sched::shared::{Remote, Shared};

/// What a runtime has counted since it was built. Collected without stopping anything: numbers of different workers may be a moment apart.
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
    /// run there. Each was reported on standard error, unless that worker had been a moment before. Not counted without the system
    /// monitor (`FIBRA_SYSMON=0`) nor by a current-thread runtime, which has none.
    pub stalls: u64,
    /// Fibers that panicked with nobody left to be told.
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
    /// Per worker.
    pub workers: Vec<WorkerMetrics>,
}

/// What one worker has counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WorkerMetrics {
    /// Its number.
    pub index: usize,
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
    /// Times it looked for work of others.
    pub searches: u64,
    /// Queue entries it dropped because a joiner had taken the fiber.
    pub stale_entries: u64,
    /// Unstarted fibers in its queue now.
    pub queued: usize,
}

impl Metrics {
    pub(crate) fn collect(shared: &Shared) -> Self {
        // Ends before spawns: the difference is then never negative for lack of order.
        let ended: u64 = shared.remotes.iter().map(|remote| remote.stats.ended.get()).sum();
        let workers: Vec<_> = shared.remotes.iter().enumerate().map(|(index, remote)| worker(index, remote)).collect();
        let sum = |field: fn(&WorkerMetrics) -> u64| workers.iter().map(field).sum::<u64>();
        let stats = |field: fn(&Remote) -> u64| shared.remotes.iter().map(field).sum::<u64>();
        // Relaxed, here and below: numbers for people.
        let spawned = sum(|worker| worker.spawned) + shared.spawned_outside.load(Ordering::Relaxed);
        let tasks_parked = shared.tasks_parked.load(Ordering::Relaxed).max(0) as u64;
        Self {
            spawned,
            live: spawned.saturating_sub(ended),
            parked: sum(|worker| worker.parked) + tasks_parked,
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
            blocking_threads: shared.blocking.threads(),
            blocking_queued: shared.blocking.queued(),
            blocking_peak: shared.blocking.peak(),
            workers,
        }
    }
}

fn worker(index: usize, remote: &Remote) -> WorkerMetrics {
    let stats = &remote.stats;
    WorkerMetrics {
        index,
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
        searches: stats.searches.get(),
        stale_entries: stats.stale_entries.get(),
        queued: remote.fresh.len(),
    }
}
