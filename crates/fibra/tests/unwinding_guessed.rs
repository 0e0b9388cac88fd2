//! Where std's count of panics is not found, fibra guesses who unwinds, and rather too often: nothing aborts, and a fiber without a panic
//! of its own is cancelled as usual. A process of its own, because the count is hidden for the whole process.
#![cfg(not(any(loom, shuttle)))]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use fibra::Runtime;
use unwinding::{LONG, Neighbour, Parked, SHORT, WaitsAndCounts};

#[path = "support/mod.rs"]
mod support;
#[path = "support/unwinding.rs"]
mod unwinding;

const NEIGHBOURS: [Neighbour; 2] = [Neighbour::Panicked, Neighbour::Cancelled];

fn run(test: impl FnOnce() + Send) {
    let _watchdog = support::watchdog(60);
    fibra::__private::guess_unwinding();
    Runtime::builder().workers(1).build().unwrap().run(test);
}

#[test]
fn a_cancellation_that_was_caught_can_be_passed_on() {
    run(|| {
        for how in NEIGHBOURS {
            let ended = AtomicUsize::new(0);
            let mut parked = None;
            let result: Result<(), _> = fibra::timeout(SHORT, || {
                let _waits = WaitsAndCounts(&ended);
                let payload = catch_unwind(AssertUnwindSafe(|| fibra::sleep(LONG))).unwrap_err();
                // From here on the count, if it were known, would say that this fiber does not unwind.
                parked = Some(fibra::shield(|| Parked::new(how)));
                resume_unwind(payload)
            });
            assert!(result.is_err());
            assert_eq!(ended.load(SeqCst), 1);
            parked.unwrap().go_on();
        }
    });
}

#[test]
fn a_cancelled_fiber_that_panics_is_not_unwound_twice() {
    run(|| {
        for how in NEIGHBOURS {
            let mut parked = Parked::new(how);
            let ended = AtomicUsize::new(0);
            let caught: Result<(), _> = catch_unwind(AssertUnwindSafe(|| {
                fibra::scope(|s| {
                    let _waits = WaitsAndCounts(&ended);
                    s.token().cancel();
                    panic!("its own");
                })
            }));
            assert!(caught.is_err());
            assert_eq!(ended.load(SeqCst), 1);
            parked.go_on();
        }
    });
}

#[test]
fn a_fiber_without_a_panic_of_its_own_is_cancelled_as_usual() {
    run(|| {
        for how in NEIGHBOURS {
            let mut parked = Parked::new(how);
            assert!(fibra::timeout(SHORT, || fibra::sleep(LONG)).is_err());
            let sleeper = fibra::spawn(|| fibra::sleep(LONG));
            fibra::yield_now();
            sleeper.cancel();
            assert!(sleeper.join().unwrap_err().is_cancelled());
            parked.go_on();
        }
    });
}

#[test]
fn a_caught_panic_is_forgotten_when_the_neighbour_has_gone_on() {
    run(|| {
        for how in NEIGHBOURS {
            let mut parked = Parked::new(how);
            assert!(catch_unwind(|| panic!("caught at once")).is_err());
            // Held off, if need be; but not for good.
            let _ = fibra::timeout(SHORT, || fibra::sleep(Duration::from_millis(20)));
            parked.go_on();
            assert!(fibra::timeout(SHORT, || fibra::sleep(LONG)).is_err());
        }
    });
}
