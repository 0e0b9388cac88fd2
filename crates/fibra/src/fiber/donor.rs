//! A thread that lends its thread-locals to a fiber, and ends when the fiber does: so that the C library itself makes them, runs their
//! destructors and frees its own caches, as for any thread.
//!
//! Above: `task::own_locals`, which starts a donor for a fiber, and `wait::own_locals`, which runs the fiber with its thread pointer.
//! Below: `prim::thread`, `prim::thread_pointer`.
//!
//! ```text
//!  donor    starts ── LENT: stands still in the kernel ──────────────────────── ends: its thread-locals are dropped ── ENDED
//!  fiber    waits until it is LENT ── runs with the donor's thread pointer ── GIVEN_BACK: waits ───────────┘
//! ```
//!
//! Invariants
//! * While the word is LENT the donor touches no thread-local: it is in one system call, made without the C library, with all signals
//!   blocked that can be. So the fiber is the only user of that memory, and the word orders their uses.
//! * The kernel does not know of the loan: what it writes for the donor itself (`rseq`) is turned off before.
//! * A donor that is dropped is given back, used or not.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use crate::prim::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::prim::{panics, thread, thread_pointer};

// The states of a loan, one after the other.

/// The donor is on its way.
const STARTS: u32 = 0;
/// The donor stands still.
const LENT: u32 = 1;
/// The fiber has ended, or does not want it.
const GIVEN_BACK: u32 = 2;
/// The thread-locals have been dropped.
const ENDED: u32 = 3;

#[derive(Debug)]
struct Loan {
    word: AtomicU32,
    thread_pointer: AtomicUsize,
}

/// A loan of thread-locals; see the header. To drop it is to give them back.
#[derive(Debug)]
pub(crate) struct Donor(Arc<Loan>);

/// Thread-locals that were given back.
#[derive(Debug)]
pub(crate) struct GivenBack(Arc<Loan>);

impl Donor {
    /// Starts the thread.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        thread_pointer::is_writable().map_err(|why| io::Error::new(io::ErrorKind::Unsupported, why))?;
        let loan = Arc::new(Loan { word: AtomicU32::new(STARTS), thread_pointer: AtomicUsize::new(0) });
        let its = loan.clone();
        // (It ends by itself, and says so. Quiet: it does nothing but for its fiber.)
        drop(thread::start_quiet(name.to_owned(), move || its.lend())?);
        Ok(Self(loan))
    }

    /// The thread pointer to run with, if the donor stands still; it does so in a moment after it was started.
    pub(crate) fn thread_pointer(&self) -> Option<usize> {
        // Acquire: pairs with the release in `lend`: what the donor wrote into its thread-locals is seen.
        let is_lent = self.0.word.load(Ordering::Acquire) == LENT;
        // Relaxed: written before the word.
        is_lent.then(|| self.0.thread_pointer.load(Ordering::Relaxed))
    }

    /// Gives them back; they are dropped in a moment.
    pub(crate) fn give_back(self) -> GivenBack {
        GivenBack(self.0.clone())
    }
}

impl Drop for Donor {
    fn drop(&mut self) {
        // Release: what the fiber wrote into the thread-locals is seen by the donor, which drops them.
        self.0.word.store(GIVEN_BACK, Ordering::Release);
        thread_pointer::tell(&self.0.word);
    }
}

impl GivenBack {
    /// Have they been dropped?
    pub(crate) fn are_dropped(&self) -> bool {
        // Acquire: pairs with the release in the drop of `Last`: what their destructors did is seen.
        self.0.word.load(Ordering::Acquire) == ENDED
    }
}

thread_local! {
    /// The first of the thread-locals of a donor, so that it is dropped last.
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// When this is dropped, the thread-locals that came after it are.
struct Last(Arc<Loan>);

impl Drop for Last {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `are_dropped`.
        self.0.word.store(ENDED, Ordering::Release);
    }
}

impl Loan {
    /// The body of the thread.
    fn lend(self: Arc<Self>) {
        LAST.set(Some(Last(self.clone())));
        // Looked for where there is room: it takes some stack.
        let _ = panics::count();
        block_signals();
        leave_rseq();
        // Relaxed: published by the word.
        self.thread_pointer.store(thread_pointer::get(), Ordering::Relaxed);
        // Release: pairs with the acquire in `thread_pointer`. Relaxed on failure: it is not wanted any more.
        if self.word.compare_exchange(STARTS, LENT, Ordering::Release, Ordering::Relaxed).is_ok() {
            thread_pointer::stand_still_while(&self.word, LENT);
        }
    }
}

/// No handler of the program runs on this thread from now on.
fn block_signals() {
    // SAFETY: a set on the stack, filled by the first call and read by the second; it changes this thread only.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
}

/// Tells the kernel, and with it every library that asks, that this thread has no restartable sequences: the area of the fiber that borrows
/// the thread-locals would be another one than the kernel looks at.
fn leave_rseq() {
    const UNREGISTER: libc::c_int = 1;
    /// By which the kernel knows handlers of aborted sequences on x86_64, as the C library registers them.
    const SIGNATURE: u32 = 0x5305_3053;
    const BYTES_OF_OLD: u32 = 32;
    // SAFETY: symbols of the C library (2.35 and later) that are numbers; without them there is nothing to leave.
    let (offset, size) = unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
        if offset.is_null() || size.is_null() || *size == 0 {
            return;
        }
        (*offset, *size)
    };
    let area = thread_pointer::get().wrapping_add_signed(offset);
    for bytes in [BYTES_OF_OLD, size] {
        // SAFETY: the area that the C library has registered for this very thread; refused if it is not.
        let left = unsafe { libc::syscall(libc::SYS_rseq, area, bytes, UNREGISTER, SIGNATURE) };
        if left == 0 {
            return;
        }
    }
    // Refused. The kernel writes the area only when this thread returns to its own code, which it does not while it lends: so it can be
    // told here to libraries that ask.
    const CPU_ID: usize = 4;
    const NOT_REGISTERED: i32 = -2;
    // SAFETY: the area of this thread, which is at least this large.
    unsafe { std::ptr::with_exposed_provenance_mut::<i32>(area + CPU_ID).write_volatile(NOT_REGISTERED) };
}
