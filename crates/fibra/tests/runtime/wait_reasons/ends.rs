//! The reasons to wait of time, tokens, scopes, jobs and the ends of others: what is played for each in
//! `every_reason_to_wait_can_be_cancelled`.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use super::{Counted, LONG, Victim, begun_before_it_is_cancelled, cancelled_in, runtime};
use crate::support::{self, until_parked};
use fibra::{Builder, CancelToken, Runtime};

// Nothing is taken out of the set: it goes with the fiber that had it, and cancels the members.
pub(super) fn join_next() {
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = Counted(drops.clone());
    let runtime = runtime();
    let fiber = runtime.spawn(move || {
        let mut set = fibra::JoinSet::new();
        set.spawn(move || {
            let _counted = counted;
            fibra::sleep(LONG);
        });
        set.join_next().is_some()
    });
    until_parked(&runtime, 2);
    fiber.cancel();
    assert!(fiber.join().unwrap_err().is_cancelled());
    support::eventually(|| drops.load(SeqCst) == 1, || "the member is not cancelled".to_owned());
    until_parked(&runtime, 0);
}

pub(super) fn sleep() {
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = Counted(drops.clone());
    cancelled_in(move || {
        let _counted = counted;
        fibra::sleep(LONG);
    });
    assert_eq!(drops.load(SeqCst), 1);
}

// A token is cancelled for those who still wait.
pub(super) fn token_cancelled() {
    let (runtime, token) = (runtime(), CancelToken::new());
    let others: Vec<_> = (0..2)
        .map(|_| {
            runtime.spawn({
                let token = token.clone();
                move || token.wait()
            })
        })
        .collect();
    until_parked(&runtime, 2);
    let waits = token.clone();
    let victim = Victim::start(&runtime, move || drop(waits.wait()));
    victim.until_parked(&runtime, 2);
    let last = runtime.spawn({
        let token = token.clone();
        move || token.wait()
    });
    victim.cancel();
    victim.unwound();
    until_parked(&runtime, 3);
    token.cancel_with("for the others");
    for other in others.into_iter().chain([last]) {
        assert_eq!(other.join().unwrap().to_string(), "for the others");
    }
}

// Another fiber borrows from this stack: binding. The child's work arrives, and cancellation after it.
pub(super) fn scope_end() {
    begun_before_it_is_cancelled(scope_end_once);
}

