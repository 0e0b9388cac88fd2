//! Models of waiters that are no fibers: a thread that waits as `ThreadRecord::wait` does, an async wait as
//! `scope::join::JoinFuture` does it.

use std::sync::Arc as StdArc;
use std::task::{Wake, Waker};

use super::super::word::{ARM_FIRST, Word};
use super::*;
use crate::prim::atomic::{AtomicU32, Ordering};
use crate::prim::cell::UnsafeCell;
use crate::prim::model::{check, thread};
use crate::prim::sync::Arc;

/// A record for the rest of the model, RUNNING.
pub(crate) fn thread_record() -> &'static ThreadRecord {
    ThreadRecord::leaked()
}

/// [`complete_with`] for waiters that are no fibers.
pub(crate) fn complete(waiter: WaiterRef, ticket: Ticket) -> Option<Waker> {
    complete_with(waiter, ticket, ARM_FIRST, |_| unreachable!("no fiber here"))
}

/// What a thread waits for: the ticket of whoever waits, or that it has happened; and something that the event wrote.
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
    fn publish(&self, waiter: WaiterRef, ticket: Ticket) -> bool {
        let mut state = self.state.lock();
        if !state.1 {
            state.0 = Some((waiter, ticket));
        }
        !state.1
    }

    fn happen(&self) {
        // SAFETY: only the one who makes it happen writes, before he tells; that is what the model checks.
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
            let ended =
                record.wait(|waiter, ticket| event.publish(waiter, ticket), || (), || None, ARM_REVOCABLE, || true);
            assert_ne!(ended, ThreadWait::TimedOut);
            assert_eq!(event.read(), 7);
        }
        owner.join().unwrap();
        assert_eq!(record.waiter.word.snapshot().state(), State::Running);
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
        let now = || Some(Duration::ZERO);
        let ended = record.wait(
            |waiter, ticket| event.publish(waiter, ticket),
            || event.state.lock().0 = None,
            now,
            ARM_REVOCABLE,
            || true,
        );
        if ended == ThreadWait::TimedOut {
            // Then it is waited for once more, without a limit.
            let ended =
                record.wait(|waiter, ticket| event.publish(waiter, ticket), || (), || None, ARM_REVOCABLE, || true);
            assert_ne!(ended, ThreadWait::TimedOut);
        }
        assert_eq!(event.read(), 7);
        owner.join().unwrap();
        assert_eq!(record.waiter.word.snapshot().state(), State::Running);
    });
}

// A call that belongs to an earlier wait, or to none: the thread looks at its word and sleeps on.
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
        let ended = record.wait(|waiter, ticket| event.publish(waiter, ticket), || (), || None, ARM_REVOCABLE, || true);
        assert_ne!(ended, ThreadWait::TimedOut);
        assert_eq!(event.read(), 7);
        owner.join().unwrap();
        spurious.join().unwrap();
    });
}

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
        let waker = claimed.and_then(|claimed| claimed.go_with(|_| unreachable!("no fiber here")));
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// `JoinFuture::poll` up to the point where the wait is published. True: pending.
fn poll(source: &Source, record: &'static TaskRecord, calls: &StdArc<Calls>) -> bool {
    record.set_waker(Some(Waker::from(calls.clone())));
    let ticket = record.begin();
    let mut state = source.state.lock();
    let ended = state.1;
    if !ended {
        state.0 = Some((record.waiter_ref(), ticket));
    }
    drop(state);
    if ended {
        assert!(record.waiter.word.abort_park(), "nobody knows of a wait that was not published");
        return false;
    }
    match record.waiter.word.commit_park() {
        Commit::Parked => true,
        Commit::Requeue => {
            withdraw(source, record);
            false
        }
    }
}

/// `JoinFuture::withdraw`. True if nobody had completed the wait.
fn withdraw(source: &Source, record: &'static TaskRecord) -> bool {
    let word: &Word = &record.waiter.word;
    let taken_back = word.take_back();
    if !taken_back {
        while word.snapshot().is_claimed() && !seeded_bug("withdraw_impatient") {
            thread::yield_now();
        }
        word.resume();
    }
    source.state.lock().0 = None;
    taken_back
}

