//! The reasons to wait of channels of every kind: what is played for each in `every_reason_to_wait_can_be_cancelled`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::{Counted, cancelled_in, runtime};
use fibra::channel;

// The sender learns that the cancelled receiver is gone, and keeps its value.
pub(super) fn oneshot_recv() {
    let (tx, rx) = channel::oneshot();
    cancelled_in(move || assert!(rx.recv().is_err()));
    assert_eq!(tx.send(1), Err(1));
}

pub(super) fn oneshot_closed() {
    let (tx, rx) = channel::oneshot::<u8>();
    cancelled_in(move || tx.closed());
    assert!(rx.recv().is_err(), "the sender is gone");
}

// The change that comes after it is there for the next wait.
pub(super) fn watch_changed() {
    let (tx, rx) = channel::watch(0);
    let waiting = rx.clone();
    cancelled_in(move || assert!(waiting.changed().is_err()));
    tx.send(1).unwrap();
    assert!(rx.changed().is_ok());
}

pub(super) fn watch_closed() {
    let (tx, rx) = channel::watch(0);
    cancelled_in(move || tx.closed());
    assert!(rx.changed().is_err(), "the sender is gone");
}

pub(super) fn broadcast_recv() {
    let (tx, rx) = channel::broadcast(4);
    let rx = Arc::new(rx);
    let waiting = rx.clone();
    cancelled_in(move || assert!(waiting.recv().is_err()));
    tx.send(1).unwrap();
    assert_eq!(rx.recv(), Ok(1), "the one that was cancelled has taken nothing");
}

pub(super) fn broadcast_closed() {
    let (tx, rx) = channel::broadcast::<u8>(4);
    cancelled_in(move || tx.closed());
    assert!(rx.recv().is_err(), "the sender is gone");
}

// The task of one that was cancelled never ran, and its place is free.
pub(super) fn ordered_spawn() {
    let runtime = runtime();
    let (tx, rx) = channel::ordered(1);
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = ran.clone();
    let sender = tx.clone();
    runtime.run(move || sender.spawn(|| 1).unwrap());
    let waiting = tx.clone();
    cancelled_in(move || {
        drop(waiting.spawn(move || {
            counted.fetch_add(1, SeqCst);
            2
        }));
    });
    assert_eq!(rx.recv().unwrap().unwrap(), 1);
    runtime.run(move || tx.spawn(|| 3).unwrap());
    assert_eq!((rx.recv().unwrap().unwrap(), ran.load(SeqCst)), (3, 0));
}

// The result is there for the next one.
pub(super) fn ordered_recv() {
    let runtime = runtime();
    let (tx, rx) = channel::ordered(1);
    let waiting = rx.clone();
    cancelled_in(move || drop(waiting.recv()));
    runtime.run(move || tx.spawn(|| 1).unwrap());
    assert_eq!(rx.recv().unwrap().unwrap(), 1);
}

pub(super) fn pool_get() {
    let pool = channel::pool(1, || Ok::<_, ()>(1), |_| true);
    let held = pool.get().unwrap();
    let waiting = pool.clone();
    cancelled_in(move || drop(waiting.get()));
    drop(held);
    assert_eq!((pool.try_get().map(|item| *item), pool.idle()), (Ok(1), 1));
}

// The value of a cancelled send is dropped, once, and no receiver gets it; the channel works on.
pub(super) fn channel_send() {
    let drops = Arc::new(AtomicUsize::new(0));
    let (tx, rx) = channel::rendezvous();
    let (value, sender) = (Counted(drops.clone()), tx.clone());
    cancelled_in(move || drop(sender.send(value)));
    assert_eq!(drops.load(SeqCst), 1);
    assert!(rx.try_recv().is_err());
    let receiver = std::thread::spawn(move || rx.recv().is_ok());
    assert!(tx.send(Counted(drops)).is_ok() && receiver.join().unwrap());
}

// A cancelled receive takes nothing: what comes goes to the next.
pub(super) fn channel_recv() {
    let (tx, rx) = channel::bounded(1);
    let receiver = rx.clone();
    cancelled_in(move || assert!(receiver.recv().is_err()));
    tx.send(7).unwrap();
    assert_eq!(rx.try_recv(), Ok(7));
}

// A cancelled reservation holds no place.
pub(super) fn channel_reserve() {
    let (tx, rx) = channel::bounded(1);
    tx.send(1).unwrap();
    let sender = tx.clone();
    cancelled_in(move || drop(sender.reserve()));
    assert_eq!(rx.try_recv(), Ok(1));
    assert_eq!(tx.try_send(2), Ok(()));
}

pub(super) fn channel_closed() {
    let (tx, rx) = channel::bounded::<u32>(1);
    let sender = tx.clone();
    cancelled_in(move || drop(sender.closed()));
    assert!(tx.try_send(1).is_ok() && rx.try_recv() == Ok(1));
}

// No arm of a cancelled select is done: the value of its send is dropped, the channels of the others keep theirs.
pub(super) fn select() {
    let drops = Arc::new(AtomicUsize::new(0));
    let (tx, rx) = channel::rendezvous();
    let (other_tx, other_rx) = channel::bounded(1);
    let (value, sender, receiver) = (Counted(drops.clone()), tx.clone(), other_rx.clone());
    cancelled_in(move || {
        fibra::select! {
            send(sender, value) -> sent => drop(sent),
            recv(receiver) -> received => assert_eq!(received, Ok(0_u32)),
        }
    });
    assert_eq!(drops.load(SeqCst), 1);
    assert!(rx.try_recv().is_err());
    other_tx.send(3).unwrap();
    assert_eq!(other_rx.try_recv(), Ok(3));
    drop(tx);
}
