//! Several locks: a mutex as an arm of a select, `ReentrantMutex`, and `lock_all`.

use std::cell::RefCell;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::support::{panic_of, until_parked, watchdog, workers};
use fibra::sync::{LockAll, Mutex, ReentrantMutex, lock_all};
use fibra::{Builder, JoinHandle, Runtime};

/// On the worker with the fewest fibers.
fn spread(runtime: &Runtime, f: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    runtime.handle().spawn_with(Builder::new().spread(), f).unwrap()
}

// ---- Select -------------------------------------------------------------------------------------------------------------

#[test]
fn a_lock_as_an_arm() {
    let _watchdog = watchdog(60);
    let mutex = Arc::new(Mutex::new(1));
    // Free: it wins over waiting.
    fibra::select! {
        lock(mutex) -> mut guard => *guard += 1,
        default => panic!("it is free"),
    }
    // Held: the other arm does, and nothing is locked by the arm that lost.
    let held = mutex.lock();
    let other = mutex.clone();
    thread::spawn(move || {
        fibra::select! {
            lock(other) -> _ => panic!("it is held"),
            after(Duration::from_millis(3)) => {}
        }
        fibra::select! {
            lock(&*other) -> _ => panic!("it is held"),
            default => {}
        }
        fibra::select! {
            lock(other) -> _, if false => panic!("it is off"),
            default => {}
        }
    })
    .join()
    .unwrap();
    // Let go while a fiber waits for it and for something else.
    let runtime = workers(1);
    let (tx, rx) = fibra::channel::bounded::<u32>(1);
    let other = mutex.clone();
    let waiter = runtime.spawn(move || {
        fibra::select! {
            recv(rx) -> _ => panic!("nothing is sent"),
            lock(other) -> guard => *guard,
        }
    });
    until_parked(&runtime, 1);
    drop(held);
    assert_eq!(waiter.join().unwrap(), 2);
    drop(tx);
    // The guard outlives the select.
    let guard = fibra::select! {
        on(mutex.locking()) -> guard => guard,
    };
    assert_eq!(*guard, 2);
    assert!(mutex.is_locked());
}

// One of several mutexes, whichever is let go first; the others are left alone, and so is the queue behind.
#[test]
fn a_select_over_several_locks_takes_one() {
    let _watchdog = watchdog(60);
    let (runtime, locks) = (workers(1), Arc::new([Mutex::new(0), Mutex::new(1), Mutex::new(2)]));
    for round in 0..3 {
        let mut held: Vec<_> = locks.iter().map(|lock| Some(lock.lock())).collect();
        let these = locks.clone();
        let waiter = runtime.spawn(move || {
            fibra::select! {
                lock(these[0]) -> guard => *guard,
                lock(these[1]) -> guard => *guard,
                lock(these[2]) -> guard => *guard,
            }
        });
        until_parked(&runtime, 1);
        let these = locks.clone();
        let behind = runtime.spawn(move || these.iter().map(|lock| *lock.lock()).sum::<usize>());
        until_parked(&runtime, 2);
        held[round] = None;
        assert_eq!(waiter.join().unwrap(), round);
        drop(held);
        assert_eq!(behind.join().unwrap(), 3);
        assert!(locks.iter().all(|lock| !lock.is_locked()));
    }
}

// A cancelled select holds nothing.
#[test]
fn a_cancelled_select_over_a_lock_holds_nothing() {
    let _watchdog = watchdog(60);
    let (runtime, mutex) = (workers(1), Arc::new(Mutex::new(())));
    let held = mutex.lock();
    let other = mutex.clone();
    let waiter = runtime.spawn(move || {
        fibra::select! {
            lock(other) -> _ => {}
        }
    });
    until_parked(&runtime, 1);
    waiter.cancel();
    assert!(waiter.join().unwrap_err().is_cancelled());
    drop(held);
    assert!(mutex.try_lock().is_some());
}

// ---- Reentrant ----------------------------------------------------------------------------------------------------------

