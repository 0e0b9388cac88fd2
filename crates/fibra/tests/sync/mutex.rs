//! `sync::Mutex`: one at a time for fibers, threads and futures together; time, cancellation and panics
//! leave the lock usable; no fiber starves; misuse says what to do.
#![allow(clippy::disallowed_types)] // std's clock watches ours.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::channels::{Calls, poll, ready};
use crate::support::{eventually, panic_of, until_parked, watchdog, workers};
use fibra::sync::{Mutex, MutexGuard};
use fibra::{Builder, JoinHandle, Runtime, WaitReason};

/// On the worker with the fewest fibers.
fn spread(runtime: &Runtime, f: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    runtime.handle().spawn_with(Builder::new().spread(), f).unwrap()
}

fn spawn_future(runtime: &Runtime, future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    let _entered = runtime.handle().enter();
    fibra::spawn_future(future)
}

// ---- One at a time ------------------------------------------------------------------------------------------------------

/// A counter that is changed in two steps, with something in between.
#[derive(Default)]
struct TwoSteps(u64, u64);

impl TwoSteps {
    fn step(&mut self, between: impl FnOnce()) {
        assert_eq!(self.0, self.1, "two at once");
        self.0 += 1;
        between();
        self.1 += 1;
    }
}

// Fibers of two workers, threads and futures on one mutex; guards are held across yields.
#[test]
fn fibers_threads_and_futures_take_turns() {
    let _watchdog = watchdog(120);
    const EACH: usize = 300;
    let mutex = Arc::new(Mutex::new(TwoSteps::default()));
    let runtime = workers(2);
    let fibers: Vec<_> = (0..8)
        .map(|number| {
            let mutex = mutex.clone();
            let fiber = move || {
                for turn in 0..EACH {
                    mutex.lock().step(|| {
                        if (turn + number) % 7 == 0 {
                            fibra::yield_now();
                        }
                    });
                }
            };
            runtime.spawn(fiber)
        })
        .collect();
    let futures: Vec<_> = (0..4)
        .map(|_| {
            let mutex = mutex.clone();
            spawn_future(&runtime, async move {
                for _ in 0..EACH {
                    mutex.lock_async().await.step(|| {});
                }
            })
        })
        .collect();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let mutex = mutex.clone();
            thread::spawn(move || {
                for turn in 0..EACH {
                    mutex.lock().step(|| {
                        if turn % 50 == 0 {
                            thread::yield_now();
                        }
                    });
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    fibers.into_iter().chain(futures).for_each(|fiber| fiber.join().unwrap());
    let done = mutex.lock();
    assert_eq!((done.0, done.1), (15 * EACH as u64, 15 * EACH as u64));
}

// ---- Asking for it ------------------------------------------------------------------------------------------------------

#[test]
fn trying_does_not_wait() {
    let mutex = Mutex::new(1);
    let guard = mutex.lock();
    assert!(mutex.is_locked() && mutex.try_lock().is_none());
    thread::scope(|s| {
        s.spawn(|| assert!(mutex.try_lock().is_none()));
    });
    drop(guard);
    assert!(!mutex.is_locked());
    *mutex.try_lock().unwrap() += 1;
    assert_eq!(mutex.into_inner(), 2);
}

#[test]
fn timeouts_of_every_length() {
    let _watchdog = watchdog(60);
    let mutex = Arc::new(Mutex::new(0));
    // Free: had at once, even with no time at all.
    assert!(mutex.try_lock_for(Duration::ZERO).is_some());
    assert!(mutex.try_lock_for(Duration::MAX).is_some());
    assert!(mutex.try_lock_until(Instant::now()).is_some());
    assert!(mutex.try_lock_until(fibra::time::Instant::FAR_FUTURE).is_some());
    for on_fiber in [true, false] {
        let held = mutex.lock();
        let other = mutex.clone();
        let impatient = move || {
            assert!(other.try_lock_for(Duration::ZERO).is_none());
            assert!(other.try_lock_until(Instant::now()).is_none());
            let start = Instant::now();
            assert!(other.try_lock_for(Duration::from_millis(20)).is_none());
            assert!(start.elapsed() >= Duration::from_millis(20));
        };
        let other = mutex.clone();
        let patient = move || drop(other.try_lock_for(Duration::MAX).expect("it is let go"));
        let runtime = workers(1);
        if on_fiber {
            runtime.spawn(impatient).join().unwrap();
            let patient = runtime.spawn(patient);
            until_parked(&runtime, 1);
            drop(held);
            patient.join().unwrap();
        } else {
            thread::spawn(impatient).join().unwrap();
            let patient = thread::spawn(patient);
            drop(held);
            patient.join().unwrap();
        }
    }
}

// A waiter that gives up leaves the queue: the next one is served, and the lock is free at the end.
#[test]
fn giving_up_in_the_queue_holds_up_no_waiter() {
    let _watchdog = watchdog(60);
    let (runtime, mutex) = (workers(1), Arc::new(Mutex::new(Vec::new())));
    let held = mutex.lock();
    let waiters: Vec<_> = (0..6)
        .map(|number| {
            let mutex = mutex.clone();
            runtime.spawn(move || {
                let patience = if number % 2 == 0 { Duration::from_millis(5) } else { Duration::MAX };
                if let Some(mut guard) = mutex.try_lock_for(patience) {
                    guard.push(number);
                }
            })
        })
        .collect();
    eventually(|| waiters.iter().step_by(2).all(|waiter| waiter.is_finished()), || "the impatient wait".to_owned());
    until_parked(&runtime, 3);
    drop(held);
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    mutex.lock().sort_unstable();
    assert_eq!(*mutex.lock(), [1, 3, 5]);
}

// ---- Endings ------------------------------------------------------------------------------------------------------------

#[test]
fn a_panic_releases_what_was_held() {
    let _watchdog = watchdog(60);
    let (runtime, mutex) = (workers(1), Arc::new(Mutex::new(1)));
    let other = mutex.clone();
    let failing = runtime.spawn(move || {
        let _guard = other.lock();
        fibra::yield_now();
        panic!("while it holds the lock");
    });
    assert!(failing.join().unwrap_err().is_panic());
    assert_eq!(*mutex.try_lock().expect("released"), 1);
}

// A waiter is cancelled, the holder is cancelled, both: the lock is usable, and those behind go on.
#[test]
fn cancelled_waiters_and_holders_leave_the_lock_usable() {
    let _watchdog = watchdog(60);
    let (runtime, mutex) = (workers(1), Arc::new(Mutex::new(0)));
    let lock_and_count = |hold: Duration| {
        let mutex = mutex.clone();
        runtime.spawn(move || {
            let mut guard = mutex.lock();
            fibra::sleep(hold);
            *guard += 1;
        })
    };
    let holder = lock_and_count(Duration::MAX);
    until_parked(&runtime, 1);
    let waiters: Vec<_> = (0..5).map(|_| lock_and_count(Duration::ZERO)).collect();
    until_parked(&runtime, 6);
    // The head, one in the middle and the last.
    for cancelled in [0, 2, 4] {
        waiters[cancelled].cancel();
        waiters[cancelled].wait();
    }
    assert!(mutex.is_locked());
    holder.cancel();
    let ended: Vec<bool> = waiters.into_iter().map(|waiter| waiter.join().is_ok()).collect();
    assert_eq!(ended, [false, true, false, true, false]);
    assert!(holder.join().unwrap_err().is_cancelled());
    assert_eq!(*mutex.lock(), 2);
}

// Cancelled while the lock is being let go, from another thread, time and again: never left locked, no waiter forgotten.
#[test]
fn stress_cancelling_against_unlocking() {
    let _watchdog = watchdog(120);
    let (runtime, mutex) = (workers(2), Arc::new(Mutex::new(0_u64)));
    let until = Instant::now() + Duration::from_millis(1500);
    let mut rounds = 0;
    while rounds <= 10 || Instant::now() < until {
        let fibers: Vec<_> = (0..8)
            .map(|number| {
                let mutex = mutex.clone();
                let fiber = move || {
                    let mut guard = match number % 4 {
                        3 => mutex.try_lock_for(Duration::from_micros(50)),
                        _ => Some(mutex.lock()),
                    };
                    fibra::yield_now();
                    if let Some(guard) = &mut guard {
                        **guard += 1;
                    }
                };
                spread(&runtime, fiber)
            })
            .collect();
        for fiber in fibers.iter().skip(rounds % 3).step_by(2) {
            fiber.cancel();
        }
        for fiber in fibers {
            let _ = fiber.join();
        }
        assert!(mutex.try_lock().is_some(), "left locked in round {rounds}");
        rounds += 1;
    }
    assert!(rounds > 10);
}

// ---- Fairness -----------------------------------------------------------------------------------------------------------

// A hog that unlocks and locks again at once, without ever letting others run in between, cannot keep a waiter out for ever: the lock is
// handed over. On one worker that is the only way: a waiter that is merely called comes too late every time.
#[test]
fn a_hog_does_not_starve_waiters() {
    let _watchdog = watchdog(60);
    let (runtime, mutex) = (workers(1), Arc::new(Mutex::new(())));
    let served = Arc::new(AtomicUsize::new(0));
    let (hogged, seen) = (mutex.clone(), served.clone());
    let hog = runtime.spawn(move || {
        let mut turns = 0_u64;
        while seen.load(SeqCst) < 3 {
            let _guard = hogged.lock();
            // With the lock in its hands it lets all other fibers run.
            fibra::yield_now();
            turns += 1;
        }
        turns
    });
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let (mutex, served) = (mutex.clone(), served.clone());
            runtime.spawn(move || {
                let _guard = mutex.lock();
                served.fetch_add(1, SeqCst);
            })
        })
        .collect();
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    assert!(hog.join().unwrap() >= 3);
}

// The same with threads on both sides, and with a fiber against a thread.
#[test]
fn a_hogging_thread_does_not_starve_a_fiber_nor_a_thread() {
    let _watchdog = watchdog(60);
    let (runtime, mutex) = (workers(1), Arc::new(Mutex::new(())));
    let over = Arc::new(AtomicBool::new(false));
    let (hogged, seen) = (mutex.clone(), over.clone());
    let hog = thread::spawn(move || {
        while !seen.load(SeqCst) {
            let _guard = hogged.lock();
            thread::sleep(Duration::from_micros(300));
        }
    });
    for _ in 0..5 {
        let other = mutex.clone();
        runtime.spawn(move || drop(other.lock())).join().unwrap();
        let other = mutex.clone();
        thread::spawn(move || drop(other.lock())).join().unwrap();
    }
    over.store(true, SeqCst);
    hog.join().unwrap();
}

// ---- Its own holder -----------------------------------------------------------------------------------------------------

#[test]
fn locking_ones_own_mutex_is_a_clear_panic() {
    let _watchdog = watchdog(60);
    let relock = || {
        let mutex = Mutex::new(String::new());
        let guard = mutex.lock();
        let ways: [&dyn Fn(); 4] = [
            &|| drop(mutex.lock()),
            &|| drop(mutex.try_lock_for(Duration::from_secs(1))),
            &|| drop(mutex.try_lock_until(Instant::now())),
            &|| {
                fibra::select! {
                    lock(mutex) -> _ => {}
                }
            },
        ];
        for (number, way) in ways.iter().enumerate() {
            let text = panic_of(way);
            assert!(text.contains("holds this Mutex<alloc::string::String> already"), "{number}: {text}");
            assert!(text.contains("sync/mutex.rs") && text.contains("ReentrantMutex"), "{number}: {text}");
        }
        assert!(mutex.try_lock().is_none());
        drop(guard);
        assert!(mutex.try_lock().is_some(), "and it works on");
    };
    relock();
    let runtime = workers(1);
    runtime.spawn(relock).join().unwrap();
    // One that another fiber holds is no panic: it waits.
    let mutex = Mutex::new(());
    let _guard = mutex.lock();
    thread::scope(|s| {
        s.spawn(|| assert!(mutex.try_lock_for(Duration::from_millis(1)).is_none()));
    });
}

#[test]
fn debug_says_who_holds_it() {
    let mutex = Arc::new(Mutex::new(5));
    assert_eq!(format!("{mutex:?}"), "Mutex { value: 5 }");
    let guard = mutex.lock();
    assert_eq!(format!("{mutex:?} {guard:?} {guard}"), "Mutex { locked_by: a thread } 5 5");
    drop(guard);
    let other = mutex.clone();
    let runtime = workers(1);
    let fiber = runtime.spawn(move || {
        let _guard = other.lock();
        let id = fibra::current().unwrap().id();
        assert_eq!(format!("{other:?}"), format!("Mutex {{ locked_by: fiber {id} }}"));
    });
    fiber.join().unwrap();
    let guard = ready(pin!(mutex.lock_async()));
    assert_eq!(format!("{mutex:?}"), "Mutex { locked_by: an unnamed holder }");
    drop(guard);
}

// ---- Guards -------------------------------------------------------------------------------------------------------------

static IN_A_STATIC: Mutex<Vec<u32>> = Mutex::new(Vec::new());

#[test]
fn statics_and_parts() {
    IN_A_STATIC.lock().push(1);
    let mut first = MutexGuard::map(IN_A_STATIC.lock(), |all| &mut all[0]);
    *first += 1;
    assert!(IN_A_STATIC.is_locked());
    drop(first);
    assert_eq!(*IN_A_STATIC.lock(), [2]);

    let unsized_one: Arc<Mutex<[u8]>> = Arc::new(Mutex::new([1, 2, 3]));
    unsized_one.lock()[1] = 9;
    assert_eq!(*unsized_one.lock(), [1, 9, 3]);

    let mutex = Mutex::<u32>::default();
    assert!(std::ptr::eq(MutexGuard::mutex(&mutex.lock()), &raw const mutex));
    assert_eq!(Mutex::from(3).into_inner(), 3);
}

fn is_send<T: Send>(_: &T) {}
fn is_sync<T: Sync>(_: &T) {}

// ---- Async --------------------------------------------------------------------------------------------------------------

#[test]
fn async_guards_are_send_and_pending_ones_are_called() {
    let _watchdog = watchdog(60);
    let mutex = Mutex::new(Cell::new(1));
    let guard = ready(pin!(mutex.lock_async()));
    is_send(&guard);
    is_sync(&mutex.lock_async());
    // Its holder has no name: every caller waits.
    assert!(mutex.try_lock_for(Duration::ZERO).is_none());
    let calls = Arc::new(Calls::default());
    let mut waiting = pin!(mutex.lock_async());
    assert!(poll(waiting.as_mut(), &calls).is_pending());
    assert!(poll(waiting.as_mut(), &calls).is_pending());
    assert_eq!(calls.count(), 0);
    thread::scope(|s| {
        s.spawn(move || drop(guard));
    });
    assert_eq!(calls.count(), 1);
    // A newcomer is quicker: it keeps its place at the head.
    let quick = mutex.lock();
    assert!(poll(waiting.as_mut(), &calls).is_pending());
    drop(quick);
    assert_eq!(calls.count(), 2);
    assert!(poll(waiting.as_mut(), &calls).is_ready());
    assert!(!mutex.is_locked(), "the guard was dropped");
}

// Dropped before it is polled, while it waits, and after it was called: the next one is told, and nothing is locked.
#[test]
fn dropping_a_future_passes_its_call_on() {
    let _watchdog = watchdog(60);
    let mutex = Mutex::new(());
    drop(mutex.lock_async());
    let (one, two) = (Arc::new(Calls::default()), Arc::new(Calls::default()));
    let guard = mutex.lock();
    let (mut first, mut second) = (Box::pin(mutex.lock_async()), Box::pin(mutex.lock_async()));
    assert!(poll(first.as_mut(), &one).is_pending() && poll(second.as_mut(), &two).is_pending());
    drop(guard);
    assert_eq!((one.count(), two.count()), (1, 0), "one at a time");
    drop(first);
    assert_eq!(two.count(), 1);
    assert!(poll(second.as_mut(), &two).is_ready());
    let guard = mutex.lock();
    let (mut first, mut second) = (Box::pin(mutex.lock_async()), Box::pin(mutex.lock_async()));
    assert!(poll(first.as_mut(), &one).is_pending() && poll(second.as_mut(), &two).is_pending());
    drop(first);
    drop(guard);
    assert_eq!((one.count(), two.count()), (1, 2));
    drop(second);
    assert!(mutex.try_lock().is_some());
}

// A future behind a fiber, and a fiber behind a future: each goes on when the one before has let go.
#[test]
fn futures_and_fibers_queue_together() {
    let _watchdog = watchdog(60);
    let (runtime, mutex) = (workers(1), Arc::new(Mutex::new(Vec::new())));
    let guard = mutex.lock();
    let fiber = |name: &'static str| {
        let mutex = mutex.clone();
        runtime.spawn(move || mutex.lock().push(name))
    };
    let future = |name: &'static str| {
        let mutex = mutex.clone();
        spawn_future(&runtime, async move { mutex.lock_async().await.push(name) })
    };
    let mut all = Vec::new();
    for number in 0..3 {
        all.push(fiber("fiber"));
        all.push(future("future"));
        until_parked(&runtime, 2 * number + 2);
    }
    drop(guard);
    all.into_iter().for_each(|one| one.join().unwrap());
    let order = mutex.lock();
    assert_eq!(order.iter().filter(|name| **name == "fiber").count(), 3);
    assert_eq!(order.len(), 6);
}

// ---- Reports ------------------------------------------------------------------------------------------------------------

#[test]
fn a_waiter_says_so() {
    assert_eq!(WaitReason::MutexLock.to_string(), "waiting for a mutex");
    assert!(WaitReason::CondvarRelock.is_binding() && !WaitReason::CondvarWait.is_binding());
}
