//! On a rendezvous, who looks without waiting and who only watches: what a look promises, to whom, how often; and that nothing is lost if
//! the other side does not keep up.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use fibra::channel::{Receiver, Select, Sender, TryRecvError, TrySendError, bounded, rendezvous, unbounded};
use fibra::{Handle, Runtime, select};

use crate::channels::{Calls, alone, poll, ready, until_parked};
use crate::support::watchdog;
use crate::tools::turns;

/// A fiber that sends `value` by a dynamic select, which asks for a place before it has the value.
fn selects(tx: &Sender<u32>, value: u32) -> fibra::JoinHandle<()> {
    let tx = tx.clone();
    fibra::spawn_local(move || {
        let mut set = Select::new();
        set.send(&tx);
        set.select().send(&tx, value).unwrap();
    })
}

/// Lets the others run until no fiber but this one can.
fn until_quiet(parked: u64) {
    until_parked(parked);
    (0..10).for_each(|_| fibra::yield_now());
}

// A look never waits: it says honestly that nothing is there, and lets the oldest sender go on. That one's value is there at the next look.
#[test]
fn one_look_lets_one_sender_go_on() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = rendezvous();
        let senders: Vec<_> = (0..4)
            .map(|value| {
                let sender = selects(&tx, value);
                until_parked(u64::from(value) + 1);
                sender
            })
            .collect();
        for round in 0..4 {
            assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
            assert_eq!(rx.try_recv(), Err(TryRecvError::Empty), "one promise at a time");
            until_quiet(3 - round);
            assert_eq!(rx.len(), 1, "one look, one value");
            assert_eq!(rx.try_recv(), Ok(round as u32));
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}

// All the ways to look.
#[test]
fn a_select_that_does_not_wait_looks_too() {
    let _watchdog = watchdog(60);
    let looks: [fn(&Receiver<u32>); 5] = [
        |rx| assert!(rx.try_recv().is_err()),
        |rx| assert!(rx.try_iter().next().is_none()),
        |rx| select! { recv(rx) -> _ => panic!("it has no value yet"), default => {} },
        |rx| {
            let mut set = Select::new();
            set.recv(rx);
            assert!(set.try_select().is_err());
        },
        |rx| {
            let mut set = Select::new();
            set.recv(rx);
            assert!(set.try_ready().is_err(), "ready means that the value is there");
        },
    ];
    for look in looks {
        alone(|| {
            let (tx, rx) = rendezvous();
            let sender = selects(&tx, 5);
            until_parked(1);
            look(&rx);
            sender.join().unwrap();
            assert_eq!(rx.try_recv(), Ok(5));
        });
    }
}

// A promise that is not kept is given back: the next look is for the next sender. A dropped operation panics, as everywhere.
#[test]
fn a_promise_that_is_given_back_goes_to_the_next() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = rendezvous();
        let reserves = tx.clone();
        let gives_back = fibra::spawn_local(move || drop(reserves.reserve().unwrap()));
        until_parked(1);
        let drops = tx.clone();
        let panics = fibra::spawn_local(move || {
            let mut set = Select::new();
            set.send(&drops);
            drop(set.select());
        });
        until_parked(2);
        let sender = selects(&tx, 6);
        until_parked(3);
        assert!(rx.try_recv().is_err());
        gives_back.join().unwrap();
        assert!(rx.try_recv().is_err());
        assert!(panics.join().unwrap_err().is_panic());
        assert!(rx.try_recv().is_err());
        sender.join().unwrap();
        assert_eq!(rx.try_recv(), Ok(6));
    });
}

// A future that was told that a value is wanted, and is not polled, holds up no other; polled, it has its permit, unless another was
// quicker.
#[test]
fn a_future_that_is_not_polled_holds_up_no_other_sender() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = rendezvous();
        let calls = Calls::new();
        let mut slow = pin!(tx.reserve_async());
        assert!(poll(slow.as_mut(), &calls).is_pending());
        assert!(rx.try_recv().is_err());
        assert_eq!(calls.count(), 1, "a value is wanted");
        let sender = selects(&tx, 1);
        until_parked(1);
        assert!(rx.try_recv().is_err());
        sender.join().unwrap();
        // There is one already.
        assert!(poll(slow.as_mut(), &calls).is_pending());
        assert_eq!(rx.try_recv(), Ok(1));
        assert!(rx.try_recv().is_err());
        ready(slow.as_mut()).unwrap().send(2);
        assert_eq!(rx.try_recv(), Ok(2));
        // Dropped after it was told: nothing stays promised.
        let mut dropped = Box::pin(tx.reserve_async());
        assert!(poll(dropped.as_mut(), &calls).is_pending());
        assert!(rx.try_recv().is_err());
        drop(dropped);
        let sender = selects(&tx, 3);
        until_parked(1);
        assert!(rx.try_recv().is_err());
        sender.join().unwrap();
        assert_eq!(rx.try_recv(), Ok(3));
    });
}

