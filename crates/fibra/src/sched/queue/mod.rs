//! The queues of the scheduler, one idea a file.
//!
//! | file | holds | who puts in | who takes out |
//! |---|---|---|---|
//! | `fresh` | unstarted, stealable work of one worker | its owner | its owner (newest), thieves (oldest) |
//! | `ready` | started fibers that live on one worker | its owner | its owner, in order |
//! | `inbox` | wakes of started fibers from other threads | anybody | its owner, all at once, in order |
//! | `injector` | unstarted work from outside the workers | anybody | any worker, in order |
//!
//! Above lie `worker.rs` (the loop) and `idle.rs` (sleep and wake); below only `prim`. The queues know nothing of fibers: stealable
//! work travels as an [`Entry`] (an address and a generation, never dereferenced here), started fibers as nodes that
//! bring their own link ([`Linked`]). So nothing here allocates per item, and every file can be model checked alone.
//!
//! Two invariants hold in all four:
//! * What the pusher wrote before the push is seen by whoever takes the item out (release and acquire through the queue).
//! * A push is a SeqCst read-modify-write, or (in `fresh`) is followed by one before its owner looks for sleepers; the sleeper's
//!   second look uses `is_empty_handshake`. `idle.rs` has the proof that no wake is lost between the two.
//!
//! # Seeded bugs
//!
//! CI switches each on (`FIBRA_BUG=…`, see `prim::bug`) and expects the model beside it to fail; `.ci/bugs` holds the same list.
//! Those of the sleep protocol are listed in `idle.rs`.
//!
//! | bug | where | model that must fail |
//! |---|---|---|
//! | `fresh_push_relaxed` | `push` publishes without release | `sched::queue::fresh::model::model_push_publishes` |
//! | `fresh_pop_store` | the owner's pop lowers `bottom` by a plain store | `sched::queue::fresh::model::model_owner_pop_against_steal` |
//! | `fresh_last_unclaimed` | the owner takes the last item without competing | `sched::queue::fresh::model::model_last_item` |
//! | `fresh_grow_forgets` | growth does not copy the oldest item | `sched::queue::fresh::model::model_growth_against_steal` |
//! | `fresh_take_back_unclaimed` | a joiner takes back without competing | `sched::queue::fresh::model::model_take_back_against_steal` |
//! | `inbox_push_relaxed` | `push` publishes without release | `sched::queue::inbox::model::model_two_pushers_and_a_sleeping_owner` |
//! | `inbox_wake_inverted` | the wrong push wakes the owner | `sched::queue::inbox::model::model_two_pushers_and_a_sleeping_owner` |
//! | `injector_slot_relaxed` | a slot is filled without release | `sched::queue::injector::model::model_push_publishes` |
//! | `injector_ring_first` | pushes pass by the list | `sched::queue::injector::model::model_producer_against_refill` |
//! | `injector_early_count` | the list looks empty too soon | `sched::queue::injector::model::model_producer_against_refill` |
//! | `injector_no_second_look` | the list comes before the ring | `sched::queue::injector::model::model_two_consumers_and_the_list` |

pub(crate) mod fresh;
pub(crate) mod inbox;
pub(crate) mod injector;
pub(crate) mod ready;

use crate::prim::atomic::{AtomicPtr, Ordering};

/// A piece of stealable work: the address of a frame and the generation it had when it was queued.
///
/// Opaque here. Frames are type-stable and the generation tells a stale entry from a live one, so an entry may outlive what it
/// names: whoever takes it out claims the pair with one compare-exchange on the frame's word and drops it if that fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) frame: usize,
    pub(crate) ticket: u64,
}

/// A node that brings its own link word.
///
/// The link is null while the node is in no list, [`end_of_list`] while it is the last of one and the address of the next node
/// otherwise. So membership can be tested ([`is_linked`]), and inserting a node twice is found in debug builds.
///
/// # Safety
/// `link` returns the same cell on every call, it is null in a new node, and nobody writes it while the node is in a list, except
/// that list. A node is in at most one list at a time.
pub(crate) unsafe trait Linked: Sized {
    fn link(&self) -> &AtomicPtr<Self>;
}

/// What the last node of a list points to: not null, and no address that a node could have.
#[inline(always)]
pub(crate) fn end_of_list<T>() -> *mut T {
    const { assert!(align_of::<T>() > 1, "address 1 must not be a node") };
    std::ptr::without_provenance_mut(1)
}

/// Whether the node is in a list. Exact for whoever owns the node; for others a hint, true at some recent moment.
#[inline(always)]
pub(crate) fn is_linked<T: Linked>(node: &T) -> bool {
    // Relaxed: nothing is read through the pointer.
    !node.link().load(Ordering::Relaxed).is_null()
}
