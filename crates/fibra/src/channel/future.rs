//! The futures of channel operations. A future waits by a record of its own that outlives it ([`TaskWait`]). It is notified, never filled,
//! and does its work when it is polled: so dropping a future at any point loses nothing, and a future that was notified and is dropped
//! passes the notification on.
//!
//! A value to be sent is the one thing that other threads take from a waiting future. It lies in a box of its own while it can be taken,
//! because a future may move, be dropped, or be forgotten.
//!
//! Above: the handles' `.._async` methods and `futures` traits. Below: `waits`, `chan`, and `timed` for alarms.

use std::fmt;
use std::future::Future;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::task::{Context, Poll};

use super::chan::Chan;
use super::error::{RecvError, SendError};
use super::op::ChanOpKind;
use super::reason::{CloseReason, Side};
use super::receiver::Receiver;
use super::sender::{Permit, Sender};
use super::spot::Spot;
use super::timed::Alarm;
use super::waits::{Asks, Called, ChanOp};
use crate::prim::bug::seeded_bug;
use crate::prim::policy;
use crate::wait::park;
use crate::wait::task::TaskWait;
use crate::waiter::node::Outcome;

/// An operation that needs no slot. (It also takes back a wait that had a slot: the nodes of both are in the same list.)
fn without_slot<T, A: Asks>(chan: &Chan<T>, asks: A) -> ChanOp<'_, Chan<T>, A> {
    assert!(!matches!(asks.op(), ChanOpKind::Recv | ChanOpKind::Send), "these need one");
    // SAFETY: the others need none.
    unsafe { ChanOp::new(chan, asks, ptr::null_mut()) }
}

/// Passes on, to the waiters behind, what a future that is gone was notified of.
fn settle<T>(chan: &Chan<T>) {
    let mut locked = chan.lock();
    locked.state().settle();
    locked.unlock();
}

// ---- Receiving ------------------------------------------------------------------------------------------------------------

/// The future of [`Receiver::recv_async`].
#[must_use = "futures do nothing unless polled"]
pub struct RecvFuture<'a, T> {
    receiver: &'a Receiver<T>,
    wait: TaskWait,
    /// Set for a timed channel.
    alarm: Option<Alarm>,
}

impl<'a, T> RecvFuture<'a, T> {
    pub(super) fn new(receiver: &'a Receiver<T>) -> Self {
        Self { receiver, wait: TaskWait::default(), alarm: None }
    }

    /// The future of a receiver that has been polled before: it goes on with that wait.
    #[cfg(feature = "futures")]
    pub(super) fn resume(receiver: &'a Receiver<T>, wait: TaskWait, alarm: Option<Alarm>) -> Self {
        Self { receiver, wait, alarm }
    }

    /// Keeps the wait for a later poll.
    #[cfg(feature = "futures")]
    pub(super) fn suspend(mut self) -> (TaskWait, Option<Alarm>) {
        (std::mem::take(&mut self.wait), self.alarm.take())
    }

    /// Ends the wait of the last poll. True: it was notified.
    fn withdraw(&mut self, passes_on: bool) -> bool {
        let chan = self.receiver.chan();
        let notified = self.wait.withdraw(&without_slot(chan, ChanOpKind::Recv.asked())) != Outcome::Pending;
        if notified && passes_on && !seeded_bug("channel_call_not_passed_on") {
            settle(chan);
        }
        notified
    }
}

impl<T> Future for RecvFuture<'_, T> {
    type Output = Result<T, RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let chan = this.receiver.chan();
        // (For a timed channel the poll may be due to its alarm.)
        if !chan.is_timed() && this.wait.goes_on(cx.waker()) {
            return Poll::Pending;
        }
        if !this.wait.is_published() && park::lets_others_run(cx) {
            return Poll::Pending;
        }
        // A future that was notified and finds nothing goes to the head of the queue again.
        let mut first = this.withdraw(false);
        loop {
            // A future has no timer of its own: an alarm has to wake it when the time has come.
            let due = if chan.is_timed() { chan.timed_deadline() } else { None };
            if let Some(due) = due {
                Alarm::set(&mut this.alarm, due, cx.waker());
            }
            let mut slot = MaybeUninit::<T>::uninit();
            let asks = Called(ChanOpKind::Recv, if first { Spot::Front } else { Spot::Back });
            // SAFETY: the slot is ours, and empty; only this very call fills it.
            let operation = unsafe { ChanOp::new(chan, asks, slot.as_mut_ptr().cast()) };
            match this.wait.publish(cx.waker(), &operation) {
                // If it was too late to set the alarm, the value may have become due after the try: try again.
                Outcome::Pending if due.is_some_and(|due| due <= policy::now()) => first = this.withdraw(false),
                Outcome::Pending => return Poll::Pending,
                Outcome::Retry => first = this.withdraw(false),
                Outcome::Done => {
                    chan.free_if_spare();
                    // SAFETY: it was written.
                    return Poll::Ready(Ok(unsafe { slot.assume_init() }));
                }
                _ => return Poll::Ready(Err(RecvError)),
            }
        }
    }
}

