//! Counts the waiters of a channel, to decide whether a place can be reserved before there is a value, and whether a try can succeed.
//!
//! Above: `settle`, `op` and `select`. Beside: `state`, whose header lists the roles of the waiters.

use super::state::{ChanState, Overflow};
use crate::prim::bug::seeded_bug;
use crate::waiter::node::{Node, Role, WaiterRef};

// SAFETY (all blocks of this impl): as in `state`: `&ChanState` is only had under the channel's lock, and nodes in its lists are alive
// until they are unlinked under it.
impl<T> ChanState<T> {
    /// How many waiters wait to receive, not counting `me`; futures too, for which a value can be left but which cannot be handed it.
    pub(super) fn waiting_receivers(&self, me: Option<WaiterRef>) -> usize {
        self.count_receivers(|node| node.role.get() != Role::Observe && !node.is_of(me))
    }

    /// The same, with the waiters that only observe: they are told when there is a value.
    pub(super) fn interested_receivers(&self, me: Option<WaiterRef>) -> usize {
        self.count_receivers(|node| {
            let unseen = seeded_bug("channel_watcher_unseen") && node.role.get() == Role::Observe;
            !unseen && !node.is_of(me)
        })
    }

    /// A waiter with several arms counts once: its nodes lie side by side, as they were linked under one lock.
    fn count_receivers(&self, counts: impl Fn(&Node) -> bool) -> usize {
        let (mut waiting, mut last) = (0, None);
        // SAFETY: see the impl.
        let mut next = unsafe { self.receivers.front() };
        while let Some(node) = next {
            if !node.is_of(last) && counts(node) {
                last = Some(node.target().0);
                waiting += 1;
            }
            // SAFETY: see the impl.
            next = unsafe { self.receivers.after(node) };
        }
        waiting
    }

    /// For how many waiting receivers a sender has reserved. The place that was promised because a receiver looked does not count: that
    /// receiver went on.
    pub(super) fn spoken_for(&self) -> usize {
        self.reserved - usize::from(self.looked)
    }

    /// Is there a place that `me` could reserve? In a rendezvous that is a receiver that waits.
    pub(crate) fn can_reserve(&self, me: Option<WaiterRef>) -> bool {
        self.has_room()
            || self.overflow != Overflow::Block
            || self.capacity == 0 && self.interested_receivers(me) > self.spoken_for()
    }

    /// Would `try_send` succeed now, or answer that the channel is closed?
    pub(crate) fn is_ready_to_offer(&self, me: Option<WaiterRef>) -> bool {
        self.closed
            || self.has_room()
            || self.overflow != Overflow::Block
            || self.can_leave(me)
            || self.count_receivers(|node| node.role.get() == Role::Fill && !node.is_of(me)) > self.spoken_for()
    }

    /// Could `me`, which does not wait, leave a value for a receiver that cannot be handed it? Senders that wait with a value come first,
    /// and senders that have reserved.
    pub(super) fn can_leave(&self, me: Option<WaiterRef>) -> bool {
        self.capacity == 0 && self.interested_receivers(me) > self.spoken_for() && !self.has_sender_with_value(me)
    }
}
