//! `RwLock`: readers together, writers alone, in the order of coming; whichever way a wait ends, the lock works on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::support::{eventually, panic_of, until_parked, watchdog, workers};
use fibra::Runtime;
use fibra::sync::{RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard};
use fibra::time::Instant;

#[test]
fn readers_share_and_writers_do_not() {
    let lock = RwLock::new(1);
    let (one, two) = (lock.read(), lock.read());
    assert_eq!(*one + *two, 2);
    assert!(lock.try_write().is_none() && lock.is_locked() && !lock.is_locked_exclusive());
    drop((one, two));
    let mut writing = lock.try_write().unwrap();
    *writing += 1;
    assert!(lock.try_read().is_none() && lock.try_write().is_none() && lock.try_upgradable_read().is_none());
    assert!(lock.try_read_recursive().is_none() && lock.is_locked_exclusive());
    assert_eq!(format!("{lock:?}"), "RwLock { value: <locked> }");
    drop(writing);
    assert_eq!(format!("{lock:?} {}", lock.read()), "RwLock { value: 2 } 2");
    assert!(!lock.is_locked());
}

#[test]
fn shapes_of_parking_lot() {
    let mut lock: RwLock<Vec<u32>> = RwLock::default();
    lock.get_mut().push(1);
    assert_eq!(RwLock::from(7).into_inner(), 7);
    let unsized_lock: &RwLock<[u32]> = &RwLock::new([1, 2, 3]);
    unsized_lock.write()[0] = 5;
    assert_eq!(unsized_lock.read().iter().sum::<u32>(), 10);
    let part = RwLockReadGuard::map(lock.read(), |values| &values[..]);
    assert_eq!(part.len(), 1);
    assert!(lock.try_write().is_none(), "a part holds the lock");
    drop(part);
    assert!(RwLockReadGuard::try_map(lock.read(), |values| values.get(9)).is_err());
    let mut part = RwLockWriteGuard::try_map(lock.write(), |values| values.get_mut(0)).unwrap();
    *part = 9;
    drop(part);
    assert!(!lock.is_locked());
    assert_eq!(*lock.read(), [9]);
    // A panic in `map` lets go.
    assert!(
        catch_unwind(AssertUnwindSafe(|| RwLockWriteGuard::map(lock.write(), |_| -> &mut u32 { panic!() }))).is_err()
    );
    assert!(!lock.is_locked());
}

#[test]
fn a_waiting_writer_holds_back_new_readers_and_goes_first() {
    let _watchdog = watchdog(60);
    let rt = workers(1);
    let lock = Arc::new(RwLock::new(Vec::new()));
    let reading = lock.read();
    let writer = rt.spawn({
        let lock = lock.clone();
        move || lock.write().push("writer")
    });
    until_parked(&rt, 1);
    assert!(lock.try_read().is_none(), "behind the writer");
    assert!(lock.try_read_recursive().is_some(), "unless it says that it may hold it already");
    let reader = rt.spawn({
        let lock = lock.clone();
        move || lock.read().clone()
    });
    until_parked(&rt, 2);
    drop(reading);
    writer.join().unwrap();
    assert_eq!(reader.join().unwrap(), ["writer"]);
}

// Fibers, threads, futures and arms behind a writer that is cancelled, times out, is dropped or loses its select.
#[test]
fn when_a_queued_writer_leaves_the_readers_behind_it_go() {
    let _watchdog = watchdog(60);
    for way in 0..4 {
        let rt = workers(2);
        let lock = Arc::new(RwLock::new(1));
        let reading = lock.read();
        let (stop, stopped) = fibra::channel::bounded::<()>(1);
        let writer = rt.spawn({
            let lock = lock.clone();
            move || match way {
                0 => drop(lock.write()),
                1 => assert!(lock.try_write_for(Duration::from_millis(50)).is_none()),
                2 => {
                    let mut future = Box::pin(lock.write_async());
                    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                    stopped.recv().unwrap();
                }
                _ => fibra::select! {
                    on(lock.writing()) -> _ => panic!("the reader is still there"),
                    recv(stopped) -> _ => {}
                },
            }
        });
        eventually(|| rt.metrics().parked == 1 || writer.is_finished(), || format!("{:?}", rt.metrics()));
        let fiber = rt.spawn({
            let lock = lock.clone();
            move || *lock.read()
        });
        let future = rt.spawn({
            let lock = lock.clone();
            move || fibra::block_on(async { *lock.read_async().await })
        });
        let arm = rt.spawn({
            let lock = lock.clone();
            move || fibra::select! { on(lock.reading()) -> guard => *guard }
        });
        if way != 1 {
            until_parked(&rt, 4);
        }
        let thread = std::thread::spawn({
            let lock = lock.clone();
            move || *lock.read()
        });
        match way {
            0 => writer.cancel(),
            1 => {}
            _ => stop.send(()).unwrap(),
        }
        assert_eq!(writer.join().is_err(), way == 0);
        assert_eq!(
            (fiber.join().unwrap(), future.join().unwrap(), arm.join().unwrap(), thread.join().unwrap()),
            (1, 1, 1, 1)
        );
        drop(reading);
        assert!(lock.try_write().is_some(), "way {way}: nothing is left held");
    }
}

