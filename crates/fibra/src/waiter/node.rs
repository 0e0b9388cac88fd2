//! Wait nodes and wait lists: how an object keeps the list of its waiters.
//!
//! Lowest floor, like the word: `fiber` embeds [`Waiter`] in its frames, everything above links [`Node`]s. A node lives with
//! the waiter (on the waiting stack, or in the recycled record of an async wait) and names one wait by (waiter, ticket). A
//! list belongs to an object and is only touched under that object's lock.
//!
//! Invariants:
//! * a linked node stays where it is until it is unlinked; the owner that claims its wait unlinks it, under the lock;
//! * a waiter is in type-stable memory for ever, so a copied (waiter, ticket) may be used at any later time;
//! * the owner that lets the waiter go on (releases the claim) copies what it needs from the node before, and never touches it after.

use std::cell::Cell;
use std::ptr::{self, NonNull};

use super::flags::Flags;
use super::word::{ARM_FIRST, CompletedBy, Ticket, Word};

/// The kind of a waiter: it decides how the waiter is woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum WaiterKind {
    /// A frame of `fiber`. Zero, so that zeroed frames are valid.
    Fiber = 0,
    /// A record of an OS thread.
    Thread = 1,
    /// A record of an async wait.
    Task = 2,
}

/// The head of every waiter: the word, and the flags that go with it. `repr(C)`, so that it can be the first field of a frame or a record.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Waiter {
    pub(crate) word: Word,
    kind: WaiterKind,
    pub(crate) flags: Flags,
}

impl Waiter {
    #[cfg(not(loom))]
    pub(crate) const fn new(kind: WaiterKind) -> Self {
        Self { word: Word::new(), kind, flags: Flags::new() }
    }
    #[cfg(loom)]
    pub(crate) fn new(kind: WaiterKind) -> Self {
        Self { word: Word::new(), kind, flags: Flags::new() }
    }
    #[inline(always)]
    pub(crate) fn kind(&self) -> WaiterKind {
        self.kind
    }
}

/// A waiter, by address. The memory behind it is never freed nor reused for anything but waiters of the same kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaiterRef(NonNull<Waiter>);

// SAFETY: it points to a `Waiter` in type-stable memory, whose fields are atomics or never change.
unsafe impl Send for WaiterRef {}
// SAFETY: as above.
unsafe impl Sync for WaiterRef {}

impl WaiterRef {
    /// # Safety
    /// `waiter` must be in memory that holds a `Waiter` of this kind for the rest of the process (or of the model).
    #[inline(always)]
    pub(crate) unsafe fn new(waiter: NonNull<Waiter>) -> Self {
        Self(waiter)
    }
    #[inline(always)]
    pub(crate) fn as_ptr(self) -> NonNull<Waiter> {
        self.0
    }
    #[inline(always)]
    pub(crate) fn get<'a>(self) -> &'a Waiter {
        // SAFETY: type-stable for ever, by the contract of `new`.
        unsafe { self.0.as_ref() }
    }
}

/// What a waiter wants of the object in whose list its node is: it decides how an owner completes the wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Either what it asks for, or a wake to try for itself.
    Either,
    /// A value, written into the slot.
    Fill,
    /// That the value in the slot is taken.
    Take,
    /// What it asks for (a place, a lock), and not a mere wake: the waiter could not try again.
    Grant,
    /// A wake only: an async waiter. Nothing moves; it looks again when it is polled, or passes the wake on when it is dropped.
    Call,
    /// To know that something happened. Nothing moves, and nothing is owed.
    Observe,
}

/// How an operation ended, or that it has not: what each try and each wait returns, and what the completion owner notes in the
/// node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Outcome {
    /// It has not ended yet.
    Pending,
    /// It has succeeded: the value moved, the place is reserved, the lock is held, the fiber has ended, the other side is gone.
    Done,
    /// It cannot succeed any more, and nothing moved: the channel is closed, the semaphore refuses.
    Closed,
    /// Nothing moved: try again, it may work now.
    Retry,
    /// For a future that waits for a place: a receiver looked for a value; see `WaiterState::invite` of a channel.
    Invited,
    /// Time was up first, and nothing moved.
    TimedOut,
    /// Cancellation came first, and nothing moved. The caller gives back what it has, and unwinds.
    Cancelled,
}

