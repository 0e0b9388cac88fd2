//! Fibers that go on on other workers (`Builder::moving`) while scopes are open on them: `scope`, `timeout`, and what is around them.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::moving_fibers::{on_both_workers, start_moving, system_thread, with_moves};
use crate::support;
use fibra::channel::{Receiver, Sender};
use fibra::{Builder, Runtime, Scope, ScopeError};

const HOUR: Duration = Duration::from_secs(3600);

/// Yields, and says whether the fiber has gone on on another thread of the system.
fn moves() -> bool {
    let before = system_thread();
    fibra::yield_now();
    system_thread() != before
}

// It moves within scopes, inside one another, and within `timeout`; its children, wherever they are, are counted and joined.
#[test]
fn it_moves_within_scopes_and_timeouts() {
    let _watchdog = support::watchdog(120);
    with_moves(|| {
        for round in 0..50u64 {
            let sum = fibra::scope(|s| {
                assert!(moves() && moves());
                let first = s.spawn(move || round);
                assert!(moves());
                drop(s.spawn(fibra::yield_now));
                let inner = fibra::timeout(HOUR, || {
                    assert!(moves() && moves());
                    fibra::scope(|inner| {
                        let second = inner.spawn(|| (fibra::yield_now(), 2).1);
                        assert!(moves() && moves());
                        second.join().unwrap()
                    })
                });
                assert!(moves());
                first.join().unwrap() + inner.unwrap()
            });
            assert_eq!(sum, round + 2);
            assert!(moves());
        }
    });
}

// What is not every scope's concern is judged by the worker: a scope behind a shield keeps the fiber there.
#[test]
fn it_stays_in_a_scope_behind_a_shield() {
    let _watchdog = support::watchdog(60);
    with_moves(|| {
        fibra::scope(|_| {
            assert!(moves());
            fibra::shield(|| {
                assert!(!moves());
                fibra::scope(|_| assert!(!moves() && !moves()));
            });
            assert!(moves() && moves());
        });
    });
}

/// Starts one that waits in scopes; `waits` is called there, and what it waits for comes from a hog on the worker where it waits, which
/// computes from then on until `waits` has set the flag.
/// `count`: so many fibers wait then. Each but the first says, by the sender, that it has begun.
fn beside_a_hog(count: u64, waits: impl FnOnce(&AtomicBool, Receiver<()>, Sender<i32>) + Send + 'static) {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(2).max_workers(2).build().unwrap();
    // (From a thread that is no worker: nothing but what is said is on the two.)
    let _entered = runtime.handle().enter();
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, told) = fibra::channel::unbounded::<i32>();
    let (tx, rx) = fibra::channel::unbounded::<()>();
    let fiber = {
        let stop = stop.clone();
        start_moving(move || {
            tell.send(system_thread()).unwrap();
            waits(&stop, rx, tell);
        })
    };
    let Some(fiber) = fiber else { return };
    let thread = told.recv().unwrap();
    // (Before it has begun it waits for its thread-locals; until it waits then it counts on its worker.)
    (1..count).for_each(|_| _ = told.recv().unwrap());
    support::eventually(|| runtime.metrics().parked == count, || format!("{:?}", runtime.metrics()));
    let hogs = on_both_workers(thread, {
        let stop = stop.clone();
        move |is_home| {
            if is_home {
                tx.send(()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
        }
    });
    fiber.join().unwrap();
    hogs.into_iter().for_each(|hog| hog.join().unwrap());
}

// S1-94: woken on a worker that makes no progress, it goes on on another one, and so comes to its end.
#[test]
fn a_hog_does_not_strand_a_fiber_in_a_scope() {
    beside_a_hog(1, |stop, rx, _| {
        let got = fibra::timeout(HOUR, || fibra::scope(|_| rx.recv()));
        stop.store(true, Ordering::Relaxed);
        got.unwrap().unwrap();
    });
}

// S1-94: the same while it waits for its children, or joins one. (That child moves, too: it would be stranded itself.)
#[test]
fn a_hog_does_not_strand_a_fiber_at_the_end_of_a_scope() {
    for joins in [false, true] {
        beside_a_hog(2, move |stop, rx, tell| {
            fibra::scope(|s| {
                let body = move || {
                    tell.send(system_thread()).unwrap();
                    rx.recv().unwrap();
                };
                // SAFETY: as in `start_moving`.
                let child = unsafe { Builder::new().own_locals().moving() }.spawn_scoped(s, body);
                let child = child.unwrap();
                if joins {
                    child.join().unwrap();
                }
            });
            stop.store(true, Ordering::Relaxed);
        });
    }
}

// S1-94, S1-103: the deadline of its scope is kept although the worker on which it was opened makes no progress.
#[test]
fn a_hog_does_not_hold_up_a_timeout() {
    beside_a_hog(1, |stop, _, _| {
        let (_kept, never) = fibra::channel::bounded::<()>(1);
        let late = fibra::timeout(Duration::from_millis(200), || never.recv());
        stop.store(true, Ordering::Relaxed);
        assert!(late.is_err());
    });
}

// S1-94: it is cancelled there by the panic of its child, which another worker runs.
#[test]
fn a_childs_panic_reaches_it_wherever_it_is() {
    let _watchdog = support::watchdog(120);
    with_moves(|| {
        for _ in 0..200 {
            let (_kept, never) = fibra::channel::bounded::<()>(1);
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                fibra::scope(|s| {
                    drop(s.spawn(|| {
                        fibra::yield_now();
                        resume_unwind(Box::new("on purpose"));
                    }));
                    assert!(moves());
                    _ = never.recv();
                    unreachable!("nothing is sent");
                });
            }));
            assert_eq!(*panicked.unwrap_err().downcast_ref::<&str>().unwrap(), "on purpose");
            assert!(moves());
        }
    });
}

