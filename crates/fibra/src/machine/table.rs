//! A hash table from numbers to values: finds an operation that is to be cancelled by its number.
//!
//! Above: `routing`. Below: nothing.
//!
//! Open addressing with linear probing; removal moves followers back, so there are no tombstones and nothing degrades.
//! The table grows only when it has more entries than ever before: in a steady state it does not allocate.
//!
//! Invariants: the length of `slots` is a power of two, at least twice the number of entries; between an entry and the place that its
//! key asks for there is no empty slot.

/// Slots of a table that was never used.
const FIRST: usize = 16;

#[derive(Debug)]
pub(super) struct Table<T> {
    slots: Vec<Option<(u64, T)>>,
    length: usize,
}

impl<T> Table<T> {
    pub(super) fn new() -> Self {
        Self { slots: (0..FIRST).map(|_| None).collect(), length: 0 }
    }

    /// The place that a key asks for. The multiplier is 2^64 divided by the golden ratio: neighbours are spread far.
    fn wanted(&self, key: u64) -> usize {
        let spread = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (spread >> (64 - self.slots.len().trailing_zeros())) as usize
    }

    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.slots.len() - 1)
    }

    fn place(&self, key: u64) -> Option<usize> {
        let mut place = self.wanted(key);
        loop {
            match &self.slots[place] {
                None => return None,
                Some((here, _)) if *here == key => return Some(place),
                Some(_) => place = self.after(place),
            }
        }
    }

    pub(super) fn insert(&mut self, key: u64, value: T) {
        debug_assert!(self.place(key).is_none(), "a key is there once");
        if (self.length + 1) * 2 > self.slots.len() {
            let larger = self.slots.len() * 2;
            let old = std::mem::replace(&mut self.slots, (0..larger).map(|_| None).collect());
            for (key, value) in old.into_iter().flatten() {
                self.put(key, value);
            }
        }
        self.put(key, value);
        self.length += 1;
    }

    fn put(&mut self, key: u64, value: T) {
        let mut place = self.wanted(key);
        while self.slots[place].is_some() {
            place = self.after(place);
        }
        self.slots[place] = Some((key, value));
    }

    pub(super) fn get(&self, key: u64) -> Option<&T> {
        self.slots[self.place(key)?].as_ref().map(|(_, value)| value)
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<T> {
        let mut hole = self.place(key)?;
        let (_, value) = self.slots[hole].take()?;
        self.length -= 1;
        let mut place = self.after(hole);
        while let Some((other, _)) = &self.slots[place] {
            // It may move into the hole if the place it asks for is not between the two.
            let mask = self.slots.len() - 1;
            let wanted = self.wanted(*other);
            if (place.wrapping_sub(wanted) & mask) >= (place.wrapping_sub(hole) & mask) {
                self.slots[hole] = self.slots[place].take();
                hole = place;
            }
            place = self.after(place);
        }
        Some(value)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::Table;
    use crate::prim::policy::Rng;
    use std::collections::HashMap;

    #[test]
    fn agrees_with_a_map_of_std() {
        let mut rng = Rng::from_seed(11);
        let (mut table, mut map) = (Table::new(), HashMap::new());
        for round in 0..20_000_u64 {
            // Few keys, so that they come and go and collide.
            let key = 1 + rng.below(300) as u64 * 65_536;
            if rng.below(2) == 0 && !map.contains_key(&key) {
                table.insert(key, round);
                map.insert(key, round);
            } else {
                assert_eq!(table.remove(key), map.remove(&key));
            }
            let other = 1 + rng.below(300) as u64 * 65_536;
            assert_eq!(table.get(other), map.get(&other));
        }
        assert_eq!(table.length, map.len());
        assert!(map.iter().all(|(key, value)| table.get(*key) == Some(value)));
    }
}
