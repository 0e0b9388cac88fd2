//! Guards: how memory is made inaccessible.
//!
//! Above: `arena` guards slots as it carves them, `record` opens and closes the reserve, `trim` discards pages. Below:
//! the kernel.
//!
//! Two kinds. `MADV_GUARD_INSTALL` (Linux 6.13) marks page-table entries and leaves the mapping whole, so a million
//! guards cost no mapping. `mprotect` splits the mapping in two for every stack, and the kernel allows
//! `vm.max_map_count` mappings (65,530 unless the administrator raised it), so about 30,000 stacks is what one process can
//! have that way.
//!
//! The kind is decided once for the process and never changes, because a guard must be opened as it was
//! installed.

use crate::prim::atomic::{AtomicBool, Ordering};
pub(crate) use crate::prim::page_size;
use std::io;
use std::sync::OnceLock;

/// The room that a panic needs to unwind, beyond the part of a stack that the fiber may use: see the page on stacks in `mod.rs`.
pub(crate) const RESERVE: usize = 8 << 10;

/// `MADV_GUARD_INSTALL` and `MADV_GUARD_REMOVE` of `linux/mman.h`, which the libc crate does not have for every target.
const MADV_GUARD_INSTALL: libc::c_int = 102;
const MADV_GUARD_REMOVE: libc::c_int = 103;

/// `PIDFD_SELF_THREAD_GROUP` of Linux 6.14: "this process" where a process descriptor is asked for.
const PIDFD_SELF: libc::c_long = -10_000;

/// The most ranges that go into one `process_madvise`; the kernel's own limit is 1024.
pub(super) const RANGES_PER_CALL: usize = 64;

/// How guards are made in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardKind {
    /// Marked page-table entries: no limit but memory.
    Madvise,
    /// Protected mappings: about 30,000 stacks under the default `vm.max_map_count`.
    Mprotect,
}

/// The kind that `FIBRA_GUARD` asks for, or the best the kernel offers if it is not set. An error names the variable
/// and its value.
pub(crate) fn guard_kind_from_env() -> Result<GuardKind, String> {
    match std::env::var_os("FIBRA_GUARD") {
        None => Ok(guard_kind()),
        Some(value) if value == "mprotect" => Ok(GuardKind::Mprotect),
        Some(value) => Err(format!(
            "FIBRA_GUARD={} is not known: the only value is `mprotect`; leave it unset to let the kernel's best \
             kind be used",
            value.display()
        )),
    }
}

/// The kind in use. The first call decides it.
pub(crate) fn guard_kind() -> GuardKind {
    static KIND: OnceLock<GuardKind> = OnceLock::new();
    *KIND.get_or_init(|| {
        let forced = std::env::var_os("FIBRA_GUARD").is_some_and(|value| value == "mprotect");
        if !forced && madvise_guards_work() { GuardKind::Madvise } else { GuardKind::Mprotect }
    })
}

/// Installs a guard on one page and checks that the kernel then refuses to write there. The check is for
/// emulators, which may take an unknown advice for a hint that can be ignored.
///
/// The system call itself writes a byte, or says that it cannot. The function of that name in the C library may write in user space
/// (the vDSO; glibc since 2.41), and would die of the guard.
fn madvise_guards_work() -> bool {
    let len = page_size();
    // SAFETY: a new anonymous mapping, owned by this function until it is unmapped below; nothing else knows its
    // address.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page == libc::MAP_FAILED {
            return false;
        }
        let works = libc::madvise(page, len, MADV_GUARD_INSTALL) == 0
            && libc::syscall(libc::SYS_getrandom, page, 1_usize, 0) == -1
            && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT);
        libc::munmap(page, len);
        works
    }
}

/// The bytes at the low end of a slot that are inaccessible while its reserve is closed: one page, and the reserve.
#[inline]
pub(super) fn guard_bytes() -> usize {
    page_size() + RESERVE.next_multiple_of(page_size())
}

/// How many mappings the kernel allows this process.
pub(super) fn max_map_count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
        // 65,530 is the kernel's default, and what to assume where /proc is not mounted.
        text.trim().parse().unwrap_or(65_530)
    })
}

/// How many `mprotect` guards this process may hold: two mappings each, and a twelfth of all mappings is left to
/// the rest of the process (heap, libraries, threads), which would otherwise fail in worse ways.
pub(super) fn mprotect_cap() -> usize {
    let max = max_map_count();
    (max - max / 12) / 2
}

/// Guards the low ends of `count` slots of `stride` bytes that start at `first`; returns how many slots were guarded,
/// counted from the first. An error means not even one.
///
/// # Safety
/// The slots are mapped, and no code uses their low `guard_bytes()`.
pub(super) unsafe fn guard_slots(first: *mut u8, stride: usize, count: usize) -> io::Result<usize> {
    let low_ends = (0..count).map(|slot| (first.wrapping_add(slot * stride), guard_bytes()));
    match guard_kind() {
        GuardKind::Madvise => {
            // SAFETY: the caller's promise; a guard replaces what was there, which no code uses.
            unsafe { advise(low_ends, MADV_GUARD_INSTALL) }
        }
        GuardKind::Mprotect => all_or_first_error(low_ends, |(start, len)| {
            // SAFETY: the caller's promise.
            unsafe { libc::mprotect(start.cast(), len, libc::PROT_NONE) }
        }),
    }
}

