//! The memory of an operation, and the rights to it.
//!
//! Above: `op` (the typed handles and their pool), `port` (queues of nodes), `routing`. Below: `mail`, `prim`.
//!
//! ```text
//!   free ──take──▶ FRESH ──submit──▶ SUBMITTED ──answer──▶ ANSWERED ──home──▶ HOME ──dropped──▶ free
//!                    └── dropped ─────────────────────────────────────────────────────────────▶ ┘
//! ```
//!
//! A node has **one owner**, whoever holds its [`Owned`]: the initiator, a queue, the target, the way back. The owner alone reads and
//! writes data, result and destination; so what is passed along is passed whole, and there is nothing to race for. An owner that is
//! dropped
//! on the way does not lose the operation: it answers it ([`ABANDONED`]) and sends it home by mail.
//!
//! Beside the owner, others may hold **references** ([`NodeRef`]): a cancellation under way, a doorbell that was rung, a handle of a
//! doorbell, the table of what is in flight. They see only what does not change while a node is in flight ([`Fixed`]) and the flags.
//!
//! Invariants:
//! * `refs` counts the owner and all references. At zero, and only then, the node goes back to its pool: never before its completion
//!   *and*
//!   its own cancellation have been acknowledged. So neither a late cancellation nor a late ring can hit another operation.
//! * A node has three links, because it can be in three queues at once: as itself, as its cancellation, as its notification. `CANCEL`
//!   and `RUNG` are the queued marks of the latter two; the first is guarded by ownership.
//! * `fixed`, `home` and `pool` are written only while the owner is the only one who knows the node, or by the last one to let go of it.

use std::any::Any;
use std::fmt;
use std::mem::{ManuallyDrop, offset_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use super::mail::Post;
use super::pool::PoolMemory;
use crate::prim::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::cell::UnsafeCell;
use crate::prim::discard_payload;
use crate::prim::linked::Linked;
use crate::prim::sync::Arc;

/// The result of an operation that was cancelled: minus `ECANCELED`.
pub const CANCELLED: i32 = -125;
/// The result of an operation whose target dropped it, or died, without an answer. No error of the system has this number.
pub const ABANDONED: i32 = -5000;
/// The result of an operation whose destination does not exist (any more). No error of the system has this number.
pub const UNREACHABLE: i32 = -6000;

/// A machine somewhere in the mesh: which loop, and which machine there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineRef {
    /// The number of the event loop's thread in its mesh; 0 for a loop that is alone.
    pub thread: u32,
    /// The number of the machine on that loop: 0 is the app, 1 the platform, others are children.
    pub machine: u32,
}

impl MachineRef {
    /// The app machine of a loop.
    pub const fn app(thread: u32) -> Self {
        Self { thread, machine: 0 }
    }

    /// The platform machine of a loop.
    pub const fn platform(thread: u32) -> Self {
        Self { thread, machine: 1 }
    }

    pub(super) fn pack(self) -> u64 {
        (self.thread as u64) << 32 | self.machine as u64
    }

    pub(super) fn unpack(word: u64) -> Self {
        Self { thread: (word >> 32) as u32, machine: word as u32 }
    }
}

/// No destination, in the packed form.
pub(super) const NOWHERE: u64 = u64::MAX;

/// More references than this to one operation are a leak: they could be forgotten until their number wraps. All but doorbells are few.
const MOST_REFERENCES: u32 = 1 << 24;

/// The notification is queued. Cleared when it is taken out, before anybody handles it.
const RUNG: u32 = 1;
/// A cancellation was asked for: at most once per operation.
const CANCEL: u32 = 2;
/// The target has answered: a cancellation that comes now comes too late.
const ANSWERED: u32 = 4;
/// The initiator has taken the answer: a ring that comes now means nothing.
const ACKNOWLEDGED: u32 = 8;

/// Which of the three links of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkKind {
    Main,
    Cancel,
    Note,
}

impl LinkKind {
    /// Where in a node that link is.
    fn offset(self) -> usize {
        match self {
            Self::Main => offset_of!(Node, main),
            Self::Cancel => offset_of!(Node, cancel),
            Self::Note => offset_of!(Node, note),
        }
    }
}

