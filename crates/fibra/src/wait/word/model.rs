//! Models of the state word: a fiber that waits as `wait::park` does it, its worker that commits as `sched::worker` does it,
//! and owners that compete for the wait as `sched::wake` and `sched::cancel` do it.
//!
//! Fiber and worker are one thread, as in the runtime. The run queue is a count under a lock, with a bell: a lost wake is a
//! deadlock, an enqueue too many is left over at the end, and a fiber that runs too early touches its stack or its slot while
//! somebody else does, which loom reports.

use super::*;
use crate::prim::atomic::AtomicU32;
use crate::prim::cell::UnsafeCell;
use crate::prim::model::{check, thread};
use crate::prim::sync::{Arc, Condvar, Mutex};

const CANCEL: u32 = 1;

/// How the model's fiber came out of its wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    NotParked,
    Completed(Arm),
    Cancelled,
}

/// One fiber, its worker's queue, and one object that it waits on.
struct World {
    word: Word,
    flags: AtomicU32,
    /// Written by the completion owner, read by the fiber after its wait.
    slot: UnsafeCell<u32>,
    /// The fiber's stack: its own while it runs, the resuming worker's (or the one who enqueues) otherwise.
    stack: UnsafeCell<u32>,
    object: Mutex<Object>,
    queue: Mutex<usize>,
    bell: Condvar,
}

// SAFETY: the cells are guarded by the protocol under test; loom checks them.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

/// A channel for one value.
#[derive(Default)]
struct Object {
    waiting: Option<Ticket>,
    value: Option<u32>,
}

impl World {
    /// A fiber that runs.
    fn new() -> Arc<Self> {
        let world = Self::unstarted();
        world.word.adopt();
        world
    }

    fn unstarted() -> Arc<Self> {
        Arc::new(Self {
            word: Word::new(),
            flags: AtomicU32::new(0),
            slot: UnsafeCell::new(0),
            stack: UnsafeCell::new(0),
            object: Mutex::default(),
            queue: Mutex::new(0),
            bell: Condvar::new(),
        })
    }

    /// Whoever has the fiber's stack may do this.
    fn touch_stack(&self) {
        // SAFETY: that nobody else has it is what the model checks.
        self.stack.with_mut(|stack| unsafe { *stack += 1 });
    }

    fn enqueue(&self) {
        *self.queue.lock() += 1;
        self.bell.notify_one();
    }

    /// Law 3: the fiber has left its stack, its worker commits; then it runs something else until the fiber is in the queue again.
    fn suspend(&self) {
        self.touch_stack();
        match self.word.commit_park() {
            Commit::Parked => {}
            Commit::Requeue => self.enqueue(),
        }
        let mut queued = self.queue.lock();
        while *queued == 0 {
            queued = self.bell.wait(queued);
        }
        *queued -= 1;
        drop(queued);
        self.word.resume();
        self.touch_stack();
    }

    /// `wait::park::fiber_wait`.
    fn wait(&self, publish: impl FnOnce(Ticket) -> bool) -> Ended {
        let seen_too_early = seeded_bug("park_flag_first").then(|| self.flags.load(Ordering::SeqCst));
        let ticket = self.word.begin_park(ARM_REVOCABLE);
        // A plain load: the two read-modify-writes of the word, by parker and canceller, order it.
        let flags = seen_too_early.unwrap_or_else(|| self.flags.load(Ordering::SeqCst));
        if flags & CANCEL != 0 {
            if !self.word.abort_park() {
                self.suspend();
            }
            return Ended::Cancelled;
        }
        if !publish(ticket) {
            if !self.word.abort_park() {
                self.suspend();
            }
            return Ended::NotParked;
        }
        self.suspend();
        match self.word.snapshot().arm() {
            ARM_CANCEL => Ended::Cancelled,
            arm => Ended::Completed(arm),
        }
    }

    /// `sched::wake::complete`, with a slot to fill. True if this owner won.
    fn complete(&self, ticket: Ticket, arm: Arm, value: u32) -> bool {
        // SAFETY: the claimer alone writes the slot; that is what the model checks.
        let fill = || self.slot.with_mut(|slot| unsafe { *slot = value });
        match self.word.claim(ticket, arm, true) {
            Claim::Lost => false,
            Claim::Direct => {
                fill();
                // Off its stack, and in our hands: a task may be run elsewhere at once.
                self.touch_stack();
                self.enqueue();
                true
            }
            Claim::Held => {
                if seeded_bug("fill_after_release") {
                    let release = self.word.release();
                    fill();
                    if release == Release::Enqueue {
                        self.enqueue();
                    }
                    return true;
                }
                fill();
                match self.word.release() {
                    Release::Deferred => {}
                    Release::Enqueue => self.enqueue(),
                }
                true
            }
        }
    }

