//! `oneshot`: the value arrives once, or comes back, or the end is told; in every context, and whichever side goes first.
#![allow(clippy::disallowed_types)] // Logs of the tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support;
use fibra::channel::{self, RecvError, RecvTimeoutError, TryRecvError};

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn fibers_threads_and_futures_meet() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        for way in 0..9 {
            let (tx, rx) = channel::oneshot();
            let send = move || tx.send(way).unwrap();
            match way / 3 {
                0 => drop(fibra::spawn(send)),
                1 => drop(std::thread::spawn(send)),
                _ => drop(fibra::spawn_future(async move { send() })),
            }
            let got = match way % 3 {
                0 => rx.recv(),
                1 => fibra::blocking(move || rx.recv()),
                _ => fibra::block_on(rx),
            };
            assert_eq!(got, Ok(way));
        }
    });
}

#[test]
fn each_end_learns_that_the_other_is_gone() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (tx, rx) = channel::oneshot::<u8>();
        let waiting = fibra::spawn(move || rx.recv());
        fibra::yield_now();
        drop(tx);
        assert_eq!(waiting.join().unwrap(), Err(RecvError));

        let (tx, rx) = channel::oneshot::<u8>();
        assert!(!tx.is_closed() && !tx.closed_timeout(Duration::ZERO));
        let waiting = fibra::spawn(move || {
            tx.closed();
            tx.send(1)
        });
        fibra::yield_now();
        drop(rx);
        assert_eq!(waiting.join().unwrap(), Err(1));

        let (tx, rx) = channel::oneshot::<u8>();
        let (closed, ended) = channel::oneshot();
        fibra::spawn_future(async move {
            tx.closed_async().await;
            closed.send(()).unwrap();
        });
        rx.close();
        assert_eq!(ended.recv(), Ok(()));
        assert_eq!(rx.recv(), Err(RecvError));
    });
}

#[test]
fn forms_that_do_not_wait_and_arms() {
    let _watchdog = support::watchdog(60);
    let (tx, rx) = channel::oneshot();
    assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(rx.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
    assert_eq!(rx.recv_deadline(fibra::time::Instant::now()), Err(RecvTimeoutError::Timeout));
    fibra::select! {
        on(rx.receiving()) -> _ => unreachable!("nothing was sent"),
        on(tx.closing()) => unreachable!("the receiver is there"),
        default => {}
    }
    let sender = std::thread::spawn(move || tx.send(5).unwrap());
    let got = fibra::select! {
        on(rx.receiving()) -> got => got,
        after(LONG) => unreachable!("it is sent"),
    };
    assert_eq!(got, Ok(5));
    assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected), "there was one");
    sender.join().unwrap();
    let (tx, rx) = channel::oneshot::<u8>();
    drop(rx);
    fibra::select! {
        on(tx.closing()) => {}
    }
}

/// Counts how many there are.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, SeqCst);
        Self(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

// The ledger: of each value, sent against a receiver that receives, times out, is dropped or is cancelled, there is one owner: the receiver
// has it, or the sender has it back, or it was dropped; none is left over.
#[test]
fn every_value_has_one_owner() {
    let _watchdog = support::watchdog(120);
    let (alive, sent, received) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0), AtomicUsize::new(0));
    let runtime = fibra::Runtime::builder().workers(2).build().unwrap();
    runtime.run(|| {
        fibra::scope(|s| {
            for round in 0..4000 {
                let (tx, rx) = channel::oneshot();
                let value = Counted::new(&alive);
                let receiver = s.spawn({
                    let received = &received;
                    move || {
                        let got = match round % 4 {
                            0 => rx.recv().ok(),
                            1 => rx.recv_timeout(Duration::from_nanos(round)).ok(),
                            2 => fibra::block_on(rx).ok(),
                            _ => None,
                        };
                        received.fetch_add(usize::from(got.is_some()), SeqCst);
                    }
                });
                let sent = &sent;
                s.spawn(move || sent.fetch_add(usize::from(tx.send(value).is_ok()), SeqCst));
                if round % 8 == 4 {
                    receiver.cancel();
                }
            }
        });
    });
    drop(runtime);
    assert_eq!(alive.load(SeqCst), 0, "each was dropped once");
    assert!(received.load(SeqCst) <= sent.load(SeqCst), "what came back was not received");
    assert!(received.load(SeqCst) >= 1000, "those that wait receive");
}
