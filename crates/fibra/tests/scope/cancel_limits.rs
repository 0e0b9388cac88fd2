//! The edges of cancellation, each with a documented outcome: who swallows it, who cannot be unwound, destructors that block, panic or
//! open scopes, shields that never end, programs that cannot unwind. (Those of scopes: `edges`.)

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support;
use fibra::channel::{bounded, rendezvous};
use fibra::{Builder, CancelReason, CancelToken, Cancellation, Runtime, Scope, ScopeError};

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(2);

fn one_worker() -> Runtime {
    Runtime::builder().workers(1).build().unwrap()
}

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

// ---- Shields and scopes inside ----------------------------------------------------------------------------------------------

// A scope that is opened behind a shield is not reached by what the shield holds off, even if it is the fiber's first.
#[test]
fn a_scope_behind_a_shield_is_not_cancelled_from_outside() {
    let _watchdog = support::watchdog(60);
    let runtime = one_worker();
    for by_handle in [true, false] {
        let (token, inside) = (CancelToken::new(), Arc::new(AtomicBool::new(false)));
        let (go_tx, go_rx) = bounded::<()>(1);
        let work = {
            let (inside, receiver) = (inside.clone(), go_rx.clone());
            move || {
                fibra::shield(|| {
                    fibra::scope(|s| {
                        let child = s.spawn(|| receiver.recv().is_ok());
                        inside.store(true, SeqCst);
                        receiver.recv().unwrap();
                        assert!(fibra::is_cancelled(), "it is seen, and not delivered");
                        u32::from(child.join().unwrap())
                    })
                })
            }
        };
        let fiber = if by_handle {
            runtime.spawn(work)
        } else {
            let token = token.clone();
            runtime.spawn(move || {
                let slot = std::sync::OnceLock::new();
                let outcome = Scope::builder().token(token).run(|s| drop(s.spawn(|| slot.set(work()).unwrap())));
                assert_eq!(outcome, Ok(()), "the child came to its end");
                slot.into_inner().unwrap()
            })
        };
        support::eventually(|| inside.load(SeqCst), || "it does not start".to_owned());
        support::eventually(|| runtime.metrics().parked >= 2, || format!("{:?}", runtime.metrics()));
        if by_handle {
            fiber.cancel()
        } else {
            token.cancel()
        }
        runtime.run(|| (0..3).for_each(|_| fibra::yield_now()));
        assert!(!fiber.is_finished(), "{by_handle}");
        go_tx.send(()).unwrap();
        go_tx.send(()).unwrap();
        assert_eq!(fiber.join().unwrap(), 1, "{by_handle}");
    }
}

// The same on a plain thread, and for the end of the runtime: it waits, as it does for a shielded fiber.
#[test]
fn a_threads_scope_behind_a_shield_outlasts_shutdown() {
    let _watchdog = support::watchdog(60);
    let runtime = one_worker();
    let handle = runtime.handle();
    let (tx, rx) = bounded::<()>(1);
    let inside = Arc::new(AtomicBool::new(false));
    let opened = inside.clone();
    let thread = std::thread::spawn(move || {
        let _entered = handle.enter();
        fibra::shield(|| {
            fibra::scope(|s| {
                s.spawn(|| opened.store(true, SeqCst));
                rx.recv().unwrap();
            });
        });
    });
    support::eventually(|| inside.load(SeqCst), || "it does not start".to_owned());
    let down = std::thread::spawn(move || drop(runtime));
    std::thread::sleep(Duration::from_millis(20));
    assert!(!down.is_finished() && !thread.is_finished());
    tx.send(()).unwrap();
    thread.join().unwrap();
    down.join().unwrap();
}

