//! The buffer of a channel: a ring in one allocation, whose size is a power of two, so that a place is found by a mask.
//!
//! Above: `state`, under whose lock it is used. Below: the allocator. The ring does only what a channel needs of std's `VecDeque`, because
//! the hot paths of sending and receiving must be a handful of instructions: they have checked the length already, and call the
//! `_unchecked` forms.
//!
//! Invariants: `len <= capacity`; `head < capacity`, or both are 0; the `len` places from `head` on, wrapping at the end, hold values that
//! belong to the ring, and the other places hold nothing.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// See the header.
#[derive(Debug)]
pub(super) struct Ring<T> {
    memory: NonNull<T>,
    /// 0 or a power of two.
    capacity: usize,
    head: usize,
    len: usize,
}

// SAFETY: it owns its values, and nothing else refers to its memory.
unsafe impl<T: Send> Send for Ring<T> {}

/// Values without a size need no memory: there is room for as many as can be counted.
const UNCOUNTED: usize = 1 << (usize::BITS - 1);

impl<T> Ring<T> {
    /// An empty one, without memory.
    pub(super) const fn new() -> Self {
        let capacity = if size_of::<T>() == 0 { UNCOUNTED } else { 0 };
        Self { memory: NonNull::dangling(), capacity, head: 0, len: 0 }
    }

