//! Starting and stopping runtimes leaves nothing behind, however often.
#![cfg(not(fibra_context = "thread"))] // A pooled stack keeps its thread there, on purpose.

use std::time::Duration;

use crate::support;
use crate::support::{eventually, is_child, rerun_self, watchdog};
use crate::tools::{mappings_to_spare, turns};

/// What a process has that a runtime could leave behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Census {
    threads: usize,
    fds: usize,
    mappings: usize,
}

fn census() -> Census {
    Census { threads: support::threads(), fds: support::fds(), mappings: support::mappings() }
}

/// Some cycles to warm what is kept on purpose (arenas, frames, the allocator's own), then a thousand that add nothing.
fn leaves_nothing(test: &str, cycle: fn(usize)) {
    if is_child(test) {
        let _watchdog = watchdog(50);
        (0..20).for_each(cycle);
        // The harness, this test and the watchdog; ThreadSanitizer has one of its own.
        let threads = if cfg!(fibra_tsan) { 4 } else { 3 };
        // A thread that was joined leaves `/proc` a moment later.
        eventually(|| support::threads() == threads, || format!("{:?}", support::thread_names()));
        let before = census();
        (0..turns(1_000)).for_each(cycle);
        eventually(|| support::threads() == threads, || format!("{:?}", support::thread_names()));
        let after = census();
        assert_eq!(after.fds, before.fds, "{before:?}, {after:?}");
        assert!(after.mappings <= before.mappings + mappings_to_spare(), "{before:?}, {after:?}");
        return;
    }
    // One arena of the allocator's for all threads, or it maps a new one now and then.
    let ended = rerun_self(test, &[("MALLOC_ARENA_MAX", "1"), ("FIBRA_WORKERS", "2")]);
    assert!(ended.status.success(), "{ended:?}");
}

fn some_work() -> usize {
    let sleeper = fibra::spawn(|| fibra::sleep(Duration::from_micros(50)));
    let children: Vec<_> = (0..10).map(|index| fibra::spawn(move || index)).collect();
    sleeper.join().unwrap();
    children.into_iter().map(|child| child.join().unwrap()).sum()
}

// S0-72, S0-66: a thousand times two workers.
#[test]
fn a_thousand_runtimes_leave_nothing() {
    leaves_nothing("a_thousand_runtimes_leave_nothing", |cycle| {
        let rt = fibra::Runtime::builder().workers(2).build().unwrap();
        if cycle % 3 > 0 {
            assert_eq!(rt.run(some_work), 45);
        }
        if cycle % 2 > 0 {
            // Asleep, unstarted or cancelled in between, when the runtime goes.
            drop(rt.spawn(|| fibra::sleep(Duration::from_secs(3600))));
        }
    });
}

// S0-72.
#[test]
fn a_thousand_times_run_leaves_nothing() {
    leaves_nothing("a_thousand_times_run_leaves_nothing", |_| assert_eq!(fibra::run(some_work), 45));
}

// S0-72.
#[test]
fn a_thousand_current_thread_runtimes_leave_nothing() {
    leaves_nothing("a_thousand_current_thread_runtimes_leave_nothing", |cycle| {
        let rt = fibra::Runtime::current_thread().unwrap();
        drop(rt.spawn(|| fibra::sleep(Duration::from_secs(3600))));
        if cycle % 2 > 0 {
            assert_eq!(rt.run(some_work), 45);
        }
    });
}

// S0-72: with threads of the blocking pool, which end with their runtime.
#[test]
fn runtimes_that_blocked_leave_nothing() {
    leaves_nothing("runtimes_that_blocked_leave_nothing", |cycle| {
        if cycle % 5 == 0 {
            fibra::run(|| {
                let jobs: Vec<_> = (0..4).map(|index| fibra::spawn_blocking(move || index)).collect();
                assert_eq!(jobs.into_iter().map(|job| job.join().unwrap()).sum::<u32>(), 6);
            });
        }
    });
}
