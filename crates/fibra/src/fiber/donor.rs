//! A thread that lends its thread-locals to a fiber, and ends when the fiber does: so that the C library itself makes them, runs their
//! destructors and frees its own caches, as for any thread.
//!
//! Above: `donors.rs`, which starts some ahead, `task::own_locals`, which takes one for a fiber, and `wait::own_locals`, which runs the
//! fiber with its thread pointer. Below: `prim::thread`, `prim::thread_pointer`, and of `waiter` the reference to a waiter.
//!
//! ```text
//!  donor    starts ── Coming: tells the fiber ── LENT: stands still in the kernel ──────── drops its thread-locals ── Ended: tells it
//!  fiber    waits until it is LENT ─────────────── runs with the donor's thread pointer ── GIVEN_BACK: waits ────────────────┘
//! ```
//!
//! Invariants
//! * While the word is LENT the donor touches no thread-local: it is in one system call, made without the C library, with all signals
//!   blocked that can be. So the fiber is the only user of that memory, and the word orders their uses. Whatever the donor tells the
//!   fiber, it tells before or after: to wake a fiber is to use thread-locals.
//! * The kernel does not know of the loan: what it writes for the donor itself (`rseq`) is turned off before.
//! * A donor that is dropped is given back, used or not.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use crate::prim::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::spin::SpinLock;
use crate::prim::thread::JoinHandle;
use crate::prim::{panics, thread, thread_pointer};
use crate::waiter::node::WaiterRef;
use crate::waiter::word::Ticket;

/// Completes the wait of a fiber: handed down, since queues lie above.
pub(crate) type Tell = fn(WaiterRef, Ticket);

// The states of the word, one after the other.

/// The donor is on its way.
const STARTS: u32 = 0;
/// The donor stands still.
const LENT: u32 = 1;
/// The fiber has ended, or does not want it.
const GIVEN_BACK: u32 = 2;

/// What a fiber waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Starting,
    /// The donor stands still in a moment.
    Coming,
    /// The thread-locals have been dropped.
    Ended,
}

#[derive(Debug)]
pub(crate) struct Loan {
    word: AtomicU32,
    thread_pointer: AtomicUsize,
    told: SpinLock<Told>,
    tell: Tell,
}

#[derive(Debug)]
struct Told {
    stage: Stage,
    waiter: Option<(WaiterRef, Ticket)>,
}

/// A loan of thread-locals; see the header. To drop it is to give them back.
#[derive(Debug)]
pub(crate) struct Donor {
    loan: Arc<Loan>,
    /// None: it is being joined.
    thread: Option<JoinHandle<()>>,
}

impl Donor {
    /// Starts the thread, which `tell`s the fiber that [waits](Loan::enlist) for a stage. The thread ends by itself once the loan is given
    /// back. `ahead`: before a fiber wants it.
    pub(crate) fn start(name: &str, tell: Tell, ahead: bool) -> io::Result<Self> {
        thread_pointer::is_writable().map_err(|why| io::Error::new(io::ErrorKind::Unsupported, why))?;
        let loan = Arc::new(Loan {
            word: AtomicU32::new(STARTS),
            thread_pointer: AtomicUsize::new(0),
            told: SpinLock::new(Told { stage: Stage::Starting, waiter: None }),
            tell,
        });
        let its = loan.clone();
        // (Quiet: it does nothing but for its fiber.)
        let start = if ahead { thread::start_ready } else { thread::start_quiet };
        let thread = start(name.to_owned(), move || its.lend())?;
        Ok(Self { loan, thread: Some(thread) })
    }

    /// The thread pointer to run with, if the donor stands still; it does so in a moment after it was started.
    pub(crate) fn thread_pointer(&self) -> Option<usize> {
        // Acquire: pairs with the release in `lend`: what the donor wrote into its thread-locals is seen.
        let is_lent = self.loan.word.load(Ordering::Acquire) == LENT;
        // Relaxed: written before the word.
        is_lent.then(|| self.loan.thread_pointer.load(Ordering::Relaxed))
    }

    pub(crate) fn loan(&self) -> &Arc<Loan> {
        &self.loan
    }

    /// Gives them back; they are dropped in a moment.
    pub(crate) fn give_back(self) -> Arc<Loan> {
        self.loan.clone()
    }

    /// Gives them back, and blocks this thread until the donor's has ended: then every destructor has run, those of C's keys too, which
    /// come after [`Stage::Ended`].
    pub(crate) fn give_back_and_join(mut self) {
        let thread = self.thread.take();
        drop(self);
        // What a destructor raises ends the process, so there is nothing to be told.
        let _ = thread.map(JoinHandle::join);
    }
}

impl Drop for Donor {
    fn drop(&mut self) {
        // Release: what the fiber wrote into the thread-locals is seen by the donor, which drops them.
        self.loan.word.store(GIVEN_BACK, Ordering::Release);
        thread_pointer::tell(&self.loan.word);
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
        self.0.reach(Stage::Ended);
    }
}

impl Loan {
    /// Has the donor come so far? What it did before is seen then.
    pub(crate) fn has_reached(&self, stage: Stage) -> bool {
        self.told.with(|told| told.stage >= stage)
    }

    /// Has the donor complete this wait when it comes so far. False: it has. Until then, or until [`strike`](Self::strike), it may do so
    /// at any moment.
    pub(crate) fn enlist(&self, stage: Stage, waiter: WaiterRef, ticket: Ticket) -> bool {
        self.told.with(|told| {
            let waits = told.stage < stage;
            told.waiter = waits.then_some((waiter, ticket));
            waits
        })
    }

    /// The wait has ended otherwise.
    pub(crate) fn strike(&self) {
        self.told.with(|told| told.waiter = None);
    }

    /// On the donor, which has come so far.
    fn reach(&self, stage: Stage) {
        let waiter = self.told.with(|told| {
            told.stage = stage;
            told.waiter.take()
        });
        if let Some((waiter, ticket)) = waiter
            && !seeded_bug("donor_does_not_tell")
        {
            (self.tell)(waiter, ticket);
        }
    }

    /// The body of the thread.
    fn lend(self: Arc<Self>) {
        LAST.set(Some(Last(self.clone())));
        // Looked for where there is room: it takes some stack.
        let _ = panics::count();
        block_signals();
        leave_rseq();
        // Before the word: to wake the fiber is to use thread-locals, which are the fiber's from then on.
        self.reach(Stage::Coming);
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
