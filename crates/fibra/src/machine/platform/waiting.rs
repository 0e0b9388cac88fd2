//! The operations that a platform machine has in hand: a slab, through which run the lists of the operations that wait
//! for each descriptor.
//!
//! Above: `machine`. Below: `reactor`, whose entries have the ends of the lists. Lists are first in, first out; nothing
//! is allocated as long as the number of operations in hand stays below its past maximum.
//!
//! Invariant: an operation in the slab is in the list of its descriptor and side, or (without a descriptor) in none.

use super::super::op::Request;
use super::reactor::{DescriptorEntry, NONE, Side};

pub(super) struct Waiting {
    slots: Vec<WaitingSlot>,
    free: u32,
}

pub(super) struct WaitingSlot {
    /// None: the slot is free.
    pub(super) request: Option<Request>,
    /// The descriptor that it waits for.
    pub(super) number: u32,
    pub(super) side: Side,
    before: u32,
    /// In the list of a descriptor, or of free slots.
    pub(super) after: u32,
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: NONE }
    }

    pub(super) fn get(&mut self, index: u32) -> Option<&mut WaitingSlot> {
        self.slots.get_mut(index as usize).filter(|slot| slot.request.is_some())
    }

    /// Keeps an operation, in no list. It knows where, so that its cancellation finds it.
    pub(super) fn keep(&mut self, request: Request, number: u32, side: Side) -> u32 {
        let index = match self.free {
            NONE => self.slots.len() as u32,
            free => free,
        };
        request.owned.set_place(index);
        let slot = WaitingSlot { request: Some(request), number, side, before: NONE, after: NONE };
        match self.slots.get_mut(index as usize) {
            Some(free) => {
                self.free = free.after;
                *free = slot;
            }
            None => self.slots.push(slot),
        }
        index
    }

    /// Puts it at the end of a descriptor's list.
    pub(super) fn link(&mut self, entry: &mut DescriptorEntry, index: u32) {
        let slot = &mut self.slots[index as usize];
        let list = &mut entry.waiting[slot.side as usize];
        slot.before = list.last;
        match std::mem::replace(&mut list.last, index) {
            NONE => list.first = index,
            before => self.slots[before as usize].after = index,
        }
    }

    /// Takes it out of its descriptor's list, if that is the entry, and out of the slab.
    pub(super) fn take(&mut self, entry: Option<&mut DescriptorEntry>, index: u32) -> Option<Request> {
        let free = self.free;
        let slot = self.get(index)?;
        let request = slot.request.take();
        let (side, before, after) = (slot.side, slot.before, std::mem::replace(&mut slot.after, free));
        self.free = index;
        if let Some(entry) = entry {
            let list = &mut entry.waiting[side as usize];
            match before {
                NONE => list.first = after,
                before => self.slots[before as usize].after = after,
            }
            match after {
                NONE => list.last = before,
                after => self.slots[after as usize].before = before,
            }
        }
        request
    }
}
