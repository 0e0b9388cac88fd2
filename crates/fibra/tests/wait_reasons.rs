//! One case per reason to wait: parked there, cancelled, it unwinds at once (or, if binding, first gets what it waits for), and
//! nothing is lost. A new reason without a case fails the test.
#![cfg(not(any(loom, shuttle)))]

mod support;

use std::collections::HashSet;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use fibra::{Builder, Runtime, WaitReason, channel};

const LONG: Duration = Duration::from_secs(3600);

fn runtime() -> Runtime {
    Runtime::builder().workers(1).max_blocking_threads(1).build().unwrap()
}

/// Waits until so many fibers of the runtime are parked.
#[track_caller]
fn until_parked(runtime: &Runtime, count: u64) {
    support::eventually(|| runtime.metrics().parked == count, || format!("{:?}", runtime.metrics()));
}

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

// S4-15, S4-18, S4-19, S4-103, S4-111, S1-65: cancelling wakes whatever is parked, by the ordinary claim, wherever it is parked.
#[test]
fn every_reason_to_wait_can_be_cancelled() {
    let _watchdog = support::watchdog(120);
    for reason in WaitReason::ALL {
        println!("{reason:?}: {reason}");
        match reason {
            WaitReason::Sleep => sleep(),
            WaitReason::Join => join(),
            WaitReason::BlockingQueued => blocking_queued(),
            WaitReason::BlockingRunning => blocking_running(),
            WaitReason::BlockOn => block_on(),
            WaitReason::RunEnd => run_end(),
            WaitReason::RuntimeEnd => runtime_end(),
            WaitReason::ChannelSend => channel_send(),
            WaitReason::ChannelRecv => channel_recv(),
            WaitReason::ChannelReserve => channel_reserve(),
            WaitReason::ChannelClosed => channel_closed(),
            WaitReason::Select => select(),
            WaitReason::JoinHalf => join_half(),
            WaitReason::JoinNext => join_next(),
            other => panic!("{other:?} has no case here: what happens if a fiber is cancelled in it?"),
        }
    }
}

#[test]
fn reasons_are_distinct_and_have_words() {
    let words: HashSet<String> = WaitReason::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(words.len(), WaitReason::ALL.len());
    let numbers: HashSet<u8> = WaitReason::ALL.iter().map(|reason| *reason as u8).collect();
    assert!(numbers.len() == WaitReason::ALL.len() && !numbers.contains(&0));
    let binding: Vec<_> = WaitReason::ALL.into_iter().filter(|reason| reason.is_binding()).collect();
    assert_eq!(
        binding,
        [
            WaitReason::BlockingRunning,
            WaitReason::RunEnd,
            WaitReason::RuntimeEnd,
            WaitReason::ScopeEnd,
            WaitReason::JoinHalf
        ]
    );
}

/// Parks a fiber in `wait`, cancels it, and shows that it unwound.
fn cancelled_in(wait: impl FnOnce() + Send + 'static) {
    let runtime = runtime();
    let fiber = runtime.spawn(wait);
    until_parked(&runtime, 1);
    fiber.cancel();
    assert!(fiber.join().unwrap_err().is_cancelled());
    assert_eq!(runtime.metrics().parked, 0);
}

// The value of a cancelled send is dropped, once, and nobody receives it; the channel works on.
fn channel_send() {
    let drops = Arc::new(AtomicUsize::new(0));
    let (tx, rx) = channel::rendezvous();
    let (value, sender) = (Counted(drops.clone()), tx.clone());
    cancelled_in(move || drop(sender.send(value)));
    assert_eq!(drops.load(SeqCst), 1);
    assert!(rx.try_recv().is_err());
    let receiver = std::thread::spawn(move || rx.recv().is_ok());
    assert!(tx.send(Counted(drops)).is_ok() && receiver.join().unwrap());
}

// A cancelled receive takes nothing: what comes goes to the next.
fn channel_recv() {
    let (tx, rx) = channel::bounded(1);
    let receiver = rx.clone();
    cancelled_in(move || assert!(receiver.recv().is_err()));
    tx.send(7).unwrap();
    assert_eq!(rx.try_recv(), Ok(7));
}

// A cancelled reservation holds no place.
fn channel_reserve() {
    let (tx, rx) = channel::bounded(1);
    tx.send(1).unwrap();
    let sender = tx.clone();
    cancelled_in(move || drop(sender.reserve()));
    assert_eq!(rx.try_recv(), Ok(1));
    assert_eq!(tx.try_send(2), Ok(()));
}

fn channel_closed() {
    let (tx, rx) = channel::bounded::<u32>(1);
    let sender = tx.clone();
    cancelled_in(move || drop(sender.closed()));
    assert!(tx.try_send(1).is_ok() && rx.try_recv() == Ok(1));
}

