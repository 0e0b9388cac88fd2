//! Wakers that are slow, yield, replace children or drop the runtime do not hold up a cancellation; and a canceller that comes late hits
//! nothing but what it meant. What once hung or ended the process runs in a child, so that one of them does not hide the others.
#![allow(clippy::disallowed_types)] // These stand outside the runtime.

use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::support::{self, workers};
use crate::support::{in_child, watchdog};
use fibra::channel::bounded;
use fibra::{CancelToken, Runtime, Scope};

const LONG: Duration = Duration::from_secs(3600);

const MOMENT: Duration = Duration::from_millis(5);

/// Waits on a plain thread, or on a fiber without parking.
fn spin_until(holds: impl Fn() -> bool) {
    while !holds() {
        std::thread::yield_now();
    }
}

/// A waker that waits, on its thread, until it is let go.
#[derive(Default)]
struct Slow {
    called: AtomicBool,
    go_on: AtomicBool,
    /// Set by the canceller when it is done.
    all_told: AtomicBool,
}

impl Wake for Slow {
    fn wake(self: Arc<Self>) {
        self.called.store(true, SeqCst);
        spin_until(|| self.go_on.load(SeqCst));
    }
}

/// A scope with a token that has a slow waker, and a scope in it. It is cancelled from outside; `afterwards` while the waker is at it.
fn with_a_slow_waker(has_task: bool, afterwards: impl FnOnce(&Slow)) {
    let slow = Arc::new(Slow::default());
    let button = CancelToken::new();
    std::thread::scope(|threads| {
        let outcome = Scope::builder().token(button.clone()).run(|s| {
            let token = s.token();
            let mut cancelled = pin!(token.cancelled());
            let waker = Waker::from(slow.clone());
            assert!(cancelled.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            fibra::scope(|inner| {
                if has_task {
                    inner.spawn_future(pending::<()>());
                }
                threads.spawn(|| {
                    button.cancel();
                    slow.all_told.store(true, SeqCst);
                });
                fibra::sleep(LONG);
            });
        });
        assert!(outcome.is_err());
        // (If this fiber was so fast that it dropped the future first, its waker is not called.)
        spin_until(|| slow.called.load(SeqCst) || slow.all_told.load(SeqCst));
        afterwards(&slow);
        slow.go_on.store(true, SeqCst);
    });
}

// It was called before all cancelled fibers were told.
#[test]
fn a_slow_waker_does_not_hold_up_the_cancellation() {
    in_child("a_slow_waker_does_not_hold_up_the_cancellation", || workers(1).run(|| with_a_slow_waker(true, |_| ())));
}

// A canceller that was slow (here because of a waker that it calls) told the tasks of the next scope in the same record.
#[test]
fn a_late_canceller_leaves_the_next_scope_alone() {
    in_child("a_late_canceller_leaves_the_next_scope_alone", || {
        let afterwards = |slow: &Slow| {
            // As before, so that the records are the same.
            fibra::scope(|_| {
                fibra::scope(|inner| {
                    let task = inner.spawn_future(async {
                        slow.go_on.store(true, SeqCst);
                        while !slow.all_told.load(SeqCst) {
                            yield_once().await;
                        }
                        yield_once().await;
                    });
                    assert!(task.join().is_ok(), "a task was cancelled in a scope that was not cancelled");
                });
            });
        };
        workers(1).run(|| with_a_slow_waker(false, afterwards));
    });
}

async fn yield_once() {
    let mut first = true;
    poll_fn(|cx| {
        cx.waker().wake_by_ref();
        if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}

/// A waker that lets others run before it says that it was called.
struct Polite {
    called: AtomicUsize,
    refused: AtomicBool,
}

impl Wake for Polite {
    fn wake(self: Arc<Self>) {
        self.refused.fetch_or(catch_unwind(fibra::yield_now).is_err(), SeqCst);
        self.called.fetch_add(1, SeqCst);
    }
}

fn polite() -> Arc<Polite> {
    Arc::new(Polite { called: AtomicUsize::new(0), refused: AtomicBool::new(false) })
}

fn is_pending(future: Pin<&mut impl Future>, waker: &Arc<Polite>) -> bool {
    let waker = Waker::from(waker.clone());
    future.poll(&mut Context::from_waker(&waker)).is_pending()
}

// A deadline that fires, and a command to a worker, called the wakers of the scope's token on the scheduler's stack.
#[test]
fn wakers_of_a_scopes_token_are_called_on_fibers() {
    let _watchdog = watchdog(30);
    workers(1).run(|| {
        loop {
            let (waker, waits) = (polite(), AtomicBool::new(false));
            let outcome = fibra::timeout(MOMENT, || {
                fibra::scope(|s| {
                    let token = s.token();
                    let mut cancelled = pin!(token.cancelled());
                    waits.store(is_pending(cancelled.as_mut(), &waker), SeqCst);
                    fibra::sleep(LONG);
                });
            });
            assert!(outcome.is_err());
            if !waits.load(SeqCst) {
                // Time was up before it was polled, while this worker had no processor: that says nothing. Again.
                continue;
            }
            while waker.called.load(SeqCst) == 0 {
                fibra::yield_now();
            }
            assert!(!waker.refused.load(SeqCst), "user code ran where nothing may block");
            return;
        }
    });
}

/// A waker that lets a fiber end, and another one have its place.
struct Replaces {
    go_on: AtomicBool,
    has_ended: AtomicBool,
}

impl Wake for Replaces {
    fn wake(self: Arc<Self>) {
        self.go_on.store(true, SeqCst);
        while !self.has_ended.load(SeqCst) {
            fibra::yield_now();
        }
        let begun = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 {
            let begun = begun.clone();
            fibra::spawn(move || {
                begun.fetch_add(1, SeqCst);
                fibra::sleep(MOMENT);
            });
        }
        while begun.load(SeqCst) < 10 {
            fibra::yield_now();
        }
    }
}

// While one worker's children were walked through, such a waker let one of them end, and the rest of the list was lost.
#[test]
fn a_waker_that_yields_does_not_hide_the_other_children() {
    in_child("a_waker_that_yields_does_not_hide_the_other_children", || {
        workers(1).run(|| {
            let waker = Arc::new(Replaces { go_on: AtomicBool::new(false), has_ended: AtomicBool::new(false) });
            fibra::scope(|s| {
                s.spawn_local(|| fibra::sleep(LONG));
                fibra::yield_now();
                s.spawn_local(|| {
                    while !waker.go_on.load(SeqCst) {
                        std::hint::black_box(());
                        // No point of cancellation.
                        fibra::shield(fibra::yield_now);
                    }
                    waker.has_ended.store(true, SeqCst);
                });
                fibra::yield_now();
                s.spawn_local(|| {
                    fibra::scope(|inner| {
                        let token = inner.token();
                        let mut cancelled = pin!(token.cancelled());
                        let waker = Waker::from(waker.clone());
                        assert!(cancelled.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                        fibra::sleep(LONG);
                    });
                });
                fibra::yield_now();
                fibra::yield_now();
                s.cancel();
            });
        });
    });
}

/// A waker that takes the last of a runtime with it.
struct Last(std::sync::Mutex<Option<Runtime>>);

impl Wake for Last {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
    }
}

// The canceller keeps the runtime there meanwhile; a waker that ends it waited for itself.
#[test]
fn a_waker_may_drop_the_runtime() {
    in_child("a_waker_may_drop_the_runtime", || {
        let rt = workers(1);
        let handle = rt.handle();
        let waker = Waker::from(Arc::new(Last(std::sync::Mutex::new(Some(rt)))));
        let (tx, rx) = std::sync::mpsc::channel();
        let button = CancelToken::new();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let _entered = handle.enter();
                let _ = Scope::builder().token(button.clone()).run(|s| {
                    tx.send(s.token()).unwrap();
                    fibra::sleep(LONG);
                });
            });
            let token = rx.recv().unwrap();
            let mut cancelled = pin!(token.cancelled());
            assert!(cancelled.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            button.cancel();
        });
    });
}

