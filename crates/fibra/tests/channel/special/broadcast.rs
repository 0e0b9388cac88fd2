//! `broadcast`: every receiver gets every message in order, or is told exactly how many it missed.
#![allow(clippy::disallowed_types)] // Logs of the tests.

use std::time::Duration;

use crate::support;
use fibra::channel::{self, BroadcastError, BroadcastTimeoutError, TryBroadcastError};

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn receivers_lag_and_subscribe() {
    let (tx, rx) = channel::broadcast(3);
    assert_eq!((tx.capacity(), tx.receiver_count()), (3, 1));
    for n in 0..5 {
        assert_eq!(tx.send(n), Ok(1));
    }
    let late = tx.subscribe();
    assert_eq!(rx.len(), 5);
    assert_eq!(rx.try_recv(), Err(TryBroadcastError::Lagged(2)));
    assert_eq!(rx.try_recv(), Ok(2));
    let again = rx.resubscribe();
    assert_eq!((late.try_recv(), again.try_recv()), (Err(TryBroadcastError::Empty), Err(TryBroadcastError::Empty)));
    assert_eq!(tx.send(5), Ok(3));
    assert_eq!((late.recv(), again.recv()), (Ok(5), Ok(5)));
    assert_eq!((rx.recv(), rx.recv(), rx.recv()), (Ok(3), Ok(4), Ok(5)));
    assert_eq!(rx.recv_timeout(Duration::from_millis(1)), Err(BroadcastTimeoutError::Timeout));
    assert_eq!(rx.recv_deadline(fibra::time::Instant::now()), Err(BroadcastTimeoutError::Timeout));
    drop(tx);
    assert_eq!((rx.recv(), late.try_recv()), (Err(BroadcastError::Closed), Err(TryBroadcastError::Closed)));
    let (tx, rx) = channel::broadcast(0);
    drop(rx);
    assert_eq!((tx.send(1).unwrap_err().into_inner(), tx.capacity()), (1, 1));
    assert_eq!(BroadcastError::Lagged(7).to_string(), "receiving too slowly: 7 messages were missed");
}

#[test]
fn fibers_threads_and_futures_receive() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (tx, a) = channel::broadcast(4);
        let (b, c, d) = (tx.subscribe(), tx.subscribe(), tx.subscribe());
        let fiber = fibra::spawn(move || a.recv());
        let thread = std::thread::spawn(move || b.recv());
        let task = fibra::spawn_future(async move { c.recv_async().await });
        let arm = fibra::spawn(move || {
            fibra::select! {
                on(d.receiving()) -> got => got,
                after(LONG) => unreachable!("it is sent"),
            }
        });
        fibra::yield_now();
        tx.send("all").unwrap();
        assert_eq!(
            (fiber.join().unwrap(), task.join().unwrap(), arm.join().unwrap()),
            (Ok("all"), Ok("all"), Ok("all"))
        );
        assert_eq!(fibra::blocking(|| thread.join().unwrap()), Ok("all"));
        assert!(tx.is_closed());
        tx.closed();
        fibra::block_on(tx.closed_async());
        fibra::select! {
            on(tx.closing()) => {}
        }
        let receiver = tx.subscribe();
        assert!(!tx.closed_timeout(Duration::ZERO));
        let waiting = fibra::spawn(move || tx.closed());
        fibra::yield_now();
        drop(receiver);
        waiting.join().unwrap();
    });
}

// A receiver that is shared by reference gives each message to one of the fibers that receive through it.
#[test]
fn a_shared_receiver_gives_each_message_once() {
    let _watchdog = support::watchdog(60);
    let runtime = fibra::Runtime::builder().workers(2).build().unwrap();
    runtime.run(|| {
        let (tx, rx) = channel::broadcast(10_000);
        (0..4000u64).for_each(|n| assert!(tx.send(n).is_ok()));
        drop(tx);
        let sums = fibra::scope(|s| {
            let take = || rx.iter().fold((0, 0), |(sum, count), n| (sum + n, count + 1));
            let fibers: Vec<_> = (0..3).map(|_| s.spawn(take)).collect();
            fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect::<Vec<_>>()
        });
        let total = sums.iter().fold((0, 0), |(sum, count), one| (sum + one.0, count + one.1));
        assert_eq!(total, (4000 * 3999 / 2, 4000));
    });
}

