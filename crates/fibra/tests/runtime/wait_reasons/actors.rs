//! The reasons to wait of actors and machines: what is played for each in `every_reason_to_wait_can_be_cancelled`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::{Counted, LONG, Victim, cancelled_in, runtime};
use crate::support::{self, until_parked};
use fibra::actor::{self, Actor, Failure};
use fibra::channel;
use fibra::machine::{CANCELLED, EventLoop, Machine, Ports, Request, Timestamp};
use fibra::sync::Event;

/// An actor whose messages are functions, on a runtime of its own.
struct Obedient;

impl Actor for Obedient {
    type Message = Box<dyn FnOnce() + Send>;
    fn handle(&mut self, job: Self::Message, _: &mut actor::Context<Self>) -> Result<(), Failure> {
        job();
        Ok(())
    }
}

// The place that it waited for is free for the next.
pub(super) fn actor_send() {
    let rt = runtime();
    let actor = rt.run(|| actor::Builder::new().mailbox(1).spawn(Obedient)).unwrap();
    let (begun, gate) = (Arc::new(Event::new()), Arc::new(Event::new()));
    let (says, waits) = (begun.clone(), gate.clone());
    let busy = move || {
        says.set();
        waits.wait();
    };
    actor.send(Box::new(busy)).unwrap();
    begun.wait();
    actor.send(Box::new(|| ())).unwrap();
    let (sender, dropped) = (actor.clone(), Arc::new(AtomicUsize::new(0)));
    let message = Counted(dropped.clone());
    cancelled_in(move || drop(sender.send(Box::new(move || drop(message)))));
    assert_eq!((dropped.load(SeqCst), actor.len()), (1, 1));
    gate.set();
    actor.call(|reply| Box::new(move || reply.send(()))).unwrap();
}

// The actor finds that no caller waits for its answer.
pub(super) fn actor_call() {
    let rt = runtime();
    let actor = rt.run(|| actor::spawn(Obedient));
    let (replies, kept) = channel::bounded(1);
    let caller = actor.clone();
    cancelled_in(move || drop(caller.call(|reply: actor::Reply<()>| Box::new(move || replies.send(reply).unwrap()))));
    assert!(kept.recv().unwrap().is_abandoned());
}

pub(super) fn actor_stopped() {
    let rt = runtime();
    let actor = rt.run(|| actor::spawn(Obedient));
    let waiting = actor.clone();
    cancelled_in(move || drop(waiting.stopped()));
    assert!(actor.is_alive());
}

// The lock goes to the next.
pub(super) fn actor_lock() {
    let lock = Arc::new(actor::Lock::new(0));
    let (held, waiting) = (lock.lock(), lock.clone());
    cancelled_in(move || drop(waiting.lock()));
    drop(held);
    assert!(!lock.is_locked());
}

// What it ran is cancelled with it. (The function waits for time, so that there is no deadlock to be reported.)
pub(super) fn actors_quiescent() {
    let runtime = runtime();
    let victim = Victim::start(&runtime, || drop(actor::run_until_quiescent(|| fibra::sleep(LONG))));
    victim.until_parked(&runtime, 1);
    victim.cancel();
    victim.unwound();
    until_parked(&runtime, 0);
}

/// Answers only what is cancelled.
struct Silent(Vec<Request>, #[allow(dead_code)] Option<Counted>);

impl Machine for Silent {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while let Some(request) = ports.input.submissions.pop() {
            self.0.push(request);
        }
        while ports.input.cancellations.pop().is_some() {
            ports.complete(self.0.remove(0), CANCELLED);
        }
    }
}

// The machine is told, and what was sent is dropped when it has answered.
pub(super) fn machine_call() {
    let (runtime, drops) = (runtime(), Arc::new(AtomicUsize::new(0)));
    let machine = runtime.attach(Silent(Vec::new(), None));
    let sent = Counted(drops.clone());
    let victim = Victim::start(&runtime, move || drop(machine.call(0, sent)));
    victim.until_parked(&runtime, 1);
    victim.cancel();
    victim.unwound();
    support::eventually(|| drops.load(SeqCst) == 1, || format!("{drops:?}"));
    until_parked(&runtime, 1);
}

// The loop ends in order: its machine is dropped.
pub(super) fn machine_idle() {
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = Counted(drops.clone());
    cancelled_in(move || {
        let looping = EventLoop::new().app(Silent(Vec::new(), Some(counted)));
        let _watched = looping.stopper();
        looping.run().unwrap();
    });
    assert_eq!(drops.load(SeqCst), 1);
}
