//! What the home of an operation notes about it while it is in flight, and the list of those that one machine has in flight.
//!
//! Above: `routing`, which has one list per machine. Below: `node`, in which the notes lie: a list is a list through the operations.
//!
//! Invariants: all of this belongs to the thread of the home loop. An operation is in one list from its submission until it has come
//! home, or the loop lets go of all of them and closes its mail; in between it is not freed (see `node`). Lists are in the order of
//! submission, so that the end of a machine costs what that one has in flight. Those that are in the loop's index (`is_indexed`) are
//! the oldest of a list.

use super::address::MachineRef;
use super::node::InFlight;
#[cfg(not(any(loom, shuttle)))]
use super::node::Owned;
#[cfg(not(any(loom, shuttle)))]
use crate::sched::timers::heap::Timer;

/// Notes about one operation.
#[derive(Debug)]
pub(super) struct Flight {
    /// Those that the same machine submitted just before and after it.
    before: Option<InFlight>,
    after: Option<InFlight>,
    /// Where its loop sent it: its cancellation goes there too.
    pub(super) destination: Option<MachineRef>,
    /// It is a timer of this loop, which has the operation itself: given up for this.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) timer: Option<Timer>,
    /// Its cancellation came here before the operation, which a parent has in hand: a reference that was given up for this. It
    /// follows if the operation is forwarded.
    pub(super) has_early_cancel: bool,
    /// The loop's index has it.
    pub(super) is_indexed: bool,
}

impl Flight {
    pub(super) const NEW: Self = Self {
        before: None,
        after: None,
        destination: None,
        #[cfg(not(any(loom, shuttle)))]
        timer: None,
        has_early_cancel: false,
        is_indexed: false,
    };

    /// Whether its end is more than leaving its list: the loop's index has it, or a cancellation waits for it.
    #[cfg(not(any(loom, shuttle)))]
    fn has_rest(&self) -> bool {
        self.is_indexed || self.has_early_cancel
    }
}

/// What one machine has in flight, in the order of submission.
#[cfg(not(any(loom, shuttle)))]
#[derive(Debug)]
pub(super) struct Flights {
    oldest: Option<InFlight>,
    newest: Option<InFlight>,
    length: usize,
}

#[cfg(not(any(loom, shuttle)))]
impl Flights {
    pub(super) const NONE: Self = Self { oldest: None, newest: None, length: 0 };

    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// # Safety
    /// On the loop's own thread, here and below; the operation was submitted a moment ago and is in no list.
    #[inline]
    pub(super) unsafe fn push(&mut self, op: InFlight) {
        let before = self.newest.replace(op);
        match before {
            // SAFETY: in this list, so in flight.
            Some(before) => unsafe { before.flight(|flight| flight.after = Some(op)) },
            None => self.oldest = Some(op),
        }
        // SAFETY: the caller's promise.
        unsafe { op.flight(|flight| *flight = Flight { before, ..Flight::NEW }) };
        self.length += 1;
    }

    /// Takes one out; tells whether there is more to be cleaned up ([`Flight::has_rest`]). The notes stay until the operation is
    /// submitted again.
    ///
    /// # Safety
    /// It is in this list.
    #[inline]
    pub(super) unsafe fn remove(&mut self, op: InFlight) -> bool {
        // SAFETY: the caller's promise.
        let (before, after, has_rest) = unsafe { op.flight(|flight| (flight.before, flight.after, flight.has_rest())) };
        match before {
            // SAFETY: in this list, so in flight.
            Some(before) => unsafe { before.flight(|other| other.after = after) },
            None => self.oldest = after,
        }
        match after {
            // SAFETY: as above.
            Some(after) => unsafe { after.flight(|other| other.before = before) },
            None => self.newest = before,
        }
        self.length -= 1;
        has_rest
    }

    /// Calls this for each, oldest first. It may take that one out, and no other.
    ///
    /// # Safety
    /// On the loop's own thread.
    pub(super) unsafe fn for_each(&self, mut each: impl FnMut(InFlight)) {
        let mut next = self.oldest;
        while let Some(op) = next {
            // SAFETY: in this list, so in flight.
            next = unsafe { op.flight(|flight| flight.after) };
            each(op);
        }
    }

    /// Calls this for those that are not in the loop's index, and notes that they are.
    ///
    /// # Safety
    /// As above.
    pub(super) unsafe fn index_rest(&self, mut each: impl FnMut(InFlight)) {
        let mut next = self.newest;
        while let Some(op) = next {
            // SAFETY: as above.
            let (was_indexed, before) =
                unsafe { op.flight(|flight| (std::mem::replace(&mut flight.is_indexed, true), flight.before)) };
            if was_indexed {
                return;
            }
            each(op);
            next = before;
        }
    }

    /// The oldest, out of the list.
    ///
    /// # Safety
    /// As above.
    pub(super) unsafe fn take_oldest(&mut self) -> Option<(InFlight, Flight)> {
        let op = self.oldest?;
        // SAFETY: in this list.
        unsafe { self.remove(op) };
        // SAFETY: it was in this list a moment ago.
        Some((op, unsafe { op.flight(|flight| std::mem::replace(flight, Flight::NEW)) }))
    }
}

/// Keeps an operation for its loop, by its notes. [`InFlight::into_owned`] takes it back.
#[cfg(not(any(loom, shuttle)))]
pub(super) fn keep(owned: Owned) {
    owned.into_raw();
}