    /// `sched::cancel::request`. True if cancellation ended a wait.
    fn cancel(&self) -> bool {
        if seeded_bug("cancel_word_first") {
            let seen = self.word.look_after_flag();
            self.flags.fetch_or(CANCEL, Ordering::SeqCst);
            return seen.is_revocable() && self.complete(seen.ticket(), ARM_CANCEL, 0);
        }
        self.flags.fetch_or(CANCEL, Ordering::SeqCst);
        let seen = self.word.look_after_flag();
        seen.is_revocable() && self.complete(seen.ticket(), ARM_CANCEL, 0)
    }

    /// Sends the object's one value: to the waiter if there is one, else it stays there. True if it was taken.
    fn send(&self, value: u32) -> bool {
        let mut object = self.object.lock();
        match object.waiting.take() {
            Some(ticket) if self.complete(ticket, ARM_FIRST, value) => true,
            _ => {
                object.value = Some(value);
                false
            }
        }
    }

    /// Receives it, or is cancelled.
    fn receive(&self) -> Result<u32, Ended> {
        let mut found = None;
        let ended = self.wait(|ticket| {
            let mut object = self.object.lock();
            found = object.value.take();
            if found.is_none() {
                object.waiting = Some(ticket);
            }
            found.is_none()
        });
        match ended {
            Ended::NotParked => Ok(found.expect("publish found it")),
            Ended::Completed(arm) => {
                assert_eq!(arm, ARM_FIRST);
                Ok(self.take_slot())
            }
            Ended::Cancelled => {
                self.object.lock().waiting = None;
                Err(ended)
            }
        }
    }

    fn take_slot(&self) -> u32 {
        // SAFETY: the wait is over, the slot is the fiber's again; that is what the model checks.
        self.slot.with(|slot| unsafe { *slot })
    }

    /// The fiber runs, and nobody has enqueued it once too often.
    fn assert_quiet(&self) {
        assert_eq!(self.word.snapshot().state(), State::Running);
        assert_eq!(*self.queue.lock(), 0, "enqueued once too often");
    }
}

fn spawn<T: Send + 'static>(
    world: &Arc<World>,
    body: impl FnOnce(&World) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let world = world.clone();
    thread::spawn(move || body(&world))
}

// S0-08, S0-85, S4-38: park against one owner: the value arrives, whenever the owner comes.
#[test]
fn model_park_against_one_owner() {
    check(3, || {
        let world = World::new();
        let owner = spawn(&world, |world| world.send(7));
        assert_eq!(world.receive(), Ok(7));
        owner.join().unwrap();
        world.assert_quiet();
    });
}

// S4-27, S4-36: two owners with the same ticket: one wins, fills the slot and enqueues once, before or after the commit.
#[test]
fn model_park_against_two_owners() {
    check(3, || {
        let world = World::new();
        let mut owners = Vec::new();
        let ended = world.wait(|ticket| {
            owners.extend([1u8, 2].map(|arm| spawn(&world, move |world| world.complete(ticket, arm, u32::from(arm)))));
            true
        });
        let Ended::Completed(arm) = ended else { panic!("{ended:?}") };
        assert_eq!(world.take_slot(), u32::from(arm), "the slot is the winner's");
        let won: Vec<bool> = owners.into_iter().map(|owner| owner.join().unwrap()).collect();
        assert_eq!(won, [arm == 1, arm == 2]);
        world.assert_quiet();
    });
}

// S4-39, S4-49: a wake of the former life has no effect on the next wait of the same word.
#[test]
fn model_stale_ticket_after_recycling() {
    check(3, || {
        let world = World::new();
        let mut stale = None;
        // The first life: woken as arm 1, then its frame is recycled, while a second owner still holds its ticket.
        let ended = world.wait(|ticket| {
            stale = Some(spawn(&world, move |world| world.complete(ticket, 2, 2)));
            world.complete(ticket, 1, 1);
            true
        });
        let Ended::Completed(first) = ended else { panic!("{ended:?}") };
        world.word.finish(false);
        world.word.recycle();
        // The next life: started, and waiting for its own owner.
        let ticket = world.word.publish_spawned();
        assert!(world.word.start(ticket));
        let owner = spawn(&world, |world| world.send(7));
        assert_eq!(world.receive(), Ok(7), "somebody else's wake");
        owner.join().unwrap();
        assert_eq!(stale.expect("published").join().unwrap(), first == 2);
        world.assert_quiet();
    });
}

