//! Models of a future's wait, as it ships: published by a poll, taken back by the next one or when the future is dropped.

use std::sync::Arc as StdArc;
use std::task::Wake;

use super::*;
use crate::prim::atomic::{AtomicU32, Ordering};
use crate::prim::model::{check, thread};
use crate::prim::sync::{Arc, Mutex};
use crate::wait::waitable::{Published, linked_or};
use crate::waiter::node::{Node, WaiterRef};
use crate::waiter::record::Claimed;
use crate::waiter::word::{ARM_FIRST, Ticket, WaiterState};

/// A waker that counts its calls.
#[derive(Default)]
struct Calls(AtomicU32);

impl Wake for Calls {
    fn wake(self: StdArc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// An object that async waits are linked to, as joiners are to a frame: under its lock.
#[derive(Default)]
struct Source {
    state: Mutex<(Option<(WaiterRef, Ticket)>, bool)>,
}

impl Source {
    fn finish(&self) {
        let mut state = self.state.lock();
        state.1 = true;
        let waiting = state.0.take();
        // Claimed under the lock, set going without it, as channels do.
        let claimed = waiting.and_then(|(waiter, ticket)| Claimed::of(waiter, ticket, ARM_FIRST));
        drop(state);
        let waker = claimed.and_then(|claimed| claimed.make_runnable_with(|_| unreachable!("no fiber here")));
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Waitable for Source {
    fn publish(&self, node: &Node) -> Published {
        let (waiter, ticket, _) = node.target();
        let mut state = self.state.lock();
        if !state.1 {
            state.0 = Some((waiter, ticket));
        }
        linked_or(!state.1, Outcome::Done)
    }

    fn unpublish(&self, _: &Node, _: &mut Vec<Waker>) {
        self.state.lock().0 = None;
    }
}

/// One poll, up to the point where the wait is published. True: pending.
fn poll(source: &Source, wait: &mut TaskWait, calls: &StdArc<Calls>) -> bool {
    let published = wait.publish(&Waker::from(calls.clone()), source);
    if published == Outcome::Retry {
        withdraw(source, wait);
    }
    published == Outcome::Pending
}

fn withdraw(source: &Source, wait: &mut TaskWait) {
    let _ended = wait.withdraw(source);
}

fn finishing(source: &Arc<Source>) -> thread::JoinHandle<()> {
    let source = source.clone();
    thread::spawn(move || source.finish())
}

// A future that is dropped while its wait is completed: the record is free afterwards, and only stale tickets still name it.
#[test]
fn model_task_dropped_against_claim() {
    check(3, || {
        let (source, mut wait, calls) = (Arc::new(Source::default()), TaskWait::new(), StdArc::default());
        let owner = finishing(&source);
        if !poll(&source, &mut wait, &calls) {
            return owner.join().unwrap();
        }
        let record = wait.record.expect("it is pending");
        withdraw(&source, &mut wait);
        // The record's next user.
        let next = StdArc::<Calls>::default();
        record.waiter().word.adopt();
        record.set_waker(Some(Waker::from(next.clone())));
        let ticket = record.begin();
        assert_eq!(record.waiter().word.commit_park(), Commit::Parked);
        owner.join().unwrap();
        let now = record.waiter().word.snapshot();
        assert_eq!(
            (now.state(), now.is_claimed(), now.ticket()),
            (WaiterState::Parked, false, ticket),
            "the wake of another wait"
        );
        assert!(record.has_waker(), "its waker was taken for the wake of another wait");
        assert_eq!(next.0.load(Ordering::Relaxed), 0, "woken for another wait");
    });
}

// A future that is polled again while its wait is completed: either the second poll sees the end, or its waker is called.
#[test]
fn model_task_polled_again_against_claim() {
    check(3, || {
        let (source, mut wait, calls) = (Arc::new(Source::default()), TaskWait::new(), StdArc::<Calls>::default());
        let owner = finishing(&source);
        let mut pending = poll(&source, &mut wait, &calls);
        if pending {
            withdraw(&source, &mut wait);
            pending = poll(&source, &mut wait, &calls);
        }
        owner.join().unwrap();
        let called = calls.0.load(Ordering::Relaxed);
        assert!(!pending || called > 0, "a wake was lost");
        assert!(called <= 2);
    });
}
