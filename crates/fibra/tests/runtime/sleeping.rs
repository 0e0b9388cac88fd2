//! Sleeping: never early, in order, cancelled at once, and of no cost to those who do not wake.
#![allow(clippy::disallowed_types)] // Logs of the tests; std's clock as the witness.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::support::{eventually, watchdog, workers};
use crate::tools::{Rng, many, stacks};

const FOR_EVER: Duration = Duration::from_secs(36_000);

// S0-88, S0-89, S0-87, S1-101: ten thousand random sleeps, none early by std's clock; how late they were is printed.
#[test]
fn sleeps_are_never_early() {
    let _watchdog = watchdog(120);
    let mut rng = Rng::new();
    let rt = workers(2);
    let mut late: Vec<Duration> = rt.run(move || {
        let fibers: Vec<_> = (0..many(10_000))
            .map(|index| {
                let duration = Duration::from_nanos(rng.below(50_000_000) as u64);
                fibra::spawn(move || {
                    let begin = Instant::now();
                    if index % 2 == 0 {
                        fibra::sleep(duration);
                    } else {
                        fibra::sleep_until(begin + duration);
                    }
                    let slept = begin.elapsed();
                    assert!(slept >= duration, "slept {slept:?} instead of {duration:?}");
                    slept - duration
                })
            })
            .collect();
        fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect()
    });
    late.sort();
    let at = |part: usize| late[(late.len() - 1) * part / 100];
    println!("late by {:?} (half), {:?} (99 of 100), {:?} (at most)", at(50), at(99), at(100));
}

// S1-106: how late a sleeper wakes is bounded by what the machine lets it: on a calm machine a hundred sleepers are all less than 5 ms
// late. A machine that is busy otherwise may have them later, so there are many tries; a runtime that looked at timers every now and then
// would fail in each of them.
#[test]
#[cfg_attr(any(fibra_asan, fibra_tsan), ignore = "everything is late there")]
fn sleeps_are_hardly_late() {
    let _watchdog = watchdog(120);
    let rt = workers(2);
    let mut worst = Vec::new();
    for _ in 0..200 {
        let late = rt.run(|| {
            let fibers: Vec<_> = (0..100)
                .map(|index| {
                    fibra::spawn(move || {
                        let (begin, duration) = (Instant::now(), Duration::from_micros(100 * index));
                        fibra::sleep(duration);
                        begin.elapsed() - duration
                    })
                })
                .collect();
            fibers.into_iter().map(|fiber| fiber.join().unwrap()).max().unwrap()
        });
        if late < Duration::from_millis(5) {
            return println!("all of a hundred less than {late:?} late, after {} tries", worst.len());
        }
        worst.push(late);
    }
    panic!("in 200 tries never all of a hundred less than 5 ms late: {worst:?}");
}

// S0-87, S0-90: on one worker, the fiber whose deadline is earlier wakes earlier.
#[test]
fn sleepers_of_a_worker_wake_in_the_order_of_their_deadlines() {
    #[derive(PartialEq, Debug, Clone, Copy)]
    enum Did {
        Sleeps,
        Wakes(usize),
    }
    let _watchdog = watchdog(120);
    let count = many(1_000);
    let mut lead = Duration::from_millis(20);
    loop {
        let log = workers(1).run(|| {
            let log = Rc::new(RefCell::new(Vec::new()));
            let base = fibra::time::Instant::now() + lead;
            let fibers: Vec<_> = (0..count)
                .map(|index| {
                    let log = log.clone();
                    fibra::spawn_local(move || {
                        // In an order of their own: 389 has no factor in common with the count.
                        let rank = index * 389 % count;
                        log.borrow_mut().push(Did::Sleeps);
                        fibra::sleep_until(base + Duration::from_micros(rank as u64));
                        log.borrow_mut().push(Did::Wakes(rank));
                    })
                })
                .collect();
            // Runs when all of them sleep.
            let asleep_in_time = fibra::spawn_local(move || fibra::time::Instant::now() < base).join().unwrap();
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
            asleep_in_time.then(|| log.take())
        });
        let Some(log) = log else {
            // The machine was so slow that the first had to wake before all slept: that says nothing. Again, with more time.
            lead *= 2;
            continue;
        };
        assert!(log[..count].iter().all(|did| *did == Did::Sleeps));
        let order: Vec<_> = log[count..].to_vec();
        let expected: Vec<_> = (0..count).map(Did::Wakes).collect();
        assert_eq!(order, expected);
        return;
    }
}

// S0-90, S1-103..S1-105: a fiber computes until all deadlines have passed; at its next switches all of them fire.
#[test]
fn all_that_is_due_fires_at_the_next_look() {
    let _watchdog = watchdog(120);
    workers(1).run(|| {
        for _ in 0..20 {
            let woken = Arc::new(AtomicUsize::new(0));
            let deadline = fibra::time::Instant::now() + Duration::from_millis(2);
            for _ in 0..100 {
                let woken = woken.clone();
                drop(fibra::spawn_local(move || {
                    fibra::sleep_until(deadline);
                    woken.fetch_add(1, SeqCst);
                }));
            }
            fibra::yield_now();
            // Past the deadline, and past the bounded time after which a busy worker looks at its timers.
            while deadline.elapsed() < Duration::from_millis(1) {
                std::hint::spin_loop();
            }
            // The look comes with the first switch; they are behind us in the queue, so we come back once before them.
            (0..3).for_each(|_| fibra::yield_now());
            assert_eq!(woken.load(SeqCst), 100);
        }
    });
}

