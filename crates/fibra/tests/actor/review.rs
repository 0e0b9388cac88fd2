//! Faults that a hostile review found, each of which stays mended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::probe::{Job, Probe, gated, job, note};
use crate::sending::seen;
use crate::support;
use fibra::actor::{
    self, Actor, ActorState, Addr, Builder, CallError, ChildOptions, Context, Failure, Reply, Restart, StopReason,
    Supervisor, SupervisorActor,
};
use fibra::channel::{Overflow, unbounded};
use fibra::sync::Event;

const LONG: Duration = Duration::from_secs(3600);

pub(crate) fn temporary() -> ChildOptions {
    ChildOptions { restart: Restart::Temporary, ..ChildOptions::default() }
}

// Calls that wait in the mailbox of a child that its supervisor gives up are told that it has stopped, although it is the supervisor's
// turn that drops them: neither that their reply was dropped, nor that it crashed.
#[test]
fn calls_to_a_child_that_is_given_up_are_told_that_it_stopped() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let sup = Supervisor::one_for_one();
        let probe = sup.child_with("probe", temporary(), || Ok::<_, Failure>(Probe::default()));
        let sup = sup.spawn();
        let (gate, runs, goes_on) = gated();
        let fails: Job = Box::new(move |probe, ctx| {
            gate(probe, ctx)?;
            Err(Failure::msg("as asked"))
        });
        probe.send(fails).unwrap();
        runs.wait();
        let caller = {
            let probe = probe.clone();
            fibra::spawn(move || probe.call(|reply: Reply<()>| job(move |_, _| reply.send(()))))
        };
        while probe.is_empty() {
            fibra::yield_now();
        }
        goes_on.set();
        assert_eq!(caller.join().unwrap(), Err(CallError::Stopped));
        sup.stop();
        sup.stopped();
    });
}

/// Panics when it is dropped, with something that panics when it is dropped.
pub(crate) struct Bomb;

struct Fuse;

impl Drop for Fuse {
    fn drop(&mut self) {
        panic!("on purpose: the payload of a panic");
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::panic_any(Fuse);
    }
}

// What the destructor of a message does is no matter to the actor that ends, to its callers, or to its runtime.
#[test]
fn messages_that_panic_when_they_are_dropped_do_no_harm() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let probe = actor::spawn(Probe::default());
        let (gate, runs, goes_on) = gated();
        probe.send(gate).unwrap();
        runs.wait();
        for _ in 0..3 {
            let bomb = Bomb;
            probe.send(job(move |_, _| drop(bomb))).unwrap();
        }
        let caller = {
            let probe = probe.clone();
            fibra::spawn(move || probe.call(|reply: Reply<()>| job(move |_, _| reply.send(()))))
        };
        while probe.len() < 4 {
            fibra::yield_now();
        }
        probe.kill();
        goes_on.set();
        assert!(matches!(probe.stopped(), actor::StopReason::Killed));
        assert_eq!(caller.join().unwrap(), Err(CallError::Stopped));
    });
}

// A nested supervisor that is started anew passes over a child that was removed before: its address has ended for good.
#[test]
fn a_removed_child_does_not_keep_its_supervisor_from_a_restart() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let inner = Supervisor::one_for_one().max_restarts(0, LONG);
        let gone = inner.child_with("gone", temporary(), || Ok::<_, Failure>(Probe::default()));
        let stays = inner.child("stays", || Ok::<_, Failure>(Probe::default()));
        let outer = Supervisor::one_for_one().max_restarts(5, LONG);
        outer.nest("inner", ChildOptions::default(), inner);
        let outer = outer.spawn();
        assert_eq!(seen(&gone), []);
        gone.stop();
        gone.stopped();
        // The inner supervisor allows no restart, fails, and is started anew.
        stays.send(crate::probe::failing("as asked")).unwrap();
        stays.send(note(7)).unwrap();
        assert_eq!(seen(&stays), [7]);
        assert_eq!(outer.children().unwrap(), [("inner".to_owned(), true)]);
        outer.stop();
        outer.stopped();
    });
}

struct Holder {
    /// Counts the values that are alive.
    _alive: Arc<()>,
    other: Option<Addr<Holder>>,
}

