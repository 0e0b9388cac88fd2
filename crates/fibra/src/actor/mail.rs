//! What lies in a mailbox: ordinary messages and their bound, urgent ones, the mark of a stop; and, between turns, the actor's value.
//!
//! Above: `desk`, which keeps it under the lock that is the state word, and `places`, which lets senders wait. Below: `prim`. No method
//! calls user code or waits: what is dropped goes to the caller.
//!
//! Invariants
//! * `len() + reserved <= capacity`, but for a message of DropOldest whose places are all reserved, which is dropped itself.
//! * A message goes to `first` if there is no other, else to `queue`: so that in `first` is older than those in `queue`.
//! * A message is moved twice: to its place in here, and from there to the turn's hand (see `prim::slot` for why that matters).
//! * Urgent messages come before all others; each lane is first in, first out. Only the ordinary lane is bounded.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;

use crate::prim::slot::MoveSlot;

/// Buffers above this many bytes are not kept by an actor without messages.
const KEPT_BYTES: usize = 256;
/// `until_stop` of a mailbox that was not asked to stop.
const NO_STOP: usize = usize::MAX;

/// A message that is made when it is handled, on the actor's own turn: making it is user code.
pub(super) trait Make<M>: Send {
    fn make(self: Box<Self>) -> M;
    /// To get what it is made of back, if it was not delivered.
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
}

/// What lies in a mailbox.
pub(super) enum Letter<M> {
    Message(M),
    Make(Box<dyn Make<M>>),
}

impl<M> Letter<M> {
    /// The message.
    #[inline]
    pub(super) fn open(self) -> M {
        match self {
            Self::Message(message) => message,
            Self::Make(make) => make.make(),
        }
    }
}

impl<M> fmt::Debug for Letter<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Letter")
    }
}

/// A message that has crashed its actor and is delivered once more. (In a box wherever it lies: few actors ever have one.)
pub(super) struct Again<M> {
    pub(super) message: M,
    pub(super) crashes: u32,
}

/// Which way a message goes that is not a newcomer's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lane {
    /// Its sender has a place reserved.
    Reserved,
    /// Before all others, without a place.
    Urgent,
}

/// Why a message was not appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoPlace {
    Full,
    Closed,
    TimedOut,
}

/// What a turn has taken out of the mailbox and not handled yet.
pub(super) struct Hand<M> {
    pub(super) message: MoveSlot<M>,
    /// With [`Take::Make`].
    pub(super) make: Option<Box<dyn Make<M>>>,
    /// With [`Take::Again`].
    pub(super) again: Option<Box<Again<M>>>,
}

impl<M> Hand<M> {
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn new() -> Self {
        Self { message: MoveSlot::new(), make: None, again: None }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn put(&mut self, letter: Letter<M>) -> Take {
        match letter {
            Letter::Message(message) => {
                self.message.put(message);
                Take::Message
            }
            Letter::Make(make) => {
                self.make = Some(make);
                Take::Make
            }
        }
    }
}

/// What a turn is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Take {
    /// To handle the message in its hand.
    Message,
    /// The same with one that it makes first.
    Make,
    /// The same with one that has crashed its actor before.
    Again,
    /// Asked to stop, and everything that was there then is handled.
    Stop,
    /// Asked to stop after the message at hand.
    Now,
    /// Asked to end now.
    Kill,
    /// There is nothing to do.
    Nothing,
    /// There was nothing to do: it is EMPTY, and the turn is over.
    Rested,
    /// There is nothing to do, and no address is left: it is still RUNNING.
    Unreachable,
    /// The value is not ready for messages.
    Starts,
    /// It is not RUNNABLE, or has no value: a bug.
    Not,
}

/// Messages beside or behind the first one.
#[allow(clippy::box_collection)] // A mailbox without a second message has 8 bytes for it instead of 32.
type Queue<M> = Box<VecDeque<Letter<M>>>;

/// What few mailboxes have, and those for a moment.
struct Rare<M> {
    urgent: VecDeque<Letter<M>>,
    again: Option<Box<Again<M>>>,
    /// After so many ordinary messages it stops.
    until_stop: usize,
    dropped: u64,
}

impl<M> Default for Rare<M> {
    fn default() -> Self {
        Self { urgent: VecDeque::new(), again: None, until_stop: NO_STOP, dropped: 0 }
    }
}

impl<M> Rare<M> {
    fn has_work(&self) -> bool {
        !self.urgent.is_empty() || self.again.is_some() || self.until_stop != NO_STOP
    }
}

