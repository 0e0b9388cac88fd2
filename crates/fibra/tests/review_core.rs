//! Programs that once broke the core, one test for each: found by a review that looked for nothing else.
//!
//! Every test runs under a watchdog, since most of these faults were hangs.

mod support;

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread::ThreadId;
use std::time::Duration;

use fibra::{Builder, Runtime};

const HOUR: Duration = Duration::from_secs(3600);

/// Ends the process if `f` takes longer than a minute: a hang is a failure, not a stuck build.
fn within_a_minute<T>(f: impl FnOnce() -> T) -> T {
    let done = Arc::new(AtomicBool::new(false));
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    let limit: u64 = std::env::var("REVIEW_LIMIT").ok().and_then(|s| s.parse().ok()).unwrap_or(60);
    let guard = {
        let done = done.clone();
        std::thread::spawn(move || {
            let begin = std::time::Instant::now();
            while !done.load(Ordering::SeqCst) {
                if begin.elapsed() > Duration::from_secs(limit) {
                    eprintln!("{name}: hangs");
                    fibra::__private::dump();
                    std::process::abort();
                }
                std::thread::park_timeout(Duration::from_millis(50));
            }
        })
    };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
    done.store(true, Ordering::SeqCst);
    guard.thread().unpark();
    guard.join().unwrap();
    result.unwrap_or_else(|payload| std::panic::resume_unwind(payload))
}

fn workers(count: usize) -> Runtime {
    Runtime::builder().workers(count).build().unwrap()
}

// A poll that blocks: the fiber is woken on its own stack, not started anew on another one.
#[test]
fn a_task_may_block_in_its_poll() {
    within_a_minute(|| {
        for count in [1, 2] {
            let rt = workers(count);
            rt.run(|| {
                let tasks: Vec<_> = (0..20u64)
                    .map(|i| {
                        fibra::spawn_future(async move {
                            let child = fibra::spawn(move || {
                                fibra::sleep(Duration::from_millis(1));
                                i
                            });
                            let joined = child.join().unwrap();
                            joined + fibra::blocking(move || i)
                        })
                    })
                    .collect();
                for (i, task) in tasks.into_iter().enumerate() {
                    assert_eq!(task.join().unwrap(), 2 * i as u64);
                }
            });
        }
    });
}

// A task that waits inside its poll can be cancelled there.
#[test]
fn a_task_that_blocks_in_its_poll_can_be_cancelled() {
    within_a_minute(|| {
        workers(2).run(|| {
            let task = fibra::spawn_future(async { fibra::sleep(HOUR) });
            fibra::sleep(Duration::from_millis(5));
            task.cancel();
            assert!(task.join().unwrap_err().is_cancelled());
        });
    });
}

// A pending task can be cancelled, and a runtime with pending tasks can be dropped.
#[test]
fn a_pending_task_can_be_cancelled() {
    within_a_minute(|| {
        let rt = workers(2);
        rt.run(|| {
            let task = fibra::spawn_future(std::future::pending::<()>());
            fibra::sleep(Duration::from_millis(5));
            task.cancel();
            assert!(task.join().unwrap_err().is_cancelled());
        });
        let _entered = rt.handle().enter();
        let left = fibra::spawn_future(std::future::pending::<()>());
        rt.run(|| fibra::sleep(Duration::from_millis(5)));
        drop(rt);
        assert!(left.join().unwrap_err().is_cancelled());
    });
}

// Not `Send`: must be touched by the thread that made it, and by no other.
struct Here(ThreadId, PhantomData<Rc<()>>);

impl Here {
    fn new() -> Self {
        Self(std::thread::current().id(), PhantomData)
    }
    fn is_here(&self) -> bool {
        self.0 == std::thread::current().id()
    }
}

static DROPPED_ELSEWHERE: AtomicUsize = AtomicUsize::new(0);

