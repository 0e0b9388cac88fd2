//! A loop of tape: a ring of fixed-size entries that its owner writes without read-modify-writes, over the oldest, and that any thread may
//! copy meanwhile.
//!
//! Above: `sched::flight`, where each worker notes what it does. Below: the atomics.
//!
//! The protocol is that of a sequence lock whose sequence number is the count of entries:
//!
//! ```text
//!  owner                                        reader
//!  W1 the words of entry n        (release)     R1 written = h                       (acquire)
//!  W2 written = n + 1             (release)     R2 the words of entries h - LEN .. h (acquire)
//!                                               R3 written = h' (acquire): entries up to h' - LEN are thrown away
//! ```
//!
//! * An entry below `h` is complete: R1 has read W2, or a later one.
//! * Entry `n` is written over by entry `n + LEN` only, whose first word is written after W2 has stored `n + LEN`. If R2 reads a word of
//!   it, the release of that word makes R3 see `n + LEN` or more, and `n` is thrown away. So what is kept is whole, and one entry less
//!   than there is room for is kept when the tape is full.
//!
//! All of it is atomics: a second writer would spoil entries, and nothing worse.

use std::array;

use crate::prim::atomic::{AtomicU64, Ordering};
use crate::prim::bug::seeded_bug;

/// Words of an entry: a cache line.
pub(crate) const WORDS: usize = if cfg!(loom) { 2 } else { 8 };
/// Entries of a tape: 2 MiB. Few for the models, so that the tape goes round.
pub(crate) const LEN: usize = if cfg!(loom) { 2 } else { 1 << 15 };

/// One entry, as it is read.
pub(crate) type TapeEntry = [u64; WORDS];

#[derive(Debug)]
#[repr(align(64))]
struct TapeSlot([AtomicU64; WORDS]);

/// See the header.
#[derive(Debug)]
pub(crate) struct Tape {
    slots: Box<[TapeSlot; LEN]>,
    /// How many entries were written since the tape was made.
    written: AtomicU64,
}

/// What was copied from a tape.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    /// The oldest first.
    pub(crate) entries: Vec<TapeEntry>,
    /// How many entries were written before these, and are lost.
    pub(crate) lost: u64,
}

impl Tape {
    pub(crate) fn new() -> Self {
        let slots: Vec<TapeSlot> = (0..LEN).map(|_| TapeSlot(array::from_fn(|_| AtomicU64::new(0)))).collect();
        let slots = slots.into_boxed_slice().try_into();
        let Ok(slots) = slots else { unreachable!("so many were made") };
        Self { slots, written: AtomicU64::new(0) }
    }

    /// The owner writes an entry; words that are not given keep what was there before, and are not to be read.
    #[inline(always)]
    pub(crate) fn write<const GIVEN: usize>(&self, words: [u64; GIVEN]) {
        const { assert!(GIVEN <= WORDS) }
        // Relaxed: the owner's own.
        let at = self.written.load(Ordering::Relaxed);
        let slot = &self.slots[at as usize % LEN];
        // Release: pairs with the acquire loads of words in `copy`; a reader of the word then sees that entry `at` is being written.
        let order = if seeded_bug("tape_word_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        for (place, word) in slot.0.iter().zip(words) {
            place.store(word, order);
        }
        // Release: pairs with the first load in `copy`; the entry is complete.
        let order = if seeded_bug("tape_count_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.written.store(at + 1, order);
    }

    /// What is on the tape now. From any thread; the owner is not held up.
    pub(crate) fn copy(&self) -> Copied {
        // Acquire: pairs with the release of the count in `write`.
        let until = self.written.load(Ordering::Acquire);
        let from = until.saturating_sub(LEN as u64);
        let copy = |at: u64| -> TapeEntry {
            let slot = &self.slots[at as usize % LEN];
            // Acquire: pairs with the release of the words in `write`.
            array::from_fn(|word| slot.0[word].load(Ordering::Acquire))
        };
        let mut entries: Vec<TapeEntry> = (from..until).map(copy).collect();
        // Acquire: comes after the words; see the header.
        let now = self.written.load(Ordering::Acquire);
        let kept_from = if seeded_bug("tape_unchecked") { from } else { (now + 1).saturating_sub(LEN as u64) };
        let overwritten = kept_from.saturating_sub(from).min(until - from);
        entries.drain(..overwritten as usize);
        Copied { entries, lost: from + overwritten }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::{LEN, Tape};

    #[test]
    fn a_tape_keeps_the_newest() {
        let tape = Tape::new();
        assert!(tape.copy().entries.is_empty());
        for number in 0..LEN as u64 + 10 {
            tape.write([number, number]);
        }
        let copied = tape.copy();
        assert_eq!(copied.lost, 11, "ten were written over, and the next one could have been");
        assert_eq!(copied.entries.len(), LEN - 1);
        assert!(copied.entries.iter().zip(11..).all(|(entry, number)| entry[0] == number && entry[1] == number));
    }
}

#[cfg(all(test, loom))]
mod model {
    use std::sync::Arc;

    use super::Tape;
    use crate::prim::model::{check, thread};

    /// What is copied while the owner writes round after round is whole, and the entry that it is taken for. (The owner is the thread that
    /// loom lets run first. Otherwise its look at its own count hides the reader's from loom, which then tries nothing else.)
    #[test]
    fn model_a_copy_is_whole() {
        check(3, || {
            let tape = Arc::new(Tape::new());
            let reader = {
                let tape = tape.clone();
                thread::spawn(move || {
                    let copied = tape.copy();
                    for (entry, number) in copied.entries.iter().zip(copied.lost + 1..) {
                        assert_eq!(*entry, [number, number], "torn, or another entry than it is taken for");
                    }
                })
            };
            (1..=4).for_each(|number| tape.write([number, number]));
            reader.join().unwrap();
            assert_eq!(tape.copy().entries.last(), Some(&[4, 4]), "what was written last is there");
        });
    }
}
