//! Who a fiber is, and where: ids, names, status, the thread it stays on, and that exactly one worker runs it.

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support;
use fibra::{Builder, Runtime};

// S0-01, S0-09: the running code knows its fiber; ids are unique and grow within one spawner.
#[test]
fn ids_are_unique_and_grow() {
    let mut all = HashSet::new();
    for _ in 0..3 {
        let ids = fibra::run(|| {
            let root = fibra::current().unwrap().id();
            let fibers: Vec<_> = (0..1000).map(|_| fibra::spawn(|| fibra::current().unwrap().id())).collect();
            let ids: Vec<_> = fibers
                .into_iter()
                .map(|fiber| {
                    let outside = fiber.id();
                    assert_eq!(fiber.join().unwrap(), outside, "the same from inside and outside");
                    outside
                })
                .collect();
            assert_eq!(fibra::current().unwrap().id(), root, "and the same after switches");
            ids
        });
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(ids.iter().all(|id| all.insert(*id) && id.as_u64() > 0));
    }
    assert!(fibra::current().is_none());
}

// S0-10: up to 31 bytes of status, cut where a character ends.
#[test]
fn a_fiber_says_what_it_does() {
    fibra::run(|| {
        let fiber = Builder::new().name("worker bee").spawn(|| {
            let me = fibra::current().unwrap();
            assert_eq!((me.name(), me.status().as_str()), (Some("worker bee"), ""));
            me.set_status("parsing");
            fibra::yield_now();
            assert_eq!(fibra::current().unwrap().status(), "parsing");
            me.set_status("0123456789012345678901234567890123456789");
            assert_eq!(me.status(), "0123456789012345678901234567890");
            me.set_status(&"é".repeat(20));
            assert_eq!(me.status(), "é".repeat(15));
            me
        });
        let fiber = fiber.unwrap();
        assert_eq!(fiber.name(), Some("worker bee"));
        let other = fiber.join().unwrap();
        other.set_status("not my own");
        assert_eq!((other.status(), fibra::current().unwrap().status()), (String::new(), String::new()));
    });
}

thread_local!(static MARK: Cell<usize> = const { Cell::new(0) });

// X-01, S0-11, S1-19, S4-22: a started fiber stays on its thread through every kind of wait; thread-locals stay right.
#[test]
fn a_started_fiber_stays_on_its_thread() {
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(3).build().unwrap();
    let fibers: Vec<_> = (0..60usize)
        .map(|i| {
            runtime.spawn(move || {
                let thread = std::thread::current().id();
                let mark = Rc::new(i);
                for round in 0..30 {
                    MARK.set(i);
                    assert_eq!(MARK.get(), i);
                    match round % 5 {
                        0 => fibra::yield_now(),
                        1 => fibra::sleep(Duration::from_micros(30)),
                        2 => fibra::spawn(|| ()).join().unwrap(),
                        3 => fibra::blocking(|| ()),
                        _ => fibra::block_on(async { fibra::spawn(|| ()).await.unwrap() }),
                    }
                    assert_eq!(std::thread::current().id(), thread);
                    assert_eq!(*mark, i);
                }
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}

// S1-05, S4-22, S4-97, S1-44: one worker at a time runs a fiber, also under steals, wakes and cancellations from all sides.
#[test]
fn two_workers_are_never_in_one_fiber() {
    let _watchdog = support::watchdog(120);
    /// Counts how often a fiber was begun and left, and finds out if two are in it at a time.
    #[derive(Default)]
    struct Canary {
        inside: AtomicBool,
        begun: AtomicUsize,
        left: AtomicUsize,
    }
    struct Leaves<'a>(&'a Canary);
    impl Drop for Leaves<'_> {
        fn drop(&mut self) {
            assert!(!self.0.inside.load(SeqCst), "unwound while it ran");
            self.0.left.fetch_add(1, SeqCst);
        }
    }
    let runtime = Runtime::builder().workers(4).build().unwrap();
    let canaries: Arc<Vec<Canary>> = Arc::new((0..2000).map(|_| Canary::default()).collect());
    let (mut ran, mut cancelled) = (0, 0);
    let cancels = Arc::new(AtomicBool::new(false));
    runtime.run(|| {
        // Half of them by this fiber, to be stolen, half from outside. Cancelled by two threads while they start, run and wait.
        let spawn = |i: usize| {
            let (canaries, cancels) = (canaries.clone(), cancels.clone());
            move || {
                let canary = &canaries[i];
                canary.begun.fetch_add(1, SeqCst);
                let _leaves = Leaves(canary);
                // None ends before the first was cancelled, however late the cancellers begin.
                for round in (0..).take_while(|round| *round < 5 || !cancels.load(SeqCst)) {
                    assert!(!canary.inside.swap(true, SeqCst), "another fiber is on this stack");
                    (0..50).for_each(|_| std::hint::spin_loop());
                    assert!(canary.inside.swap(false, SeqCst));
                    match (i + round) % 3 {
                        0 => fibra::sleep(Duration::from_micros(5)),
                        1 => fibra::checkpoint(),
                        _ => fibra::yield_now(),
                    }
                }
            }
        };
        let stolen: Vec<_> = (0..1000).map(|i| fibra::spawn(spawn(i))).collect();
        while runtime.metrics().stolen == 0 {
            std::hint::spin_loop();
        }
        let handle = runtime.handle();
        let fibers: Vec<_> = stolen.into_iter().chain((1000..2000).map(|i| handle.spawn(spawn(i)))).collect();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (fibers, cancels) = (&fibers, &cancels);
                scope.spawn(move || {
                    for fiber in fibers.iter().skip(thread).step_by(5) {
                        fiber.cancel();
                        cancels.store(true, SeqCst);
                    }
                });
            }
        });
        for fiber in fibers {
            match fiber.join() {
                Ok(()) => ran += 1,
                Err(error) => {
                    assert!(error.is_cancelled(), "{error}");
                    cancelled += 1;
                }
            }
        }
    });
    // S1-04, S1-21: each ran once at most, and was left as often.
    for canary in canaries.iter() {
        let (begun, left) = (canary.begun.load(SeqCst), canary.left.load(SeqCst));
        assert!(begun <= 1 && begun == left && !canary.inside.load(SeqCst), "{begun} {left}");
    }
    assert!(ran >= 1200 && cancelled > 0 && ran + cancelled == 2000, "{ran} ran, {cancelled} were cancelled");
}

