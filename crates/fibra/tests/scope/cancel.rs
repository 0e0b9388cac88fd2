//! Cancellation: when it is delivered, when it is held off, and what is left behind: nothing.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support;
use fibra::{Builder, CancelReason, Cancellation, Runtime};

const LONG: Duration = Duration::from_secs(3600);

fn one_worker() -> Runtime {
    Runtime::builder().workers(1).build().unwrap()
}

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

// S4-16, S4-106: a running fiber sees it at its next blocking call or checkpoint, not before.
#[test]
fn a_running_fiber_sees_it_at_its_next_point() {
    let _watchdog = support::watchdog(60);
    let points: [(&str, fn()); 4] = [
        ("checkpoint", fibra::checkpoint),
        ("yield_now", fibra::yield_now),
        ("sleep", || fibra::sleep(LONG)),
        ("sleep of nothing", || fibra::sleep(Duration::ZERO)),
    ];
    for (name, point) in points {
        let runtime = one_worker();
        let (started, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let steps = Arc::new(AtomicUsize::new(0));
        let fiber = runtime.spawn({
            let (started, go, steps) = (started.clone(), go.clone(), steps.clone());
            move || {
                started.store(true, SeqCst);
                while !go.load(SeqCst) {
                    std::thread::yield_now();
                }
                assert!(fibra::is_cancelled());
                steps.fetch_add(1, SeqCst);
                point();
                steps.fetch_add(10, SeqCst);
            }
        });
        support::eventually(|| started.load(SeqCst), || "it does not start".to_owned());
        fiber.cancel();
        go.store(true, SeqCst);
        assert!(fiber.join().unwrap_err().is_cancelled(), "{name}");
        assert_eq!(steps.load(SeqCst), 1, "{name}: it ran up to the point and not beyond");
    }
}

// S4-16: a fiber that returns without meeting such a point has simply returned.
#[test]
fn a_fiber_that_meets_no_point_returns() {
    fibra::run(|| {
        let fiber = fibra::spawn(|| 5);
        while !fiber.is_finished() {
            fibra::yield_now();
        }
        fiber.cancel();
        assert_eq!(fiber.join().unwrap(), 5, "cancelled after its end");
    });
}

// S4-106: cancelled before it starts, it never starts; its closure is dropped, and that on a fiber.
#[test]
fn cancelled_before_it_starts_it_never_starts() {
    let _watchdog = support::watchdog(60);
    struct Where(Arc<AtomicUsize>);
    impl Drop for Where {
        fn drop(&mut self) {
            assert!(fibra::current().is_some(), "dropped where it may block");
            fibra::yield_now();
            self.0.fetch_add(1, SeqCst);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let ran = Arc::new(AtomicBool::new(false));
    let runtime = one_worker();
    runtime.run(|| {
        let (here, ran) = (Where(dropped.clone()), ran.clone());
        let fiber = fibra::spawn(move || {
            let _here = here;
            ran.store(true, SeqCst);
        });
        fiber.cancel();
        assert!(fiber.join().unwrap_err().is_cancelled());
        let here = Where(dropped.clone());
        let task = fibra::spawn_future(async move { drop(here) });
        task.cancel();
        assert!(task.join().unwrap_err().is_cancelled());
    });
    assert_eq!(dropped.load(SeqCst), 2);
    assert!(!ran.load(SeqCst));
}

// S1-54, S1-68: cancelling twice, or from many sides at once, delivers once.
#[test]
fn cancelling_many_times_delivers_once() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    for _ in 0..100 {
        let drops = Arc::new(AtomicUsize::new(0));
        let counted = Counted(drops.clone());
        let before = runtime.metrics().cancellations;
        let started = Arc::new(AtomicBool::new(false));
        let fiber = runtime.spawn({
            let started = started.clone();
            move || {
                let _counted = counted;
                started.store(true, SeqCst);
                fibra::sleep(LONG);
            }
        });
        while !started.load(SeqCst) {
            std::thread::yield_now();
        }
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    fiber.cancel();
                    fiber.cancel();
                });
            }
        });
        assert_eq!(fiber.join().unwrap_err().cancel_reason(), Some(CancelReason::Handle));
        assert_eq!(drops.load(SeqCst), 1);
        assert_eq!(runtime.metrics().cancellations, before + 1);
    }
}

