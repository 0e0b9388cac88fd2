//! The links of an operation: a place in a list for each of its roles.
//!
//! Above: `node`, which has three; the lists. Below: `prim`.
//!
//! Invariant: a link is in one list at a time, and belongs to that list.

use std::mem::offset_of;
use std::ptr::{self, NonNull};

use super::node::OpNode;
use crate::prim::atomic::AtomicPtr;
use crate::prim::linked::Linked;

/// Which of the three links of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkKind {
    Main,
    Cancel,
    Note,
}

impl LinkKind {
    /// The offset of that link in a node.
    pub(super) fn offset(self) -> usize {
        match self {
            Self::Main => offset_of!(OpNode, main),
            Self::Cancel => offset_of!(OpNode, cancel),
            Self::Note => offset_of!(OpNode, note),
        }
    }
}

/// A place in a list. Only the holder of the node in that role touches it.
#[derive(Debug)]
pub(super) struct Link {
    next: AtomicPtr<Link>,
    kind: LinkKind,
}

impl Link {
    pub(super) fn new(kind: LinkKind) -> Self {
        Self { next: AtomicPtr::new(ptr::null_mut()), kind }
    }

    /// The node that a link is part of, and in which role.
    ///
    /// # Safety
    /// The link is part of a living node.
    #[inline]
    pub(super) unsafe fn node(link: NonNull<Link>) -> (NonNull<OpNode>, LinkKind) {
        // SAFETY: it is alive.
        let kind = unsafe { link.as_ref() }.kind;
        // SAFETY: the link lies that far inside a node, and its pointer was made from the node's.
        (unsafe { link.byte_sub(kind.offset()).cast() }, kind)
    }
}

// SAFETY: one cell, null in a new link; a role of a node is in one list at a time.
unsafe impl Linked for Link {
    #[inline(always)]
    fn link(&self) -> &AtomicPtr<Link> {
        &self.next
    }
}
