//! [`MoveSlot`]: room for one value, which is written into it and read out of it in one move each.
//!
//! An `Option` would do, but is taken apart: its tag is looked at and written on its own, the rest is moved in other pieces than it was
//! written in, from one unnamed place to the next. A processor hands a value that it has just stored only to loads that lie within one of
//! the stores, and waits for the others: for messages of actors that was a third of the time of a turn. What comes out of a slot goes
//! straight to where it is used.
//!
//! Above: `actor::mail`, whose turns have a message in one between mailbox and handler. Below: nothing.
//!
//! Invariant: `is_full` says whether there is a value.

use std::fmt;
use std::mem::MaybeUninit;

/// See the header.
pub(crate) struct MoveSlot<T> {
    value: MaybeUninit<T>,
    is_full: bool,
}

impl<T> MoveSlot<T> {
    /// (No constant: that would be copied, all of it.)
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn new() -> Self {
        Self { value: MaybeUninit::uninit(), is_full: false }
    }

    /// Into an empty slot; ends the process if there is a value, which is a bug.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn put(&mut self, value: T) {
        if self.is_full {
            is_full();
        }
        self.value.write(value);
        self.is_full = true;
    }

    /// # Panics
    /// If there is no value: a bug.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn take(&mut self) -> T {
        assert!(self.is_full, "fibra: a slot that is empty (a bug in fibra, please report it)");
        self.is_full = false;
        // SAFETY: there was a value, and from now on it is the caller's.
        unsafe { self.value.assume_init_read() }
    }
}

/// (It does not unwind, or the value that was to be put would have to lie in memory all the time, to be dropped.)
#[cold]
#[inline(never)]
extern "C" fn is_full() -> ! {
    panic!("fibra: a slot that is full (a bug in fibra, please report it)");
}

impl<T> Drop for MoveSlot<T> {
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn drop(&mut self) {
        if self.is_full {
            drop(self.take());
        }
    }
}

impl<T> fmt::Debug for MoveSlot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MoveSlot").field("is_full", &self.is_full).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_value_is_dropped_once() {
        let value = Rc::new(7);
        let mut slot = MoveSlot::new();
        slot.put(value.clone());
        assert_eq!((*slot.take(), Rc::strong_count(&value)), (7, 2), "until the end of this statement");
        assert_eq!(Rc::strong_count(&value), 1);
        slot.put(value.clone());
        drop(slot);
        assert_eq!(Rc::strong_count(&value), 1);
    }

    #[test]
    #[should_panic(expected = "a slot that is empty")]
    fn an_empty_slot_gives_nothing() {
        MoveSlot::<u32>::new().take();
    }
}
