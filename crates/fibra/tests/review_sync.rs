//! Attacks on `sync`, `RateLimiter` and `retry`: each test here is a safe program that once broke a promise, or was meant to.
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::disallowed_types)] // std's threads and locks stand outside.

#[path = "support/channels.rs"]
mod channels;
mod support;

use std::cell::Cell;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, RawWaker, RawWakerVTable, Waker};
use std::thread;
use std::time::Duration;

use channels::{Calls, poll, ready, runtime};
use fibra::sync::{AcquireError, Barrier, Condvar, Event, Mutex, ReentrantMutex, RwLock, RwLockWriteGuard, Semaphore};
use fibra::time::{RateLimiter, RetryPolicy};
use support::{eventually, watchdog};

/// Everybody else runs until he waits.
fn others_run() {
    (0..20).for_each(|_| fibra::yield_now());
}

// ---- Semaphores ---------------------------------------------------------------------------------------------------------

/// One who waits for more than there are any more is turned away. If there are enough again before it has noticed, that does not make
/// a grant of it: nothing was free.
#[test]
fn turned_away_is_not_let_in() {
    let _watchdog = watchdog(20);
    runtime(1).run(|| {
        let semaphore = Arc::new(Semaphore::new(5));
        let three = semaphore.acquire(3).unwrap();
        let two = semaphore.acquire(2).unwrap();
        let waits = semaphore.clone();
        let waiter = fibra::spawn(move || {
            let permit = waits.acquire(5);
            permit.map(|permit| permit.count())
        });
        others_run();
        two.forget();
        semaphore.add_permits(2);
        others_run();
        let finished = waiter.is_finished();
        drop(three);
        assert!(!finished || waiter.join().unwrap().is_err(), "5 and 3 of 5 are out");
        others_run();
        assert_eq!((semaphore.available(), semaphore.total()), (5, 5));
    });
}

/// The same for an arm of a select.
#[test]
fn turned_away_is_not_let_in_by_select() {
    let _watchdog = watchdog(20);
    runtime(1).run(|| {
        let semaphore = Arc::new(Semaphore::new(5));
        let three = semaphore.acquire(3).unwrap();
        let two = semaphore.acquire(2).unwrap();
        let waits = semaphore.clone();
        let waiter = fibra::spawn(move || {
            fibra::select! { on(waits.acquiring(5)) -> permit => permit.map(|permit| permit.count()) }
        });
        others_run();
        two.forget();
        assert_eq!(semaphore.available(), 0);
        semaphore.add_permits(2);
        assert_eq!(semaphore.try_acquire(2).map(|permit| permit.count()), Ok(2), "they are free for everybody else");
        others_run();
        assert!(matches!(waiter.join().unwrap(), Err(AcquireError::TooMany { wanted: 5, .. })));
        drop(three);
        assert_eq!((semaphore.available(), semaphore.total()), (5, 5));
    });
}

/// Two arms of one select do not stand in each other's way.
#[test]
fn a_select_does_not_queue_behind_itself() {
    let _watchdog = watchdog(20);
    runtime(1).run(|| {
        let semaphore = Arc::new(Semaphore::new(5));
        let (one, four) = (semaphore.acquire(1).unwrap(), semaphore.acquire(4).unwrap());
        let waits = semaphore.clone();
        let waiter = fibra::spawn(move || {
            fibra::select! {
                on(waits.acquiring(5)) -> permit => permit.unwrap().count(),
                on(waits.acquiring(1)) -> permit => permit.unwrap().count(),
            }
        });
        others_run();
        drop(one);
        others_run();
        assert!(waiter.is_finished(), "one is free, and nobody else waits");
        assert_eq!(waiter.join().unwrap(), 1);
        drop(four);

        let lock = Arc::new(RwLock::new(()));
        let writing = lock.write();
        let waits = lock.clone();
        let waiter = fibra::spawn(move || {
            fibra::select! {
                on(waits.writing()) -> _guard => 'w',
                on(waits.reading()) -> _guard => 'r',
            }
        });
        others_run();
        let reading = RwLockWriteGuard::downgrade(writing);
        others_run();
        assert!(waiter.is_finished(), "it can be read, and nobody else waits");
        assert_eq!(waiter.join().unwrap(), 'r');
        drop(reading);
    });
}

// ---- Names that come round ------------------------------------------------------------------------------------------------

