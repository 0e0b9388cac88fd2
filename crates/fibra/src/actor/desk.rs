//! The desk of an actor: its mailbox under the lock that is its state word, with the protocol between senders and turns.
//!
//! Above: `cell`, which launches turns when it is told to and runs them. Below: `state`, `mail`, `places`. Nothing here knows of fibers, so
//! the models run it as it ships.
//!
//! ```text
//!  sender     lock: append; EMPTY? then RUNNABLE, and it launches a turn
//!  turn       lock: RUNNABLE to RUNNING, take the value and the first message ── handle ──▶ lock: the next message; none? then put the
//!             value back and go EMPTY
//! ```
//!
//! Invariants
//! * A message that was accepted is handled, kept for the next life, or given back to be refused: whether the mailbox is closed is decided
//!   under the same lock as appending and as taking the last messages out.
//! * An EMPTY actor has no message and has its value here: both change in the step that changes the state.
//! * A place that becomes free while senders are queued is offered to them as soon as half of the mailbox is free, or as many messages as
//!   it has places have passed them, or the actor is WAITING (`places`).
//! * No user code runs under the lock: what is dropped from the mailbox goes to the caller.

use std::fmt;

use super::mail::{Again, Hand, Lane, Left, Letter, MailboxContents, NoPlace, Take};
use super::places::MailboxRoom;
use super::state::{KILL, Seen, Word};
use crate::prim::bug::seeded_bug;

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
    #[inline]
    fn launch_if(won: bool) -> Self {
        if won { Self::Launch } else { Self::Nothing }
    }
}

/// How a turn ends whose budget is spent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(super) enum Pause {
    /// It is EMPTY.
    Idle,
    /// It is RUNNABLE, and the caller launches the next turn.
    Launch,
    /// It is still RUNNING, since there is something else to do than messages.
    GoOn,
}

/// See the header.
pub(super) struct ActorDesk<M, V> {
    pub(super) places: MailboxRoom<M, V>,
}

impl<M, V> ActorDesk<M, V> {
    pub(super) fn new(state: u32, capacity: usize, value: Option<V>) -> Self {
        Self { places: MailboxRoom::new(state, MailboxContents::new(capacity, value)) }
    }

    /// The state, without the lock.
    #[inline]
    pub(super) fn seen(&self) -> Seen {
        Seen(self.places.room().look())
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn with<R>(&self, f: impl FnOnce(Word<'_>, &mut MailboxContents<M, V>) -> R) -> R {
        self.places.room().with(|bits, mail| f(Word(bits), mail))
    }

    // ---- senders ------------------------------------------------------------------------------------------------------------

    /// Appends the message of a newcomer, or gives it back.
    pub(super) fn post(&self, letter: Letter<M>) -> Result<Next, (NoPlace, Letter<M>)> {
        self.with(|mut word, mail| {
            mail.append(letter)?;
            Ok(Next::launch_if(word.ensure_turn()))
        })
    }

    /// The same if there is nothing in the way; else by [`post`](Self::post). In line where the message is made, and with nothing in it
    /// that may unwind: so that the message can be written straight to its place.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn post_plainly(&self, letter: Letter<M>) -> Result<Next, Letter<M>> {
        let Some(mut held) = self.places.room().try_lock() else { return Err(letter) };
        let (bits, mail) = held.parts();
        mail.append_plainly(letter)?;
        if seeded_bug("actor_plain_post_silent") {
            // Leaves it to others to launch a turn.
            return Ok(Next::Nothing);
        }
        Ok(Next::launch_if(Word(bits).ensure_turn()))
    }

    /// Appends a message that goes this way. Err: closed.
    pub(super) fn post_by(&self, letter: Letter<M>, lane: Lane) -> Result<Next, Letter<M>> {
        self.with(|mut word, mail| {
            mail.append_by(letter, lane)?;
            Ok(Next::launch_if(word.ensure_turn()))
        })
    }

    /// Appends an ordinary message, in the place of the oldest one if the mailbox is full: that one is returned. Err: closed.
    pub(super) fn replace_oldest(&self, letter: Letter<M>) -> Result<(Option<Letter<M>>, Next), Letter<M>> {
        self.with(|mut word, mail| {
            let oldest = mail.replace_oldest(letter)?;
            Ok((oldest, Next::launch_if(word.ensure_turn())))
        })
    }

    /// Counts a message that the overflow policy dropped.
    pub(super) fn count_dropped(&self) {
        self.with(|_, mail| mail.count_dropped());
    }

    /// How many messages wait, and how many were dropped by the overflow policy.
    pub(super) fn counts(&self) -> (usize, u64) {
        self.with(|_, mail| mail.counts())
    }

    /// Asks it to stop after what lies in the mailbox now. `closes`: nothing is admitted after that.
    pub(super) fn ask_stop(&self, closes: bool) -> Next {
        if closes {
            self.places.update(|mail| mail.ask_stop(true));
        } else {
            self.with(|_, mail| mail.ask_stop(false));
        }
        self.ensure_turn()
    }

    /// Asks KILL or NOW.
    pub(super) fn ask(&self, request: u32) -> Next {
        self.with(|mut word, _| {
            word.ask(request);
            Next::launch_if(word.ensure_turn())
        })
    }

    /// There may be something to do beside messages.
    pub(super) fn ensure_turn(&self) -> Next {
        self.with(|mut word, _| Next::launch_if(word.ensure_turn()))
    }

    // ---- turns --------------------------------------------------------------------------------------------------------------

    /// What is to be done next. If `begins`, the turn begins with that: it takes the value out, which `is_ready` if it takes messages. If
    /// there is nothing to do, and if `may_rest`, the value is put back and the actor is EMPTY.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn next(
        &self,
        begins: bool,
        value: &mut Option<V>,
        hand: &mut Hand<M>,
        is_ready: impl FnOnce(&mut V) -> bool,
        may_rest: impl FnOnce() -> bool,
    ) -> Take {
        if seeded_bug("actor_looks_before_empty")
            && !begins
            && self.with(|word, mail| word.seen().requests() == 0 && !mail.has_work())
        {
            // Looks, and goes EMPTY in another step.
            if !may_rest() {
                return Take::Unreachable;
            }
            return self.with(|mut word, mail| {
                mail.value = value.take();
                let _ = word.rest();
                Take::Rested
            });
        }
        let mut held = self.places.room().lock();
        let (bits, mail) = held.parts();
        let mut word = Word(bits);
        if begins {
            if !word.begin() {
                return Take::Not;
            }
            *value = mail.value.take();
            match value.as_mut().map(is_ready) {
                None => return Take::Not,
                Some(false) => return Take::Starts,
                Some(true) => {}
            }
        }
        let requests = word.seen().requests();
        if requests != 0 && (mail.has_work() || !seeded_bug("actor_rests_over_requests")) {
            return if requests & KILL != 0 { Take::Kill } else { Take::Now };
        }
        let take = mail.next(hand);
        match take {
            // (Only with a message: nothing else makes a place free here, and a turn that rests has no word any more under which to call
            // wakers.)
            Take::Message | Take::Make => {
                let settles = mail.passes_waiters();
                drop(held);
                self.settle_if(settles);
                take
            }
            Take::Nothing if !may_rest() => Take::Unreachable,
            Take::Nothing => {
                let rested = word.rest();
                debug_assert!(rested || cfg!(any(loom, shuttle)), "what was asked is to be done first");
                mail.value = value.take();
                let unused = mail.unused();
                drop(held);
                drop(unused);
                Take::Rested
            }
            _ => take,
        }
    }

