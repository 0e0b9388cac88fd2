//! How actors end: stop, kill, failure, the last address, the end of the runtime; hooks, monitors and links.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::probe::{Probe, failing, gated, job, note, runtime};
use crate::sending::seen;
use crate::support;
use fibra::actor::{self, Addr, Builder, Failure, Reply, SendError, StopReason};
use fibra::channel::{Receiver, unbounded};

fn with_hooks() -> (Addr<Probe>, Receiver<String>) {
    let (hooks, said) = unbounded();
    (actor::spawn(Probe { hooks: Some(hooks), ..Probe::default() }), said)
}

// `stop` comes after what lies in the mailbox, and refuses what comes later; hooks are called once each, in order.
#[test]
fn stop_comes_after_the_mailbox() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (probe, said) = with_hooks();
        let (gate, runs, goes_on) = gated();
        probe.send(gate).unwrap();
        runs.wait();
        let handled = Arc::new(AtomicU64::new(0));
        for _ in 0..3 {
            let handled = handled.clone();
            probe.send(job(move |_, _| _ = handled.fetch_add(1, SeqCst))).unwrap();
        }
        probe.stop();
        assert!(matches!(probe.send(note(9)), Err(SendError::Stopped(_))));
        assert!(probe.is_alive());
        goes_on.set();
        assert!(matches!(probe.stopped(), StopReason::Stopped));
        assert_eq!(handled.load(SeqCst), 3);
        assert!(!probe.is_alive());
        drop(probe);
        assert_eq!(said.iter().collect::<Vec<_>>(), ["started", "stopping: stopped"]);
    });
}

// `kill` cancels a handler where it waits; what lies in the mailbox is dropped, and the hook is called.
#[test]
fn kill_ends_a_handler_that_waits() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (probe, said) = with_hooks();
        let (gate, runs, _goes_on) = gated();
        probe.send(gate).unwrap();
        probe.send(note(1)).unwrap();
        runs.wait();
        while probe.state() != actor::ActorState::Waiting {
            fibra::yield_now();
        }
        probe.kill();
        assert!(matches!(probe.stopped(), StopReason::Killed));
        assert_eq!(said.iter().collect::<Vec<_>>(), ["started", "stopping: killed"]);
    });
}

// A handler that runs is cancelled when it next waits; children of a scope in it are, too.
#[test]
fn kill_ends_a_handler_at_its_next_wait() {
    let _watchdog = support::watchdog(60);
    runtime(2).run(|| {
        let probe = actor::spawn(Probe::default());
        let (tx, rx) = unbounded();
        probe
            .send(job(move |_, ctx| {
                ctx.address().kill();
                tx.send("before").unwrap();
                fibra::scope(|s| {
                    s.spawn(|| fibra::sleep(Duration::from_secs(3600)));
                });
                tx.send("after").unwrap();
            }))
            .unwrap();
        assert!(matches!(probe.stopped(), StopReason::Killed));
        assert_eq!(rx.iter().collect::<Vec<_>>(), ["before"]);
    });
}

#[test]
fn an_idle_actor_can_be_killed_and_stopped() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        for kill in [false, true] {
            let (probe, said) = with_hooks();
            assert_eq!(said.recv().as_deref(), Ok("started"));
            if kill {
                probe.kill()
            } else {
                probe.stop()
            }
            let why = probe.stopped();
            assert_eq!(matches!(why, StopReason::Killed), kill);
            assert_eq!(said.recv(), Ok(format!("stopping: {why}")));
            probe.kill(); // of one that has ended: nothing
            probe.stop();
        }
    });
}

// The end is an arm, a future and a timed wait.
#[test]
fn the_end_can_be_waited_for_in_all_forms() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let probe = actor::spawn(Probe::default());
        assert!(probe.stopped_timeout(Duration::from_millis(1)).is_none());
        fibra::select! {
            on(probe.stopped_arm()) -> _ => panic!("it is there"),
            after(Duration::from_millis(1)) => {}
        }
        probe.send(failing("as asked")).unwrap();
        let why = fibra::select! {
            on(probe.stopped_arm()) -> why => why,
        };
        assert_eq!(why.to_string(), "failed: as asked");
        assert!(fibra::block_on(probe.stopped_async()).failure().is_some());
        assert!(probe.stopped_timeout(Duration::ZERO).is_some());
    });
}

// A panic in a handler is the actor's failure alone.
#[test]
fn a_panic_is_the_actors_failure() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (probe, said) = with_hooks();
        probe.send(job(|_, _| panic!("a bad message"))).unwrap();
        assert_eq!(probe.stopped().failure().map(Failure::message).as_deref(), Some("a bad message"));
        assert_eq!(said.iter().collect::<Vec<_>>(), ["started", "stopping: failed: panicked: a bad message"]);
        let typed = actor::spawn(Probe::default());
        typed.send(Box::new(|_, _| Ok("x".parse::<i32>().map(drop)?))).unwrap();
        assert!(typed.stopped().failure().is_some_and(|f| f.downcast_ref::<std::num::ParseIntError>().is_some()));
    });
}

