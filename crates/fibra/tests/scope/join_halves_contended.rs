//! `join(a, b)` under stress: trees of joins on several workers, thieves against joiners, cancellation at any moment.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support::{self, workers};
use fibra::join;

/// Counts its drops.
struct Counted(&'static AtomicUsize);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

// Random trees of joins that compute, yield, panic and wait, on several workers: every leaf is run once, or its branch panicked.
#[test]
fn stress_trees_of_joins() {
    let _watchdog = support::watchdog(120);
    fn tree(seed: u64, depth: u32, leaves: &AtomicUsize) -> u64 {
        let mixed = (seed ^ u64::from(depth)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
        if depth == 0 {
            leaves.fetch_add(1, SeqCst);
            return mixed & 0xFF;
        }
        match mixed % 61 {
            0 => fibra::yield_now(),
            1 => fibra::sleep(Duration::from_micros(50)),
            2 => drop(fibra::spawn(|| ())),
            3 => {
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    join(fibra::yield_now, || resume_unwind(Box::new("a branch")));
                }));
                assert!(caught.is_err());
            }
            _ => {}
        }
        let (a, b) = join(|| tree(mixed, depth - 1, leaves), || tree(!mixed, depth - 1, leaves));
        a + b
    }
    let rounds: u64 = if cfg!(any(fibra_asan, fibra_tsan)) { 3 } else { 20 };
    for workers in [1, 2, 4] {
        let runtime = support::workers(workers);
        for round in 0..rounds {
            let (sum, leaves) = runtime.run(|| {
                let leaves = AtomicUsize::new(0);
                (tree(round, 12, &leaves), leaves.into_inner())
            });
            let expected = fibra::run(|| tree(round, 12, &AtomicUsize::new(0)));
            assert_eq!((sum, leaves), (expected, 1 << 12), "round {round} of {workers}");
        }
        assert_eq!(runtime.metrics().live, 0);
    }
}

// Thieves against joiners: halves so short that they are often taken in the very moment in which they are wanted back.
#[test]
fn stress_taking_back_against_thieves() {
    let _watchdog = support::watchdog(120);
    let rounds = if cfg!(any(fibra_asan, fibra_tsan)) { 300 } else { 5_000 };
    let runtime = workers(4);
    runtime.run(|| {
        let joiners: Vec<_> = (0..8)
            .map(|_| {
                fibra::spawn(move || {
                    for round in 0..rounds {
                        let runs = AtomicUsize::new(0);
                        let (a, b) = join(
                            || {
                                // As long as it takes a thief to find the other half ripe, more or less; now and then it waits itself.
                                let until = fibra::time::Instant::now() + Duration::from_micros(round % 40);
                                while fibra::time::Instant::now() < until {}
                                if round % 7 == 0 {
                                    fibra::yield_now();
                                }
                                round
                            },
                            || {
                                runs.fetch_add(1, SeqCst);
                                vec![round]
                            },
                        );
                        assert_eq!((a, b, runs.into_inner()), (round, vec![round], 1));
                    }
                })
            })
            .collect();
        joiners.into_iter().for_each(|joiner| joiner.join().unwrap());
    });
    let metrics = runtime.metrics();
    println!("{} of {} halves were taken", metrics.spawned - 9, 8 * rounds);
    assert_eq!(metrics.live, 0);
}

// Cancelled at any moment: no half is left behind, everything is dropped.
#[test]
fn stress_cancelling_joins() {
    let _watchdog = support::watchdog(120);
    let rounds: u64 = if cfg!(any(fibra_asan, fibra_tsan)) { 50 } else { 500 };
    let runtime = workers(2);
    static MADE: AtomicUsize = AtomicUsize::new(0);
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    fn tree(depth: u32) {
        MADE.fetch_add(2, SeqCst);
        let (mine, other) = (Counted(&DROPS), Counted(&DROPS));
        join(
            || {
                let _mine = mine;
                if depth == 0 { fibra::sleep(Duration::from_micros(200)) } else { tree(depth - 1) }
            },
            move || {
                let _other = other;
                fibra::yield_now();
                if depth > 0 {
                    tree(depth - 1);
                }
            },
        );
    }
    for round in 0..rounds {
        let fiber = runtime.spawn(|| tree(5));
        let until = fibra::time::Instant::now() + Duration::from_micros(round % 300);
        while fibra::time::Instant::now() < until {}
        fiber.cancel();
        let _ = fiber.join();
        assert_eq!(DROPS.load(SeqCst), MADE.load(SeqCst), "round {round}");
    }
    assert_eq!((runtime.metrics().live, runtime.metrics().parked), (0, 0));
}
