//! A fiber that has returned leaves its stack to the next unstarted one, and nothing is left out on the way: joiners are woken, others have
//! their turn, and what comes from outside is heard.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};

use crate::support;
use fibra::Runtime;

/// Where the stack of the caller lies, to the page.
#[inline(never)]
fn stack_page() -> usize {
    let here = 0u8;
    (&raw const here).addr() >> 12
}

// S1-17, S1-14: a batch of short fibers runs on one stack, one after the other.
#[test]
fn a_batch_of_short_fibers_needs_few_stacks() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let mut pages = runtime.run(|| {
        let fibers: Vec<_> = (0..1_000).map(|_| fibra::spawn(stack_page)).collect();
        fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect::<Vec<_>>()
    });
    pages.sort_unstable();
    pages.dedup();
    assert!(pages.len() <= 2, "1,000 fibers, one after the other, ran on {} stacks", pages.len());
    let metrics = runtime.metrics();
    assert!(metrics.switches >= 1_000, "each was a turn of its worker: {}", metrics.switches);
}

// S1-17: a joiner that comes at the very moment in which the fiber ends, while its stack goes to another, is woken.
#[test]
fn a_joiner_from_outside_meets_the_end_of_a_fiber_that_has_a_successor() {
    const ROUNDS: usize = 2_000;
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let about_to_return = Arc::new(AtomicUsize::new(0));
    let rounds_joined = Arc::new(AtomicUsize::new(0));
    let (handles, joined) = mpsc::channel::<(usize, fibra::JoinHandle<usize>)>();
    let joiner = std::thread::spawn({
        let (about_to_return, rounds_joined) = (about_to_return.clone(), rounds_joined.clone());
        move || {
            let mut sum = 0;
            for (round, handle) in joined {
                let mut spins = 0;
                while about_to_return.load(SeqCst) < round {
                    spins += 1;
                    if spins % 10_000 == 0 {
                        // The worker may need this very processor.
                        std::thread::yield_now();
                    }
                }
                sum += handle.join().unwrap();
                rounds_joined.store(round, SeqCst);
            }
            sum
        }
    });
    runtime.run(move || {
        for round in 1..=ROUNDS {
            let successor = fibra::spawn(move || round);
            let returning = fibra::spawn({
                let about_to_return = about_to_return.clone();
                move || {
                    about_to_return.store(round, SeqCst);
                    // The joiner needs a while from here to its announcement. The end comes a little later each time, so that some
                    // announcements fall in the middle of it.
                    (0..round % 256).for_each(|_| std::hint::spin_loop());
                    round
                }
            });
            handles.send((round, returning)).unwrap();
            // Not the newest: this fiber parks, the newer one runs first and leaves its stack to this one.
            assert_eq!(successor.join().unwrap(), round);
            // The next round begins when the other thread waits for it.
            while rounds_joined.load(SeqCst) < round {
                fibra::yield_now();
            }
        }
    });
    assert_eq!(joiner.join().unwrap(), ROUNDS * (ROUNDS + 1) / 2);
}

// S0-19: a fiber that yields has its turn while others keep spawning short ones, and so has one that another thread wakes.
#[test]
fn a_flood_of_short_fibers_keeps_no_fiber_waiting() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    /// Each starts the next, so that there is always an unstarted one.
    fn flood(stop: &Arc<AtomicBool>) {
        if !stop.load(SeqCst) {
            for _ in 0..2 {
                let stop = stop.clone();
                drop(fibra::spawn(move || drop(stop)));
            }
            let stop = stop.clone();
            drop(fibra::spawn(move || flood(&stop)));
        }
    }
    let (wake, woken) = fibra::channel::bounded::<u32>(1);
    let waker = std::thread::spawn({
        let stop = stop.clone();
        move || {
            for value in 0..100 {
                wake.send(value).unwrap();
            }
            stop
        }
    });
    let turns = runtime.run({
        let stop = stop.clone();
        move || {
            flood(&stop);
            let from_outside = fibra::spawn(move || (0..100).map(|_| woken.recv().unwrap()).sum::<u32>());
            let yields = fibra::spawn(|| (0..1_000).map(|_| fibra::yield_now()).count());
            let turns = yields.join().unwrap();
            assert_eq!(from_outside.join().unwrap(), 4_950);
            stop.store(true, SeqCst);
            turns
        }
    });
    assert_eq!(turns, 1_000);
    drop(waker.join().unwrap());
}

// S1-14: what a fiber leaves on its stack, its successor does not find: status, locals, a panic that was caught.
#[test]
fn a_successor_finds_nothing_of_its_predecessor() {
    fibra::fiber_local! {
        static MARK: std::cell::Cell<u32> = std::cell::Cell::new(0);
    }
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        let fibers: Vec<_> = (0..600u32)
            .map(|index| {
                fibra::spawn(move || {
                    assert_eq!(fibra::current().unwrap().status(), "", "of another fiber");
                    assert_eq!(MARK.get(), 0, "of another fiber");
                    match index % 4 {
                        0 => fibra::current().unwrap().set_status("used"),
                        1 => MARK.set(index),
                        2 => {
                            let caught = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(index)));
                            assert!(caught.is_err());
                        }
                        _ => {}
                    }
                    index
                })
            })
            .collect();
        for (index, fiber) in fibers.into_iter().enumerate() {
            assert_eq!(fiber.join().unwrap(), index as u32);
        }
    });
}
