//! The unstarted, stealable work of one worker: a growable deque of which the owner takes the newest end and thieves the oldest.
//!
//! The algorithm is that of Chase and Lev. `top` and `bottom` are positions that count up for ever (64 bits do not wrap); the items
//! are those in `top..bottom`, item `i` in slot `i & mask` of the current buffer. The owner moves `bottom`; `top` moves by
//! compare-exchange only, by thieves, or by the owner when it takes the oldest item or the only one.
//!
//! Why an item is taken once:
//! * An owner's pop first lowers `bottom` by a SeqCst swap and then looks at `top`; a thief first looks at `top`, then at `bottom`, and
//!   then moves `top`, all SeqCst. If the owner saw a `top` below its item, any thief that reaches that item looked at
//!   `bottom` after the swap, and saw that the item is gone. If the owner saw `top` at its item, it competes for it like a thief; and if
//!   it saw that before it lowered `bottom`, it does so at once, and `bottom` stays.
//! * A thief reads the two words of a slot before it moves `top`, without any lock. The words may belong to different items, or be
//!   overwritten meanwhile, but a slot is reused only after the owner saw `top` pass it (acquire), and then the thief's
//!   compare-exchange fails and what it read is thrown away.
//!
//! Half of a victim's items are taken one compare-exchange at a time: to move `top` by several at once would be wrong, since
//! the owner takes items above its view of `top` without touching `top`.
//!
//! A full buffer is replaced by one twice as large. The old one is never written again and is kept until the deque is dropped,
//! because a thief may still read from it: the sum of all old ones is less than the current one. Nothing is allocated once the
//! largest backlog has been seen. The memory of large buffers goes back to the system when the owner, which finds the deque empty, says so:
//! their slots read as zero then, as if the owner had written that. The owner may do so: every slot of an empty deque is free to be
//! written, because the thread that takes the last item, owner or thief, moves `top`, so that the compare-exchange of every thief that
//! looked before fails.
//!
//! Publication: what the owner wrote before `push` is seen by a thief through `bottom` (release in `push`, acquire in the thief's
//! look). As to sleepers: `push` itself is no handshake. Every successful pop is (a SeqCst read-modify-write of `bottom`, or for
//! the oldest or only item of `top`), so "push, push, pop, look for sleepers" is; an empty pop makes none, and leaves no surplus.

use std::fmt;
use std::ptr;

use super::Entry;
use crate::prim::CacheLine;
use crate::prim::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, handshake_load_u64};
use crate::prim::bug::seeded_bug;

/// Slots of the first buffer: 4 KiB. Tiny under the model checkers, so that they see growth.
const FIRST_CAPACITY: usize = if cfg!(any(loom, shuttle)) { 2 } else { 256 };

/// Slots of a buffer that is large: 64 KiB.
#[cfg(not(any(loom, shuttle)))]
const FAT: usize = 4096;

pub(crate) struct Fresh {
    /// The position of the oldest item. Written by thieves.
    top: CacheLine<AtomicU64>,
    owner: CacheLine<OwnerSide>,
}

/// What only the owner writes.
struct OwnerSide {
    /// One past the position of the newest item.
    bottom: AtomicU64,
    buffer: AtomicPtr<Buffer>,
    /// `bottom` when the memory of the buffers went back last.
    #[cfg(not(any(loom, shuttle)))]
    given_back: AtomicU64,
}

/// The newest item as its owner saw it: where it lies, and where the oldest one lay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newest {
    pub(crate) entry: Entry,
    position: u64,
    top: u64,
}

/// What became of an attempt to steal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Steal {
    /// There was nothing to take.
    Empty,
    /// Another thread was quicker; there may be more. Go on to the next victim rather than wait.
    Retry,
    /// The oldest item, to be run now; `more` further ones are in the thief's own deque.
    Stolen { first: Entry, more: usize },
}

impl Fresh {
    pub(crate) fn new() -> Self {
        let buffer = Box::into_raw(Buffer::new(FIRST_CAPACITY, ptr::null_mut()));
        Self {
            top: CacheLine(AtomicU64::new(0)),
            owner: CacheLine(OwnerSide {
                bottom: AtomicU64::new(0),
                buffer: AtomicPtr::new(buffer),
                #[cfg(not(any(loom, shuttle)))]
                given_back: AtomicU64::new(0),
            }),
        }
    }

