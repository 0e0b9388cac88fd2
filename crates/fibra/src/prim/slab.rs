//! The one slab of records that are recycled and never freed: *type-stable* memory. A holder of the address or the number of such a
//! record, however old, finds a record of that type there, in this life or another; tickets, lives and generations tell which.
//!
//! Above: frames (`fiber/slab.rs`, which also gives the pages of free ones back), the records of threads and async waits
//! (`waiter/record.rs`), roots and scopes (`sched`), sources of readiness (`reactor/source.rs`). Each has one slab for the whole process.
//! Below: the allocator, a lock.
//!
//! Addresses come in chunks, each twice as large as the one before, so that a number leads to its record without a lock
//! ([`Slab::find`]). A chunk is address space: its records are made a *step* at a time, when the free ones are used up, so what is not made
//! costs no memory. A worker that takes and gives often has a [`Cache`], and goes to the lock once in a batch.
//!
//! # Invariants
//! * A record is never moved, freed or made again. It is free (in the slab, aside, or in a cache), or one holder's.
//! * `made` counts the records from number 0 on without a gap; it grows under the lock, after they are made.
//! * Records that lie *aside* are free, and have to be prepared before they serve again ([`Record::recall`]); they are taken before new
//!   ones are made.

use std::alloc::Layout;

use super::atomic::{AtomicPtr, AtomicUsize, Ordering};
use super::sync::{Mutex, MutexGuard};

/// Enough for 2^24 times as many as the first chunk has.
pub(crate) const CHUNKS: usize = 24;

/// What lies in a slab.
pub(crate) trait Record: Sync + Sized + 'static {
    /// The records of the first chunk.
    const FIRST: usize;
    /// How many a cache takes from the slab, or gives back to it, at once.
    const BATCH: usize = 8;
    /// How many a cache keeps before it gives a batch back.
    const KEPT: usize = 64;
    /// How many an owner that rests keeps.
    const REST: usize = 64;

    /// What is known of records that lie aside.
    type Aside: Send;

    /// The slab of the process.
    fn slab() -> &'static Slab<Self>;

    fn make(number: u32) -> Self;

    /// How many are made at once: `FIRST` is a multiple of it.
    fn step() -> usize {
        Self::FIRST
    }

    /// What the address of a chunk is a multiple of.
    fn alignment() -> usize {
        align_of::<Self>()
    }

    /// Records that lay aside are wanted.
    fn recall(aside: Self::Aside) -> &'static [Self];

    /// A batch was given back to the slab.
    fn gave(slab: Free<Self>) {
        drop(slab);
    }

    /// It is about to be taken.
    #[inline(always)]
    fn prefetch(&'static self) {}
}

/// For records that never lie aside.
#[derive(Debug)]
pub(crate) enum Never {}

pub(crate) struct Slab<T: Record> {
    chunks: [AtomicPtr<T>; CHUNKS],
    made: AtomicUsize,
    shelf: Mutex<Shelf<T>>,
}

/// The free records, under the lock.
pub(crate) struct Shelf<T: Record> {
    /// Those that can be taken; the last one is the next.
    pub(crate) records: Vec<&'static T>,
    pub(crate) aside: Vec<T::Aside>,
    /// The fewest there were in `records` since a trimmer last set this: that many were not needed.
    pub(crate) idle: usize,
}

/// A slab, locked.
pub(crate) struct Free<T: Record> {
    slab: &'static Slab<T>,
    shelf: MutexGuard<'static, Shelf<T>>,
}

impl<T: Record> std::ops::Deref for Free<T> {
    type Target = Shelf<T>;
    fn deref(&self) -> &Shelf<T> {
        &self.shelf
    }
}

impl<T: Record> std::ops::DerefMut for Free<T> {
    fn deref_mut(&mut self) -> &mut Shelf<T> {
        &mut self.shelf
    }
}

impl<T: Record> Slab<T> {
    /// Where the array of chunks lies in a slab, and the number of records that are made: for a debugger.
    pub(crate) const PARTS: [usize; 2] = [std::mem::offset_of!(Slab<T>, chunks), std::mem::offset_of!(Slab<T>, made)];

    pub(crate) const fn new() -> Self {
        Self {
            chunks: [const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS],
            made: AtomicUsize::new(0),
            shelf: Mutex::new(Shelf { records: Vec::new(), aside: Vec::new(), idle: 0 }),
        }
    }

    /// Alone with the free ones; also for a fork, during which no thread may be inside.
    pub(crate) fn lock(&'static self) -> Free<T> {
        Free { slab: self, shelf: self.shelf.lock() }
    }