    /// An empty one with room for `least` values or more.
    pub(super) fn with_capacity(least: usize) -> Self {
        if least == 0 || size_of::<T>() == 0 {
            return Self::new();
        }
        let Some(capacity) = least.checked_next_power_of_two() else { too_large() };
        let Ok(layout) = Layout::array::<T>(capacity) else { too_large() };
        // SAFETY: the layout has a size: neither a value nor the capacity is empty.
        let memory = NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        Self { memory: memory.cast(), capacity, head: 0, len: 0 }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many values there is memory for.
    #[inline(always)]
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The place that is `offset` behind `head`; `head` itself may be a step before the first place.
    #[inline(always)]
    fn index(&self, offset: usize) -> usize {
        self.head.wrapping_add(offset) & self.capacity.wrapping_sub(1)
    }

    /// Appends a value.
    ///
    /// # Safety
    /// `len < capacity`.
    #[inline(always)]
    pub(super) unsafe fn push_back_unchecked(&mut self, value: T) {
        debug_assert!(self.len < self.capacity, "there is room");
        // SAFETY: a place of the ring's memory that holds nothing: not all places are in use (contract), and this is the one behind the
        // last that is.
        unsafe { self.memory.add(self.index(self.len)).write(value) };
        self.len += 1;
    }

    /// Takes the first value out.
    ///
    /// # Safety
    /// `len > 0`.
    #[inline(always)]
    pub(super) unsafe fn pop_front_unchecked(&mut self) -> T {
        debug_assert!(self.len > 0, "there is a value");
        let at = self.head;
        self.head = self.index(1);
        self.len -= 1;
        // SAFETY: `head` holds a value (contract), and does not count as one of the ring's values any more.
        unsafe { self.memory.add(at).read() }
    }

    /// Appends a value, in more memory if need be.
    #[inline]
    pub(super) fn push_back(&mut self, value: T) {
        if self.len == self.capacity {
            self.reserve_one();
        }
        // SAFETY: there is room now.
        unsafe { self.push_back_unchecked(value) };
    }

    /// Puts a value before all others, in more memory if need be.
    pub(super) fn push_front(&mut self, value: T) {
        if self.len == self.capacity {
            self.reserve_one();
        }
        self.head = self.index(usize::MAX);
        self.len += 1;
        // SAFETY: there is room, so the place before the first value held nothing.
        unsafe { self.memory.add(self.head).write(value) };
    }

    /// Takes the first value out, if there is one.
    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<T> {
        // SAFETY: not empty.
        (self.len != 0).then(|| unsafe { self.pop_front_unchecked() })
    }

    /// Room for one more.
    #[cold]
    #[inline(never)]
    pub(super) fn reserve_one(&mut self) {
        if self.len == self.capacity {
            let Some(least) = self.capacity.checked_add(1) else { too_large() };
            let mut larger = Self::with_capacity(least);
            larger.take_all(self);
            std::mem::swap(self, &mut larger);
        }
    }

    /// Moves all values of `other` into this one, which is empty and has room for them.
    pub(super) fn take_all(&mut self, other: &mut Self) {
        assert!(self.len == 0 && other.len <= self.capacity, "a ring takes what it has room for");
        let first = other.len.min(other.capacity - other.head);
        // SAFETY: `first` values lie from `head` on, up to the end of the other ring at most, and the rest from its beginning on; this
        // ring is another allocation, empty and large enough. Each value is moved once: the other one is empty afterwards.
        unsafe {
            other.memory.add(other.head).copy_to_nonoverlapping(self.memory, first);
            other.memory.copy_to_nonoverlapping(self.memory.add(first), other.len - first);
        }
        (self.head, self.len) = (0, other.len);
        (other.head, other.len) = (0, 0);
    }
}

#[cold]
fn too_large() -> ! {
    panic!("fibra: the buffer of a channel is larger than memory can be")
}

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Iterator for Ring<T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.pop_front()
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        /// Drops what is left, also after a destructor has panicked, and frees the memory.
        struct Rest<'a, T>(&'a mut Ring<T>);
        impl<T> Drop for Rest<'_, T> {
            fn drop(&mut self) {
                self.0.for_each(drop);
                if size_of::<T>() != 0 && self.0.capacity != 0 {
                    let layout = Layout::array::<T>(self.0.capacity).expect("it was allocated with this layout");
                    // SAFETY: allocated by `with_capacity` with this layout, and not used again.
                    unsafe { dealloc(self.0.memory.as_ptr().cast(), layout) };
                }
            }
        }
        let rest = Rest(self);
        rest.0.for_each(drop);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::cell::Cell;
    use std::collections::VecDeque;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;

    use super::Ring;
    use crate::prim::policy::Rng;

    // Random steps give the same as std's `VecDeque`, step by step: with growth at every state of the ring, and from both sides.
    #[test]
    fn a_ring_is_a_queue() {
        let mut chance = Rng::from_seed(11);
        for first in [0, 1, 2, 3, 8] {
            let (mut ring, mut queue) = (Ring::with_capacity(first), VecDeque::new());
            for step in 0..4_000_u32 {
                match chance.below(8) {
                    0..=2 => {
                        ring.push_back(Box::new(step));
                        queue.push_back(step);
                    }
                    3 => {
                        ring.push_front(Box::new(step));
                        queue.push_front(step);
                    }
                    4 if chance.below(8) == 0 => {
                        let mut larger = Ring::with_capacity(ring.len() + chance.below(3));
                        larger.take_all(&mut ring);
                        assert!(ring.is_empty());
                        ring = larger;
                    }
                    _ => assert_eq!(ring.pop_front().map(|value| *value), queue.pop_front()),
                }
                assert_eq!(ring.len(), queue.len());
                assert!(ring.capacity() == 0 || ring.capacity().is_power_of_two());
            }
            assert!(ring.map(|value| *value).eq(queue));
        }
    }

    #[test]
    fn values_without_a_size_are_counted() {
        let mut ring = Ring::new();
        for _ in 0..1_000 {
            ring.push_back(());
        }
        ring.push_front(());
        assert_eq!((ring.len(), ring.count()), (1_001, 1_001));
    }

    // A destructor that panics: the values behind it are dropped all the same, each once.
    #[test]
    fn a_panicking_value_keeps_no_other_from_being_dropped() {
        struct Counted(Rc<Cell<u32>>, bool);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
                assert!(!self.1, "on purpose");
            }
        }
        let dropped = Rc::new(Cell::new(0));
        let mut ring = Ring::with_capacity(4);
        for at in 0..6 {
            ring.push_back(Counted(dropped.clone(), at == 2));
        }
        assert!(catch_unwind(AssertUnwindSafe(|| drop(ring))).is_err());
        assert_eq!((dropped.get(), Rc::strong_count(&dropped)), (6, 1));
    }
}