impl Actor for Holder {
    type Message = Addr<Holder>;
    fn handle(&mut self, other: Addr<Holder>, _: &mut Context<Self>) -> Result<(), Failure> {
        self.other = Some(other);
        Ok(())
    }
}

// A supervised tree that is alive when its run ends is freed, also if its children have each other's addresses.
#[test]
fn a_tree_that_outlives_its_run_is_freed() {
    let _watchdog = support::watchdog(60);
    let alive = Arc::new(());
    let counted = alive.clone();
    fibra::run(move || {
        let make = move || Ok::<_, Failure>(Holder { _alive: counted.clone(), other: None });
        let sup = Supervisor::one_for_all();
        let (one, two) = (sup.child("one", make.clone()), sup.child("two", make));
        sup.spawn();
        one.send(two.clone()).unwrap();
        two.send(one.clone()).unwrap();
        while !(one.is_empty() && two.is_empty()) {
            fibra::yield_now();
        }
        assert!(one.is_alive() && two.is_alive());
    });
    assert_eq!(Arc::strong_count(&alive), 1);
}

// A panic of a handler is reported with the actor it belongs to, and not only with the fiber of its turn.
#[test]
fn a_panic_names_its_actor() {
    if support::is_child("a_panic_names_its_actor") {
        fibra::run(|| {
            let named = Builder::new().name("bank").spawn(Probe::default()).unwrap();
            named.send(job(|_, _| panic!("on purpose"))).unwrap();
            named.stopped();
        });
        return;
    }
    let ended = support::rerun_self("a_panic_names_its_actor", &[]);
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.stderr.contains(" of actor #") && ended.stderr.contains(" \"bank\""), "{ended:?}");
}

/// Lets all that is ready have several turns.
fn let_others_run() {
    (0..10).for_each(|_| fibra::yield_now());
}

/// Like [`gated`], but its handler does not wait: it is busy, and lets others run.
fn busy() -> (Job, Arc<Event>, Arc<Event>) {
    let (runs, goes_on) = (Arc::new(Event::new()), Arc::new(Event::new()));
    let (said, awaited) = (runs.clone(), goes_on.clone());
    let gate = job(move |_, _| {
        said.set();
        while !awaited.is_set() {
            fibra::yield_now();
        }
    });
    (gate, runs, goes_on)
}

// A sender that waits is let go when half of the mailbox is free, and not before, while the actor is busy with its messages.
#[test]
fn senders_that_wait_are_let_go_when_half_is_free() {
    let _watchdog = support::watchdog(60);
    fibra::Runtime::current_thread().unwrap().run(|| {
        let probe = Builder::new().mailbox(4).spawn(Probe::default()).unwrap();
        let mut gates = Vec::new();
        for _ in 0..3 {
            let (gate, runs, goes_on) = busy();
            probe.send(gate).unwrap();
            gates.push((runs, goes_on));
            gates[0].0.wait();
        }
        probe.send(note(1)).unwrap();
        probe.send(note(2)).unwrap();
        let sender = {
            let probe = probe.clone();
            fibra::spawn(move || (3..=4).for_each(|number| probe.send(note(number)).unwrap()))
        };
        let_others_run();
        assert_eq!(probe.len(), 4);
        gates[0].1.set();
        gates[1].0.wait();
        let_others_run();
        assert_eq!((probe.len(), sender.is_finished()), (3, false), "one of four is free");
        gates[1].1.set();
        gates[2].0.wait();
        sender.join().unwrap();
        assert_eq!(probe.len(), 4, "two were free: it has sent both");
        gates[2].1.set();
        assert_eq!(seen(&probe), [1, 2, 3, 4]);
    });
}

