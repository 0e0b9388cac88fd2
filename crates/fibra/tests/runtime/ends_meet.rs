//! Ends that meet other things: spawns from outside, daemons, full runtimes, blocking calls, other runs of the same runtime.
#![allow(clippy::disallowed_types)] // Logs of the tests.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{within_a_minute, workers};
use fibra::{Builder, Runtime};

const HOUR: Duration = Duration::from_secs(3600);

// A daemon that has not started when its run ends is cancelled like one that has.
#[test]
fn an_unstarted_daemon_does_not_outlive_its_run() {
    within_a_minute(|| {
        fibra::run(|| {
            drop(Builder::new().daemon(true).spawn(|| fibra::sleep(HOUR)).unwrap());
        });
        for rt in [workers(1), workers(2), Runtime::current_thread().unwrap()] {
            rt.run(|| {
                drop(Builder::new().daemon(true).spawn(|| fibra::sleep(HOUR)).unwrap());
            });
            drop(rt);
        }
    });
}

// With one worker, a wake for work that it has found already must not leave it counted as searching.
#[test]
fn spawns_from_outside_reach_a_single_worker() {
    within_a_minute(|| {
        let rt = workers(1);
        for round in 0..20_000u32 {
            assert_eq!(rt.spawn(move || round).join().unwrap(), round);
        }
    });
}

// The cap on fibers does not keep a runtime from ending, nor a run from beginning.
#[test]
fn a_full_runtime_runs_and_ends() {
    within_a_minute(|| {
        for rt in [
            Runtime::builder().current_thread().max_fibers(1).build().unwrap(),
            Runtime::builder().workers(1).max_fibers(1).build().unwrap(),
        ] {
            let sleeper = rt.spawn(|| fibra::sleep(HOUR));
            rt.run(|| fibra::sleep(Duration::from_millis(2)));
            assert!(rt.spawn(|| ()).join().unwrap_err().is_cancelled());
            drop(rt);
            assert!(sleeper.is_finished());
            assert!(sleeper.join().unwrap_err().is_cancelled());
        }
    });
}

// Fibers that only call wakers were not admitted under the cap, so their end must not make room.
#[test]
fn wakers_do_not_raise_the_cap() {
    within_a_minute(|| {
        let rt = Runtime::builder().workers(1).max_fibers(4).build().unwrap();
        rt.run(|| {
            for _ in 0..10 {
                let child = fibra::spawn(|| fibra::sleep(Duration::from_millis(1)));
                fibra::block_on(async { child.await.unwrap() });
            }
            let children: Vec<_> = (0..20).map(|_| fibra::spawn(|| fibra::sleep(Duration::from_millis(20)))).collect();
            let refused = children.into_iter().map(|child| child.join()).filter(Result::is_err).count();
            assert_eq!(refused, 16, "of 20 under a cap of 4");
        });
    });
}

// Dropping a current-thread runtime on a fiber of another leaves that fiber where it was.
#[test]
fn a_runtime_dropped_on_a_fiber_of_another() {
    within_a_minute(|| {
        fibra::run(|| {
            let inner = Runtime::current_thread().unwrap();
            let child = inner.spawn(|| 1);
            drop(inner);
            assert!(child.join().is_err());
            assert!(fibra::current().is_some(), "this is a fiber");
            assert_eq!(fibra::spawn(|| 7).join().unwrap(), 7);
            let inner = workers(1);
            assert_eq!(inner.spawn(|| 2).join().unwrap(), 2);
            drop(inner);
            assert_eq!(fibra::spawn(|| 7).join().unwrap(), 7);
        });
    });
}

// The end of a fiber against joiners whose time is up in the same moment: the frame is not reused under the worker's hands.
#[test]
fn joins_that_time_out_at_the_end() {
    within_a_minute(|| {
        let rt = workers(2);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::SeqCst) {
                        let mut child = rt.spawn(|| fibra::sleep(Duration::from_micros(30)));
                        loop {
                            match child.join_timeout(Duration::from_micros(10)) {
                                Ok(result) => break result.unwrap(),
                                Err(again) => child = again,
                            }
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_secs(3));
            stop.store(true, Ordering::SeqCst);
        });
    });
}

// Dropping a runtime inside one of its own blocking calls would wait for itself: it is refused like on a fiber.
#[test]
fn a_runtime_dropped_in_its_own_blocking_call() {
    within_a_minute(|| {
        let rt = workers(1);
        let handle = rt.handle();
        let job = handle.spawn(move || fibra::blocking(move || drop(rt)));
        assert!(job.join().unwrap_err().is_panic());
    });
}