/// See the header. `V` is what the actor leaves here between turns.
pub(super) struct MailboxContents<M, V> {
    /// Most mailboxes never hold a second message, and so never have a buffer.
    first: Option<Letter<M>>,
    queue: Option<Queue<M>>,
    rare: Option<Box<Rare<M>>>,
    pub(super) value: Option<V>,
    capacity: u32,
    /// Places of senders that waited for one and have not appended yet.
    reserved: u32,
    /// Messages that were taken since a queued sender was last let go.
    passed: u32,
    /// Futures that were called because there is a place, and have not come yet: newcomers leave one to each.
    called: u16,
    /// Nothing is admitted any more.
    closed: bool,
    /// A sender is queued for a place.
    is_awaited: bool,
}

/// What an empty mailbox does not need: to be dropped without the lock.
pub(super) struct Unused<M> {
    _queue: Option<Queue<M>>,
    _rare: Option<Box<Rare<M>>>,
}

impl<M, V> MailboxContents<M, V> {
    pub(super) fn new(capacity: usize, value: Option<V>) -> Self {
        let capacity = u32::try_from(capacity).unwrap_or(u32::MAX);
        Self {
            first: None,
            queue: None,
            rare: None,
            value,
            capacity,
            reserved: 0,
            passed: 0,
            called: 0,
            closed: false,
            is_awaited: false,
        }
    }