    /// Places have become free that senders wait for.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn settle_if(&self, settles: bool) {
        if settles && !seeded_bug("actor_room_untold") {
            self.places.settle();
        }
    }

    /// The budget is spent: RUNNABLE again if there is work, EMPTY if not. The value is put back.
    pub(super) fn pause(&self, value: &mut Option<V>, may_rest: impl FnOnce() -> bool) -> Pause {
        let (pause, unused) = self.with(|mut word, mail| {
            let has_work = mail.has_work();
            if !has_work && !may_rest() || !word.rest() {
                return (Pause::GoOn, None);
            }
            mail.value = value.take();
            if has_work && word.ensure_turn() { (Pause::Launch, None) } else { (Pause::Idle, mail.unused()) }
        });
        drop(unused);
        pause
    }

    /// The handler is about to wait. True: it was killed.
    pub(super) fn wait(&self) -> bool {
        let (is_killed, settles) = self.with(|mut word, mail| {
            word.wait();
            (word.seen().requests() & KILL != 0, mail.stands_before_waiters())
        });
        self.settle_standing(settles);
        is_killed
    }

    /// The actor takes no message for now, and there are places that senders wait for. No user code runs in here.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn settle_standing(&self, settles: bool) {
        if settles && !seeded_bug("actor_stands_untold") {
            self.places.settle_parking();
        }
    }

    /// The wait is over.
    pub(super) fn go_on(&self) {
        self.with(|mut word, _| word.go_on());
    }

    // ---- lives --------------------------------------------------------------------------------------------------------------

    /// A message has crashed its actor: it is the first to be handled in the next life.
    /// Gives the one that was so before.
    pub(super) fn keep_for_later(&self, again: Box<Again<M>>) -> Option<Box<Again<M>>> {
        self.with(|_, mail| mail.keep_for_later(again))
    }

    /// A life is over, and a supervisor decides what comes next: the mailbox stays as it is.
    pub(super) fn hold(&self, value: Option<V>) {
        let (forgotten, settles) = self.with(|mut word, mail| {
            mail.value = value;
            mail.forget_stop();
            word.hold();
            (seeded_bug("actor_hold_forgets").then(|| mail.take_all()), mail.stands_before_waiters())
        });
        drop(forgotten);
        self.settle_standing(settles);
    }

    /// The next life begins; `prepare` makes the value ready for it. False: the actor is not held.
    pub(super) fn start(&self, prepare: impl FnOnce(&mut V)) -> bool {
        self.with(|mut word, mail| {
            let starts = word.start();
            if starts && let Some(value) = &mut mail.value {
                prepare(value);
            }
            starts
        })
    }

    /// The end of one that is held. False: it is not.
    pub(super) fn release(&self) -> bool {
        self.with(|mut word, _| word.release())
    }

    /// Takes the value out of one whose turn will not run.
    pub(super) fn take_value(&self) -> Option<V> {
        self.with(|_, mail| mail.value.take())
    }

    /// Nothing is admitted any more; what lay in the mailbox is returned, to be refused. The caller then [ends](Self::end) it, or has.
    pub(super) fn close(&self) -> Left<M> {
        self.places.update(|mail| {
            if !seeded_bug("actor_ends_open") {
                mail.close();
            }
            mail.take_all()
        })
    }

    /// GONE, for good.
    pub(super) fn end(&self) {
        self.with(|mut word, _| word.end());
    }
}

impl<M, V> fmt::Debug for ActorDesk<M, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActorDesk").field("state", &self.seen().state()).field("messages", &self.counts().0).finish()
    }
}
