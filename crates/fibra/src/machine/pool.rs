//! Pools of operations: the memory of a machine's operations, all of it allocated at once.
//!
//! Above: machines, which take operations out. Below: `node`.
//!
//! A machine has no more operations in flight than its pool has room: that is what bounds everything, and running out is an answer
//! ([`Exhausted`]), not an event. What is taken out keeps the memory alive: a pool may be dropped at any time, and its operations stay
//! until the last one has been acknowledged.
//!
//! Nodes and their data lie side by side in one piece of memory. An operation in use costs no count of that memory: what is back is
//! counted instead, in the word by which it comes back, and so the last one to come back to a pool that is gone is known. (This is why
//! it is no `prim::mpsc`, which does not count: that would be a second read-modify-write for each operation.)
//!
//! Invariants:
//! * a node is in `returned` (pushed by whoever let go of it last, on any thread), in the owner's private list, or in use;
//! * the memory is there as long as the pool, one of its gauges, or one of its nodes in use;
//! * once `returned` is [`CLOSED`], the pool is gone, and it only counts.

use std::fmt;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::ops::Range;
use std::ptr::{self, NonNull};

use super::link::{Link, LinkKind};
use super::node::{Node, Owned};
use super::op::Op;
use crate::prim::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::linked::{Linked, end_of_list};

/// How many ids a pool takes at once from the process-wide supply. One of a single operation, as every call has, takes one: calls
/// alone could otherwise use up the ids of the process in a year.
const ID_BLOCK: u64 = 1 << 16;

/// Ids that nobody else has. Never 0.
#[cfg(not(any(loom, shuttle)))]
fn ids(number: u64) -> Range<u64> {
    use crate::prim::atomic::AtomicU64;
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: only the number matters.
    let first = NEXT.fetch_add(number, Ordering::Relaxed);
    first..first + number
}

/// Models have no statics: every pool has a supply of its own.
#[cfg(any(loom, shuttle))]
fn ids(_: u64) -> Range<u64> {
    1..1 + ID_BLOCK
}

/// The pool has no operation left: all are in flight, or waiting to be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted<D>(pub D);

impl<D> fmt::Display for Exhausted<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("all operations of the pool are in flight")
    }
}

impl<D: fmt::Debug> std::error::Error for Exhausted<D> {}

/// An operation and its data.
#[repr(C)]
struct Cell<D> {
    node: Node,
    data: Option<D>,
}

/// Nothing has come back, in the lower half of `returned`; a node there is its number and one more.
const NONE: u32 = 0;
/// The pool is gone.
const CLOSED: u32 = u32::MAX;

/// The word `returned`: the newest node that came back, and how many are.
fn word(newest: u32, count: u32) -> u64 {
    (count as u64) << 32 | newest as u64
}

