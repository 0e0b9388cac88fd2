//! A worker that stands still is reported: who stands in the way, doing what, and who waits for it. Idle ones are not, and cost nothing.
//!
//! Every test runs in a process of its own, whose standard error the parent reads. What hangs for good is ended by a plain thread of that
//! process, once the report is out.
#![cfg(not(fibra_context = "thread"))] // There the fiber's thread is another one than the worker's, which merely waits for it.
#![allow(clippy::disallowed_types)] // A lock of std is what this is about, and the clock must not be fibra's.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support;
use crate::support::{Ended, eventually, is_child, rerun_self, watchdog};
use fibra::{Builder, Handle};

/// In every report once, and nowhere else.
const MARK: &str = "has stood still";
/// In every report that has a backtrace.
pub(crate) const HERE: &str = "It is here, innermost first:";
/// Where reports have one: sanitizers hold back the signal that it needs.
pub(crate) const BACKTRACES: bool = cfg!(all(
    feature = "backtrace",
    not(any(fibra_asan, fibra_tsan)),
    any(target_arch = "x86_64", target_arch = "aarch64")
));

pub(crate) fn reports(ended: &Ended) -> usize {
    ended.stderr.matches(MARK).count()
}

/// Runs the child, which has to succeed with one report.
#[track_caller]
pub(crate) fn one_report(test: &str, variables: &[(&str, &str)]) -> String {
    let ended = rerun_self(test, variables);
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(reports(&ended), 1, "{}", ended.stderr);
    ended.stderr
}

pub(crate) fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

/// Ends the process, as a success, when the runtime has counted a stall: its fibers never would.
fn end_when_stalled(handle: Handle) {
    std::thread::spawn(move || {
        eventually(|| handle.metrics().stalls > 0, || "nothing was reported".to_owned());
        // There would be time for another report of the same stall.
        std::thread::sleep(Duration::from_millis(700));
        assert_eq!(handle.metrics().stalls, 1);
        // SAFETY: nothing is left to do. Not `exit`: a leak checker would take what hangs on suspended stacks for lost.
        unsafe { libc::_exit(0) };
    });
}

/// A fiber keeps a lock of std and sleeps; another of the same worker wants it.
fn deadlock() {
    end_when_stalled(Handle::current());
    let lock = Arc::new(Mutex::new(()));
    let held = lock.clone();
    let holder = move || {
        let _guard = held.lock().unwrap();
        fibra::current().unwrap().set_status("keeping it");
        fibra::sleep(Duration::from_secs(3600));
    };
    drop(Builder::new().name("holder").spawn(holder).unwrap());
    while lock.try_lock().is_ok() {
        fibra::yield_now();
    }
    let neighbour = Builder::new().name("neighbour").spawn(move || drop(lock.lock())).unwrap();
    neighbour.join().unwrap();
}

// X-03, S1-116: the lock is held across a park, and its own worker waits for it.
#[test]
fn a_std_lock_held_across_a_park_is_reported_with_both_fibers() {
    const TEST: &str = "a_std_lock_held_across_a_park_is_reported_with_both_fibers";
    if is_child(TEST) {
        let _watchdog = watchdog(50);
        fibra::run(deadlock);
        unreachable!("it is ended from outside");
    }
    let text = one_report(TEST, &[("FIBRA_WORKERS", "1")]);
    let parts = [
        "worker 0 of \"fibra\"",
        "\"neighbour\": running",
        "blocked in the system call futex",
        if BACKTRACES { "It waits for a std::sync::Mutex. If one" } else { "Most likely it waits for a lock" },
        "of the fibers below holds",
        "fibra::sync::Mutex",
        "2 other fibers live on this worker",
        "\"main\": joining",
        "\"holder\": sleeping",
        "[keeping it]",
        "spawned at crates/fibra/tests/runtime/stall.rs:",
    ];
    has(&text, &parts);
    let place = |what: &str| text.find(what).unwrap();
    assert!(place("neighbour") < place("futex") && place("futex") < place("holder"), "{text}");
}

