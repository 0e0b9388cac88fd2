//! `compute`: work that computes for long runs where it holds up no other fiber, and is otherwise like a call.
#![allow(clippy::disallowed_types)] // What blocks the thread must not be fibra's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;

use crate::elastic::{MOMENT, elastic, one_on_each, pool, states, thread_id};
use crate::support::{eventually, watchdog};
use fibra::{Runtime, WorkerState};

// `compute` goes to a worker that sleeps, at once, and the neighbours of its caller run meanwhile: the work waits for one of them.
#[test]
#[cfg_attr(fibra_context = "thread", ignore = "a fiber's OS thread is its stack there, not its worker")]
fn compute_holds_up_no_neighbour() {
    let _watchdog = watchdog(120);
    let rt = Runtime::builder().workers(2).max_workers(2).build().unwrap();
    // The only worker that is awake is the caller's.
    eventually(|| states(&rt).iter().all(|state| *state == WorkerState::Sleep), || format!("{:?}", states(&rt)));
    rt.run(|| {
        let here = thread_id();
        let (tell, told) = mpsc::channel();
        let neighbour = fibra::spawn_local(move || {
            assert_eq!(thread_id(), here);
            tell.send(7).unwrap();
        });
        let mut borrowed = vec![1, 2, 3];
        let borrows = &mut borrowed;
        let (sum, home) = fibra::compute(move || {
            borrows.push(told.recv().unwrap()); // blocks its worker until the neighbour has run
            (borrows.iter().sum::<i32>(), thread_id())
        });
        assert_eq!((sum, borrowed.len()), (13, 4));
        assert_ne!(home, here);
        neighbour.join().unwrap();
    });
}

// Where every worker has fibers of its own, one comes for it: the fibers of a worker that sleeps would be held up as well.
#[test]
fn compute_gets_a_worker_without_fibers() {
    let _watchdog = watchdog(120);
    let rt = elastic(2, 3).build().unwrap();
    let fibers = one_on_each(&rt, 2);
    let homes: Vec<_> = fibers.iter().map(|fiber| fiber.2).collect();
    eventually(|| states(&rt).iter().all(|state| *state == WorkerState::Sleep), || format!("{:?}", states(&rt)));
    let home = rt.run(|| fibra::compute(thread_id));
    assert!(!homes.contains(&home), "it was given to a worker that has fibers");
    assert_eq!((pool(&rt).workers, pool(&rt).promoted), (3, 0));
    for (go, fiber, _) in fibers {
        go.send(()).unwrap();
        fiber.join().unwrap();
    }
}

// If every worker is busy it runs where it is called, after the neighbours had a turn; also where nothing may be started.
#[test]
fn compute_runs_here_if_no_worker_is_idle() {
    let _watchdog = watchdog(120);
    let rt = Runtime::builder().workers(1).max_workers(1).max_fibers(2).build().unwrap();
    rt.run(|| {
        let here = thread_id();
        let ran = Arc::new(AtomicBool::new(false));
        let neighbour = fibra::spawn_local({
            let ran = ran.clone();
            move || ran.store(true, SeqCst)
        });
        assert_eq!(fibra::compute(|| (ran.load(SeqCst), thread_id())), (true, here));
        neighbour.join().unwrap();
        assert_eq!(fibra::no_suspend(|| fibra::compute(thread_id)), here);
    });
    assert_eq!(fibra::compute(thread_id), thread_id(), "on a plain thread");
    // At the cap of fibers there is no child, with a worker that sleeps.
    let rt = Runtime::builder().workers(2).max_workers(2).max_fibers(1).build().unwrap();
    eventually(|| states(&rt).iter().all(|state| *state == WorkerState::Sleep), || format!("{:?}", states(&rt)));
    rt.run(|| assert_eq!(fibra::compute(|| 5), 5));
}

// Two that compute at once get a worker each, although the first has not woken yet when the second is chosen. What the work spawns is
// stealable like any other fiber.
#[test]
#[cfg_attr(fibra_context = "thread", ignore = "a fiber's OS thread is its stack there, not its worker")]
fn two_computations_at_once_have_a_worker_each() {
    let _watchdog = watchdog(120);
    let rt = Runtime::builder().workers(3).max_workers(3).build().unwrap();
    for _ in 0..20 {
        eventually(|| states(&rt).iter().all(|state| *state == WorkerState::Sleep), || format!("{:?}", states(&rt)));
        rt.run(|| {
            let here = thread_id();
            // Each blocks its thread until the other has come.
            let met = Arc::new(std::sync::Barrier::new(2));
            let callers: Vec<_> = (0..2)
                .map(|_| {
                    let met = met.clone();
                    fibra::spawn_local(move || {
                        fibra::compute(|| {
                            met.wait();
                            thread_id()
                        })
                    })
                })
                .collect();
            let homes: Vec<_> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
            assert!(homes[0] != homes[1] && !homes.contains(&here), "{homes:?}, called on {here:?}");
        });
    }
    rt.run(|| {
        fibra::compute(|| {
            let (tell, told) = mpsc::channel();
            fibra::spawn(move || tell.send(()).unwrap());
            told.recv().unwrap(); // blocks this worker: another one must have run the fiber
        });
    });
}

// A panic comes out of it, and so does cancellation, when it is over.
#[test]
fn compute_panics_and_is_cancelled_like_a_call() {
    let _watchdog = watchdog(120);
    for workers in [1, 2] {
        let rt = Runtime::builder().workers(workers).max_workers(workers).build().unwrap();
        rt.run(|| {
            let panicked = std::panic::catch_unwind(|| fibra::compute(|| -> u32 { panic!("in there") }));
            assert_eq!(*panicked.unwrap_err().downcast::<&str>().unwrap(), "in there");
            let (begun, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let computing = fibra::spawn({
                let (begun, done) = (begun.clone(), done.clone());
                move || {
                    fibra::compute(|| {
                        begun.store(true, SeqCst);
                        std::thread::sleep(MOMENT);
                        done.store(true, SeqCst);
                    });
                    fibra::checkpoint();
                }
            });
            while !begun.load(SeqCst) {
                fibra::yield_now();
            }
            computing.cancel();
            let is_cancelled = computing.join().unwrap_err().is_cancelled();
            assert!(is_cancelled && done.load(SeqCst), "cancelled when it is over, and not before");
        });
    }
}
