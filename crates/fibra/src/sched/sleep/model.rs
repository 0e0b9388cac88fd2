//! Models of workers without work and of publishers that bring them some, over the code that ships: `find_work` and all it calls, deques,
//! injector, inbox, the pushes of `reach.rs`. What is played here is what a worker is made of: its driver is a lock and a bell, its search
//! one round over the others, its fibers a link. A lost wake is a deadlock, which the checker reports.

use super::super::idle::driver::Driver;
use super::super::phase::Phase;
use super::super::queue::Entry;
use super::super::queue::injector::Injector;
use super::super::reach::{self, Sent, WorkerMail};
use super::super::surplus::Surplus;
use super::super::visitors::Visitors;
use super::*;
use crate::prim::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use crate::prim::cell::UnsafeCell;
use crate::prim::linked::Linked;
use crate::prim::model::{check, thread};
use crate::prim::sync::Arc;
use crate::waiter::word::{Claim, Commit, Release, WaitKind, Word};

/// A started fiber of worker 0.
struct Fiber {
    link: AtomicPtr<Fiber>,
    word: Word,
}

impl Fiber {
    fn leaked() -> &'static Fiber {
        Box::leak(Box::new(Self { link: AtomicPtr::new(std::ptr::null_mut()), word: Word::new() }))
    }
}

// SAFETY: one cell, null at first, and only lists write it.
unsafe impl Linked for Fiber {
    fn link(&self) -> &AtomicPtr<Fiber> {
        &self.link
    }
}

impl Sent for Fiber {
    fn home(&self) -> Option<usize> {
        Some(0)
    }
    fn entry(&'static self) -> Entry {
        unreachable!("it has a home")
    }
}

struct Remote {
    fresh: Fresh,
    mail: WorkerMail<Fiber, u32>,
    driver: Driver,
}

struct World {
    idle: Idle,
    injector: Injector,
    remotes: Vec<Remote>,
    visitors: Visitors,
    stop: AtomicBool,
    /// The wish for the only worker: that it leaves.
    leaving: AtomicBool,
    /// The memory of the runtime, behind everything above: read by the thread that kicks, written when it is freed.
    freed: UnsafeCell<bool>,
}

// SAFETY: each deque has one owner, the thread that plays its worker; the cell is guarded by the protocol under test, loom checks it.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn new(workers: usize) -> Arc<Self> {
        let remote = |_| Remote { fresh: Fresh::new(), mail: WorkerMail::new(), driver: Driver::default() };
        Arc::new(Self {
            idle: Idle::new(workers, workers),
            injector: Injector::with_ring(2),
            remotes: (0..workers).map(remote).collect(),
            visitors: Visitors::new(),
            stop: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            freed: UnsafeCell::new(false),
        })
    }

    fn inject(&self, ticket: u64) {
        reach::inject(self, Entry { frame: 1, ticket });
    }

    fn assert_quiet(&self) {
        assert_eq!((self.idle.sleeping(), self.idle.searching()), (0, 0));
    }
}

impl Reach for World {
    type Fiber = Fiber;
    type Command = u32;

    fn idle(&self) -> &Idle {
        &self.idle
    }
    fn injector(&self) -> &Injector {
        &self.injector
    }
    fn workers(&self) -> usize {
        self.remotes.len()
    }
    fn seats(&self) -> usize {
        self.remotes.len()
    }
    fn coming(&self, _: usize) -> &AtomicU64 {
        unreachable!("no worker leaves")
    }
    fn serve_vacant(&self, _: u32) {
        unreachable!("every seat has a worker")
    }
    fn mail(&self, worker: usize) -> &WorkerMail<Fiber, u32> {
        &self.remotes[worker].mail
    }
    fn fresh(&self, worker: usize) -> &Fresh {
        &self.remotes[worker].fresh
    }
    fn visitors(&self) -> &Visitors {
        &self.visitors
    }
    fn stop(&self) -> &AtomicBool {
        &self.stop
    }
    fn kick(&self, worker: usize) {
        // SAFETY: the claimed fiber, or the visit, keeps it alive; that is what a model checks.
        assert!(!self.freed.with(|freed| unsafe { *freed }), "touched after it was freed");
        self.remotes[worker].driver.kick();
    }
}

/// A worker of that world, played by one thread.
struct Player {
    world: Arc<World>,
    index: usize,
    /// Its loop ends when it is asked to leave, or to stay.
    awaits: Option<bool>,
    surplus: Surplus,
}

impl Idler for Player {
    type Runtime = World;

