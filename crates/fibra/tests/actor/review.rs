//! Faults that a hostile review found, each of which stays mended.

use std::sync::Arc;
use std::time::Duration;

use crate::probe::{Job, Probe, gated, job, note};
use crate::sending::seen;
use crate::support;
use fibra::actor::{self, Actor, Addr, Builder, CallError, ChildOptions, Context, Failure, Reply, Restart, Supervisor};

const LONG: Duration = Duration::from_secs(3600);

fn temporary() -> ChildOptions {
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
struct Bomb;

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

// A sender that waits is let go when half of the mailbox is free, and not before.
#[test]
fn senders_that_wait_are_let_go_when_half_is_free() {
    let _watchdog = support::watchdog(60);
    fibra::Runtime::current_thread().unwrap().run(|| {
        let probe = Builder::new().mailbox(4).spawn(Probe::default()).unwrap();
        let mut gates = Vec::new();
        for _ in 0..3 {
            let (gate, runs, goes_on) = gated();
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
        fibra::yield_now();
        assert_eq!(probe.len(), 4);
        gates[0].1.set();
        gates[1].0.wait();
        fibra::yield_now();
        assert_eq!((probe.len(), sender.is_finished()), (3, false), "one of four is free");
        gates[1].1.set();
        gates[2].0.wait();
        sender.join().unwrap();
        assert_eq!(probe.len(), 4, "two were free: it has sent both");
        gates[2].1.set();
        assert_eq!(seen(&probe), [1, 2, 3, 4]);
    });
}
