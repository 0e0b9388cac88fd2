//! `Runtime::current_thread`: one thread, one order, and a fiber that is woken by name runs at once.
#![allow(clippy::disallowed_types)] // Logs of the tests.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support;
use crate::support::{is_child, rerun_self, watchdog};
use crate::tools::{Counter, Event};

/// A program that spawns, yields, joins, waits and wakes in many orders; its trace.
fn program(rt: &fibra::Runtime) -> Vec<String> {
    let log = Arc::new(Mutex::new(Vec::new()));
    let said = log.clone();
    rt.run(move || {
        let say = move |text: String| said.lock().unwrap().push(text);
        let (event, counter) = (Event::new(), Counter::new());
        let fibers: Vec<_> = (0..20)
            .map(|who| {
                let (say, event, counter) = (say.clone(), event.clone(), counter.clone());
                fibra::spawn(move || {
                    for step in 0..who % 7 {
                        say(format!("{who} at {step}"));
                        match (who + step) % 4 {
                            0 => fibra::yield_now(),
                            1 => fibra::spawn({
                                let say = say.clone();
                                move || say(format!("child of {who}"))
                            })
                            .join()
                            .unwrap(),
                            2 => {
                                counter.add(1);
                                counter.wait(2);
                            }
                            _ => drop(fibra::spawn_local({
                                let say = say.clone();
                                move || {
                                    fibra::yield_now();
                                    say(format!("stray of {who}"));
                                }
                            })),
                        }
                    }
                    if who == 13 {
                        event.set();
                    }
                    event.wait();
                    say(format!("{who} ends"));
                })
            })
            .collect();
        let task = fibra::spawn_future({
            let say = say.clone();
            async move {
                counter.reached(4).await;
                say("the task".to_owned());
            }
        });
        fibers.into_iter().rev().for_each(|fiber| fiber.join().unwrap());
        task.join().unwrap();
    });
    let log = log.lock().unwrap();
    log.clone()
}

// S0-73: the same program, twice on one runtime and once on another, does the same.
#[test]
fn the_order_is_the_same_every_time() {
    let _watchdog = watchdog(60);
    let first = program(&fibra::Runtime::current_thread().unwrap());
    assert!(first.len() > 60, "{first:?}");
    for _ in 0..20 {
        assert_eq!(program(&fibra::Runtime::current_thread().unwrap()), first);
    }
}

// S0-73: nothing runs but this thread; not even a system monitor.
#[test]
#[cfg_attr(fibra_context = "thread", ignore = "every fiber is a thread there")]
fn there_is_no_other_thread() {
    const TEST: &str = "there_is_no_other_thread";
    if is_child(TEST) {
        let _watchdog = watchdog(50);
        let before = support::threads();
        let here = std::thread::current().id();
        let rt = fibra::Runtime::current_thread().unwrap();
        assert_eq!(support::threads(), before, "{:?}", support::thread_names());
        rt.run(move || {
            let fibers: Vec<_> = (0..100)
                .map(|_| {
                    fibra::spawn(move || {
                        fibra::sleep(Duration::from_micros(100));
                        assert_eq!(std::thread::current().id(), here);
                        assert_eq!(support::threads(), before);
                    })
                })
                .collect();
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        });
        drop(rt);
        assert_eq!(support::threads(), before, "{:?}", support::thread_names());
        return;
    }
    let ended = rerun_self(TEST, &[]);
    assert!(ended.status.success(), "{ended:?}");
}