    fn runtime(&self) -> &World {
        &self.world
    }
    fn index(&self) -> usize {
        self.index
    }
    fn has_own_news(&self) -> bool {
        false
    }
    fn has_own_work(&self) -> bool {
        !self.fresh().is_empty()
    }
    fn note_injected(&self, _: u64) {}
    fn wake_for_surplus(&self) {
        reach::wake_any_worker(&*self.world);
    }
    fn begin_search(&self, _: bool) -> Round {
        Round { looks: 0, began: 0, now: 0, until: 0 }
    }
    fn steal(&self, _: &Round) -> bool {
        let others = (0..self.world.workers()).filter(|other| *other != self.index);
        // SAFETY: this thread is the owner of its deque.
        others.into_iter().any(|other| unsafe { steal_from(self.world.fresh(other), self.fresh(), 1) }.is_some())
    }
    fn pause(&self, _: &mut Round) -> Option<SearchEnd> {
        Some(SearchEnd::InVain)
    }
    fn note_search(&self, _: SearchEnd) {}
    fn rest_at(&self) -> Option<u64> {
        None
    }
    fn block(&self, _: Option<u64>, surplus: bool) {
        if surplus {
            // Not for long: that is over at any time.
            return thread::yield_now();
        }
        self.world.remotes[self.index].driver.block();
    }
    fn see_to_seat(&self) -> Staying {
        // Relaxed: as `Seats::stay`.
        let leaving = self.world.leaving.load(Ordering::Relaxed);
        if (self.world.idle.phase(self.index) == Phase::Draining) != leaving {
            self.world.idle.set_draining(self.index, leaving);
        }
        match self.awaits {
            // What it was waiting for has come.
            Some(awaited) if awaited == leaving => Staying::Gone,
            _ if leaving => Staying::Draining,
            _ => Staying::Stays,
        }
    }
    fn has_seat_news(&self, draining: bool) -> bool {
        // Relaxed: as `Seats::stay`.
        self.world.leaving.load(Ordering::Relaxed) != draining
    }
    fn after_sleep(&self, _: bool) {}
}

impl Player {
    fn new(world: &Arc<World>, index: usize) -> Self {
        Self { world: world.clone(), index, awaits: None, surplus: Surplus::new(true) }
    }

    fn fresh(&self) -> &Fresh {
        self.world.fresh(self.index)
    }

    /// Until it has one fiber to run, which it then runs for ever. Like `Worker::take_fresh`, it judges its surplus before that.
    fn take_one(&self) -> u64 {
        loop {
            // SAFETY: this thread is the owner of its deque.
            if let Some(entry) = unsafe { self.fresh().pop_newest() } {
                if self.surplus.calls_one(entry, false, self.fresh(), &self.world.idle) {
                    self.wake_for_surplus();
                }
                return entry.ticket;
            }
            find_work(self);
        }
    }

    /// Reads its mail, as `Worker::read_mail` does, until so many fibers and commands have arrived.
    fn receive(&self, fibers: usize, commands: usize) {
        let mail = self.world.mail(self.index);
        let mut arrived = (0, 0);
        loop {
            arrived.0 += mail.inbox.take_all().count();
            arrived.1 += mail.take_commands().len();
            if arrived == (fibers, commands) {
                return;
            }
            find_work(self);
        }
    }
}

// X-04, C-14: an item that any worker can take against the only worker's way to sleep.
#[test]
fn model_undirected_wake_is_not_lost() {
    check(3, || {
        let world = World::new(1);
        let publisher = {
            let world = world.clone();
            thread::spawn(move || world.inject(7))
        };
        assert_eq!(Player::new(&world, 0).take_one(), 7);
        publisher.join().unwrap();
        world.assert_quiet();
    });
}

// S4-78: a worker that is about to sleep is asked to leave, or to stay after all: it does not sleep on without having seen that.
#[test]
fn model_wish_reaches_a_worker_going_to_sleep() {
    for leaves in [true, false] {
        check(3, move || {
            let world = World::new(1);
            // Relaxed, here and below: as `Seats::change`, but for what its compare-exchange orders besides.
            world.leaving.store(!leaves, Ordering::Relaxed);
            let wisher = {
                let world = world.clone();
                thread::spawn(move || {
                    world.leaving.store(leaves, Ordering::Relaxed);
                    reach::wake_worker(&*world, 0);
                })
            };
            let player = Player { awaits: Some(leaves), ..Player::new(&world, 0) };
            while player.see_to_seat() != Staying::Gone {
                find_work(&player);
            }
            wisher.join().unwrap();
            world.assert_quiet();
        });
    }
}

