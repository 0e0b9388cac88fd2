//! `run_until_quiescent`: it returns when no actor has work and none can get any, and reports those that are stuck.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::probe::{Job, Probe, job, runtime};
use crate::support;
use fibra::actor::{self, Addr, Builder, Lock, Reply, StopReason, Supervisor, run_until_quiescent};
use fibra::channel::bounded;

/// Sends a message to itself that counts down, by way of another actor.
fn countdown(me: Addr<Probe>, other: Addr<Probe>, left: u64, done: Arc<AtomicU64>) -> Job {
    job(move |_, _| {
        done.fetch_add(1, SeqCst);
        if left > 0 {
            let next = countdown(other.clone(), me, left - 1, done);
            other.send(next).unwrap();
        }
    })
}

// S2-15: global quiescence is detected: all messages, and those that they cause, are handled, and then it returns.
#[test]
fn it_returns_when_all_is_handled() {
    let _watchdog = support::watchdog(60);
    for rt in [runtime(1), runtime(4)] {
        rt.run(|| {
            let done = Arc::new(AtomicU64::new(0));
            let given = run_until_quiescent(|| {
                let (a, b) = (actor::spawn(Probe::default()), actor::spawn(Probe::default()));
                a.send(countdown(a.clone(), b, 1000, done.clone())).unwrap();
                7
            });
            assert_eq!(given.unwrap(), 7);
            assert_eq!(done.load(SeqCst), 1001);
        });
    }
}

// S2-60: without a runtime it makes one; all threads stop when it returns. Fibers, timers and attached receivers are waited for.
#[test]
fn it_waits_for_all_who_can_send() {
    let _watchdog = support::watchdog(60);
    let done = Arc::new(AtomicU64::new(0));
    let add = |n: u64, done: &Arc<AtomicU64>| {
        let done = done.clone();
        job(move |_, _| _ = done.fetch_add(n, SeqCst))
    };
    run_until_quiescent(|| {
        let probe = actor::spawn(Probe::default());
        let (fiber, from_fiber) = (probe.clone(), add(1, &done));
        fibra::spawn(move || {
            fibra::sleep(Duration::from_millis(5));
            fiber.send(from_fiber).unwrap();
        });
        let (later, item) = (add(10, &done), add(100, &done));
        let (tx, rx) = bounded(1);
        fibra::spawn(move || tx.send(item).unwrap());
        probe
            .send(job(move |_, ctx| {
                ctx.attach(rx, |item| item);
                ctx.send_after(Duration::from_millis(10), later);
                fibra::sleep(Duration::from_millis(1)); // a wait that time ends
            }))
            .unwrap();
        probe
    })
    .unwrap();
    assert_eq!(done.load(SeqCst), 111);
}

// S2-15, S2-60: each kind of work that can still send is waited for by itself, when it is the only one that is left.
#[test]
fn it_waits_for_each_who_can_send() {
    let _watchdog = support::watchdog(60);
    let pause = Duration::from_millis(20);
    let add = |done: &Arc<AtomicU64>| {
        let done = done.clone();
        job(move |_, _| _ = done.fetch_add(1, SeqCst))
    };
    type Begin = Box<dyn FnOnce(actor::Addr<Probe>, Job)>;
    let ways: [(&str, Begin); 4] = [
        (
            "a fiber",
            Box::new(move |probe, last| {
                fibra::spawn(move || {
                    fibra::sleep(pause);
                    probe.send(last).unwrap();
                });
            }),
        ),
        (
            "a handler that time wakes",
            Box::new(move |probe, last| {
                let sleeps = move |probe: &mut Probe, ctx: &mut actor::Context<Probe>| {
                    fibra::sleep(pause);
                    last(probe, ctx)
                };
                probe.send(Box::new(sleeps)).unwrap();
            }),
        ),
        (
            "a timer",
            Box::new(move |probe, last| {
                probe.send(job(move |_, ctx| _ = ctx.send_after(pause, last))).unwrap();
            }),
        ),
        (
            "an attached receiver",
            Box::new(move |probe, last| {
                let (tx, rx) = bounded(1);
                // A thread, which is in no domain: only the receiver is waited for.
                std::thread::spawn(move || {
                    std::thread::sleep(pause);
                    tx.send(last).unwrap();
                });
                probe.send(job(move |_, ctx| _ = ctx.attach(rx, |item| item))).unwrap();
            }),
        ),
    ];
    for (way, begin) in ways {
        let done = Arc::new(AtomicU64::new(0));
        let last = add(&done);
        let probe = run_until_quiescent(|| {
            let probe = actor::spawn(Probe::default());
            begin(probe.clone(), last);
            probe
        });
        assert!(probe.is_ok(), "{way}: {:?}", probe.err());
        assert_eq!(done.load(SeqCst), 1, "{way} was not waited for");
    }
}

