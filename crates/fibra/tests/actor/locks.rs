//! `actor::Lock`: handed over in order, found by a number, never taken twice.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::probe::{Probe, job, runtime};
use crate::support;
use fibra::actor::{self, ActorState, Lock, LockError, Reply, lock_both, lock_by_id};
use fibra::channel::unbounded;

// S2-33, C-32: locking twice is an error that says so, in a handler, in a fiber and on a thread.
#[test]
fn locking_twice_says_so() {
    let _watchdog = support::watchdog(60);
    let twice = || {
        let lock = Lock::new(0);
        let _held = lock.lock();
        assert_eq!(lock.checked_lock().err(), Some(LockError::HeldByMe));
        assert_eq!(lock.lock_timeout(Duration::from_secs(3600)).err(), Some(LockError::HeldByMe));
        assert!(lock.try_lock().is_none());
        let text = *catch_unwind(AssertUnwindSafe(|| drop(lock.lock()))).unwrap_err().downcast::<String>().unwrap();
        assert!(text.contains("has the lock already"), "{text}");
    };
    twice();
    fibra::run(|| {
        twice();
        let probe = actor::spawn(Probe::default());
        let checked = probe.call(|reply: Reply<bool>| {
            job(move |_, _| {
                twice();
                reply.send(true);
            })
        });
        assert_eq!(checked, Ok(true));
    });
}

// S2-12: a lock is found by its number, without blocking a thread: it is the same for all who have it, and forgotten with the last.
#[test]
fn locks_are_found_by_number() {
    let _watchdog = support::watchdog(60);
    let (a, b) = (lock_by_id(7001), lock_by_id(7001));
    assert!(Arc::ptr_eq(&a, &b) && a.id() == 7001);
    let held = a.lock();
    assert!(lock_by_id(7001).is_locked() && !lock_by_id(7002).is_locked());
    drop(held);
    drop((a, b));
    assert!(!lock_by_id(7001).is_locked());
    let (one, other) = (lock_by_id(7003), lock_by_id(7002));
    let both = lock_both(&one, &other);
    assert!(one.is_locked() && other.is_locked());
    drop(both);
}

// S2-13, S2-35, S2-38..S2-42, S2-54, G-11: those who fail to get it are WAITING in its queue, in order; unlocking hands it over to the
// first, which owns it before it runs, so a newcomer cannot come in between; the last leaves it free.
#[test]
fn a_lock_is_handed_over_in_order() {
    let _watchdog = support::watchdog(60);
    runtime(1).run(|| {
        let lock = Arc::new(Lock::new(Vec::new()));
        let held = lock.lock();
        let probes: Vec<_> = (0..4_u64)
            .map(|number| {
                let (probe, lock) = (actor::spawn(Probe::default()), lock.clone());
                probe.send(job(move |_, _| lock.lock().push(number))).unwrap();
                while probe.state() != ActorState::Waiting {
                    fibra::yield_now();
                }
                probe
            })
            .collect();
        assert!(probes.iter().all(|probe| probe.state() == ActorState::Waiting));
        drop(held);
        // No other fiber has run since: the first one has it already.
        assert!(lock.is_locked(), "it was handed over, not freed");
        assert!(lock.try_lock().is_none(), "no barging");
        assert_eq!(probes[0].state(), ActorState::Runnable, "woken, and owner");
        assert!(probes[1..].iter().all(|probe| probe.state() == ActorState::Waiting), "exactly one is woken");
        assert_eq!(*lock.lock(), [0, 1, 2, 3]);
        assert!(!lock.is_locked());
    });
}

// S2-34, S2-37, S2-53: a lock that is free is taken by a running handler, which goes on at once: no other fiber of its worker runs between.
#[test]
fn a_free_lock_is_taken_without_a_switch() {
    let _watchdog = support::watchdog(60);
    runtime(1).run(|| {
        let (lock, others) = (Arc::new(Lock::new(())), Arc::new(AtomicU64::new(0)));
        let probe = actor::spawn(Probe::default());
        let (shared, count) = (lock.clone(), others.clone());
        let ran = probe.call(|reply: Reply<u64>| {
            job(move |_, ctx| {
                let count_there = count.clone();
                fibra::spawn_local(move || _ = count_there.fetch_add(1, SeqCst));
                assert_eq!(ctx.address().state(), ActorState::Running);
                let held = shared.lock();
                assert_eq!(shared.owner(), Some(ctx.id()));
                assert_eq!(ctx.address().state(), ActorState::Running);
                drop(held);
                assert_eq!(shared.owner(), None);
                reply.send(count.load(SeqCst));
            })
        });
        assert_eq!(ran, Ok(0));
        assert!(!lock.is_locked(), "S2-41: without waiters it is left free");
    });
}

// S2-57: a suspended handler keeps its locals, and the other locks that it holds.
#[test]
fn a_suspended_handler_keeps_what_it_has() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (first, second) = (Arc::new(Lock::new(0)), Arc::new(Lock::new(0)));
        let held = second.lock();
        let probe = actor::spawn(Probe::default());
        let (a, b) = (first.clone(), second.clone());
        let (tx, rx) = unbounded();
        probe
            .send(job(move |_, _| {
                let local = [1, 2, 3];
                let mut one = a.lock();
                *b.lock() += 1;
                *one += local.iter().sum::<i32>();
                tx.send(*one).unwrap();
            }))
            .unwrap();
        while probe.state() != ActorState::Waiting {
            fibra::yield_now();
        }
        assert!(first.is_locked() && first.owner() == Some(probe.id()));
        drop(held);
        assert_eq!(rx.recv(), Ok(6));
    });
}

// A waiter that gives up, or is killed, leaves the queue; the lock goes to the next.
#[test]
fn one_that_leaves_the_queue_is_passed_over() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let lock = Arc::new(Lock::new(0));
        let held = lock.lock();
        let probes: Vec<_> = (0..2)
            .map(|_| {
                let (probe, lock) = (actor::spawn(Probe::default()), lock.clone());
                probe.send(job(move |_, _| *lock.lock() += 1)).unwrap();
                while probe.state() != ActorState::Waiting {
                    fibra::yield_now();
                }
                probe
            })
            .collect();
        let timed = lock.clone();
        let late = fibra::spawn(move || timed.lock_timeout(Duration::from_millis(1)).err());
        assert_eq!(late.join().unwrap(), Some(LockError::TimedOut));
        probes[0].kill();
        probes[0].stopped();
        drop(held);
        while *lock.lock() == 0 {
            fibra::yield_now();
        }
        assert_eq!(*lock.lock(), 1);
    });
}

// S2-36 in its observable part: however many lock and unlock at once, on several workers and threads, one at a time has it.
#[test]
fn stress_one_at_a_time_has_it() {
    let _watchdog = support::watchdog(120);
    let lock = Arc::new(Lock::new(0_u64));
    let rt = runtime(4);
    let thread = {
        let lock = lock.clone();
        std::thread::spawn(move || (0..2000).for_each(|_| *lock.lock() += 1))
    };
    rt.run(|| {
        let probes: Vec<_> = (0..8).map(|_| actor::spawn(Probe::default())).collect();
        for _ in 0..100 {
            for probe in &probes {
                let lock = lock.clone();
                let step = job(move |_, _| {
                    let mut held = lock.lock();
                    let before = *held;
                    fibra::yield_now();
                    *held = before + 1;
                });
                probe.send(step).unwrap();
            }
        }
    });
    thread.join().unwrap();
    assert_eq!(*lock.lock(), 2800);
}
