//! How often this process is a child of a fork: what was made in another epoch belongs to threads that do not exist here.
//!
//! Above: `monitor::fork`, whose handler raises it, and whoever asks whether a runtime is of this process. Below: nothing.

use super::atomic::{AtomicU64, Ordering};

static EPOCH: AtomicU64 = AtomicU64::new(0);

/// How often this process is a child of a fork made since the first runtime was built.
pub(crate) fn epoch() -> u64 {
    // Relaxed: changes only in a process that has just begun.
    EPOCH.load(Ordering::Relaxed)
}

/// In the child of a fork, which has one thread.
pub(crate) fn raise() {
    // Relaxed: as above.
    EPOCH.fetch_add(1, Ordering::Relaxed);
}