// What a child has with the scope it is in was taken from it when one of its own was closed: from then on its shields held for ever.
#[test]
fn grace_that_is_over_stays_over() {
    in_child("grace_that_is_over_stays_over", || {
        workers(1).run(|| {
            let outcome = Scope::builder().timeout(MOMENT).grace(MOMENT).run(|s| {
                s.spawn(|| {
                    let caught = catch_unwind(AssertUnwindSafe(|| {
                        fibra::scope(|_| fibra::shield(|| fibra::sleep(LONG)));
                    }));
                    assert!(caught.is_err());
                    fibra::shield(|| fibra::sleep(LONG));
                });
            });
            assert!(outcome.is_err());
        });
    });
}

// A loop over operations that are ready is a loop over blocking calls, on a thread as well.
#[test]
fn a_thread_that_never_has_to_wait_is_cancelled_all_the_same() {
    let _watchdog = watchdog(30);
    let rt = workers(1);
    let _entered = rt.handle().enter();
    let (tx, rx) = bounded::<()>(1);
    let begun = Instant::now();
    let outcome = fibra::timeout(MOMENT, || {
        while begun.elapsed() < Duration::from_secs(5) {
            tx.send(()).unwrap();
            rx.recv().unwrap();
        }
    });
    assert!(outcome.is_err(), "five seconds of blocking calls, and none was a point of cancellation");
    let begun = Instant::now();
    let outcome = fibra::timeout(MOMENT, || {
        while begun.elapsed() < Duration::from_secs(5) {
            fibra::yield_now();
        }
    });
    assert!(outcome.is_err(), "yield_now is a point of cancellation");
}

