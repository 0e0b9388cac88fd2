//! Models of a thread that waits: the wait of `park.rs` with the parker of `waiter::record`.

// Models of lower layers use the re-exports below, too.
use super::super::word::ARM_FIRST;
use crate::prim::cell::UnsafeCell;
use crate::prim::model::{check, thread};
use crate::prim::sync::Arc;
pub(crate) use crate::wait::park::{Outcome, cancel, wait_with};
pub(crate) use crate::wait::reason::WaitReason;
use crate::waiter::record::*;

/// A record for the rest of the model, RUNNING.
pub(crate) fn thread_record() -> &'static ThreadRecord {
    ThreadRecord::leaked()
}

/// [`complete_with`] for waiters that are no fibers.
pub(crate) fn complete(waiter: WaiterRef, ticket: Ticket) -> Option<Waker> {
    complete_with(waiter, ticket, ARM_FIRST, |_| unreachable!("no fiber here"))
}

/// The event a thread waits for: the ticket of the waiter, whether the event has happened, and a value that the event wrote.
#[derive(Default)]
struct Event {
    state: Mutex<(Option<(WaiterRef, Ticket)>, bool)>,
    written: UnsafeCell<u32>,
}

// SAFETY: the cell is guarded by the protocol under test; loom checks it.
unsafe impl Sync for Event {}
// SAFETY: as above.
unsafe impl Send for Event {}

impl Event {
    fn publish(&self, node: &Node) -> bool {
        let (waiter, ticket, _) = node.target();
        let mut state = self.state.lock();
        if !state.1 {
            state.0 = Some((waiter, ticket));
        }
        !state.1
    }

    fn wait(&self, record: &'static ThreadRecord, reason: WaitReason, deadline: Option<u64>) -> Outcome {
        wait_with(record, |node| self.publish(node), |_| self.state.lock().0 = None, reason, deadline)
    }

    fn happen(&self) {
        // SAFETY: only the thread that makes the event happen writes, and it writes before it wakes; that is what the model checks.
        self.written.with_mut(|written| unsafe { *written = 7 });
        let mut state = self.state.lock();
        state.1 = true;
        let waiter = state.0.take();
        drop(state);
        if let Some((waiter, ticket)) = waiter {
            assert!(complete(waiter, ticket).is_none(), "a thread has no waker");
        }
    }

    fn read(&self) -> u32 {
        // SAFETY: it has happened.
        self.written.with(|written| unsafe { *written })
    }
}

// A thread that waits without a deadline; the wake is not lost, whenever it comes, twice in a row with the same record.
#[test]
fn model_thread_is_woken() {
    check(3, || {
        let record = thread_record();
        let events = [Arc::new(Event::default()), Arc::new(Event::default())];
        let owner = {
            let events = events.clone();
            thread::spawn(move || events.iter().for_each(|event| event.happen()))
        };
        for event in &events {
            assert_ne!(event.wait(record, WaitReason::Join, None), Outcome::TimedOut);
            assert_eq!(event.read(), 7);
        }
        owner.join().unwrap();
        assert_eq!(record.waiter.word.snapshot().state(), WaiterState::Running);
    });
}

// Time is up at once, while the event happens: one of the two ends the wait, and the next wait is not disturbed by a late call.
#[test]
fn model_thread_timeout_against_claim() {
    check(3, || {
        let record = thread_record();
        let event = Arc::new(Event::default());
        let owner = {
            let event = event.clone();
            thread::spawn(move || event.happen())
        };
        if event.wait(record, WaitReason::Join, Some(1)) == Outcome::TimedOut {
            // If the time was up first, the event is waited for once more, without a limit.
            assert_ne!(event.wait(record, WaitReason::Join, None), Outcome::TimedOut);
        }
        assert_eq!(event.read(), 7);
        owner.join().unwrap();
        assert_eq!(record.waiter.word.snapshot().state(), WaiterState::Running);
    });
}

// A call that belongs to an earlier wait, or to none: the thread looks at its word and goes on sleeping.
#[test]
fn model_thread_spurious_call() {
    check(3, || {
        let record = thread_record();
        let event = Arc::new(Event::default());
        let spurious = thread::spawn(move || record.call());
        let owner = {
            let event = event.clone();
            thread::spawn(move || event.happen())
        };
        assert_ne!(event.wait(record, WaitReason::Join, None), Outcome::TimedOut);
        assert_eq!(event.read(), 7);
        owner.join().unwrap();
        spurious.join().unwrap();
    });
}

// Cancellation against a thread's wait: it is ended by one of the two, never slept through, and the next wait is disturbed by neither.
#[test]
fn model_thread_cancelled_against_claim() {
    check(3, || {
        let record = thread_record();
        let event = Arc::new(Event::default());
        let canceller = thread::spawn(move || cancel(record.waiter_ref()));
        let owner = {
            let event = event.clone();
            thread::spawn(move || event.happen())
        };
        let ended = event.wait(record, WaitReason::Join, None);
        if ended == Outcome::Cancelled {
            // The thread stays cancelled: from now on only a binding wait waits.
            let ended = event.wait(record, WaitReason::ScopeEnd, None);
            assert!(matches!(ended, Outcome::Retry | Outcome::Done), "{ended:?}");
        }
        assert_eq!(event.read(), 7);
        owner.join().unwrap();
        canceller.join().unwrap();
        assert_eq!(record.waiter.word.snapshot().state(), WaiterState::Running);
    });
}

// Nothing but the cancellation ends the wait: it must see it.
#[test]
fn model_thread_cancellation_is_not_slept_through() {
    check(3, || {
        let record = thread_record();
        let event = Event::default();
        let canceller = thread::spawn(move || cancel(record.waiter_ref()));
        let ended = event.wait(record, WaitReason::Join, None);
        assert_eq!(ended, Outcome::Cancelled);
        canceller.join().unwrap();
    });
}
