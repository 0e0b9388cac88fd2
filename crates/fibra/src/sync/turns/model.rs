//! Models of events, barriers and groups: no waiter is left behind, and no participant is counted that has gone.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::prim::model::{check, thread};
use crate::prim::sync::Arc;
use crate::sync::{Barrier, Event, WaitGroup};
use crate::wait::park::{self, Waitable};
use crate::waiter::node::Outcome;

// Setting against two waiters: both go.
#[test]
fn model_event_set_against_wait() {
    check(2, || {
        let event = Arc::new(Event::new());
        let others: Vec<_> = (0..2)
            .map(|_| {
                let event = event.clone();
                thread::spawn(move || event.wait())
            })
            .collect();
        event.set();
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

// A waiter that waits already goes, however soon the event is reset; so does one that has looked, and has not queued yet.
#[test]
fn model_event_reset_leaves_no_waiter_behind() {
    check(3, || {
        let event = Arc::new(Event::new());
        let mut waiting = pin!(event.wait_async());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        let looked = event.waiting();
        let other = {
            let event = event.clone();
            thread::spawn(move || {
                event.set();
                event.reset();
            })
        };
        let polled = waiting.as_mut().poll(&mut cx);
        other.join().unwrap();
        assert!(polled.is_ready() || waiting.as_mut().poll(&mut cx) == Poll::Ready(()));
        assert!(looked.wait.try_now() == Outcome::Done, "it was set since");
    });
}

// Cancelled against set: one of the two ends the wait, and the event works on.
#[test]
fn model_event_cancelled_against_set() {
    check(2, || {
        let event = Arc::new(Event::new());
        let me = park::me();
        let canceller = thread::spawn(move || park::cancel(me));
        let setter = {
            let event = event.clone();
            thread::spawn(move || event.set())
        };
        let _ = catch_unwind(AssertUnwindSafe(|| event.wait()));
        setter.join().unwrap();
        canceller.join().unwrap();
        assert!(event.is_set());
        event.reset();
        assert!(!event.is_set());
    });
}

// Two participants at a barrier of two, which do not wait for long: they meet, or both know that they have not.
#[test]
fn model_barrier_giving_up() {
    check(3, || {
        let barrier = Arc::new(Barrier::new(2));
        let other = {
            let barrier = barrier.clone();
            thread::spawn(move || barrier.wait_timeout(Duration::ZERO))
        };
        let here = barrier.wait_timeout(Duration::ZERO);
        match (here, other.join().unwrap()) {
            (None, None) => {}
            (Some(here), Some(there)) => assert!(here.is_leader() != there.is_leader()),
            other => panic!("only one of them has met the other: {other:?}"),
        }
    });
}

// The last of two that are done lets the waiters go.
#[test]
fn model_wait_group() {
    check(2, || {
        let group = WaitGroup::new();
        group.add(1);
        let (handle, numbers) = (group.clone(), Arc::new(group));
        let one = thread::spawn(move || drop(handle));
        let two = {
            let numbers = numbers.clone();
            thread::spawn(move || numbers.done())
        };
        numbers.wait();
        assert!(numbers.is_done());
        one.join().unwrap();
        two.join().unwrap();
    });
}
