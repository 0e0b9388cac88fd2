//! Models of the protocol of actors, over the code that ships: the desk (state word, mailbox, places) and the lock.
//! What is played is the launching: the thread that is told to launch a turn runs it. (The answer of a call: `channel/answer/model.rs`.)

use std::panic::Location;

use super::baton::Baton;
use super::desk::{ActorDesk, Next, Pause};
use super::mail::{Hand, Lane, Letter, Take};
use super::state::{ActorState, KILL, NEW_EMPTY, NEW_RUNNABLE};
use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::prim::model::{check, thread};
use crate::prim::sync::Arc;
use crate::wait::reason::WaitReason;

/// An actor whose messages are numbers, and what came of them.
struct World {
    desk: ActorDesk<usize, ()>,
    /// The sum of what was handled, and of what was given back at the end.
    handled: AtomicUsize,
    refused: AtomicUsize,
    turns: AtomicUsize,
    running: AtomicUsize,
}

impl World {
    fn new(state: u32) -> Arc<Self> {
        Self::with_capacity(state, 4)
    }

    fn with_capacity(state: u32, capacity: usize) -> Arc<Self> {
        let zero = || AtomicUsize::new(0);
        let desk = ActorDesk::new(state, capacity, Some(()));
        Arc::new(Self { desk, handled: zero(), refused: zero(), turns: zero(), running: zero() })
    }

    fn state(&self) -> ActorState {
        self.desk.seen().state()
    }

    fn then(&self, next: Next) {
        if next == Next::Launch {
            // Relaxed, here and below: sums, read when all threads have ended.
            self.turns.fetch_add(1, Ordering::Relaxed);
            self.turn(usize::MAX);
        }
    }

    /// A turn of so many messages at most, and those that follow it.
    fn turn(&self, budget: usize) {
        while self.one_turn(budget) {}
    }

    /// One turn. True: it has to launch the next one.
    fn one_turn(&self, budget: usize) -> bool {
        let (mut value, mut hand, mut begins) = (None, Hand::new(), true);
        loop {
            for _ in 0..budget {
                let is_ready = |(): &mut ()| {
                    // Relaxed: the assertion is about a count that must never be 2, whatever else is seen.
                    assert_eq!(self.running.fetch_add(1, Ordering::Relaxed), 0, "two turns at once");
                    true
                };
                let may_rest = || {
                    // Relaxed: as above; before it rests, since another turn may begin right after.
                    self.running.fetch_sub(1, Ordering::Relaxed);
                    true
                };
                match self.desk.next(std::mem::take(&mut begins), &mut value, &mut hand, is_ready, may_rest) {
                    Take::Message => {
                        // Relaxed: as above.
                        self.handled.fetch_add(hand.message.take(), Ordering::Relaxed);
                    }
                    Take::Stop | Take::Now | Take::Kill => {
                        self.end();
                        return false;
                    }
                    Take::Rested => return false,
                    Take::Not => panic!("a turn of an actor that is not runnable, or two turns at once"),
                    _ => unreachable!("nothing has failed, and it may rest"),
                }
            }
            // Relaxed: as above.
            self.running.fetch_sub(1, Ordering::Relaxed);
            match self.desk.pause(&mut value, || true) {
                Pause::Idle => return false,
                Pause::Launch => return true,
                // Relaxed: as above.
                Pause::GoOn => assert_eq!(self.running.fetch_add(1, Ordering::Relaxed), 0),
            }
        }
    }

    fn end(&self) {
        let left: usize = self.desk.close().letters().map(Letter::open).sum();
        // Relaxed, both: as above.
        self.refused.fetch_add(left, Ordering::Relaxed);
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.desk.end();
    }

    /// Sends; says what was accepted.
    fn send(&self, number: usize) -> usize {
        let posted = match self.desk.post_plainly(Letter::Message(number)) {
            Ok(next) => Ok(next),
            Err(letter) => self.desk.post(letter),
        };
        match posted {
            Ok(next) => {
                self.then(next);
                number
            }
            Err(_) => 0,
        }
    }

    fn sums(&self) -> (usize, usize, usize) {
        // Relaxed, all: as above.
        let sum = |sum: &AtomicUsize| sum.load(Ordering::Relaxed);
        (sum(&self.handled), sum(&self.refused), sum(&self.turns))
    }
}