fn task_record() -> &'static TaskRecord {
    let record: &'static TaskRecord = Box::leak(Box::new(TaskRecord::new()));
    record.waiter.word.adopt();
    record
}

fn finishing(source: &Arc<Source>) -> thread::JoinHandle<()> {
    let source = source.clone();
    thread::spawn(move || source.finish())
}

// A future that is dropped while its wait is completed: the record is free afterwards, and nobody touches it but by a stale ticket.
#[test]
fn model_task_dropped_against_claim() {
    check(3, || {
        let (source, record, calls) = (Arc::new(Source::default()), task_record(), StdArc::default());
        let owner = finishing(&source);
        if poll(&source, record, &calls) {
            withdraw(&source, record);
        }
        // `give`, and its next user.
        let next = StdArc::<Calls>::default();
        record.set_waker(None);
        record.waiter.word.recycle();
        record.waiter.word.adopt();
        record.set_waker(Some(Waker::from(next.clone())));
        let ticket = record.begin();
        assert_eq!(record.waiter.word.commit_park(), Commit::Parked);
        owner.join().unwrap();
        let now = record.waiter.word.snapshot();
        assert_eq!(
            (now.state(), now.is_claimed(), now.ticket()),
            (State::Parked, false, ticket),
            "somebody else's wake"
        );
        assert!(record.waker.lock().is_some(), "its waker was taken for somebody else's wake");
        assert_eq!(next.0.load(Ordering::Relaxed), 0, "woken for somebody else");
    });
}

// A future that is polled again while its wait is completed: either the second poll sees the end, or its waker is called.
#[test]
fn model_task_polled_again_against_claim() {
    check(3, || {
        let (source, record, calls) = (Arc::new(Source::default()), task_record(), StdArc::<Calls>::default());
        let owner = finishing(&source);
        let mut pending = poll(&source, record, &calls);
        if pending {
            withdraw(&source, record);
            pending = poll(&source, record, &calls);
        }
        owner.join().unwrap();
        let called = calls.0.load(Ordering::Relaxed);
        assert!(!pending || called > 0, "a wake was lost");
        assert!(called <= 2);
    });
}

// Cancellation against a thread's wait: it is ended by one of the two, never slept through, and the next wait is disturbed by neither.
#[test]
fn model_thread_cancelled_against_claim() {
    check(3, || {
        let record = thread_record();
        let event = Arc::new(Event::default());
        let canceller = thread::spawn(move || ThreadRecord::cancel(record.waiter_ref()));
        let owner = {
            let event = event.clone();
            thread::spawn(move || event.happen())
        };
        let unpublish = || event.state.lock().0 = None;
        let ended =
            record.wait(|waiter, ticket| event.publish(waiter, ticket), unpublish, || None, ARM_REVOCABLE, || true);
        if ended == ThreadWait::Cancelled {
            // It stays cancelled: only a binding wait is left to it.
            let ended =
                record.wait(|waiter, ticket| event.publish(waiter, ticket), || (), || None, ARM_BINDING, || true);
            assert!(matches!(ended, ThreadWait::NotParked | ThreadWait::Completed(_)), "{ended:?}");
        }
        assert_eq!(event.read(), 7);
        owner.join().unwrap();
        canceller.join().unwrap();
        assert_eq!(record.waiter.word.snapshot().state(), State::Running);
    });
}

// Nothing but the cancellation ends the wait: it must see it.
#[test]
fn model_thread_cancellation_is_not_slept_through() {
    check(3, || {
        let record = thread_record();
        let event = Event::default();
        let canceller = thread::spawn(move || ThreadRecord::cancel(record.waiter_ref()));
        let unpublish = || event.state.lock().0 = None;
        let ended =
            record.wait(|waiter, ticket| event.publish(waiter, ticket), unpublish, || None, ARM_REVOCABLE, || true);
        assert_eq!(ended, ThreadWait::Cancelled);
        canceller.join().unwrap();
    });
}