// A child that ends its owner's wait and then panics: the owner, which was not waiting any more, joins it and takes the panic, and the
// scope goes on. Whichever worker lets the owner go at that moment must not take the panic for a reason to end that wait, which is over.
#[test]
fn stress_a_join_takes_the_panic_of_a_child_that_ended_the_wait_before() {
    let _watchdog = support::watchdog(120);
    Runtime::builder().workers(3).build().unwrap().run(|| {
        let fibers: Vec<_> = (0..4)
            .filter_map(|_| {
                start_moving(|| {
                    for round in 0..300u32 {
                        // (A rendezvous: the child is past `send` when the owner has got the value, and not before.)
                        let (tx, rx) = fibra::channel::bounded::<u32>(0);
                        let got = fibra::scope(|s| {
                            let child = s.spawn(move || {
                                tx.send(round).unwrap();
                                resume_unwind(Box::new("on purpose"));
                            });
                            let got = rx.recv().unwrap();
                            assert!(!child.join().unwrap_err().is_cancelled());
                            fibra::yield_now();
                            got
                        });
                        assert_eq!(got, round);
                    }
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
}

// Told to come to an end: a scope that a child of the drained scope has opened, wherever that child is, and whatever it is just opening.
#[test]
fn stress_draining_reaches_scopes_of_children_that_move() {
    let _watchdog = support::watchdog(120);
    Runtime::builder().workers(3).force_moves().build().unwrap().run(|| {
        for round in 0..150 {
            let begun = AtomicUsize::new(0);
            fibra::scope(|s| {
                let body = || {
                    begun.fetch_add(1, Ordering::Relaxed);
                    fibra::yield_now();
                    fibra::scope(|inner| {
                        fibra::yield_now();
                        // Its own wait, and that of a child of its own, which does not move.
                        let child = inner.spawn(|| fibra::select! { draining() => () });
                        fibra::scope(|_| fibra::select! { draining() => () });
                        child.join().unwrap();
                    });
                };
                // SAFETY: as in `start_moving`.
                let children = (0..3).map(|_| unsafe { Builder::new().own_locals().moving() }.spawn_scoped(s, body));
                let children: Vec<_> = children.filter_map(Result::ok).collect();
                while begun.load(Ordering::Relaxed) < children.len() {
                    fibra::yield_now();
                }
                (0..round % 6).for_each(|_| fibra::yield_now());
                s.drain(HOUR);
                children.into_iter().for_each(|child| child.join().unwrap());
            });
        }
    });
}

// The time that a cancelled scope gives to shields ends for the children of scopes inside, which belong to a child that moves.
#[test]
fn a_grace_ends_for_what_is_inside_a_child_that_moves() {
    let _watchdog = support::watchdog(120);
    Runtime::builder().workers(3).force_moves().build().unwrap().run(|| {
        for _ in 0..20 {
            let moment = Duration::from_millis(2);
            let outcome = Scope::builder().timeout(moment).grace(moment).run(|s| {
                let body = || {
                    fibra::scope(|inner| {
                        inner.spawn(|| fibra::shield(|| fibra::sleep(HOUR)));
                        fibra::yield_now();
                        fibra::sleep(HOUR);
                    });
                };
                // SAFETY: as in `start_moving`.
                let child = unsafe { Builder::new().own_locals().moving() }.spawn_scoped(s, body);
                match child {
                    Ok(child) => _ = child.join(),
                    Err(_) => fibra::sleep(HOUR),
                }
            });
            assert_eq!(outcome.unwrap_err(), ScopeError::TimedOut);
        }
    });
}

// Cancelled by its handle, by a token of its scope, by its deadline, from any worker and at any moment: it ends, its children end, and what
// is not cancelled goes on.
#[test]
fn stress_cancellation_while_it_moves() {
    let _watchdog = support::watchdog(120);
    Runtime::builder().workers(3).build().unwrap().run(|| {
        let children = Arc::new(AtomicUsize::new(0));
        struct Ends(Arc<AtomicUsize>);
        impl Drop for Ends {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        for round in 0..60u64 {
            let tokens: Vec<_> = (0..4).map(|_| fibra::CancelToken::new()).collect();
            let fibers: Vec<_> = (0..4)
                .filter_map(|number| {
                    let (children, token) = (children.clone(), tokens[number].clone());
                    start_moving(move || {
                        let outcome = Scope::builder().token(token).run(|s| {
                            loop {
                                children.fetch_add(1, Ordering::Relaxed);
                                let ends = Ends(children.clone());
                                let child = s.spawn(move || {
                                    let _ends = ends;
                                    fibra::sleep(Duration::from_micros(20));
                                });
                                let late = fibra::timeout(Duration::from_micros(30), || {
                                    fibra::yield_now();
                                    fibra::sleep(HOUR);
                                });
                                assert!(late.is_err());
                                assert!(fibra::timeout(HOUR, fibra::yield_now).is_ok());
                                let _ = child.join();
                            }
                        });
                        let ended: Result<(), ScopeError> = outcome;
                        assert_eq!(ended.unwrap_err(), ScopeError::Cancelled);
                        fibra::yield_now();
                        fibra::timeout(HOUR, || fibra::sleep(HOUR)).unwrap();
                    })
                })
                .collect();
            fibra::sleep(Duration::from_micros(50 * (round % 7)));
            tokens.iter().for_each(fibra::CancelToken::cancel);
            fibra::sleep(Duration::from_micros(50 * (round % 5)));
            fibers.iter().for_each(fibra::JoinHandle::cancel);
            for fiber in fibers {
                assert!(fiber.join().unwrap_err().is_cancelled());
            }
            assert_eq!(children.load(Ordering::Relaxed), 0);
        }
    });
}

/// Holds the processor for so long.
fn spin(time: Duration) {
    let began = fibra::time::Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

// Within `join` a fiber that moves stays; if a drain comes just then, the list of no worker may have it by the time that worker is asked.
#[test]
fn stress_draining_reaches_a_child_that_moves_and_joins() {
    let _watchdog = support::watchdog(120);
    for round in 0..40u64 {
        Runtime::builder().workers(3).max_workers(3).build().unwrap().run(|| {
            let begun = AtomicBool::new(false);
            fibra::scope(|s| {
                let body = || {
                    fibra::scope(|inner| {
                        begun.store(true, Ordering::SeqCst);
                        while !inner.is_draining() {
                            fibra::join(|| spin(Duration::from_micros(300)), || ());
                            fibra::yield_now();
                        }
                    });
                };
                // SAFETY: as in `start_moving`.
                let moving = unsafe { Builder::new().own_locals().moving() };
                let Ok(child) = moving.spawn_scoped(s, body) else { return };
                while !begun.load(Ordering::SeqCst) {
                    fibra::yield_now();
                }
                fibra::sleep(Duration::from_micros(500 + 97 * round));
                s.drain(HOUR);
                child.join().unwrap();
            });
        });
    }
}

struct Yields;

impl Clone for Yields {
    fn clone(&self) -> Self {
        fibra::yield_now();
        Yields
    }
}

fibra::fiber_local! {
    inherit static YIELDS: Yields = Yields;
}

// What a child inherits is cloned by the program's own code, which may wait: the spawner comes back on another worker, in the middle of a
// spawn.
#[test]
fn a_clone_for_a_child_may_move_the_spawner() {
    let _watchdog = support::watchdog(120);
    Runtime::builder().workers(3).max_workers(3).force_moves().build().unwrap().run(|| {
        let spawners: Vec<_> = (0..4)
            .filter_map(|_| {
                start_moving(|| {
                    YIELDS.with(|_| ());
                    for round in 0..2000u64 {
                        let sum = fibra::scope(|s| {
                            let all: Vec<_> = (0..4u64).map(|number| s.spawn(move || round + number)).collect();
                            all.into_iter().map(|one| one.join().unwrap()).sum::<u64>()
                        });
                        assert_eq!(sum, 4 * round + 6);
                        fibra::spawn(|| ()).join().unwrap();
                    }
                })
            })
            .collect();
        spawners.into_iter().for_each(|spawner| spawner.join().unwrap());
    });
}
