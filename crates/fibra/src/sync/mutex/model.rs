//! Models of the mutex, and with it of the gate: the code itself, driven by the model's threads and by futures polled by hand.
//!
//! What is guarded is a cell of loom's, which complains if two are inside at once, or if one does not see what the other did.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::model_clock::all_waiters_are_late;
use super::*;
use crate::prim::cell::UnsafeCell as Watched;
use crate::prim::model::{check, thread};
use crate::prim::sync::Arc;
use crate::wait::park;

/// A number that only the holder of the lock may touch.
struct Number(Watched<u32>);

// SAFETY: only touched under the mutex; and if not, loom says so.
unsafe impl Send for Number {}

impl Number {
    fn add(&self) {
        // SAFETY: the mutex is held: that is what the models are about.
        self.0.with_mut(|number| unsafe { *number += 1 });
    }
    fn get(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|number| unsafe { *number })
    }
}

fn number() -> Arc<Mutex<Number>> {
    Arc::new(Mutex::new(Number(Watched::new(0))))
}

/// Counts its calls.
#[derive(Default)]
struct Calls(std::sync::atomic::AtomicU32);

impl Wake for Calls {
    fn wake(self: StdArc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Calls {
    fn count(&self) -> u32 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

fn poll<F: Future + Unpin>(future: &mut F) -> (Poll<F::Output>, StdArc<Calls>) {
    let calls = StdArc::new(Calls::default());
    let waker = Waker::from(calls.clone());
    (Pin::new(future).poll(&mut Context::from_waker(&waker)), calls)
}

/// Locks it, in a wait that may be cancelled meanwhile. True: it was locked.
fn lock_unless_cancelled(mutex: &Mutex<Number>) -> bool {
    catch_unwind(AssertUnwindSafe(|| mutex.lock().add())).is_ok()
}

/// Two threads that lock it twice each, and one that looks at the end.
fn two_lockers() {
    let mutex = number();
    let other = mutex.clone();
    let other = thread::spawn(move || {
        other.lock().add();
        other.lock().add();
    });
    mutex.lock().add();
    mutex.lock().add();
    other.join().unwrap();
    assert_eq!(mutex.lock().get(), 4);
}

// Mutual exclusion, and no wake is lost between an unlock that lets others in and a thread that begins to wait.
#[test]
fn model_mutex_two_lockers_barging() {
    check(3, || {
        all_waiters_are_late(false);
        two_lockers();
    });
}

// The same if every unlock hands the lock over.
#[test]
fn model_mutex_two_lockers_handing_over() {
    check(3, || {
        all_waiters_are_late(true);
        two_lockers();
    });
}

fn three_lockers() {
    let mutex = number();
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let mutex = mutex.clone();
            thread::spawn(move || mutex.lock().add())
        })
        .collect();
    mutex.lock().add();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(mutex.lock().get(), 3);
}

// Two in the queue: a waiter that was called and came too late goes back to its head, and no waiter is forgotten.
#[test]
fn model_mutex_three_lockers_barging() {
    check(2, || {
        all_waiters_are_late(false);
        three_lockers();
    });
}

#[test]
fn model_mutex_three_lockers_handing_over() {
    check(2, || {
        all_waiters_are_late(true);
        three_lockers();
    });
}

// Time against an unlock: a waiter that gives up takes nothing along, neither the lock nor a call that was meant for the next.
#[test]
fn model_mutex_timeout_against_unlock() {
    for late in [false, true] {
        check(2, move || {
            all_waiters_are_late(late);
            let mutex = number();
            let (one, two) = (mutex.clone(), mutex.clone());
            let guard = mutex.lock();
            let impatient = thread::spawn(move || {
                if let Some(guard) = one.try_lock_for(Duration::ZERO) {
                    guard.add();
                }
            });
            let patient = thread::spawn(move || two.lock().add());
            drop(guard);
            impatient.join().unwrap();
            patient.join().unwrap();
            assert!(!mutex.is_locked());
            assert!((1..=2).contains(&mutex.lock().get()));
        });
    }
}

// Cancellation against an unlock: the same.
#[test]
fn model_mutex_cancel_against_unlock() {
    for late in [false, true] {
        check(2, move || {
            all_waiters_are_late(late);
            let mutex = number();
            let (one, two) = (mutex.clone(), mutex.clone());
            let guard = mutex.lock();
            let me = park::me();
            // The cancelled one is this model's first thread, so that its name is known.
            let holder = {
                drop(guard);
                thread::spawn(move || {
                    two.lock().add();
                    park::cancel(me);
                })
            };
            let other = thread::spawn(move || one.lock().add());
            let locked = lock_unless_cancelled(&mutex);
            holder.join().unwrap();
            other.join().unwrap();
            assert!(!mutex.is_locked());
            assert_eq!(mutex.try_lock().unwrap().get(), 2 + u32::from(locked));
        });
    }
}

// A waiter is called, comes too late, and is cancelled before it waits again, while an unlock relies on its being called: the waiter behind
// it is called instead.
#[test]
fn model_mutex_called_and_cancelled() {
    check(2, || {
        all_waiters_are_late(false);
        let mutex = number();
        let one = mutex.clone();
        // Not loom's: written once, before anything that matters.
        let name = StdArc::new(std::sync::OnceLock::new());
        let told = name.clone();
        let guard = mutex.lock();
        let cancelled = thread::spawn(move || {
            told.set(park::me()).expect("set once");
            lock_unless_cancelled(&one)
        });
        while !mutex.raw.has_queue() {
            thread::yield_now();
        }
        let mut behind = mutex.lock_async();
        let (polled, calls) = poll(&mut behind);
        assert!(polled.is_pending());
        drop(guard);
        // (Not `lock`: it would wait behind a future that no thread polls meanwhile.)
        let again = mutex.try_lock().map(|guard| guard.add()).is_some();
        park::cancel(*name.get().expect("it waits"));
        let locked = cancelled.join().unwrap();
        assert_ne!(calls.count(), 0, "the waiter behind was not called");
        match poll(&mut behind).0 {
            Poll::Ready(guard) => assert_eq!(guard.get(), u32::from(again) + u32::from(locked)),
            Poll::Pending => panic!("called for nothing"),
        }
    });
}

// A future that is dropped when it was called passes the call on.
#[test]
fn model_mutex_future_dropped_against_unlock() {
    check(3, || {
        all_waiters_are_late(false);
        // Borrowed by a future that goes to another thread.
        let mutex: &'static Mutex<Number> = Box::leak(Box::new(Mutex::new(Number(Watched::new(0)))));
        let guard = mutex.lock();
        let mut first = mutex.lock_async();
        assert!(poll(&mut first).0.is_pending());
        let mut second = mutex.lock_async();
        let (polled, calls) = poll(&mut second);
        assert!(polled.is_pending());
        let dropper = thread::spawn(move || drop(first));
        drop(guard);
        dropper.join().unwrap();
        assert_eq!(calls.count(), 1, "the one behind was not told");
        match poll(&mut second).0 {
            Poll::Ready(guard) => guard.add(),
            Poll::Pending => panic!("called for nothing"),
        }
    });
}

// A future, a thread that waits, and an unlock: both have it in the end.
#[test]
fn model_mutex_future_beside_a_thread() {
    check(2, || {
        all_waiters_are_late(false);
        let mutex = number();
        let other = mutex.clone();
        let other = thread::spawn(move || other.lock().add());
        let mut future = mutex.lock_async();
        loop {
            match poll(&mut future) {
                (Poll::Ready(guard), _) => {
                    guard.add();
                    break;
                }
                (Poll::Pending, calls) => {
                    while calls.count() == 0 {
                        thread::yield_now();
                    }
                }
            }
        }
        drop(future);
        other.join().unwrap();
        assert_eq!(mutex.lock().get(), 2);
    });
}
