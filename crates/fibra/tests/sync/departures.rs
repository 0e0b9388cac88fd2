//! A waiter for a lock goes away, or is turned away, at an odd moment: the others are let in, and no other is.
#![allow(clippy::disallowed_types)] // std's threads and locks stand outside.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

use crate::channels::{Calls, poll, runtime};
use crate::support::watchdog;
use fibra::sync::{AcquireError, Event, Mutex, RwLock, RwLockWriteGuard, Semaphore};

/// All other fibers run until they wait.
pub(crate) fn others_run() {
    (0..20).for_each(|_| fibra::yield_now());
}

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
        assert_eq!(semaphore.try_acquire(2).map(|permit| permit.count()), Ok(2), "they are free for all others");
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
        assert!(waiter.is_finished(), "one is free, and no other fiber waits");
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
        assert!(waiter.is_finished(), "it can be read, and no other fiber waits");
        assert_eq!(waiter.join().unwrap(), 'r');
        drop(reading);
    });
}

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

/// Selects, timeouts, cancellation, futures that are dropped or forgotten half way: no permit is had twice, none is lost but those that
/// a forgotten future was called for, and in the end everything is free.
#[test]
fn stress_grants_against_departures() {
    let _watchdog = watchdog(120);
    const PERMITS: usize = 3;
    let runtime = runtime(2);
    let semaphore = Arc::new(Semaphore::new(PERMITS));
    let (mutex, lock) = (Arc::new(Mutex::new(())), Arc::new(RwLock::new(())));
    let (out, inside) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let fibers: Vec<_> =
        (0..12_usize)
            .map(|who| {
                let (semaphore, mutex, lock) = (semaphore.clone(), mutex.clone(), lock.clone());
                let (out, inside) = (out.clone(), inside.clone());
                runtime.handle().spawn(move || {
                let had = |count: usize| {
                    assert!(out.fetch_add(count, SeqCst) + count <= PERMITS, "more permits than there are");
                    fibra::yield_now();
                    out.fetch_sub(count, SeqCst);
                };
                let alone = || {
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two at once");
                    fibra::yield_now();
                    inside.fetch_sub(1, SeqCst);
                };
                for round in 0..400_usize {
                    let count = 1 + (who + round) % PERMITS;
                    let moment = Duration::from_micros((round % 7) as u64 * 3);
                    match (who + round) % 6 {
                        0 => fibra::select! {
                            on(semaphore.acquiring(count)) -> permit => { let _permit = permit.unwrap(); had(count) },
                            lock(mutex) -> _guard => alone(),
                            on(semaphore.acquiring(1)) -> permit => { let _permit = permit.unwrap(); had(1) },
                        },
                        1 => fibra::select! {
                            lock(mutex) -> _guard => alone(),
                            on(lock.writing()) -> _guard => {},
                            on(lock.reading()) -> _guard => {},
                            after(moment) => {},
                        },
                        2 => if let Ok(_permit) = semaphore.acquire_timeout(count, moment) { had(count) },
                        3 => {
                            let mut wanted = Box::pin(semaphore.acquire_async(count));
                            let mut locked = Box::pin(mutex.lock_async());
                            let waker = Waker::noop();
                            let _ = wanted.as_mut().poll_it(&mut Context::from_waker(waker));
                            let _ = locked.as_mut().poll_it(&mut Context::from_waker(waker));
                            fibra::yield_now();
                        }
                        4 => {
                            let (semaphore, mutex) = (semaphore.clone(), mutex.clone());
                            let waiter = fibra::spawn(move || {
                                let _guard = mutex.lock();
                                let _permit = semaphore.acquire(count).unwrap();
                            });
                            fibra::yield_now();
                            waiter.cancel();
                            let _ = waiter.join();
                        }
                        _ => if let Some(_guard) = mutex.try_lock_for(moment) { alone() },
                    }
                }
            })
            })
            .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert_eq!((semaphore.available(), mutex.is_locked(), lock.is_locked()), (PERMITS, false, false));
    assert!(semaphore.try_acquire(PERMITS).is_ok() && mutex.try_lock().is_some() && lock.try_write().is_some());
}

/// A lock that is dropped, or moved, while a forgotten future is in its queue.
#[test]
fn forgotten_futures_outlive_their_locks() {
    let _watchdog = watchdog(20);
    let calls = Calls::new();
    for _ in 0..3 {
        let mutex = Mutex::new(vec![1]);
        mem::forget(mutex.lock());
        let mut waits = Box::pin(mutex.lock_async());
        assert!(poll(waits.as_mut(), &calls).is_pending());
        mem::forget(waits);
        let moved = Box::new(mutex);
        let mut behind = Box::pin(moved.lock_async());
        assert!(poll(behind.as_mut(), &calls).is_pending());
        drop(behind);
        assert_eq!(moved.into_inner(), [1]);

        let mut semaphore = Semaphore::new(1);
        mem::forget(semaphore.acquire(1).unwrap());
        let mut waits = Box::pin(semaphore.acquire_async(1));
        assert!(poll(waits.as_mut(), &calls).is_pending());
        mem::forget(waits);
        let before = calls.count();
        semaphore.add_permits(1);
        assert_eq!(calls.count(), before + 1);
        assert!(semaphore.try_acquire(1).is_ok(), "a forgotten future that was called holds nothing");
        semaphore = Semaphore::new(2);
        assert!(semaphore.try_acquire(2).is_ok());
    }
}

/// Unwinding destructors may lock, and wait; so may those of a fiber that is cancelled.
#[test]
fn locks_in_destructors() {
    let _watchdog = watchdog(20);
    struct Locks(Arc<Mutex<u32>>, Arc<Semaphore>);
    impl Drop for Locks {
        fn drop(&mut self) {
            let _permit = self.1.acquire(1).unwrap();
            *self.0.lock() += 1;
        }
    }
    runtime(2).run(|| {
        let (mutex, semaphore) = (Arc::new(Mutex::new(0)), Arc::new(Semaphore::new(1)));
        let (held, permit) = (mutex.lock(), semaphore.acquire(1).unwrap());
        let spawn = |panics: bool| {
            let locks = Locks(mutex.clone(), semaphore.clone());
            fibra::spawn(move || {
                let _locks = locks;
                if panics {
                    std::panic::resume_unwind(Box::new(()));
                }
                Event::new().wait();
            })
        };
        let (panicked, cancelled) = (spawn(true), spawn(false));
        others_run();
        cancelled.cancel();
        others_run();
        assert!(!panicked.is_finished() && !cancelled.is_finished());
        drop((held, permit));
        assert!(panicked.join().is_err() && cancelled.join().is_err());
        assert_eq!((*mutex.lock(), semaphore.available()), (2, 1));
    });
}