/// One entry in one object's list: it names a wait, and the arm of that wait. The object defines what `slot` means: where a
/// value is put or taken, or what is asked for. `outcome` is written between claim and release, by owners that have more to say than that
/// the wait is over.
#[derive(Debug)]
pub(crate) struct Node {
    prev: Cell<*const Node>,
    next: Cell<*const Node>,
    waiter: Cell<Option<WaiterRef>>,
    ticket: Cell<Ticket>,
    pub(crate) slot: Cell<*mut ()>,
    /// The rank of this node among the nodes of its wait in its list, if [`WaitList::push_shuffled`] linked it.
    rank: Cell<u32>,
    linked: Cell<bool>,
    arm: Cell<CompletedBy>,
    /// One of several arms: its waiter is enqueued behind what is ready, whereas a partner with a single arm runs next.
    pub(crate) several: Cell<bool>,
    pub(crate) role: Cell<Role>,
    pub(crate) outcome: Cell<Outcome>,
}

impl Node {
    pub(crate) const fn new() -> Self {
        Self {
            prev: Cell::new(ptr::null()),
            next: Cell::new(ptr::null()),
            waiter: Cell::new(None),
            ticket: Cell::new(Ticket::NONE),
            slot: Cell::new(ptr::null_mut()),
            rank: Cell::new(0),
            linked: Cell::new(false),
            arm: Cell::new(0),
            several: Cell::new(false),
            role: Cell::new(Role::Either),
            outcome: Cell::new(Outcome::Pending),
        }
    }

    /// The node of a wait with one arm. Most owners only report that the wait was completed: so that outcome is set beforehand.
    #[inline(always)]
    pub(crate) const fn of_wait(waiter: WaiterRef, ticket: Ticket) -> Self {
        Self {
            waiter: Cell::new(Some(waiter)),
            ticket: Cell::new(ticket),
            arm: Cell::new(ARM_FIRST),
            outcome: Cell::new(Outcome::Done),
            ..Self::new()
        }
    }

    /// The same for a node that is used again.
    pub(crate) fn begin(&self, waiter: WaiterRef, ticket: Ticket) {
        self.set(waiter, ticket, ARM_FIRST);
        self.outcome.set(Outcome::Done);
    }

    /// Sets the wait that this node stands for. Called before linking.
    #[inline(always)]
    pub(crate) fn set(&self, waiter: WaiterRef, ticket: Ticket, arm: CompletedBy) {
        self.waiter.set(Some(waiter));
        self.ticket.set(ticket);
        self.arm.set(arm);
    }

    /// Does it stand for a wait of this waiter?
    #[inline(always)]
    pub(crate) fn is_of(&self, waiter: Option<WaiterRef>) -> bool {
        waiter.is_some() && self.waiter.get() == waiter
    }

    /// The wait it stands for: copied out, since the node may be gone as soon as the claim is released.
    #[inline(always)]
    pub(crate) fn target(&self) -> (WaiterRef, Ticket, CompletedBy) {
        self.target_if_any().expect("a linked node has a waiter")
    }

    /// The same without the check, for the hottest paths.
    ///
    /// # Safety
    /// The node stands for a wait: it was made for one, or [`set`](Self::set).
    #[inline(always)]
    pub(crate) unsafe fn target_of_wait(&self) -> (WaiterRef, Ticket, CompletedBy) {
        // SAFETY: the contract.
        let waiter = unsafe { self.waiter.get().unwrap_unchecked() };
        (waiter, self.ticket.get(), self.arm.get())
    }

    /// The same for a list that also has nodes without a wait in it; see `sched::members::gathering`.
    #[inline(always)]
    pub(crate) fn target_if_any(&self) -> Option<(WaiterRef, Ticket, CompletedBy)> {
        Some((self.waiter.get()?, self.ticket.get(), self.arm.get()))
    }
}

/// A FIFO of nodes. Guarded by the lock of the object it belongs to.
#[derive(Debug)]
pub(crate) struct WaitList {
    head: Cell<*const Node>,
    tail: Cell<*const Node>,
}

// SAFETY: a list is only touched under its object's lock, and its nodes only through it; see the contracts below.
unsafe impl Send for WaitList {}

impl WaitList {
    pub(crate) const fn new() -> Self {
        Self { head: Cell::new(ptr::null()), tail: Cell::new(ptr::null()) }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.get().is_null()
    }

