//! The gate between a connection and a server that wants to stop: it decides which is first, the next request or the end of the idle wait.
//!
//! Above: `connection`, which says when it is idle, and `server`, which drains. One word decides, so that a request that was begun is
//! never cut off, and an idle connection is never forgotten:
//!
//! ```text
//!  connection: idle ON ── read ── idle OFF           server: drain ON
//!              └ drain was on: do not wait                   └ idle was on: cancel the wait
//!                                    └ drain was on: the wait is being cancelled, but bytes have come: serve them elsewhere
//! ```
//!
//! "Elsewhere" is outside of the scope that the token cancels: the connection leaves that scope first.

use std::sync::atomic::{AtomicU8, Ordering};

use fibra::CancelToken;

/// The connection waits for the first byte of a request.
const IDLE: u8 = 1;
/// The server wants it to end.
const DRAIN: u8 = 2;

/// See the header.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: AtomicU8,
    idle: CancelToken,
}

impl Gate {
    /// The token that cancels the idle wait.
    pub(crate) fn token(&self) -> CancelToken {
        self.idle.clone()
    }

    /// Called before waiting; false: the connection must not wait any more.
    pub(crate) fn enter_idle(&self) -> bool {
        // Relaxed, all here: one word, whose changes have one order; the token has its own ordering.
        self.state.fetch_or(IDLE, Ordering::Relaxed) & DRAIN == 0
    }

    /// Called after waiting; false: the wait is being cancelled, whether the connection noticed or not.
    pub(crate) fn leave_idle(&self) -> bool {
        // Relaxed: see `enter_idle`.
        self.state.fetch_and(!IDLE, Ordering::Relaxed) & DRAIN == 0
    }

    pub(crate) fn is_draining(&self) -> bool {
        // Relaxed: see `enter_idle`.
        self.state.load(Ordering::Relaxed) & DRAIN != 0
    }

    /// Asks the connection to end; true if it is idle, and has to be woken.
    #[must_use]
    pub(crate) fn drain(&self) -> bool {
        // Relaxed: see `enter_idle`.
        self.state.fetch_or(DRAIN, Ordering::Relaxed) == IDLE
    }

    /// Wakes a connection that was idle when it was asked to end.
    pub(crate) fn wake(&self) {
        self.idle.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_wait_is_cancelled_and_a_busy_connection_is_not() {
        let (idle, busy) = (Gate::default(), Gate::default());
        assert!(idle.enter_idle());
        assert!(busy.enter_idle() && busy.leave_idle());
        assert!(idle.drain() && !busy.drain());
        idle.wake();
        assert!(idle.token().is_cancelled());
        assert!(!idle.leave_idle(), "bytes that came anyway are served outside of the scope");
        assert!(!busy.enter_idle(), "no more waiting");
        assert!(!busy.drain(), "the second time is none");
    }
}
