//! How channels end: explicitly, with a reason, by the death of either side, and at any moment; who is told, and what is still delivered.
#![allow(clippy::disallowed_types)] // Shared state of the tests.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use crate::channels::{Calls, Ledger, SIDES, Side, Tracked, alone, poll, ready, runtime, start, until_parked};
use crate::support::watchdog;
use crate::tools::turns;
use fibra::channel::{
    CloseReason, Receiver, RecvError, RecvTimeoutError, Select, SendError, SendTimeoutError, Sender, TryRecvError,
    TrySendError, bounded, rendezvous, unbounded,
};

const LONG: Duration = Duration::from_secs(3600);

type Ends<T> = (Sender<T>, Receiver<T>);

// ---- What closing means -------------------------------------------------------------------------------------------------

// S4-51, S4-54, S4-59, S4-60, S4-62..S4-65, S4-68, C-24: either end may close; then nothing more is admitted, what is there is delivered,
// and no caller waits. It is final, and doing it again changes nothing.
#[test]
fn either_end_may_close() {
    let _watchdog = watchdog(60);
    for (by_sender, kind) in
        [(true, (|| bounded(4)) as fn() -> Ends<u32>), (false, || bounded(4)), (true, unbounded), (false, unbounded)]
    {
        let (tx, rx) = kind();
        (0..3).for_each(|value| tx.send(value).unwrap());
        assert!(!tx.is_closed() && !rx.is_closed() && tx.close_reason().is_none());
        for first in [true, false] {
            assert_eq!(if by_sender { tx.close() } else { rx.close() }, first);
            assert!(tx.is_closed() && rx.is_closed());
            assert!(matches!(tx.close_reason(), Some(CloseReason::Explicit)), "{:?}", tx.close_reason());
            assert!(matches!(rx.close_reason(), Some(CloseReason::Explicit)), "{:?}", rx.close_reason());
        }
        assert!(!tx.close_with("too late") && !rx.close_now());
        assert!(matches!(rx.close_reason(), Some(CloseReason::Explicit)), "the first reason stays");
        assert_eq!(tx.send(9), Err(SendError(9)));
        assert_eq!(tx.try_send(9), Err(TrySendError::Disconnected(9)));
        assert_eq!(tx.send_timeout(9, LONG), Err(SendTimeoutError::Disconnected(9)));
        assert_eq!(tx.force_send(9), Err(SendError(9)));
        assert_eq!(tx.reserve().map(drop), Err(SendError(())));
        assert_eq!(ready(pin!(tx.send_async(9))), Err(SendError(9)));
        assert_eq!((rx.recv(), rx.try_recv(), ready(pin!(rx.recv_async()))), (Ok(0), Ok(1), Ok(2)));
        assert_eq!(rx.recv(), Err(RecvError));
        assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected));
        assert_eq!(rx.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
        assert_eq!(ready(pin!(rx.recv_async())), Err(RecvError));
        // The end is an event of every arm too.
        let mut select = Select::new_biased();
        let (sending, _) = (select.send(&tx), select.recv(&rx));
        let chosen = select.select();
        assert_eq!(chosen.index(), sending);
        assert_eq!(chosen.send(&tx, 9), Err(SendError(9)));
        let mut select = Select::new();
        select.recv(&rx);
        assert_eq!(select.select().recv(&rx), Err(RecvError));
    }
}

// S0-40, S0-43, C-24: each side is counted for itself; the last one to go ends the channel for the other side.
#[test]
fn the_last_end_of_a_side_ends_the_channel() {
    let (tx, rx) = bounded(4);
    let (more_tx, more_rx) = (tx.clone(), rx.clone());
    drop((tx, more_rx));
    more_tx.send(1).unwrap();
    assert!(!more_tx.is_closed() && !rx.is_closed());
    drop(more_tx);
    assert!(rx.is_closed());
    assert!(matches!(rx.close_reason(), Some(CloseReason::Dropped)), "{:?}", rx.close_reason());
    assert_eq!((rx.recv(), rx.recv()), (Ok(1), Err(RecvError)));

    let (tx, rx) = bounded(4);
    let more_rx = rx.clone();
    drop(rx);
    tx.send(1).unwrap();
    drop(more_rx);
    assert!(matches!(tx.close_reason(), Some(CloseReason::Dropped)), "{:?}", tx.close_reason());
    assert!(tx.is_closed());
    assert_eq!(tx.send(2), Err(SendError(2)));
}

