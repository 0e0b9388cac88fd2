//! Unwinding beside cancellation: each fiber unwinds once, undisturbed, and neither its neighbours nor its thread take part in it.
#![allow(clippy::disallowed_types)] // Logs of the tests.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use crate::support::within_a_minute;
use crate::support::{self, workers};
use fibra::{Cancellation, Runtime};

const HOUR: Duration = Duration::from_secs(3600);

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
            let begun = Arc::new(AtomicBool::new(false));
            let begins = begun.clone();
            let child = fibra::spawn(move || {
                begins.store(true, Ordering::SeqCst);
                fibra::shield(|| fibra::sleep(Duration::from_millis(5)));
                let _blocks = Blocks;
                std::panic::resume_unwind(Box::new("quiet"));
            });
            // One that has not begun would not run at all.
            while !begun.load(Ordering::SeqCst) {
                fibra::yield_now();
            }
            child.cancel();
            assert_eq!(child.join().unwrap_err().message(), "quiet");
        });
    });
}

// No process reads standard error: a fiber that panics is joined all the same.
#[test]
fn a_panic_with_standard_error_closed() {
    const NAME: &str = "a_panic_with_standard_error_closed";
    if support::is_child(NAME) {
        return fibra::run(|| assert!(fibra::spawn(|| panic!("unheard")).join().unwrap_err().is_panic()));
    }
    let mut command = support::myself(NAME);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stderr.take());
    assert!(child.wait().unwrap().success());
}

/// Calls its closure when it goes.
struct Finally<F: FnMut()>(F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
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

// A neighbour that yields inside a destructor while it unwinds (here without the hook) does not hold off others' cancellation.
#[test]
fn a_neighbour_that_unwinds_and_yields_holds_off_no_other() {
    let ways: [fn(); 2] = [fibra::yield_now, || {
        let never = fibra::spawn(|| fibra::sleep(HOUR)).cancel_on_drop();
        assert!(!never.wait_timeout(Duration::ZERO));
    }];
    for give_way in ways {
        within_a_minute(|| {
            workers(1).run(move || {
                let unwinding = fibra::spawn(move || {
                    let _finally = Finally(|| {
                        let neighbour = fibra::spawn(|| fibra::sleep(HOUR));
                        // It parks while this fiber is suspended.
                        (0..100).for_each(|_| give_way());
                        neighbour.cancel();
                        assert!(neighbour.join().unwrap_err().is_cancelled());
                    });
                    resume_unwind(Box::new("on purpose"))
                });
                assert!(unwinding.join().unwrap_err().is_panic());
            });
        });
    }
}

// A panic of a blocking call goes on in its fiber: cancellation is held off there too, also if a neighbour is suspended while it unwinds.
#[test]
fn a_panic_out_of_a_blocking_call_is_an_unwinding() {
    within_a_minute(|| {
        workers(1).run(|| {
            let done = Arc::new(AtomicBool::new(false));
            let neighbour = fibra::spawn({
                let done = done.clone();
                move || {
                    let _finally = Finally(|| {
                        while !done.load(Ordering::SeqCst) {
                            fibra::sleep(Duration::from_micros(100));
                        }
                    });
                    resume_unwind(Box::new("on purpose"))
                }
            });
            let started = Arc::new(AtomicBool::new(false));
            let go_on = Arc::new(AtomicBool::new(false));
            let fiber = fibra::spawn({
                let (started, go_on) = (started.clone(), go_on.clone());
                move || {
                    let _finally = Finally(|| fibra::sleep(Duration::from_millis(1)));
                    fibra::blocking(move || {
                        started.store(true, Ordering::SeqCst);
                        while !go_on.load(Ordering::SeqCst) {
                            std::thread::yield_now();
                        }
                        resume_unwind(Box::new("out of the pool"))
                    })
                }
            });
            while !started.load(Ordering::SeqCst) {
                fibra::sleep(Duration::from_micros(100));
            }
            fiber.cancel();
            go_on.store(true, Ordering::SeqCst);
            assert!(fiber.join().unwrap_err().is_panic());
            done.store(true, Ordering::SeqCst);
            assert!(neighbour.join().unwrap_err().is_panic());
        });
    });
}

// A fiber that has caught its cancellation before gives way to others when it is cancelled again; not inside `no_suspend`.
#[test]
fn a_repeated_cancellation_does_not_suspend_in_no_suspend() {
    within_a_minute(|| {
        workers(1).run(|| {
            let started = Arc::new(AtomicBool::new(false));
            let begun = started.clone();
            let stubborn = fibra::spawn(move || {
                begun.store(true, Ordering::SeqCst);
                assert!(catch_unwind(|| fibra::sleep(HOUR)).is_err());
                let ran = Arc::new(AtomicBool::new(false));
                let other = ran.clone();
                drop(fibra::spawn(move || other.store(true, Ordering::SeqCst)));
                fibra::no_suspend(|| {
                    (0..100).for_each(|_| assert!(catch_unwind(fibra::checkpoint).is_err()));
                    ran.load(Ordering::SeqCst)
                })
            });
            while !started.load(Ordering::SeqCst) {
                fibra::yield_now();
            }
            stubborn.cancel();
            assert!(!stubborn.join().unwrap(), "another fiber ran meanwhile");
        });
    });
}

// A thread that unwinds runs fibers in a destructor: it is not they who unwind, so they can be cancelled.
#[test]
fn fibers_below_an_unwinding_thread_can_be_cancelled() {
    within_a_minute(|| {
        let unwound = catch_unwind(|| {
            let _finally = Finally(|| {
                Runtime::current_thread().unwrap().run(|| {
                    let sleeper = fibra::spawn(|| fibra::sleep(HOUR));
                    (0..100).for_each(|_| fibra::yield_now());
                    sleeper.cancel();
                    assert!(sleeper.join().unwrap_err().is_cancelled());
                });
            });
            resume_unwind(Box::new("on purpose"))
        });
        assert!(unwound.is_err());
    });
}

// A runtime of another kind that is dropped while its fiber unwinds: its fibers are cancelled and waited for, as always.
#[test]
#[cfg_attr(fibra_context = "thread", ignore = "a fiber is another OS thread there than the one its runtime was run on")]
fn a_runtime_dropped_by_an_unwinding_fiber_of_another() {
    let builders: [fn() -> Runtime; 2] = [|| workers(1), || Runtime::current_thread().unwrap()];
    for build in builders {
        within_a_minute(|| {
            let ended = Arc::new(AtomicBool::new(false));
            let told = ended.clone();
            let inner = build();
            drop(inner.spawn(move || {
                let _finally = Finally(|| told.store(true, Ordering::SeqCst));
                loop {
                    fibra::yield_now();
                }
            }));
            inner.run(|| (0..100).for_each(|_| fibra::yield_now()));
            let inner = AssertUnwindSafe(inner);
            let unwound = catch_unwind(|| {
                fibra::run(move || {
                    let _inner = inner;
                    resume_unwind(Box::new("on purpose"))
                })
            });
            assert!(unwound.is_err());
            assert!(ended.load(Ordering::SeqCst), "the runtime was leaked");
        });
    }
}
