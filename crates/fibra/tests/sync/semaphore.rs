//! `Semaphore`: weighted, first come first served, nothing lost whichever way a wait ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::support::{eventually, until_parked, watchdog, workers};
use fibra::sync::{AcquireError, AcquireTimeoutError, Semaphore, TryAcquireError};
use fibra::time::Instant;

/// Lets everything run that can.
fn settle() {
    (0..20).for_each(|_| fibra::yield_now());
}

#[test]
fn a_large_request_at_the_head_holds_back_small_ones() {
    let _watchdog = watchdog(60);
    fibra::Runtime::current_thread().unwrap().run(|| {
        let semaphore = Arc::new(Semaphore::new(4));
        let order = Arc::new(AtomicUsize::new(0));
        let three = semaphore.acquire(3).unwrap();
        let ask = |count: usize| {
            let (semaphore, order) = (semaphore.clone(), order.clone());
            let fiber = fibra::spawn_local(move || {
                let _permit = semaphore.acquire(count).unwrap();
                let turn = order.fetch_add(1, SeqCst);
                fibra::yield_now();
                turn
            });
            fibra::yield_now();
            fiber
        };
        let (large, small, one) = (ask(3), ask(2), ask(1));
        settle();
        // One is available, and one is all the last one wants; but it came last.
        assert_eq!((semaphore.available(), order.load(SeqCst)), (1, 0));
        assert_eq!(semaphore.try_acquire(1).unwrap_err(), TryAcquireError::NoPermits, "not past those who wait");
        drop(three);
        assert_eq!((large.join().unwrap(), small.join().unwrap(), one.join().unwrap()), (0, 1, 2));
        assert_eq!(semaphore.available(), 4);
    });
}

#[test]
fn cancelling_the_large_head_lets_the_small_ones_go() {
    let _watchdog = watchdog(60);
    let rt = workers(1);
    let semaphore = Arc::new(Semaphore::new(4));
    let held = semaphore.acquire(3).unwrap();
    let large = rt.spawn({
        let semaphore = semaphore.clone();
        move || drop(semaphore.acquire(4))
    });
    until_parked(&rt, 1);
    let small = rt.spawn({
        let semaphore = semaphore.clone();
        move || semaphore.acquire(1).map(drop)
    });
    until_parked(&rt, 2);
    large.cancel();
    assert!(large.join().unwrap_err().is_cancelled());
    assert_eq!(small.join().unwrap(), Ok(()), "while the three are still held");
    drop(held);
    assert_eq!(semaphore.available(), 4);
}

#[test]
fn a_timed_out_head_lets_those_behind_go_whatever_they_are() {
    let _watchdog = watchdog(60);
    let rt = workers(1);
    let semaphore = Arc::new(Semaphore::new(2));
    let held = semaphore.acquire(1).unwrap();
    let head = rt.spawn({
        let semaphore = semaphore.clone();
        move || semaphore.acquire_timeout(2, Duration::from_millis(30)).map(drop)
    });
    let parked_or_late =
        |count| eventually(|| rt.metrics().parked == count || head.is_finished(), || format!("{:?}", rt.metrics()));
    parked_or_late(1);
    // A future and a thread behind it.
    let future = rt.spawn({
        let semaphore = semaphore.clone();
        move || fibra::block_on(async move { semaphore.acquire_async(1).await.map(drop) })
    });
    parked_or_late(2);
    let thread = std::thread::spawn({
        let semaphore = semaphore.clone();
        move || semaphore.acquire(1).map(drop)
    });
    assert_eq!(head.join().unwrap(), Err(AcquireTimeoutError::TimedOut));
    assert_eq!((future.join().unwrap(), thread.join().unwrap()), (Ok(()), Ok(())));
    drop(held);
    assert_eq!(semaphore.available(), 2);
}

