//! Models of the wait, of the state word below it and of cancellation: a fiber that waits by `wait_as` as it ships, its worker that commits
//! by `revoke::commit`, and owners that compete for the wait by `Claimed` and `revoke::request`.
//!
//! Fiber and worker are one thread, as in the runtime. The run queue is a count under a lock, with a bell: a lost wake is a
//! deadlock, an enqueue too many is left over at the end, and a fiber that runs too early touches its stack or its slot while
//! another does, which loom reports.

use std::cell::Cell;
use std::panic::Location;
use std::ptr::NonNull;

use super::*;
use crate::prim::cell::UnsafeCell;
use crate::prim::model::{check, thread};
use crate::prim::sync::{Arc, Condvar, Mutex};
use crate::wait::reason::WaitReason;
use crate::wait::waitable::{Published, linked_or};
use crate::waiter::cancel_reason::ReasonKind;
use crate::waiter::node::{Waiter, WaiterKind};
use crate::waiter::record::Claimed;
use crate::waiter::revoke::{self, Due};
use crate::waiter::word::{ARM_FIRST, Commit, WaiterState, WakerNotice, Word};

/// One fiber, its worker's queue, and one object that it waits on.
struct World {
    fiber: &'static Waiter,
    /// Written by the completion owner, read by the fiber after its wait.
    slot: UnsafeCell<u32>,
    /// The fiber's stack: its own while it runs, otherwise of the worker that resumes it (or of the thread that enqueues it).
    stack: UnsafeCell<u32>,
    object: Mutex<Object>,
    queue: Mutex<usize>,
    bell: Condvar,
    scope: Mutex<Scope>,
}

/// What the lock of a scope guards whose body the fiber runs.
#[derive(Default)]
struct Scope {
    is_cancelled: bool,
    /// A child has failed, and no join has taken that.
    has_failure: bool,
}

impl Scope {
    /// As `cancel::scopes` judges for a worker that has let the owner go.
    fn is_due(&self) -> Option<Due<()>> {
        if self.is_cancelled { Some(Due::Cancelled) } else { self.has_failure.then_some(Due::Settle(())) }
    }
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

impl Parker for &World {
    fn waiter(self) -> WaiterRef {
        // SAFETY: leaked, and of this kind for the rest of the model.
        unsafe { WaiterRef::new(NonNull::from(self.fiber)) }
    }

    fn is_plain(self) -> bool {
        !self.fiber.flags.has(flag::ANY_CANCEL)
    }

    fn kind(self, asked: WaitKind, _: &Wait) -> WaitKind {
        asked
    }

    fn is_due(self, _: WaitKind, _: &dyn Fn() -> bool) -> bool {
        true
    }

    fn is_over(self, _: u64) -> bool {
        false
    }

    fn pass(self) {}

    fn leave(self, _: Ticket, _: &Wait, _: bool) {
        self.suspend();
    }

    fn await_owner(self) {
        self.suspend();
    }
}

/// A waitable object, given by its `publish`.
struct PublishedBy<F>(Cell<Option<F>>, Option<WakerNotice>);

impl<F: FnOnce(Ticket) -> bool> Waitable for PublishedBy<F> {
    fn ended_by(&self) -> Option<WakerNotice> {
        self.1
    }

    fn publish(&self, node: &Node) -> Published {
        linked_or((self.0.take().expect("published once"))(node.target().1), Outcome::Retry)
    }

    fn unpublish(&self, _: &Node, _: &mut Vec<Waker>) {}
}

impl World {
    /// A fiber that runs.
    fn new() -> Arc<Self> {
        let world = Self::unstarted();
        world.word().adopt();
        world
    }

    fn unstarted() -> Arc<Self> {
        Arc::new(Self {
            fiber: Box::leak(Box::new(Waiter::new(WaiterKind::Fiber))),
            slot: UnsafeCell::new(0),
            stack: UnsafeCell::new(0),
            object: Mutex::default(),
            queue: Mutex::new(0),
            bell: Condvar::new(),
            scope: Mutex::default(),
        })
    }

    fn word(&self) -> &'static Word {
        &self.fiber.word
    }

    /// For the holder of the fiber's stack.
    fn touch_stack(&self) {
        // SAFETY: that no other has it is what the model checks.
        self.stack.with_mut(|stack| unsafe { *stack += 1 });
    }

