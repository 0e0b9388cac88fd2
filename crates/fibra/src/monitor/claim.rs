//! The claim word of a capture buffer: one thread asks another for its registers and stack, and only one of the two touches the buffer.
//!
//! Above: `stall/trace/capture.rs`, where sysmon asks and a signal handler answers. Below: an atomic word.
//!
//! ```text
//!            ask(thread)              claim, by that thread            publish
//!   IDLE ─────────────────▶ ASKED ─────────────────────▶ WRITING ─────────────▶ DONE
//!    ▲  ▲   withdraw          │                             │                     │
//!    │  └─────────────────────┘                             │ withdraw            │ release
//!    │                                      publish         ▼                     │
//!    ├───────────────────────────────────────────────── ABANDONED                 │
//!    └────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! # Invariants
//! * WRITING and ABANDONED: the answering thread alone touches the buffer. DONE: the asking thread alone. Else neither does.
//! * A handler that runs late (its signal was held back) finds its own thread's number under ASKED, or does nothing. If the number
//!   is there because the same thread was asked again, what it writes is the answer to that request.
//! * An asking thread that gives up while the answer is written leaves the buffer to the writer, which makes it IDLE: until then every
//!   other request is refused.

use crate::prim::atomic::{AtomicU64, Ordering};
use crate::prim::bug::seeded_bug;

/// A free buffer. (The states have distinct numbers, nothing else.)
const IDLE: u64 = 0;
/// With the number of the asked thread above it; so are the next two.
const ASKED: u64 = 1;
const WRITING: u64 = 2;
const ABANDONED: u64 = 3;
const DONE: u64 = 4;
const THREAD_SHIFT: u32 = 32;

/// See the header.
#[derive(Debug)]
pub(crate) struct CaptureClaim(AtomicU64);

/// What became of a request that was withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Withdrawn {
    /// There will be no answer.
    Gone,
    /// The answer is complete: the asking thread reads it and then calls `release`.
    Answered,
}

impl CaptureClaim {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(IDLE))
    }
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(IDLE))
    }

    /// Asks this thread. False: the buffer is in use, and there is nothing to withdraw.
    pub(crate) fn ask(&self, thread: u32) -> bool {
        // Relaxed, both: the buffer is not touched yet. The thread that claims it sees what the last user did with it.
        self.0.compare_exchange(IDLE, with(ASKED, thread), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Is the answer complete? True: the asking thread may read it, and then releases it.
    pub(crate) fn is_answered(&self) -> bool {
        // Acquire: pairs with the release in `publish`; the whole answer is seen.
        state(self.0.load(Ordering::Acquire)) == DONE
    }

    /// The asking thread does not wait any longer.
    pub(crate) fn withdraw(&self, thread: u32) -> Withdrawn {
        let asked = with(ASKED, thread);
        if seeded_bug("capture_withdraws_blindly") {
            self.0.store(IDLE, Ordering::Relaxed);
            return Withdrawn::Gone;
        }
        // Relaxed: no thread has touched the buffer. Failure Acquire: as in `is_answered`.
        match self.0.compare_exchange(asked, IDLE, Ordering::Relaxed, Ordering::Acquire) {
            Ok(_) => return Withdrawn::Gone,
            Err(now) if state(now) == DONE => return Withdrawn::Answered,
            Err(_) => {}
        }
        // The answer is being written. Relaxed: from now on the buffer is the writer's. Failure Acquire: it is done, as in `is_answered`.
        let left = self.0.compare_exchange(
            with(WRITING, thread),
            with(ABANDONED, thread),
            Ordering::Relaxed,
            Ordering::Acquire,
        );
        if left.is_ok() { Withdrawn::Gone } else { Withdrawn::Answered }
    }

    /// Called by the asking thread after it has read the answer.
    pub(crate) fn release(&self) {
        // Release: pairs with the acquire in `claim`, through the request in between; the next answer is written after this one was read.
        self.0.store(IDLE, Ordering::Release);
    }

    /// Called in the child of a fork, where neither of the two threads exists.
    pub(crate) fn forget(&self) {
        self.0.store(IDLE, Ordering::Relaxed); // Relaxed: the child has one thread.
    }

    /// Called by the asked thread, inside its handler. True: the buffer is its own until `publish`.
    pub(crate) fn claim(&self, thread: u32) -> bool {
        if seeded_bug("capture_claims_anything") {
            self.0.store(with(WRITING, thread), Ordering::Relaxed);
            return true;
        }
        // Acquire: pairs with the releases in `release` and `publish`, which `ask` (a read-modify-write) passes on. Failure Relaxed: the
        // request is another thread's, or gone.
        self.0
            .compare_exchange(with(ASKED, thread), with(WRITING, thread), Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Called by the asked thread when the answer is complete.
    pub(crate) fn publish(&self, thread: u32) {
        let order = if seeded_bug("capture_published_early") { Ordering::Relaxed } else { Ordering::Release };
        // Release: pairs with the acquire in `is_answered` and `withdraw`. Failure Relaxed: the asking thread has abandoned it, and no
        // other thread changes it.
        if self.0.compare_exchange(with(WRITING, thread), DONE, order, Ordering::Relaxed).is_err() {
            // Release: pairs with the acquire in `claim`; the next answer is written after this one.
            self.0.store(IDLE, Ordering::Release);
        }
    }
}

fn with(state: u64, thread: u32) -> u64 {
    state | u64::from(thread) << THREAD_SHIFT
}

fn state(word: u64) -> u64 {
    word & ((1 << THREAD_SHIFT) - 1)
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::{CaptureClaim, Withdrawn};

    #[test]
    fn a_late_answer_touches_nothing() {
        let claim = CaptureClaim::new();
        assert!(!claim.claim(7), "asked for nothing");
        assert!(claim.ask(7) && !claim.ask(8), "one at a time");
        assert!(!claim.claim(8), "another thread was asked");
        assert_eq!(claim.withdraw(7), Withdrawn::Gone);
        assert!(!claim.claim(7), "too late");
        assert!(claim.ask(8) && !claim.claim(7), "for another thread now");
        assert!(claim.claim(8) && !claim.is_answered());
        assert!(!claim.claim(8), "one answer");
        claim.publish(8);
        assert!(claim.is_answered() && !claim.ask(7), "not yet read");
        assert_eq!(claim.withdraw(8), Withdrawn::Answered);
        claim.release();
        assert!(claim.ask(7));
    }

    #[test]
    fn an_abandoned_answer_keeps_the_buffer_until_it_is_written() {
        let claim = CaptureClaim::new();
        assert!(claim.ask(7) && claim.claim(7));
        assert_eq!(claim.withdraw(7), Withdrawn::Gone);
        assert!(!claim.ask(8) && !claim.is_answered());
        claim.publish(7);
        assert!(!claim.is_answered() && claim.ask(8));
    }
}