// X-03, with a worker more, and on threads of the runtime's own: the fibers of the other worker are not among those concerned.
#[test]
fn only_fibers_of_that_worker_are_named() {
    const TEST: &str = "only_fibers_of_that_worker_are_named";
    if is_child(TEST) {
        let _watchdog = watchdog(50);
        let rt = fibra::Runtime::builder().workers(2).name("pair").build().unwrap();
        rt.run(|| {
            end_when_stalled(Handle::current());
            let asleep = || fibra::sleep(Duration::from_secs(3600));
            // The other worker has the fewest.
            drop(Builder::new().name("far").spread().spawn(asleep).unwrap());
            let busy = || Handle::current().metrics().workers.iter().filter(|worker| worker.parked > 0).count();
            while busy() == 0 {
                fibra::yield_now();
            }
            let locals: Vec<_> = (0..25).map(|_| fibra::spawn_local(asleep)).collect();
            while Handle::current().metrics().parked < 1 + locals.len() as u64 {
                fibra::yield_now();
            }
            let lock = Mutex::new(());
            let _held = lock.lock();
            // One's own lock, once more: never given back either.
            drop(lock.lock());
        });
        unreachable!("it is ended from outside");
    }
    let text = one_report(TEST, &[("FIBRA_STALL_MS", "200")]);
    has(&text, &["of \"pair\"", "pair-worker-", "\"main\": running", "25 other fibers live on", "  and 15 more"]);
    assert!(!text.contains("\"far\""), "{text}");
}

// S1-108: it says so and goes on as before.
#[test]
fn a_blocking_system_call_is_reported_once_by_its_name() {
    const TEST: &str = "a_blocking_system_call_is_reported_once_by_its_name";
    if is_child(TEST) {
        let _watchdog = watchdog(50);
        fibra::run(|| {
            let sleeper = || {
                while Handle::current().metrics().stalls == 0 {
                    std::thread::sleep(Duration::from_millis(1500));
                }
            };
            Builder::new().name("sleeper").spawn(sleeper).unwrap().join().unwrap();
        });
        return;
    }
    let text = one_report(TEST, &[("FIBRA_STALL_MS", "200"), ("FIBRA_WORKERS", "1")]);
    has(&text, &["\"sleeper\": running", "system call clock_nanosleep", "fibra::sleep()", "\"main\": joining"]);
}

#[test]
fn a_fiber_that_spins_is_reported_as_spinning() {
    const TEST: &str = "a_fiber_that_spins_is_reported_as_spinning";
    if is_child(TEST) {
        let _watchdog = watchdog(50);
        let rt = fibra::Runtime::builder().workers(1).build().unwrap();
        let handle = rt.handle();
        rt.run(move || {
            while handle.metrics().stalls == 0 {
                std::hint::spin_loop();
            }
        });
        assert_eq!(rt.metrics().stalls, 1);
        return;
    }
    let text = one_report(TEST, &[("FIBRA_STALL_MS", "200")]);
    has(&text, &["\"main\": running", "spinning or computing", "yield_now", "No other fiber has started"]);
}

