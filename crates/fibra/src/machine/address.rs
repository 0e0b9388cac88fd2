//! Addresses of machines, and the results that loops give in place of a target that cannot answer.
//!
//! Above: everything in this folder. Below: nothing.
//!
//! The low bits of a machine's number are its place in its loop's table; the high bits count how many machines had the
//! place before. A look-up is an index and a comparison, and an old number finds no machine. Invariant: no number is
//! given out twice. A place whose numbers are used up stays empty.

/// The result of an operation that was cancelled: minus `ECANCELED`.
pub const CANCELLED: i32 = -125;
/// The result of an operation whose target dropped it, or died, without an answer. No error of the system has this number.
pub const ABANDONED: i32 = -5000;
/// The result of an operation whose destination does not exist (any more). No error of the system has this number.
pub const UNREACHABLE: i32 = -6000;

/// A machine somewhere in the mesh: which loop, and which machine there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineRef {
    /// The number of the event loop's thread in its mesh; 0 for a loop that is alone.
    pub thread: u32,
    /// The number of the machine on that loop: 0 is the app, 1 the platform, others are children.
    pub machine: u32,
}

impl MachineRef {
    /// The app machine of a loop.
    pub const fn app(thread: u32) -> Self {
        Self { thread, machine: 0 }
    }

    /// The platform machine of a loop.
    pub const fn platform(thread: u32) -> Self {
        Self { thread, machine: 1 }
    }

    pub(super) fn pack(self) -> u64 {
        (self.thread as u64) << 32 | self.machine as u64
    }

    pub(super) fn unpack(word: u64) -> Self {
        Self { thread: (word >> 32) as u32, machine: word as u32 }
    }
}

/// No destination, in the packed form.
pub(super) const NOWHERE: u64 = u64::MAX;

/// How much of a machine's number is its place: 4 million machines at a time.
const PLACE_BITS: u32 = 22;
const PLACES: u32 = 1 << PLACE_BITS;

/// The place of a machine in its loop's table.
#[inline]
pub(super) fn place_of(number: u32) -> usize {
    (number & (PLACES - 1)) as usize
}

/// The first place that is not a root's own: 0 is the app, 1 the platform, and those are not given back.
const FIRST_FREE: u32 = 2;

/// The numbers of one loop's machines.
#[derive(Debug)]
pub(super) struct Numbers {
    /// The first place that no machine has had.
    next: u32,
    /// Numbers of places that are free again.
    free: Vec<u32>,
}

impl Numbers {
    pub(super) fn new() -> Self {
        Self { next: FIRST_FREE, free: Vec::new() }
    }

    pub(super) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            // The last place stays unused, so that no number is `u32::MAX`.
            assert!(self.next < PLACES - 1, "fibra: an event loop has no room for more than {} machines", PLACES - 1);
            self.next += 1;
            self.next - 1
        })
    }

    pub(super) fn give_back(&mut self, number: u32) {
        if number >= FIRST_FREE
            && let Some(next) = number.checked_add(PLACES)
        {
            self.free.push(next);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    // Numbers are never the same, also when places are used again and again until their numbers are used up.
    #[test]
    fn no_number_twice() {
        let (mut numbers, mut seen) = (Numbers::new(), std::collections::HashSet::new());
        let kept = numbers.take();
        for _ in 0..5_000 {
            let number = numbers.take();
            assert!(seen.insert(number) && number != kept && number != u32::MAX);
            numbers.give_back(number);
        }
        assert_eq!((kept, seen.iter().map(|number| place_of(*number)).max()), (2, Some(7)));
        numbers.give_back(0);
        numbers.give_back(1);
        assert!(numbers.take() > 2);
    }
}
