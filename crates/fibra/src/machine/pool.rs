//! Pools of operations: the memory of a machine's operations, all of it allocated at once.
//!
//! Above: machines, which take operations out. Below: `node`.
//!
//! A machine has no more operations in flight than its pool has room: that is what bounds everything, and running out is an answer
//! ([`Exhausted`]), not an event. What is taken out keeps the memory alive: a pool may be dropped at any time, and its operations stay
//! until the last one has been acknowledged.
//!
//! Invariants: a node is in `returned` (pushed by whoever let go of it last, on any thread), in the owner's private list, or in use.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

use super::node::{Link, LinkKind, Node, Owned};
use super::op::Op;
use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::prim::mpsc::{Batch, Chain, Mpsc};
use crate::prim::sync::Arc;

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

/// The memory of a pool. Lives as long as the pool or any node that is in use.
pub(super) struct PoolMemory {
    nodes: Box<[Node]>,
    /// The data of the nodes, behind their `data` pointers; never touched here.
    _data: Box<dyn Any + Send>,
    /// Drops what is in the data of a node.
    empty: fn(&mut (dyn Any + Send)),
    /// Nodes that came back, newest first.
    returned: Mpsc<Link>,
    free: AtomicUsize,
}

// SAFETY: nodes are handed out one by one, and each has a protocol of its own (see `node`); data is `Send`.
unsafe impl Send for PoolMemory {}
// SAFETY: as above.
unsafe impl Sync for PoolMemory {}

impl PoolMemory {
    pub(super) fn empty(&self) -> fn(&mut (dyn Any + Send)) {
        self.empty
    }

    /// # Safety
    /// The node is of this pool, and nobody else knows it any more.
    pub(super) unsafe fn give_back(&self, node: NonNull<Node>) {
        let link = Node::link(node, LinkKind::Main);
        // Relaxed: for people and for tests; the memory itself is ordered by `returned`.
        self.free.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise: the node is in no list, and its memory is the pool's. Nobody sleeps until one comes back.
        let _ = unsafe { self.returned.push(link) };
    }
}

impl fmt::Debug for PoolMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolMemory").field("capacity", &self.nodes.len()).finish_non_exhaustive()
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
    memory: Arc<PoolMemory>,
    /// Free nodes that only this pool knows.
    private: Batch<Link>,
    ids: Range<u64>,
    _data: std::marker::PhantomData<D>,
}

// SAFETY: the private list is the pool's own, wherever that is; data is `Send`.
unsafe impl<D: Send> Send for OpPool<D> {}

impl<D: Send + 'static> OpPool<D> {
    /// A pool of `capacity` operations. This is the one allocation.
    pub fn with_capacity(capacity: usize) -> Self {
        let mut data: Vec<Option<D>> = (0..capacity).map(|_| None).collect();
        let start = data.as_mut_ptr();
        // SAFETY: pointers into the vector's memory, which neither moves nor shrinks: the vector goes into the pool's memory.
        let nodes: Box<[Node]> = (0..capacity).map(|index| Node::new(unsafe { start.add(index) })).collect();
        let memory = PoolMemory {
            nodes,
            _data: Box::new(data),
            empty: |data| {
                let taken = data.downcast_mut::<Option<D>>().and_then(Option::take);
                drop(taken);
            },
            returned: Mpsc::new(),
            free: AtomicUsize::new(capacity),
        };
        let memory = Arc::new(memory);
        let mut private = Chain::new();
        for node in memory.nodes.iter().rev() {
            // SAFETY: a free node of a pool that nobody else knows yet.
            unsafe { private.push(Node::link(NonNull::from(node), LinkKind::Main)) };
        }
        Self { memory, private: private.take_newest_first(), ids: 0..0, _data: std::marker::PhantomData }
    }

    /// Takes an operation out. It has an id of its own, and is a root of its own trace until [`Op::caused_by`] says otherwise.
    ///
    /// # Errors
    /// All operations are in use: the data comes back.
    pub fn take(&mut self, opcode: u32, data: D) -> Result<Op<D>, Exhausted<D>> {
        let link = match self.private.next() {
            Some(link) => link,
            None => {
                // Any of those that came back will do; the newest is the warmest.
                self.private = self.memory.returned.take_newest_first();
                let Some(link) = self.private.next() else { return Err(Exhausted(data)) };
                link
            }
        };
        // SAFETY: out of the private list, so a free node of this pool.
        let (node, _) = unsafe { Link::node(link) };
        // Relaxed: see `give_back`.
        self.memory.free.fetch_sub(1, Ordering::Relaxed);
        if self.ids.is_empty() {
            self.ids = ids(if self.capacity() == 1 { 1 } else { ID_BLOCK });
        }
        let id = self.ids.next().expect("supplied a moment ago");
        // SAFETY: free, and out of the list; its data was emptied before it was given back.
        Ok(Op::new(unsafe { Owned::first(node, self.memory.clone(), id, opcode, data) }))
    }

    /// How many operations there are in all.
    pub fn capacity(&self) -> usize {
        self.memory.nodes.len()
    }

    /// How many are not in use now.
    pub fn available(&self) -> usize {
        // Relaxed: a number for people, and exact when nothing is under way.
        self.memory.free.load(Ordering::Relaxed)
    }

    /// A look at the pool from elsewhere, also when the pool itself is gone.
    pub fn gauge(&self) -> PoolGauge {
        PoolGauge { memory: self.memory.clone() }
    }
}

impl<D> fmt::Debug for OpPool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: for people.
        let free = self.memory.free.load(Ordering::Relaxed);
        f.debug_struct("OpPool").field("capacity", &self.memory.nodes.len()).field("available", &free).finish()
    }
}

/// Tells how full a pool is, from any thread.
#[derive(Debug, Clone)]
pub struct PoolGauge {
    memory: Arc<PoolMemory>,
}

impl PoolGauge {
    /// How many operations the pool has in all.
    pub fn capacity(&self) -> usize {
        self.memory.nodes.len()
    }

    /// How many are not in use now.
    pub fn available(&self) -> usize {
        // Relaxed: a number for people, and exact when nothing is under way.
        self.memory.free.load(Ordering::Relaxed)
    }
}