// An actor whose handler waits takes no message: every free place is for those who wait for one, fiber or future. The handler may wait for
// that very sender. (Two actors that send to each other stood still for ever, each with free places.)
#[test]
fn a_handler_that_waits_leaves_no_sender_beside_a_free_place() {
    let _watchdog = support::watchdog(60);
    fibra::Runtime::current_thread().unwrap().run(|| {
        let probe = Builder::new().mailbox(8).spawn(Probe::default()).unwrap();
        let gates: Vec<_> = (0..4).map(|_| gated()).collect();
        let (mut runs, mut go_on) = (Vec::new(), Vec::new());
        for (gate, says, waits) in gates {
            probe.send(gate).unwrap();
            runs.push(says);
            go_on.push(waits);
        }
        runs[0].wait();
        (1..=5).for_each(|number| probe.send(note(number)).unwrap());
        assert_eq!(probe.len(), 8, "it is full");
        let sends = |number| {
            let probe = probe.clone();
            fibra::spawn(move || probe.send(note(number)).unwrap())
        };
        let sends_async = |number| {
            let probe = probe.clone();
            fibra::spawn_future(async move { probe.send_async(note(number)).await.unwrap() })
        };
        let first = sends(6);
        let_others_run();
        let second = sends_async(7);
        let_others_run();
        let third = sends(8);
        let_others_run();
        assert!(!first.is_finished() && !second.is_finished() && !third.is_finished());
        // Each handler that begins to wait has taken one message, and the next sender has its place.
        go_on[0].set();
        first.join().unwrap();
        go_on[1].set();
        second.join().unwrap();
        go_on[2].set();
        third.join().unwrap();
        assert_eq!(probe.len(), 8);
        go_on[3].set();
        assert_eq!(seen(&probe), [1, 2, 3, 4, 5, 6, 7, 8]);
    });
}

// A future that was called because there is a place, and is not polled, does not keep the senders behind it from their places.
#[test]
fn a_future_that_does_not_come_holds_up_no_sender_behind_it() {
    let _watchdog = support::watchdog(60);
    fibra::Runtime::current_thread().unwrap().run(|| {
        let probe = Builder::new().mailbox(8).spawn(Probe::default()).unwrap();
        let (first, runs_first, first_goes_on) = busy();
        let (second, runs_second, second_goes_on) = busy();
        let (third, runs_third, third_goes_on) = gated();
        probe.send(first).unwrap();
        runs_first.wait();
        probe.send(second).unwrap();
        probe.send(third).unwrap();
        (1..=6).for_each(|number| probe.send(note(number)).unwrap());
        let mut waits = Box::pin(probe.send_async(note(7)));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        let sender = {
            let probe = probe.clone();
            fibra::spawn(move || probe.send(note(8)).unwrap())
        };
        let_others_run();
        first_goes_on.set();
        runs_second.wait();
        second_goes_on.set();
        runs_third.wait();
        // It waits now, and two places are free: one is left to the future, one is the sender's.
        sender.join().unwrap();
        drop(waits);
        third_goes_on.set();
        assert_eq!(seen(&probe), [1, 2, 3, 4, 5, 6, 8]);
    });
}

// The same between two lives, of which the second one comes late.
#[test]
fn an_actor_that_is_held_leaves_no_sender_beside_a_free_place() {
    let _watchdog = support::watchdog(60);
    fibra::Runtime::current_thread().unwrap().run(|| {
        let sup = Supervisor::one_for_one().backoff(LONG, LONG);
        let probe = sup.child("probe", || Ok::<_, Failure>(Probe::default()));
        let sup = sup.spawn();
        let (first, runs_first, first_goes_on) = gated();
        probe.send(first).unwrap();
        runs_first.wait();
        let (gate, runs, goes_on) = busy();
        let fails: Job = Box::new(move |probe, ctx| {
            gate(probe, ctx)?;
            Err(Failure::msg("as asked"))
        });
        probe.send(fails).unwrap();
        while probe.try_send(note(1)).is_ok() {}
        let full = probe.len();
        let sender = {
            let probe = probe.clone();
            fibra::spawn(move || probe.send(note(2)).unwrap())
        };
        let_others_run();
        first_goes_on.set();
        runs.wait();
        let_others_run();
        assert_eq!((probe.len(), sender.is_finished()), (full - 1, false), "it is busy, and one place is free");
        goes_on.set();
        sender.join().unwrap();
        assert_eq!((probe.state(), probe.len()), (ActorState::Waiting, full));
        sup.stop();
        sup.stopped();
    });
}

