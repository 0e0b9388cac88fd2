//! Spawning at the cap of fibers, during and after shutdown: nothing is dropped silently, nothing waits.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support;
use fibra::{Builder, CancelReason, Runtime};

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

// S1-08, S1-46, X-14: reaching the cap has a stated outcome; the closure is dropped, the handle says so, no caller waits.
#[test]
fn at_the_cap_a_spawn_is_refused_and_says_so() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).max_fibers(2).build().unwrap();
    let drops = Arc::new(AtomicUsize::new(0));
    runtime.run(|| {
        // The root fiber is there beside the two.
        let one = fibra::spawn(|| fibra::sleep(Duration::from_secs(3600)));
        let two = fibra::spawn(|| fibra::sleep(Duration::from_secs(3600)));
        let counted = Counted(drops.clone());
        let refused = fibra::spawn(move || drop(counted));
        assert_eq!(drops.load(SeqCst), 1, "the closure was dropped by the spawn");
        assert!(refused.is_finished());
        let error = refused.join().unwrap_err();
        assert!(error.is_cancelled() && error.cancel_reason() == Some(CancelReason::Full), "{error}");
        let error = Builder::new().name("one more").spawn(|| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
        assert!(error.to_string().contains("max_fibers"), "{error}");
        // Room again after an end.
        one.cancel();
        let _ = one.join();
        let next = fibra::spawn(|| 5);
        assert_eq!(next.join().unwrap(), 5);
        two.cancel();
    });
    // The end of a run has given back what it took, and no more: the cap is the same for the next one.
    for _ in 0..3 {
        runtime.run(|| {
            let fibers: Vec<_> = (0..3).map(|_| fibra::spawn(fibra::yield_now)).collect();
            let ended: Vec<bool> = fibers.into_iter().map(|fiber| fiber.join().is_ok()).collect();
            assert_eq!(ended, [true, true, false]);
        });
    }
}

// S1-119, X-14: after shutdown a spawn is refused; the handle says cancelled, the closure is dropped and never runs.
#[test]
fn after_shutdown_a_spawn_is_refused_and_says_so() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let handle = runtime.handle();
    runtime.shutdown_timeout(Duration::from_secs(60)).unwrap();
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = Counted(drops.clone());
    let refused = handle.spawn(move || drop(counted));
    assert_eq!(drops.load(SeqCst), 1);
    let error = refused.join().unwrap_err();
    assert_eq!(error.cancel_reason(), Some(CancelReason::Shutdown), "{error}");
    assert!(handle.spawn_with(Builder::new(), || ()).is_err());
    let _entered = handle.enter();
    assert!(fibra::spawn(|| ()).join().unwrap_err().is_cancelled());
    assert!(fibra::spawn_future(async {}).join().unwrap_err().is_cancelled());
}

// S1-117, S1-119, S1-121: spawns that race with shutdown are run to their end, cancelled or refused: each is one of the three.
#[test]
fn spawns_that_race_with_shutdown_all_end() {
    let _watchdog = support::watchdog(120);
    for _ in 0..50 {
        let runtime = Runtime::builder().workers(2).build().unwrap();
        let handle = runtime.handle();
        let ran = Arc::new(AtomicUsize::new(0));
        let dropped = Arc::new(AtomicUsize::new(0));
        let spawner = std::thread::spawn({
            let (ran, dropped) = (ran.clone(), dropped.clone());
            move || {
                let mut refused = 0;
                for _ in 0..2000 {
                    let (ran, counted) = (ran.clone(), Counted(dropped.clone()));
                    let fiber = handle.spawn(move || {
                        ran.fetch_add(1, SeqCst);
                        drop(counted);
                    });
                    if let Ok(Err(_)) = fiber.try_join() {
                        refused += 1;
                    }
                }
                refused
            }
        });
        drop(runtime);
        let _ = spawner.join().unwrap();
        assert_eq!(dropped.load(SeqCst), 2000, "every closure was dropped once, run or not");
        assert!(ran.load(SeqCst) <= 2000);
    }
}

// S1-36: a burst from outside does not block the spawner, whatever the injector's ring holds.
#[test]
fn a_burst_of_spawns_never_blocks() {
    let _watchdog = support::watchdog(120);
    // (No second one is added when the first is found stuck.)
    let runtime = Runtime::builder().workers(1).max_workers(1).build().unwrap();
    let (begun, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    // The only worker is busy until the burst is over: if a spawn needed it, this would hang.
    let busy = runtime.spawn({
        let (begun, gate) = (begun.clone(), gate.clone());
        move || {
            begun.store(1, SeqCst);
            while gate.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
        }
    });
    support::eventually(|| begun.load(SeqCst) == 1, || "it does not begin".to_owned());
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..100_000 {
        let ran = ran.clone();
        drop(runtime.spawn(move || ran.fetch_add(1, SeqCst)));
    }
    gate.store(1, SeqCst);
    busy.join().unwrap();
    let last = runtime.spawn(|| ());
    last.join().unwrap();
    support::eventually(|| ran.load(SeqCst) == 100_000, || format!("{} of 100000 ran", ran.load(SeqCst)));
    assert!(runtime.metrics().injector_overflows > 0, "the ring of 4096 was full");
}

// S4-07, S1-08: without a cap there is no bound: many more fibers than any pool holds are alive at once.
#[test]
fn fibers_have_no_bound_by_default() {
    let _watchdog = support::watchdog(120);
    fibra::run(|| {
        let fibers: Vec<_> = (0..30_000u64)
            .map(|i| {
                fibra::spawn(move || {
                    fibra::yield_now();
                    i
                })
            })
            .collect();
        let sum: u64 = fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum();
        assert_eq!(sum, 29_999 * 30_000 / 2);
    });
}
