//! The injector: work that comes from outside the workers. Many producers, many consumers, unbounded, in order.
//!
//! Two tiers. A ring of [`RING`] slots, each with a sequence number that says whose turn it is, needs no lock; when it is full, a
//! list under a lock takes the rest. So a push never fails and never waits for room; it may wait for the lock, which is held for
//! at most [`REFILL`] moves.
//!
//! Order (S1-35): while the list is not empty every push goes to the list, and consumers take from the ring as long as it has
//! something. So the items in the ring are older than those in the list, and the ring runs dry, and the list gets its turn, after at
//! most as many items as the ring holds, plus one for each producer that looked just before the list came into use. What one thread
//! pushes, or two threads that synchronise, comes out in the order in which it went in:
//! * both in the ring: positions are given out in order;
//! * ring, then list: a consumer takes from the list, under the lock, only after it has seen the ring empty, under the same lock;
//! * list, then list: a deque;
//! * list, then ring: the producer saw `listed` at 0, so the earlier item had been moved or taken: `listed` falls only
//!   after the moved items have their positions in the ring.
//!
//! Linearisation: a push takes effect when it moves `tail` (ring) or raises `listed` (list); a pop when it moves `head` (ring) or
//! takes the front of the list under the lock. A pop that answers `None` saw list and ring empty, in that order (items move from the
//! list to the ring and never back), or met a producer that has its position but has not filled its slot yet; in that case `is_empty`
//! says false, and the worker does not go to sleep.
//!
//! Happens-before: the producer writes the slot and then stores its sequence number (release); the consumer reads that number
//! (acquire) and then the slot. So the consumer of an entry sees what the producer wrote before the push. For the list the lock
//! does the same; an item moved to the ring by a third thread inherits it, lock first, slot second.
//!
//! Above: `reach.rs`, which pushes, and `search.rs`, where workers pop. Below: `prim` only; the entries are opaque here.

use std::collections::VecDeque;
use std::fmt;

use super::Entry;
use super::fresh::Fresh;
use crate::prim::CacheLine;
use crate::prim::atomic::{AtomicU64, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::cell::UnsafeCell;
use crate::prim::sync::Mutex;

/// Slots of the ring. Tiny under the model checkers, so that they see the list.
pub(crate) const RING: usize = if cfg!(any(loom, shuttle)) { 8 } else { 4096 };

/// How many items one consumer moves from the list to the ring while it holds the lock.
const REFILL: usize = if cfg!(any(loom, shuttle)) { 1 } else { 128 };

/// The places that an empty list keeps: 64 KiB.
const KEPT: usize = 4096;

/// The largest share that a worker takes at once.
const SHARE_MAX: usize = 32;

/// Looks at a slot whose producer is not ready before the time slice is given away.
const SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 64 };

pub(crate) struct Injector {
    ring: Ring,
    /// How many items are in the list. Changed under the lock only.
    listed: CacheLine<AtomicU64>,
    list: Mutex<VecDeque<Entry>>,
    overflows: AtomicU64,
}

impl Injector {
    pub(crate) fn new() -> Self {
        Self::with_ring(RING)
    }

    /// An injector whose ring has `capacity` slots, a power of two and at least 2.
    pub(crate) fn with_ring(capacity: usize) -> Self {
        Self {
            ring: Ring::new(capacity),
            listed: CacheLine(AtomicU64::new(0)),
            list: Mutex::new(VecDeque::new()),
            overflows: AtomicU64::new(0),
        }
    }

    /// Puts an item at the end. Never fails and never waits for a consumer.
    ///
    /// The first half of the handshake with sleepers: the caller then asks `Idle` for a worker to wake.
    pub(crate) fn push(&self, entry: Entry) {
        // Acquire: if an earlier item of this thread left the list, it has its position in the ring before ours.
        let listed = self.listed.load(Ordering::Acquire);
        if (listed == 0 || seeded_bug("injector_ring_first")) && self.ring.push(entry) {
            return;
        }
        self.push_to_list(entry);
    }

