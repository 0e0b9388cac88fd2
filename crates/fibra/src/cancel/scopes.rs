//! Cancelling a scope and the scopes that are open inside it; asking a scope to drain. Both requests, like the end of a
//! grace (`grace.rs`), go the same way: to the body, to the scopes open inside it, and to the children that have
//! started, on whichever worker (`telling.rs`).
//!
//! Locks are taken from the outside in, hand over hand, as the header of `sched::members::scope` says. Above: `scope`, `levels.rs`. Below:
//! `telling.rs`, `request.rs`, `sched::members::scope`.

use std::sync::Arc;

use super::request;
use super::telling::Told;
use crate::fiber::frame::flag;
use crate::prim::spin::Locked;
use crate::sched::complete::complete_wait;
use crate::sched::enqueue::QueueEnd;
use crate::sched::members::scope::{Failure, InLife, Listener, Order, Reach, ScopeRecord, ScopeRef, ScopeState};
use crate::waiter::cancel_reason::CancelReason;
use crate::waiter::node::{Node, WaitList, WaiterRef};
use crate::waiter::revoke::Due;
use crate::waiter::word::{CompletedBy, Ticket};

/// Cancels these scopes, each if it is still in this life.
pub(crate) fn cancel_all(scopes: &[InLife], reason: &CancelReason) {
    let mut told = Told::default();
    for (scope, life) in scopes {
        scope.cancel_into(*life, reason, Reach::All, &mut told);
    }
    told.tell();
}

impl ScopeRecord {
    /// Cancels the scope, if this life of its record is still going on. The first reason stays.
    pub(crate) fn cancel(&'static self, life: u32, reason: &CancelReason, reach: Reach) {
        let mut told = Told::default();
        self.cancel_into(life, reason, reach, &mut told);
        told.tell();
    }

    pub(super) fn cancel_into(&'static self, life: u32, reason: &CancelReason, reach: Reach, told: &mut Told) {
        let mut held = self.state.lock();
        if held.with(|state| self.life() == life && state.body.is_some()) {
            self.cancel_held(held, reason, reach, told);
        }
    }

    pub(super) fn cancel_held(
        &'static self,
        held: Locked<'_, ScopeState>,
        reason: &CancelReason,
        reach: Reach,
        told: &mut Told,
    ) {
        self.inwards(held, |scope, state| scope.cancel_one(state, reason, reach, told));
    }

    /// Cancels one, and says which scope inside comes next.
    fn cancel_one(
        &'static self,
        state: &mut ScopeState,
        reason: &CancelReason,
        reach: Reach,
        told: &mut Told,
    ) -> Option<ScopeRef> {
        let body = state.body?;
        if self.root.cancel(reason.kind()) {
            state.children_reason = Some(reason.clone());
            told.add(self, state, Order::Cancel(reason.clone()));
        }
        if reach == Reach::Children {
            return None;
        }
        state.reason.get_or_insert_with(|| reason.clone());
        // The canceller's first half of the handshake with a parker; `interrupt` is the second.
        body.get().flags.announce(flag::CANCEL_BODY);
        if state.barrier {
            // The body is behind a shield: left alone, unless it waits there for just this cancellation.
            request::interrupt_watcher(body);
        } else if state.inner.is_none() {
            // The lock of the innermost scope is held: no scope can be opened in it, behind a shield or not, nor can it
            // be closed.
            request::interrupt(body);
        }
        state.inner
    }

    /// Goes from a scope inwards, as far as `visit` says. Each lock is taken before the last is given back, so none is closed meanwhile.
    pub(super) fn inwards(
        &'static self,
        mut held: Locked<'_, ScopeState>,
        mut visit: impl FnMut(ScopeRef, &mut ScopeState) -> Option<ScopeRef>,
    ) {
        let mut scope = self;
        while let Some(inner) = held.with(|state| visit(scope, state)) {
            held = inner.state.lock();
            scope = inner;
        }
    }

