//! A worker whose time goes into short blocking calls: counted in its metrics, and reported.
#![cfg(not(any(fibra_context = "thread", fibra_asan, fibra_tsan)))] // Switching blocks there, and checked code is slow.

use std::time::Duration;

use crate::support::{is_child, rerun_self, watchdog};

#[test]
fn time_that_is_lost_in_short_calls_is_counted_and_reported() {
    const TEST: &str = "time_that_is_lost_in_short_calls_is_counted_and_reported";
    if !is_child(TEST) {
        // A window is five times that. No call here is long enough for a stall.
        let ended = rerun_self(TEST, &[("FIBRA_STALL_MS", "200")]);
        assert!(ended.status.success(), "{ended:?}");
        for part in ["was blocked in system calls for about", "nanosleep", "\"napping\"", "lost_time.rs:"] {
            assert!(ended.stderr.contains(part), "{part:?} is not in\n{}", ended.stderr);
        }
        assert_eq!(ended.stderr.matches("was blocked in system calls").count(), 1, "said once\n{}", ended.stderr);
        return;
    }
    let _watchdog = watchdog(110);
    let blocked = |rt: &fibra::Runtime| rt.metrics().workers.iter().map(|worker| worker.blocked_nanos).sum::<u64>();
    let rt = fibra::Runtime::builder().workers(1).max_workers(1).build().unwrap();
    // What computes, or waits in fibra, is not blocked.
    rt.run(|| {
        let end = fibra::time::Instant::now() + Duration::from_millis(300);
        while fibra::time::Instant::now() < end {
            fibra::yield_now();
        }
        fibra::sleep(Duration::from_millis(300));
    });
    let before = blocked(&rt);
    assert!(before < 300_000_000, "{before} ns of busy and idle time count as blocked");
    let handle = rt.handle();
    rt.run(|| {
        let nap = move || {
            let blocked = || handle.metrics().workers.iter().map(|worker| worker.blocked_nanos).sum::<u64>();
            while blocked() < before + 4_000_000_000 {
                std::thread::sleep(Duration::from_millis(10));
                fibra::yield_now();
            }
        };
        fibra::Builder::new().name("napping").spawn(nap).unwrap().join().unwrap();
    });
}
