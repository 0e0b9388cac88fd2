//! No fiber comes in too early, no call is remembered twice and none is forgotten: upgrades, events, groups, notifications.
#![allow(clippy::disallowed_types)] // std's threads and locks stand outside.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use std::{mem, thread};

use crate::channels::{Calls, poll, ready, runtime};
use crate::departures::others_run;
use crate::support::{eventually, watchdog};
use fibra::sync::{Barrier, Condvar, Event, Mutex, ReentrantMutex, RwLock, RwLockUpgradableReadGuard};

/// While an upgrade waits no newcomer comes in, not even one that was called before it and comes late.
#[test]
fn no_writer_comes_in_before_an_upgrade() {
    let _watchdog = watchdog(20);
    runtime(1).run(|| {
        let lock = Arc::new(RwLock::new(0));
        let writing = lock.write();
        let calls = Calls::new();
        let mut late = pin!(lock.read_async());
        assert!(poll(late.as_mut(), &calls).is_pending());
        drop(writing);
        assert_eq!(calls.count(), 1);
        let reading = lock.read();
        let upgrades = lock.clone();
        let upgrade = fibra::spawn(move || *RwLockUpgradableReadGuard::upgrade(upgrades.upgradable_read()) += 1);
        others_run();
        assert!(poll(late.as_mut(), &calls).is_pending(), "an upgrade waits");
        drop(reading);
        upgrade.join().unwrap();
        assert_eq!(*ready(late), 1);
    });
}

/// A guard that is forgotten locks for ever, also for a fiber in the same frame: an earlier fiber may have left a reference to
/// the value where it still runs (in a thread-local, say).
#[test]
fn a_forgotten_reentrant_guard_has_no_holder() {
    let _watchdog = watchdog(20);
    runtime(1).run(|| {
        let mutex = Arc::new(ReentrantMutex::new(Cell::new(0)));
        let holder = mutex.clone();
        fibra::spawn(move || mem::forget(holder.lock())).join().unwrap();
        for _ in 0..100 {
            let other = mutex.clone();
            let entered = fibra::spawn(move || other.is_mine() || other.try_lock().is_some());
            assert!(!entered.join().unwrap(), "another fiber is in");
        }
    });
}

/// "No fiber that waited when it was set is left behind, however soon it is reset", and however often.
#[test]
fn an_event_that_was_set_is_remembered() {
    let _watchdog = watchdog(20);
    for times in [1, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16] {
        let event = Event::new();
        let mut waits = pin!(event.wait_async());
        assert!(poll(waits.as_mut(), &Calls::new()).is_pending());
        for _ in 0..times {
            event.set();
            event.reset();
        }
        assert!(poll(waits, &Calls::new()).is_ready(), "set {times} times while it waited");
    }
}

/// A future whose group has gone on is not taken for one of the group that is gathering when the turn's number comes round.
#[test]
fn a_late_member_of_a_group_is_not_counted_again() {
    let _watchdog = watchdog(20);
    for times in [1 << 14, 1 << 16] {
        let barrier = Barrier::new(2);
        let turn = || {
            let (mut one, mut two) = (Box::pin(barrier.wait_async()), Box::pin(barrier.wait_async()));
            assert!(poll(one.as_mut(), &Calls::new()).is_pending());
            assert!(ready(two.as_mut()).is_leader());
            (one, two)
        };
        let (mut polled, _) = turn();
        let (dropped, _) = turn();
        (2..times).for_each(|_| drop(turn()));
        assert!(poll(polled.as_mut(), &Calls::new()).is_ready(), "its group went on {times} turns ago");
        drop(turn());
        // The next group gathers.
        let mut first = pin!(barrier.wait_async());
        assert!(poll(first.as_mut(), &Calls::new()).is_pending());
        drop(dropped);
        assert!(ready(pin!(barrier.wait_async())).is_leader());
        assert!(poll(first, &Calls::new()).is_ready());
    }
}

/// Two notifications for two who wait, while a `notify_all` from before they came is still at work.
#[test]
fn notifications_beside_notify_all() {
    let _watchdog = watchdog(120);
    const CROWD: usize = 3000;
    for _ in 0..12 {
        let runtime = runtime(1);
        let notified = Arc::new(Condvar::new());
        let (woken, late) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(0)));
        let crowd: Vec<_> = (0..CROWD)
            .map(|_| {
                let (notified, woken) = (notified.clone(), woken.clone());
                runtime.handle().spawn(move || {
                    let mutex = Mutex::new(());
                    notified.wait(&mut mutex.lock());
                    woken.fetch_add(1, SeqCst);
                })
            })
            .collect();
        eventually(|| runtime.metrics().parked == CROWD as u64, || format!("{:?}", runtime.metrics()));
        thread::scope(|scope| {
            let mut latecomers = Vec::new();
            for _ in 0..2 {
                latecomers.push(scope.spawn(|| {
                    while woken.load(SeqCst) == 0 {
                        std::hint::spin_loop();
                    }
                    let mut guard = late.lock();
                    *guard += 1;
                    notified.wait_for(&mut guard, Duration::from_secs(30)).timed_out()
                }));
                scope.spawn(|| {
                    while *late.lock() < 2 {
                        thread::yield_now();
                    }
                    notified.notify_one();
                });
            }
            notified.notify_all();
            let timed_out: Vec<_> = latecomers.into_iter().map(|late| late.join().unwrap()).collect();
            assert_eq!(timed_out, [false, false], "a notification was lost");
        });
        crowd.into_iter().for_each(|one| one.join().unwrap());
    }
}

/// More of the same for condition variables: every fiber that was notified goes on, whatever else happens.
#[test]
fn stress_condvar_counts() {
    let _watchdog = watchdog(120);
    let runtime = runtime(2);
    let shared = Arc::new((Mutex::new(0_usize), Condvar::new()));
    let total = 4000;
    let takers: Vec<_> = (0..6_u64)
        .map(|who| {
            let shared = shared.clone();
            runtime.handle().spawn(move || {
                let mut taken = 0;
                loop {
                    let mut left = shared.0.lock();
                    while *left == 0 {
                        if who % 2 == 0 {
                            let _ = shared.1.wait_for(&mut left, Duration::from_micros(who * 20));
                        } else {
                            shared.1.wait(&mut left);
                        }
                    }
                    if *left == usize::MAX {
                        return taken;
                    }
                    *left -= 1;
                    taken += 1;
                }
            })
        })
        .collect();
    for _ in 0..total {
        *shared.0.lock() += 1;
        shared.1.notify_one();
    }
    eventually(|| *shared.0.lock() == 0, || format!("{} left", *shared.0.lock()));
    *shared.0.lock() = usize::MAX;
    shared.1.notify_all();
    assert_eq!(takers.into_iter().map(|taker| taker.join().unwrap()).sum::<usize>(), total);
}
