//! The flags of a waiter: one atomic word beside the state word, with named bits. No code outside of this file touches a bit.
//!
//! Lowest floor, like the word: frames, records of threads and of async waits have it in their [`Waiter`](super::node::Waiter).
//!
//! A bit is written in one of three ways, and the orderings are those of the way, not of the bit:
//!
//! * **given** when the waiter is made and never changed after ([`Flags::start_with`]): a worker that finds the frame in a queue sees them;
//! * **its own** ([`Flags::raise`], [`Flags::lower`], Relaxed): the waiter's notes to itself; other threads get a hint at most;
//! * **announced** ([`Flags::announce`], [`Flags::request_cancel`], SeqCst read-modify-writes): the first half of a handshake. The
//!   announcer looks at the state word next, and the waiter reads the flags after it has committed its park
//!   ([`Flags::look_after_commit`]): `revoke.rs` shows both sides.
//!
//! | bit | written by | how | read by |
//! |---|---|---|---|
//! | `CANCEL` and the reason | a canceller of the fiber | announced, once | the waiter on entry to a call, before and after it parks |
//! | `CANCEL_BODY` | a canceller of the scope; lowered by its owner | announced, under the scope's lock | the same |
//! | `OVERDUE` | the end of a grace; lowered by the owner of the scope | announced | the waiter, when it counts what holds off |
//! | `BARRIER`, `CLEANUP` | the owner of a scope that is opened | announced | cancellers, after their look at the word |
//! | `OPEN_SCOPES` | the same | announced | cancellers of a fiber, after their flag |
//! | `NOTIFIED`, `NOTIFIED_INSIDE` | calls of wakers; lowered before a poll | announced | the polling waiter, before and after it parks |
//! | `WATCHED`, `HOOKED` | the spawner, or the running fiber | given, or its own | the running fiber |
//! | `HOLD_OFF`, `NO_SUSPEND` | the running fiber | its own | the running fiber, and the joiner of one that has ended |
//! | `OWN_LOCALS` | the running fiber | its own | the running fiber |
//! | `MOVES` | the spawner; lowered for a while by the running fiber | given, or its own | the running fiber, and the worker that runs it |
//! | `CANCEL_ON_DROP` | the one handle | its own | the handle |
//! | `EXTRAS` | the spawner, before the fiber is published | its own | all that have the frame |
//! | all others | the spawner | given | all that have the frame |

use std::ops::{BitOr, BitOrAssign};

use crate::prim::atomic::{AtomicU32, Ordering};
use crate::waiter::cancel_reason::ReasonKind;

/// A set of flags, as a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlagSet(u32);

/// The bits; the table above says which side writes and which reads each.
pub(crate) mod flag {
    use super::FlagSet;

    /// No flag.
    pub(crate) const NONE: FlagSet = FlagSet(0);

    // ---- of every kind of waiter

    /// Cancellation was requested, for good.
    pub(crate) const CANCEL: FlagSet = FlagSet(1);
    /// Cancellation was requested of a scope whose body runs here, and of nothing beyond it.
    pub(crate) const CANCEL_BODY: FlagSet = FlagSet(1 << 24);
    /// Either: a wait that finds one of them looks closer.
    pub(crate) const ANY_CANCEL: FlagSet = CANCEL.and(CANCEL_BODY);
    /// The waiter was cancelled and has had the time that its scope gives to shields: shields do not hold cancellation off any more.
    pub(crate) const OVERDUE: FlagSet = FlagSet(1 << 26);
    /// A scope is open here that was opened while cancellation was held off: cancellation of that scope may end waits in it, outer
    /// cancellation may not.
    pub(crate) const BARRIER: FlagSet = FlagSet(1 << 25);
    /// A scope is open here that a destructor opened during unwinding: outer cancellation must not unwind it, not even when the time for
    /// shields is over. Raised with BARRIER.
    pub(crate) const CLEANUP: FlagSet = FlagSet(1 << 28);
    /// Scopes are open here: a canceller of the fiber cancels them too.
    pub(crate) const OPEN_SCOPES: FlagSet = FlagSet(1 << 15);
    /// A waker of the future that the waiter polls was called; see `wait::poll`.
    pub(crate) const NOTIFIED: FlagSet = FlagSet(1 << 27);
    /// The same for a future that it polls inside the poll of another future.
    pub(crate) const NOTIFIED_INSIDE: FlagSet = FlagSet(1 << 29);
    /// Either.
    pub(crate) const ANY_NOTICE: FlagSet = NOTIFIED.and(NOTIFIED_INSIDE);

