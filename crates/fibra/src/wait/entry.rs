//! The entry test of a blocking call in its shortest form: for hot paths that leave everything else to [`park::entry`](super::park::entry).
//!
//! Above: channels and select. Beside: `park`, whose header tells of the budget. A path that calls [`passes`] needs no stack frame of its
//! own: whatever is not usual, `entry` does, out of line.

#[cfg(not(any(loom, shuttle)))]
use super::node::flag;
#[cfg(not(any(loom, shuttle)))]
use crate::sched::current;

/// On entry to a blocking call: counts it, if a fiber runs here that has calls left and was not asked to end. False: nothing was counted,
/// and the call has to begin with `park::entry` (or `count_call`, if it never waits).
#[inline(always)]
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn passes() -> bool {
    let Some(worker) = current::worker() else { return false };
    let Some(frame) = worker.current.get() else { return false };
    let left = worker.calls_left.get();
    if left == 0 || frame.has(flag::ANY_CANCEL) {
        return false;
    }
    worker.calls_left.set(left - 1);
    true
}

/// Models have no budget, and nobody is asked on entry: the hot paths are theirs too.
#[cfg(any(loom, shuttle))]
pub(crate) fn passes() -> bool {
    true
}
