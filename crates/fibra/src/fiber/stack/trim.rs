//! Gives the memory of idle stacks back to the system, in batches: never on a fiber's path.
//!
//! Above: the trimmer of `fiber::trim`. Below: the depots of `cache`, `guard::discard`.
//!
//! Only what lies in the depots can be trimmed, and of that only what was not needed since the last call: the fewest
//! batches there were in between. So a program that breathes (ten thousand fibers, none, ten thousand) keeps its memory
//! if a breath is shorter than the interval between two calls, and a program that has become quiet gives everything
//! back but [`KEEP`]. Stacks with own mappings are unmapped by the same rule, and none of them is kept.

use super::cache::{BATCH, COLD, Cold, OWN, ROOM, WARM, unmap};
use super::guard;
use super::record::Stack;

/// Warm batches of each size that are always kept: 64 stacks, 256 KiB if each has touched one page.
const KEEP: usize = 1;
/// More batches than this are a flood. More than are kept, or every program with a few hundred fibers would need a trimmer.
const FAT: usize = 4;
/// The same for stacks with own mappings: one is kept for the next `run`.
const FAT_OWN: usize = 1;

/// Do the depots hold memory that is worth giving back? Looks under their locks, on which the protocol of `fiber::trim` relies.
pub(crate) fn is_depot_fat() -> bool {
    WARM.iter().any(|depot| depot.count_locked() > FAT) || OWN.iter().any(|depot| depot.count_locked() > FAT_OWN)
}

/// The same, for a caller that has just put something into the depot of a pooled size.
pub(super) fn is_fat(class: usize) -> bool {
    WARM[class].count() > FAT
}

/// The same for stacks with own mappings.
pub(super) fn is_own_fat(pool: usize) -> bool {
    OWN[pool].count() > FAT_OWN
}

/// Returns the memory of at most `budget` idle stacks (rounded up to a batch) to the system; the result is how many stacks it
/// was. The first call only begins to watch what is idle.
pub(crate) fn trim_depot(budget: usize) -> usize {
    let mut trimmed = 0;
    for (warm, cold) in WARM.iter().zip(&COLD) {
        let most = budget.saturating_sub(trimmed).div_ceil(BATCH);
        for batch in warm.take_idle(KEEP, most) {
            // A census that found one of these stacks on a frame, before the frame let it go, may still read its record. A census that
            // begins after this finds it on no frame.
            drop(crate::fiber::CENSUS.lock());
            let stacks = batch.into_stacks();
            // The contexts lie in that memory, and may own other resources.
            stacks.iter().for_each(Stack::retire);
            // Collected first: the records that say where the memory is are part of it.
            let memory: Vec<_> = stacks.iter().map(Stack::memory).collect();
            // SAFETY: the batch was taken from the depot, so its stacks are ours and no code runs on them.
            unsafe { guard::discard(memory.into_iter()) };
            trimmed += stacks.len();
            cold.put(Cold(stacks.into_iter().map(Stack::into_raw).collect()));
        }
    }
    // (Few are left when the stacks are back.)
    ROOM.iter().for_each(|room| drop(room.take_idle(KEEP, budget)));
    for own in &OWN {
        for stack in own.take_idle(0, budget.saturating_sub(trimmed)) {
            unmap(stack);
            trimmed += 1;
        }
    }
    trimmed
}
