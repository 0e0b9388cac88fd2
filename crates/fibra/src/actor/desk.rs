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
/// `until_stop` of a mailbox that nobody has asked to stop.
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
    Again(Box<Again<M>>),
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
    queue: VecDeque<Letter<M>>,
    /// Boxed: most actors never have any.
    #[allow(clippy::box_collection)]
    urgent: Option<Box<VecDeque<Letter<M>>>>,
    again: Option<Box<Again<M>>>,
    /// After so many ordinary messages it stops.
    until_stop: usize,
    /// Nothing is admitted any more.
    closed: bool,
    dropped: u64,
}

impl<M> Mail<M> {
    fn has_work(&self) -> bool {
        !self.queue.is_empty() || self.urgent.is_some() || self.again.is_some() || self.until_stop != NO_STOP
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
        let mail =
            Mail { queue: VecDeque::new(), urgent: None, again: None, until_stop: NO_STOP, closed: false, dropped: 0 };
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
                Lane::Ordinary => mail.queue.push_back(letter),
                Lane::Urgent => mail.urgent.get_or_insert_default().push_back(letter),
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
            mail.dropped += 1;
            match mail.queue.pop_front() {
                Some(oldest) => {
                    mail.queue.push_back(letter);
                    Ok(Some(oldest))
                }
                None => Ok(Some(letter)),
            }
        });
        appended.map(|oldest| (oldest, Next::launch_if(self.word.wake())))
    }

    /// Counts a message that the overflow policy dropped.
    pub(super) fn count_dropped(&self) {
        self.mail.with(|mail| mail.dropped += 1);
    }

    /// How many messages wait, and how many were dropped by the overflow policy.
    pub(super) fn counts(&self) -> (usize, u64) {
        self.mail.with(|mail| (mail.queue.len() + mail.urgent.as_ref().map_or(0, |urgent| urgent.len()), mail.dropped))
    }

    /// Asks it to stop after what lies in the mailbox now. `closes`: nothing is admitted after that.
    pub(super) fn ask_stop(&self, closes: bool) -> Next {
        self.mail.with(|mail| {
            if mail.until_stop == NO_STOP && !mail.closed {
                mail.until_stop = mail.queue.len();
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
            if let Some(again) = mail.again.take() {
                return (Take::Again(again), false);
            }
            if let Some(urgent) = &mut mail.urgent {
                let letter = urgent.pop_front();
                if urgent.is_empty() {
                    mail.urgent = None;
                }
                return (letter.map_or(Take::Nothing, Take::Letter), false);
            }
            if mail.until_stop == 0 {
                return (Take::Stop, false);
            }
            match mail.queue.pop_front() {
                Some(letter) => {
                    if mail.until_stop != NO_STOP {
                        mail.until_stop -= 1;
                    }
                    (Take::Letter(letter), true)
                }
                // (Messages went away otherwise: the overflow policy.)
                None if mail.until_stop != NO_STOP => (Take::Stop, false),
                None => (Take::Nothing, false),
            }
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
            let has_work = mail.has_work();
            let is_large = mail.queue.capacity().saturating_mul(size_of::<Letter<M>>()) > KEPT_BYTES;
            (has_work, (!has_work && is_large).then(|| std::mem::take(&mut mail.queue)))
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
        self.mail.with(|mail| mail.again = Some(Box::new(again)));
    }

    /// A life is over, and a supervisor decides what comes next: the mailbox stays as it is.
    pub(super) fn hold(&self) {
        let forgotten = self.mail.with(|mail| {
            mail.until_stop = NO_STOP;
            if seeded_bug("actor_hold_forgets") { std::mem::take(&mut mail.queue) } else { VecDeque::new() }
        });
        drop(forgotten);
        self.word.hold();
    }

    /// Nothing is admitted any more; what lay in the mailbox is returned, to be refused. The caller then [ends](Word::end) it, or has.
    pub(super) fn close(&self) -> Vec<M>
    where
        M: Sized,
    {
        let (queue, urgent, again) = self.mail.with(|mail| {
            if !seeded_bug("actor_ends_open") {
                mail.closed = true;
            }
            mail.until_stop = NO_STOP;
            (std::mem::take(&mut mail.queue), mail.urgent.take(), mail.again.take())
        });
        self.places.close();
        let again = again.map(|again| again.message);
        let waiting = queue.into_iter().chain(urgent.into_iter().flat_map(|urgent| urgent.into_iter()));
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