/// A place in a list. Only who holds the node in that role touches it.
#[derive(Debug)]
pub(super) struct Link {
    next: AtomicPtr<Link>,
    kind: LinkKind,
}

impl Link {
    fn new(kind: LinkKind) -> Self {
        Self { next: AtomicPtr::new(ptr::null_mut()), kind }
    }

    /// The node that a link is part of, and in which role.
    ///
    /// # Safety
    /// The link is part of a living node.
    pub(super) unsafe fn node(link: NonNull<Link>) -> (NonNull<Node>, LinkKind) {
        // SAFETY: it is alive.
        let kind = unsafe { link.as_ref() }.kind;
        // SAFETY: the link lies that far inside a node, and its pointer was made from the node's.
        (unsafe { link.byte_sub(kind.offset()).cast() }, kind)
    }
}

// SAFETY: one cell, null in a new link; a role of a node is in one list at a time.
unsafe impl Linked for Link {
    #[inline(always)]
    fn link(&self) -> &AtomicPtr<Link> {
        &self.next
    }
}

/// Where a node stands; see the head of this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Fresh,
    Submitted,
    Answered,
    Home,
}

/// What does not change while anybody but the owner knows the node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fixed {
    pub(super) id: u64,
    pub(super) trace: u64,
    /// 0: none.
    pub(super) parent: u64,
    pub(super) opcode: u32,
    pub(super) source: Option<MachineRef>,
    pub(super) standing: bool,
}

/// What the owner may change at any time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moving {
    pub(super) state: State,
    pub(super) result: i32,
    pub(super) destination: Option<MachineRef>,
    pub(super) deadline: u64,
}

pub(super) struct Node {
    main: Link,
    cancel: Link,
    note: Link,
    refs: AtomicU32,
    flags: AtomicU32,
    /// Where the target keeps it, for its own use; see [`Owned::set_place`].
    place: AtomicU32,
    /// Where the cancellation goes; [`NOWHERE`] until its loop knows. Belongs to whoever holds the cancellation.
    cancel_to: AtomicU64,
    fixed: UnsafeCell<Fixed>,
    moving: UnsafeCell<Moving>,
    home: UnsafeCell<Option<Arc<Post>>>,
    /// The pool, kept alive while the node is not in it.
    pool: UnsafeCell<Option<Arc<PoolMemory>>>,
    /// An `Option<D>` in the memory of the pool.
    data: *mut (dyn Any + Send),
}

impl Node {
    /// A free node. `data` points to an `Option<D>` that lives as long as the node.
    pub(super) fn new(data: *mut (dyn Any + Send)) -> Self {
        let fixed = Fixed { id: 0, trace: 0, parent: 0, opcode: 0, source: None, standing: false };
        let moving = Moving { state: State::Fresh, result: 0, destination: None, deadline: 0 };
        Self {
            main: Link::new(LinkKind::Main),
            cancel: Link::new(LinkKind::Cancel),
            note: Link::new(LinkKind::Note),
            refs: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            place: AtomicU32::new(0),
            cancel_to: AtomicU64::new(NOWHERE),
            fixed: UnsafeCell::new(fixed),
            moving: UnsafeCell::new(moving),
            home: UnsafeCell::new(None),
            pool: UnsafeCell::new(None),
            data,
        }
    }

    /// The link of a node in one of its roles. The pointer may be used for the whole node.
    pub(super) fn link(node: NonNull<Node>, kind: LinkKind) -> NonNull<Link> {
        // SAFETY: an address inside the node, which is alive: nodes live as long as anybody has a pointer to one.
        unsafe { node.byte_add(kind.offset()).cast() }
    }

    fn flag(&self, flag: u32) -> bool {
        // Acquire: pairs with the AcqRel of whoever set the flag.
        self.flags.load(Ordering::Acquire) & flag != 0
    }

    /// Sets a flag; true if it was not set.
    fn set_flag(&self, flag: u32) -> bool {
        // AcqRel: what was done before is seen by whoever sees the flag, or clears it, and the other way round.
        self.flags.fetch_or(flag, Ordering::AcqRel) & flag == 0
    }