// A blocking call that is refused drops what it was given.
#[test]
fn a_refused_blocking_call_drops_its_closure() {
    within_a_minute(|| {
        fibra::run(|| {
            let token = Arc::new(());
            let inside = token.clone();
            let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                fibra::no_suspend(|| fibra::blocking(move || drop(inside)));
            }));
            assert!(refused.is_err());
            assert_eq!(Arc::strong_count(&token), 1);
        });
    });
}

// A guard kept in a thread-local is dropped when the thread's other locals may be gone.
#[test]
fn an_enter_guard_in_a_thread_local() {
    thread_local! {
        static GUARD: std::cell::RefCell<Option<fibra::EnterGuard>> = const { std::cell::RefCell::new(None) };
    }
    within_a_minute(|| {
        let rt = workers(1);
        for guard_first in [false, true] {
            let handle = rt.handle();
            let thread = std::thread::spawn(move || {
                if guard_first {
                    GUARD.with_borrow(|guard| assert!(guard.is_none()));
                }
                let guard = handle.enter();
                GUARD.set(Some(guard));
            });
            thread.join().unwrap();
        }
    });
}

// A future outside that awaits a fiber hears of its end when the run that saw it returns, not at the next run.
#[test]
fn an_end_in_a_current_thread_run_is_told_before_the_run_returns() {
    within_a_minute(|| {
        for yields in 0..8 {
            let rt = Runtime::current_thread().unwrap();
            let ended = Arc::new(AtomicBool::new(false));
            let awaited = {
                let ended = ended.clone();
                rt.spawn(move || {
                    (0..yields % 3).for_each(|_| fibra::yield_now());
                    ended.store(true, Ordering::SeqCst);
                })
            };
            let polled = Arc::new(AtomicBool::new(false));
            let waiter = {
                let polled = polled.clone();
                std::thread::spawn(move || {
                    let mut future = std::pin::pin!(awaited.into_future());
                    fibra::block_on(std::future::poll_fn(|cx| {
                        let poll = future.as_mut().poll(cx);
                        polled.store(true, Ordering::SeqCst);
                        poll
                    }))
                })
            };
            while !polled.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let other = rt.spawn(move || (0..yields / 3).for_each(|_| fibra::yield_now()));
            rt.run(|| other.join().unwrap());
            // Whether it has ended by now is the scheduler's affair; if it has, its waiter knows.
            if ended.load(Ordering::SeqCst) {
                waiter.join().unwrap().unwrap();
            }
        }
    });
}

// Several runs at once on recycled roots, with daemons, cancelled fibers and tasks; what each counts is its own.
#[test]
fn many_runs_at_once() {
    within_a_minute(|| {
        let rt = workers(3);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for n in 0..300u64 {
                        let sum = rt.run(|| {
                            let children: Vec<_> = (0..n % 20)
                                .map(|i| {
                                    fibra::spawn(move || {
                                        if i % 3 == 0 {
                                            fibra::yield_now();
                                        }
                                        i
                                    })
                                })
                                .collect();
                            if n % 4 == 0 {
                                let daemon = || loop {
                                    fibra::sleep(Duration::from_millis(1));
                                    drop(fibra::spawn(|| ()));
                                };
                                drop(Builder::new().daemon(true).spawn(daemon).unwrap());
                            }
                            if n % 7 == 0 {
                                drop(fibra::spawn(|| fibra::sleep(HOUR)).cancel_on_drop());
                            }
                            if n % 5 == 0 {
                                drop(fibra::spawn_future(async { fibra::yield_now() }));
                            }
                            children.into_iter().map(|child| child.join().unwrap()).sum::<u64>()
                        });
                        assert_eq!(sum, (0..n % 20).sum());
                    }
                });
            }
        });
    });
}

// Runtimes that end while threads outside spawn on them.
#[test]
fn runtimes_end_under_spawners() {
    within_a_minute(|| {
        for round in 0..100 {
            let rt = workers(1 + round % 3);
            let spawner = |handle: fibra::Handle| {
                move || {
                    for i in 0..50 {
                        let child = handle.spawn(move || fibra::sleep(Duration::from_millis(i % 2)));
                        if i % 3 == 0 {
                            let _ = child.join();
                        }
                    }
                }
            };
            let spawners: Vec<_> = (0..2).map(|_| std::thread::spawn(spawner(rt.handle()))).collect();
            std::thread::sleep(Duration::from_micros(300));
            drop(rt);
            spawners.into_iter().for_each(|spawner| spawner.join().unwrap());
        }
    });
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
