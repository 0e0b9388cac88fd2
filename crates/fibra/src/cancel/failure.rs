//! A child's failure (a panic, or that it could not be started) cancels its scope, unless the owner joins the child and so takes the
//! failure.
//!
//! Above: `rules.rs`, by which the scheduler reports the end of a child, and the handles of `task::join`. Below: `telling.rs`,
//! `sched::members::scope`.

use super::telling::Told;
use crate::fiber::frame::flag;
use crate::sched::current;
use crate::sched::members::scope::{NotStarted, PanicSlot, Reach, ScopeRecord};
use crate::waiter::cancel_reason::CancelReason;
use crate::waiter::node::WaiterKind;
use crate::waiter::word;

/// How often the failing child looks at an owner that is about to wait, before that counts as waiting, if the owner may
/// be below on this very stack: a plain thread may call a waker meanwhile, and the code that looks may be that waker.
const LOOKS_AT_ONESELF: usize = 1000;
/// The same for an owner on another thread, which needs only a moment, but may be without a processor for long. Bounded
/// all the same: a waker that the owner calls may wait, against the rules, for the code that looks.
const LOOKS: usize = 1_000_000;

/// The consequence of a child's failure.
enum Verdict {
    Nothing,
    Cancel(CancelReason, Reach),
    /// The owner is about to wait, perhaps for this very child.
    LookAgain,
}

impl ScopeRecord {
    /// A child has panicked, and the owner was not joining it; or (`not_started`) the handle of a child that could not
    /// be started is gone. If the owner waits for something else, or its body is over, the failure cancels the scope.
    /// If the owner is running, it may yet join the child: it decides when it next waits. If the owner is about to
    /// wait, perhaps for this child, which it then finds ended, a moment later one of the other cases holds.
    pub(super) fn child_failed(&'static self, life: u32, not_started: bool) {
        let mut told = Told::default();
        for looks in 0.. {
            let mut held = self.state.lock();
            let verdict = held.with(|state| {
                // In this order: the record may be in another life, and then the rest of it belongs to another scope.
                let Some(body) = state.body.filter(|_| self.life() == life && !self.isolate.get()) else {
                    return Verdict::Nothing;
                };
                for panic in state.panics.iter().filter(|panic| panic.is_there()) {
                    panic.tell();
                }
                state.unstarted.told |= not_started;
                let Some(reason) = state.told_failure() else {
                    // The owner has joined the child meanwhile.
                    return Verdict::Nothing;
                };
                if state.over {
                    return Verdict::Cancel(reason, Reach::Children);
                }
                // As in `cancel_one`.
                body.get().flags.announce(flag::CANCEL_BODY);
                let seen = body.get().word.look_after_flag();
                let is_elsewhere = body.get().kind() == WaiterKind::Fiber || current::worker().is_some();
                let most = if is_elsewhere { LOOKS } else { LOOKS_AT_ONESELF };
                if seen.is(word::WaiterState::Parking) && !seen.is_claimed() && looks < most {
                    Verdict::LookAgain
                } else if let Some(reason) = state.told_failure().filter(|_| seen.is_waiting()) {
                    // The failure is still there: a join before the owner began this wait would have taken it, and that
                    // would be seen now.
                    Verdict::Cancel(reason, Reach::All)
                } else {
                    Verdict::Nothing
                }
            });
            match verdict {
                Verdict::Cancel(reason, reach) => {
                    self.cancel_held(held, &reason, reach, &mut told);
                    break;
                }
                Verdict::Nothing => break,
                Verdict::LookAgain => {
                    drop(held);
                    crate::prim::thread::yield_now();
                }
            }
        }
        told.tell();
    }

    /// The body is over. From now on a child's panic belongs to the scope alone, and so does a child that was not
    /// started.
    pub(crate) fn body_is_over(&'static self) {
        let failure = self.state.with(|state| {
            state.over = true;
            state.untaken_failure()
        });
        if let Some(reason) = failure.filter(|_| !self.isolate.get()) {
            self.cancel(self.life(), &reason, Reach::Children);
        }
    }
}

impl PanicSlot {
    /// The handle is gone, and did not take the failure.
    pub(crate) fn unjoined(&self) {
        if self.is_there() {
            self.scope.child_failed(self.life, false);
        }
    }
}

impl NotStarted {
    /// The handle is gone.
    pub(crate) fn unjoined(self) {
        self.scope.child_failed(self.life, true);
    }
}