    // ---- of fibers

    /// Bound to its home worker although not started: spawned local or spread, linked in an intrusive queue. Never taken by a joiner.
    pub(crate) const PINNED: FlagSet = FlagSet(1 << 1);
    /// Does not hold up `run`.
    pub(crate) const DAEMON: FlagSet = FlagSet(1 << 2);
    /// A future: owns no stack between polls and is stealable each time.
    pub(crate) const TASK: FlagSet = FlagSet(1 << 3);
    /// The root fiber of a `run`: not counted in its own root scope.
    pub(crate) const ROOT: FlagSet = FlagSet(1 << 4);
    /// Dropping its handle cancels it.
    pub(crate) const CANCEL_ON_DROP: FlagSet = FlagSet(1 << 5);
    /// A `no_suspend` is open: it must not leave its worker.
    pub(crate) const NO_SUSPEND: FlagSet = FlagSet(1 << 6);
    /// Cancellation may have to wait: a `shield` is open, it unwinds already, or its runtime cancels cooperatively. A closer look tells.
    pub(crate) const HOLD_OFF: FlagSet = FlagSet(1 << 7);
    /// It has extras (a name, a stack size): saves looking for them on another cache line.
    pub(crate) const EXTRAS: FlagSet = FlagSet(1 << 12);
    /// Does not count under `max_fibers`: there is no such cap, or it is a root, or a helper of the runtime's own.
    pub(crate) const UNCAPPED: FlagSet = FlagSet(1 << 13);
    /// Child of a scope: `root` is that of a `sched::members::scope::ScopeRecord`, and it counts there.
    pub(crate) const SCOPED: FlagSet = FlagSet(1 << 14);
    /// One half of a `join`, offered to any free worker. The joining fiber outlives it and holds what it runs, so it is not counted in a
    /// root scope and runs, or is given back, even if it is cancelled before it starts.
    pub(crate) const HALF: FlagSet = FlagSet(1 << 16);
    /// Its waits are watched, by `wait::watch`: it runs a handler of an actor.
    pub(crate) const WATCHED: FlagSet = FlagSet(1 << 18);
    /// Its first run comes after everything else that its spawner's worker has to do: the next turn of an actor that has had its share.
    pub(crate) const BEHIND: FlagSet = FlagSet(1 << 19);
    /// Hooks are called around its suspensions: see `wait::hooks`.
    pub(crate) const HOOKED: FlagSet = FlagSet(1 << 20);
    /// It is to run with thread-locals of its own: see `wait::own_locals`. Without effect on a task and on a half of a `join`.
    pub(crate) const WANTS_LOCALS: FlagSet = FlagSet(1 << 21);
    /// It runs with thread-locals of its own.
    pub(crate) const OWN_LOCALS: FlagSet = FlagSet(1 << 22);
    /// Between two runs it belongs to no worker, as a task does, but keeps its stack: see `sched::life::moving`. Only with WANTS_LOCALS.
    pub(crate) const MOVES: FlagSet = FlagSet(1 << 23);
    /// It is PINNED because it was spread: unlike that of a local fiber, all of it can be sent.
    pub(crate) const SPREAD: FlagSet = FlagSet(1 << 30);
    /// It calls wakers for its worker; see `sched::call_wakers`.
    pub(crate) const CALLS_WAKERS: FlagSet = FlagSet(1 << 17);
}

/// The position of the reason of a cancellation: the 4 bits of its kind, written together with CANCEL.
const REASON_SHIFT: u32 = 8;
const REASON_MASK: u32 = 0xF << REASON_SHIFT;

impl FlagSet {
    /// Both sets, as a constant.
    #[inline(always)]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Is any of these in it?
    #[inline(always)]
    pub(crate) const fn has(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }

    #[inline(always)]
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The flags that are in both sets.
    #[inline(always)]
    pub(crate) const fn among(self, these: Self) -> Self {
        Self(self.0 & these.0)
    }

    /// The flags that are not in the other set.
    #[inline(always)]
    pub(crate) const fn without(self, these: Self) -> Self {
        Self(self.0 & !these.0)
    }

    /// These if `condition` holds, and none if not.
    #[inline(always)]
    pub(crate) const fn only_if(self, condition: bool) -> Self {
        if condition { self } else { flag::NONE }
    }

    /// CANCEL, for this reason.
    const fn cancelled_for(reason: ReasonKind) -> Self {
        Self(flag::CANCEL.0 | (reason.to_bits() << REASON_SHIFT))
    }

