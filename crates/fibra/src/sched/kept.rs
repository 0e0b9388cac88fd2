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
    /// What is kept here, if it was made.
    pub(crate) fn get<T: Any>(&self) -> Option<&T> {
        self.0.get().map(|kept| kept.downcast_ref().expect("one place, one type"))
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