    /// The fiber is RUNNABLE, off its stack, and in the caller's hands: a task may be run elsewhere at once.
    fn enqueue(&self) {
        self.touch_stack();
        *self.queue.lock() += 1;
        self.bell.notify_one();
    }

    /// Law 3: the fiber has left its stack, its worker commits; then it runs something else until the fiber is in the queue again.
    fn suspend(&self) {
        self.touch_stack();
        match revoke::commit(self.fiber, |_| true) {
            Commit::Parked => {}
            Commit::Requeue => self.enqueue(),
        }
        self.go_on();
    }

    /// The same of a fiber that may go on anywhere, by the worker that lets it go: [`go_on`](Self::go_on) is on another thread.
    fn let_go(&self) {
        self.touch_stack();
        let settle = |()| self.scope.lock().is_cancelled = true;
        match revoke::commit_and_let_go(self.fiber, || self.scope.lock().is_due(), settle) {
            Commit::Parked => {}
            Commit::Requeue => self.enqueue(),
        }
    }

    /// A worker takes the fiber out of the queue.
    fn go_on(&self) {
        let mut queued = self.queue.lock();
        while *queued == 0 {
            queued = self.bell.wait(queued);
        }
        *queued -= 1;
        drop(queued);
        self.word().resume();
        self.touch_stack();
    }

    fn wait(&self, publish: impl FnOnce(Ticket) -> bool) -> (Outcome, Option<CompletedBy>) {
        self.wait_for(publish, None)
    }

    fn wait_for(
        &self,
        publish: impl FnOnce(Ticket) -> bool,
        notice: Option<WakerNotice>,
    ) -> (Outcome, Option<CompletedBy>) {
        let (reason, site) = (WaitReason::Join, Location::caller());
        let how = Wait { reason, object: 0, site, deadline: None };
        wait_as(self, &PublishedBy(Cell::new(Some(publish)), notice), how, Manner::Plain)
    }

    /// Completes the wait as an owner with a slot to fill does. True if this owner won.
    fn complete(&self, ticket: Ticket, arm: CompletedBy, value: u32) -> bool {
        let Some(claimed) = Claimed::of(self.waiter(), ticket, arm) else { return false };
        // SAFETY: the claimer alone writes the slot; that is what the model checks.
        self.slot.with_mut(|slot| unsafe { *slot = value });
        let waker = claimed.make_runnable_with(|_| self.enqueue());
        assert!(waker.is_none(), "a fiber has no waker");
        true
    }

    fn cancel(&self) {
        revoke::request(self.waiter(), ReasonKind::Handle, |_| self.enqueue());
    }

    /// Cancels the fiber's scope, as `cancel::scopes` does.
    fn cancel_scope(&self) {
        let mut scope = self.scope.lock();
        scope.is_cancelled = true;
        self.fiber.flags.announce(flag::CANCEL_BODY);
        revoke::interrupt(self.waiter(), |_| self.enqueue());
    }

    /// A child fails, as in `cancel::failure`: if the owner is found waiting, that cancels the scope.
    fn child_fails(&self) {
        loop {
            let mut scope = self.scope.lock();
            scope.has_failure = true;
            self.fiber.flags.announce(flag::CANCEL_BODY);
            let seen = self.word().look_after_flag();
            if seen.is(WaiterState::Parking) && !seen.is_claimed() {
                drop(scope);
                thread::yield_now();
                continue;
            }
            if seen.is_waiting() {
                scope.is_cancelled = true;
                revoke::interrupt(self.waiter(), |_| self.enqueue());
            }
            return;
        }
    }

    /// Does what a waker of the fiber does.
    fn raise_notice(&self) {
        revoke::raise_notice(self.waiter(), WakerNotice::Outer, |_| self.enqueue());
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
    fn receive(&self) -> Result<u32, Outcome> {
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
            // What `publish` did stands; cancellation comes at the next wait.
            (Outcome::Retry, None | Some(ARM_CANCEL)) => Ok(found.expect("publish found it")),
            (Outcome::Done, Some(ARM_FIRST)) => Ok(self.take_slot()),
            (Outcome::Cancelled, None) => {
                self.object.lock().waiting = None;
                Err(Outcome::Cancelled)
            }
            _ => panic!("{ended:?}"),
        }
    }

    fn take_slot(&self) -> u32 {
        // SAFETY: the wait is over, the slot is the fiber's again; that is what the model checks.
        self.slot.with(|slot| unsafe { *slot })
    }

