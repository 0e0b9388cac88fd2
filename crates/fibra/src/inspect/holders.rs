//! Finds the fibers that have an end of a channel, or may signal an event, by a search for the object's address through their stacks.
//!
//! A lock records its holder. A channel does not record which fiber has its sender: that would cost every clone and every move. But a
//! fiber that uses a handle has the handle on its stack, or a reference to it: so the words of the stacks are searched for the
//! address of the channel. That is a guess in both directions. A handle that lies in a vector or behind an `Arc` is not found; and
//! a stack may hold an address that is not used any more. So a deadlock that follows from it is called probable.
//!
//! Stacks are read through the kernel (`prim::peek`), from where a fiber was suspended up to the stack's end; of a fiber that runs, only
//! the part next to the end. What was read of a fiber that went on meanwhile is not used.
//!
//! Above: `graph.rs`. Below: `fiber::frame`.

use std::collections::HashMap;

use super::collect::Found;
use super::snapshot::{FiberState, Snapshot};
use crate::fiber::frame::ParkedFiber;
use crate::prim::peek::peek_bytes;

/// The most of a stack that is searched, from its end.
const MOST: usize = 256 << 10;
/// The most that is searched of the stack of a running fiber, whose stack pointer is not known.
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
            FiberState::Ready | FiberState::NotStarted => peek_bytes(found.watch.address(), ParkedFiber::FRAME),
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

/// The stack of a parked fiber; empty if the fiber has gone on meanwhile.
fn suspended_stack(fiber: ParkedFiber) -> Vec<u8> {
    let Some((sp, end)) = fiber.suspended() else { return Vec::new() };
    let begin = sp.saturating_sub(RED_ZONE).max(end.saturating_sub(MOST));
    // Another back-end's context is no stack pointer.
    if sp > end || end - sp > MOST {
        return Vec::new();
    }
    let bytes = peek_bytes(begin & !(size_of::<usize>() - 1), end - begin);
    if fiber.is_parked() { bytes } else { Vec::new() }
}

/// The part of a running fiber's stack next to its end. The fiber that asks has the addresses that are searched for in the frames of the
/// search itself, and where these frames were the last time it asked: of its stack, only what lies above its call is read.
fn peek_end(fiber: ParkedFiber, asked_at: usize) -> Vec<u8> {
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