// A handler calls an actor whose full mailbox drops the newest message, or drops the reply itself: it is told so at once, and not when it
// has returned, which it never would.
#[test]
fn a_call_that_is_dropped_on_the_way_is_answered_at_once() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let busy = Builder::new().mailbox(1).overflow(Overflow::DropNewest).spawn(Probe::default()).unwrap();
        let (gate, runs, goes_on) = gated();
        busy.send(gate).unwrap();
        runs.wait();
        busy.send(note(1)).unwrap();
        let caller = actor::spawn(Probe::default());
        let callee = busy.clone();
        let told = caller.call(|reply| {
            job(move |_, _| {
                let refused = callee.call(|reply: Reply<()>| job(move |_, _| reply.send(())));
                let unmade = callee.call(|_reply: Reply<()>| note(2));
                let later = fibra::block_on(callee.call_async(|_reply: Reply<()>| note(3)));
                reply.send([refused, unmade, later]);
            })
        });
        assert_eq!(told, Ok([Err(CallError::Dropped), Err(CallError::Dropped), Err(CallError::Dropped)]));
        assert_eq!(busy.dropped(), 3);
        goes_on.set();
    });
}

// The same for a call of a third that a handler evicts from a mailbox that drops its oldest message: that handler may wait for the third.
#[test]
fn a_call_that_is_evicted_is_answered_at_once() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let busy = Builder::new().mailbox(1).overflow(Overflow::DropOldest).spawn(Probe::default()).unwrap();
        let (gate, runs, goes_on) = gated();
        busy.send(gate).unwrap();
        runs.wait();
        let caller = {
            let busy = busy.clone();
            fibra::spawn(move || busy.call(|reply: Reply<()>| job(move |_, _| reply.send(()))))
        };
        while busy.is_empty() {
            fibra::yield_now();
        }
        let evicts = actor::spawn(Probe::default());
        let told = evicts.call(|reply| {
            job(move |_, _| {
                busy.send(note(1)).unwrap();
                reply.send(caller.join().unwrap());
            })
        });
        assert_eq!(told, Ok(Err(CallError::Dropped)));
        goes_on.set();
    });
}

/// An error that panics when it is dropped.
pub(crate) struct Grudge {
    pub(crate) _dropped: Bomb,
}

impl std::fmt::Debug for Grudge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Grudge")
    }
}

impl std::fmt::Display for Grudge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("as asked")
    }
}

impl std::error::Error for Grudge {}

// The closure of a monitor that is gone is dropped by the actor that it watched: its panic does not keep that actor from its end.
#[test]
fn monitors_that_panic_when_they_are_dropped_do_no_harm() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let watched = actor::spawn(Probe::default());
        let watcher = actor::spawn(Probe::default());
        let other = watched.clone();
        let bomb = Bomb;
        watcher
            .send(job(move |_, ctx| {
                ctx.monitor(&other, move |_| {
                    let _bomb = bomb;
                    note(1)
                });
            }))
            .unwrap();
        assert_eq!(seen(&watcher), []);
        watcher.stop();
        watcher.stopped();
        watched.stop();
        assert!(matches!(watched.stopped(), StopReason::Stopped));
    });
}

/// Waits for ever, with a copy of its message that panics when it is dropped.
struct Copies(Arc<Event>);

impl Actor for Copies {
    type Message = Option<Bomb>;
    fn handle(&mut self, _: Option<Bomb>, _: &mut Context<Self>) -> Result<(), Failure> {
        self.0.set();
        Event::new().wait();
        Ok(())
    }
    fn redeliver(_: &Option<Bomb>) -> Option<Option<Bomb>> {
        Some(Some(Bomb))
    }
}

// The copy for a redelivery that never comes is dropped at the end of the actor: its panic does not keep the actor from it.
#[test]
fn copies_that_panic_when_they_are_dropped_do_no_harm() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let runs = Arc::new(Event::new());
        let copies = actor::spawn(Copies(runs.clone()));
        copies.send(None).unwrap();
        runs.wait();
        copies.kill();
        assert!(matches!(copies.stopped(), StopReason::Killed));
    });
}