#[test]
fn a_dropped_future_passes_its_call_on() {
    let semaphore = Semaphore::new(1);
    let held = semaphore.acquire(1).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let mut first = Box::pin(semaphore.acquire_async(1));
    let mut second = pin!(semaphore.acquire_async(1));
    assert!(first.as_mut().poll(&mut cx).is_pending() && second.as_mut().poll(&mut cx).is_pending());
    drop(held);
    // The first was called and does not come.
    drop(first);
    match second.as_mut().poll(&mut cx) {
        Poll::Ready(Ok(permit)) => assert_eq!(permit.count(), 1),
        other => panic!("{other:?}"),
    }
    assert_eq!(semaphore.available(), 1);
}

#[test]
fn a_future_that_comes_too_late_keeps_its_place() {
    let semaphore = Semaphore::new(2);
    let held = semaphore.acquire(2).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let mut first = pin!(semaphore.acquire_async(2));
    let mut second = pin!(semaphore.acquire_async(1));
    assert!(first.as_mut().poll(&mut cx).is_pending() && second.as_mut().poll(&mut cx).is_pending());
    drop(held);
    // Nothing is in the way of a newcomer for as long as the waiter that was called does not come... but the second is queued.
    assert!(semaphore.try_acquire(1).is_err());
    assert!(second.as_mut().poll(&mut cx).is_pending(), "behind the first");
    let Poll::Ready(Ok(both)) = first.as_mut().poll(&mut cx) else { panic!("it was called") };
    drop(both);
    assert!(second.as_mut().poll(&mut cx).is_ready());
}

#[test]
fn zero_is_free_and_more_than_all_is_an_error() {
    let semaphore = Arc::new(Semaphore::new(2));
    let all = semaphore.acquire(2).unwrap();
    assert_eq!(semaphore.acquire(0).unwrap().count(), 0);
    for count in [3, usize::MAX, Semaphore::MAX_PERMITS, Semaphore::MAX_PERMITS + 1] {
        let expected = AcquireError::TooMany { wanted: count, total: 2 };
        assert_eq!(semaphore.acquire(count).unwrap_err(), expected);
        assert_eq!(semaphore.try_acquire(count).unwrap_err(), TryAcquireError::TooMany { wanted: count, total: 2 });
        assert_eq!(semaphore.acquire_owned(count).unwrap_err(), expected);
        assert_eq!(fibra::block_on(semaphore.acquire_async(count)).unwrap_err(), expected);
        let selected = fibra::select! { on(semaphore.acquiring(count)) -> permit => permit.unwrap_err() };
        assert_eq!(selected, expected);
        assert!(expected.to_string().contains("2 in all"));
    }
    drop(all);
    assert_eq!((semaphore.available(), semaphore.total()), (2, 2));
    let none = Semaphore::new(0);
    assert_eq!(none.acquire(1).unwrap_err(), AcquireError::TooMany { wanted: 1, total: 0 });
    assert!(none.acquire(0).is_ok() && none.try_acquire(0).is_ok() && fibra::block_on(none.acquire_async(0)).is_ok());
    assert!(catch_unwind(|| Semaphore::new(Semaphore::MAX_PERMITS + 1)).is_err());
    let full = Semaphore::new(Semaphore::MAX_PERMITS);
    assert!(catch_unwind(AssertUnwindSafe(|| full.add_permits(1))).is_err());
    assert_eq!(full.available(), Semaphore::MAX_PERMITS);
}

#[test]
fn timeouts_of_zero_and_without_end() {
    let _watchdog = watchdog(60);
    let semaphore = Arc::new(Semaphore::new(1));
    let held = semaphore.acquire_timeout(1, Duration::ZERO).unwrap();
    assert_eq!(semaphore.acquire_timeout(1, Duration::ZERO).unwrap_err(), AcquireTimeoutError::TimedOut);
    assert_eq!(semaphore.acquire_deadline(1, Instant::now()).unwrap_err(), AcquireTimeoutError::TimedOut);
    let waiting = semaphore.clone();
    let thread = std::thread::spawn(move || waiting.acquire_timeout(1, Duration::MAX).map(drop));
    let waiting = semaphore.clone();
    fibra::run(move || {
        let fiber = fibra::spawn(move || waiting.acquire_owned_deadline(1, Instant::FAR_FUTURE).map(drop));
        fibra::yield_now();
        drop(held);
        assert_eq!(fiber.join().unwrap(), Ok(()));
    });
    assert_eq!(thread.join().unwrap(), Ok(()));
}

