//! [`Stack`], and the record that sits at the top of each.
//!
//! Above: the frame keeps its stack's pointer and uses the record's user area; `cache` keeps free stacks. Below:
//! `guard`.
//!
//! The record costs no memory of its own: it lies on the page that the first frames of a fiber touch anyway. Picture
//! and invariants are in `mod.rs`.

use super::super::context::Context;
use super::guard;
use super::size::StackSize;
use crate::prim::atomic::AtomicPtr;
use crate::prim::prefetch_many;
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Bytes of the record that belong to the layer above.
pub(crate) const USER_AREA: usize = 160;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// The cache lines that a fiber uses until it waits for the first time: of the record, and below it.
const RECORD_LINES: usize = 2;
const FRAME_LINES: usize = 8;

/// A shelf that no cache has: it marks a stack whose reserve is open, see [`Stack::shelf`].
const NO_SHELF: u8 = u8::MAX;

/// Called with the upper layer's word of a stack whose memory is about to go, by the thread that takes the memory away (a worker,
/// the trimmer): gives back what belongs to the context besides the stack (a sanitizer's handle, a coroutine, a thread).
pub(crate) type Retire = unsafe fn(usize);

/// The record at the top of a stack. Everything but `owner` is touched only by the holder of the stack.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct StackTop {
    /// The upper layer's word; 0 when the stack is fresh.
    saved_context: Cell<usize>,
    /// How the upper layer takes that word back before the stack loses its memory; none when the stack is fresh.
    retire: Cell<Option<Retire>>,
    /// The fiber that runs on this stack now, for the overflow report, which reads it in a signal handler. The upper layer
    /// sets and clears it.
    pub(crate) owner: AtomicPtr<()>,
    /// The low end of the slot. Constant.
    slot: *mut u8,
    /// The lowest byte that may be used while the reserve is closed. Constant.
    limit: *mut u8,
    /// Constant.
    size: StackSize,
    /// The size class while the reserve is closed, [`NO_SHELF`] while it is open: one test for the hot path of `give`.
    shelf: Cell<u8>,
    user: UserArea,
}

/// The upper layer's bytes, where its types of alignment up to 16 fit.
#[derive(Debug)]
#[repr(C, align(16))]
struct UserArea(UnsafeCell<[MaybeUninit<u8>; USER_AREA]>);

const _: () = assert!(size_of::<StackTop>() == 256, "four cache lines: what mod.rs says");

impl StackTop {
    /// Where the upper layer's bytes lie in the record: for a debugger.
    pub(crate) const USER_OFFSET: usize = std::mem::offset_of!(StackTop, user);

    /// Does the calling code run on this stack? For assertions: law 3 wants certain steps taken elsewhere.
    pub(crate) fn is_stood_on(&self) -> bool {
        let here = 0u8;
        let here = std::hint::black_box(&raw const here).addr();
        (self.slot.addr()..std::ptr::from_ref(self).addr()).contains(&here)
    }

    /// The whole reservation, for the overflow report.
    pub(crate) fn size(&self) -> usize {
        self.size.bytes()
    }

    /// Fetches what the shallow part of a fiber uses: of the record, and below it. One of many such calls, one after the other: what takes
    /// longest is to find the pages, each of which is far from all others, and the processor looks for several at the same time.
    #[inline(always)]
    pub(crate) fn fetch(record: *const StackTop) {
        let end = record.cast::<u8>().wrapping_add(RECORD_LINES * LINE_BYTES);
        (1..=RECORD_LINES + FRAME_LINES).for_each(|line| prefetch_many(end.wrapping_sub(line * LINE_BYTES)));
    }

    /// The lowest address that [`fetch`](Self::fetch) fetches.
    #[inline(always)]
    pub(crate) fn fetched_from(record: *const StackTop) -> usize {
        record.addr().wrapping_sub(FRAME_LINES * LINE_BYTES)
    }

    /// The place of [`Stack::saved_context`], for a switch that leaves this stack for its next use.
    #[inline(always)]
    pub(crate) fn context_place(&self) -> *mut Context {
        self.saved_context.as_ptr().cast()
    }

    /// The whole pages that a suspended fiber does not need, if it needs nothing below this address.
    pub(crate) fn unused_below(&self, lowest: usize) -> Option<(*mut u8, usize)> {
        let limit = self.limit.addr();
        debug_assert!((limit..std::ptr::from_ref(self).addr() + 1).contains(&lowest));
        let end = lowest / guard::page_size() * guard::page_size();
        (limit < end).then(|| (self.limit, end - limit))
    }

    /// [`USER_AREA`] bytes for the layer above, aligned to 16: zero on a fresh stack, left alone from one use to the
    /// next.
    #[inline]
    pub(crate) fn user_area(&self) -> *mut u8 {
        self.user.0.get().cast()
    }
}

/// An owned stack. Dropping it without `give` leaks it: nothing may unmap or reuse a stack on which code might
/// still run.
#[derive(Debug)]
#[repr(transparent)]
#[must_use = "a stack that is not given back is lost"]
pub(crate) struct Stack(NonNull<StackTop>);

// SAFETY: apart from the atomic `owner`, a `Stack` is the only way to its memory, so it may go where its owner goes.
unsafe impl Send for Stack {}

