//! One arm of a select as the engine sees it: what to try, what to link where, and a cell that tells its owner what became of it.

use std::cell::Cell;
use std::task::Waker;
use std::time::Duration;

use super::port::Port;
use crate::channel::op::Op;
use crate::prim::atomic::AtomicU8;
use crate::wait::node::{Node, Outcome, WaiterRef};
use crate::wait::park;
use crate::wait::wake;
use crate::wait::word::{Arm, Ticket};

/// Something that is not a channel: it completes waits, but never meets another waiter half way (a fiber that ends, an event, a lock).
pub(crate) trait Single {
    /// Completes it if that is possible now.
    fn try_complete(&self) -> bool;
    /// Links the node. False: it looks as if `try_complete` would succeed; nothing is linked.
    fn publish(&self, node: &Node, waiter: WaiterRef, ticket: Ticket, arm: Arm) -> bool;
    /// Takes the node out again, if it is still there. That may let others go on: their wakers are `owed`, to be called by whoever holds
    /// no lock and is not PARKING.
    fn unpublish(&self, node: &Node, owed: &mut Vec<Waker>);
    /// An owner has completed it. False: it was called, came, and found nothing; it waits on, beside the others.
    fn is_won(&self) -> bool {
        true
    }
    /// As [`Waitable::is_settled`](park::Waitable::is_settled).
    fn is_settled(&self) -> bool {
        false
    }
}

/// See the header. Built by the arms of this crate only.
pub struct Case<'a> {
    pub(super) kind: Kind<'a>,
    /// Made when the select begins to wait.
    node: Option<Node>,
    /// What became of it; `Pending` until the select is over, and for ever if it lost.
    told: Option<&'a Cell<Outcome>>,
}

pub(super) enum Kind<'a> {
    /// Its guard is false.
    Off,
    Port {
        port: &'a dyn Port,
        op: Op,
        slot: *mut (),
        /// Of the port, for a look without a call.
        hints: &'a AtomicU8,
    },
    Single(&'a dyn Single),
    /// Whatever runs here is cancelled: taken instead of unwinding.
    Cancelled,
    /// After this long, counted from the moment the select begins to wait.
    After(Duration),
    At(u64),
}

impl<'a> Case<'a> {
    fn new(kind: Kind<'a>, told: Option<&'a Cell<Outcome>>) -> Self {
        Self { kind, node: None, told }
    }

    /// Before the second pass. It stays where it is from then on, until the select is over.
    pub(super) fn make_node(&mut self) {
        self.node = Some(Node::new());
    }

    #[inline]
    pub(super) fn node(&self) -> &Node {
        self.node.as_ref().expect("asked in the second pass, before which it was made")
    }

    pub(super) fn off() -> Self {
        Self::new(Kind::Off, None)
    }

    /// `hints` are the port's: given by whoever knows the channel's type, so that making a case takes no call.
    ///
    /// # Safety
    /// For as long as the case lives, `slot` is what the operation needs: room for a value, or a value, of the channel's type; and
    /// if `told` says DONE afterwards, its owner acts on it (a value was written, or moved away).
    pub(super) unsafe fn port(
        port: &'a dyn Port,
        hints: &'a AtomicU8,
        op: Op,
        slot: *mut (),
        told: &'a Cell<Outcome>,
    ) -> Self {
        Self::new(Kind::Port { port, op, slot, hints }, Some(told))
    }

    pub(crate) fn single(single: &'a dyn Single, told: &'a Cell<Outcome>) -> Self {
        Self::new(Kind::Single(single), Some(told))
    }

    pub(super) fn cancelled(told: &'a Cell<Outcome>) -> Self {
        Self::new(Kind::Cancelled, Some(told))
    }

    pub(super) fn after(duration: Duration, told: &'a Cell<Outcome>) -> Self {
        Self::new(Kind::After(duration), Some(told))
    }

    /// Is a try worth a lock?
    #[inline(always)]
    pub(super) fn may_be_ready(&self, now: Option<u64>) -> bool {
        match &self.kind {
            Kind::Port { hints, op, .. } => op.may_be_ready(hints),
            Kind::Single(_) => true,
            Kind::Cancelled => park::is_cancelled(),
            Kind::After(duration) => duration.is_zero(),
            Kind::At(due) => now.is_some_and(|now| *due <= now),
            Kind::Off => false,
        }
    }

    /// One try.
    #[inline]
    pub(super) fn try_now(&self, now: Option<u64>) -> Outcome {
        let done = |is_done| if is_done { Outcome::Done } else { Outcome::Pending };
        match &self.kind {
            // SAFETY: the contract of `Case::port`.
            Kind::Port { port, op, slot, .. } => unsafe { port.try_now(*op, *slot) },
            Kind::Single(single) => done(single.try_complete()),
            _ => done(self.may_be_ready(now)),
        }
    }

    /// Completes it if it is ready, and tells its owner.
    pub(super) fn complete(&self, now: Option<u64>) -> bool {
        self.tell(self.try_now(now))
    }

    /// The last try of one who does not wait; see [`Port::try_last`].
    pub(super) fn try_last(&self) -> Outcome {
        match &self.kind {
            // SAFETY: the contract of `Case::port`.
            Kind::Port { port, op, slot, .. } => unsafe { port.try_last(*op, *slot) },
            _ => self.try_now(None),
        }
    }

    /// Tells its owner what became of it. False: nothing yet.
    pub(super) fn tell(&self, outcome: Outcome) -> bool {
        if let Some(told) = self.told {
            told.set(outcome);
        }
        outcome != Outcome::Pending
    }

    /// As [`Single::is_settled`].
    pub(super) fn is_settled(&self) -> bool {
        matches!(&self.kind, Kind::Single(single) if single.is_settled())
    }

    /// Takes its node out of wherever it is linked.
    pub(super) fn unlink(&self) {
        match &self.kind {
            Kind::Port { port, op, .. } => port.unlink(*op, self.node()),
            Kind::Single(single) => {
                let mut owed = Vec::new();
                single.unpublish(self.node(), &mut owed);
                wake::call_all(owed);
            }
            _ => {}
        }
    }
}

impl std::fmt::Debug for Case<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.kind {
            Kind::Off => "Off",
            Kind::Port { .. } => "Port",
            Kind::Single(_) => "Single",
            Kind::Cancelled => "Cancelled",
            Kind::After(_) | Kind::At(_) => "Time",
        })
    }
}