#[test]
fn closing_tells_all_waiters_and_keeps_the_books() {
    let _watchdog = watchdog(60);
    let rt = workers(1);
    let semaphore = Arc::new(Semaphore::new(3));
    let held = semaphore.acquire_owned(2).unwrap();
    let fibers: Vec<_> = [3, 2, 1]
        .into_iter()
        .map(|count| {
            let semaphore = semaphore.clone();
            rt.spawn(move || match count {
                1 => fibra::block_on(async { semaphore.acquire_async(count).await.map(drop) }),
                2 => fibra::select! { on(semaphore.acquiring(count)) -> permit => permit.map(drop) },
                _ => semaphore.acquire(count).map(drop),
            })
        })
        .collect();
    until_parked(&rt, 3);
    let waiting = semaphore.clone();
    let thread = std::thread::spawn(move || waiting.acquire(2).map(drop));
    std::thread::sleep(Duration::from_millis(5));
    semaphore.close();
    semaphore.close();
    for fiber in fibers {
        assert_eq!(fiber.join().unwrap(), Err(AcquireError::Closed));
    }
    assert_eq!(thread.join().unwrap(), Err(AcquireError::Closed));
    assert_eq!(semaphore.try_acquire(0).unwrap_err(), TryAcquireError::Closed);
    assert_eq!(semaphore.acquire_timeout(1, Duration::MAX).unwrap_err(), AcquireTimeoutError::Closed);
    assert_eq!((semaphore.available(), semaphore.is_closed()), (1, true));
    drop(held);
    assert_eq!(semaphore.available(), 3, "whatever was taken for those who were turned away came back");
}

#[test]
fn permits_can_be_split_merged_forgotten_and_added() {
    let _watchdog = watchdog(60);
    let semaphore = Semaphore::new(5);
    let mut three = semaphore.acquire(3).unwrap();
    let two = three.split(2).unwrap();
    assert!(three.split(2).is_none());
    assert_eq!((three.count(), two.count()), (1, 2));
    three.merge(two);
    assert_eq!(three.count(), 3);
    three.forget();
    assert_eq!((semaphore.available(), semaphore.total()), (2, 2));
    semaphore.acquire(1).unwrap().release();
    semaphore.add_permits(1);
    assert_eq!((semaphore.available(), semaphore.total()), (3, 3));
    let other = Semaphore::new(1);
    let (mut mine, its) = (semaphore.acquire(1).unwrap(), other.acquire(1).unwrap());
    assert!(catch_unwind(AssertUnwindSafe(|| mine.merge(its))).is_err());
    drop(mine);
    assert_eq!((semaphore.available(), other.available()), (3, 1), "also after a panic");
    println!("{semaphore:?}");
    // A waiter for more than are left is told, and those behind it go on.
    let rt = workers(1);
    let semaphore = Arc::new(Semaphore::new(3));
    let held = semaphore.acquire_owned(2).unwrap();
    let waiting = semaphore.clone();
    let three = rt.spawn(move || waiting.acquire(3).map(drop));
    until_parked(&rt, 1);
    let waiting = semaphore.clone();
    let one = rt.spawn(move || waiting.acquire(1).map(drop));
    until_parked(&rt, 2);
    held.forget();
    assert_eq!(three.join().unwrap(), Err(AcquireError::TooMany { wanted: 3, total: 1 }));
    assert_eq!(one.join().unwrap(), Ok(()));
    assert_eq!((semaphore.available(), semaphore.total()), (1, 1));
}

