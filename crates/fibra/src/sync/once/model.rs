//! Models of `Once`: the work is done by one of several callers, and by the next if that one fails.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::prim::model::{check, thread};
use crate::prim::sync::Arc;
use crate::sync::OnceLock;
use crate::wait::park;

// Three callers ask at once: one makes it, all see it.
#[test]
fn model_once_made_once() {
    check(2, || {
        let value = Arc::new(OnceLock::new());
        let others: Vec<_> = (1..3)
            .map(|number| {
                let value = value.clone();
                thread::spawn(move || *value.get_or_init(|| number))
            })
            .collect();
        let here = *value.get_or_init(|| 3);
        assert!(others.into_iter().all(|other| other.join().unwrap() == here));
    });
}

// The caller that makes it fails: the waiter does it instead.
#[test]
fn model_once_failure_is_followed() {
    check(3, || {
        let value = Arc::new(OnceLock::new());
        let other = {
            let value = value.clone();
            thread::spawn(move || value.get_or_try_init(|| Err::<u32, ()>(())).copied())
        };
        assert_eq!(value.get_or_init(|| 5), &5);
        assert!(matches!(other.join().unwrap(), Ok(5) | Err(())));
    });
}

// A waiter is cancelled, against the failure that hands the work over to it: the next caller finds it made, or makes it.
#[test]
fn model_once_waiter_cancelled() {
    check(2, || {
        let value = Arc::new(OnceLock::new());
        std::mem::forget(value.once().begin());
        let me = park::me();
        let canceller = thread::spawn(move || park::cancel(me));
        let failing = {
            let value = value.clone();
            thread::spawn(move || value.once().end(super::RUNNING.wrapping_neg()))
        };
        let _ = catch_unwind(AssertUnwindSafe(|| value.get_or_init(|| 7)));
        failing.join().unwrap();
        canceller.join().unwrap();
        let next = thread::spawn(move || *value.get_or_init(|| 7));
        assert_eq!(next.join().unwrap(), 7);
    });
}

// Callers that only wait are told when it is done.
#[test]
fn model_once_wait() {
    check(3, || {
        let value = Arc::new(OnceLock::new());
        let other = {
            let value = value.clone();
            thread::spawn(move || *value.wait())
        };
        assert_eq!(value.set(4), Ok(()));
        assert_eq!(other.join().unwrap(), 4);
    });
}