// S1-50, S1-57, S4-47: cancelling races with parking and with the end of the wait, a few thousand times; it never hangs.
#[test]
fn stress_cancelling_races_with_parking() {
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let mut cancelled = 0;
    for round in 0..5000u64 {
        let fiber = runtime.spawn(move || {
            for i in 0..round % 5 {
                fibra::sleep(Duration::from_nanos(1 + i * 500));
            }
            if round % 2 == 0 {
                fibra::sleep(LONG);
            }
        });
        for _ in 0..round % 50 {
            std::hint::spin_loop();
        }
        fiber.cancel();
        match fiber.join() {
            Ok(()) => assert!(round % 2 == 1),
            Err(error) => {
                assert!(error.is_cancelled());
                cancelled += 1;
            }
        }
    }
    assert!(cancelled >= 2500);
}

// S4-106: it is sticky: caught once, it comes again at the next point, and others run in between.
#[test]
fn caught_it_comes_again() {
    let _watchdog = support::watchdog(60);
    let runtime = one_worker();
    let caught = Arc::new(AtomicUsize::new(0));
    let (error, beats) = runtime.run(|| {
        let counter = caught.clone();
        let started = Arc::new(AtomicBool::new(false));
        let starts = started.clone();
        let stubborn = fibra::spawn(move || {
            starts.store(true, SeqCst);
            for _ in 0..20 {
                if let Err(payload) = catch_unwind(|| fibra::sleep(LONG)) {
                    assert!(fibra::is_cancellation(&*payload));
                    counter.fetch_add(1, SeqCst);
                }
            }
            fibra::checkpoint();
        });
        let beats = Arc::new(AtomicUsize::new(0));
        let beating = beats.clone();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let heart = fibra::spawn(move || {
            while !stopped.load(SeqCst) {
                beating.fetch_add(1, SeqCst);
                fibra::yield_now();
            }
        });
        while !started.load(SeqCst) {
            fibra::yield_now();
        }
        stubborn.cancel();
        let error = stubborn.join().unwrap_err();
        stop.store(true, SeqCst);
        heart.join().unwrap();
        (error, beats.load(SeqCst))
    });
    assert!(error.is_cancelled());
    assert_eq!(caught.load(SeqCst), 20);
    assert!(beats >= 10, "the worker's other fibers had their turns: {beats}");
}

#[test]
fn passed_on_by_who_catches_panics_it_works() {
    fibra::run(|| {
        let fiber = fibra::spawn(|| {
            let payload = catch_unwind(|| fibra::sleep(LONG)).unwrap_err();
            resume_unwind(payload)
        });
        fibra::yield_now();
        fiber.cancel();
        let error: fibra::JoinError = fiber.join().map(|(): ()| ()).unwrap_err();
        assert!(error.is_cancelled());
    });
}

// S4-106: a blocking call made while unwinding completes normally: cleaning up may block.
#[test]
fn destructors_may_block_while_unwinding() {
    let _watchdog = support::watchdog(60);
    struct Tidy(Arc<AtomicUsize>);
    impl Drop for Tidy {
        fn drop(&mut self) {
            assert!(fibra::is_cancelled());
            fibra::sleep(Duration::from_millis(1));
            fibra::yield_now();
            fibra::checkpoint();
            fibra::spawn(|| ()).join().unwrap();
            fibra::blocking(|| ());
            self.0.fetch_add(1, SeqCst);
        }
    }
    let tidied = Arc::new(AtomicUsize::new(0));
    fibra::run(|| {
        let fibers: Vec<_> = (0..20)
            .map(|_| {
                let tidy = Tidy(tidied.clone());
                fibra::spawn(move || {
                    let _tidy = tidy;
                    fibra::sleep(LONG);
                })
            })
            .collect();
        fibra::sleep(Duration::from_millis(1));
        fibers.iter().for_each(|fiber| fiber.cancel());
        let started = fibers.into_iter().filter(|fiber| {
            fiber.wait();
            true
        });
        for fiber in started {
            assert!(fiber.join().unwrap_err().is_cancelled());
        }
    });
    assert_eq!(tidied.load(SeqCst), 20);
}

