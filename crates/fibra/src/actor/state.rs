//! The state of an actor: one atomic word, and the table of its transitions as code.
//!
//! Above: `desk`, which sends and takes messages by it, and `cell`, which runs turns. Below: `prim` only, so that models use it as it is.
//!
//! | from | to | by |
//! |---|---|---|
//! | EMPTY | RUNNABLE | the sender that wins the compare-exchange; it launches a turn, once |
//! | RUNNABLE | RUNNING | the turn, when it begins |
//! | RUNNING | EMPTY | the turn, at its end; then it looks at the mailbox again, and may make it RUNNABLE like a sender |
//! | RUNNING | WAITING | the handler, which is about to wait |
//! | WAITING | RUNNING | the handler, when its wait is over |
//! | RUNNING | WAITING, held | the turn, when a life has ended and a supervisor decides what comes next |
//! | WAITING, held | RUNNABLE | the supervisor, which starts the next life |
//! | RUNNING, RUNNABLE, WAITING (held) | GONE | the end, for good; RUNNABLE if the runtime refuses the turn |
//!
//! Invariants
//! * RUNNABLE has one launched turn; no other state has one that has not begun. EMPTY and GONE have no turn, no stack, and are in no queue.
//! * Every transition is a compare-exchange, and only its winner acts on it (S2-24). Requests (KILL, NOW, LOOK) are bits of the same word:
//!   a turn that goes EMPTY has seen those that came before, and one that comes after finds EMPTY.
//! * Every edge is compared with the table, in debug builds and with `FIBRA_SPEC_ASSERT=1`.

use std::fmt;

use crate::prim::atomic::{AtomicU32, Ordering};
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
/// The last address was dropped: look whether one is left.
pub(super) const LOOK: u32 = 32;
/// Between two lives; only with WAITING.
const HELD: u32 = 64;

/// What a turn must look at before it goes EMPTY.
const REQUESTS: u32 = KILL | NOW | LOOK;

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

/// The word; see the header.
#[derive(Debug)]
pub(super) struct Word(AtomicU32);

impl Word {
    /// Of an actor whose first turn is about to be launched.
    pub(super) fn runnable() -> Self {
        Self(AtomicU32::new(ActorState::Runnable as u32))
    }

    /// Of one that a supervisor has not started yet.
    pub(super) fn held() -> Self {
        Self(AtomicU32::new(ActorState::Waiting as u32 | HELD))
    }

    #[cfg(all(test, any(loom, shuttle)))]
    pub(super) fn empty() -> Self {
        Self(AtomicU32::new(ActorState::Empty as u32))
    }