    /// Is the body cancelled? Asked by the owner. A child's failure that no join has taken becomes a cancellation here:
    /// the owner is about to wait for something else.
    ///
    /// Unless the owner need not wait (`settled`): then it may be about to take that very panic.
    pub(crate) fn is_body_cancelled(&'static self, settled: &dyn Fn() -> bool) -> bool {
        let (is_cancelled, failure) = self.state.with(|state| {
            let failure = if self.isolate.get() { None } else { state.told_failure() };
            (state.reason.is_some(), failure)
        });
        match failure {
            // Asked only now: the child had ended before its failure was noted, so a join that would take its panic is
            // settled by now.
            Some(reason) if !is_cancelled && !settled() => {
                self.cancel(self.life(), &reason, Reach::All);
                true
            }
            _ => is_cancelled,
        }
    }

    /// For a worker that has let the owner of this scope go: is its body cancelled, or that of a scope inside it, or is it due to be
    /// because of a child's failure? Unlike [`is_body_cancelled`](Self::is_body_cancelled) this changes nothing, and looks only at what
    /// the locks guard. `None`, too, if the owner has closed the scope meanwhile.
    pub(super) fn is_body_due(&'static self, life: u32, owner: WaiterRef) -> Option<Due<Failure>> {
        let mut held = self.state.lock();
        if held.with(|state| self.life() != life || state.body != Some(owner)) {
            return None;
        }
        let mut due = None;
        self.inwards(held, |scope, state| {
            let failure = if scope.isolate.get() { None } else { state.told_failure() };
            if state.reason.is_some() {
                due = Some(Due::Cancelled);
            } else if let Some(reason) = failure {
                due = Some(Due::Settle(Failure { of: (scope, scope.life()), reason }));
            }
            state.inner.filter(|_| due.is_none())
        });
        due
    }

    /// Sets the listener that is told when the scope is cancelled. Err: it is cancelled already, for this reason.
    pub(crate) fn set_listener(&self, listener: Arc<dyn Listener>) -> Result<(), CancelReason> {
        self.state.with(|state| {
            if let Some(reason) = &state.children_reason {
                return Err(reason.clone());
            }
            state.listener = Some(listener);
            Ok(())
        })
    }

    // ---- draining: a request to come to an end

    /// Asks the children, and the scopes that are open inside, to come to an end.
    pub(crate) fn drain(&'static self, life: u32) {
        let mut told = Told::default();
        let mut held = self.state.lock();
        if held.with(|state| self.life() == life && state.body.is_some()) {
            self.drain_held(held, &mut told);
        } else {
            drop(held);
        }
        told.tell();
    }

    pub(super) fn drain_held(&'static self, held: Locked<'_, ScopeState>, told: &mut Told) {
        self.inwards(held, |scope, state| {
            if std::mem::replace(&mut state.draining, true) {
                return None;
            }
            told.add(scope, state, Order::Drain);
            if let Some(list) = &state.watchers.0 {
                // SAFETY: under the lock of the list.
                while let Some((waiter, ticket, arm)) = unsafe { list.pop_front() } {
                    let waker = complete_wait(waiter, ticket, arm, QueueEnd::Tail);
                    debug_assert!(waker.is_none(), "futures do not watch scopes");
                }
            }
            state.inner
        });
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.state.with(|state| state.draining)
    }

    /// Links the node of a waiter for the scope to be drained. False: it is drained. In another life of the record it
    /// never will be.
    pub(crate) fn watch(&self, life: u32, node: &Node, waiter: WaiterRef, ticket: Ticket, arm: CompletedBy) -> bool {
        self.state.with(|state| {
            if self.life() != life || state.body.is_none() {
                return true;
            }
            if state.draining {
                return false;
            }
            node.set(waiter, ticket, arm);
            // SAFETY: under the lock of the list; the node stays until it is unlinked.
            unsafe { state.watchers.0.get_or_insert_with(WaitList::new).push_back(node) };
            true
        })
    }

    pub(crate) fn unwatch(&self, node: &Node) {
        self.state.with(|state| {
            if let Some(list) = &state.watchers.0 {
                // SAFETY: under the lock of the list.
                unsafe { list.remove(node) };
            }
        });
    }
}
