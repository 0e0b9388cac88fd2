//! Supervised actors: what survives a restart, what does not, pauses, nested supervisors, poison.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::probe::{Job, Probe, failing, gated, job, note, runtime};
use crate::sending::seen;
use crate::support;
use fibra::actor::{
    self, Actor, Addr, CallError, ChildOptions, Context, Failure, Reply, Restart, SendError, StopReason, Supervisor,
    SupervisorError, SupervisorMessage,
};
use fibra::channel::{Receiver, Sender, unbounded};
use fibra::time::Instant;

const LONG: Duration = Duration::from_secs(3600);

/// A child that tells of its hooks, and the address.
fn child(sup: &Supervisor, options: ChildOptions) -> (Addr<Probe>, Receiver<String>) {
    let (hooks, said) = unbounded();
    let make = move || Ok::<_, Failure>(Probe { hooks: Some(hooks.clone()), ..Probe::default() });
    (sup.child_with("probe", options, make), said)
}

// The address and the mailbox survive; the value, and the message that failed, do not; its caller is told.
#[test]
fn a_restart_keeps_address_and_mailbox() {
    let _watchdog = support::watchdog(60);
    runtime(2).run(|| {
        let sup = Supervisor::one_for_one().max_restarts(10, LONG);
        let (probe, said) = child(&sup, ChildOptions::default());
        let id = probe.id();
        probe.send(note(1)).unwrap(); // before it is started: it waits
        let sup = sup.spawn();
        assert_eq!(seen(&probe), [1]);
        let (gate, runs, goes_on) = gated();
        let fails = |reply: Reply<()>| -> Job {
            Box::new(move |probe, ctx| {
                gate(probe, ctx)?;
                let _reply = reply;
                Err(Failure::msg("as asked"))
            })
        };
        let caller = {
            let probe = probe.clone();
            fibra::spawn(move || probe.call(fails))
        };
        runs.wait();
        probe.send(note(2)).unwrap();
        probe.send(note(3)).unwrap();
        goes_on.set();
        assert_eq!(caller.join().unwrap(), Err(CallError::Crashed));
        assert_eq!(seen(&probe), [2, 3], "a new value, the old mailbox");
        assert_eq!((probe.id(), probe.is_alive()), (id, true));
        sup.stop();
        assert!(matches!(sup.stopped(), StopReason::Stopped));
        assert!(matches!(probe.stopped(), StopReason::Shutdown));
        assert!(matches!(probe.send(note(4)), Err(SendError::Stopped(_))));
        let hooks: Vec<_> = said.try_iter().collect();
        assert_eq!(hooks, ["started", "stopping: failed: as asked", "started", "stopping: shut down"]);
    });
}

// Senders that wait for a place in the mailbox wait over a restart, and those of a supervisor that is never started are refused.
#[test]
fn waiting_senders_survive_a_restart() {
    let _watchdog = support::watchdog(60);
    runtime(2).run(|| {
        let sup = Supervisor::one_for_one();
        let build = actor::Builder::new().name("small").mailbox(1);
        let probe = sup.child_built(build, ChildOptions::default(), || Ok::<_, Failure>(Probe::default()));
        probe.send(failing("first")).unwrap();
        let waiting = {
            let probe = probe.clone();
            fibra::spawn(move || (1..=3).map(|n| probe.send(note(n))).all(|sent| sent.is_ok()))
        };
        let sup = sup.spawn();
        assert!(waiting.join().unwrap());
        assert_eq!(seen(&probe), [1, 2, 3]);
        sup.stop();
        sup.stopped();
        // One that is dropped without having been started.
        let (lost, _) = child(&Supervisor::one_for_one(), ChildOptions::default());
        assert!(matches!(lost.stopped(), StopReason::Shutdown));
    });
}

