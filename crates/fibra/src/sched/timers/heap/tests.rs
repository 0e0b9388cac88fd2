//! Tests of the timer store: against a sorted map, and what is promised about order, removal and memory.
//!
//! Above: nothing. Below: `heap.rs`, whose invariants `check` looks up one by one.

use crate::prim::policy::{self, Rng};
use crate::sched::timers::heap::*;
use std::collections::BTreeMap;

/// What the timers of these tests are for: a number.
fn numbered(number: usize) -> usize {
    number
}

impl Timers<usize> {
    /// Every invariant of the file's head, looked up one by one.
    fn check(&self) {
        let mut used = vec![false; self.slots.len()];
        let mut dead = 0;
        for place in ROOT..self.end {
            let entry = self.entry(place);
            assert!(place == ROOT || !entry.before(self.entry(parent(place))));
            let slot = entry.slot() as usize;
            assert!(!std::mem::replace(&mut used[slot], true), "two entries of one slot");
            assert!(!matches!(self.slots[slot].content, Content::Free { .. }));
            dead += usize::from(self.slots[slot].is_dead());
        }
        assert_eq!(dead, self.dead);
        assert!(dead * 2 <= self.entries() || self.entries() < COMPACT_FROM);
        let mut free = self.free;
        while free != NONE {
            assert!(!std::mem::replace(&mut used[free as usize], true), "a free slot is in use");
            let Content::Free { next } = self.slots[free as usize].content else { panic!("not a free slot") };
            free = next;
        }
        assert!(used.iter().all(|&used| used), "a slot is lost");
        if self.is_empty() {
            assert_eq!(self.earliest, u64::MAX);
        } else {
            assert_eq!(self.earliest, self.entry(ROOT).deadline);
            assert!(matches!(self.slots[self.entry(ROOT).slot() as usize].content, Content::Set(_)));
        }
    }
}

#[test]
fn children_share_a_cache_line_and_know_their_parent() {
    for place in ROOT..5000 {
        let first = first_child(place);
        assert_eq!(first % ARITY, 0);
        assert!((first..first + ARITY).all(|child| parent(child) == place));
    }
    let mut timers = Timers::<usize>::new();
    timers.grow();
    assert_eq!(timers.lines.as_ptr() as usize % 64, 0);
}

/// Random insertions, removals and expiries against a sorted map. `span` decides how many deadlines are equal; of eight steps,
/// `pops` let time pass.
fn against_reference(seed: u64, steps: usize, span: usize, population: usize, pops: usize) {
    let mut rng = Rng::from_seed(seed);
    let mut timers = Timers::<usize>::new();
    // The order starts near its end, so that the renumbering happens on the way, too.
    timers.next_order = u32::MAX - steps as u32 / 8;
    let mut reference: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    let mut keys: Vec<Option<(u64, u64)>> = vec![None; population];
    let mut names: Vec<Option<Timer>> = vec![None; population];
    let mut now = 0u64;
    let mut order = 0u64;
    for step in 0..steps {
        let which = rng.below(population);
        if rng.below(8) < pops {
            now += rng.below(span / 8 + 2) as u64;
            loop {
                let due = reference.first_key_value().map(|(&key, &which)| (key, which)).filter(|due| due.0.0 <= now);
                let popped = timers.pop_expired(now);
                assert_eq!(popped, due.map(|(_, which)| numbered(which)), "seed {seed} step {step}");
                let Some((key, which)) = due else { break };
                reference.remove(&key);
                keys[which] = None;
            }
        } else if let Some(key) = keys[which].take() {
            reference.remove(&key);
            assert!(timers.remove(names[which].unwrap()));
            assert!(!timers.remove(names[which].unwrap()), "removed twice");
        } else {
            // A timer that has expired or was removed some time ago; its slot may have been used again since.
            assert!(!names[which].is_some_and(|name| timers.remove(name)), "seed {seed} step {step}");
            let deadline = now + rng.below(span) as u64;
            order += 1;
            keys[which] = Some((deadline, order));
            reference.insert((deadline, order), which);
            names[which] = Some(timers.insert(deadline, numbered(which)));
        }
        assert_eq!(timers.len(), reference.len());
        assert_eq!(timers.is_empty(), reference.is_empty());
        assert_eq!(timers.next_deadline(), reference.first_key_value().map(|(key, _)| key.0));
        if step % 64 == 0 {
            timers.check();
        }
    }
    timers.check();
    assert!(timers.next_order < u32::MAX / 2, "never renumbered");
}