    /// # Safety
    /// Under the object's lock; `node` is not linked anywhere and stays where it is until it is unlinked.
    #[inline(always)]
    pub(crate) unsafe fn push_back(&self, node: &Node) {
        debug_assert!(!node.linked.get(), "a node is linked once");
        let tail = self.tail.replace(node);
        node.prev.set(tail);
        node.next.set(ptr::null());
        node.linked.set(true);
        if tail.is_null() {
            self.head.set(node);
        } else {
            // SAFETY: linked nodes are alive (contract of this function), and the lock is held.
            unsafe { (*tail).next.set(node) };
        }
    }

    /// Like [`push_back`](Self::push_back), but before all others: for a waiter that was woken, tried and found nothing.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn push_front(&self, node: &Node) {
        debug_assert!(!node.linked.get(), "a node is linked once");
        let head = self.head.replace(node);
        node.prev.set(ptr::null());
        node.next.set(head);
        node.linked.set(true);
        if head.is_null() {
            self.tail.set(node);
        } else {
            // SAFETY: linked nodes are alive (contract of this function), and the lock is held.
            unsafe { (*head).prev.set(node) };
        }
    }

    /// Like [`push_back`](Self::push_back), for one of several nodes of a wait that are linked one after the other, all under one lock:
    /// each of them is the first of them with the same chance. (The order of the others does not matter: the first to be completed
    /// ends the wait.) `choose` gives a number below its argument.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn push_shuffled(&self, node: &Node, choose: impl FnOnce(usize) -> usize) {
        // SAFETY: linked nodes are alive, and the lock is held (for all blocks here).
        let Some(last) = (unsafe { self.tail.get().as_ref() }).filter(|last| last.is_of(node.waiter.get())) else {
            node.rank.set(0);
            // SAFETY: passed on.
            return unsafe { self.push_back(node) };
        };
        let before = last.rank.get() + 1;
        if choose(before as usize + 1) != 0 {
            node.rank.set(before);
            // SAFETY: passed on.
            return unsafe { self.push_back(node) };
        }
        // In front of the others. That happens so seldom that the walk there does not matter.
        last.rank.set(before);
        let mut first = last;
        loop {
            // SAFETY: as above.
            let earlier = unsafe { first.prev.get().as_ref() };
            match earlier {
                Some(earlier) if earlier.is_of(node.waiter.get()) => first = earlier,
                _ => break,
            }
        }
        debug_assert!(!node.linked.get(), "a node is linked once");
        let prev = first.prev.replace(node);
        node.prev.set(prev);
        node.next.set(first);
        node.linked.set(true);
        // SAFETY: as above.
        match unsafe { prev.as_ref() } {
            Some(prev) => prev.next.set(node),
            None => self.head.set(node),
        }
    }

    /// The oldest node.
    ///
    /// # Safety
    /// Under the object's lock, and the reference must not be used after the node was unlinked and its wait released.
    #[inline(always)]
    pub(crate) unsafe fn front<'a>(&self) -> Option<&'a Node> {
        // SAFETY: linked nodes are alive, and the lock is held.
        unsafe { self.head.get().as_ref() }
    }

    /// The node behind `node`, which is linked here.
    ///
    /// # Safety
    /// As [`front`](Self::front).
    pub(crate) unsafe fn after<'a>(&self, node: &Node) -> Option<&'a Node> {
        debug_assert!(node.linked.get(), "asked of a node that is in the list");
        // SAFETY: linked nodes are alive, and the lock is held.
        unsafe { node.next.get().as_ref() }
    }

    /// Unlinks `node` if it is linked; does nothing otherwise. True if it was.
    ///
    /// # Safety
    /// Under the object's lock; `node`, if linked, is linked in this list.
    pub(crate) unsafe fn remove(&self, node: &Node) -> bool {
        if !node.linked.replace(false) {
            return false;
        }
        let (prev, next) = (node.prev.get(), node.next.get());
        if prev.is_null() {
            self.head.set(next);
        } else {
            // SAFETY: neighbours of a linked node are linked, hence alive, and the lock is held.
            unsafe { (*prev).next.set(next) };
        }
        if next.is_null() {
            self.tail.set(prev);
        } else {
            // SAFETY: as above.
            unsafe { (*next).prev.set(prev) };
        }
        true
    }

    /// Unlinks `node`, which is the oldest. True if there are others.
    ///
    /// # Safety
    /// Under the object's lock; `node` is what [`front`](Self::front) gave.
    #[inline(always)]
    pub(crate) unsafe fn remove_front(&self, node: &Node) -> bool {
        debug_assert!(ptr::eq(self.head.get(), node), "the oldest node of this list");
        let next = node.next.get();
        node.linked.set(false);
        self.head.set(next);
        // SAFETY: linked nodes are alive, and the lock is held.
        match unsafe { next.as_ref() } {
            Some(next) => next.prev.set(ptr::null()),
            None => self.tail.set(ptr::null()),
        }
        !next.is_null()
    }

    /// Unlinks the oldest node and returns the wait it stands for.
    ///
    /// # Safety
    /// Under the object's lock.
    pub(crate) unsafe fn pop_front(&self) -> Option<(WaiterRef, Ticket, CompletedBy)> {
        // SAFETY: passed on; no owner has let the waiter go on.
        unsafe { self.pop_front_node() }.map(Node::target)
    }

    /// Unlinks the oldest node.
    ///
    /// # Safety
    /// As [`front`](Self::front).
    pub(crate) unsafe fn pop_front_node<'a>(&self) -> Option<&'a Node> {
        // SAFETY: lock held (contract).
        let node = unsafe { self.front() }?;
        // SAFETY: as above, and `node` is in this list.
        unsafe { self.remove(node) };
        Some(node)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    // Several nodes of one wait: each is the first of them as often as the others, and none overtakes another wait.
    #[test]
    fn nodes_of_one_wait_are_shuffled() {
        let (before, waiter) = (Waiter::new(WaiterKind::Fiber), Waiter::new(WaiterKind::Fiber));
        // SAFETY: they outlive the list; the references are not followed after this test.
        let (other, w) = unsafe { (WaiterRef::new(NonNull::from(&before)), WaiterRef::new(NonNull::from(&waiter))) };
        let mut chance = crate::prim::policy::Rng::from_seed(7);
        let mut firsts = [0; 5];
        for _ in 0..5_000 {
            let list = WaitList::new();
            let ahead = Node::new();
            let nodes: Vec<Node> = (0..5).map(|_| Node::new()).collect();
            // SAFETY: single-threaded; the nodes outlive their being linked.
            unsafe {
                ahead.set(other, Ticket::of_number(7), 9);
                list.push_back(&ahead);
                for (i, node) in nodes.iter().enumerate() {
                    node.set(w, Ticket::of_number(7), i as u8);
                    list.push_shuffled(node, |bound| chance.below(bound));
                }
                assert_eq!(list.pop_front().unwrap().2, 9);
                let mut order: Vec<u8> = std::iter::from_fn(|| list.pop_front()).map(|(_, _, arm)| arm).collect();
                firsts[order[0] as usize] += 1;
                order.sort_unstable();
                assert_eq!(order, [0, 1, 2, 3, 4]);
            }
        }
        assert!(firsts.iter().all(|count| (800..1_200).contains(count)), "{firsts:?}");
    }

    // S0-36, S4-32: FIFO; removal is idempotent, also of a node that a waker took.
    #[test]
    fn fifo_and_idempotent_removal() {
        let waiter = Waiter::new(WaiterKind::Fiber);
        // SAFETY: it outlives the list; the reference is not followed after this test.
        let w = unsafe { WaiterRef::new(NonNull::from(&waiter)) };
        let list = WaitList::new();
        let nodes: Vec<Node> = (0..4).map(|_| Node::new()).collect();
        // SAFETY: single-threaded; the nodes outlive their being linked.
        unsafe {
            for (i, node) in nodes.iter().enumerate() {
                node.set(w, Ticket::of_number(7), i as u8);
                list.push_back(node);
            }
            assert!(list.remove(&nodes[1]));
            assert!(!list.remove(&nodes[1]));
            assert_eq!(list.pop_front().unwrap().2, 0);
            assert!(!list.remove(&nodes[0]), "popped by a waker: unpublish finds nothing to do");
            assert_eq!(list.pop_front().unwrap().2, 2);
            list.push_front(&nodes[0]);
            assert!(ptr::eq(list.front().unwrap(), &raw const nodes[0]));
            assert!(ptr::eq(list.after(&nodes[0]).unwrap(), &raw const nodes[3]));
            assert!(list.after(&nodes[3]).is_none());
            assert!(list.remove(&nodes[0]));
            assert!(list.remove(&nodes[3]));
            assert!(list.is_empty() && list.pop_front().is_none());
            list.push_front(&nodes[2]);
            list.push_back(&nodes[1]);
            assert_eq!((list.pop_front().unwrap().2, list.pop_front().unwrap().2), (2, 1));
        }
    }
}
