//! Flags against park: both sides of the handshake in one file, the same lines for fibers, threads and models. A waiter is told two things
//! by a flag of its record: that it is cancelled, and that a waker of the future it polls was called (`wait/poll.rs`).
//!
//! ```text
//!  the waiter                                     the canceller, or the caller of the waker
//!  begin_park, publish, leave the stack           raise a flag of the waiter    (SeqCst read-modify-write)
//!  commit_park  (SeqCst read-modify-write)        look at the word              (SeqCst read-modify-write)
//!  read the flags  (SeqCst load)                  a wait that the flag may end: claim it
//! ```
//!
//! The two meet at the word. If the canceller looks before the commit, the waiter reads the flags after it and finds the new one; if it
//! looks later, it finds the wait. Either may then claim the wait as `ARM_CANCEL`, like any completion owner; a match that was faster
//! simply wins. The waiter reads the flags *after* its commit and not when it begins to park: the commit is a read-modify-write anyway,
//! and a wait pays for no second one. (Before it begins, the waiter has a look too, without any order: to be cancelled without the way
//! through the queues.)
//!
//! Lowest floor, like the word: the worker commits (`sched::worker`), and cancellers are on every floor. How a woken fiber is enqueued and
//! whether a cancellation concerns the wait (levels, shields: `cancel`) are given by the caller.

use super::flags::{FlagSet, flag};
use super::node::{Waiter, WaiterKind, WaiterRef};
use super::record::{Claimed, complete_with};
use super::word::{ARM_CANCEL, ARM_FIRST, Claim, Commit, Snapshot, WaitKind, WakerNotice};
use crate::prim::bug::seeded_bug;
use crate::waiter::cancel_reason::ReasonKind;

/// The waiter has left its stack: its park becomes visible as PARKED. Called by a fiber's worker on its own stack, and by a thread itself.
/// `Requeue`: it was woken meanwhile, or is cancelled, and is RUNNABLE. `is_due` is asked if a cancel flag is up: may that end this wait?
#[inline(always)]
pub(crate) fn commit(waiter: &Waiter, is_due: impl FnOnce(WaitKind) -> bool) -> Commit {
    let read_flags = || waiter.flags.look_after_commit();
    let read_too_early = seeded_bug("park_reads_flag_first").then(read_flags);
    let Some(seen) = waiter.word.commit_unless_woken() else { return waiter.word.commit_claimed() };
    let flags = read_too_early.unwrap_or_else(read_flags);
    if flags.has(flag::ANY_CANCEL | flag::ANY_NOTICE) {
        return revoke_own(waiter, seen, flags, is_due);
    }
    Commit::Parked
}

/// Why the wait of a waiter that was let go is to end as cancelled. `S`: what is to be settled with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due<S> {
    /// It is cancelled, or a scope whose body it runs.
    Cancelled,
    /// Something has happened that becomes a cancellation because the waiter was found waiting.
    Settle(S),
}

/// [`commit`] of a waiter that may run anywhere from then on, and may have gone on, or ended, before this returns. So `judge`, which is
/// asked if a cancel flag is up, looks only at what locks guard; and it changes nothing: what it says was true of this wait only if the
/// wait is then claimed here, and only then is it settled, before the caller lets the waiter go on.
#[inline(always)]
pub(crate) fn commit_and_let_go<S>(waiter: &Waiter, judge: impl Fn() -> Option<Due<S>>, settle: impl Fn(S)) -> Commit {
    let mut owed = None;
    let committed = commit(waiter, |kind| {
        // (A wait behind a shield stays with its worker: see `wait::own_locals`.)
        let asked = matches!(kind, WaitKind::Revocable | WaitKind::Watching);
        match asked.then(&judge).flatten() {
            None => false,
            Some(Due::Cancelled) => true,
            Some(Due::Settle(what)) if seeded_bug("let_go_settles_first") => {
                settle(what);
                true
            }
            Some(Due::Settle(what)) => {
                owed = Some(what);
                true
            }
        }
    });
    if committed == Commit::Requeue
        && let Some(owed) = owed
    {
        settle(owed);
    }
    committed
}

/// A flag came up while this wait began. `seen` names the wait: another life of the record, with another ticket, may have begun since the
/// commit.
#[cold]
#[inline(never)]
fn revoke_own(waiter: &Waiter, seen: Snapshot, flags: FlagSet, is_due: impl FnOnce(WaitKind) -> bool) -> Commit {
    if seeded_bug("commit_ignores_flag") {
        return Commit::Parked;
    }
    let is_cancelled =
        flags.has(flag::ANY_CANCEL) && seen.kind().is_some_and(|kind| kind != WaitKind::Binding && is_due(kind));
    let arm = if is_cancelled {
        ARM_CANCEL
    } else if [WakerNotice::Outer, WakerNotice::Inner]
        .into_iter()
        .any(|notice| flags.has(flag_of(notice)) && seen.is_ended_by(notice))
    {
        ARM_FIRST
    } else {
        return Commit::Parked;
    };
    match waiter.word.claim(seen.ticket(), arm, true) {
        Claim::Lost => Commit::Parked,
        Claim::Direct => Commit::Requeue,
        Claim::Held => unreachable!("a wait that was PARKED is claimed directly"),
    }
}

