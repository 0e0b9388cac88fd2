//! A fiber that waits in a destructor while it unwinds decides nothing for the other fibers of its worker: they are cancelled, time out,
//! catch panics and pass cancellations on as if it were not there. (`thread::panicking()` is true for all of them meanwhile.)
//!
//! The fallback, for a std whose count of panics fibra does not find, is in `tests/unwinding_guessed.rs`.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support;
use crate::unwinding::{LONG, Neighbour, Parked, SHORT, WaitsAndCounts};
use fibra::channel::{CloseReason, Select, Sender, rendezvous, unbounded};
use fibra::sync::{Mutex, Semaphore};
use fibra::{CancelToken, Runtime, Scope};

/// Runs `test` on a runtime with one worker: alone, and beside neighbours that are parked in destructors.
fn beside_neighbours(test: impl Fn() + Sync) {
    let _watchdog = support::watchdog(60);
    let rt = Runtime::builder().workers(1).build().unwrap();
    rt.run(|| {
        test();
        for how in [Neighbour::Panicked, Neighbour::Cancelled] {
            let mut parked = Parked::new(how);
            test();
            let mut another = Parked::new(Neighbour::Panicked);
            test();
            parked.go_on();
            test();
            another.go_on();
        }
        test();
    });
}

/// A panic of this fiber, caught by it.
fn catch_a_panic() {
    let caught = catch_unwind(|| panic!("caught at once"));
    assert!(caught.is_err());
}

/// The same without the hook.
fn catch_what_was_passed_on() {
    let caught = catch_unwind(|| resume_unwind(Box::new("passed on, and caught at once")));
    assert!(caught.is_err());
}

#[test]
fn after_a_caught_panic_a_timeout_ends_every_kind_of_wait() {
    beside_neighbours(|| {
        for catch in [catch_a_panic, catch_what_was_passed_on] {
            let after = |wait: &dyn Fn()| {
                let ended = fibra::timeout(SHORT, || {
                    catch();
                    wait();
                });
                assert!(ended.is_err());
                // Also if the panic was caught outside of the scope.
                catch();
                assert!(fibra::timeout(SHORT, wait).is_err());
            };
            let (tx, rx) = rendezvous::<()>();
            let semaphore = Semaphore::new(1);
            let _permit = semaphore.acquire(1).unwrap();
            let mutex = Arc::new(Mutex::new(()));
            let sleeper = fibra::spawn({
                let (mutex, tx) = (mutex.clone(), tx.clone());
                move || {
                    let _locked = mutex.lock();
                    tx.send(()).unwrap();
                    fibra::sleep(LONG);
                }
            });
            rx.recv().unwrap();
            after(&|| fibra::sleep(LONG));
            after(&|| rx.recv().unwrap());
            after(&|| tx.send(()).unwrap());
            after(&|| drop(mutex.lock()));
            after(&|| drop(semaphore.acquire(1)));
            after(&|| sleeper.wait());
            after(&|| fibra::block_on(std::future::pending()));
            after(&|| {
                fibra::select! {
                    recv(rx) -> _ => (),
                    send(tx, ()) -> _ => (),
                }
            });
            sleeper.cancel();
            assert!(sleeper.join().unwrap_err().is_cancelled());
        }
    });
}

#[test]
fn after_a_caught_panic_a_fiber_can_be_cancelled() {
    beside_neighbours(|| {
        for catch in [catch_a_panic, catch_what_was_passed_on] {
            let (here, there) = unbounded();
            let waiter = |here: Sender<()>| {
                move || {
                    catch();
                    here.send(()).unwrap();
                    fibra::sleep(LONG);
                }
            };
            let by_handle = fibra::spawn(waiter(here.clone()));
            there.recv().unwrap();
            by_handle.cancel();
            assert!(by_handle.join().unwrap_err().is_cancelled());

            fibra::scope(|s| {
                let by_scope = s.spawn(waiter(here.clone()));
                there.recv().unwrap();
                s.cancel();
                assert!(by_scope.join().unwrap_err().is_cancelled());
            });

            let token = CancelToken::new();
            let cancelled = fibra::spawn({
                let (token, there) = (token.clone(), there.clone());
                move || {
                    there.recv().unwrap();
                    token.cancel();
                }
            });
            assert!(Scope::builder().token(token.clone()).run(|_| waiter(here.clone())()).is_err());
            cancelled.join().unwrap();
        }
    });
}