    #[cold]
    fn push_to_list(&self, entry: Entry) {
        // Relaxed: a statistic.
        self.overflows.fetch_add(1, Ordering::Relaxed);
        let mut list = self.list.lock();
        list.push_back(entry);
        // SeqCst: first half of the handshake with the sleeper's `is_empty_handshake`.
        self.listed.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes the oldest item. `None` does not prove emptiness (see the header); a worker that wants to sleep asks `is_empty_handshake`.
    pub(crate) fn pop(&self) -> Option<Entry> {
        loop {
            if self.is_empty() {
                return None;
            }
            match self.ring.pop() {
                Popped::Item(entry) => return Some(entry),
                Popped::Unfinished => return None,
                Popped::Empty => {}
            }
            match self.pop_from_list() {
                Popped::Item(entry) => return Some(entry),
                Popped::Unfinished => return None,
                // Another consumer has emptied the list since `is_empty` looked, so the queue as a whole has made progress.
                Popped::Empty => {}
            }
        }
    }

    /// Takes the front of the list, and moves some of what follows to the ring, where it can be had without the lock.
    #[cold]
    fn pop_from_list(&self) -> Popped {
        let mut list = self.list.lock();
        if !seeded_bug("injector_no_second_look") {
            // Another consumer may have refilled the ring before we got the lock; what it put there is older.
            match self.ring.pop() {
                Popped::Empty => {}
                found => return found,
            }
        }
        let Some(first) = list.pop_front() else { return Popped::Empty };
        let mut gone = 1;
        if seeded_bug("injector_early_count") {
            self.listed.store(0, Ordering::SeqCst);
        }
        for _ in 0..REFILL {
            let Some(&entry) = list.front() else { break };
            if !self.ring.push(entry) {
                break;
            }
            list.pop_front();
            gone += 1;
        }
        // Release: pairs with the acquire in `push` and `is_empty`; a thread that sees the list shrunk sees what was moved to the ring.
        if seeded_bug("injector_early_count") {
            self.listed.store(list.len() as u64, Ordering::SeqCst);
        } else {
            self.listed.fetch_sub(gone, Ordering::AcqRel);
        }
        // The consumer that takes the last item of a flood gives back the memory of the list.
        let unused =
            if list.is_empty() && list.capacity() > KEPT { std::mem::take(&mut *list) } else { VecDeque::new() };
        drop(list);
        drop(unused);
        Popped::Item(first)
    }

    /// Takes this worker's fair share, a `workers`-th of all, at least one and at most [`SHARE_MAX`] items: the oldest is returned,
    /// with how many they are, the others go to `into`. S0-68.
    ///
    /// # Safety
    /// The caller is the only owner thread of `into` at this time.
    pub(crate) unsafe fn pop_share(&self, into: &Fresh, workers: usize) -> Option<(Entry, u64)> {
        let share = (self.len() / workers.max(1)).clamp(1, SHARE_MAX);
        let first = self.pop()?;
        let mut taken = 1;
        for _ in 1..share {
            let Some(entry) = self.pop() else { break };
            // SAFETY: the caller owns `into`.
            unsafe { into.push(entry) };
            taken += 1;
        }
        Some((first, taken))
    }

    /// How many items there are, roughly.
    pub(crate) fn len(&self) -> usize {
        // Relaxed: an estimate.
        self.listed.load(Ordering::Relaxed) as usize + self.ring.len()
    }

    /// For the hot path: may miss an item that is being pushed at this moment.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // Acquire: pairs with the release in `pop_from_list`; the list is looked at before the ring, since items move that way.
        self.listed.load(Ordering::Acquire) == 0 && self.ring.len() == 0
    }

    /// For a worker that has announced its sleep (a SeqCst read-modify-write): either this call sees a push, or the pusher, when it
    /// looks for sleepers, sees the announcement.
    pub(crate) fn is_empty_handshake(&self) -> bool {
        // SeqCst: second half of the handshake. The list before the ring: as in `is_empty`.
        self.listed.load(Ordering::SeqCst) == 0 && self.ring.is_empty_handshake()
    }

    /// How many pushes found the ring full, or the list in use, since the start.
    pub(crate) fn overflows(&self) -> u64 {
        // Relaxed: a statistic.
        self.overflows.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Injector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Injector").field("len", &self.len()).field("overflows", &self.overflows()).finish()
    }
}

/// The result of an attempt to take an item.
enum Popped {
    Item(Entry),
    Empty,
    /// The oldest position belongs to a producer that has not filled its slot yet.
    Unfinished,
}

/// The first tier: a bounded queue whose slots take turns.
///
/// Slot `position & mask` carries a sequence number: `position` when it waits for the producer of that position, `position + 1`
/// when it waits for its consumer, `position + capacity` when it waits for the producer of the next round.
struct Ring {
    /// The position of the oldest item.
    head: CacheLine<AtomicU64>,
    /// One past the position of the newest item.
    tail: CacheLine<AtomicU64>,
    slots: Box<[RingSlot]>,
}

struct RingSlot {
    sequence: AtomicU64,
    entry: UnsafeCell<Entry>,
}