// It waits for the scope, which waits for it.
#[test]
fn a_runtime_is_not_dropped_inside_a_scope_of_its_own() {
    in_child("a_runtime_is_not_dropped_inside_a_scope_of_its_own", || {
        let rt = workers(1);
        let handle = rt.handle();
        let ended = catch_unwind(AssertUnwindSafe(|| handle.scope(move |_| drop(rt))));
        let payload = ended.unwrap_err();
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap();
        assert!(text.contains("scope"), "{text}");
    });
}

// What a half that was cancelled passes on to its joiner is a cancellation there as well.
#[test]
fn a_cancellation_that_comes_through_a_join_says_so() {
    let _watchdog = watchdog(30);
    workers(2).run(|| {
        let (tx, rx) = bounded::<()>(1);
        let started = AtomicBool::new(false);
        let outcome = fibra::timeout(4 * MOMENT, move || {
            let _tx = tx;
            fibra::join(
                || spin_until(|| started.load(SeqCst)),
                || {
                    started.store(true, SeqCst);
                    fibra::sleep(LONG);
                },
            );
        });
        assert!(outcome.is_err());
        assert!(matches!(rx.closed(), fibra::channel::CloseReason::Cancelled), "{:?}", rx.closed());
    });
}

// A canceller on its way inwards may find a scope that is just being closed, and whose record serves another one at once: that one must not
// be hit.
#[test]
fn a_canceller_that_meets_a_scope_that_closes_does_not_hit_the_next() {
    let _watchdog = support::watchdog(120);
    let runtime = fibra::Runtime::builder().workers(1).build().unwrap();
    let until = fibra::time::Instant::now() + std::time::Duration::from_millis(1500);
    while fibra::time::Instant::now() < until {
        let token = fibra::CancelToken::new();
        std::thread::scope(|threads| {
            let canceller = token.clone();
            threads.spawn(move || {
                (0..200).for_each(|_| std::hint::spin_loop());
                canceller.cancel();
            });
            runtime.run(|| {
                let outcome = fibra::Scope::builder().token(token.clone()).run(|_| {
                    while !token.is_cancelled() {
                        fibra::scope(|_| ());
                    }
                });
                assert_eq!(outcome, Ok(()));
                // Nested, because records are reused last first: the inner one has that of the scope that was closing.
                let value = fibra::scope(|_| fibra::scope(|s| s.spawn(|| 1).join()));
                assert_eq!(value.expect("this one was not cancelled"), 1);
            });
        });
    }
}
