//! The async forms. A future waits by a record of its own that outlives it ([`TaskWait`]); it is notified, never filled, and does
//! its work when it is polled: so dropping it at any point loses nothing, and one that was notified and is dropped passes the call
//! on.
//!
//! A value to be sent is the one thing that others take from a waiting future. It lies in a box of its own while it can be taken, because
//! a future may move, be dropped, or be forgotten.

use std::fmt;
use std::future::Future;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

use super::chan::Chan;
use super::error::{RecvError, SendError};
use super::op::Op;
use super::reason::{CloseReason, Side};
use super::receiver::Receiver;
use super::sender::{Permit, Sender};
use super::spot::Spot;
use super::timed::Alarm;
use crate::prim::bug::seeded_bug;
use crate::prim::clock;
use crate::wait::node::{Node, Outcome, Role, WaiterRef};
use crate::wait::park;
use crate::wait::task::{Published, TaskWait};
use crate::wait::wake;
use crate::wait::word::{ARM_FIRST, Ticket};

fn prepare(node: &Node, waiter: WaiterRef, ticket: Ticket, role: Role) {
    node.set(waiter, ticket, ARM_FIRST);
    node.role.set(role);
}

// ---- Receiving ------------------------------------------------------------------------------------------------------------

/// The future of [`Receiver::recv_async`].
#[must_use = "futures do nothing unless polled"]
pub struct RecvFuture<'a, T> {
    receiver: &'a Receiver<T>,
    wait: TaskWait,
    /// If time feeds the channel.
    alarm: Option<Alarm>,
}

impl<'a, T> RecvFuture<'a, T> {
    pub(super) fn new(receiver: &'a Receiver<T>) -> Self {
        Self { receiver, wait: TaskWait::default(), alarm: None }
    }

    /// Ends the wait of the last poll. True: it was notified.
    fn withdraw(&mut self, passes_on: bool) -> bool {
        let chan = self.receiver.chan();
        let notified = self.wait.withdraw(|node| chan.unlink(|state| &state.receivers, node, false)).is_some();
        if notified && passes_on && !seeded_bug("channel_call_not_passed_on") {
            let mut locked = chan.lock();
            locked.state().settle();
            locked.unlock();
        }
        notified
    }
}

