//! Models of the read-write lock: exclusion, hand-over, and waiters that leave the queue.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use super::*;
use crate::prim::cell::UnsafeCell as Watched;
use crate::prim::model::{check, thread};
use crate::prim::sync::Arc;
use crate::wait::park;

/// A value whose uses loom watches: a write beside anything else is an error.
struct Value(Watched<u32>);

// SAFETY: that no two threads use it wrongly is what is checked.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}

type Lock = Arc<RwLock<Value>>;

fn lock() -> Lock {
    Arc::new(RwLock::new(Value(Watched::new(0))))
}

fn read(value: &Value) -> u32 {
    // SAFETY: as above.
    value.0.with(|value| unsafe { *value })
}

fn add(value: &Value) {
    // SAFETY: as above.
    value.0.with_mut(|value| unsafe { *value += 1 });
}

fn in_thread<T: Send + 'static>(
    lock: &Lock,
    f: impl FnOnce(&RwLock<Value>) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let lock = lock.clone();
    thread::spawn(move || f(&lock))
}

// Two writers and a reader: no other holder beside a writer, and no write is lost.
#[test]
fn model_rwlock_exclusion() {
    check(2, || {
        let lock = lock();
        let writer = in_thread(&lock, |lock| add(&lock.write()));
        let reader = in_thread(&lock, |lock| read(&lock.read()));
        add(&lock.write());
        writer.join().unwrap();
        assert!(reader.join().unwrap() <= 2);
        assert_eq!(read(&lock.read()), 2);
        assert!(!lock.is_locked());
    });
}

// The last reader that goes hands over to the writer that waits.
#[test]
fn model_rwlock_readers_against_writer() {
    check(2, || {
        let lock = lock();
        let reader = in_thread(&lock, |lock| read(&lock.read()));
        let writer = in_thread(&lock, |lock| add(&lock.write()));
        let reading = lock.read();
        let seen = read(&reading);
        drop(reading);
        writer.join().unwrap();
        assert!(reader.join().unwrap() <= 1 && seen <= 1);
        assert_eq!(read(&lock.read()), 1);
    });
}

// Two readers go at once, and a writer waits: one of the readers hands over.
#[test]
fn model_rwlock_last_readers_leave_together() {
    check(3, || {
        let lock = lock();
        let (one, two) = (lock.read(), lock.read());
        std::mem::forget(one);
        let other = in_thread(&lock, |lock| lock.raw.end_read());
        let writer = in_thread(&lock, |lock| add(&lock.write()));
        drop(two);
        other.join().unwrap();
        writer.join().unwrap();
        assert!(!lock.is_locked());
    });
}

// A queued writer that gives up lets the reader behind it go, while the reader before it is still there.
#[test]
fn model_rwlock_writer_times_out() {
    check(2, || {
        let lock = lock();
        let reading = lock.read();
        let reader = in_thread(&lock, |lock| read(&lock.read()));
        assert!(lock.try_write_for(Duration::ZERO).is_none());
        assert_eq!(reader.join().unwrap(), 0);
        drop(reading);
        assert!(lock.try_write().is_some());
    });
}

// The same for a writer that is cancelled.
#[test]
fn model_rwlock_writer_cancelled() {
    check(2, || {
        let lock = lock();
        let reading = lock.read();
        let me = park::me();
        let canceller = thread::spawn(move || park::cancel(me));
        let reader = in_thread(&lock, |lock| read(&lock.read()));
        assert!(catch_unwind(AssertUnwindSafe(|| drop(lock.write()))).is_err());
        assert_eq!(reader.join().unwrap(), 0);
        canceller.join().unwrap();
        drop(reading);
        assert!(lock.try_write().is_some());
    });
}

// Cancelled against handed over: the lock is free in the end.
#[test]
fn model_rwlock_cancelled_against_granted() {
    check(3, || {
        let lock = lock();
        std::mem::forget(lock.write());
        let holder = in_thread(&lock, |lock| lock.raw.end_write());
        let me = park::me();
        let canceller = thread::spawn(move || park::cancel(me));
        let _ = catch_unwind(AssertUnwindSafe(|| add(&lock.write())));
        holder.join().unwrap();
        canceller.join().unwrap();
        assert!(!lock.is_locked() && lock.try_write().is_some());
    });
}

// An upgrade against a reader that goes.
#[test]
fn model_rwlock_upgrade_against_reader() {
    check(3, || {
        let lock = lock();
        let reading = lock.upgradable_read();
        let reader = in_thread(&lock, |lock| read(&lock.read()));
        let writing = RwLockUpgradableReadGuard::upgrade(reading);
        add(&writing);
        drop(writing);
        assert!(reader.join().unwrap() <= 1);
        assert!(!lock.is_locked());
    });
}

// An upgrade against a writer that waits: the upgrade comes first, and no other writer in between.
#[test]
fn model_rwlock_upgrade_against_writer() {
    check(3, || {
        let lock = lock();
        let reading = lock.upgradable_read();
        let writer = in_thread(&lock, |lock| add(&lock.write()));
        let seen = read(&reading);
        let writing = RwLockUpgradableReadGuard::upgrade(reading);
        assert_eq!((read(&writing), seen), (0, 0));
        add(&writing);
        drop(writing);
        writer.join().unwrap();
        assert_eq!(read(&lock.read()), 2);
    });
}

// A future that was called and came too late goes back to the head, but not before an upgrade, which holds what it waits for.
#[test]
fn model_rwlock_no_writer_before_an_upgrade() {
    check(2, || {
        let lock = lock();
        let mut cx = Context::from_waker(Waker::noop());
        let writing = lock.write();
        let mut late = pin!(lock.write_async());
        assert!(late.as_mut().poll(&mut cx).is_pending());
        drop(writing);
        let reading = lock.read();
        let upgradable = lock.upgradable_read();
        std::mem::forget(upgradable);
        let upgrader = in_thread(&lock, |lock| {
            assert!(lock.raw.try_upgrade() || lock.raw.wait(want::UPGRADE, None));
            lock.raw.end_write();
        });
        let _ = late.as_mut().poll(&mut cx);
        drop(reading);
        upgrader.join().unwrap();
        assert!(late.as_mut().poll(&mut cx).is_ready());
    });
}