    /// The fiber runs, and was not enqueued once too often.
    fn assert_quiet(&self) {
        assert_eq!(self.word().snapshot().state(), WaiterState::Running);
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

// S0-08, S0-85, S4-38, S0-84: park against one owner: the value arrives, whenever the owner comes.
// S1-22, S1-24, S4-115..S4-118: the slot is plain memory, which loom watches: with a weaker order at any step of park, claim, release or
// commit the two sides would not be ordered, and this and the next models fail.
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

// S4-27, S4-36, S4-119, S4-121: two owners with the same ticket: one wins, fills the slot and enqueues once, before or after the commit.
#[test]
fn model_park_against_two_owners() {
    check(3, || {
        let world = World::new();
        let mut owners = Vec::new();
        let ended = world.wait(|ticket| {
            owners.extend([1u8, 2].map(|arm| spawn(&world, move |world| world.complete(ticket, arm, u32::from(arm)))));
            true
        });
        let (Outcome::Done, Some(arm)) = ended else { panic!("{ended:?}") };
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
        let (Outcome::Done, Some(first)) = ended else { panic!("{ended:?}") };
        world.word().finish(false);
        world.word().recycle();
        // The next life: started, and waiting for its own owner.
        let ticket = world.word().publish_spawned();
        assert!(world.word().start(ticket));
        let owner = spawn(&world, |world| world.send(7));
        assert_eq!(world.receive(), Ok(7), "the wake of another wait");
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
        let ticket = world.word().publish_spawned();
        assert!(world.word().start(ticket));
        let mut stale = None;
        let ended = world.wait(|ticket| {
            stale = Some(spawn(&world, move |world| world.complete(ticket, 2, 2)));
            world.complete(ticket, 1, 1);
            true
        });
        let (Outcome::Done, Some(first)) = ended else { panic!("{ended:?}") };
        world.word().finish(false);
        world.word().recycle();
        let floor = world.word().snapshot().ticket();
        world.word().lose_memory();
        world.word().renew(floor);
        // The next life, as far into it as the first was.
        let ticket = world.word().publish_spawned();
        assert!(world.word().start(ticket));
        let owner = spawn(&world, |world| world.send(7));
        assert_eq!(world.receive(), Ok(7), "the wake of another wait");
        owner.join().unwrap();
        assert_eq!(stale.expect("published").join().unwrap(), first == 2);
        world.assert_quiet();
    });
}

// S0-61, S4-46, S4-120: the owner claims while the fiber is still on its stack; however the two go on, the fiber runs after the release
// only.
#[test]
fn model_claim_while_parking() {
    check(3, || {
        let world = World::new();
        let ticket = world.word().begin_park(WaitKind::Binding);
        let owner = spawn(&world, move |world| world.complete(ticket, 3, 9));
        world.suspend();
        assert_eq!((world.word().snapshot().arm(), world.take_slot()), (3, 9));
        assert!(owner.join().unwrap());
        world.assert_quiet();
    });
}

// S4-47: flag then word against word then flag: the wait ends, whichever side is faster.
#[test]
fn model_cancel_against_park() {
    check(3, || {
        let world = World::new();
        let canceller = spawn(&world, World::cancel);
        // No other owner will ever complete it.
        assert_eq!(world.wait(|_| true), (Outcome::Cancelled, None));
        canceller.join().unwrap();
        world.assert_quiet();
    });
}

// A canceller that sees a wait sees what the waiter raised before it began: behind a barrier, the canceller must not end the wait.
#[test]
fn model_cancel_against_a_wait_behind_a_barrier() {
    check(3, || {
        let world = World::new();
        let canceller = spawn(&world, World::cancel);
        // Raised as by a scope that is opened behind a shield.
        world.fiber.flags.announce(flag::BARRIER);
        world.word().begin_park(WaitKind::Revocable);
        canceller.join().unwrap();
        assert!(world.word().abort_park(), "cancelled through a shield");
        world.assert_quiet();
    });
}

// S4-30: a waker of the future that the fiber polls is called before, while or after it parks: the wait ends, once.
#[test]
fn model_notice_against_park() {
    check(3, || {
        let world = World::new();
        let caller = spawn(&world, World::raise_notice);
        let ended = world.wait_for(|_| true, Some(WakerNotice::Outer));
        assert_eq!(ended, (Outcome::Done, Some(ARM_FIRST)));
        caller.join().unwrap();
        world.assert_quiet();
    });
}

// The same while the fiber is cancelled: one of the two ends the wait.
#[test]
fn model_notice_against_cancel() {
    check(2, || {
        let world = World::new();
        let others = [World::raise_notice, World::cancel].map(|other| spawn(&world, other));
        let ended = world.wait_for(|_| true, Some(WakerNotice::Outer));
        assert!(matches!(ended, (Outcome::Done, Some(ARM_FIRST)) | (Outcome::Cancelled, None)), "{ended:?}");
        others.into_iter().for_each(|other| other.join().unwrap());
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
        canceller.join().unwrap();
        let left = world.object.lock().value;
        match received {
            Ok(value) => assert_eq!((value, left), (7, None)),
            Err(ended) => assert_eq!((ended, matched, left), (Outcome::Cancelled, false, Some(7)), "a value was lost"),
        }
        world.assert_quiet();
    });
}

// S4-42: nothing to wait for: either the park is called off, or an owner has claimed it and the fiber waits for its release.
#[test]
fn model_abort_against_claim() {
    check(3, || {
        let world = World::new();
        let ticket = world.word().begin_park(WaitKind::Revocable);
        let owner = spawn(&world, move |world| world.complete(ticket, 3, 9));
        let aborted = world.word().abort_park();
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

// S4-22, S1-05: an unstarted frame whose entry is in a queue: a thief with the entry and a joiner that takes it compete for the start.
#[test]
fn model_one_of_two_starts_it() {
    check(3, || {
        let world = World::unstarted();
        let ticket = world.word().publish_spawned();
        let start = move |world: &World| {
            let started = world.word().start(ticket);
            if started {
                world.touch_stack();
            }
            started
        };
        let thief = spawn(&world, start);
        let mine = start(&world);
        if mine {
            // It runs, yields, and is RUNNABLE again: the thief's entry must not match.
            world.word().yielded();
            world.word().resume();
            world.touch_stack();
            world.word().finish(false);
            world.word().recycle();
            world.word().publish_spawned();
        }
        let theirs = thief.join().unwrap();
        assert!(mine != theirs, "started by both, or by neither");
    });
}

// A scope is cancelled while its owner, which moves, is let go by its worker: the wait ends as cancelled, whichever side learns of it.
#[test]
fn model_cancelled_scope_against_letting_go() {
    check(3, || {
        let world = World::new();
        let canceller = spawn(&world, World::cancel_scope);
        world.word().begin_park(WaitKind::Revocable);
        let worker = spawn(&world, World::let_go);
        world.go_on();
        assert_eq!(world.word().snapshot().arm(), ARM_CANCEL);
        worker.join().unwrap();
        canceller.join().unwrap();
        world.assert_quiet();
    });
}

// A child completes its owner's wait, and then fails. The worker that has let the owner go may learn of the failure when the owner goes on
// elsewhere already, about to join that child: the scope is not cancelled for a wait that was over before.
#[test]
fn model_failure_after_a_wait_against_letting_go() {
    check(2, || {
        let world = World::new();
        let ticket = world.word().begin_park(WaitKind::Revocable);
        let worker = spawn(&world, World::let_go);
        let child = spawn(&world, move |world| {
            assert!(world.complete(ticket, ARM_FIRST, 7));
            world.child_fails();
        });
        world.go_on();
        assert_eq!((world.word().snapshot().arm(), world.take_slot()), (ARM_FIRST, 7));
        child.join().unwrap();
        world.scope.lock().has_failure = false;
        worker.join().unwrap();
        assert!(!world.scope.lock().is_cancelled, "cancelled for a failure that was joined");
        world.assert_quiet();
    });
}

// A child fails while its owner is let go: the one or the other finds that the owner waits for something else, and the scope is cancelled.
#[test]
fn model_failure_against_letting_go() {
    check(2, || {
        let world = World::new();
        let child = spawn(&world, World::child_fails);
        world.word().begin_park(WaitKind::Revocable);
        let worker = spawn(&world, World::let_go);
        world.go_on();
        assert_eq!(world.word().snapshot().arm(), ARM_CANCEL);
        // What the fiber unwinds for, from the moment on in which it runs.
        assert!(world.scope.lock().is_cancelled);
        worker.join().unwrap();
        child.join().unwrap();
        world.assert_quiet();
    });
}
