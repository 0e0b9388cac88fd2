//! The record that a started fiber keeps at the top of its stack: status, wait record, fiber-locals, and its cancellation state.
//!
//! The page is touched anyway, so this costs no memory. Everything a report reads from another thread is atomic and
//! Relaxed: a report is a picture of a moving thing. The rest belongs to the fiber itself and to its worker.

use std::cell::Cell;
use std::mem;
use std::panic::Location;
use std::ptr;

use super::frame::Frame;
use super::stack::{StackTop, USER_AREA};
use crate::prim::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Longest status text, in bytes (S0-10).
pub(crate) const STATUS_BYTES: usize = 31;

/// The bit of a reason's number that says: the wait has a deadline. No reason is so high.
const TIMED: u8 = 0x80;

/// Cancellation state of one fiber or plain thread (`sched::current`). Only that fiber or thread touches it, except for `outermost`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct CancelState {
    /// The innermost scope whose body runs here, and the outermost; `sched::members::scope` knows the type. Null if there is none.
    pub(crate) open: Cell<*const ()>,
    pub(crate) outermost: AtomicPtr<()>,
    /// How many `shield` calls are open.
    pub(crate) shields: Cell<u32>,
    /// How often cancellation was delivered here.
    pub(crate) deliveries: Cell<u32>,
    /// Set when a panic or our own unwinding starts here. Read only where `prim::panics` cannot count; see `cancel`.
    pub(crate) unwinding: Cell<bool>,
    /// In a scope that was opened by a destructor during unwinding: how many unwindings there were then. These unwindings are not those of
    /// the code in the scope.
    pub(crate) inside_unwinding: Cell<u32>,
    /// How many scopes are open here that destructors opened during unwinding, one inside the other.
    pub(crate) cleanups: Cell<u32>,
    /// While the fiber is suspended: does it unwind? See `cancel`.
    pub(crate) left_unwinding: Cell<bool>,
}

impl CancelState {
    /// The state of a fiber or thread that was never cancelled.
    pub(crate) const fn new() -> Self {
        Self {
            open: Cell::new(ptr::null()),
            outermost: AtomicPtr::new(ptr::null_mut()),
            shields: Cell::new(0),
            deliveries: Cell::new(0),
            unwinding: Cell::new(false),
            inside_unwinding: Cell::new(0),
            cleanups: Cell::new(0),
            left_unwinding: Cell::new(false),
        }
    }
}

/// The record; see the header.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct FiberTop {
    /// The reason of its wait (a `WaitReason` as a number, and `TIMED`; 0: it does not wait), and further below its start, the object and
    /// the place in the code.
    reason: AtomicU8,
    status_len: AtomicU8,
    /// Something here has to be cleared before the next fiber uses the stack.
    pub(crate) dirty: Cell<bool>,
    /// Futures that it is polling, one inside the other; see `wait::poll`.
    pub(crate) polls: Cell<u32>,
    since: AtomicU64,
    // A second cache line begins here. It ends before `watch`; what follows few fibers use.
    object: AtomicU64,
    site: AtomicPtr<Location<'static>>,
    pub(crate) cancel: CancelState,
    /// Fiber-locals; `fiber::local` knows the type.
    pub(crate) locals: Cell<*mut ()>,
    /// The observer of its waits; `wait::watch` knows the type. Null if there is none.
    pub(crate) watch: Cell<*const ()>,
    /// The innermost of the values that it carries along; `wait::hooks` knows the type. Null if there is none.
    pub(crate) carried: Cell<*const ()>,
    /// Its own thread-locals; `wait::own_locals` knows the type. Null if it uses those of its worker's thread.
    pub(crate) own_locals: Cell<*const ()>,
    /// One more than the worker on which it ran before it last parked, if it moves; 0: none is known.
    last_worker: AtomicU32,
    /// For the recorder (`sched::flight`): when the fiber was last woken, in cycles, and by what; 0: it was not, or has had its turn.
    woken_at: AtomicU64,
    woken_by: AtomicU64,
    status: [AtomicU8; STATUS_BYTES],
}

