//! The edges of scopes, each with a documented outcome: scopes where there can be none, times of nothing and for ever, scopes that cancel
//! what is around them, things that are forgotten or outlive their scope, trees that are deep. (Those of cancellation: `cancel_limits`.)

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support;
use crate::tools;
use fibra::channel::{self, bounded};
use fibra::{Builder, CancelReason, CancelToken, Runtime, Scope, ScopeError};

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(2);

fn text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Runs its closure when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

// ---- Bad input --------------------------------------------------------------------------------------------------------------------

#[test]
fn a_scope_inside_no_suspend_panics() {
    fibra::run(|| {
        let caught = catch_unwind(|| fibra::no_suspend(|| fibra::scope(|_| 1)));
        assert!(text(&*caught.unwrap_err()).contains("scope inside `no_suspend`"));
        let caught = catch_unwind(|| fibra::no_suspend(|| fibra::timeout(LONG, || 1)));
        assert!(text(&*caught.unwrap_err()).contains("timeout inside `no_suspend`"));
        assert_eq!(fibra::scope(|_| fibra::no_suspend(|| 1)), 1);
    });
}

#[test]
fn a_scope_without_a_runtime_says_what_to_do() {
    type Open = fn() -> i32;
    let ways: [(&str, Open); 4] = [
        ("scope", || fibra::scope(|_| 1)),
        ("try_scope", || fibra::try_scope(|_| Ok::<_, ()>(1)).unwrap()),
        ("timeout", || fibra::timeout(LONG, || 1).unwrap()),
        ("Scope::builder().run", || Scope::builder().run(|_| 1).unwrap()),
    ];
    for (name, open) in ways {
        let message = text(&*catch_unwind(open).unwrap_err());
        assert!(message.contains(name) && message.contains("Handle::enter"), "{name}: {message}");
    }
}

// Also where nothing waits, because it is ready, or because there is no time to.
#[test]
fn every_blocking_call_of_a_body_is_a_point() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let (tx, rx) = bounded::<u32>(10);
    (0..5).for_each(|n| tx.send(n).unwrap());
    type Point<'a> = (&'a str, &'a (dyn Fn() + Sync));
    let points: [Point<'_>; 11] = [
        ("checkpoint", &fibra::checkpoint),
        ("yield_now", &fibra::yield_now),
        ("sleep of nothing", &|| fibra::sleep(Duration::ZERO)),
        ("send", &|| _ = tx.send(9)),
        ("recv", &|| _ = rx.recv()),
        ("recv_timeout of nothing", &|| _ = rx.recv_timeout(Duration::ZERO)),
        ("reserve", &|| _ = tx.reserve()),
        ("select", &|| fibra::select! { recv(rx) -> got => _ = got }),
        ("select of nothing ready", &|| {
            let never = channel::never::<u32>();
            fibra::select! { recv(never) -> got => _ = got, after(Duration::ZERO) => {} }
        }),
        ("token.wait", &|| _ = CancelToken::new().wait_timeout(Duration::ZERO)),
        ("blocking", &|| fibra::blocking(|| ())),
    ];
    let scenario = || {
        for (name, point) in &points {
            let outcome = fibra::timeout(Duration::ZERO, point);
            assert!(outcome.is_err(), "{name} on {:?}", fibra::current());
        }
    };
    runtime.run(scenario);
    assert_eq!(tx.len(), 5, "and none of them did anything");
    let _entered = runtime.handle().enter();
    scenario();
    assert_eq!(tx.len(), 5);
}

