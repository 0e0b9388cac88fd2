//! Permits of a [`Semaphore`]: given back when they are dropped. Above: users. Below: `Semaphore::give`.

use std::fmt;
use std::sync::Arc;

use super::Semaphore;

/// Permits of a [`Semaphore`]: given back when this is dropped.
#[must_use = "dropped at once, it is given back at once"]
pub struct Permit<'a> {
    pub(super) semaphore: &'a Semaphore,
    pub(super) count: usize,
}

impl Permit<'_> {
    /// The permits belong to the caller from now on, which gives them back.
    pub(crate) fn forget_lender(mut self) {
        self.count = 0;
    }
}

/// Permits of a [`Semaphore`] that keep it alive: given back when this is dropped.
#[must_use = "dropped at once, it is given back at once"]
pub struct OwnedPermit {
    pub(super) semaphore: Arc<Semaphore>,
    pub(super) count: usize,
}

macro_rules! permit {
    ($permit:ident $(<$life:lifetime>)?, $same:path) => {
        impl $permit$(<$life>)? {
            /// How many.
            #[must_use]
            pub fn count(&self) -> usize {
                self.count
            }

            /// The semaphore they are of.
            #[must_use]
            pub fn semaphore(&self) -> &Semaphore {
                &self.semaphore
            }

            /// Gives them back: the same as dropping this.
            pub fn release(self) {}

            /// Takes them out of circulation for good: the semaphore has so many fewer.
            pub fn forget(mut self) {
                self.semaphore.forget(std::mem::take(&mut self.count));
            }

            /// Splits `count` of them off; `None` if there are not so many.
            pub fn split(&mut self, count: usize) -> Option<Self> {
                self.count = self.count.checked_sub(count)?;
                Some(Self { semaphore: self.semaphore.clone(), count })
            }

            /// Adds the permits of `other` to these.
            ///
            /// # Panics
            /// If it is of another semaphore.
            #[track_caller]
            pub fn merge(&mut self, mut other: Self) {
                assert!(
                    $same(&self.semaphore, &other.semaphore),
                    "fibra: merging permits of two different semaphores"
                );
                self.count += std::mem::take(&mut other.count);
            }
        }

        impl Drop for $permit$(<$life>)? {
            fn drop(&mut self) {
                if self.count > 0 {
                    self.semaphore.give(self.count);
                }
            }
        }

        impl fmt::Debug for $permit$(<$life>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($permit)).field("count", &self.count).finish_non_exhaustive()
            }
        }
    };
}
permit!(Permit<'_>, same_reference);
permit!(OwnedPermit, Arc::ptr_eq);

fn same_reference(one: &&Semaphore, other: &&Semaphore) -> bool {
    std::ptr::eq(*one, *other)
}
