//! `sync::Condvar`: no waiter is forgotten; notified, timed out or cancelled, the guard is valid.
#![allow(clippy::disallowed_types)] // std's clock watches ours.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{until_parked, watchdog, workers};
use fibra::Runtime;
use fibra::sync::{Condvar, Mutex};

/// A queue with an end, the textbook's way.
#[derive(Default)]
struct Queue {
    items: Mutex<(VecDeque<u64>, bool)>,
    filled: Condvar,
    emptied: Condvar,
}

const ROOM: usize = 3;

impl Queue {
    fn push(&self, item: u64) {
        let mut items = self.items.lock();
        self.emptied.wait_while(&mut items, |items| items.0.len() == ROOM);
        items.0.push_back(item);
        drop(items);
        self.filled.notify_one();
    }

    fn pop(&self) -> Option<u64> {
        let mut items = self.items.lock();
        self.filled.wait_while(&mut items, |items| items.0.is_empty() && !items.1);
        let item = items.0.pop_front();
        drop(items);
        self.emptied.notify_one();
        item
    }

    fn end(&self) {
        self.items.lock().1 = true;
        self.filled.notify_all();
    }
}

// Fibers of two workers and threads on both sides.
#[test]
fn a_queue_between_fibers_and_threads() {
    let _watchdog = watchdog(120);
    const EACH: u64 = 400;
    let (runtime, queue) = (workers(2), Arc::new(Queue::default()));
    let push = |from: u64| {
        let queue = queue.clone();
        move || (0..EACH).for_each(|n| queue.push(from * EACH + n))
    };
    let pop = || {
        let queue = queue.clone();
        move || std::iter::from_fn(|| queue.pop()).sum::<u64>()
    };
    let (pop_fibers, pop_threads): (Vec<_>, Vec<_>) =
        (0..3).map(|_| (runtime.spawn(pop()), thread::spawn(pop()))).unzip();
    let push_fibers: Vec<_> = (0..4).map(|from| runtime.spawn(push(from))).collect();
    let push_threads: Vec<_> = (4..6).map(|from| thread::spawn(push(from))).collect();
    push_fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    push_threads.into_iter().for_each(|thread| thread.join().unwrap());
    queue.end();
    let sum = pop_fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum::<u64>()
        + pop_threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>();
    assert_eq!(sum, (0..6 * EACH).sum());
}

#[test]
fn notifying_says_whom_it_reached() {
    let _watchdog = watchdog(60);
    let (runtime, shared) = (workers(1), Arc::new((Mutex::new(0_u32), Condvar::new())));
    assert!(!shared.1.notify_one());
    assert_eq!(shared.1.notify_all(), 0, "nothing is remembered");
    let waiters: Vec<_> = (0..11)
        .map(|_| {
            let shared = shared.clone();
            runtime.spawn(move || {
                let mut count = shared.0.lock();
                shared.1.wait(&mut count);
                *count += 1;
            })
        })
        .collect();
    until_parked(&runtime, 11);
    assert!(shared.1.notify_one());
    until_parked(&runtime, 10);
    assert_eq!(*shared.0.lock(), 1, "one, and no more");
    assert_eq!(shared.1.notify_all(), 10);
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    assert_eq!(*shared.0.lock(), 11);
}

#[test]
fn timeouts_of_every_length() {
    let _watchdog = watchdog(60);
    let (runtime, shared) = (workers(1), Arc::new((Mutex::new(0_u32), Condvar::new())));
    let wait = |shared: Arc<(Mutex<u32>, Condvar)>| {
        move || {
            let (mutex, condvar) = &*shared;
            let mut guard = mutex.lock();
            assert!(condvar.wait_for(&mut guard, Duration::ZERO).timed_out());
            assert!(condvar.wait_until(&mut guard, Instant::now()).timed_out());
            let start = Instant::now();
            assert!(condvar.wait_for(&mut guard, Duration::from_millis(10)).timed_out());
            assert!(start.elapsed() >= Duration::from_millis(10));
            assert!(condvar.wait_while_for(&mut guard, |_| true, Duration::from_millis(2)).timed_out());
            assert!(!condvar.wait_while_for(&mut guard, |_| false, Duration::ZERO).timed_out());
            assert!(mutex.is_locked());
            *guard += 1;
        }
    };
    runtime.spawn(wait(shared.clone())).join().unwrap();
    thread::spawn(wait(shared.clone())).join().unwrap();
    let other = shared.clone();
    let patient = runtime.spawn(move || {
        let mut guard = other.0.lock();
        assert!(!other.1.wait_for(&mut guard, Duration::MAX).timed_out());
        *guard
    });
    until_parked(&runtime, 1);
    shared.1.notify_one();
    assert_eq!(patient.join().unwrap(), 2);
}

