//! Taking back a spawned fiber: the newest unstarted fiber of a worker's own deque, in competition with thieves.
//!
//! Above: `worker.rs`, where the joiner of an unstarted fiber runs it next, and `offer.rs`, where the second half of a `join` is taken
//! back. Below: the deque, and the word, which decide between the owner and a thief. Models run these lines against a thief.
//!
//! Invariant: an unstarted fiber has one entry in one queue. The worker that takes that entry out without moving it elsewhere is alone
//! with the fiber and may start it, or take it apart, without a claim on its word; every other worker claims the word.

use crate::prim::bug::seeded_bug;
use crate::sched::queue::Entry;
use crate::sched::queue::fresh::Fresh;
use crate::waiter::word::{Ticket, WaiterState, Word};

/// For the joiner: takes an unstarted fiber out of the deque if it is the newest there. True: the caller may start it
/// (`Word::start_owned`), and no queue has it.
///
/// # Safety
/// The caller is the owner of `fresh`; `word` is the word of the fiber at `frame`, which is not recycled meanwhile.
#[inline(always)]
pub(in crate::sched) unsafe fn take_newest(fresh: &Fresh, word: &Word, frame: usize) -> bool {
    // The deque has no such entry for a fiber that is not RUNNABLE or is pinned, nor for a task, whose entries are contested.
    let entry = Entry::sole(frame, word.snapshot().ticket().to_bits());
    // SAFETY: the caller's promise.
    let taken = unsafe { fresh.take_newest_if(entry) };
    taken || seeded_bug("take_back_starts_stolen")
}

/// Takes an offer back that is the newest of the deque. True: it is as if it had never been published.
///
/// # Safety
/// The caller is the owner of `fresh`; `word` is the word of the fiber that `entry` names, and the caller offered it.
#[inline(always)]
pub(in crate::sched) unsafe fn withdraw_newest(fresh: &Fresh, word: &Word, entry: Entry) -> bool {
    // SAFETY: the caller's promise.
    let taken = unsafe { fresh.take_newest_if(entry) };
    if taken {
        word.withdraw();
    }
    taken
}

/// An offer that is not the newest of the deque any more: it was started, or its entry lies deeper or in another deque. True: it is the
/// caller's, RUNNING as if just started, and the entry is stale.
pub(in crate::sched) fn claim_back(word: &Word, ticket: Ticket) -> bool {
    if seeded_bug("offer_claimed_by_look") {
        return word.snapshot().is(WaiterState::Runnable);
    }
    word.start(ticket)
}