// S0-41, S4-66, S4-69..S4-72, C-23: receivers that wait are told at once, each once, wherever they wait and whatever ends the channel.
#[test]
fn waiting_receivers_are_told_at_once() {
    let _watchdog = watchdog(120);
    let ends: [fn(Sender<u32>); 3] = [|tx| drop(tx), |tx| assert!(tx.close()), |tx| assert!(tx.close_now())];
    let rt = runtime(2);
    for (end, kind) in ends.into_iter().flat_map(|end| [rendezvous, || bounded(1), unbounded].map(|kind| (end, kind))) {
        // On every side at once. Whether or not each waits already, it must hear of it.
        let (tx, rx): Ends<u32> = kind();
        let told: Vec<_> = SIDES
            .into_iter()
            .chain(SIDES)
            .map(|side| {
                let (rx, async_rx) = (rx.clone(), rx.clone());
                start(side, &rt.handle(), move || rx.recv(), async move { async_rx.recv_async().await })
            })
            .collect();
        let told_in_time: Vec<_> = [Side::Fiber, Side::Thread]
            .into_iter()
            .map(|side| {
                let rx = rx.clone();
                start(side, &rt.handle(), move || rx.recv_timeout(LONG), async { unreachable!() })
            })
            .collect();
        end(tx);
        told.into_iter().for_each(|told| assert_eq!(told.join(), Err(RecvError)));
        told_in_time.into_iter().for_each(|told| assert_eq!(told.join(), Err(RecvTimeoutError::Disconnected)));
        // Certainly waiting: fibers, selects and futures.
        alone(move || {
            let (tx, rx): Ends<u32> = kind();
            let mut fibers: Vec<_> = (0..3)
                .map(|_| {
                    let rx = rx.clone();
                    fibra::spawn_local(move || rx.recv())
                })
                .collect();
            fibers.extend((0..3).map(|_| {
                let rx = rx.clone();
                fibra::spawn_local(move || {
                    let (_other, never) = rendezvous::<u32>();
                    let mut select = Select::new();
                    select.recv(&never);
                    select.recv(&rx);
                    let chosen = select.select();
                    assert_eq!(chosen.index(), 1);
                    chosen.recv(&rx)
                })
            }));
            let calls = Calls::new();
            let mut futures: Vec<_> = (0..3).map(|_| Box::pin(rx.recv_async())).collect();
            futures.iter_mut().for_each(|future| assert!(poll(future.as_mut(), &calls).is_pending()));
            until_parked(6);
            end(tx);
            assert_eq!(calls.count(), 3);
            fibers.into_iter().for_each(|fiber| assert_eq!(fiber.join().unwrap(), Err(RecvError)));
            futures.iter_mut().for_each(|future| assert_eq!(ready(future.as_mut()), Err(RecvError)));
        });
    }
}