const _: () = assert!((StackTop::USER_OFFSET + mem::offset_of!(FiberTop, object)).is_multiple_of(64));
const _: () = assert!(mem::offset_of!(FiberTop, watch) - mem::offset_of!(FiberTop, object) == 64);
const _: () = assert!(mem::size_of::<FiberTop>() <= USER_AREA);

impl FiberTop {
    /// Where a debugger finds the parts of the wait record (`fiber::debugger`): reason, object, site, since, status and its length.
    pub(super) const PARTS: [usize; 6] = [
        mem::offset_of!(FiberTop, reason),
        mem::offset_of!(FiberTop, object),
        mem::offset_of!(FiberTop, site),
        mem::offset_of!(FiberTop, since),
        mem::offset_of!(FiberTop, status),
        mem::offset_of!(FiberTop, status_len),
    ];

    /// The record of the fiber whose stack this is.
    #[inline(always)]
    pub(crate) fn of(stack: &StackTop) -> &FiberTop {
        // SAFETY: the user area is USER_AREA bytes, 16-byte aligned, zeroed when the stack is fresh, and used for nothing else; all-zero
        // bytes are a valid `FiberTop`.
        unsafe { &*stack.user_area().cast::<FiberTop>() }
    }

    /// Prepares the record for a new fiber. Fields that every fiber leaves as it found them (locals, shields, the wait record) are not
    /// touched.
    #[inline(always)]
    pub(crate) fn clean(&self) {
        if !self.is_clean() {
            self.reset();
        }
    }

    /// May the next fiber use the record as it is? (No panic began here either: one marks the record, and opens the stack's reserve.)
    #[inline(always)]
    pub(crate) fn is_clean(&self) -> bool {
        debug_assert!(
            self.locals.get().is_null()
                && self.cancel.shields.get() == 0
                && self.cancel.open.get().is_null()
                && self.cancel.cleanups.get() == 0
                && self.polls.get() == 0
                && self.watch.get().is_null()
                && self.carried.get().is_null()
                && self.own_locals.get().is_null()
        );
        !self.dirty.get()
    }

    #[cold]
    fn reset(&self) {
        // Relaxed, all: see the header.
        self.status_len.store(0, Ordering::Relaxed);
        self.reason.store(0, Ordering::Relaxed);
        self.cancel.unwinding.set(false);
        self.cancel.deliveries.set(0);
        self.dirty.set(false);
    }

    /// Notes the wait that the fiber is about to begin.
    #[inline(always)]
    pub(crate) fn note_wait(&self, reason: u8, object: u64, site: &'static Location<'static>, since: u64) {
        // Relaxed, all: see the header.
        self.object.store(object, Ordering::Relaxed);
        self.site.store(ptr::from_ref(site).cast_mut(), Ordering::Relaxed);
        self.since.store(since, Ordering::Relaxed);
        // Relaxed, like the others.
        self.reason.store(reason, Ordering::Relaxed);
    }

    /// The wait is over.
    #[inline(always)]
    pub(crate) fn clear_wait(&self) {
        // Relaxed: see the header.
        self.reason.store(0, Ordering::Relaxed);
    }

    /// The wait that was noted has a deadline, which will end it.
    #[inline(always)]
    pub(crate) fn note_deadline(&self, reason: u8) {
        // Relaxed: see the header.
        self.reason.store(reason | TIMED, Ordering::Relaxed);
    }

    /// Does the wait have a deadline?
    pub(crate) fn is_timed(&self) -> bool {
        // Relaxed: see the header.
        self.reason.load(Ordering::Relaxed) & TIMED != 0
    }

