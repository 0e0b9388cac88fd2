//! When `run` returns, and when a runtime ends: with all fibers, without the daemons, from many threads, at any moment.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support::{self, eventually, watchdog, workers};
use crate::tools::{Event, Rng, many, turns};

const FOR_EVER: Duration = Duration::from_secs(36_000);

/// Spawns a tree of detached fibers; counts those that have ended.
fn detached_tree(depth: u32, ended: &Arc<AtomicUsize>) {
    for child in 0..2 {
        let ended = ended.clone();
        drop(fibra::spawn(move || {
            if depth > 1 {
                detached_tree(depth - 1, &ended);
            }
            if child == 0 {
                fibra::sleep(Duration::from_micros(50));
            }
            ended.fetch_add(1, SeqCst);
        }));
    }
}

// S0-64: `run` returns when no fiber is left, detached or not, and not before; each kind of runtime.
#[test]
fn run_waits_for_every_fiber() {
    let _watchdog = watchdog(120);
    for _ in 0..20 {
        let ended = Arc::new(AtomicUsize::new(0));
        fibra::run(|| detached_tree(6, &ended));
        assert_eq!(ended.load(SeqCst), 126);
        workers(3).run(|| detached_tree(6, &ended));
        assert_eq!(ended.load(SeqCst), 252);
        fibra::Runtime::current_thread().unwrap().run(|| detached_tree(6, &ended));
        assert_eq!(ended.load(SeqCst), 378);
    }
}

// S0-64: each run waits for its own; runs of many threads on one runtime do not wait for one another.
#[test]
fn runs_of_many_threads_are_independent() {
    let _watchdog = watchdog(120);
    let rt = workers(2);
    let release = Event::new();
    std::thread::scope(|scope| {
        let held = release.clone();
        let rt = &rt;
        let first = scope.spawn(move || rt.run(move || drop(fibra::spawn(move || held.wait()))));
        let others: Vec<_> = (0..8)
            .map(|thread| {
                scope.spawn(move || {
                    for round in 0..turns(50) {
                        let ended = Arc::new(AtomicUsize::new(0));
                        let value = rt.run(|| {
                            detached_tree(3, &ended);
                            fibra::spawn(move || thread * round).join().unwrap()
                        });
                        assert_eq!((value, ended.load(SeqCst)), (thread * round, 14));
                    }
                })
            })
            .collect();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(!first.is_finished(), "it waits for its own fiber, which waits for us");
        release.set();
        first.join().unwrap();
    });
    assert_eq!(rt.metrics().live, 0);
}

// Daemons do not hold up a run; they are cancelled then, whether they had started or not.
#[test]
fn daemons_do_not_hold_up_run() {
    let _watchdog = watchdog(120);
    for _ in 0..turns(100) {
        let held = Arc::new(());
        let daemons = |count: usize| {
            for _ in 0..count {
                let held = held.clone();
                let daemon = move || {
                    fibra::sleep(FOR_EVER);
                    drop(held);
                };
                drop(fibra::Builder::new().daemon(true).spawn(daemon).unwrap());
            }
        };
        fibra::run(|| {
            daemons(3);
            fibra::yield_now();
        });
        fibra::run(|| daemons(3));
        assert_eq!(Arc::strong_count(&held), 1, "their stacks were unwound");
    }
}

// The same on a runtime that goes on: the daemons of a run end soon after it, and the next run is not disturbed.
#[test]
fn daemons_of_a_run_end_while_the_runtime_goes_on() {
    let _watchdog = watchdog(120);
    let rt = workers(2);
    let held = Arc::new(());
    for round in 0..turns(100) {
        rt.run(|| {
            for _ in 0..3 {
                let held = held.clone();
                let daemon = move || {
                    fibra::sleep(FOR_EVER);
                    drop(held);
                };
                drop(fibra::Builder::new().daemon(true).spawn(daemon).unwrap());
            }
            if round % 2 == 0 {
                fibra::yield_now();
            }
        });
    }
    eventually(|| Arc::strong_count(&held) == 1, || format!("{:?}", rt.metrics()));
    eventually(|| rt.metrics().live == 0, || format!("{:?}", rt.metrics()));
}