#[test]
fn agrees_with_a_sorted_map() {
    for seed in 0..8 {
        against_reference(seed, 20_000, 1 << 20, 2000, 2);
        against_reference(seed, 20_000, 1 << 30, 2000, 0);
        against_reference(seed, 20_000, 5, 300, 1);
        against_reference(seed, 2_000, 3, 7, 3);
    }
}

#[test]
fn never_early_and_equal_deadlines_in_order() {
    let mut timers = Timers::<usize>::new();
    for number in 0..1000 {
        timers.insert(10, numbered(number));
    }
    timers.check();
    assert_eq!(timers.pop_expired(9), None);
    for number in 0..1000 {
        assert_eq!(timers.pop_expired(10), Some(numbered(number)));
    }
    assert_eq!(timers.pop_expired(u64::MAX), None);
}

#[test]
fn a_deadline_at_the_end_of_time_is_kept() {
    let mut timers = Timers::<usize>::new();
    let never = timers.insert(u64::MAX, numbered(0));
    timers.insert(0, numbered(1));
    assert_eq!(timers.next_deadline(), Some(0));
    assert_eq!(timers.pop_expired(0), Some(numbered(1)));
    assert_eq!(timers.next_deadline(), Some(u64::MAX));
    assert_eq!(timers.pop_expired(u64::MAX - 1), None);
    assert!(timers.remove(never));
    assert_eq!(timers.next_deadline(), None);
}

#[test]
fn removing_what_has_fired_does_nothing_even_if_its_slot_is_used_again() {
    let mut timers = Timers::<usize>::new();
    timers.insert(100, numbered(0)); // So that the slots are not forgotten in between.
    let fired = timers.insert(1, numbered(1));
    assert_eq!(timers.pop_expired(1), Some(numbered(1)));
    assert!(!timers.remove(fired));
    let next = timers.insert(2, numbered(2));
    assert_eq!(next.slot, fired.slot);
    assert!(!timers.remove(fired));
    assert_eq!((timers.len(), timers.next_deadline()), (2, Some(2)));
    assert!(timers.remove(next));
    timers.check();
    // Nor if the store was empty in between.
    assert_eq!(timers.pop_expired(100), Some(numbered(0)));
    assert!(!timers.remove(next));
    let anew: Vec<_> = (3..9).map(|number| timers.insert(5, numbered(number))).collect();
    assert!(!timers.remove(fired) && !timers.remove(next));
    assert!(anew.into_iter().all(|timer| timers.remove(timer)));
    assert!(timers.is_empty());
}

#[test]
fn removed_timers_are_neither_reported_nor_returned() {
    let mut timers = Timers::<usize>::new();
    let all: Vec<_> = (0..40).map(|number| timers.insert(number as u64, numbered(number))).collect();
    // From behind: dead entries pile up below a live root, and all go when it does.
    for number in (10..20).rev() {
        assert!(timers.remove(all[number]));
        assert_eq!(timers.next_deadline(), Some(0));
    }
    assert_eq!((timers.len(), timers.entries()), (30, 40));
    for number in 0..9 {
        assert_eq!(timers.pop_expired(u64::MAX), Some(numbered(number)));
    }
    assert!(timers.remove(all[9]));
    assert_eq!((timers.next_deadline(), timers.dead), (Some(20), 0));
    timers.check();
}

#[test]
fn a_million_timers_set_and_removed_leave_nothing_behind() {
    let mut timers = Timers::<usize>::new();
    for number in 0..100 {
        timers.insert(number as u64, numbered(number)); // Earlier than all that are removed: none gets to the root.
    }
    for number in 0..1_000_000 {
        let timer = timers.insert(u64::MAX - number as u64, numbered(number));
        assert!(timers.remove(timer));
        assert!(timers.entries() <= 201);
    }
    timers.check();
    assert!(timers.lines.len() * ARITY <= 256 && timers.slots.len() <= 201);
    assert_eq!(timers.len(), 100);
    for number in 0..100 {
        assert_eq!(timers.pop_expired(99), Some(numbered(number)));
    }
    assert_eq!((timers.pop_expired(u64::MAX), timers.entries()), (None, 0));
}