// cancelled while it unwinds from a panic, it stays a panic, and its destructors finish.
#[test]
fn cancelled_while_panicking_it_stays_a_panic() {
    let _watchdog = support::watchdog(60);
    struct Slow {
        inside: Arc<AtomicBool>,
        finished: Arc<AtomicBool>,
        go: Arc<AtomicBool>,
    }
    impl Drop for Slow {
        fn drop(&mut self) {
            self.inside.store(true, SeqCst);
            while !self.go.load(SeqCst) {
                fibra::sleep(Duration::from_millis(1));
            }
            self.finished.store(true, SeqCst);
        }
    }
    let flag = || Arc::new(AtomicBool::new(false));
    let (inside, finished, go) = (flag(), flag(), flag());
    let runtime = one_worker();
    let slow = Slow { inside: inside.clone(), finished: finished.clone(), go: go.clone() };
    let fiber = runtime.spawn(move || {
        let _slow = slow;
        panic!("first");
    });
    support::eventually(|| inside.load(SeqCst), || "no unwinding".to_owned());
    fiber.cancel();
    go.store(true, SeqCst);
    let error = fiber.join().unwrap_err();
    assert!(error.is_panic() && error.message() == "first", "{error}");
    assert!(finished.load(SeqCst));
}

// S4-106: after a panic was caught, cancellation is delivered as usual: the fiber no longer unwinds.
#[test]
fn after_a_caught_panic_it_is_delivered() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let fiber = fibra::spawn(|| {
            let _ = catch_unwind(|| panic!("caught"));
            fibra::sleep(LONG);
        });
        fibra::yield_now();
        fiber.cancel();
        assert!(fiber.join().unwrap_err().is_cancelled());
    });
}

// S4-15: a shielded fiber cannot be woken; it sees it after.
#[test]
fn a_shield_holds_it_off() {
    let _watchdog = support::watchdog(60);
    let runtime = one_worker();
    let inside = Arc::new(AtomicBool::new(false));
    let go = Arc::new(AtomicBool::new(false));
    let steps = Arc::new(AtomicUsize::new(0));
    let fiber = runtime.spawn({
        let (inside, go, steps) = (inside.clone(), go.clone(), steps.clone());
        move || {
            fibra::shield(|| {
                inside.store(true, SeqCst);
                while !go.load(SeqCst) {
                    fibra::sleep(Duration::from_millis(1));
                }
                assert!(fibra::is_cancelled());
                fibra::checkpoint();
                fibra::shield(fibra::yield_now);
                fibra::yield_now();
                steps.fetch_add(1, SeqCst);
            });
            steps.fetch_add(1, SeqCst);
            fibra::yield_now();
            steps.fetch_add(100, SeqCst);
        }
    });
    support::eventually(|| inside.load(SeqCst), || "it does not start".to_owned());
    fiber.cancel();
    go.store(true, SeqCst);
    assert!(fiber.join().unwrap_err().is_cancelled());
    assert_eq!(steps.load(SeqCst), 2);
}

// reason and flag are published in one step: a fiber that sees that it is cancelled sees why.
#[test]
fn who_sees_the_cancellation_sees_the_reason() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    assert_eq!((fibra::is_cancelled(), fibra::cancel_reason()), (false, None), "threads are not cancelled");
    for _ in 0..200 {
        let ready = Arc::new(AtomicBool::new(false));
        let fiber = runtime.spawn({
            let ready = ready.clone();
            move || {
                assert_eq!((fibra::is_cancelled(), fibra::cancel_reason()), (false, None));
                ready.store(true, SeqCst);
                while !fibra::is_cancelled() {
                    std::hint::spin_loop();
                }
                fibra::cancel_reason()
            }
        });
        while !ready.load(SeqCst) {
            std::thread::yield_now();
        }
        fiber.cancel();
        assert_eq!(fiber.join().unwrap(), Some(CancelReason::Handle));
    }
}

