//! `ordered`: results in the order of submission, at most so many tasks at a time, and nothing orphaned.
#![allow(clippy::disallowed_types)] // Logs of the tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::support;
use fibra::channel::{self, RecvError, RecvTimeoutError, TryRecvError, TrySpawnError};
use fibra::sync::Event;

const LONG: Duration = Duration::from_secs(3600);

// S1-82, S1-89, S1-85: a slow earlier task holds up the results behind it; they are done meanwhile, and order is kept.
#[test]
fn the_head_holds_up_results_not_work() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (tx, rx) = channel::ordered(8);
        let (gate, done) = (Arc::new(Event::new()), Arc::new(AtomicUsize::new(0)));
        let first = gate.clone();
        tx.spawn(move || {
            first.wait();
            0
        })
        .unwrap();
        for n in 1..8 {
            let done = done.clone();
            tx.spawn(move || {
                done.fetch_add(1, SeqCst);
                n
            })
            .unwrap();
        }
        while done.load(SeqCst) < 7 {
            fibra::yield_now();
        }
        assert_eq!(rx.try_recv().unwrap_err(), TryRecvError::Empty);
        assert_eq!(rx.recv_timeout(Duration::from_millis(1)).unwrap_err(), RecvTimeoutError::Timeout);
        assert_eq!((rx.len(), tx.len(), tx.capacity()), (8, 8, 8));
        gate.set();
        drop(tx);
        assert_eq!(rx.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7]);
    });
}

#[test]
fn at_most_so_many_run() {
    let _watchdog = support::watchdog(60);
    let runtime = fibra::Runtime::builder().workers(2).build().unwrap();
    runtime.run(|| {
        let (tx, rx) = channel::ordered(3);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        fibra::spawn({
            let (running, most) = (running, most.clone());
            move || {
                for n in 0..500 {
                    let (running, most) = (running.clone(), most.clone());
                    let task = move || {
                        most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                        fibra::yield_now();
                        running.fetch_sub(1, SeqCst);
                        n
                    };
                    tx.spawn(task).unwrap();
                }
            }
        });
        assert!(rx.iter().map(Result::unwrap).eq(0..500));
        assert!((2..=3).contains(&most.load(SeqCst)), "{most:?}");
    });
}

// S1-91: a task that cannot be submitted is joined; its result is not lost, and there is no fiber left.
#[test]
fn a_refused_task_is_joined() {
    let _watchdog = support::watchdog(60);
    let runtime = fibra::Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        let (tx, rx) = channel::ordered(1);
        tx.spawn(|| 1).unwrap();
        let other = tx.clone();
        // Waits for a place when the channel is closed.
        let waiting = fibra::spawn(move || other.spawn(|| 2).map_err(|refused| refused.join().unwrap()));
        fibra::yield_now();
        assert!(matches!(tx.try_spawn(|| 3), Err(TrySpawnError::Full(f)) if f() == 3));
        assert!(matches!(tx.spawn_timeout(|| 3, Duration::from_millis(1)), Err(TrySpawnError::Full(_))));
        rx.close();
        assert_eq!(waiting.join().unwrap(), Err(2));
        assert_eq!(tx.spawn(|| 4).unwrap_err().join().unwrap(), 4);
        let panicked = tx.spawn(|| panic!("in vain")).unwrap_err().join().unwrap_err();
        assert_eq!(panicked.message(), "in vain");
        let by_future = fibra::block_on(tx.spawn_async(|| 5));
        assert_eq!(by_future.unwrap_err().join().unwrap(), 5);
        let Err(TrySpawnError::Closed(refused)) = tx.try_spawn(|| 6) else { panic!("it is closed") };
        assert_eq!(refused.join().unwrap(), 6);
        assert_eq!(rx.recv().unwrap().unwrap(), 1, "what was submitted is delivered");
        assert_eq!(rx.recv().unwrap_err(), RecvError);
    });
    support::eventually(|| runtime.metrics().live == 0, || format!("{:?}", runtime.metrics()));
}

#[test]
fn a_panic_or_a_cancellation_is_an_error_in_its_place() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (tx, rx) = channel::ordered(4);
        tx.spawn(|| 1).unwrap();
        tx.spawn(|| panic!("number two")).unwrap();
        tx.spawn(|| {
            let me = fibra::CancelToken::new();
            let _ = fibra::Scope::builder().token(me.clone()).run(|_| {
                me.cancel();
                fibra::checkpoint();
            });
            3
        })
        .unwrap();
        drop(tx);
        assert_eq!(rx.recv().unwrap().unwrap(), 1);
        let error = rx.recv().unwrap().unwrap_err();
        assert!(error.is_panic() && error.message() == "number two");
        assert_eq!(error.into_panic().downcast_ref(), Some(&"number two"));
        assert_eq!(rx.recv().unwrap().unwrap(), 3);
        assert!(rx.recv().is_err());
    });
}

// S1-91: the receivers go: tasks that run are cancelled, those that were to come are refused.
#[test]
fn tasks_end_with_their_receiver() {
    let _watchdog = support::watchdog(60);
    let runtime = fibra::Runtime::builder().workers(2).build().unwrap();
    runtime.run(|| {
        let (tx, rx) = channel::ordered::<()>(4);
        for _ in 0..4 {
            tx.spawn(|| fibra::sleep(LONG)).unwrap();
        }
        fibra::yield_now();
        drop(rx);
        assert!(tx.is_closed());
    });
    support::eventually(|| runtime.metrics().live == 0, || format!("{:?}", runtime.metrics()));
}

