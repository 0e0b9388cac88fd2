//! Receivers and borrowers that are cancelled at any point, in every form of the wait, lose nothing: what there is goes to the next one.
#![allow(clippy::disallowed_types)] // Logs of the tests.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support;
use fibra::channel::{self, BroadcastError, PoolError};

const MOMENT: Duration = Duration::from_micros(30);

/// Starts one fiber after the other that runs `work`, and cancels it after a moment of random length, until `done`.
fn relay(done: impl Fn() -> bool, work: impl Fn(usize) + Clone + Send + 'static) {
    for round in 0.. {
        let work = work.clone();
        let fiber = fibra::spawn(move || work(round));
        if round % 3 == 0 {
            fibra::sleep(Duration::from_micros(round as u64 * 7 % 90));
        } else {
            (0..round * 5 % 23).for_each(|_| fibra::yield_now());
        }
        if done() {
            fiber.join().unwrap();
            return;
        }
        fiber.cancel();
        let _ = fiber.join();
    }
}

#[test]
fn results_in_order_stress() {
    const TASKS: usize = 3000;
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (tx, rx) = channel::ordered(3);
        let sending = fibra::spawn(move || {
            for n in 0..TASKS {
                let work = move || {
                    (0..n % 4).for_each(|_| fibra::yield_now());
                    n
                };
                tx.spawn(work).unwrap();
            }
        });
        let log = Arc::new(Mutex::new(Vec::new()));
        let (ended, had) = (Arc::new(AtomicUsize::new(0)), log.clone());
        let over = ended.clone();
        relay(
            move || over.load(SeqCst) > 0,
            move |round| {
                loop {
                    let got = match round % 4 {
                        0 => rx.recv(),
                        1 => match rx.recv_timeout(MOMENT) {
                            Err(channel::RecvTimeoutError::Timeout) => continue,
                            got => got.map_err(|_| channel::RecvError),
                        },
                        2 => fibra::block_on(rx.recv_async()),
                        _ => fibra::select! {
                            on(rx.receiving()) -> got => got,
                            after(MOMENT) => continue,
                        },
                    };
                    match got {
                        Ok(result) => had.lock().unwrap().push(result.unwrap()),
                        Err(_) => return ended.store(1, SeqCst),
                    }
                }
            },
        );
        sending.join().unwrap();
        assert!(log.lock().unwrap().iter().copied().eq(0..TASKS));
    });
}

#[test]
fn messages_once_stress() {
    const MESSAGES: u64 = 3000;
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (tx, rx) = channel::broadcast(16);
        let rx = Arc::new(rx);
        let ended = Arc::new(AtomicUsize::new(0));
        let log = Arc::new(Mutex::new((0, None)));
        let (over, had) = (ended.clone(), log.clone());
        let sending = fibra::spawn(move || {
            for n in 0..MESSAGES {
                tx.send(n).unwrap();
                (0..n % 3).for_each(|_| fibra::yield_now());
            }
        });
        relay(
            move || over.load(SeqCst) > 0,
            move |round| {
                loop {
                    let got = match round % 4 {
                        0 => rx.recv(),
                        1 => match rx.recv_timeout(MOMENT) {
                            Err(channel::BroadcastTimeoutError::Timeout) => continue,
                            Err(channel::BroadcastTimeoutError::Lagged(missed)) => Err(BroadcastError::Lagged(missed)),
                            got => got.map_err(|_| BroadcastError::Closed),
                        },
                        2 => fibra::block_on(rx.recv_async()),
                        _ => fibra::select! {
                            on(rx.receiving()) -> got => got,
                            after(MOMENT) => continue,
                        },
                    };
                    let (count, last) = &mut *had.lock().unwrap();
                    match got {
                        Ok(n) => {
                            assert!(last.replace(n).is_none_or(|last| last < n));
                            *count += 1;
                        }
                        Err(BroadcastError::Lagged(missed)) => *count += missed,
                        Err(BroadcastError::Closed) => return ended.store(1, SeqCst),
                    }
                }
            },
        );
        sending.join().unwrap();
        assert_eq!(*log.lock().unwrap(), (MESSAGES, Some(MESSAGES - 1)));
    });
}

#[test]
fn items_come_back_stress() {
    const ROUNDS: usize = 2000;
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let made = Arc::new(AtomicUsize::new(0));
        let there = made.clone();
        let create = move || {
            fibra::yield_now();
            if there.fetch_add(1, SeqCst) % 5 == 4 { Err("not now") } else { Ok(0) }
        };
        let reset = |uses: &mut u32| {
            fibra::yield_now();
            *uses += 1;
            !uses.is_multiple_of(7)
        };
        let pool = channel::pool(2, create, reset);
        let borrowers: Vec<_> = (0..4)
            .map(|me| {
                let (pool, rounds) = (pool.clone(), Arc::new(AtomicUsize::new(0)));
                fibra::spawn(move || {
                    let done = rounds.clone();
                    relay(
                        move || done.load(SeqCst) >= ROUNDS,
                        move |round| {
                            while rounds.fetch_add(1, SeqCst) < ROUNDS {
                                let got = match (round + me) % 4 {
                                    0 => pool.get(),
                                    1 => pool.get_timeout(MOMENT).map_err(|_| PoolError::Closed),
                                    2 => fibra::block_on(pool.get_async()),
                                    _ => fibra::select! {
                                        on(pool.getting()) -> got => got,
                                        after(MOMENT) => continue,
                                    },
                                };
                                fibra::yield_now();
                                drop(got);
                            }
                        },
                    );
                })
            })
            .collect();
        borrowers.into_iter().for_each(|borrower| borrower.join().unwrap());
        assert_eq!(pool.len(), pool.idle());
        let (first, second) = (pool.try_get(), pool.try_get());
        assert!(
            !matches!(first, Err(channel::TryPoolError::Empty)) && !matches!(second, Err(channel::TryPoolError::Empty))
        );
    });
}
