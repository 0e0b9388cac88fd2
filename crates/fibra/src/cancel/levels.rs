//! Levels: which of the cancellations around the current fiber concern it now, and which may end its wait.
//!
//! Each open scope remembers how much was held off when it was opened (`hold`: open shields, and unwindings). A
//! cancellation of the scope concerns the fiber if no more than that is held off now; a cancellation of the fiber
//! itself, if nothing is held off. The header of `cancel` gives the reason. Above: `delivery.rs`, `rules.rs`. Below:
//! `shield.rs`, `unwinding.rs`, `grace.rs`.

use crate::fiber::frame::{FrameRef, flag};
use crate::prim::policy;
use crate::sched::here::Here;
use crate::sched::members::scope::{Failure, InLife, NEVER, Reach, ScopeRecord};
use crate::waiter::cancel_reason::{CancelReason, ReasonKind};
use crate::waiter::node::WaiterRef;
use crate::waiter::revoke::Due;
use crate::waiter::word::WaitKind;

/// How much an unwinding holds off: more than all the shields that could be open. Shields count 1 each and may end
/// before the unwinding does.
const UNWINDS: u32 = 1 << 20;

impl Here<'_> {
    /// How much holds cancellation off; see the header.
    pub(crate) fn hold(&self) -> u32 {
        self.hold_if(self.is_unwinding())
    }

    /// The same where it is known whether the fiber unwinds.
    fn hold_if(&self, unwinds: bool) -> u32 {
        let shields = if self.flags().has(flag::OVERDUE) { 0 } else { self.state.shields.get() };
        shields + UNWINDS * (self.state.cleanups.get() + u32::from(unwinds))
    }

    /// Which cancellations may end a wait that begins now, if its reason lets any.
    pub(super) fn wait_kind(&self) -> WaitKind {
        let hold = self.hold();
        if self.is_cooperative() {
            return WaitKind::Binding;
        }
        if hold == 0 || self.innermost().is_some_and(|scope| scope.hold.get() >= hold) {
            // (A shield that holds nothing off for now, because the time for it is over in a scope that is open here, may do so again.)
            if let Some((_, frame)) = self.fiber.filter(|_| hold == 0 && self.state.shields.get() == 0) {
                frame.lower(flag::HOLD_OFF);
            }
            return WaitKind::Revocable;
        }
        if self.is_unwinding() { WaitKind::Binding } else { WaitKind::Shielded }
    }

    /// Is there a cancellation that may be delivered now? Asked if a flag says that there may be.
    pub(crate) fn is_due(&self) -> bool {
        self.is_due_unless(&|| false)
    }

    /// The same for a caller that need not wait if `settled` holds: then a child's panic is not due, because the caller
    /// may be about to take it.
    #[cold]
    #[inline(never)]
    pub(crate) fn is_due_unless(&self, settled: &dyn Fn() -> bool) -> bool {
        !self.is_cooperative() && self.is_due_at(self.hold(), settled)
    }

    /// May the cancellation behind the flags end a wait of this kind that is about to begin? `settled`: as in
    /// [`is_due_unless`](Self::is_due_unless).
    pub(crate) fn may_end(&self, kind: WaitKind, settled: &dyn Fn() -> bool) -> bool {
        match kind {
            WaitKind::Watching => self.is_observable_unless(settled),
            WaitKind::Revocable | WaitKind::Shielded => self.is_due_unless(settled),
            WaitKind::Binding => false,
        }
    }

    /// May the cancellation end the wait that this fiber has just parked in? Asked on its worker's own stack, where it
    /// cannot be determined whether the fiber unwinds: that was noted when the fiber left. Shields are counted now,
    /// because their time may have ended since. Nothing is settled: the wait was published.
    pub(crate) fn may_end_parked(&self, kind: WaitKind) -> bool {
        match kind {
            WaitKind::Shielded if !self.flags().has(flag::OVERDUE) => false,
            WaitKind::Revocable | WaitKind::Shielded => {
                self.is_due_at(self.hold_if(self.state.left_unwinding.get()), &|| false)
            }
            WaitKind::Watching => self.is_observable_unless(&|| false),
            WaitKind::Binding => false,
        }
    }

    /// Is there a cancellation that may be delivered where `hold` much is held off?
    fn is_due_at(&self, hold: u32, settled: &dyn Fn() -> bool) -> bool {
        let flags = self.flags();
        if flags.has(flag::CANCEL) && hold == 0 {
            return true;
        }
        if !flags.has(flag::CANCEL_BODY) {
            return false;
        }
        if self.open_scopes().take_while(|scope| scope.hold.get() >= hold).any(|scope| scope.is_body_cancelled(settled))
        {
            return true;
        }
        // The flag was for a child's panic that was taken by a join. If nothing else is behind the flag, it can be
        // lowered.
        self.lower_body_flag();
        false
    }

    /// Is there a cancellation, whether it may be delivered or not? Asked if a flag says that there may be.
    pub(crate) fn is_observable(&self) -> bool {
        self.is_observable_unless(&|| false)
    }

    /// As [`is_due_unless`](Self::is_due_unless).
    #[cold]
    pub(crate) fn is_observable_unless(&self, settled: &dyn Fn() -> bool) -> bool {
        self.flags().has(flag::CANCEL) || self.open_scopes().any(|scope| scope.is_body_cancelled(settled))
    }

    /// A scope is closed, or was not cancelled after all: keeps the flag only if another open scope is cancelled.
    pub(crate) fn lower_body_flag(&self) {
        let flags = &self.waiter.get().flags;
        // A canceller marks the scope and then announces the flag; the owner lowers the flag and then looks, each under
        // the scope's lock. So a canceller whose mark is not seen here raises the flag after this.
        flags.retract(flag::CANCEL_BODY);
        if self.open_scopes().any(|scope| scope.has_body_reason() || scope.has_told_failure()) {
            flags.announce(flag::CANCEL_BODY);
        }
    }

    /// Is the fiber cancelled, or a scope around it, delivered or not? Looks at the clock too, since a worker that computes
    /// fires no timers.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.check_deadlines();
        let flags = self.flags();
        flags.has(flag::CANCEL)
            || flags.has(flag::CANCEL_BODY) && self.open_scopes().any(|scope| scope.has_body_reason())
    }

    /// The same, but counts only cancellations that are not held off here: those to which an unwinding goes on.
    pub(crate) fn is_cancelled_at_level(&self) -> bool {
        if !self.is_cancelled() {
            return false;
        }
        let hold = self.hold();
        self.flags().has(flag::CANCEL) && hold == 0
            || self.open_scopes().take_while(|scope| scope.hold.get() >= hold).any(|scope| scope.has_body_reason())
    }

    /// The reason, if it is cancelled: that of the outermost scope first, since unwinding ends there.
    pub(crate) fn reason(&self) -> Option<CancelReason> {
        if let Some((_, frame)) = self.fiber
            && let Some(reason) = reason_of(frame)
        {
            let scope = self.parent().filter(|_| reason == CancelReason::Token);
            let words = scope.and_then(ScopeRecord::children_reason);
            return words.filter(|words| matches!(words, CancelReason::Custom(_))).or(Some(reason));
        }
        self.open_scopes().filter_map(ScopeRecord::body_reason).last()
    }

    /// Cancels the scopes around the current fiber whose deadlines have come.
    pub(super) fn check_deadlines(&self) {
        if self.nearest_deadline() != NEVER && self.nearest_deadline() <= policy::now() {
            for scope in self.open_scopes() {
                if scope.own_deadline.get() <= policy::now() {
                    scope.cancel(scope.life(), &CancelReason::TimedOut, Reach::All);
                }
            }
        }
    }
}

/// May the cancellation behind its flags end the wait of a fiber that moves, in which nothing is held off (`wait::own_locals`), so that
/// each open scope concerns it? Asked by the worker that has let it go: it may run elsewhere meanwhile, or have ended. So this looks at
/// nothing of the fiber's own but its flags, and at its scopes from the outside in, as a canceller does. `outermost`: as the fiber left it.
pub(super) fn is_due_elsewhere(owner: WaiterRef, outermost: Option<InLife>) -> Option<Due<Failure>> {
    // (If these flags are of its next wait or life, the wait that is asked about is over, and not claimed.)
    if owner.get().flags.has(flag::CANCEL) {
        return Some(Due::Cancelled);
    }
    let (scope, life) = outermost?;
    scope.is_body_due(life, owner)
}

/// Why a fiber is cancelled, if it is. The text of a custom reason is in its scope, and known only while that is open.
pub(crate) fn reason_of(frame: FrameRef) -> Option<CancelReason> {
    frame.flags().cancel_reason().map(ReasonKind::without_words)
}