/// Makes guarded memory usable; `false` if the kernel refuses.
///
/// # Safety
/// The range lies in the guard of a stack that the caller owns.
pub(super) unsafe fn open(start: *mut u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        match guard_kind() {
            GuardKind::Madvise => libc::madvise(start.cast(), len, MADV_GUARD_REMOVE) == 0,
            GuardKind::Mprotect => libc::mprotect(start.cast(), len, libc::PROT_READ | libc::PROT_WRITE) == 0,
        }
    }
}

/// Guards again what [`open`] opened and drops what was written there; `false` if the kernel refuses.
///
/// # Safety
/// As for [`open`], and no code uses the range any more.
pub(super) unsafe fn close(start: *mut u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        match guard_kind() {
            GuardKind::Madvise => libc::madvise(start.cast(), len, MADV_GUARD_INSTALL) == 0,
            GuardKind::Mprotect => {
                libc::madvise(start.cast(), len, libc::MADV_DONTNEED);
                libc::mprotect(start.cast(), len, libc::PROT_NONE) == 0
            }
        }
    }
}

/// Gives the pages of `ranges` back to the system; they read as zero afterwards. Refusal (locked memory) is no error:
/// the memory is then simply kept.
///
/// # Safety
/// No code uses the ranges, which are mapped.
pub(crate) unsafe fn discard(ranges: impl Iterator<Item = (*mut u8, usize)> + Clone) {
    // SAFETY: the caller's promise.
    let _ = unsafe { advise(ranges, libc::MADV_DONTNEED) };
}

/// Gives the whole pages within a range back to the system.
///
/// # Safety
/// The range is mapped, and what it holds may turn to zeros at any time until this returns.
pub(crate) unsafe fn discard_within(start: *mut u8, len: usize) {
    let first = start.addr().next_multiple_of(page_size()) - start.addr();
    let end = (start.addr() + len) / page_size() * page_size() - start.addr();
    if first < end {
        // SAFETY: the caller's promise.
        unsafe { discard(std::iter::once((start.wrapping_add(first), end - first))) };
    }
}

/// Gives one advice for many ranges, in as few system calls as the kernel allows (half the price per range: 0.5 instead
/// of 0.9 µs).
///
/// # Safety
/// The caller may do to these ranges whatever the advice does to them.
unsafe fn advise(ranges: impl Iterator<Item = (*mut u8, usize)> + Clone, advice: libc::c_int) -> io::Result<usize> {
    /// Set once the kernel has refused the batched form (before Linux 6.14, or a sandbox).
    static ONE_BY_ONE: AtomicBool = AtomicBool::new(false);

    let mut done = 0;
    // Relaxed: a hint that spares system calls; it guards nothing.
    if !ONE_BY_ONE.load(Ordering::Relaxed) {
        let mut rest = ranges.clone();
        loop {
            let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; RANGES_PER_CALL];
            let (mut count, mut bytes) = (0, 0);
            for (vector, (start, len)) in vectors.iter_mut().zip(rest.by_ref()) {
                *vector = libc::iovec { iov_base: start.cast(), iov_len: len };
                count += 1;
                bytes += len;
            }
            if count == 0 {
                return Ok(done);
            }
            // SAFETY: `vectors` holds `count` ranges, each of them the caller's to advise on.
            let advised =
                unsafe { libc::syscall(libc::SYS_process_madvise, PIDFD_SELF, vectors.as_ptr(), count, advice, 0) };
            if advised != bytes as libc::c_long {
                let out_of_memory = io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM);
                if advised < 0 && !out_of_memory {
                    ONE_BY_ONE.store(true, Ordering::Relaxed); // Relaxed: as above.
                }
                // Advising twice does no harm: the part of this batch that was done is done again below.
                break;
            }
            done += count;
        }
    }
    let tail = all_or_first_error(ranges.skip(done), |(start, len)| {
        // SAFETY: the caller's promise.
        unsafe { libc::madvise(start.cast(), len, advice) }
    });
    match tail {
        Err(error) if done == 0 => Err(error),
        Err(_) => Ok(done),
        Ok(count) => Ok(done + count),
    }
}

/// Calls the system for each range until it refuses; an error only if it refuses the very first.
fn all_or_first_error<R>(ranges: impl Iterator<Item = R>, call: impl Fn(R) -> libc::c_int) -> io::Result<usize> {
    let mut done = 0;
    for range in ranges {
        if call(range) != 0 {
            let error = io::Error::last_os_error();
            return if done == 0 { Err(error) } else { Ok(done) };
        }
        done += 1;
    }
    Ok(done)
}