// A publisher that finds a searcher wakes no worker; the searcher that leaves empty-handed must then find the item.
#[test]
fn model_searcher_that_leaves_looks_again() {
    check(3, || {
        // The other one runs something for ever.
        let world = World::new(2);
        let publisher = {
            let world = world.clone();
            thread::spawn(move || world.inject(7))
        };
        assert_eq!(Player::new(&world, 0).take_one(), 7);
        publisher.join().unwrap();
        world.assert_quiet();
    });
}

// S2-59, S0-71, S0-83: two items pushed at once wake both workers that sleep, the second by way of the first.
#[test]
fn model_two_items_wake_two_workers() {
    check(2, || {
        let world = World::new(2);
        // One after the other, so that all that is left to explore is what follows the pushes.
        let workers = [0, 1].map(|me| {
            let player = Player::new(&world, me);
            let worker = thread::spawn(move || player.take_one());
            while world.idle.sleeping() <= me {
                thread::yield_now();
            }
            worker
        });
        world.inject(1);
        world.inject(2);
        let taken: u64 = workers.map(|worker| worker.join().unwrap()).into_iter().sum();
        assert_eq!(taken, 3, "each by one of them");
        world.assert_quiet();
    });
}

// the spawner's side with plain pushes: three items, one popped for itself, and the look at the gate is a load. Once for fibers, for
// which surplus counts when it appears, and once for halves of `join`, for which every look counts.
#[test]
fn model_surplus_wake_is_not_lost() {
    for contested in [0, 1] {
        check(3, move || {
            let world = World::new(2);
            let thief = {
                let player = Player::new(&world, 0);
                thread::spawn(move || player.take_one())
            };
            let owner = Player::new(&world, 1);
            // Three, so that there is surplus whatever the thief takes meanwhile.
            for ticket in [2, 4, 6] {
                // SAFETY: this thread is the owner of the deque.
                unsafe { owner.fresh().push(Entry { frame: 1, ticket: ticket | contested }) };
            }
            let kept = owner.take_one();
            assert_ne!(thief.join().unwrap(), kept);
        });
    }
}

// S0-72: stop is a push like any other: flag first, then a directed wake for every worker.
#[test]
fn model_stop_reaches_a_worker_going_to_sleep() {
    check(3, || {
        let world = World::new(1);
        let worker = {
            let player = Player::new(&world, 0);
            thread::spawn(move || {
                // Relaxed: as the loop of a worker asks.
                while !player.world.stop.load(Ordering::Relaxed) {
                    find_work(&player);
                }
            })
        };
        reach::stop(&*world);
        worker.join().unwrap();
        world.assert_quiet();
    });
}

// X-04, S0-69: a fiber is sent to its worker, and then a command: both arrive, whenever it sleeps.
#[test]
fn model_mail_reaches_a_worker_going_to_sleep() {
    check(3, || {
        let world = World::new(1);
        let sender = {
            let world = world.clone();
            thread::spawn(move || {
                // SAFETY: new, in no other hands.
                unsafe { reach::deliver(&*world, 0, Fiber::leaked()) };
                reach::post(&*world, 0, 7);
            })
        };
        Player::new(&world, 0).receive(1, 1);
        sender.join().unwrap();
        world.assert_quiet();
    });
}

// The last fiber of a runtime is woken from outside; it ends and the runtime is freed, but not while that thread is still kicking.
#[test]
fn model_wake_from_outside_against_shutdown() {
    check(3, || {
        let world = World::new(1);
        let fiber = Fiber::leaked();
        fiber.word.adopt();
        let ticket = fiber.word.begin_park(WaitKind::Binding);
        let outside = {
            let world = world.clone();
            thread::spawn(move || {
                // SAFETY: claimed, and RUNNABLE.
                let enqueue = || unsafe { reach::enqueue_from_outside(&*world, fiber) };
                match fiber.word.claim(ticket, 0, true) {
                    Claim::Lost => panic!("no other thread completes it"),
                    Claim::Direct => enqueue(),
                    Claim::Held => match fiber.word.release() {
                        // From here on the runtime may be gone.
                        Release::Deferred => {}
                        Release::Enqueue => enqueue(),
                    },
                }
            })
        };
        if fiber.word.commit_park() == Commit::Parked {
            Player::new(&world, 0).receive(1, 0);
        }
        fiber.word.resume();
        fiber.word.finish(false);
        world.visitors.await_none();
        // SAFETY: no foreign thread is inside; that is what the model checks.
        world.freed.with_mut(|freed| unsafe { *freed = true });
        outside.join().unwrap();
    });
}