// The last address: what is in the mailbox is handled, then it ends. Weak addresses and messages do not keep it.
#[test]
fn an_actor_without_addresses_ends() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (probe, said) = with_hooks();
        let weak = probe.downgrade();
        let (gate, runs, goes_on) = gated();
        probe.send(gate).unwrap();
        probe.send(job(|probe, _| probe.say("handled".to_owned()))).unwrap();
        runs.wait();
        drop(weak.upgrade().unwrap());
        drop(probe);
        assert!(weak.upgrade().is_none());
        goes_on.set();
        let all: Vec<_> = said.iter().collect();
        assert_eq!(all, ["started", "handled", "stopping: its last address was dropped"]);
        // An idle one as well.
        let (probe, said) = with_hooks();
        assert_eq!(said.recv().as_deref(), Ok("started"));
        drop(probe);
        assert_eq!(said.recv().as_deref(), Ok("stopping: its last address was dropped"));
    });
}

// One that keeps an address of its own lives on; that is its own business.
#[test]
fn a_timer_counts_as_an_address() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (probe, said) = with_hooks();
        let tick = |ctx: &fibra::actor::Context<Probe>| {
            ctx.send_after(Duration::from_millis(1), job(|probe, _| probe.say("tick".to_owned())));
        };
        probe.send(job(move |_, ctx| tick(ctx))).unwrap();
        drop(probe);
        let all: Vec<_> = said.iter().collect();
        assert_eq!(all, ["started", "tick", "stopping: its last address was dropped"]);
    });
}

// An actor without work does not hold up `run`, and one with work does.
#[test]
fn run_waits_for_work_and_not_for_actors() {
    let _watchdog = support::watchdog(60);
    let rt = runtime(2);
    let handled = Arc::new(AtomicU64::new(0));
    let probe = rt.run(|| {
        let probe = actor::spawn(Probe::default());
        let handled = handled.clone();
        probe
            .send(job(move |_, ctx| {
                ctx.send_every(Duration::from_secs(3600), || note(0));
                fibra::sleep(Duration::from_millis(5));
                handled.store(1, SeqCst);
            }))
            .unwrap();
        probe
    });
    assert_eq!(handled.load(SeqCst), 1, "run has waited for the handler");
    assert!(probe.is_alive(), "and not for the actor, nor for its timer");
    assert_eq!(rt.run(|| seen(&probe)), [], "which lives on in the next run");
    drop(rt);
    // The runtime is gone: a message ends the actor, and says so.
    assert!(probe.send(note(1)).is_ok() || !probe.is_alive());
    assert!(matches!(probe.stopped(), StopReason::Shutdown));
    assert!(matches!(probe.send(note(2)), Err(SendError::Stopped(_))));
    let called = probe.call(|reply: Reply<()>| job(move |_, _| reply.send(())));
    assert_eq!(called, Err(fibra::actor::CallError::Stopped));
}

#[test]
fn monitors_are_told() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (watcher, said) = with_hooks();
        assert_eq!(said.recv().as_deref(), Ok("started"));
        let watch = |other: &Addr<Probe>| {
            let other = other.clone();
            watcher
                .send(job(move |_, ctx| {
                    ctx.monitor(&other, |down| {
                        job(move |probe, _| probe.say(format!("{:?} {}", down.name.as_deref(), down.reason)))
                    });
                    drop(other);
                }))
                .unwrap();
            seen(&watcher);
        };
        let named = |name: &str| Builder::new().name(name).spawn(Probe::default()).unwrap();
        let (a, b, c) = (named("a"), named("b"), named("c"));
        watch(&a);
        watch(&b);
        a.stop();
        assert_eq!(said.recv().as_deref(), Ok("Some(\"a\") stopped"));
        b.send(failing("no")).unwrap();
        assert_eq!(said.recv().as_deref(), Ok("Some(\"b\") failed: no"));
        c.kill();
        c.stopped();
        watch(&c);
        assert_eq!(said.recv().as_deref(), Ok("Some(\"c\") killed"), "one that has ended is told at once");
    });
}

#[test]
fn links_pass_failures_on_and_nothing_else() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let linked = || {
            let (a, b) = (actor::spawn(Probe::default()), actor::spawn(Probe::default()));
            let other = b.clone();
            a.send(job(move |_, ctx| ctx.link(&other))).unwrap();
            seen(&a);
            (a, b)
        };
        let (a, b) = linked();
        a.send(failing("no")).unwrap();
        assert!(matches!(b.stopped(), StopReason::Linked(id) if id == a.id()));
        let (a, b) = linked();
        b.kill();
        assert!(matches!(a.stopped(), StopReason::Linked(id) if id == b.id()));
        let (a, b) = linked();
        a.stop();
        a.stopped();
        assert_eq!(seen(&b), [], "a normal end is no reason");
        // Linking to one that has failed.
        let (gone, c) = (actor::spawn(Probe::default()), actor::spawn(Probe::default()));
        gone.send(failing("no")).unwrap();
        gone.stopped();
        c.send(job(move |_, ctx| ctx.link(&gone))).unwrap();
        assert!(matches!(c.stopped(), StopReason::Linked(_)));
    });
}

#[test]
fn bad_choices_are_errors() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        assert!(Builder::new().mailbox(0).spawn(Probe::default()).is_err());
        assert!(Builder::new().budget(0).spawn(Probe::default()).is_err());
    });
    let outside = std::panic::catch_unwind(|| actor::spawn(Probe::default()));
    let text = *outside.unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("actor::spawn") && text.contains("Handle::enter"), "{text}");
}