#[test]
fn locking_again_what_one_holds_is_a_clear_panic() {
    let lock = RwLock::new(1);
    let check = || {
        let writing = lock.write();
        assert!(panic_of(|| drop(lock.write())).contains("wait for itself"));
        assert!(panic_of(|| drop(lock.read())).contains("wait for itself"));
        assert!(panic_of(|| drop(lock.upgradable_read())).contains("wait for itself"));
        // With an end, it is none.
        assert!(lock.try_write_for(Duration::from_millis(1)).is_none());
        let reading = RwLockWriteGuard::downgrade(writing);
        assert_eq!(*lock.read() + *reading, 2);
        drop(reading);
        let upgradable = lock.upgradable_read();
        assert!(panic_of(|| drop(lock.write())).contains("wait for itself"));
        assert!(panic_of(|| drop(lock.upgradable_read())).contains("wait for itself"));
        assert_eq!(*lock.read(), 1, "which it may");
        drop(upgradable);
        *lock.write() = 1;
    };
    check();
    fibra::run(check);
    // Another fiber that waits is not meant.
    fibra::run(|| {
        let lock = Arc::new(RwLock::new(1));
        let writing = lock.write();
        let other = lock.clone();
        let fiber = fibra::spawn(move || *other.write() += 1);
        fibra::yield_now();
        drop(writing);
        fiber.join().unwrap();
        assert_eq!(*lock.read(), 2);
    });
}

#[test]
fn upgrading_waits_for_readers_and_lets_no_writer_in_between() {
    let _watchdog = watchdog(60);
    let rt = workers(1);
    let lock = Arc::new(RwLock::new(0));
    let reading = lock.read();
    let upgrader = rt.spawn({
        let lock = lock.clone();
        move || {
            let guard = lock.upgradable_read();
            assert!(lock.try_upgradable_read().is_none() && lock.try_read().is_some() && lock.try_write().is_none());
            let guard = RwLockUpgradableReadGuard::try_upgrade(guard).unwrap_err();
            let guard = RwLockUpgradableReadGuard::try_upgrade_for(guard, Duration::from_millis(1)).unwrap_err();
            fibra::sleep(Duration::from_millis(1));
            let mut guard = RwLockUpgradableReadGuard::upgrade(guard);
            assert_eq!(*guard, 0);
            *guard = 1;
            let guard = RwLockWriteGuard::downgrade_to_upgradable(guard);
            assert!(lock.try_upgradable_read().is_none() && lock.try_write().is_none());
            *RwLockUpgradableReadGuard::downgrade(guard)
        }
    });
    // It is the upgradable reader, wherever it waits now.
    until_parked(&rt, 1);
    // One queues before it upgrades; the upgrade goes before it all the same, since it holds what that one waits for.
    let writer = rt.spawn({
        let lock = lock.clone();
        move || {
            let mut guard = lock.write();
            assert_eq!(*guard, 1);
            *guard = 2;
        }
    });
    until_parked(&rt, 2);
    // (It may be asleep yet; it has upgraded when no fiber can read any more.)
    eventually(|| rt.metrics().parked == 2 && lock.try_read().is_none(), || format!("{:?}", rt.metrics()));
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(*reading, 0);
    drop(reading);
    assert_eq!(upgrader.join().unwrap(), 1);
    writer.join().unwrap();
    assert_eq!(*lock.read(), 2);
}

#[test]
fn a_cancelled_upgrade_lets_go() {
    let _watchdog = watchdog(60);
    let rt = workers(1);
    let lock = Arc::new(RwLock::new(0));
    let reading = lock.read();
    let upgrader = rt.spawn({
        let lock = lock.clone();
        move || drop(RwLockUpgradableReadGuard::upgrade(lock.upgradable_read()))
    });
    until_parked(&rt, 1);
    let reader = rt.spawn({
        let lock = lock.clone();
        move || *lock.read()
    });
    until_parked(&rt, 2);
    upgrader.cancel();
    assert!(upgrader.join().unwrap_err().is_cancelled());
    assert_eq!(reader.join().unwrap(), 0);
    assert!(lock.try_upgradable_read().is_some());
    drop(reading);
    assert!(lock.try_write().is_some());
}

// A future that was called, came too late and goes back to the head of the queue must not stand before an upgrade.
#[test]
fn no_writer_gets_ahead_of_an_upgrade() {
    let _watchdog = watchdog(60);
    Runtime::current_thread().unwrap().run(|| {
        let lock = Rc::new(RwLock::new(0));
        let mut cx = Context::from_waker(Waker::noop());
        let writing = lock.write();
        let mut future = pin!(lock.write_async());
        assert!(future.as_mut().poll(&mut cx).is_pending());
        drop(writing);
        // The future was called, and is out of the queue: others come first.
        let reading = lock.read();
        let shared = lock.clone();
        let upgrader = fibra::spawn_local(move || *RwLockUpgradableReadGuard::upgrade(shared.upgradable_read()) += 1);
        fibra::yield_now();
        assert!(lock.try_read().is_none(), "the upgrade waits");
        assert!(future.as_mut().poll(&mut cx).is_pending());
        drop(reading);
        upgrader.join().unwrap();
        let Poll::Ready(guard) = future.as_mut().poll(&mut cx) else { panic!("it is its turn") };
        assert_eq!(*guard, 1);
    });
}

