//! A thread that lends its thread-locals to a fiber, and ends when the fiber does: so that the C library itself makes them, runs their
//! destructors and frees its own caches, as for any thread.
//!
//! Above: `task::own_locals`, which starts a donor for a fiber, and `wait::own_locals`, which runs the fiber with its thread pointer.
//! Below: `prim::thread`, `prim::thread_pointer`.
//!
//! ```text
//!  donor    starts ── calls the fiber's waker ── LENT: stands still in the kernel ── ends: its thread-locals are dropped ── tells
//!  fiber    waits until it is LENT ── runs with the donor's thread pointer ── GIVEN_BACK: waits ──────────────────────────────┘
//! ```
//!
//! Invariants
//! * While the word is LENT the donor touches no thread-local: it is in one system call, made without the C library, with all signals
//!   blocked that can be. So the fiber is the only user of that memory, and the word orders their uses.
//! * The kernel does not know of the loan: what it writes for the donor itself (`rseq`) is turned off before.
//! * A donor that is dropped is given back, used or not.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::prim::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::prim::sync::Mutex;
use crate::prim::{panics, thread, thread_pointer};

const STARTS: u32 = 0;
const LENT: u32 = 1;
const GIVEN_BACK: u32 = 2;

/// How far a donor has come, as far as the fiber waits for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stage {
    Starts,
    /// It is about to lend.
    Here,
    /// Its thread-locals have been dropped.
    Ended,
}

#[derive(Debug)]
struct Loan {
    word: AtomicU32,
    thread_pointer: AtomicUsize,
    stage: Mutex<(Stage, Option<Waker>)>,
}

impl Loan {
    fn reaches(&self, stage: Stage) {
        let waker = {
            let mut now = self.stage.lock();
            now.0 = stage;
            now.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A loan of thread-locals; see the header. To drop it is to give them back.
#[derive(Debug)]
pub(crate) struct Donor(Arc<Loan>);

impl Donor {
    /// Starts the thread.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        thread_pointer::is_writable().map_err(|why| io::Error::new(io::ErrorKind::Unsupported, why))?;
        let loan = Arc::new(Loan {
            word: AtomicU32::new(STARTS),
            thread_pointer: AtomicUsize::new(0),
            stage: Mutex::new((Stage::Starts, None)),
        });
        let its = loan.clone();
        // (It ends by itself, and tells.)
        drop(thread::start(name.to_owned(), move || its.lend())?);
        Ok(Self(loan))
    }

    /// A future that is ready when the donor has come so far.
    pub(crate) fn reached(&self, stage: Stage) -> Reached {
        Reached(self.0.clone(), stage)
    }

    /// The thread pointer to run with, if the donor stands still; it does so in a moment after it was [`Stage::Here`].
    pub(crate) fn thread_pointer(&self) -> Option<usize> {
        // Acquire: pairs with the release in `lend`: what the donor wrote into its thread-locals is seen.
        let is_lent = self.0.word.load(Ordering::Acquire) == LENT;
        // Relaxed: written before the word.
        is_lent.then(|| self.0.thread_pointer.load(Ordering::Relaxed))
    }
}

impl Drop for Donor {
    fn drop(&mut self) {
        // Release: what the fiber wrote into the thread-locals is seen by the donor, which drops them.
        self.0.word.store(GIVEN_BACK, Ordering::Release);
        thread_pointer::tell(&self.0.word);
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
        self.0.reaches(Stage::Ended);
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
        self.reaches(Stage::Here);
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
}

/// See [`Donor::reached`].
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Reached(Arc<Loan>, Stage);

impl Future for Reached {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut now = self.0.stage.lock();
        if now.0 >= self.1 {
            return Poll::Ready(());
        }
        // (Two futures of one donor are never polled at the same time.)
        let before = now.1.replace(cx.waker().clone());
        drop(now);
        drop(before);
        Poll::Pending
    }
}
