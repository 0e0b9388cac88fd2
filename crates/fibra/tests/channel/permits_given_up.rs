//! Permits that are given up or forgotten, and what a full channel does about them.
#![allow(clippy::disallowed_types)] // The ledgers must work when the runtime does not.

use std::mem;
use std::sync::{Arc, Mutex};

use crate::reentrant_wakers::{poll, waker};
use crate::support::watchdog;
use fibra::channel::{self, Overflow, Select, rendezvous};

/// Permits of a channel with a policy are never refused, and what they sent went beyond the capacity, for ever.
#[test]
fn permits_obey_the_overflow_policy() {
    let _watchdog = watchdog(20);
    for overflow in [Overflow::DropNewest, Overflow::DropOldest] {
        for capacity in [0, 1, 3] {
            let evicted = Arc::new(Mutex::new(Vec::new()));
            let saw = evicted.clone();
            let (tx, rx) = channel::builder()
                .bounded(capacity)
                .overflow(overflow)
                .on_overflow(move |value: u32| saw.lock().unwrap().push(value))
                .build();
            for value in 0..5 {
                tx.reserve().unwrap().send(value);
            }
            let mut select = Select::new();
            select.send(&tx);
            select.select().send(&tx, 5).unwrap();
            assert!(rx.len() <= capacity, "{overflow:?}: {} in a buffer of {capacity}", rx.len());
            let mut all = evicted.lock().unwrap().clone();
            assert_eq!(all.len() as u64, rx.dropped());
            let kept: Vec<_> = rx.try_iter().collect();
            let expected: Vec<u32> = match overflow {
                Overflow::DropNewest => (0..capacity as u32).collect(),
                _ => (6 - capacity as u32..6).collect(),
            };
            assert_eq!(kept, expected, "{overflow:?} of {capacity}");
            all.extend(kept);
            all.sort_unstable();
            assert_eq!(all, (0..6).collect::<Vec<_>>(), "every value is received or handed to on_overflow");
        }
    }
}

/// Receivers held back by permits that are given up all at once.
#[test]
fn permits_given_up_let_all_senders_go() {
    let _watchdog = watchdog(20);
    fibra::run(|| {
        for _ in 0..50 {
            let (tx, rx) = rendezvous::<u32>();
            let receivers: Vec<_> = (0..3)
                .map(|_| {
                    let rx = rx.clone();
                    fibra::spawn(move || rx.recv().unwrap())
                })
                .collect();
            let permits: Vec<_> = (0..3).map(|_| tx.reserve().unwrap()).collect();
            assert!(tx.try_send(9).is_err(), "all three are spoken for");
            let senders: Vec<_> = (0..3)
                .map(|value| {
                    let tx = tx.clone();
                    fibra::spawn(move || tx.send(value).unwrap())
                })
                .collect();
            fibra::yield_now();
            drop(permits);
            let sum: u32 = receivers.into_iter().map(|receiver| receiver.join().unwrap()).sum();
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            assert_eq!(sum, 3);
        }
    });
}

/// Forgotten permits and forgotten futures together: the last sender's end told one receiver and left the others asleep.
#[test]
fn what_forgotten_permits_held_back_is_delivered_in_the_end() {
    let _watchdog = watchdog(20);
    let (tx, rx) = rendezvous::<u32>();
    let receivers: Vec<_> = (0..3)
        .map(|_| {
            let rx = rx.clone();
            std::thread::spawn(move || rx.recv())
        })
        .collect();
    let mut permits = 0;
    while permits < 3 {
        if let Ok(permit) = tx.try_reserve() {
            mem::forget(permit);
            permits += 1;
        }
        std::thread::yield_now();
    }
    let quiet = waker(|| ());
    for value in 1..=3 {
        let mut send = tx.send_async(value);
        assert!(poll(&mut send, &quiet).is_pending());
        mem::forget(send);
    }
    drop(tx);
    let mut got: Vec<_> = receivers.into_iter().map(|receiver| receiver.join().unwrap().unwrap()).collect();
    got.sort_unstable();
    assert_eq!(got, [1, 2, 3]);
}