    /// Puts an item at the newest end.
    ///
    /// # Safety
    /// The caller is the only owner thread of this deque at this time.
    #[inline]
    pub(crate) unsafe fn push(&self, entry: Entry) {
        // Relaxed: only the owner writes `bottom` and `buffer`.
        let bottom = self.owner.bottom.load(Ordering::Relaxed);
        // Acquire: pairs with the compare-exchange of the thread that took the slot's previous item; it has read the slot.
        let top = self.top.load(Ordering::Acquire);
        // SAFETY: the current buffer lives as long as the deque.
        let mut buffer = unsafe { &*self.owner.buffer.load(Ordering::Relaxed) };
        if bottom - top >= buffer.capacity() {
            // SAFETY: the caller is the owner.
            buffer = unsafe { self.grow(top, bottom) };
        }
        buffer.write(bottom, entry);
        // Release: pairs with the looks at `bottom` of thieves; publishes the slot, the buffer and what the entry points to.
        let published = if seeded_bug("fresh_push_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.owner.bottom.store(bottom + 1, published);
    }

    /// Moves everything to a buffer twice as large.
    #[cold]
    unsafe fn grow(&self, top: u64, bottom: u64) -> &Buffer {
        // Relaxed: only the owner writes `buffer`.
        let old = self.owner.buffer.load(Ordering::Relaxed);
        // SAFETY: buffers live as long as the deque.
        let old_buffer = unsafe { &*old };
        let new = Buffer::new(old_buffer.slots.len() * 2, old);
        let first_kept = if seeded_bug("fresh_grow_forgets") { top + 1 } else { top };
        for position in first_kept..bottom {
            new.write(position, old_buffer.read(position));
        }
        let new = Box::into_raw(new);
        // Release: pairs with the acquire of thieves, which then find the slots copied.
        self.owner.buffer.store(new, Ordering::Release);
        // SAFETY: just made, and freed only with the deque.
        unsafe { &*new }
    }

    /// Has it large buffers that were used since their memory went back? For the owner.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn is_fat(&self) -> bool {
        // Relaxed, all: only the owner writes `buffer`, `bottom` and `given_back`.
        // SAFETY: the current buffer lives as long as the deque.
        let buffer = unsafe { &*self.owner.buffer.load(Ordering::Relaxed) };
        buffer.slots.len() >= FAT
            && self.owner.given_back.load(Ordering::Relaxed) != self.owner.bottom.load(Ordering::Relaxed)
    }

    /// Gives the memory of large buffers back to the system, if the deque is empty: see the header.
    ///
    /// # Safety
    /// The caller is the only owner thread of this deque at this time.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) unsafe fn give_back(&self) {
        if !self.is_empty() || !self.is_fat() {
            return;
        }
        // Relaxed, all: as above.
        self.owner.given_back.store(self.owner.bottom.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut buffer = self.owner.buffer.load(Ordering::Relaxed);
        // SAFETY: buffers live as long as the deque.
        while let Some(Buffer { slots, previous }) = unsafe { buffer.as_ref() } {
            if slots.len() >= FAT {
                // SAFETY: atomics, for which every content is as good as any other while the deque is empty.
                unsafe { crate::fiber::stack::discard_within(slots.as_ptr().cast_mut().cast(), size_of_val(&**slots)) };
            }
            buffer = *previous;
        }
    }

    /// The newest item, for the owner to take with [`take`](Self::take) or to leave there.
    ///
    /// # Safety
    /// The caller is the only owner thread of this deque at this time.
    #[inline]
    pub(crate) unsafe fn newest(&self) -> Option<Newest> {
        // Relaxed: only the owner writes `bottom`; `top` only grows, so an old value never claims emptiness wrongly.
        let bottom = self.owner.bottom.load(Ordering::Relaxed);
        let top = self.top.load(Ordering::Relaxed);
        (top < bottom).then(|| Newest { entry: self.read_owned(bottom - 1), position: bottom - 1, top })
    }