// Pauses before a restart grow, and have a random part; a message that comes meanwhile waits.
#[test]
fn pauses_grow() {
    let _watchdog = support::watchdog(60);
    runtime(2).run(|| {
        let (min, max) = (Duration::from_millis(8), Duration::from_millis(20));
        let sup = Supervisor::one_for_one().max_restarts(10, LONG).backoff(min, max);
        let (times, starts) = unbounded();
        let probe = sup.child("probe", move || {
            times.send(Instant::now()).unwrap();
            Ok::<_, Failure>(Probe::default())
        });
        let _sup = sup.spawn();
        for _ in 0..3 {
            probe.send(failing("again")).unwrap();
        }
        assert_eq!(seen(&probe), []);
        let starts: Vec<Instant> = starts.try_iter().collect();
        let pauses: Vec<Duration> = starts.windows(2).map(|pair| pair[1].duration_since(pair[0])).collect();
        // At least one half of: 8, 16, 20 ms.
        let least = [4, 8, 10].map(Duration::from_millis);
        assert!(pauses.len() == 3 && pauses.iter().zip(least).all(|(pause, least)| *pause >= least), "{pauses:?}");
    });
}

// A supervisor that fails is started anew by its own supervisor, and the addresses of its children are still good.
#[test]
fn a_nested_supervisor_keeps_its_childrens_addresses() {
    let _watchdog = support::watchdog(60);
    runtime(2).run(|| {
        let inner = Supervisor::one_for_one().max_restarts(0, LONG);
        let (probe, _said) = child(&inner, ChildOptions::default());
        let outer = Supervisor::one_for_one().max_restarts(1, LONG);
        let nested = outer.nest("inner", ChildOptions::default(), inner);
        let outer = outer.spawn();
        probe.send(note(1)).unwrap();
        assert_eq!(seen(&probe), [1]);
        // One failure is too much for the inner one, which the outer one starts anew.
        probe.send(failing("once")).unwrap();
        probe.send(note(2)).unwrap();
        assert_eq!(seen(&probe), [2]);
        assert!(nested.is_alive());
        // The second is too much for the outer one, too.
        probe.send(failing("twice")).unwrap();
        let why = outer.stopped();
        let error = why.failure().and_then(|failure| failure.downcast_ref::<SupervisorError>());
        assert!(matches!(error, Some(SupervisorError::TooManyRestarts { child, .. }) if child == "inner"), "{why}");
        assert!(!matches!(probe.stopped(), StopReason::Stopped));
    });
}

// A child that cannot be made, when the supervisor starts: those before it are stopped, and `run` says which one and why.
#[test]
fn a_supervisor_that_cannot_start_says_why() {
    let _watchdog = support::watchdog(60);
    runtime(2).run(|| {
        let sup = Supervisor::one_for_one();
        let (first, said) = child(&sup, ChildOptions::default());
        let broken = || -> Result<Probe, std::io::Error> { Err(std::io::Error::other("no disk")) };
        let _second = sup.child("second", broken);
        let error = sup.run().unwrap_err();
        let SupervisorError::StartFailed { child, reason } = &error else { panic!("{error}") };
        assert!(child == "second" && reason.contains("no disk"), "{error}");
        assert!(!first.is_alive());
        assert_eq!(said.try_iter().collect::<Vec<_>>(), ["started", "stopping: shut down"]);
    });
}

// A child that cannot be made again counts as a failure each time.
#[test]
fn a_child_that_cannot_be_made_again_is_tried_again() {
    let _watchdog = support::watchdog(60);
    runtime(2).run(|| {
        let tries = Arc::new(AtomicU64::new(0));
        let sup = Supervisor::one_for_one().max_restarts(3, LONG);
        let count = tries.clone();
        let probe = sup.child("flaky", move || match count.fetch_add(1, SeqCst) {
            1 | 2 => Err(Failure::msg("not yet")),
            _ => Ok(Probe::default()),
        });
        let sup = sup.spawn();
        probe.send(failing("once")).unwrap();
        probe.send(note(1)).unwrap();
        assert_eq!(seen(&probe), [1]);
        assert_eq!(tries.load(SeqCst), 4);
        assert_eq!(sup.call(SupervisorMessage::children), Ok(vec![("flaky".to_owned(), true)]));
    });
}

// A handler that does not stop in time is killed.
#[test]
fn a_child_that_does_not_stop_is_killed() {
    let _watchdog = support::watchdog(60);
    runtime(2).run(|| {
        let sup = Supervisor::one_for_one();
        let options = ChildOptions { shutdown: Duration::from_millis(5), ..ChildOptions::default() };
        let (probe, said) = child(&sup, options);
        let sup = sup.spawn();
        let (gate, runs, _never) = gated();
        probe.send(gate).unwrap();
        runs.wait();
        sup.stop();
        sup.stopped();
        assert!(!probe.is_alive());
        assert_eq!(said.try_iter().collect::<Vec<_>>(), ["started", "stopping: shut down"]);
    });
}

