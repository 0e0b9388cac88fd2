//! The queues of the scheduler, one idea a file.
//!
//! | file | holds | put in by | taken out by |
//! |---|---|---|---|
//! | `fresh` | unstarted, stealable work of one worker | its owner | its owner (newest), thieves (oldest) |
//! | `prim::fifo` | `ready` of a worker: the started fibers that can run there | its owner | its owner, in order |
//! | `prim::mpsc` | the inbox of a worker: started fibers that other threads woke | any thread | its owner, all at once, in order |
//! | `injector` | unstarted work from outside the workers | any thread | any worker, in order |
//!
//! Above lie `worker.rs` (the loop) and `idle.rs` (sleep and wake); below only `prim` and the word. The queues know nothing of fibers:
//! stealable work travels as an [`Entry`] (an address and a generation; the address is never dereferenced here), started fibers as nodes
//! that bring their own link (`prim::linked`). So nothing here allocates per item, and every file can be model checked alone.
//!
//! Two invariants hold in all four:
//! * The consumer of an item sees what the pusher wrote before the push (release and acquire through the queue).
//! * A push is a SeqCst read-modify-write, or (in `fresh`) is followed by one before its owner looks for sleepers; the sleeper's
//!   second look uses `is_empty_handshake`. `idle.rs` has the proof that no wake is lost between the two.
//!
//! # Seeded bugs
//!
//! CI switches each on (`FIBRA_BUG=…`, see `prim::bug`) and expects the model beside it to fail; `.ci/bugs` holds the same list.
//! The seeded bugs of the sleep protocol are listed in `idle.rs`.
//!
//! | bug | where | model that must fail |
//! |---|---|---|
//! | `fresh_push_relaxed` | `push` publishes without release | `sched::queue::fresh::model::model_push_publishes` |
//! | `fresh_pop_store` | the owner's pop lowers `bottom` by a plain store | `sched::queue::fresh::model::model_owner_pop_against_steal` |
//! | `fresh_last_unclaimed` | the owner takes the only item without competing | `sched::queue::fresh::model::model_last_item` |
//! | `fresh_raced_unclaimed` | the owner takes a raced item unasked | `sched::queue::fresh::model::model_owner_pop_against_steal` |
//! | `fresh_grow_forgets` | growth does not copy the oldest item | `sched::queue::fresh::model::model_growth_against_steal` |
//! | `fresh_take_back_unclaimed` | a joiner takes back without competing | `sched::queue::fresh::model::model_take_back_against_steal` |
//! | `offer_not_contested` | an offer is queued as if it had no rival | `sched::life::model::model_offer_taken_back_against_thief` |
//! | `injector_slot_relaxed` | a slot is filled without release | `sched::queue::injector::model::model_push_publishes` |
//! | `injector_ring_first` | pushes pass by the list | `sched::queue::injector::model::model_producer_against_refill` |
//! | `injector_early_count` | the list looks empty too soon | `sched::queue::injector::model::model_producer_against_refill` |
//! | `injector_no_second_look` | the list comes before the ring | `sched::queue::injector::model::model_two_consumers_and_the_list` |

pub(crate) mod fresh;
pub(crate) mod injector;

use crate::prim::bug::seeded_bug;
use crate::waiter::word::{Ticket, Word};

/// A piece of stealable work: the address of a frame and the generation it had when it was queued.
///
/// Opaque here. A *sole* entry is the only way to its frame: a queue gives it out once, so its consumer has the frame. A
/// *contested* entry is not, since the frame may also be started by its ticket (the second half of a `join`, by its joiner); entries of
/// tasks are treated alike, because their start keeps the arm that they were woken with. Frames are type-stable and the generation tells a
/// stale entry from a live one, so a contested entry may outlive what it names: its consumer claims the pair with one
/// compare-exchange on the frame's word and drops the entry if that fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) frame: usize,
    /// The generation, and [`CONTESTED`](Self::CONTESTED).
    pub(crate) ticket: u64,
}

impl Entry {
    /// Below the bits of every ticket.
    const CONTESTED: u64 = 1;

    #[inline(always)]
    pub(crate) fn sole(frame: usize, ticket: u64) -> Self {
        debug_assert!(ticket & Self::CONTESTED == 0, "tickets leave it free");
        Self { frame, ticket }
    }

    #[inline(always)]
    pub(crate) fn contested(frame: usize, ticket: u64) -> Self {
        debug_assert!(ticket & Self::CONTESTED == 0, "tickets leave it free");
        let mark = if seeded_bug("offer_not_contested") { 0 } else { Self::CONTESTED };
        Self { frame, ticket: ticket | mark }
    }

    #[inline(always)]
    pub(crate) fn is_sole(self) -> bool {
        self.ticket & Self::CONTESTED == 0
    }

    /// RUNNABLE → RUNNING of the unstarted frame that this entry names. The caller took the entry out of a queue; `word` is that frame's.
    /// False: the entry is contested, and stale.
    #[inline(always)]
    pub(crate) fn start(self, word: &Word) -> bool {
        if !self.is_sole() {
            return word.start(Ticket::from_bits(self.ticket & !Self::CONTESTED));
        }
        debug_assert_eq!(word.snapshot().ticket().to_bits(), self.ticket, "a sole entry is never stale");
        word.start_owned();
        true
    }
}
