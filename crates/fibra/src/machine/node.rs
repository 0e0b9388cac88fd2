//! The memory of an operation, and the rights to it.
//!
//! Above: `op` (the typed handles and their pool), `port` (queues of nodes), `routing`. Below: `mail`, `prim`.
//!
//! ```text
//!   free ──take──▶ FRESH ──submit──▶ SUBMITTED ──answer──▶ ANSWERED ──home──▶ HOME ──dropped──▶ free
//!                    └── dropped ─────────────────────────────────────────────────────────────▶ ┘
//! ```
//!
//! A node has **one owner**, the holder of its [`Owned`]: the initiator, a queue, the target, or the mail on the way
//! back. Only the owner reads and writes data, result and destination. The node is handed on as a whole, so no two
//! threads compete for these fields. An owner that is dropped in flight does not lose the operation: the drop answers
//! it ([`ABANDONED`]) and sends it home by mail.
//!
//! Besides the owner, other holders may have **references** ([`NodeRef`]): a cancellation under way, a notification
//! that was rung, a doorbell. References are counted. They see only the fields that do not change while a node is in
//! flight ([`Fixed`]), the stage and the flags. The **home** of an operation in flight (the loop of its initiator, or a
//! caller) knows the node too ([`InFlight`]). The home's knowledge is not counted: an operation is not freed before its
//! home has taken it in again, or has closed its mail.
//!
//! Invariants:
//! * `refs` counts the owner and all references. At zero, and only then, the node goes back to its pool: never before
//!   its completion *and* its own cancellation have been acknowledged. So neither a late cancellation nor a late ring
//!   can hit another operation.
//! * A holder that reads `refs` as 1 is the only holder, and stays so. Only holders make new references; the home makes
//!   one too, but only while the operation is in flight, and then the owner is a holder that does not let go.
//! * A node has three links, because it can be in three queues at once: as itself, as its cancellation, as its
//!   notification. `CANCEL` and `RUNG` are the queued marks of the latter two; ownership guards the first.
//! * Only the owner writes `stage`. `fixed` and `home` are written only while no other thread has a pointer to the
//!   node.
//! * While an operation is in flight, the post behind `home` is alive: either the home still exists, or the home left
//!   the operation a count of the post when it closed its mail ([`InFlight::leave`]). References that may outlive the
//!   flight need a count of their own ([`Owned::pin_home`]).
//! * `flight` belongs to the home: only the home's thread touches it, from the submission until the operation has come
//!   home.

use std::any::TypeId;
use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use super::address::{ABANDONED, MachineRef, NOWHERE};
use super::flight::Flight;
use super::link::{Link, LinkKind};
use super::mail::{OUTSIDE, Post};
use super::pool::PoolMemory;
use crate::prim::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::cell::UnsafeCell;
use crate::prim::discard_payload;
use crate::prim::sync::Arc;

/// The most references that one operation may have. More are a leak, and forgotten references could make the count
/// wrap. Only doorbells can be many.
const MOST_REFERENCES: u32 = 1 << 24;

/// The notification is queued. Cleared when it is taken out of its queue, before the initiator handles it.
const RUNG: u32 = 1;
/// A cancellation was requested: at most once per operation.
const CANCEL: u32 = 2;

/// The stage of a node; see the head of this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(super) enum OpStage {
    Fresh,
    Submitted,
    /// A cancellation that comes now comes too late.
    Answered,
    Home,
    /// The initiator has taken the answer: a ring that comes now means nothing.
    Acknowledged,
}

/// The fields that do not change while a thread other than the owner's knows the node.
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

/// The fields that the owner may change at any time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moving {
    pub(super) result: i32,
    pub(super) destination: Option<MachineRef>,
    pub(super) deadline: u64,
    /// The node has a count of its home's post, until the last holder lets go.
    has_pinned_home: bool,
}

impl Moving {
    const NEW: Self = Self { result: 0, destination: None, deadline: 0, has_pinned_home: false };
}

