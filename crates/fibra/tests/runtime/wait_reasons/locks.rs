//! The reasons to wait of locks and what fibers meet at: what is played for each in `every_reason_to_wait_can_be_cancelled`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use super::{LONG, cancelled_in, runtime};
use crate::support::{self, until_parked};
use fibra::sync::{
    Barrier, Condvar, Event, Mutex, OnceLock, ReentrantMutex, RwLock, RwLockUpgradableReadGuard, Semaphore, WaitGroup,
};

// A cancelled request holds nothing, and the request behind it goes on.
pub(super) fn semaphore_acquire() {
    let semaphore = Arc::new(Semaphore::new(2));
    let held = semaphore.acquire(1).unwrap();
    let waiting = semaphore.clone();
    cancelled_in(move || drop(waiting.acquire(2)));
    assert!(semaphore.try_acquire(1).is_ok());
    drop(held);
    assert_eq!(semaphore.available(), 2);
}

pub(super) fn rwlock_read() {
    let lock = Arc::new(RwLock::new(1));
    let waiting = lock.clone();
    let held = lock.write();
    cancelled_in(move || drop(waiting.read()));
    drop(held);
    assert!(!lock.is_locked() && lock.try_write().is_some());
    // The same for the one that may write later.
    let held = lock.write();
    let waiting = lock.clone();
    cancelled_in(move || drop(waiting.upgradable_read()));
    drop(held);
    assert!(lock.try_upgradable_read().is_some());
}

// A writer that was cancelled does not hold back readers any more.
pub(super) fn rwlock_write() {
    let lock = Arc::new(RwLock::new(1));
    let held = lock.read();
    let waiting = lock.clone();
    cancelled_in(move || drop(waiting.write()));
    assert!(lock.try_read().is_some());
    drop(held);
    assert!(lock.try_write().is_some());
}

// It lets go of what it had.
pub(super) fn rwlock_upgrade() {
    let lock = Arc::new(RwLock::new(1));
    let held = lock.read();
    let waiting = lock.clone();
    cancelled_in(move || drop(RwLockUpgradableReadGuard::upgrade(waiting.upgradable_read())));
    assert!(lock.try_upgradable_read().is_some() && lock.try_read().is_some());
    drop(held);
    assert!(lock.try_write().is_some());
}

// It is not counted any more.
pub(super) fn barrier_wait() {
    let barrier = Arc::new(Barrier::new(2));
    let waiting = barrier.clone();
    cancelled_in(move || assert!(waiting.wait().is_leader()));
    assert!(barrier.wait_timeout(Duration::ZERO).is_none());
    let waiting = barrier.clone();
    let other = std::thread::spawn(move || waiting.wait().is_leader());
    assert_ne!(barrier.wait().is_leader(), other.join().unwrap());
}

pub(super) fn wait_group_wait() {
    let group = Arc::new(WaitGroup::new());
    group.add(1);
    let waiting = group.clone();
    cancelled_in(move || waiting.wait());
    assert!(!group.is_done());
    group.done();
    group.wait();
}

// One that waits for the value leaves; then the one who makes it does, and the next makes it.
pub(super) fn once_wait() {
    let value = Arc::new(OnceLock::new());
    let runtime = runtime();
    let (making, waiting) = (value.clone(), value.clone());
    let maker = runtime.spawn(move || {
        making.get_or_init(|| {
            fibra::sleep(LONG);
            1
        });
    });
    until_parked(&runtime, 1);
    cancelled_in(move || assert_eq!(waiting.get_or_init(|| 2), &2));
    let waiting = value.clone();
    cancelled_in(move || assert_eq!(waiting.wait(), &2));
    assert_eq!(value.get(), None);
    maker.cancel();
    assert!(maker.join().unwrap_err().is_cancelled());
    assert_eq!(value.get_or_init(|| 3), &3);
}

pub(super) fn event_wait() {
    let event = Arc::new(Event::new());
    let waiting = event.clone();
    cancelled_in(move || waiting.wait());
    assert!(!event.is_set());
    event.set();
    event.wait();
}

// A cancelled waiter never has the lock, and those behind it do.
pub(super) fn mutex_lock() {
    let mutex = Arc::new(Mutex::new(0));
    let guard = mutex.lock();
    let waiter = mutex.clone();
    cancelled_in(move || *waiter.lock() += 1);
    drop(guard);
    assert_eq!(*mutex.try_lock().unwrap(), 0);
}

pub(super) fn reentrant_lock() {
    let mutex = Arc::new(ReentrantMutex::new(0));
    let guard = mutex.lock();
    let waiter = mutex.clone();
    cancelled_in(move || drop(waiter.lock()));
    drop(guard);
    assert!(!mutex.is_locked());
}

// What it did not wait for goes to the next; the mutex is unlocked.
pub(super) fn condvar_wait() {
    let shared = Arc::new((Mutex::new(0), Condvar::new()));
    let waiter = shared.clone();
    cancelled_in(move || waiter.1.wait(&mut waiter.0.lock()));
    assert!(shared.0.try_lock().is_some() && !shared.1.notify_one());
}

// Binding: notified and cancelled, it waits until it has the mutex again, and goes on with that.
pub(super) fn condvar_relock() {
    let runtime = runtime();
    let (shared, ended) = (Arc::new((Mutex::new(0), Condvar::new())), Arc::new(AtomicBool::new(false)));
    let (waiter, tells) = (shared.clone(), ended.clone());
    let fiber = runtime.spawn(move || {
        let mut guard = waiter.0.lock();
        waiter.1.wait(&mut guard);
        *guard += 1;
        tells.store(true, SeqCst);
        drop(guard);
        fibra::checkpoint();
    });
    until_parked(&runtime, 1);
    let held = shared.0.lock();
    assert!(shared.1.notify_one());
    // It wakes, and parks again.
    support::eventually(|| runtime.metrics().switches > 1, || format!("{:?}", runtime.metrics()));
    until_parked(&runtime, 1);
    fiber.cancel();
    runtime.spawn(|| {}).join().unwrap();
    assert!(!ended.load(SeqCst) && runtime.metrics().parked == 1);
    drop(held);
    assert!(fiber.join().unwrap_err().is_cancelled());
    assert!(ended.load(SeqCst) && *shared.0.lock() == 1);
}