// SAFETY: `entry` is written by the producer that moved `tail` past the slot's position and read by the consumer that moved `head`
// past it; the sequence number (release and acquire) puts these one after the other.
unsafe impl Sync for Ring {}
// SAFETY: an entry is two numbers; the ring owns its slots.
unsafe impl Send for Ring {}

impl Ring {
    fn new(capacity: usize) -> Self {
        // With one slot, "filled" and "free for the next round" would be the same number.
        assert!(capacity.is_power_of_two() && capacity >= 2);
        let slot = |position| RingSlot {
            sequence: AtomicU64::new(position),
            entry: UnsafeCell::new(Entry { frame: 0, ticket: 0 }),
        };
        Self {
            head: CacheLine(AtomicU64::new(0)),
            tail: CacheLine(AtomicU64::new(0)),
            slots: (0..capacity as u64).map(slot).collect(),
        }
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> &RingSlot {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    /// False if there is no free slot, or its last consumer is not done reading it.
    fn push(&self, entry: Entry) -> bool {
        // Relaxed: a first guess; the compare-exchange finds out.
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(tail);
            // Acquire: pairs with the consumer's release; it has read the slot's last entry.
            let sequence = slot.sequence.load(Ordering::Acquire);
            if sequence < tail {
                return false;
            }
            if sequence > tail {
                // Other producers have moved `tail` since; look again. Relaxed: as above.
                tail = self.tail.load(Ordering::Relaxed);
                continue;
            }
            // SeqCst: first half of the handshake with the sleeper's `is_empty_handshake`. Relaxed on failure: another guess.
            match self.tail.compare_exchange_weak(tail, tail + 1, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => {
                    // SAFETY: the position is ours alone, and the sequence number said that its last consumer is done.
                    slot.entry.with_mut(|place| unsafe { *place = entry });
                    // Release: pairs with the consumer's acquire; publishes the entry and what it points to.
                    let filled =
                        if seeded_bug("injector_slot_relaxed") { Ordering::Relaxed } else { Ordering::Release };
                    slot.sequence.store(tail + 1, filled);
                    return true;
                }
                Err(now) => tail = now,
            }
        }
    }

    fn pop(&self) -> Popped {
        let mut spins = 0;
        // Relaxed: a first guess; the compare-exchange finds out.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(head);
            // Acquire: pairs with the producer's release in `push`.
            let sequence = slot.sequence.load(Ordering::Acquire);
            if sequence == head + 1 {
                // Relaxed: the position gives the right to the slot, the sequence number orders its contents.
                match self.head.compare_exchange_weak(head, head + 1, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => {
                        // SAFETY: the position is ours alone, and the sequence number said that its producer is done.
                        let entry = slot.entry.with(|place| unsafe { *place });
                        // Release: pairs with the acquire of the producer of the next round: we have read.
                        slot.sequence.store(head + self.slots.len() as u64, Ordering::Release);
                        return Popped::Item(entry);
                    }
                    Err(now) => head = now,
                }
                continue;
            }
            // Relaxed: `tail` only grows, and `head` may be old but never ahead, so equality means that everything
            // pushed before (in the sense of happens-before) has been taken.
            if sequence <= head && self.tail.load(Ordering::Relaxed) <= head {
                return Popped::Empty;
            }
            // Either other consumers have moved `head` since, or the slot's producer is between its two steps.
            let now = self.head.load(Ordering::Relaxed);
            if now == head {
                if spins >= SPINS {
                    // The producer has probably been preempted, perhaps by this thread.
                    crate::prim::thread::yield_now();
                    return Popped::Unfinished;
                }
                spins += 1;
                std::hint::spin_loop();
            }
            head = now;
        }
    }

    #[inline]
    fn len(&self) -> usize {
        // Relaxed: an estimate. `head` first, so that the difference is not below what it was at some moment.
        let head = self.head.load(Ordering::Relaxed);
        self.tail.load(Ordering::Relaxed).saturating_sub(head) as usize
    }

