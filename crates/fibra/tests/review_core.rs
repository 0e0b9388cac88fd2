//! Programs that once broke the core, one test for each: found by a review that looked for nothing else.
//!
//! Every test runs under a watchdog, since most of these faults were hangs.
#![allow(clippy::disallowed_types)] // Logs of the tests.

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

use fibra::{Builder, JoinHandle, Runtime};

const HOUR: Duration = Duration::from_secs(3600);

/// A hang is a failure, not a stuck build.
fn within_a_minute<T>(f: impl FnOnce() -> T) -> T {
    let _watchdog = support::watchdog(60);
    f()
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
                drop(Builder::new().name("from a destructor").spawn(|| ()).map(JoinHandle::join));
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

// A blocking call that is refused drops what it was given.
#[test]
fn a_refused_blocking_call_drops_its_closure() {
    within_a_minute(|| {
        fibra::run(|| {
            let token = Arc::new(());
            let inside = token.clone();
            let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                fibra::no_suspend(|| fibra::blocking(move || drop(inside)));
            }));
            assert!(refused.is_err());
            assert_eq!(Arc::strong_count(&token), 1);
        });
    });
}

// A guard kept in a thread-local is dropped when the thread's other locals may be gone.
#[test]
fn an_enter_guard_in_a_thread_local() {
    thread_local! {
        static GUARD: std::cell::RefCell<Option<fibra::EnterGuard>> = const { std::cell::RefCell::new(None) };
    }
    within_a_minute(|| {
        let rt = workers(1);
        for guard_first in [false, true] {
            let handle = rt.handle();
            let thread = std::thread::spawn(move || {
                if guard_first {
                    GUARD.with_borrow(|guard| assert!(guard.is_none()));
                }
                let guard = handle.enter();
                GUARD.set(Some(guard));
            });
            thread.join().unwrap();
        }
    });
}

// Whoever awaits a fiber from outside hears of its end when the run that saw it returns, not at the next run.
#[test]
fn an_end_in_a_current_thread_run_is_told_before_the_run_returns() {
    within_a_minute(|| {
        for yields in 0..8 {
            let rt = Runtime::current_thread().unwrap();
            let ended = Arc::new(AtomicBool::new(false));
            let awaited = {
                let ended = ended.clone();
                rt.spawn(move || {
                    (0..yields % 3).for_each(|_| fibra::yield_now());
                    ended.store(true, Ordering::SeqCst);
                })
            };
            let polled = Arc::new(AtomicBool::new(false));
            let waiter = {
                let polled = polled.clone();
                std::thread::spawn(move || {
                    let mut future = std::pin::pin!(awaited.into_future());
                    fibra::block_on(std::future::poll_fn(|cx| {
                        let poll = future.as_mut().poll(cx);
                        polled.store(true, Ordering::SeqCst);
                        poll
                    }))
                })
            };
            while !polled.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let other = rt.spawn(move || (0..yields / 3).for_each(|_| fibra::yield_now()));
            rt.run(|| other.join().unwrap());
            // Whether it has ended by now is the scheduler's affair; if it has, its waiter knows.
            if ended.load(Ordering::SeqCst) {
                waiter.join().unwrap().unwrap();
            }
        }
    });
}

fn is_send<T: Send>() {}
fn is_sync<T: Sync>() {}

/// Compiles only if `T` is not `Send` (or not `Sync`): otherwise two implementations fit.
trait IsNotSend<A> {
    fn is_not_send() {}
}
trait IsNotSync<A> {
    fn is_not_sync() {}
}
struct Ambiguous;
impl<T: ?Sized> IsNotSend<()> for T {}
impl<T: ?Sized + Send> IsNotSend<Ambiguous> for T {}
impl<T: ?Sized> IsNotSync<()> for T {}
impl<T: ?Sized + Sync> IsNotSync<Ambiguous> for T {}

// What may be sent and shared, and what must not be.
#[test]
fn auto_traits() {
    is_send::<Runtime>();
    is_sync::<Runtime>();
    is_send::<fibra::Handle>();
    is_sync::<fibra::Handle>();
    is_send::<JoinHandle<u8>>();
    is_sync::<JoinHandle<std::cell::Cell<u8>>>();
    <JoinHandle<Rc<u8>> as IsNotSend<_>>::is_not_send();
    <JoinHandle<Rc<u8>> as IsNotSync<_>>::is_not_sync();
    is_send::<fibra::JoinFuture<u8>>();
    <fibra::JoinFuture<Rc<u8>> as IsNotSend<_>>::is_not_send();
    <fibra::EnterGuard as IsNotSend<_>>::is_not_send();
    is_send::<fibra::JoinError>();
    is_sync::<fibra::JoinError>();
    is_send::<fibra::Fiber>();
    is_sync::<fibra::Fiber>();
    is_sync::<fibra::FiberLocal<Rc<u8>>>();
    is_send::<fibra::RuntimeBuilder>();
    is_send::<Builder>();
    is_send::<fibra::ShutdownError>();
}

// Nobody listens on standard error: a fiber that panics is joined all the same.
#[test]
fn a_panic_with_standard_error_closed() {
    const NAME: &str = "a_panic_with_standard_error_closed";
    if support::is_child(NAME) {
        return fibra::run(|| assert!(fibra::spawn(|| panic!("unheard")).join().unwrap_err().is_panic()));
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", NAME, "--nocapture"]).env("FIBRA_TEST_CHILD", NAME);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stderr.take());
    assert!(child.wait().unwrap().success());
}

// Several runs at once on recycled roots, with daemons, cancelled fibers and tasks; what each counts is its own.
#[test]
fn many_runs_at_once() {
    within_a_minute(|| {
        let rt = workers(3);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for n in 0..300u64 {
                        let sum = rt.run(|| {
                            let children: Vec<_> = (0..n % 20)
                                .map(|i| {
                                    fibra::spawn(move || {
                                        if i % 3 == 0 {
                                            fibra::yield_now();
                                        }
                                        i
                                    })
                                })
                                .collect();
                            if n % 4 == 0 {
                                let daemon = || loop {
                                    fibra::sleep(Duration::from_millis(1));
                                    drop(fibra::spawn(|| ()));
                                };
                                drop(Builder::new().daemon(true).spawn(daemon).unwrap());
                            }
                            if n % 7 == 0 {
                                drop(fibra::spawn(|| fibra::sleep(HOUR)).cancel_on_drop());
                            }
                            if n % 5 == 0 {
                                drop(fibra::spawn_future(async { fibra::yield_now() }));
                            }
                            children.into_iter().map(|child| child.join().unwrap()).sum::<u64>()
                        });
                        assert_eq!(sum, (0..n % 20).sum());
                    }
                });
            }
        });
    });
}

// Runtimes that end while threads outside spawn on them.
#[test]
fn runtimes_end_under_spawners() {
    within_a_minute(|| {
        for round in 0..100 {
            let rt = workers(1 + round % 3);
            let spawner = |handle: fibra::Handle| {
                move || {
                    for i in 0..50 {
                        let child = handle.spawn(move || fibra::sleep(Duration::from_millis(i % 2)));
                        if i % 3 == 0 {
                            let _ = child.join();
                        }
                    }
                }
            };
            let spawners: Vec<_> = (0..2).map(|_| std::thread::spawn(spawner(rt.handle()))).collect();
            std::thread::sleep(Duration::from_micros(300));
            drop(rt);
            spawners.into_iter().for_each(|spawner| spawner.join().unwrap());
        }
    });
}