// A fiber that polls with no time at all lets others have the mutex.
#[test]
fn waiting_for_no_time_lets_others_in() {
    let _watchdog = watchdog(60);
    let (runtime, shared) = (workers(1), Arc::new((Mutex::new(false), Condvar::new())));
    let other = shared.clone();
    let poller = runtime.spawn(move || {
        let mut done = other.0.lock();
        while !*done {
            let _ = other.1.wait_for(&mut done, Duration::ZERO);
        }
    });
    let other = shared.clone();
    runtime.spawn(move || *other.0.lock() = true).join().unwrap();
    poller.join().unwrap();
}

// Cancelled while it waits: the mutex is locked again before anything unwinds, and unlocked by that.
#[test]
fn a_cancelled_wait_unwinds_with_the_mutex_locked() {
    let _watchdog = watchdog(60);
    let (runtime, shared) = (workers(1), Arc::new((Mutex::new(0_u32), Condvar::new())));
    let other = shared.clone();
    let waiter = runtime.spawn(move || {
        let mut guard = other.0.lock();
        let unwound = catch_unwind(AssertUnwindSafe(|| other.1.wait(&mut guard)));
        // Still ours.
        assert!(other.0.try_lock().is_none());
        *guard += 1;
        drop(guard);
        resume_unwind(unwound.unwrap_err());
    });
    until_parked(&runtime, 1);
    let held = shared.0.lock();
    waiter.cancel();
    // Binding: as long as we hold the mutex it waits for that, cancelled or not.
    assert!(waiter_is_stuck(&runtime, &waiter));
    drop(held);
    assert!(waiter.join().unwrap_err().is_cancelled());
    assert_eq!(*shared.0.try_lock().expect("unlocked"), 1);
    assert!(!shared.1.notify_one(), "no fiber waits");
}

fn waiter_is_stuck<T>(runtime: &Runtime, waiter: &fibra::JoinHandle<T>) -> bool {
    until_parked(runtime, 1);
    !waiter.is_finished()
}

// A notification is given to a waiter that is cancelled or whose time is up at that moment: it goes to the next, or counts for it.
#[test]
fn stress_no_notification_is_lost() {
    let _watchdog = watchdog(120);
    let runtime = workers(2);
    let until = Instant::now() + Duration::from_millis(1500);
    let mut rounds = 0_u32;
    while rounds <= 10 || Instant::now() < until {
        let shared = Arc::new((Mutex::new(0_u32), Condvar::new()));
        let taken = Arc::new(AtomicUsize::new(0));
        let take = |patience: Duration| {
            let (shared, taken) = (shared.clone(), taken.clone());
            runtime.spawn(move || {
                let mut there = shared.0.lock();
                while *there == 0 {
                    if shared.1.wait_for(&mut there, patience).timed_out() && *there == 0 {
                        return;
                    }
                }
                *there -= 1;
                taken.fetch_add(1, SeqCst);
            })
        };
        let doomed = take(Duration::MAX);
        let impatient = take(Duration::from_micros(u64::from(rounds % 60)));
        let patient = take(Duration::MAX);
        for _ in 0..3 {
            *shared.0.lock() += 1;
            shared.1.notify_one();
            doomed.cancel();
        }
        patient.join().unwrap();
        impatient.join().unwrap();
        let _ = doomed.join();
        assert_eq!(taken.load(SeqCst) + *shared.0.lock() as usize, 3);
        rounds += 1;
    }
    assert!(rounds > 10);
}

// ---- Blocking in a destructor -------------------------------------------------------------------------------------------

/// Waits for a condition when it is dropped.
struct WaitsInDrop(Arc<(Mutex<bool>, Condvar)>);

impl Drop for WaitsInDrop {
    fn drop(&mut self) {
        let mut done = self.0.0.lock();
        self.0.1.wait_while(&mut done, |done| !*done);
    }
}

#[test]
fn waiting_while_unwinding_completes() {
    let _watchdog = watchdog(60);
    let (runtime, shared) = (workers(1), Arc::new((Mutex::new(false), Condvar::new())));
    let (waits, unwound) = (WaitsInDrop(shared.clone()), Arc::new(AtomicBool::new(false)));
    let seen = unwound.clone();
    let fiber = runtime.spawn(move || {
        struct Last(Arc<AtomicBool>);
        impl Drop for Last {
            fn drop(&mut self) {
                self.0.store(true, SeqCst);
            }
        }
        let _last = Last(seen);
        let _waits = waits;
        fibra::sleep(Duration::MAX);
    });
    until_parked(&runtime, 1);
    fiber.cancel();
    thread::sleep(Duration::from_millis(5));
    until_parked(&runtime, 1);
    assert!(!unwound.load(SeqCst), "it waits in its destructor");
    *shared.0.lock() = true;
    shared.1.notify_all();
    assert!(fiber.join().unwrap_err().is_cancelled());
    assert!(unwound.load(SeqCst));
}
