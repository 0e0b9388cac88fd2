//! Fiber-locals at odd moments: of tasks and of wakers, inherited by fibers that never start, made while others are dropped. They stay on
//! their thread, are dropped on a fiber, and never reach another one.
#![allow(clippy::disallowed_types)] // Logs of the tests.

use std::cell::RefCell;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;
use std::time::Duration;

use crate::support::{within_a_minute, workers};
use fibra::{Builder, JoinHandle, Runtime};

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
#[cfg_attr(fibra_context = "thread", ignore = "a fiber's OS thread is its stack there, not its worker")]
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

// A waker is user code and may use fiber-locals: they go with the fiber that called it, and not to the next one on its stack.
#[test]
fn locals_of_a_waker_are_dropped_with_its_fiber() {
    fibra::fiber_local! {
        static NOTE: RefCell<Vec<u32>> = RefCell::new(Vec::new());
    }
    struct Noting(AtomicBool);
    impl Wake for Noting {
        fn wake(self: Arc<Self>) {
            NOTE.with_borrow_mut(|notes| notes.push(1));
            self.0.store(true, Ordering::SeqCst);
        }
    }
    within_a_minute(|| {
        workers(1).run(|| {
            for _ in 0..20 {
                let noting = Arc::new(Noting(AtomicBool::new(false)));
                let waker = Waker::from(noting.clone());
                let mut joining = fibra::spawn(fibra::yield_now).into_future();
                let first = Pin::new(&mut joining).poll(&mut Context::from_waker(&waker));
                assert!(first.is_pending());
                while !noting.0.load(Ordering::SeqCst) {
                    fibra::yield_now();
                }
                fibra::yield_now();
                let found = fibra::spawn(|| NOTE.with_borrow(Vec::len)).join().unwrap();
                assert_eq!(found, 0, "left behind by the waker's fiber");
            }
        });
    });
}

// However stubbornly a fiber-local makes itself anew in its destructor, the next fiber on that stack does not get it.
#[test]
#[cfg_attr(
    fibra_asan,
    ignore = "leaks on purpose: values whose destructors make new ones for ever cannot all be dropped"
)]
fn locals_that_never_end_do_not_reach_the_next_fiber() {
    struct Again(u32);
    impl Drop for Again {
        fn drop(&mut self) {
            if self.0 > 0 {
                AGAIN.with_borrow_mut(|again| *again = Some(Again(self.0)));
            }
        }
    }
    fibra::fiber_local! {
        static AGAIN: RefCell<Option<Again>> = RefCell::new(None);
    }
    within_a_minute(|| {
        workers(1).run(|| {
            for _ in 0..10 {
                fibra::spawn(|| AGAIN.with_borrow_mut(|again| *again = Some(Again(7)))).join().unwrap();
                let found = fibra::spawn(|| AGAIN.with_borrow(Option::is_some)).join().unwrap();
                assert!(!found, "left behind by another fiber");
            }
        });
    });
}
