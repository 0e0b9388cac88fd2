//! Work that goes on elsewhere (`better_place`): away from a worker that is saturated or leaves, to one with room, and nowhere without a
//! reason.
#![cfg(not(fibra_context = "thread"))] // A fiber's OS thread is its stack there, not its worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support::{watchdog, workers};
use fibra::Runtime;
use fibra::time::Instant;

/// Goes on for ever, a little at a time, wherever it should, until it is told to stop. Tells to how many places it went.
fn work(stop: Arc<AtomicBool>, moves: Arc<AtomicUsize>, spins: Duration) {
    while !stop.load(SeqCst) {
        let began = Instant::now();
        while began.elapsed() < spins {
            std::hint::spin_loop();
        }
        if let Some(place) = fibra::better_place() {
            moves.fetch_add(1, SeqCst);
            drop(fibra::Builder::new().place(place).spawn(move || work(stop, moves, spins)).unwrap());
            return;
        }
        fibra::yield_now();
    }
}

#[test]
fn there_is_no_better_place_without_another_worker() {
    assert_eq!(fibra::better_place(), None, "on a thread of its own");
    for rt in [Runtime::builder().workers(1).max_workers(1), Runtime::builder().current_thread()] {
        rt.build().unwrap().run(|| assert_eq!(fibra::better_place(), None));
    }
}

#[test]
fn work_leaves_a_saturated_worker_for_an_idle_one() {
    let _watchdog = watchdog(120);
    let rt = Runtime::builder().workers(2).max_workers(2).build().unwrap();
    let (stop, moves) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    rt.run(|| {
        for _ in 0..8 {
            let (stop, moves) = (stop.clone(), moves.clone());
            drop(fibra::spawn_local(move || work(stop, moves, Duration::from_micros(50))));
        }
        // Once begun, it is a share, and not a single one.
        while moves.load(SeqCst) < 3 {
            fibra::sleep(Duration::from_millis(1));
        }
        stop.store(true, SeqCst);
    });
    let departures: Vec<u64> = rt.metrics().workers.iter().map(|worker| worker.departures).collect();
    assert_eq!(departures.iter().sum::<u64>(), moves.load(SeqCst) as u64, "{departures:?}");
}

#[test]
fn work_leaves_a_worker_that_leaves() {
    let _watchdog = watchdog(120);
    let rt = workers(2);
    let (stop, moves) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            rt.run(|| {
                // Spread over both.
                for _ in 0..4 {
                    let (stop, moves) = (stop.clone(), moves.clone());
                    drop(fibra::Builder::new().spread().spawn(move || work(stop, moves, Duration::ZERO)).unwrap());
                }
            });
        });
        while rt.metrics().workers.iter().filter(|worker| worker.started > 0).count() < 2 {
            std::thread::yield_now();
        }
        rt.set_workers(1).unwrap();
        // All has gone on but, it may be, the fiber that waits for the end of the run.
        while moves.load(SeqCst) == 0 || rt.metrics().workers[1].started > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, SeqCst);
    });
    assert!(moves.load(SeqCst) > 0);
}

#[test]
fn a_place_of_another_runtime_is_as_good_as_any() {
    let _watchdog = watchdog(60);
    let place = Runtime::builder().workers(4).force_moves().build().unwrap().run(|| {
        let mut last = fibra::better_place().expect("it is told to go on elsewhere");
        // At the third worker from the first; asked on each by a fiber there.
        while last.worker() != 3 {
            let asked = fibra::Builder::new().place(last).spawn(fibra::better_place).unwrap();
            last = asked.join().unwrap().expect("it is told to go on elsewhere");
        }
        last
    });
    let small = Runtime::builder().workers(1).max_workers(1).build().unwrap();
    small.run(|| fibra::Builder::new().place(place).spawn(|| ()).unwrap().join().unwrap());
}

// Its closure need not be `Send`.
#[test]
fn a_local_fiber_has_no_other_place() {
    Runtime::builder().workers(2).force_moves().build().unwrap().run(|| {
        let place = fibra::better_place().expect("it is told to go on elsewhere");
        let error = fibra::Builder::new().place(place).spawn_local(|| ()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("place()"), "{error}");
    });
}

// A worker that computes looks as if it had nothing to do: no fiber waits there.
#[test]
fn nothing_goes_to_a_worker_that_computes() {
    let _watchdog = watchdog(120);
    let rt = Runtime::builder().workers(2).max_workers(2).build().unwrap();
    let (stop, moves) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    rt.run(|| {
        let home = std::thread::current().id();
        let computes = Arc::new(AtomicBool::new(false));
        // (One of two that are spread comes to the other worker.)
        for _ in 0..2 {
            let (stop, computes) = (stop.clone(), computes.clone());
            let compute = move || {
                while std::thread::current().id() != home && !stop.load(SeqCst) {
                    computes.store(true, SeqCst);
                }
            };
            drop(fibra::Builder::new().spread().spawn(compute).unwrap());
        }
        while !computes.load(SeqCst) {
            fibra::yield_now();
        }
        for _ in 0..8 {
            let (stop, moves) = (stop.clone(), moves.clone());
            drop(fibra::spawn_local(move || work(stop, moves, Duration::from_micros(50))));
        }
        // Long enough for several looks.
        let until = Instant::after(Duration::from_millis(500));
        while !until.remaining().is_zero() {
            fibra::yield_now();
        }
        stop.store(true, SeqCst);
    });
    assert_eq!(moves.load(SeqCst), 0);
}