#[test]
fn dropping_a_handle_cancels_if_asked_to() {
    let _watchdog = support::watchdog(60);
    let runtime = one_worker();
    let drops = Arc::new(AtomicUsize::new(0));
    let reasons = Arc::new(std::sync::OnceLock::new());
    struct Asks(Arc<AtomicUsize>, Arc<std::sync::OnceLock<CancelReason>>);
    impl Drop for Asks {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
            let _ = self.1.set(fibra::cancel_reason().unwrap());
        }
    }
    runtime.run(|| {
        let asks = Asks(drops.clone(), reasons.clone());
        let fiber = fibra::spawn(move || {
            let _asks = asks;
            fibra::sleep(LONG);
        })
        .cancel_on_drop();
        fibra::yield_now();
        drop(fiber);
        // Joined, it is not cancelled.
        assert_eq!(fibra::spawn(|| 3).cancel_on_drop().join().unwrap(), 3);
        // The handle goes because its holder is cancelled.
        let holder = fibra::spawn(|| {
            let inner = fibra::spawn(|| fibra::sleep(LONG)).cancel_on_drop();
            let _ = inner.join();
        });
        fibra::yield_now();
        fibra::yield_now();
        holder.cancel();
    });
    assert_eq!(drops.load(SeqCst), 1, "run waited for all of them");
    assert_eq!(reasons.get(), Some(&CancelReason::Handle));
}

#[test]
fn cooperatively_it_is_only_seen() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).cancellation(Cancellation::Cooperative).build().unwrap();
    let slept = Arc::new(AtomicUsize::new(0));
    let fiber = runtime.spawn({
        let slept = slept.clone();
        move || {
            while !fibra::is_cancelled() {
                fibra::sleep(Duration::from_millis(1));
                fibra::checkpoint();
                slept.fetch_add(1, SeqCst);
            }
            fibra::yield_now();
            fibra::sleep(Duration::from_millis(1));
            fibra::cancel_reason()
        }
    });
    support::eventually(|| slept.load(SeqCst) > 0, || "it does not sleep".to_owned());
    fiber.cancel();
    assert_eq!(fiber.join().unwrap(), Some(CancelReason::Handle));
    assert_eq!(runtime.metrics().cancellations, 0);
}

// S1-120, S1-121: shutdown wakes what is parked by cancelling it, and waits for it.
#[test]
fn dropping_a_runtime_cancels_and_waits() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let drops = Arc::new(AtomicUsize::new(0));
    let fibers: Vec<_> = (0..100)
        .map(|_| {
            let counted = Counted(drops.clone());
            runtime.spawn(move || {
                let _counted = counted;
                fibra::sleep(LONG);
            })
        })
        .collect();
    let daemon = runtime.handle().spawn_with(Builder::new().daemon(true), || fibra::sleep(LONG)).unwrap();
    drop(runtime);
    assert_eq!(drops.load(SeqCst), 100);
    for fiber in fibers {
        assert_eq!(fiber.join().unwrap_err().cancel_reason(), Some(CancelReason::Shutdown));
    }
    assert!(daemon.join().unwrap_err().is_cancelled());
}

// S4-21, S0-10: what is stuck is named: fiber, wait, place, status.
#[test]
fn a_shutdown_in_vain_names_what_is_stuck() {
    let _watchdog = support::watchdog(60);
    let runtime = one_worker();
    let stubborn = runtime
        .handle()
        .spawn_with(Builder::new().name("stubborn"), || {
            fibra::current().unwrap().set_status("digging in");
            fibra::shield(|| fibra::sleep(LONG));
        })
        .unwrap();
    support::eventually(|| runtime.metrics().parked == 1, || "it does not sleep".to_owned());
    let error = runtime.shutdown_timeout(Duration::from_millis(20)).unwrap_err();
    for part in ["stubborn", "sleeping", "cancel.rs:", "digging in", "spawned at", &stubborn.id().to_string()] {
        assert!(error.stuck().contains(part), "{part} is missing: {error}");
    }
    assert!(error.to_string().contains("stubborn"));
    assert!(!stubborn.is_finished());
}