    /// Takes the newest item, which the owner has just looked at, unless a thief has been quicker.
    ///
    /// # Safety
    /// The caller is the only owner thread of this deque at this time, and has not changed it since [`newest`](Self::newest).
    #[inline]
    pub(crate) unsafe fn take(&self, newest: Newest) -> bool {
        let Newest { position, top, .. } = newest;
        if top == position {
            // The only one: taken at the thieves' end, in one step.
            return self.take_last(position);
        }
        // SeqCst, and a read-modify-write: first half of the handshake with thieves (see the header), and with sleepers (see
        // `idle.rs`).
        let top = if seeded_bug("fresh_pop_store") {
            self.owner.bottom.store(position, Ordering::Relaxed);
            self.top.load(Ordering::Relaxed)
        } else {
            self.owner.bottom.swap(position, Ordering::SeqCst);
            handshake_load_u64(&self.top)
        };
        top < position || self.take_raced(top, position)
    }

    /// Takes the only item by moving `top`.
    #[inline]
    fn take_last(&self, position: u64) -> bool {
        if seeded_bug("fresh_last_unclaimed") {
            self.top.store(position + 1, Ordering::SeqCst);
            return true;
        }
        // SeqCst: like a thief's, and the first half of the handshake with sleepers. On failure nothing is taken, so Relaxed will do.
        self.top.compare_exchange(position, position + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Thieves came as far as the item at `position` while the owner lowered `bottom` to it. What happens next happens at `top`, and
    /// `bottom` goes back above it. A thief that sees the lowered value takes nothing; one that sees this one finds `top` equal to it.
    #[cold]
    #[inline(never)]
    fn take_raced(&self, top: u64, position: u64) -> bool {
        let taken = top == position && (seeded_bug("fresh_raced_unclaimed") || self.take_last(position));
        // Release: a thief that reads this value must see the same as one that read it when `push` wrote it.
        self.owner.bottom.store(position + 1, Ordering::Release);
        taken
    }

    /// Takes the newest item.
    ///
    /// # Safety
    /// The caller is the only owner thread of this deque at this time.
    #[inline]
    pub(crate) unsafe fn pop_newest(&self) -> Option<Entry> {
        // SAFETY: passed on.
        let newest = unsafe { self.newest()? };
        // SAFETY: passed on; looked at just now.
        unsafe { self.take(newest) }.then_some(newest.entry)
    }

    /// Takes the oldest item: the owner at the thieves' end, for fairness.
    ///
    /// # Safety
    /// The caller is the only owner thread of this deque at this time.
    pub(crate) unsafe fn pop_oldest(&self) -> Option<Entry> {
        // Relaxed: only the owner writes `bottom`, and only thieves' progress makes `top` stale, which the compare-exchange finds.
        let bottom = self.owner.bottom.load(Ordering::Relaxed);
        let mut top = self.top.load(Ordering::Relaxed);
        while top < bottom {
            let entry = self.read_owned(top);
            // SeqCst: like a thief's, and the first half of the handshake with sleepers.
            match self.top.compare_exchange(top, top + 1, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return Some(entry),
                Err(now) => top = now,
            }
        }
        None
    }

    /// Takes `entry` back if it is the newest item and no thief has stolen it: for a joiner that runs inline what it offered.
    /// Looks before it takes, so that a sleeper never sees the deque empty while it is not.
    ///
    /// # Safety
    /// The caller is the only owner thread of this deque at this time.
    #[inline]
    pub(crate) unsafe fn take_newest_if(&self, entry: Entry) -> bool {
        // SAFETY: passed on.
        let Some(newest) = (unsafe { self.newest() }) else { return false };
        if newest.entry != entry {
            return false;
        }
        if seeded_bug("fresh_take_back_unclaimed") {
            self.owner.bottom.store(newest.position, Ordering::SeqCst);
            return true;
        }
        // SAFETY: passed on; looked at just now.
        unsafe { self.take(newest) }
    }

    /// Steals up to half of the items, at most `max`, oldest first: the first is returned, the others go to `mine` in the same order.
    /// Never waits: a lost race for the first item is `Retry`, for a later one the end.
    ///
    /// # Safety
    /// The caller is the only owner thread of `mine` at this time, and `mine` is not `self`.
    pub(crate) unsafe fn steal_half_into(&self, mine: &Fresh, max: usize) -> Steal {
        debug_assert!(!ptr::eq(self, mine), "a worker steals from itself"); // S0-75
        let (first, left) = match self.steal_one() {
            Ok(Some(stolen)) => stolen,
            Ok(None) => return Steal::Empty,
            Err(Contended) => return Steal::Retry,
        };
        // Half of all, rounded up, is one and half of the rest, rounded down.
        let wanted = (left / 2).min(max.saturating_sub(1) as u64) as usize;
        let mut more = 0;
        while more < wanted {
            let Ok(Some((entry, _))) = self.steal_one() else { break };
            // SAFETY: the caller owns `mine`.
            unsafe { mine.push(entry) };
            more += 1;
        }
        Steal::Stolen { first, more }
    }

    /// Takes the oldest item, as a thief, and says how many were left behind.
    fn steal_one(&self) -> Result<Option<(Entry, u64)>, Contended> {
        // SeqCst, all three: see the header. Their acquire halves pair with the releases of `push` and `grow`. (No `handshake_load_u64`
        // for `bottom`, which is written by plain stores too: loom would let the imitated read-modify-write undo one. The
        // owner's look at `top` is one, and that is enough for loom.)
        let top = self.top.load(Ordering::SeqCst);
        let bottom = self.owner.bottom.load(Ordering::SeqCst);
        if top >= bottom {
            return Ok(None);
        }
        // Acquire: pairs with `grow`. Read after `bottom`, so it is at least the buffer in which the item was put.
        // SAFETY: buffers live as long as the deque.
        let buffer = unsafe { &*self.owner.buffer.load(Ordering::Acquire) };
        let entry = buffer.read(top);
        // Relaxed on failure: what was read is thrown away.
        match self.top.compare_exchange(top, top + 1, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => Ok(Some((entry, bottom - top - 1))),
            Err(_) => Err(Contended),
        }
    }

    /// Reads a slot as the owner, which has written it.
    #[inline(always)]
    fn read_owned(&self, position: u64) -> Entry {
        // Relaxed: only the owner writes `buffer`.
        // SAFETY: buffers live as long as the deque.
        unsafe { &*self.owner.buffer.load(Ordering::Relaxed) }.read(position)
    }

    /// How many items there are, roughly if the caller is not the owner.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Relaxed: an estimate; nothing is taken on the strength of it.
        let top = self.top.load(Ordering::Relaxed);
        self.owner.bottom.load(Ordering::Relaxed).saturating_sub(top) as usize
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The look of a worker that has announced its sleep (a SeqCst read-modify-write): either this sees an item, or the owner, when
    /// it looks for sleepers after its next pop, sees the announcement.
    pub(crate) fn is_empty_handshake(&self) -> bool {
        // SeqCst: second half of the handshake. `top` first: if it is the owner that moved it (`pop_oldest`), then its earlier pushes
        // are seen in `bottom`.
        let top = self.top.load(Ordering::SeqCst);
        self.owner.bottom.load(Ordering::SeqCst) <= top
    }

    /// The position of the oldest item, if there is one, and whether it is a sole entry.
    ///
    /// No two items that are oldest in turn have the same position: the thread that takes the oldest, even if it is the last, moves
    /// `top`. So a thief that sees the same position twice knows that the item has been there for all the time between, and `push` need not
    /// read a clock.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<(u64, bool)> {
        // Relaxed: a hint for the thief, which looks again when it steals.
        let top = self.top.load(Ordering::Relaxed);
        if self.owner.bottom.load(Ordering::Relaxed) <= top {
            return None;
        }
        // Acquire: pairs with `grow`, which has made the slots of the buffer before.
        // SAFETY: buffers live as long as the deque.
        let buffer = unsafe { &*self.owner.buffer.load(Ordering::Acquire) };
        Some((top, buffer.read(top).is_sole()))
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // Relaxed: `&mut self` says that no other thread has a reference, and the way it was obtained has ordered their accesses.
        let mut buffer = self.owner.buffer.load(Ordering::Relaxed);
        while !buffer.is_null() {
            // SAFETY: made by `Box::into_raw`, reachable from here only, and each is in this chain once.
            let owned = unsafe { Box::from_raw(buffer) };
            buffer = owned.previous;
        }
    }
}

impl fmt::Debug for Fresh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fresh").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// A thief lost the race for an item.
struct Contended;

/// A ring of slots, and the smaller one it replaced.
struct Buffer {
    /// A power of two of them.
    slots: Box<[RingSlot]>,
    previous: *mut Buffer,
}

/// An entry as two words, each read and written whole. That both belong together is what the compare-exchange on `top` proves.
struct RingSlot {
    frame: AtomicUsize,
    ticket: AtomicU64,
}

impl Buffer {
    fn new(capacity: usize, previous: *mut Buffer) -> Box<Self> {
        debug_assert!(capacity.is_power_of_two());
        let slots = (0..capacity).map(|_| RingSlot { frame: AtomicUsize::new(0), ticket: AtomicU64::new(0) }).collect();
        Box::new(Self { slots, previous })
    }

