//! The trait of objects that can be waited on, and the description of a wait: shared by `park`, `task` and `select`.
//!
//! A fiber or a thread waits for one [`Waitable`] (`park`), a future for one (`task`), a select for several, each as one of its arms
//! (`select::engine`). All three bring the node, which names the wait; the object links it into its own list, under its own lock. One enum,
//! [`Outcome`], says how a wait ended. Above: the objects that implement it. Below: `waiter`.

use std::panic::Location;
use std::task::Waker;

use super::reason::WaitReason;
use crate::waiter::node::{Node, Outcome};
use crate::waiter::word::{WaitKind, WakerNotice};

/// The result of a [`publish`](Waitable::publish), and the waker of a peer whose wait it completed: user code, to be called by the waiter
/// when PARKING is over.
pub(crate) type Published = (Outcome, Option<Waker>);

/// An object that can be waited on: the end of a fiber, a token, a lock, a socket, one operation on a channel. Each implements this once,
/// for blocking calls, futures and arms of a select alike. A blocking call names the type, so that its wait is compiled for it; a select
/// has `dyn Waitable`. A wait is given it by value: a reference to it, or a few words, which stay in registers in the plain case.
///
/// A select needs more of an operation on a channel: it locks all its channels before it looks, so that two selects that meet find each
/// other. No other object is ever locked that way, so there is no second trait for it: the one type that needs it,
/// `channel::waits::ChanOp`, has methods with `held` in their name.
pub(crate) trait Waitable {
    /// Completes it if that is possible now, without waiting; `Pending` if it is not. (Objects that are never tried, but only waited for,
    /// do not implement it.)
    fn try_now(&self) -> Outcome {
        Outcome::Pending
    }

    /// Makes the wait visible to completion owners: links `node`, which names the wait. `Pending`: it is linked; its owner leaves it where
    /// it is until it was completed or [taken back](Self::unpublish). Any other value: there is nothing to wait for, this is the outcome,
    /// and nothing stays linked. `Retry`: [`try_now`](Self::try_now) may complete it, or the caller may.
    ///
    /// An arm of a select completes nothing here, but says `Retry`: another arm may be completed in the same moment. No user code runs in
    /// here.
    fn publish(&self, node: &Node) -> Published;

    /// Takes the node out again after another event has ended the wait; does nothing if the completion owner has unlinked it. That may let
    /// other waiters go on: their wakers are `owed`: the caller calls them when it holds no lock and is not PARKING.
    fn unpublish(&self, node: &Node, owed: &mut Vec<Waker>);

    /// An owner has completed it, as an arm of a select. False: the arm was called, tried, and found nothing; it waits on, beside the
    /// others.
    fn is_won(&self) -> bool {
        true
    }

    /// Has what is waited for happened, for good? Asked by a waiter that is about to be cancelled because a child has panicked: it may be
    /// about to join that child.
    fn is_settled(&self) -> bool {
        false
    }

    /// Does the wait have no node, and end by a notice to the waiter? See `wait::poll`.
    #[inline(always)]
    fn ended_by(&self) -> Option<WakerNotice> {
        None
    }
}

impl<W: Waitable + ?Sized> Waitable for &W {
    #[inline(always)]
    fn try_now(&self) -> Outcome {
        (**self).try_now()
    }
    #[inline(always)]
    fn publish(&self, node: &Node) -> Published {
        (**self).publish(node)
    }
    #[inline(always)]
    fn unpublish(&self, node: &Node, owed: &mut Vec<Waker>) {
        (**self).unpublish(node, owed);
    }
    #[inline(always)]
    fn is_won(&self) -> bool {
        (**self).is_won()
    }
    #[inline(always)]
    fn is_settled(&self) -> bool {
        (**self).is_settled()
    }
    #[inline(always)]
    fn ended_by(&self) -> Option<WakerNotice> {
        (**self).ended_by()
    }
}

/// The answer of a `publish` that either links the node or finds that there is nothing to wait for, and says no more than `otherwise`.
#[inline(always)]
pub(crate) fn linked_or(is_linked: bool, otherwise: Outcome) -> Published {
    (if is_linked { Outcome::Pending } else { otherwise }, None)
}

/// The parameters of a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) reason: WaitReason,
    /// Names the object in reports.
    pub(crate) object: u64,
    pub(crate) site: &'static Location<'static>,
    /// On fibra's clock.
    pub(crate) deadline: Option<u64>,
}

impl Wait {
    /// Which cancellations may end it, as far as its reason goes.
    #[inline(always)]
    pub(crate) fn kind(&self) -> WaitKind {
        if self.reason.is_binding() { WaitKind::Binding } else { WaitKind::Revocable }
    }
}

/// Nothing to publish: the timer is the only owner, besides cancellation.
pub(crate) struct Nothing;

impl Waitable for Nothing {
    fn publish(&self, _: &Node) -> Published {
        (Outcome::Pending, None)
    }

    fn unpublish(&self, _: &Node, _: &mut Vec<Waker>) {}
}
