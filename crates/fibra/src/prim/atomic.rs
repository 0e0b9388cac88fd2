//! Atomics: std's, loom's or shuttle's, and the one idiom on top of them that fibra needs. Above: all protocol code. Below: the checkers.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
#[cfg(all(shuttle, not(loom)))]
pub(crate) use shuttle::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
#[cfg(not(any(loom, shuttle)))]
#[allow(clippy::disallowed_types)] // This is the facade the lint points to.
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

/// The second half of a store-then-load handshake ("I published A; has the peer published B?").
///
/// The caller has just done a SeqCst read-modify-write on A; the peer does a SeqCst read-modify-write on B and then calls this
/// for A. All four accesses are SeqCst, so at least one of the two sees the other. loom reads plain SeqCst loads as acquire
/// loads and would report handshakes that are right; there, the load is a read-modify-write, which it does understand.
#[inline(always)]
pub(crate) fn handshake_load_u64(target: &AtomicU64) -> u64 {
    #[cfg(loom)]
    return target.fetch_add(0, Ordering::SeqCst);
    #[cfg(not(loom))]
    target.load(Ordering::SeqCst)
}

/// [`handshake_load_u64`] for a 32-bit word.
#[inline(always)]
pub(crate) fn handshake_load_u32(target: &AtomicU32) -> u32 {
    #[cfg(loom)]
    return target.fetch_add(0, Ordering::SeqCst);
    #[cfg(not(loom))]
    target.load(Ordering::SeqCst)
}

/// Whether a pointer is `value`, as the second half of such a handshake.
#[inline(always)]
pub(crate) fn handshake_is<T>(target: &AtomicPtr<T>, value: *mut T) -> bool {
    // A read-modify-write that changes nothing, as above.
    #[cfg(loom)]
    return target.compare_exchange(value, value, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    #[cfg(not(loom))]
    return target.load(Ordering::SeqCst) == value;
}
