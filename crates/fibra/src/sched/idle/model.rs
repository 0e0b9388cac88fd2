//! Models of the idle protocol on its own: directed wakes, which worker an undirected wake chooses, workers that wake by themselves, and
//! the watcher. `sched/sleep/model.rs` models how workers and pushers use the protocol. Below: a driver that is a mutex and a condition
//! variable.

use super::driver::Driver;
use super::*;
use crate::prim::model::{check, thread};
use crate::prim::sync::Arc;

/// A minimal runtime: one worker, and something for it to see.
struct World {
    idle: Idle,
    driver: Driver,
    work: AtomicU64,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { idle: Idle::new(1, 1), driver: Driver::default(), work: AtomicU64::new(0) })
    }

    fn wake_worker(&self) {
        if self.idle.wake_worker(0) {
            self.driver.kick();
        }
    }
}

// X-04, S0-69, S4-130: push and look against announce and look again, on the worker's own word.
#[test]
fn model_directed_wake_is_not_lost() {
    check(3, || {
        let world = World::new();
        let publisher = {
            let world = world.clone();
            thread::spawn(move || {
                // Relaxed: the weakest push there could be; the wake alone must carry it over.
                world.work.store(1, Ordering::Relaxed);
                world.wake_worker();
            })
        };
        while world.work.load(Ordering::Relaxed) == 0 {
            world.idle.announce_sleep(0, false);
            // A plain load, as in the queues: the protocol has to guarantee that it sees enough.
            if world.work.load(Ordering::SeqCst) == 0 {
                world.driver.block();
            }
            let _ = world.idle.woke(0, false);
        }
        publisher.join().unwrap();
        assert_eq!((world.idle.sleeping(), world.idle.searching()), (0, 0));
    });
}

// C-14: two publishers, two sleepers: exactly one is woken, and counts as searching.
#[test]
fn model_exactly_one_is_woken() {
    check(3, || {
        let idle = Arc::new(Idle::new(2, 2));
        idle.announce_sleep(0, false);
        idle.announce_sleep(1, false);
        let other = {
            let idle = idle.clone();
            thread::spawn(move || idle.wake_any_worker().is_some() as u32)
        };
        let woken = idle.wake_any_worker().is_some() as u32 + other.join().unwrap();
        assert_eq!(woken, 1);
        assert_eq!((idle.sleeping(), idle.searching()), (1, 1));
    });
}

// A worker that wakes by itself (timer, I/O, second thoughts) against both kinds of wake: each wake is counted once.
#[test]
fn model_own_wake_against_wake_any() {
    check(3, || {
        let idle = Arc::new(Idle::new(1, 1));
        idle.announce_sleep(0, false);
        let wakers: [Box<dyn FnOnce(&Idle) -> bool + Send>; 2] =
            [Box::new(|idle| idle.wake_any_worker().is_some()), Box::new(|idle| idle.wake_worker(0))];
        let wakers = wakers.map(|wake| {
            let idle = idle.clone();
            thread::spawn(move || wake(&idle))
        });
        let woken = idle.woke(0, false);
        let claims = wakers.map(|waker| waker.join().unwrap());
        let expected = match woken {
            WokenAs::Searcher => [true, false],
            WokenAs::Directed => [false, true],
            WokenAs::Unprompted => [false, false],
        };
        assert_eq!(claims, expected, "{woken:?}");
        assert_eq!((idle.sleeping(), idle.searching()), (0, (woken == WokenAs::Searcher) as usize));
    });
}

// the watcher leaves while a worker sleeps, wakes (by itself or woken by another thread) and runs: the watcher is called, or
// has not left.
#[test]
fn model_no_worker_runs_unwatched() {
    check(3, || {
        let world = World::new();
        let bell = Arc::new(Driver::default());
        let watcher = {
            let (world, bell) = (world.clone(), bell.clone());
            thread::spawn(move || {
                if world.idle.dismiss_watcher() {
                    // A worker that is not watched would be a deadlock here.
                    bell.block();
                }
            })
        };
        let waker = {
            let world = world.clone();
            thread::spawn(move || world.wake_worker())
        };
        world.idle.announce_sleep(0, false);
        let _ = world.idle.woke(0, false);
        if world.idle.must_wake_sysmon() {
            bell.kick();
        }
        watcher.join().unwrap();
        waker.join().unwrap();
    });
}

// S4-78: a worker that is leaving sleeps where no undirected wake finds it; what is sent to it by name still wakes it.
#[test]
fn model_draining_worker_is_not_woken_for_surplus() {
    check(3, || {
        let idle = Arc::new(Idle::new(2, 2));
        let publisher = {
            let idle = idle.clone();
            thread::spawn(move || idle.wake_any_worker())
        };
        idle.set_draining(1, true);
        idle.announce_sleep(1, true);
        let reached = idle.try_wake(1);
        assert_eq!(idle.woke(1, true), if reached == Reached::Slept { WokenAs::Directed } else { WokenAs::Unprompted });
        assert_eq!(publisher.join().unwrap(), None, "a worker that is leaving was woken for work of others");
        assert_eq!((idle.sleeping(), idle.searching(), idle.alive()), (0, 0, 2));
    });
}