impl<T> Drop for RecvFuture<'_, T> {
    fn drop(&mut self) {
        self.withdraw(true);
    }
}

// ---- Sending --------------------------------------------------------------------------------------------------------------

/// The future of [`Sender::send_async`].
#[must_use = "futures do nothing unless polled"]
pub struct SendFuture<'a, T> {
    sender: &'a Sender<T>,
    value: Holding<T>,
    wait: TaskWait,
}

/// Where the value of a send is.
enum Holding<T> {
    /// In the future itself: no other thread knows of it.
    Here(T),
    /// In a box, where a receiver can take it while a wait is published.
    Boxed(NonNull<MaybeUninit<T>>),
    Gone,
}

// SAFETY: the box is the future's, or the taker's by protocol; it moves a `T` between threads.
unsafe impl<T: Send> Send for SendFuture<'_, T> {}
// SAFETY: nothing can be reached through a shared reference.
unsafe impl<T: Send> Sync for SendFuture<'_, T> {}
// The value in it is never pinned: it moves.
impl<T> Unpin for SendFuture<'_, T> {}

impl<T> Holding<T> {
    /// Moves the value into a box, where a receiver can take it, and returns its address.
    fn boxed(&mut self) -> *mut T {
        if let Holding::Boxed(boxed) = self {
            return boxed.as_ptr().cast();
        }
        let Holding::Here(value) = std::mem::replace(self, Holding::Gone) else {
            panic!("a future is not polled after it is ready");
        };
        let boxed = NonNull::from(Box::leak(Box::new(MaybeUninit::new(value))));
        *self = Holding::Boxed(boxed);
        boxed.as_ptr().cast()
    }

    /// The value, which no receiver took.
    fn take(&mut self) -> Option<T> {
        match std::mem::replace(self, Holding::Gone) {
            Holding::Here(value) => Some(value),
            // SAFETY: leaked by `boxed`; no receiver took the value (the caller knows that), so the box holds it.
            Holding::Boxed(boxed) => Some(unsafe { *Box::from_raw(boxed.as_ptr().cast::<T>()) }),
            Holding::Gone => None,
        }
    }

    /// A receiver took the value: only its box is left to be freed.
    fn forget(&mut self) {
        match std::mem::replace(self, Holding::Gone) {
            Holding::Here(value) => std::mem::forget(value),
            // SAFETY: leaked by `boxed`; a `MaybeUninit` drops nothing.
            Holding::Boxed(boxed) => drop(unsafe { Box::from_raw(boxed.as_ptr()) }),
            Holding::Gone => {}
        }
    }
}

impl<'a, T> SendFuture<'a, T> {
    pub(super) fn new(sender: &'a Sender<T>, value: T) -> Self {
        Self { sender, value: Holding::Here(value), wait: TaskWait::default() }
    }

    /// Ends the wait of the last poll and returns its outcome.
    fn withdraw(&mut self) -> Outcome {
        let ended = self.wait.withdraw(&without_slot(self.sender.chan(), ChanOpKind::Send.asked()));
        if ended == Outcome::Done {
            self.value.forget();
        }
        ended
    }
}

impl<T> Future for SendFuture<'_, T> {
    type Output = Result<(), SendError<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let chan = this.sender.chan();
        if this.wait.goes_on(cx.waker()) {
            return Poll::Pending;
        }
        if !this.wait.is_published() && park::lets_others_run(cx) {
            return Poll::Pending;
        }
        let mut ended = this.withdraw();
        if ended == Outcome::Pending
            && let Holding::Here(value) = &this.value
        {
            // SAFETY: the value is the channel's if DONE, and then forgotten.
            ended = unsafe { chan.try_offer(&raw const *value) };
            if ended == Outcome::Done {
                this.value.forget();
            }
        }
        loop {
            match ended {
                Outcome::Pending => {}
                Outcome::Done => return Poll::Ready(Ok(())),
                _ => {
                    let value = this.value.take().expect("a future is not polled after it is ready");
                    return Poll::Ready(Err(SendError(value)));
                }
            }
            let value = this.value.boxed();
            // SAFETY: the value is ours, and the channel's if DONE; it lies in a box that is not freed before the wait is over.
            let operation = unsafe { ChanOp::new(chan, ChanOpKind::Send, value.cast()) };
            ended = match this.wait.publish(cx.waker(), &operation) {
                Outcome::Pending => return Poll::Pending,
                Outcome::Retry => this.withdraw(),
                Outcome::Done => {
                    this.value.forget();
                    Outcome::Done
                }
                not => not,
            };
        }
    }
}