    /// One holder less. The last one puts the node back into its pool.
    ///
    /// # Safety
    /// The caller holds one of the counted rights to the node, and gives it up.
    unsafe fn release(node: NonNull<Node>) {
        // SAFETY: alive, because the caller's right still counts.
        let here = unsafe { node.as_ref() };
        // AcqRel: release for what this holder did; acquire so that the last one sees what all others did.
        if here.refs.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // SAFETY: nobody else knows the node any more.
        let home = here.home.with_mut(|home| unsafe { (*home).take() });
        // SAFETY: as above.
        let pool = here.pool.with_mut(|pool| unsafe { (*pool).take() });
        drop(home);
        let pool = pool.expect("a node in use has a pool");
        // SAFETY: the node is one of this pool's, and ours alone.
        unsafe { pool.give_back(node) };
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").finish_non_exhaustive()
    }
}

/// The ownership of a node: see the head of this file.
pub(super) struct Owned(NonNull<Node>);

// SAFETY: there is one owner, wherever it is; what it alone touches goes with it, and the data is `Send`. What others touch is atomic or
// fixed. (Not `Sync`: the data need not be.)
unsafe impl Send for Owned {}

impl Owned {
    /// Takes a free node into use.
    ///
    /// # Safety
    /// The node is of that pool, free, and nobody else's. Its data is an empty `Option<D>`.
    pub(super) unsafe fn first<D: Send + 'static>(
        node: NonNull<Node>,
        pool: Arc<PoolMemory>,
        id: u64,
        opcode: u32,
        data: D,
    ) -> Self {
        // SAFETY: alive, and ours alone.
        let here = unsafe { node.as_ref() };
        // Relaxed, all three: nobody else knows the node; whoever gets to know it is told by way of a queue or the mail.
        here.refs.store(1, Ordering::Relaxed);
        here.flags.store(0, Ordering::Relaxed);
        here.cancel_to.store(NOWHERE, Ordering::Relaxed);
        let fixed = Fixed { id, trace: id, parent: 0, opcode, source: None, standing: false };
        let moving = Moving { state: State::Fresh, result: 0, destination: None, deadline: 0 };
        // SAFETY: ours alone.
        here.fixed.with_mut(|place| unsafe { *place = fixed });
        // SAFETY: ours alone.
        here.moving.with_mut(|place| unsafe { *place = moving });
        // SAFETY: ours alone.
        here.pool.with_mut(|place| unsafe { *place = Some(pool) });
        let mut owned = Self(node);
        *owned.data_mut::<D>().expect("the pool's own type") = Some(data);
        owned
    }

    fn node(&self) -> &Node {
        // SAFETY: alive: the owner counts.
        unsafe { self.0.as_ref() }
    }

    pub(super) fn into_raw(self) -> NonNull<Node> {
        ManuallyDrop::new(self).0
    }

    /// # Safety
    /// The node came from [`Owned::into_raw`], and this is the only time that it is taken back.
    pub(super) unsafe fn from_raw(node: NonNull<Node>) -> Self {
        Self(node)
    }

    pub(super) fn fixed(&self) -> Fixed {
        // SAFETY: changed only by `fix`, which has the owner exclusively.
        self.node().fixed.with(|fixed| unsafe { *fixed })
    }

    /// Changes what is fixed from submission on.
    pub(super) fn fix(&mut self, change: impl FnOnce(&mut Fixed)) {
        assert_eq!(self.moving().state, State::Fresh, "an operation in flight is not changed");
        // SAFETY: fresh: nobody but the owner knows the node, and the owner is borrowed exclusively.
        self.node().fixed.with_mut(|fixed| change(unsafe { &mut *fixed }));
    }

    pub(super) fn moving(&self) -> Moving {
        // SAFETY: the owner alone touches it, and `moved` has the owner exclusively.
        self.node().moving.with(|moving| unsafe { *moving })
    }

    pub(super) fn moved(&mut self, change: impl FnOnce(&mut Moving)) {
        // SAFETY: the owner alone touches it, and is borrowed exclusively.
        self.node().moving.with_mut(|moving| change(unsafe { &mut *moving }));
    }

    /// The data, if it is of this type.
    pub(super) fn data<D: Send + 'static>(&self) -> Option<&Option<D>> {
        // SAFETY: the pool's memory lives as long as the node, and data belongs to the owner.
        unsafe { &*self.node().data }.downcast_ref()
    }

    /// The data, if it is of this type.
    pub(super) fn data_mut<D: Send + 'static>(&mut self) -> Option<&mut Option<D>> {
        // SAFETY: as above, and the owner is borrowed exclusively.
        unsafe { &mut *self.node().data }.downcast_mut()
    }

    /// Leaves for its target: from now on whoever drops it sends it to `home`.
    pub(super) fn submit(&mut self, home: Arc<Post>) {
        self.moved(|moving| moving.state = State::Submitted);
        // SAFETY: still fresh a moment ago: nobody but the owner knows the node.
        self.node().home.with_mut(|place| unsafe { *place = Some(home) });
    }

    /// The answer. From here on a cancellation comes too late.
    pub(super) fn answer(&mut self, result: i32) {
        debug_assert_eq!(self.moving().state, State::Submitted);
        self.moved(|moving| (moving.state, moving.result) = (State::Answered, result));
        self.node().set_flag(ANSWERED);
    }

    /// The target notes where it keeps the operation, so that its cancellation finds it there without a search.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn set_place(&self, place: u32) {
        // Relaxed: read by the same target, which compares ids; anything else is a wrong guess.
        self.node().place.store(place, Ordering::Relaxed);
    }

    /// It has come home.
    pub(super) fn arrive(&mut self) {
        self.moved(|moving| moving.state = State::Home);
    }

    /// The initiator has taken the answer.
    pub(super) fn acknowledge(&self) {
        self.node().set_flag(ACKNOWLEDGED);
    }

    /// One more holder, who is not the owner.
    pub(super) fn reference(&self) -> NodeRef {
        // Relaxed: the owner counts, so it cannot be zero; what the reference sees is ordered by how it is handed over.
        self.node().refs.fetch_add(1, Ordering::Relaxed);
        NodeRef(self.0)
    }

    /// Rings: gives the reference that is to be queued as a notification, or None if one is queued already.
    pub(super) fn ring(&self) -> Option<NodeRef> {
        self.node().set_flag(RUNG).then(|| self.reference())
    }

    /// Drops the data and gives the node up. A destructor that panics goes no further than here, its message said by the hook: data is
    /// dropped wherever its operation happens to end, by a loop, a queue, somebody else's thread, and none of them is to blame.
    fn free(node: NonNull<Node>) {
        // SAFETY: called by the owner, that is being dropped: the data is its own.
        let data = unsafe { &mut *node.as_ref().data };
        // SAFETY: the node is still held; the pool's function for the type of its data.
        let empty = unsafe { node.as_ref() }.pool.with(|pool| unsafe { (*pool).as_ref().map(|pool| pool.empty()) });
        if let Some(empty) = empty
            && let Err(payload) = catch_unwind(AssertUnwindSafe(|| empty(data)))
        {
            discard_payload(payload);
        }
        // SAFETY: the owner's own right, given up once.
        unsafe { Node::release(node) };
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let state = self.moving().state;
        if state == State::Submitted {
            self.answer(ABANDONED);
        }
        if matches!(state, State::Submitted | State::Answered) {
            // SAFETY: written before the submission, and not again.
            let home = self.node().home.with(|home| unsafe { (*home).clone() });
            let link = Node::link(self.0, LinkKind::Main);
            // SAFETY: owned, so in no queue; on success it is the mail's.
            if home.is_some_and(|home| unsafe { home.send(link) }.is_ok()) {
                return;
            }
        }
        Self::free(self.0);
    }
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fixed, moving) = (self.fixed(), self.moving());
        f.debug_struct("Operation")
            .field("id", &fixed.id)
            .field("opcode", &fixed.opcode)
            .field("state", &moving.state)
            .field("result", &moving.result)
            .field("source", &fixed.source)
            .field("destination", &moving.destination)
            .finish_non_exhaustive()
    }
}