impl<T> Future for RecvFuture<'_, T> {
    type Output = Result<T, RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let chan = this.receiver.chan();
        // (If time feeds the channel, that may be what this poll is for.)
        if !chan.is_timed() && this.wait.goes_on(cx.waker()) {
            return Poll::Pending;
        }
        if !this.wait.is_published() && park::lets_others_run(cx) {
            return Poll::Pending;
        }
        // Who was called, came and found nothing goes to the head of the queue again.
        let mut first = this.withdraw(false);
        loop {
            // A future has no timer of its own: somebody has to call it when the time has come.
            let due = if chan.is_timed() { chan.timed_deadline() } else { None };
            if let Some(due) = due {
                Alarm::set(&mut this.alarm, due, cx.waker());
            }
            let mut slot = MaybeUninit::<T>::uninit();
            let (mut tried, mut peers_waker) = (Outcome::Pending, None);
            let published = this.wait.publish(cx.waker(), |node, waiter, ticket| {
                let mut locked = chan.lock();
                // SAFETY: the slot is ours, and empty.
                let (taken, peer) = unsafe { locked.state().take(slot.as_mut_ptr(), Some(waiter)) };
                tried = taken;
                let pending = tried == Outcome::Pending;
                if pending {
                    prepare(node, waiter, ticket, Role::Notify);
                    // SAFETY: under the lock; the node lies in a record that is never freed.
                    unsafe { locked.state().link_receiver(node, if first { Spot::Front } else { Spot::Back }) };
                }
                peers_waker = locked.unlock_parking(peer);
                pending
            });
            if let Some(waker) = peers_waker {
                wake::call(waker);
            }
            match published {
                // Whoever came too late for the alarm may have come too late for the moment too.
                Published::Pending if due.is_some_and(|due| due <= clock::now()) => first = this.withdraw(false),
                Published::Pending => return Poll::Pending,
                Published::Completed => first = this.withdraw(false),
                Published::Refused if tried == Outcome::Done => {
                    chan.free_if_spare();
                    // SAFETY: `take` wrote it.
                    return Poll::Ready(Ok(unsafe { slot.assume_init() }));
                }
                Published::Refused => return Poll::Ready(Err(RecvError)),
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
    /// Here: nobody knows of it.
    Here(T),
    /// In a box, where others can take it while a wait is published.
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
    /// Moves it to where it can be taken.
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

    /// The value, which nobody took.
    fn take(&mut self) -> Option<T> {
        match std::mem::replace(self, Holding::Gone) {
            Holding::Here(value) => Some(value),
            // SAFETY: leaked by `boxed`; nobody took the value (the caller's knowledge), so it is there.
            Holding::Boxed(boxed) => Some(unsafe { *Box::from_raw(boxed.as_ptr().cast::<T>()) }),
            Holding::Gone => None,
        }
    }

    /// Somebody took the value: only its box is left.
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

    /// Ends the wait of the last poll and says what came of it.
    fn withdraw(&mut self) -> Outcome {
        let chan = self.sender.chan();
        let mut ended = Outcome::Pending;
        let completed = self.wait.withdraw(|node| {
            ended = node.outcome.get();
            chan.unlink(|state| &state.senders, node, false);
        });
        let ended = if completed.is_some() { ended } else { Outcome::Pending };
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
            let (mut tried, mut peers_waker) = (Outcome::Pending, None);
            let published = this.wait.publish(cx.waker(), |node, waiter, ticket| {
                let mut locked = chan.lock();
                // SAFETY: the value is ours, and the channel's if DONE.
                let mut offered = unsafe { locked.state().offer(value, Some(waiter)) };
                if offered.0 == Outcome::Retry {
                    locked.state().make_room();
                    // SAFETY: as above.
                    offered = unsafe { locked.state().offer(value, Some(waiter)) };
                }
                tried = offered.0;
                let pending = tried == Outcome::Pending;
                if pending {
                    prepare(node, waiter, ticket, Role::Take);
                    node.slot.set(value.cast());
                    node.outcome.set(Outcome::Pending);
                    // SAFETY: under the lock; the node lies in a record that is never freed, the value in a box that nobody frees before
                    // the wait is over.
                    unsafe { locked.state().link_sender(node, Spot::Back) };
                }
                peers_waker = locked.unlock_parking(offered.1);
                pending
            });
            if tried == Outcome::Done {
                this.value.forget();
            }
            if let Some(waker) = peers_waker {
                wake::call(waker);
            }
            ended = match published {
                Published::Pending => return Poll::Pending,
                Published::Completed => this.withdraw(),
                Published::Refused => tried,
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

    /// Ends the wait of the last poll. True: it was invited.
    fn withdraw(&mut self, passes_on: bool) -> bool {
        let chan = self.sender.chan();
        let mut ended = Outcome::Pending;
        let completed = self.wait.withdraw(|node| {
            ended = node.outcome.get();
            chan.unlink(|state| &state.senders, node, false);
        });
        let notified = completed.is_some();
        if notified && passes_on {
            let mut locked = chan.lock();
            locked.state().settle();
            locked.unlock();
        }
        notified && ended == Outcome::Invited
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
            let mut reserved = Outcome::Pending;
            let published = this.wait.publish(cx.waker(), |node, waiter, ticket| {
                let mut locked = chan.lock();
                let state = locked.state();
                reserved = if invited { state.reserve_invited(waiter) } else { state.reserve(Some(waiter)) };
                let pending = reserved == Outcome::Pending;
                if pending {
                    prepare(node, waiter, ticket, Role::Notify);
                    // SAFETY: under the lock; the node lies in a record that is never freed.
                    unsafe { locked.state().link_sender(node, Spot::Back) };
                }
                let _nobody = locked.unlock_parking(None);
                pending
            });
            match (published, reserved) {
                (Published::Pending, _) => return Poll::Pending,
                (Published::Completed, _) => invited = this.withdraw(false),
                (Published::Refused, Outcome::Done) => return Poll::Ready(Ok(Permit::new(this.sender))),
                (Published::Refused, _) => return Poll::Ready(Err(SendError(()))),
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

    fn withdraw(&mut self) {
        let (chan, side) = (self.chan, self.side);
        self.wait.withdraw(|node| chan.unlink(Op::Gone(side).list(), node, false));
    }
}

impl<T> Future for ClosedFuture<'_, T> {
    type Output = CloseReason;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CloseReason> {
        let this = &mut *self;
        this.withdraw();
        let (chan, op) = (this.chan, Op::Gone(this.side));
        let published = this.wait.publish(cx.waker(), |node, waiter, ticket| {
            let mut locked = chan.lock();
            let state = locked.state();
            let pending = !state.has(op.hint());
            if pending {
                prepare(node, waiter, ticket, Role::Notify);
                // SAFETY: under the lock; the node lies in a record that is never freed.
                unsafe { state.link(op, node, Spot::Back) };
            }
            let _nobody = locked.unlock_parking(None);
            pending
        });
        match published {
            Published::Pending => return Poll::Pending,
            Published::Completed => this.withdraw(),
            Published::Refused => {}
        }
        Poll::Ready(chan.gone(this.side).expect("it is gone"))
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