// S4-60, S4-67, S4-70, S4-74, C-23: senders that were parked when the channel was closed were admitted: their values are delivered after
// the buffer's, in order, and they succeed.
#[test]
fn parked_senders_are_delivered_after_the_close() {
    let _watchdog = watchdog(60);
    for (kind, capacity) in [(rendezvous as fn() -> Ends<usize>, 0), (|| bounded(1), 1), (|| bounded(3), 3)] {
        for by_sender in [true, false] {
            alone(move || {
                let (tx, rx) = kind();
                (0..capacity).for_each(|value| tx.try_send(value).unwrap());
                let senders: Vec<_> = (0..4)
                    .map(|index| {
                        let tx = tx.clone();
                        let sender = fibra::spawn_local(move || {
                            if index == 2 {
                                let mut select = Select::new();
                                select.send(&tx);
                                select.select().send(&tx, capacity + index)
                            } else if index == 3 {
                                tx.send_timeout(capacity + index, LONG).map_err(|error| SendError(error.into_inner()))
                            } else {
                                tx.send(capacity + index)
                            }
                        });
                        until_parked(index as u64 + 1);
                        sender
                    })
                    .collect();
                if by_sender {
                    tx.close()
                } else {
                    rx.close()
                };
                assert_eq!(tx.send(99), Err(SendError(99)), "too late");
                let values: Vec<usize> = rx.iter().collect();
                let plain: Vec<usize> = (0..capacity + 4).collect();
                // A select is told of the close and may find its arm refused: it is not bound to any channel.
                let without_select: Vec<usize> = (0..capacity + 4).filter(|value| *value != capacity + 2).collect();
                let answers: Vec<_> = senders.into_iter().map(|sender| sender.join().unwrap()).collect();
                if values == without_select {
                    assert_eq!(answers, [Ok(()), Ok(()), Err(SendError(capacity + 2)), Ok(())]);
                } else {
                    assert_eq!((values, answers), (plain, vec![Ok(()); 4]));
                }
            });
        }
    }
}

// C-23, S0-41, S0-43: when the last receiver goes, a sender that waits has its value back; so too on `close_now`.
#[test]
fn parked_senders_get_their_values_back() {
    let _watchdog = watchdog(60);
    type End = fn(&Sender<Tracked>, Receiver<Tracked>);
    let ends: [End; 3] =
        [|_, rx| drop(rx), |tx, rx| (tx.close_now(), drop(rx)).1, |_, rx| (rx.close_now(), drop(rx)).1];
    for (end, kind) in ends.into_iter().flat_map(|end| [rendezvous, || bounded(1)].map(|kind| (end, kind))) {
        let ledger = Ledger::new(20);
        alone(|| {
            let (tx, rx) = kind();
            let buffered = tx.capacity().unwrap();
            (0..buffered).for_each(|_| tx.try_send(ledger.value()).unwrap());
            let senders: Vec<_> = (0..3)
                .map(|index| {
                    let (tx, value) = (tx.clone(), ledger.value());
                    fibra::spawn_local(move || {
                        let number = value.number();
                        let back = match index {
                            0 => tx.send(value).unwrap_err().0,
                            1 => tx.send_timeout(value, LONG).unwrap_err().into_inner(),
                            _ => fibra::block_on(tx.send_async(value)).unwrap_err().0,
                        };
                        assert_eq!(back.number(), number);
                        back
                    })
                })
                .collect();
            until_parked(3);
            end(&tx, rx);
            let back: Vec<Tracked> = senders.into_iter().map(|sender| sender.join().unwrap()).collect();
            assert_eq!(back.len(), 3);
            assert!(tx.is_closed());
        });
        ledger.check_drops();
    }
}

// Closed explicitly, then the last receiver goes: parked senders, admitted but never to be received, get their values back.
#[test]
fn parked_senders_get_their_values_back_after_a_close() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = rendezvous();
        let sender = fibra::spawn_local({
            let tx = tx.clone();
            move || tx.send(7)
        });
        until_parked(1);
        tx.close();
        fibra::yield_now();
        assert!(!sender.is_finished(), "admitted: it still waits for a receiver");
        drop(rx);
        assert_eq!(sender.join().unwrap(), Err(SendError(7)));
    });
}

// ---- Waiting for the end ------------------------------------------------------------------------------------------------

