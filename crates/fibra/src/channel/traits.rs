//! [`Receiver`] as a `Stream` and [`Sender`] as a `Sink`, for code that is written for the traits of the `futures` crates. With the feature
//! `futures` only.
//!
//! Above: users. Below: `future`. Between two polls a handle keeps the wait of the last poll, as the futures of single operations
//! do; dropping the handle gives the wait up. A sink that is ready has reserved a place, as by [`Sender::reserve`].

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::{FusedStream, Stream};
use futures_sink::Sink;

use super::error::SendError;
use super::future::{RecvFuture, ReserveFuture};
use super::receiver::Receiver;
use super::sender::{Permit, Sender};
use super::timed::Alarm;
use crate::wait::task::TaskWait;

/// What a receiver keeps between two polls.
#[derive(Default)]
pub(super) struct AsStream {
    wait: TaskWait,
    alarm: Option<Alarm>,
}

/// What a sender keeps between two polls.
#[derive(Default)]
pub(super) struct AsSink {
    wait: TaskWait,
    /// A place is reserved.
    reserved: bool,
}

/// Values as they come; ends when the channel does.
///
/// ```
/// use futures_core::Stream;
/// use std::pin::pin;
///
/// let (tx, rx) = fibra::channel::bounded(4);
/// tx.send(7).unwrap();
/// drop(tx);
/// let mut rx = pin!(rx);
/// let mut next = || fibra::block_on(std::future::poll_fn(|cx| rx.as_mut().poll_next(cx)));
/// assert_eq!((next(), next()), (Some(7), None));
/// ```
impl<T> Stream for Receiver<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let this = self.get_mut();
        let AsStream { wait, alarm } = mem::take(&mut this.polled);
        let mut future = RecvFuture::resume(this, wait, alarm);
        let polled = Pin::new(&mut future).poll(cx);
        let (wait, alarm) = future.suspend();
        this.polled = AsStream { wait, alarm };
        polled.map(Result::ok)
    }
}

impl<T> FusedStream for Receiver<T> {
    fn is_terminated(&self) -> bool {
        self.has_closed() && self.is_empty()
    }
}

impl<T> Receiver<T> {
    /// Gives up the wait of the last poll.
    pub(super) fn leave(&mut self) {
        let AsStream { wait, alarm } = mem::take(&mut self.polled);
        drop(RecvFuture::resume(self, wait, alarm));
    }
}

/// Values one after the other, each when there is room for it. Closing the sink does not close the channel: dropping the sender does.
///
/// ```
/// use futures_sink::Sink;
/// use std::{future::poll_fn, pin::pin};
///
/// let (tx, rx) = fibra::channel::bounded(1);
/// fibra::block_on(async {
///     let mut tx = pin!(tx);
///     poll_fn(|cx| tx.as_mut().poll_ready(cx)).await.unwrap();
///     tx.as_mut().start_send(7).unwrap();
///     poll_fn(|cx| tx.as_mut().poll_flush(cx)).await.unwrap();
/// });
/// assert_eq!(rx.recv(), Ok(7));
/// ```
impl<T> Sink<T> for Sender<T> {
    type Error = SendError<()>;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let this = self.get_mut();
        if this.polled.reserved {
            return Poll::Ready(Ok(()));
        }
        let wait = mem::take(&mut this.polled.wait);
        let mut future = ReserveFuture::resume(this, wait);
        // The place stays reserved: `start_send` takes it, or `leave`.
        let polled = Pin::new(&mut future).poll(cx).map_ok(mem::forget);
        let wait = future.suspend();
        this.polled = AsSink { wait, reserved: matches!(polled, Poll::Ready(Ok(()))) };
        polled
    }

    fn start_send(self: Pin<&mut Self>, item: T) -> Result<(), Self::Error> {
        let this = self.get_mut();
        assert!(mem::take(&mut this.polled.reserved), "fibra: start_send without a poll_ready that was ready");
        Permit::new(this).try_send(item).map_err(|_| SendError(()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.get_mut().leave();
        Poll::Ready(Ok(()))
    }
}

impl<T> Sender<T> {
    /// Gives up the wait of the last poll, or the place that was reserved.
    pub(super) fn leave(&mut self) {
        let AsSink { wait, reserved } = mem::take(&mut self.polled);
        drop(ReserveFuture::resume(self, wait));
        if reserved {
            drop(Permit::new(self));
        }
    }
}
