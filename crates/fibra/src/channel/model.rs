//! Models of channels and select: the code itself, driven by the model's threads and by futures polled by hand.
//!
//! Each asserts what the ledger of values must say: nothing lost, nothing twice, whatever the schedule.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::*;
use crate::prim::atomic::{AtomicU32, Ordering};
use crate::prim::model::{check, thread};
use crate::prim::sync::Arc;
use crate::select::model::{Arms, Won, ready, select};

// ---- One channel ----------------------------------------------------------------------------------------------------------

// S0-44, S0-51: a value goes from stack to stack, whichever side comes first.
#[test]
fn model_rendezvous() {
    check(2, || {
        let (tx, rx) = rendezvous::<Box<u32>>();
        let sender = thread::spawn(move || tx.send(Box::new(7)).map_err(|_| ()));
        assert_eq!(rx.recv().map(|value| *value), Ok(7));
        assert_eq!(sender.join().unwrap(), Ok(()));
    });
}

// S4-73, S4-74: a buffer of one, two values: in order, and the sender who waited for room is let go.
#[test]
fn model_bounded_one() {
    check(2, || {
        let (tx, rx) = bounded::<u32>(1);
        let sender = thread::spawn(move || {
            tx.send(1).unwrap();
            tx.send(2).unwrap();
        });
        assert_eq!((rx.recv(), rx.recv(), rx.recv()), (Ok(1), Ok(2), Err(RecvError)));
        sender.join().unwrap();
    });
}

// A loop that takes batches: all values, in order; the sender that waits for places of a batch is let go when they are given back, no
// sender stays parked while there is room, and in the end all places are there again.
#[test]
fn model_batches() {
    check(2, || {
        let (tx, rx) = bounded::<u32>(2);
        let other = tx.clone();
        let sender = thread::spawn(move || (0..4).for_each(|number| tx.send(number).unwrap()));
        let mut batch = batch::Batch::of(&rx).unwrap();
        for number in 0..4 {
            let value = match batch.next() {
                Some(value) => value,
                None if rx.refill(&mut batch) => {
                    let mut locked = rx.chan().lock();
                    let state = locked.state();
                    let is_left = state.has_room() && !state.senders.is_empty();
                    locked.unlock();
                    assert!(!is_left, "a sender is parked although there is room");
                    batch.next().unwrap()
                }
                None => rx.recv().unwrap(),
            };
            assert_eq!(value, number);
        }
        sender.join().unwrap();
        assert!(!rx.refill(&mut batch));
        assert!(other.try_send(4).is_ok() && other.try_send(5).is_ok(), "both places are free");
    });
}

// S0-36: two receivers, two values: each gets one.
#[test]
fn model_two_receivers() {
    check(1, || {
        let (tx, rx) = rendezvous::<u32>();
        let other = rx.clone();
        let receiver = thread::spawn(move || other.recv().unwrap());
        let sender = thread::spawn(move || {
            tx.send(1).unwrap();
            tx.send(2).unwrap();
        });
        let got = rx.recv().unwrap();
        assert_eq!(got + receiver.join().unwrap(), 3);
        sender.join().unwrap();
    });
}

// S4-52, S4-62: closing against sending: admitted and delivered, or refused and given back.
#[test]
fn model_close_against_send() {
    check(2, || {
        let (tx, rx) = bounded::<u32>(1);
        let closer = tx.clone();
        let sender = thread::spawn(move || tx.send(5));
        closer.close();
        match sender.join().unwrap() {
            Ok(()) => assert_eq!(rx.recv(), Ok(5)),
            Err(SendError(value)) => assert_eq!(value, 5),
        }
        assert_eq!(rx.recv(), Err(RecvError));
    });
}

// S4-66: closing against receiving: a receiver that waits is woken.
#[test]
fn model_close_against_recv() {
    check(2, || {
        let (tx, rx) = rendezvous::<u32>();
        let receiver = thread::spawn(move || rx.recv());
        tx.close();
        assert_eq!(receiver.join().unwrap(), Err(RecvError));
    });
}

