//! The cache of stacks that a worker owns: taking a stack is a pointer pop, giving it back a pointer push.
//!
//! Above: a worker owns one [`StackCache`] and calls nothing else. Below: the depots it shares with the other workers,
//! and `arena`.
//!
//! Per pooled size, in the order in which `take` looks:
//!
//! 1. `hot`: stacks that ran a fiber before, the last given first: its top page is in the cache and mapped.
//! 2. `spare`: a second array of them, full. Two and not one, so that a worker at the boundary does not go to the depot at
//!    every other step, and so that spilling hands over a whole array.
//! 3. the depot of warm batches, which other workers filled;
//! 4. `cold`: stacks without memory, not touched until they are taken, since their first page is the price of a stack;
//! 5. the depot of cold batches, and then new slots from the arena.
//!
//! Sizes above 1 MiB come from small depots of the process, or are mapped and unmapped.

use super::arena::{self, NoStack};
use super::depot::{self, Depot};
use super::record::{Stack, StackTop};
use super::size::{CLASSES, POOLED, StackSize};
use super::trim;
use crate::prim::sync::MutexGuard;
use std::ptr::NonNull;

/// Stacks in a batch: enough to make the depot's lock and a batched system call cheap, few enough to strand little with
/// an idle worker.
pub(super) const BATCH: usize = 64;

/// The first slots a worker carves, before it doubles up to [`BATCH`]: a program of three fibers should not guard 64
/// stacks.
const FIRST_CARVE: usize = 8;

/// Stacks whose memory is fetched at once, before they are used again.
const GROUP: usize = 8;

/// Stacks of each size that a resting worker keeps.
const REST: usize = 8;

/// How many stacks with own mappings are kept per size, and how large they may be: enough to run a root fiber again and
/// again.
const OWN_POOLED: usize = 4;
const OWN_POOLED_BYTES: usize = 64 << 20;

/// Stacks of one size that ran before, the one given last at the end. Owns them.
///
/// An array, and not a list through the records: where the stacks after the next one are is known without waiting for memory.
#[derive(Debug)]
pub(super) struct Warm {
    /// Room for [`BATCH`], or none.
    stacks: Vec<Stack>,
    /// So many, the first ones, were used long ago, and are not being fetched yet.
    far: usize,
}

impl Warm {
    const EMPTY: Warm = Warm { stacks: Vec::new(), far: 0 };

    /// An empty one with room, which a batch has left behind if there is such a one.
    fn with_room(class: usize) -> Warm {
        let mut stacks = ROOM[class].take().unwrap_or_default();
        stacks.reserve_exact(BATCH);
        Warm { stacks, far: 0 }
    }

    fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Puts a stack in if there is room for it.
    #[inline(always)]
    fn push(&mut self, stack: Stack) -> Result<(), Stack> {
        if self.stacks.len() == self.stacks.capacity() {
            return Err(stack);
        }
        self.stacks.push(stack);
        Ok(())
    }

    /// The stack that was given last, if it is not far.
    #[inline(always)]
    fn pop_near(&mut self) -> Option<Stack> {
        if self.stacks.len() == self.far { None } else { self.stacks.pop() }
    }

    /// The stack that was given last.
    fn pop(&mut self) -> Option<Stack> {
        if self.stacks.len() == self.far {
            self.far = self.far.saturating_sub(GROUP);
            self.fetch_before(self.far);
        }
        self.stacks.pop()
    }

    /// These stacks were used long ago, and are about to be used again.
    fn bring_near(&mut self) {
        self.far = self.stacks.len();
        self.fetch_before(self.far);
    }

    /// Fetches the memory of the stacks before `end`, which are used soon.
    fn fetch_before(&self, end: usize) {
        let group = &self.stacks[end.saturating_sub(GROUP)..end];
        group.iter().rev().for_each(|stack| StackTop::fetch(stack.record()));
    }

    pub(super) fn into_stacks(self) -> Vec<Stack> {
        self.stacks
    }
}

/// Stacks without memory, as records that must be written before use. Owns them.
#[derive(Debug, Default)]
pub(super) struct Cold(pub(super) Vec<NonNull<StackTop>>);

// SAFETY: owns its stacks as a `Stack` does.
unsafe impl Send for Cold {}

/// The depots that all workers share, per pooled size.
pub(super) static WARM: [Depot<Warm>; POOLED] = [const { Depot::new() }; POOLED];
pub(super) static COLD: [Depot<Cold>; POOLED] = [const { Depot::new() }; POOLED];

/// Arrays of warm stacks that are empty, since the stacks are in use: with them the stacks go back to the depot without an allocation.
pub(super) static ROOM: [Depot<Vec<Stack>>; POOLED] = [const { Depot::new() }; POOLED];