// Nothing is taken out of the set: it goes with the fiber that had it, and cancels the members.
fn join_next() {
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

// No arm of a cancelled select is done: the value of its send is dropped, the channels of the others keep theirs.
fn select() {
    let drops = Arc::new(AtomicUsize::new(0));
    let (tx, rx) = channel::rendezvous();
    let (other_tx, other_rx) = channel::bounded(1);
    let (value, sender, receiver) = (Counted(drops.clone()), tx.clone(), other_rx.clone());
    cancelled_in(move || {
        fibra::select! {
            send(sender, value) -> sent => drop(sent),
            recv(receiver) -> received => assert_eq!(received, Ok(0_u32)),
        }
    });
    assert_eq!(drops.load(SeqCst), 1);
    assert!(rx.try_recv().is_err());
    other_tx.send(3).unwrap();
    assert_eq!(other_rx.try_recv(), Ok(3));
    drop(tx);
}

fn sleep() {
    let runtime = runtime();
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = Counted(drops.clone());
    let fiber = runtime.spawn(move || {
        let _counted = counted;
        fibra::sleep(LONG);
    });
    until_parked(&runtime, 1);
    fiber.cancel();
    assert!(fiber.join().unwrap_err().is_cancelled());
    assert_eq!(drops.load(SeqCst), 1);
    let metrics = runtime.metrics();
    assert_eq!((metrics.parked, metrics.cancellations), (0, 1));
}

fn join() {
    let runtime = runtime();
    let go = Arc::new(AtomicBool::new(false));
    let seen = go.clone();
    let child = Arc::new(runtime.spawn(move || {
        while !seen.load(SeqCst) {
            fibra::sleep(Duration::from_millis(1));
        }
        "kept"
    }));
    let joiners: Vec<_> = (0..3)
        .map(|_| {
            let child = child.clone();
            runtime.spawn(move || child.wait())
        })
        .collect();
    support::eventually(|| runtime.metrics().parked >= 3, || format!("{:?}", runtime.metrics()));
    // The one in the middle of the list goes; the others and the child's value stay.
    joiners[1].cancel();
    joiners[1].wait();
    assert!(!child.is_finished() && !joiners[0].is_finished() && !joiners[2].is_finished());
    go.store(true, SeqCst);
    for (i, joiner) in joiners.into_iter().enumerate() {
        assert_eq!(joiner.join().is_err(), i == 1);
    }
    assert_eq!(Arc::into_inner(child).expect("joiners are gone").join().unwrap(), "kept");
}

/// Starts a job that holds the one thread of the pool until it is told.
fn occupy(runtime: &Runtime) -> (fibra::JoinHandle<()>, std::sync::mpsc::Sender<()>) {
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

fn blocking_queued() {
    let runtime = runtime();
    let (first, release) = occupy(&runtime);
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = Counted(drops.clone());
    let ran = Arc::new(AtomicBool::new(false));
    let queued = runtime.spawn({
        let ran = ran.clone();
        move || {
            fibra::blocking(move || {
                let _counted = counted;
                ran.store(true, SeqCst);
            });
        }
    });
    support::eventually(|| runtime.metrics().blocking_queued == 1, || format!("{:?}", runtime.metrics()));
    until_parked(&runtime, 2);
    queued.cancel();
    // Although the pool is still occupied.
    assert!(queued.join().unwrap_err().is_cancelled());
    assert_eq!((drops.load(SeqCst), ran.load(SeqCst)), (1, false), "taken back, dropped once, never run");
    release.send(()).unwrap();
    first.join().unwrap();
    assert!(!ran.load(SeqCst));
}

fn blocking_running() {
    let runtime = runtime();
    let release = Arc::new(AtomicBool::new(false));
    let (started, value) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let fiber = runtime.spawn({
        let (started, value, release) = (started.clone(), value.clone(), release.clone());
        move || {
            let local = [1, 2, 3];
            // Somebody else is using this stack: the job borrows from it.
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
    support::eventually(|| started.load(SeqCst), || "the job does not start".to_owned());
    fiber.cancel();
    let fiber = fiber.try_join().expect_err("it waits for its job");
    release.store(true, SeqCst);
    assert!(fiber.join().unwrap_err().is_cancelled());
    assert_eq!(value.load(SeqCst), 6, "the job's value arrived, and cancellation after it");
}

// Somebody else is using this stack: the half borrows from it. It is told, but it need not listen.
fn join_half() {
    let runtime = runtime();
    let (begun, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let value = Arc::new(AtomicUsize::new(0));
    let fiber = runtime.spawn({
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
    until_parked(&runtime, 1);
    fiber.cancel();
    let fiber = fiber.try_join().expect_err("it waits for its half");
    go.store(true, SeqCst);
    assert!(fiber.join().unwrap_err().is_cancelled());
    assert_eq!(value.load(SeqCst), 6, "the half's value arrived, and cancellation after it");
}

fn block_on() {
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
    let fiber = runtime.spawn(move || fibra::block_on(never));
    until_parked(&runtime, 1);
    fiber.cancel();
    assert!(fiber.join().unwrap_err().is_cancelled());
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
fn run_end() {
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

fn runtime_end() {
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