pub(super) fn scope_end_once() -> bool {
    let runtime = runtime();
    let (begun, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let value = Arc::new(AtomicUsize::new(0));
    let victim = Victim::start(&runtime, {
        let (begun, go, value) = (begun.clone(), go.clone(), value.clone());
        move || {
            let mut sum = 0;
            fibra::scope(|s| {
                s.spawn(|| {
                    begun.store(true, SeqCst);
                    while !(go.load(SeqCst) && fibra::is_cancelled()) {
                        fibra::shield(|| fibra::sleep(Duration::from_micros(100)));
                    }
                    sum = 6;
                });
            });
            value.store(sum, SeqCst);
            fibra::checkpoint();
            value.store(99, SeqCst);
        }
    });
    if !victim.has_begun(|| begun.load(SeqCst)) {
        victim.unwound();
        assert_eq!(value.load(SeqCst), 0);
        return false;
    }
    victim.cancel();
    victim.still_waits();
    go.store(true, SeqCst);
    victim.unwound();
    assert_eq!(value.load(SeqCst), 6);
    true
}

pub(super) fn join() {
    let runtime = runtime();
    let go = Arc::new(AtomicBool::new(false));
    let seen = go.clone();
    let child = Arc::new(runtime.spawn(move || {
        while !seen.load(SeqCst) {
            fibra::sleep(Duration::from_millis(1));
        }
        "kept"
    }));
    let joiner = || {
        let child = child.clone();
        runtime.spawn(move || child.wait())
    };
    let first = joiner();
    support::eventually(|| runtime.metrics().parked >= 1, || format!("{:?}", runtime.metrics()));
    let waits = child.clone();
    let victim = Victim::start(&runtime, move || waits.wait());
    support::eventually(|| runtime.metrics().parked >= 2, || format!("{:?}", runtime.metrics()));
    let last = joiner();
    support::eventually(|| runtime.metrics().parked >= 2, || format!("{:?}", runtime.metrics()));
    // The one in the middle of the list goes; the others and the child's value stay.
    victim.cancel();
    victim.unwound();
    assert!(!child.is_finished() && !first.is_finished() && !last.is_finished());
    go.store(true, SeqCst);
    first.join().unwrap();
    last.join().unwrap();
    assert_eq!(Arc::into_inner(child).expect("joiners are gone").join().unwrap(), "kept");
}

/// Starts a job that holds the one thread of the pool until it is told.
pub(super) fn occupy(runtime: &Runtime) -> (fibra::JoinHandle<()>, std::sync::mpsc::Sender<()>) {
    let (release, released) = std::sync::mpsc::channel();
    let running = Arc::new(AtomicBool::new(false));
    let seen = running.clone();
    let fiber = runtime.spawn(move || {
        fibra::blocking(move || {
            running.store(true, SeqCst);
            let _ = released.recv();
        });
    });
    support::eventually(|| seen.load(SeqCst), || "the job does not start".to_owned());
    (fiber, release)
}

pub(super) fn blocking_queued() {
    let runtime = runtime();
    let (first, release) = occupy(&runtime);
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = Counted(drops.clone());
    let ran = Arc::new(AtomicBool::new(false));
    let queued = Victim::start(&runtime, {
        let ran = ran.clone();
        move || {
            fibra::blocking(move || {
                let _counted = counted;
                ran.store(true, SeqCst);
            });
        }
    });
    queued.until_parked(&runtime, 1);
    queued.cancel();
    // Although the pool is still occupied.
    queued.unwound();
    assert_eq!((drops.load(SeqCst), ran.load(SeqCst)), (1, false), "taken back, dropped once, never run");
    release.send(()).unwrap();
    first.join().unwrap();
    assert!(!ran.load(SeqCst));
}

pub(super) fn blocking_running() {
    begun_before_it_is_cancelled(blocking_running_once);
}

pub(super) fn blocking_running_once() -> bool {
    let runtime = runtime();
    let release = Arc::new(AtomicBool::new(false));
    let (started, value) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let victim = Victim::start(&runtime, {
        let (started, value, release) = (started.clone(), value.clone(), release.clone());
        move || {
            let local = [1, 2, 3];
            // Another thread is using this stack: the job borrows from it.
            let sum: usize = fibra::blocking(|| {
                started.store(true, SeqCst);
                while !release.load(SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                local.iter().sum()
            });
            value.store(sum, SeqCst);
            fibra::checkpoint();
            value.store(99, SeqCst);
        }
    });
    if !victim.has_begun(|| started.load(SeqCst)) {
        victim.unwound();
        assert_eq!(value.load(SeqCst), 0);
        return false;
    }
    victim.cancel();
    victim.still_waits();
    release.store(true, SeqCst);
    victim.unwound();
    assert_eq!(value.load(SeqCst), 6, "the job's value arrived, and cancellation after it");
    true
}

// Another worker may be using this stack: the half borrows from it. It is told, but it need not listen.
pub(super) fn join_half() {
    begun_before_it_is_cancelled(join_half_once);
}

pub(super) fn join_half_once() -> bool {
    let runtime = runtime();
    let (begun, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let value = Arc::new(AtomicUsize::new(0));
    let victim = Victim::start(&runtime, {
        let (begun, go, value) = (begun.clone(), go.clone(), value.clone());
        move || {
            let local = [1, 2, 3];
            let (_, sum) = fibra::join(
                || {
                    while !begun.load(SeqCst) {
                        fibra::yield_now();
                    }
                },
                || {
                    begun.store(true, SeqCst);
                    while !(go.load(SeqCst) && fibra::is_cancelled()) {
                        fibra::shield(fibra::yield_now);
                    }
                    local.iter().sum()
                },
            );
            value.store(sum, SeqCst);
            fibra::checkpoint();
            value.store(99, SeqCst);
        }
    });
    victim.until_parked(&runtime, 0);
    if !victim.has_begun(|| begun.load(SeqCst)) {
        victim.unwound();
        assert_eq!(value.load(SeqCst), 0);
        return false;
    }
    victim.cancel();
    victim.still_waits();
    go.store(true, SeqCst);
    victim.unwound();
    assert_eq!(value.load(SeqCst), 6, "the half's value arrived, and cancellation after it");
    true
}

pub(super) fn block_on() {
    struct Never(#[allow(dead_code)] Counted);
    impl Future for Never {
        type Output = ();
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }
    let runtime = runtime();
    let drops = Arc::new(AtomicUsize::new(0));
    let never = Never(Counted(drops.clone()));
    cancelled_in(move || fibra::block_on(never));
    assert_eq!(drops.load(SeqCst), 1);
    // The same for a future that is a task of its own.
    let never = Never(Counted(drops.clone()));
    let _entered = runtime.handle().enter();
    let task = fibra::spawn_future(never);
    until_parked(&runtime, 1);
    task.cancel();
    assert!(task.join().unwrap_err().is_cancelled());
    assert_eq!(drops.load(SeqCst), 2);
}

/// A root whose function failed is cancelled itself; it waits for its fibers all the same.
pub(super) fn run_end() {
    let done = Arc::new(AtomicBool::new(false));
    let inner = done.clone();
    let run = catch_unwind(AssertUnwindSafe(|| {
        fibra::run(move || {
            drop(fibra::spawn(move || {
                fibra::shield(|| fibra::sleep(Duration::from_millis(20)));
                inner.store(true, SeqCst);
            }));
            fibra::yield_now();
            fibra::yield_now();
            panic!("the root fails");
        });
    }));
    assert!(run.is_err());
    // Either it was cancelled before it started, or it was waited for; it is over in both cases.
    assert_eq!(Arc::strong_count(&done), 1, "no fiber of the run is left");
}

pub(super) fn runtime_end() {
    let done = Arc::new(AtomicBool::new(false));
    let (inner, started) = (done.clone(), Arc::new(AtomicBool::new(false)));
    let run = catch_unwind(AssertUnwindSafe(|| {
        fibra::run(move || {
            let seen = started.clone();
            let daemon = Builder::new().name("daemon").daemon(true).spawn(move || {
                fibra::shield(|| {
                    started.store(true, SeqCst);
                    fibra::sleep(Duration::from_millis(20));
                });
                inner.store(true, SeqCst);
            });
            drop(daemon);
            while !seen.load(SeqCst) {
                fibra::yield_now();
            }
            panic!("the root fails");
        });
    }));
    assert!(run.is_err());
    assert!(done.load(SeqCst), "the daemon was waited for, although the root was cancelled");
}
