//! Fibers that end at awkward moments: cancelled between two polls, still unstarted when their runtime ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, Ordering::SeqCst};
use std::time::Duration;

use crate::support;
use crate::support::watchdog;

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

/// Notes that it ran, or that it was dropped without having run.
struct Unstarted(Arc<(AtomicUsize, AtomicUsize)>);
impl Unstarted {
    fn runs(self) {
        self.0.0.fetch_add(1, SeqCst);
        std::mem::forget(self);
    }
}
impl Drop for Unstarted {
    fn drop(&mut self) {
        self.0.1.fetch_add(1, SeqCst);
    }
}

// S1-123: what was spawned and has not started when a runtime is shut down never runs: its closure is dropped, once, and its handle says
// cancelled.
#[test]
fn a_shutdown_drops_what_has_not_started() {
    let _watchdog = watchdog(60);
    let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let spawn = |rt: &fibra::Runtime| -> Vec<_> {
        let one = || {
            let unstarted = Unstarted(counts.clone());
            rt.spawn(move || unstarted.runs())
        };
        (0..50).map(|_| one()).collect()
    };
    // No thread drives it, so nothing has started.
    let rt = fibra::Runtime::current_thread().unwrap();
    let fibers = spawn(&rt);
    drop(rt);
    assert!(fibers.into_iter().all(|fiber| fiber.join().unwrap_err().is_cancelled()));
    assert_eq!((counts.0.load(SeqCst), counts.1.load(SeqCst)), (0, 50));
    // The only worker computes until the shutdown has cancelled everything, and has given up waiting for it. (No second one is added when
    // it is found stuck.)
    let rt = fibra::Runtime::builder().workers(1).max_workers(1).build().unwrap();
    let (begun, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let computing = {
        let (begun, over) = (begun.clone(), over.clone());
        rt.spawn(move || {
            begun.store(true, SeqCst);
            while !over.load(SeqCst) {
                std::hint::spin_loop();
            }
        })
    };
    while !begun.load(SeqCst) {
        std::thread::yield_now();
    }
    let fibers = spawn(&rt);
    assert!(rt.shutdown_timeout(Duration::from_millis(5)).is_err(), "one is stuck");
    over.store(true, SeqCst);
    assert!(fibers.into_iter().all(|fiber| fiber.join().unwrap_err().is_cancelled()));
    computing.join().unwrap();
    assert_eq!((counts.0.load(SeqCst), counts.1.load(SeqCst)), (0, 100));
    // A caller that wants it done joins it first, or runs it: `run` waits for all that its function spawned.
    let rt = fibra::Runtime::builder().workers(1).build().unwrap();
    let joined = spawn(&rt);
    joined.into_iter().for_each(|fiber| fiber.join().unwrap());
    rt.run(|| {
        (0..50).for_each(|_| {
            let unstarted = Unstarted(counts.clone());
            drop(fibra::spawn(move || unstarted.runs()));
        })
    });
    drop(rt);
    assert_eq!((counts.0.load(SeqCst), counts.1.load(SeqCst)), (100, 100));
}
