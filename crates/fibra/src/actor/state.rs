//! The state of an actor: one atomic word, and the table of its transitions as code.
//!
//! Above: `desk`, which sends and takes messages by it, and `cell`, which runs turns. Below: `prim` only, so that models use it as it is:
//! the word is also the lock of the mailbox ([`WordLock`](crate::prim::spin::WordLock)).
//!
//! | from | to | by |
//! |---|---|---|
//! | EMPTY | RUNNABLE | the sender that finds it EMPTY when its message is in the mailbox; it launches a turn, once |
//! | RUNNABLE | RUNNING | the turn, when it begins |
//! | RUNNING | EMPTY | the turn, at its end, if it finds the mailbox empty; or, its budget being spent, on the way to RUNNABLE |
//! | RUNNING | WAITING | the handler, which is about to wait |
//! | WAITING | RUNNING | the handler, when its wait is over |
//! | RUNNING | WAITING, held | the turn, when a life has ended and a supervisor decides what comes next |
//! | WAITING, held | RUNNABLE | the supervisor, which starts the next life |
//! | RUNNING, RUNNABLE, WAITING (held) | GONE | the end, for good; RUNNABLE if the runtime refuses the turn |
//!
//! Invariants
//! * RUNNABLE has one launched turn; no other state has one that has not begun. EMPTY and GONE have no turn, no stack, and are in no queue.
//! * Every transition is one compare-exchange, which locks the word, and the store that unlocks it with the next state; only the one who
//!   has it locked acts on it (S2-24). The mailbox changes in the same step: no state is seen beside a mailbox that it does not belong to.
//!   Requests (KILL, NOW) are bits of the same word: a turn that goes EMPTY has seen those that came before, and one that comes after
//!   finds EMPTY.
//! * Every edge is compared with the table, in debug builds and with `FIBRA_SPEC_ASSERT=1`.

use std::fmt;

use crate::prim::bug::seeded_bug;
use crate::waiter::word::is_spec_asserted;

/// What an actor is doing; see [`Addr::state`](super::Addr::state).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum ActorState {
    /// No message: it owns no stack and is in no queue.
    Empty = 0,
    /// It has messages, and its turn will come.
    Runnable = 1,
    /// A handler runs, on one worker.
    Running = 2,
    /// A handler is suspended in a blocking call; or its supervisor has not started the next life yet.
    Waiting = 3,
    /// It has ended.
    Gone = 4,
}

impl fmt::Display for ActorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "empty",
            Self::Runnable => "runnable",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Gone => "gone",
        })
    }
}

/// The bits of the word in which the state lies; flags lie above.
const STATE: u32 = 7;
/// Asked to end now: no further message, and the handler is cancelled.
pub(super) const KILL: u32 = 8;
/// Asked to end after the message at hand.
pub(super) const NOW: u32 = 16;
/// Between two lives; only with WAITING.
const HELD: u32 = 32;

/// What a turn must look at before it goes EMPTY.
const REQUESTS: u32 = KILL | NOW;

/// The table: the states that may follow each other, and whether the first or the second is held.
const EDGES: &[(ActorState, bool, ActorState, bool)] = {
    use ActorState::*;
    &[
        (Empty, false, Runnable, false),
        (Runnable, false, Running, false),
        (Running, false, Empty, false),
        (Running, false, Waiting, false),
        (Waiting, false, Running, false),
        (Running, false, Waiting, true),
        (Waiting, true, Runnable, false),
        (Running, false, Gone, false),
        (Runnable, false, Gone, false),
        (Waiting, true, Gone, false),
    ]
};

fn state_of(word: u32) -> ActorState {
    match word & STATE {
        0 => ActorState::Empty,
        1 => ActorState::Runnable,
        2 => ActorState::Running,
        3 => ActorState::Waiting,
        _ => ActorState::Gone,
    }
}

/// Out of line, so that a build that does not check pays for the question only.
#[cold]
#[inline(never)]
fn check_edge(from: u32, to: u32) {
    let edge = (state_of(from), from & HELD != 0, state_of(to), to & HELD != 0);
    assert!(
        EDGES.contains(&edge),
        "fibra: illegal transition of an actor: {edge:?} (a bug in fibra, please report it)"
    );
}

/// The word, in the hands of the one who has it locked; see the header.
pub(super) struct Word<'a>(pub(super) &'a mut u32);

/// What a look at the word shows, without its lock.
#[derive(Clone, Copy)]
pub(super) struct Seen(pub(super) u32);

impl Seen {
    pub(super) fn state(self) -> ActorState {
        state_of(self.0)
    }

    pub(super) fn is_held(self) -> bool {
        self.0 & HELD != 0
    }

    /// What was asked of it.
    #[inline]
    pub(super) fn requests(self) -> u32 {
        self.0 & REQUESTS
    }
}

/// The first word of an actor whose first turn is about to be launched.
pub(super) const NEW_RUNNABLE: u32 = ActorState::Runnable as u32;
/// Of one that a supervisor has not started yet.
pub(super) const NEW_HELD: u32 = ActorState::Waiting as u32 | HELD;
#[cfg(all(test, any(loom, shuttle)))]
pub(super) const NEW_EMPTY: u32 = ActorState::Empty as u32;