fn newest_and_count(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// The memory of a pool; see the head of this file.
pub(super) struct PoolMemory {
    /// The first of its cells, which are this far from each other.
    cells: *mut u8,
    stride: usize,
    capacity: u32,
    drop_cells: unsafe fn(*mut u8, usize),
    /// Drops what is in the data of a node, if there can be anything to drop.
    pub(super) empty: Option<unsafe fn(*mut ())>,
    /// Nodes that came back, newest first, and their number; see [`word`].
    returned: AtomicU64,
    /// How many are in the owner's private list: its own number, for others to see.
    private: AtomicU32,
    /// The pool together with its nodes, and its gauges.
    holders: AtomicUsize,
}

// SAFETY: nodes are handed out one by one, and each has a protocol of its own (see `node`); data is `Send`.
unsafe impl Send for PoolMemory {}
// SAFETY: as above.
unsafe impl Sync for PoolMemory {}

impl PoolMemory {
    fn new<D: Send + 'static>(capacity: usize) -> NonNull<Self> {
        assert!(capacity < CLOSED as usize, "fibra: a pool has less than 2^32 - 1 operations, not {capacity}");
        let empty: unsafe fn(*mut ()) = |data| {
            // SAFETY: called for the data of a node of this pool, by its owner.
            let taken = unsafe { &mut *data.cast::<Option<D>>() }.take();
            drop(taken);
        };
        let memory = Box::into_raw(Box::new(Self {
            cells: ptr::null_mut(),
            stride: size_of::<Cell<D>>(),
            capacity: capacity as u32,
            drop_cells: |cells, capacity| {
                let cells = ptr::slice_from_raw_parts_mut(cells.cast::<Cell<D>>(), capacity);
                // SAFETY: made below from a box of so many cells; called once, when nobody knows any of them any more.
                drop(unsafe { Box::from_raw(cells) });
            },
            empty: std::mem::needs_drop::<D>().then_some(empty),
            returned: AtomicU64::new(word(NONE, 0)),
            private: AtomicU32::new(capacity as u32),
            holders: AtomicUsize::new(1),
        }));
        let mut cells: Box<[std::mem::MaybeUninit<Cell<D>>]> = Box::new_uninit_slice(capacity);
        for (place, cell) in cells.iter_mut().enumerate() {
            cell.write(Cell { node: Node::new::<D>(memory, place as u32), data: None });
        }
        let cells = Box::into_raw(cells).cast::<Cell<D>>();
        for place in 0..capacity {
            // SAFETY: a cell of the memory, initialised above; nobody else knows it. Pointers into it are made from that to all of it.
            unsafe { (*cells.add(place)).node.set_data(&raw mut (*cells.add(place)).data) };
        }
        // SAFETY: made above, and known to nobody else yet.
        unsafe { (*memory).cells = cells.cast() };
        NonNull::new(memory).expect("a box is somewhere")
    }

    /// The main link of the node with that number.
    fn link(&self, place: u32) -> NonNull<Link> {
        debug_assert!(place < self.capacity);
        // SAFETY: within the cells, of which the node is the first part.
        let node = unsafe { self.cells.add(place as usize * self.stride + offset_of!(Cell<()>, node)) };
        Node::link(NonNull::new(node.cast()).expect("inside a box"), LinkKind::Main)
    }

    /// # Safety
    /// The node is of this pool, and nobody else knows it any more.
    #[inline]
    pub(super) unsafe fn give_back(memory: *const Self, node: NonNull<Node>) {
        // SAFETY: the node is in use until the exchange succeeds, and so the memory is there.
        let (here, index) = unsafe { (&*memory, node.as_ref().index) };
        let link = Node::link(node, LinkKind::Main);
        // Relaxed: a first guess.
        let mut before = here.returned.load(Ordering::Relaxed);
        loop {
            let (newest, count) = newest_and_count(before);
            let after = if newest == CLOSED {
                word(CLOSED, count + 1)
            } else {
                let next = if newest == NONE { end_of_list() } else { here.link(newest - 1).as_ptr() };
                // SAFETY: the node is ours until the exchange succeeds. Relaxed: published by that.
                unsafe { link.as_ref() }.link().store(next, Ordering::Relaxed);
                word(index + 1, count + 1)
            };
            // AcqRel: release pairs with the acquire in `OpPool::take`, and with that of whoever frees the memory; acquire is for
            // the latter: the last one to come back sees what the others did. Relaxed on failure: a new guess.
            match here.returned.compare_exchange_weak(before, after, Ordering::AcqRel, Ordering::Relaxed) {
                // SAFETY: all nodes are back, and the pool is gone: this is the end of their common right.
                Ok(_) if newest == CLOSED && count + 1 == here.capacity => return unsafe { Self::release(memory) },
                Ok(_) => return,
                Err(now) => before = now,
            }
        }
    }

    /// The pool is gone; its private nodes are back for good.
    ///
    /// # Safety
    /// Called once, by the pool.
    unsafe fn close(memory: *const Self) {
        // SAFETY: the pool's own right to the memory, until the exchange succeeds.
        let here = unsafe { &*memory };
        // Relaxed: the pool's own number. It counts as returned from here on.
        let private = here.private.load(Ordering::Relaxed);
        here.private.store(0, Ordering::Relaxed);
        // Relaxed: a first guess.
        let mut before = here.returned.load(Ordering::Relaxed);
        loop {
            let (_, count) = newest_and_count(before);
            let back = if seeded_bug("pool_forgets_private") { count } else { count + private };
            // AcqRel: as in `give_back`. Relaxed on failure: a new guess.
            match here.returned.compare_exchange_weak(before, word(CLOSED, back), Ordering::AcqRel, Ordering::Relaxed) {
                // SAFETY: as in `give_back`.
                Ok(_) if back == here.capacity => return unsafe { Self::release(memory) },
                Ok(_) => return,
                Err(now) => before = now,
            }
        }
    }

    /// One holder less. The last one frees it.
    ///
    /// # Safety
    /// The caller has a right to the memory (its own, or that of the pool with its nodes) and gives it up.
    unsafe fn release(memory: *const Self) {
        // SAFETY: there, because the caller's right still counts.
        let here = unsafe { &*memory };
        // AcqRel: the last one sees what the others did.
        if here.holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: nobody knows the memory, or a node in it, any more.
            unsafe {
                (here.drop_cells)(here.cells, here.capacity as usize);
                drop(Box::from_raw(memory.cast_mut()));
            }
        }
    }

    fn available(&self) -> usize {
        // Relaxed, both: a number for people, and exact when nothing is under way.
        let (_, returned) = newest_and_count(self.returned.load(Ordering::Relaxed));
        returned as usize + self.private.load(Ordering::Relaxed) as usize
    }
}

