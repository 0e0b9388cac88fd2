//! An allocator that counts, per thread: for test binaries that ask what allocates. A program that includes this file has it as the global
//! one.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A size in bytes that nothing but a test's own value has: a prime number, so a buffer of such values is a multiple of it.
#[allow(dead_code)] // Not every binary that counts has such values.
pub(crate) const ODD: usize = 4093;

/// The blocks of [`ODD`] bytes or a multiple that are alive, on all threads.
static ODD_BLOCKS: AtomicUsize = AtomicUsize::new(0);

struct Counting;

thread_local! {
    // Constant and without a destructor: reaching it allocates nothing.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        if layout.size() != 0 && layout.size().is_multiple_of(ODD) {
            ODD_BLOCKS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if layout.size() != 0 && layout.size().is_multiple_of(ODD) {
            ODD_BLOCKS.fetch_sub(1, Ordering::Relaxed);
        }
        // SAFETY: passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `step` `warm_up` times, then says how often it allocates in `count` more.
#[allow(dead_code)] // Not every binary that counts counts steps.
pub(crate) fn allocations(warm_up: usize, count: usize, mut step: impl FnMut()) -> usize {
    (0..warm_up).for_each(|_| step());
    let before = ALLOCATIONS.get();
    (0..count).for_each(|_| step());
    ALLOCATIONS.get() - before
}

/// How often this thread has allocated until now: for what cannot be written as a step.
#[allow(dead_code)] // Not every binary that counts needs it.
pub(crate) fn so_far() -> usize {
    ALLOCATIONS.get()
}

/// How many blocks of [`ODD`] bytes or a multiple are alive.
#[allow(dead_code)] // Not every binary that counts asks.
pub(crate) fn odd_blocks() -> usize {
    // Relaxed is enough: the runtime that made them has ended, which orders what its threads did before this.
    ODD_BLOCKS.load(Ordering::Relaxed)
}
