//! Channels and select allocate nothing in steady state: a counting allocator under sends, receives and selects that are ready or wait.
//!
//! A binary of its own, with one test; counted is what the worker's thread allocates, as in `allocations.rs`.
#![cfg(not(any(loom, shuttle, fibra_asan, fibra_tsan)))]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use fibra::Runtime;
use fibra::channel::{Receiver, Select, Sender, bounded, rendezvous, unbounded};

struct Counting;

thread_local! {
    // Constant and without a destructor: reaching it allocates nothing.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `step` until it is warm, then says how often it allocates in `count` more.
fn allocations(count: usize, mut step: impl FnMut()) -> usize {
    (0..500).for_each(|_| step());
    let before = ALLOCATIONS.get();
    (0..count).for_each(|_| step());
    ALLOCATIONS.get() - before
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

// S0-59, S1-74, S4-09, X-19: waits lie on their stacks, buffers are made with their channel, and a select of eight channels has its room.
#[test]
fn channels_allocate_nothing_in_steady_state() {
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
        ]
    });
    for (what, count) in counted {
        assert_eq!(count, 0, "{what} allocates");
    }
}