/// A guard that is forgotten locks for ever, also for a fiber in the same frame: whoever came before may have left a reference to
/// the value where it still runs (in a thread-local, say).
#[test]
fn a_forgotten_reentrant_guard_is_nobodys() {
    let _watchdog = watchdog(20);
    runtime(1).run(|| {
        let mutex = Arc::new(ReentrantMutex::new(Cell::new(0)));
        let holder = mutex.clone();
        fibra::spawn(move || mem::forget(holder.lock())).join().unwrap();
        for _ in 0..100 {
            let other = mutex.clone();
            let entered = fibra::spawn(move || other.is_mine() || other.try_lock().is_some());
            assert!(!entered.join().unwrap(), "another fiber is in");
        }
    });
}

// ---- Turns that come round ------------------------------------------------------------------------------------------------

/// "Nobody who waited when it was set is left behind, however soon it is reset", and however often.
#[test]
fn an_event_that_was_set_is_remembered() {
    let _watchdog = watchdog(20);
    for times in [1, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16] {
        let event = Event::new();
        let mut waits = pin!(event.wait_async());
        assert!(poll(waits.as_mut(), &Calls::new()).is_pending());
        for _ in 0..times {
            event.set();
            event.reset();
        }
        assert!(poll(waits, &Calls::new()).is_ready(), "set {times} times while it waited");
    }
}

/// A future whose group has gone on is not taken for one of the group that is gathering when the turn's number comes round.
#[test]
fn a_late_member_of_a_group_is_not_counted_again() {
    let _watchdog = watchdog(20);
    for times in [1 << 14, 1 << 16] {
        let barrier = Barrier::new(2);
        let turn = || {
            let (mut one, mut two) = (Box::pin(barrier.wait_async()), Box::pin(barrier.wait_async()));
            assert!(poll(one.as_mut(), &Calls::new()).is_pending());
            assert!(ready(two.as_mut()).is_leader());
            (one, two)
        };
        let (mut polled, _) = turn();
        let (dropped, _) = turn();
        (2..times).for_each(|_| drop(turn()));
        assert!(poll(polled.as_mut(), &Calls::new()).is_ready(), "its group went on {times} turns ago");
        drop(turn());
        // The next group gathers.
        let mut first = pin!(barrier.wait_async());
        assert!(poll(first.as_mut(), &Calls::new()).is_pending());
        drop(dropped);
        assert!(ready(pin!(barrier.wait_async())).is_leader());
        assert!(poll(first, &Calls::new()).is_ready());
    }
}

// ---- Rates and retries ----------------------------------------------------------------------------------------------------

/// "Zero are had at once", also if others wait.
#[test]
fn zero_tokens_are_had_at_once() {
    let _watchdog = watchdog(20);
    let limiter = RateLimiter::new(0.001);
    limiter.acquire();
    let mut waits = pin!(limiter.acquire_async());
    assert!(poll(waits.as_mut(), &Calls::new()).is_pending());
    assert_eq!(limiter.try_acquire_many(0), Ok(()));
    assert_eq!(limiter.acquire_many_timeout(0, Duration::ZERO), Ok(()));
}

/// A limit is a limit, however long a token takes and however large the burst is.
#[test]
fn rates_at_the_end_of_time() {
    let _watchdog = watchdog(20);
    for limiter in [
        RateLimiter::per(1, Duration::MAX),
        RateLimiter::new(f64::MIN_POSITIVE),
        RateLimiter::per(1, Duration::from_secs(1 << 32)),
    ] {
        assert!(limiter.try_acquire());
        assert!(!limiter.try_acquire(), "{limiter:?}");
        assert!(limiter.acquire_timeout(Duration::from_millis(1)).is_err());
        for _ in 0..3 {
            let mut waits = Box::pin(limiter.acquire_async());
            assert!(poll(waits.as_mut(), &Calls::new()).is_pending(), "{limiter:?}");
            mem::forget(waits); // It stays booked.
        }
    }
    let limiter = RateLimiter::per(1, Duration::from_secs(86_400)).with_burst(20_000);
    let had = (0..30_000).filter(|_| limiter.try_acquire()).count();
    assert_eq!(had, 20_000);
    let limiter = RateLimiter::per(1, Duration::from_secs(86_400)).with_burst(u32::MAX);
    assert!(limiter.try_acquire_many(u32::MAX).is_ok());
    assert!(!limiter.try_acquire());
}

/// The longest pause, with next to no chance in it.
#[test]
fn a_pause_of_all_time() {
    let _watchdog = watchdog(20);
    let mut operation =
        pin!(fibra::time::retry_async(RetryPolicy::fixed(Duration::MAX).jitter(1e-20), |_| async { Err::<(), _>(()) }));
    assert!(poll(operation.as_mut(), &Calls::new()).is_pending());
}

