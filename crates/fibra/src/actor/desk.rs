//! The desk of an actor: its mailbox, the places in it, and its state word, with the protocol between senders and turns.
//!
//! Above: `cell`, which launches turns when it is told to and runs them. Below: `state`, `places`. Nothing here knows of fibers, so the
//! models run it as it ships.
//!
//! ```text
//!  sender     take a place; append under the lock; then: EMPTY to RUNNABLE, and the winner launches a turn
//!  turn       RUNNABLE to RUNNING; take messages one by one; RUNNING to EMPTY; look at the mailbox again, under the lock:
//!             if there is a message, EMPTY to RUNNABLE, and the winner launches the next turn
//! ```
//!
//! Invariants
//! * A message that was accepted is handled, kept for the next life, or given back to be refused: whether the mailbox is closed is decided
//!   under the same lock as appending and as taking the last messages out.
//! * No message lies in the mailbox of an EMPTY actor for longer than the two steps of its sender or turn take. If the turn's last look
//!   came before the append, then the sender, which locks later, sees EMPTY (or what followed it); otherwise the turn sees the message.
//! * Urgent messages come before all others; each lane is first in, first out. Only the ordinary lane is bounded.
//! * No user code runs under the lock: what is dropped from the mailbox goes to the caller.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;

use super::places::Places;
use super::state::{KILL, NOW, Word};
use crate::prim::bug::seeded_bug;
use crate::prim::spin::SpinLock;

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

/// A message that has crashed its actor and is delivered once more.
pub(super) struct Again<M> {
    pub(super) message: M,
    pub(super) crashes: u32,
}

/// Which way a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lane {
    /// It has a place.
    Ordinary,
    /// Before all others, without a place.
    Urgent,
}

/// What became of a message that was appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a turn that is not launched never comes"]
pub(super) enum Next {
    /// A turn will see it.
    Nothing,
    /// The caller launches a turn.
    Launch,
}

impl Next {
    fn launch_if(won: bool) -> Self {
        if won { Self::Launch } else { Self::Nothing }
    }
}

/// What a turn finds.
pub(super) enum Take<M> {
    Letter(Letter<M>),
    Again(Again<M>),
    /// Asked to stop, and everything that was there then is handled.
    Stop,
    /// Asked to stop after the message at hand.
    Now,
    /// Asked to end now.
    Kill,
    Nothing,
}

/// How a turn ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(super) enum Rest {
    /// It is EMPTY.
    Idle,
    /// It is RUNNABLE, and the caller launches the next turn.
    Launch,
    /// Something was asked meanwhile: it is still RUNNING.
    Look,
}

struct Mail<M> {
    /// The oldest message. Most mailboxes never hold a second one, and so never have a buffer.
    first: Option<Letter<M>>,
    queue: VecDeque<Letter<M>>,
    rare: Option<Box<Rare<M>>>,
    /// Nothing is admitted any more.
    closed: bool,
}

/// What few mailboxes have, and those for a moment.
struct Rare<M> {
    urgent: VecDeque<Letter<M>>,
    again: Option<Again<M>>,
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

impl<M> Mail<M> {
    fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.queue.len()
    }

    fn has_work(&self) -> bool {
        self.len() > 0 || self.rare.as_ref().is_some_and(|rare| rare.has_work())
    }

    #[inline]
    fn push(&mut self, letter: Letter<M>) {
        if self.first.is_none() && self.queue.is_empty() {
            self.first = Some(letter);
        } else {
            self.queue.push_back(letter);
        }
    }

    #[inline]
    fn pop(&mut self) -> Option<Letter<M>> {
        self.first.take().or_else(|| self.queue.pop_front())
    }

    fn rare(&mut self) -> &mut Rare<M> {
        self.rare.get_or_insert_default()
    }
}

/// See the header.
pub(super) struct Desk<M> {
    pub(super) word: Word,
    pub(super) places: Places,
    mail: SpinLock<Mail<M>>,
}

impl<M> Desk<M> {
    pub(super) fn new(word: Word, capacity: usize) -> Self {
        let mail = Mail { first: None, queue: VecDeque::new(), rare: None, closed: false };
        Self { word, places: Places::new(capacity), mail: SpinLock::new(mail) }
    }

    // ---- senders ------------------------------------------------------------------------------------------------------------

    /// Appends a message, for which the sender has a place if it is an ordinary one. Err: the mailbox is closed.
    #[inline]
    pub(super) fn post(&self, letter: Letter<M>, lane: Lane) -> Result<Next, Letter<M>> {
        let appended = self.mail.with(|mail| {
            if mail.closed {
                return Err(letter);
            }
            match lane {
                Lane::Ordinary => mail.push(letter),
                Lane::Urgent => mail.rare().urgent.push_back(letter),
            }
            Ok(())
        });
        match appended {
            Ok(()) => Ok(Next::launch_if(self.word.wake())),
            Err(letter) => {
                if lane == Lane::Ordinary {
                    self.places.give();
                }
                Err(letter)
            }
        }
    }

    /// Appends an ordinary message in the place of the oldest one, which is returned. Err: closed. (None: there was a free place after all,
    /// or there is none at all because all belong to senders that are about to append; then the message itself is the one that goes.)
    pub(super) fn replace_oldest(&self, letter: Letter<M>) -> Result<(Option<Letter<M>>, Next), Letter<M>> {
        let appended = self.mail.with(|mail| {
            if mail.closed {
                return Err(letter);
            }
            mail.rare().dropped += 1;
            match mail.pop() {
                Some(oldest) => {
                    mail.push(letter);
                    Ok(Some(oldest))
                }
                None => Ok(Some(letter)),
            }
        });
        appended.map(|oldest| (oldest, Next::launch_if(self.word.wake())))
    }