    /// A free record, as its last holder left it, or as it was made.
    pub(crate) fn take(&'static self) -> &'static T {
        self.lock().take()
    }

    /// Gives a record back: only stale names refer to it.
    pub(crate) fn give(&'static self, record: &'static T) {
        self.shelf.lock().records.push(record);
    }

    /// The record with this number. None: there is no such record.
    pub(crate) fn find(&self, number: u32) -> Option<&'static T> {
        let number = number as usize;
        // Acquire: pairs with the release in `make_more`; what is counted is made.
        (number < self.made.load(Ordering::Acquire)).then(|| {
            let chunk = (number / T::FIRST + 1).ilog2() as usize;
            let offset = number - Self::first_of(chunk);
            // SAFETY: made, so its chunk is there and it is in it, `offset` records from the start; it is never freed, and shared only.
            // Relaxed: the chunk was there before the count.
            unsafe { &*self.chunks[chunk].load(Ordering::Relaxed).add(offset) }
        })
    }

    /// Every record that is made, free ones too.
    pub(crate) fn all(&'static self) -> impl Iterator<Item = &'static T> {
        self.made_chunks().flatten()
    }

    /// The same, chunk by chunk: what of each is made.
    pub(crate) fn made_chunks(&'static self) -> impl Iterator<Item = &'static [T]> {
        // Acquire: as in `find`.
        let made = self.made.load(Ordering::Acquire);
        (0..CHUNKS).take_while(move |chunk| Self::first_of(*chunk) < made).map(move |chunk| {
            let count = (T::FIRST << chunk).min(made - Self::first_of(chunk));
            // SAFETY: as in `find`, for each of the first `count` of the chunk. Relaxed: as there.
            unsafe { std::slice::from_raw_parts(self.chunks[chunk].load(Ordering::Relaxed), count) }
        })
    }

    /// How many are made.
    pub(crate) fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed) // Relaxed: a number.
    }

    /// The number of the first record of a chunk.
    fn first_of(chunk: usize) -> usize {
        T::FIRST * ((1 << chunk) - 1)
    }
}

impl<T: Record> Free<T> {
    /// See [`Slab::take`].
    pub(crate) fn take(&mut self) -> &'static T {
        if self.shelf.records.is_empty() {
            self.refill();
        }
        let record = self.shelf.records.pop().expect("the slab was just filled");
        self.shelf.idle = self.shelf.idle.min(self.shelf.records.len());
        record
    }

    fn refill(&mut self) {
        let records = match self.shelf.aside.pop() {
            Some(aside) => T::recall(aside),
            None => self.make_more(),
        };
        // The lowest number last, so that it is taken first.
        self.shelf.records.extend(records.iter().rev());
    }

    /// Makes one more step of records.
    fn make_more(&mut self) -> &'static [T] {
        let (made, step) = (self.slab.made(), T::step());
        debug_assert!(T::FIRST % step == 0, "a step lies in one chunk");
        let chunk = (made / T::FIRST + 1).ilog2() as usize;
        let offset = made - Slab::<T>::first_of(chunk);
        let place = self.slab.chunks.get(chunk).expect("a slab has 2^24 times as many records as its first chunk");
        if offset == 0 {
            // Relaxed: published by `made`.
            place.store(new_chunk(T::FIRST << chunk), Ordering::Relaxed);
        }
        // SAFETY: inside the chunk, since steps do not cross chunks; under the lock, so one thread makes these, and none has them before
        // they are counted. Relaxed: written under this lock.
        let records = unsafe {
            let first = place.load(Ordering::Relaxed).add(offset);
            (0..step).for_each(|at| first.add(at).write(T::make((made + at) as u32)));
            std::slice::from_raw_parts(first, step)
        };
        // Release: pairs with the acquire in `find` and `made_chunks`.
        self.slab.made.store(made + step, Ordering::Release);
        records
    }
}

/// Address space for so many records.
fn new_chunk<T: Record>(count: usize) -> *mut T {
    let layout = Layout::array::<T>(count).and_then(|layout| layout.align_to(T::alignment()));
    let layout = layout.expect("fewer bytes than there are addresses");
    // SAFETY: the layout has a size; each record is written before anybody has it, and the memory is never freed.
    let chunk = unsafe { std::alloc::alloc(layout) };
    if chunk.is_null() {
        std::alloc::handle_alloc_error(layout);
    }
    chunk.cast()
}

impl<T: Record> std::fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slab").field("made", &self.made()).finish_non_exhaustive()
    }
}

/// One owner's free records: no atomics on take and give.
#[derive(Debug)]
pub(crate) struct Cache<T: Record> {
    free: Vec<&'static T>,
}

impl<T: Record> Cache<T> {
    pub(crate) const fn new() -> Self {
        Self { free: Vec::new() }
    }