pub(super) struct OpNode {
    pub(super) main: Link,
    refs: AtomicU32,
    /// `RUNG` and `CANCEL`.
    flags: AtomicU32,
    /// A [`OpStage`].
    stage: AtomicU32,
    /// The place where the target keeps the operation, for the target's own use; see [`Owned::set_place`].
    place: AtomicU32,
    fixed: UnsafeCell<Fixed>,
    moving: UnsafeCell<Moving>,
    home: UnsafeCell<*const Post>,
    flight: UnsafeCell<Flight>,
    /// The destination of the cancellation; [`NOWHERE`] until its loop knows it. Belongs to the holder of the
    /// cancellation.
    cancel_to: AtomicU64,
    /// The pool, which stays alive as long as one of its nodes is in use.
    pool: *const PoolMemory,
    /// An `Option<D>` beside the node.
    data: *mut (),
    type_of_data: TypeId,
    pub(super) cancel: Link,
    pub(super) note: Link,
}

impl OpNode {
    /// A free node of that pool, which sets the data, an `Option<D>` that lives as long as the node.
    pub(super) fn new<D: 'static>(pool: *const PoolMemory) -> Self {
        let fixed = Fixed { id: 0, trace: 0, parent: 0, opcode: 0, source: None, standing: false };
        Self {
            main: Link::new(LinkKind::Main),
            refs: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            stage: AtomicU32::new(OpStage::Fresh as u32),
            place: AtomicU32::new(0),
            fixed: UnsafeCell::new(fixed),
            moving: UnsafeCell::new(Moving::NEW),
            home: UnsafeCell::new(ptr::null()),
            flight: UnsafeCell::new(Flight::NEW),
            cancel_to: AtomicU64::new(NOWHERE),
            pool,
            data: ptr::null_mut(),
            type_of_data: TypeId::of::<D>(),
            cancel: Link::new(LinkKind::Cancel),
            note: Link::new(LinkKind::Note),
        }
    }

    pub(super) fn set_data<D: 'static>(&mut self, data: *mut Option<D>) {
        assert_eq!(self.type_of_data, TypeId::of::<D>());
        self.data = data.cast();
    }

    /// The link of a node in one of its roles. The pointer may be used for the whole node.
    #[inline]
    pub(super) fn link(node: NonNull<OpNode>, kind: LinkKind) -> NonNull<Link> {
        // SAFETY: an address inside the node, which is alive: a node lives as long as any holder has a pointer to it.
        unsafe { node.byte_add(kind.offset()).cast() }
    }

    /// Sets a flag; true if it was not set.
    fn set_flag(&self, flag: u32) -> bool {
        // AcqRel: a thread that sees or clears the flag sees what was done before it was set, and the other way round.
        self.flags.fetch_or(flag, Ordering::AcqRel) & flag == 0
    }

    /// Whether the node has no holder: it is in a list of its pool, or on the way there.
    pub(super) fn is_free(&self) -> bool {
        // Relaxed: a number for people and tests, exact when nothing is under way.
        self.refs.load(Ordering::Relaxed) == 0
    }

    /// Whether the node has reached that stage. For holders that do not own it.
    fn is_at_least(&self, state: OpStage) -> bool {
        // Acquire: pairs with the owner's release in `enter`.
        self.stage.load(Ordering::Acquire) >= state as u32
    }

    /// One holder less. The last one puts the node back into its pool.
    ///
    /// # Safety
    /// The caller holds one of the counted rights to the node, and gives it up.
    #[inline]
    unsafe fn release(node: NonNull<OpNode>) {
        // SAFETY: alive, because the caller's right still counts.
        let here = unsafe { node.as_ref() };
        // Models look too: there a count that is off must be found before the memory goes.
        let must_hold = cfg!(any(debug_assertions, loom, shuttle));
        assert!(!must_hold || !here.is_free(), "a node without holders is let go of");
        // Acquire: the only holder sees what all other holders did before they let go. No new holder can appear now:
        // see the head.
        let is_alone = here.refs.load(Ordering::Acquire) == 1;
        // AcqRel: release for what this holder did; acquire so that the last one sees what all others did.
        if is_alone {
            // Relaxed: for gauges; no holder reads it until the node is taken again.
            here.refs.store(0, Ordering::Relaxed);
        } else if here.refs.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // SAFETY: no other holder knows the node any more.
        if here.moving.with(|moving| unsafe { (*moving).has_pinned_home }) {
            // SAFETY: the count that `pin_home` took, once.
            drop(unsafe { Arc::from_raw(here.home.with(|home| *home)) });
        }
        // SAFETY: the node is one of this pool's, and ours alone; the pool is there because it is.
        unsafe { PoolMemory::give_back(here.pool, node) };
    }
}

