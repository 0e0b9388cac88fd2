//! Asking a waiter to end: the flag, and the claim on its wait.
//!
//! The canceller sets the flag and then looks at the word, both with SeqCst read-modify-writes; a parker changes the word and
//! then looks at the flag, likewise. So either the parker sees the flag, or the canceller sees the wait and claims it
//! like any other completion owner; a match that was faster simply wins. How the waiter then unwinds is `wait::cancel`'s business, and
//! which fibers are cancelled together that of `scope.rs`.

use super::enqueue::{Place, enqueue};
use crate::fiber::frame::{Frame, FrameRef, flag};
use crate::prim::atomic::Ordering;
use crate::prim::bug::seeded_bug;
use crate::wait::node::WaiterRef;
use crate::wait::waker::end_wait_with;

/// Why a fiber or a scope is cancelled, as a number that fits into a fiber's flags; `wait::cancel::CancelReason` for people.
pub(crate) mod code {
    pub(crate) const HANDLE: u32 = 1;
    pub(crate) const SHUTDOWN: u32 = 2;
    pub(crate) const ROOT_FAILED: u32 = 3;
    pub(crate) const RUN_ENDED: u32 = 4;
    pub(crate) const FULL: u32 = 5;
    pub(crate) const SCOPE: u32 = 6;
    pub(crate) const TIMED_OUT: u32 = 7;
    pub(crate) const PANICKED: u32 = 8;
    pub(crate) const FAILED: u32 = 9;
    pub(crate) const TOKEN: u32 = 10;
    pub(crate) const DRAINED: u32 = 11;
    pub(crate) const OTHER_HALF: u32 = 12;
    pub(crate) const NOT_STARTED: u32 = 13;
    /// Somebody's own words, which the scope keeps.
    pub(crate) const CUSTOM: u32 = 15;
}

/// Requests cancellation of a fiber for `reason` (not 0). False if it was requested before: the first reason stays. Scopes that are open
/// on it are the caller's to see to: `scope::cancel_fiber`.
pub(crate) fn request(frame: FrameRef, reason: u32) -> bool {
    let flags = &frame.waiter.flags;
    let seen_too_early = seeded_bug("request_looks_first").then(|| frame.waiter.word.look_after_flag());
    // Relaxed: confirmed by the compare-exchange.
    let mut now = flags.load(Ordering::Relaxed);
    loop {
        if now & flag::CANCEL != 0 {
            return false;
        }
        let to = (now & !flag::REASON_MASK) | (reason << flag::REASON_SHIFT) | flag::CANCEL;
        // SeqCst: first half of the handshake with the parker. The reason is published with the flag, in one step.
        match flags.compare_exchange_weak(now, to, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => break,
            Err(actual) => now = actual,
        }
    }
    // Not if it is in a scope of its own behind a shield: it will see the flag when it comes out. The barrier is raised before the first
    // wait behind it, so whoever sees such a wait sees the barrier after it.
    let seen = seen_too_early.unwrap_or_else(|| frame.waiter.word.look_after_flag());
    // Acquire, by the look before: see above.
    if seen.is_revocable() && flags.load(Ordering::Acquire) & (flag::BARRIER | flag::WATCHING) != flag::BARRIER {
        end_wait_with(frame.waiter_ref(), seen, |_| enqueue(frame, Place::Tail));
    }
    true
}

/// The second half: ends the wait of a waiter whose flag is set, if that is revocable.
pub(crate) fn interrupt(waiter: WaiterRef) {
    end_wait_with(waiter, waiter.get().word.look_after_flag(), |fiber| enqueue(Frame::from_waiter(fiber), Place::Tail));
}

/// The same for a waiter behind a shield: only if it wants to know.
pub(crate) fn interrupt_watcher(waiter: WaiterRef) {
    let seen = waiter.get().word.look_after_flag();
    // Relaxed: the look before orders it. The mark is raised before such a wait and lowered after it, so if it is up now, what was seen is
    // that wait, or one that is over.
    if waiter.get().flags.load(Ordering::Relaxed) & flag::WATCHING != 0 {
        end_wait_with(waiter, seen, |fiber| enqueue(Frame::from_waiter(fiber), Place::Tail));
    }
}

/// Somebody who was cancelled has had the time that is given to shields: they hold nothing off any more.
pub(crate) fn end_shields(waiter: WaiterRef) {
    // SeqCst: first half of the handshake with a parker, who changes the word and then looks.
    waiter.get().flags.fetch_or(flag::OVERDUE, Ordering::SeqCst);
    let seen = waiter.get().word.look_after_flag();
    if seen.is_shielded() {
        let waker = crate::wait::waker::complete_with(waiter, seen.ticket(), crate::wait::word::ARM_CANCEL, |fiber| {
            enqueue(Frame::from_waiter(fiber), Place::Tail);
        });
        debug_assert!(waker.is_none(), "futures have no shields");
    }
    interrupt(waiter);
}