    /// Counts a message that the overflow policy dropped.
    pub(super) fn count_dropped(&self) {
        self.mail.with(|mail| mail.rare().dropped += 1);
    }

    /// How many messages wait, and how many were dropped by the overflow policy.
    pub(super) fn counts(&self) -> (usize, u64) {
        self.mail.with(|mail| {
            let (urgent, dropped) = mail.rare.as_ref().map_or((0, 0), |rare| (rare.urgent.len(), rare.dropped));
            (mail.len() + urgent, dropped)
        })
    }

    /// Asks it to stop after what lies in the mailbox now. `closes`: nothing is admitted after that.
    pub(super) fn ask_stop(&self, closes: bool) -> Next {
        self.mail.with(|mail| {
            let waiting = mail.len();
            if !mail.closed && mail.rare().until_stop == NO_STOP {
                mail.rare().until_stop = waiting;
            }
            mail.closed |= closes;
        });
        if closes {
            self.places.close();
        }
        Next::launch_if(self.word.wake())
    }

    /// Asks one of KILL, NOW and LOOK.
    pub(super) fn ask(&self, request: u32) -> Next {
        self.word.ask(request);
        Next::launch_if(self.word.wake())
    }

    // ---- turns --------------------------------------------------------------------------------------------------------------

    /// What is to be done next.
    #[inline]
    pub(super) fn take(&self) -> Take<M> {
        let requests = self.word.requests();
        if requests & (KILL | NOW) != 0 {
            return if requests & KILL != 0 { Take::Kill } else { Take::Now };
        }
        let taken = self.mail.with(|mail| {
            if let Some(rare) = &mut mail.rare {
                if let Some(again) = rare.again.take() {
                    return (Take::Again(again), false);
                }
                if let Some(letter) = rare.urgent.pop_front() {
                    return (Take::Letter(letter), false);
                }
                if rare.until_stop == 0 {
                    return (Take::Stop, false);
                }
                if rare.until_stop != NO_STOP {
                    rare.until_stop -= 1;
                    // (Messages may have gone away otherwise: the overflow policy.)
                    return mail.pop().map_or((Take::Stop, false), |letter| (Take::Letter(letter), true));
                }
            }
            mail.pop().map_or((Take::Nothing, false), |letter| (Take::Letter(letter), true))
        });
        if taken.1 {
            self.places.give();
        }
        taken.0
    }

    /// The turn is over: RUNNING to EMPTY, and the second look.
    pub(super) fn rest(&self) -> Rest {
        if seeded_bug("actor_looks_before_empty") {
            let has_work = self.mail.with(|mail| mail.has_work());
            return match self.word.rest() {
                Err(_) => Rest::Look,
                Ok(()) if has_work && self.word.wake() => Rest::Launch,
                Ok(()) => Rest::Idle,
            };
        }
        if self.word.rest().is_err() {
            return Rest::Look;
        }
        let (has_work, unused) = self.mail.with(|mail| {
            if mail.has_work() {
                return (true, (None, None));
            }
            let is_large = mail.queue.capacity().saturating_mul(size_of::<Letter<M>>()) > KEPT_BYTES;
            let queue = is_large.then(|| std::mem::take(&mut mail.queue));
            (false, (queue, mail.rare.take_if(|rare| rare.dropped == 0)))
        });
        drop(unused);
        if has_work && self.word.wake() { Rest::Launch } else { Rest::Idle }
    }

    /// Is there nothing to do?
    pub(super) fn is_idle(&self) -> bool {
        self.mail.with(|mail| !mail.has_work())
    }

    /// A message has crashed its actor: it is the first to be handled in the next life.
    pub(super) fn keep_for_later(&self, again: Again<M>) {
        let before = self.mail.with(|mail| mail.rare().again.replace(again));
        drop(before);
    }

    /// A life is over, and a supervisor decides what comes next: the mailbox stays as it is.
    pub(super) fn hold(&self) {
        let forgotten = self.mail.with(|mail| {
            if let Some(rare) = &mut mail.rare {
                rare.until_stop = NO_STOP;
            }
            if seeded_bug("actor_hold_forgets") { mail.first.take() } else { None }
        });
        drop(forgotten);
        self.word.hold();
    }

    /// Nothing is admitted any more; what lay in the mailbox is returned, to be refused. The caller then [ends](Word::end) it, or has.
    pub(super) fn close(&self) -> Vec<M>
    where
        M: Sized,
    {
        let (first, queue, rare) = self.mail.with(|mail| {
            if !seeded_bug("actor_ends_open") {
                mail.closed = true;
            }
            let rare = mail.rare.take().map(|rare| *rare).unwrap_or_default();
            if rare.dropped > 0 {
                mail.rare().dropped = rare.dropped;
            }
            (mail.first.take(), std::mem::take(&mut mail.queue), rare)
        });
        self.places.close();
        let again = rare.again.map(|again| again.message);
        let waiting = first.into_iter().chain(queue).chain(rare.urgent);
        // What was to be made of something is dropped unmade.
        let messages =
            waiting.filter_map(|letter| if let Letter::Message(message) = letter { Some(message) } else { None });
        again.into_iter().chain(messages).collect()
    }
}

impl<M> fmt::Debug for Desk<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("state", &self.word.state()).field("messages", &self.counts().0).finish()
    }
}
