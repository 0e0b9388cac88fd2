//! The sizes a stack can have.
//!
//! Above: builders and environment variables make a [`StackSize`]; below: nothing but the page size. Four pooled
//! classes lie in shared arenas; every power of two above them, up to 1 GiB, has mappings of its own. A size is rounded
//! up to the next of these.

use super::guard;

/// How many of the sizes are carved from arenas and pooled by every worker; the larger ones have mappings of their own.
pub(super) const POOLED: usize = 4;

/// How many sizes there are.
pub(super) const CLASSES: usize = SIZES.len();

const SIZES: [usize; 14] = [
    32 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
    8 << 20,
    16 << 20,
    32 << 20,
    64 << 20,
    128 << 20,
    256 << 20,
    512 << 20,
    1 << 30,
];

/// A stack size the runtime accepts: an index into the table of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StackSize(u8);

impl StackSize {
    /// The size of a fiber's stack unless its builder or the environment says otherwise: 256 KiB.
    pub(crate) const DEFAULT: StackSize = StackSize(2);
    /// The size of the root fiber's stack: 8 MiB, as the main thread has.
    pub(crate) const ROOT: StackSize = StackSize(6);
    /// The smallest request that is accepted.
    pub(crate) const MIN_BYTES: usize = SIZES[0];
    /// The largest request that is accepted.
    pub(crate) const MAX_BYTES: usize = SIZES[CLASSES - 1];

    /// The smallest size that has at least `bytes` and leaves at least half of itself to the fiber.
    ///
    /// The second condition matters only where pages are larger than 4 KiB, since there the guard takes more.
    pub(crate) fn new(bytes: usize) -> Result<StackSize, InvalidStackSize> {
        if !(Self::MIN_BYTES..=Self::MAX_BYTES).contains(&bytes) {
            return Err(InvalidStackSize { bytes });
        }
        let fits = |&size: &usize| size >= bytes && size / 2 >= guard::guard_bytes();
        let class = SIZES.iter().position(fits).expect("the largest size has room for any request and any page size");
        Ok(StackSize(class as u8))
    }

    /// The whole reservation, guard included.
    #[inline]
    pub(crate) fn bytes(self) -> usize {
        SIZES[self.class()]
    }

    #[inline]
    pub(super) fn class(self) -> usize {
        usize::from(self.0)
    }

    #[inline]
    pub(super) fn of_class(class: usize) -> StackSize {
        debug_assert!(class < CLASSES);
        StackSize(class as u8)
    }
}

/// A stack size outside the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidStackSize {
    bytes: usize,
}

impl std::fmt::Display for InvalidStackSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "a stack of {} bytes is not possible: use at least {} (32 KiB) and at most {} (1 GiB), or leave it \
             out for the default of {} (256 KiB)",
            self.bytes,
            StackSize::MIN_BYTES,
            StackSize::MAX_BYTES,
            StackSize::DEFAULT.bytes(),
        )
    }
}

impl std::error::Error for InvalidStackSize {}
