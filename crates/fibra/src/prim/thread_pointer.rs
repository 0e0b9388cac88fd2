//! The thread pointer: the register (the base of `fs`) through which compiled code finds the thread-locals of the thread that it runs on.
//!
//! Above: `fiber::donor` and `wait::own_locals`, which give a fiber thread-locals of its own. Below: the processor, which must let
//! programs write the register (`wrfsbase`; Linux 5.9 and later on processors since 2012).
//!
//! Invariant: between a [`set`] and the next one the caller runs no code that keeps the address of a thread-local from before, except code
//! that was suspended while that pointer was set. Functions that call `set` are never inlined, and use no thread-local themselves: the
//! compiler takes such addresses to be constant within a function.

/// Can the thread pointer be written here? Err: why not.
pub(crate) fn is_writable() -> Result<(), &'static str> {
    if !IS_BUILT {
        return Err(
            "this build has no way to write the thread pointer: fibers with thread-locals of their own need x86_64, \
             glibc, fibra's own switch, and no sanitizer",
        );
    }
    // SAFETY: a question.
    let features = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    if features & HWCAP2_FSGSBASE == 0 {
        return Err(
            "the system does not let programs write the thread pointer (no `wrfsbase`; Linux 5.9 or later and a \
             processor with FSGSBASE are needed)",
        );
    }
    Ok(())
}

/// Of `AT_HWCAP2` on x86_64: `rdfsbase` and `wrfsbase` may be used.
const HWCAP2_FSGSBASE: libc::c_ulong = 2;

/// Is [`set`] there at all? Not where another switch is used, nor where a tool keeps its own data at the thread pointer.
const IS_BUILT: bool = cfg!(all(
    target_arch = "x86_64",
    target_env = "gnu",
    not(any(fibra_context = "corosensei", fibra_context = "thread", fibra_asan, fibra_tsan))
));

/// The thread pointer. Called only where [`is_writable`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn get() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe { std::arch::asm!("rdfsbase {}", out(reg) pointer, options(nostack, preserves_flags)) };
    pointer
}

/// Sets the thread pointer.
///
/// # Safety
/// [`is_writable`]; `pointer` is the thread pointer of this thread, or of another one that runs no code of its own meanwhile; and see the
/// header.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn set(pointer: usize) {
    // SAFETY: the caller's promise. (It may read and write memory: what thread-locals there are changes with it.)
    unsafe { std::arch::asm!("wrfsbase {}", in(reg) pointer, options(nostack, preserves_flags)) };
}

/// Waits until `word` is not `value` any more, without touching a thread-local, not even `errno`.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
pub(crate) fn stand_still_while(word: &super::atomic::AtomicU32, value: u32) {
    // Acquire: what the thread that changed it did before is seen.
    while word.load(super::atomic::Ordering::Acquire) == value {
        // SAFETY: FUTEX_WAIT on a word that outlives the call; the kernel changes rax, rcx and r11. It returns when the word was changed
        // and told of, at once if it is not `value`, or for no reason.
        unsafe {
            std::arch::asm!(
                "syscall",
                inlateout("rax") libc::SYS_futex => _,
                in("rdi") word.as_ptr(),
                in("rsi") i64::from(libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG),
                in("rdx") u64::from(value),
                in("r10") 0,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack),
            );
        }
    }
}

/// Wakes the thread that stands still at this word, after it was changed.
#[cfg(target_arch = "x86_64")]
pub(crate) fn tell(word: &super::atomic::AtomicU32) {
    // SAFETY: FUTEX_WAKE; the address is only a name.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn get() -> usize {
    0
}

/// # Safety
/// Never called: not [`is_writable`].
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn set(_: usize) {}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn stand_still_while(_: &super::atomic::AtomicU32, _: u32) {}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn tell(_: &super::atomic::AtomicU32) {}
