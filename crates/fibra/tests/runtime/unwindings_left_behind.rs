//! A current-thread runtime whose `run` has returned may leave fibers behind on its thread that are parked in destructors. Their
//! unwindings are theirs: neither the thread nor the fibers of another runtime on it are taken for ones that unwind, before or after.

use std::sync::Arc;
use std::time::Duration;

use fibra::Runtime;
use fibra::channel::{CloseReason, Sender, bounded, unbounded};
use fibra::sync::Event;

use crate::support::{is_child, rerun_self, within_a_minute};

const HOUR: Duration = Duration::from_secs(3600);

/// Calls its closure when it goes.
struct Finally<F: FnMut()>(F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A runtime of this thread with a fiber that waits, in a destructor during unwinding, for a message.
fn runtime_with_one_parked() -> (Runtime, Sender<()>) {
    let rt = Runtime::builder().current_thread().build().unwrap();
    let ((tx, rx), parked) = (bounded(1), Arc::new(Event::new()));
    let its_own = parked.clone();
    drop(rt.spawn(move || {
        let _finally = Finally(|| {
            its_own.set();
            assert!(rx.recv().is_ok() || rx.is_closed());
        });
        std::panic::resume_unwind(Box::new("on purpose"))
    }));
    rt.run(|| parked.wait());
    (rt, tx)
}

#[test]
fn the_thread_is_not_taken_for_one_that_unwinds() {
    within_a_minute(|| {
        let (rt, tx) = runtime_with_one_parked();
        let (sender, receiver) = unbounded::<()>();
        drop(sender);
        assert!(matches!(receiver.closed(), CloseReason::Dropped), "{:?}", receiver.closed());
        let other = Runtime::builder().workers(1).build().unwrap();
        let entered = other.handle().enter();
        assert!(fibra::timeout(Duration::from_millis(1), || fibra::sleep(HOUR)).is_err());
        drop(entered);
        tx.send(()).unwrap();
        drop(rt);
        assert!(!std::thread::panicking());
    });
}

// It aborted the process.
#[test]
fn a_fiber_of_another_runtime_is_not_unwound_twice_when_they_have_ended() {
    const NAME: &str = "a_fiber_of_another_runtime_is_not_unwound_twice_when_they_have_ended";
    if !is_child(NAME) {
        let ended = rerun_self(NAME, &[]);
        assert!(ended.status.success(), "{}", ended.stderr);
        return;
    }
    within_a_minute(|| {
        let (rt, tx) = runtime_with_one_parked();
        Runtime::builder().current_thread().build().unwrap().run(|| {
            tx.send(()).unwrap();
            drop(rt);
            assert!(!std::thread::panicking());
            let (parked, go) = (Arc::new(Event::new()), Arc::new(Event::new()));
            let child = fibra::spawn_local({
                let (parked, go) = (parked.clone(), go.clone());
                move || {
                    let _finally = Finally(|| {
                        parked.set();
                        go.wait();
                    });
                    std::panic::resume_unwind(Box::new("its own"))
                }
            });
            parked.wait();
            child.cancel();
            fibra::yield_now();
            go.set();
            assert!(child.join().unwrap_err().is_panic());
        });
    });
}