// S1-117, S1-118, S0-97, S0-101, S4-96, S4-105: counted live once, ended once, whatever way it ends; the sum over all workers is zero then.
#[test]
fn every_fiber_is_counted_once() {
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(3).build().unwrap();
    let run = |kinds| {
        for i in 0..3000 {
            let fiber = match i % kinds {
                0 => fibra::spawn(|| ()),
                1 => fibra::spawn(|| std::panic::resume_unwind(Box::new(()))),
                2 => fibra::spawn(|| fibra::sleep(Duration::from_secs(3600))),
                _ => fibra::spawn_future(async { fibra::spawn(|| ()).await.unwrap() }),
            };
            if i % kinds == 2 {
                fiber.cancel();
            }
            drop(fiber);
        }
    };
    runtime.run(|| run(3));
    let metrics = runtime.metrics();
    assert_eq!((metrics.spawned, metrics.live), (3001, 0), "run returned, so no fiber is left: {metrics:?}");
    runtime.run(|| run(4));
    // Wakers of async joiners are called on fibers of their own, which are counted too. They belong to the runtime, not to the run: the one
    // whose call let the last task end may itself still be ending.
    support::eventually(|| runtime.metrics().live == 0, || format!("{:?}", runtime.metrics()));
    let metrics = runtime.metrics();
    assert!(metrics.spawned > 3001 + 3000 + 750, "two roots, twice 3000, and those that 750 of them started");
    let ended: u64 = metrics.workers.iter().map(|worker| worker.ended).sum();
    assert_eq!(ended, metrics.spawned);
    assert_eq!(metrics.parked, 0);
}

// S4-05: fibers switch only where they yield or block: what they do in between is not interrupted by neighbours.
#[test]
fn between_switches_a_fiber_is_alone_on_its_worker() {
    let runtime = Runtime::current_thread().unwrap();
    runtime.run(|| {
        let shared = Rc::new(Cell::new(0u64));
        let fibers: Vec<_> = (0..20)
            .map(|_| {
                let shared = shared.clone();
                fibra::spawn_local(move || {
                    for _ in 0..100 {
                        // A read, some work and a write that another fiber would break.
                        let value = shared.get();
                        std::hint::black_box((0..50u64).sum::<u64>());
                        shared.set(value + 1);
                        fibra::yield_now();
                    }
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert_eq!(shared.get(), 2000);
    });
}

// S1-59, S4-45, S4-98, S0-17: while one waits another runs, and each goes on where it was, with its locals.
#[test]
fn while_one_waits_another_runs() {
    let runtime = Runtime::current_thread().unwrap();
    let log = runtime.run(|| {
        let log = Rc::new(std::cell::RefCell::new(Vec::new()));
        let fibers: Vec<_> = (0..3)
            .map(|i| {
                let log = log.clone();
                fibra::spawn_local(move || {
                    for step in 0..3 {
                        log.borrow_mut().push((step, i));
                        fibra::yield_now();
                    }
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        Rc::into_inner(log).unwrap().into_inner()
    });
    let expected: Vec<_> = (0..3).flat_map(|step| (0..3).map(move |i| (step, i))).collect();
    assert_eq!(log, expected);
}

// what is set in the environment after a runtime was built changes nothing.
#[test]
fn the_environment_is_read_at_start_only() {
    const TEST: &str = "the_environment_is_read_at_start_only";
    if support::is_child(TEST) {
        let runtime = Runtime::builder().workers(1).build().unwrap();
        // SAFETY: the child has no thread that reads the environment now: the worker is idle.
        unsafe {
            std::env::set_var("FIBRA_WORKERS", "abc");
            std::env::set_var("FIBRA_STACK_SIZE", "1");
            std::env::set_var("FIBRA_GUARD", "x");
        }
        for i in 0..100 {
            assert_eq!(runtime.run(|| fibra::spawn(move || i).join().unwrap()), i);
        }
        return;
    }
    let ended = support::rerun_self(TEST, &[]);
    assert!(ended.status.success(), "{ended:?}");
}