#[test]
fn as_an_arm_it_takes_only_if_it_wins() {
    let _watchdog = watchdog(60);
    fibra::run(|| {
        let semaphore = Arc::new(Semaphore::new(1));
        let (tx, rx) = fibra::channel::bounded::<u32>(1);
        tx.send(1).unwrap();
        for _ in 0..100 {
            fibra::select! {
                on(semaphore.acquiring(1)) -> permit => assert_eq!(permit.unwrap().count(), 1),
                recv(rx) -> got => tx.send(got.unwrap()).unwrap(),
            }
            assert_eq!(semaphore.available(), 1);
        }
        // Parked in a select, it is granted like any other waiter; and if another arm wins, those behind go on.
        let held = semaphore.acquire_owned(1).unwrap();
        let (stop, stopped) = fibra::channel::bounded::<()>(1);
        let waiting = semaphore.clone();
        let first = fibra::spawn(move || {
            fibra::select! {
                on(waiting.acquiring(1)) -> permit => permit.is_ok(),
                recv(stopped) -> _ => false,
            }
        });
        let waiting = semaphore.clone();
        let second = fibra::spawn(move || waiting.acquire(1).map(drop));
        settle();
        stop.send(()).unwrap();
        assert!(!first.join().unwrap());
        drop(held);
        assert_eq!(second.join().unwrap(), Ok(()));
        let waiting = semaphore.clone();
        let held = semaphore.acquire(1).unwrap();
        let third = fibra::spawn(move || fibra::select! { on(waiting.acquiring(1)) -> permit => permit.is_ok() });
        settle();
        drop(held);
        assert!(third.join().unwrap());
        assert_eq!(semaphore.available(), 1);
    });
}

// Fibers, threads and futures, with time-outs and cancellations between: never more out than there are, and all back in the end.
#[test]
fn stress_mixed_waiters() {
    let _watchdog = watchdog(120);
    const TOTAL: usize = 5;
    let rt = workers(2);
    let semaphore = Arc::new(Semaphore::new(TOTAL));
    let out = Arc::new(AtomicUsize::new(0));
    let hold = |out: &AtomicUsize, count: usize| {
        let now = out.fetch_add(count, SeqCst) + count;
        assert!(now <= TOTAL, "{now} are out");
        std::hint::spin_loop();
        out.fetch_sub(count, SeqCst);
    };
    let until = Instant::now() + Duration::from_millis(400);
    let threads: Vec<_> = (0..2)
        .map(|seed: usize| {
            let (semaphore, out) = (semaphore.clone(), out.clone());
            std::thread::spawn(move || {
                let mut round = seed;
                while Instant::now() < until {
                    round += 1;
                    let count = 1 + round % TOTAL;
                    if round.is_multiple_of(3) {
                        if let Ok(_permit) = semaphore.acquire_timeout(count, Duration::from_micros(50)) {
                            hold(&out, count);
                        }
                    } else {
                        let _permit = semaphore.acquire(count).unwrap();
                        hold(&out, count);
                    }
                }
            })
        })
        .collect();
    let fibers: Vec<_> = (0..8)
        .map(|seed: usize| {
            let (semaphore, out) = (semaphore.clone(), out.clone());
            rt.spawn(move || {
                let mut round = seed;
                while Instant::now() < until {
                    round += 1;
                    let count = 1 + round % TOTAL;
                    match round % 4 {
                        0 => {
                            let _permit = fibra::block_on(semaphore.acquire_async(count)).unwrap();
                            hold(&out, count);
                        }
                        1 => {
                            // Cancelled wherever it is.
                            let (semaphore, out) = (semaphore.clone(), out.clone());
                            let child = fibra::spawn(move || {
                                let _permit = semaphore.acquire(count).unwrap();
                                hold(&out, count);
                                fibra::yield_now();
                            });
                            fibra::yield_now();
                            child.cancel();
                            child.wait();
                        }
                        2 => fibra::select! {
                            on(semaphore.acquiring(count)) -> permit => {
                                let _permit = permit.unwrap();
                                hold(&out, count);
                            }
                            after(Duration::from_micros(30)) => {}
                        },
                        _ => {
                            let _permit = semaphore.acquire(count).unwrap();
                            fibra::yield_now();
                            hold(&out, count);
                        }
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert_eq!((semaphore.available(), out.load(SeqCst)), (TOTAL, 0));
}
