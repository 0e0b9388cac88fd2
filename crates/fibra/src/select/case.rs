//! One arm of a select as the engine sees it: what to try, what to link where, and a cell that tells its owner what became of it.

use std::cell::Cell;
use std::time::Duration;

use crate::channel::any::AnyChan;
use crate::channel::op::Op;
use crate::channel::waits::ChanOp;
use crate::prim::atomic::AtomicU8;
use crate::wait::park::{self, Waitable};
use crate::wait::wake;
use crate::waiter::node::{Node, Outcome};

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
    /// It may meet another waiter half way, and is locked together with the others of its kind.
    Channel {
        operation: ChanOp<'a, dyn AnyChan + 'a, Op>,
        /// Of the channel, for a look without a call.
        hints: &'a AtomicU8,
    },
    /// Anything else: it completes waits, but never meets another waiter half way (a fiber that ends, an event, a lock).
    Object(&'a dyn Waitable),
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

    /// `hints` are the channel's: given by whoever knows its type, so that making a case takes no call.
    ///
    /// # Safety
    /// For as long as the case lives, `slot` is what the operation needs: room for a value, or a value, of the channel's type; and
    /// if `told` says DONE afterwards, its owner acts on it (a value was written, or moved away).
    pub(super) unsafe fn channel(
        chan: &'a dyn AnyChan,
        hints: &'a AtomicU8,
        op: Op,
        slot: *mut (),
        told: &'a Cell<Outcome>,
    ) -> Self {
        // SAFETY: passed on.
        let operation = unsafe { ChanOp::new(chan, op, slot) };
        Self::new(Kind::Channel { operation, hints }, Some(told))
    }

    pub(crate) fn object(object: &'a dyn Waitable, told: &'a Cell<Outcome>) -> Self {
        Self::new(Kind::Object(object), Some(told))
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
            Kind::Channel { operation, hints } => operation.op().may_be_ready(hints),
            Kind::Object(_) => true,
            Kind::Cancelled => park::is_cancelled(),
            Kind::After(duration) => duration.is_zero(),
            Kind::At(due) => now.is_some_and(|now| *due <= now),
            Kind::Off => false,
        }
    }

    /// What it waits for by a node, if it does.
    #[inline]
    fn waitable(&self) -> Option<&dyn Waitable> {
        match &self.kind {
            Kind::Channel { operation, .. } => Some(operation),
            Kind::Object(object) => Some(*object),
            Kind::Off | Kind::Cancelled | Kind::After(_) | Kind::At(_) => None,
        }
    }

    /// One try.
    #[inline]
    pub(super) fn try_now(&self, now: Option<u64>) -> Outcome {
        match self.waitable() {
            Some(waitable) => waitable.try_now(),
            None if self.may_be_ready(now) => Outcome::Done,
            None => Outcome::Pending,
        }
    }

    /// Completes it if it is ready, and tells its owner.
    pub(super) fn complete(&self, now: Option<u64>) -> bool {
        self.tell(self.try_now(now))
    }

    /// The last try of one who does not wait; see [`AnyChan::try_last`].
    pub(super) fn try_last(&self) -> Outcome {
        match &self.kind {
            Kind::Channel { operation, .. } => operation.try_last(),
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

    /// An owner has completed it: what came of it. (What owners do not write is that it is done.)
    pub(super) fn outcome(&self) -> Outcome {
        match self.waitable() {
            Some(waitable) if !waitable.is_won() => Outcome::Retry,
            _ => match self.node().outcome.get() {
                Outcome::Pending => Outcome::Done,
                noted => noted,
            },
        }
    }

    /// As [`Waitable::is_settled`].
    pub(super) fn is_settled(&self) -> bool {
        self.waitable().is_some_and(|waitable| waitable.is_settled())
    }

    /// Takes its node out of wherever it is linked.
    pub(super) fn unlink(&self) {
        if let Some(waitable) = self.waitable() {
            let mut owed = Vec::new();
            waitable.unpublish(self.node(), &mut owed);
            wake::call_all(owed);
        }
    }
}

impl std::fmt::Debug for Case<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.kind {
            Kind::Off => "Off",
            Kind::Channel { .. } => "Channel",
            Kind::Object(_) => "Object",
            Kind::Cancelled => "Cancelled",
            Kind::After(_) | Kind::At(_) => "Time",
        })
    }
}