// closed after a look, before the value: it is delivered, and only then is the channel at its end.
#[test]
fn a_promise_outlives_a_close() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = rendezvous();
        let reserves = tx.clone();
        let (go, gate) = bounded::<()>(1);
        let sender = fibra::spawn_local(move || {
            let permit = reserves.reserve().unwrap();
            gate.recv().unwrap();
            permit.send(7);
        });
        until_parked(1);
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        until_quiet(1);
        tx.close();
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty), "one is on its way");
        go.send(()).unwrap();
        sender.join().unwrap();
        assert_eq!((rx.try_recv(), rx.try_recv()), (Ok(7), Err(TryRecvError::Disconnected)));
    });
}

// A send that does not wait meets a future that does: the value lies there for it. Whatever becomes of the future, it is received once.
#[test]
fn a_value_left_for_a_future_is_not_lost() {
    let _watchdog = watchdog(60);
    alone(|| {
        let sends: [fn(&Sender<u32>) -> bool; 4] = [
            |tx| tx.try_send(4).is_ok(),
            |tx| tx.force_send(4) == Ok(None),
            |tx| select! { send(tx, 4) -> sent => sent.is_ok(), default => false },
            |tx| {
                let mut set = Select::new();
                set.send(tx);
                set.try_select().is_ok_and(|operation| operation.send(tx, 4).is_ok())
            },
        ];
        for send in sends {
            let (tx, rx) = rendezvous();
            assert!(!send(&tx), "no receiver waits");
            let mut waits = Box::pin(rx.recv_async());
            let calls = Calls::new();
            assert!(poll(waits.as_mut(), &calls).is_pending());
            assert!(send(&tx));
            assert_eq!(calls.count(), 1);
            assert_eq!(tx.try_send(5), Err(TrySendError::Full(5)), "one future, one value");
            assert_eq!(ready(waits.as_mut()), Ok(4));
            // Dropped instead.
            let mut waits = Box::pin(rx.recv_async());
            assert!(poll(waits.as_mut(), &calls).is_pending());
            assert!(send(&tx));
            drop(waits);
            assert_eq!((rx.recv(), rx.try_recv()), (Ok(4), Err(TryRecvError::Empty)));
        }
    });
}

// S0-44: a send that waits returns when the future has the value, not before.
#[test]
fn a_send_that_waits_is_not_through_before_the_future_has_the_value() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = rendezvous();
        let mut waits = Box::pin(rx.recv_async());
        assert!(poll(waits.as_mut(), &Calls::new()).is_pending());
        let sender = fibra::spawn_local(move || tx.send(4).unwrap());
        until_quiet(1);
        assert!(!sender.is_finished() && rx.is_empty());
        assert_eq!(ready(waits.as_mut()), Ok(4));
        sender.join().unwrap();
    });
}

// Two sides of which neither stays do not meet, and neither is lied to: both poll, or the sender watches for one that polls.
#[test]
fn two_sides_that_do_not_stay_do_not_meet() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = rendezvous::<u32>();
        for _ in 0..100 {
            assert!(tx.try_send(1).is_err() && rx.try_recv().is_err());
        }
        let watches = tx.clone();
        let watcher = fibra::spawn_local(move || {
            let mut set = Select::new();
            set.send(&watches);
            set.ready();
        });
        until_parked(1);
        for _ in 0..100 {
            assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
            fibra::yield_now();
        }
        assert!(!watcher.is_finished() && Handle::current().metrics().parked == 1, "it is not told in vain");
        rx.close();
        watcher.join().unwrap();
    });
}

/// One side sends by dynamic selects over three kinds of channels, the other one waits until one is ready and then tries: `counts` each.
fn send_and_watch(counts: &[AtomicUsize; 3], rounds: usize, start: impl FnOnce(Box<dyn FnOnce() + Send>)) {
    let ends = [unbounded(), bounded(1), rendezvous()];
    let senders = ends.each_ref().map(|(tx, _)| tx.clone());
    start(Box::new(move || {
        for _ in 0..rounds {
            let mut set = Select::new();
            // The rendezvous first, and the others only while nothing is in them: or they would always be ready.
            let mut chosen = vec![2];
            set.send(&senders[2]);
            for index in [0, 1] {
                if senders[index].is_empty() {
                    set.send(&senders[index]);
                    chosen.push(index);
                }
            }
            let operation = set.select();
            let tx = &senders[chosen[operation.index()]];
            operation.send(tx, ()).unwrap();
        }
    }));
    let mut set = Select::new();
    for (_, rx) in &ends {
        set.recv(rx);
    }
    for _ in 0..rounds {
        loop {
            let index = set.ready();
            if ends[index].1.try_recv().is_ok() {
                counts[index].fetch_add(1, SeqCst);
                break;
            }
        }
    }
}

#[test]
fn dynamic_senders_and_watching_receivers_never_both_sleep() {
    let _watchdog = watchdog(120);
    for threads in [true, false] {
        let counts = [const { AtomicUsize::new(0) }; 3];
        let rounds = turns(20_000);
        if threads {
            send_and_watch(&counts, rounds, |sends| drop(std::thread::spawn(sends)));
        } else {
            let runtime = Runtime::builder().workers(2).build().unwrap();
            runtime.run(|| send_and_watch(&counts, rounds, |sends| drop(fibra::spawn(sends))));
        }
        let counts = counts.map(AtomicUsize::into_inner);
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), rounds);
    }
}
