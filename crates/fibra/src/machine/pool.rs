//! Pools of operations: the memory of a machine's operations, all of it allocated at once.
//!
//! Above: machines, which take operations out. Below: `node`.
//!
//! A machine has no more operations in flight than its pool has room for. This bounds all queues; running out is an
//! answer ([`Exhausted`]), not a failure. An operation that was taken out keeps the memory alive: a pool may be dropped
//! at any time, and its operations stay until the last one has been acknowledged.
//!
//! Nodes and their data lie side by side in one piece of memory. A node that comes back, from any thread, is pushed
//! into a queue (`prim::mpsc`) that the pool empties when its private list is empty. An operation in use costs no count
//! of that memory: only when the pool is gone, and its queue closed, each node that comes back is counted (`parted`),
//! and the last of them frees the memory.
//!
//! Invariants:
//! * a node is in `returned` (pushed by the last of its holders, on any thread), in the pool's private list, or in use; its count of
//!   holders is zero in the two lists and not zero in use;
//! * the memory lives as long as the pool, one of its gauges, or one of its nodes in use;
//! * once `returned` is closed, the pool is gone. `parted` counts the nodes that were free then, those that came back
//!   later, and the pool itself. It reaches the number of nodes plus one when none of them will be used again.

use std::fmt;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::ops::Range;
use std::ptr::{self, NonNull};

use super::link::{Link, LinkKind};
use super::node::{OpNode, Owned};
use super::op::Op;
use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::mpsc::{Batch, Chain, Mpsc};

/// How many ids a pool takes at once from the process-wide supply. A pool of a single operation, as every call has,
/// takes one: calls alone could otherwise use up the ids of the process in a year.
const ID_BLOCK: u64 = 1 << 16;

/// Ids that no other operation has. Never 0.
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
    node: OpNode,
    data: Option<D>,
}

/// The memory of a pool; see the head of this file.
pub(super) struct PoolMemory {
    /// The first of its cells, which are this far from each other.
    cells: *mut u8,
    stride: usize,
    capacity: usize,
    drop_cells: unsafe fn(*mut u8, usize),
    /// Drops what is in the data of a node, if there can be anything to drop.
    pub(super) empty: Option<unsafe fn(*mut ())>,
    /// Nodes that came back. The pool is the owner of the queue.
    returned: Mpsc<Link>,
    /// Counts down after the pool is gone: see the head of this file.
    parted: AtomicUsize,
    /// The pool together with its nodes, and its gauges.
    holders: AtomicUsize,
}

// SAFETY: nodes are handed out one by one, and each has a protocol of its own (see `node`); data is `Send`.
unsafe impl Send for PoolMemory {}
// SAFETY: as above.
unsafe impl Sync for PoolMemory {}

impl PoolMemory {
    fn new<D: Send + 'static>(capacity: usize) -> NonNull<Self> {
        assert!(capacity < u32::MAX as usize, "fibra: a pool has less than 2^32 - 1 operations, not {capacity}");
        let empty: unsafe fn(*mut ()) = |data| {
            // SAFETY: called for the data of a node of this pool, by its owner.
            let taken = unsafe { &mut *data.cast::<Option<D>>() }.take();
            drop(taken);
        };
        let memory = Box::into_raw(Box::new(Self {
            cells: ptr::null_mut(),
            stride: size_of::<Cell<D>>(),
            capacity,
            drop_cells: |cells, capacity| {
                let cells = ptr::slice_from_raw_parts_mut(cells.cast::<Cell<D>>(), capacity);
                // SAFETY: made below from a box of so many cells; called once, when no thread has a pointer to any of
                // them any more.
                drop(unsafe { Box::from_raw(cells) });
            },
            empty: std::mem::needs_drop::<D>().then_some(empty),
            returned: Mpsc::new(),
            parted: AtomicUsize::new(0),
            holders: AtomicUsize::new(1),
        }));
        let mut cells: Box<[std::mem::MaybeUninit<Cell<D>>]> = Box::new_uninit_slice(capacity);
        for cell in &mut cells {
            cell.write(Cell { node: OpNode::new::<D>(memory), data: None });
        }
        let cells = Box::into_raw(cells).cast::<Cell<D>>();
        for place in 0..capacity {
            // SAFETY: a cell of the memory, initialised above; no other thread knows it. Pointers into it are made from
            // the pointer to all of it.
            unsafe { (*cells.add(place)).node.set_data(&raw mut (*cells.add(place)).data) };
        }
        // SAFETY: made above, and not shared with another thread yet.
        unsafe { (*memory).cells = cells.cast() };
        NonNull::new(memory).expect("a box is somewhere")
    }

    /// The node with that number.
    fn node(&self, place: usize) -> NonNull<OpNode> {
        debug_assert!(place < self.capacity);
        // SAFETY: within the cells, of which the node is the first part.
        let node = unsafe { self.cells.add(place * self.stride + offset_of!(Cell<()>, node)) };
        NonNull::new(node.cast()).expect("inside a box")
    }

    /// # Safety
    /// The node is of this pool, is counted as held by none, and the caller alone knows it.
    #[inline]
    pub(super) unsafe fn give_back(memory: *const Self, node: NonNull<OpNode>) {
        // SAFETY: the node is in use until it is in the queue, and so the memory is alive.
        let here = unsafe { &*memory };
        // SAFETY: the node is the caller's alone, and lives as long as the memory. Ok(true) needs nothing: the pool does not sleep.
        if unsafe { here.returned.push(OpNode::link(node, LinkKind::Main)) }.is_err() {
            // SAFETY: the node's own part, once: the pool is gone, so it will not be used again.
            unsafe { Self::part_with(memory, 1) };
        }
    }

    /// The pool is gone, with so many nodes in its private list.
    ///
    /// # Safety
    /// Called once, by the pool.
    unsafe fn close(memory: *const Self, private: usize) {
        // SAFETY: the pool's own right to the memory, until it has parted with it.
        let returned = unsafe { &*memory }.returned.close().count();
        let free = if seeded_bug("pool_forgets_private") { returned } else { returned + private };
        // SAFETY: the pool's own part, and those of all nodes that are free; those in use find the queue closed.
        unsafe { Self::part_with(memory, free + 1) };
    }

    /// So many of the nodes, and of the pool itself, will not touch the memory again. The last of them gives up their common right.
    ///
    /// # Safety
    /// The pool is closed, or is just being closed by the caller; each part is given up once.
    #[cold]
    unsafe fn part_with(memory: *const Self, parts: usize) {
        // SAFETY: there, because the caller's parts are not counted yet.
        let here = unsafe { &*memory };
        // Read before: afterwards the memory may be gone.
        let all = here.capacity + 1;
        // AcqRel: release for what this one did; acquire so that the last one sees what all others did.
        if here.parted.fetch_add(parts, Ordering::AcqRel) + parts == all {
            // SAFETY: all nodes are back, and the pool is gone: this is the end of their common right.
            unsafe { Self::release(memory) };
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
            // SAFETY: no thread has a pointer to the memory, or to a node in it, any more.
            unsafe {
                (here.drop_cells)(here.cells, here.capacity);
                drop(Box::from_raw(memory.cast_mut()));
            }
        }
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
    /// Free nodes that only this pool knows.
    private: Batch<Link>,
    ids: Range<u64>,
    _data: PhantomData<D>,
}