fn spawn<R: Send + 'static>(world: &Arc<World>, f: impl FnOnce(&World) -> R + Send + 'static) -> thread::JoinHandle<R> {
    let world = world.clone();
    thread::spawn(move || f(&world))
}

// S2-32, S2-26, G-10: a message is sent while the actor goes EMPTY: it is handled, by this turn or by the next.
#[test]
fn model_send_against_going_empty() {
    // With a message and without one: a turn that finds none rests in the step in which it begins.
    for first in [None, Some(2)] {
        check(3, move || {
            let world = World::new(NEW_RUNNABLE);
            if let Some(first) = first {
                assert_eq!(world.desk.post(Letter::Message(first)).ok(), Some(Next::Nothing));
            }
            let sender = spawn(&world, |world| world.send(1));
            world.turn(usize::MAX);
            sender.join().unwrap();
            assert_eq!(world.sums().0, 1 + first.unwrap_or(0));
            assert_eq!(world.state(), ActorState::Empty);
        });
    }
}

// S2-24, S2-28, S2-29, S2-51: two send to an EMPTY actor: one of them launches, and both messages are handled.
#[test]
fn model_two_senders_to_an_empty_actor() {
    check(3, || {
        let world = World::new(NEW_EMPTY);
        let sender = spawn(&world, |world| world.send(1));
        world.send(2);
        sender.join().unwrap();
        let (handled, _, turns) = world.sums();
        assert_eq!(handled, 3);
        assert!((1..=2).contains(&turns));
        assert_eq!(world.state(), ActorState::Empty);
    });
}

// S2-51, S2-52: a message is sent while a turn has spent its budget: it is handled, by one of the turns that follow.
#[test]
fn model_send_against_a_spent_budget() {
    check(3, || {
        let world = World::new(NEW_RUNNABLE);
        assert_eq!(world.desk.post(Letter::Message(2)).ok(), Some(Next::Nothing));
        let sender = spawn(&world, |world| world.send(1));
        world.turn(1);
        sender.join().unwrap();
        assert_eq!(world.sums().0, 3);
        assert_eq!(world.state(), ActorState::Empty);
    });
}

// A sender waits for a place in a full mailbox while the turn makes room: it gets one, and its message is handled.
#[test]
fn model_waiting_sender_against_turn() {
    check(2, || {
        let world = World::with_capacity(NEW_RUNNABLE, 2);
        for number in [4, 8] {
            assert_eq!(world.desk.post(Letter::Message(number)).ok(), Some(Next::Nothing));
        }
        let sender = spawn(&world, |world| {
            if world.send(1) == 1 {
                return;
            }
            assert_eq!(world.desk.places.take(None, Location::caller()), Ok(()));
            match world.desk.post_by(Letter::Message(1), Lane::Reserved) {
                Ok(next) => world.then(next),
                Err(_) => panic!("it is open"),
            }
        });
        world.turn(usize::MAX);
        sender.join().unwrap();
        assert_eq!(world.sums().0, 13);
        assert_eq!(world.state(), ActorState::Empty);
    });
}

// A sender waits for a place in a full mailbox while the handler begins to wait, for that sender: it gets the free place, though less than
// half of the mailbox is free.
#[test]
fn model_waiting_sender_against_waiting_handler() {
    check(2, || {
        let world = World::with_capacity(NEW_RUNNABLE, 4);
        for number in [4, 8, 16, 32] {
            assert_eq!(world.desk.post(Letter::Message(number)).ok(), Some(Next::Nothing));
        }
        let sender = spawn(&world, |world| {
            if world.send(1) == 1 {
                return;
            }
            assert_eq!(world.desk.places.take(None, Location::caller()), Ok(()));
            assert!(matches!(world.desk.post_by(Letter::Message(1), Lane::Reserved), Ok(Next::Nothing)));
        });
        let (mut value, mut hand) = (None, Hand::new());
        assert_eq!(world.desk.next(true, &mut value, &mut hand, |()| true, || true), Take::Message);
        assert!(!world.desk.wait(), "it was not killed");
        sender.join().unwrap();
        world.desk.go_on();
        assert_eq!(world.desk.counts().0, 4);
    });
}

