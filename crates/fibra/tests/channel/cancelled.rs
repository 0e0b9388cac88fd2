//! Channel operations that end otherwise than by their partner: cancellation, and wakes that mean nothing. Exactly one of match, close,
//! timeout and cancellation ends a wait, and no value is lost between them.
#![allow(clippy::disallowed_types)] // Shared state of the tests.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::channels::{Ledger, Tracked, alone, until_parked};
use crate::support::watchdog;
use crate::tools::turns;
use fibra::channel::{Receiver, Sender, bounded, rendezvous};

type Ends<T> = (Sender<T>, Receiver<T>);

// C-25, S1-81: cancelled before its partner came, a send was not delivered; and the next one is.
#[test]
fn a_cancelled_send_was_not_delivered() {
    let _watchdog = watchdog(60);
    for (kind, capacity) in [(rendezvous as fn() -> Ends<Tracked>, 0), (|| bounded(1), 1)] {
        let ledger = Ledger::new(10);
        alone(|| {
            let (tx, rx) = kind();
            (0..capacity).for_each(|_| tx.try_send(ledger.value()).unwrap());
            let send = |tx: Sender<Tracked>, value: Tracked| fibra::spawn_local(move || tx.send(value).unwrap());
            let cancelled = send(tx.clone(), ledger.value());
            until_parked(1);
            let other = send(tx.clone(), ledger.value());
            until_parked(2);
            let refused = capacity;
            cancelled.cancel();
            assert!(cancelled.join().unwrap_err().is_cancelled());
            assert_eq!(ledger.dropped(), 1, "its destructor ran");
            let numbers: Vec<usize> = (0..capacity + 1).map(|_| rx.recv().unwrap().number()).collect();
            assert!(!numbers.contains(&refused), "{numbers:?}");
            other.join().unwrap();
        });
        ledger.check_drops();
    }
}

// C-25, S1-81: once its partner has come, it is delivered, and cancellation waits for the next point.
#[test]
fn a_committed_operation_is_not_cancelled() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = rendezvous();
        let answered = Arc::new(AtomicBool::new(false));
        let fiber = fibra::spawn_local({
            let answered = answered.clone();
            move || {
                tx.send(7).unwrap();
                answered.store(true, SeqCst);
                fibra::checkpoint();
                unreachable!("cancelled at the next point");
            }
        });
        until_parked(1);
        assert_eq!(rx.try_recv(), Ok(7));
        fiber.cancel();
        assert!(fiber.join().unwrap_err().is_cancelled());
        assert!(answered.load(SeqCst));

        let (tx, rx) = rendezvous();
        let got = Arc::new(Mutex::new(None));
        let fiber = fibra::spawn_local({
            let got = got.clone();
            move || {
                *got.lock().unwrap() = rx.recv().ok();
                fibra::checkpoint();
            }
        });
        until_parked(1);
        tx.try_send(7).unwrap();
        fiber.cancel();
        assert!(fiber.join().unwrap_err().is_cancelled());
        assert_eq!(*got.lock().unwrap(), Some(7));
    });
}

// A cancelled receiver takes nothing, and does not stand in the way of the next one.
#[test]
fn a_cancelled_receive_takes_nothing() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = rendezvous();
        let recv = |rx: Receiver<u32>| fibra::spawn_local(move || rx.recv().unwrap());
        let (cancelled, other) = (recv(rx.clone()), recv(rx.clone()));
        until_parked(2);
        cancelled.cancel();
        assert!(cancelled.join().unwrap_err().is_cancelled());
        tx.try_send(7).unwrap();
        assert_eq!(other.join().unwrap(), 7);
    });
}

// S1-77: a thread that is unparked for nothing goes on waiting, in its place; the values come once each.
#[test]
fn unparking_a_waiting_thread_does_no_harm() {
    let _watchdog = watchdog(60);
    let (tx, rx) = rendezvous();
    let done = Arc::new(AtomicBool::new(false));
    let receiver = std::thread::spawn(move || rx.iter().collect::<Vec<u32>>());
    let unparker = std::thread::spawn({
        let (done, thread) = (done.clone(), receiver.thread().clone());
        move || {
            while !done.load(SeqCst) {
                thread.unpark();
                std::thread::yield_now();
            }
        }
    });
    let count = turns(5_000) as u32;
    (0..count).for_each(|value| tx.send(value).unwrap());
    drop(tx);
    assert_eq!(receiver.join().unwrap(), (0..count).collect::<Vec<_>>());
    done.store(true, SeqCst);
    unparker.join().unwrap();
}

// A timed form that need not wait is a point of cancellation all the same, and takes or sends nothing then.
#[test]
fn timed_forms_that_need_not_wait_are_points_of_cancellation() {
    let _watchdog = watchdog(60);
    let later = || Instant::now() + Duration::from_secs(3600);
    type Call = fn(&Sender<u32>, &Receiver<u32>, Instant);
    let calls: [Call; 4] = [
        |_, rx, _| _ = rx.recv_timeout(Duration::from_secs(3600)),
        |_, rx, later| _ = rx.recv_deadline(later),
        |tx, _, _| _ = tx.send_timeout(2, Duration::from_secs(3600)),
        |tx, _, later| _ = tx.send_deadline(2, later),
    ];
    let rt = fibra::Runtime::builder().workers(2).build().unwrap();
    for (number, call) in calls.into_iter().enumerate() {
        let (tx, rx) = bounded(2);
        tx.send(1).unwrap();
        let (sender, receiver, later) = (tx.clone(), rx.clone(), later());
        let begun = Arc::new(AtomicBool::new(false));
        let fiber = rt.spawn({
            let begun = begun.clone();
            move || {
                begun.store(true, SeqCst);
                while !fibra::is_cancelled() {
                    std::hint::spin_loop();
                }
                call(&sender, &receiver, later);
            }
        });
        while !begun.load(SeqCst) {
            std::thread::yield_now();
        }
        fiber.cancel();
        assert!(fiber.join().is_err_and(|error| error.is_cancelled()), "call {number} went on");
        assert_eq!((rx.len(), rx.try_recv()), (1, Ok(1)), "call {number}");
    }
}
