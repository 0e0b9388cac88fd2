//! Nodes that bring their own link: the common part of fibra's intrusive lists.
//!
//! Above: [`mpsc`](super::mpsc) (other threads put in, the owner takes out) and [`fifo`](super::fifo) (the owner alone). Below: atomics.
//!
//! Invariants: the link is null while the node is in no list, [`end_of_list`] while it is the last of one and the address of the next
//! node otherwise. So membership can be tested ([`is_linked`]), and inserting a node twice is found in debug builds.

use super::atomic::{AtomicPtr, Ordering};

/// A node that brings its own link word.
///
/// # Safety
/// `link` returns the same cell on every call, it is null in a new node, and no other code writes it while the node is in a list, except
/// that list. A node is in at most one list at a time.
pub(crate) unsafe trait Linked: Sized {
    fn link(&self) -> &AtomicPtr<Self>;
}

/// The link of the last node of a list: not null, and no address that a node could have.
#[inline(always)]
pub(crate) fn end_of_list<T>() -> *mut T {
    const { assert!(align_of::<T>() > 1, "address 1 must not be a node") };
    std::ptr::without_provenance_mut(1)
}

/// Whether the node is in a list. Exact for the owner of the node; for other threads a hint, true at some recent moment.
#[inline(always)]
pub(crate) fn is_linked<T: Linked>(node: &T) -> bool {
    // Relaxed: nothing is read through the pointer.
    !node.link().load(Ordering::Relaxed).is_null()
}