    /// Ordinary messages.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.queue.as_ref().map_or(0, |queue| queue.len())
    }

    #[inline]
    pub(super) fn has_work(&self) -> bool {
        self.len() != 0 || self.rare.as_ref().is_some_and(|rare| rare.has_work())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    // ---- places -------------------------------------------------------------------------------------------------------------

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn free(&self) -> usize {
        (self.capacity as usize).saturating_sub(self.len() + self.reserved as usize)
    }

    /// Places that are not left to futures that were called.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn free_for_all(&self) -> usize {
        self.free().saturating_sub(usize::from(self.called))
    }

    /// Is there a place for a newcomer?
    pub(super) fn has_place(&self) -> bool {
        !self.closed && self.free_for_all() > 0
    }

    /// Is the first of the senders that wait to be let go? Yes if half of the places are free: it then goes on without waiting for each
    /// message anew. And yes if one is free and as many messages were taken as there are places since a sender was let go: newcomers take
    /// what becomes free, so that half may never be. (While less are free there are messages, or senders with places, or futures that were
    /// called, which will make it more.) And yes if one is free and the actor `stands`, that is, takes no message for now: its handler
    /// may wait for that very sender.
    fn lets_waiters_go(&self, stands: bool) -> bool {
        let enough = if stands { 1 } else { (self.capacity as usize / 2).max(1) };
        !self.closed && (self.free_for_all() >= enough || self.passed >= self.capacity && self.free() > 0)
    }

    /// The actor takes no message for now. True: senders that wait are to be let go.
    pub(super) fn stands_before_waiters(&self) -> bool {
        self.is_awaited && self.lets_waiters_go(true)
    }

    /// A sender is queued for a place; or none is.
    pub(super) fn set_awaited(&mut self, is_awaited: bool) {
        self.is_awaited = is_awaited;
        if !is_awaited {
            self.passed = 0;
        }
    }

    /// A message was taken out. True: senders that wait are to be let go.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn passes_waiters(&mut self) -> bool {
        if !self.is_awaited {
            return false;
        }
        self.passed = self.passed.saturating_add(1);
        self.lets_waiters_go(false)
    }

    /// Takes a place for a newcomer.
    pub(super) fn reserve(&mut self) -> bool {
        let has_place = self.has_place();
        if has_place {
            self.reserved += 1;
        }
        has_place
    }

    /// Takes a place for a future that was called.
    pub(super) fn reserve_called(&mut self) -> bool {
        let has_place = !self.closed && self.free() > 0;
        if has_place {
            self.reserved += 1;
            self.uncall();
        }
        has_place
    }

    /// Takes a place for the first of those that wait, if it is to be let go.
    pub(super) fn let_go(&mut self, stands: bool) -> bool {
        let goes = self.lets_waiters_go(stands);
        if goes {
            self.reserved += 1;
            self.passed = 0;
        }
        goes
    }

    /// A reserved place is not wanted any more.
    pub(super) fn unreserve(&mut self) {
        self.reserved -= 1;
    }

    /// Calls the first of those that wait, a future, if it is to be let go: one place is left to it until it comes.
    pub(super) fn call(&mut self, stands: bool) -> bool {
        let goes = self.lets_waiters_go(stands);
        if goes {
            // (More would only have less left to them.)
            self.called = self.called.saturating_add(1);
            self.passed = 0;
        }
        goes
    }

    /// A future that was called has come, or never will.
    pub(super) fn uncall(&mut self) {
        self.called = self.called.saturating_sub(1);
    }

    // ---- messages -----------------------------------------------------------------------------------------------------------

    /// Is there a place for the message of a newcomer?
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn admits(&self) -> Result<(), NoPlace> {
        if self.closed {
            return Err(NoPlace::Closed);
        }
        if self.free_for_all() == 0 { Err(NoPlace::Full) } else { Ok(()) }
    }

    /// Appends the message of a newcomer, if there is a place for it.
    pub(super) fn append(&mut self, letter: Letter<M>) -> Result<(), (NoPlace, Letter<M>)> {
        match self.admits() {
            Ok(()) => {
                self.push(letter);
                Ok(())
            }
            Err(no_place) => Err((no_place, letter)),
        }
    }

    /// The same if there is room for it in memory, too. Nothing in here unwinds: what has to be dropped by one who unwinds has to lie in
    /// memory before it is written to its place.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn append_plainly(&mut self, letter: Letter<M>) -> Result<(), Letter<M>> {
        if self.admits().is_err() {
            return Err(letter);
        }
        match &mut self.queue {
            Some(queue) if self.first.is_some() || !queue.is_empty() => {
                if queue.len() == queue.capacity() {
                    return Err(letter);
                }
                queue.push_back(letter);
            }
            None if self.first.is_some() => return Err(letter),
            // (There is nothing to be dropped.)
            _ => std::mem::forget(self.first.replace(letter)),
        }
        Ok(())
    }

    /// Appends a message that goes this way. Err: it is closed.
    pub(super) fn append_by(&mut self, letter: Letter<M>, lane: Lane) -> Result<(), Letter<M>> {
        if lane == Lane::Reserved {
            self.reserved -= 1;
        }
        if self.closed {
            return Err(letter);
        }
        match lane {
            Lane::Urgent => self.rare().urgent.push_back(letter),
            Lane::Reserved => self.push(letter),
        }
        Ok(())
    }

    /// Appends an ordinary message, for which there is a place.
    fn push(&mut self, letter: Letter<M>) {
        if self.len() == 0 {
            self.first = Some(letter);
        } else {
            self.queue.get_or_insert_default().push_back(letter);
        }
    }

    /// Appends an ordinary message for which there was no place a moment ago; if there is none now, in that of the oldest one, which is
    /// returned; or the message itself is, if all places are reserved. Err: closed.
    pub(super) fn replace_oldest(&mut self, letter: Letter<M>) -> Result<Option<Letter<M>>, Letter<M>> {
        if self.closed {
            return Err(letter);
        }
        if self.free() > 0 {
            self.push(letter);
            return Ok(None);
        }
        self.rare().dropped += 1;
        match self.pop() {
            Some(oldest) => {
                self.push(letter);
                Ok(Some(oldest))
            }
            None => Ok(Some(letter)),
        }
    }

    /// Counts a message that the overflow policy dropped.
    pub(super) fn count_dropped(&mut self) {
        self.rare().dropped += 1;
    }

    /// How many messages wait, and how many were dropped by the overflow policy.
    pub(super) fn counts(&self) -> (usize, u64) {
        let (urgent, dropped) = self.rare.as_ref().map_or((0, 0), |rare| (rare.urgent.len(), rare.dropped));
        (self.len() + urgent, dropped)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn pop(&mut self) -> Option<Letter<M>> {
        if self.first.is_some() {
            return self.first.take();
        }
        match &mut self.queue {
            Some(queue) => queue.pop_front(),
            None => None,
        }
    }

    /// What is to be done next.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn next(&mut self, hand: &mut Hand<M>) -> Take {
        if self.rare.is_some() {
            return self.next_rare(hand);
        }
        self.hand_out(hand, Take::Nothing)
    }

    /// The oldest ordinary message, or `otherwise`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn hand_out(&mut self, hand: &mut Hand<M>, otherwise: Take) -> Take {
        match self.pop() {
            Some(letter) => hand.put(letter),
            None => otherwise,
        }
    }

    #[cold]
    #[inline(never)]
    fn next_rare(&mut self, hand: &mut Hand<M>) -> Take {
        let rare = self.rare();
        if let Some(again) = rare.again.take() {
            hand.again = Some(again);
            return Take::Again;
        }
        if let Some(letter) = rare.urgent.pop_front() {
            return hand.put(letter);
        }
        match rare.until_stop {
            0 => Take::Stop,
            NO_STOP => self.hand_out(hand, Take::Nothing),
            _ => {
                rare.until_stop -= 1;
                // (Messages may have gone away otherwise: the overflow policy.)
                self.hand_out(hand, Take::Stop)
            }
        }
    }

    fn rare(&mut self) -> &mut Rare<M> {
        self.rare.get_or_insert_default()
    }

    /// It is empty: what it does not need.
    #[inline]
    pub(super) fn unused(&mut self) -> Option<Unused<M>> {
        if self.queue.is_none() && self.rare.is_none() {
            return None;
        }
        let is_large = |queue: &mut Queue<M>| queue.capacity().saturating_mul(size_of::<Letter<M>>()) > KEPT_BYTES;
        Some(Unused { _queue: self.queue.take_if(is_large), _rare: self.rare.take_if(|rare| rare.dropped == 0) })
    }

    // ---- ends ---------------------------------------------------------------------------------------------------------------

    /// Asks it to stop after what lies here now. `closes`: nothing is admitted after that.
    pub(super) fn ask_stop(&mut self, closes: bool) {
        let waiting = self.len();
        if !self.closed && self.rare().until_stop == NO_STOP {
            self.rare().until_stop = waiting;
        }
        self.closed |= closes;
    }

    /// Takes the mark of a stop away.
    pub(super) fn forget_stop(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.until_stop = NO_STOP;
        }
    }

    /// A message has crashed its actor: it is the first to be handled in the next life. Gives the one that was so before.
    pub(super) fn keep_for_later(&mut self, again: Box<Again<M>>) -> Option<Box<Again<M>>> {
        self.rare().again.replace(again)
    }

    /// Nothing is admitted any more.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// All that lies here, to be refused.
    pub(super) fn take_all(&mut self) -> Left<M> {
        let rare = self.rare.take().map(|rare| *rare).unwrap_or_default();
        if rare.dropped > 0 {
            self.rare().dropped = rare.dropped;
        }
        Left { again: rare.again, first: self.first.take(), queue: self.queue.take(), urgent: rare.urgent }
    }
}