    fn is_empty_handshake(&self) -> bool {
        // Relaxed: an old value only makes the ring look fuller.
        let head = self.head.load(Ordering::Relaxed);
        // SeqCst: second half of the handshake; the first is the compare-exchange in `push`.
        self.tail.load(Ordering::SeqCst) <= head
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn entry(frame: usize, ticket: u64) -> Entry {
        Entry { frame, ticket }
    }

    // S1-36: a burst of 100,000 from one thread, without a consumer, neither blocks nor fails; S1-33: the ring has 4096 slots;
    // S1-35: all of it comes out, in order.
    #[test]
    fn a_burst_goes_to_the_list_and_comes_out_in_order() {
        const BURST: u64 = 100_000;
        let injector = Injector::new();
        assert!(injector.is_empty() && injector.is_empty_handshake() && injector.pop().is_none());
        for ticket in 0..BURST {
            injector.push(entry(7, ticket));
        }
        assert_eq!(injector.len() as u64, BURST);
        assert_eq!(injector.overflows(), BURST - RING as u64);
        assert!(!injector.is_empty() && !injector.is_empty_handshake());
        for ticket in 0..BURST {
            assert_eq!(injector.pop(), Some(entry(7, ticket)));
        }
        assert!(injector.is_empty() && injector.is_empty_handshake() && injector.pop().is_none());
        // The list is out of use again: the ring takes over.
        injector.push(entry(7, 0));
        assert_eq!(injector.overflows(), BURST - RING as u64);
    }

    // S1-35: items in the list get their turn although pushes go on.
    #[test]
    fn the_list_is_not_starved_by_new_pushes() {
        let injector = Injector::with_ring(4);
        let mut pushed = 0;
        let mut push = |count: u64| {
            for _ in 0..count {
                injector.push(entry(1, pushed));
                pushed += 1;
            }
        };
        push(20);
        for popped in 0..10_000 {
            assert_eq!(injector.pop(), Some(entry(1, popped)), "the oldest comes first, wherever it is");
            push(1);
        }
    }

    // S0-68: max(1, total / P), capped.
    #[test]
    fn a_share_is_a_fair_one() {
        let injector = Injector::new();
        let fresh = Fresh::new();
        // SAFETY: here and below, this thread is the only owner of `fresh`.
        assert_eq!(unsafe { injector.pop_share(&fresh, 4) }.map(|share| share.0), None);
        for ticket in 0..41 {
            injector.push(entry(1, ticket));
        }
        // SAFETY: as above.
        assert_eq!(unsafe { injector.pop_share(&fresh, 4) }.map(|share| share.0), Some(entry(1, 0)));
        assert_eq!((fresh.len(), injector.len()), (9, 31), "41 / 4 = 10: one returned, nine moved");
        // SAFETY: as above.
        assert_eq!(unsafe { fresh.pop_oldest() }, Some(entry(1, 1)));
        // SAFETY: as above.
        assert_eq!(unsafe { injector.pop_share(&fresh, 100) }.map(|share| share.0), Some(entry(1, 10)), "at least one");
        assert_eq!((fresh.len(), injector.len()), (8, 30));
        for ticket in 41..1000 {
            injector.push(entry(1, ticket));
        }
        // SAFETY: as above.
        assert_eq!(unsafe { injector.pop_share(&fresh, 1) }.map(|share| share.0), Some(entry(1, 11)));
        assert_eq!(fresh.len(), 8 + SHARE_MAX - 1, "capped");
    }

    // S1-35, S1-36, under contention and with a tiny ring: nothing lost, nothing twice, each producer's items in order.
    #[test]
    fn many_producers_and_consumers() {
        const PRODUCERS: usize = 3;
        const CONSUMERS: usize = 3;
        const EACH: u64 = 20_000;
        let injector = Injector::with_ring(8);
        // More than the ring holds before a consumer takes something out, so that the list is surely in use at the start.
        (0..100).for_each(|ticket| injector.push(entry(0, ticket)));
        let taken = AtomicU64::new(0);
        let seen: Vec<Vec<Entry>> = std::thread::scope(|scope| {
            for producer in 0..PRODUCERS {
                let injector = &injector;
                let first = if producer == 0 { 100 } else { 0 };
                scope.spawn(move || (first..EACH).for_each(|ticket| injector.push(entry(producer, ticket))));
            }
            let consumers: Vec<_> = (0..CONSUMERS)
                .map(|_| {
                    scope.spawn(|| {
                        let mut mine = Vec::new();
                        while taken.load(Ordering::Relaxed) < EACH * PRODUCERS as u64 {
                            match injector.pop() {
                                Some(entry) => {
                                    taken.fetch_add(1, Ordering::Relaxed);
                                    mine.push(entry);
                                }
                                None => std::thread::yield_now(),
                            }
                        }
                        mine
                    })
                })
                .collect();
            consumers.into_iter().map(|consumer| consumer.join().unwrap()).collect()
        });
        let mut count = vec![[0u32; EACH as usize]; PRODUCERS];
        for mine in &seen {
            let mut last = [None; PRODUCERS];
            for entry in mine {
                count[entry.frame][entry.ticket as usize] += 1;
                assert!(last[entry.frame] < Some(entry.ticket), "{entry:?} came after {:?}", last[entry.frame]);
                last[entry.frame] = Some(entry.ticket);
            }
        }
        assert!(count.iter().flatten().all(|&n| n == 1));
        assert!(injector.is_empty_handshake() && injector.overflows() >= 92);
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model {
    use super::*;
    use crate::prim::model::{self, thread};
    use crate::prim::sync::Arc;

    /// Producers that push `counts[i]` items each, consumers that try `attempts` times each, beside the main thread, which at the
    /// end takes what is left. The ring has two slots, so that most of it goes through the list.
    fn check(preemptions: usize, before: u64, counts: &'static [u64], attempts: &'static [usize]) {
        model::check(preemptions, move || {
            let injector = Arc::new(Injector::with_ring(2));
            // The first producer has already pushed something.
            (0..before).for_each(|ticket| injector.push(Entry { frame: 0, ticket }));
            let mut producers = Vec::new();
            for (frame, &count) in counts.iter().enumerate() {
                let injector = injector.clone();
                let first = if frame == 0 { before } else { 0 };
                producers.push(thread::spawn(move || {
                    (first..first + count).for_each(|ticket| injector.push(Entry { frame, ticket }));
                }));
            }
            let consumers: Vec<_> = attempts
                .iter()
                .map(|&attempts| {
                    let injector = injector.clone();
                    thread::spawn(move || (0..attempts).filter_map(|_| injector.pop()).collect::<Vec<_>>())
                })
                .collect();
            for producer in producers {
                producer.join().unwrap();
            }
            let mut seen: Vec<Vec<Entry>> = consumers.into_iter().map(|consumer| consumer.join().unwrap()).collect();
            // All other threads are done, so no push is half-way and the rest comes out in one go.
            seen.push(std::iter::from_fn(|| injector.pop()).collect());
            assert!(injector.is_empty_handshake());
            // In order for each producer: within what one consumer got, and all of it before what was left at the end.
            let left = seen.last().unwrap();
            for mine in &seen {
                for (frame, _) in counts.iter().enumerate() {
                    let later = if std::ptr::eq(mine, left) { &[][..] } else { &left[..] };
                    let tickets =
                        mine.iter().chain(later).filter(|entry| entry.frame == frame).map(|entry| entry.ticket);
                    assert!(tickets.is_sorted(), "out of order: {mine:?}, then {left:?}");
                }
            }
            let mut all: Vec<(usize, u64)> = seen.iter().flatten().map(|entry| (entry.frame, entry.ticket)).collect();
            all.sort();
            let total = |frame: usize| counts[frame] + if frame == 0 { before } else { 0 };
            let expected: Vec<(usize, u64)> =
                (0..counts.len()).flat_map(|frame| (0..total(frame)).map(move |ticket| (frame, ticket))).collect();
            assert_eq!(all, expected, "lost or doubled");
        });
    }

    // S1-35, S1-36: two producers over a ring of two, one consumer at the same time.
    #[test]
    fn model_two_producers_one_consumer() {
        check(2, 0, &[2, 2], &[2]);
    }

    // Two consumers race for list and refilled ring, without a producer.
    #[test]
    fn model_two_consumers_and_the_list() {
        check(3, 5, &[0], &[2, 2]);
    }

    // A producer goes on while a consumer moves its earlier items from the list to the ring.
    #[test]
    fn model_producer_against_refill() {
        check(3, 4, &[2], &[3]);
    }

    // S1-25, S1-42, S4-113, S4-114: the consumer of an entry sees what the producer wrote before the push (loom checks the slot's
    // cell as well).
    #[test]
    fn model_push_publishes() {
        model::check(3, || {
            let injector = Arc::new(Injector::with_ring(2));
            let frame = Arc::new(AtomicU64::new(0));
            let producer = {
                let (injector, frame) = (injector.clone(), frame.clone());
                thread::spawn(move || {
                    frame.store(1, Ordering::Relaxed);
                    injector.push(Entry { frame: 3, ticket: 4 });
                })
            };
            let entry = loop {
                match injector.pop() {
                    Some(entry) => break entry,
                    None => thread::yield_now(),
                }
            };
            assert_eq!((entry.frame, entry.ticket), (3, 4));
            assert_eq!(frame.load(Ordering::Relaxed), 1, "the frame's contents were not published");
            producer.join().unwrap();
        });
    }
}
