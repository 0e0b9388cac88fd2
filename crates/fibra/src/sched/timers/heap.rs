//! The timers of one worker, a heap with the earliest deadline first.
//!
//! Above: the worker's loop, which asks for the next deadline before it sleeps and takes out expired timers when it wakes;
//! and the waits, which keep a [`Timer`] to take their timer back with. Below: nothing. Only the owning worker touches the
//! heap, so there is no atomic in it.
//!
//! ```text
//!   entries (16 bytes each: deadline, order, slot), a heap with four children per parent
//!   place  0 1 2 [3]   [4 5 6 7]   [8 9 10 11]  ...         one bracket = one cache line of 64 bytes
//!               root    its four    the children of place 4
//!                 │
//!   slots (what for, generation), in no order, the free ones in a list
//! ```
//!
//! * Four children share a line, so a step down costs one cache miss, and the tree is half as deep as a binary one.
//! * An entry that moves in the heap touches nothing but the heap: no slot, and nothing on the stacks of the waiters. What expiry
//!   has to know is copied into the slot. (Before, each moved entry wrote its new place into a node on its waiter's stack: with 100,000
//!   sleepers a fifth of all CPU. Most of that was waiting for the stack's memory, which resuming the fiber now waits for instead.)
//! * So an entry cannot be taken out of the middle. A removed timer leaves a dead entry behind, which is dropped when it gets to the
//!   root, or when more than half of the entries are dead: then all dead ones are, in one pass. Each such pass is paid for by
//!   as many removals before it, so that a removal costs O(1) on average, or O(log n) if it empties the root.
//! * Equal deadlines come out in the order in which they were set: under a virtual clock almost all deadlines are equal, and a
//!   run must be repeatable.
//!
//! Invariants:
//! * no entry is before its parent; the root's timer is set (never dead), so that the worker does not wake for a removed timer;
//! * every entry has a slot of its own, which is `Set` or `Dead`; all other slots are `Free` and in the list;
//! * the number of `Dead` slots is `dead`; at most half of the entries are dead, or there are fewer than `COMPACT_FROM`: memory is bounded
//!   by the live timers;
//! * of 2^32 timers set one after the other no two have the same generation.
//!
//! A warm heap allocates nothing: memory is kept, and given back only when it is large and mostly unused. Entries can move for
//! that; slots cannot, since the waiters know their numbers: the table of slots is cut behind the last one in use.

use crate::prim::prefetch;

/// No slot: the end of the list of free ones.
const NONE: u32 = u32::MAX;
/// Children of a parent: as many entries as a cache line holds.
const ARITY: usize = 4;
/// The place of the earliest entry: three, so that every group of children starts a cache line.
const ROOT: usize = 3;
/// With fewer entries than this, dead ones may stay until they get to the root: it is not worth a pass.
const COMPACT_FROM: usize = 64;
/// Below this many entries (1 MiB of them, 2 MiB of slots) memory is never given back: a worker that often has timers stays warm.
const SHRINK_ABOVE: usize = 1 << 16;

/// A timer that was set: what its setter needs to take it back. Just a name; the timer does not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timer {
    slot: u32,
    generation: u32,
}

/// What a slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content<P> {
    /// It is in the list of free slots, before `next`.
    Free { next: u32 },
    /// Its entry is in the heap; what the timer is for.
    Set(P),
    /// Its entry is in the heap, but the timer was removed.
    Dead,
}

#[derive(Clone, Copy)]
struct TimerSlot<P> {
    content: Content<P>,
    /// How many timers were set in this store before this one: tells the timer from those that had the slot before. Wraps: a waiter would
    /// have to keep a timer that has fired while exactly 2^32 others are set.
    generation: u32,
}

