//! Models of the semaphore: hand-over, and waiters that leave the queue. Whatever the schedule, no waiter sleeps for ever (loom would
//! report it) and the number of permits is right in the end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::*;
use crate::prim::model::{check, thread};
use crate::prim::sync::Arc;
use crate::wait::park;

fn ask(semaphore: &Arc<Semaphore>, count: usize) -> thread::JoinHandle<Result<(), AcquireError>> {
    let semaphore = semaphore.clone();
    thread::spawn(move || semaphore.acquire(count).map(drop))
}

// One permit, three callers: each gets it, whether it is free, given back in that moment or handed over.
#[test]
fn model_semaphore_hand_over() {
    check(2, || {
        let semaphore = Arc::new(Semaphore::new(1));
        let (one, two) = (ask(&semaphore, 1), ask(&semaphore, 1));
        semaphore.acquire(1).unwrap().release();
        assert_eq!((one.join().unwrap(), two.join().unwrap()), (Ok(()), Ok(())));
        assert_eq!((semaphore.available(), semaphore.rules().word.load(Ordering::Relaxed) & WAITING), (1, 0));
    });
}

// A large request at the head gives up, in this very moment or before: the small one behind it goes, without a permit being given back.
#[test]
fn model_semaphore_head_times_out() {
    check(2, || {
        let semaphore = Arc::new(Semaphore::new(2));
        let held = semaphore.acquire(1).unwrap();
        let small = ask(&semaphore, 1);
        assert_eq!(semaphore.acquire_timeout(2, Duration::ZERO).unwrap_err(), AcquireTimeoutError::TimedOut);
        assert_eq!(small.join().unwrap(), Ok(()));
        drop(held);
        assert_eq!(semaphore.available(), 2);
    });
}

// The same for a request that is cancelled.
#[test]
fn model_semaphore_head_cancelled() {
    check(2, || {
        let semaphore = Arc::new(Semaphore::new(2));
        let held = semaphore.acquire(1).unwrap();
        let me = park::me();
        let canceller = thread::spawn(move || park::cancel(me));
        let small = ask(&semaphore, 1);
        assert!(catch_unwind(AssertUnwindSafe(|| semaphore.acquire(2).map(drop))).is_err());
        assert_eq!(small.join().unwrap(), Ok(()));
        canceller.join().unwrap();
        drop(held);
        assert_eq!(semaphore.available(), 2);
    });
}

// Cancelled against granted: either way the permit is there for the next.
#[test]
fn model_semaphore_cancelled_against_granted() {
    check(3, || {
        let semaphore = Arc::new(Semaphore::new(1));
        let held = semaphore.acquire(1).unwrap();
        let holder = {
            let held = held.semaphore as *const Semaphore as usize;
            let semaphore = semaphore.clone();
            assert_eq!(held, &raw const *semaphore as usize);
            thread::spawn(move || semaphore.give(1))
        };
        std::mem::forget(held);
        let me = park::me();
        let canceller = thread::spawn(move || park::cancel(me));
        let _ = catch_unwind(AssertUnwindSafe(|| semaphore.acquire(1).map(drop)));
        holder.join().unwrap();
        canceller.join().unwrap();
        assert_eq!((semaphore.available(), semaphore.rules().word.load(Ordering::Relaxed) & WAITING), (1, 0));
    });
}

// Closing against a wait: the waiter is told, and no permit is missing.
#[test]
fn model_semaphore_close_against_acquire() {
    check(2, || {
        let semaphore = Arc::new(Semaphore::new(1));
        let held = semaphore.acquire(1).unwrap();
        let waiting = ask(&semaphore, 1);
        semaphore.close();
        assert_eq!(waiting.join().unwrap(), Err(AcquireError::Closed));
        drop(held);
        assert_eq!(semaphore.available(), 1);
    });
}

// A waiter is turned away while there are too few permits for good, and there are enough again before it has noticed: no permit was free
// for it, so it gets none before the other permit is back.
#[test]
fn model_semaphore_refused_is_not_granted() {
    check(2, || {
        let semaphore = Arc::new(Semaphore::new(2));
        let is_out = Arc::new(AtomicUsize::new(1));
        let (kept, gone) = (semaphore.acquire(1).unwrap(), semaphore.acquire(1).unwrap());
        let waiter = {
            let (semaphore, is_out) = (semaphore.clone(), is_out.clone());
            thread::spawn(move || match semaphore.acquire(2) {
                // Relaxed: ordered by the permit, or it is the bug.
                Ok(_both) => assert_eq!(is_out.load(Ordering::Relaxed), 0, "two, and one is out"),
                Err(error) => assert_eq!(error, AcquireError::TooMany { wanted: 2, total: 1 }),
            })
        };
        gone.forget();
        semaphore.add_permits(1);
        // Relaxed: ordered by giving the permit back.
        is_out.store(0, Ordering::Relaxed);
        drop(kept);
        waiter.join().unwrap();
        assert_eq!((semaphore.available(), semaphore.total()), (2, 2));
    });
}
