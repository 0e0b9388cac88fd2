//! The lines of the specification about locks (S2.5), for the mutex that actors will lock too.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use crate::support;
use fibra::Runtime;
use fibra::channel::rendezvous;
use fibra::sync::{Mutex, ReentrantMutex, Semaphore};

// S2-33, C-32: a fiber that locks what it holds is told so; where that is meant, there is a lock for it.
#[test]
fn locking_twice_is_detected_or_supported() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let mutex = Mutex::new(1);
        let held = mutex.lock();
        let again = catch_unwind(AssertUnwindSafe(|| drop(mutex.lock())));
        let message = *again.unwrap_err().downcast::<String>().expect("a text");
        assert!(message.contains("fibra") && message.contains("lock"), "{message}");
        assert!(mutex.try_lock().is_none());
        drop(held);
        assert_eq!(*mutex.lock(), 1, "and it works on");
        let reentrant = ReentrantMutex::new(2);
        let (outer, inner) = (reentrant.lock(), reentrant.lock());
        assert_eq!(*outer + *inner, 4);
    });
}

// S2-37, S2-41: without contention no fiber is rescheduled, and nothing is left behind.
#[test]
fn an_uncontended_lock_does_not_leave_the_fiber() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let switches = || runtime.metrics().switches;
    let mutex = Mutex::new(0);
    let (before, after) = runtime.run(|| {
        let before = fibra::Handle::current().metrics().switches;
        for _ in 0..1000 {
            *mutex.lock() += 1;
        }
        (before, fibra::Handle::current().metrics().switches)
    });
    // It never waits. But every 512th call that need not wait lets others run first: twice at most.
    assert!(after - before <= 2, "{}", after - before);
    assert!(!mutex.is_locked() && switches() >= after);
    assert_eq!(mutex.into_inner(), 1000);
}

// S2-35: a fiber that finds it locked is in its queue, and while no newcomer wants it the queue is served in the order of coming, one at a
// time. (That an unlock is not missed by one who is just joining the queue is what the models show.)
#[test]
fn waiters_get_it_in_the_order_of_coming() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        let order = Arc::new(Mutex::new(Vec::new()));
        let gate = Arc::new(Mutex::new(()));
        let held = gate.lock();
        let waiters: Vec<_> = (0..20)
            .map(|n| {
                let (gate, order) = (gate.clone(), order.clone());
                let waiter = fibra::spawn_local(move || {
                    let _mine = gate.lock();
                    order.lock().push(n);
                    // Others run while this one holds it: they must not get past.
                    fibra::yield_now();
                    assert_eq!(order.lock().last(), Some(&n), "one at a time");
                });
                // It is in the queue when this returns.
                fibra::yield_now();
                waiter
            })
            .collect();
        drop(held);
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert_eq!(*order.lock(), (0..20).collect::<Vec<_>>());
        assert!(!gate.is_locked());
    });
}

// S2-40: an unlock wakes one of the waiters. The others stay in the queue: only one has been switched to, whatever the lock.
#[test]
fn an_unlock_wakes_one() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::current_thread().unwrap();
    let handle = runtime.handle();
    runtime.run(|| {
        let parked = || handle.metrics().parked;
        let (mutex, semaphore) = (Arc::new(Mutex::new(())), Arc::new(Semaphore::new(1)));
        for of_the_mutex in [true, false] {
            let held = (of_the_mutex.then(|| mutex.lock()), semaphore.try_acquire(1).unwrap());
            // Who has it keeps it until it is told to let go.
            let (release, released) = rendezvous::<()>();
            let before = parked();
            let waiters: Vec<_> = (0..5)
                .map(|_| {
                    let (mutex, semaphore, released) = (mutex.clone(), semaphore.clone(), released.clone());
                    fibra::spawn_local(move || {
                        let _held = (of_the_mutex.then(|| mutex.lock()), (!of_the_mutex).then(|| semaphore.acquire(1)));
                        released.recv().unwrap();
                    })
                })
                .collect();
            (0..3).for_each(|_| fibra::yield_now());
            assert_eq!(parked() - before, 5);
            let wakes = handle.metrics().wakes_local;
            drop(held);
            assert_eq!(handle.metrics().wakes_local - wakes, 1, "one was woken");
            // The next one is woken by the end of the one before, each by one wake; the other one is that of the message.
            for left in (0..5).rev() {
                release.send(()).unwrap();
                (0..3).for_each(|_| fibra::yield_now());
                assert_eq!(parked() - before, left, "one at a time");
            }
            waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        }
    });
}

// S2-39, S2-42, G-11: a semaphore of one is the lock for fibers that must be served in order. What is given back while a fiber waits
// belongs to the head of the queue before that one runs: a newcomer meanwhile, with or without waiting, is too late.
#[test]
fn a_semaphore_of_one_is_handed_over_in_order() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::current_thread().unwrap();
    runtime.run(|| {
        let (lock, order) = (Arc::new(Semaphore::new(1)), Rc::new(RefCell::new(Vec::new())));
        let waiter = |number: u32| {
            let (lock, order) = (lock.clone(), order.clone());
            fibra::spawn_local(move || {
                let _held = lock.acquire(1).unwrap();
                order.borrow_mut().push(number);
                fibra::yield_now();
                assert_eq!(order.borrow().last(), Some(&number), "it is alone");
            })
        };
        let held = lock.acquire(1).unwrap();
        let mut waiters: Vec<_> = (0..10).map(waiter).collect();
        (0..3).for_each(|_| fibra::yield_now());
        drop(held);
        // None of them has run, and yet it is taken: the one at the head owns it.
        assert!(order.borrow().is_empty());
        assert!(lock.try_acquire(1).is_err() && lock.available() == 0, "handed over, not let go");
        waiters.extend((10..20).map(waiter));
        let last = lock.acquire(1).unwrap();
        assert_eq!(order.borrow().len(), 10, "behind those who waited, before those who came later");
        drop(last);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert_eq!(*order.borrow(), (0..20).collect::<Vec<_>>());
    });
    // The same between workers: many who want it once each, in the order in which they were seen in the queue.
    let runtime = Runtime::builder().workers(2).build().unwrap();
    runtime.run(|| {
        let (lock, order) = (Arc::new(Semaphore::new(1)), Arc::new(Mutex::new(Vec::new())));
        let held = lock.acquire(1).unwrap();
        let waiters: Vec<_> = (0..50)
            .map(|number| {
                let parked = fibra::Handle::current().metrics().parked;
                let (lock, order) = (lock.clone(), order.clone());
                let waiter = fibra::Builder::new().spread().spawn(move || {
                    let _held = lock.acquire(1).unwrap();
                    order.lock().push(number);
                });
                while fibra::Handle::current().metrics().parked <= parked {
                    fibra::yield_now();
                }
                waiter.unwrap()
            })
            .collect();
        drop(held);
        let barging = (0..1000).filter(|_| lock.try_acquire(1).is_ok()).count();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert_eq!(*order.lock(), (0..50).collect::<Vec<_>>(), "{barging} were served when no fiber waited any more");
    });
}