    /// See [`Slab::take`].
    #[inline(always)]
    pub(crate) fn take(&mut self) -> &'static T {
        match self.free.pop() {
            Some(record) => {
                if let Some(next) = self.free.last() {
                    next.prefetch();
                }
                record
            }
            None => self.refill(),
        }
    }

    #[cold]
    #[inline(never)]
    fn refill(&mut self) -> &'static T {
        if self.free.capacity() == 0 {
            self.free.reserve_exact(T::KEPT + T::BATCH);
        }
        let mut slab = T::slab().lock();
        let record = slab.take();
        let keep = slab.records.len().saturating_sub(T::BATCH);
        self.free.extend(slab.records.drain(keep..));
        slab.idle = slab.idle.min(keep);
        record
    }

    /// See [`Slab::give`].
    #[inline(always)]
    pub(crate) fn give(&mut self, record: &'static T) {
        if self.free.len() >= T::KEPT {
            self.spill(T::BATCH);
        }
        self.free.push(record);
    }

    #[cold]
    #[inline(never)]
    fn spill(&mut self, count: usize) {
        let keep = self.free.len() - count.min(self.free.len());
        let mut slab = T::slab().lock();
        slab.records.extend(self.free.drain(keep..));
        T::gave(slab);
    }

    /// Does it hold more than an owner that rests needs?
    pub(crate) fn is_fat(&self) -> bool {
        self.free.len() > 2 * T::REST
    }

    /// Gives back what an owner that rests does not need.
    pub(crate) fn shed(&mut self) {
        self.spill(self.free.len().saturating_sub(T::REST));
    }

    /// Gives everything back, when the owner ends.
    pub(crate) fn flush(&mut self) {
        self.spill(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::ptr;

    /// Eight to the first chunk, made four at a time.
    struct Number(u32, AtomicUsize);

    static NUMBERS: Slab<Number> = Slab::new();

    impl Record for Number {
        const FIRST: usize = 8;
        const BATCH: usize = 3;
        const KEPT: usize = 6;
        type Aside = &'static [Number];

        fn slab() -> &'static Slab<Self> {
            &NUMBERS
        }
        fn make(number: u32) -> Self {
            Self(number, AtomicUsize::new(0))
        }
        fn step() -> usize {
            4
        }
        fn alignment() -> usize {
            4096
        }
        fn recall(aside: Self::Aside) -> &'static [Self] {
            // Relaxed: the test's alone.
            aside.iter().for_each(|number| _ = number.1.fetch_add(1, Ordering::Relaxed));
            aside
        }
    }

    // The one test of this slab: it is of the whole process.
    #[test]
    fn records_are_found_by_number_kept_in_caches_and_come_back_from_aside() {
        assert!(NUMBERS.find(0).is_none() && NUMBERS.all().next().is_none());
        let taken: Vec<_> = (0..61).map(|_| NUMBERS.take()).collect();
        assert!(taken.iter().map(|record| record.0).eq(0..61), "lowest first");
        assert_eq!(NUMBERS.made(), 64, "what is not needed is not made");
        for record in &taken {
            assert!(ptr::eq(NUMBERS.find(record.0).unwrap(), *record));
        }
        assert_eq!(NUMBERS.find(63).unwrap().0, 63, "made, and free");
        assert!(NUMBERS.find(64).is_none() && NUMBERS.find(u32::MAX).is_none());
        assert!(NUMBERS.all().map(|record| record.0).eq(0..64));
        assert_eq!(NUMBERS.made_chunks().map(<[_]>::len).collect::<Vec<_>>(), [8, 16, 32, 8]);
        assert!(NUMBERS.made_chunks().all(|chunk| chunk.as_ptr().addr() % 4096 == 0));
        // A cache takes and gives in batches.
        let mut cache: Cache<Number> = Cache::new();
        taken.iter().for_each(|record| cache.give(record));
        assert_eq!((cache.free.len(), NUMBERS.lock().records.len()), (4, 60));
        let again: HashSet<u32> = (0..64).map(|_| cache.take().0).collect();
        assert_eq!((again.len(), cache.free.len(), NUMBERS.made()), (64, 0, 64), "each once, and no new ones");
        // Those aside come before new ones are made, prepared.
        NUMBERS.lock().aside.push(NUMBERS.made_chunks().next().unwrap());
        let back = NUMBERS.take();
        // Relaxed: as above.
        assert_eq!((back.0, back.1.load(Ordering::Relaxed)), (0, 1));
        assert_eq!(NUMBERS.lock().records.len(), 7);
        NUMBERS.give(back);
        assert!(ptr::eq(NUMBERS.take(), back), "the one that was given back last is the warmest");
    }
}
