//! Scopes through the public API: borrowing, results, errors, panics, deadlines, tokens, draining, shields, on fibers and on threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support;
use fibra::channel::{bounded, rendezvous, unbounded};
use fibra::{CancelReason, CancelToken, Runtime, Scope, ScopeError, TryScopeError};

const LONG: Duration = Duration::from_secs(3600);

fn message(payload: &(dyn std::any::Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("?")
}

// S4-01, S4-13, S4-14, S4-17: children borrow, the scope ends after them.
#[test]
fn children_borrow_and_are_waited_for() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let mut sums = [0_u64; 100];
        let base = String::from("abc");
        let value = fibra::scope(|s| {
            for (index, sum) in sums.iter_mut().enumerate() {
                let base = &base;
                s.spawn(move || {
                    fibra::yield_now();
                    *sum = (index + base.len()) as u64;
                });
            }
            7
        });
        assert_eq!(value, 7);
        assert!(sums.iter().enumerate().all(|(index, sum)| *sum == index as u64 + 3));
    });
}

#[test]
fn on_a_plain_thread() {
    let rt = Runtime::builder().workers(2).build().unwrap();
    let _entered = rt.handle().enter();
    let count = AtomicUsize::new(0);
    fibra::scope(|s| {
        for _ in 0..100 {
            s.spawn(|| {
                fibra::sleep(Duration::from_millis(1));
                count.fetch_add(1, SeqCst);
                s.spawn(|| count.fetch_add(1, SeqCst));
            });
        }
    });
    assert_eq!(count.load(SeqCst), 200);
    // The body of a thread's scope is cancelled like any other.
    let (_tx, rx) = rendezvous::<()>();
    assert!(fibra::timeout(Duration::from_millis(5), || rx.recv()).is_err());
    let caught = catch_unwind(AssertUnwindSafe(|| {
        fibra::scope(|s| {
            s.spawn(|| std::panic::resume_unwind(Box::new("child")));
            rx.recv()
        })
    }));
    assert_eq!(message(&*caught.unwrap_err()), "child");
    // And nothing is left of it.
    assert!(rx.recv_timeout(Duration::from_millis(1)).is_err());
}

#[test]
fn a_panic_cancels_siblings_and_body_and_is_raised_again() {
    fibra::run(|| {
        let (_tx, rx) = rendezvous::<()>();
        let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        struct Count<'a>(&'a AtomicUsize);
        impl Drop for Count<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, SeqCst);
            }
        }
        let caught = catch_unwind(AssertUnwindSafe(|| {
            fibra::scope(|s| {
                for _ in 0..10 {
                    s.spawn(|| {
                        let _count = Count(&ended);
                        begun.fetch_add(1, SeqCst);
                        fibra::sleep(LONG);
                    });
                }
                // The handle is kept, and not joined: the body waits for something else.
                let _handle = s.spawn(|| {
                    // Siblings that have not begun would not run at all.
                    while begun.load(SeqCst) < 10 {
                        fibra::sleep(Duration::from_micros(100));
                    }
                    std::panic::resume_unwind(Box::new("first"))
                });
                let _count = Count(&ended);
                let _ = rx.recv();
            });
        }));
        assert_eq!(message(&*caught.unwrap_err()), "first");
        assert_eq!(ended.load(SeqCst), 11);
    });
}

#[test]
fn a_joined_panic_concerns_its_joiner_only() {
    for workers in [1, 2] {
        let rt = Runtime::builder().workers(workers).build().unwrap();
        for _ in 0..100 {
            let value = rt.run(|| {
                fibra::scope(|s| {
                    let sibling = s.spawn(|| {
                        fibra::sleep(Duration::from_millis(1));
                        5
                    });
                    let failing = s.spawn(|| -> u32 { std::panic::resume_unwind(Box::new("taken")) });
                    assert_eq!(failing.join().unwrap_err().message(), "taken");
                    sibling.join().unwrap()
                })
            });
            assert_eq!(value, 5);
        }
    }
}