    /// Reason, object, place and start of the wait, if it waits.
    pub(crate) fn wait_record(&self) -> Option<(u8, u64, &'static Location<'static>, u64)> {
        // Relaxed, all: see the header.
        let reason = self.reason.load(Ordering::Relaxed) & !TIMED;
        let site = self.site.load(Ordering::Relaxed);
        if reason == 0 || site.is_null() {
            return None;
        }
        // SAFETY: only addresses of `&'static Location`s are ever stored there.
        let site = unsafe { &*site };
        Some((reason, self.object.load(Ordering::Relaxed), site, self.since.load(Ordering::Relaxed)))
    }

    /// Reason, object and place of the wait as numbers, for the recorder: of a fiber that has just left its stack.
    #[inline(always)]
    pub(crate) fn wait_words(&self) -> (u8, u64, u64) {
        // Relaxed, all: the worker's own fiber, on the worker's thread.
        let (reason, site) = (self.reason.load(Ordering::Relaxed), self.site.load(Ordering::Relaxed));
        (reason, self.object.load(Ordering::Relaxed), site.expose_provenance() as u64)
    }

    /// The reason in what [`wait_words`](Self::wait_words) returned.
    pub(crate) fn reason_of(word: u8) -> u8 {
        word & !TIMED
    }

    /// Leaves word of a wake, for the recorder: by the thread that has the fiber in its hands.
    #[inline(always)]
    pub(crate) fn note_wake(&self, at: u64, by: u64) {
        // Relaxed, both: the queue that the fiber goes through publishes them to its worker; to others they are a hint.
        self.woken_by.store(by, Ordering::Relaxed);
        self.woken_at.store(at, Ordering::Relaxed);
    }

    /// What was left by [`note_wake`](Self::note_wake).
    pub(crate) fn wake_words(&self) -> (u64, u64) {
        // Relaxed, both: as above.
        (self.woken_at.load(Ordering::Relaxed), self.woken_by.load(Ordering::Relaxed))
    }

    /// The same by the fiber's worker, when its turn is over: the next turn has another reason.
    #[inline(always)]
    pub(crate) fn take_wake(&self) -> (u64, u64) {
        let words = self.wake_words();
        self.woken_at.store(0, Ordering::Relaxed); // Relaxed: as above.
        words
    }

    /// A fiber that moves is let go by this worker.
    pub(crate) fn note_worker(&self, worker: usize) {
        self.last_worker.store(worker as u32 + 1, Ordering::Relaxed); // Relaxed: the commit of the park publishes it.
    }

    /// The worker that was noted. Asked by the thread that has the fiber in its hands.
    pub(crate) fn last_worker(&self) -> Option<usize> {
        // Relaxed: as above; that thread has claimed the wait.
        (self.last_worker.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// Sets the status text, cut at 31 bytes (at a character boundary).
    pub(crate) fn set_status(&self, text: &str) {
        self.dirty.set(true);
        let mut len = text.len().min(STATUS_BYTES);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        // Relaxed, all: see the header.
        for (slot, byte) in self.status.iter().zip(text.as_bytes()[..len].iter()) {
            slot.store(*byte, Ordering::Relaxed);
        }
        // Relaxed, like the bytes.
        self.status_len.store(len as u8, Ordering::Relaxed);
    }

    /// The status text; may be torn if the fiber is just writing it.
    pub(crate) fn status(&self) -> String {
        // Relaxed, all: see the header.
        let len = usize::from(self.status_len.load(Ordering::Relaxed)).min(STATUS_BYTES);
        let bytes: Vec<u8> = self.status[..len].iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Frame {
    /// The top record of a started fiber. Only for the fiber itself, its worker, or a census.
    #[inline(always)]
    pub(crate) fn top(&self) -> Option<&FiberTop> {
        // Acquire: pairs with the release in `bind_stack`; a census on another thread sees the record initialised.
        let stack = self.stack.load(Ordering::Acquire);
        // SAFETY: stack tops are never unmapped while a frame points to them (large ones only under the census lock).
        unsafe { stack.as_ref() }.map(FiberTop::of)
    }
}
