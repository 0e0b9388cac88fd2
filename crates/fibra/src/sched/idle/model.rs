//! Models of the idle protocol: each wake that could be lost has one, and each seeded bug of `idle.rs` fails one. Below: the deque of
//! unstarted fibers, and a driver that is a lock and a bell.

use super::super::queue::Entry;
use super::super::queue::fresh::{Fresh, Steal};
use super::driver::Driver;
use super::*;
use crate::prim::model::{check, thread};
use crate::prim::sync::Arc;

/// A runtime of the bare minimum: items that anybody can do are a count.
struct World {
    idle: Idle,
    drivers: Vec<Driver>,
    work: AtomicU64,
    stop: AtomicU32,
}

impl World {
    fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self {
            idle: Idle::new(workers),
            drivers: (0..workers).map(|_| Driver::default()).collect(),
            work: AtomicU64::new(0),
            stop: AtomicU32::new(0),
        })
    }

    fn push(&self) {
        self.work.fetch_add(1, Ordering::SeqCst);
        self.wake_one();
    }

    fn wake_one(&self) {
        if let Some(worker) = self.idle.wake_one() {
            self.drivers[worker].kick();
        }
    }

    fn wake_directed(&self, worker: usize) {
        if self.idle.wake_directed(worker) {
            self.drivers[worker].kick();
        }
    }

    fn take(&self) -> bool {
        self.work.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// The second look is a plain load, as in the queues: that it sees enough is what the protocol has to prove.
    fn has_work(&self) -> bool {
        self.work.load(Ordering::SeqCst) > 0
    }

    /// The worker's side of the protocol, until it has taken one item, which it then runs for ever.
    fn take_one(&self, me: usize, mut searching: bool) {
        loop {
            if self.take() {
                if searching {
                    self.idle.stop_search();
                }
                if self.has_work() && !seeded_bug("idle_no_chain") {
                    self.wake_one();
                }
                return;
            }
            if searching && !seeded_bug("idle_leave_late") {
                self.idle.stop_search();
            }
            self.idle.announce_sleep(me);
            let nothing = seeded_bug("idle_no_second_look") || !self.has_work();
            if searching && seeded_bug("idle_leave_late") {
                self.idle.stop_search();
            }
            if nothing {
                self.drivers[me].block();
            }
            searching = self.idle.woke(me) == Woken::AsSearcher;
        }
    }
}

// X-04, S0-69, S4-130: push and look against announce and look again, on the worker's own word.
#[test]
fn model_directed_wake_is_not_lost() {
    check(3, || {
        let world = World::new(1);
        let publisher = {
            let world = world.clone();
            thread::spawn(move || {
                // Relaxed: the weakest push there could be; the wake alone must carry it over.
                world.work.store(1, Ordering::Relaxed);
                world.wake_directed(0);
            })
        };
        while world.work.load(Ordering::Relaxed) == 0 {
            world.idle.announce_sleep(0);
            if !world.has_work() {
                world.drivers[0].block();
            }
            let _ = world.idle.woke(0);
        }
        publisher.join().unwrap();
        assert_eq!((world.idle.sleeping(), world.idle.searching()), (0, 0));
    });
}

// X-04, C-14: the same on the counts, for an item that anybody can take.
#[test]
fn model_undirected_wake_is_not_lost() {
    check(3, || {
        let world = World::new(1);
        let publisher = {
            let world = world.clone();
            thread::spawn(move || world.push())
        };
        world.take_one(0, false);
        publisher.join().unwrap();
        // The publisher may have woken the worker just as it changed its mind; then it left the state itself.
        assert_eq!((world.idle.sleeping(), world.idle.searching()), (0, 0));
    });
}

// A publisher that finds a searcher wakes nobody; the searcher that leaves empty-handed must then find the item.
#[test]
fn model_searcher_that_leaves_looks_again() {
    check(3, || {
        let world = World::new(1);
        assert!(world.idle.try_start_search());
        let publisher = {
            let world = world.clone();
            thread::spawn(move || world.push())
        };
        world.take_one(0, true);
        publisher.join().unwrap();
        assert_eq!((world.idle.sleeping(), world.idle.searching()), (0, 0));
    });
}

// S2-59: two items pushed at once wake two workers, by way of the first.
#[test]
fn model_two_items_wake_two_workers() {
    check(2, || {
        let world = World::new(2);
        let workers: Vec<_> = (0..2)
            .map(|me| {
                let world = world.clone();
                thread::spawn(move || world.take_one(me, false))
            })
            .collect();
        world.push();
        world.push();
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!((world.idle.sleeping(), world.idle.searching()), (0, 0));
    });
}