// A child fails with an error that panics when it is dropped: its supervisor learns of the end all the same, time and again.
#[test]
fn errors_that_panic_when_they_are_dropped_do_no_harm() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let sup = Supervisor::one_for_one().max_restarts(5, LONG);
        let probe = sup.child("probe", || Ok::<_, Failure>(Probe::default()));
        let sup = sup.spawn();
        for _ in 0..3 {
            let fails: Job = Box::new(|_, _| Err(Grudge { _dropped: Bomb }.into()));
            probe.send(fails).unwrap();
        }
        probe.send(note(1)).unwrap();
        assert_eq!(seen(&probe), [1]);
        sup.stop();
        sup.stopped();
    });
}

/// Sends itself on, until it is told to stop.
fn token(me: Addr<Probe>, goes: Arc<AtomicBool>) -> Job {
    job(move |_, _| {
        // Relaxed: a hint.
        if goes.load(Ordering::Relaxed) {
            let next = token(me.clone(), goes);
            // (The mailbox may be full: the place is for a sender that has waited.)
            let _ = me.try_send(next);
        }
    })
}

fn with_tokens(check: impl FnOnce(&Addr<Probe>)) {
    let goes = Arc::new(AtomicBool::new(true));
    let probe = Builder::new().mailbox(4).spawn(Probe::default()).unwrap();
    let (gate, runs, goes_on) = gated();
    probe.send(gate).unwrap();
    runs.wait();
    for _ in 0..4 {
        probe.send(token(probe.clone(), goes.clone())).unwrap();
    }
    goes_on.set();
    check(&probe);
    goes.store(false, Ordering::Relaxed);
    assert_eq!(seen(&probe), [1]);
}

// A mailbox of which half is never free, since its messages send the next ones: a sender that waits has its turn all the same.
#[test]
fn a_sender_that_waits_does_not_starve() {
    let _watchdog = support::watchdog(120);
    fibra::run(|| with_tokens(|probe| probe.send_timeout(note(1), Duration::from_secs(30)).unwrap()));
    fibra::run(|| with_tokens(|probe| fibra::block_on(probe.send_async(note(1))).unwrap()));
}

// A future that was called because there is a place, and is dropped then, leaves the place to all.
#[test]
fn a_future_that_was_called_and_is_dropped_leaves_its_place() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let probe = Builder::new().mailbox(1).spawn(Probe::default()).unwrap();
        let (gate, runs, goes_on) = gated();
        probe.send(gate).unwrap();
        runs.wait();
        probe.send(note(1)).unwrap();
        let mut waits = Box::pin(probe.send_async(note(2)));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        goes_on.set();
        while !probe.is_empty() {
            fibra::yield_now();
        }
        assert!(probe.try_send(note(3)).is_err(), "the place is left to the future that was called");
        drop(waits);
        probe.try_send(note(3)).unwrap();
        assert_eq!(seen(&probe), [1, 3]);
    });
}

/// A waker that waits.
struct Slow(AtomicUsize);

impl std::task::Wake for Slow {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        fibra::sleep(Duration::from_millis(1));
    }
}

// Wakers of senders are user code, and may wait: the turn that calls them has its actor still. With one place the turn that finds its
// mailbox empty has a waiter that it could let go: it must not, since it has nothing to call its waker under.
#[test]
fn wakers_that_wait_do_no_harm() {
    let _watchdog = support::watchdog(60);
    for places in [1, 2] {
        fibra::run(|| {
            let probe = Builder::new().mailbox(places).spawn(Probe::default()).unwrap();
            let (gate, runs, goes_on) = gated();
            probe.send(gate).unwrap();
            runs.wait();
            let first = places as u64 + 1;
            (1..first).for_each(|number| probe.send(note(number)).unwrap());
            let slow = Arc::new(Slow(AtomicUsize::new(0)));
            let waker = std::task::Waker::from(slow.clone());
            let mut context = std::task::Context::from_waker(&waker);
            let mut waiting: Vec<_> = (first..=6).map(|number| Box::pin(probe.send_async(note(number)))).collect();
            for future in &mut waiting {
                assert!(future.as_mut().poll(&mut context).is_pending());
            }
            goes_on.set();
            while probe.state() != ActorState::Empty {
                fibra::yield_now();
            }
            assert_eq!(slow.0.load(Ordering::Relaxed), places, "one was called for each message");
            while !waiting.is_empty() {
                waiting.retain_mut(|future| future.as_mut().poll(&mut context).is_pending());
                fibra::yield_now();
            }
            let mut seen = seen(&probe);
            seen.sort_unstable();
            assert_eq!(seen, [1, 2, 3, 4, 5, 6]);
            assert!(slow.0.load(Ordering::Relaxed) >= 4);
        });
    }
}