// The ledger: of each receiver, what it got and what it was told it missed are together everything that was sent, in order.
#[test]
fn got_and_missed_are_everything() {
    let _watchdog = support::watchdog(120);
    const SENT: u64 = 5000;
    let runtime = fibra::Runtime::builder().workers(2).build().unwrap();
    runtime.run(|| {
        let (tx, rx) = channel::broadcast(16);
        let receivers: Vec<_> = (0..4)
            .map(|way| {
                let rx = if way == 0 { rx.resubscribe() } else { tx.subscribe() };
                fibra::spawn(move || {
                    let (mut next, mut missed) = (0u64, 0);
                    loop {
                        let got = match way {
                            0 => rx.recv(),
                            1 => fibra::block_on(rx.recv_async()),
                            2 => fibra::select! { on(rx.receiving()) -> got => got },
                            _ => match rx.recv_timeout(Duration::from_micros(20)) {
                                Err(BroadcastTimeoutError::Timeout) => continue,
                                Err(BroadcastTimeoutError::Lagged(n)) => Err(BroadcastError::Lagged(n)),
                                Err(BroadcastTimeoutError::Closed) => Err(BroadcastError::Closed),
                                Ok(n) => Ok(n),
                            },
                        };
                        match got {
                            Ok(n) => {
                                assert_eq!(n, next);
                                next += 1;
                            }
                            Err(BroadcastError::Lagged(n)) => {
                                assert!(n > 0);
                                next += n;
                                missed += n;
                            }
                            Err(BroadcastError::Closed) => return (next, missed),
                        }
                    }
                })
            })
            .collect();
        drop(rx);
        for n in 0..SENT {
            tx.send(n).unwrap();
            if n % 8 == 0 {
                fibra::yield_now();
            }
        }
        drop(tx);
        for receiver in receivers {
            let (next, missed) = receiver.join().unwrap();
            assert_eq!(next, SENT);
            assert!(missed < SENT);
        }
    });
}

// A clone that panics leaves the channel as it was.
#[test]
fn a_panicking_clone_takes_nothing() {
    #[derive(Debug, PartialEq)]
    struct Odd(u8);
    static PANICS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(true);
    impl Clone for Odd {
        fn clone(&self) -> Self {
            assert!(!PANICS.load(std::sync::atomic::Ordering::SeqCst), "not now");
            Self(self.0)
        }
    }
    let (tx, rx) = channel::broadcast(2);
    tx.send(Odd(1)).unwrap();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rx.recv())).is_err());
    PANICS.store(false, std::sync::atomic::Ordering::SeqCst);
    tx.send(Odd(2)).unwrap();
    assert_eq!((rx.recv(), rx.recv()), (Ok(Odd(1)), Ok(Odd(2))));
}

// A message is counted before its `send` returns, whatever other senders are doing at the moment; so a receiver that lags behind many of
// them in flight adds up, and one that subscribes gets nothing that its thread has sent before.
#[test]
fn senders_in_flight_are_counted_in_their_order_stress() {
    let _watchdog = support::watchdog(60);
    const SENDERS: u64 = 6;
    const EACH: u64 = 300_000;
    let (tx, rx) = channel::broadcast(1);
    std::thread::scope(|s| {
        for me in 0..SENDERS {
            let tx = tx.clone();
            s.spawn(move || {
                for n in 0..EACH {
                    tx.send((me, n)).unwrap();
                    let later = tx.subscribe().try_recv();
                    assert!(!matches!(later, Ok((who, _)) if who == me), "sent before: {later:?}");
                }
            });
        }
        drop(tx);
        let (mut had, mut last) = (0, [None; SENDERS as usize]);
        loop {
            match rx.try_recv() {
                Ok((who, n)) => {
                    had += 1;
                    assert!(last[who as usize].is_none_or(|last| n > last), "once, and in order");
                    last[who as usize] = Some(n);
                }
                Err(TryBroadcastError::Lagged(missed)) => had += missed,
                Err(TryBroadcastError::Empty) => std::hint::spin_loop(),
                Err(TryBroadcastError::Closed) => break,
            }
        }
        assert_eq!(had, SENDERS * EACH);
    });
}
