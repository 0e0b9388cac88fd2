//! [`Barrier`]: no participant goes on before all have come. Above: users. Below: `turns`; its first count is the number of participants
//! that have come.

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::gate;
use super::turns::{MOST, TurnTask, Turns, TurnsWord};
use crate::prim::bug::seeded_bug;
use crate::time::Instant;
use crate::wait::park;
use crate::wait::reason::WaitReason;
use crate::waiter::node::Outcome;

/// Lets a number of fibers, threads and futures go on together, time and again.
///
/// One of each group is its leader, as in std. A participant that gives up waiting (time, cancellation, a dropped future) is not counted
/// any more: the others wait for one more.
///
/// ```
/// use fibra::sync::Barrier;
/// use std::sync::Arc;
///
/// fibra::run(|| {
///     let barrier = Arc::new(Barrier::new(3));
///     let fibers: Vec<_> = (0..3)
///         .map(|_| {
///             let barrier = barrier.clone();
///             fibra::spawn(move || barrier.wait().is_leader())
///         })
///         .collect();
///     let leaders = fibers.into_iter().map(|fiber| fiber.join().unwrap());
///     assert_eq!(leaders.filter(|leads| *leads).count(), 1);
/// });
/// ```
pub struct Barrier {
    turns: Turns,
    size: u32,
}

/// Whether a participant is the leader of its group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// True for exactly one participant of each group.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl fmt::Debug for BarrierWaitResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarrierWaitResult").field("is_leader", &self.0).finish()
    }
}

impl Barrier {
    /// A barrier for groups of `size`. A group of 0 is like one of 1, as in std: no caller ever waits.
    ///
    /// # Panics
    /// If `size` is above 16,777,215.
    #[must_use]
    #[cfg(not(loom))]
    pub const fn new(size: usize) -> Self {
        assert!(size <= MOST as usize, "fibra: a barrier for more than 16,777,215");
        Self { turns: Turns::new(TurnsWord { open: false, first: 0, second: 0, turn: 0 }), size: size as u32 }
    }

    /// As above, where atomics cannot be made by constant functions.
    #[cfg(loom)]
    pub fn new(size: usize) -> Self {
        Self { turns: Turns::new(TurnsWord { open: false, first: 0, second: 0, turn: 0 }), size: size as u32 }
    }

    /// Comes to the barrier. `Some`: wait until this turn is over; `None`: the caller is the last, and goes on.
    fn come(&self) -> Option<u16> {
        let came = self.turns.change(|state| {
            let here = state.first + 1;
            Some(if here >= self.size {
                TurnsWord { first: 0, ..state }.next_turn()
            } else {
                TurnsWord { first: here, ..state }
            })
        });
        // It always changes; the count is back at zero for the last one only.
        let (Ok(state) | Err(state)) = came;
        (state.first != 0).then_some(state.turn)
    }

    /// Gives up waiting in this turn. False: the turn is over, and the caller was one of the group.
    fn go(&self, turn: u16) -> bool {
        if seeded_bug("barrier_counts_the_gone") {
            return true;
        }
        self.turns
            .change(|state| {
                (state.turn == turn && state.first > 0).then(|| TurnsWord { first: state.first - 1, ..state })
            })
            .is_ok()
    }

    fn wait_until(&self, deadline: Option<u64>, site: &'static Location<'static>) -> Option<BarrierWaitResult> {
        // Before it is counted.
        park::entry();
        let Some(turn) = self.come() else { return Some(BarrierWaitResult(true)) };
        let ended = self.turns.wait(turn, WaitReason::BarrierWait, deadline, site);
        if ended == Outcome::Done {
            return Some(BarrierWaitResult(false));
        }
        let gone = self.go(turn);
        if ended == Outcome::Cancelled {
            gate::deliver();
        }
        // Time was up. Or else the last participant came in this very moment, and counted the caller.
        (!gone).then_some(BarrierWaitResult(false))
    }

    /// Waits until the whole group has come.
    #[track_caller]
    pub fn wait(&self) -> BarrierWaitResult {
        self.wait_until(None, Location::caller()).expect("there is no deadline")
    }

    /// Waits until the whole group has come, for at most `timeout`. `None`: it has not, and this caller is not counted any more.
    #[track_caller]
    pub fn wait_timeout(&self, timeout: Duration) -> Option<BarrierWaitResult> {
        self.wait_deadline(Instant::after(timeout))
    }

    /// Waits until the whole group has come, until `deadline` at most; see [`wait_timeout`](Self::wait_timeout).
    #[track_caller]
    pub fn wait_deadline(&self, deadline: impl Into<Instant>) -> Option<BarrierWaitResult> {
        self.wait_until(Some(deadline.into().as_nanos()), Location::caller())
    }

    /// Waits until the whole group has come, as a future: it comes when it is first polled, and is not counted any more if it is dropped.
    ///
    /// ```
    /// let barrier = fibra::sync::Barrier::new(1);
    /// assert!(fibra::block_on(barrier.wait_async()).is_leader());
    /// ```
    pub fn wait_async(&self) -> BarrierFuture<'_> {
        BarrierFuture { barrier: self, turn: None, task: TurnTask::new() }
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let here = self.turns.state().first;
        f.debug_struct("Barrier").field("size", &self.size).field("here", &here).finish()
    }
}

/// The future of [`Barrier::wait_async`].
#[must_use = "futures do nothing unless polled"]
pub struct BarrierFuture<'a> {
    barrier: &'a Barrier,
    /// The turn in which it waits, once it has come and until it is over.
    turn: Option<u16>,
    task: TurnTask,
}

impl Future for BarrierFuture<'_> {
    type Output = BarrierWaitResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BarrierWaitResult> {
        let this = &mut *self;
        let turn = match this.turn {
            Some(turn) => turn,
            None => match this.barrier.come() {
                None => return Poll::Ready(BarrierWaitResult(true)),
                Some(turn) => *this.turn.insert(turn),
            },
        };
        this.task.poll(&this.barrier.turns, || turn, cx).map(|()| {
            this.turn = None;
            BarrierWaitResult(false)
        })
    }
}

impl Drop for BarrierFuture<'_> {
    fn drop(&mut self) {
        let over = self.task.leave(&self.barrier.turns);
        if let Some(turn) = self.turn
            && !over
        {
            self.barrier.go(turn);
        }
    }
}

impl fmt::Debug for BarrierFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarrierFuture").field("waits", &self.turn.is_some()).finish_non_exhaustive()
    }
}
