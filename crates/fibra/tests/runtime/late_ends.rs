//! Fibers that end at awkward moments: cancelled between two polls, still unstarted when their runtime ends.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support;

// A task that is cancelled while it owns no stack ends, and its future is dropped.
#[test]
fn a_pending_future_is_cancelled() {
    let _watchdog = support::watchdog(30);
    struct Dropped(std::sync::Arc<AtomicUsize>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let drops = std::sync::Arc::new(AtomicUsize::new(0));
    fibra::run(|| {
        let dropped = Dropped(drops.clone());
        let task = fibra::spawn_future(async move {
            let _dropped = dropped;
            std::future::pending::<()>().await;
        });
        // Whether it has been polled by now or not: both ways end it.
        for _ in 0..10 {
            fibra::yield_now();
        }
        task.cancel();
        assert!(task.join().unwrap_err().is_cancelled());
    });
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

// A daemon that has not even started when the run ends does not hold it up.
#[test]
fn an_unstarted_daemon_ends_with_the_runtime() {
    let _watchdog = support::watchdog(30);
    for _ in 0..20 {
        fibra::run(|| {
            let forever = || {
                loop {
                    fibra::sleep(std::time::Duration::from_secs(3600));
                }
            };
            drop(fibra::Builder::new().daemon(true).spawn(forever).unwrap());
        });
    }
}
