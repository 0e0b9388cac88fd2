//! The bound of a mailbox: senders that find no place wait for one, in order.
//!
//! Above: `desk` and the forms of `send`. Below: the gate of `sync`, so that senders wait as fibers, threads, futures and arms; `mail`,
//! which counts places, under the lock of the mailbox.
//!
//! A sender that finds a free place takes it, also while others wait: it then sends message after message without a wait, until there
//! is none left. Senders that wait are let go in order, each with a place of its own, and not before half of the mailbox is free: so a
//! sender in a crowd waits once for many messages, and none waits for ever, since each time one of those that wait is the first to be
//! served.
//!
//! Invariants: what is free, whether the mailbox is closed and whether a sender is queued change under one lock, so no wake is lost (see
//! `sync::gate`). The lock of the gate's queue is taken before that of the mailbox. After the mailbox was closed no place is given, and
//! every waiter is refused.

use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::mail::{Mail, NoPlace};
use crate::prim::spin::WordLock;
use crate::sync::gate::{Ask, Gate, GateTask, GateWait, Rules, Who};
use crate::wait::reason::WaitReason;
use crate::waiter::node::Outcome;

/// The largest mailbox.
pub(super) const MOST: usize = u32::MAX as usize / 2;

/// A mailbox under its lock, as the rules by which places are given.
pub(super) struct Room<M, V>(WordLock<Mail<M, V>>);

impl<M, V> Room<M, V> {
    #[inline]
    fn mail<R>(&self, f: impl FnOnce(&mut Mail<M, V>) -> R) -> R {
        self.0.with(|_, mail| f(mail))
    }
}

impl<M, V> Rules for Room<M, V> {
    const BARGES: bool = true;

    fn grant(&self, _: usize) -> bool {
        self.mail(Mail::reserve)
    }

    fn revoke(&self, _: usize) {
        self.mail(Mail::unreserve);
    }

    fn is_grantable(&self, _: usize) -> bool {
        self.mail(|mail| mail.has_place())
    }

    fn refuses(&self, _: usize) -> bool {
        self.mail(|mail| mail.is_closed())
    }

    fn set_waiting(&self, waiting: bool) {
        self.mail(|mail| mail.is_awaited = waiting);
    }

    fn serve(&self, _: usize, who: Who) -> Outcome {
        self.mail(|mail| match who {
            _ if !mail.lets_waiters_go() => Outcome::Pending,
            Who::Task => {
                mail.call();
                Outcome::Retry
            }
            Who::Waiter | Who::Arm if mail.reserve() => Outcome::Done,
            Who::Waiter | Who::Arm => Outcome::Pending,
        })
    }
}

/// See the header.
pub(super) struct Places<M, V>(Gate<Room<M, V>>);

impl<M, V> Places<M, V> {
    pub(super) fn new(state: u32, mail: Mail<M, V>) -> Self {
        Self(Gate::new(Room(WordLock::new(state, mail))))
    }

    /// The mailbox with its lock, which is the state word.
    #[inline]
    pub(super) fn room(&self) -> &WordLock<Mail<M, V>> {
        &self.0.rules().0
    }

    /// Takes a place, waiting for it in order. Cancellation unwinds.
    #[cold]
    pub(super) fn take(&self, deadline: Option<u64>, site: &'static Location<'static>) -> Result<(), NoPlace> {
        let object = std::ptr::from_ref(self).addr() as u64;
        let ask = Ask { want: 1, first: false, reason: WaitReason::ActorSend, object, site, deadline };
        match self.0.wait(ask) {
            Outcome::Done => Ok(()),
            Outcome::Closed => Err(NoPlace::Closed),
            _ => Err(NoPlace::TimedOut),
        }
    }

    /// Takes the place that newcomers leave to a future that was called. (It will wait on.)
    #[cold]
    pub(super) fn take_now(&self) -> bool {
        self.0.rules().grant(1)
    }

    /// The same as a future.
    pub(super) fn take_async(&self) -> PlaceFuture<'_, M, V> {
        PlaceFuture { places: self, task: GateTask::new() }
    }

    /// The same as a part of an arm.
    pub(super) fn arm(&self) -> GateWait<'_, Room<M, V>> {
        self.0.arm(1)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.rules().refuses(1)
    }

    /// A place that was reserved is not used.
    pub(super) fn give_back(&self) {
        self.0.rules().revoke(1);
        self.settle();
    }

    /// Places have become free while a sender is queued.
    #[cold]
    pub(super) fn settle(&self) {
        self.0.settle();
    }

    /// Changes the mailbox, after which waiters may have to be refused.
    pub(super) fn update<R>(&self, f: impl FnOnce(&mut Mail<M, V>) -> R) -> R {
        self.0.update(|room| room.mail(f)).0
    }
}

/// See [`Places::take_async`]: true, it has a place; false, the mailbox is closed.
#[must_use = "futures do nothing unless polled"]
pub(super) struct PlaceFuture<'a, M, V> {
    places: &'a Places<M, V>,
    task: GateTask,
}

impl<M, V> Future for PlaceFuture<'_, M, V> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let this = &mut *self;
        this.task.poll(&this.places.0, 1, cx)
    }
}

impl<M, V> Drop for PlaceFuture<'_, M, V> {
    fn drop(&mut self) {
        self.task.leave(&self.places.0);
    }
}