// What the documentation of `is_cancellation` recommends.
#[test]
fn a_cancellation_that_was_caught_can_be_passed_on_with_resume_unwind() {
    beside_neighbours(|| {
        let ended = Arc::new(AtomicUsize::new(0));
        let (begun, has_begun) = unbounded();
        let fiber = fibra::spawn({
            let ended = ended.clone();
            move || {
                let _outer = WaitsAndCounts(&ended);
                let payload = catch_unwind(AssertUnwindSafe(|| {
                    let _inner = WaitsAndCounts(&ended);
                    begun.send(()).unwrap();
                    fibra::sleep(LONG)
                }))
                .unwrap_err();
                assert!(fibra::is_cancellation(&*payload));
                fibra::shield(|| fibra::sleep(Duration::from_millis(1)));
                resume_unwind(payload)
            }
        });
        has_begun.recv().unwrap();
        fiber.cancel();
        assert!(fiber.join().unwrap_err().is_cancelled());
        assert_eq!(ended.load(SeqCst), 2, "both destructors were left to finish");
        // The same for the cancellation of a scope.
        let result: Result<(), _> = fibra::timeout(SHORT, || {
            let _outer = WaitsAndCounts(&ended);
            let payload = catch_unwind(AssertUnwindSafe(|| fibra::sleep(LONG))).unwrap_err();
            fibra::shield(|| fibra::sleep(Duration::from_millis(1)));
            resume_unwind(payload)
        });
        assert!(result.is_err());
        assert_eq!(ended.load(SeqCst), 3);
    });
}

// The same if it is only then that a neighbour comes to wait in a destructor.
#[test]
fn a_cancellation_can_be_passed_on_when_a_neighbour_has_begun_to_unwind_meanwhile() {
    let _watchdog = support::watchdog(60);
    let rt = Runtime::builder().workers(1).build().unwrap();
    rt.run(|| {
        for how in [Neighbour::Panicked, Neighbour::Cancelled] {
            let ended = AtomicUsize::new(0);
            let mut parked = None;
            let result: Result<(), _> = fibra::timeout(SHORT, || {
                let _waits = WaitsAndCounts(&ended);
                let payload = catch_unwind(AssertUnwindSafe(|| fibra::sleep(LONG))).unwrap_err();
                parked = Some(fibra::shield(|| Parked::new(how)));
                resume_unwind(payload)
            });
            assert!(result.is_err());
            assert_eq!(ended.load(SeqCst), 1);
            parked.unwrap().go_on();
        }
    });
}

// Libraries pass on what a thread of theirs panicked with; no hook is called for that.
#[test]
fn a_cancelled_fiber_that_passes_a_foreign_panic_on_is_not_unwound_twice() {
    beside_neighbours(|| {
        let ended = AtomicUsize::new(0);
        let (tx, rx) = rendezvous();
        fibra::scope(|s| {
            let child = s.spawn(|| {
                let _waits = WaitsAndCounts(&ended);
                fibra::shield(|| rx.recv().and_then(|()| rx.recv())).unwrap();
                resume_unwind(Box::new("a foreign one"))
            });
            tx.send(()).unwrap();
            s.cancel();
            tx.send(()).unwrap();
            let joined: Result<(), _> = child.join();
            assert_eq!(joined.unwrap_err().message(), "a foreign one");
        });
        assert_eq!(ended.load(SeqCst), 1);
    });
}

/// In its destructor: catches a panic, and then waits, on a fiber that is cancelled.
struct CatchesInDrop<'a>(&'a AtomicUsize);

