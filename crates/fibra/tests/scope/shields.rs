//! What a shield holds off stays outside, and what belongs inside ends inside; destructors inside destructors wait in peace.
#![allow(clippy::disallowed_types)] // These stand outside the runtime.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use crate::support::{in_child, watchdog, workers};
use fibra::channel::rendezvous;
use fibra::{CancelToken, Scope};

const LONG: Duration = Duration::from_secs(3600);

const MOMENT: Duration = Duration::from_millis(5);

// A scope that is opened behind a shield has nothing to do with what is outside, also if it is the first one that its fiber opens.
#[test]
fn a_scope_behind_a_shield_is_not_cancelled_with_its_fiber() {
    let _watchdog = watchdog(30);
    workers(1).run(|| {
        for by_scope in [false, true] {
            let (done, begun) = (AtomicUsize::new(0), AtomicBool::new(false));
            fibra::scope(|s| {
                let child = s.spawn(|| {
                    fibra::shield(|| {
                        fibra::scope(|inner| {
                            let sleeper = inner.spawn(|| {
                                begun.store(true, SeqCst);
                                fibra::sleep(4 * MOMENT);
                                done.fetch_add(1, SeqCst);
                            });
                            assert!(sleeper.join().is_ok(), "cancelled, for all the shield");
                            done.fetch_add(1, SeqCst);
                        });
                    });
                });
                while !begun.load(SeqCst) {
                    fibra::yield_now();
                }
                if by_scope { s.cancel() } else { child.cancel() }
            });
            assert_eq!(done.load(SeqCst), 2, "by scope: {by_scope}");
        }
    });
}

// A time-out inside of two scopes behind a shield was taken for what is held off, and unwound through the shield.
#[test]
fn a_timeout_behind_a_shield_ends_where_it_belongs() {
    let _watchdog = watchdog(30);
    let program = || {
        let done = AtomicUsize::new(0);
        let token = CancelToken::new();
        let outcome = Scope::builder().token(token.clone()).run(|_| {
            fibra::shield(|| {
                fibra::scope(|_| {
                    token.cancel();
                    assert!(fibra::timeout(MOMENT, || fibra::sleep(LONG)).is_err());
                    done.fetch_add(1, SeqCst);
                });
            });
            done.fetch_add(1, SeqCst);
            fibra::sleep(LONG);
        });
        assert!(outcome.is_err());
        assert_eq!(done.load(SeqCst), 2);
    };
    let rt = workers(1);
    rt.run(program);
    let _entered = rt.handle().enter();
    program();
}

// The same with a fiber that is cancelled as a whole.
#[test]
fn a_timeout_behind_a_shield_of_a_cancelled_fiber_ends_where_it_belongs() {
    let _watchdog = watchdog(30);
    workers(1).run(|| {
        let (begun, done) = (AtomicBool::new(false), AtomicUsize::new(0));
        fibra::scope(|s| {
            let child = s.spawn(|| {
                fibra::shield(|| {
                    fibra::scope(|_| {
                        begun.store(true, SeqCst);
                        assert!(fibra::timeout(4 * MOMENT, || fibra::sleep(LONG)).is_err());
                        done.fetch_add(1, SeqCst);
                    });
                });
            });
            while !begun.load(SeqCst) {
                fibra::yield_now();
            }
            child.cancel();
        });
        assert_eq!(done.load(SeqCst), 1);
    });
}

// A thread that waits behind a shield and wants to know of cancellation was not told.
#[test]
fn a_thread_behind_a_shield_sees_a_cancelled_arm() {
    in_child("a_thread_behind_a_shield_sees_a_cancelled_arm", || {
        let rt = workers(1);
        let _entered = rt.handle().enter();
        let token = CancelToken::new();
        let (_tx, rx) = rendezvous::<()>();
        let seen = AtomicBool::new(false);
        let _ = Scope::builder().token(token.clone()).run(|_| {
            fibra::shield(|| {
                fibra::scope(|_| {
                    let cancel = fibra::spawn(move || {
                        fibra::sleep(10 * MOMENT);
                        token.cancel();
                    });
                    fibra::select! {
                        cancelled() => seen.store(true, SeqCst),
                        recv(rx) -> _ => unreachable!(),
                    }
                    drop(cancel);
                });
            });
        });
        assert!(seen.load(SeqCst));
    });
}

/// Runs a closure when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A destructor that runs while something unwinds opens a scope with a deadline, in which something unwinds, in which a destructor waits.
fn unwinding_in_unwinding() {
    let waited = AtomicUsize::new(0);
    let outer = catch_unwind(AssertUnwindSafe(|| {
        let _outer = OnDrop(|| {
            let _ = fibra::timeout(MOMENT, || {
                let inner = catch_unwind(AssertUnwindSafe(|| {
                    let _inner = OnDrop(|| {
                        // Longer than the deadline, but it must not be unwound out of here.
                        fibra::sleep(4 * MOMENT);
                        waited.fetch_add(1, SeqCst);
                    });
                    panic!("the inner one");
                }));
                assert!(inner.is_err());
            });
            waited.fetch_add(1, SeqCst);
        });
        panic!("the outer one");
    }));
    assert!(outer.is_err());
    assert_eq!(waited.load(SeqCst), 2);
}