// A supervisor that is killed while it waits for a child to start stops that child as well.
#[test]
fn a_child_that_starts_is_stopped_with_its_supervisor() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (starts, goes_on) = (Arc::new(Event::new()), Arc::new(Event::new()));
        let sup = Supervisor::one_for_one();
        let (said, awaited) = (starts.clone(), goes_on.clone());
        let probe = sup.child("probe", move || {
            said.set();
            awaited.wait();
            Ok::<_, Failure>(Probe::default())
        });
        let sup = sup.spawn();
        starts.wait();
        sup.kill();
        while sup.state() != ActorState::Waiting {
            fibra::yield_now();
        }
        goes_on.set();
        sup.stopped();
        assert!(matches!(probe.stopped(), StopReason::Shutdown | StopReason::Killed));
    });
}

// What is asked of an actor between two lives is not done to the next one.
#[test]
fn a_kill_between_two_lives_meets_neither() {
    let _watchdog = support::watchdog(60);
    // It has to be asked before the next life begins, half a pause later at the earliest. If that one was faster, because this fiber had no
    // processor, it says nothing: again, with more time.
    let pauses = [500, 5_000, 20_000].map(Duration::from_millis);
    assert!(pauses.into_iter().any(is_killed_between_two_lives), "no pause is long enough");
}

/// Whether it was asked in time.
fn is_killed_between_two_lives(pause: Duration) -> bool {
    fibra::run(|| {
        let sup = Supervisor::one_for_one().max_restarts(10, LONG).backoff(pause, pause);
        let (hooks, said) = unbounded();
        let probe =
            sup.child("probe", move || Ok::<_, Failure>(Probe { hooks: Some(hooks.clone()), ..Probe::default() }));
        let sup = sup.spawn();
        assert_eq!(said.recv().unwrap(), "started");
        let began = fibra::time::Instant::now();
        let in_time = || began.elapsed() < pause / 2;
        probe.send(crate::probe::failing("as asked")).unwrap();
        assert!(said.recv().unwrap().starts_with("stopping"));
        while probe.state() != ActorState::Waiting && in_time() {
            fibra::yield_now();
        }
        probe.kill();
        let is_between = in_time();
        if is_between {
            probe.send(note(1)).unwrap();
            assert_eq!(said.recv().unwrap(), "started");
            assert_eq!(seen(&probe), [1]);
            assert!(said.try_recv().is_err(), "it was started once, and runs");
        }
        sup.stop();
        sup.stopped();
        is_between
    })
}

struct Knows {
    /// Counts the values that are alive.
    _alive: Arc<()>,
    supervisor: Option<Addr<SupervisorActor>>,
}

impl Actor for Knows {
    type Message = Addr<SupervisorActor>;
    fn handle(&mut self, supervisor: Addr<SupervisorActor>, _: &mut Context<Self>) -> Result<(), Failure> {
        self.supervisor = Some(supervisor);
        Ok(())
    }
}

// A tree that is alive when its run ends is freed, also if a child has the address of its supervisor.
#[test]
fn a_tree_whose_child_has_its_supervisor_is_freed() {
    let _watchdog = support::watchdog(60);
    let alive = Arc::new(());
    let counted = alive.clone();
    fibra::run(move || {
        let sup = Supervisor::one_for_one();
        let child = sup.child("child", move || Ok::<_, Failure>(Knows { _alive: counted.clone(), supervisor: None }));
        let sup = sup.spawn();
        child.send(sup.clone()).unwrap();
        while !child.is_empty() {
            fibra::yield_now();
        }
        assert!(child.is_alive() && sup.is_alive());
    });
    assert_eq!(Arc::strong_count(&alive), 1);
}