#[test]
fn reentrant_for_its_holder_only() {
    let _watchdog = watchdog(60);
    let (runtime, mutex) = (workers(1), Arc::new(ReentrantMutex::new(RefCell::new(Vec::new()))));
    let enter = |name: &'static str| {
        let mutex = mutex.clone();
        runtime.spawn(move || {
            let one = mutex.lock();
            one.borrow_mut().push(name);
            // Others of this worker run, and find it locked.
            fibra::yield_now();
            let two = mutex.lock();
            assert!(mutex.is_mine() && mutex.try_lock().is_some());
            two.borrow_mut().push(name);
            drop(one);
            fibra::yield_now();
            two.borrow_mut().push(name);
        })
    };
    let fibers: Vec<_> = ["a", "b", "c"].into_iter().map(enter).collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert!(!mutex.is_locked() && !mutex.is_mine());
    let order = mutex.lock().borrow().clone();
    assert_eq!(order.len(), 9);
    for turn in order.chunks(3) {
        assert_eq!(turn[0], turn[2], "{order:?}");
    }
    let guard = mutex.lock();
    thread::scope(|s| {
        s.spawn(|| assert!(mutex.try_lock().is_none()));
    });
    assert!(format!("{mutex:?}").contains("value"));
    drop(guard);
}

// ---- Several at once ----------------------------------------------------------------------------------------------------

// All fibers lock two or three of a few, in any order: none waits in a circle.
#[test]
fn lock_all_never_deadlocks() {
    let _watchdog = watchdog(120);
    let (runtime, accounts) = (workers(2), Arc::new([const { Mutex::new(100_i64) }; 5]));
    let movers: Vec<_> = (0..12)
        .map(|number| {
            let accounts = accounts.clone();
            let mover = move || {
                for turn in 0..200 {
                    let (a, b) = ((number + turn) % 5, (number * 3 + turn * 2 + 1) % 5);
                    if a != b {
                        let [mut from, mut to] = lock_all([&accounts[a], &accounts[b]]);
                        fibra::yield_now();
                        *from -= 1;
                        *to += 1;
                    }
                }
            };
            spread(&runtime, mover)
        })
        .collect();
    movers.into_iter().for_each(|mover| mover.join().unwrap());
    assert_eq!(accounts.iter().map(|account| *account.lock()).sum::<i64>(), 500);
}

#[test]
fn lock_all_takes_arrays_slices_and_tuples() {
    let (a, b, c) = (Mutex::new(1), Mutex::new("two"), Mutex::new(vec![3]));
    let (one, two, mut three) = lock_all((&a, &b, &c));
    three.push(*one);
    assert_eq!((*two, three.len()), ("two", 2));
    assert!(a.is_locked() && b.is_locked() && c.is_locked());
    drop((one, two, three));
    let many: Vec<Mutex<usize>> = (0..10).map(Mutex::new).collect();
    let backwards: Vec<&Mutex<usize>> = many.iter().rev().collect();
    let guards = lock_all(&backwards[..]);
    assert!(guards.iter().enumerate().all(|(at, guard)| **guard == 9 - at), "in the order given");
    drop(guards);
    let none: [&Mutex<u8>; 0] = [];
    assert_eq!(LockAll::lock_all(none).len(), 0);
    assert!(many.iter().all(|mutex| !mutex.is_locked()));
}

#[test]
fn lock_all_of_the_same_twice_is_a_clear_panic() {
    let (a, b) = (Mutex::new(1), Mutex::new(2));
    let text = panic_of(|| drop(lock_all([&a, &b, &a])));
    assert!(text.contains("same mutex twice (as number 0 and number 2"), "{text}");
    let text = panic_of(|| drop(lock_all((&a, &a))));
    assert!(text.contains("same mutex twice"), "{text}");
    assert!(!a.is_locked() && !b.is_locked());
    // One that is held already: whatever else was locked is let go.
    let held = a.lock();
    let text = panic_of(|| drop(lock_all([&a, &b])));
    assert!(text.contains("already") && !b.is_locked(), "{text}");
    drop(held);
}

// Cancelled in the middle: those that were locked are let go.
#[test]
fn a_cancelled_lock_all_lets_go() {
    let _watchdog = watchdog(60);
    let (runtime, locks) = (workers(1), Arc::new([Mutex::new(()), Mutex::new(())]));
    for held in 0..2 {
        let guard = locks[held].lock();
        let these = locks.clone();
        let waiter = runtime.spawn(move || drop(lock_all([&these[0], &these[1]])));
        until_parked(&runtime, 1);
        waiter.cancel();
        assert!(waiter.join().unwrap_err().is_cancelled());
        assert!(!locks[1 - held].is_locked());
        drop(guard);
    }
}