#[test]
fn a_destructor_inside_a_destructor_waits_on_a_fiber() {
    in_child("a_destructor_inside_a_destructor_waits_on_a_fiber", || workers(1).run(unwinding_in_unwinding));
}

#[test]
fn a_destructor_inside_a_destructor_waits_on_a_thread() {
    in_child("a_destructor_inside_a_destructor_waits_on_a_thread", || {
        let rt = workers(1);
        let _entered = rt.handle().enter();
        unwinding_in_unwinding();
    });
}

/// Waits in a scope that it opens when it is dropped, for longer than any grace here.
struct Cleanup<'a>(&'a AtomicUsize, bool);

impl Drop for Cleanup<'_> {
    fn drop(&mut self) {
        let clean = || {
            fibra::sleep(40 * MOMENT);
            fibra::shield(|| fibra::sleep(MOMENT));
            fibra::yield_now();
        };
        let outcome = fibra::timeout(LONG, || if self.1 { fibra::scope(|_| clean()) } else { clean() });
        assert!(outcome.is_ok());
        self.0.fetch_add(1, SeqCst);
    }
}

// The end of a grace ends shields. What unwinds is not unwound again for that, or the process would be aborted, and neither is a scope
// that is opened meanwhile.
#[test]
fn grace_that_ends_while_a_destructor_waits_in_a_scope_leaves_it_alone() {
    in_child("grace_that_ends_while_a_destructor_waits_in_a_scope_leaves_it_alone", || {
        workers(1).run(|| {
            for (nested, shielded) in [(false, false), (true, false), (false, true)] {
                let (begun, cleaned) = (AtomicUsize::new(0), AtomicUsize::new(0));
                let until_cancelled = || {
                    let _cleanup = Cleanup(&cleaned, nested);
                    begun.fetch_add(1, SeqCst);
                    fibra::sleep(LONG);
                };
                let waits = || {
                    if shielded {
                        fibra::shield(|| fibra::scope(|_| until_cancelled()));
                    } else {
                        until_cancelled();
                    }
                };
                // The body of the scope, and a child of it, which has begun: otherwise it would not run at all.
                let token = CancelToken::new();
                let outcome = fibra::scope(|around| {
                    around.spawn(|| {
                        while begun.load(SeqCst) < 2 {
                            fibra::sleep(Duration::from_micros(100));
                        }
                        token.cancel();
                    });
                    Scope::builder().token(token.clone()).grace(MOMENT).run(|s| {
                        s.spawn(waits);
                        waits();
                    })
                });
                assert!(outcome.is_err());
                assert_eq!(cleaned.load(SeqCst), 2);
            }
        });
    });
}

// A scope inside the destructor has a grace of its own, and that ends the shields in there.
#[test]
fn grace_of_a_scope_that_a_destructor_opened_ends_its_shields() {
    in_child("grace_of_a_scope_that_a_destructor_opened_ends_its_shields", || {
        struct Impatient<'a>(&'a AtomicBool);
        impl Drop for Impatient<'_> {
            fn drop(&mut self) {
                let outcome = Scope::builder().timeout(MOMENT).grace(MOMENT).run(|s| {
                    s.spawn(|| fibra::shield(|| fibra::sleep(LONG)));
                    fibra::shield(|| fibra::sleep(LONG));
                });
                self.0.store(outcome.is_err(), SeqCst);
            }
        }
        workers(1).run(|| {
            let ended = AtomicBool::new(false);
            let caught = catch_unwind(AssertUnwindSafe(|| {
                let _impatient = Impatient(&ended);
                std::panic::resume_unwind(Box::new(()));
            }));
            assert!(caught.is_err() && ended.load(SeqCst));
        });
    });
}

// A shield holds off from what is inside, however deep, also if the cancellation came first.
#[test]
fn a_scope_in_a_scope_behind_a_shield_of_a_cancelled_fiber_is_not_cancelled() {
    let _watchdog = watchdog(30);
    workers(1).run(|| {
        let (begun, done) = (AtomicBool::new(false), AtomicBool::new(false));
        fibra::scope(|s| {
            let child = s.spawn(|| {
                fibra::shield(|| {
                    begun.store(true, SeqCst);
                    while !fibra::is_cancelled() {
                        fibra::yield_now();
                    }
                    fibra::scope(|_| fibra::scope(|inner| inner.spawn(|| fibra::sleep(MOMENT)).join().unwrap()));
                    done.store(true, SeqCst);
                });
            });
            while !begun.load(SeqCst) {
                fibra::yield_now();
            }
            child.cancel();
            let _ = child.join();
        });
        assert!(done.load(SeqCst), "cancelled, for all the shield");
    });
}