impl fmt::Debug for OpNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpNode").finish_non_exhaustive()
    }
}

/// The ownership of a node: see the head of this file.
pub(super) struct Owned(NonNull<OpNode>);

// SAFETY: there is one owner, wherever it is; what it alone touches goes with it, and the data is `Send`. What others touch is atomic or
// fixed. (Not `Sync`: the data need not be.)
unsafe impl Send for Owned {}

impl Owned {
    /// Takes a free node into use.
    ///
    /// # Safety
    /// The node is free, and no other thread knows it. Its data is an `Option<D>` that owns nothing.
    #[inline]
    pub(super) unsafe fn first<D: Send + 'static>(node: NonNull<OpNode>, id: u64, opcode: u32, data: D) -> Self {
        // SAFETY: alive, and ours alone.
        let here = unsafe { node.as_ref() };
        // Relaxed, all four: no other thread knows the node; a thread that learns of it does so by way of a queue or
        // the mail.
        here.refs.store(1, Ordering::Relaxed);
        here.flags.store(0, Ordering::Relaxed);
        here.stage.store(OpStage::Fresh as u32, Ordering::Relaxed);
        // Relaxed: as above.
        here.cancel_to.store(NOWHERE, Ordering::Relaxed);
        let fixed = Fixed { id, trace: id, parent: 0, opcode, source: None, standing: false };
        // SAFETY: ours alone.
        here.fixed.with_mut(|place| unsafe { *place = fixed });
        // SAFETY: ours alone.
        here.moving.with_mut(|place| unsafe { *place = Moving::NEW });
        debug_assert_eq!(here.type_of_data, TypeId::of::<D>());
        // SAFETY: the node's data is an `Option<D>`, ours alone, and holds nothing that would have to be dropped.
        unsafe { here.data.cast::<Option<D>>().write(Some(data)) };
        Self(node)
    }

    #[inline]
    fn node(&self) -> &OpNode {
        // SAFETY: alive: the owner counts.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(super) fn into_raw(self) -> NonNull<OpNode> {
        ManuallyDrop::new(self).0
    }

    /// # Safety
    /// The node came from [`Owned::into_raw`], and this is the only time that it is taken back.
    #[inline]
    pub(super) unsafe fn from_raw(node: NonNull<OpNode>) -> Self {
        Self(node)
    }

    #[inline]
    pub(super) fn fixed(&self) -> Fixed {
        // SAFETY: changed only by `fix`, which has the owner exclusively.
        self.node().fixed.with(|fixed| unsafe { *fixed })
    }

    /// Changes what is fixed from submission on.
    #[inline]
    pub(super) fn fix(&mut self, change: impl FnOnce(&mut Fixed)) {
        assert_eq!(self.state(), OpStage::Fresh, "an operation in flight is not changed");
        // SAFETY: fresh: only the owner knows the node, and the owner is borrowed exclusively.
        self.node().fixed.with_mut(|fixed| change(unsafe { &mut *fixed }));
    }

    #[inline]
    pub(super) fn moving(&self) -> Moving {
        // SAFETY: the owner alone touches it, and `moved` has the owner exclusively.
        self.node().moving.with(|moving| unsafe { *moving })
    }

    #[inline]
    pub(super) fn moved(&mut self, change: impl FnOnce(&mut Moving)) {
        // SAFETY: the owner alone touches it, and is borrowed exclusively.
        self.node().moving.with_mut(|moving| change(unsafe { &mut *moving }));
    }

    #[inline]
    pub(super) fn state(&self) -> OpStage {
        // Relaxed: the owner wrote it.
        match self.node().stage.load(Ordering::Relaxed) {
            0 => OpStage::Fresh,
            1 => OpStage::Submitted,
            2 => OpStage::Answered,
            3 => OpStage::Home,
            _ => OpStage::Acknowledged,
        }
    }

    #[inline]
    fn enter(&mut self, state: OpStage) {
        // Release: pairs with the acquire load of holders that read the stage and do not own the node.
        self.node().stage.store(state as u32, Ordering::Release);
    }

    /// The data, if it is of this type.
    #[inline]
    pub(super) fn data<D: Send + 'static>(&self) -> Option<&Option<D>> {
        let node = self.node();
        // SAFETY: it is an `Option<D>`, lives as long as the node, and belongs to the owner.
        (node.type_of_data == TypeId::of::<D>()).then(|| unsafe { &*node.data.cast() })
    }

    /// The data, if it is of this type.
    #[inline]
    pub(super) fn data_mut<D: Send + 'static>(&mut self) -> Option<&mut Option<D>> {
        let node = self.node();
        // SAFETY: as above, and the owner is borrowed exclusively.
        (node.type_of_data == TypeId::of::<D>()).then(|| unsafe { &mut *node.data.cast() })
    }

    /// Sends the node to its target. From now on a drop of the owner sends it to `home`, which knows the node until it
    /// has come back.
    #[inline]
    pub(super) fn submit(&mut self, home: &Arc<Post>) -> InFlight {
        debug_assert_eq!(self.state(), OpStage::Fresh);
        // SAFETY: still fresh: only the owner knows the node.
        self.node().home.with_mut(|place| unsafe { *place = Arc::as_ptr(home) });
        self.enter(OpStage::Submitted);
        InFlight(self.0)
    }

    /// The answer. From here on a cancellation comes too late.
    #[inline]
    pub(super) fn answer(&mut self, result: i32) {
        debug_assert_eq!(self.state(), OpStage::Submitted);
        self.moved(|moving| moving.result = result);
        self.enter(OpStage::Answered);
    }

    /// The target notes where it keeps the operation, so that its cancellation finds it there without a search.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn set_place(&self, place: u32) {
        // Relaxed: read by the same target, which compares ids; anything else is a wrong guess.
        self.node().place.store(place, Ordering::Relaxed);
    }

    /// The operation has come home.
    #[inline]
    pub(super) fn arrive(&mut self) {
        self.enter(OpStage::Home);
    }

    /// The initiator has taken the answer, if it has come home.
    #[inline]
    pub(super) fn acknowledge(&mut self) {
        if self.state() == OpStage::Home {
            self.enter(OpStage::Acknowledged);
        }
    }

    /// What the home knows of the node, if it is in flight and `home` is its home.
    #[inline]
    pub(super) fn in_flight_from(&self, home: &Arc<Post>) -> Option<InFlight> {
        let is_theirs = self.home() == Arc::as_ptr(home);
        // Relaxed: the owner wrote it.
        let stage = self.node().stage.load(Ordering::Relaxed);
        let is_on_its_way = stage == OpStage::Submitted as u32 || stage == OpStage::Answered as u32;
        (is_on_its_way && is_theirs).then_some(InFlight(self.0))
    }

    #[inline]
    fn home(&self) -> *const Post {
        // SAFETY: not changed while a thread other than the owner of a fresh node knows it.
        self.node().home.with(|home| unsafe { *home })
    }

    /// Lets references to the node be used after its flight: the node keeps its home's post alive. Only called in
    /// flight.
    fn pin_home(&self) {
        debug_assert!(matches!(self.state(), OpStage::Submitted | OpStage::Answered));
        // SAFETY: the owner alone touches it, and `Owned` is not shared between threads.
        let was_pinned =
            self.node().moving.with_mut(|moving| unsafe { std::mem::replace(&mut (*moving).has_pinned_home, true) });
        if !was_pinned {
            // SAFETY: made from an `Arc`; the post is there, because the operation is in flight.
            unsafe { Arc::increment_strong_count(self.home()) };
        }
    }

    /// One more holder, which is not the owner: to ring the node with.
    pub(super) fn reference(&self) -> NodeRef {
        self.pin_home();
        // Relaxed: the owner counts, so it cannot be zero; what the reference sees is ordered by how it is handed over.
        self.node().refs.fetch_add(1, Ordering::Relaxed);
        NodeRef(self.0)
    }

    /// Rings: gives the reference that is to be queued as a notification, or None if one is queued already.
    pub(super) fn ring(&self) -> Option<NodeRef> {
        self.node().set_flag(RUNG).then(|| self.reference())
    }

    /// Drops the data and gives the node up. A panic of the data's destructor is caught here, and the panic hook has
    /// reported it: the data is dropped wherever its operation happens to end (in a loop, a queue, a thread of another
    /// machine), and none of those caused the panic.
    #[inline]
    fn free(node: NonNull<OpNode>) {
        // SAFETY: called by the owner, which is being dropped: the node is in use, and so its pool is alive.
        let (here, pool) = unsafe { (node.as_ref(), &*node.as_ref().pool) };
        if let Some(empty) = pool.empty {
            // SAFETY: the pool's own function for the type of its data, which is the owner's.
            let emptied = catch_unwind(AssertUnwindSafe(|| unsafe { empty(here.data) }));
            emptied.unwrap_or_else(discard_payload);
        }
        // SAFETY: the owner's own right, given up once.
        unsafe { OpNode::release(node) };
    }

    /// The owner was dropped in flight: the operation is answered, if it was not, and goes home by mail.
    #[inline(never)]
    fn go_home(&mut self) {
        if self.state() == OpStage::Submitted {
            self.answer(ABANDONED);
        }
        let home = self.home();
        let link = OpNode::link(self.0, LinkKind::Main);
        // SAFETY: in flight, so the post is alive.
        let brought = if unsafe { (*home).thread } == OUTSIDE {
            // SAFETY: as above; owned, so in no queue. On success it is the caller's, and nothing of it is touched again.
            unsafe { (*home).bring(link) }
        } else {
            // SAFETY: made from an `Arc`, and there. A count for the time of the sending: as soon as the operation is in the mail, its home
            // may take it and go, and the kick comes after that.
            let post = unsafe {
                Arc::increment_strong_count(home);
                Arc::from_raw(home)
            };
            // SAFETY: as above.
            unsafe { post.send(link) }
        };
        if brought.is_ok() {
            return;
        }
        // SAFETY: closed: its home has left this count for it (`InFlight::leave`), once, before that.
        drop(unsafe { Arc::from_raw(home) });
        Self::free(self.0);
    }
}