// A message is sent while the actor stops: what was accepted is handled or given back, and the actor has ended.
#[test]
fn model_stop_against_send() {
    check(3, || {
        let world = World::new(NEW_EMPTY);
        let sender = spawn(&world, |world| world.send(1));
        let next = world.desk.ask_stop(true);
        world.then(next);
        let accepted = sender.join().unwrap();
        let (handled, refused, _) = world.sums();
        assert_eq!(handled + refused, accepted);
        assert_eq!(world.state(), ActorState::Gone);
    });
}

// The same for an actor that is killed: what is sent while it ends is given back, or refused.
#[test]
fn model_kill_against_send() {
    check(3, || {
        let world = World::new(NEW_EMPTY);
        let sender = spawn(&world, |world| world.send(1));
        let next = world.desk.ask(KILL);
        world.then(next);
        let accepted = sender.join().unwrap();
        let (handled, refused, _) = world.sums();
        assert_eq!(handled + refused, accepted);
        assert_eq!(world.state(), ActorState::Gone);
    });
}

// The same for one that is killed, and that goes EMPTY at that moment: the request is not lost.
#[test]
fn model_kill_against_rest() {
    check(3, || {
        let world = World::new(NEW_RUNNABLE);
        let killer = spawn(&world, |world| {
            let accepted = world.send(1);
            let next = world.desk.ask(KILL);
            world.then(next);
            accepted
        });
        world.turn(usize::MAX);
        let accepted = killer.join().unwrap();
        let (handled, refused, _) = world.sums();
        assert_eq!(handled + refused, accepted);
        assert_eq!(world.state(), ActorState::Gone);
    });
}

// A message is sent while the actor fails and is started anew: the mailbox is kept, and the message is handled in one of its lives.
#[test]
fn model_restart_against_send() {
    check(3, || {
        let world = World::new(NEW_RUNNABLE);
        let sender = spawn(&world, |world| world.send(1));
        assert_eq!(world.desk.next(true, &mut None, &mut Hand::new(), |()| false, || true), Take::Starts);
        // It fails at once; the supervisor starts it anew.
        world.desk.hold(Some(()));
        assert!(world.desk.start(|()| ()));
        world.turn(usize::MAX);
        sender.join().unwrap();
        assert_eq!(world.sums().0, 1);
        assert_eq!(world.state(), ActorState::Empty);
    });
}

// S2-35, S2-39..S2-42, S2-54, G-10, G-11: one fails to get the lock while the other unlocks: it gets it, and no third comes in between.
#[test]
fn model_lock_against_unlock() {
    check(2, || {
        let world = Arc::new((Baton::new(), AtomicUsize::new(0)));
        assert!(world.0.try_take());
        let locker = {
            let world = world.clone();
            thread::spawn(move || {
                if !world.0.try_take() {
                    assert!(world.0.take(0, None, Location::caller()));
                }
                // Relaxed: ordered by the lock, or the assertion fails.
                assert_eq!(world.1.fetch_add(1, Ordering::Relaxed), 0, "two at once");
                world.1.fetch_sub(1, Ordering::Relaxed);
                world.0.give();
            })
        };
        world.0.give();
        if world.0.try_take() {
            // Relaxed: as above.
            assert_eq!(world.1.fetch_add(1, Ordering::Relaxed), 0, "two at once");
            world.1.fetch_sub(1, Ordering::Relaxed);
            world.0.give();
        }
        locker.join().unwrap();
        assert!(!world.0.is_taken(), "the last one left it free");
    });
}

// S2-42: one that waits is not overtaken: as long as it is queued, a newcomer cannot take the lock, not even while it is handed over.
#[test]
fn model_no_barging() {
    check(2, || {
        let world = Arc::new((Baton::new(), AtomicUsize::new(0)));
        assert!(world.0.try_take());
        let waiter = {
            let world = world.clone();
            thread::spawn(move || {
                assert!(world.0.take(0, None, Location::caller()));
                // Release: pairs with the acquire below.
                world.1.store(1, Ordering::Release);
                world.0.give();
            })
        };
        let newcomer = {
            let world = world.clone();
            thread::spawn(move || {
                let queued = world.0.is_waited_for();
                if !world.0.try_take() {
                    return;
                }
                // Acquire: pairs with the release above.
                let is_over = world.1.load(Ordering::Acquire) == 1;
                world.0.give();
                assert!(is_over || !queued, "a newcomer came before one that was queued");
            })
        };
        world.0.give();
        waiter.join().unwrap();
        newcomer.join().unwrap();
        assert!(!world.0.is_taken());
    });
}
