//! EMPTY, RUNNABLE, RUNNING, WAITING: what each means for stacks, queues and messages, seen from outside.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};

use crate::probe::{Probe, gated, job, note, runtime};
use crate::sending::seen;
use crate::support;
use fibra::actor::{self, ActorState, Addr, Builder, Reply};
use fibra::{Handle, Runtime, WorkerState};

fn until(probe: &Addr<Probe>, state: ActorState) {
    while probe.state() != state {
        fibra::yield_now();
    }
}

fn metrics() -> fibra::Metrics {
    Handle::current().metrics()
}

// S2-06, S2-21, S2-49, S2-50, C-31: EMPTY owns no stack and is in no queue: of ten thousand, no fiber is left, started or not.
#[test]
fn an_empty_actor_owns_nothing() {
    let _watchdog = support::watchdog(60);
    let rt = runtime(2);
    let probes: Vec<_> = rt.run(|| (0..10_000).map(|_| actor::spawn(Probe::default())).collect());
    // (The run has ended: it has waited for every turn.)
    let now = rt.metrics();
    assert_eq!((now.parked, now.live), (0, 0), "{now:?}");
    assert!(probes.iter().all(|probe| probe.state() == ActorState::Empty));
    rt.run(|| probes.iter().for_each(|probe| probe.send(note(1)).unwrap()));
    let now = rt.metrics();
    assert_eq!((now.parked, now.live), (0, 0), "{now:?}");
    assert!(probes.iter().all(|probe| probe.state() == ActorState::Empty && probe.is_empty()));
}

// S2-04, S2-07, S2-22, S2-25, S2-43..S2-45: RUNNABLE has work and is enqueued once; its turn takes the message and runs.
#[test]
fn a_runnable_actor_is_enqueued_once() {
    let _watchdog = support::watchdog(60);
    runtime(1).run(|| {
        let probe = actor::spawn(Probe::default());
        until(&probe, ActorState::Empty);
        let before = metrics().spawned;
        probe.send(note(1)).unwrap();
        assert_eq!((probe.state(), probe.len(), metrics().spawned - before), (ActorState::Runnable, 1, 1));
        // S2-27: a further message is appended, and nothing else happens.
        probe.send(note(2)).unwrap();
        assert_eq!((probe.state(), probe.len(), metrics().spawned - before), (ActorState::Runnable, 2, 1));
        assert_eq!(seen(&probe), [1, 2]);
    });
}

// S2-08, S2-23, S2-27: RUNNING: messages that come meanwhile are appended, and launch nothing.
#[test]
fn a_running_actor_is_in_no_queue() {
    let _watchdog = support::watchdog(60);
    runtime(1).run(|| {
        let probe = actor::spawn(Probe::default());
        let answer = probe.call(|reply: Reply<(ActorState, u64)>| {
            job(move |_, ctx| {
                let (me, before) = (ctx.address(), metrics().spawned);
                me.send(note(1)).unwrap();
                me.send(note(2)).unwrap();
                reply.send((me.state(), metrics().spawned - before));
            })
        });
        assert_eq!(answer, Ok((ActorState::Running, 0)));
        assert_eq!(seen(&probe), [1, 2]);
    });
}

// S2-09, S2-10, S2-17..S2-20, S2-27, S2-46, S2-47, S2-55, C-30: WAITING: the handler is suspended and keeps its message; later ones wait
// and launch nothing; it goes on where it was, once, and then they are handled.
#[test]
fn a_waiting_actor_keeps_its_message() {
    let _watchdog = support::watchdog(60);
    runtime(1).run(|| {
        let probe = actor::spawn(Probe::default());
        let runs = Arc::new(AtomicU64::new(0));
        let (gate, begun, goes_on) = gated();
        let counted = runs.clone();
        probe
            .send(Box::new(move |probe, ctx| {
                counted.fetch_add(1, SeqCst);
                gate(probe, ctx)?;
                probe.seen.push(100);
                Ok(())
            }))
            .unwrap();
        begun.wait();
        until(&probe, ActorState::Waiting);
        let before = metrics().spawned;
        probe.send(note(1)).unwrap();
        probe.send(note(2)).unwrap();
        (0..10).for_each(|_| fibra::yield_now());
        assert_eq!((probe.state(), probe.len(), metrics().spawned - before), (ActorState::Waiting, 2, 0));
        goes_on.set();
        assert_eq!(probe.state(), ActorState::Runnable, "woken: it will go on");
        assert_eq!(seen(&probe), [100, 1, 2]);
        assert_eq!(runs.load(SeqCst), 1, "the message was handled once");
    });
}

