//! The switch over the `corosensei` crate: for targets we have no switch of our own for, and as the reference ours is tested against.
//!
//! A context is the address of a [`Record`] on the heap. `resume` writes it into `*home` too, so that `suspend` and `call_on_home` find
//! the coroutine they run in. Floating-point control words, which corosensei leaves alone, are saved and restored here (S0-14) on
//! x86_64 and aarch64; on other targets they are shared by the fibers of a worker.
//!
//! Invariant: while a fiber runs, its record is named by `*home` and by nothing else that is used.

use super::words::{control_words, set_control_words};
use super::{Context, EntryFn, HomeCall, SchedulerContext, Suspended};
use corosensei::stack::{Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::convert::Infallible;
use std::mem::ManuallyDrop;
use std::ptr;

/// A fiber runs on the worker's own OS thread.
pub(crate) const OWN_THREAD: bool = false;

/// The stack that `create` was given; the caller of `create` owns it.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    top: StackPointer,
    limit: StackPointer,
}

// SAFETY: `create`'s caller promises a writable stack with these bounds; the guard below it is `fiber::stack`'s.
unsafe impl Stack for Bounds {
    fn base(&self) -> StackPointer {
        self.top
    }

    fn limit(&self) -> StackPointer {
        self.limit
    }
}

struct Record {
    coroutine: ManuallyDrop<Coroutine<usize, usize, Infallible, Bounds>>,
    /// The coroutine's handle for suspending, on its stack; null until the first resume.
    yielder: *const Yielder<usize, usize>,
}

/// Makes a context that has never run, on the stack `[limit, top)`; its first `resume` calls `entry(word)` there.
///
/// # Safety
/// `[limit, top)` is writable, unused, at least a page, `top` is 16-byte aligned; it stays so until the context is abandoned.
pub(crate) unsafe fn create(top: *mut u8, limit: *mut u8, entry: EntryFn) -> Context {
    let address = |end: *mut u8| StackPointer::new(end as usize).expect("a stack does not lie at address 0");
    let bounds = Bounds { top: address(top), limit: address(limit) };
    let record = Box::into_raw(Box::<Record>::new_uninit()).cast::<Record>();
    let record_address = record as usize;
    let body = move |yielder: &Yielder<usize, usize>, word: usize| -> Infallible {
        let record = record_address as *mut Record;
        // SAFETY: the record lives until `destroy`; only this fiber and its resumer, by turns, use it. `entry` is the caller's.
        unsafe {
            (&raw mut (*record).yielder).write(yielder);
            entry(word)
        }
    };
    // SAFETY: the closure borrows nothing; the record is ours and not yet shared.
    unsafe {
        let coroutine = ManuallyDrop::new(Coroutine::with_stack_unchecked(bounds, body));
        record.write(Record { coroutine, yielder: ptr::null() });
    }
    Context(record_address)
}

/// Saves this execution in `*home`, continues `*fiber` and hands it `word`; returns the word of the `suspend` that comes back.
///
/// # Safety
/// On the scheduler's stack; `*fiber` is suspended or fresh, and belongs to this thread; both places outlive the call. See `mod.rs`.
#[inline(always)]
pub(crate) unsafe fn resume(fiber: *mut Context, home: *mut SchedulerContext, word: usize) -> usize {
    let control = control_words();
    // SAFETY: the record of a suspended fiber is valid and no other code uses it (invariant 1 in `mod.rs`). The reference to the coroutine
    // is used by corosensei alone; the fiber touches the other field.
    let result = unsafe {
        (*home).context = *fiber;
        let record = (*fiber).0 as *mut Record;
        let coroutine = &raw mut (*record).coroutine;
        (*coroutine).resume(word)
    };
    set_control_words(control);
    match result {
        CoroutineResult::Yield(word) => word,
        CoroutineResult::Return(never) => match never {},
    }
}

/// Saves this fiber in `*fiber`, continues `*home` and hands it `word`; returns the word of the next `resume`.
///
/// # Safety
/// On a fiber's stack; `home` is what the `resume` that continued this fiber saved into. See `mod.rs`.
#[inline(always)]
pub(crate) unsafe fn suspend(fiber: *mut Context, home: *mut SchedulerContext, word: usize) -> usize {
    let control = control_words();
    // SAFETY: `resume` wrote our record into `*home`; the yielder was written by `body` and lies on this stack.
    let word = unsafe {
        *fiber = (*home).context;
        let record = (*home).context.0 as *mut Record;
        (*(*record).yielder).suspend(word)
    };
    set_control_words(control);
    word
}

/// Runs `f(data)` on the stack suspended in `home` and comes back.
///
/// # Safety
/// On the stack of the fiber that was resumed from `home`. `f` neither unwinds nor switches.
pub(crate) unsafe fn call_on_home(home: *const SchedulerContext, f: HomeCall, data: *mut ()) {
    let data = data as usize;
    // SAFETY: as in `suspend`; `f` and `data` are the caller's promise, and the thread stays the same.
    unsafe {
        let record = (*home).context.0 as *mut Record;
        (*(*record).yielder).on_parent_stack(move || f(data as *mut ()));
    }
}

/// Unknown: the crate does not say where it keeps the registers.
#[allow(dead_code)] // Where it is only compared with our own switch, by tests, nothing asks.
pub(crate) fn look(_context: usize) -> Option<Suspended> {
    None
}

/// Unknown, as with [`look`].
#[allow(dead_code)] // As there.
pub(crate) fn kept_from(_suspended: Context) -> Option<usize> {
    None
}

/// Frees the record.
///
/// # Safety
/// `fiber` is suspended or was never run, and will not be continued; nothing on its stack needs dropping.
pub(crate) unsafe fn destroy(fiber: Context) {
    // SAFETY: `create` made the box and the caller gives it up. `force_reset` keeps corosensei from unwinding the stack.
    unsafe {
        let mut record = Box::from_raw(fiber.0 as *mut Record);
        record.coroutine.force_reset();
        ManuallyDrop::drop(&mut record.coroutine);
    }
}

/// Nothing to switch on: all control words are exchanged at every switch.
pub(crate) fn watch_mxcsr(_on: bool) {}
