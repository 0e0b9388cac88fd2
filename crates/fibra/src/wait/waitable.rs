//! What can be waited on, and how a wait is described: the words that `park`, `task` and `select` share.
//!
//! One trait, [`Waitable`]. A fiber or a thread waits for one such thing (`park`), a future for one (`task`), a select for several, each as
//! one of its arms (`select::engine`). All three bring the node, which names the wait; the object links it into its own list, under its
//! own lock. How all of it ends is one enum, [`Outcome`].

use std::panic::Location;
use std::task::Waker;

use super::reason::WaitReason;
use crate::waiter::node::{Node, Outcome};
use crate::waiter::word::{Notice, WaitKind};

/// What a [`publish`](Waitable::publish) came to, and the waker of a peer whose wait it completed: user code, to be called by the waiter
/// when PARKING is over.
pub(crate) type Published = (Outcome, Option<Waker>);

/// Something one can wait on: the end of a fiber, a token, a lock, a socket, one operation on a channel. Each implements this once, for
/// blocking calls, futures and arms of a select alike. A blocking call names the type, so that its wait is compiled for it; a select has
/// `dyn Waitable`. A wait is given it by value: a reference to it, or a few words, which stay in registers on the usual way.
///
/// A select needs more of an operation on a channel: it locks all its channels before it looks, so that two selects that meet find each
/// other. Nothing else is ever locked that way, so there is no second trait for it: it is said of the one type that it is true of,
/// `channel::waits::ChanOp`, in methods with `held` in their name.
pub(crate) trait Waitable {
    /// Completes it if that is possible now, without waiting; `Pending` if it is not. (What is never tried, but only waited for, has none.)
    fn try_now(&self) -> Outcome {
        Outcome::Pending
    }

    /// Makes the wait visible to those who complete it: links `node`, which names the wait. `Pending`: it is linked; its owner leaves it
    /// where it is until it was completed or [taken back](Self::unpublish). Anything else: there is nothing to wait for, this came of it,
    /// and nothing stays linked. `Retry`: [`try_now`](Self::try_now) may complete it, or the caller may.
    ///
    /// An arm of a select completes nothing here, but says `Retry`: another arm may be completed in the same moment. No user code runs in
    /// here.
    fn publish(&self, node: &Node) -> Published;

    /// Takes the node out again after something else has ended the wait; does nothing if the one who completed it has unlinked it. That may
    /// let others go on: their wakers are `owed`: the caller calls them when it holds no lock and is not PARKING.
    fn unpublish(&self, node: &Node, owed: &mut Vec<Waker>);

    /// An owner has completed it, as an arm of a select. False: it was called, came, and found nothing; it waits on, beside the others.
    fn is_won(&self) -> bool {
        true
    }

    /// Has what is waited for happened, for good? Asked by one who is about to be cancelled because a child has panicked: he may be about
    /// to join that child.
    fn is_settled(&self) -> bool {
        false
    }

    /// Is the wait one without a node, which a notice to the waiter ends? See `wait::notify`.
    #[inline(always)]
    fn ended_by(&self) -> Option<Notice> {
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
    fn ended_by(&self) -> Option<Notice> {
        (**self).ended_by()
    }
}

/// The answer of a `publish` that either links the node or finds that there is nothing to wait for, and says no more than `otherwise`.
#[inline(always)]
pub(crate) fn linked_or(is_linked: bool, otherwise: Outcome) -> Published {
    (if is_linked { Outcome::Pending } else { otherwise }, None)
}

/// How a wait goes about it.
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
    /// What may end it, as far as its reason goes.
    #[inline(always)]
    pub(crate) fn kind(&self) -> WaitKind {
        if self.reason.is_binding() { WaitKind::Binding } else { WaitKind::Revocable }
    }
}