    #[inline(always)]
    fn capacity(&self) -> u64 {
        self.slots.len() as u64
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> &RingSlot {
        let index = position as usize & (self.slots.len() - 1);
        // SAFETY: the length is a power of two (`new`), so masking with one less gives an index below it.
        unsafe { self.slots.get_unchecked(index) }
    }

    #[inline(always)]
    fn write(&self, position: u64, entry: Entry) {
        let slot = self.slot(position);
        // Relaxed, here and in `read`: published by `bottom`, validated by `top`.
        slot.frame.store(entry.frame, Ordering::Relaxed);
        slot.ticket.store(entry.ticket, Ordering::Relaxed);
    }

    #[inline(always)]
    fn read(&self, position: u64) -> Entry {
        let slot = self.slot(position);
        // Relaxed: see `write`.
        Entry { frame: slot.frame.load(Ordering::Relaxed), ticket: slot.ticket.load(Ordering::Relaxed) }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
// SAFETY (all of them): in these tests the thread that made a deque, or the one named as its owner, is the only one to call its
// owner operations.
#[allow(clippy::undocumented_unsafe_blocks)]
mod tests {
    use super::*;
    use crate::prim::atomic::AtomicU32;

    fn entry(ticket: u64) -> Entry {
        Entry { frame: !(ticket as usize), ticket }
    }

    fn filled(count: u64) -> Fresh {
        let deque = Fresh::new();
        (0..count).for_each(|ticket| unsafe { deque.push(entry(ticket)) });
        deque
    }

    #[test]
    fn both_ends_in_order_and_growth() {
        let count = 10 * FIRST_CAPACITY as u64;
        let deque = filled(count);
        assert_eq!(deque.len() as u64, count);
        for step in 0..count / 2 {
            assert_eq!(unsafe { deque.pop_newest() }, Some(entry(count - 1 - step)));
            assert_eq!(deque.oldest(), Some((step, entry(step).is_sole())));
            assert_eq!(unsafe { deque.pop_oldest() }, Some(entry(step)));
        }
        assert!(deque.is_empty() && deque.is_empty_handshake() && deque.oldest().is_none());
        unsafe {
            assert_eq!((deque.pop_newest(), deque.pop_oldest()), (None, None));
            deque.push(entry(5));
            assert!(!deque.is_empty_handshake());
            assert_eq!(deque.pop_newest(), Some(entry(5)));
        }
    }

    // The age gate: the position of the oldest item is never used again, not even when the last item goes from the newest end.
    #[test]
    fn the_oldest_position_is_new_for_every_item() {
        let deque = Fresh::new();
        let mut last = None;
        for round in 0..100 {
            unsafe { deque.push(entry(round)) };
            let position = deque.oldest().map(|(position, _)| position);
            assert!(position > last, "{position:?} after {last:?}");
            last = position;
            let popped = unsafe { if round % 3 == 0 { deque.pop_oldest() } else { deque.pop_newest() } };
            assert_eq!(popped, Some(entry(round)));
        }
    }

    #[test]
    fn taking_back_takes_only_the_newest() {
        let deque = filled(2);
        unsafe {
            assert!(!deque.take_newest_if(entry(0)), "not at the newest end");
            assert_eq!(deque.len(), 2);
            assert!(deque.take_newest_if(entry(1)));
            assert!(deque.take_newest_if(entry(0)), "the last one");
            assert!(!deque.take_newest_if(entry(0)), "the deque is empty, though the slot still holds it");
        }
    }

    // C-13: half, oldest first, to the thief's own deque; S0-77.
    #[test]
    fn half_is_stolen_from_the_old_end() {
        let (victim, mine) = (filled(9), Fresh::new());
        unsafe {
            assert_eq!(victim.steal_half_into(&mine, 32), Steal::Stolen { first: entry(0), more: 4 });
            assert_eq!((victim.len(), mine.len()), (4, 4));
            assert_eq!((mine.pop_oldest(), mine.pop_newest()), (Some(entry(1)), Some(entry(4))));
            assert_eq!(victim.steal_half_into(&mine, 1), Steal::Stolen { first: entry(5), more: 0 });
            assert_eq!(victim.steal_half_into(&mine, 32), Steal::Stolen { first: entry(6), more: 1 });
            assert_eq!(victim.steal_half_into(&mine, 32), Steal::Stolen { first: entry(8), more: 0 });
            assert_eq!(victim.steal_half_into(&mine, 32), Steal::Empty);
        }
        let victim = filled(1000);
        assert_eq!(unsafe { victim.steal_half_into(&mine, 32) }, Steal::Stolen { first: entry(0), more: 31 });
    }

    // S0-76: there is nothing in a deque that one could wait for: no lock, only atomics, and a thief that loses the race for an item is
    // told so (`Retry`), which `steal_from` takes for "nothing here": it looks elsewhere.
    #[test]
    fn a_deque_has_no_lock() {
        let Fresh { top: CacheLine(top), owner: CacheLine(OwnerSide { bottom, buffer, given_back }) } = &Fresh::new();
        let _: (&AtomicU64, &AtomicU64, &AtomicPtr<Buffer>, &AtomicU64) = (top, bottom, buffer, given_back);
    }

    // One owner that pushes, pops and takes back, two thieves: nothing lost, nothing twice, no torn entry. Small backlogs, so that
    // the race for the last item happens all the time, and large ones, so that buffers grow under the thieves.
    #[test]
    fn nothing_is_lost_or_taken_twice() {
        const ITEMS: u64 = 200_000;
        let victim = Fresh::new();
        let seen: Vec<AtomicU32> = (0..ITEMS).map(|_| AtomicU32::new(0)).collect();
        let done = AtomicU32::new(0);
        let note = |found: Entry| {
            assert_eq!(found, entry(found.ticket), "torn");
            seen[found.ticket as usize].fetch_add(1, Ordering::Relaxed);
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mine = Fresh::new();
                    loop {
                        // Looked at before the attempt: after the owner is done, one that finds nothing is the last.
                        let last = done.load(Ordering::Acquire) == 1;
                        match unsafe { victim.steal_half_into(&mine, 32) } {
                            Steal::Stolen { first, more } => {
                                note(first);
                                assert_eq!(mine.len(), more);
                                while let Some(found) = unsafe { mine.pop_oldest() } {
                                    note(found);
                                }
                            }
                            Steal::Empty if last => break,
                            Steal::Empty => std::thread::yield_now(),
                            Steal::Retry => {}
                        }
                    }
                });
            }
            let mut rng = crate::prim::policy::Rng::from_seed(11);
            let mut pushed = 0;
            while pushed < ITEMS {
                let burst = if rng.below(100) == 0 { 3 * FIRST_CAPACITY } else { 1 + rng.below(3) };
                for _ in 0..burst.min((ITEMS - pushed) as usize) {
                    unsafe { victim.push(entry(pushed)) };
                    pushed += 1;
                }
                match rng.below(4) {
                    0 if unsafe { victim.take_newest_if(entry(pushed - 1)) } => note(entry(pushed - 1)),
                    0 => {}
                    1 => unsafe { victim.pop_oldest() }.into_iter().for_each(note),
                    _ => (0..rng.below(4)).filter_map(|_| unsafe { victim.pop_newest() }).for_each(note),
                }
            }
            done.store(1, Ordering::Release);
        });
        assert!(seen.iter().all(|n| n.load(Ordering::Relaxed) == 1));
    }
}

