//! Beyond plain sending: permits, pushing the oldest out, and what a full channel does with more.
#![allow(clippy::disallowed_types)] // Shared state of the tests.

use std::sync::{Arc, Mutex};

use crate::channels;
use crate::channels::{Ledger, Tracked, alone, runtime, until_parked};
use crate::support::watchdog;
use crate::tools::{Rng, turns};
use fibra::channel::{
    self, Overflow, Receiver, SendError, Sender, TryRecvError, TrySendError, bounded, rendezvous, unbounded,
};

// ---- Permits ------------------------------------------------------------------------------------------------------------

// A permit is a place in the buffer: no other sender has it until it is used or dropped.
#[test]
fn a_permit_keeps_a_place() {
    let (tx, rx) = bounded(2);
    let first = tx.reserve().unwrap();
    let second = tx.reserve().unwrap();
    assert_eq!(tx.try_send(9), Err(TrySendError::Full(9)));
    assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
    // In the order of sending, not of reserving.
    second.send(1);
    first.send(2);
    assert_eq!((rx.recv(), rx.recv()), (Ok(1), Ok(2)));
    drop(tx.reserve().unwrap());
    (0..2).for_each(|value| tx.try_send(value).unwrap());
    assert_eq!(tx.try_send(9), Err(TrySendError::Full(9)));
}

// One that is dropped wakes a sender that waits for a place.
#[test]
fn a_dropped_permit_wakes_the_next() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = bounded(1);
        let permit = tx.reserve().unwrap();
        let sender = fibra::spawn_local({
            let tx = tx.clone();
            move || tx.send(7)
        });
        until_parked(1);
        drop(permit);
        assert_eq!(rx.recv(), Ok(7));
        sender.join().unwrap().unwrap();
        // And so does the value that is taken, for one who waits for a permit.
        tx.send(1).unwrap();
        let reserver = fibra::spawn_local({
            let tx = tx.clone();
            move || tx.reserve().unwrap().send(2)
        });
        until_parked(1);
        assert_eq!((rx.recv(), rx.recv()), (Ok(1), Ok(2)));
        reserver.join().unwrap();
    });
}

// A permit that was had before the close is good after it; when the receivers are gone, its value comes back.
#[test]
fn a_permit_and_the_end() {
    let (tx, rx) = bounded(1);
    let permit = tx.reserve().unwrap();
    drop(rx);
    assert_eq!(permit.try_send(1), Err(SendError(1)));
    // One that was had before the close is as good after it.
    let (tx, rx) = bounded(1);
    let permit = tx.reserve().unwrap();
    tx.close();
    assert_eq!(rx.try_recv(), Err(TryRecvError::Empty), "something may still come");
    permit.send(1);
    assert_eq!((rx.recv(), rx.try_recv()), (Ok(1), Err(TryRecvError::Disconnected)));
    let (tx, rx) = bounded::<u32>(1);
    drop(tx.reserve().unwrap());
    tx.close();
    assert_eq!(tx.reserve().map(drop), Err(SendError(())));
    drop(rx);
}

// Nothing that can be lost is sent before its place is sure: a cancelled fiber keeps what it wanted to send.
#[test]
fn a_cancelled_reservation_keeps_the_value() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = bounded(1);
        tx.send(1).unwrap();
        let kept = Arc::new(Mutex::new(Some(2)));
        let fiber = fibra::spawn_local({
            let (tx, kept) = (tx.clone(), kept.clone());
            move || {
                let permit = tx.reserve().unwrap();
                permit.send(kept.lock().unwrap().take().unwrap())
            }
        });
        until_parked(1);
        fiber.cancel();
        assert!(fiber.join().unwrap_err().is_cancelled());
        assert_eq!(*kept.lock().unwrap(), Some(2));
        assert_eq!(rx.recv(), Ok(1));
        tx.try_send(3).unwrap();
    });
}

// Permits and plain sends together, under pressure: the buffer never holds more than it may, and nothing is lost.
#[test]
fn stress_permits() {
    let _watchdog = watchdog(120);
    let rt = runtime(2);
    let count = turns(2_000);
    let (tx, rx) = bounded::<usize>(3);
    let mut rng = Rng::new();
    let senders: Vec<_> = (0..4)
        .map(|sender| {
            let (tx, mut rng) = (tx.clone(), rng.fork());
            rt.spawn(move || {
                for value in 0..count {
                    match (sender + rng.below(3)) % 3 {
                        0 => tx.send(value).unwrap(),
                        1 => {
                            drop(tx.reserve().unwrap());
                            tx.reserve().unwrap().send(value);
                        }
                        _ => fibra::block_on(tx.reserve_async()).unwrap().send(value),
                    }
                    assert!(tx.len() <= 3);
                }
            })
        })
        .collect();
    drop(tx);
    let sum = rt.run(|| rx.iter().sum::<usize>());
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    assert_eq!(sum, 4 * (0..count).sum::<usize>());
}

// ---- Pushing out --------------------------------------------------------------------------------------------------------

// A full buffer gives its oldest value up to the one that pushes.
#[test]
fn force_send_pushes_the_oldest_out() {
    let (tx, rx) = bounded(2);
    assert_eq!((tx.force_send(1), tx.force_send(2)), (Ok(None), Ok(None)));
    assert_eq!((tx.force_send(3), tx.force_send(4)), (Ok(Some(1)), Ok(Some(2))));
    assert_eq!(rx.try_iter().collect::<Vec<_>>(), [3, 4]);
    let (tx, rx) = unbounded();
    (0..10).for_each(|value| assert_eq!(tx.force_send(value), Ok(None)));
    assert!(rx.try_iter().eq(0..10));
    drop(rx);
    assert_eq!(tx.force_send(1), Err(SendError(1)));
}