#[test]
fn try_scope_gives_the_first_error() {
    fibra::run(|| {
        let text = String::from("borrowed");
        let result: Result<usize, Box<dyn std::error::Error + Send + Sync>> = fibra::try_scope(|s| {
            let a = s.spawn(|| Ok(text.len()));
            let b = s.spawn(|| Ok("12".parse::<usize>()?));
            Ok(a.join()? + b.join()?)
        });
        assert_eq!(result.unwrap(), 20);
        let result: Result<(), Box<dyn std::error::Error + Send + Sync>> = fibra::try_scope(|s| {
            s.spawn(|| {
                fibra::sleep(LONG);
                Ok(())
            });
            s.spawn(|| Err("no".into()) as Result<(), _>);
            fibra::sleep(LONG);
            Ok(())
        });
        assert_eq!(result.unwrap_err().to_string(), "no");
        let begun = AtomicUsize::new(0);
        let result = Scope::builder().try_run(|s| {
            for n in 0..5 {
                let begun = &begun;
                s.spawn(move || {
                    fibra::shield(|| -> Result<(), u32> {
                        // Those that have not begun when the first one fails never do.
                        begun.fetch_add(1, SeqCst);
                        while begun.load(SeqCst) < 5 + n as usize {
                            fibra::yield_now();
                        }
                        begun.fetch_add(1, SeqCst);
                        Err(n)
                    })
                });
            }
            fibra::sleep(LONG);
            Ok(())
        });
        match result.unwrap_err() {
            TryScopeError::Failed { first, others } => {
                assert_eq!(first, 0);
                assert_eq!(others, [1, 2, 3, 4]);
            }
            other => panic!("{other:?}"),
        }
    });
}

// C-26: cancelling is eager, however deep.
#[test]
fn deadlines_nest_and_reach_everything_inside() {
    fibra::run(|| {
        let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let tree = |limit: Duration| {
            fibra::scope(|outer| {
                for _ in 0..3 {
                    outer.spawn(|| {
                        assert!(fibra::remaining().unwrap() <= limit);
                        fibra::scope(|inner| {
                            for _ in 0..3 {
                                inner.spawn(|| {
                                    struct Count<'a>(&'a AtomicUsize);
                                    impl Drop for Count<'_> {
                                        fn drop(&mut self) {
                                            self.0.fetch_add(1, SeqCst);
                                        }
                                    }
                                    let _count = Count(&ended);
                                    begun.fetch_add(1, SeqCst);
                                    fibra::sleep(LONG);
                                });
                            }
                            // The body is over: it waits for its children.
                        });
                    });
                }
            });
        };
        let soon = Duration::from_millis(10);
        let outcome = fibra::timeout(soon, || tree(soon));
        assert!(outcome.is_err());
        // (Those that have not begun by then are not started.)
        assert_eq!(ended.load(SeqCst), begun.load(SeqCst));
        // The same by a token, when all of them have begun.
        begun.store(0, SeqCst);
        ended.store(0, SeqCst);
        let token = CancelToken::new();
        let outcome = fibra::scope(|s| {
            s.spawn(|| {
                while begun.load(SeqCst) < 9 {
                    fibra::sleep(Duration::from_micros(100));
                }
                token.cancel();
            });
            Scope::builder().token(token.clone()).timeout(LONG).run(|_| tree(LONG))
        });
        assert_eq!(outcome, Err(ScopeError::Cancelled));
        assert_eq!(ended.load(SeqCst), 9);
        assert_eq!(fibra::remaining(), None);
        assert!(!fibra::is_cancelled());
        fibra::sleep(Duration::from_millis(1));
        // An outer deadline passes through an inner scope that has its own.
        let outer = fibra::timeout(Duration::from_millis(5), || fibra::timeout(LONG, || fibra::sleep(LONG)));
        assert!(outer.is_err());
        let inner = fibra::timeout(LONG, || fibra::timeout(Duration::from_millis(5), || fibra::sleep(LONG)));
        assert!(inner.unwrap().is_err());
    });
}

#[test]
fn a_timeout_works_inside_a_shield_which_holds_the_rest_off() {
    fibra::run(|| {
        let (_tx, rx) = rendezvous::<()>();
        let outcome = fibra::timeout(Duration::from_millis(5), || {
            fibra::shield(|| {
                let inner = fibra::timeout(Duration::from_millis(20), || rx.recv());
                assert!(inner.is_err() && fibra::is_cancelled());
                fibra::sleep(Duration::from_millis(1));
            });
            fibra::sleep(LONG);
        });
        assert!(outcome.is_err());
    });
}

#[test]
fn tokens_cancel_scopes_and_say_why() {
    fibra::run(|| {
        let token = CancelToken::new();
        let (begins, begun) = unbounded();
        let outcome = fibra::scope(|s| {
            let child = token.child();
            let handle = s.spawn(|| {
                Scope::builder().token(child).run(|s| {
                    s.spawn(|| {
                        begins.send(()).unwrap();
                        fibra::select! {
                            cancelled() -> why => assert_eq!(why, CancelReason::from("enough")),
                        }
                    });
                    fibra::select! {
                        cancelled() -> why => why,
                    }
                })
            });
            // What was cancelled before it began would not run at all.
            begun.recv().unwrap();
            token.cancel_with("enough");
            handle.join().unwrap()
        });
        assert_eq!(outcome, Ok(CancelReason::from("enough")));
        let outcome = Scope::builder().token(token).run(|_| fibra::sleep(LONG));
        assert_eq!(outcome, Err(ScopeError::Cancelled));
    });
}