#[test]
fn times_of_nothing_and_for_ever() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let scenario = || {
        // Nothing: it runs up to its first blocking call.
        assert_eq!(fibra::timeout(Duration::ZERO, || 1), Ok(1));
        let steps = AtomicUsize::new(0);
        let outcome = fibra::timeout(Duration::ZERO, || {
            assert_eq!(fibra::remaining(), Some(Duration::ZERO));
            steps.fetch_add(1, SeqCst);
            fibra::sleep(Duration::ZERO);
            steps.fetch_add(1, SeqCst);
        });
        assert!(outcome.is_err());
        assert_eq!(steps.load(SeqCst), 1);
        let outcome = Scope::builder().timeout(Duration::ZERO).run(|s| {
            assert!(s.is_cancelled() && fibra::is_cancelled());
            s.spawn(|| unreachable!("it is cancelled before it starts"));
        });
        assert_eq!(outcome, Err(ScopeError::TimedOut), "what was spawned did not run");
        // For ever: as if there were no limit, alone and of several.
        assert_eq!(fibra::timeout(Duration::MAX, fibra::remaining), Ok(None));
        assert_eq!(fibra::deadline(fibra::time::Instant::FAR_FUTURE, fibra::remaining), Ok(None));
        let both = Scope::builder().timeout(Duration::MAX).timeout(SHORT).timeout(Duration::MAX);
        assert_eq!(both.run(|_| fibra::sleep(LONG)), Err(ScopeError::TimedOut));
        let outcome = fibra::timeout(SHORT, || fibra::timeout(Duration::MAX, || fibra::sleep(Duration::MAX)));
        assert!(outcome.is_err());
        assert_eq!(Scope::builder().grace(Duration::MAX).run(|s| s.drain(Duration::MAX)), Ok(()));
        // Drained for no time: cancelled at once.
        fibra::scope(|s| {
            let child = s.spawn(|| fibra::sleep(LONG));
            s.drain(Duration::ZERO);
            assert!(child.join().unwrap_err().is_cancelled());
        });
    };
    runtime.run(scenario);
    let _entered = runtime.handle().enter();
    scenario();
}

// A child may cancel the scope it is in, the one around it, and the token of either: it is unwound itself, and everything ends.
#[test]
fn a_scope_may_cancel_what_is_around_it() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let scenario = || {
        for by_token in [false, true] {
            let ended = AtomicUsize::new(0);
            let outcome = Scope::builder().run(|outer| {
                outer.spawn(|| {
                    let _ended = OnDrop(|| _ = ended.fetch_add(1, SeqCst));
                    fibra::scope(|inner| {
                        inner.spawn(|| {
                            let _ended = OnDrop(|| _ = ended.fetch_add(1, SeqCst));
                            if by_token {
                                outer.token().cancel()
                            } else {
                                outer.cancel()
                            }
                            fibra::sleep(LONG);
                        });
                        fibra::sleep(LONG);
                    });
                });
                // `cancel` concerns the children only: this is how the body learns of it.
                outer.token().wait()
            });
            match outcome {
                Ok(reason) => assert_eq!(reason, if by_token { CancelReason::Token } else { CancelReason::Scope }),
                Err(error) => assert!(by_token && error == ScopeError::Cancelled),
            }
            assert_eq!(ended.load(SeqCst), 2);
        }
        // The body of an inner one cancels the outer one, whose body it is part of.
        let outcome = Scope::builder().run(|outer| {
            fibra::scope(|_| outer.token().cancel());
            fibra::sleep(LONG);
        });
        assert_eq!(outcome, Err(ScopeError::Cancelled));
        // What `cancel` has cancelled is cancelled: the scope's token does nothing any more, and the body goes on.
        let outcome = Scope::builder().run(|outer| {
            outer.cancel();
            outer.token().cancel();
            fibra::sleep(Duration::from_micros(10));
        });
        assert_eq!(outcome, Ok(()));
    };
    runtime.run(scenario);
    let _entered = runtime.handle().enter();
    scenario();
}

// ---- Forgotten and dropped ----------------------------------------------------------------------------------------------------------