impl Stack {
    /// Writes the record of a slot that was not used since it was mapped or discarded, and takes the stack.
    ///
    /// # Safety
    /// `record` comes from `arena` with this `slot` and `size`, is guarded, and belongs to the caller.
    pub(super) unsafe fn initialise(record: NonNull<StackTop>, slot: *mut u8, size: StackSize) -> Stack {
        let fresh = StackTop {
            saved_context: Cell::new(0),
            retire: Cell::new(None),
            owner: AtomicPtr::new(std::ptr::null_mut()),
            slot,
            limit: slot.wrapping_add(guard::guard_bytes()),
            size,
            shelf: Cell::new(size.class() as u8),
            user: UserArea(UnsafeCell::new([MaybeUninit::new(0); USER_AREA])),
        };
        // SAFETY: the caller owns the slot, at whose upper end the record lies, aligned.
        unsafe { record.write(fresh) };
        Stack(record)
    }

    #[inline(always)]
    pub(crate) fn into_raw(self) -> NonNull<StackTop> {
        self.0
    }

    /// # Safety
    /// `record` comes from [`Stack::into_raw`], and no other `Stack` was made of it since.
    #[inline(always)]
    pub(crate) unsafe fn from_raw(record: NonNull<StackTop>) -> Stack {
        Stack(record)
    }

    /// The record.
    #[inline(always)]
    pub(crate) fn record(&self) -> &StackTop {
        // SAFETY: the record stays mapped and initialised as long as a holder has the stack.
        unsafe { self.0.as_ref() }
    }

    /// Where the first frame goes: 16-byte aligned, just below the record.
    #[inline]
    pub(crate) fn top(&self) -> *mut u8 {
        self.0.as_ptr().cast()
    }

    /// The lowest byte that the fiber may use. The reserve lies below it.
    #[inline]
    pub(crate) fn limit(&self) -> *mut u8 {
        self.record().limit
    }

    /// The whole reservation: usable part, record, reserve and guard.
    pub(crate) fn size(&self) -> usize {
        self.record().size()
    }

    pub(super) fn class(&self) -> usize {
        self.record().size.class()
    }

    pub(super) fn slot(&self) -> *mut u8 {
        self.record().slot
    }

    /// Whether the upper layer has said [`Stack::set_prepared`] since the stack was fresh. A stack becomes fresh again
    /// when its memory is returned to the system.
    #[inline]
    pub(crate) fn is_prepared(&self) -> bool {
        self.record().retire.get().is_some()
    }

    /// From now on [`Stack::saved_context`] holds a context: `retire` is called with it, once, before the memory of
    /// the stack is returned to the system.
    ///
    /// # Safety
    /// Whenever the stack lies in a pool, `retire` may be called with the word that is saved then, on any thread.
    #[inline]
    pub(crate) unsafe fn set_prepared(&self, retire: Retire) {
        self.record().retire.set(Some(retire));
    }

    /// The memory of this stack is about to go: the upper layer takes its context back. The stack counts as fresh then.
    pub(super) fn retire(&self) {
        if let Some(retire) = self.record().retire.take() {
            // SAFETY: `set_prepared`'s caller promised it, and the stack came out of a pool: no code runs on it.
            unsafe { retire(self.saved_context().replace(0)) };
        }
    }

    /// One word for the upper layer: 0 on a fresh stack, left alone from one use to the next.
    #[inline]
    pub(crate) fn saved_context(&self) -> &Cell<usize> {
        &self.record().saved_context
    }

    /// Makes the reserve below [`Stack::limit`] usable until the stack is given back: for a panic that starts near the
    /// limit. Idempotent; `false` if the kernel refuses (out of mappings), and then a deep unwinding may overflow.
    #[cold]
    pub(crate) fn open_reserve(&self) -> bool {
        if self.is_reserve_open() {
            return true;
        }
        let (start, len) = self.reserve();
        // SAFETY: the reserve of a stack that is ours.
        let opened = unsafe { guard::open(start, len) };
        if opened {
            self.record().shelf.set(NO_SHELF);
        }
        opened
    }

    /// The shelf onto which a cache may put this stack as it is: the index of a pooled size, or a number beyond them all.
    #[inline(always)]
    pub(super) fn shelf(&self) -> usize {
        usize::from(self.record().shelf.get())
    }

    pub(super) fn is_reserve_open(&self) -> bool {
        self.record().shelf.get() == NO_SHELF
    }

    /// Guards the reserve again. If the kernel refuses, it stays open and marked; the lowest page, below it, is still a
    /// guard.
    #[cold]
    pub(super) fn close_reserve(&self) {
        let (start, len) = self.reserve();
        // SAFETY: the reserve of a stack that is ours and on which no code runs: it is being given back.
        if unsafe { guard::close(start, len) } {
            self.record().shelf.set(self.class() as u8);
        }
    }

    fn reserve(&self) -> (*mut u8, usize) {
        let start = self.slot().wrapping_add(guard::page_size());
        (start, guard::guard_bytes() - guard::page_size())
    }

    /// Everything that may be given back to the system while the stack is not in use: from the limit to the end of the
    /// slot.
    pub(super) fn memory(&self) -> (*mut u8, usize) {
        (self.limit(), self.size() - guard::guard_bytes())
    }
}
