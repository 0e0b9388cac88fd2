//! Cancellation and draining of whatever runs here, and the cancellation of a token, as arms.

use std::cell::Cell;
use std::task::Waker;

use super::arm::{Arm, sealed};
use super::case::Case;
use crate::sched::here::Here;
use crate::sched::members::scope::ScopeRef;
use crate::scope::Cancelled;
use crate::wait::waitable::{Published, Waitable, linked_or};
use crate::waiter::cancel_reason::CancelReason;
use crate::waiter::node::{Node, Outcome};

/// Taken when this fiber, or a scope around, is cancelled; instead of unwinding.
#[derive(Debug)]
pub struct CancelledArm {
    told: Cell<Outcome>,
}

impl CancelledArm {
    pub(super) fn new() -> Self {
        Self { told: Cell::new(Outcome::Pending) }
    }
}

impl sealed::Sealed for CancelledArm {
    fn case(&mut self) -> Case<'_> {
        Case::cancelled(&self.told)
    }
}

impl Arm for CancelledArm {
    type Output = CancelReason;
    fn finish(&mut self) -> CancelReason {
        let reason = Here::new().and_then(|here| here.reason());
        // A child's panic that was taken by a join in this very moment.
        reason.unwrap_or(CancelReason::Panicked)
    }
}

/// Taken when a scope around is asked to come to an end. Without a scope, never.
#[derive(Debug)]
pub struct DrainingArm {
    watched: Watched,
    told: Cell<Outcome>,
}

/// A scope in a life: an arm that outlived it would otherwise watch another.
#[derive(Debug)]
struct Watched(Option<(ScopeRef, u32)>);

impl DrainingArm {
    pub(super) fn new() -> Self {
        Self {
            watched: Watched(Here::new().and_then(|here| here.scope()).map(|scope| (scope, scope.life()))),
            told: Cell::new(Outcome::Pending),
        }
    }
}

impl Waitable for Watched {
    fn try_now(&self) -> Outcome {
        let is_draining = self.0.is_some_and(|(scope, life)| scope.life() == life && scope.is_draining());
        if is_draining { Outcome::Done } else { Outcome::Pending }
    }

    fn publish(&self, node: &Node) -> Published {
        let (waiter, ticket, arm) = node.target();
        linked_or(self.0.is_none_or(|(scope, life)| scope.watch(life, node, waiter, ticket, arm)), Outcome::Retry)
    }

    fn unpublish(&self, node: &Node, _: &mut Vec<Waker>) {
        if let Some((scope, _)) = self.0 {
            scope.unwatch(node);
        }
    }
}

impl sealed::Sealed for DrainingArm {
    fn case(&mut self) -> Case<'_> {
        Case::object(&self.watched, &self.told)
    }
}

impl Arm for DrainingArm {
    type Output = ();
    fn finish(&mut self) {}
}

impl sealed::Sealed for Cancelled<'_> {
    fn case(&mut self) -> Case<'_> {
        Case::object(&**self.token, &self.told)
    }
}

impl Arm for Cancelled<'_> {
    type Output = CancelReason;
    fn finish(&mut self) -> CancelReason {
        self.reason().expect("an arm that won")
    }
}
