//! The depot: the place where worker-owned caches leave whole batches of items for each other.
//!
//! Above: `cache` spills to it and refills from it, `trim` takes what was not needed for a while. Below: a lock. It
//! is generic over what a batch is, so that loom can run it with something simple.
//!
//! Newest first: the batch that was left last is the warmest. The number of batches is kept beside the lock, so that a
//! cache that would find nothing does not touch the lock.
//!
//! # Invariants
//! * A batch is in the depot or with exactly one taker.
//! * `count` is the number of batches, written only under the lock. Read without it, it may be old; but a thread that was
//!   told of a batch (by any means that orders memory) sees a count that includes it, unless another thread took it.

use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::sync::{Mutex, MutexGuard};

#[derive(Debug)]
pub(crate) struct Depot<B> {
    count: AtomicUsize,
    shelf: Mutex<Shelf<B>>,
}

#[derive(Debug)]
pub(super) struct Shelf<B> {
    /// Newest last.
    batches: Vec<B>,
    /// The fewest batches there were since the last trimming: that many were not needed.
    idle: usize,
}

impl<B> Depot<B> {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self { count: AtomicUsize::new(0), shelf: Mutex::new(Shelf { batches: Vec::new(), idle: 0 }) }
    }
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { count: AtomicUsize::new(0), shelf: Mutex::new(Shelf { batches: Vec::new(), idle: 0 }) }
    }

    /// Leaves a batch for the next taker.
    pub(crate) fn put(&self, batch: B) {
        self.with(|shelf| shelf.batches.push(batch));
    }

    /// Takes the batch that was left last.
    pub(crate) fn take(&self) -> Option<B> {
        // Relaxed: see the invariants; an old value costs a fresh batch, no more.
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.with(|shelf| {
            let batch = shelf.batches.pop();
            shelf.idle = shelf.idle.min(shelf.batches.len());
            batch
        })
    }

    /// Takes the oldest of those batches that were not needed since the last call: at most `most`, and `keep` always
    /// stay.
    pub(crate) fn take_idle(&self, keep: usize, most: usize) -> Vec<B> {
        self.with(|shelf| {
            let count = shelf.idle.min(shelf.batches.len().saturating_sub(keep)).min(most);
            let idle = shelf.batches.drain(..count).collect();
            shelf.idle = shelf.batches.len();
            idle
        })
    }

    /// How many batches there are, or were a moment ago.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed) // Relaxed: see the invariants.
    }

    /// The same, as of now.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn count_locked(&self) -> usize {
        self.shelf.lock().batches.len()
    }

    /// For a fork: no other thread is inside a registry meanwhile.
    pub(super) fn lock(&self) -> MutexGuard<'_, Shelf<B>> {
        self.shelf.lock()
    }

    /// Runs `change` alone and brings `count` up to date.
    fn with<R>(&self, change: impl FnOnce(&mut Shelf<B>) -> R) -> R {
        let mut shelf = self.shelf.lock();
        let result = change(&mut shelf);
        let count = shelf.batches.len();
        // The seeded bug: counting after the unlock lets an older count overwrite a newer one, and a batch is never
        // found again.
        if seeded_bug("depot_count_after_unlock") {
            drop(shelf);
            self.count.store(count, Ordering::Relaxed);
            return result;
        }
        // Relaxed: a hint for readers without the lock; under the lock it is not read.
        self.count.store(count, Ordering::Relaxed);
        result
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model {
    use super::Depot;
    use crate::prim::cell::UnsafeCell;
    use crate::prim::model::{check, thread};
    use crate::prim::sync::Arc;

    /// A batch as the caches use it: plain memory that only its holder touches. loom objects to overlapping access.
    struct Batch(UnsafeCell<u32>);

    // SAFETY: touched by its holder only; that is what the model checks.
    unsafe impl Send for Batch {}

    impl Batch {
        fn new(uses: u32) -> Batch {
            Batch(UnsafeCell::new(uses))
        }
        fn touch(&self) {
            // SAFETY: the holder is alone with it; loom checks that.
            self.0.with_mut(|uses| unsafe { *uses += 1 });
        }
        fn uses(&self) -> u32 {
            // SAFETY: as above.
            self.0.with(|uses| unsafe { *uses })
        }
    }

    /// Two caches exchange batches through the depot while it is trimmed: no batch is lost, doubled or touched by two threads.
    #[test]
    fn model_depot_hands_over_every_batch_once() {
        check(3, || {
            let depot = Arc::new(Depot::new());
            depot.put(Batch::new(0));
            let other = {
                let depot = depot.clone();
                thread::spawn(move || {
                    depot.put(Batch::new(0));
                    let taken = depot.take();
                    if let Some(batch) = &taken {
                        batch.touch();
                    }
                    taken
                })
            };
            let mine = depot.take();
            if let Some(batch) = mine {
                batch.touch();
                depot.put(batch);
            }
            let theirs = other.join().unwrap();
            // The join orders this after both, so every batch that is there must be found.
            let mut held = Vec::from_iter(theirs);
            while let Some(batch) = depot.take() {
                batch.touch();
                held.push(batch);
            }
            assert_eq!(held.len(), 2, "a batch was lost or doubled");
            assert!(held.iter().all(|batch| batch.uses() >= 1));
        });
    }

    /// Trimming runs beside a taker: each batch goes to one of them, and the idle batches do not include one that was just
    /// taken.
    #[test]
    fn model_depot_trim_beside_take() {
        check(3, || {
            let depot = Arc::new(Depot::new());
            depot.put(Batch::new(0));
            depot.put(Batch::new(0));
            assert!(depot.take_idle(0, 8).is_empty(), "the first look only starts the watch");
            let trimmer = {
                let depot = depot.clone();
                thread::spawn(move || {
                    let idle = depot.take_idle(0, 8);
                    idle.iter().for_each(Batch::touch);
                    let count = idle.len();
                    idle.into_iter().for_each(|batch| depot.put(batch));
                    count
                })
            };
            let mut found = 0;
            if let Some(batch) = depot.take() {
                batch.touch();
                depot.put(batch);
                found = 1;
            }
            let idle = trimmer.join().unwrap();
            assert!(idle >= 1, "one batch is idle whatever the taker does");
            assert!(found <= 1);
            let mut left = 0;
            while depot.take().is_some() {
                left += 1;
            }
            assert_eq!(left, 2, "a batch was lost or doubled");
        });
    }
}