#[test]
fn timeouts_of_zero_and_without_end() {
    let _watchdog = watchdog(60);
    let lock = Arc::new(RwLock::new(1));
    let writing = lock.try_write_for(Duration::ZERO).unwrap();
    assert!(lock.try_read_for(Duration::ZERO).is_none() && lock.read_timeout(Duration::ZERO).is_none());
    assert!(lock.try_write_until(Instant::now()).is_none() && lock.write_deadline(Instant::now()).is_none());
    assert!(lock.try_upgradable_read_for(Duration::ZERO).is_none());
    let threads: Vec<_> = (0..4)
        .map(|way| {
            let lock = lock.clone();
            std::thread::spawn(move || match way {
                0 => drop(lock.try_read_for(Duration::MAX).unwrap()),
                1 => drop(lock.write_timeout(Duration::MAX).unwrap()),
                2 => drop(lock.try_upgradable_read_until(Instant::FAR_FUTURE).unwrap()),
                _ => drop(lock.read_deadline(Instant::FAR_FUTURE).unwrap()),
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(5));
    drop(writing);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn async_guards_can_be_sent() {
    let _watchdog = watchdog(60);
    fibra::run(|| {
        let lock = Arc::new(RwLock::new(1));
        let shared = lock.clone();
        let task = fibra::spawn_future(async move {
            let mut guard = shared.write_async().await;
            std::future::ready(()).await;
            *guard += 1;
            let guard = RwLockWriteGuard::downgrade(guard);
            std::thread::scope(|s| s.spawn(move || *guard).join().unwrap())
        });
        assert_eq!(task.join().unwrap(), 2);
        assert!(!lock.is_locked());
    });
}

fn check(pair: &(u64, u64)) {
    assert_eq!(pair.0, pair.1, "seen while it is written");
}

fn write(pair: &mut (u64, u64), writes: &AtomicUsize) {
    check(pair);
    pair.0 += 1;
    std::hint::spin_loop();
    pair.1 += 1;
    writes.fetch_add(1, SeqCst);
}

// Readers and writers of all kinds, some of which give up: no writer beside another holder, every write counted.
#[test]
fn stress_mixed_waiters() {
    let _watchdog = watchdog(120);
    let rt = workers(2);
    let lock = Arc::new(RwLock::new((0_u64, 0_u64)));
    let writes = Arc::new(AtomicUsize::new(0));
    let until = Instant::now() + Duration::from_millis(400);
    let threads: Vec<_> = (0..2)
        .map(|seed: usize| {
            let (lock, writes) = (lock.clone(), writes.clone());
            std::thread::spawn(move || {
                let mut round = seed;
                while Instant::now() < until {
                    round += 1;
                    match round % 4 {
                        0 => write(&mut lock.write(), &writes),
                        1 => check(&lock.read()),
                        2 => {
                            if let Some(mut guard) = lock.try_write_for(Duration::from_micros(20)) {
                                write(&mut guard, &writes);
                            }
                        }
                        _ => {
                            let guard = lock.upgradable_read();
                            check(&guard);
                            write(&mut RwLockUpgradableReadGuard::upgrade(guard), &writes);
                        }
                    }
                }
            })
        })
        .collect();
    let fibers: Vec<_> = (0..8)
        .map(|seed: usize| {
            let (lock, writes) = (lock.clone(), writes.clone());
            rt.spawn(move || {
                let mut round = seed;
                while Instant::now() < until {
                    round += 1;
                    match round % 7 {
                        0 => write(&mut lock.write(), &writes),
                        1 => write(&mut fibra::block_on(lock.write_async()), &writes),
                        2 => check(&fibra::block_on(lock.read_async())),
                        3 => {
                            let (lock, writes) = (lock.clone(), writes.clone());
                            let child = fibra::spawn(move || {
                                let guard = lock.upgradable_read();
                                fibra::yield_now();
                                write(&mut RwLockUpgradableReadGuard::upgrade(guard), &writes);
                                fibra::yield_now();
                            });
                            fibra::yield_now();
                            child.cancel();
                            child.wait();
                        }
                        4 => fibra::select! {
                            on(lock.writing()) -> mut guard => write(&mut guard, &writes),
                            after(Duration::from_micros(30)) => {}
                        },
                        5 => {
                            let guard = lock.read();
                            fibra::yield_now();
                            check(&guard);
                        }
                        _ => {
                            let mut guard = lock.write();
                            write(&mut guard, &writes);
                            let guard = RwLockWriteGuard::downgrade(guard);
                            fibra::yield_now();
                            check(&guard);
                        }
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert!(!lock.is_locked());
    assert_eq!(lock.read().0, writes.load(SeqCst) as u64);
}
