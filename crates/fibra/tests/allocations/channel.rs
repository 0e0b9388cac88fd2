//! Channels and select allocate nothing in steady state: a counting allocator under sends, receives and selects that are ready or wait.
#![cfg(not(any(fibra_asan, fibra_tsan)))]

use std::time::Duration;

use crate::counting::allocations as counted_after;
use crate::support;
use fibra::Runtime;
use fibra::channel::{Receiver, Select, Sender, bounded, rendezvous, unbounded};

/// How often `step` allocates in `count` rounds, once it is warm.
fn allocations(count: usize, step: impl FnMut()) -> usize {
    counted_after(500, count, step)
}

/// A fiber of this worker that sends back what it gets, until the channel ends.
fn echo(there: Receiver<u64>, back: Sender<u64>) {
    drop(fibra::spawn_local(move || there.iter().try_for_each(|value| back.send(value))));
}

/// A send and a receive over channels of this kind, with a peer that answers.
fn round_trip(channel: fn() -> (Sender<u64>, Receiver<u64>)) -> usize {
    let ((tx, there), (back, rx)) = (channel(), channel());
    echo(there, back);
    allocations(5_000, || {
        tx.send(7).unwrap();
        assert_eq!(rx.recv(), Ok(7));
    })
}

fn select_one(txs: &[Sender<u64>], rxs: &[Receiver<u64>]) -> u64 {
    let mut select = Select::new();
    for (index, (tx, rx)) in txs.iter().zip(rxs).enumerate() {
        if index.is_multiple_of(2) {
            select.recv(rx)
        } else {
            select.send(tx)
        };
    }
    let chosen = select.select();
    let index = chosen.index();
    if index.is_multiple_of(2) {
        chosen.recv(&rxs[index]).unwrap()
    } else {
        chosen.send(&txs[index], 7).unwrap();
        7
    }
}

/// A select of eight arms, four of them sends, with a peer at the first channel, or one that is always ready.
fn select_eight(ready: bool) -> usize {
    let (mut txs, mut rxs): (Vec<_>, Vec<_>) = (0..8).map(|_| rendezvous()).unzip();
    if ready {
        (txs[1], rxs[1]) = bounded(1);
        let (tx, rx) = (txs.clone(), rxs.clone());
        return allocations(5_000, || {
            assert_eq!(select_one(&tx, &rx), 7);
            assert_eq!(rx[1].try_recv(), Ok(7));
        });
    }
    let (ask, asked) = rendezvous();
    echo(asked, txs[0].clone());
    allocations(5_000, || {
        ask.send(7).unwrap();
        assert_eq!(select_one(&txs, &rxs), 7);
    })
}

/// The macro over eight channels, of which the last one is answered: it waits, and is woken.
fn select_eight_by_macro() -> usize {
    let (txs, rxs): (Vec<_>, Vec<_>) = (0..8).map(|_| rendezvous()).unzip();
    let (ask, asked) = rendezvous();
    echo(asked, txs[7].clone());
    allocations(5_000, || {
        ask.send(7).unwrap();
        let got = fibra::select! {
            recv(rxs[0]) -> got => got,
            recv(rxs[1]) -> got => got,
            recv(rxs[2]) -> got => got,
            recv(rxs[3]) -> got => got,
            send(txs[4], 1) -> _ => unreachable!("no receiver waits"),
            send(txs[5], 1) -> _ => unreachable!("no receiver waits"),
            closed(txs[6]) -> _ => unreachable!("the receiver is there"),
            recv(rxs[7]) -> got => got,
        };
        assert_eq!(got, Ok(7));
    })
}

// S0-59, S1-74, S4-09, X-19: waits lie on their stacks, buffers are made with their channel, and a select of eight channels has its room.
#[test]
fn channels_allocate_nothing_in_steady_state() {
    let _alone = crate::alone();
    let _watchdog = support::watchdog(120);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let counted = runtime.run(|| {
        let (tx, rx) = bounded::<u64>(16);
        let buffered = allocations(5_000, || {
            (0..16).for_each(|value| tx.send(value).unwrap());
            assert!(tx.try_send(16).is_err());
            (0..16).for_each(|value| assert_eq!(rx.recv(), Ok(value)));
            assert!(rx.try_recv().is_err());
        });
        let (tx, rx) = unbounded::<u64>();
        let unbounded_kept_small = allocations(5_000, || {
            (0..16).for_each(|value| tx.send(value).unwrap());
            (0..16).for_each(|value| assert_eq!(rx.recv(), Ok(value)));
        });
        let (tx, rx) = bounded::<u64>(1);
        let timeouts = allocations(200, || {
            assert!(rx.recv_timeout(Duration::from_nanos(1)).is_err());
            tx.send(1).unwrap();
            assert!(tx.send_timeout(1, Duration::from_nanos(1)).is_err());
            rx.recv().unwrap();
        });
        [
            ("buffered send and recv", buffered),
            ("unbounded send and recv", unbounded_kept_small),
            ("timeouts", timeouts),
            ("a round trip by rendezvous", round_trip(rendezvous)),
            ("a round trip over a buffer of one", round_trip(|| bounded(1))),
            ("a round trip over an unbounded channel", round_trip(unbounded)),
            ("a ready select over eight channels", select_eight(true)),
            ("a blocking select over eight channels", select_eight(false)),
            ("a blocking select! over eight channels", select_eight_by_macro()),
        ]
    });
    for (what, count) in counted {
        assert_eq!(count, 0, "{what} allocates");
    }
}
