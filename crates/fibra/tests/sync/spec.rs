//! The lines of the specification about locks (S2.5), for the mutex that actors will lock too.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::support;
use fibra::Runtime;
use fibra::sync::{Mutex, ReentrantMutex};

// S2-33, C-32: whoever locks what it holds is told so; where that is meant, there is a lock for it.
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

// S2-36, S2-37, S2-41: without contention nobody is rescheduled, and nothing is left behind.
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

// S2-35, S2-39, S2-40, S2-42: whoever finds it locked is in its queue, and unlocking hands it to the next, one at a time, in the order of
// coming. (That an unlock is not missed by one who is just joining the queue is what the models show.)
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
