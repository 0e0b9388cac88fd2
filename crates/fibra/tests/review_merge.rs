//! Programs that broke the core after its branches were merged, one test for each.
//!
//! Every test runs under a watchdog, since some of these faults were hangs.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use fibra::{Builder, Runtime};

const HOUR: Duration = Duration::from_secs(3600);

/// A hang is a failure, not a stuck build.
fn within_a_minute<T>(f: impl FnOnce() -> T) -> T {
    let _watchdog = support::watchdog(60);
    f()
}

// Workers are asked to cancel what a run has started, and may hear of it when the run's root serves the next one already.
#[test]
fn what_a_failed_run_cancels_is_not_the_next_run() {
    within_a_minute(|| {
        let rt = Runtime::current_thread().unwrap();
        for _ in 0..3 {
            let failed = catch_unwind(AssertUnwindSafe(|| rt.run(|| resume_unwind(Box::new("on purpose")))));
            assert!(failed.is_err());
            let children = rt.run(|| {
                let child = fibra::spawn(|| (0..200).for_each(|_| fibra::yield_now()));
                (0..200).for_each(|_| fibra::yield_now());
                child.join()
            });
            children.unwrap();
        }
    });
}

// The same for daemons, which every run cancels at its end.
#[test]
fn a_daemon_is_cancelled_by_its_own_run_only() {
    within_a_minute(|| {
        let rt = Runtime::current_thread().unwrap();
        rt.run(|| {});
        rt.run(|| {
            let daemon = Builder::new().daemon(true).spawn(|| fibra::sleep(HOUR)).unwrap();
            (0..200).for_each(|_| fibra::yield_now());
            assert!(!daemon.is_finished(), "cancelled by the run before");
        });
    });
}
