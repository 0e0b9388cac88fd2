//! A fiber or thread that locks what it holds is told so where that is certain, and is not accused where it is not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use fibra::sync::{Mutex, RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard};

use crate::support::{is_child, rerun_self, watchdog};

/// What `f` panics with.
fn panic_of(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("a panic");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().expect("a text")).to_owned(),
    }
}

/// On a thread and on a fiber.
fn on_both(check: impl Fn() + Send + Sync) {
    check();
    fibra::run(check);
}

#[test]
fn who_reads_and_then_writes_is_told() {
    let _watchdog = watchdog(60);
    on_both(|| {
        let lock = RwLock::new(1);
        let reading = lock.read();
        let text = panic_of(|| drop(lock.write()));
        assert!(text.contains("wait for itself") && text.contains("for reading"), "{text}");
        let text = panic_of(|| {
            fibra::select! {
                on(lock.writing()) -> _guard => {}
            }
        });
        assert!(text.contains("wait for itself"), "{text}");
        // With an end it is none; and the lock is as it was.
        assert!(lock.try_write_for(Duration::from_millis(1)).is_none());
        assert_eq!(*lock.read_recursive() + *reading, 2);
        drop(reading);
        *lock.write() += 1;
        assert_eq!(*lock.read(), 2);
    });
}

#[test]
fn who_reads_and_then_upgrades_is_told() {
    let _watchdog = watchdog(60);
    on_both(|| {
        let lock = RwLock::new(1);
        let upgradable = lock.upgradable_read();
        let reading = lock.read();
        let text = panic_of(|| drop(RwLockUpgradableReadGuard::upgrade(upgradable)));
        assert!(text.contains("wait for itself") && text.contains("for reading"), "{text}");
        drop(reading);
        assert!(!lock.is_locked(), "the guard that was to be upgraded has let go");
    });
}

#[test]
fn who_came_to_read_by_a_downgrade_and_then_writes_is_told() {
    let _watchdog = watchdog(60);
    on_both(|| {
        let lock = RwLock::new(1);
        let reading = RwLockWriteGuard::downgrade(lock.write());
        assert!(panic_of(|| drop(lock.write())).contains("wait for itself"));
        drop(reading);
        let reading = RwLockUpgradableReadGuard::downgrade(lock.upgradable_read());
        assert!(panic_of(|| drop(lock.write())).contains("wait for itself"));
        drop(reading);
        drop(lock.write());
    });
}

#[test]
fn an_arm_that_waits_for_its_own_fiber_is_told() {
    let _watchdog = watchdog(60);
    on_both(|| {
        let lock = RwLock::new(1);
        let writing = lock.write();
        let text = panic_of(|| {
            fibra::select! {
                on(lock.reading()) -> _guard => {}
            }
        });
        assert!(text.contains("wait for itself"), "{text}");
        drop(writing);
        // Beside its own upgradable reading it may read.
        let _upgradable = lock.upgradable_read();
        fibra::select! {
            on(lock.reading()) -> guard => assert_eq!(*guard, 1),
        }
    });
}

// Reading is over, in whatever order: then its fiber may write, and waits for others like any fiber.
#[test]
fn who_has_read_may_write() {
    let _watchdog = watchdog(60);
    on_both(|| {
        let lock = RwLock::new(0);
        let (one, two) = (lock.read(), lock.read());
        drop(one);
        drop(two);
        *lock.write() += 1;
        let mapped = fibra::sync::RwLockReadGuard::map(lock.read(), |value| value);
        drop(mapped);
        *lock.write() += 1;
        let shown = format!("{lock:?}");
        assert!(shown.contains('2'), "{shown}");
        *lock.write() += 1;
        drop(lock.try_read());
        drop(lock.read_recursive());
        drop(fibra::block_on(lock.read_async()));
        *lock.write() += 1;
        assert_eq!(lock.into_inner(), 4);
    });
}

// Others hold it for reading, on other threads and by guards that belong to no fiber in particular: who has read himself waits for them.
#[test]
fn who_has_read_waits_for_other_readers() {
    let _watchdog = watchdog(120);
    let lock = &RwLock::new(0);
    let over = &AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !over.load(SeqCst) {
                    drop(lock.read());
                    drop(fibra::block_on(lock.read_async()));
                }
            });
        }
        for _ in 0..20_000 {
            drop(lock.read());
            *lock.write() += 1;
        }
        over.store(true, SeqCst);
    });
    assert_eq!(*lock.read(), 20_000);
}

// A guard that is not `Send` may still go to a fiber of the same worker, which then lets go of it.
#[test]
fn a_reading_that_another_local_fiber_ends_is_over() {
    let _watchdog = watchdog(60);
    static LOCK: RwLock<u32> = RwLock::new(0);
    let runtime = fibra::Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        let guard = LOCK.read();
        fibra::spawn_local(move || drop(guard)).join().unwrap();
        let elsewhere = fibra::block_on(LOCK.read_async());
        let ends = fibra::spawn_local(move || {
            fibra::yield_now();
            drop(elsewhere);
        });
        *LOCK.write() += 1; // No panic: it waits for that one.
        ends.join().unwrap();
    });
}

// Whether it is a mistake is not certain, since another part of the same future may let go; so it goes on, and is said.
#[test]
fn a_lock_that_is_awaited_by_its_holder_is_reported() {
    const TEST: &str = "a_lock_that_is_awaited_by_its_holder_is_reported";
    if is_child(TEST) {
        return awaits_its_own_locks();
    }
    let child = rerun_self(TEST, &[]);
    assert!(child.status.success(), "{}", child.stderr);
    let said = child.stderr;
    assert_eq!(said.matches("holds itself").count(), 1, "said once:\n{said}");
    assert!(said.contains("awaits a Mutex that it holds itself, by `lock`"), "{said}");
}

fn awaits_its_own_locks() {
    let _watchdog = watchdog(60);
    fibra::run(|| {
        let mutex = Mutex::new(1);
        let guard = mutex.lock();
        let mut holder = Some(guard);
        let mut locking = Box::pin(mutex.lock_async());
        let value = fibra::block_on(std::future::poll_fn(|cx| {
            let polled = locking.as_mut().poll(cx);
            drop(holder.take());
            polled.map(|guard| *guard)
        }));
        assert_eq!(value, 1);
        let lock = RwLock::new(1);
        let mut holder = Some(lock.read());
        let mut writing = Box::pin(lock.write_async());
        let value = fibra::block_on(std::future::poll_fn(|cx| {
            let polled = writing.as_mut().poll(cx);
            drop(holder.take());
            polled.map(|guard| *guard)
        }));
        assert_eq!(value, 1);
    });
}

// A fiber's frame is used again by the next one. The guard of one that has ended is not the next one's.
#[test]
fn who_has_the_frame_of_a_former_reader_is_not_accused() {
    let _watchdog = watchdog(60);
    fibra::run(|| {
        let leaked: &'static RwLock<u32> = Box::leak(Box::new(RwLock::new(0)));
        let reading = fibra::spawn_local(|| leaked.read()).join().unwrap();
        let writers: Vec<_> = (0..64).map(|_| fibra::spawn_local(|| *leaked.write() += 1)).collect();
        fibra::yield_now();
        drop(reading);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(*leaked.read(), 64);
        let writing = fibra::spawn_local(|| leaked.write()).join().unwrap();
        let readers: Vec<_> = (0..64).map(|_| fibra::spawn_local(|| *leaked.read())).collect();
        fibra::yield_now();
        drop(writing);
        readers.into_iter().for_each(|reader| assert_eq!(reader.join().unwrap(), 64));
    });
}
