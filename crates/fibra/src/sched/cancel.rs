//! Asking a fiber to end: the flag, and the claim on its wait.
//!
//! The canceller sets the flag and then looks at the word, both with SeqCst read-modify-writes; a parker changes the word and
//! then looks at the flag, likewise. So either the parker sees the flag, or the canceller sees the wait and claims it
//! like any other completion owner; a match that was faster simply wins. How the fiber then unwinds is `wait::cancel`'s business.

use super::enqueue::{Place, enqueue};
use crate::fiber::frame::{FrameRef, flag};
use crate::prim::atomic::Ordering;
use crate::wait::word::{ARM_CANCEL, Claim, Release};

/// Requests cancellation for `reason` (not 0). False if it was requested before: the first reason stays.
pub(crate) fn request(frame: FrameRef, reason: u32) -> bool {
    let flags = &frame.waiter.flags;
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
    let word = &frame.waiter.word;
    let seen = word.look_after_flag();
    if seen.is_revocable() {
        // Only this very wait: a later one begins after the flag was set and looks at it itself.
        match word.claim(seen.ticket(), ARM_CANCEL, true) {
            Claim::Lost => {}
            Claim::Direct => enqueue(frame, Place::Tail),
            Claim::Held => match word.release() {
                Release::Deferred => {}
                Release::Enqueue => enqueue(frame, Place::Tail),
            },
        }
    }
    true
}
