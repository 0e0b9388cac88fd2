//! A job of the blocking pool that its joiner runs behaves as if a thread of the pool had: it is run only where and when that makes no
//! difference that a program could rely on.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

use fibra::{JoinSet, Runtime, blocking, spawn_blocking};

use crate::support;

const LONG: Duration = Duration::from_secs(3600);

fn runtime(threads: usize) -> Runtime {
    Runtime::builder().workers(1).max_blocking_threads(threads).build().unwrap()
}

/// One of the set waits for what its joiner does after another has ended.
#[test]
fn a_set_gives_what_has_ended_first_although_another_was_not_begun() {
    let _watchdog = support::watchdog(60);
    runtime(8).run(|| {
        for is_first in [true, false] {
            let results = blocking(|| {
                let (go_on, told) = mpsc::channel();
                let mut set = JoinSet::new();
                let mut waiting = Some(move || told.recv().unwrap());
                if is_first {
                    set.spawn_blocking(waiting.take().unwrap());
                }
                set.spawn_blocking(|| 1);
                waiting.map(|waiting| set.spawn_blocking(waiting));
                let first = set.join_next().unwrap().unwrap();
                go_on.send(2).unwrap();
                [first, set.join_next().unwrap().unwrap()]
            });
            assert_eq!(results, [1, 2]);
        }
    });
}

#[test]
fn a_cancelled_job_is_not_run_by_its_joiner() {
    let _watchdog = support::watchdog(60);
    let ran = Arc::new(AtomicUsize::new(0));
    runtime(1).run(|| {
        let ran = ran.clone();
        blocking(move || {
            let count = || {
                let ran = ran.clone();
                move || _ = ran.fetch_add(1, SeqCst)
            };
            for _ in 0..100 {
                let job = spawn_blocking(count());
                job.cancel();
                assert!(job.join().unwrap_err().is_cancelled());
            }
            let mut set = JoinSet::new();
            (0..10).for_each(|_| _ = set.spawn_blocking(count()));
            set.cancel_all();
            while let Some(result) = set.join_next() {
                assert!(result.unwrap_err().is_cancelled());
            }
        });
    });
    assert_eq!(ran.load(SeqCst), 0);
}

/// Needs more stack than a fiber has.
fn deep(n: u64) -> u64 {
    let here = black_box([n; 512]);
    if n == 0 { 0 } else { here[n as usize % 512] - n + 1 + deep(n - 1) }
}

/// A job has the stack of a thread. Here its joiner is a fiber of another runtime, which runs inside a job.
#[test]
fn a_job_is_not_run_on_the_stack_of_a_fiber() {
    let _watchdog = support::watchdog(60);
    runtime(8).run(|| {
        let depth = blocking(|| {
            let job = spawn_blocking(|| deep(150));
            let inner = Runtime::builder().current_thread().stack_size(64 << 10).build().unwrap();
            inner.run(|| fibra::spawn_local(|| job.join().unwrap()).join().unwrap())
        });
        assert_eq!(depth, 150);
    });
}

/// What a job spawns belongs to the job's runtime, whatever its joiner has entered.
#[test]
#[cfg_attr(fibra_context = "thread", ignore = "a fiber's OS thread is its stack there, not its worker")]
fn a_job_spawns_into_its_own_runtime() {
    let _watchdog = support::watchdog(60);
    let other = Runtime::builder().workers(1).name("other").build().unwrap();
    let own = Runtime::builder().workers(1).name("own").max_blocking_threads(8).build().unwrap();
    let worker = own.run(|| {
        blocking(|| {
            let worker = || fibra::spawn(|| std::thread::current().name().unwrap().to_owned()).join().unwrap();
            let job = spawn_blocking(worker);
            let _entered = other.handle().enter();
            job.join().unwrap()
        })
    });
    assert!(worker.starts_with("own"), "{worker}");
}

/// So many of them, each with a few pages, are more than the stack of one thread can take; there are threads enough.
#[test]
fn jobs_that_join_jobs_do_not_share_one_stack_to_its_end() {
    let _watchdog = support::watchdog(60);
    fn nested(n: u64) -> u64 {
        let here = black_box([n; 4096]);
        if n == 0 {
            return 0;
        }
        let below = spawn_blocking(move || nested(n - 1)).join().unwrap();
        below + 1 + here[n as usize] - n
    }
    let runtime = Runtime::builder().workers(1).build().unwrap();
    assert_eq!(runtime.run(|| blocking(|| nested(200))), 200);
}

/// In a pool of one thread they have to.
#[test]
fn jobs_that_join_jobs_use_most_of_a_stack_if_no_thread_is_left() {
    let _watchdog = support::watchdog(60);
    fn nested(n: u64) -> u64 {
        let here = black_box([n; 2048]);
        if n == 0 {
            return 0;
        }
        let below = spawn_blocking(move || nested(n - 1)).join().unwrap();
        below + 1 + here[n as usize] - n
    }
    assert_eq!(runtime(1).run(|| blocking(|| nested(30))), 30);
}

/// The look for one that was not begun does not go through all of them each time.
#[test]
fn a_large_set_inside_a_job_of_a_full_pool_comes_to_an_end() {
    let _watchdog = support::watchdog(60);
    let sum = runtime(1).run(|| {
        blocking(|| {
            let mut set = JoinSet::new();
            (0..20_000_u64).for_each(|n| _ = set.spawn_blocking(move || n));
            set.join_all().into_iter().sum::<u64>()
        })
    });
    assert_eq!(sum, 19_999 * 10_000);
}

#[test]
fn a_join_inside_a_timeout_ends_in_time_although_the_job_does_not() {
    let _watchdog = support::watchdog(60);
    runtime(8).run(|| {
        blocking(|| {
            let (go_on, told) = mpsc::channel::<()>();
            let outcome = fibra::timeout(Duration::from_millis(50), || spawn_blocking(move || told.recv()).join());
            assert!(outcome.is_err(), "it waits for a thread that waits for this one");
            drop(go_on);
        });
    });
}

/// The same in a full pool: it is run here after all, or nothing would.
#[test]
fn a_join_inside_a_scope_of_a_full_pool_comes_to_an_end() {
    let _watchdog = support::watchdog(60);
    runtime(1).run(|| {
        let result = blocking(|| fibra::timeout(LONG, || spawn_blocking(|| 7).join().unwrap()));
        assert_eq!(result.unwrap(), 7);
        let results = blocking(|| {
            fibra::scope(|_| {
                let mut set = JoinSet::new();
                (0..10).for_each(|n| _ = set.spawn_blocking(move || n));
                set.join_all().into_iter().sum::<u32>()
            })
        });
        assert_eq!(results, 45);
    });
}