impl<P> TimerSlot<P> {
    fn is_dead(&self) -> bool {
        matches!(self.content, Content::Dead)
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct TimerEntry {
    deadline: u64,
    /// The order among equal deadlines, above the slot: one number, so that entries are compared without a branch.
    order_and_slot: u64,
}

impl TimerEntry {
    const UNUSED: Self = Self { deadline: 0, order_and_slot: 0 };

    #[inline(always)]
    fn new(deadline: u64, order: u32, slot: u32) -> Self {
        Self { deadline, order_and_slot: (order as u64) << 32 | slot as u64 }
    }

    #[inline(always)]
    fn slot(self) -> u32 {
        self.order_and_slot as u32
    }

    #[inline(always)]
    fn key(self) -> u128 {
        (self.deadline as u128) << 64 | self.order_and_slot as u128
    }

    /// No two entries have the same order, so the slot never decides.
    #[inline(always)]
    fn before(self, other: Self) -> bool {
        self.key() < other.key()
    }
}

/// The entries of one cache line: the children of one parent.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([TimerEntry; ARITY]);

const _: () = assert!(size_of::<TimerEntry>() == 16 && size_of::<Line>() == 64);

#[inline(always)]
fn parent(place: usize) -> usize {
    place / ARITY + 2
}

#[inline(always)]
fn first_child(place: usize) -> usize {
    (place - 2) * ARITY
}

/// The timers of one worker. See the head of this file. `P` says what a timer is for: it means nothing here.
pub(crate) struct Timers<P> {
    lines: Vec<Line>,
    /// The place after the last entry; `ROOT` when there are none.
    end: usize,
    /// The deadline of the entry at the root, `u64::MAX` when there are none: one load decides the common case.
    earliest: u64,
    slots: Vec<TimerSlot<P>>,
    /// The first free slot.
    free: u32,
    /// How many entries are dead.
    dead: usize,
    next_order: u32,
    next_generation: u32,
    /// How many entries were dropped since the slots were last cut.
    dropped: usize,
}

impl<P: Copy> std::fmt::Debug for Timers<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timers").field("len", &self.len()).field("next_deadline", &self.next_deadline()).finish()
    }
}

impl<P: Copy> Timers<P> {
    pub(crate) const fn new() -> Self {
        Self {
            lines: Vec::new(),
            end: ROOT,
            earliest: u64::MAX,
            slots: Vec::new(),
            free: NONE,
            dead: 0,
            next_order: 0,
            next_generation: 0,
            dropped: 0,
        }
    }

