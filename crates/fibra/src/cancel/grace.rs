//! Grace: a cancelled scope gives shields some time. When that time is over, shields hold nothing off any more, for the
//! body, the children and the scopes that are open inside; but a destructor that runs during unwinding is still left
//! alone.
//!
//! Above: the timer of a scope's grace. Below: `request.rs`, `telling.rs`, `sched::members::scope`.

use super::request;
use super::telling::Told;
use crate::fiber::frame::flag;
use crate::prim::spin::Locked;
use crate::sched::here::Here;
use crate::sched::members::scope::{Order, ScopeRecord, ScopeState};

impl ScopeRecord {
    /// The time that a cancelled scope gives to shields is over: shields hold nothing off any more, for the body, the
    /// children and the scopes that are open inside.
    pub(crate) fn end_grace(&'static self, life: u32) {
        let mut told = Told::default();
        let mut held = self.state.lock();
        if held.with(|state| self.life() == life && state.body.is_some() && self.root.is_cancelled()) {
            self.end_grace_held(held, &mut told);
        } else {
            drop(held);
        }
        told.tell();
    }

    pub(super) fn end_grace_held(&'static self, held: Locked<'_, ScopeState>, told: &mut Told) {
        self.inwards(held, |scope, state| {
            state.overdue = true;
            told.add(scope, state, Order::EndShields);
            if let Some(body) = state.body.filter(|_| state.reason.is_some()) {
                request::end_shields(body, state.cleanups == 0);
            }
            state.inner
        });
    }

    /// A destructor of its body opens a scope during unwinding, or has closed it: see [`ScopeState::cleanups`].
    pub(crate) fn add_cleanup(&self, opens: bool) {
        self.state.with(|state| if opens { state.cleanups += 1 } else { state.cleanups -= 1 });
    }

    /// Is the time for shields over in this scope?
    pub(crate) fn is_overdue(&self) -> bool {
        self.state.with(|state| state.overdue && state.reason.is_some())
    }

    /// Is it over for the children of this scope?
    pub(crate) fn are_children_overdue(&self) -> bool {
        self.state.with(|state| state.overdue)
    }
}

impl Here<'_> {
    /// A scope whose time for shields was over is closed: lowers the flag, unless another scope keeps it. A child also
    /// has that flag from the scope that it is in.
    pub(crate) fn lower_overdue_flag(&self) {
        let flags = &self.waiter.get().flags;
        // In this order: as in `lower_body_flag`.
        flags.retract(flag::OVERDUE);
        if self.parent().is_some_and(ScopeRecord::are_children_overdue)
            || self.open_scopes().any(ScopeRecord::is_overdue)
        {
            flags.announce(flag::OVERDUE);
        }
    }
}
