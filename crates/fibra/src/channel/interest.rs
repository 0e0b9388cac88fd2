//! Who waits at a channel, counted: whether there is a place for one who asks before it has a value, and whether a try is worth it.
//!
//! Beside: `state`, whose header says who waits how.

use super::state::{Overflow, State};
use crate::prim::bug::seeded_bug;
use crate::waiter::node::{Node, Role, WaiterRef};

// SAFETY (all blocks of this impl): as in `state`: `&State` is only had under the channel's lock, and nodes in its lists are alive until
// they are unlinked under it.
impl<T> State<T> {
    /// How many wait to receive, not counting `me`; async ones too, which a value can wait for but not be given to.
    pub(super) fn waiting_receivers(&self, me: Option<WaiterRef>) -> usize {
        self.count_receivers(|node| node.role.get() != Role::Observe && !node.is_of(me))
    }

    /// The same, with those who only want to know: they are told when a value is there.
    pub(super) fn interested_receivers(&self, me: Option<WaiterRef>) -> usize {
        self.count_receivers(|node| {
            let unseen = seeded_bug("channel_watcher_unseen") && node.role.get() == Role::Observe;
            !unseen && !node.is_of(me)
        })
    }

    /// One who waits by several arms is one: their nodes lie side by side, as they were linked under one lock.
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

    /// How many of those who wait to receive are spoken for. What was promised for a look is not: that receiver went on.
    pub(super) fn spoken_for(&self) -> usize {
        self.reserved - usize::from(self.looked)
    }

    /// Is there a place that could be reserved, by `me`? In a rendezvous that is a receiver who waits.
    pub(crate) fn can_reserve(&self, me: Option<WaiterRef>) -> bool {
        self.has_room()
            || self.overflow != Overflow::Block
            || self.capacity == 0 && self.interested_receivers(me) > self.spoken_for()
    }

    /// Would `try_send` come to something now, if only to the answer that it is closed?
    pub(crate) fn is_ready_to_offer(&self, me: Option<WaiterRef>) -> bool {
        self.closed
            || self.has_room()
            || self.overflow != Overflow::Block
            || self.can_leave(me)
            || self.count_receivers(|node| node.role.get() == Role::Fill && !node.is_of(me)) > self.spoken_for()
    }

    /// Could `me`, who does not wait, leave a value for one who cannot be handed it? Those who wait with a value come first, and those who
    /// have reserved.
    pub(super) fn can_leave(&self, me: Option<WaiterRef>) -> bool {
        self.capacity == 0 && self.interested_receivers(me) > self.spoken_for() && !self.has_sender_with_value(me)
    }
}