impl Drop for Owned {
    #[inline]
    fn drop(&mut self) {
        match self.state() {
            OpStage::Submitted | OpStage::Answered => self.go_home(),
            OpStage::Fresh | OpStage::Home | OpStage::Acknowledged => Self::free(self.0),
        }
    }
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fixed, moving) = (self.fixed(), self.moving());
        f.debug_struct("Operation")
            .field("id", &fixed.id)
            .field("opcode", &fixed.opcode)
            .field("state", &self.state())
            .field("result", &moving.result)
            .field("source", &fixed.source)
            .field("destination", &moving.destination)
            .finish_non_exhaustive()
    }
}

/// An operation in flight, as its home knows it. Not counted: valid until the operation has come home, or the home has
/// closed its mail. The holder of an `InFlight` drops it then.
#[derive(Debug, Clone, Copy)]
pub(super) struct InFlight(NonNull<OpNode>);

// SAFETY: as for `NodeRef`; its flight is for the home's thread alone, which is what `flight` demands.
unsafe impl Send for InFlight {}

impl InFlight {
    #[inline]
    fn node(&self) -> &OpNode {
        // SAFETY: alive, because the operation is in flight.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(super) fn fixed(&self) -> Fixed {
        // SAFETY: not changed in flight.
        self.node().fixed.with(|fixed| unsafe { *fixed })
    }

