//! The timers of one worker: who wants to be woken when, earliest first.
//!
//! Above: the worker's loop, which asks for the next deadline before it sleeps and takes out what has expired when it wakes;
//! and the waits, whose stack holds the [`Timer`] nodes. Below: nothing. Only the owning worker touches any of this, so
//! there is no atomic in it.
//!
//! ```text
//!   entries (16 bytes each: deadline, node), a heap with four children per parent
//!   place  0 1 2 [3]   [4 5 6 7]   [8 9 10 11]  ...         one bracket = one cache line of 64 bytes
//!               root    its four    the children of place 4
//! ```
//!
//! * Four children share a line, so a step down costs one cache miss, and the tree is half as deep as a binary one.
//! * A node knows the place of its entry, so that it can be taken out from the middle. (Keeping the places in a dense table instead, away
//!   from the stacks that the nodes lie on, was tried: no gain at 10,000 or 100,000 timers, since these are stores nobody waits for.)
//! * Equal deadlines come out in the order in which they were set: under a virtual clock almost all deadlines are equal, and a
//!   run must be repeatable. The order is in the nodes, which are looked at only when deadlines are equal.
//!
//! Invariants: for every place `p` in use, the node of `entry(p)` is alive and its `place` is `p`; no entry is before its parent; a
//! node that is in no heap has the place `NONE`. Warm, nothing is allocated: memory is kept, and given back only when
//! large and mostly unused.

use std::cell::Cell;
use std::ptr::NonNull;

/// The place of a node that is in no heap.
const NONE: u32 = u32::MAX;
/// Children of a parent: as many entries as a cache line holds.
const ARITY: usize = 4;
/// The place of the earliest entry: three, so that every group of children starts a cache line.
const ROOT: usize = 3;
/// Below this many entries (1 MiB of them) memory is never given back: a worker that often has timers stays warm.
const SHRINK_ABOVE: usize = 1 << 16;

/// A timer that a waiter sets: lives with the waiter, usually on its stack.
///
/// `waiter`, `ticket` and `arm` mean nothing here: whoever sets the timer leaves in them what whoever handles its expiry must
/// know (whom to wake, for which wait, as which arm).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Timer {
    pub(crate) waiter: Cell<*const ()>,
    pub(crate) ticket: Cell<u64>,
    deadline: Cell<u64>,
    /// How many timers were set in its heap before it.
    order: Cell<u64>,
    place: Cell<u32>,
    pub(crate) arm: Cell<u8>,
}

impl Timer {
    pub(crate) const fn new(waiter: *const (), ticket: u64, arm: u8) -> Self {
        Self {
            waiter: Cell::new(waiter),
            ticket: Cell::new(ticket),
            deadline: Cell::new(0),
            order: Cell::new(0),
            place: Cell::new(NONE),
            arm: Cell::new(arm),
        }
    }

    /// Whether the timer is in a heap, that is, set and neither removed nor expired. For the owning worker only.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.place.get() != NONE
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    deadline: u64,
    node: NonNull<Timer>,
}

impl Entry {
    const UNUSED: Self = Self { deadline: 0, node: NonNull::dangling() };

    /// # Safety
    /// Both entries are in the heap, or were until just now: their nodes are alive.
    #[inline(always)]
    unsafe fn before(&self, other: &Self) -> bool {
        if self.deadline == other.deadline {
            // SAFETY: alive, says the caller.
            return unsafe { self.node.as_ref().order.get() < other.node.as_ref().order.get() };
        }
        self.deadline < other.deadline
    }
}

/// The entries of one cache line: the children of one parent.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([Entry; ARITY]);

const _: () = assert!(size_of::<Entry>() == 16 && size_of::<Line>() == 64);

#[inline(always)]
fn parent(place: usize) -> usize {
    place / ARITY + 2
}

#[inline(always)]
fn first_child(place: usize) -> usize {
    (place - 2) * ARITY
}