    /// How many timers are set.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries() - self.dead
    }

    /// Whether no timer is set. (The root is never dead: without a live entry there is none at all.)
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.end == ROOT
    }

    /// Entries in the heap, dead ones included.
    #[inline]
    fn entries(&self) -> usize {
        self.end - ROOT
    }

    /// When the next timer is due.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        if self.is_empty() { None } else { Some(self.earliest) }
    }

    /// Sets a timer to expire at `deadline`; [`Self::pop_expired`] will return `purpose` then, unless it was removed.
    pub(crate) fn insert(&mut self, deadline: u64, purpose: P) -> Timer {
        if self.end >= self.lines.len() * ARITY {
            self.grow();
        }
        if self.next_order == u32::MAX {
            self.renumber();
        }
        let generation = self.next_generation;
        self.next_generation = generation.wrapping_add(1);
        let order = self.next_order;
        self.next_order += 1;

        let mut slot = self.free;
        let filled = TimerSlot { content: Content::Set(purpose), generation };
        if slot == NONE {
            slot = self.slots.len() as u32;
            self.slots.push(filled);
        } else {
            let free = &mut self.slots[slot as usize];
            let Content::Free { next } = free.content else { unreachable!("the list has free slots only") };
            self.free = next;
            *free = filled;
        }
        self.end += 1;
        self.sift_up(self.end - 1, ROOT, TimerEntry::new(deadline, order, slot));
        self.earliest = self.entry(ROOT).deadline;
        Timer { slot, generation }
    }

    /// Takes a timer of this store back. False if it has expired or was removed before.
    pub(crate) fn remove(&mut self, timer: Timer) -> bool {
        match self.slots.get_mut(timer.slot as usize) {
            Some(slot) if slot.generation == timer.generation && matches!(slot.content, Content::Set(_)) => {
                slot.content = Content::Dead;
            }
            _ => return false,
        }
        self.dead += 1;
        if self.dead * 2 > self.entries() || self.entry(ROOT).slot() == timer.slot {
            self.clear_dead();
            self.settle();
        }
        true
    }

    /// Takes out the earliest timer if it is due at `now`, and never before. Called until it returns `None`, it yields all that are due,
    /// in the order of their deadlines.
    #[inline]
    pub(crate) fn pop_expired(&mut self, now: u64) -> Option<P> {
        if self.earliest > now || self.is_empty() {
            return None;
        }
        let slot = self.entry(ROOT).slot();
        let Content::Set(purpose) = self.slots[slot as usize].content else { unreachable!("the root is never dead") };
        self.drop_root();
        if self.dead > 0 {
            self.clear_dead();
        }
        self.settle();
        Some(purpose)
    }

    /// What the timers are for that are set, in no order.
    pub(crate) fn purposes(&self) -> impl Iterator<Item = P> {
        self.slots.iter().filter_map(|slot| match slot.content {
            Content::Set(purpose) => Some(purpose),
            Content::Free { .. } | Content::Dead => None,
        })
    }

    /// Restores that the root is not dead, and that not too many entries are.
    fn clear_dead(&mut self) {
        if self.dead * 2 > self.entries() && self.entries() >= COMPACT_FROM {
            return self.compact();
        }
        while !self.is_empty() && self.slots[self.entry(ROOT).slot() as usize].is_dead() {
            self.dead -= 1;
            self.drop_root();
        }
    }

    /// Drops all dead entries, and makes a heap of the others.
    #[cold]
    fn compact(&mut self) {
        let mut kept = ROOT;
        for place in ROOT..self.end {
            let entry = self.entry(place);
            if self.slots[entry.slot() as usize].is_dead() {
                self.free_slot(entry.slot());
            } else {
                self.put(kept, entry);
                kept += 1;
            }
        }
        self.end = kept;
        self.dead = 0;
        if self.entries() > 1 {
            for place in (ROOT..=parent(self.end - 1)).rev() {
                self.sift_down(place, self.entry(place));
            }
        }
    }

    /// Takes the root out and closes the gap with the last entry. There is one.
    #[inline]
    fn drop_root(&mut self) {
        self.free_slot(self.entry(ROOT).slot());
        self.end -= 1;
        if self.end > ROOT {
            self.sift_down(ROOT, self.entry(self.end));
            // One of the root's children is the next to be dropped: its slot is in the cache by then.
            for place in first_child(ROOT)..self.end.min(first_child(ROOT) + ARITY) {
                prefetch(self.slots.as_ptr().wrapping_add(self.entry(place).slot() as usize).cast());
            }
        }
    }

    #[inline]
    fn free_slot(&mut self, slot: u32) {
        self.slots[slot as usize].content = Content::Free { next: self.free };
        self.free = slot;
        self.dropped += 1;
    }

    /// After entries were dropped: notes the new root, and gives memory back if there is much too much of it.
    #[inline]
    fn settle(&mut self) {
        if self.is_empty() {
            self.earliest = u64::MAX;
            // All slots are free: the next timers take them in their order in memory.
            self.slots.clear();
            self.free = NONE;
        } else {
            self.earliest = self.entry(ROOT).deadline;
        }
        let entries = self.entries();
        let much_unused = |places: usize| places > SHRINK_ABOVE && entries < places / 8;
        if much_unused(self.lines.len() * ARITY) {
            self.shrink_heap();
        }
        // A cut looks at all slots, and finds the last one in use perhaps at the very end: so a quarter of their number has to have come
        // free before the next.
        if much_unused(self.slots.capacity()) && self.dropped >= self.slots.len() / 4 {
            self.cut_slots();
        }
    }

    #[inline(always)]
    fn entry(&self, place: usize) -> TimerEntry {
        debug_assert!(place < self.lines.len() * ARITY);
        // SAFETY: every caller passes a place below `end` as it was when the call began, which is within `lines`; a line is four
        // entries without padding.
        unsafe { *self.lines.as_ptr().cast::<TimerEntry>().add(place) }
    }

    #[inline(always)]
    fn put(&mut self, place: usize, entry: TimerEntry) {
        debug_assert!(place < self.lines.len() * ARITY);
        // SAFETY: as in `entry`.
        unsafe { *self.lines.as_mut_ptr().cast::<TimerEntry>().add(place) = entry }
    }

    /// Moves the gap at `place` towards `top`, an ancestor of it or itself, until `entry` fits into it.
    #[inline(always)]
    fn sift_up(&mut self, mut place: usize, top: usize, entry: TimerEntry) {
        while place > top {
            let above = self.entry(parent(place));
            if !entry.before(above) {
                break;
            }
            self.put(place, above);
            place = parent(place);
        }
        self.put(place, entry);
    }

    /// Moves the gap at `place` down to a leaf, always to the earliest child, and puts `entry` where it belongs on the way
    /// back. The last entry almost always belongs near the leaves, so this saves a comparison on every level.
    #[inline]
    fn sift_down(&mut self, top: usize, entry: TimerEntry) {
        let mut place = top;
        while first_child(place) < self.end {
            // Which child it will be is not known yet; but the children of all four lie side by side, in four lines.
            let grandchildren = self.lines.as_ptr().wrapping_add(first_child(place) - 2);
            for line in 0..ARITY {
                prefetch(grandchildren.wrapping_add(line).cast());
            }
            let child = self.earliest_child(place);
            self.put(place, self.entry(child));
            place = child;
        }
        self.sift_up(place, top, entry);
    }

    /// The earliest child of `place`, which has one.
    #[inline(always)]
    fn earliest_child(&self, place: usize) -> usize {
        let first = first_child(place);
        let before = |a: usize, b: usize| self.entry(a).before(self.entry(b));
        if first + ARITY <= self.end {
            // A knockout of two rounds, without branches: which child is earliest cannot be predicted.
            let left = first + before(first + 1, first) as usize;
            let right = first + 2 + before(first + 3, first + 2) as usize;
            left + (right - left) * before(right, left) as usize
        } else {
            (first + 1..self.end).fold(first, |best, other| if before(other, best) { other } else { best })
        }
    }

    /// Makes room: twice as many places.
    #[cold]
    fn grow(&mut self) {
        let lines = if self.lines.is_empty() { 16 } else { self.lines.len() * 2 };
        assert!(lines * ARITY < NONE as usize, "fibra: more timers than a worker can hold");
        self.lines.reserve_exact(lines - self.lines.len());
        self.lines.resize(lines, Line([TimerEntry::UNUSED; ARITY]));
    }

    /// After 2^32 timers: numbers the entries anew, from nought, in the order in which they are due. (Sorted, they are a heap.)
    #[cold]
    fn renumber(&mut self) {
        let places: &mut [Line] = &mut self.lines;
        // SAFETY: a line is four entries without padding, so these are all places; nothing else refers to them meanwhile.
        let places =
            unsafe { std::slice::from_raw_parts_mut(places.as_mut_ptr().cast::<TimerEntry>(), places.len() * ARITY) };
        let entries = &mut places[ROOT..self.end];
        entries.sort_unstable_by_key(|entry| entry.key());
        for (order, entry) in entries.iter_mut().enumerate() {
            *entry = TimerEntry::new(entry.deadline, order as u32, entry.slot());
        }
        self.next_order = entries.len() as u32;
    }

    /// Gives memory of the heap back, keeping room for about twice what is in use.
    #[cold]
    fn shrink_heap(&mut self) {
        self.lines.truncate(self.lines.len() / 4);
        self.lines.shrink_to_fit();
    }

    /// Cuts the table behind the last slot in use, and links the free ones so that the foremost are used first.
    #[cold]
    fn cut_slots(&mut self) {
        let used = self
            .slots
            .iter()
            .rposition(|slot| !matches!(slot.content, Content::Free { .. }))
            .map_or(0, |last| last + 1);
        self.slots.truncate(used);
        self.slots.shrink_to(SHRINK_ABOVE);
        self.free = NONE;
        for (number, slot) in self.slots.iter_mut().enumerate().rev() {
            if matches!(slot.content, Content::Free { .. }) {
                slot.content = Content::Free { next: self.free };
                self.free = number as u32;
            }
        }
        self.dropped = 0;
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
