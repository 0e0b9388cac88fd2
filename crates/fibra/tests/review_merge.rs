//! Programs that broke the core after its branches were merged, one test for each.
//!
//! Every test runs under a watchdog, since some of these faults were hangs.

mod support;

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use fibra::{Builder, Cancellation, Runtime};

const HOUR: Duration = Duration::from_secs(3600);

/// A hang is a failure, not a stuck build.
fn within_a_minute<T>(f: impl FnOnce() -> T) -> T {
    let _watchdog = support::watchdog(60);
    f()
}

fn workers(count: usize) -> Runtime {
    Runtime::builder().workers(count).build().unwrap()
}

// Workers are asked to cancel what a run has started, and may hear of it when the run's root serves the next one already.
#[test]
fn what_a_failed_run_cancels_is_not_the_next_run() {
    within_a_minute(|| {
        let rt = Runtime::current_thread().unwrap();
        for _ in 0..3 {
            let failed = catch_unwind(AssertUnwindSafe(|| rt.run(|| resume_unwind(Box::new("on purpose")))));
            assert!(failed.is_err());
            let children = rt.run(|| {
                let child = fibra::spawn(|| (0..200).for_each(|_| fibra::yield_now()));
                (0..200).for_each(|_| fibra::yield_now());
                child.join()
            });
            children.unwrap();
        }
    });
}

// The same for daemons, which every run cancels at its end.
#[test]
fn a_daemon_is_cancelled_by_its_own_run_only() {
    within_a_minute(|| {
        let rt = Runtime::current_thread().unwrap();
        rt.run(|| {});
        rt.run(|| {
            let daemon = Builder::new().daemon(true).spawn(|| fibra::sleep(HOUR)).unwrap();
            (0..200).for_each(|_| fibra::yield_now());
            assert!(!daemon.is_finished(), "cancelled by the run before");
        });
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

// Where cancellation is only observed, that holds for the fiber that calls wakers too.
#[test]
fn a_waker_that_blocks_is_not_unwound_where_cancellation_is_cooperative() {
    struct Slow {
        called: AtomicBool,
        done: AtomicBool,
    }
    impl Wake for Slow {
        fn wake(self: Arc<Self>) {
            self.called.store(true, Ordering::SeqCst);
            while !fibra::is_cancelled() {
                fibra::yield_now();
            }
            fibra::sleep(Duration::from_millis(1));
            self.done.store(true, Ordering::SeqCst);
        }
    }
    within_a_minute(|| {
        let rt = Runtime::builder().workers(1).cancellation(Cancellation::Cooperative).build().unwrap();
        let slow = Arc::new(Slow { called: AtomicBool::new(false), done: AtomicBool::new(false) });
        let waker = Waker::from(slow.clone());
        rt.run(|| {
            let mut joining = fibra::spawn(fibra::yield_now).into_future();
            assert!(Pin::new(&mut joining).poll(&mut Context::from_waker(&waker)).is_pending());
            while !slow.called.load(Ordering::SeqCst) {
                fibra::yield_now();
            }
        });
        drop(rt);
        assert!(slow.done.load(Ordering::SeqCst), "unwound on the way");
    });
}