#[test]
fn a_threads_scope_is_cancelled_and_waited_for_when_the_runtime_goes() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let handle = runtime.handle();
    let inside = Arc::new(AtomicBool::new(false));
    let (opened, ended) = (inside.clone(), Arc::new(AtomicUsize::new(0)));
    let count = ended.clone();
    let thread = std::thread::spawn(move || {
        let _entered = handle.enter();
        let outcome = Scope::builder().run(|s| {
            s.spawn(|| {
                let _ended = OnDrop(|| _ = count.fetch_add(1, SeqCst));
                opened.store(true, SeqCst);
                fibra::sleep(LONG);
            });
            let _ended = OnDrop(|| {
                assert_eq!(fibra::cancel_reason(), Some(CancelReason::Shutdown));
                count.fetch_add(1, SeqCst);
            });
            fibra::sleep(LONG);
        });
        // There is no runtime any more; the thread goes on.
        assert_eq!(outcome, Err(ScopeError::Cancelled));
        assert!(!fibra::is_cancelled());
        5
    });
    support::eventually(|| inside.load(SeqCst), || "it does not start".to_owned());
    drop(runtime);
    assert_eq!(ended.load(SeqCst), 2, "it was waited for");
    assert_eq!(thread.join().unwrap(), 5);
}

// S4-21: nothing ends a shield that goes on for ever; shutdown says who it is.
#[test]
fn a_shield_for_ever_is_named_by_a_shutdown_in_vain() {
    let _watchdog = support::watchdog(60);
    let runtime = one_worker();
    drop(runtime.handle().spawn_with(Builder::new().name("for ever"), || {
        fibra::scope(|s| {
            s.spawn(|| fibra::shield(|| fibra::sleep(LONG)));
        });
    }));
    support::eventually(|| runtime.metrics().parked == 2, || format!("{:?}", runtime.metrics()));
    let error = runtime.shutdown_timeout(Duration::from_millis(20)).unwrap_err();
    for part in ["for ever", "waiting for the fibers of its scope", "sleeping", "cancel_limits.rs:"] {
        assert!(error.stuck().contains(part), "{part} is missing: {error}");
    }
}

// ---- Swallowing it ------------------------------------------------------------------------------------------------------------

// S4-106: caught in a loop, in the child of a scope and in its body, it comes again, others run in between, and it is said once.
#[test]
fn who_catches_it_in_a_loop_is_cancelled_again() {
    const NAME: &str = "who_catches_it_in_a_loop_is_cancelled_again";
    let _watchdog = support::watchdog(60);
    if !support::is_child(NAME) {
        let ended = support::rerun_self(NAME, &[]);
        assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.stderr.matches("caught its cancellation").count(), 1, "{}", ended.stderr);
        return;
    }
    one_worker().run(|| {
        let (caught, beats) = (AtomicUsize::new(0), AtomicUsize::new(0));
        fibra::scope(|s| {
            let stop = AtomicBool::new(false);
            let stop = &*Box::leak(Box::new(stop));
            let heart = fibra::spawn(move || {
                let mut beats = 0;
                while !stop.load(SeqCst) {
                    beats += 1;
                    fibra::yield_now();
                }
                beats
            });
            let started = AtomicBool::new(false);
            let started = &*Box::leak(Box::new(started));
            let stubborn = s.spawn(|| {
                started.store(true, SeqCst);
                for _ in 0..100 {
                    let payload = catch_unwind(|| fibra::sleep(LONG)).unwrap_err();
                    assert!(fibra::is_cancellation(&*payload));
                    caught.fetch_add(1, SeqCst);
                }
                "its value"
            });
            while !started.load(SeqCst) {
                fibra::yield_now();
            }
            s.cancel();
            assert_eq!(stubborn.join().unwrap(), "its value", "who never lets it through is not ended by it");
            stop.store(true, SeqCst);
            beats.store(heart.join().unwrap(), SeqCst);
        });
        assert_eq!(caught.load(SeqCst), 100);
        assert!(beats.load(SeqCst) >= 50, "others had their turns: {beats:?}");
        // A body.
        let outcome =
            fibra::timeout(SHORT, || (0..10).filter(|_| catch_unwind(|| fibra::sleep(LONG)).is_err()).count());
        assert_eq!(outcome, Ok(10), "the value is there, though late");
        fibra::sleep(Duration::from_micros(1));
    });
}

// ---- Who cannot be unwound --------------------------------------------------------------------------------------------------