// S1-86, S1-87, S1-88, S1-90: from fibers, threads, futures and arms; results are typed, owned, and good when their fiber is gone. (C-36.)
#[test]
fn every_context_receives() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (tx, rx) = channel::ordered(16);
        for n in 0..4 {
            tx.spawn(move || format!("result {n}")).unwrap();
        }
        drop(tx);
        let mut got = vec![rx.recv().unwrap().unwrap()];
        let other = rx.clone();
        got.push(fibra::blocking(move || other.recv().unwrap().unwrap()));
        got.push(fibra::block_on(rx.recv_async()).unwrap().unwrap());
        fibra::select! {
            on(rx.receiving()) -> result => got.push(result.unwrap().unwrap()),
            after(LONG) => unreachable!("it is done"),
        }
        fibra::select! {
            on(rx.receiving()) -> end => assert_eq!(end.unwrap_err(), RecvError),
        }
        // Their fibers are recycled by others.
        fibra::scope(|s| (0..100).for_each(|_| drop(s.spawn(fibra::yield_now))));
        assert_eq!(got, ["result 0", "result 1", "result 2", "result 3"]);
    });
}

// The ledger: several senders, several receivers that give up, are cancelled and come again; each result arrives once, and of each sender
// in order at each receiver.
#[test]
fn every_result_arrives_once() {
    let _watchdog = support::watchdog(120);
    const EACH: usize = 300;
    let runtime = fibra::Runtime::builder().workers(2).build().unwrap();
    let seen: Vec<AtomicUsize> = (0..3 * EACH).map(|_| AtomicUsize::new(0)).collect();
    runtime.run(|| {
        fibra::scope(|s| {
            let (tx, rx) = channel::ordered(5);
            for sender in 0..3 {
                let tx = tx.clone();
                s.spawn(move || {
                    for n in 0..EACH {
                        let spawned = if sender == 2 {
                            fibra::block_on(tx.spawn_async(move || (sender, n)))
                        } else {
                            tx.spawn(move || {
                                if n % 7 == 0 {
                                    fibra::yield_now();
                                }
                                (sender, n)
                            })
                        };
                        spawned.unwrap();
                    }
                });
            }
            drop(tx);
            for receiver in 0..3 {
                let (rx, seen) = (rx.clone(), &seen);
                s.spawn(move || {
                    let mut last = [None; 3];
                    loop {
                        let got = match receiver {
                            0 => rx.recv(),
                            1 => match rx.recv_timeout(Duration::from_micros(5)) {
                                Err(RecvTimeoutError::Timeout) => continue,
                                got => got.map_err(|_| RecvError),
                            },
                            _ => fibra::select! {
                                on(rx.receiving()) -> got => got,
                                default => {
                                    fibra::yield_now();
                                    continue;
                                }
                            },
                        };
                        let Ok(got) = got else { return };
                        let (sender, n): (usize, usize) = got.unwrap();
                        assert!(last[sender].is_none_or(|last| last < n));
                        last[sender] = Some(n);
                        seen[sender * EACH + n].fetch_add(1, SeqCst);
                    }
                });
            }
        });
    });
    assert!(seen.iter().all(|seen| seen.load(SeqCst) == 1));
}

// A task that cannot be started leaves no result, and no place taken.
#[test]
fn what_cannot_be_started_is_not_submitted() {
    let _watchdog = support::watchdog(60);
    let (tx, rx) = channel::ordered::<u32>(1);
    for _ in 0..3 {
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tx.try_spawn(|| 1).map_err(drop)));
        assert!(refused.is_err(), "there is no runtime here");
        assert_eq!((tx.len(), rx.try_recv().map(drop)), (0, Err(channel::TryRecvError::Empty)));
    }
}

// The ends may be dropped by the tasks themselves.
#[test]
fn tasks_that_own_an_end() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (tx, rx) = channel::ordered::<u32>(3);
        let (gone, told) = channel::oneshot::<()>();
        tx.spawn(move || {
            let _gone = gone;
            drop(rx);
            fibra::sleep(Duration::from_secs(3600)); // cancelled: the receivers are gone
            1
        })
        .unwrap();
        assert!(told.recv().is_err());
        assert_eq!(tx.spawn(|| 2).unwrap_err().join().unwrap(), 2);

        let (tx, rx) = channel::ordered::<u32>(3);
        let inner = tx.clone();
        tx.spawn(move || {
            inner.spawn(|| 2).unwrap();
            1
        })
        .unwrap();
        drop(tx);
        assert_eq!(rx.iter().map(Result::unwrap).collect::<Vec<_>>(), [1, 2]);

        // A result whose destructor panics, without a receiver.
        struct Bad;
        impl Drop for Bad {
            fn drop(&mut self) {
                assert!(std::thread::panicking(), "on purpose");
            }
        }
        let (tx, rx) = channel::ordered::<Bad>(3);
        (0..3).for_each(|_| tx.spawn(|| Bad).unwrap());
        // All of them have ended, each with its result: no fiber is left but this one.
        while fibra::Handle::current().metrics().live > 1 {
            fibra::sleep(Duration::from_micros(100));
        }
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(rx))).is_err());
        let refused = tx.spawn(|| Bad).unwrap_err();
        std::mem::forget(refused);
    });
}