#[test]
fn a_blocking_job_that_does_not_end_is_counted() {
    let _watchdog = support::watchdog(60);
    let runtime = one_worker();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let started = Arc::new(AtomicBool::new(false));
    let job = runtime.spawn({
        let started = started.clone();
        move || {
            fibra::blocking(move || {
                started.store(true, SeqCst);
                let _ = released.recv();
            });
        }
    });
    // The job may have started before its fiber has parked.
    let waiting = || started.load(SeqCst) && runtime.metrics().parked == 1;
    support::eventually(waiting, || "it does not start".to_owned());
    let error = runtime.shutdown_timeout(Duration::from_millis(20)).unwrap_err();
    assert_eq!(error.blocking_threads(), 1, "{error}");
    assert!(error.stuck().contains("running on the blocking pool"), "{error}");
    drop(release);
    drop(job);
}

/// Says whether it was cancelled, and why.
fn witness(seen: &Arc<std::sync::OnceLock<CancelReason>>) {
    struct Looks(Arc<std::sync::OnceLock<CancelReason>>);
    impl Drop for Looks {
        fn drop(&mut self) {
            if let Some(reason) = fibra::cancel_reason() {
                let _ = self.0.set(reason);
            }
        }
    }
    let looks = Looks(seen.clone());
    drop(fibra::spawn(move || {
        let _looks = looks;
        fibra::sleep(LONG);
    }));
}

static OF_MAIN: std::sync::OnceLock<Arc<std::sync::OnceLock<CancelReason>>> = std::sync::OnceLock::new();

#[fibra::main(workers = 1)]
fn fails() -> Result<(), String> {
    witness(OF_MAIN.get().unwrap());
    fibra::yield_now();
    Err("no".to_owned())
}

// S4-15: an error of the root function cancels what it started.
#[test]
fn an_error_of_main_cancels_its_fibers() {
    let _watchdog = support::watchdog(60);
    OF_MAIN.set(Arc::new(std::sync::OnceLock::new())).unwrap();
    assert_eq!(fails(), Err("no".to_owned()));
    assert_eq!(OF_MAIN.get().unwrap().get(), Some(&CancelReason::RootFailed));
}

#[test]
fn a_panic_of_the_root_cancels_its_fibers() {
    let _watchdog = support::watchdog(60);
    let root = |seen: &Arc<std::sync::OnceLock<CancelReason>>| {
        witness(seen);
        fibra::yield_now();
        panic!("the root panics");
    };
    let seen = Arc::new(std::sync::OnceLock::new());
    let run = catch_unwind(AssertUnwindSafe(|| fibra::run(|| root(&seen))));
    assert_eq!(*run.map(|(): ()| ()).unwrap_err().downcast::<&str>().unwrap(), "the root panics");
    assert_eq!(seen.get(), Some(&CancelReason::RootFailed));
    let seen = Arc::new(std::sync::OnceLock::new());
    let runtime = one_worker();
    let run = catch_unwind(AssertUnwindSafe(|| runtime.run(|| root(&seen))));
    assert!(run.map(|(): ()| ()).is_err());
    assert_eq!(seen.get(), Some(&CancelReason::RootFailed));
    assert_eq!(runtime.run(|| 1), 1, "the runtime goes on");
}

#[test]
fn daemons_do_not_hold_up_run() {
    let _watchdog = support::watchdog(60);
    let seen = Arc::new(std::sync::OnceLock::new());
    struct Looks(Arc<std::sync::OnceLock<CancelReason>>);
    impl Drop for Looks {
        fn drop(&mut self) {
            let _ = self.0.set(fibra::cancel_reason().expect("cancelled, not ended"));
        }
    }
    let runtime = one_worker();
    let looks = Looks(seen.clone());
    runtime.run(|| {
        let started = Arc::new(AtomicBool::new(false));
        let inner = started.clone();
        let daemon = Builder::new().daemon(true).spawn(move || {
            let _looks = looks;
            inner.store(true, SeqCst);
            fibra::sleep(LONG);
        });
        drop(daemon);
        while !started.load(SeqCst) {
            fibra::yield_now();
        }
    });
    drop(runtime);
    assert_eq!(seen.get(), Some(&CancelReason::RunEnded));
}
