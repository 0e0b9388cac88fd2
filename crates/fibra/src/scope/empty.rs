//! The wait for a root to become empty: a runtime's, a run's, or that of a scope.
//!
//! Above: `body`, `runtime::roots`. Below: `sched::members::root`, which counts.

use std::task::Waker;

use crate::sched::members::root::Root;
use crate::wait::park::{Outcome, Waitable};
use crate::wait::waitable::{Published, linked_or};
use crate::waiter::node::Node;

/// See the header.
pub(crate) struct Empty<'a>(pub(crate) &'a Root);

impl Waitable for Empty<'_> {
    fn publish(&self, node: &Node) -> Published {
        let (waiter, ticket, _) = node.target();
        linked_or(self.0.publish((waiter, ticket)), Outcome::Done)
    }

    fn unpublish(&self, _: &Node, _: &mut Vec<Waker>) {
        self.0.unpublish();
    }
}