// Whatever is forgotten, the scope outlives its children.
#[test]
fn forgetting_anything_breaks_nothing() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let scenario = || {
        let mut data = [0_u32; 8];
        let (token, polled) = (CancelToken::new(), AtomicBool::new(false));
        let polled = &polled;
        fibra::scope(|s| {
            for (index, place) in data.iter_mut().enumerate() {
                let child = s.spawn(move || {
                    fibra::sleep(Duration::from_micros(50));
                    *place = index as u32;
                    vec![0_u8; 10]
                });
                std::mem::forget(child);
            }
            std::mem::forget(s.token());
            std::mem::forget(token.child());
            // A future that has published its wait, and then never goes.
            let mut waiting = Box::pin(token.cancelled());
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(waiting.as_mut().poll(&mut cx).is_pending());
            std::mem::forget(waiting);
            let until_polled = || {
                while !polled.load(SeqCst) {
                    fibra::sleep(Duration::from_micros(100));
                }
            };
            let mut joining = Box::pin(s.spawn(until_polled).into_future());
            assert!(joining.as_mut().poll(&mut cx).is_pending());
            polled.store(true, SeqCst);
            std::mem::forget(joining);
        });
        assert!(data.iter().enumerate().all(|(index, value)| *value == index as u32));
        token.cancel();
        // A panic whose handle is forgotten is raised all the same.
        let caught = catch_unwind(AssertUnwindSafe(|| {
            fibra::scope(|s| {
                std::mem::forget(s.spawn(|| resume_unwind(Box::new("forgotten"))));
                fibra::sleep(LONG);
            });
        }));
        assert_eq!(text(&*caught.unwrap_err()), "forgotten");
        assert!(!fibra::is_cancelled());
    };
    use std::future::Future;
    runtime.run(scenario);
    let _entered = runtime.handle().enter();
    scenario();
}

// A handle may outlive its scope, be joined there, or dropped there on any thread.
#[test]
fn handles_may_outlive_their_scope() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let drops = Arc::new(AtomicUsize::new(0));
    let (kept, dropped, cancelled, borrowed) = runtime.run(|| {
        let text = "borrowed from outside".to_owned();
        let text = &*Box::leak(text.into_boxed_str());
        fibra::scope(|s| {
            let value = |drops: Arc<AtomicUsize>| move || OnDrop(move || _ = drops.fetch_add(1, SeqCst));
            let kept = s.spawn(value(drops.clone()));
            let dropped = s.spawn(value(drops.clone()));
            let cancelled = s.spawn(|| fibra::sleep(LONG));
            cancelled.cancel();
            (kept, dropped, cancelled, s.spawn(|| text))
        })
    });
    assert_eq!(drops.load(SeqCst), 0);
    std::thread::spawn(move || drop(dropped)).join().unwrap();
    assert_eq!(drops.load(SeqCst), 1);
    drop(kept.join().unwrap());
    assert_eq!(drops.load(SeqCst), 2);
    assert_eq!(cancelled.join().unwrap_err().cancel_reason(), Some(CancelReason::Handle));
    drop(runtime);
    assert_eq!(borrowed.join().unwrap(), "borrowed from outside");
}

// A fiber that only waits for a child has not taken its panic: the body is told, wherever it waits.
#[test]
fn waiting_without_joining_takes_no_panic() {
    let _watchdog = support::watchdog(60);
    for workers in [1, 2] {
        let runtime = Runtime::builder().workers(workers).build().unwrap();
        runtime.run(|| {
            for round in 0..50 {
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    fibra::scope(|s| {
                        let child = s.spawn(move || {
                            fibra::sleep(Duration::from_micros(50 + round));
                            resume_unwind(Box::new("child"))
                        });
                        let child: Arc<fibra::JoinHandle<()>> = Arc::new(child);
                        let watched = child.clone();
                        s.spawn(move || watched.wait());
                        fibra::sleep(LONG);
                        drop(child);
                    });
                }));
                assert_eq!(text(&*caught.unwrap_err()), "child");
                // The body itself waits first, and joins then.
                fibra::scope(|s| {
                    let child = s.spawn(|| resume_unwind(Box::new("taken")));
                    child.wait();
                    assert!(child.join().is_err_and(|error: fibra::JoinError| error.message() == "taken"));
                    fibra::sleep(Duration::from_micros(10));
                });
            }
        });
    }
}

// ---- Deep trees -----------------------------------------------------------------------------------------------------------------