// ---- Condition variables --------------------------------------------------------------------------------------------------

/// Two notifications for two who wait, while a `notify_all` from before they came is still at work.
#[test]
fn notifications_beside_notify_all() {
    let _watchdog = watchdog(120);
    const CROWD: usize = 3000;
    for _ in 0..12 {
        let runtime = runtime(1);
        let notified = Arc::new(Condvar::new());
        let (woken, late) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(0)));
        let crowd: Vec<_> = (0..CROWD)
            .map(|_| {
                let (notified, woken) = (notified.clone(), woken.clone());
                runtime.handle().spawn(move || {
                    let mutex = Mutex::new(());
                    notified.wait(&mut mutex.lock());
                    woken.fetch_add(1, SeqCst);
                })
            })
            .collect();
        eventually(|| runtime.metrics().parked == CROWD as u64, || format!("{:?}", runtime.metrics()));
        thread::scope(|scope| {
            let mut latecomers = Vec::new();
            for _ in 0..2 {
                latecomers.push(scope.spawn(|| {
                    while woken.load(SeqCst) == 0 {
                        std::hint::spin_loop();
                    }
                    let mut guard = late.lock();
                    *guard += 1;
                    notified.wait_for(&mut guard, Duration::from_secs(3)).timed_out()
                }));
                scope.spawn(|| {
                    while *late.lock() < 2 {
                        thread::yield_now();
                    }
                    notified.notify_one();
                });
            }
            notified.notify_all();
            let timed_out: Vec<_> = latecomers.into_iter().map(|late| late.join().unwrap()).collect();
            assert_eq!(timed_out, [false, false], "a notification was lost");
        });
        crowd.into_iter().for_each(|one| one.join().unwrap());
    }
}

// ---- Wakers that misbehave ------------------------------------------------------------------------------------------------

/// A waker that panics when it is cloned, from the n-th time on.
fn brittle(clones: &'static AtomicUsize) -> Waker {
    fn clone(data: *const ()) -> RawWaker {
        // SAFETY: it was made of a `&'static AtomicUsize` below.
        let clones = unsafe { &*data.cast::<AtomicUsize>() };
        assert!(clones.fetch_sub(1, SeqCst) > 0, "a waker that cannot be cloned");
        RawWaker::new(data, &TABLE)
    }
    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, |_| (), |_| (), |_| ());
    let data: *const AtomicUsize = clones;
    // SAFETY: the functions keep the contract of a waker: nothing is owned.
    unsafe { Waker::from_raw(RawWaker::new(data.cast(), &TABLE)) }
}

/// One who was called and whose poll panics passes the call on.
#[test]
fn a_poll_that_panics_passes_the_call_on() {
    let _watchdog = watchdog(20);
    static CLONES: AtomicUsize = AtomicUsize::new(0);
    for allowed in 0..3 {
        let mutex = Mutex::new(());
        let semaphore = Semaphore::new(1);
        let (held, permit) = (mutex.lock(), semaphore.acquire(1).unwrap());
        let (mut lock, mut acquire) = (Box::pin(mutex.lock_async()), Box::pin(semaphore.acquire_async(1)));
        let calls = Calls::new();
        assert!(poll(lock.as_mut(), &calls).is_pending() && poll(acquire.as_mut(), &calls).is_pending());
        let (mut next_lock, mut next) = (pin!(mutex.lock_async()), pin!(semaphore.acquire_async(1)));
        let behind = Calls::new();
        assert!(poll(next_lock.as_mut(), &behind).is_pending() && poll(next.as_mut(), &behind).is_pending());
        drop((held, permit));
        assert_eq!((calls.count(), behind.count()), (2, 0));
        for future in [lock.as_mut() as std::pin::Pin<&mut dyn Polled>, acquire.as_mut()] {
            CLONES.store(allowed, SeqCst);
            let waker = brittle(&CLONES);
            let polled = catch_unwind(AssertUnwindSafe(|| future.poll_it(&mut Context::from_waker(&waker))));
            CLONES.store(usize::MAX, SeqCst);
            assert!(polled.is_err() || polled.unwrap());
        }
        drop((lock, acquire));
        assert_eq!(behind.count(), 2, "{allowed} clones went well");
        assert!(poll(next_lock, &behind).is_ready() && poll(next, &behind).is_ready());
    }
}

trait Polled {
    fn poll_it(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> bool;
}

impl<F: Future> Polled for F {
    fn poll_it(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> bool {
        self.poll(cx).is_ready()
    }
}