    /// The first request for cancellation gets the reference that is to be queued; later requests get none.
    pub(super) fn cancel(&self) -> Option<NodeRef> {
        if !self.node().set_flag(CANCEL) {
            return None;
        }
        if !seeded_bug("cancel_not_counted") {
            // Relaxed: in flight, so its owner counts, and it cannot be zero.
            self.node().refs.fetch_add(1, Ordering::Relaxed);
        }
        Some(NodeRef(self.0))
    }

    /// The notes of the home about the operation.
    ///
    /// # Safety
    /// On the thread of the home, and not from within itself.
    #[inline]
    pub(super) unsafe fn flight<R>(&self, change: impl FnOnce(&mut Flight) -> R) -> R {
        // SAFETY: the caller's promise: no other borrow of it exists meanwhile.
        self.node().flight.with_mut(|flight| change(unsafe { &mut *flight }))
    }

    /// The home is about to close its mail while this operation is still out: the operation gets a count of the post,
    /// so that its owner can still find the mail closed.
    pub(super) fn leave(self, home: &Arc<Post>) {
        if !seeded_bug("home_leaves_nothing") {
            std::mem::forget(home.clone());
        }
    }

    /// Takes back what a loop kept for itself and gave up by [`Owned::into_raw`].
    ///
    /// # Safety
    /// It came from there, and this is the only time that it is taken back.
    pub(super) unsafe fn into_owned(self) -> Owned {
        Owned(self.0)
    }