#[test]
fn draining_reaches_nested_scopes_and_is_followed_by_cancellation() {
    fibra::run(|| {
        let (tx, rx) = unbounded();
        fibra::scope(|s| {
            s.spawn(|| {
                fibra::scope(|inner| {
                    inner.spawn(|| {
                        tx.send("there").unwrap();
                        fibra::select! { draining() => tx.send("inner").unwrap() }
                    });
                });
            });
            assert_eq!(rx.recv(), Ok("there"));
            // Over as soon as the children are, which the inner one decides.
            s.drain(LONG);
            assert_eq!(rx.recv(), Ok("inner"));
        });
        fibra::scope(|s| {
            let stubborn = s.spawn(|| fibra::sleep(LONG));
            s.drain(Duration::from_millis(5));
            assert_eq!(stubborn.join().unwrap_err().cancel_reason(), Some(CancelReason::Drained));
        });
    });
}

#[test]
fn at_most_so_many_at_once() {
    for workers in [1, 2] {
        let rt = Runtime::builder().workers(workers).build().unwrap();
        rt.run(|| {
            let (running, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
            let outcome = Scope::builder().max_concurrency(3).run(|s| {
                for _ in 0..100 {
                    s.spawn(|| {
                        most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                        fibra::yield_now();
                        running.fetch_sub(1, SeqCst);
                        done.fetch_add(1, SeqCst);
                    });
                }
            });
            assert_eq!(outcome, Ok(()));
            assert!(most.load(SeqCst) <= 3 && done.load(SeqCst) == 100);
            // Those that wait for their turn are cancelled too.
            Scope::builder()
                .max_concurrency(1)
                .run(|s| {
                    let handles: Vec<_> = (0..10).map(|_| s.spawn(|| fibra::sleep(LONG))).collect();
                    s.cancel();
                    assert!(handles.into_iter().all(|handle| handle.join().unwrap_err().is_cancelled()));
                })
                .unwrap();
        });
    }
}

#[test]
fn grace_ends_a_shield() {
    fibra::run(|| {
        let outcome = Scope::builder().timeout(Duration::from_millis(2)).grace(Duration::from_millis(5)).run(|s| {
            s.spawn(|| fibra::shield(|| fibra::sleep(LONG)));
            fibra::shield(|| fibra::sleep(LONG));
        });
        assert_eq!(outcome, Err(ScopeError::TimedOut));
        fibra::shield(|| fibra::sleep(Duration::from_millis(1)));
        assert!(!fibra::is_cancelled());
    });
}

// Closures that do not fit into a frame are in the scope's arena: none is lost or mixed up.
#[test]
fn large_closures_and_many_siblings() {
    fibra::run(|| {
        let total = AtomicUsize::new(0);
        fibra::scope(|s| {
            for n in 0..1000_usize {
                let large = [n; 64];
                let total = &total;
                s.spawn(move || {
                    let again = [large[63]; 100];
                    s.spawn(move || total.fetch_add(again[99], SeqCst));
                });
            }
        });
        assert_eq!(total.load(SeqCst), 499_500);
    });
}

#[test]
fn isolated_panics_are_counted() {
    fibra::run(|| {
        let panics = Scope::builder().isolate().run(|s| {
            let children = [(); 3].map(|()| s.spawn(|| std::panic::resume_unwind(Box::new("alone"))));
            children.into_iter().for_each(|child| drop(child.join().unwrap_err()));
            s.panics()
        });
        assert_eq!(panics, Ok(3));
    });
}

// S4-02, S4-03: channels of a cancelled scope stay usable by others.
#[test]
fn channels_live_on() {
    fibra::run(|| {
        let (tx, rx) = bounded(1);
        fibra::scope(|s| {
            for n in 0..10 {
                let tx = tx.clone();
                s.spawn(move || {
                    for _ in 0.. {
                        tx.send(n).unwrap();
                    }
                });
            }
            for _ in 0..100 {
                rx.recv().unwrap();
            }
            s.cancel();
        });
        while rx.try_recv().is_ok() {}
        tx.send(77).unwrap();
        assert_eq!(rx.recv(), Ok(77));
    });
}

// peers that hold each other's ends, and say good-bye in their destructors, are taken down together: neither waits for the other.
#[test]
fn mutual_teardown_does_not_block() {
    use fibra::channel::{Receiver, Sender};
    struct Peer {
        to: Sender<&'static str>,
        from: Receiver<&'static str>,
    }
    impl Drop for Peer {
        fn drop(&mut self) {
            // A courtesy, not a duty: to a peer that is going too there is no receiver to take it.
            let _ = self.to.try_send("good-bye");
            self.from.close();
        }
    }
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        for _ in 0..200 {
            let ((a, b), (c, d)) = (rendezvous(), bounded(1));
            let (left, right) = (Peer { to: a, from: d }, Peer { to: c, from: b });
            fibra::scope(|s| {
                for peer in [left, right] {
                    s.spawn(move || {
                        while let Ok(word) = peer.from.recv() {
                            let _ = peer.to.send(word);
                        }
                    });
                }
                fibra::yield_now();
                s.cancel();
            });
        }
    });
}

