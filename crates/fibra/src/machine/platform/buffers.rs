//! Buffers that many operations share: an operation takes one when there is something to be read, and its initiator
//! gives it back after use.
//!
//! Above: `io`. Below: `prim`. All of the memory is allocated at once; the list of free buffers never grows. The lock is held for a push or
//! a pop.

use std::fmt;

use crate::prim::spin::SpinLock;
use crate::prim::sync::Arc;

/// A fixed number of buffers of one size, for [`read_with`](super::read_with). Clones are the same buffers.
///
/// ```
/// use fibra::machine::platform::Buffers;
///
/// let buffers = Buffers::new(4, 1024);
/// assert_eq!((buffers.available(), buffers.size()), (4, 1024));
/// ```
#[derive(Clone)]
pub struct Buffers(Arc<BuffersShared>);

struct BuffersShared {
    size: usize,
    number: usize,
    free: SpinLock<Vec<Vec<u8>>>,
}

impl Buffers {
    /// So many buffers of that size.
    ///
    /// # Panics
    /// If either is 0.
    pub fn new(number: usize, size: usize) -> Self {
        assert!(number > 0 && size > 0, "fibra: there must be a buffer, and a buffer has room for at least one byte");
        let free = (0..number).map(|_| vec![0; size]).collect();
        Self(Arc::new(BuffersShared { size, number, free: SpinLock::new(free) }))
    }

    /// The size of each.
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// How many are not in use now.
    pub fn available(&self) -> usize {
        self.0.free.with(|free| free.len())
    }

    pub(super) fn take(&self) -> Option<Vec<u8>> {
        self.0.free.with(Vec::pop)
    }

    pub(super) fn give(&self, buffer: Vec<u8>) {
        // The user may have taken the buffer out of the operation and put another in its place: that one is kept if it has the same size.
        if buffer.len() == self.0.size {
            self.0.free.with(|free| {
                if free.len() < self.0.number {
                    free.push(buffer);
                }
            });
        }
    }
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffers").field("size", &self.size()).field("available", &self.available()).finish()
    }
}