/// What lay in a mailbox that was closed.
pub(super) struct Left<M> {
    again: Option<Box<Again<M>>>,
    first: Option<Letter<M>>,
    queue: Option<Queue<M>>,
    urgent: VecDeque<Letter<M>>,
}

impl<M> Left<M> {
    /// One after the other. What was to be made of something is given unmade.
    pub(super) fn letters(self) -> impl Iterator<Item = Letter<M>> {
        let again = self.again.map(|again| Letter::Message(again.message));
        let queue = self.queue.into_iter().flat_map(|queue| *queue);
        again.into_iter().chain(self.first).chain(queue).chain(self.urgent)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    // A message that found the mailbox full is appended if there is a place by then, and evicts one only if there is none.
    #[test]
    fn the_oldest_is_dropped_only_from_a_full_mailbox() {
        let mut mail = MailboxContents::<u32, ()>::new(2, None);
        let mut replace = |number| match mail.replace_oldest(Letter::Message(number)) {
            Ok(oldest) => oldest.map(Letter::open),
            Err(_) => panic!("it is open"),
        };
        assert_eq!([1, 2, 3, 4].map(&mut replace), [None, None, Some(1), Some(2)]);
        assert_eq!(mail.counts(), (2, 2));
    }

    // The first of those that wait is let go when half is free, or when as many messages as there are places have passed it.
    #[test]
    fn a_waiter_is_passed_a_bounded_number_of_times() {
        let mut mail = MailboxContents::<u32, ()>::new(4, None);
        for number in 0..4 {
            assert!(mail.append(Letter::Message(number)).is_ok());
        }
        assert!(matches!(mail.append(Letter::Message(4)), Err((NoPlace::Full, _))));
        mail.set_awaited(true);
        for passed in 1..=4 {
            assert!(mail.pop().is_some());
            assert_eq!(mail.passes_waiters(), passed == 4);
            if passed < 4 {
                assert!(mail.append(Letter::Message(passed)).is_ok());
            }
        }
        assert!(mail.call(false) && !mail.let_go(false));
        assert!(!mail.reserve(), "the place is left to the one that was called");
        assert!(mail.reserve_called() && !mail.has_place());
    }
}
