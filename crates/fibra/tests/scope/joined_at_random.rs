//! Fibers that end in every way, against joiners of every kind, at random moments: each result is given out or dropped, once, and every
//! joiner hears of the end.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::support;
use crate::tools::{Rng, turns};
use fibra::{JoinHandle, JoinSet, Runtime};

/// A result whose life is counted.
struct Value(Arc<AtomicUsize>, u64);

impl Value {
    fn new(alive: &Arc<AtomicUsize>, number: u64) -> Self {
        alive.fetch_add(1, SeqCst);
        Self(alive.clone(), number)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// A fiber that ends in one of several ways; those that may be cancelled say so when they are joined.
fn spawn(rng: &mut Rng, alive: &Arc<AtomicUsize>, number: u64) -> JoinHandle<Value> {
    let value = Value::new(alive, number);
    match rng.below(8) {
        0 => {
            let spins = rng.below(200);
            fibra::spawn(move || {
                (0..spins).for_each(|_| std::hint::spin_loop());
                value
            })
        }
        1 => fibra::spawn(move || {
            fibra::yield_now();
            value
        }),
        2 => fibra::spawn(move || {
            fibra::current().unwrap().set_status("not for the next one");
            value
        }),
        3 => fibra::spawn(move || {
            drop(fibra::spawn(|| ()));
            fibra::spawn(move || value).join().unwrap()
        }),
        4 => fibra::spawn(move || fibra::join(move || value, || ()).0),
        5 => fibra::scope(|scope| {
            scope.spawn(|| ());
            fibra::spawn(move || value)
        }),
        _ => fibra::spawn(move || {
            assert_eq!(fibra::current().unwrap().status(), "", "of another fiber");
            value
        }),
    }
}

/// Ends the handle in one of several ways.
fn end(rng: &mut Rng, handle: JoinHandle<Value>, number: u64, outside: &mpsc::Sender<(JoinHandle<Value>, u64)>) {
    let micros = Duration::from_micros(rng.below(30) as u64);
    match rng.below(10) {
        0 => drop(handle),
        1 => drop(handle.cancel_on_drop()),
        2 => {
            handle.cancel();
            assert!(handle.join().map_or_else(|error| error.is_cancelled(), |value| value.1 == number));
        }
        3 => match handle.join_timeout(micros) {
            Ok(value) => assert_eq!(value.unwrap().1, number),
            Err(handle) => assert_eq!(handle.join().unwrap().1, number),
        },
        4 => {
            let handle = Arc::new(handle);
            let waiters = [handle.clone(), handle.clone()].map(|handle| fibra::spawn(move || handle.wait()));
            handle.wait_timeout(micros);
            waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
            assert_eq!(Arc::into_inner(handle).unwrap().join().unwrap().1, number);
        }
        5 => assert_eq!(fibra::block_on(handle.into_future()).unwrap().1, number),
        6 => outside.send((handle, number)).unwrap(),
        7 => {
            let mut set = JoinSet::new();
            set.insert(handle);
            assert_eq!(set.join_next().unwrap().unwrap().1, number);
        }
        // A joiner that is cancelled, perhaps while it waits.
        8 => {
            let joiner = fibra::spawn(move || handle.join().map(|value| value.1));
            if rng.below(2) == 0 {
                fibra::yield_now();
            }
            joiner.cancel();
            match joiner.join() {
                Ok(joined) => assert_eq!(joined.unwrap(), number),
                Err(error) => assert!(error.is_cancelled()),
            }
        }
        _ => assert_eq!(handle.join().unwrap().1, number),
    }
}

fn at_random(workers: usize) {
    let _watchdog = support::watchdog(120);
    let mut rng = Rng::new();
    let alive = Arc::new(AtomicUsize::new(0));
    let runtime = Runtime::builder().workers(workers).build().unwrap();
    let (outside, handles) = mpsc::channel::<(JoinHandle<Value>, u64)>();
    let joiner = std::thread::spawn({
        let mut rng = rng.fork();
        move || {
            for (handle, number) in handles {
                (0..rng.below(300)).for_each(|_| std::hint::spin_loop());
                assert_eq!(handle.join().unwrap().1, number);
            }
        }
    });
    runtime.run({
        let alive = alive.clone();
        move || {
            let actors: Vec<_> = (0..3)
                .map(|_| {
                    let (mut rng, alive, outside) = (rng.fork(), alive.clone(), outside.clone());
                    fibra::spawn(move || {
                        for round in 0..turns(3_000) {
                            let first = round as u64 * 100;
                            let count = 1 + rng.below(12) as u64;
                            let mut fibers: Vec<_> = (first..first + count)
                                .map(|number| (spawn(&mut rng, &alive, number), number))
                                .collect();
                            while !fibers.is_empty() {
                                let (handle, number) = fibers.swap_remove(rng.below(fibers.len()));
                                end(&mut rng, handle, number, &outside);
                            }
                        }
                    })
                })
                .collect();
            drop(outside);
            actors.into_iter().for_each(|actor| actor.join().unwrap());
        }
    });
    joiner.join().unwrap();
    drop(runtime);
    assert_eq!(alive.load(SeqCst), 0, "results that were not dropped");
}

// S1-17, S1-14, S4-22: where a stack goes from one fiber to the next.
#[test]
fn stress_every_joiner_hears_of_the_end_on_one_worker() {
    at_random(1);
}

// The same with thieves.
#[test]
fn stress_every_joiner_hears_of_the_end_on_three_workers() {
    at_random(3);
}