impl Drop for Here {
    fn drop(&mut self) {
        if !self.is_here() {
            DROPPED_ELSEWHERE.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Ready at the second poll; the waker of the first one is called by a plain thread.
struct WokenOnce(bool);

impl Future for WokenOnce {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        let waker = cx.waker().clone();
        std::thread::spawn(move || waker.wake());
        Poll::Pending
    }
}

// Fiber-locals need not be `Send`, so a task that has some must not be polled by another thread.
#[test]
fn fiber_locals_of_a_task_stay_on_their_thread() {
    fibra::fiber_local! {
        static HERE: Here = Here::new();
    }
    within_a_minute(|| {
        let rt = workers(4);
        let elsewhere = rt.run(|| {
            let tasks: Vec<_> = (0..200)
                .map(|_| {
                    fibra::spawn_future(async {
                        let mut elsewhere = 0;
                        for _ in 0..10 {
                            elsewhere += usize::from(!HERE.with(Here::is_here));
                            WokenOnce(false).await;
                        }
                        elsewhere
                    })
                })
                .collect();
            tasks.into_iter().map(|task| task.join().unwrap()).sum::<usize>()
        });
        assert_eq!(elsewhere, 0, "a value that is not `Send` was used by another thread");
        assert_eq!(DROPPED_ELSEWHERE.load(Ordering::SeqCst), 0);
    });
}

// An unstarted local fiber binds a current-thread runtime to its thread as a started one does.
#[test]
fn an_unstarted_local_fiber_does_not_change_threads() {
    within_a_minute(|| {
        let rt = Runtime::current_thread().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let parent = {
            let seen = seen.clone();
            rt.spawn(move || {
                let here = Here::new();
                drop(fibra::spawn_local(move || seen.lock().unwrap().push(here.is_here())));
            })
        };
        // The joiner of a fiber that ends comes next, so the root ends before the local fiber has started.
        rt.run(|| parent.join().unwrap());
        assert!(seen.lock().unwrap().is_empty());
        std::thread::scope(|scope| {
            let elsewhere = scope.spawn(|| rt.run(|| fibra::sleep(Duration::from_millis(1)))).join();
            assert!(elsewhere.is_err(), "it belongs to the thread that started its fibers");
        });
        rt.run(|| fibra::sleep(Duration::from_millis(1)));
        assert_eq!(*seen.lock().unwrap(), [true], "a closure that is not `Send` ran on another thread");
    });
}

// A daemon that has not started when its run ends is cancelled like one that has.
#[test]
fn an_unstarted_daemon_does_not_outlive_its_run() {
    within_a_minute(|| {
        fibra::run(|| {
            drop(Builder::new().daemon(true).spawn(|| fibra::sleep(HOUR)).unwrap());
        });
        for rt in [workers(1), workers(2), Runtime::current_thread().unwrap()] {
            rt.run(|| {
                drop(Builder::new().daemon(true).spawn(|| fibra::sleep(HOUR)).unwrap());
            });
            drop(rt);
        }
    });
}

// With one worker, a wake for work that it has found already must not leave it counted as searching.
#[test]
fn spawns_from_outside_reach_a_single_worker() {
    within_a_minute(|| {
        let rt = workers(1);
        for round in 0..20_000u32 {
            assert_eq!(rt.spawn(move || round).join().unwrap(), round);
        }
    });
}

// A clone that panics on its way to a child must not count that child.
#[test]
fn a_clone_that_panics_in_spawn_leaves_nothing_behind() {
    struct Explosive;
    impl Clone for Explosive {
        fn clone(&self) -> Self {
            std::panic::resume_unwind(Box::new("no clone"))
        }
    }
    fibra::fiber_local! {
        inherit static EXPLOSIVE: Explosive = Explosive;
    }
    within_a_minute(|| {
        fibra::run(|| {
            EXPLOSIVE.with(|_| ());
            let spawned = std::panic::catch_unwind(|| drop(fibra::spawn(|| ())));
            assert!(spawned.is_err());
        });
    });
}

// What a parent left for a child that never started is dropped on a fiber, and under no lock.
#[test]
fn inherited_values_of_an_unstarted_fiber_are_dropped_on_a_fiber() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    static ON_A_FIBER: AtomicUsize = AtomicUsize::new(0);
    #[derive(Clone)]
    struct Noisy(bool);
    impl Drop for Noisy {
        fn drop(&mut self) {
            if self.0 {
                DROPS.fetch_add(1, Ordering::SeqCst);
                ON_A_FIBER.fetch_add(usize::from(fibra::current().is_some()), Ordering::SeqCst);
                // A child with extras: its frame goes through the same places.
                drop(Builder::new().name("from a destructor").spawn(|| ()).map(fibra::JoinHandle::join));
                std::panic::resume_unwind(Box::new("a destructor that panics"));
            }
        }
    }
    fibra::fiber_local! {
        inherit static NOISY: Noisy = Noisy(false);
    }
    within_a_minute(|| {
        workers(1).run(|| {
            let _ = std::panic::catch_unwind(|| {
                NOISY.scope(Noisy(true), || {
                    let child = fibra::spawn(|| ());
                    child.cancel();
                    drop(child);
                    let child = fibra::spawn(|| ());
                    child.cancel();
                    assert!(child.join().unwrap_err().is_cancelled());
                });
            });
        });
        assert_eq!(DROPS.load(Ordering::SeqCst), 3);
        assert_eq!(ON_A_FIBER.load(Ordering::SeqCst), 3);
    });
}

// The cap on fibers does not keep a runtime from ending, nor a run from beginning.
#[test]
fn a_full_runtime_runs_and_ends() {
    within_a_minute(|| {
        for rt in [
            Runtime::builder().current_thread().max_fibers(1).build().unwrap(),
            Runtime::builder().workers(1).max_fibers(1).build().unwrap(),
        ] {
            let sleeper = rt.spawn(|| fibra::sleep(HOUR));
            rt.run(|| fibra::sleep(Duration::from_millis(2)));
            assert!(rt.spawn(|| ()).join().unwrap_err().is_cancelled());
            drop(rt);
            assert!(sleeper.is_finished());
            assert!(sleeper.join().unwrap_err().is_cancelled());
        }
    });
}

// Fibers that only call wakers were not admitted under the cap, so their end must not make room.
#[test]
fn wakers_do_not_raise_the_cap() {
    within_a_minute(|| {
        let rt = Runtime::builder().workers(1).max_fibers(4).build().unwrap();
        rt.run(|| {
            for _ in 0..10 {
                let child = fibra::spawn(|| fibra::sleep(Duration::from_millis(1)));
                fibra::block_on(async { child.await.unwrap() });
            }
            let children: Vec<_> = (0..20).map(|_| fibra::spawn(|| fibra::sleep(Duration::from_millis(20)))).collect();
            let refused = children.into_iter().map(|child| child.join()).filter(Result::is_err).count();
            assert_eq!(refused, 16, "of 20 under a cap of 4");
        });
    });
}

// Dropping a current-thread runtime on a fiber of another leaves that fiber where it was.
#[test]
fn a_runtime_dropped_on_a_fiber_of_another() {
    within_a_minute(|| {
        fibra::run(|| {
            let inner = Runtime::current_thread().unwrap();
            let child = inner.spawn(|| 1);
            drop(inner);
            assert!(child.join().is_err());
            assert!(fibra::current().is_some(), "this is a fiber");
            assert_eq!(fibra::spawn(|| 7).join().unwrap(), 7);
            let inner = workers(1);
            assert_eq!(inner.spawn(|| 2).join().unwrap(), 2);
            drop(inner);
            assert_eq!(fibra::spawn(|| 7).join().unwrap(), 7);
        });
    });
}

// Unwinding that did not go through the panic hook is unwinding all the same: a second one would abort.
#[test]
fn cancellation_waits_for_a_quiet_unwinding() {
    struct Blocks;
    impl Drop for Blocks {
        fn drop(&mut self) {
            fibra::sleep(Duration::from_millis(1));
        }
    }
    within_a_minute(|| {
        workers(1).run(|| {
            let child = fibra::spawn(|| {
                fibra::shield(|| fibra::sleep(Duration::from_millis(5)));
                let _blocks = Blocks;
                std::panic::resume_unwind(Box::new("quiet"));
            });
            fibra::sleep(Duration::from_millis(1));
            child.cancel();
            assert_eq!(child.join().unwrap_err().message(), "quiet");
        });
    });
}

// The end of a fiber against joiners whose time is up in the same moment: the frame is not reused under the worker's hands.
#[test]
fn joins_that_time_out_at_the_end() {
    within_a_minute(|| {
        let rt = workers(2);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::SeqCst) {
                        let mut child = rt.spawn(|| fibra::sleep(Duration::from_micros(30)));
                        loop {
                            match child.join_timeout(Duration::from_micros(10)) {
                                Ok(result) => break result.unwrap(),
                                Err(again) => child = again,
                            }
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_secs(3));
            stop.store(true, Ordering::SeqCst);
        });
    });
}

// A detached fiber's result may use fiber-locals in its destructor; those are dropped too.
#[test]
fn locals_made_by_the_destructor_of_a_result_are_dropped() {
    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            ALIVE.fetch_sub(1, Ordering::SeqCst);
        }
    }
    fibra::fiber_local! {
        static COUNTED: Counted = {
            ALIVE.fetch_add(1, Ordering::SeqCst);
            Counted
        };
    }
    struct UsesLocal;
    impl Drop for UsesLocal {
        fn drop(&mut self) {
            COUNTED.with(|_| ());
        }
    }
    within_a_minute(|| {
        workers(1).run(|| {
            drop(fibra::spawn(|| UsesLocal));
        });
        assert_eq!(ALIVE.load(Ordering::SeqCst), 0);
    });
}

// Dropping a runtime inside one of its own blocking calls would wait for itself: it is refused like on a fiber.
#[test]
fn a_runtime_dropped_in_its_own_blocking_call() {
    within_a_minute(|| {
        let rt = workers(1);
        let handle = rt.handle();
        let job = handle.spawn(move || fibra::blocking(move || drop(rt)));
        assert!(job.join().unwrap_err().is_panic());
    });
}
