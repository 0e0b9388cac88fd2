//! A word with two counts, a flag and the number of the turn: the common base of [`Event`](super::Event), [`Barrier`](super::Barrier) and
//! [`WaitGroup`](super::WaitGroup). A waiter takes nothing here: it waits until the word is *open*, or until the turn is over.
//!
//! Above: those three, and `Once`. Below: the gate. A waiter remembers the turn in which it came. A turn that is over lets all of its
//! waiters go, even if the word is shut again before the last of them has been told: so no waiter that was there when it was opened is left
//! behind.

use std::cell::Cell;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::gate::{self, Ask, Gate, GateTask, GateWait, Rules};
use crate::prim::atomic::{AtomicU64, Ordering};
use crate::prim::bug::seeded_bug;
use crate::select::case::Case;
use crate::select::{Arm, sealed};
use crate::wait::reason::WaitReason;
use crate::waiter::node::Outcome;

const WAITING: u64 = 1;
const OPEN: u64 = 2; // It is set: no caller waits.
/// The two counts have 24 bits each, the turn what is left.
const COUNT_BITS: u32 = 24;
const FIRST_SHIFT: u32 = 2;
const SECOND_SHIFT: u32 = FIRST_SHIFT + COUNT_BITS;
const TURN_SHIFT: u32 = SECOND_SHIFT + COUNT_BITS;
/// The most that can be counted.
pub(super) const MOST: u32 = (1 << COUNT_BITS) - 1;

/// The word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TurnsWord {
    pub(super) open: bool,
    pub(super) first: u32,
    pub(super) second: u32,
    pub(super) turn: u16,
}

impl TurnsWord {
    fn of(word: u64) -> Self {
        Self {
            open: word & OPEN != 0,
            first: (word >> FIRST_SHIFT) as u32 & MOST,
            second: (word >> SECOND_SHIFT) as u32 & MOST,
            turn: (word >> TURN_SHIFT) as u16,
        }
    }

    const fn to_word(self) -> u64 {
        (if self.open { OPEN } else { 0 })
            | (self.first as u64) << FIRST_SHIFT
            | (self.second as u64) << SECOND_SHIFT
            | (self.turn as u64) << TURN_SHIFT
    }

    /// The turn is over.
    pub(super) fn next_turn(self) -> Self {
        // The word has 14 bits for it: it comes round.
        Self { turn: (self.turn + 1) & (u16::MAX >> (TURN_SHIFT + 16 - 64)), ..self }
    }
}

struct TurnRules {
    word: AtomicU64,
}

impl Rules for TurnRules {
    const BARGES: bool = true;
    const CALLS_ALL: bool = true;
    // The turn is over; its number may come round before the called future is polled.
    const CALL_SUFFICES: bool = true;

    fn grant(&self, turn: usize) -> bool {
        self.is_grantable(turn)
    }

    fn revoke(&self, _: usize) {}

    fn is_grantable(&self, turn: usize) -> bool {
        // Acquire: pairs with the release in `change`; what was done before it was opened is seen.
        let state = TurnsWord::of(self.word.load(Ordering::Acquire));
        state.open || usize::from(state.turn) != turn
    }

    fn set_waiting(&self, waiting: bool) {
        // AcqRel: the look that follows must not be older; it reads this very word.
        if waiting {
            self.word.fetch_or(WAITING, Ordering::AcqRel);
        } else {
            // Relaxed: nothing depends on it.
            self.word.fetch_and(!WAITING, Ordering::Relaxed);
        }
    }
}

/// See the header.
pub(super) struct Turns {
    gate: Gate<TurnRules>,
}

impl Turns {
    #[cfg(not(loom))]
    pub(super) const fn new(state: TurnsWord) -> Self {
        Self { gate: Gate::new(TurnRules { word: AtomicU64::new(state.to_word()) }) }
    }
    #[cfg(loom)]
    pub(super) fn new(state: TurnsWord) -> Self {
        Self { gate: Gate::new(TurnRules { word: AtomicU64::new(state.to_word()) }) }
    }

    #[inline]
    pub(super) fn state(&self) -> TurnsWord {
        // Acquire: as in `is_grantable`.
        TurnsWord::of(self.gate.rules().word.load(Ordering::Acquire))
    }