extern "C" fn call_back(f: extern "C" fn(*const ()) -> i32, data: *const ()) -> i32 {
    f(data)
}

// A frame of a C function cannot be unwound through: `shield` in the callback holds it off until it has returned.
#[test]
fn a_blocking_call_in_a_c_callback_works_under_a_shield() {
    let _watchdog = support::watchdog(60);
    extern "C" fn callback(data: *const ()) -> i32 {
        // SAFETY: `data` is the receiver that the caller below keeps.
        let rx = unsafe { &*data.cast::<fibra::channel::Receiver<i32>>() };
        fibra::shield(|| rx.recv().unwrap_or(-1))
    }
    let runtime = one_worker();
    let (tx, rx) = rendezvous::<i32>();
    let got = Arc::new(AtomicUsize::new(0));
    let seen = got.clone();
    let fiber = runtime.spawn(move || {
        let outcome = fibra::timeout(SHORT, || {
            got.store(call_back(callback, (&raw const rx).cast()) as usize, SeqCst);
            fibra::sleep(LONG);
        });
        assert!(outcome.is_err(), "delivered after the callback");
    });
    support::eventually(|| runtime.metrics().parked == 1, || format!("{:?}", runtime.metrics()));
    std::thread::sleep(2 * SHORT);
    assert!(!fiber.is_finished(), "time is up, and it waits");
    tx.send(9).unwrap();
    fiber.join().unwrap();
    assert_eq!(seen.load(SeqCst), 9);
}

// Without one, the process ends: Rust cannot unwind through such a frame.
#[test]
fn without_a_shield_the_process_ends() {
    const NAME: &str = "without_a_shield_the_process_ends";
    let _watchdog = support::watchdog(60);
    if !support::is_child(NAME) {
        let ended = support::rerun_self(NAME, &[]);
        assert_eq!(ended.signal(), Some(libc::SIGABRT), "{}{}", ended.stdout, ended.stderr);
        assert!(ended.stderr.contains("cannot unwind"), "{}", ended.stderr);
        return;
    }
    extern "C" fn callback(_: *const ()) -> i32 {
        fibra::sleep(LONG);
        0
    }
    fibra::run(|| {
        let _ = fibra::timeout(SHORT, || call_back(callback, std::ptr::null()));
    });
}

// A destructor that panics while its fiber is unwound, by cancellation as by a panic, ends the process: that is Rust's rule.
#[test]
fn a_destructor_that_panics_during_a_quiet_unwinding_aborts() {
    const NAME: &str = "a_destructor_that_panics_during_a_quiet_unwinding_aborts";
    let _watchdog = support::watchdog(60);
    if !support::is_child(NAME) {
        let ended = support::rerun_self(NAME, &[]);
        assert_eq!(ended.signal(), Some(libc::SIGABRT), "{}{}", ended.stdout, ended.stderr);
        assert!(ended.stderr.contains("the second one"), "{}", ended.stderr);
        return;
    }
    fibra::run(|| {
        let has_begun = AtomicBool::new(false);
        fibra::scope(|s| {
            s.spawn(|| {
                let _panics = OnDrop(|| panic!("the second one"));
                has_begun.store(true, SeqCst);
                fibra::sleep(LONG);
            });
            // One that has not begun would not run at all.
            while !has_begun.load(SeqCst) {
                fibra::yield_now();
            }
            s.cancel();
        });
    });
}

// ---- Destructors that block -----------------------------------------------------------------------------------------------------

