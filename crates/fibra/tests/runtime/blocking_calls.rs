//! `blocking` and `spawn_blocking`: work that blocks its thread, beside fibers that go on.
#![allow(clippy::disallowed_types)] // Blocking for real is the point.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};

use crate::support::{eventually, watchdog};
use crate::tools;
use crate::tools::{Event, many};

fn runtime(workers: usize, threads: usize) -> fibra::Runtime {
    fibra::Runtime::builder().workers(workers).max_blocking_threads(threads).build().unwrap()
}

/// Blocks threads until it is opened.
#[derive(Debug, Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(open, |open| !*open).unwrap());
    }
}

// Many jobs, few threads: all run, never more at a time than there may be threads, and the fibers go on meanwhile.
#[test]
fn a_thousand_jobs_share_eight_threads() {
    let _watchdog = watchdog(120);
    let rt = runtime(2, 8);
    let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (running, most) = (Arc::new(running), Arc::new(most));
    let sum: usize = rt.run({
        let (running, most) = (running.clone(), most.clone());
        move || {
            let jobs: Vec<_> = (0..many(1_000))
                .map(|index| {
                    let (running, most) = (running.clone(), most.clone());
                    fibra::spawn_blocking(move || {
                        most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                        assert!(fibra::current().is_none(), "inside, it is a plain thread");
                        std::thread::yield_now();
                        running.fetch_sub(1, SeqCst);
                        index
                    })
                })
                .collect();
            jobs.into_iter().map(|job| job.join().unwrap()).sum()
        }
    });
    let count = many(1_000);
    assert_eq!(sum, count * (count - 1) / 2);
    assert!(most.load(SeqCst) <= 8, "{most:?} at once");
    assert!(rt.metrics().blocking_peak <= 8);
}

// The closure may borrow from the fiber's stack, and what it returns comes back.
#[test]
fn a_job_may_borrow() {
    let _watchdog = watchdog(60);
    runtime(1, 4).run(|| {
        let mut numbers = vec![3, 1, 2];
        let smallest = fibra::blocking(|| {
            numbers.sort_unstable();
            numbers[0]
        });
        assert_eq!((smallest, numbers), (1, vec![1, 2, 3]));
    });
}

// A panic comes out where `blocking` was called, and out of `join`.
#[test]
fn panics_come_out() {
    let _watchdog = watchdog(60);
    runtime(1, 4).run(|| {
        let caught = catch_unwind(AssertUnwindSafe(|| fibra::blocking(|| resume_unwind(Box::new("inside")))));
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"inside"));
        let job = fibra::spawn_blocking(|| -> u32 { resume_unwind(Box::new("once more")) });
        assert_eq!(job.join().unwrap_err().message(), "once more");
        assert_eq!(fibra::blocking(|| 7), 7, "the pool goes on");
    });
}

// While a job blocks, the fibers of its worker go on: here one of them opens the gate.
#[test]
fn fibers_go_on_beside_a_blocked_job() {
    let _watchdog = watchdog(60);
    runtime(1, 4).run(|| {
        let gate = Gate::default();
        let other = {
            let gate = gate.clone();
            fibra::spawn_local(move || gate.open())
        };
        fibra::blocking(|| gate.pass());
        other.join().unwrap();
    });
}

// S4-94's other side: a queued job is taken back and never runs; its closure is dropped.
#[test]
fn a_queued_job_is_cancelled_at_once() {
    let _watchdog = watchdog(120);
    let rt = runtime(2, 1);
    let (gate, ran, holding) = (Gate::default(), Arc::new(AtomicBool::new(false)), Event::new());
    let holder = {
        let (gate, holding) = (gate.clone(), holding.clone());
        rt.spawn(move || {
            fibra::blocking(|| {
                holding.set();
                gate.pass();
            });
        })
    };
    holding.wait();
    let queued: Vec<_> = (0..many(1_000))
        .map(|_| {
            let ran = ran.clone();
            rt.spawn(move || fibra::blocking(move || ran.store(true, SeqCst)))
        })
        .collect();
    let count = queued.len();
    eventually(|| rt.metrics().blocking_queued == count, || format!("{:?}", rt.metrics()));
    queued.iter().for_each(|job| job.cancel());
    for job in queued {
        assert!(job.join().unwrap_err().is_cancelled());
    }
    assert_eq!(Arc::strong_count(&ran), 1, "their closures are gone");
    assert_eq!(rt.metrics().blocking_queued, 0);
    gate.open();
    holder.join().unwrap();
    assert!(!ran.load(SeqCst));
}

// A running job cannot be abandoned: it ends, its result arrives, and cancellation is delivered at the next wait.
#[test]
fn a_running_job_ends_before_its_fiber_is_cancelled() {
    let _watchdog = watchdog(120);
    let rt = runtime(2, 2);
    for _ in 0..50 {
        let (gate, running, after) = (Gate::default(), Event::new(), Arc::new(AtomicBool::new(false)));
        let fiber = {
            let (gate, running, after) = (gate.clone(), running.clone(), after.clone());
            rt.spawn(move || {
                let mut local = 0;
                fibra::blocking(|| {
                    running.set();
                    gate.pass();
                    local = 1;
                });
                assert_eq!(local, 1);
                assert!(fibra::is_cancelled());
                after.store(true, SeqCst);
                fibra::checkpoint();
                unreachable!("it is cancelled");
            })
        };
        running.wait();
        fiber.cancel();
        assert!(!fiber.is_finished());
        gate.open();
        assert!(fiber.join().unwrap_err().is_cancelled());
        assert!(after.load(SeqCst));
    }
}

// Cancel at any moment: before, while or after it runs; either it ran or it did not, and the closure is dropped once.
#[test]
fn stress_cancelling_jobs_at_random_loses_none() {
    let _watchdog = watchdog(120);
    let rt = runtime(2, 4);
    let mut rng = tools::Rng::new();
    let token = Arc::new(());
    for _ in 0..many(2_000) {
        let held = token.clone();
        let job = rt.spawn(move || {
            fibra::blocking(move || {
                std::thread::yield_now();
                drop(held);
            });
        });
        (0..rng.below(2_000)).for_each(|_| std::hint::spin_loop());
        job.cancel();
        let ended = job.join();
        assert!(ended.is_ok() || ended.is_err_and(|error| error.is_cancelled()));
        assert_eq!(Arc::strong_count(&token), 1);
    }
}

// On a plain thread it is a call; inside a job one may spawn into the runtime it came from and wait for it as a thread.
#[test]
fn a_job_is_a_plain_thread() {
    let _watchdog = watchdog(60);
    assert_eq!(fibra::blocking(|| 5), 5);
    runtime(1, 4).run(|| {
        let value = fibra::blocking(|| {
            assert!(fibra::current().is_none());
            fibra::spawn(|| fibra::spawn(|| 21).join().unwrap() * 2).join().unwrap()
        });
        assert_eq!(value, 42);
    });
}
