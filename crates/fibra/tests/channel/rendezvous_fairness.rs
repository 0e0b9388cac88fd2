//! On a rendezvous, those who have something in hand and those who have not: a sender that asks for a place before it has a value is not
//! passed over for ever by those who have one, a promise that is held for long keeps no others apart, and one who waits by
//! several arms is one.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use fibra::channel::{self, Overflow, Select, Sender, bounded, rendezvous};

use crate::channels::{Calls, alone, poll, until_parked};
use crate::support::watchdog;

// First come, first served. The others always have one among them who waits with a value, so the receiver never waits itself.
#[test]
fn who_asks_for_a_place_is_not_passed_over_for_ever() {
    let _watchdog = watchdog(60);
    let ways: [fn(&Sender<u32>); 3] = [
        |tx| tx.reserve().unwrap().send(1),
        |tx| fibra::block_on(tx.reserve_async()).unwrap().send(1),
        |tx| {
            let mut set = Select::new();
            set.send(tx);
            set.select().send(tx, 1).unwrap();
        },
    ];
    for (way, asks) in ways.into_iter().enumerate() {
        alone(move || {
            let (tx, rx) = rendezvous();
            let (done, stop) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
            for _ in 0..3 {
                let (tx, stop) = (tx.clone(), stop.clone());
                fibra::spawn_local(move || while !stop.get() && tx.send(0).is_ok() {});
            }
            let asking = {
                let done = done.clone();
                fibra::spawn_local(move || {
                    asks(&tx);
                    done.set(true);
                })
            };
            let (mut received, mut sum) = (0, 0);
            while !done.get() && received < 10_000 {
                sum += rx.recv().unwrap();
                received += 1;
                fibra::yield_now();
            }
            assert!(done.get(), "way {way}: passed over {received} times");
            stop.set(true);
            asking.join().unwrap();
            sum += rx.iter().sum::<u32>();
            assert_eq!(sum, 1, "its value came");
        });
    }
}

// The receiver that looked has gone on: no other receiver is kept for the promise that its look brought about.
#[test]
fn a_promise_for_a_look_keeps_no_pair_apart() {
    let _watchdog = watchdog(60);
    for receiver_first in [true, false] {
        alone(move || {
            let (tx, rx) = rendezvous::<u32>();
            let (go, wait) = bounded::<()>(1);
            let holder = {
                let tx = tx.clone();
                fibra::spawn_local(move || {
                    let permit = tx.reserve().unwrap();
                    wait.recv().unwrap();
                    permit.send(1);
                })
            };
            until_parked(1);
            assert!(rx.try_recv().is_err());
            fibra::yield_now();
            until_parked(1);
            let receives = || {
                let rx = rx.clone();
                fibra::spawn_local(move || rx.recv())
            };
            let sends = || {
                let tx = tx.clone();
                fibra::spawn_local(move || tx.send(2))
            };
            let (receiver, sender);
            if receiver_first {
                receiver = receives();
                until_parked(2);
                sender = sends();
            } else {
                sender = sends();
                until_parked(2);
                receiver = receives();
            }
            assert_eq!(receiver.join().unwrap(), Ok(2));
            assert_eq!(sender.join().unwrap(), Ok(()));
            go.send(()).unwrap();
            assert_eq!(rx.recv(), Ok(1), "it is the next one's");
            holder.join().unwrap();
        });
    }
}

// A permit may be held for long, and forgotten: looks bring about one promise at a time, and a receiver that waits is still a place.
#[test]
fn a_forgotten_promise_for_a_look_keeps_no_places_back() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = rendezvous::<u32>();
        let forgetful = {
            let tx = tx.clone();
            fibra::spawn_local(move || std::mem::forget(tx.reserve().unwrap()))
        };
        until_parked(1);
        assert!(rx.try_recv().is_err());
        forgetful.join().unwrap();
        let receiver = {
            let rx = rx.clone();
            fibra::spawn_local(move || (0..3).map(|_| rx.recv().unwrap()).collect::<Vec<_>>())
        };
        until_parked(1);
        tx.reserve_timeout(Duration::from_secs(30)).unwrap().send(1);
        until_parked(1);
        tx.try_send(2).unwrap();
        tx.send(3).unwrap();
        assert_eq!(receiver.join().unwrap(), [1, 2, 3]);
    });
}

#[test]
fn several_arms_of_one_receiver_are_one_place() {
    let _watchdog = watchdog(60);
    alone(|| {
        let (tx, rx) = rendezvous::<u32>();
        let receiver = fibra::spawn_local(move || {
            let got = fibra::select! {
                recv(rx) -> got => got,
                recv(rx) -> got => got,
                recv(rx) -> got => got,
            };
            (got, rx)
        });
        until_parked(1);
        let place = tx.try_reserve().unwrap();
        assert!(tx.try_reserve().unwrap_err().is_full(), "one receiver, one place");
        place.send(1);
        let (got, rx) = receiver.join().unwrap();
        assert_eq!((got, rx.len()), (Ok(1), 0));
    });
}

// Where a policy decides, no sender waits: each is like `try_send`, and leaves its value for one who waits and cannot be handed it.
#[test]
fn a_policy_drops_nothing_that_a_future_or_a_watcher_waits_for() {
    let _watchdog = watchdog(60);
    for overflow in [Overflow::DropNewest, Overflow::DropOldest] {
        alone(move || {
            let (tx, rx) = channel::builder().bounded(0).overflow(overflow).build();
            {
                let mut future = pin!(rx.recv_async());
                let calls = Calls::new();
                assert!(poll(future.as_mut(), &calls).is_pending());
                tx.send(1).unwrap();
                assert_eq!(calls.count(), 1, "{overflow:?}");
                assert_eq!(poll(future.as_mut(), &calls), Poll::Ready(Ok(1)));
            }
            let watcher = fibra::spawn_local(move || {
                let mut set = Select::new();
                set.recv(&rx);
                set.ready();
                rx.try_recv()
            });
            until_parked(1);
            tx.send(2).unwrap();
            assert_eq!(watcher.join().unwrap(), Ok(2), "{overflow:?}");
            assert_eq!(tx.dropped(), 0);
        });
    }
}