    #[inline]
    fn look(&self) -> u32 {
        // Acquire: pairs with the release of the transition that is seen. A sender that has appended to the mailbox sees an EMPTY that came
        // before: the turn has looked at the mailbox after it went EMPTY, under the same lock, and the lock orders the two.
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn state(&self) -> ActorState {
        state_of(self.look())
    }

    pub(super) fn is_held(&self) -> bool {
        self.look() & HELD != 0
    }

    /// What was asked of it.
    #[inline]
    pub(super) fn requests(&self) -> u32 {
        self.look() & REQUESTS
    }

    /// One transition, from a state in which only the caller may change it, or that it has to win. False: it is not in that state.
    /// `drops` are requests that end with it.
    #[inline]
    fn change(&self, from: u32, to: u32, drops: u32) -> bool {
        let mut now = self.look();
        loop {
            if now & (STATE | HELD) != from {
                return false;
            }
            let next = now & !(STATE | HELD | drops) | to;
            if is_spec_asserted() {
                check_edge(now, next);
            }
            // AcqRel: what was done in the state that is left is seen by the one who leaves the next. Relaxed on failure: tried again.
            match self.0.compare_exchange(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(actual) => now = actual,
            }
        }
    }

    /// EMPTY to RUNNABLE. True: the caller has won, and launches the turn.
    #[inline]
    #[must_use]
    pub(super) fn wake(&self) -> bool {
        if seeded_bug("actor_wakes_twice") {
            // Looks first, and acts as if that had decided.
            let is_empty = self.state() == ActorState::Empty;
            let _ = self.change(ActorState::Empty as u32, ActorState::Runnable as u32, 0);
            return is_empty;
        }
        self.change(ActorState::Empty as u32, ActorState::Runnable as u32, 0)
    }

    /// The turn begins. False: it is not wanted any more.
    #[must_use]
    pub(super) fn begin(&self) -> bool {
        self.change(ActorState::Runnable as u32, ActorState::Running as u32, 0)
    }

    /// RUNNING to EMPTY, unless something was asked: then it stays, and the requests are returned; LOOK is taken out with it.
    pub(super) fn rest(&self) -> Result<(), u32> {
        let mut now = self.look();
        loop {
            let asked = if seeded_bug("actor_rests_over_requests") { 0 } else { now & REQUESTS };
            let next = if asked == 0 { now & !STATE | ActorState::Empty as u32 } else { now & !LOOK };
            if asked == 0 && is_spec_asserted() {
                check_edge(now, next);
            }
            // AcqRel: as in `change`. Relaxed on failure: tried again.
            match self.0.compare_exchange(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if asked == 0 => return Ok(()),
                Ok(_) => return Err(asked),
                Err(actual) => now = actual,
            }
        }
    }

    /// The handler is about to wait.
    pub(super) fn wait(&self) {
        let was = self.change(ActorState::Running as u32, ActorState::Waiting as u32, 0);
        debug_assert!(was, "only a running handler waits");
    }

    /// The wait is over.
    pub(super) fn go_on(&self) {
        let was = self.change(ActorState::Waiting as u32, ActorState::Running as u32, 0);
        debug_assert!(was, "only a waiting handler goes on");
    }

    /// A life has ended, and a supervisor decides. What was asked of that life ends with it.
    pub(super) fn hold(&self) {
        let was = self.change(ActorState::Running as u32, ActorState::Waiting as u32 | HELD, KILL | NOW);
        debug_assert!(was, "only a running actor is held");
    }

    /// The next life begins. True: the caller launches its first turn.
    #[must_use]
    pub(super) fn start(&self) -> bool {
        self.change(ActorState::Waiting as u32 | HELD, ActorState::Runnable as u32, 0)
    }

    /// The end, by the turn, or by the one who has a turn that was refused.
    pub(super) fn end(&self) {
        let was = self.change(ActorState::Running as u32, ActorState::Gone as u32, 0)
            || self.change(ActorState::Runnable as u32, ActorState::Gone as u32, 0);
        debug_assert!(was, "it ends on its own turn");
    }

    /// The end of one that is held. False: it is not.
    #[must_use]
    pub(super) fn release(&self) -> bool {
        self.change(ActorState::Waiting as u32 | HELD, ActorState::Gone as u32, 0)
    }

    /// Asks something of it. The caller then tries to [wake](Self::wake) it.
    pub(super) fn ask(&self, request: u32) {
        // AcqRel: what the caller did before is seen by the turn that sees the request.
        self.0.fetch_or(request, Ordering::AcqRel);
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
        let word = Word::runnable();
        assert!(!word.wake(), "it is in the queue already");
        assert!(word.begin() && !word.begin());
        assert!(!word.wake(), "it runs");
        assert_eq!(word.rest(), Ok(()));
        assert_eq!(word.state(), ActorState::Empty);
        assert!(word.wake() && !word.wake());
        assert_eq!(word.state(), ActorState::Runnable);
    }

    #[test]
    fn a_turn_does_not_rest_over_a_request() {
        let word = Word::runnable();
        assert!(word.begin());
        word.ask(LOOK);
        assert_eq!(word.rest(), Err(LOOK));
        assert_eq!(word.rest(), Ok(()), "a look is looked at once");
        assert!(word.wake() && word.begin());
        word.ask(KILL);
        assert_eq!(word.rest(), Err(KILL));
        assert_eq!(word.rest(), Err(KILL), "a kill stays");
        word.hold();
        assert_eq!((word.state(), word.requests()), (ActorState::Waiting, 0));
        assert!(!word.wake(), "its supervisor decides");
        assert!(word.start() && !word.start());
        assert!(word.begin());
        word.end();
        assert_eq!(word.state(), ActorState::Gone);
    }
}
