//! Lists the open scopes for reports: names, owners, and which scope is inside which.
//!
//! A record is read under its own lock, while its owner cannot close it: what the owner wrote when it opened the scope does not change.
//! The exception is `outer`, which the owner clears before it takes that lock: it is read through the kernel (`prim::peek`). Above:
//! `inspect`. Below: `scope.rs`.

use std::panic::Location;
use std::ptr;
use std::sync::Arc;

use crate::fiber::frame::{Frame, flag};
use crate::prim::atomic::Ordering;
use crate::prim::peek::peek_words;
use crate::sched::members::scope::{NEVER, ScopeRef, all};
use crate::waiter::node::WaiterKind;

/// A description of an open scope.
#[derive(Debug, Clone)]
pub(crate) struct ScopeFacts {
    /// Identifies the scope as long as it is open: the `root` of its children.
    pub(crate) address: usize,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) site: Option<&'static Location<'static>>,
    /// The fiber whose body it is; `None` for a plain thread.
    pub(crate) owner: Option<u64>,
    /// The scope around it.
    pub(crate) outer: Option<usize>,
    /// Its own deadline, on fibra's clock.
    pub(crate) deadline: Option<u64>,
    /// The body is over: it waits for its children.
    pub(crate) over: bool,
    pub(crate) cancelled: bool,
    pub(crate) draining: bool,
}

/// All open scopes of this process.
pub(crate) fn open_scopes() -> Vec<ScopeFacts> {
    all().filter_map(facts).collect()
}

fn facts(scope: ScopeRef) -> Option<ScopeFacts> {
    scope.state.with(|state| {
        let body = state.body?;
        let owner = (body.get().kind() == WaiterKind::Fiber).then(|| Frame::from_waiter(body));
        let around = peek_words::<1>(ptr::from_ref(&scope.outer).addr()).map_or(0, |[outer]| outer);
        let of_owner = || owner.filter(|owner| owner.has(flag::SCOPED)).map(|owner| owner.root.get().addr());
        let deadline = scope.own_deadline.get();
        Some(ScopeFacts {
            address: scope.as_ptr().addr(),
            name: state.name.clone(),
            site: state.site,
            // Relaxed: the owner lives, and its number does not change.
            owner: owner.map(|owner| owner.id.load(Ordering::Relaxed)),
            outer: (around != 0).then_some(around).or_else(of_owner),
            deadline: (deadline != NEVER).then_some(deadline),
            over: state.over,
            cancelled: state.reason.is_some() || state.children_reason.is_some(),
            draining: state.draining,
        })
    })
}