#[test]
fn warm_memory_is_kept_and_large_unused_memory_given_back() {
    let mut timers = Timers::<usize>::new();
    let deadline = |number: usize| (number as u64 * 7919) % 100_003;
    let fill = |timers: &mut Timers<usize>, count: usize| -> Vec<Timer> {
        (0..count).map(|number| timers.insert(deadline(number), numbered(number))).collect()
    };
    let empty = |timers: &mut Timers<usize>, down_to: usize| {
        let mut last = 0;
        while timers.len() > down_to {
            let popped = deadline(timers.pop_expired(u64::MAX).unwrap());
            assert!(popped >= last);
            last = popped;
        }
    };
    let memory = |timers: &Timers<usize>| {
        (timers.lines.as_ptr(), timers.lines.capacity(), timers.slots.as_ptr(), timers.slots.capacity())
    };
    fill(&mut timers, 10_000);
    let warm = memory(&timers);
    for _ in 0..3 {
        empty(&mut timers, 0);
        let set = fill(&mut timers, 10_000);
        assert!(set.into_iter().step_by(3).all(|timer| timers.remove(timer)));
    }
    empty(&mut timers, 0);
    fill(&mut timers, 10_000);
    assert!(warm == memory(&timers));
    empty(&mut timers, 0);

    let set = fill(&mut timers, 300_000);
    let large = (timers.lines.capacity(), timers.slots.capacity());
    empty(&mut timers, 20_000);
    assert!(timers.lines.capacity() <= large.0 / 4, "{} of {}", timers.lines.capacity(), large.0);
    timers.check();
    for timer in set {
        timers.remove(timer);
    }
    timers.check();
    assert!(timers.is_empty() && timers.slots.capacity() <= SHRINK_ABOVE);
    // Some stay, but not for ever the slots behind them, though the last of those come free only after the first attempt to cut.
    let set = fill(&mut timers, 300_000);
    assert!(set[1000..].iter().all(|&timer| timers.remove(timer)));
    for number in 0..200_000 {
        let timer = timers.insert(u64::MAX, numbered(number));
        assert!(timers.remove(timer));
    }
    timers.check();
    assert!(timers.slots.capacity() <= SHRINK_ABOVE, "{}", timers.slots.capacity());
    assert!(set[..1000].iter().all(|&timer| timers.remove(timer)));
    assert!(!timers.remove(set[299_999]));
}

/// Prints what a timer costs; asserts nothing about it, since the machine may be busy.
#[test]
#[allow(clippy::disallowed_types)] // A stopwatch.
fn figures() {
    for count in [1000, 100_000, 1_000_000] {
        let mut rng = Rng::from_seed(1);
        let mut timers = Timers::<usize>::new();
        for round in ["cold", "warm"] {
            let per_timer = |start: std::time::Instant| start.elapsed().as_nanos() as f64 / count as f64;
            let fill = |timers: &mut Timers<usize>, rng: &mut Rng| -> Vec<Timer> {
                (0..count).map(|number| timers.insert(rng.next_u64() >> 1, numbered(number))).collect()
            };
            let start = std::time::Instant::now();
            fill(&mut timers, &mut rng);
            let insert = per_timer(start);
            let start = std::time::Instant::now();
            while timers.pop_expired(u64::MAX).is_some() {}
            let pop = per_timer(start);
            let set = fill(&mut timers, &mut rng);
            let start = std::time::Instant::now();
            set.into_iter().for_each(|timer| assert!(timers.remove(timer)));
            let remove = per_timer(start);
            println!("{count:>8} {round}: insert {insert:.0} ns, pop {pop:.0} ns, remove {remove:.0} ns");
        }
    }
}

// S1-107: an expiry costs as much with many timers set as with few: a look at all timers would take ten thousand times as long with a
// million of them as with a hundred. The best of many batches counts, so that other load on the machine does not matter.
#[test]
fn expiry_does_not_look_at_those_that_stay() {
    let best_of = |far: u64| {
        let mut timers = Timers::<usize>::new();
        (0..far).for_each(|number| _ = timers.insert(1_000_000_000 + number, 3));
        let batch = |now: u64, timers: &mut Timers<usize>| {
            let began = policy::now();
            for step in 0..20 {
                let _ = timers.insert(now + step, 7);
                assert_eq!(timers.pop_expired(now + step), Some(7));
                assert_eq!(timers.pop_expired(now + step), None);
            }
            policy::now() - began
        };
        (0..50).map(|round| batch(round * 100, &mut timers)).min().expect("some rounds")
    };
    let (few, many) = (best_of(100), best_of(1_000_000));
    assert!(many < 300 * few.max(1_000), "{few} ns beside 100, {many} ns beside a million");
}