impl<T> Drop for SendFuture<'_, T> {
    fn drop(&mut self) {
        let _ended = self.withdraw();
        drop(self.value.take());
    }
}

// ---- Reserving ------------------------------------------------------------------------------------------------------------

/// The future of [`Sender::reserve_async`].
#[must_use = "futures do nothing unless polled"]
pub struct ReserveFuture<'a, T> {
    sender: &'a Sender<T>,
    wait: TaskWait,
}

impl<'a, T> ReserveFuture<'a, T> {
    pub(super) fn new(sender: &'a Sender<T>) -> Self {
        Self { sender, wait: TaskWait::default() }
    }

    /// The future of a sender that has been polled before: it goes on with that wait.
    #[cfg(feature = "futures")]
    pub(super) fn resume(sender: &'a Sender<T>, wait: TaskWait) -> Self {
        Self { sender, wait }
    }

    /// Keeps the wait for a later poll.
    #[cfg(feature = "futures")]
    pub(super) fn suspend(mut self) -> TaskWait {
        std::mem::take(&mut self.wait)
    }

    /// Ends the wait of the last poll. True: it was invited.
    fn withdraw(&mut self, passes_on: bool) -> bool {
        let chan = self.sender.chan();
        let ended = self.wait.withdraw(&without_slot(chan, ChanOpKind::Reserve));
        if ended != Outcome::Pending && passes_on {
            settle(chan);
        }
        ended == Outcome::Invited
    }
}

impl<'a, T> Future for ReserveFuture<'a, T> {
    type Output = Result<Permit<'a, T>, SendError<()>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let chan = this.sender.chan();
        if this.wait.goes_on(cx.waker()) {
            return Poll::Pending;
        }
        if !this.wait.is_published() && park::lets_others_run(cx) {
            return Poll::Pending;
        }
        let mut invited = this.withdraw(false);
        loop {
            let op = if invited { ChanOpKind::ReserveInvited } else { ChanOpKind::Reserve };
            match this.wait.publish(cx.waker(), &without_slot(chan, Called(op, Spot::Back))) {
                Outcome::Pending => return Poll::Pending,
                Outcome::Retry => invited = this.withdraw(false),
                Outcome::Done => return Poll::Ready(Ok(Permit::new(this.sender))),
                _ => return Poll::Ready(Err(SendError(()))),
            }
        }
    }
}

impl<T> Drop for ReserveFuture<'_, T> {
    fn drop(&mut self) {
        self.withdraw(true);
    }
}

// ---- Watching the other side ----------------------------------------------------------------------------------------------

/// The future of [`Sender::closed_async`] and [`Receiver::closed_async`].
#[must_use = "futures do nothing unless polled"]
pub struct ClosedFuture<'a, T> {
    chan: &'a Chan<T>,
    side: Side,
    wait: TaskWait,
}

impl<'a, T> ClosedFuture<'a, T> {
    pub(super) fn new(chan: &'a Chan<T>, side: Side) -> Self {
        Self { chan, side, wait: TaskWait::default() }
    }

    fn operation(&self) -> ChanOp<'a, Chan<T>, Called> {
        without_slot(self.chan, Called(ChanOpKind::Gone(self.side), Spot::Back))
    }

    fn withdraw(&mut self) {
        let operation = self.operation();
        let _ended = self.wait.withdraw(&operation);
    }
}

impl<T> Future for ClosedFuture<'_, T> {
    type Output = CloseReason;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CloseReason> {
        let this = &mut *self;
        this.withdraw();
        let operation = this.operation();
        match this.wait.publish(cx.waker(), &operation) {
            Outcome::Pending => return Poll::Pending,
            Outcome::Retry => this.withdraw(),
            _ => {}
        }
        Poll::Ready(this.chan.gone(this.side).expect("it is gone"))
    }
}

impl<T> Drop for ClosedFuture<'_, T> {
    fn drop(&mut self) {
        self.withdraw();
    }
}

macro_rules! debug {
    ($($future:ident),+) => {$(
        impl<T> fmt::Debug for $future<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($future)).field("wait", &self.wait).finish_non_exhaustive()
            }
        }
    )+};
}
debug!(RecvFuture, SendFuture, ReserveFuture, ClosedFuture);
