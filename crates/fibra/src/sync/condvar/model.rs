//! Models of the condition variable.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::*;
use crate::prim::model::{check, thread};
use crate::prim::sync::Arc;
use crate::sync::Mutex;
use crate::sync::mutex::model_clock::all_waiters_are_late;
use crate::wait::park;

/// A count of items under a mutex, and the condition variable that waiters for an item use.
type Pair = Arc<(Mutex<u32>, Condvar)>;

fn shared() -> Pair {
    all_waiters_are_late(false);
    Arc::new((Mutex::new(0), Condvar::new()))
}

/// Waits until there is one to take, and takes it.
fn take((mutex, condvar): &(Mutex<u32>, Condvar)) {
    let mut there = mutex.lock();
    condvar.wait_while(&mut there, |there| *there == 0);
    *there -= 1;
}

/// Puts one there.
fn put((mutex, condvar): &(Mutex<u32>, Condvar)) {
    *mutex.lock() += 1;
    condvar.notify_one();
}

// Between the look at what is guarded and the wait, no notification is missed.
#[test]
fn model_condvar_notify_against_wait() {
    check(3, || {
        let shared = shared();
        let other = shared.clone();
        let putter = thread::spawn(move || put(&other));
        take(&shared);
        putter.join().unwrap();
        assert_eq!(*shared.0.lock(), 0);
    });
}

// `notify_all` reaches both.
#[test]
fn model_condvar_notify_all() {
    check(2, || {
        let shared = shared();
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || take(&shared))
            })
            .collect();
        *shared.0.lock() += 2;
        shared.1.notify_all();
        for taker in takers {
            taker.join().unwrap();
        }
        assert_eq!(*shared.0.lock(), 0);
    });
}

// Time against a notification, and a patient waiter behind: the notification is taken by either, and not lost between them.
#[test]
fn model_condvar_timeout_against_notify() {
    check(2, || {
        let shared = shared();
        let (one, two) = (shared.clone(), shared.clone());
        let impatient = thread::spawn(move || {
            let mut there = one.0.lock();
            // A notified waiter has to act on it: it passes on the item that it does not take.
            if !one.1.wait_for(&mut there, Duration::ZERO).timed_out() {
                drop(there);
                one.1.notify_one();
            }
        });
        let putter = thread::spawn(move || put(&two));
        take(&shared);
        impatient.join().unwrap();
        putter.join().unwrap();
    });
}

// Cancellation against a notification: the same; and a cancelled waiter unwinds with the mutex locked, which unwinding unlocks.
#[test]
fn model_condvar_cancel_against_notify() {
    check(2, || {
        let shared = shared();
        let (one, two, me) = (shared.clone(), shared.clone(), park::me());
        let taker = thread::spawn(move || take(&one));
        let putter = thread::spawn(move || {
            put(&two);
            park::cancel(me);
        });
        let waited = catch_unwind(AssertUnwindSafe(|| {
            let mut there = shared.0.lock();
            shared.1.wait(&mut there);
        }));
        if waited.is_ok() {
            shared.1.notify_one();
        }
        taker.join().unwrap();
        putter.join().unwrap();
        assert_eq!(shared.0.try_lock().map(|there| *there), Some(0));
    });
}