// A daemon of the runtime itself (spawned from outside) stays until the runtime goes, and then goes.
#[test]
fn daemons_end_with_the_runtime() {
    let _watchdog = watchdog(120);
    for round in 0..turns(100) {
        let rt = workers(2);
        let held = Arc::new(());
        for _ in 0..5 {
            let held = held.clone();
            let daemon = move || {
                fibra::sleep(FOR_EVER);
                drop(held);
            };
            drop(rt.handle().spawn_with(fibra::Builder::new().daemon(true), daemon).unwrap());
        }
        if round % 2 == 0 {
            eventually(|| rt.metrics().parked == 5, || format!("{:?}", rt.metrics()));
        }
        drop(rt);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}

// A root that panics cancels its fibers, waits for them, and panics with the same.
#[test]
fn a_failed_root_cancels_and_waits() {
    let _watchdog = watchdog(120);
    for workers in [1, 3] {
        let rt = support::workers(workers);
        let held = Arc::new(());
        let run = || {
            rt.run(|| {
                for _ in 0..many(100) {
                    let held = held.clone();
                    drop(fibra::spawn(move || {
                        fibra::sleep(FOR_EVER);
                        drop(held);
                    }));
                }
                fibra::yield_now();
                resume_unwind(Box::new("root"))
            })
        };
        let payload = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"root"));
        assert_eq!(Arc::strong_count(&held), 1);
        assert_eq!(rt.run(|| 1), 1, "the runtime goes on");
    }
}

/// Everything at once, for ever: spawners, sleepers, blockers, tasks, waiters, computing ones.
fn busy(handle: &fibra::Handle, rng: &mut Rng, held: &Arc<()>) {
    for _ in 0..2 {
        let inside = held.clone();
        drop(handle.spawn(move || {
            let _inside = inside;
            loop {
                let child = fibra::spawn(|| fibra::spawn(fibra::yield_now).join());
                // A refused child says that it was cancelled; this fiber is then cancelled itself at the next wait.
                drop(child.join());
            }
        }));
    }
    for _ in 0..20 {
        let (inside, micros) = (held.clone(), rng.below(300) as u64);
        drop(handle.spawn(move || {
            let _inside = inside;
            loop {
                fibra::sleep(Duration::from_micros(micros + 1));
            }
        }));
    }
    for _ in 0..3 {
        let inside = held.clone();
        drop(handle.spawn(move || {
            let _inside = inside;
            loop {
                fibra::blocking(|| std::thread::sleep(Duration::from_micros(100)));
            }
        }));
    }
    let _entered = handle.enter();
    for _ in 0..5 {
        let (inside, event) = (held.clone(), Event::new());
        drop(fibra::spawn_future(async move {
            let _inside = inside;
            event.happened().await;
        }));
        let inside = held.clone();
        drop(fibra::spawn_future(async move {
            let _inside = inside;
            loop {
                let mut polled = false;
                std::future::poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    if std::mem::replace(&mut polled, true) {
                        return std::task::Poll::Ready(());
                    }
                    std::task::Poll::Pending
                })
                .await;
            }
        }));
    }
    for _ in 0..2 {
        let inside = held.clone();
        drop(handle.spawn(move || {
            let _inside = inside;
            loop {
                fibra::yield_now();
            }
        }));
    }
}

// S0-66, S0-72: shutdown while everything is busy, at a random moment, two hundred times; every stack is unwound.
#[test]
fn shutdown_while_everything_is_busy() {
    let _watchdog = watchdog(240);
    let mut rng = Rng::new();
    for round in 0..turns(200) {
        let rt = workers(1 + round % 3);
        let held = Arc::new(());
        busy(&rt.handle(), &mut rng, &held);
        // At once, a little later, or after others had the processor.
        (0..rng.below(1_000)).for_each(|_| std::hint::spin_loop());
        (0..rng.below(4)).for_each(|_| std::thread::yield_now());
        if round % 2 == 0 {
            drop(rt);
        } else {
            rt.shutdown_timeout(FOR_EVER).unwrap();
        }
        assert_eq!(Arc::strong_count(&held), 1, "round {round}");
    }
}

// S0-66: threads spawn and run all the while: whatever comes too late is refused, and says so.
#[test]
fn shutdown_while_threads_spawn() {
    let _watchdog = watchdog(120);
    for _ in 0..turns(100) {
        let rt = workers(2);
        let handle = rt.handle();
        let spawners: Vec<_> = (0..2)
            .map(|_| {
                let handle = handle.clone();
                std::thread::spawn(move || {
                    let mut done = 0;
                    loop {
                        match handle.spawn(|| ()).join() {
                            Ok(()) => done += 1,
                            Err(error) => {
                                assert!(error.is_cancelled(), "{error}");
                                return done;
                            }
                        }
                    }
                })
            })
            .collect();
        while rt.metrics().spawned < 10 {
            std::thread::yield_now();
        }
        drop(rt);
        assert!(spawners.into_iter().map(|spawner| spawner.join().unwrap()).sum::<u32>() > 0);
    }
}
