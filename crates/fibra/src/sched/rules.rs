//! What the scheduler asks of floors that lie above it: of cancellation (as the waist does), of the reactor, of machines. The `Config` of
//! each runtime names the objects that answer; machines come when there are some.
//!
//! All that is asked of cancellation is asked off the usual path: a flag is up, something is held off or unwinds, a scope's timer fires, a
//! child has failed.

use std::any::Any;
use std::task::Waker;

use super::here::Here;
use super::members::scope::{Failure, InLife, Order, ScopeRef};
use super::shared::RootRef;
use super::timers::timing::ScopeTimer;
use super::worker::Worker;
use crate::driver::{Completion, Registrar};
use crate::waiter::cancel_reason::ReasonKind;
use crate::waiter::node::WaiterRef;
use crate::waiter::revoke::Due;
use crate::waiter::word::WaitKind;

/// See the header; `cancel::Rules` answers.
pub(crate) trait CancelRules: std::fmt::Debug + Sync {
    // ---- asked by the waist, about what runs here

    /// What may end a revocable wait that begins now. Asked if something may be held off.
    fn wait_kind(&self, here: Here<'_>) -> WaitKind;

    /// May the cancellation behind the flags end a wait of this kind that is about to begin? `settled`: the waiter need not wait, so that a
    /// child's panic is not due, because it may be what it is about to take.
    fn may_end(&self, here: Here<'_>, kind: WaitKind, settled: &dyn Fn() -> bool) -> bool;

    /// Is there a cancellation behind the flags, whether it may be delivered here or not?
    fn is_observable(&self, here: Here<'_>) -> bool;

    /// Unwinds if there is a cancellation that may be delivered here. `settled`: as in [`may_end`](Self::may_end).
    fn checkpoint(&self, here: Here<'_>, settled: &dyn Fn() -> bool);

    /// It is cancelled, may be unwound, and will be, at once, with the payload that this gives. (The waist unwinds by itself: each stack
    /// frame between the wait and its caller would cost the unwinder some 3,000 instructions.)
    fn prepare_delivery(&self, here: Here<'_>) -> Box<dyn Any + Send>;

    /// The fiber is about to be suspended and may be inside a destructor that unwinding called: its neighbours have to know. What this
    /// gives is for [`is_back`](Self::is_back).
    fn leaves(&self, here: Here<'_>) -> u32;

    /// It runs again, on the same thread if it unwinds.
    fn is_back(&self, here: Here<'_>, share: u32);

    // ---- asked by the scheduler

    /// On the worker's own stack: may the cancellation behind the flags end the wait that this fiber has just parked in?
    fn may_end_parked(&self, here: Here<'_>, kind: WaitKind) -> bool;

    /// On the worker's own stack: the same about a fiber that it has let go on anywhere, and that had opened these scopes, of which this is
    /// the outermost. Asked if a cancel flag is up.
    fn may_end_elsewhere(&self, owner: WaiterRef, outermost: Option<InLife>) -> Option<Due<Failure>>;

    /// The wait of the owner of this scope was ended for this failure, which cancels the scope. The caller has the owner in its hands.
    fn settle(&self, failure: Failure);

    /// On a worker: cancels what it has started of this root (of all, if none is given); only daemons, if so said.
    fn cancel_started(&self, worker: &Worker, root: Option<RootRef>, daemons_only: bool, reason: ReasonKind);

    /// On a worker: cancels the started fiber with this number, if it is this worker's.
    fn cancel_numbered(&self, worker: &Worker, id: u64);

    /// On a worker: tells this to the children of a scope in this life that it has started, and to the scopes that they have opened.
    fn tell_children(&self, worker: &Worker, scope: ScopeRef, life: u32, order: Order<ReasonKind>);

    /// A timer of a scope in this life has fired.
    fn fire(&self, timer: ScopeTimer, scope: ScopeRef, life: u32);

    /// A child of a scope in this life has panicked, or could not be started (`not_started`), and no joiner was waiting for it.
    fn child_failed(&self, scope: ScopeRef, life: u32, not_started: bool);
}

/// What a worker brings to the reactor; `reactor::source::Rules` takes it.
pub(crate) trait IoRules: std::fmt::Debug + Sync {
    /// What a driver has to report, to its waiters. Wakers of async waits come back, to be called where user code may run.
    fn deliver(&self, completion: Completion, owed: &mut Vec<Waker>);

    /// A driver goes: wakes every waiter that is registered with it.
    fn abandon(&self, registrar: &Registrar);
}

/// What a worker brings to its machines.
pub(crate) trait MachineIo: Any + std::fmt::Debug {
    /// What the driver has to report, to the machines whose operations wait for it.
    fn deliver(&self, completion: Completion);
}

impl Worker {
    /// The rules of cancellation in this runtime.
    pub(crate) fn rules(&self) -> &'static dyn CancelRules {
        self.shared.config.rules
    }
}