// SAFETY: the private list belongs to the pool, on whichever thread the pool is; data is `Send`.
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
        let mut free = Chain::new();
        // SAFETY: made a moment ago.
        let here = unsafe { memory.as_ref() };
        for place in (0..capacity).rev() {
            // SAFETY: a free node, which lives as long as the pool, and is known to it alone.
            unsafe { free.push(OpNode::link(here.node(place), LinkKind::Main)) };
        }
        Self { memory, private: free.take_newest_first(), ids: 0..0, _data: PhantomData }
    }

    /// Takes an operation out. It has an id of its own, and is a root of its own trace until [`Op::caused_by`] says otherwise.
    ///
    /// # Errors
    /// All operations are in use: the data comes back.
    #[inline]
    pub fn take(&mut self, opcode: u32, data: D) -> Result<Op<D>, Exhausted<D>> {
        let Some(link) = self.private.next().or_else(|| self.collect()) else { return Err(Exhausted(data)) };
        // SAFETY: from one of the pool's lists, so a free node of this pool.
        let (node, _) = unsafe { Link::node(link) };
        if self.ids.is_empty() {
            self.ids = ids(if self.capacity() == 1 { 1 } else { ID_BLOCK });
        }
        let id = self.ids.start;
        self.ids.start += 1;
        // SAFETY: free, and out of the list; its data was emptied before it was given back.
        Ok(Op::new(unsafe { Owned::first(node, id, opcode, data) }))
    }

    /// Takes the nodes that came back into the pool's private list. Gives the first of them.
    #[inline]
    fn collect(&mut self) -> Option<NonNull<Link>> {
        self.private = self.memory().returned.take_newest_first();
        self.private.next()
    }

    /// How many operations there are in all.
    pub fn capacity(&self) -> usize {
        self.memory().capacity
    }

    /// How many operations are free now: so many can be taken. They are counted one by one.
    pub fn available(&self) -> usize {
        free_nodes(&self.private, self.memory())
    }

    /// A look at the pool from elsewhere, also when the pool itself is gone.
    pub fn gauge(&self) -> PoolGauge {
        PoolGauge::new(self.memory)
    }
}

/// The length of the pool's two lists of free nodes, asked by the pool.
fn free_nodes(private: &Batch<Link>, memory: &PoolMemory) -> usize {
    private.left() + memory.returned.length()
}

impl<D> Drop for OpPool<D> {
    fn drop(&mut self) {
        // SAFETY: the pool's own right, once.
        unsafe { PoolMemory::close(self.memory.as_ptr(), self.private.left()) };
    }
}

impl<D> fmt::Debug for OpPool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = self.memory();
        let available = free_nodes(&self.private, memory);
        f.debug_struct("OpPool").field("capacity", &memory.capacity).field("available", &available).finish()
    }
}

/// Tells how full a pool is, from any thread.
#[derive(Debug)]
pub struct PoolGauge {
    memory: NonNull<PoolMemory>,
}

// SAFETY: a gauge only reads what does not change, and counts that are atomic, of memory that it keeps.
unsafe impl Send for PoolGauge {}
// SAFETY: as above.
unsafe impl Sync for PoolGauge {}

impl PoolGauge {
    /// Makes a gauge. The caller has another right to the memory, so that it is alive.
    fn new(memory: NonNull<PoolMemory>) -> Self {
        let gauge = Self { memory };
        // Relaxed: the caller that makes a gauge has a right to the memory, so it cannot be zero.
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
        self.memory().capacity
    }

    /// How many are not in use now. They are counted one by one; one that is just coming back may count a moment before it can be taken.
    pub fn available(&self) -> usize {
        let memory = self.memory();
        // SAFETY: nodes live as long as the memory.
        (0..memory.capacity).filter(|place| unsafe { memory.node(*place).as_ref() }.is_free()).count()
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