/// Stacks with own mappings that wait for their next use, per size; a batch is one stack.
pub(super) static OWN: [Depot<Stack>; CLASSES - POOLED] = [const { Depot::new() }; CLASSES - POOLED];

/// Every lock of this folder, held over a fork: see `monitor::fork`.
pub(crate) struct Locks {
    _arenas: MutexGuard<'static, arena::Arenas>,
    _warm: [MutexGuard<'static, depot::Shelf<Warm>>; POOLED],
    _room: [MutexGuard<'static, depot::Shelf<Vec<Stack>>>; POOLED],
    _cold: [MutexGuard<'static, depot::Shelf<Cold>>; POOLED],
    _own: [MutexGuard<'static, depot::Shelf<Stack>>; CLASSES - POOLED],
}

impl Locks {
    pub(crate) fn take() -> Self {
        Self {
            _arenas: arena::lock_arenas(),
            _warm: WARM.each_ref().map(Depot::lock),
            _room: ROOM.each_ref().map(Depot::lock),
            _cold: COLD.each_ref().map(Depot::lock),
            _own: OWN.each_ref().map(Depot::lock),
        }
    }
}

/// A worker's stacks of one size.
#[derive(Debug)]
struct Shelf {
    hot: Warm,
    spare: Warm,
    cold: Cold,
    next_carve: usize,
}

/// A worker's stacks. Only that worker touches it.
#[derive(Debug)]
pub(crate) struct StackCache {
    shelves: [Shelf; POOLED],
    reused: u64,
    fresh: u64,
}

impl StackCache {
    pub(crate) fn new() -> Self {
        let empty = || Shelf { hot: Warm::EMPTY, spare: Warm::EMPTY, cold: Cold::default(), next_carve: FIRST_CARVE };
        Self { shelves: std::array::from_fn(|_| empty()), reused: 0, fresh: 0 }
    }

    /// A stack of that size: the warmest one, or a new one.
    pub(crate) fn take(&mut self, size: StackSize) -> Result<Stack, NoStack> {
        match self.take_warm(size) {
            Some(stack) => Ok(stack),
            None => self.take_slow(size),
        }
    }

    /// The stack of that size that was given last, if the cache has one. It ran before, and so it is prepared.
    #[inline(always)]
    pub(crate) fn take_warm(&mut self, size: StackSize) -> Option<Stack> {
        let stack = self.shelves.get_mut(size.class())?.hot.pop_near()?;
        self.reused += 1;
        Some(stack)
    }

    #[cold]
    fn take_slow(&mut self, size: StackSize) -> Result<Stack, NoStack> {
        let Some(shelf) = self.shelves.get_mut(size.class()) else {
            return self.take_own(size);
        };
        if shelf.hot.len() == 0 {
            std::mem::swap(&mut shelf.hot, &mut shelf.spare);
            if shelf.hot.len() == 0
                && let Some(batch) = WARM[size.class()].take()
            {
                let left = std::mem::replace(&mut shelf.hot, batch);
                if left.stacks.capacity() > 0 {
                    ROOM[size.class()].put(left.stacks);
                }
            }
            shelf.hot.bring_near();
        }
        if let Some(stack) = shelf.hot.pop() {
            self.reused += 1;
            return Ok(stack);
        }
        if shelf.cold.0.is_empty() {
            shelf.refill_cold(size)?;
        }
        // Here, where memory is made anyway, and not when the stack comes back.
        if shelf.hot.stacks.capacity() == 0 {
            shelf.hot = Warm::with_room(size.class());
        }
        let record = shelf.cold.0.pop().expect("refilled with at least one");
        self.fresh += 1;
        Ok(initialise(record, size))
    }

    fn take_own(&mut self, size: StackSize) -> Result<Stack, NoStack> {
        if let Some(stack) = OWN[size.class() - POOLED].take() {
            self.reused += 1;
            return Ok(stack);
        }
        let record = arena::map_own(size)?;
        self.fresh += 1;
        Ok(initialise(record, size))
    }

    /// Takes a stack back. No code runs on it any more.
    #[inline]
    pub(crate) fn give(&mut self, stack: Stack) {
        debug_assert!(!stack.record().is_stood_on(), "a stack is given back by code that runs on it");
        let stack = match self.shelves.get_mut(stack.shelf()) {
            Some(shelf) => match shelf.hot.push(stack) {
                Ok(()) => return,
                Err(stack) => stack,
            },
            None => stack,
        };
        self.give_slow(stack);
    }

    #[cold]
    fn give_slow(&mut self, stack: Stack) {
        if stack.is_reserve_open() {
            stack.close_reserve();
        }
        let Some(shelf) = self.shelves.get_mut(stack.class()) else {
            return give_own(stack);
        };
        if shelf.hot.len() >= BATCH {
            std::mem::swap(&mut shelf.hot, &mut shelf.spare);
            if shelf.hot.len() > 0 {
                put(stack.class(), std::mem::replace(&mut shelf.hot, Warm::with_room(stack.class())));
            }
        }
        if shelf.hot.stacks.capacity() == 0 {
            shelf.hot = Warm::with_room(stack.class());
        }
        shelf.hot.stacks.push(stack);
    }

    /// Does it hold more than a resting worker needs?
    pub(crate) fn is_fat(&self) -> bool {
        self.shelves.iter().any(|shelf| shelf.spare.len() > 0 || shelf.hot.len() > 2 * REST)
    }

    /// Leaves to the other workers what a resting worker does not need.
    pub(crate) fn shed(&mut self) {
        for (class, shelf) in self.shelves.iter_mut().enumerate() {
            if shelf.hot.len() == 0 && shelf.spare.len() == 0 {
                continue;
            }
            let rest = shelf.hot.len().saturating_sub(REST);
            let mut kept = Warm::with_room(class);
            kept.stacks.extend(shelf.hot.stacks.drain(rest..));
            shelf.put_warm(class);
            shelf.hot = kept;
        }
    }

    /// Leaves everything to the other workers: for the end of this one.
    pub(crate) fn flush(&mut self) {
        for (class, shelf) in self.shelves.iter_mut().enumerate() {
            shelf.put_warm(class);
            if !shelf.cold.0.is_empty() {
                COLD[class].put(std::mem::take(&mut shelf.cold));
            }
        }
    }

    /// Counts a stack that went from one fiber to the next without passing through the cache.
    #[inline(always)]
    pub(crate) fn note_reuse(&mut self) {
        self.reused += 1;
    }

    /// How many stacks were taken that had run a fiber before.
    pub(crate) fn reused(&self) -> u64 {
        self.reused
    }

    /// How many stacks were taken that had no memory yet.
    pub(crate) fn fresh(&self) -> u64 {
        self.fresh
    }
}

impl Drop for StackCache {
    /// A cache that ends without [`StackCache::flush`] would strand its stacks for ever.
    fn drop(&mut self) {
        self.flush();
    }
}

impl Shelf {
    /// Leaves all warm stacks to the other workers.
    fn put_warm(&mut self, class: usize) {
        for warm in [&mut self.spare, &mut self.hot] {
            if warm.len() > 0 {
                put(class, std::mem::replace(warm, Warm::EMPTY));
            }
        }
    }

    fn refill_cold(&mut self, size: StackSize) -> Result<(), NoStack> {
        if let Some(batch) = COLD[size.class()].take() {
            self.cold = batch;
            return Ok(());
        }
        arena::carve(size, self.next_carve, &mut self.cold.0)?;
        // The lowest address first: neighbours share page tables and lie in the order in which fibers start.
        self.cold.0.reverse();
        self.next_carve = (self.next_carve * 2).min(BATCH);
        Ok(())
    }
}

/// Leaves stacks to the other workers, and asks for the trimmer if there are many.
fn put(class: usize, batch: Warm) {
    WARM[class].put(batch);
    if trim::is_fat(class) {
        crate::fiber::trim::want();
    }
}

/// Writes the record of a stack without memory.
fn initialise(record: NonNull<StackTop>, size: StackSize) -> Stack {
    let slot = arena::slot_of_record(record, size);
    // SAFETY: the record came from `arena` and is guarded; its holder was the cache that called this.
    unsafe { Stack::initialise(record, slot, size) }
}

/// Keeps a stack with its own mapping for the next taker of that size, or unmaps it.
fn give_own(stack: Stack) {
    let class = stack.class() - POOLED;
    let pool = &OWN[class];
    // The count may be a little old, and the pool then a little too large: trimming corrects that.
    if stack.size() <= OWN_POOLED_BYTES && pool.count() < OWN_POOLED {
        pool.put(stack);
        if trim::is_own_fat(class) {
            crate::fiber::trim::want();
        }
    } else {
        unmap(stack);
    }
}

/// Unmaps a stack with its own mapping.
pub(super) fn unmap(stack: Stack) {
    stack.retire();
    let (slot, size) = (stack.slot(), StackSize::of_class(stack.class()));
    // A report may have found this stack's top in a frame a moment ago, before its fiber ended.
    let _census = crate::fiber::CENSUS.lock();
    // SAFETY: the stack is owned here and goes out of existence with this.
    unsafe { arena::unmap_own(slot, size) };
}
