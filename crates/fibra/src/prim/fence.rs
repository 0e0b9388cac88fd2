//! Two fences for a handshake of which one side is hot: the hot side pays nothing, the other side pays for both.
//!
//! Each side writes its word, passes its fence, and looks at the other's word: then at least one sees the other. [`light`] only keeps the
//! compiler from exchanging the two accesses. [`heavy`] asks the kernel to make every running thread of the process pass a full fence
//! (`membarrier`); a thread that does not run has passed one when it was switched out. So a light side either has its write visible
//! before the heavy side looks, or looks after the heavy side's write. Where the kernel cannot do that, the heavy side waits for a
//! millisecond instead: a store does not stay in a processor's buffer for so long.
//!
//! Above: `sched::bell`, `home_lock`. Below: the kernel. A model has ordinary fences on both sides.

#[cfg(not(any(loom, shuttle)))]
use std::sync::atomic::compiler_fence;

#[cfg(not(any(loom, shuttle)))]
use super::atomic::{AtomicU8, Ordering};

/// Between the write and the look of the side that is hot.
#[inline(always)]
pub(crate) fn light() {
    #[cfg(loom)]
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
    // SeqCst: pairs with `heavy`; for the compiler only.
    #[cfg(not(any(loom, shuttle)))]
    compiler_fence(Ordering::SeqCst);
}

/// Between the write and the look of the other side, which waits for some microseconds at the most, or a millisecond; see the header.
pub(crate) fn heavy() {
    #[cfg(loom)]
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
    #[cfg(not(any(loom, shuttle)))]
    if !everywhere_as_known() {
        super::policy::sleep(std::time::Duration::from_millis(1));
    }
}

/// Whether the kernel makes every thread pass a fence: not known, yes, no. (Not a cell that one thread fills while others wait: the
/// first try may take long, and a process that is forked meanwhile would wait for ever.)
#[cfg(not(any(loom, shuttle)))]
static WORKS: AtomicU8 = AtomicU8::new(UNKNOWN);
/// It was not tried.
#[cfg(not(any(loom, shuttle)))]
const UNKNOWN: u8 = 0;
/// It does.
#[cfg(not(any(loom, shuttle)))]
const YES: u8 = 1;
/// It does not.
#[cfg(not(any(loom, shuttle)))]
const NO: u8 = 2;

/// Tries it if that takes no time. The kernel has to be told once that a process will ask for fences. If the process has one thread that
/// takes microseconds; later it takes twenty milliseconds, and is left to [`prepare_slowly`].
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn prepare() {
    // (A directory has a link from each directory in it, and two of its own: one for each thread.)
    let is_alone =
        || std::fs::metadata("/proc/self/task").is_ok_and(|tasks| std::os::unix::fs::MetadataExt::nlink(&tasks) == 3);
    if !is_known() && is_alone() {
        everywhere_as_known();
    }
}

/// Tries it, if it was not tried: for a thread for which nothing waits.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn prepare_slowly() {
    if !is_known() {
        everywhere_as_known();
    }
}

#[cfg(not(any(loom, shuttle)))]
fn is_known() -> bool {
    // Relaxed: it says something about the kernel, which is the same whenever it is asked.
    WORKS.load(Ordering::Relaxed) != UNKNOWN
}

/// [`everywhere`], and what it says is known from then on.
#[cfg(not(any(loom, shuttle)))]
fn everywhere_as_known() -> bool {
    let works = everywhere();
    // Relaxed: as in `is_known`.
    WORKS.store(if works { YES } else { NO }, Ordering::Relaxed);
    works
}

/// Does [`heavy`] take microseconds, and not a millisecond, nor twenty the first time?
pub(crate) fn is_cheap() -> bool {
    #[cfg(any(loom, shuttle))]
    return true;
    #[cfg(not(any(loom, shuttle)))]
    // Relaxed: as in `is_known`.
    return WORKS.load(Ordering::Relaxed) == YES;
}

/// Every thread of the process passes a fence. False: the kernel does not do that.
#[cfg(all(target_os = "linux", not(any(loom, shuttle))))]
fn everywhere() -> bool {
    /// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` of `linux/membarrier.h`, and the command that a process has to give before, once.
    const FENCE: libc::c_int = 1 << 3;
    const REGISTER: libc::c_int = 1 << 4;
    // SAFETY: the call touches no memory of ours.
    let call = |command: libc::c_int| unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 };
    call(FENCE) || call(REGISTER) && call(FENCE)
}

#[cfg(all(not(target_os = "linux"), not(any(loom, shuttle))))]
fn everywhere() -> bool {
    false
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    #[test]
    fn the_kernel_makes_every_thread_pass_a_fence() {
        // (Linux has had the call since 4.14; a sandbox may refuse it, and then `heavy` waits.)
        println!("membarrier: {}", super::everywhere());
        super::light();
        super::heavy();
    }
}
