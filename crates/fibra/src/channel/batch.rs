//! Several values of a buffered channel under one lock, for a loop that is the channel's only receiver: the stages of streams.
//!
//! Above: `stream::chain`. Below: `state`. The values leave the buffer together, in order, but their places stay *reserved*, as by
//! permits, until the loop has handed on all of them and comes for the next ones. So a sender is never further ahead than without
//! batches: what lies in the loop's hands counts as if it lay in the buffer.
//!
//! Invariants
//! * Only the last receiver takes batches: values in its hands are no other receiver's. Not from a channel that drops values when it is
//!   full.
//! * At most half of the places are in a batch: the sender can go on while the loop is busy.
//! * A batch that is dropped with its receiver gives nothing back: then the channel is closed for its senders.

use std::collections::VecDeque;
use std::mem;

use super::op::ChanOpKind;
use super::receiver::Receiver;
use super::state::Overflow;
use crate::prim::bug::seeded_bug;

/// Values in a batch, at most.
const MOST: usize = 32;
/// A batch has at most this part of the places. (A model has two places, and a batch of one value holds none: all of them there.)
const PART: usize = if cfg!(any(loom, shuttle)) { 1 } else { 2 };

/// Values that were taken together.
#[derive(Debug)]
pub(crate) struct Batch<T> {
    values: VecDeque<T>,
    most: usize,
    /// Places that are reserved for them, also for those that were handed on.
    places: usize,
}

impl<T> Batch<T> {
    /// An empty one for this channel; `None` if batches make no sense there: more than one value must fit into its buffer.
    pub(crate) fn of(receiver: &Receiver<T>) -> Option<Self> {
        let chan = receiver.chan();
        let mut locked = chan.lock();
        let state = locked.state();
        let most =
            if state.overflow == Overflow::Block && !chan.is_timed() { (state.capacity / PART).min(MOST) } else { 0 };
        locked.unlock();
        // All the memory at once: nothing is allocated under the lock.
        (most > 0).then(|| Self { values: VecDeque::with_capacity(most), most, places: 0 })
    }

    /// The next value in hand.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<T> {
        self.values.pop_front()
    }
}

impl<T> Receiver<T> {
    /// Gives the places of an empty batch back and takes the next values. False: there is none right now, or another receiver is there.
    #[inline]
    pub(crate) fn refill(&self, batch: &mut Batch<T>) -> bool {
        (batch.places != 0 || ChanOpKind::Recv.may_be_ready(self.chan().hint_word())) && self.refill_locked(batch)
    }

    #[inline(never)]
    fn refill_locked(&self, batch: &mut Batch<T>) -> bool {
        debug_assert!(batch.values.is_empty(), "a batch is handed on before the next is taken");
        let mut locked = self.chan().lock();
        let state = locked.state();
        if !seeded_bug("batch_keeps_its_places") {
            for _ in 0..mem::take(&mut batch.places) {
                state.unreserve();
            }
        }
        if state.has_room() {
            state.settle();
        }
        let most = if self.chan().is_only_receiver() { batch.most } else { 0 };
        batch.values.extend((0..most).map_while(|_| state.buffer.pop_front()));
        // The first is handed on at once: it has left the channel, as if it had been received alone.
        batch.places = batch.values.len().saturating_sub(1);
        state.reserved += batch.places;
        // That one is not reserved: a sender that found no room before the values left the buffer has its place now.
        if state.has_room() && !state.senders.is_empty() && !seeded_bug("batch_leaves_a_sender") {
            state.settle();
        }
        locked.unlock();
        !batch.values.is_empty()
    }
}