// It hands over like any other send.
#[test]
fn force_send_hands_over() {
    let _watchdog = watchdog(60);
    for kind in [rendezvous, || bounded(1)] {
        alone(move || {
            let (tx, rx): (Sender<u32>, Receiver<u32>) = kind();
            let receiver = fibra::spawn_local(move || rx.recv());
            until_parked(1);
            assert_eq!(tx.force_send(7), Ok(None));
            assert_eq!(receiver.join().unwrap(), Ok(7));
        });
    }
}

// ---- Overflow -----------------------------------------------------------------------------------------------------------

type Log = Arc<Mutex<Vec<usize>>>;

fn with_overflow(overflow: Overflow) -> (Sender<usize>, Receiver<usize>, Log) {
    let log = Log::default();
    let seen = log.clone();
    let builder = channel::builder().bounded(3).overflow(overflow).name("jobs");
    let (tx, rx) = builder.on_overflow(move |value| seen.lock().unwrap().push(value)).build();
    (tx, rx, log)
}

// what does not fit is dropped if one asked for that, and then it is counted and shown; the sender does not wait.
#[test]
fn overflow_drops_the_newest_or_the_oldest() {
    for (overflow, dropped, kept) in
        [(Overflow::DropNewest, [3, 4, 5, 6], [0, 1, 2]), (Overflow::DropOldest, [0, 1, 2, 3], [4, 5, 6])]
    {
        let (tx, rx, log) = with_overflow(overflow);
        for value in 0..7 {
            match value % 3 {
                0 => tx.send(value).unwrap(),
                1 => tx.try_send(value).unwrap(),
                _ => fibra::block_on(tx.send_async(value)).unwrap(),
            }
        }
        assert_eq!(*log.lock().unwrap(), dropped);
        assert_eq!(rx.dropped(), 4);
        assert_eq!(rx.try_iter().collect::<Vec<_>>(), kept);
        tx.send(8).unwrap();
        assert_eq!((rx.recv(), rx.dropped()), (Ok(8), 4));
        drop(rx);
        assert_eq!(tx.send(9), Err(SendError(9)), "the end is no overflow");
        assert_eq!(log.lock().unwrap().len(), 4);
    }
}

// without a policy a full channel makes its sender wait, and nothing is dropped.
#[test]
fn overflow_blocks_by_default() {
    let (tx, rx, log) = with_overflow(Overflow::Block);
    (0..3).for_each(|value| tx.send(value).unwrap());
    assert_eq!(tx.try_send(3), Err(TrySendError::Full(3)));
    assert_eq!((rx.dropped(), log.lock().unwrap().len()), (0, 0));
    assert!(rx.try_iter().eq(0..3));
}

// A value that is dropped without a callback is dropped once; one that is shown to a callback belongs to it.
#[test]
fn overflowing_values_are_dropped_once() {
    for (overflow, shows) in [
        (Overflow::DropNewest, false),
        (Overflow::DropOldest, false),
        (Overflow::DropNewest, true),
        (Overflow::DropOldest, true),
    ] {
        let ledger = Ledger::new(100);
        let builder = channel::builder::<Tracked>().bounded(3).overflow(overflow);
        let builder = if shows { builder.on_overflow(Tracked::refused) } else { builder };
        let (tx, rx) = builder.build();
        (0..10).for_each(|_| tx.send(ledger.value()).unwrap());
        assert_eq!(ledger.dropped(), 7);
        assert_eq!(rx.dropped(), 7);
        assert_eq!(ledger.count(channels::REFUSED), if shows { 7 } else { 0 });
        drop((tx, rx));
        ledger.check_drops();
    }
}

// What is shown may be sent on, even into the same channel; no lock is held meanwhile.
#[test]
fn on_overflow_may_use_the_channel() {
    let _watchdog = watchdog(60);
    let slot: Arc<Mutex<Option<Receiver<u32>>>> = Arc::default();
    let seen = slot.clone();
    let builder = channel::builder().bounded(1).overflow(Overflow::DropOldest).on_overflow(move |_| {
        if let Some(rx) = &*seen.lock().unwrap() {
            assert_eq!(rx.try_iter().count(), 1);
        }
    });
    let (tx, rx) = builder.build();
    *slot.lock().unwrap() = Some(rx.clone());
    tx.send(1).unwrap();
    tx.send(2).unwrap();
    assert!(rx.is_empty());
    *slot.lock().unwrap() = None;
}

// the books balance under pressure too.
#[test]
fn stress_overflow() {
    let _watchdog = watchdog(120);
    let rt = runtime(2);
    let count = turns(5_000);
    for overflow in [Overflow::DropNewest, Overflow::DropOldest] {
        let (tx, rx, log) = with_overflow(overflow);
        let senders: Vec<_> = (0..3)
            .map(|sender| {
                let tx = tx.clone();
                rt.spawn(move || (0..count).for_each(|value| tx.send(sender * count + value).unwrap()))
            })
            .collect();
        drop(tx);
        let mut all: Vec<usize> = rt.run(|| rx.iter().collect());
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert_eq!(rx.dropped() as usize, log.lock().unwrap().len());
        all.append(&mut log.lock().unwrap());
        all.sort_unstable();
        assert!(all.into_iter().eq(0..3 * count));
    }
}
