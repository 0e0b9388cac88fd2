//! An idle runtime uses no CPU: without fibers, with ten thousand asleep, with a hundred thousand.
#![cfg(not(any(fibra_asan, fibra_tsan)))] // The sanitizers' own threads use some.

use std::time::Duration;

use crate::support::{cpu_time, eventually, is_child, rerun_self, watchdog};
use crate::tools::stacks;

/// How long the process is watched.
const WATCHED: Duration = Duration::from_secs(3);

/// In a process of its own: so many fibers asleep, and after they have come to rest less than 1 % of a core for some seconds.
fn uses_no_cpu(test: &str, sleepers: usize) {
    if is_child(test) {
        let _watchdog = watchdog(55);
        let rt = fibra::Runtime::builder().workers(2).stack_size(32 << 10).build().unwrap();
        let sleepers: Vec<_> = (0..sleepers).map(|_| rt.spawn(|| fibra::sleep(Duration::from_secs(36_000)))).collect();
        eventually(|| rt.metrics().parked == sleepers.len() as u64, || format!("{:?}", rt.metrics()));
        // What ran a moment ago may still be settling (the searcher, the system monitor): only then it is idle.
        let mut used = cpu_time();
        eventually(
            || {
                std::thread::sleep(Duration::from_millis(100));
                let before = std::mem::replace(&mut used, cpu_time());
                // (Threads that want a processor and get none use no time either.)
                let rests = |state| matches!(state, fibra::WorkerState::Sleep | fibra::WorkerState::Dead);
                let asleep = rt.metrics().workers.iter().all(|worker| rests(worker.state));
                used - before < Duration::from_millis(1) && asleep
            },
            || format!("it does not come to rest: {:?}", rt.metrics()),
        );
        let (before, metrics) = (cpu_time(), rt.metrics());
        std::thread::sleep(WATCHED);
        let used = cpu_time() - before;
        println!("{} sleepers: {used:?} in {WATCHED:?}", sleepers.len());
        assert!(used < WATCHED / 100, "{used:?} of CPU time in {WATCHED:?}");
        let after = rt.metrics();
        assert_eq!(after.switches, metrics.switches, "no fiber ran");
        assert_eq!(after.wakes_timer, 0);
        let sleeps = |metrics: &fibra::Metrics| metrics.workers.iter().map(|worker| worker.sleeps).sum::<u64>();
        assert_eq!(sleeps(&after), sleeps(&metrics), "no worker woke up to look");
        return;
    }
    let ended = rerun_self(test, &[]);
    assert!(ended.status.success(), "{ended:?}");
}

// X-10, S0-69: no fiber at all.
#[test]
fn an_empty_runtime_uses_no_cpu() {
    uses_no_cpu("an_empty_runtime_uses_no_cpu", 0);
}

//
#[test]
fn ten_thousand_sleepers_use_no_cpu() {
    uses_no_cpu("ten_thousand_sleepers_use_no_cpu", stacks(10_000));
}

// S1-100, S1-102, S0-26, X-10.
#[test]
fn a_hundred_thousand_sleepers_use_no_cpu() {
    uses_no_cpu("a_hundred_thousand_sleepers_use_no_cpu", stacks(100_000));
}
