//! A child's failure (a panic, or that it could not be started) cancels its scope, unless somebody joins the child and so takes it.

use super::telling::Told;
use crate::fiber::frame::flag;
use crate::sched::current;
use crate::sched::members::scope::{NotStarted, PanicSlot, Reach, ScopeRecord};
use crate::waiter::cancel_reason::CancelReason;
use crate::waiter::node::Kind;
use crate::waiter::word;

/// How often one looks at an owner that is about to wait, before that counts as waiting, if the owner may be below on this very stack: a
/// plain thread may call a waker meanwhile, which may be what is looking.
const LOOKS_AT_ONESELF: usize = 1000;
/// The same for another thread, which needs a moment only, but may be without a processor for long. Bounded all the same: a waker that it
/// calls may wait, against the rules, for who is looking.
const LOOKS: usize = 1_000_000;

/// What a child's failure comes to.
enum Verdict {
    Nothing,
    Cancel(CancelReason, Reach),
    /// The owner is about to wait, perhaps for this very child.
    LookAgain,
}

impl ScopeRecord {
    /// A child has panicked, and nobody was joining it; or (`not_started`) the handle of one that could not be started is gone. If the
    /// owner waits for something else, or for nothing any more, that cancels the scope; if it is running, it may yet join the child: it
    /// decides when it next waits. If it is about to wait, perhaps for this child, which it then finds ended, that is seen in a moment.
    pub(super) fn child_failed(&'static self, life: u32, not_started: bool) {
        let mut told = Told::default();
        for looks in 0.. {
            let mut held = self.state.lock();
            let verdict = held.with(|state| {
                // In this order: it may be another life, and then the rest is not for us to read.
                let Some(body) = state.body.filter(|_| self.life() == life && !self.isolate.get()) else {
                    return Verdict::Nothing;
                };
                for panic in state.panics.iter().filter(|panic| panic.is_there()) {
                    panic.tell();
                }
                state.unstarted.told |= not_started;
                let Some(reason) = state.told_failure() else {
                    // Somebody has joined it meanwhile.
                    return Verdict::Nothing;
                };
                if state.over {
                    return Verdict::Cancel(reason, Reach::Children);
                }
                // As in `cancel_one`.
                body.get().flags.announce(flag::CANCEL_BODY);
                let seen = body.get().word.look_after_flag();
                let is_elsewhere = body.get().kind() == Kind::Fiber || current::worker().is_some();
                let most = if is_elsewhere { LOOKS } else { LOOKS_AT_ONESELF };
                if seen.is(word::State::Parking) && !seen.is_claimed() && looks < most {
                    Verdict::LookAgain
                } else if let Some(reason) = state.told_failure().filter(|_| seen.is_waiting()) {
                    // Still there: whoever joined it before he began this wait has taken it, and that is seen now.
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

    /// The body is over. From now on a child's panic is nobody's but the scope's, and so is one that was not started.
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
    /// The handle is gone, and did not take it.
    pub(crate) fn nobody_joins(&self) {
        if self.is_there() {
            self.scope.child_failed(self.life, false);
        }
    }
}

impl NotStarted {
    /// The handle is gone.
    pub(crate) fn nobody_joins(self) {
        self.scope.child_failed(self.life, true);
    }
}