// C-14: two publishers, two sleepers: exactly one is woken, and counts as searching.
#[test]
fn model_exactly_one_is_woken() {
    check(3, || {
        let idle = Arc::new(Idle::new(2));
        idle.announce_sleep(0);
        idle.announce_sleep(1);
        let other = {
            let idle = idle.clone();
            thread::spawn(move || idle.wake_one().is_some() as u32)
        };
        let woken = idle.wake_one().is_some() as u32 + other.join().unwrap();
        assert_eq!(woken, 1);
        assert_eq!((idle.sleeping(), idle.searching()), (1, 1));
    });
}

// A worker that wakes by itself (timer, I/O, second thoughts) against both kinds of wake: each wake is counted once.
#[test]
fn model_own_wake_against_wake_one() {
    check(3, || {
        let idle = Arc::new(Idle::new(1));
        idle.announce_sleep(0);
        let wakers: [Box<dyn FnOnce(&Idle) -> bool + Send>; 2] =
            [Box::new(|idle| idle.wake_one().is_some()), Box::new(|idle| idle.wake_directed(0))];
        let wakers = wakers.map(|wake| {
            let idle = idle.clone();
            thread::spawn(move || wake(&idle))
        });
        let woken = idle.woke(0);
        let claims = wakers.map(|waker| waker.join().unwrap());
        let expected = match woken {
            Woken::AsSearcher => [true, false],
            Woken::Directed => [false, true],
            Woken::ByNobody => [false, false],
        };
        assert_eq!(claims, expected, "{woken:?}");
        assert_eq!((idle.sleeping(), idle.searching()), (0, (woken == Woken::AsSearcher) as usize));
    });
}

// the spawner's side with plain pushes: two items, one popped for itself, and the look at the gate is a load.
#[test]
fn model_surplus_wake_is_not_lost() {
    check(3, || {
        let world = World::new(1);
        let fresh = Arc::new(Fresh::new());
        let thief = {
            let (world, fresh) = (world.clone(), fresh.clone());
            thread::spawn(move || {
                let mine = Fresh::new();
                loop {
                    // SAFETY: this thread is the owner of `mine`.
                    match unsafe { fresh.steal_half_into(&mine, 1) } {
                        Steal::Stolen { first, .. } => return first.ticket,
                        Steal::Retry | Steal::Empty => {}
                    }
                    world.idle.announce_sleep(0);
                    if fresh.is_empty_handshake() {
                        world.drivers[0].block();
                    }
                    if world.idle.woke(0) == Woken::AsSearcher {
                        world.idle.stop_search();
                    }
                }
            })
        };
        // SAFETY: this thread is the owner of `fresh`. Three items, so that there is surplus whatever the thief takes meanwhile.
        let kept = unsafe {
            (1..=3).for_each(|ticket| fresh.push(Entry { frame: 1, ticket }));
            fresh.pop_newest()
        };
        if kept.is_some() && !fresh.is_empty() && world.idle.has_gate_open() {
            world.wake_one();
        }
        assert_ne!(Some(thief.join().unwrap()), kept.map(|entry| entry.ticket));
    });
}

// S0-72: stop is a push like any other: flag first, then a directed wake for everybody.
#[test]
fn model_stop_reaches_a_worker_going_to_sleep() {
    check(2, || {
        let world = World::new(2);
        let workers: Vec<_> = (0..2)
            .map(|me| {
                let world = world.clone();
                thread::spawn(move || {
                    while world.stop.load(Ordering::SeqCst) == 0 {
                        world.idle.announce_sleep(me);
                        if seeded_bug("idle_stop_unseen") || world.stop.load(Ordering::SeqCst) == 0 {
                            world.drivers[me].block();
                        }
                        let _ = world.idle.woke(me);
                    }
                })
            })
            .collect();
        world.stop.swap(1, Ordering::SeqCst);
        (0..2).for_each(|worker| world.wake_directed(worker));
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(world.idle.sleeping(), 0);
    });
}

// the watcher leaves while a worker sleeps, wakes by itself or by another, and runs: it is called, or it has not left.
#[test]
fn model_nobody_runs_unwatched() {
    check(3, || {
        let world = World::new(1);
        let bell = Arc::new(Driver::default());
        let watcher = {
            let (world, bell) = (world.clone(), bell.clone());
            thread::spawn(move || {
                if world.idle.dismiss_watcher() {
                    // A worker that nobody watches would be a deadlock here.
                    bell.block();
                }
            })
        };
        let waker = {
            let world = world.clone();
            thread::spawn(move || world.wake_directed(0))
        };
        world.idle.announce_sleep(0);
        let _ = world.idle.woke(0);
        if world.idle.call_watcher() {
            bell.kick();
        }
        watcher.join().unwrap();
        waker.join().unwrap();
    });
}