/// The timers of one worker. See the head of this file.
pub(crate) struct Timers {
    lines: Vec<Line>,
    /// The place after the last entry; `ROOT` when there are none.
    end: usize,
    /// The deadline of the entry at the root, `u64::MAX` when there are none: one load decides the common case.
    earliest: u64,
    next_order: u64,
}

// SAFETY: the store is moved to its worker's thread before use; the nodes it points to are only reached through `unsafe`
// methods, whose callers promise to be the owning worker.
unsafe impl Send for Timers {}

impl std::fmt::Debug for Timers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timers").field("len", &self.len()).field("next_deadline", &self.next_deadline()).finish()
    }
}

impl Timers {
    pub(crate) const fn new() -> Self {
        Self { lines: Vec::new(), end: ROOT, earliest: u64::MAX, next_order: 0 }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.end - ROOT
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.end == ROOT
    }

    /// When the next timer is due.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        if self.is_empty() { None } else { Some(self.earliest) }
    }

    /// Sets `timer` to expire at `deadline`.
    ///
    /// # Safety
    /// The caller is the owning worker. The timer is in no heap, and it stays where it is and alive until [`Self::remove`] was called
    /// for it or [`Self::pop_expired`] returned it.
    pub(crate) unsafe fn insert(&mut self, timer: NonNull<Timer>, deadline: u64) {
        // SAFETY: the caller vouches for the node.
        let node = unsafe { timer.as_ref() };
        assert!(!node.is_set(), "fibra: a timer was set twice");
        if self.end >= self.lines.len() * ARITY {
            self.grow();
        }
        node.deadline.set(deadline);
        node.order.set(self.next_order);
        self.next_order += 1;
        self.end += 1;
        // SAFETY: `end - 1` is in use now, and all places before it are; the node is alive.
        unsafe { self.sift_up(self.end - 1, ROOT, Entry { deadline, node: timer }) };
        self.earliest = self.entry(ROOT).deadline;
    }

    /// Takes `timer` out. False if it was not set, because it expired or was never inserted.
    ///
    /// # Safety
    /// The caller is the owning worker, and the timer, if set, was inserted here.
    pub(crate) unsafe fn remove(&mut self, timer: NonNull<Timer>) -> bool {
        // SAFETY: a set timer is alive (contract of `insert`); one that is not set belongs to the caller.
        let place = unsafe { timer.as_ref() }.place.get() as usize;
        if place == NONE as usize {
            return false;
        }
        assert!(
            place < self.end && self.entry(place).node == timer,
            "fibra: a timer was removed from another worker's heap"
        );
        // SAFETY: the place is in use.
        unsafe { self.take_out(place) };
        true
    }

    /// Takes out the earliest timer if it is due at `now`, and never before. Called until it returns `None`, it yields all that are due,
    /// in the order of their deadlines.
    ///
    /// # Safety
    /// The caller is the owning worker. (The pointer is good for as long as the waiter keeps its node.)
    #[inline]
    pub(crate) unsafe fn pop_expired(&mut self, now: u64) -> Option<NonNull<Timer>> {
        if self.earliest > now || self.is_empty() {
            return None;
        }
        // SAFETY: the heap is not empty, so the root is in use.
        Some(unsafe { self.take_out(ROOT) })
    }

    /// Takes the entry at `place` out and closes the gap with the last one.
    ///
    /// # Safety
    /// `place` is in use.
    unsafe fn take_out(&mut self, place: usize) -> NonNull<Timer> {
        let node = self.entry(place).node;
        // SAFETY: the node is in the heap, so it is alive (contract of `insert`).
        unsafe { node.as_ref() }.place.set(NONE);

        self.end -= 1;
        if place != self.end {
            let last = self.entry(self.end);
            // SAFETY: `place` is still in use, since it is not the last one, and so is everything before `end`. The node of `last` is
            // alive, since nobody took it out.
            unsafe {
                if place > ROOT && last.before(&self.entry(parent(place))) {
                    self.sift_up(place, ROOT, last);
                } else {
                    self.sift_down(place, last);
                }
            }
        }
        self.earliest = if self.is_empty() { u64::MAX } else { self.entry(ROOT).deadline };
        if self.lines.len() * ARITY > SHRINK_ABOVE && self.len() < self.lines.len() * ARITY / 8 {
            self.shrink();
        }
        node
    }

    #[inline(always)]
    fn entry(&self, place: usize) -> Entry {
        debug_assert!(place < self.lines.len() * ARITY);
        // SAFETY: every caller passes a place below `end` as it was when the call began, which is within `lines`; a line is four
        // entries without padding.
        unsafe { *self.lines.as_ptr().cast::<Entry>().add(place) }
    }

    /// Puts `entry` at `place` and tells its node.
    ///
    /// # Safety
    /// `place` is in use, and the node of `entry` is alive.
    #[inline(always)]
    unsafe fn put(&mut self, place: usize, entry: Entry) {
        debug_assert!(place < self.lines.len() * ARITY);
        // SAFETY: places in use are within `lines`; the node is alive.
        unsafe {
            *self.lines.as_mut_ptr().cast::<Entry>().add(place) = entry;
            entry.node.as_ref().place.set(place as u32);
        }
    }

    /// Moves the gap at `place` towards `top` until `entry` fits into it.
    ///
    /// # Safety
    /// All places up to `place` are in use, and `top` is an ancestor of `place` or `place` itself; the node of `entry` is alive.
    #[inline(always)]
    unsafe fn sift_up(&mut self, mut place: usize, top: usize, entry: Entry) {
        // SAFETY: every place on the way is in use, so the nodes of the entries there are alive.
        unsafe {
            while place > top {
                let above = self.entry(parent(place));
                if !entry.before(&above) {
                    break;
                }
                self.put(place, above);
                place = parent(place);
            }
            self.put(place, entry);
        }
    }

    /// Moves the gap at `place` down to a leaf, always to the earliest child, and puts `entry` where it belongs on the way
    /// back. The last entry almost always belongs near the leaves, so this saves a comparison on every level.
    ///
    /// # Safety
    /// All places up to `end` are in use; the node of `entry` is alive.
    #[inline]
    unsafe fn sift_down(&mut self, top: usize, entry: Entry) {
        let mut place = top;
        while first_child(place) < self.end {
            // SAFETY: `place` has a child; both are in use, and so the child's node is alive.
            unsafe {
                let child = self.earliest_child(place);
                self.put(place, self.entry(child));
                place = child;
            }
        }
        // SAFETY: `place` is a descendant of `top`, in use like everything before it; the caller vouches for the node.
        unsafe { self.sift_up(place, top, entry) };
    }

    /// # Safety
    /// All places up to `end` are in use, and `place` has a child.
    #[inline(always)]
    unsafe fn earliest_child(&self, place: usize) -> usize {
        let first = first_child(place);
        // SAFETY: only places before `end` are compared; the nodes of their entries are alive.
        let before = |a: usize, b: usize| unsafe { self.entry(a).before(&self.entry(b)) };
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
        self.lines.resize(lines, Line([Entry::UNUSED; ARITY]));
    }

    /// Gives memory back, keeping room for about twice what is in use.
    #[cold]
    fn shrink(&mut self) {
        self.lines.truncate(self.lines.len() / 4);
        self.lines.shrink_to_fit();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::prim::random::Rng;
    use std::collections::BTreeMap;
    use std::ptr;

    fn timer() -> Box<Timer> {
        Box::new(Timer::new(ptr::null(), 0, 0))
    }

    impl Timers {
        /// Every invariant of the file's head, looked up one by one.
        fn check(&self) {
            for place in ROOT..self.end {
                let entry = self.entry(place);
                // SAFETY: the tests keep the nodes of what is in the heap.
                unsafe {
                    let node = entry.node.as_ref();
                    assert_eq!((node.place.get() as usize, node.deadline.get()), (place, entry.deadline));
                    assert!(place == ROOT || !entry.before(&self.entry(parent(place))));
                }
            }
            assert_eq!(self.earliest, if self.is_empty() { u64::MAX } else { self.entry(ROOT).deadline });
        }
    }

    #[test]
    fn children_share_a_cache_line_and_know_their_parent() {
        for place in ROOT..5000 {
            let first = first_child(place);
            assert_eq!(first % ARITY, 0);
            assert!((first..first + ARITY).all(|child| parent(child) == place));
        }
        let mut timers = Timers::new();
        timers.grow();
        assert_eq!(timers.lines.as_ptr() as usize % 64, 0);
    }

    /// Random insertions, removals and expiries against a sorted map. `span` decides how many deadlines are equal.
    fn against_reference(seed: u64, steps: usize, span: usize, population: usize) {
        let mut rng = Rng::from_seed(seed);
        let mut timers = Timers::new();
        let nodes: Vec<_> = (0..population).map(|_| timer()).collect();
        let mut reference: BTreeMap<(u64, u64), usize> = BTreeMap::new();
        let mut keys: Vec<Option<(u64, u64)>> = vec![None; population];
        let mut now = 0u64;
        let mut order = 0u64;
        for step in 0..steps {
            let which = rng.below(population);
            let node = NonNull::from(&*nodes[which]);
            match (rng.below(8), keys[which]) {
                (0..=4, None) => {
                    let deadline = now + rng.below(span) as u64;
                    order += 1;
                    keys[which] = Some((deadline, order));
                    reference.insert((deadline, order), which);
                    // SAFETY: the node is boxed, outlives the heap, and is not in it, since it has no key.
                    unsafe { timers.insert(node, deadline) };
                }
                (0..=4, Some(key)) => {
                    keys[which] = None;
                    reference.remove(&key);
                    // SAFETY: the node is in this heap.
                    assert!(unsafe { timers.remove(node) });
                }
                // SAFETY: a node that is not set may be asked for.
                (5, None) => assert!(!unsafe { timers.remove(node) }),
                _ => {
                    now += rng.below(span / 8 + 2) as u64;
                    loop {
                        let due =
                            reference.first_key_value().map(|(&key, &which)| (key, which)).filter(|due| due.0.0 <= now);
                        // SAFETY: this thread owns the heap, and the nodes outlive it.
                        let popped = unsafe { timers.pop_expired(now) };
                        assert_eq!(
                            popped,
                            due.map(|(_, which)| NonNull::from(&*nodes[which])),
                            "seed {seed} step {step}"
                        );
                        let Some((key, which)) = due else { break };
                        assert!(!nodes[which].is_set());
                        reference.remove(&key);
                        keys[which] = None;
                    }
                }
            }
            assert_eq!(timers.len(), reference.len());
            assert_eq!(timers.next_deadline(), reference.first_key_value().map(|(key, _)| key.0));
            if step % 512 == 0 {
                timers.check();
            }
        }
        timers.check();
    }

    #[test]
    fn agrees_with_a_sorted_map() {
        for seed in 0..8 {
            against_reference(seed, 20_000, 1 << 20, 2000);
            against_reference(seed, 20_000, 5, 300);
            against_reference(seed, 2_000, 3, 7);
        }
    }

    #[test]
    fn never_early_and_equal_deadlines_in_order() {
        let mut timers = Timers::new();
        let nodes: Vec<_> = (0..1000).map(|_| timer()).collect();
        for node in &nodes {
            // SAFETY: boxed, and they outlive the heap.
            unsafe { timers.insert(NonNull::from(&**node), 10) };
        }
        timers.check();
        // SAFETY: this thread owns the heap.
        unsafe {
            assert_eq!(timers.pop_expired(9), None);
            for node in &nodes {
                assert_eq!(timers.pop_expired(10), Some(NonNull::from(&**node)));
            }
            assert_eq!(timers.pop_expired(u64::MAX), None);
        }
    }

    #[test]
    fn a_deadline_at_the_end_of_time_is_kept() {
        let mut timers = Timers::new();
        let (never, soon) = (timer(), timer());
        // SAFETY: boxed, they outlive the heap, and this thread owns it.
        unsafe {
            timers.insert(NonNull::from(&*never), u64::MAX);
            timers.insert(NonNull::from(&*soon), 0);
            assert_eq!(timers.next_deadline(), Some(0));
            assert_eq!(timers.pop_expired(0), Some(NonNull::from(&*soon)));
            assert_eq!(timers.next_deadline(), Some(u64::MAX));
            assert_eq!(timers.pop_expired(u64::MAX - 1), None);
            assert!(timers.remove(NonNull::from(&*never)));
            assert_eq!(timers.next_deadline(), None);
        }
    }

    #[test]
    fn warm_memory_is_kept_and_large_unused_memory_given_back() {
        let mut timers = Timers::new();
        let nodes: Vec<_> = (0..300_000).map(|_| timer()).collect();
        let fill = |timers: &mut Timers, count: usize| {
            for (deadline, node) in nodes[..count].iter().enumerate() {
                // SAFETY: boxed, and they outlive the heap.
                unsafe { timers.insert(NonNull::from(&**node), (deadline as u64 * 7919) % 100_003) };
            }
        };
        let empty = |timers: &mut Timers, down_to: usize| {
            let mut last = 0;
            while timers.len() > down_to {
                // SAFETY: this thread owns the heap.
                let popped = unsafe { timers.pop_expired(u64::MAX).unwrap().as_ref() };
                assert!(popped.deadline.get() >= last);
                last = popped.deadline.get();
            }
        };
        fill(&mut timers, 10_000);
        let warm = (timers.lines.as_ptr(), timers.lines.capacity());
        for _ in 0..3 {
            empty(&mut timers, 0);
            fill(&mut timers, 10_000);
        }
        assert_eq!(warm, (timers.lines.as_ptr(), timers.lines.capacity()));
        empty(&mut timers, 0);
        fill(&mut timers, 300_000);
        let large = timers.lines.capacity();
        empty(&mut timers, 20_000);
        assert!(timers.lines.capacity() <= large / 4, "{} of {large}", timers.lines.capacity());
        timers.check();
        for node in &nodes {
            // SAFETY: the node is in this heap or not set.
            unsafe { timers.remove(NonNull::from(&**node)) };
        }
        timers.check();
        assert!(timers.is_empty());
    }

    /// Prints what a timer costs; asserts nothing about it, since the machine may be busy.
    #[test]
    #[allow(clippy::disallowed_types)] // A stopwatch.
    fn figures() {
        /// One node per 4 KiB page, as on fibers' stacks.
        #[repr(align(4096))]
        struct Page(Timer);
        fn run<T>(label: &str, nodes: Vec<T>, get: impl Fn(&T) -> &Timer) {
            let mut rng = Rng::from_seed(1);
            let mut timers = Timers::new();
            for round in ["cold", "warm"] {
                let start = std::time::Instant::now();
                for node in &nodes {
                    // SAFETY: the nodes outlive the heap and do not move.
                    unsafe { timers.insert(NonNull::from(get(node)), rng.next_u64() >> 1) };
                }
                let insert = start.elapsed().as_nanos() as f64 / nodes.len() as f64;
                let start = std::time::Instant::now();
                // SAFETY: this thread owns the heap.
                while unsafe { timers.pop_expired(u64::MAX) }.is_some() {}
                let pop = start.elapsed().as_nanos() as f64 / nodes.len() as f64;
                println!("{label} {:>8} {round}: insert {insert:.0} ns, pop {pop:.0} ns", nodes.len());
            }
        }
        let new = || Timer::new(ptr::null(), 0, 0);
        run("dense  ", (0..100_000).map(|_| new()).collect(), |node| node);
        run("dense  ", (0..1_000_000).map(|_| new()).collect(), |node| node);
        run("stacks ", (0..100_000).map(|_| Page(new())).collect(), |page| &page.0);
    }
}