/// The flag by which a waiter is told of such a notice.
#[inline(always)]
pub(crate) const fn flag_of(notice: WakerNotice) -> FlagSet {
    match notice {
        WakerNotice::Outer => flag::NOTIFIED,
        WakerNotice::Inner => flag::NOTIFIED_INSIDE,
    }
}

/// A waker of `waiter` is called: ends the wait of the waiter, if it is one for such notices; otherwise the notice is kept until the waiter
/// polls again.
pub(crate) fn raise_notice(waiter: WaiterRef, notice: WakerNotice, enqueue: impl FnOnce(WaiterRef)) {
    let Waiter { flags, word, .. } = waiter.get();
    // First half of the handshake with the waiter; the poll that lowers the flag sees what the caller wrote. If the flag was up, the call
    // that raised it ends the wait, or the waiter reads the flag.
    if !seeded_bug("notice_unmarked") && flags.announce(flag_of(notice)).has(flag_of(notice)) {
        return;
    }
    if waiter.get().kind() == WaiterKind::Fiber && word.claim_noticed(notice, ARM_FIRST) {
        return enqueue(waiter);
    }
    raise_notice_slowly(waiter, notice, enqueue);
}

/// The rest of [`raise_notice`] for a thread, and for a fiber that a first look did not find PARKED in such a wait.
#[cold]
#[inline(never)]
fn raise_notice_slowly(waiter: WaiterRef, notice: WakerNotice, enqueue: impl FnOnce(WaiterRef)) {
    let word = &waiter.get().word;
    let now = word.snapshot();
    // A load may return a value from before the park that the call is meant for: so this is a read-modify-write.
    let seen = if seeded_bug("notice_looks_once") { now } else { word.look_after_flag() };
    let claimed = seen.is_ended_by(notice).then(|| Claimed::of_any(waiter, seen.ticket(), ARM_FIRST)).flatten();
    if let Some(claimed) = claimed {
        let waker = claimed.make_runnable_with(enqueue);
        debug_assert!(waker.is_none(), "a future's wait has a node");
    }
}

/// Requests cancellation for `reason`. False if it was requested before: the first reason stays. `enqueue` is given the fiber whose
/// wait this ends.
pub(crate) fn request(waiter: WaiterRef, reason: ReasonKind, enqueue: impl FnOnce(WaiterRef)) -> bool {
    let Waiter { flags, word, .. } = waiter.get();
    let seen_too_early = seeded_bug("request_looks_first").then(|| word.look_after_flag());
    // First half of the handshake with the waiter.
    if !flags.request_cancel(reason) {
        return false;
    }
    let seen = seen_too_early.unwrap_or_else(|| word.look_after_flag());
    // Not if the waiter is in a scope of its own behind a shield, unless it wants to know: it will see the flag when it leaves that scope.
    // The barrier is raised before the first wait behind it, so a canceller that sees such a wait sees the barrier after it.
    let is_behind = flags.look_after_word().has(flag::BARRIER);
    let may_end = match seen.kind() {
        Some(WaitKind::Revocable) => !is_behind,
        Some(WaitKind::Watching) => true,
        Some(WaitKind::Shielded | WaitKind::Binding) | None => false,
    };
    if may_end {
        end(waiter, seen, enqueue);
    }
    true
}

/// The second half of a request whose flag is raised: ends the wait, if it is revocable.
pub(crate) fn interrupt(waiter: WaiterRef, enqueue: impl FnOnce(WaiterRef)) {
    let seen = waiter.get().word.look_after_flag();
    if matches!(seen.kind(), Some(WaitKind::Revocable | WaitKind::Watching)) {
        end(waiter, seen, enqueue);
    }
}

/// The same for a waiter behind a shield: only if it wants to know.
pub(crate) fn interrupt_watcher(waiter: WaiterRef, enqueue: impl FnOnce(WaiterRef)) {
    let seen = waiter.get().word.look_after_flag();
    if seen.kind() == Some(WaitKind::Watching) {
        end(waiter, seen, enqueue);
    }
}

/// A waiter that was cancelled has had the time that is given to shields: shields do not hold cancellation off any more. `reaches` is asked
/// if the waiter waits: it says whether no scope is open that a destructor opened during unwinding, inside of the cancelled scope. No
/// outer cancellation may unwind such a scope, shields or not. The waiter is woken there only if it wants to know.
pub(crate) fn end_shields(waiter: WaiterRef, reaches: impl FnOnce() -> bool, enqueue: impl FnOnce(WaiterRef)) {
    // First half of the handshake with the waiter.
    waiter.get().flags.announce(flag::OVERDUE);
    let seen = waiter.get().word.look_after_flag();
    let may_end = match seen.kind() {
        Some(WaitKind::Revocable | WaitKind::Shielded) => reaches(),
        Some(WaitKind::Watching) => true,
        Some(WaitKind::Binding) | None => false,
    };
    if may_end {
        end(waiter, seen, enqueue);
    }
}

/// Completes, as cancelled, the wait that was seen. Only this very wait: a later one is committed after the flag was raised, and reads it.
fn end(waiter: WaiterRef, seen: Snapshot, enqueue: impl FnOnce(WaiterRef)) {
    let waker = complete_with(waiter, seen.ticket(), ARM_CANCEL, enqueue);
    debug_assert!(waker.is_none(), "futures are dropped, not cancelled");
}