// C-23: a sender who was admitted keeps his place through a close; `close_now` gives him his value back.
#[test]
fn model_close_now_against_parked_sender() {
    check(2, || {
        let (tx, rx) = rendezvous::<Box<u32>>();
        let closer = rx.clone();
        let sender = thread::spawn(move || tx.send(Box::new(9)).map_err(|error| *error.0));
        closer.close_now();
        let received = rx.try_recv().map(|value| *value);
        match sender.join().unwrap() {
            Ok(()) => assert_eq!(received, Ok(9)),
            Err(value) => assert_eq!((value, received), (9, Err(TryRecvError::Disconnected))),
        }
    });
}

// S0-41, S0-43: the last receiver goes while a sender sends.
#[test]
fn model_receiver_dropped_against_send() {
    check(2, || {
        let (tx, rx) = rendezvous::<u32>();
        let sender = thread::spawn(move || tx.send(3));
        drop(rx);
        assert_eq!(sender.join().unwrap(), Err(SendError(3)));
    });
}

// S0-33, S0-42: both ends at once, with something in the buffer: freed once, dropped once.
#[test]
fn model_both_ends_dropped() {
    check(3, || {
        let dropped = Arc::new(AtomicU32::new(0));
        struct Counted(Arc<AtomicU32>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        // loom finds out if no handle frees the channel: it counts the handles of its own.
        let freed = Arc::new(());
        let (tx, rx) = builder().bounded(1).on_overflow(move |_| assert_eq!(*freed, ())).build();
        assert!(tx.try_send(Counted(dropped.clone())).is_ok());
        let other = thread::spawn(move || drop(tx));
        drop(rx);
        other.join().unwrap();
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    });
}

// C-25: time against a match: exactly one of them ends the wait.
#[test]
fn model_timeout_against_match() {
    check(2, || {
        let (tx, rx) = rendezvous::<u32>();
        let receiver = thread::spawn(move || rx.try_recv().or_else(|_| rx.recv_timeout(Duration::ZERO)));
        let sent = tx.send_timeout(4, Duration::ZERO);
        match (sent, receiver.join().unwrap()) {
            (Ok(()), received) => assert_eq!(received, Ok(4)),
            (Err(error), received) => assert_eq!((error.into_inner(), received.is_err()), (4, true)),
        }
    });
}

// C-25: a send that waits as long as it takes against a receiver whose time is up: it is received, or comes back when the receivers are
// gone.
#[test]
fn model_send_against_recv_timeout() {
    check(2, || {
        let (tx, rx) = rendezvous::<u32>();
        let receiver = thread::spawn(move || rx.recv_timeout(Duration::ZERO).ok());
        let sent = tx.send(4).map_err(|error| error.0);
        match receiver.join().unwrap() {
            Some(value) => assert_eq!((value, sent), (4, Ok(()))),
            None => assert_eq!(sent, Err(4)),
        }
    });
}

// C-25: the reverse.
#[test]
fn model_recv_against_send_timeout() {
    check(2, || {
        let (tx, rx) = rendezvous::<u32>();
        let sender = thread::spawn(move || tx.send_timeout(4, Duration::ZERO).is_ok());
        let received = rx.recv();
        assert_eq!(sender.join().unwrap(), received == Ok(4));
    });
}

// A "no" of a `try_` operation is not older than what its own thread did before: one of the two sees the other.
#[test]
fn model_try_sees_what_went_before() {
    check(3, || {
        let (one_tx, one_rx) = bounded::<u32>(1);
        let (two_tx, two_rx) = bounded::<u32>(1);
        let other = thread::spawn(move || {
            one_tx.send(1).unwrap();
            (two_rx.try_recv().is_ok(), one_tx, two_rx)
        });
        two_tx.send(2).unwrap();
        let here = one_rx.try_recv().is_ok();
        let (there, ..) = other.join().unwrap();
        assert!(here || there, "both were told that there is nothing");
    });
}

// ---- Permits --------------------------------------------------------------------------------------------------------------

// a permit that is out keeps a closed channel from ending.
#[test]
fn model_permit_against_close() {
    check(2, || {
        let (tx, rx) = bounded::<u32>(1);
        let receiver = thread::spawn(move || (rx.recv(), rx));
        let permit = tx.reserve().unwrap();
        tx.close();
        permit.send(6);
        let (received, _rx) = receiver.join().unwrap();
        assert_eq!(received, Ok(6));
    });
}

// ---- Futures --------------------------------------------------------------------------------------------------------------

/// Counts its calls.
#[derive(Default)]
struct Calls(std::sync::atomic::AtomicU32);

impl Wake for Calls {
    fn wake(self: StdArc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

fn poll<F: Future + Unpin>(future: &mut F) -> (Poll<F::Output>, StdArc<Calls>) {
    let calls = StdArc::new(Calls::default());
    let waker = Waker::from(calls.clone());
    (Pin::new(future).poll(&mut Context::from_waker(&waker)), calls)
}

// Dropping a waiting receive against a match: the value stays for the next, and the receiver that waits behind is told.
#[test]
fn model_recv_future_dropped_against_send() {
    check(2, || {
        let (tx, rx) = bounded::<u32>(1);
        let mut first = rx.recv_async();
        assert!(poll(&mut first).0.is_pending());
        let mut second = rx.recv_async();
        let (polled, calls) = poll(&mut second);
        assert!(polled.is_pending());
        let sender = thread::spawn(move || {
            tx.send(8).unwrap();
            tx
        });
        drop(first);
        // Alive until the end: closing would call all waiters.
        let _tx = sender.join().unwrap();
        assert_eq!(calls.0.load(std::sync::atomic::Ordering::Relaxed), 1, "the one behind was not told");
        assert_eq!(poll(&mut second).0, Poll::Ready(Ok(8)));
    });
}

// Two futures wait, and two values come: each of them is called for one, though the first value is still there when the second one comes.
#[test]
fn model_each_send_calls_a_future() {
    check(1, || {
        let (tx, rx) = bounded::<u32>(4);
        let (mut first, mut second) = (rx.recv_async(), rx.recv_async());
        let ((one, one_calls), (two, two_calls)) = (poll(&mut first), poll(&mut second));
        assert!(one.is_pending() && two.is_pending());
        let sender = thread::spawn(move || {
            tx.send(1).unwrap();
            tx.send(2).unwrap();
            tx
        });
        // Alive until the end: closing would call all waiters.
        let _tx = sender.join().unwrap();
        let called = [one_calls, two_calls].map(|calls| calls.0.load(std::sync::atomic::Ordering::Relaxed));
        assert_eq!(called, [1, 1]);
        assert_eq!((poll(&mut first).0, poll(&mut second).0), (Poll::Ready(Ok(1)), Poll::Ready(Ok(2))));
    });
}

// Dropping a waiting send against a receive: taken, or dropped with the future; never both, never neither.
#[test]
fn model_send_future_dropped_against_recv() {
    check(2, || {
        let (tx, rx) = rendezvous::<StdArc<()>>();
        let value = StdArc::new(());
        let mut send = tx.send_async(value.clone());
        assert!(poll(&mut send).0.is_pending());
        let receiver = thread::spawn(move || rx.try_recv().is_ok());
        drop(send);
        let _ = receiver.join().unwrap();
        assert_eq!(StdArc::strong_count(&value), 1);
    });
}

// A future that is polled while it is completed is ready, or is called.
#[test]
fn model_recv_future_against_send() {
    check(2, || {
        let (tx, rx) = rendezvous::<u32>();
        let sender = thread::spawn(move || tx.send(2));
        let mut receive = rx.recv_async();
        let received = match poll(&mut receive) {
            (Poll::Ready(received), _) => received,
            (Poll::Pending, calls) => {
                while calls.0.load(std::sync::atomic::Ordering::Relaxed) == 0 {
                    thread::yield_now();
                }
                match poll(&mut receive).0 {
                    Poll::Ready(received) => received,
                    Poll::Pending => panic!("called for nothing"),
                }
            }
        };
        assert_eq!(received, Ok(2));
        assert_eq!(sender.join().unwrap(), Ok(()));
    });
}

// ---- Those who look or watch, on a rendezvous -----------------------------------------------------------------------------

// A sender that waits for a place before it has a value, and a receiver that only watches: when it is told, the value is there.
#[test]
fn model_reserve_meets_a_watcher() {
    check(2, || {
        let (tx, rx) = rendezvous::<u32>();
        let sender = thread::spawn(move || {
            tx.reserve().unwrap().send(4);
            tx
        });
        ready(&rx);
        assert_eq!(rx.try_recv(), Ok(4));
        // Alive until here: closing would tell all waiters.
        drop(sender.join().unwrap());
    });
}

// a place that was given because a receiver looked keeps a closed channel from ending, like any other.
#[test]
fn model_look_against_reserve() {
    check(2, || {
        let (tx, rx) = rendezvous::<u32>();
        let sender = thread::spawn(move || {
            let permit = tx.reserve().unwrap();
            tx.close();
            permit.send(6);
        });
        let received = rx.try_recv().or_else(|_| rx.recv());
        assert_eq!(received, Ok(6));
        sender.join().unwrap();
    });
}

// A value left for one that only watches, which owes nothing: a future that waits beside it is called.
#[test]
fn model_try_send_beside_a_watcher() {
    check(2, || {
        let (tx, rx) = rendezvous::<u32>();
        let watched = rx.clone();
        let watcher = thread::spawn(move || ready(&watched));
        let mut receive = rx.recv_async();
        let (polled, calls) = poll(&mut receive);
        assert!(polled.is_pending());
        assert_eq!(tx.try_send(8), Ok(()));
        assert_eq!(calls.0.load(std::sync::atomic::Ordering::Relaxed), 1, "the future was not called");
        assert_eq!(poll(&mut receive).0, Poll::Ready(Ok(8)));
        // If the watcher came too late for the value.
        tx.close();
        watcher.join().unwrap();
    });
}

// ---- Select ---------------------------------------------------------------------------------------------------------------

// S0-60: two selects that offer each other what the other wants, in opposite orders: one pair is made, and both go on with it.
#[test]
fn model_select_against_select() {
    check(2, || {
        let (a_tx, a_rx) = rendezvous::<u32>();
        let (b_tx, b_rx) = rendezvous::<u32>();
        let (a, b) = (a_tx.clone(), b_rx.clone());
        let other = thread::spawn(move || select(Arms::new().recv(&b).send(&a, 10)));
        let here = select(Arms::new().recv(&a_rx).send(&b_tx, 20));
        match (here, other.join().unwrap()) {
            (Won::Received(Ok(10)), Won::Sent(true)) | (Won::Sent(true), Won::Received(Ok(20))) => {}
            other => panic!("{other:?}"),
        }
        drop((a_tx, b_rx));
    });
}

// S4-66, S0-58: closing one of the channels against a select over two.
#[test]
fn model_select_against_close() {
    check(2, || {
        let (a_tx, a_rx) = rendezvous::<u32>();
        let (b_tx, b_rx) = bounded::<u32>(1);
        let other = thread::spawn(move || {
            a_tx.close();
            drop(a_tx);
            b_tx.send(1).unwrap();
        });
        let mut seen = (0, 0);
        for _ in 0..2 {
            match select(Arms::new().recv(&a_rx).recv(&b_rx)) {
                Won::Received(Ok(1)) => seen.1 += 1,
                Won::Received(Err(RecvError)) => seen.0 += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(seen.1 <= 1 && seen.0 >= 1);
        other.join().unwrap();
    });
}

// Two owners for one select: two senders on two channels; one is taken, the other one keeps its value.
#[test]
fn model_select_against_two_senders() {
    check(1, || {
        let (a_tx, a_rx) = rendezvous::<u32>();
        let (b_tx, b_rx) = rendezvous::<u32>();
        let one = thread::spawn(move || a_tx.send(1).is_ok());
        let two = thread::spawn(move || b_tx.send(2).is_ok());
        let Won::Received(Ok(value)) = select(Arms::new().recv(&a_rx).recv(&b_rx)) else { panic!("nothing received") };
        drop((a_rx, b_rx));
        assert_eq!((one.join().unwrap(), two.join().unwrap()), (value == 1, value == 2));
    });
}

// Both ends of one channel in one select: it does not meet itself, and another caller can meet it at either end.
#[test]
fn model_select_on_both_ends() {
    check(2, || {
        let (tx, rx) = rendezvous::<u32>();
        let other = rx.clone();
        let receiver = thread::spawn(move || other.recv());
        match select(Arms::new().recv(&rx).send(&tx, 3)) {
            Won::Sent(true) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(receiver.join().unwrap(), Ok(3));
    });
}