// S4-106: a fiber parked in a destructor neither shields nor poisons its neighbours, though `thread::panicking()` is true for them.
#[test]
fn a_neighbour_of_a_destructor_that_blocks_is_cancelled_as_usual() {
    let _watchdog = support::watchdog(60);
    one_worker().run(|| {
        let (tx, rx) = rendezvous::<u32>();
        let (slow_rx, tidied) = (rx.clone(), Arc::new(AtomicUsize::new(0)));
        let count = tidied.clone();
        let (inside, started) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (enters, starts) = (inside.clone(), started.clone());
        let slow = fibra::spawn(move || {
            let _tidy = OnDrop(|| {
                enters.store(true, SeqCst);
                count.fetch_add(slow_rx.recv().unwrap() as usize, SeqCst);
            });
            starts.store(true, SeqCst);
            fibra::sleep(LONG);
        });
        while !started.load(SeqCst) {
            fibra::yield_now();
        }
        slow.cancel();
        while !inside.load(SeqCst) {
            fibra::yield_now();
        }
        // Where every fiber is a thread, or has thread-locals of its own, that of the other one.
        let is_apart = cfg!(any(fibra_context = "thread", fibra_force_moves));
        assert_eq!(std::thread::panicking(), !is_apart, "the question is the thread's");
        // Not shielded: by handle, by scope, by deadline.
        let neighbour = fibra::spawn(|| fibra::sleep(LONG));
        fibra::yield_now();
        neighbour.cancel();
        assert!(neighbour.join().unwrap_err().is_cancelled());
        fibra::scope(|s| {
            let neighbour = s.spawn(|| fibra::sleep(LONG));
            fibra::yield_now();
            s.cancel();
            assert!(neighbour.join().unwrap_err().is_cancelled());
        });
        assert!(fibra::timeout(SHORT, || fibra::sleep(LONG)).is_err());
        // Not poisoned: they work, fail, and are told of panics as ever.
        fibra::scope(|s| {
            let value = s.spawn(|| {
                fibra::sleep(Duration::from_micros(10));
                3
            });
            assert_eq!(value.join().unwrap(), 3);
            let fails = s.spawn(|| resume_unwind(Box::new("as ever")));
            assert!(fails.join().is_err_and(|error: fibra::JoinError| error.message() == "as ever"));
        });
        #[allow(clippy::disallowed_types)] // It is std's poisoning that this is about.
        let mutex = std::sync::Mutex::new(());
        drop(mutex.lock());
        assert!(!slow.is_finished());
        tx.send(4).unwrap();
        assert!(slow.join().unwrap_err().is_cancelled());
        assert_eq!(tidied.load(SeqCst), 4);
        assert!(!std::thread::panicking());
    });
}

// A scope that a destructor opens while its fiber unwinds works like any other, with its own deadline, and nothing from outside reaches it.
#[test]
fn a_destructor_may_open_a_scope() {
    let _watchdog = support::watchdog(60);
    for panics in [false, true] {
        let (steps, has_begun) = (AtomicUsize::new(0), AtomicBool::new(false));
        one_worker().run(|| {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                fibra::scope(|s| {
                    s.spawn(|| {
                        has_begun.store(true, SeqCst);
                        let _tidy = OnDrop(|| {
                            let sum = fibra::scope(|inner| {
                                let children = [1, 2, 3].map(|n| {
                                    inner.spawn(move || {
                                        fibra::sleep(Duration::from_micros(50));
                                        n
                                    })
                                });
                                children.map(|child| child.join().unwrap()).iter().sum::<usize>()
                            });
                            steps.fetch_add(sum, SeqCst);
                            assert!(fibra::timeout(SHORT, || fibra::sleep(LONG)).is_err());
                            // A child of it is cancelled, and one that panics is raised in there, and can be caught.
                            let inner = catch_unwind(AssertUnwindSafe(|| {
                                fibra::scope(|inner| {
                                    inner.spawn(|| resume_unwind(Box::new("inner")));
                                    fibra::sleep(LONG);
                                })
                            }));
                            assert_eq!(text(&*inner.unwrap_err()), "inner");
                            fibra::sleep(Duration::from_micros(10));
                            steps.fetch_add(100, SeqCst);
                        });
                        if panics {
                            resume_unwind(Box::new("outer"));
                        }
                        fibra::sleep(LONG);
                    });
                    // One that has not begun would not run at all.
                    while !has_begun.load(SeqCst) {
                        fibra::yield_now();
                    }
                    fibra::sleep(Duration::from_micros(100));
                    s.cancel();
                });
            }));
            match caught {
                Err(payload) => assert!(panics && text(&*payload) == "outer"),
                Ok(()) => assert!(!panics),
            }
            fibra::sleep(Duration::from_micros(1));
        });
        assert_eq!(steps.load(SeqCst), 106, "{panics}");
    }
}