/// With one worker, `fibra::run` starts its monitor late: when there is a fiber to be held up, or there was time to.
fn starts_late(test: &str, begin: fn()) {
    if is_child(test) {
        let _watchdog = watchdog(50);
        let before = support::threads();
        fibra::run(move || {
            assert_eq!(support::threads(), before, "{:?}", support::thread_names());
            begin();
            assert_eq!(support::threads(), before + 1, "{:?}", support::thread_names());
            while Handle::current().metrics().stalls == 0 {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        eventually(|| support::threads() == before, || format!("{:?}", support::thread_names()));
        return;
    }
    let text = one_report(test, &[("FIBRA_STALL_MS", "100"), ("FIBRA_WORKERS", "1")]);
    has(&text, &["\"main\": running", "clock_nanosleep"]);
}

#[test]
fn the_monitor_starts_with_the_first_fiber() {
    starts_late("the_monitor_starts_with_the_first_fiber", || drop(fibra::spawn(|| ())));
}

#[test]
fn the_monitor_starts_with_the_first_local_fiber() {
    starts_late("the_monitor_starts_with_the_first_local_fiber", || drop(fibra::spawn_local(|| ())));
}

#[test]
fn the_monitor_starts_with_the_first_sleep() {
    // Several: on a busy machine the time may be over before the worker sleeps. Too few for a fair point.
    let sleeps = || (0..10).for_each(|_| fibra::sleep(Duration::from_millis(20)));
    starts_late("the_monitor_starts_with_the_first_sleep", sleeps);
}

#[test]
fn the_monitor_starts_at_the_first_fair_point() {
    starts_late("the_monitor_starts_at_the_first_fair_point", || (0..100).for_each(|_| fibra::yield_now()));
}

/// How often the system monitor gave its processor away: how often it woke, give or take.
fn wakes_of_sysmon() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux has /proc");
    let monitor = tasks
        .map(|task| task.unwrap().path())
        .find(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim_end().ends_with("-sysmon")));
    let status = std::fs::read_to_string(monitor.expect("there is one").join("status")).unwrap();
    let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    switches.trim().parse().unwrap()
}

// with a look every ten milliseconds at those that run, and none at those that sleep; and it comes back.
#[test]
fn idle_workers_are_not_watched_until_they_wake() {
    const TEST: &str = "idle_workers_are_not_watched_until_they_wake";
    if is_child(TEST) {
        let _watchdog = watchdog(50);
        let rt = fibra::Runtime::builder().workers(1).name("i").build().unwrap();
        for round in 1..=3 {
            drop(rt.spawn(|| fibra::sleep(Duration::from_secs(3600))));
            eventually(|| rt.metrics().parked == round, || format!("{:?}", rt.metrics()));
            let mut before = u64::MAX;
            let at_rest = || {
                std::thread::sleep(Duration::from_millis(200));
                let now = wakes_of_sysmon();
                std::mem::replace(&mut before, now) == now
            };
            eventually(at_rest, || "it looks at sleeping workers".to_owned());
            assert_eq!(rt.metrics().stalls, round - 1, "no worker stood still");
            let handle = rt.handle();
            let stuck = rt.spawn(move || {
                while handle.metrics().stalls < round {
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
            stuck.join().unwrap();
        }
        return;
    }
    let ended = rerun_self(TEST, &[("FIBRA_STALL_MS", "40")]);
    assert!(ended.status.success(), "{ended:?}");
    assert!((1..=3).contains(&reports(&ended)), "{}", ended.stderr);
}

/// A stall that no hook is told of.
fn says_nothing(test: &str, variables: &[(&str, &str)], monitors: usize) {
    if is_child(test) {
        let _watchdog = watchdog(50);
        let before = support::threads();
        let rt = fibra::Runtime::builder().workers(1).build().unwrap();
        assert_eq!(support::threads(), before + 1 + monitors, "{:?}", support::thread_names());
        rt.run(|| std::thread::sleep(Duration::from_millis(300)));
        assert_eq!(rt.metrics().stalls, 0);
        return;
    }
    let ended = rerun_self(test, variables);
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(reports(&ended), 0, "{}", ended.stderr);
}

#[test]
fn zero_turns_the_reports_off() {
    // And where no worker could be added either, nor a deadlock is looked for, there is nothing left to watch for.
    let nothing = [("FIBRA_STALL_MS", "0"), ("FIBRA_MAX_WORKERS", "1"), ("FIBRA_DEADLOCK", "off")];
    says_nothing("zero_turns_the_reports_off", &nothing, 0);
}

// S1-108.
#[test]
fn without_sysmon_there_are_no_reports() {
    says_nothing("without_sysmon_there_are_no_reports", &[("FIBRA_STALL_MS", "20"), ("FIBRA_SYSMON", "0")], 0);
}

#[test]
fn what_is_short_enough_is_not_reported() {
    says_nothing("what_is_short_enough_is_not_reported", &[("FIBRA_STALL_MS", "100000")], 1);
}

// A current-thread runtime promises that there is no other thread: no sysmon looks.
#[test]
fn a_current_thread_runtime_has_no_sysmon() {
    const TEST: &str = "a_current_thread_runtime_has_no_sysmon";
    if is_child(TEST) {
        let before = support::threads();
        let rt = fibra::Runtime::current_thread().unwrap();
        rt.run(|| {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(200) {
                std::hint::spin_loop();
            }
        });
        assert_eq!(support::threads(), before);
        assert_eq!(rt.metrics().stalls, 0);
        return;
    }
    let ended = rerun_self(TEST, &[("FIBRA_STALL_MS", "20")]);
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(reports(&ended), 0, "{}", ended.stderr);
}