    /// Replaces the state by the result of `f`, if that is `Some`, and lets the waiters go that waited for it. Gives the new state.
    #[inline]
    pub(super) fn change(&self, f: impl Fn(TurnsWord) -> Option<TurnsWord>) -> Result<TurnsWord, TurnsWord> {
        let word = &self.gate.rules().word;
        // Relaxed: confirmed by the compare-exchange.
        let mut seen = word.load(Ordering::Relaxed);
        loop {
            let before = TurnsWord::of(seen);
            let Some(state) = f(before) else { return Err(before) };
            // AcqRel: what was done before is seen by the waiters that are let go, and by the thread that changes it next (the last of many
            // lets go for all of them). Relaxed on failure: tried again.
            let to = state.to_word() | seen & WAITING;
            match word.compare_exchange_weak(seen, to, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    let opened = state.open && !before.open || state.turn != before.turn;
                    if opened && seen & WAITING != 0 && !seeded_bug("turns_opens_silently") {
                        self.gate.settle();
                    }
                    return Ok(state);
                }
                Err(current) => seen = current,
            }
        }
    }

    /// Waits until it is open, or until `turn` is over: `Done`, `TimedOut` or `Cancelled`.
    #[cold]
    pub(super) fn wait(
        &self,
        turn: u16,
        reason: WaitReason,
        deadline: Option<u64>,
        site: &'static Location<'static>,
    ) -> Outcome {
        let object = std::ptr::from_ref(self).addr() as u64;
        let ask = Ask { want: turn.into(), first: false, reason, object, site, deadline };
        self.gate.wait_or_cancelled(ask)
    }

    /// Waits until it is open. False: time was up.
    pub(super) fn wait_open(
        &self,
        reason: WaitReason,
        deadline: Option<u64>,
        site: &'static Location<'static>,
    ) -> bool {
        let state = self.state();
        state.open || in_time(self.wait(state.turn, reason, deadline, site))
    }

    pub(super) fn arm(&self) -> TurnArm<'_> {
        let want = self.state().turn.into();
        TurnArm { wait: self.gate.arm(want), told: Cell::new(Outcome::Pending) }
    }
}

/// Did such a wait end with what it was for? False: time was up. Cancellation unwinds.
fn in_time(ended: Outcome) -> bool {
    match ended {
        Outcome::Cancelled => gate::deliver(),
        ended => ended == Outcome::Done,
    }
}

/// The blocking forms of a wait that its type's `wait_until` does: for ever, for some time, until a moment.
macro_rules! wait_forms {
    (
        $ours:ident,
        $(#[$on_wait:meta])* wait,
        $(#[$on_timeout:meta])* wait_timeout,
        $(#[$on_deadline:meta])* wait_deadline
    ) => {
        impl $ours {
            $(#[$on_wait])*
            #[track_caller]
            pub fn wait(&self) {
                self.wait_until(None, Location::caller());
            }

            $(#[$on_timeout])*
            #[track_caller]
            pub fn wait_timeout(&self, timeout: std::time::Duration) -> bool {
                self.wait_deadline(crate::time::Instant::after(timeout))
            }

            $(#[$on_deadline])*
            #[track_caller]
            pub fn wait_deadline(&self, deadline: impl Into<crate::time::Instant>) -> bool {
                self.wait_until(Some(deadline.into().as_nanos()), Location::caller())
            }
        }
    };
}
pub(super) use wait_forms;

/// A future's wait for a turn to be over. It keeps the turn in which it was first polled.
#[derive(Debug)]
pub(super) struct TurnTask {
    turn: Option<u16>,
    wait: GateTask,
}

impl TurnTask {
    pub(super) fn new() -> Self {
        Self { turn: None, wait: GateTask::new() }
    }

    /// `turn` is asked for by the first poll.
    pub(super) fn poll(&mut self, turns: &Turns, turn: impl FnOnce() -> u16, cx: &mut Context<'_>) -> Poll<()> {
        let turn = *self.turn.get_or_insert_with(turn);
        self.wait.poll(&turns.gate, turn.into(), cx).map(drop)
    }

    /// The future is dropped. True: its turn is over, which it has not noticed.
    pub(super) fn leave(&mut self, turns: &Turns) -> bool {
        self.wait.leave(&turns.gate)
    }
}

/// A future that waits until it is open, or until the turn of its first poll is over.
#[must_use = "futures do nothing unless polled"]
pub struct TurnFuture<'a> {
    turns: &'a Turns,
    task: TurnTask,
}

impl<'a> TurnFuture<'a> {
    pub(super) fn new(turns: &'a Turns) -> Self {
        Self { turns, task: TurnTask::new() }
    }
}

impl Future for TurnFuture<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let turns = this.turns;
        this.task.poll(turns, || turns.state().turn, cx)
    }
}

impl Drop for TurnFuture<'_> {
    fn drop(&mut self) {
        self.task.leave(self.turns);
    }
}

impl fmt::Debug for TurnFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnFuture").finish_non_exhaustive()
    }
}

/// Waiting until it is open, as an arm of a select; see [`Event::waiting`](super::Event::waiting) and
/// [`WaitGroup::waiting`](super::WaitGroup::waiting).
pub struct TurnArm<'a> {
    wait: GateWait<'a, TurnRules>,
    told: Cell<Outcome>,
}

impl sealed::Sealed for TurnArm<'_> {
    fn case(&mut self) -> Case<'_> {
        Case::object(&self.wait, &self.told)
    }
}

impl Arm for TurnArm<'_> {
    type Output = ();
    fn finish(&mut self) {}
}

impl fmt::Debug for TurnArm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnArm").finish_non_exhaustive()
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
