//! Jobs of the blocking pool that wait for others of the same pool, which is full: they come to an end, and keep to their time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use fibra::time::Instant;
use fibra::{JoinSet, Runtime, blocking, spawn_blocking};

use crate::support;

const LONG: Duration = Duration::from_secs(3600);

fn one_thread() -> Runtime {
    Runtime::builder().workers(1).max_blocking_threads(1).build().unwrap()
}

fn depth(n: u32) -> u32 {
    if n == 0 { 0 } else { 1 + spawn_blocking(move || depth(n - 1)).join().unwrap() }
}

#[test]
fn a_job_that_joins_another_one_does_not_wait_for_its_own_thread() {
    let _watchdog = support::watchdog(60);
    let runtime = one_thread();
    let here = std::thread::current().id();
    runtime.run(|| {
        let (one, other) = blocking(|| {
            let other = spawn_blocking(|| std::thread::current().id()).join().unwrap();
            (std::thread::current().id(), other)
        });
        assert!(one == other && one != here);
        assert_eq!(blocking(|| depth(20)), 20);
        // It was started by a fiber, and is joined in a job.
        let job = spawn_blocking(|| 7);
        assert_eq!(blocking(|| job.join().unwrap()), 7);
    });
    support::eventually(|| runtime.metrics().live == 0, || format!("{:?}", runtime.metrics()));
}

#[test]
fn many_jobs_that_join_others_share_a_few_threads() {
    let _watchdog = support::watchdog(60);
    let runtime = Runtime::builder().workers(2).max_blocking_threads(3).build().unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    runtime.run(|| {
        let jobs: Vec<_> = (0..200)
            .map(|_| {
                let ran = ran.clone();
                spawn_blocking(move || {
                    let inner: Vec<_> = (0..3)
                        .map(|_| {
                            let ran = ran.clone();
                            spawn_blocking(move || ran.fetch_add(1, SeqCst))
                        })
                        .collect();
                    inner.into_iter().for_each(|job| assert!(job.join().is_ok()));
                })
            })
            .collect();
        jobs.into_iter().for_each(|job| job.join().unwrap());
    });
    assert_eq!(ran.load(SeqCst), 600, "each ran once");
}

#[test]
fn a_panic_in_a_joined_job_is_the_joiners() {
    let _watchdog = support::watchdog(60);
    one_thread().run(|| {
        let error = blocking(|| {
            let job = spawn_blocking(|| -> u32 { std::panic::resume_unwind(Box::new("no luck")) });
            job.join().unwrap_err()
        });
        assert!(error.is_panic() && error.message() == "no luck", "{error}");
    });
}

#[test]
fn a_set_of_jobs_inside_a_job_comes_to_an_end() {
    let _watchdog = support::watchdog(60);
    one_thread().run(|| {
        let mut results = blocking(|| {
            let mut set = JoinSet::new();
            for n in 0..10 {
                set.spawn_blocking(move || n);
            }
            set.join_all()
        });
        results.sort_unstable();
        assert_eq!(results, (0..10).collect::<Vec<_>>());
    });
}

#[test]
fn joins_with_a_deadline_keep_to_it_in_a_full_pool() {
    let _watchdog = support::watchdog(60);
    let ran = Arc::new(AtomicUsize::new(0));
    let runtime = one_thread();
    runtime.run(|| {
        let ran = ran.clone();
        let job = blocking(move || {
            let end = Instant::now() + Duration::from_millis(20);
            let job = spawn_blocking(move || ran.fetch_add(1, SeqCst));
            let job = job.join_deadline(end).expect_err("its thread is ours");
            assert!(Instant::now() >= end);
            assert!(!job.wait_timeout(Duration::from_millis(1)));
            // A scope of this thread is cancelled while it waits with a far deadline.
            let outcome = fibra::timeout(Duration::from_millis(5), || job.wait_timeout(LONG));
            assert!(outcome.is_err());
            job
        });
        assert_eq!(job.join().unwrap(), 0, "there is a thread now");
    });
    assert_eq!(ran.load(SeqCst), 1);
}

/// What a job has captured goes when its fiber is cancelled, although the handle is still there.
#[test]
fn a_job_that_was_cancelled_before_it_began_is_dropped_with_its_fiber() {
    let _watchdog = support::watchdog(60);
    one_thread().run(|| {
        let captured = Arc::new(());
        let kept = captured.clone();
        let job = spawn_blocking(move || drop(kept));
        job.cancel();
        job.wait();
        assert_eq!(Arc::strong_count(&captured), 1);
        assert!(job.join().unwrap_err().is_cancelled());
    });
}
