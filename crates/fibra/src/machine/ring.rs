//! Memory that two machines share beside a standing operation: rings with an overflow policy, and channels.
//!
//! Above: machines. Below: `prim`.
//!
//! A ring has one writer and one reader; the types ensure this, because neither end can be cloned. Its memory is
//! allocated at once. The writer rings the doorbell after it has written; the reader, when rung, reads until the ring
//! is empty. A ring that refuses a value for which it has no room uses no lock (`spsc`). A ring that throws out its
//! oldest value needs one: its writer takes out a value that the reader may be taking out at the same time. The lock is
//! held for a move of one value; no user code runs under it.
//!
//! Invariants: at most `capacity` values are in the ring, in the order of writing; `written` = read + dropped + overwritten + in the
//! ring.

use std::collections::VecDeque;
use std::fmt;

use super::spsc::{Passed, Reader, Spsc, Writer, spsc};
use crate::prim::spin::SpinLock;
use crate::prim::sync::Arc;

/// What a full ring does with one more value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// Keeps what it has; the new value is refused, and counted in [`RingStats::dropped`].
    DropNewest,
    /// Makes room; the oldest value is thrown out, and counted in [`RingStats::overwritten`].
    OverwriteOldest,
}

/// Counts of the values that have passed through a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RingStats {
    /// Values that the writer tried to write.
    pub written: u64,
    /// Values that were read.
    pub read: u64,
    /// New values that a full ring did not take.
    pub dropped: u64,
    /// Old values that a full ring threw out.
    pub overwritten: u64,
}

/// The state that the ends of an overwriting ring share.
#[derive(Debug)]
struct RingShared<T> {
    values: VecDeque<T>,
    capacity: usize,
    stats: RingStats,
}

impl RingStats {
    fn of<T>(spsc: &Spsc<T>) -> Self {
        let Passed(taken, read, dropped) = spsc.passed();
        Self { written: taken + dropped, read, dropped, overwritten: 0 }
    }
}

/// A ring of at most `capacity` values, with what it does when it is full. The reader's machine makes it, and sends the
/// writer along in the data of a standing operation.
///
/// ```
/// use fibra::machine::{Overflow, ring};
///
/// let (mut writer, mut reader) = ring(2, Overflow::OverwriteOldest);
/// assert_eq!([1, 2, 3].map(|value| writer.write(value)), [Ok(None), Ok(None), Ok(Some(1))]);
/// assert_eq!((reader.read(), reader.read(), reader.read()), (Some(2), Some(3), None));
/// assert_eq!(reader.stats().overwritten, 1);
/// ```
///
/// # Panics
/// If `capacity` is 0.
pub fn ring<T: Send>(capacity: usize, overflow: Overflow) -> (RingWriter<T>, RingReader<T>) {
    assert!(capacity > 0, "fibra: a ring has room for at least one value");
    match overflow {
        Overflow::DropNewest => {
            let (writer, reader) = spsc(capacity);
            (RingWriter(Writing::Refuses(writer)), RingReader(Reading::Refuses(reader)))
        }
        Overflow::OverwriteOldest => {
            let values = VecDeque::with_capacity(capacity);
            let shared = Arc::new(SpinLock::new(RingShared { values, capacity, stats: RingStats::default() }));
            (RingWriter(Writing::Overwrites(shared.clone())), RingReader(Reading::Overwrites(shared)))
        }
    }
}

/// The end of a ring that is written.
pub struct RingWriter<T>(Writing<T>);

enum Writing<T> {
    Refuses(Writer<T>),
    Overwrites(Arc<SpinLock<RingShared<T>>>),
}

impl<T: Send> RingWriter<T> {
    /// Writes a value. If the ring was full, `Ok` gives the value that was thrown out for it. Ring the doorbell afterwards.
    ///
    /// # Errors
    /// The ring is full and keeps what it has: the value comes back.
    pub fn write(&mut self, value: T) -> Result<Option<T>, T> {
        match &mut self.0 {
            Writing::Refuses(writer) => writer.write(value).map(|()| None),
            Writing::Overwrites(shared) => Ok(shared.with(|shared| {
                shared.stats.written += 1;
                let is_full = shared.values.len() == shared.capacity;
                let oldest = if is_full { shared.values.pop_front() } else { None };
                shared.stats.overwritten += u64::from(is_full);
                shared.values.push_back(value);
                oldest
            })),
        }
    }

    /// What has passed so far.
    pub fn stats(&self) -> RingStats {
        match &self.0 {
            Writing::Refuses(writer) => RingStats::of(&writer.shared),
            Writing::Overwrites(shared) => shared.with(|shared| shared.stats),
        }
    }

    /// Whether the reading end is gone.
    pub fn is_abandoned(&self) -> bool {
        let ends = match &self.0 {
            Writing::Refuses(writer) => Arc::strong_count(&writer.shared),
            Writing::Overwrites(shared) => Arc::strong_count(shared),
        };
        ends == 1
    }
}

/// The end of a ring that is read.
pub struct RingReader<T>(Reading<T>);

enum Reading<T> {
    Refuses(Reader<T>),
    Overwrites(Arc<SpinLock<RingShared<T>>>),
}

impl<T: Send> RingReader<T> {
    /// The oldest value, if there is one.
    pub fn read(&mut self) -> Option<T> {
        match &mut self.0 {
            Reading::Refuses(reader) => reader.read(),
            Reading::Overwrites(shared) => shared.with(|shared| {
                let value = shared.values.pop_front();
                shared.stats.read += u64::from(value.is_some());
                value
            }),
        }
    }

    /// How many values are there.
    pub fn len(&self) -> usize {
        match &self.0 {
            Reading::Refuses(reader) => reader.len(),
            Reading::Overwrites(shared) => shared.with(|shared| shared.values.len()),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What has passed so far.
    pub fn stats(&self) -> RingStats {
        match &self.0 {
            Reading::Refuses(reader) => RingStats::of(&reader.shared),
            Reading::Overwrites(shared) => shared.with(|shared| shared.stats),
        }
    }
}

/// A channel between two machines: a ring that refuses what it has no room for. The reading machine submits a standing operation with the
/// [`RingWriter`] in its data; the writing machine writes and rings.
pub fn channel<T: Send>(capacity: usize) -> (RingWriter<T>, RingReader<T>) {
    ring(capacity, Overflow::DropNewest)
}

impl<T> fmt::Debug for RingWriter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingWriter").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for RingReader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingReader").finish_non_exhaustive()
    }
}