impl Word<'_> {
    #[inline]
    pub(super) fn seen(&self) -> Seen {
        Seen(*self.0)
    }

    /// One transition, from a state in which only the caller may change it, or that it has to find. False: it is not in that state.
    /// `drops` are requests that end with it.
    #[inline]
    fn change(&mut self, from: u32, to: u32, drops: u32) -> bool {
        let now = *self.0;
        if now & (STATE | HELD) != from {
            return false;
        }
        let next = now & !(STATE | HELD | drops) | to;
        if is_spec_asserted() {
            check_edge(now, next);
        }
        *self.0 = next;
        true
    }

    /// EMPTY to RUNNABLE. True: the caller launches the turn.
    #[inline]
    #[must_use]
    pub(super) fn ensure_turn(&mut self) -> bool {
        if seeded_bug("actor_wakes_twice") {
            // Says so also where a turn is launched already.
            let is_runnable = self.seen().state() == ActorState::Runnable;
            return self.change(ActorState::Empty as u32, ActorState::Runnable as u32, 0) || is_runnable;
        }
        self.change(ActorState::Empty as u32, ActorState::Runnable as u32, 0)
    }

    /// The turn begins. False: it is not wanted any more.
    #[must_use]
    pub(super) fn begin(&mut self) -> bool {
        self.change(ActorState::Runnable as u32, ActorState::Running as u32, 0)
    }

    /// RUNNING to EMPTY, unless something was asked: then it stays RUNNING, and this is false, as it is if it was not RUNNING.
    #[must_use]
    pub(super) fn rest(&mut self) -> bool {
        if self.seen().requests() != 0 && !seeded_bug("actor_rests_over_requests") {
            return false;
        }
        let was = self.change(ActorState::Running as u32, ActorState::Empty as u32, 0);
        debug_assert!(was, "only a running turn ends");
        was
    }

    /// The handler is about to wait.
    pub(super) fn wait(&mut self) {
        let was = self.change(ActorState::Running as u32, ActorState::Waiting as u32, 0);
        debug_assert!(was, "only a running handler waits");
    }

    /// The wait is over.
    pub(super) fn go_on(&mut self) {
        let was = self.change(ActorState::Waiting as u32, ActorState::Running as u32, 0);
        debug_assert!(was, "only a waiting handler goes on");
    }

    /// A life has ended, and a supervisor decides. What was asked of that life ends with it.
    pub(super) fn hold(&mut self) {
        let was = self.change(ActorState::Running as u32, ActorState::Waiting as u32 | HELD, REQUESTS);
        debug_assert!(was, "only a running actor is held");
    }

    /// The next life begins. True: the caller launches its first turn. What was asked while it was held met no life, and ends here.
    #[must_use]
    pub(super) fn start(&mut self) -> bool {
        self.change(ActorState::Waiting as u32 | HELD, ActorState::Runnable as u32, REQUESTS)
    }

    /// The end, by the turn, or by the one who has a turn that was refused.
    pub(super) fn end(&mut self) {
        let was = self.change(ActorState::Running as u32, ActorState::Gone as u32, 0)
            || self.change(ActorState::Runnable as u32, ActorState::Gone as u32, 0);
        debug_assert!(was, "it ends on its own turn");
    }

    /// The end of one that is held. False: it is not.
    #[must_use]
    pub(super) fn release(&mut self) -> bool {
        self.change(ActorState::Waiting as u32 | HELD, ActorState::Gone as u32, 0)
    }

    /// Asks something of it. The caller then tries to [wake](Self::wake) it.
    pub(super) fn ask(&mut self, request: u32) {
        *self.0 |= request;
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    // S2-24: the table is what the code holds the edges against; an edge that it does not have is refused.
    #[test]
    fn edges_that_are_not_in_the_table_are_refused() {
        let legal = |from, held, to, then_held| EDGES.contains(&(from, held, to, then_held));
        use ActorState::*;
        let all = [Empty, Runnable, Running, Waiting, Gone];
        for (from, held) in all.into_iter().flat_map(|state| [(state, false), (state, true)]) {
            for (to, then_held) in all.into_iter().flat_map(|state| [(state, false), (state, true)]) {
                let word = |state: ActorState, held: bool| state as u32 | if held { HELD } else { 0 };
                let (a, b) = (word(from, held), word(to, then_held));
                let refused = std::panic::catch_unwind(|| check_edge(a, b)).is_err();
                assert_eq!(refused, !legal(from, held, to, then_held), "{from:?} to {to:?}");
            }
        }
    }

    // C-33, S2-28, S2-29: one of two wakes wins; S2-50, S2-51: a turn goes EMPTY first and is made RUNNABLE once more after.
    #[test]
    fn one_wake_wins() {
        let mut bits = NEW_RUNNABLE;
        let mut word = Word(&mut bits);
        assert!(!word.ensure_turn(), "it is in the queue already");
        assert!(word.begin() && !word.begin());
        assert!(!word.ensure_turn(), "it runs");
        assert!(word.rest());
        assert_eq!(word.seen().state(), ActorState::Empty);
        assert!(word.ensure_turn() && !word.ensure_turn());
        assert_eq!(word.seen().state(), ActorState::Runnable);
    }

    #[test]
    fn a_turn_does_not_rest_over_a_request() {
        let mut bits = NEW_RUNNABLE;
        let mut word = Word(&mut bits);
        assert!(word.begin());
        word.ask(KILL);
        assert!(!word.rest());
        assert!(!word.rest(), "a kill stays");
        word.hold();
        assert_eq!((word.seen().state(), word.seen().requests()), (ActorState::Waiting, 0));
        assert!(!word.ensure_turn(), "its supervisor decides");
        word.ask(KILL);
        assert!(word.start() && !word.start());
        assert_eq!(word.seen().requests(), 0, "that met no life");
        assert!(word.begin());
        word.end();
        assert_eq!(word.seen().state(), ActorState::Gone);
    }
}
