//! One arm of a select as the engine sees it: what to try, what to link where, and a cell that holds the outcome for the arm. Above:
//! `engine.rs`, the arms. Below: `channel::any`, `wait`.

use std::cell::Cell;
use std::time::Duration;

use crate::channel::any::AnyChan;
use crate::channel::op::ChanOpKind;
use crate::channel::waits::ChanOp;
use crate::prim::atomic::AtomicU8;
use crate::wait::park::{self, Waitable};
use crate::wait::wake;
use crate::waiter::node::{Node, Outcome};

/// See the header. Built by the arms of this crate only.
pub struct Case<'a> {
    pub(super) kind: CaseKind<'a>,
    /// Made when the select begins to wait.
    node: Option<Node>,
    /// The outcome; `Pending` until the select is over, and for ever if the case lost.
    told: Option<&'a Cell<Outcome>>,
}

pub(super) enum CaseKind<'a> {
    /// Its guard is false.
    Off,
    /// It may meet another waiter half way, and is locked together with the other cases of its kind.
    Channel {
        operation: ChanOp<'a, dyn AnyChan + 'a, ChanOpKind>,
        /// The hints of the channel, for a look without a call.
        hints: &'a AtomicU8,
    },
    /// Any other object: it completes waits, but never meets another waiter half way (a fiber that ends, an event, a lock).
    Object(&'a dyn Waitable),
    /// The current fiber or thread is cancelled: taken instead of unwinding.
    Cancelled,
    /// After this long, counted from the moment the select begins to wait.
    After(Duration),
    At(u64),
}

impl<'a> Case<'a> {
    fn new(kind: CaseKind<'a>, told: Option<&'a Cell<Outcome>>) -> Self {
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
        Self::new(CaseKind::Off, None)
    }

    /// `hints` are the channel's: given by the caller, which knows its type, so that making a case takes no call.
    ///
    /// # Safety
    /// For as long as the case lives, `slot` is what the operation needs: room for a value, or a value, of the channel's type; and
    /// if `told` says DONE afterwards, its owner acts on it (a value was written, or moved away).
    pub(super) unsafe fn channel(
        chan: &'a dyn AnyChan,
        hints: &'a AtomicU8,
        op: ChanOpKind,
        slot: *mut (),
        told: &'a Cell<Outcome>,
    ) -> Self {
        // SAFETY: passed on.
        let operation = unsafe { ChanOp::new(chan, op, slot) };
        Self::new(CaseKind::Channel { operation, hints }, Some(told))
    }

    pub(crate) fn object(object: &'a dyn Waitable, told: &'a Cell<Outcome>) -> Self {
        Self::new(CaseKind::Object(object), Some(told))
    }

    pub(super) fn cancelled(told: &'a Cell<Outcome>) -> Self {
        Self::new(CaseKind::Cancelled, Some(told))
    }

    pub(super) fn after(duration: Duration, told: &'a Cell<Outcome>) -> Self {
        Self::new(CaseKind::After(duration), Some(told))
    }

    /// Is a try worth a lock?
    #[inline(always)]
    pub(super) fn may_be_ready(&self, now: Option<u64>) -> bool {
        match &self.kind {
            CaseKind::Channel { operation, hints } => operation.op().may_be_ready(hints),
            CaseKind::Object(_) => true,
            CaseKind::Cancelled => park::is_cancelled(),
            CaseKind::After(duration) => duration.is_zero(),
            CaseKind::At(due) => now.is_some_and(|now| *due <= now),
            CaseKind::Off => false,
        }
    }

    /// The object that it waits for by a node, if it does.
    #[inline]
    fn waitable(&self) -> Option<&dyn Waitable> {
        match &self.kind {
            CaseKind::Channel { operation, .. } => Some(operation),
            CaseKind::Object(object) => Some(*object),
            CaseKind::Off | CaseKind::Cancelled | CaseKind::After(_) | CaseKind::At(_) => None,
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

    /// The last try of a select that does not wait; see [`AnyChan::try_last`].
    pub(super) fn try_last(&self) -> Outcome {
        match &self.kind {
            CaseKind::Channel { operation, .. } => operation.try_last(),
            _ => self.try_now(None),
        }
    }

    /// Notes the outcome in the cell of the arm. False: there is none yet.
    pub(super) fn tell(&self, outcome: Outcome) -> bool {
        if let Some(told) = self.told {
            told.set(outcome);
        }
        outcome != Outcome::Pending
    }

    /// A completion owner has completed it: gives the outcome. (An owner that wrote none means `Done`.)
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

    /// Takes its node out of the list in which it is linked.
    pub(super) fn unlink(&self) {
        if let Some(waitable) = self.waitable() {
            let mut owed = Vec::new();
            waitable.unpublish(self.node(), &mut owed);
            wake::call_wakers(owed);
        }
    }
}

impl std::fmt::Debug for Case<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.kind {
            CaseKind::Off => "Off",
            CaseKind::Channel { .. } => "Channel",
            CaseKind::Object(_) => "Object",
            CaseKind::Cancelled => "Cancelled",
            CaseKind::After(_) | CaseKind::At(_) => "Time",
        })
    }
}