impl fmt::Debug for PoolMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolMemory").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

/// A machine's own supply of operations that carry a `D`.
///
/// ```
/// use fibra::machine::OpPool;
///
/// let mut pool = OpPool::<&str>::with_capacity(1);
/// let first = pool.take(7, "data").unwrap();
/// assert_eq!((first.opcode(), *first), (7, "data"));
/// assert_eq!(pool.take(7, "more").unwrap_err().0, "more"); // one is in use, and there is one
/// drop(first);
/// assert!(pool.take(7, "more").is_ok());
/// ```
pub struct OpPool<D> {
    memory: NonNull<PoolMemory>,
    /// Free nodes that only this pool knows: a list that ends with [`end_of_list`].
    private: *mut Link,
    ids: Range<u64>,
    _data: PhantomData<D>,
}

// SAFETY: the private list is the pool's own, wherever that is; data is `Send`.
unsafe impl<D: Send> Send for OpPool<D> {}

impl<D> OpPool<D> {
    fn memory(&self) -> &PoolMemory {
        // SAFETY: there as long as the pool.
        unsafe { self.memory.as_ref() }
    }
}

impl<D: Send + 'static> OpPool<D> {
    /// A pool of `capacity` operations. This is the one allocation.
    ///
    /// # Panics
    /// If `capacity` is 2^32 - 1 or more.
    pub fn with_capacity(capacity: usize) -> Self {
        let memory = PoolMemory::new::<D>(capacity);
        let mut private = end_of_list();
        // SAFETY: made a moment ago.
        let here = unsafe { memory.as_ref() };
        for place in (0..here.capacity).rev() {
            let link = here.link(place);
            // SAFETY: a free node of a pool that nobody else knows yet. Relaxed: for the same reason.
            unsafe { link.as_ref() }.link().store(private, Ordering::Relaxed);
            private = link.as_ptr();
        }
        Self { memory, private, ids: 0..0, _data: PhantomData }
    }

    /// Takes an operation out. It has an id of its own, and is a root of its own trace until [`Op::caused_by`] says otherwise.
    ///
    /// # Errors
    /// All operations are in use: the data comes back.
    #[inline]
    pub fn take(&mut self, opcode: u32, data: D) -> Result<Op<D>, Exhausted<D>> {
        if self.private == end_of_list() && !self.collect() {
            return Err(Exhausted(data));
        }
        // SAFETY: in the private list, so a free node of this pool.
        let link = unsafe { NonNull::new_unchecked(self.private) };
        // SAFETY: as above. Relaxed, both: the list is the pool's alone.
        let next = unsafe { link.as_ref() }.link();
        self.private = next.load(Ordering::Relaxed);
        next.store(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: as above.
        let (node, _) = unsafe { Link::node(link) };
        let private = &self.memory().private;
        // Relaxed, both: written by the pool alone, and for people and for tests.
        private.store(private.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        if self.ids.is_empty() {
            self.ids = ids(if self.capacity() == 1 { 1 } else { ID_BLOCK });
        }
        let id = self.ids.start;
        self.ids.start += 1;
        // SAFETY: free, and out of the list; its data was emptied before it was given back.
        Ok(Op::new(unsafe { Owned::first(node, id, opcode, data) }))
    }

    /// What has come back is the pool's own again. False if nothing has.
    #[inline]
    fn collect(&mut self) -> bool {
        let memory = self.memory();
        // Relaxed: a hint; what comes back a moment later comes too late for this call.
        if memory.returned.load(Ordering::Relaxed) == word(NONE, 0) {
            return false;
        }
        // Acquire: pairs with the release in `give_back`. All at once, so that there is no ABA.
        let (newest, count) = newest_and_count(memory.returned.swap(word(NONE, 0), Ordering::Acquire));
        // Relaxed: the pool's own number.
        memory.private.store(count, Ordering::Relaxed);
        self.private = memory.link(newest - 1).as_ptr();
        true
    }

    /// How many operations there are in all.
    pub fn capacity(&self) -> usize {
        self.memory().capacity as usize
    }

    /// How many are not in use now.
    pub fn available(&self) -> usize {
        self.memory().available()
    }

    /// A look at the pool from elsewhere, also when the pool itself is gone.
    pub fn gauge(&self) -> PoolGauge {
        PoolGauge::new(self.memory)
    }
}

impl<D> Drop for OpPool<D> {
    fn drop(&mut self) {
        // SAFETY: the pool's own right, once.
        unsafe { PoolMemory::close(self.memory.as_ptr()) };
    }
}

impl<D> fmt::Debug for OpPool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = self.memory();
        f.debug_struct("OpPool").field("capacity", &memory.capacity).field("available", &memory.available()).finish()
    }
}