/// An actor whose messages are delivered once more after a failure.
struct Careful {
    poisoned: Sender<u32>,
    handled: Sender<u32>,
}

impl Actor for Careful {
    type Message = u32;
    fn handle(&mut self, n: u32, _: &mut Context<Self>) -> Result<(), Failure> {
        let _ = self.handled.send(n);
        if n.is_multiple_of(2) { Ok(()) } else { Err(Failure::msg("odd")) }
    }
    fn redeliver(n: &u32) -> Option<u32> {
        Some(*n)
    }
    fn on_poison(&mut self, n: u32, _: &mut Context<Self>) {
        let _ = self.poisoned.send(n);
    }
}

// "A message that crashes its actor twice goes to `on_poison`."
#[test]
fn a_message_that_fails_twice_is_poison() {
    let _watchdog = support::watchdog(60);
    runtime(2).run(|| {
        let ((poisoned, poison), (handled, order)) = (unbounded(), unbounded());
        let sup = Supervisor::one_for_one().max_restarts(10, LONG);
        let make = move || Ok::<_, Failure>(Careful { poisoned: poisoned.clone(), handled: handled.clone() });
        let careful = sup.child("careful", make);
        let _sup = sup.spawn();
        [2, 3, 4].into_iter().for_each(|n| careful.send(n).unwrap());
        assert_eq!(poison.recv(), Ok(3));
        let order: Vec<u32> = (0..4).map(|_| order.recv().unwrap()).collect();
        assert_eq!(order, [2, 3, 3, 4], "once more, before what came later; then no more");
    });
}

// Significant children: when one is removed, the supervisor shuts down, and `run` returns.
#[test]
fn the_end_of_a_significant_child_ends_the_supervisor() {
    let _watchdog = support::watchdog(60);
    runtime(2).run(|| {
        let sup = Supervisor::one_for_one();
        let (other, _) = child(&sup, ChildOptions::default());
        let options = ChildOptions { restart: Restart::Transient, significant: true, ..ChildOptions::default() };
        let (main, _) = child(&sup, options);
        main.send(failing("is restarted")).unwrap();
        main.send(job(|_, ctx| ctx.stop())).unwrap();
        sup.run().unwrap();
        assert!(!other.is_alive() && !main.is_alive());
    });
}

// Restarts, kills, stops and sends at random: every call ends, and the supervisor with all its children can be stopped.
#[test]
fn stress_a_tree_under_fire() {
    let _watchdog = support::watchdog(120);
    runtime(4).run(|| {
        for (round, strategy) in
            [Supervisor::one_for_one, Supervisor::one_for_all, Supervisor::rest_for_one].into_iter().enumerate()
        {
            let sup = strategy().max_restarts(u32::MAX, LONG);
            let children: Vec<_> =
                (0..4).map(|n| sup.child(format!("child {n}"), || Ok::<_, Failure>(Probe::default()))).collect();
            let sup = sup.spawn();
            let callers: Vec<_> = (0..4_usize)
                .map(|seed| {
                    let children = children.clone();
                    fibra::spawn(move || {
                        let mut answers = 0;
                        for n in 0..100 {
                            let child = &children[(seed + n * 3 + round) % children.len()];
                            match (n + seed) % 10 {
                                0 => child.kill(),
                                1 => child.stop(),
                                2 => child.send(failing("under fire")).unwrap(),
                                3 => child.send(job(|_, _| std::panic::resume_unwind(Box::new(())))).unwrap(),
                                _ => {
                                    let answer = child.call(|reply: Reply<()>| job(move |_, _| reply.send(())));
                                    answers += u32::from(answer.is_ok());
                                    assert!(
                                        matches!(answer, Ok(()) | Err(CallError::Crashed | CallError::Stopped)),
                                        "{answer:?}"
                                    );
                                }
                            }
                        }
                        answers
                    })
                })
                .collect();
            let answers: u32 = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
            assert!(answers > 0);
            sup.stop();
            sup.stopped();
            assert!(children.iter().all(|child| !child.is_alive()));
        }
    });
}