// S0-37, S0-41, C-24: `closed` waits for the other side's death, on every side, and says why; buffered values do not hold it up.
#[test]
fn closed_waits_for_the_other_side() {
    let _watchdog = watchdog(60);
    let rt = runtime(2);
    for side in [Side::Fiber, Side::Thread] {
        let (tx, rx) = bounded(4);
        tx.send(1).unwrap();
        let watchers: Vec<_> = (0..3)
            .map(|_| {
                let tx = tx.clone();
                start(side, &rt.handle(), move || tx.closed(), async { unreachable!() })
            })
            .collect();
        drop(rx);
        watchers.into_iter().for_each(|watcher| assert!(matches!(watcher.join(), CloseReason::Dropped)));

        let (tx, rx) = bounded(4);
        tx.send(1).unwrap();
        let watchers: Vec<_> = (0..3)
            .map(|_| {
                let rx = rx.clone();
                start(side, &rt.handle(), move || rx.closed(), async { unreachable!() })
            })
            .collect();
        drop(tx);
        watchers.into_iter().for_each(|watcher| assert!(matches!(watcher.join(), CloseReason::Dropped)));
        assert_eq!(rx.recv(), Ok(1));
    }
    // Certainly waiting.
    alone(|| {
        let (tx, rx) = bounded::<u32>(1);
        let watchers = [
            fibra::spawn_local({
                let tx = tx.clone();
                move || tx.closed()
            }),
            fibra::spawn_local({
                let rx = rx.clone();
                move || rx.closed()
            }),
        ];
        until_parked(2);
        tx.send(1).unwrap();
        assert_eq!(rx.recv(), Ok(1));
        fibra::yield_now();
        assert!(watchers.iter().all(|watcher| !watcher.is_finished()), "a message is not the end");
        let [receivers_gone, senders_gone] = watchers;
        tx.close();
        assert!(matches!(senders_gone.join().unwrap(), CloseReason::Explicit));
        assert!(matches!(rx.closed(), CloseReason::Explicit), "and no caller waits afterwards");
        fibra::yield_now();
        assert!(!receivers_gone.is_finished(), "closed by this side: the other one is still there");
        drop(rx);
        assert!(matches!(receivers_gone.join().unwrap(), CloseReason::Dropped));
        assert!(matches!(tx.close_reason(), Some(CloseReason::Explicit)), "the first reason");
    });
}

#[derive(Debug)]
struct DiskFull;

impl std::fmt::Display for DiskFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the disk is full")
    }
}

impl std::error::Error for DiskFull {}

// S0-37: a reason travels with the end.
#[test]
fn closing_with_a_reason() {
    let (tx, rx) = bounded(4);
    tx.send(1).unwrap();
    tx.close_with(DiskFull);
    for reason in [rx.closed(), rx.close_reason().unwrap(), tx.close_reason().unwrap()] {
        let CloseReason::Error(error) = &reason else { panic!("{reason:?}") };
        assert!(error.downcast_ref::<DiskFull>().is_some());
        assert!(reason.to_string().contains("the disk is full"), "{reason}");
    }
    assert_eq!((rx.recv(), rx.recv()), (Ok(1), Err(RecvError)));
    assert!(matches!(rx.finish(), Err(CloseReason::Error(_))));
    let (tx, rx) = bounded::<u32>(4);
    rx.close_with("no more of it");
    assert!(tx.closed().to_string().contains("no more of it"));
}

// A fiber that panics or is cancelled with the last end in its hands says so.
#[test]
fn the_end_of_a_fiber_is_a_reason() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = bounded::<u32>(4);
        let panicking = fibra::spawn_local(move || {
            tx.send(1).unwrap();
            let _tx = tx;
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        let id = panicking.id();
        assert!(panicking.join().unwrap_err().is_panic());
        assert!(
            matches!(rx.close_reason(), Some(CloseReason::Panicked { fiber }) if fiber == id),
            "{:?}",
            rx.close_reason()
        );
        assert_eq!((rx.recv(), rx.recv()), (Ok(1), Err(RecvError)));
        assert!(matches!(rx.finish(), Err(CloseReason::Panicked { .. })));

        let (tx, rx) = bounded::<u32>(4);
        let cancelled = fibra::spawn_local(move || {
            let _rx = rx;
            fibra::sleep(LONG);
        });
        until_parked(1);
        cancelled.cancel();
        assert!(cancelled.join().unwrap_err().is_cancelled());
        assert!(matches!(tx.closed(), CloseReason::Cancelled), "{:?}", tx.closed());
    });
}

