//! The waiter in a model: one of the model's threads. There are no workers, scopes and budgets, and no clock: a deadline is over when the
//! waiter looks for it after its park, and the race that remains is the one worth exploring: the waiter takes its wait back while an owner
//! claims it. No step of the protocol is here: those are in `park.rs`, `revoke.rs` and `thread.rs`, as they ship.

use std::panic::Location;
use std::task::Waker;

use super::park::{Manner, wait_as};
use super::reason::WaitReason;
use super::waitable::{Published, Wait, Waitable, linked_or};
use crate::prim::home_lock::Lane;
use crate::waiter::cancel_reason::ReasonKind;
use crate::waiter::flags::flag;
use crate::waiter::node::{Node, Outcome, WaiterRef};
use crate::waiter::record::ThreadRecord;
use crate::waiter::revoke;
use crate::waiter::word::{CompletedBy, WaitKind, WaiterState};

#[cfg(loom)]
loom::thread_local! {
    static MINE: &'static ThreadRecord = ThreadRecord::leaked();
}
#[cfg(all(shuttle, not(loom)))]
shuttle::thread_local! {
    static MINE: &'static ThreadRecord = ThreadRecord::leaked();
}

/// The payload with which a model's thread unwinds if it is cancelled in a wait.
pub(crate) struct CancelledInModel;

/// Unwinds the model's thread.
pub(crate) fn deliver() -> ! {
    std::panic::resume_unwind(Box::new(CancelledInModel))
}

/// The record of the model's thread that runs here, to be given to its canceller.
pub(crate) fn me() -> WaiterRef {
    MINE.with(|record| record.waiter_ref())
}

/// Cancels the thread whose [`me`] this is.
pub(crate) fn cancel(waiter: WaiterRef) {
    revoke::request(waiter, ReasonKind::Handle, |_| unreachable!("a thread"));
}

/// Waits, as the model's thread that runs here.
pub(super) fn wait_here(waitable: impl Waitable + Copy, how: Wait, manner: Manner) -> (Outcome, Option<CompletedBy>) {
    let mine = MINE.with(|record| *record);
    // A thread whose record is about to park when it waits again (in a waker that waits) takes another record. Type-stable for the rest
    // of the model, like every record.
    let record = if me().get().word.snapshot().is(WaiterState::Running) { mine } else { ThreadRecord::leaked() };
    wait_as(record, waitable, how, manner)
}

/// Waits on what two functions publish and take back, as the thread of this record. `publish` says whether there is something to wait for.
pub(crate) fn wait_with(
    record: &'static ThreadRecord,
    publish: impl Fn(&Node) -> bool,
    unpublish: impl Fn(&Node),
    reason: WaitReason,
    deadline: Option<u64>,
) -> Outcome {
    struct Functions<P, U>(P, U);

    impl<P: Fn(&Node) -> bool, U: Fn(&Node)> Waitable for Functions<P, U> {
        fn publish(&self, node: &Node) -> Published {
            linked_or(self.0(node), Outcome::Retry)
        }

        fn unpublish(&self, node: &Node, _: &mut Vec<Waker>) {
            self.1(node);
        }
    }

    let how = Wait { reason, object: 0, site: Location::caller(), deadline };
    wait_as(record, &Functions(publish, unpublish), how, Manner::Plain).0
}

/// Only cancellation makes a difference here.
pub(super) fn is_thread_plain(record: &'static ThreadRecord) -> bool {
    !record.waiter_ref().get().flags.has(flag::ANY_CANCEL)
}

/// Models have no shields.
pub(super) fn thread_wait_kind(_: &'static ThreadRecord) -> WaitKind {
    WaitKind::Revocable
}

/// As [`thread_wait_kind`].
pub(super) fn may_end_on_thread(_: &'static ThreadRecord, _: WaitKind, _: &dyn Fn() -> bool) -> bool {
    true
}

/// See the header.
pub(super) fn is_over(_: u64) -> bool {
    false
}

/// See the header.
pub(super) fn time_left(_: u64) -> u64 {
    0
}

/// Nothing looks in passing.
pub(crate) fn is_cancelled() -> bool {
    false
}

/// Only waits are cancelled in a model.
pub(crate) fn entry() {}

/// There are no workers.
pub(crate) fn lane() -> Lane {
    Lane::NONE
}

/// There is no budget: the hot paths are the models' too.
pub(crate) fn passes() -> bool {
    true
}

/// As [`passes`].
pub(crate) fn passes_as() -> Option<Lane> {
    Some(Lane::NONE)
}

/// As [`entry`].
pub(crate) fn entry_unless(_: impl FnOnce() -> bool) {}

/// As [`entry`].
pub(crate) fn entry_if(_: impl FnOnce() -> bool, _: impl FnOnce() -> bool) {}

/// Models have no budget.
pub(crate) fn count_call() {}

/// As [`count_call`].
pub(crate) fn lets_others_run(_: &std::task::Context<'_>) -> bool {
    false
}