// S0-70, S0-91, S1-105: nothing runs, all workers sleep, and the timers fire; each worker has its own (S0-62, S0-87).
#[test]
fn timers_fire_while_every_worker_is_idle() {
    let _watchdog = watchdog(120);
    let rt = workers(3);
    for round in 0..20 {
        let sleeper = || fibra::sleep(Duration::from_millis(1));
        let builder = fibra::Builder::new().spread();
        let sleepers: Vec<_> = (0..3).map(|_| rt.handle().spawn_with(builder.clone(), sleeper).unwrap()).collect();
        sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
        assert!(rt.metrics().wakes_timer <= 3 * (round + 1), "no other fiber has a timer: {:?}", rt.metrics());
    }
    let slept = |rt: &fibra::Runtime| rt.metrics().workers.iter().all(|worker| worker.sleeps > 0);
    eventually(|| slept(&rt), || format!("{:?}", rt.metrics()));
    assert!(rt.metrics().wakes_timer > 0);
}

// S0-96: cancellation takes sleepers out at once, ten thousand of them.
#[test]
fn sleepers_are_cancelled_at_once() {
    let _watchdog = watchdog(120);
    let count = many(10_000);
    let rt = workers(2);
    let sleepers: Vec<_> = (0..count).map(|_| rt.spawn(|| fibra::sleep(FOR_EVER))).collect();
    eventually(|| rt.metrics().parked == count as u64, || format!("{:?}", rt.metrics()));
    sleepers.iter().for_each(|sleeper| sleeper.cancel());
    for sleeper in sleepers {
        assert!(sleeper.join().unwrap_err().is_cancelled());
    }
    assert_eq!(rt.metrics().parked, 0);
    assert_eq!(rt.metrics().wakes_timer, 0);
}

// S0-96, S0-85: a cancel that meets a fiber on its way into sleep is not lost.
#[test]
fn a_cancel_that_races_with_falling_asleep_is_not_lost() {
    let _watchdog = watchdog(120);
    let rt = workers(2);
    let mut rng = Rng::new();
    for _ in 0..many(10_000) {
        let begun = Arc::new(AtomicBool::new(false));
        let flag = begun.clone();
        let sleeper = rt.spawn(move || {
            flag.store(true, SeqCst);
            fibra::sleep(FOR_EVER);
        });
        while !begun.load(SeqCst) {
            std::thread::yield_now();
        }
        (0..rng.below(200)).for_each(|_| std::hint::spin_loop());
        sleeper.cancel();
        assert!(sleeper.join().unwrap_err().is_cancelled());
    }
}

// S1-102, S0-25: a hundred thousand far sleepers are passed over: only those whose time has come cost a switch.
#[test]
fn those_who_sleep_on_cost_nothing_when_others_wake() {
    let _watchdog = watchdog(120);
    let (far, near) = (stacks(100_000), 1_000);
    let rt = fibra::Runtime::builder().workers(1).stack_size(32 << 10).build().unwrap();
    let sleepers: Vec<_> = (0..far).map(|_| rt.spawn(|| fibra::sleep(FOR_EVER))).collect();
    eventually(|| rt.metrics().parked == far as u64, || format!("{:?}", rt.metrics()));
    let before = rt.metrics();
    rt.run(|| (0..near).for_each(|_| fibra::sleep(Duration::from_micros(10))));
    let after = rt.metrics();
    // A sleep that is over before it begins, on a machine that is busy otherwise, needs no timer.
    assert!((1..=near).contains(&(after.wakes_timer - before.wakes_timer)), "{before:?}\n{after:?}");
    // Each sleep is one switch; the root's first one and its end are a few more.
    assert!(after.switches - before.switches <= near + 10, "{before:?}\n{after:?}");
    assert_eq!(after.parked, far as u64);
    sleepers.iter().for_each(|sleeper| sleeper.cancel());
    sleepers.into_iter().for_each(|sleeper| assert!(sleeper.join().unwrap_err().is_cancelled()));
}

// S0-88: a deadline in the past, and no time at all, are a yield.
#[test]
fn no_time_is_a_yield() {
    let _watchdog = watchdog(60);
    workers(1).run(|| {
        let ran = Rc::new(RefCell::new(0));
        for _ in 0..2 {
            let ran = ran.clone();
            drop(fibra::spawn_local(move || *ran.borrow_mut() += 1));
        }
        fibra::sleep(Duration::ZERO);
        assert_eq!(*ran.borrow(), 2);
        drop({
            let ran = ran.clone();
            fibra::spawn_local(move || *ran.borrow_mut() += 1)
        });
        fibra::sleep_until(fibra::time::Instant::now());
        assert_eq!(*ran.borrow(), 3);
    });
}

// S0-88: on a plain thread the thread sleeps.
#[test]
fn a_thread_sleeps_too() {
    let begin = Instant::now();
    fibra::sleep(Duration::from_millis(3));
    fibra::sleep_until(begin + Duration::from_millis(5));
    assert!(begin.elapsed() >= Duration::from_millis(5));
}