#[cfg(all(test, any(loom, shuttle)))]
// SAFETY (all of them): in these models the main thread is the only owner of `deque`, each thief of its own deque.
#[allow(clippy::undocumented_unsafe_blocks)]
mod model {
    use super::*;
    use crate::prim::model::{check, thread};
    use crate::prim::sync::Arc;

    fn entry(ticket: u64) -> Entry {
        Entry { frame: !(ticket as usize), ticket }
    }

    /// A thief that tries `attempts` times and returns all it got.
    fn thief(deque: &Arc<Fresh>, attempts: usize) -> thread::JoinHandle<Vec<Entry>> {
        let deque = deque.clone();
        thread::spawn(move || {
            let mine = Fresh::new();
            let mut got = Vec::new();
            for _ in 0..attempts {
                if let Steal::Stolen { first, .. } = unsafe { deque.steal_half_into(&mine, 2) } {
                    got.push(first);
                    got.extend(std::iter::from_fn(|| unsafe { mine.pop_oldest() }));
                }
            }
            got
        })
    }

    /// Asserts that the items `0..count` are all there, once each, and none is torn.
    fn assert_all(mut got: Vec<Entry>, deque: &Fresh, count: u64) {
        got.extend(std::iter::from_fn(|| unsafe { deque.pop_newest() }));
        got.sort_by_key(|found| found.ticket);
        assert_eq!(got, (0..count).map(entry).collect::<Vec<_>>());
    }