// The same on a plain thread.
#[test]
fn a_destructor_on_a_thread_may_open_a_scope() {
    let _watchdog = support::watchdog(60);
    let runtime = one_worker();
    let _entered = runtime.handle().enter();
    let steps = AtomicUsize::new(0);
    let outcome = fibra::timeout(SHORT, || {
        let _tidy = OnDrop(|| {
            let value = fibra::scope(|s| {
                let child = s.spawn(|| {
                    fibra::sleep(SHORT);
                    5
                });
                fibra::sleep(SHORT);
                child.join().unwrap()
            });
            steps.fetch_add(value, SeqCst);
            assert!(fibra::timeout(SHORT, || fibra::sleep(LONG)).is_err());
        });
        fibra::sleep(LONG);
    });
    assert!(outcome.is_err());
    assert_eq!(steps.load(SeqCst), 5);
    assert!(!fibra::is_cancelled() && !std::thread::panicking());
}

// ---- Without unwinding ------------------------------------------------------------------------------------------------------------

// `panic = "abort"` allows this only: cancellation is seen, not delivered. Scopes wait for what they have.
#[test]
fn cooperatively_scopes_only_wait() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(2).cancellation(Cancellation::Cooperative).build().unwrap();
    let scenario = || {
        // A deadline only waits: the value is there, though late, and the deadline can be seen.
        let outcome = fibra::timeout(SHORT, || {
            fibra::sleep(3 * SHORT);
            fibra::checkpoint();
            assert_eq!(fibra::cancel_reason(), Some(CancelReason::TimedOut));
            fibra::scope(|s| {
                assert!(fibra::is_cancelled(), "also in a scope inside");
                // A child of a cancelled scope is not started: nothing has to be unwound for that.
                assert!(s.spawn(|| ()).join().is_err());
            });
            6
        });
        assert_eq!(outcome, Ok(6));
        // Errors need no unwinding.
        let failed: Result<(), &str> = fibra::try_scope(|s| {
            let child = s.spawn(|| Err::<(), _>("child"));
            assert_eq!(child.join().unwrap_err().cancel_reason(), Some(CancelReason::Failed));
            Ok(())
        });
        assert_eq!(failed, Err("child"));
        // Children and body see it, by asking and by the arm that waits for it.
        let token = CancelToken::new();
        let (begun, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let outcome = Scope::builder().token(token.clone()).run(|s| {
            s.spawn(|| {
                begun.fetch_add(1, SeqCst);
                fibra::select! { cancelled() -> why => assert_eq!(why, CancelReason::Token) }
                seen.fetch_add(1, SeqCst);
            });
            s.spawn(|| {
                begun.fetch_add(1, SeqCst);
                while !fibra::is_cancelled() {
                    fibra::sleep(Duration::from_micros(100));
                }
                seen.fetch_add(1, SeqCst);
            });
            // Children that have not begun would not be started.
            while begun.load(SeqCst) < 2 {
                fibra::sleep(Duration::from_micros(100));
            }
            token.cancel();
            fibra::select! { cancelled() -> why => assert_eq!(why, CancelReason::Token) }
            fibra::sleep(Duration::from_micros(10));
            "the body's value"
        });
        assert_eq!(outcome, Ok("the body's value"));
        assert_eq!(seen.load(SeqCst), 2);
        // A child's panic is raised when the others have come to their ends by themselves.
        let caught = catch_unwind(AssertUnwindSafe(|| {
            fibra::scope(|s| {
                s.spawn(|| resume_unwind(Box::new("child")));
                while !fibra::is_cancelled() && s.panics() == 0 {
                    fibra::sleep(Duration::from_micros(100));
                }
            });
        }));
        assert_eq!(text(&*caught.unwrap_err()), "child");
    };
    runtime.run(scenario);
    let _entered = runtime.handle().enter();
    scenario();
    assert_eq!(runtime.metrics().cancellations, 0);
}