impl Drop for CatchesInDrop<'_> {
    fn drop(&mut self) {
        catch_a_panic();
        fibra::sleep(Duration::from_millis(1));
        let _nested = catch_unwind(AssertUnwindSafe(|| {
            let _waits = WaitsAndCounts(self.0);
            panic!("a second one, on top of the first");
        }));
        fibra::sleep(Duration::from_millis(1));
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_panic_caught_inside_a_destructor_does_not_end_the_unwinding_around() {
    beside_neighbours(|| {
        let ended = AtomicUsize::new(0);
        let cancelled = fibra::timeout(SHORT, || {
            let _catches = CatchesInDrop(&ended);
            fibra::sleep(LONG);
        });
        assert!(cancelled.is_err());
        assert_eq!(ended.load(SeqCst), 2);
        let (tx, rx) = rendezvous();
        fibra::scope(|s| {
            let child = s.spawn(|| {
                let _catches = CatchesInDrop(&ended);
                fibra::shield(|| rx.recv().and_then(|()| rx.recv())).unwrap();
                panic!("its own");
            });
            tx.send(()).unwrap();
            s.cancel();
            tx.send(()).unwrap();
            let joined: Result<(), _> = child.join();
            assert_eq!(joined.unwrap_err().message(), "its own");
        });
        assert_eq!(ended.load(SeqCst), 4);
    });
}

/// In its destructor: a scope of its own, which times out though a panic was caught in it.
struct ScopeInDrop<'a>(&'a AtomicBool);

impl Drop for ScopeInDrop<'_> {
    fn drop(&mut self) {
        let ended = fibra::timeout(SHORT, || {
            catch_a_panic();
            fibra::sleep(LONG);
        });
        let again = fibra::timeout(SHORT, || {
            catch_what_was_passed_on();
            let _waits = WaitsAndCounts(&AtomicUsize::new(0));
            fibra::sleep(LONG);
        });
        self.0.store(ended.is_err() && again.is_err(), SeqCst);
    }
}

#[test]
fn a_scope_that_a_destructor_opens_times_out_after_a_caught_panic() {
    beside_neighbours(|| {
        let timed_out = AtomicBool::new(false);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _scope = ScopeInDrop(&timed_out);
            panic!("its own");
        }));
        assert!(caught.is_err());
        assert!(timed_out.load(SeqCst));
    });
}

#[test]
fn a_scope_that_a_destructor_opens_on_a_thread_times_out_after_a_caught_panic() {
    let _watchdog = support::watchdog(60);
    let rt = Runtime::builder().workers(1).build().unwrap();
    let _entered = rt.handle().enter();
    let timed_out = AtomicBool::new(false);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _scope = ScopeInDrop(&timed_out);
        panic!("the thread's own");
    }));
    assert!(caught.is_err());
    assert!(timed_out.load(SeqCst));
}

/// In its destructor: a runtime, whose fibers do not unwind only because the thread below does.
struct RuntimeInDrop<'a>(&'a AtomicUsize);

impl Drop for RuntimeInDrop<'_> {
    fn drop(&mut self) {
        let rt = Runtime::current_thread().unwrap();
        rt.run(|| {
            let mut parked = Parked::new(Neighbour::Cancelled);
            let ended = fibra::timeout(SHORT, || {
                catch_a_panic();
                let _waits = WaitsAndCounts(self.0);
                fibra::sleep(LONG);
            });
            assert!(ended.is_err());
            parked.go_on();
        });
    }
}

#[test]
fn a_runtime_inside_a_destructor_cancels_as_usual() {
    let _watchdog = support::watchdog(60);
    let ended = AtomicUsize::new(0);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _runtime = RuntimeInDrop(&ended);
        panic!("the thread's own");
    }));
    assert!(caught.is_err());
    assert_eq!(ended.load(SeqCst), 1);
}

#[test]
fn a_handle_dropped_after_a_caught_panic_closes_its_channel_in_order() {
    beside_neighbours(|| {
        catch_a_panic();
        let (tx, rx) = unbounded::<()>();
        drop(tx);
        assert!(matches!(rx.closed(), CloseReason::Dropped), "{:?}", rx.closed());
        let (tx, rx) = unbounded::<()>();
        let caught = catch_unwind(AssertUnwindSafe(move || {
            let _tx = tx;
            resume_unwind(Box::new("on its way"));
        }));
        assert!(caught.is_err());
        assert!(matches!(rx.closed(), CloseReason::Panicked { .. }), "{:?}", rx.closed());
    });
}

#[test]
fn a_selected_operation_that_is_forgotten_is_reported() {
    beside_neighbours(|| {
        let (tx, rx) = unbounded();
        tx.send(1).unwrap();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let mut select = Select::new();
            select.recv(&rx);
            drop(select.select());
        }));
        assert!(caught.is_err(), "dropped without completing it, and no caller was told");
    });
}