    /// Why it is cancelled, if CANCEL is in it.
    pub(crate) const fn cancel_reason(self) -> Option<ReasonKind> {
        if self.has(flag::CANCEL) { ReasonKind::from_bits((self.0 & REASON_MASK) >> REASON_SHIFT) } else { None }
    }
}

impl BitOr for FlagSet {
    type Output = Self;
    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        self.and(other)
    }
}

impl BitOrAssign for FlagSet {
    #[inline(always)]
    fn bitor_assign(&mut self, other: Self) {
        *self = self.and(other);
    }
}

impl std::fmt::Debug for FlagSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FlagSet({:#x})", self.0)
    }
}

/// The flags of one waiter; see the header.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Flags(AtomicU32);

impl Flags {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    // ---- reading

    #[inline(always)]
    pub(crate) fn look(&self) -> FlagSet {
        // Relaxed: a hint on entry to a blocking call, the waiter's own flags, or a bit that never changes after the spawn; the handshake
        // with cancellation reads the flags again after the word.
        FlagSet(self.0.load(Ordering::Relaxed))
    }

    /// Is any of these up? As [`look`](Self::look).
    #[inline(always)]
    pub(crate) fn has(&self, any: FlagSet) -> bool {
        self.look().has(any)
    }

    /// The waiter's side of a handshake: called by the worker or thread that has just committed the park.
    #[inline(always)]
    pub(crate) fn look_after_commit(&self) -> FlagSet {
        // SeqCst: second half of the handshake. Of the two read-modify-writes of the word, the canceller's look and the commit, one is
        // first in the one order of all such accesses. If it is the canceller's, its flag was raised before, and this load comes after.
        FlagSet(self.0.load(Ordering::SeqCst))
    }

    /// A canceller's second look: called by a canceller that has just looked at the word and found a wait there.
    pub(crate) fn look_after_word(&self) -> FlagSet {
        // Acquire: what the waiter announced before it began the wait that was seen is seen too.
        FlagSet(self.0.load(Ordering::Acquire))
    }

    // ---- given

    /// A new life begins with these.
    #[inline(always)]
    pub(crate) fn start_with(&self, flags: FlagSet) {
        // Relaxed: no other thread knows of the waiter yet; what publishes it publishes them.
        self.0.store(flags.0, Ordering::Relaxed);
    }

    /// A new life begins that is cancelled already, for this reason: it will never run.
    pub(crate) fn start_cancelled(&self, reason: ReasonKind) {
        self.start_with(FlagSet::cancelled_for(reason));
    }

    // ---- the waiter's own

    /// Sets flags of the waiter's own.
    pub(crate) fn raise(&self, flags: FlagSet) {
        // Relaxed: its own; a read-modify-write because cancellation shares the word.
        self.0.fetch_or(flags.0, Ordering::Relaxed);
    }

    /// Clears flags of the waiter's own.
    pub(crate) fn lower(&self, flags: FlagSet) {
        // Relaxed: as in `raise`.
        self.0.fetch_and(!flags.0, Ordering::Relaxed);
    }

    // ---- announced

    /// Raises flags that are half of a handshake, and gives those that were up before. The caller looks at the other half next.
    #[inline(always)]
    pub(crate) fn announce(&self, flags: FlagSet) -> FlagSet {
        // SeqCst read-modify-write: first half of the handshake; release: a thread that sees the flag sees what the caller wrote before.
        FlagSet(self.0.fetch_or(flags.0, Ordering::SeqCst))
    }

    /// Lowers flags that other threads announce; the caller then looks for the reason of an announcement.
    #[inline(always)]
    pub(crate) fn retract(&self, flags: FlagSet) {
        // SeqCst read-modify-write: an announcement that this has lowered is seen with all that was written before it, and one whose reason
        // the caller does not see afterwards comes later, and raises the flag again.
        self.0.fetch_and(!flags.0, Ordering::SeqCst);
    }

    /// Raises CANCEL for this reason. False if it was up: the first reason stays.
    pub(crate) fn request_cancel(&self, reason: ReasonKind) -> bool {
        // Relaxed: confirmed by the compare-exchange.
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            if FlagSet(now).has(flag::CANCEL) {
                return false;
            }
            let to = (now & !REASON_MASK) | FlagSet::cancelled_for(reason).0;
            // SeqCst: as in `announce`. The reason is published with the flag, in one step.
            match self.0.compare_exchange_weak(now, to, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(actual) => now = actual,
            }
        }
    }
}