// S2-60: actors that wait for each other are reported, with what each waits for, and then ended.
#[test]
fn a_deadlock_of_locks_is_reported() {
    let _watchdog = support::watchdog(60);
    runtime(2).run(|| {
        let (a, b) = (Arc::new(Lock::new(())), Arc::new(Lock::new(())));
        let named = |name: &str| Builder::new().name(name).spawn(Probe::default()).unwrap();
        let mut addresses = Vec::new();
        let cross = |mine: Arc<Lock<()>>, other: Arc<Lock<()>>| {
            job(move |_, _| {
                let _mine = mine.lock();
                while !other.is_locked() {
                    fibra::yield_now();
                }
                let _other = other.lock();
            })
        };
        let stuck = run_until_quiescent(|| {
            addresses = vec![named("left"), named("right")];
            addresses[0].send(cross(a.clone(), b.clone())).unwrap();
            addresses[1].send(cross(b.clone(), a.clone())).unwrap();
        })
        .unwrap_err();
        let mut names: Vec<_> = stuck.actors().iter().map(|actor| actor.name.clone()).collect();
        names.sort();
        assert_eq!(names, ["left", "right"]);
        let text = stuck.to_string();
        let lock = format!("lock {:#x}, held by {}", a.id(), addresses[0].id());
        assert!(
            text.contains("waiting for a lock of actors") && text.contains(&lock) && text.contains("quiet.rs"),
            "{text}"
        );
        assert!(addresses.iter().all(|addr| matches!(addr.stopped(), StopReason::Killed)));
        assert!(!a.is_locked() && !b.is_locked());
    });
}

// Full mailboxes in a circle, and the function itself.
#[test]
fn other_deadlocks_are_reported_too() {
    let _watchdog = support::watchdog(60);
    runtime(2).run(|| {
        let stuck = run_until_quiescent(|| {
            let (gate, _never) = bounded::<()>(1);
            let probe = Builder::new().name("silent").spawn(Probe::default()).unwrap();
            let (_tx, rx) = bounded::<()>(1);
            let _keep = gate;
            probe.call(|_reply: Reply<()>| {
                job(move |_, _| {
                    let _reply = _reply;
                    let _ = rx.recv();
                })
            })
        })
        .unwrap_err();
        let names: Vec<_> = stuck.actors().iter().map(|actor| actor.name.as_str()).collect();
        assert_eq!(names, ["silent", "the function itself"], "{stuck}");
        assert!(stuck.to_string().contains("receiving from a channel"), "{stuck}");
    });
}

// Woken, but not back yet: never reported. Many handlers pass a token around, of which one at a time has it.
#[test]
fn stress_no_false_alarm() {
    let _watchdog = support::watchdog(120);
    runtime(4).run(|| {
        for _ in 0..100 {
            let total = Arc::new(AtomicU64::new(0));
            run_until_quiescent(|| {
                let lock = Arc::new(Lock::new(()));
                for _ in 0..8 {
                    let (lock, total) = (lock.clone(), total.clone());
                    let probe = actor::spawn(Probe::default());
                    let step = job(move |_, _| {
                        for _ in 0..10 {
                            let _held = lock.lock();
                            fibra::yield_now();
                            total.fetch_add(1, SeqCst);
                        }
                    });
                    probe.send(step).unwrap();
                }
            })
            .unwrap();
            assert_eq!(total.load(SeqCst), 80);
        }
    });
}

// A supervisor's pauses count as timers.
#[test]
fn restarts_are_waited_for() {
    let _watchdog = support::watchdog(60);
    runtime(2).run(|| {
        let lives = Arc::new(AtomicU64::new(0));
        let count = lives.clone();
        run_until_quiescent(|| {
            let sup = Supervisor::one_for_one().backoff(Duration::from_millis(2), Duration::from_millis(4));
            let probe = sup.child("probe", move || {
                count.fetch_add(1, SeqCst);
                Ok::<_, actor::Failure>(Probe::default())
            });
            probe.send(crate::probe::failing("once")).unwrap();
            sup.spawn()
        })
        .unwrap();
        assert_eq!(lives.load(SeqCst), 2);
    });
}
