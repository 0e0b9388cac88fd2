//! `fork` in a process with a runtime: the child has one thread, so the runtimes of the parent are dead there.
//!
//! A counter that the child's side of `fork` raises tells such a runtime from a live one: spawning on it gives a cancelled
//! handle, running on it panics with an explanation, dropping it forgets it. New runtimes may be built in the child. `exec` after
//! `fork`, as `std::process::Command` does it, is not concerned.

use std::sync::OnceLock;

use crate::prim::atomic::{AtomicU64, Ordering};

static EPOCH: AtomicU64 = AtomicU64::new(0);

extern "C" fn in_child() {
    // Relaxed: the child has one thread.
    EPOCH.fetch_add(1, Ordering::Relaxed);
}

/// How often this process is a child of a fork made since the first runtime was built.
pub(crate) fn epoch() -> u64 {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        // SAFETY: registers a function that only touches an atomic. If it fails (out of memory), forks go unnoticed.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    // Relaxed: changes only in a process that has just begun.
    EPOCH.load(Ordering::Relaxed)
}
