//! The word that says whether the monitor looks for surplus, and the handshake between a push and the monitor that stops looking.
//!
//! A worker that has pushed unstarted work reads the word, and rings if it is silent. The monitor that found no surplus for a while
//! silences the bell and then looks once more. At least one of the two sees the other: otherwise the work of an owner that does not
//! switch would lie unseen until the next push. A push is hot, and silencing happens after 20 ms without surplus at the earliest: so the
//! push has the light fence, and the monitor the heavy one (`prim::fence`).
//!
//! Above: `sysmon.rs`, `monitor::sysmon`. Below: `prim`.

use crate::prim::atomic::{AtomicBool, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::fence;

/// See the header.
#[derive(Debug)]
pub(crate) struct Bell {
    armed: AtomicBool,
}

impl Bell {
    pub(crate) fn new(armed: bool) -> Self {
        Self { armed: AtomicBool::new(armed) }
    }

    /// Called by a worker that has just pushed: has it to ring?
    #[inline(always)]
    pub(crate) fn is_silent(&self) -> bool {
        if !seeded_bug("bell_without_fence") {
            fence::light();
        }
        // Relaxed: the fence orders it after the push.
        !self.armed.load(Ordering::Relaxed)
    }

    /// The monitor looks from now on.
    pub(crate) fn arm(&self) {
        // Relaxed: the lock of the monitor's state orders what it decides.
        self.armed.store(true, Ordering::Relaxed);
    }

    /// The next push rings; before any worker runs.
    pub(crate) fn silence_at_first(&self) {
        // Relaxed: the threads that push are started after this.
        self.armed.store(false, Ordering::Relaxed);
    }

    /// The next push rings. The caller looks for surplus once more after this.
    pub(crate) fn silence(&self) {
        // Relaxed: the fence orders it before the look.
        self.armed.store(false, Ordering::Relaxed);
        fence::heavy();
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::Bell;
    use crate::prim::model::{check, thread};
    use crate::prim::sync::Arc;
    use crate::sched::queue::Entry;
    use crate::sched::queue::fresh::Fresh;

    /// A worker pushes while the monitor stops looking: the worker rings, or the monitor sees the push.
    #[test]
    fn model_push_against_silencing() {
        check(3, || {
            let (bell, fresh) = (Arc::new(Bell::new(true)), Arc::new(Fresh::new()));
            let (rings, pushes) = (bell.clone(), fresh.clone());
            let pusher = thread::spawn(move || {
                // SAFETY: this thread alone owns the deque.
                unsafe { pushes.push(Entry { frame: !1, ticket: 1 }) };
                rings.is_silent()
            });
            bell.silence();
            let seen = !fresh.is_empty();
            assert!(pusher.join().unwrap() || seen, "surplus at which no thread looks");
        });
    }
}
