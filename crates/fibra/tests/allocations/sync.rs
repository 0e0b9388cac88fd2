//! Locks allocate nothing in steady state, whether they are free or waited for: a counting allocator under them.
#![cfg(not(any(fibra_asan, fibra_tsan)))]

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use crate::counting::allocations;
use crate::support;
use fibra::Runtime;
use fibra::sync::{Condvar, Mutex, ReentrantMutex, lock_all};

/// Warm-up and rounds.
const ROUNDS: (usize, usize) = (500, 3_000);

/// Two fibers of this worker that take turns with a mutex and a condition variable: what a turn allocates.
fn turns() -> usize {
    let shared = Rc::new((Mutex::new(0_u64), Condvar::new()));
    let other = shared.clone();
    let total = (ROUNDS.0 + ROUNDS.1) as u64;
    let partner = fibra::spawn_local(move || {
        for _ in 0..total {
            let mut turn = other.0.lock();
            other.1.wait_while(&mut turn, |turn| *turn % 2 == 0);
            *turn += 1;
            drop(turn);
            other.1.notify_one();
        }
    });
    let counted = allocations(ROUNDS.0, ROUNDS.1, || {
        let mut turn = shared.0.lock();
        *turn += 1;
        shared.1.notify_one();
        shared.1.wait_while(&mut turn, |turn| *turn % 2 == 1);
    });
    partner.join().unwrap();
    counted
}

/// A mutex that another fiber holds whenever it is asked for, with a deadline or without.
fn contended(timed: bool) -> usize {
    let mutex = Rc::new(Mutex::new(false));
    let other = mutex.clone();
    drop(fibra::spawn_local(move || {
        loop {
            let over = other.lock();
            if *over {
                break;
            }
            fibra::yield_now();
            drop(over);
            fibra::yield_now();
        }
    }));
    let counted = allocations(ROUNDS.0, ROUNDS.1, || {
        drop(if timed { mutex.try_lock_for(Duration::from_secs(3600)).unwrap() } else { mutex.lock() });
        fibra::yield_now();
    });
    *mutex.lock() = true;
    counted
}

#[test]
fn locks_allocate_nothing() {
    let _alone = crate::alone();
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        let (mutex, reentrant) = (Mutex::new(1), ReentrantMutex::new(2));
        let free = allocations(ROUNDS.0, ROUNDS.1, || {
            drop(mutex.lock());
            drop(mutex.try_lock());
            drop((reentrant.lock(), reentrant.lock()));
            fibra::select! {
                lock(mutex) -> guard => assert_eq!(*guard, 1),
            }
        });
        assert_eq!(free, 0, "free locks");
        let (a, b) = (Mutex::new(1), Mutex::new(2));
        let several =
            allocations(ROUNDS.0, ROUNDS.1, || drop((lock_all([&a, &b]).map(|guard| *guard), lock_all((&b, &a)))));
        assert_eq!(several, 0, "several at once");
        assert_eq!(turns(), 0, "a condition variable");
        assert_eq!((contended(false), contended(true)), (0, 0), "a contended mutex");
        let mut cx = Context::from_waker(Waker::noop());
        let asynchronous = allocations(ROUNDS.0, ROUNDS.1, || {
            let held = mutex.lock();
            let mut future = pin!(mutex.lock_async());
            assert!(future.as_mut().poll(&mut cx).is_pending());
            drop(held);
            assert!(future.as_mut().poll(&mut cx).is_ready());
        });
        assert_eq!(asynchronous, 0, "a future that waits");
    });
}
