//! Yielding on one worker: taking turns, staying runnable, and who is current.
#![allow(clippy::disallowed_types)] // Logs of the tests.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use crate::support::watchdog;

fn one_worker() -> fibra::Runtime {
    fibra::Runtime::builder().workers(1).build().unwrap()
}

// S0-19, S0-24, S0-29: three that yield run in turn, and none twice before the others.
#[test]
fn yielding_fibers_take_turns() {
    let _watchdog = watchdog(60);
    let log = one_worker().run(|| {
        let log = Rc::new(RefCell::new(Vec::new()));
        let fibers: Vec<_> = (0..3)
            .map(|who| {
                let log = log.clone();
                fibra::spawn_local(move || {
                    for _ in 0..100 {
                        log.borrow_mut().push(who);
                        fibra::yield_now();
                    }
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        log.take()
    });
    assert_eq!(log.len(), 300);
    for (index, turn) in log.chunks(3).enumerate() {
        assert_eq!(turn, [0, 1, 2], "turn {index}");
    }
}

// S0-29, S1-37: unstarted fibers get their turn too, beside one that yields.
#[test]
fn a_yield_lets_a_new_fiber_run() {
    let _watchdog = watchdog(60);
    one_worker().run(|| {
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..100 {
            let ran = ran.clone();
            drop(fibra::spawn(move || ran.fetch_add(1, SeqCst)));
        }
        // Started and unstarted ones take turns, so twice as many yields as there are new fibers are more than enough.
        for _ in 0..200 {
            fibra::yield_now();
        }
        assert_eq!(ran.load(SeqCst), 100);
    });
}

// S0-24: alone, a yielding fiber simply goes on.
#[test]
fn a_lone_fiber_that_yields_goes_on() {
    let _watchdog = watchdog(60);
    let rt = one_worker();
    rt.run(|| (0..100_000).for_each(|_| fibra::yield_now()));
    assert!(rt.metrics().switches >= 100_000);
}

// S0-30: after a fiber has ended, been passed over or yielded, each sees itself as the current one.
#[test]
fn every_fiber_is_itself_after_every_switch() {
    let _watchdog = watchdog(60);
    one_worker().run(|| {
        let me = fibra::current().unwrap().id();
        let ids = Arc::new(Mutex::new(Vec::new()));
        for round in 0..100 {
            let ids = ids.clone();
            let child = fibra::spawn(move || {
                let id = fibra::current().unwrap().id();
                for _ in 0..round % 3 {
                    fibra::yield_now();
                    assert_eq!(fibra::current().unwrap().id(), id);
                }
                ids.lock().unwrap().push(id);
                id
            });
            let id = child.id();
            assert_eq!(child.join().unwrap(), id);
            assert_eq!(fibra::current().unwrap().id(), me);
        }
        let mut ids = ids.lock().unwrap().clone();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 100, "no id is used twice");
    });
    assert!(fibra::current().is_none(), "a plain thread runs no fiber");
}

// S0-27, S0-30: the stack of a fiber that ended goes to the next one.
#[test]
#[cfg_attr(fibra_context = "thread", ignore = "an OS thread brings its own stack")]
fn a_finished_fibers_stack_serves_the_next() {
    let _watchdog = watchdog(60);
    let rt = one_worker();
    let stacks = rt.run(|| {
        let mut stacks = Vec::new();
        for _ in 0..1_000 {
            let here = fibra::spawn(|| {
                let local = 0u8;
                std::ptr::from_ref(std::hint::black_box(&local)).addr()
            });
            // Stacks lie more than 256 KiB apart: the same number is the same stack.
            stacks.push(here.join().unwrap() >> 18);
        }
        stacks.sort_unstable();
        stacks.dedup();
        stacks.len()
    });
    assert!(stacks <= 2, "1,000 fibers, one after the other, used {stacks} stacks");
}
