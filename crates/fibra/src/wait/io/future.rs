//! The async form of an operation on a socket: a try with every poll, and in between a wait for a report.
//!
//! It is notified, never filled, like all futures of fibra: bytes move inside `poll` only, so dropping it at any point loses nothing, and
//! is how it is cancelled. A report sets all waiters going, so a future that was notified and is dropped has nothing to pass on.
//!
//! On a worker it is registered with that worker's driver, and moves with its task; elsewhere (a foreign executor, a plain thread) with
//! that of `reactor::outside_io`. One that is forgotten leaves a record in the source's list until the next report, or the end of the
//! socket.
//!
//! Above: `net`. Below: `task`, `reactor::source`.

use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Direction, Io, Seen, noting_short};
use crate::wait::park;
use crate::wait::task::TaskWait;
use crate::waiter::node::Outcome;

/// See the header.
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub(crate) struct Operation<'a, S: AsFd, F> {
    io: &'a Io<S>,
    direction: Direction,
    attempt: F,
    wait: TaskWait,
    /// It has let other fibers go first, or need not.
    has_yielded: bool,
    /// The first try counts as made; see [`Io::is_drained`].
    tried: Option<Seen>,
}

impl<S: AsFd> Io<S> {
    /// The async form of [`operate`](Self::operate). It has no time-out.
    pub(crate) fn operate_async<T, F>(&self, direction: Direction, attempt: F) -> Operation<'_, S, F>
    where
        F: FnMut(&S) -> io::Result<T> + Unpin,
    {
        Operation { io: self, direction, attempt, wait: TaskWait::new(), has_yielded: false, tried: None }
    }

    /// The async form of a read from a stream.
    pub(crate) fn operate_stream_async(
        &self,
        room: usize,
        attempt: impl FnMut(&S) -> io::Result<usize> + Unpin,
    ) -> impl Future<Output = io::Result<usize>> {
        let source = self.source.0;
        let mut operation = self.operate_async(Direction::Read, noting_short(source, room, attempt));
        operation.tried = source.is_drained();
        operation
    }
}

impl<S: AsFd, F> Operation<'_, S, F> {
    /// Ends the wait of the last poll.
    fn withdraw(&mut self) {
        if self.wait.is_published() {
            let _ended = self.wait.withdraw(&self.io.readiness(self.direction, self.io.reports(self.direction)));
        }
    }

    /// An operation that never has to wait would keep its task's neighbours from running: every so often it lets them run.
    fn lets_others_run(&mut self) -> bool {
        !std::mem::replace(&mut self.has_yielded, true) && park::is_used_up(park::cost::OPERATION)
    }
}

impl<S: AsFd, T, F: FnMut(&S) -> io::Result<T> + Unpin> Future for Operation<'_, S, F> {
    type Output = io::Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if this.lets_others_run() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        // Also if no report came: it may be polled elsewhere now, and by another executor.
        this.withdraw();
        loop {
            let seen = match this.tried.take() {
                Some(seen) => seen,
                None => match this.io.attempt(this.direction, &mut this.attempt) {
                    Ok(done) => return Poll::Ready(done),
                    Err(seen) => seen,
                },
            };
            let readiness = this.io.readiness(this.direction, seen);
            if this.wait.publish(cx.waker(), &readiness) == Outcome::Pending {
                return Poll::Pending;
            }
            if let Some(error) = readiness.take_error() {
                return Poll::Ready(Err(error));
            }
            this.withdraw();
        }
    }
}

impl<S: AsFd, F> Drop for Operation<'_, S, F> {
    fn drop(&mut self) {
        self.withdraw();
    }
}
