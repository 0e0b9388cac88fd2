//! The answers to the questions of the scheduler and of the waist (`sched::rules`): each is one call into this module. Above: `sched`,
//! `wait`. Below: the other files of `cancel`.

use std::any::Any;

use super::{delivery, levels, request, telling};
use crate::sched::here::Here;
use crate::sched::members::scope::{Failure, InLife, Order, Reach, ScopeRef};
use crate::sched::rules::CancelRules;
use crate::sched::shared::RootRef;
use crate::sched::timers::timing::ScopeTimer;
use crate::sched::worker::Worker;
use crate::waiter::cancel_reason::{CancelReason, ReasonKind};
use crate::waiter::node::WaiterRef;
use crate::waiter::revoke::Due;
use crate::waiter::word::WaitKind;

/// The table that every runtime is given.
#[derive(Debug)]
pub(crate) struct Rules;

impl CancelRules for Rules {
    fn wait_kind(&self, here: Here<'_>) -> WaitKind {
        here.wait_kind()
    }

    fn may_end(&self, here: Here<'_>, kind: WaitKind, settled: &dyn Fn() -> bool) -> bool {
        here.may_end(kind, settled)
    }

    fn is_observable(&self, here: Here<'_>) -> bool {
        here.is_observable()
    }

    fn checkpoint(&self, here: Here<'_>, settled: &dyn Fn() -> bool) {
        delivery::checkpoint_on(here, settled);
    }

    fn prepare_delivery(&self, here: Here<'_>) -> Box<dyn Any + Send> {
        delivery::prepare_on(here)
    }

    fn leaves(&self, here: Here<'_>) -> u32 {
        here.note_leaving()
    }

    fn is_back(&self, here: Here<'_>, share: u32) {
        here.note_back(share);
    }

    fn may_end_parked(&self, here: Here<'_>, kind: WaitKind) -> bool {
        here.may_end_parked(kind)
    }

    fn may_end_elsewhere(&self, owner: WaiterRef, outermost: Option<InLife>) -> Option<Due<Failure>> {
        levels::is_due_elsewhere(owner, outermost)
    }

    fn settle(&self, failure: Failure) {
        let (scope, life) = failure.of;
        scope.cancel(life, &failure.reason, Reach::All);
    }

    fn cancel_started(&self, worker: &Worker, root: Option<RootRef>, daemons_only: bool, reason: ReasonKind) {
        request::cancel_started_here(worker, root, daemons_only, reason);
    }

    fn cancel_numbered(&self, worker: &Worker, id: u64) {
        request::cancel_numbered_here(worker, id);
    }

    fn tell_children(&self, worker: &Worker, scope: ScopeRef, life: u32, order: Order<ReasonKind>) {
        telling::tell_children_here(worker, scope, life, order);
    }

    fn fire(&self, timer: ScopeTimer, scope: ScopeRef, life: u32) {
        match timer {
            ScopeTimer::Deadline => scope.cancel(life, &CancelReason::TimedOut, Reach::All),
            ScopeTimer::Drained => scope.cancel(life, &CancelReason::Drained, Reach::Children),
            ScopeTimer::Grace => scope.end_grace(life),
        }
    }

    fn child_failed(&self, scope: ScopeRef, life: u32, not_started: bool) {
        scope.child_failed(life, not_started);
    }
}