/// Tells how full a pool is, from any thread.
#[derive(Debug)]
pub struct PoolGauge {
    memory: NonNull<PoolMemory>,
}

// SAFETY: a gauge only reads two numbers, which are atomic, of memory that it keeps.
unsafe impl Send for PoolGauge {}
// SAFETY: as above.
unsafe impl Sync for PoolGauge {}

impl PoolGauge {
    /// The memory is there, by another right.
    fn new(memory: NonNull<PoolMemory>) -> Self {
        let gauge = Self { memory };
        // Relaxed: whoever makes one has a right to the memory, so it cannot be zero.
        let before = gauge.memory().holders.fetch_add(1, Ordering::Relaxed);
        assert!(before < usize::MAX / 2, "fibra: a pool has more gauges than memory could hold");
        gauge
    }

    fn memory(&self) -> &PoolMemory {
        // SAFETY: there as long as the gauge.
        unsafe { self.memory.as_ref() }
    }

    /// How many operations the pool has in all.
    pub fn capacity(&self) -> usize {
        self.memory().capacity as usize
    }

    /// How many are not in use now.
    pub fn available(&self) -> usize {
        self.memory().available()
    }
}

#[cfg(all(test, any(loom, shuttle)))]
impl PoolGauge {
    /// Whether this gauge alone keeps the memory.
    pub(super) fn is_last(&self) -> bool {
        // Relaxed: asked when nothing is under way.
        self.memory().holders.load(Ordering::Relaxed) == 1
    }
}

impl Clone for PoolGauge {
    fn clone(&self) -> Self {
        Self::new(self.memory)
    }
}

impl Drop for PoolGauge {
    fn drop(&mut self) {
        // SAFETY: the gauge's own right, once.
        unsafe { PoolMemory::release(self.memory.as_ptr()) };
    }
}
