//! The table of one event loop: its machines, the messages that came for them, their operations in flight, and the list
//! of machines to tick.
//!
//! Above: `routing`, which guards it. Below: `flight`, `table`, `port`, `sched::timers::heap`.
//!
//! A machine is found by its number: an index into `slots` and a comparison. The operations that a machine has in
//! flight form a list through the operations themselves; only a cancellation by number needs a look-up, and pays for it
//! (`by_id`). A message for a machine waits in the machine's slot, in its input port, until the machine is ticked. For
//! a child, a mark on each machine between the child and its root says that a message waits. So the cost of a tick is
//! proportional to the messages that have arrived.
//!
//! Invariants:
//! * nothing here runs user code, destructors of operations' data included;
//! * a machine is in `slots` until it is gone *and* none of its operations is in flight; numbers are not used again;
//! * a place is in the list of marks at most once, and the list is first in, first out; its slots are linked by `next`,
//!   which they keep when their machine goes.

use super::address::place_of;
use super::flight::{Flight, Flights};
use super::mail::Post;
use super::node::InFlight;
use super::op::Cancel;
use super::port::{Port, Queue, Queued};
use super::routing::Outbox;
use super::table::Table;
use crate::sched::timers::heap::Timers;

/// The parent of a root, and the number of an empty slot. No machine has it.
pub(super) const NO_MACHINE: u32 = u32::MAX;

/// A machine.
#[derive(Debug)]
pub(super) struct MachineSlot {
    pub(super) number: u32,
    pub(super) parent: u32,
    /// Of a root: it is in the list of roots to be ticked, before that place.
    pub(super) is_marked: bool,
    pub(super) next: u32,
    /// Of a child: something came for it, or for a machine below it, since it was last ticked.
    pub(super) has_input: bool,
    /// It has put something out that its parent has not looked at.
    pub(super) unseen: bool,
    /// A machine somewhere below has put something out since this one was last ticked.
    pub(super) child_signalled: bool,
    pub(super) gone: bool,
    /// How many machines below are `unseen`.
    pub(super) unseen_below: u32,
    /// The messages that came for it. Empty while the machine is ticked, and when it is gone.
    pub(super) input: Option<Box<Port>>,
    pub(super) flights: Flights,
}

impl MachineSlot {
    pub(super) const EMPTY: Self = Self {
        number: NO_MACHINE,
        parent: NO_MACHINE,
        is_marked: false,
        next: NO_MACHINE,
        has_input: false,
        unseen: false,
        child_signalled: false,
        gone: false,
        unseen_below: 0,
        input: None,
        flights: Flights::NONE,
    };

    /// Another machine, or none. Its place in the list of marks stays.
    pub(super) fn become_another(&mut self, number: u32, parent: u32, input: Option<Box<Port>>) {
        let (is_marked, next) = (self.is_marked, self.next);
        *self = Self { number, parent, is_marked, next, input, ..Self::EMPTY };
    }

    /// A machine below has signalled since the last tick, and its parent has not looked since: this machine is called
    /// once more for it. Only once: without a new signal there is no further call.
    #[inline]
    pub(super) fn is_signalled(&self) -> bool {
        self.child_signalled && self.unseen_below > 0
    }
}

/// The places of roots that have messages, oldest first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marked {
    pub(super) first: u32,
    pub(super) last: u32,
}

impl Marked {
    pub(super) const NONE: Self = Self { first: NO_MACHINE, last: NO_MACHINE };
}

#[derive(Debug)]
pub(super) struct RegistryState {
    pub(super) slots: Vec<MachineSlot>,
    /// Operations in flight, of all machines.
    pub(super) in_flight: usize,
    /// Operations in flight, of machines that are gone.
    pub(super) orphaned: usize,
    /// The operations of machines that cancel by number: those that were in flight at the last cancellation.
    pub(super) by_id: Table<InFlight>,
    pub(super) timers: Timers<InFlight>,
    /// Cancellations of machines that are gone, which have no port to put them in.
    pub(super) orphans: Queue<Cancel>,
    pub(super) marked: Marked,
    pub(super) outboxes: Vec<Outbox>,
    /// There is something in an outbox.
    pub(super) is_outbound: bool,
    /// Roots that asked to go, on a loop that goes on without them.
    pub(super) leaving: Vec<u32>,
}

