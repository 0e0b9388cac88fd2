//! [`Keyed`]: a value that is used in place by the holder of its one key, while the key itself travels.
//!
//! Above: `actor::cell`, whose turns pass the key on under the lock of the mailbox, so that the actor's value need not move in and out with
//! each turn. Below: the facade of atomics.
//!
//! Invariants
//! * A value has one key, made with it: the key is not cloned, and knows the number of its value, which no other value of the process has.
//! * The value is reached through a mutable borrow of its key: so at most one thread does, and it sees what the holder of the key before
//!   did as soon as the key was passed on by something that synchronises (in safe code it cannot be passed on otherwise).

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU64;

use super::atomic::{AtomicU64, Ordering};
use super::cell::UnsafeCell;

/// See the header.
pub(crate) struct Keyed<T> {
    value: UnsafeCell<T>,
    number: NonZeroU64,
}

/// The key of one [`Keyed`] value.
pub(crate) struct Key<T> {
    number: NonZeroU64,
    of: PhantomData<fn(T) -> T>,
}

// SAFETY: `value` is reached by the holder of the one key alone, so sharing this only ever moves `T` between threads.
unsafe impl<T: Send> Sync for Keyed<T> {}
// SAFETY: it owns its value.
unsafe impl<T: Send> Send for Keyed<T> {}

impl<T> Keyed<T> {
    pub(crate) fn new(value: T) -> (Self, Key<T>) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: a number that is given once.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let number = NonZeroU64::new(number).expect("fewer than 2^64 values");
        (Self { value: UnsafeCell::new(value), number }, Key { number, of: PhantomData })
    }

    /// Its number, which no other value of this process has.
    pub(crate) fn number(&self) -> u64 {
        self.number.get()
    }

    /// The value, for as long as the key is borrowed.
    ///
    /// # Panics
    /// If it is the key of another value: a bug.
    #[inline(always)]
    pub(crate) fn open<'a>(&'a self, key: &'a mut Key<T>) -> &'a mut T {
        assert!(self.number == key.number, "fibra: the key of another value (a bug in fibra, please report it)");
        // SAFETY: the one key of this value is borrowed mutably as long as the answer lives.
        self.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> fmt::Debug for Keyed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed").field("number", &self.number).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("number", &self.number).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_opened_by_its_own_key() {
        let ((first, mut first_key), (second, mut second_key)) = (Keyed::new(1), Keyed::new(2));
        *first.open(&mut first_key) += 10;
        assert_eq!((*first.open(&mut first_key), *second.open(&mut second_key)), (11, 2));
        assert!(std::panic::catch_unwind(move || *first.open(&mut second_key)).is_err());
    }
}
