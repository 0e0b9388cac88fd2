//! Memory for the closures of a scope's children that do not fit into a frame (S4-11): taken in chunks, released with the scope.
//!
//! A block goes back when its child starts, and serves the next one of its size, so a scope that lives long and starts many children
//! does not grow with their number. Above: `scope.rs`. Below: nothing but the allocator.

use std::alloc::Layout;
use std::mem::{self, MaybeUninit};
use std::ptr::{self, NonNull};

use crate::prim::spin::SpinLock;

/// Sizes of blocks: powers of two from this one.
const SMALLEST: usize = 128;
const CLASSES: usize = 6;
/// The largest block; what is larger has an allocation of its own.
const LARGEST: usize = SMALLEST << (CLASSES - 1);
/// Bytes taken from the allocator at once.
const CHUNK: usize = 4 * LARGEST;
const ALIGN: usize = 16;

#[repr(C, align(16))]
struct Chunk([MaybeUninit<u8>; CHUNK]);

/// See the header.
pub(crate) struct Arena(SpinLock<Inner>);

struct Inner {
    /// Boxes, as pointers: what was carved out of one stays valid while more is.
    chunks: Vec<NonNull<Chunk>>,
    /// Bytes used of the last chunk.
    used: usize,
    /// Per class, a list of free blocks through their first words.
    free: [*mut (); CLASSES],
}

// SAFETY: the pointers are to blocks of its own chunks; who holds a block is alone with it.
unsafe impl Send for Inner {}

/// The class of a layout, if blocks serve it.
fn class_of(layout: Layout) -> Option<usize> {
    if layout.size() > LARGEST || layout.align() > ALIGN {
        return None;
    }
    let size = layout.size().max(SMALLEST).next_power_of_two();
    Some((size / SMALLEST).trailing_zeros() as usize)
}

impl Arena {
    pub(crate) const fn new() -> Self {
        Self(SpinLock::new(Inner { chunks: Vec::new(), used: CHUNK, free: [ptr::null_mut(); CLASSES] }))
    }

    fn take(&self, class: usize) -> NonNull<()> {
        let taken = self.0.with(|inner| {
            let head = NonNull::new(inner.free[class]);
            if let Some(block) = head {
                // SAFETY: a free block's first word is the next one's address, written by `give`.
                inner.free[class] = unsafe { block.cast::<*mut ()>().read() };
            }
            head.or_else(|| inner.carve(class))
        });
        taken.unwrap_or_else(|| {
            // Allocated outside of the lock.
            let chunk = NonNull::from(Box::leak(Box::<Chunk>::new_uninit())).cast();
            self.0.with(|inner| {
                inner.chunks.push(chunk);
                inner.used = 0;
                inner.carve(class).expect("a fresh chunk has room")
            })
        })
    }

    fn give(&self, class: usize, block: NonNull<()>) {
        self.0.with(|inner| {
            let next = mem::replace(&mut inner.free[class], block.as_ptr());
            // SAFETY: a block of this arena, given back by the one who had it; at least a word large, and aligned.
            unsafe { block.cast::<*mut ()>().write(next) };
        });
    }
}

impl Inner {
    fn carve(&mut self, class: usize) -> Option<NonNull<()>> {
        let size = SMALLEST << class;
        if self.used + size > CHUNK {
            return None;
        }
        let chunk = self.chunks.last()?.as_ptr();
        let at = self.used;
        self.used += size;
        // SAFETY: within the chunk.
        NonNull::new(unsafe { chunk.cast::<u8>().add(at) }.cast())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for chunk in &self.chunks {
            // SAFETY: leaked in `take`, as this type; no block is in use: they borrow the arena.
            drop(unsafe { Box::from_raw(chunk.cast::<MaybeUninit<Chunk>>().as_ptr()) });
        }
    }
}

/// A value in the arena, or in a box of its own if it is too large for that. Like a box, but it may not outlive the arena.
pub(crate) struct InArena<'a, T> {
    value: NonNull<T>,
    arena: &'a Arena,
}

// SAFETY: it owns its `T`; the arena is a lock.
unsafe impl<T: Send> Send for InArena<'_, T> {}

impl<'a, T> InArena<'a, T> {
    pub(crate) fn new(arena: &'a Arena, value: T) -> Self {
        let at = match class_of(Layout::new::<T>()) {
            Some(class) => arena.take(class).cast::<T>(),
            None => NonNull::from(Box::leak(Box::<T>::new_uninit())).cast::<T>(),
        };
        // SAFETY: a block of the class of `T`, or a box for one; ours.
        unsafe { at.write(value) };
        Self { value: at, arena }
    }

    /// Takes the value out; its place is free for the next.
    pub(crate) fn into_inner(self) -> T {
        // SAFETY: ours, and not read again: `self` is forgotten.
        let value = unsafe { self.value.read() };
        self.release();
        mem::forget(self);
        value
    }

    /// Gives the memory back; the value is moved out or dropped.
    fn release(&self) {
        match class_of(Layout::new::<T>()) {
            Some(class) => self.arena.give(class, self.value.cast()),
            // SAFETY: leaked in `new`, as this type; the value is gone.
            None => drop(unsafe { Box::from_raw(self.value.cast::<MaybeUninit<T>>().as_ptr()) }),
        }
    }
}

impl<T> Drop for InArena<'_, T> {
    fn drop(&mut self) {
        /// Gives the memory back also if the value's destructor panics.
        struct Release<'b, 'a, T>(&'b InArena<'a, T>);
        impl<T> Drop for Release<'_, '_, T> {
            fn drop(&mut self) {
                self.0.release();
            }
        }
        let release = Release(self);
        // SAFETY: ours, and dropped once.
        unsafe { release.0.value.drop_in_place() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_used_again_and_values_dropped_once() {
        let arena = Arena::new();
        let counted = std::rc::Rc::new(());
        let mut addresses = std::collections::HashSet::new();
        for round in 0..10_000 {
            let value = InArena::new(&arena, ([round as u8; 200], counted.clone()));
            addresses.insert(value.value);
            if round % 2 == 0 {
                assert_eq!(value.into_inner().0[199], round as u8);
            }
        }
        assert_eq!(addresses.len(), 1, "one block serves all, one after the other");
        assert_eq!(std::rc::Rc::strong_count(&counted), 1);
        assert_eq!(arena.0.with(|inner| inner.chunks.len()), 1);
    }

    #[test]
    fn many_at_once_large_and_small_do_not_overlap() {
        let arena = Arena::new();
        let small: Vec<_> = (0..300_u64).map(|n| InArena::new(&arena, [n; 20])).collect();
        let large: Vec<_> = (0..20_u64).map(|n| InArena::new(&arena, [n; 2000])).collect();
        #[repr(align(128))]
        struct Aligned(u64);
        let aligned: Vec<_> = (0..20_u64).map(|n| InArena::new(&arena, Aligned(n))).collect();
        for (n, value) in small.into_iter().enumerate() {
            assert_eq!(value.into_inner(), [n as u64; 20]);
        }
        for (n, value) in large.into_iter().enumerate() {
            assert_eq!(value.into_inner(), [n as u64; 2000]);
        }
        for (n, value) in aligned.into_iter().enumerate() {
            assert!(value.value.addr().get() % 128 == 0 && value.into_inner().0 == n as u64);
        }
    }
}
