//! Who has an end of a channel, or may signal an event: a search for their addresses through the stacks of fibers.
//!
//! Who holds a lock is written in the lock. Who has the sender of a channel is written nowhere, and noting it would cost every clone and
//! every move. But a fiber that uses a handle has it on its stack, or a reference to where it lies: so the words of the stacks are searched
//! for the address of the channel. That is a guess in both directions. A handle that lies in a vector or behind an `Arc` is not found; and
//! a stack may have an address on it that is not used any more. So whatever follows from it is called probable.
//!
//! Stacks are read by the kernel (`prim::peek`), from where a fiber was suspended up to its end; of a fiber that runs, the part next to its
//! end. What was read of a fiber that went on meanwhile is not used.
//!
//! Above: `graph.rs`. Below: `fiber::frame`.

use std::collections::HashMap;

use super::collect::Found;
use super::snapshot::{FiberState, Snapshot};
use crate::fiber::frame::Watch;
use crate::prim::peek::peek_bytes;

/// The most of a stack that is searched, from its end.
const MOST: usize = 256 << 10;
/// The same of a fiber that runs: where its stack pointer is, is not known.
const MOST_RUNNING: usize = 16 << 10;
/// Below the stack pointer the ABI leaves room, in which the switch keeps registers.
const RED_ZONE: usize = 128;
/// In an `Arc` the value comes after two counts, and a handle points to those.
const ARC_COUNTS: usize = 2 * size_of::<usize>();

/// For each of these addresses, sorted: the fibers on whose stacks it is, by their place in the snapshot.
pub(super) fn referring(snapshot: &Snapshot, found: &[Found], places: &[usize]) -> HashMap<usize, Vec<usize>> {
    let mut referring: HashMap<usize, Vec<usize>> = HashMap::new();
    if places.is_empty() {
        return referring;
    }
    for (fiber, found) in found.iter().enumerate() {
        let words = match snapshot.fibers[fiber].state {
            FiberState::Parked => suspended_stack(found.watch),
            FiberState::Running => peek_end(found.watch, snapshot.asked_at),
            FiberState::Ready | FiberState::NotStarted => peek_bytes(found.watch.address(), Watch::FRAME),
        };
        for word in words.chunks_exact(size_of::<usize>()) {
            let word = usize::from_ne_bytes(word.try_into().unwrap_or_default());
            for address in [word, word.wrapping_add(ARC_COUNTS)] {
                if places.binary_search(&address).is_ok() {
                    let fibers = referring.entry(address).or_default();
                    if fibers.last() != Some(&fiber) {
                        fibers.push(fiber);
                    }
                }
            }
        }
    }
    referring
}

/// What a parked fiber has on its stack; nothing if it has gone on meanwhile.
fn suspended_stack(fiber: Watch) -> Vec<u8> {
    let Some((sp, end)) = fiber.suspended() else { return Vec::new() };
    let begin = sp.saturating_sub(RED_ZONE).max(end.saturating_sub(MOST));
    // Another back-end's context is no stack pointer.
    if sp > end || end - sp > MOST {
        return Vec::new();
    }
    let bytes = peek_bytes(begin & !(size_of::<usize>() - 1), end - begin);
    if fiber.is_parked() { bytes } else { Vec::new() }
}

/// The part next to its end. The one that asks has the addresses that are searched for in the frames of the search itself, and where these
/// were the last time it asked: of that one, only what lies above its call.
fn peek_end(fiber: Watch, asked_at: usize) -> Vec<u8> {
    let end = fiber.stack_end();
    if end == 0 {
        return Vec::new();
    }
    let mut begin = end.saturating_sub(MOST_RUNNING);
    if (end.saturating_sub(MOST)..end).contains(&asked_at) {
        begin = begin.max(asked_at & !(size_of::<usize>() - 1));
    }
    peek_bytes(begin, end - begin)
}
