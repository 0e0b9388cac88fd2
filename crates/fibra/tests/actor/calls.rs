//! Calls: every way in which an answer comes or does not, and circles.

use std::time::Duration;

use crate::probe::{Probe, gated, job, runtime};
use crate::support;
use fibra::actor::{self, Addr, Builder, CallError, Failure, Reply};
use fibra::channel::bounded;
use fibra::sync::Event;

#[test]
fn an_answer_comes_back_in_all_forms() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let probe = actor::spawn(Probe::default());
        let answer = |n: u64| move |reply: Reply<u64>| job(move |_, _| reply.send(n));
        assert_eq!(probe.call(answer(1)), Ok(1));
        assert_eq!(probe.call_timeout(answer(2), Duration::from_secs(60)), Ok(2));
        assert_eq!(fibra::block_on(probe.call_async(answer(3))), Ok(3));
        // From another fiber, later.
        let later = |reply: Reply<u64>| job(move |_, _| drop(fibra::spawn(move || reply.send(4))));
        assert_eq!(probe.call(later), Ok(4));
    });
}

#[test]
fn a_reply_that_is_dropped_answers_with_an_error() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let probe = actor::spawn(Probe::default());
        assert_eq!(probe.call(|reply: Reply<()>| job(move |_, _| drop(reply))), Err(CallError::Dropped));
        let kept = |reply: Reply<()>| job(move |_, _| drop(fibra::spawn(move || drop(reply))));
        assert_eq!(probe.call(kept), Err(CallError::Dropped));
    });
}

// "When a handler fails .. its caller gets `CallError::Crashed`": also if the reply was dropped before the handler returned.
#[test]
fn the_caller_of_a_handler_that_fails_is_told() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let fails = |reply: Reply<()>| -> crate::probe::Job {
            Box::new(move |_, _| {
                drop(reply);
                Err(Failure::msg("as asked"))
            })
        };
        assert_eq!(actor::spawn(Probe::default()).call(fails), Err(CallError::Crashed));
        let panics = |reply: Reply<()>| {
            job(move |_, _| {
                let _reply = reply;
                std::panic::resume_unwind(Box::new("as asked"));
            })
        };
        let probe = actor::spawn(Probe::default());
        assert_eq!(probe.call(panics), Err(CallError::Crashed));
        let why = probe.stopped();
        assert!(why.failure().is_some_and(|failure| failure.is_panic() && failure.message() == "as asked"), "{why}");
    });
}

#[test]
fn a_call_of_one_that_ends_is_told() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let probe = actor::spawn(Probe::default());
        let (gate, runs, _never) = gated();
        probe.send(gate).unwrap();
        runs.wait();
        let caller = {
            let probe = probe.clone();
            fibra::spawn_local(move || probe.call(|reply: Reply<()>| job(move |_, _| reply.send(()))))
        };
        fibra::yield_now();
        assert_eq!(probe.len(), 1);
        probe.kill();
        assert_eq!(caller.join().unwrap(), Err(CallError::Stopped));
        assert_eq!(probe.call(|reply: Reply<()>| job(move |_, _| reply.send(()))), Err(CallError::Stopped));
    });
}

#[test]
fn an_answer_that_comes_too_late_is_not_received() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let probe = actor::spawn(Probe::default());
        let (tx, rx) = bounded(1);
        let (goes_on, waits) = (std::sync::Arc::new(Event::new()), std::sync::Arc::new(Event::new()));
        let slow = {
            let (goes_on, waits) = (goes_on.clone(), waits.clone());
            move |reply: Reply<u64>| {
                job(move |_, _| {
                    waits.set();
                    goes_on.wait();
                    tx.send((reply.is_abandoned(), reply.try_send(5))).unwrap();
                })
            }
        };
        assert_eq!(probe.call_timeout(slow, Duration::from_millis(1)), Err(CallError::TimedOut));
        waits.wait();
        goes_on.set();
        assert_eq!(rx.recv(), Ok((true, Err(5))));
    });
}

/// A handler of `from` that calls `to` with `then`, and answers what comes of it.
fn relay(
    to: Addr<Probe>,
    then: impl FnOnce(Reply<Result<u64, CallError>>) -> crate::probe::Job + Send + 'static,
) -> impl FnOnce(Reply<Result<u64, CallError>>) -> crate::probe::Job {
    move |reply| job(move |_, _| reply.send(to.call(then).and_then(|answer| answer)))
}

fn end(reply: Reply<Result<u64, CallError>>) -> crate::probe::Job {
    job(move |_, _| reply.send(Ok(7)))
}

// A calls B calls A: told at once, and the circle is spelled.
#[test]
fn circles_of_calls_fail_at_once() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let named = |name: &str| Builder::new().name(name).spawn(Probe::default()).unwrap();
        let (a, b, c) = (named("a"), named("b"), named("c"));
        let circle = |names: &[&str]| Ok(Err(CallError::Cycle(names.iter().map(ToString::to_string).collect())));
        assert_eq!(a.call(relay(b.clone(), relay(c.clone(), end))), Ok(Ok(7)), "a line is no circle");
        assert_eq!(a.call(relay(a.clone(), end)), circle(&["a", "a"]));
        assert_eq!(a.call(relay(b.clone(), relay(a.clone(), end))), circle(&["b", "a", "b"]));
        assert_eq!(a.call(relay(b.clone(), relay(c.clone(), relay(a.clone(), end)))), circle(&["c", "a", "b", "c"]));
        // All are there still.
        assert_eq!(a.call(relay(b.clone(), relay(c, end))), Ok(Ok(7)));
    });
}

// One that has answered does not hold its caller: calling back afterwards is no circle.
#[test]
fn an_answered_call_is_no_part_of_a_circle() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (a, b) = (actor::spawn(Probe::default()), actor::spawn(Probe::default()));
        let (tx, rx) = bounded(1);
        let back = a.clone();
        let answers_first = move |reply: Reply<u64>| {
            job(move |_, _| {
                reply.send(1);
                tx.send(back.call(|reply: Reply<u64>| job(move |_, _| reply.send(2)))).unwrap();
            })
        };
        let called =
            a.call(move |reply: Reply<Result<u64, CallError>>| job(move |_, _| reply.send(b.call(answers_first))));
        assert_eq!(called, Ok(Ok(1)));
        assert_eq!(rx.recv(), Ok(Ok(2)));
    });
}

// Many actors that call each other at random: every call ends, in an answer or in a circle that leads from the caller to the caller.
#[test]
fn stress_calls_at_random_end() {
    let _watchdog = support::watchdog(120);
    runtime(4).run(|| {
        let probes: Vec<Addr<Probe>> =
            (0..6).map(|n| Builder::new().name(format!("{n}")).spawn(Probe::default()).unwrap()).collect();
        let callers: Vec<_> = (0..6_usize)
            .map(|seed| {
                let probes = probes.clone();
                fibra::spawn(move || {
                    for round in 0..200_usize {
                        let at = |n: usize| probes[(seed * 7 + round * 5 + n * n + n * seed) % probes.len()].clone();
                        let answer = at(0).call(relay(at(1), relay(at(2), relay(at(3), end)))).unwrap();
                        match answer {
                            Ok(7) => {}
                            Err(CallError::Cycle(names)) => assert!(names.len() > 1 && names.first() == names.last()),
                            other => panic!("{other:?}"),
                        }
                    }
                })
            })
            .collect();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
    });
}