    // S0-79, S0-82: owner and thief meet at the last items.
    #[test]
    fn model_owner_pop_against_steal() {
        check(3, || {
            let deque = Arc::new(Fresh::new());
            unsafe {
                deque.push(entry(0));
                deque.push(entry(1));
            }
            let thief = thief(&deque, 2);
            let mut got: Vec<Entry> = (0..2).filter_map(|_| unsafe { deque.pop_newest() }).collect();
            got.extend(thief.join().unwrap());
            assert_all(got, &deque, 2);
        });
    }

    #[test]
    fn model_last_item() {
        check(3, || {
            let deque = Arc::new(Fresh::new());
            unsafe { deque.push(entry(0)) };
            let thieves = [thief(&deque, 1), thief(&deque, 1)];
            let mut got: Vec<Entry> = unsafe { deque.pop_newest() }.into_iter().collect();
            got.extend(thieves.into_iter().flat_map(|thief| thief.join().unwrap()));
            assert_all(got, &deque, 1);
        });
    }

    // The buffer (2 slots) is replaced while a thief reads from it, and slots are used again.
    #[test]
    fn model_growth_against_steal() {
        check(3, || {
            let deque = Arc::new(Fresh::new());
            unsafe { deque.push(entry(0)) };
            let thief = thief(&deque, 2);
            unsafe {
                (1..4).for_each(|ticket| deque.push(entry(ticket)));
            }
            let mut got: Vec<Entry> = unsafe { deque.pop_oldest() }.into_iter().collect();
            got.extend(thief.join().unwrap());
            assert_all(got, &deque, 4);
        });
    }