/// A counted reference to a node that somebody else owns.
pub(super) struct NodeRef(NonNull<Node>);

// SAFETY: a reference touches only what is fixed while there are references, what is atomic, and a link that its mark makes its own.
unsafe impl Send for NodeRef {}

impl NodeRef {
    fn node(&self) -> &Node {
        // SAFETY: alive: the reference counts.
        unsafe { self.0.as_ref() }
    }

    pub(super) fn into_raw(self) -> NonNull<Node> {
        ManuallyDrop::new(self).0
    }

    /// # Safety
    /// The node came from [`NodeRef::into_raw`], and this is the only time that it is taken back.
    pub(super) unsafe fn from_raw(node: NonNull<Node>) -> Self {
        Self(node)
    }

    pub(super) fn fixed(&self) -> Fixed {
        // SAFETY: not changed while there are references.
        self.node().fixed.with(|fixed| unsafe { *fixed })
    }

    /// The first one to ask for cancellation gets what is to be queued as the request.
    pub(super) fn cancel(&self) -> Option<NodeRef> {
        if seeded_bug("cancel_not_counted") {
            return self.node().set_flag(CANCEL).then(|| Self(self.0));
        }
        self.node().set_flag(CANCEL).then(|| self.clone())
    }

    pub(super) fn is_answered(&self) -> bool {
        self.node().flag(ANSWERED)
    }

