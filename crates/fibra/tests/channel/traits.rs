//! `Receiver` as a `Stream` and `Sender` as a `Sink`: waits are kept between polls, nothing is lost when a handle is dropped.
#![cfg(feature = "futures")]

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::support;
use fibra::channel;
use futures_core::Stream;
use futures_sink::Sink;

#[test]
fn everything_goes_through() {
    let _watchdog = support::watchdog(60);
    for capacity in [0, 1, 4] {
        fibra::run(|| {
            let (mut tx, mut rx) = channel::bounded(capacity);
            let sending = fibra::spawn_future(async move {
                for n in 0..1000u32 {
                    poll_fn(|cx| Sink::<u32>::poll_ready(Pin::new(&mut tx), cx)).await.unwrap();
                    Pin::new(&mut tx).start_send(n).unwrap();
                }
            });
            let receiving = fibra::spawn_future(async move {
                let mut got = Vec::new();
                while let Some(n) = poll_fn(|cx| Pin::new(&mut rx).poll_next(cx)).await {
                    got.push(n);
                }
                got
            });
            assert!(receiving.join().unwrap().into_iter().eq(0..1000));
            sending.join().unwrap();
        });
    }
}

// A stream or a sink that was polled and is dropped leaves nothing behind: neither its place in the queue nor the one it reserved.
#[test]
fn a_dropped_handle_gives_up_its_wait() {
    let _watchdog = support::watchdog(60);
    let mut cx = Context::from_waker(Waker::noop());
    let (tx, rx) = channel::bounded::<u32>(1);
    let mut polled = rx.clone();
    assert!(Pin::new(&mut polled).poll_next(&mut cx).is_pending());
    drop(polled);
    tx.send(1).unwrap();
    assert_eq!(rx.recv(), Ok(1), "it does not wait for the one that is gone");

    let mut ready = tx.clone();
    assert_eq!(Sink::<u32>::poll_ready(Pin::new(&mut ready), &mut cx), Poll::Ready(Ok(())));
    assert!(tx.try_send(2).is_err(), "the place is reserved");
    let mut waiting = tx.clone();
    assert!(Sink::<u32>::poll_ready(Pin::new(&mut waiting), &mut cx).is_pending());
    drop(ready);
    drop(waiting);
    tx.try_send(2).unwrap();
    drop(rx);
    let mut closed = tx.clone();
    assert!(matches!(Sink::<u32>::poll_ready(Pin::new(&mut closed), &mut cx), Poll::Ready(Err(_))));
}
