//! Models of the gate by itself, with the smallest rules that need all of it: permits, of which a waiter may want several.

use std::panic::Location;

use super::*;
use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::prim::model::{check, thread};
use crate::prim::sync::Arc;
use crate::wait::park;

const WAITING: usize = 1;
const ONE: usize = 2;

struct Permits(AtomicUsize);

impl Permits {
    fn change(&self, f: impl Fn(usize) -> Option<usize>) -> Option<usize> {
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, f).ok()
    }
}

impl Rules for Permits {
    fn grant(&self, want: usize) -> bool {
        self.change(|word| word.checked_sub(want * ONE)).is_some()
    }
    fn revoke(&self, want: usize) {
        self.0.fetch_add(want * ONE, Ordering::AcqRel);
    }
    fn is_grantable(&self, want: usize) -> bool {
        self.0.load(Ordering::Relaxed) / ONE >= want
    }
    fn set_waiting(&self, waiting: bool) {
        self.change(|word| Some(word & !WAITING | usize::from(waiting)));
    }
}

fn gate(permits: usize) -> Arc<Gate<Permits>> {
    Arc::new(Gate::new(Permits(AtomicUsize::new(permits * ONE))))
}

fn acquire(gate: &Gate<Permits>, want: usize, deadline: Option<u64>) -> Outcome {
    if gate.rules().change(|word| if word & WAITING == 0 { word.checked_sub(want * ONE) } else { None }).is_some() {
        return Outcome::Done;
    }
    let (reason, site) = (WaitReason::MutexLock, Location::caller());
    gate.wait_or_cancelled(Ask { want, first: false, reason, object: 0, site, deadline })
}

fn release(gate: &Gate<Permits>, count: usize) {
    if gate.rules().0.fetch_add(count * ONE, Ordering::AcqRel) & WAITING != 0 {
        gate.settle();
    }
}

fn left(gate: &Gate<Permits>) -> usize {
    gate.rules().0.load(Ordering::Acquire)
}

// A waiter that leaves the head of the queue lets the waiters behind it have what there is.
#[test]
fn model_gate_departure_of_the_head() {
    check(3, || {
        let gate = gate(1);
        let other = gate.clone();
        let small = thread::spawn(move || {
            assert_eq!(acquire(&other, 1, None), Outcome::Done);
            release(&other, 1);
        });
        // Two there never are.
        assert_eq!(acquire(&gate, 2, Some(1)), Outcome::TimedOut);
        small.join().unwrap();
        assert_eq!(left(&gate), ONE, "all is back, and the queue is empty");
    });
}

// The same if it is cancelled; and what was granted to it in that moment is its own.
#[test]
fn model_gate_cancel_of_the_head() {
    check(1, || {
        let gate = gate(1);
        let (small_gate, giver_gate, me) = (gate.clone(), gate.clone(), park::me());
        let small = thread::spawn(move || {
            assert_eq!(acquire(&small_gate, 1, None), Outcome::Done);
            release(&small_gate, 1);
        });
        let giver = thread::spawn(move || {
            release(&giver_gate, 1);
            park::cancel(me);
        });
        match acquire(&gate, 2, None) {
            Outcome::Done => release(&gate, 2),
            waited => assert_eq!(waited, Outcome::Cancelled),
        }
        small.join().unwrap();
        giver.join().unwrap();
        assert_eq!(left(&gate), 2 * ONE, "all is back, and the queue is empty");
    });
}

// One release that is enough for two: both go on.
#[test]
fn model_gate_release_for_two() {
    check(2, || {
        let gate = gate(0);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let gate = gate.clone();
                thread::spawn(move || assert_eq!(acquire(&gate, 1, None), Outcome::Done))
            })
            .collect();
        release(&gate, 2);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(left(&gate), 0);
    });
}
