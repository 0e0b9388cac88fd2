//! The facade over everything that loom or shuttle must be able to stand in for: atomics, cells, locks, threads; the one seam for time,
//! chance and choice (law 10, `policy`), which a test can own; and the shared parts that know nothing of fibers: the lists
//! (`fifo`, `mpsc`), the slab of records that are never freed, points in time (`instant`), fences for lopsided
//! handshakes (`fence`) and the count of forks (`epoch`).
//!
//! This is the lowest floor: it uses nothing of fibra. Nothing above it names `std::sync`, `std::thread` or
//! `std::time::Instant` directly; clippy's `disallowed-types` and the tidy test hold that.
//!
//! Under `--cfg loom` the names below are loom's, under `--cfg shuttle` shuttle's, otherwise std's. Only the protocol code
//! (word, node lists, queues, idle, depot, join state, thread and async waiters) is compiled under loom: see `lib.rs`.

pub(crate) mod atomic;
pub(crate) mod bug;
pub(crate) mod cell;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod epoch;
pub(crate) mod fence;
pub(crate) mod fifo;
pub(crate) mod home_lock;
pub(crate) mod instant;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod keyed;
pub(crate) mod linked;
#[cfg(all(test, any(loom, shuttle)))]
pub(crate) mod model;
pub(crate) mod mpsc;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod panics;
pub(crate) mod peek;
pub(crate) mod policy;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod slab;
pub(crate) mod slot;
pub(crate) mod spin;
pub(crate) mod sync;
pub(crate) mod tape;
pub(crate) mod thread;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod thread_pointer;

/// Asks the processor to bring a cache line closer. Any address will do.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and faults on nothing.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Fetches a line of memory that is used before long, into the second level of caches: for many lines at once. The first level drops
/// most of what it is asked for at once (AMD Zen: most of 12 lines each of 16 stacks, decision 69).
#[inline(always)]
pub(crate) fn prefetch_many(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and faults on nothing.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T1 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The size of a page, asked once.
#[cfg(not(any(loom, shuttle)))]
#[inline]
pub(crate) fn page_size() -> usize {
    use atomic::{AtomicUsize, Ordering};
    static PAGE: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: the value depends on nothing, and a thread that comes too early asks again and gets the same.
    match PAGE.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: `sysconf` only reads; `_SC_PAGESIZE` exists on every Linux.
            let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
            PAGE.store(page, Ordering::Relaxed); // Relaxed: as above.
            page
        }
        page => page,
    }
}

/// Writes a line for people to standard error. Unlike `eprintln!` it does not panic if standard error is a closed pipe: this
/// is called inside the panic hook, where that would abort, and on the scheduler's stack.
#[cfg(not(loom))]
pub(crate) fn say(text: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Drops the payload of a panic that is not reported. Its destructor may panic; the payload of that panic is leaked, since this could
/// go on so for ever.
#[cold]
pub(crate) fn discard_payload(payload: Box<dyn std::any::Any + Send>) {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    if let Err(another) = catch_unwind(AssertUnwindSafe(move || drop(payload))) {
        std::mem::forget(another);
    }
}

/// Runs steps that may panic, all of which have to be taken: the first panic goes on when they are, the hook alone reports the others. (A
/// second panic that met the unwinding of the first would end the process.)
#[derive(Default)]
pub(crate) struct FirstPanic(Option<Box<dyn std::any::Any + Send>>);

impl FirstPanic {
    /// One step. True: it panicked.
    pub(crate) fn catch(&mut self, step: impl FnOnce()) -> bool {
        let Err(payload) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(step)) else { return false };
        match &self.0 {
            None => self.0 = Some(payload),
            Some(_) => discard_payload(payload),
        }
        true
    }

    /// One step, whatever it panics with: for a caller that has no one to tell.
    pub(crate) fn ignore(step: impl FnOnce()) {
        let mut panics = Self::default();
        panics.catch(step);
        panics.discard();
    }

    /// Drops each of these, one after the other, whatever their destructors do.
    pub(crate) fn drop_each<T>(&mut self, values: impl IntoIterator<Item = T>) {
        let mut values = values.into_iter();
        // A value has left the iterator before it is dropped: after a panic the next one follows.
        while self.catch(|| values.by_ref().for_each(drop)) {}
        self.catch(|| drop(values));
    }

    /// Forgets the first panic, whatever the destructor of what it carries does: for a caller that has no one to tell.
    pub(crate) fn discard(self) {
        if let Some(payload) = self.0 {
            discard_payload(payload);
        }
    }

    /// Lets the first panic go on, if there was one; not if the calling fiber or thread unwinds already, for a panic that will be reported.
    /// (The caller has to say so: `thread::panicking()` is true for every fiber of a worker as soon as one of them waits in a destructor.)
    pub(crate) fn go_on(self, is_unwinding: impl FnOnce() -> bool) {
        let Some(payload) = self.0 else { return };
        if is_unwinding() {
            discard_payload(payload);
        } else {
            std::panic::resume_unwind(payload);
        }
    }
}

/// A value on cache lines of its own, so that writers of neighbouring fields do not slow down its readers.
/// 128 bytes, because the adjacent-line prefetcher of x86 pulls lines in pairs.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct CacheLine<T>(pub(crate) T);

impl<T> std::ops::Deref for CacheLine<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}