// The canceller of a tree of fibers needs no more stack for a deep one.
#[test]
fn a_deep_tree_is_cancelled_from_a_small_stack() {
    let _watchdog = support::watchdog(60);
    fn grow(depth: usize, reached: &AtomicUsize) {
        reached.fetch_add(1, SeqCst);
        if depth == 0 {
            fibra::sleep(LONG);
        }
        fibra::scope(|s| drop(s.spawn(|| grow(depth - 1, reached))));
    }
    const DEPTH: usize = tools::many(2000);
    for workers in [1, 2] {
        let runtime = Runtime::builder().workers(workers).build().unwrap();
        let reached = AtomicUsize::new(0);
        let outcome = runtime.run(|| {
            Scope::builder().run(|s| {
                s.spawn(|| grow(DEPTH, &reached));
                while reached.load(SeqCst) <= DEPTH {
                    fibra::sleep(Duration::from_micros(100));
                }
                let token = s.token();
                let small = Builder::new().stack_size(32 << 10).spawn(move || token.cancel());
                small.unwrap().join().unwrap();
                fibra::sleep(LONG);
            })
        });
        assert_eq!(outcome, Err(ScopeError::Cancelled));
        assert_eq!(runtime.metrics().live, 0);
    }
}

// Tasks are found in a list of their own, under its lock; what they have opened may have tasks too.
#[test]
fn tasks_that_open_scopes_with_tasks_are_cancelled() {
    let _watchdog = support::watchdog(60);
    for by_shutdown in [false, true] {
        let runtime = Runtime::builder().workers(2).build().unwrap();
        let begun = Arc::new(AtomicBool::new(false));
        let begins = begun.clone();
        let fiber = runtime.spawn(move || {
            fibra::scope(|s| {
                s.spawn_future(async {
                    fibra::scope(|inner| {
                        inner.spawn_future(async {
                            begins.store(true, SeqCst);
                            std::future::pending::<()>().await;
                        });
                    });
                });
            });
        });
        support::eventually(|| begun.load(SeqCst), || "it does not start".to_owned());
        if by_shutdown {
            drop(runtime);
        } else {
            fiber.cancel();
        }
        assert!(fiber.join().unwrap_err().is_cancelled());
    }
}

// a cancelled fiber, however far inside, is told why in the words that were given.
#[test]
fn the_words_of_a_cancellation_reach_every_fiber() {
    let _watchdog = support::watchdog(60);
    for workers in [1, 2] {
        Runtime::builder().workers(workers).build().unwrap().run(|| {
            let (token, ready, told) = (CancelToken::new(), AtomicUsize::new(0), AtomicUsize::new(0));
            let sleeps = || {
                let _tells = OnDrop(|| {
                    assert_eq!(fibra::cancel_reason(), Some(CancelReason::from("in these words")));
                    told.fetch_add(1, SeqCst);
                });
                ready.fetch_add(1, SeqCst);
                fibra::sleep(LONG);
            };
            let outcome = Scope::builder().token(token.clone()).run(|s| {
                s.spawn(sleeps);
                s.spawn(|| {
                    fibra::scope(|inner| {
                        inner.spawn(|| fibra::scope(|_| sleeps()));
                        inner.spawn_future(async { fibra::scope(|deeper| drop(deeper.spawn(sleeps))) });
                        sleeps();
                    });
                });
                while ready.load(SeqCst) < 4 {
                    fibra::sleep(Duration::from_micros(100));
                }
                token.cancel_with("in these words");
                sleeps();
            });
            assert_eq!(outcome, Err(ScopeError::Cancelled));
            assert_eq!(told.into_inner(), 5);
        });
    }
}

// Calls that are always ready do not keep others from running, nor a deadline from coming.
#[test]
fn ready_calls_let_others_run_and_deadlines_come() {
    let _watchdog = support::watchdog(60);
    let runtime = fibra::Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        let (tx, rx) = fibra::channel::bounded(1);
        let outcome = fibra::timeout(std::time::Duration::from_millis(5), || {
            loop {
                tx.send(1).unwrap();
                rx.recv().unwrap();
            }
        });
        assert!(outcome.map(|never: ()| never).is_err());
        let (tx, rx) = fibra::channel::unbounded();
        let reader = fibra::spawn_local(move || rx.recv());
        while !reader.is_finished() {
            let _ = tx.send(1);
        }
        assert_eq!(reader.join().unwrap(), Ok(1));
    });
}