    pub(super) fn is_acknowledged(&self) -> bool {
        self.node().flag(ACKNOWLEDGED)
    }

    /// Where the target said that it keeps the operation; anything, if it did not.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn place(&self) -> u32 {
        // Relaxed: see `set_place`.
        self.node().place.load(Ordering::Relaxed)
    }

    pub(super) fn cancel_to(&self) -> u64 {
        // Relaxed: belongs to whoever holds the cancellation; handed over with it.
        self.node().cancel_to.load(Ordering::Relaxed)
    }

    pub(super) fn set_cancel_to(&self, to: MachineRef) {
        // Relaxed: as above.
        self.node().cancel_to.store(to.pack(), Ordering::Relaxed);
    }

    /// The notification is out of all queues: it can be rung again.
    pub(super) fn unring(&self) {
        // AcqRel: a ring that found it rung is ordered before this, so what was written before that ring is seen after this.
        self.node().flags.fetch_and(!RUNG, Ordering::AcqRel);
    }

    /// Marks the notification as queued once more; false if it is.
    pub(super) fn mark_rung(&self) -> bool {
        self.node().set_flag(RUNG)
    }

    /// Rings by mail, from any thread. True if this ring is the one that is queued.
    pub(super) fn ring(&self) -> bool {
        if self.node().flag(ACKNOWLEDGED | ANSWERED) || !self.node().set_flag(RUNG) {
            return false;
        }
        let link = Node::link(self.clone().into_raw(), LinkKind::Note);
        // SAFETY: `home` is not changed while there are references. The mark makes the link ours.
        let sent =
            self.node().home.with(|home| unsafe { (*home).as_ref().is_some_and(|home| home.send(link).is_ok()) });
        if !sent {
            // SAFETY: the reference that was made for the link and did not go with it.
            drop(unsafe { Self::from_raw(self.0) });
        }
        sent
    }

    /// Whether there are so many references that there must not be more.
    pub(super) fn is_crowded(&self) -> bool {
        // Relaxed: far below where it would wrap, so that a few more do not matter.
        self.node().refs.load(Ordering::Relaxed) > MOST_REFERENCES
    }

    /// The loop that the operation belongs to.
    pub(super) fn home(&self) -> Option<&Arc<Post>> {
        // SAFETY: not changed while there are references.
        self.node().home.with(|home| unsafe { (*home).as_ref() })
    }
}

impl Clone for NodeRef {
    fn clone(&self) -> Self {
        // Relaxed: this reference counts, so it cannot be zero.
        self.node().refs.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl Drop for NodeRef {
    fn drop(&mut self) {
        // SAFETY: this reference's own right.
        unsafe { Node::release(self.0) };
    }
}

impl fmt::Debug for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fixed().fmt(f)
    }
}
