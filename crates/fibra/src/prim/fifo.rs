//! A plain intrusive list of one owner, first in, first out. It needs no atomic instructions.
//!
//! Above: `ready` of a worker (the started fibers that can run there) and the queues of a machine's ports. Below: [`Linked`].
//!
//! Only the owner touches it, so `Fifo` is neither `Send` nor `Sync`. The link cell of a node is atomic because other lists share it
//! ([`mpsc`](super::mpsc)); here it is read and written Relaxed, which costs what a plain access costs.
//!
//! Invariants: `head` is null exactly if `tail` is null; every node in the list has a link that is not null
//! (the last one [`end_of_list`]); a node that was taken out has a null link.

use std::cell::Cell;
use std::fmt;
use std::ptr::{self, NonNull};

use super::atomic::Ordering;
use super::linked::{Linked, end_of_list};

pub(crate) struct Fifo<T> {
    head: Cell<*mut T>,
    tail: Cell<*mut T>,
}

impl<T: Linked> Fifo<T> {
    pub(crate) const fn new() -> Self {
        Self { head: Cell::new(ptr::null_mut()), tail: Cell::new(ptr::null_mut()) }
    }

    /// Appends a node.
    ///
    /// # Safety
    /// The node is in no list, and stays valid, and unlinked by others, until `pop_front` returns it.
    #[inline]
    pub(crate) unsafe fn push_back(&self, node: NonNull<T>) {
        // SAFETY: the caller promises that the node is valid.
        let link = unsafe { node.as_ref() }.link();
        debug_assert!(link.load(Ordering::Relaxed).is_null(), "a node is queued twice");
        // Relaxed, here and below: only the owner reads and writes the links of this list.
        link.store(end_of_list(), Ordering::Relaxed);
        let tail = self.tail.replace(node.as_ptr());
        if tail.is_null() {
            self.head.set(node.as_ptr());
        } else {
            // SAFETY: `tail` is in the list, so it is valid by the promise made when it was pushed.
            unsafe { (*tail).link() }.store(node.as_ptr(), Ordering::Relaxed);
        }
    }

    /// Takes the oldest node out; its link is null afterwards.
    #[inline]
    pub(crate) fn pop_front(&self) -> Option<NonNull<T>> {
        let node = NonNull::new(self.head.get())?;
        // SAFETY: `node` is in the list, so it is valid by the promise made when it was pushed.
        let link = unsafe { node.as_ref() }.link();
        // Relaxed: as in `push_back`.
        let next = link.load(Ordering::Relaxed);
        debug_assert!(!next.is_null(), "a node in the list was unlinked by other code than the list");
        link.store(ptr::null_mut(), Ordering::Relaxed);
        if next == end_of_list() {
            self.head.set(ptr::null_mut());
            self.tail.set(ptr::null_mut());
        } else {
            self.head.set(next);
        }
        Some(node)
    }

    /// The node that `pop_front` would return, for prefetching it.
    #[inline]
    pub(crate) fn front(&self) -> Option<NonNull<T>> {
        NonNull::new(self.head.get())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.get().is_null()
    }
}

impl<T> fmt::Debug for Fifo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fifo").field("is_empty", &self.head.get().is_null()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::linked::is_linked;
    use super::*;
    use crate::prim::atomic::AtomicPtr;

    struct FifoNode {
        link: AtomicPtr<FifoNode>,
        value: u32,
    }

    // SAFETY: one cell, null in a new node, written by the list only.
    unsafe impl Linked for FifoNode {
        fn link(&self) -> &AtomicPtr<Self> {
            &self.link
        }
    }

    #[allow(clippy::vec_box)] // They are linked by address: they must not move with the vector.
    fn nodes(count: u32) -> Vec<Box<FifoNode>> {
        (0..count).map(|value| Box::new(FifoNode { link: AtomicPtr::new(ptr::null_mut()), value })).collect()
    }

    fn push(list: &Fifo<FifoNode>, node: &FifoNode) {
        // SAFETY: the nodes of these tests outlive the list, and those pushed are in no list.
        unsafe { list.push_back(NonNull::from(node)) }
    }

    fn pop(list: &Fifo<FifoNode>) -> Option<u32> {
        // SAFETY: the nodes of these tests outlive the list.
        list.pop_front().map(|node| unsafe { node.as_ref() }.value)
    }

    // S0-19: served round-robin.
    #[test]
    fn first_in_first_out() {
        let nodes = nodes(5);
        let list = Fifo::new();
        assert!(list.is_empty() && pop(&list).is_none() && list.front().is_none());
        for node in &nodes[..3] {
            push(&list, node);
        }
        assert_eq!(list.front(), Some(NonNull::from(&*nodes[0])));
        assert_eq!((pop(&list), pop(&list)), (Some(0), Some(1)));
        push(&list, &nodes[3]);
        push(&list, &nodes[0]); // A yield: taken out, and back at the end.
        assert_eq!((pop(&list), pop(&list), pop(&list), pop(&list)), (Some(2), Some(3), Some(0), None));
        assert!(list.is_empty());
    }

    // S0-21: removal clears the link, so membership is testable, for the last node too.
    #[test]
    fn membership_is_testable() {
        let nodes = nodes(2);
        let list = Fifo::new();
        assert!(!is_linked(&*nodes[0]));
        push(&list, &nodes[0]);
        assert!(is_linked(&*nodes[0]), "the only node, hence the last, is linked too");
        push(&list, &nodes[1]);
        pop(&list);
        assert!(!is_linked(&*nodes[0]) && is_linked(&*nodes[1]));
        pop(&list);
        assert!(!is_linked(&*nodes[1]));
    }

    // S0-06: a second insertion is found in debug builds.
    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "queued twice")]
    fn inserting_twice_is_found() {
        let nodes = nodes(1);
        let list = Fifo::new();
        push(&list, &nodes[0]);
        push(&list, &nodes[0]);
    }
}