    /// The same for a reference.
    ///
    /// # Safety
    /// As above, for [`NodeRef::into_raw`].
    pub(super) unsafe fn into_reference(self) -> NodeRef {
        NodeRef(self.0)
    }
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for InFlight {}

/// A counted reference to a node that another holder owns.
pub(super) struct NodeRef(NonNull<OpNode>);

// SAFETY: a reference touches only what is fixed while there are references, what is atomic, and a link that its mark makes its own.
unsafe impl Send for NodeRef {}

impl NodeRef {
    #[inline]
    fn node(&self) -> &OpNode {
        // SAFETY: alive: the reference counts.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(super) fn into_raw(self) -> NonNull<OpNode> {
        ManuallyDrop::new(self).0
    }

    /// # Safety
    /// The node came from [`NodeRef::into_raw`], and this is the only time that it is taken back.
    #[inline]
    pub(super) unsafe fn from_raw(node: NonNull<OpNode>) -> Self {
        Self(node)
    }

    #[inline]
    pub(super) fn fixed(&self) -> Fixed {
        // SAFETY: not changed while there are references.
        self.node().fixed.with(|fixed| unsafe { *fixed })
    }

    #[inline]
    pub(super) fn is_answered(&self) -> bool {
        self.node().is_at_least(OpStage::Answered)
    }

    pub(super) fn is_acknowledged(&self) -> bool {
        self.node().is_at_least(OpStage::Acknowledged)
    }

    /// What the home knows of the node, if it is in flight (not answered) and `home` is its home. Called on the home's
    /// thread.
    pub(super) fn in_flight_from(&self, home: &Arc<Post>) -> Option<InFlight> {
        (!self.is_answered() && self.home() == Arc::as_ptr(home)).then_some(InFlight(self.0))
    }

    /// The place that the target noted for the operation; an arbitrary number, if it noted none.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn place(&self) -> u32 {
        // Relaxed: see `set_place`.
        self.node().place.load(Ordering::Relaxed)
    }

    pub(super) fn cancel_to(&self) -> u64 {
        // Relaxed: belongs to the holder of the cancellation; handed over with it.
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
        if self.is_answered() || !self.node().set_flag(RUNG) {
            return false;
        }
        let link = OpNode::link(self.clone().into_raw(), LinkKind::Note);
        // SAFETY: made by `Owned::reference`, which has pinned the home. The mark makes the link ours.
        let sent = unsafe { (*self.home()).send(link) }.is_ok();
        if !sent {
            // SAFETY: the reference that was made for the link and did not go with it.
            drop(unsafe { Self::from_raw(self.0) });
        }
        sent
    }

    /// Whether the node has so many references that no more may be made.
    pub(super) fn is_crowded(&self) -> bool {
        // Relaxed: far below where it would wrap, so that a few more do not matter.
        self.node().refs.load(Ordering::Relaxed) > MOST_REFERENCES
    }

    /// Its home's post, for a reference that was made by [`Owned::reference`].
    pub(super) fn home_post(&self) -> Arc<Post> {
        // SAFETY: made from an `Arc`, and there: the home is pinned.
        unsafe {
            Arc::increment_strong_count(self.home());
            Arc::from_raw(self.home())
        }
    }

    /// The address of its home's post. It is there if the reference was made by [`Owned::reference`].
    #[inline]
    pub(super) fn home(&self) -> *const Post {
        // SAFETY: not changed while there are references.
        self.node().home.with(|home| unsafe { *home })
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
        unsafe { OpNode::release(self.0) };
    }
}

impl fmt::Debug for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fixed().fmt(f)
    }
}