// S1-98: when the joiner goes on, the fiber that it waited for has left its stack, and that is in the pool: the next child runs on it.
// (That the joiner was claimed before, and is woken once, is what the models of the join show.)
#[test]
#[cfg_attr(fibra_context = "thread", ignore = "stacks are threads there")]
fn a_joiner_goes_on_when_the_stack_is_free() {
    let _watchdog = watchdog(60);
    /// About where this fiber's stack is.
    #[inline(never)]
    fn place() -> usize {
        let here = 0u8;
        std::hint::black_box(&raw const here).addr() >> 15
    }
    fibra::Runtime::current_thread().unwrap().run(|| {
        let kept = fibra::spawn(place);
        let stack = kept.join().unwrap();
        for round in 0..200 {
            // Its handle is dropped, or kept until the next one has run: it is the end that gives the stack back, not the handle.
            let child = fibra::spawn(move || {
                if round % 2 == 0 {
                    fibra::yield_now();
                }
                place()
            });
            child.wait();
            assert_eq!(fibra::spawn(place).join().unwrap(), stack, "{round}");
            assert_eq!(child.join().unwrap(), stack, "{round}");
        }
    });
}

// S1-95: the joiner of a fiber that ends runs before all others that are ready, and its child as soon as it waits for it.
#[test]
fn a_woken_joiner_runs_at_once() {
    let _watchdog = watchdog(60);
    let log = fibra::Runtime::current_thread().unwrap().run(|| {
        let log = Rc::new(RefCell::new(Vec::new()));
        let say = {
            let log = log.clone();
            move |text: &'static str| log.borrow_mut().push(text)
        };
        for _ in 0..3 {
            let say = say.clone();
            drop(fibra::spawn_local(move || say("ready")));
        }
        let shared = Arc::new(Mutex::new(Vec::new()));
        let child = {
            let shared = shared.clone();
            fibra::spawn(move || shared.lock().unwrap().push("child"))
        };
        say("joins");
        child.join().unwrap();
        assert_eq!(*shared.lock().unwrap(), ["child"]);
        say("joined");
        fibra::yield_now();
        say("after");
        log.take()
    });
    assert_eq!(log, ["joins", "joined", "ready", "ready", "ready", "after"]);
}

// Fibers that were started by one thread do not run on another: it is said.
#[test]
fn another_thread_is_refused_while_fibers_remain() {
    let _watchdog = watchdog(60);
    let rt = fibra::Runtime::current_thread().unwrap();
    let (started, event) = (Event::new(), Event::new());
    let (tell, waiting) = (started.clone(), event.clone());
    let fiber = rt.spawn(move || {
        tell.set();
        waiting.wait();
    });
    rt.run(|| started.wait());
    let message = std::thread::scope(|scope| {
        let run = || catch_unwind(AssertUnwindSafe(|| rt.run(|| ()))).expect_err("fibers remain");
        let payload = scope.spawn(run).join().unwrap();
        payload.downcast_ref::<&str>().map(ToString::to_string).or(payload.downcast_ref::<String>().cloned())
    });
    let message = message.expect("a text");
    assert!(message.contains("started on another thread"), "{message}");
    // Here it goes on.
    event.set();
    rt.run(|| fiber.join().unwrap());
    // With no fiber left it may run elsewhere.
    std::thread::scope(|scope| scope.spawn(|| rt.run(|| fibra::spawn(|| ()).join().unwrap())).join().unwrap());
}

// Two threads at once: the second is refused, with a text.
#[test]
fn it_runs_on_one_thread_at_a_time() {
    let _watchdog = watchdog(60);
    let rt = fibra::Runtime::current_thread().unwrap();
    rt.run(|| {
        std::thread::scope(|scope| {
            let ended = scope.spawn(|| rt.run(|| ())).join();
            let payload = ended.unwrap_err();
            let text = payload.downcast_ref::<&str>().copied().unwrap_or_default();
            assert!(text.contains("already running on another thread"), "{text}");
        });
    });
}

// S0-64: what was spawned between two runs runs in the next one; a wake from a thread reaches a sleeping run.
#[test]
fn runs_follow_one_another() {
    let _watchdog = watchdog(60);
    let rt = fibra::Runtime::current_thread().unwrap();
    for round in 0..100 {
        let between = rt.spawn(move || round);
        let event = Event::new();
        let waker = event.clone();
        let thread = std::thread::spawn(move || waker.set());
        assert_eq!(rt.run(|| (event.wait(), between.join().unwrap()).1), round);
        thread.join().unwrap();
    }
}
