//! The bound of a mailbox: senders that find no place wait for one, in order.
//!
//! Above: `desk` and the forms of `send`. Below: the gate of `sync`, so that senders wait as fibers, threads, futures and arms; `mail`,
//! which counts places, under the lock of the mailbox.
//!
//! A sender that finds a free place takes it, also while others wait: it then sends message after message without a wait, until there
//! is none left. Senders that wait are let go in order, each with a place of its own, when half of the mailbox is free: so a sender in a
//! crowd waits once for many messages. Newcomers may keep half of it from ever being free; so the first of those that wait is also let go
//! when as many messages as there are places were taken since the last one was, with the place of the last message: none waits for ever.
//! And while the actor is WAITING, in its handler or for its supervisor, every free place is given away: its handler may wait for the
//! very actor that waits for a place here.
//! A future cannot be given a place, since it may never be polled again: it is called, and newcomers leave one place to it until it comes
//! or is dropped. (One that is kept and not polled keeps that place from others, as it would in any fair queue.)
//!
//! Invariants: what is free, whether the mailbox is closed and whether a sender is queued change under one lock, so no wake is lost (see
//! `sync::gate`). The lock of the gate's queue is taken before that of the mailbox. After the mailbox was closed no place is given, and
//! every waiter is refused.

use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::mail::{MailboxContents, NoPlace};
use super::state::{ActorState, Word};
use crate::prim::spin::WordLock;
use crate::sync::gate::{Ask, Gate, GateTask, GateWait, Rules, Who};
use crate::wait::reason::WaitReason;
use crate::wait::wake;
use crate::waiter::node::Outcome;

/// The largest mailbox.
pub(super) const MOST: usize = u32::MAX as usize / 2;

/// What a sender wants: a place, as a newcomer does.
const NEW: usize = 1;
/// The same as a future that was called: also one that newcomers leave to it.
const CALLED: usize = 2;

/// A mailbox under its lock, as the rules by which places are given.
pub(super) struct Room<M, V>(WordLock<MailboxContents<M, V>>);

impl<M, V> Room<M, V> {
    #[inline]
    fn mail<R>(&self, f: impl FnOnce(&mut MailboxContents<M, V>) -> R) -> R {
        self.0.with(|_, mail| f(mail))
    }
}

impl<M, V> Rules for Room<M, V> {
    const BARGES: bool = true;
    /// A place is left to each future that is called, so the waiters behind it may be served.
    const CALLS_ALL: bool = true;

    fn called(_: usize) -> usize {
        CALLED
    }

    fn enlist(&self, want: usize) -> usize {
        if want == CALLED {
            // It came too late, and is the first again.
            self.mail(MailboxContents::uncall);
        }
        NEW
    }

    fn uncall(&self, _: usize) {
        self.mail(MailboxContents::uncall);
    }

    fn grant(&self, want: usize) -> bool {
        self.mail(|mail| if want == CALLED { mail.reserve_called() } else { mail.reserve() })
    }

    fn revoke(&self, _: usize) {
        self.mail(MailboxContents::unreserve);
    }

    fn is_grantable(&self, _: usize) -> bool {
        self.mail(|mail| mail.has_place())
    }

    fn refuses(&self, _: usize) -> bool {
        self.mail(|mail| mail.is_closed())
    }

    fn set_waiting(&self, waiting: bool) {
        self.mail(|mail| mail.set_awaited(waiting));
    }

    fn serve(&self, _: usize, who: Who) -> Outcome {
        self.0.with(|bits, mail| {
            let stands = Word(bits).seen().state() == ActorState::Waiting;
            match who {
                Who::Task if mail.call(stands) => Outcome::Retry,
                Who::Waiter | Who::Arm if mail.let_go(stands) => Outcome::Done,
                _ => Outcome::Pending,
            }
        })
    }
}

/// See the header.
pub(super) struct MailboxRoom<M, V>(Gate<Room<M, V>>);

impl<M, V> MailboxRoom<M, V> {
    pub(super) fn new(state: u32, mail: MailboxContents<M, V>) -> Self {
        Self(Gate::new(Room(WordLock::new(state, mail))))
    }

    /// The mailbox with its lock, which is the state word.
    #[inline]
    pub(super) fn room(&self) -> &WordLock<MailboxContents<M, V>> {
        &self.0.rules().0
    }

    /// Takes a place, waiting for it in order. Cancellation unwinds.
    #[cold]
    pub(super) fn take(&self, deadline: Option<u64>, site: &'static Location<'static>) -> Result<(), NoPlace> {
        let object = std::ptr::from_ref(self).addr() as u64;
        let ask = Ask { want: NEW, first: false, reason: WaitReason::ActorSend, object, site, deadline };
        match self.0.wait(ask) {
            Outcome::Done => Ok(()),
            Outcome::Closed => Err(NoPlace::Closed),
            _ => Err(NoPlace::TimedOut),
        }
    }

    /// The same as a future.
    pub(super) fn take_async(&self) -> PlaceFuture<'_, M, V> {
        PlaceFuture { places: self, task: GateTask::new() }
    }

    /// The same as a part of an arm.
    pub(super) fn arm(&self) -> GateWait<'_, Room<M, V>> {
        self.0.arm(NEW)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.rules().refuses(NEW)
    }

    /// A place that was reserved is not used.
    pub(super) fn give_back(&self) {
        self.0.rules().revoke(NEW);
        self.settle();
    }

    /// Places have become free while a sender is queued.
    #[cold]
    pub(super) fn settle(&self) {
        self.0.settle();
    }

    /// The same where no user code may run: the wakers of futures are called soon, on a fiber of their own.
    #[cold]
    pub(super) fn settle_parking(&self) {
        let mut owed = Vec::new();
        self.0.settle_owing(&mut owed);
        if !owed.is_empty() {
            wake::call_wakers_soon(owed);
        }
    }

    /// Changes the mailbox, after which waiters may have to be refused.
    pub(super) fn update<R>(&self, f: impl FnOnce(&mut MailboxContents<M, V>) -> R) -> R {
        self.0.update(|room| room.mail(f)).0
    }
}

/// See [`MailboxRoom::take_async`]: true, it has a place; false, the mailbox is closed.
#[must_use = "futures do nothing unless polled"]
pub(super) struct PlaceFuture<'a, M, V> {
    places: &'a MailboxRoom<M, V>,
    task: GateTask,
}

impl<M, V> Future for PlaceFuture<'_, M, V> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let this = &mut *self;
        this.task.poll(&this.places.0, NEW, cx)
    }
}

impl<M, V> Drop for PlaceFuture<'_, M, V> {
    fn drop(&mut self) {
        if self.task.leave(&self.places.0) {
            // It was called, and does not come: the place is for all again.
            self.places.0.rules().uncall(NEW);
            self.places.settle();
        }
    }
}
