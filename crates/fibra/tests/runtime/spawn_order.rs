//! Where spawned fibers go, who sees what is in them, and in which order a worker looks for work.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::support;
use fibra::Runtime;

// S4-08: what a fiber spawns is in its worker's queue, what comes from outside in the injector; there is nothing else.
#[test]
fn one_queue_per_worker_and_one_injector() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::current_thread().unwrap();
    let outside: Vec<_> = (0..5).map(|i| runtime.spawn(move || i)).collect();
    assert_eq!(runtime.metrics().workers[0].queued, 0, "from outside: in the injector");
    runtime.run(|| {
        let metrics = || fibra::Handle::current().metrics();
        let before = metrics().workers[0].queued;
        let inside: Vec<_> = (0..10).map(|i| fibra::spawn(move || i)).collect();
        assert_eq!(metrics().workers[0].queued, before + 10, "from a fiber: in its worker's queue");
        let inside: i32 = inside.into_iter().map(|fiber| fiber.join().unwrap()).sum();
        let outside: i32 = outside.into_iter().map(|fiber| fiber.join().unwrap()).sum();
        assert_eq!((inside, outside), (45, 10));
    });
    assert_eq!(runtime.metrics().workers[0].injected, 5);
}

// A worker runs what it has before it looks at the injector (but for one look in 61 turns).
#[test]
fn local_work_comes_first() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::current_thread().unwrap();
    let handle = runtime.handle();
    let log = runtime.run(|| {
        let log = Rc::new(RefCell::new(Vec::new()));
        let global = Arc::new(AtomicUsize::new(0));
        // From a plain thread, hence through the injector; before the local ones are spawned.
        let injected = std::thread::scope(|scope| {
            let global = global.clone();
            scope.spawn(|| handle.spawn(move || global.store(1, SeqCst))).join().unwrap()
        });
        let local: Vec<_> = (0..5)
            .map(|_| {
                let (log, global) = (log.clone(), global.clone());
                fibra::spawn_local(move || log.borrow_mut().push(global.load(SeqCst)))
            })
            .collect();
        local.into_iter().for_each(|fiber| fiber.join().unwrap());
        injected.join().unwrap();
        assert_eq!(global.load(SeqCst), 1);
        Rc::into_inner(log).unwrap().into_inner()
    });
    // At most one of the first turns was the 61st.
    assert!(log.iter().filter(|seen| **seen == 0).count() >= 4, "{log:?}");
}

// S4-20, S4-33: a worker that went to sleep for lack of work is woken for what comes; no fiber waits for a worker in vain.
#[test]
fn a_sleeping_worker_is_woken_for_work() {
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    for round in 0..3000u32 {
        if round % 100 == 0 {
            let sleeps = || runtime.metrics().workers.iter().map(|worker| worker.sleeps).sum::<u64>();
            support::eventually(|| sleeps() > 0, || "with nothing to do they sleep".to_owned());
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(runtime.spawn(move || round).join().unwrap(), round);
    }
}

// S1-15, S1-43, S0-15: spawners on many threads fill frames that are theirs alone; whichever worker
// dequeues one sees all of it. (Plain data in closures and results: ThreadSanitizer watches the same test.)
#[test]
fn who_runs_a_fiber_sees_all_of_it() {
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(3).build().unwrap();
    let handle = runtime.handle();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let handle = handle.clone();
            scope.spawn(move || {
                for round in 0..300u64 {
                    let fibers: Vec<_> = (0..8u64)
                        .map(|i| {
                            let stamp = thread << 32 | round << 8 | i;
                            let (small, large) = ([stamp; 3], vec![stamp; 20]);
                            handle.spawn(move || {
                                assert!(small.iter().chain(&large).all(|value| *value == stamp), "torn");
                                // And once more from a worker to a worker.
                                let inner = fibra::spawn(move || large.iter().sum::<u64>());
                                (small[0], inner.join().unwrap())
                            })
                        })
                        .collect();
                    for (i, fiber) in fibers.into_iter().enumerate() {
                        let stamp = thread << 32 | round << 8 | i as u64;
                        assert_eq!(fiber.join().unwrap(), (stamp, stamp * 20));
                    }
                }
            });
        }
    });
}

// S4-116: what a waiter published before it parked is seen by its waker, and the other way round.
#[test]
fn both_sides_of_a_wait_see_each_other() {
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    for round in 0..2000u64 {
        // The value goes out in the closure, comes back in the result, and is looked at in between by a second joiner.
        let fiber = Arc::new(runtime.spawn(move || vec![round; 10]));
        let other = {
            let fiber = fiber.clone();
            runtime.spawn(move || fiber.wait())
        };
        fiber.wait();
        other.join().unwrap();
        let fiber = Arc::into_inner(fiber).expect("the other joiner is gone");
        assert_eq!(fiber.join().unwrap(), [round; 10]);
    }
}

// S0-16, S0-18: who is current is state of each worker: right after every switch, on all of them at once.
#[test]
fn every_worker_knows_who_is_current() {
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(3).build().unwrap();
    let fibers: Vec<_> = (0..200)
        .map(|_| {
            runtime.spawn(|| {
                let id = fibra::current().unwrap().id();
                for _ in 0..50 {
                    fibra::yield_now();
                    assert_eq!(fibra::current().unwrap().id(), id);
                }
                id
            })
        })
        .collect();
    for fiber in fibers {
        assert_eq!(fiber.id(), fiber.join().unwrap());
    }
}