    // S1-25, S1-42, S4-113, S4-114: what the owner wrote before the push is seen by the thief.
    #[test]
    fn model_push_publishes() {
        check(3, || {
            let deque = Arc::new(Fresh::new());
            let frame = Arc::new(AtomicU64::new(0));
            let other = {
                let (deque, frame) = (deque.clone(), frame.clone());
                thread::spawn(move || {
                    if let Steal::Stolen { first, .. } = unsafe { deque.steal_half_into(&Fresh::new(), 1) } {
                        assert_eq!(first, entry(9));
                        assert_eq!(frame.load(Ordering::Relaxed), 1, "the frame's contents were not published");
                    }
                })
            };
            frame.store(1, Ordering::Relaxed);
            unsafe { deque.push(entry(9)) };
            other.join().unwrap();
        });
    }

    // A joiner takes back what it offered, or a thief has it: never both, never neither.
    #[test]
    fn model_take_back_against_steal() {
        check(3, || {
            let deque = Arc::new(Fresh::new());
            unsafe { deque.push(entry(0)) };
            let thief = thief(&deque, 1);
            let taken = unsafe { deque.take_newest_if(entry(0)) };
            let mut got = thief.join().unwrap();
            got.extend(taken.then(|| entry(0)));
            assert_all(got, &deque, 1);
            // And the deque still works.
            unsafe { deque.push(entry(1)) };
            assert_eq!(unsafe { deque.pop_newest() }, Some(entry(1)));
        });
    }
}
