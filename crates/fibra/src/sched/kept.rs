//! What a higher floor keeps for one runtime: the scheduler holds it and drops it with the runtime, and does not know its type.
//!
//! Above: `blocking` (the pool), `machine` (the loops of the workers), which alone name the types. Below: nothing.
//!
//! Invariant: a place is asked for one type only, by the floor that it belongs to.

use std::any::Any;
use std::sync::OnceLock;

/// See the header.
#[derive(Debug, Default)]
pub(crate) struct Kept(OnceLock<Box<dyn Any + Send + Sync>>);

impl Kept {
    /// What is kept here, if it was made. Without a look at its type, since calls to machines come this way.
    ///
    /// # Safety
    /// What was made here is a `T`: the floor that the place belongs to gives [`get_or_init`](Self::get_or_init) no other type.
    #[inline(always)]
    pub(crate) unsafe fn get_unchecked<T: Any>(&self) -> Option<&T> {
        let kept = self.0.get()?;
        debug_assert!(kept.is::<T>(), "one place, one type");
        // SAFETY: the caller's promise.
        Some(unsafe { &*std::ptr::from_ref(&**kept).cast::<T>() })
    }

    /// What is kept here; made at the first question.
    pub(crate) fn get_or_init<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(|| Box::new(make())).downcast_ref().expect("one place, one type")
    }

    /// Was it made?
    pub(crate) fn is_there(&self) -> bool {
        self.0.get().is_some()
    }
}
