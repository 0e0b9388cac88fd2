//! Models of waits without a node: a thread that polls, as `scope::task::block_on` does it, and wakers that are called at any time.

use super::super::park::{Ended, wait_with};
use super::super::reason::WaitReason;
use super::super::waker::ThreadRecord;
use super::super::waker::model::{complete, thread_record};
use super::super::word::State;
use super::*;
use crate::prim::atomic::AtomicU32;
use crate::prim::model::{check, thread};
use crate::prim::sync::Arc;

/// A future that is ready once `parts` have arrived, and its waker.
struct World {
    record: &'static ThreadRecord,
    notify: Notify,
    arrived: AtomicU32,
}

impl World {
    fn new() -> Arc<Self> {
        let record = thread_record();
        Arc::new(Self { record, notify: Notify::for_waiter(record.waiter_ref()), arrived: AtomicU32::new(0) })
    }

    /// One part arrives, then the waker is called, as often as it likes. Relaxed: the waker has to order it.
    fn arrive(&self, calls: usize) {
        self.arrived.fetch_add(1, Ordering::Relaxed);
        for _ in 0..calls {
            if let Some(ticket) = self.notify.call() {
                assert!(complete(self.record.waiter_ref(), ticket).is_none());
            }
        }
    }

    /// `block_on`. A plain relaxed load as poll: it is the notification that has to make it see the last part.
    fn block_on(&self, parts: u32) {
        loop {
            self.notify.begin_poll();
            if self.arrived.load(Ordering::Relaxed) >= parts {
                return;
            }
            let publish = |_, ticket| self.notify.publish_ticket(ticket);
            let withdraw = || self.notify.withdraw_ticket();
            let ended = wait_with(self.record, publish, withdraw, WaitReason::BlockOn, None);
            assert_ne!(ended, Ended::TimedOut);
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
    world.block_on(wakers.len() as u32);
    for waker in wakers {
        waker.join().unwrap();
    }
    assert_eq!(world.record.waiter_ref().get().word.snapshot().state(), State::Running);
}

// S4-30: the call comes before, while or after the sleeper publishes: it is seen.
#[test]
fn model_notify_wake_against_publish() {
    check(3, || run(1, 1));
}

// Called twice in a row: the second call finds the ticket of a sleep that the first has already called off.
#[test]
fn model_notify_called_twice() {
    check(3, || run(1, 2));
}

// Two wakers: whoever is second is answered by the same poll, or by another.
#[test]
fn model_notify_two_wakers() {
    check(2, || run(2, 1));
}

// More of everything, for random schedules.
#[cfg(not(loom))]
#[test]
fn model_notify_many_wakers() {
    check(0, || run(4, 3));
}