// A scope that has cancelled its children itself misses nothing of them if it is cancelled from outside while it waits for their end.
#[test]
fn a_value_survives_cancellation_after_the_scope_has_cancelled_its_children() {
    let _watchdog = support::watchdog(60);
    struct Slow(fibra::channel::Sender<()>, fibra::channel::Receiver<()>);
    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            self.1.recv().unwrap();
        }
    }
    fibra::run(|| {
        let token = CancelToken::new();
        let ((started, has_started), (unwinds, has_unwound), (go, gone)) = (bounded(1), bounded(1), bounded(1));
        let button = token.clone();
        let canceller = fibra::spawn(move || {
            has_unwound.recv().unwrap();
            button.cancel();
            go.send(()).unwrap();
        });
        let outcome = Scope::builder().token(token).run(|_| {
            fibra::scope(|s| {
                s.spawn(move || {
                    let _slow = Slow(unwinds, gone);
                    started.send(()).unwrap();
                    fibra::sleep(LONG);
                });
                has_started.recv().unwrap();
                s.cancel();
                7
            })
        });
        assert_eq!(outcome, Ok(7));
        canceller.join().unwrap();
    });
}

// Decision 28: the joiner of a child takes its panic, whichever of the two was faster; by handle, by select and by a set.
#[test]
fn a_joined_panic_is_taken_whichever_side_is_faster() {
    let _watchdog = support::watchdog(120);
    let many = || {
        for round in 0..3000 {
            fibra::scope(|s| {
                let failing = s.spawn(move || {
                    (0..round % 3).for_each(|_| std::hint::spin_loop());
                    std::panic::resume_unwind(Box::new("taken"))
                });
                let result: Result<(), _> = match round % 4 {
                    0 => failing.join(),
                    1 => failing.join_timeout(LONG).unwrap(),
                    2 => fibra::select! { join(failing) -> result => result },
                    _ => {
                        let mut set = fibra::JoinSet::new();
                        set.insert(failing);
                        set.join_next().unwrap()
                    }
                };
                assert_eq!(result.unwrap_err().message(), "taken", "round {round}");
                let next = s.spawn(|| 5).join();
                assert_eq!(next.unwrap(), 5, "round {round}: the scope was cancelled for a panic that was taken");
            });
        }
    };
    let runtime = Runtime::builder().workers(2).build().unwrap();
    runtime.run(|| fibra::join_all([many, many]));
    let _entered = runtime.handle().enter();
    many();
}

// The same for an owner that has taken the panic, and waits for something else, before the child's end has been reported to the scope.
#[test]
fn a_panic_that_was_taken_is_no_news() {
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let _entered = runtime.handle().enter();
    // So many rounds take a second on two free cores, and a minute where others use them: the body spins, and the child needs a core.
    let began = fibra::time::Instant::now();
    for round in (0..20_000).take_while(|_| began.elapsed() < Duration::from_secs(10)) {
        fibra::scope(|s| {
            let (go, gone) = bounded(1);
            let sibling = s.spawn(move || gone.recv().unwrap());
            let failing = s.spawn(|| std::panic::resume_unwind(Box::new("taken")));
            while !failing.is_finished() {
                std::hint::spin_loop();
            }
            let error: fibra::JoinError = Result::<(), _>::unwrap_err(failing.join());
            assert_eq!(error.message(), "taken", "round {round}");
            assert!(sibling.wait_timeout(Duration::from_micros(1)) || !s.is_cancelled(), "round {round}");
            go.send(5).unwrap();
            assert_eq!(sibling.join().unwrap(), 5, "round {round}: cancelled for a panic that was taken");
        });
    }
}

// A child's panic cancels the body unless a join takes it first: then it does not, also for a look in passing before it blocks again.
#[test]
fn a_panic_that_was_joined_leaves_no_cancellation_behind() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        fibra::scope(|s| {
            let child = s.spawn(|| -> () { std::panic::resume_unwind(Box::new("taken by its join")) });
            // It ends while no fiber waits for it, so the body is told; shielded, it has not acted on that.
            fibra::shield(|| {
                while !child.is_finished() {
                    fibra::yield_now();
                }
            });
            assert!(child.join().is_err());
            assert!(fibra::select! { cancelled() => false, default => true });
            assert!(!fibra::is_cancelled());
        });
    });
}