// `finish` tells an orderly end from a broken one.
#[test]
fn finish_says_how_it_ended() {
    for end in [|tx: Sender<u32>| drop(tx), |tx: Sender<u32>| assert!(tx.close())] {
        let (tx, rx) = bounded(4);
        tx.send(1).unwrap();
        end(tx);
        assert_eq!(rx.iter().count(), 1);
        assert!(rx.finish().is_ok());
    }
}

// ---- All at once --------------------------------------------------------------------------------------------------------

// S0-33, S0-42: both last ends dropped at the same time on two threads, with values in the buffer: nothing leaks, nothing goes twice.
#[test]
fn stress_both_ends_dropped_at_once() {
    let _watchdog = watchdog(120);
    let rounds = turns(20_000);
    let barrier = Barrier::new(2);
    let (give, take) = std::sync::mpsc::channel::<Receiver<Arc<()>>>();
    let token = Arc::new(());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for rx in take {
                barrier.wait();
                drop(rx);
            }
        });
        for round in 0..rounds {
            let (tx, rx) = match round % 3 {
                0 => rendezvous(),
                1 => bounded(2),
                _ => unbounded(),
            };
            (0..round % 3).for_each(|_| tx.send(token.clone()).unwrap());
            give.send(rx).unwrap();
            barrier.wait();
            drop(tx);
        }
        drop(give);
    });
    assert_eq!(Arc::strong_count(&token), 1);
}

// S0-42, S4-71: and with a waiter for each of them, which holds the only other end.
#[test]
fn stress_the_end_of_each_side_wakes_the_other() {
    let _watchdog = watchdog(120);
    let rt = runtime(2);
    for round in 0..turns(2_000) {
        let ((tx, rx), (back_tx, back_rx)) = (bounded::<u32>(1), bounded::<u32>(1));
        // Each waits until the other one's end dies, and dies then: the main fiber begins it.
        let first = rt.spawn(move || {
            let _back_tx = back_tx;
            rx.closed()
        });
        let second = rt.spawn(move || back_rx.recv());
        if round % 2 == 0 {
            std::thread::yield_now();
        }
        drop(tx);
        assert!(matches!(first.join().unwrap(), CloseReason::Dropped));
        assert_eq!(second.join().unwrap(), Err(RecvError));
    }
}

// S4-62, S4-71, S4-72: many closers, many waiters: each of them hears of it once, and the values sent before are all there.
#[test]
fn stress_many_closers() {
    let _watchdog = watchdog(120);
    let rt = runtime(2);
    for round in 0..turns(500) {
        let (tx, rx): Ends<u32> = if round % 2 == 0 { rendezvous() } else { bounded(2) };
        let (sent, received) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut fibers = Vec::new();
        for index in 0..4 {
            let (tx, sent, close) = (tx.clone(), sent.clone(), round % 4 == index);
            fibers.push(rt.spawn(move || {
                sent.fetch_add((0..10).take_while(|value| tx.send(*value).is_ok()).count(), SeqCst);
                if close {
                    tx.close();
                }
            }));
            let (rx, received) = (rx.clone(), received.clone());
            fibers.push(rt.spawn(move || {
                received.fetch_add(rx.iter().count(), SeqCst);
            }));
        }
        for (tx, rx) in [(Some(tx), None), (None, Some(rx))] {
            fibers.push(rt.spawn(move || {
                fibra::yield_now();
                let _ = (tx.map(|tx| tx.close()), rx.map(|rx| rx.close()));
            }));
        }
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert_eq!(sent.load(SeqCst), received.load(SeqCst), "round {round}");
    }
}