// S2-11: ids are given once.
#[test]
fn ids_are_never_given_twice() {
    let _watchdog = support::watchdog(60);
    runtime(2).run(|| {
        let mut ids = HashSet::new();
        for _ in 0..1000 {
            let probe = actor::spawn(Probe::default());
            assert!(ids.insert(probe.id()));
            probe.stop();
            probe.stopped();
        }
    });
}

// S2-56: never on two threads at once; S2-32: what races with going EMPTY is not lost; S2-02: any worker takes it.
#[test]
fn stress_one_handler_at_a_time() {
    let _watchdog = support::watchdog(120);
    runtime(4).run(|| {
        let (busy, total) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let probe = Builder::new().budget(2).mailbox(8).spawn(Probe::default()).unwrap();
        let senders: Vec<_> = (0..8)
            .map(|_| {
                let (probe, busy, total) = (probe.clone(), busy.clone(), total.clone());
                fibra::spawn(move || {
                    for n in 0..500 {
                        let (busy, total) = (busy.clone(), total.clone());
                        let step = job(move |_, _| {
                            assert!(!busy.swap(true, SeqCst), "two at once");
                            if n % 7 == 0 {
                                fibra::yield_now();
                            }
                            total.fetch_add(1, SeqCst);
                            busy.store(false, SeqCst);
                        });
                        probe.send(step).unwrap();
                        if n % 3 == 0 {
                            fibra::yield_now();
                        }
                    }
                })
            })
            .collect();
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        seen(&probe);
        assert_eq!(total.load(SeqCst), 4000);
        assert!(probe.is_alive(), "{:?}", probe.stopped_timeout(std::time::Duration::ZERO));
    });
}

// S2-01: 32 workers run actors, all at once if need be. S2-16, S2-59, G-12: each that becomes runnable wakes a thread.
#[test]
fn thirty_two_workers_run_thirty_two_actors_at_once() {
    let _watchdog = support::watchdog(120);
    let rt = runtime(32);
    let probes: Vec<_> = rt.run(|| (0..32).map(|_| actor::spawn(Probe::default())).collect());
    support::eventually(|| is_asleep(&rt), || format!("{:?}", rt.metrics()));
    // Each blocks its whole worker until all have come: that takes 32 workers, and 32 wakes.
    let meeting = Arc::new(Barrier::new(32));
    for probe in &probes {
        let meeting = meeting.clone();
        probe.send(job(move |probe, _| probe.seen.push(u64::from(meeting.wait().is_leader())))).unwrap();
    }
    let leaders: u64 = probes.iter().map(|probe| seen(probe)[0]).sum();
    assert_eq!(leaders, 1);
}

fn is_asleep(rt: &Runtime) -> bool {
    rt.metrics().workers.iter().all(|worker| worker.state == WorkerState::Sleep)
}

// S2-14: while no actor is runnable, all workers sleep, and nothing is launched; S2-58: a message then wakes one.
#[test]
fn idle_actors_let_workers_sleep() {
    let _watchdog = support::watchdog(60);
    let rt = runtime(2);
    let probes: Vec<_> = rt.run(|| (0..1000).map(|_| actor::spawn(Probe::default())).collect());
    support::eventually(|| is_asleep(&rt), || format!("{:?}", rt.metrics()));
    let before = rt.metrics().spawned;
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(is_asleep(&rt) && rt.metrics().spawned == before);
    probes[500].send(note(1)).unwrap();
    assert_eq!(seen(&probes[500]), [1]);
}

// Law 1: between messages an actor moves to a worker that has nothing to do.
#[test]
fn actors_move_between_workers() {
    let _watchdog = support::watchdog(60);
    let rt = runtime(2);
    let threads = |probe: &Addr<Probe>| -> u64 {
        probe
            .call(|reply: Reply<u64>| {
                job(move |_, _| {
                    let name = format!("{:?}", std::thread::current().id());
                    reply.send(name.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into())));
                })
            })
            .unwrap()
    };
    let probe = rt.run(|| actor::spawn(Probe::default()));
    support::eventually(
        || {
            let found: HashSet<u64> = (0..200).map(|_| threads(&probe)).collect();
            // From outside, each message goes to the queue of all: sooner or later the other worker is the first.
            found.len() == 2
        },
        || "it stayed where it was".to_owned(),
    );
}