impl RegistryState {
    /// The state of a loop in a mesh of so many loops.
    pub(super) fn new(loops: usize) -> Self {
        Self {
            slots: Vec::new(),
            in_flight: 0,
            orphaned: 0,
            by_id: Table::new(),
            timers: Timers::new(),
            orphans: Queue::new(),
            marked: Marked::NONE,
            outboxes: (0..loops).map(|_| Outbox::new()).collect(),
            is_outbound: false,
            leaving: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn slot(&self, number: u32) -> Option<&MachineSlot> {
        self.slots.get(place_of(number)).filter(|slot| slot.number == number)
    }

    #[inline]
    pub(super) fn slot_mut(&mut self, number: u32) -> Option<&mut MachineSlot> {
        self.slots.get_mut(place_of(number)).filter(|slot| slot.number == number)
    }

    pub(super) fn register(&mut self, number: u32, parent: u32, input: Box<Port>) {
        let place = place_of(number);
        while self.slots.len() <= place {
            self.slots.push(MachineSlot::EMPTY);
        }
        self.slots[place].become_another(number, parent, Some(input));
    }

    pub(super) fn is_root(&self, number: u32) -> bool {
        self.slot(number).is_some_and(|slot| slot.parent == NO_MACHINE)
    }

    /// A message came for the root in that place: it is to be ticked. Marking twice has the effect of marking once.
    #[inline]
    pub(super) fn mark(&mut self, place: usize) {
        let slot = &mut self.slots[place];
        if std::mem::replace(&mut slot.is_marked, true) {
            return;
        }
        slot.next = NO_MACHINE;
        let last = std::mem::replace(&mut self.marked.last, place as u32);
        match self.slots.get_mut(last as usize) {
            Some(last) => last.next = place as u32,
            None => self.marked.first = place as u32,
        }
    }

    /// Takes the whole list; what is marked from now on goes to a new one. Gives the first place, for [`RegistryState::next_to_tick`].
    #[inline]
    pub(super) fn detach(&mut self) -> u32 {
        std::mem::replace(&mut self.marked, Marked::NONE).first
    }

    /// The next of a detached list, which is about to be ticked: its number, what came for it (none: it is gone), and where the list goes
    /// on.
    #[inline]
    pub(super) fn next_to_tick(&mut self, place: u32) -> Option<(u32, Option<Box<Port>>, u32)> {
        let slot = self.slots.get_mut(place as usize)?;
        (slot.is_marked, slot.child_signalled) = (false, false);
        Some((slot.number, slot.input.take(), slot.next))
    }

    /// A root was ticked.
    #[inline]
    pub(super) fn end_tick(&mut self, number: u32, input: Box<Port>) {
        let place = place_of(number);
        let slot = &mut self.slots[place];
        debug_assert!(slot.number == number && slot.input.is_none());
        slot.input = Some(input);
        if slot.is_signalled() {
            self.mark(place);
        }
    }

    /// Puts a message into a queue of a machine's input, if the machine exists. The machine will be ticked, with its
    /// root and all machines in between.
    #[inline]
    pub(super) fn put<T: Queued>(
        &mut self,
        number: u32,
        item: T,
        queue: impl Fn(&mut Port) -> &mut Queue<T>,
    ) -> Result<(), T> {
        let place = place_of(number);
        let Some(slot) = self.slots.get_mut(place).filter(|slot| slot.number == number) else { return Err(item) };
        let Some(input) = &mut slot.input else { return Err(item) };
        if slot.parent == NO_MACHINE {
            queue(input).push(item);
            self.mark(place);
            return Ok(());
        }
        if !self.reach_child(place) {
            return Err(item);
        }
        if let Some(input) = &mut self.slots[place].input {
            queue(input).push(item);
        }
        Ok(())
    }

    /// Marks the machines above a child that has a message. False if no root would tick the child.
    pub(super) fn reach_child(&mut self, place: usize) -> bool {
        let mut number = self.slots[place].number;
        loop {
            let Some(slot) = self.slot_mut(number) else { return false };
            if slot.parent == NO_MACHINE {
                // A root that is gone leaves children behind only if user code has forgotten them (`mem::forget`).
                let is_there = !slot.gone;
                if is_there {
                    self.mark(place_of(number));
                }
                return is_there;
            }
            slot.has_input = true;
            number = slot.parent;
        }
    }

    /// Calls `each` for every machine above another one, up to the root.
    pub(super) fn above(&mut self, machine: u32, mut each: impl FnMut(&mut MachineSlot)) {
        let mut next = self.slot(machine).map_or(NO_MACHINE, |slot| slot.parent);
        while let Some(slot) = self.slot_mut(next) {
            each(slot);
            next = slot.parent;
        }
    }

    /// An operation of this machine is not in flight any more. False if the machine is gone.
    #[inline]
    pub(super) fn land(&mut self, op: InFlight, source: u32, post: &Post) -> bool {
        let Some(slot) = self.slot_mut(source) else { return false };
        // SAFETY: on the loop's own thread; in flight from here, so in the list of its source.
        let has_rest = unsafe { slot.flights.remove(op) };
        let gone = slot.gone;
        self.in_flight -= 1;
        if gone || has_rest {
            self.clean_up(op, source, post);
        }
        !gone
    }

    #[cold]
    fn clean_up(&mut self, op: InFlight, source: u32, post: &Post) {
        // SAFETY: on the loop's own thread; it has come home a moment ago, and is not submitted again yet.
        let flight = unsafe { op.flight(|flight| std::mem::replace(flight, Flight::NEW)) };
        if flight.is_indexed {
            self.by_id.remove(op.fixed().id);
        }
        if flight.has_early_cancel {
            // SAFETY: given up for this note, which is gone now.
            drop(unsafe { op.into_reference() });
        }
        if self.slot(source).is_some_and(|slot| slot.gone) {
            self.orphaned -= 1;
            self.remove_if_done(source, post);
        }
    }

    /// A machine that is gone makes room when nothing of its own is in flight.
    pub(super) fn remove_if_done(&mut self, number: u32, post: &Post) {
        if self.slot(number).is_some_and(|slot| slot.gone && slot.flights.len() == 0) {
            self.slots[place_of(number)].become_another(NO_MACHINE, NO_MACHINE, None);
            post.free_number(number);
        }
    }

    /// The roots that asked to go.
    pub(super) fn take_leaving(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.leaving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOTS: [u32; 2] = [0, 1];

    // G-09, S3-06, S3-07: first in, first out; adding twice is adding once; what is added meanwhile comes behind.
    #[test]
    fn marks_are_in_order_and_single() {
        let mut state = RegistryState::new(1);
        ROOTS.into_iter().for_each(|root| state.register(root, NO_MACHINE, Box::new(Port::new())));
        let [app, platform] = ROOTS;
        let next =
            |state: &mut RegistryState, list| state.next_to_tick(list).map(|(number, _, list)| (number, list)).unwrap();
        [platform, app, platform].into_iter().for_each(|root| state.mark(place_of(root)));
        let list = state.detach();
        assert_eq!((list, state.detach()), (platform, NO_MACHINE));
        let (first, list) = next(&mut state, list);
        [platform, app].into_iter().for_each(|root| state.mark(place_of(root)));
        let (second, list) = next(&mut state, list);
        assert_eq!((first, second, list), (platform, app, NO_MACHINE));
        let list = state.detach();
        assert_eq!(next(&mut state, list), (platform, NO_MACHINE));
    }
}
