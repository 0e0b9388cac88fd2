//! Models of waits without a node: a thread that polls, as `task::futures::block_on` does it, and wakers that are called at any time.

use std::panic::Location;

use super::super::park::{Manner, Wait, wait_as};
use super::super::reason::WaitReason;
use super::*;
use crate::prim::atomic::{AtomicU32, Ordering};
use crate::prim::model::{check, thread};
use crate::prim::sync::Arc;
use crate::waiter::record::ThreadRecord;
use crate::waiter::record::model::thread_record;
use crate::waiter::revoke;
use crate::waiter::word::WaiterState;

/// A future that is ready once `parts` have arrived, and its waker.
struct World {
    record: &'static ThreadRecord,
    notice: WakerNotice,
    arrived: AtomicU32,
}

impl World {
    fn new() -> Arc<Self> {
        Self::of(thread_record(), WakerNotice::Outer)
    }

    fn of(record: &'static ThreadRecord, notice: WakerNotice) -> Arc<Self> {
        Arc::new(Self { record, notice, arrived: AtomicU32::new(0) })
    }

    /// One part arrives, then the waker is called, as often as it likes. Relaxed: the waker has to order it.
    fn arrive(&self, calls: usize) {
        self.arrived.fetch_add(1, Ordering::Relaxed);
        for _ in 0..calls {
            revoke::raise_notice(self.record.waiter_ref(), self.notice, |_| unreachable!("a thread"));
        }
    }

    /// `block_on`. A plain relaxed load as poll: it is the notification that has to make it see the last part. `during` is the rest of a
    /// poll that finds too little.
    fn block_on(&self, parts: u32, open: &Cell<u32>, during: impl FnMut()) {
        if is_inside(open) {
            self.poll_with(&Polling::<true>::for_waiter(self.record.waiter_ref(), open), parts, during);
        } else {
            self.poll_with(&Polling::<false>::for_waiter(self.record.waiter_ref(), open), parts, during);
        }
    }

    fn poll_with<const INSIDE: bool>(&self, polling: &Polling<'_, INSIDE>, parts: u32, mut during: impl FnMut()) {
        loop {
            polling.begin_poll();
            if self.arrived.load(Ordering::Relaxed) >= parts {
                return;
            }
            during();
            let how = Wait { reason: WaitReason::BlockOn, object: 0, site: Location::caller(), deadline: None };
            assert_ne!(wait_as(self.record, polling, how, Manner::Plain).0, Outcome::TimedOut);
        }
    }
}

/// A future of as many parts as there are wakers, each called `calls` times.
fn run(wakers: usize, calls: usize) {
    let world = World::new();
    let wakers: Vec<_> = (0..wakers)
        .map(|_| {
            let world = world.clone();
            thread::spawn(move || world.arrive(calls))
        })
        .collect();
    world.block_on(wakers.len() as u32, &Cell::new(0), || ());
    for waker in wakers {
        waker.join().unwrap();
    }
    assert_eq!(world.record.waiter_ref().get().word.snapshot().state(), WaiterState::Running);
}

// A future that waits for another one inside its poll: a call of its own waker meanwhile is not lost.
#[test]
fn model_polling_inside_another_poll() {
    check(2, || {
        let outer = World::new();
        let is_inside = is_inside(&Cell::new(1));
        let inner = World::of(outer.record, if is_inside { WakerNotice::Inner } else { WakerNotice::Outer });
        let wakers = [outer.clone(), inner.clone()].map(|world| thread::spawn(move || world.arrive(1)));
        let open = Cell::new(0);
        outer.block_on(1, &open, || inner.block_on(1, &open, || ()));
        for waker in wakers {
            waker.join().unwrap();
        }
        assert_eq!(open.get(), 0);
    });
}

// The same one poll further in, where the two share a flag.
#[test]
fn model_polling_deep_inside() {
    check(2, || {
        let outer = World::of(thread_record(), WakerNotice::Inner);
        let inner = World::of(outer.record, WakerNotice::Inner);
        let wakers = [outer.clone(), inner.clone()].map(|world| thread::spawn(move || world.arrive(1)));
        // There is a polling around them already.
        let open = Cell::new(1);
        outer.block_on(1, &open, || inner.block_on(1, &open, || ()));
        for waker in wakers {
            waker.join().unwrap();
        }
        assert_eq!(open.get(), 1);
    });
}

// S4-30: the call comes before, while or after the sleeper publishes: it is seen.
#[test]
fn model_polling_wake_against_publish() {
    check(3, || run(1, 1));
}

// Called twice in a row: the second call finds the ticket of a sleep that the first has already called off.
#[test]
fn model_polling_called_twice() {
    check(3, || run(1, 2));
}

// Two wakers: the second call is answered by the same poll, or by another.
#[test]
fn model_polling_two_wakers() {
    check(2, || run(2, 1));
}

// More of everything, for random schedules.
#[cfg(not(loom))]
#[test]
fn model_polling_many_wakers() {
    check(0, || run(4, 3));
}
