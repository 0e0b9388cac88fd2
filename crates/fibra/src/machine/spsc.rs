//! A ring with one writer and one reader that share no lock: the inside of a machine's ring that refuses values when it
//! is full.
//!
//! Above: `ring`. Below: `prim`.
//!
//! Both ends count what they have written and read; the difference is what is in the ring. Each end writes its own count only, and keeps
//! a copy of the other's that may be old: it looks again when by that copy there is nothing to do.
//!
//! Invariants: read <= written <= read + capacity, for the counts and for every copy of them; the slots between the two are full and
//! belong to the reader, the others are empty and belong to the writer; neither end can be cloned.

use std::mem::MaybeUninit;

use crate::prim::CacheLine;
use crate::prim::atomic::{AtomicU64, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::cell::UnsafeCell;
use crate::prim::sync::Arc;

pub(super) struct Spsc<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    written: CacheLine<AtomicU64>,
    read: CacheLine<AtomicU64>,
    /// Values that the writer could not write.
    refused: AtomicU64,
}

// SAFETY: a slot belongs to one end at a time, and the counts hand it over; values are `Send`.
unsafe impl<T: Send> Send for Spsc<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Spsc<T> {}

/// Counts of the values that have passed: written, read, refused.
pub(super) struct Passed(pub(super) u64, pub(super) u64, pub(super) u64);

impl<T> Spsc<T> {
    /// Never more read than written, wherever it is asked.
    pub(super) fn passed(&self) -> Passed {
        // Acquire: pairs with the reader's release: a thread that has seen a value read sees that it was written.
        let read = self.read.load(Ordering::Acquire);
        // Relaxed, both: numbers for people.
        Passed(self.written.load(Ordering::Relaxed), read, self.refused.load(Ordering::Relaxed))
    }
}

impl<T> Drop for Spsc<T> {
    fn drop(&mut self) {
        // Relaxed, both: both ends are gone, so no other thread has it any more.
        let (read, written) = (self.read.load(Ordering::Relaxed), self.written.load(Ordering::Relaxed));
        for count in read..written {
            let slot = &self.slots[(count % self.slots.len() as u64) as usize];
            // SAFETY: between the counts, so full; and dropped once.
            slot.with_mut(|slot| unsafe { (*slot).assume_init_drop() });
        }
    }
}

/// An end: its count, the slot that comes next, and what it knows of the other's count.
struct End {
    count: u64,
    place: usize,
    other: u64,
}

impl End {
    fn step(&mut self, capacity: usize) {
        self.count += 1;
        self.place = if self.place + 1 == capacity { 0 } else { self.place + 1 };
    }
}

pub(super) struct Writer<T> {
    pub(super) shared: Arc<Spsc<T>>,
    end: End,
}

pub(super) struct Reader<T> {
    pub(super) shared: Arc<Spsc<T>>,
    end: End,
}

/// A ring for at most `capacity` values, which is not 0.
pub(super) fn spsc<T: Send>(capacity: usize) -> (Writer<T>, Reader<T>) {
    let shared = Arc::new(Spsc {
        slots: (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
        written: CacheLine(AtomicU64::new(0)),
        read: CacheLine(AtomicU64::new(0)),
        refused: AtomicU64::new(0),
    });
    let end = || End { count: 0, place: 0, other: 0 };
    (Writer { shared: shared.clone(), end: end() }, Reader { shared, end: end() })
}

impl<T: Send> Writer<T> {
    /// Writes, unless it is full.
    pub(super) fn write(&mut self, value: T) -> Result<(), T> {
        let (shared, end) = (&*self.shared, &mut self.end);
        let capacity = shared.slots.len();
        if end.count - end.other == capacity as u64 {
            // Acquire: pairs with the reader's release: it is through with the slot.
            end.other = shared.read.load(Ordering::Acquire);
            if end.count - end.other == capacity as u64 {
                // Relaxed, both: only the writer counts here, and the number is for people.
                shared.refused.store(shared.refused.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                return Err(value);
            }
        }
        // SAFETY: less than full, so the slot is empty, and the writer's.
        shared.slots[end.place].with_mut(|slot| unsafe { (*slot).write(value) });
        end.step(capacity);
        // Release: pairs with the reader's acquire: the value is there before it counts.
        shared.written.store(end.count, Ordering::Release);
        Ok(())
    }
}

impl<T: Send> Reader<T> {
    pub(super) fn read(&mut self) -> Option<T> {
        let (shared, end) = (&*self.shared, &mut self.end);
        if end.count == end.other {
            // Acquire: pairs with the writer's release: what counts is there.
            let looks = if seeded_bug("spsc_reads_unordered") { Ordering::Relaxed } else { Ordering::Acquire };
            end.other = shared.written.load(looks);
            if end.count == end.other {
                return None;
            }
        }
        // SAFETY: written and not read yet, so the slot is full, and the reader's.
        let value = shared.slots[end.place].with_mut(|slot| unsafe { (*slot).assume_init_read() });
        end.step(shared.slots.len());
        // Release: pairs with the writer's acquire: the value is out before the slot is given back.
        shared.read.store(end.count, Ordering::Release);
        Some(value)
    }

    pub(super) fn len(&self) -> usize {
        // Relaxed: a number that may be old the next moment; what `read` finds is another question.
        (self.shared.written.load(Ordering::Relaxed) - self.end.count) as usize
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn in_order_and_no_more_than_its_room() {
        for capacity in 1..5 {
            let (mut writer, mut reader) = spsc::<Box<u64>>(capacity);
            let (mut sent, mut came) = (0, 0);
            for round in 0..50 {
                for _ in 0..round % 7 {
                    let room = capacity - reader.len();
                    let wrote = writer.write(Box::new(sent));
                    assert_eq!((wrote.is_ok(), wrote.err()), (room > 0, (room == 0).then(|| Box::new(sent))));
                    sent += u64::from(room > 0);
                }
                for _ in 0..round % 5 {
                    if let Some(value) = reader.read() {
                        assert_eq!(*value, came);
                        came += 1;
                    }
                }
            }
            let Passed(written, read, _) = writer.shared.passed();
            assert_eq!((written, read), (sent, came));
        }
    }

    // Values that are left in the ring are dropped with it, once.
    #[test]
    fn the_rest_is_dropped() {
        let counted = Arc::new(());
        let (mut writer, mut reader) = spsc(3);
        for _ in 0..5 {
            let _ = writer.write(counted.clone());
            drop(reader.read());
        }
        (0..4).for_each(|_| drop(writer.write(counted.clone())));
        assert_eq!(Arc::strong_count(&counted), 4);
        drop(writer);
        assert!(reader.read().is_some());
        drop(reader);
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model {
    use super::*;
    use crate::prim::model::{check, thread};

    // S3-53, S3-93: one writer, one reader, room for two: every value once, in order; slots are used again only when they are empty.
    #[test]
    fn model_spsc_hands_over_slots() {
        check(3, || {
            let (mut writer, mut reader) = spsc::<Box<u32>>(2);
            let other = thread::spawn(move || {
                let mut sent = 0;
                for _ in 0..4 {
                    sent += u32::from(writer.write(Box::new(sent)).is_ok());
                }
                sent
            });
            let mut came = 0;
            for _ in 0..3 {
                if let Some(value) = reader.read() {
                    assert_eq!(*value, came);
                    came += 1;
                }
            }
            let sent = other.join().unwrap();
            while let Some(value) = reader.read() {
                assert_eq!(*value, came);
                came += 1;
            }
            assert_eq!(came, sent);
        });
    }
}