// The frame's memory goes back to the system between two lives and reads as zero, while a waker of the first still holds its ticket.
#[test]
fn model_stale_ticket_after_the_memory_went_back() {
    check(3, || {
        let world = World::unstarted();
        let ticket = world.word.publish_spawned();
        assert!(world.word.start(ticket));
        let mut stale = None;
        let ended = world.wait(|ticket| {
            stale = Some(spawn(&world, move |world| world.complete(ticket, 2, 2)));
            world.complete(ticket, 1, 1);
            true
        });
        let Ended::Completed(first) = ended else { panic!("{ended:?}") };
        world.word.finish(false);
        world.word.recycle();
        let floor = world.word.snapshot().ticket();
        world.word.lose_memory();
        world.word.renew(floor);
        // The next life, as far into it as the first was.
        let ticket = world.word.publish_spawned();
        assert!(world.word.start(ticket));
        let owner = spawn(&world, |world| world.send(7));
        assert_eq!(world.receive(), Ok(7), "somebody else's wake");
        owner.join().unwrap();
        assert_eq!(stale.expect("published").join().unwrap(), first == 2);
        world.assert_quiet();
    });
}

// S0-61, S4-46: the owner claims while the fiber is still on its stack; however the two go on, the fiber runs after the release only.
#[test]
fn model_claim_while_parking() {
    check(3, || {
        let world = World::new();
        let ticket = world.word.begin_park(ARM_BINDING);
        let owner = spawn(&world, move |world| world.complete(ticket, 3, 9));
        world.suspend();
        assert_eq!((world.word.snapshot().arm(), world.take_slot()), (3, 9));
        assert!(owner.join().unwrap());
        world.assert_quiet();
    });
}

// S4-47: flag then word against word then flag: the wait ends, whoever is faster.
#[test]
fn model_cancel_against_park() {
    check(3, || {
        let world = World::new();
        let canceller = spawn(&world, World::cancel);
        // Nobody else will ever complete it.
        assert_eq!(world.wait(|_| true), Ended::Cancelled);
        canceller.join().unwrap();
        world.assert_quiet();
    });
}

// S4-27: cancellation and a match compete: exactly one ends the wait, and a value that was not received is still there.
#[test]
fn model_cancel_against_match() {
    check(2, || {
        let world = World::new();
        let sender = spawn(&world, |world| world.send(7));
        let canceller = spawn(&world, World::cancel);
        let received = world.receive();
        let matched = sender.join().unwrap();
        let cancelled = canceller.join().unwrap();
        assert!(!(matched && cancelled), "two owners of one wait");
        let left = world.object.lock().value;
        match received {
            Ok(value) => assert_eq!((value, left), (7, None)),
            Err(ended) => assert_eq!((ended, matched, left), (Ended::Cancelled, false, Some(7)), "a value was lost"),
        }
        world.assert_quiet();
    });
}

// S4-42: nothing to wait for: either the park is called off, or an owner has claimed it and the fiber waits for its release.
#[test]
fn model_abort_against_claim() {
    check(3, || {
        let world = World::new();
        let ticket = world.word.begin_park(ARM_REVOCABLE);
        let owner = spawn(&world, move |world| world.complete(ticket, 3, 9));
        let aborted = world.word.abort_park();
        if !aborted {
            world.suspend();
            assert_eq!(world.take_slot(), 9);
        }
        // The slot is the fiber's again, and stays so.
        // SAFETY: that it is, is what the model checks.
        world.slot.with_mut(|slot| unsafe { *slot = 1 });
        assert_eq!(owner.join().unwrap(), !aborted);
        assert_eq!(world.take_slot(), 1);
        world.assert_quiet();
    });
}

// S4-22: an unstarted frame whose entry is in a queue: a thief with the entry and a joiner who takes it compete for the start.
#[test]
fn model_one_of_two_starts_it() {
    check(3, || {
        let world = World::unstarted();
        let ticket = world.word.publish_spawned();
        let start = move |world: &World| {
            let started = world.word.start(ticket);
            if started {
                world.touch_stack();
            }
            started
        };
        let thief = spawn(&world, start);
        let mine = start(&world);
        if mine {
            // It runs, yields, and is RUNNABLE again: the thief's entry must not match.
            world.word.yielded();
            world.word.resume();
            world.touch_stack();
            world.word.finish(false);
            world.word.recycle();
            world.word.publish_spawned();
        }
        let theirs = thief.join().unwrap();
        assert!(mine != theirs, "started by both, or by nobody");
    });
}
