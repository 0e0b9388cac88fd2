//! The state word: one `AtomicU64` per waiter that says what the waiter is doing, which arm completed its wait and which wait that was.
//!
//! It belongs to the lowest floor: `fiber` and `sched` name it, `wait` builds park and wake from it. A waiter is a fiber, an
//! OS thread or an async task; the word is the same for all three, and lives in memory that is never unmapped or given
//! another type, so that a late waker may look at it at any time.
//!
//! ```text
//!  63                          14 13      6    5       4     3    0
//! +------------------------------+---------+------+---------+-------+
//! |  ticket (50 bits)            |   arm   | WAKE | CLAIMED | state |
//! +------------------------------+---------+------+---------+-------+
//! ```
//!
//! * The **ticket** grows with every wait (and at every start) and survives recycling: a waker that comes too late has the
//!   wrong ticket and no effect. At a billion waits a second 50 bits last thirteen days *of one frame waiting without
//!   pause while one waker sleeps*; a stale waker would have to be off by exactly that.
//! * The **arm** says which arm won. While the wait is unclaimed it says instead whether cancellation may end it ([`WaitKind`]).
//! * **CLAIMED** is set by exactly one completion owner, **WAKE** by the same owner when it was done before the waiter had
//!   left its stack.
//!
//! The transitions, each a method here (the table in the design, as code):
//!
//! | from | to | method | by |
//! |---|---|---|---|
//! | INIT | RUNNABLE | [`Word::publish_spawned`] | spawner |
//! | RUNNABLE | INIT | [`Word::withdraw`] | the spawner, after it took the one queue entry out again |
//! | RUNNABLE | RUNNING | [`Word::start`] (unstarted), [`Word::resume`] (started) | worker, or a joiner that takes it |
//! | RUNNING | RUNNABLE | [`Word::yielded`] | worker, after the switch |
//! | RUNNING | PARKING | [`Word::begin_park`] | the waiter |
//! | PARKING | RUNNING | [`Word::abort_park`] | the waiter; fails if claimed, and then it parks |
//! | PARKING | PARKED, or RUNNABLE if claimed and released | [`Word::commit_park`] | worker, on the scheduler's stack |
//! | PARKING / PARKED | + CLAIMED, or PARKED straight to RUNNABLE | [`Word::claim`] | a completion owner |
//! | + CLAIMED | + WAKE, or RUNNABLE | [`Word::release`] | that owner |
//! | PARKED | RUNNING | [`Word::take_back`] | threads and async waits themselves |
//! | RUNNING | DONE / CANCELLED | [`Word::finish`] | worker, after the last switch |
//! | DONE / CANCELLED | INIT | [`Word::recycle`] | the later of worker and handle |
//!
//! Only the owner changes a word in RUNNING or RUNNABLE (but for [`Word::start`]), so those edges are plain stores.
//! Every edge out of PARKING or PARKED is a compare-exchange. All of them are SeqCst: the word is one side of every handshake.

use crate::prim::atomic::{AtomicU64, Ordering};
use crate::prim::bug::seeded_bug;

/// What a waiter is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum WaiterState {
    /// In no queue and without a closure: a free frame, or a frame that is being filled.
    Init = 0,
    /// In exactly one run queue (or on its way there in the hands of the thread that made it RUNNABLE).
    Runnable = 1,
    /// On a CPU, or about to be: owned by one worker.
    Running = 2,
    /// Still on its own stack, but visible to wakers.
    Parking = 3,
    /// Off its stack, in no queue, waiting for a completion owner.
    Parked = 4,
    /// Ended by returning or panicking.
    Done = 5,
    /// Ended by cancellation.
    Cancelled = 6,
}

const STATE_MASK: u64 = 0xF;
const CLAIMED: u64 = 1 << 4;
const WAKE: u64 = 1 << 5;
const ARM_SHIFT: u32 = 6;
const ARM_MASK: u64 = 0xFF << ARM_SHIFT;
const TICKET_SHIFT: u32 = 14;
const TICKET_MASK: u64 = u64::MAX << TICKET_SHIFT; // All that is left of the word.

/// Which way of completing a wait won; small numbers are the arms of a select.
pub(crate) type CompletedBy = u8;
/// The arm of a wait that has only one.
pub(crate) const ARM_FIRST: CompletedBy = 0;
/// The deadline won.
pub(crate) const ARM_TIMEOUT: CompletedBy = 254;
/// Cancellation won.
pub(crate) const ARM_CANCEL: CompletedBy = 255;

/// What cancellation may do to a wait. It stands in the arm's place while the wait is unclaimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum WaitKind {
    /// Cancellation may claim it.
    Revocable = 0,
    /// Another party is using this stack: cancellation has to wait.
    Binding = 1,
    /// A shield makes it binding, until the grace of its scope is over.
    Shielded = 2,
    /// Cancellation may claim it, and so may a cancellation that a shield holds off: the waiter wants to know of it.
    Watching = 3,
}

/// Which notices end a wait without a node; see `wait::poll`. It stands beside the kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum WakerNotice {
    /// A notice to the outermost poll of a fiber or thread.
    Outer = 0,
    /// A notice to a poll inside the poll of another future.
    Inner = 1,
}

impl WakerNotice {
    /// The bit of the notice in the arm of an unclaimed wait.
    #[inline(always)]
    const fn bit(self) -> CompletedBy {
        4 << self as u8
    }
}

/// The bits of the kind there.
const KIND_MASK: CompletedBy = 3;

/// Names one wait of one waiter. Compared for equality only. It keeps the ticket's bits in their place in the word; the other bits are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket(u64);

impl Ticket {
    /// No wait at all: bits that no ticket has.
    pub(crate) const NONE: Ticket = Ticket(u64::MAX);

    /// For queue entries and cells that carry it as a number: the lowest bit is free for their use.
    #[inline(always)]
    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }
    #[inline(always)]
    pub(crate) fn from_bits(bits: u64) -> Self {
        debug_assert!(bits & !TICKET_MASK == 0, "the bits of a ticket");
        Self(bits)
    }
    /// Ticket number `number`.
    #[cfg(test)]
    pub(crate) fn of_number(number: u64) -> Self {
        Self(number << TICKET_SHIFT)
    }
}

/// A value of the word, with names for its parts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot(u64);

impl Snapshot {
    #[inline(always)]
    fn new(state: WaiterState, arm: CompletedBy, ticket: Ticket) -> Self {
        Self(state as u64 | (u64::from(arm) << ARM_SHIFT) | ticket.0)
    }
    #[inline(always)]
    pub(crate) fn state(self) -> WaiterState {
        match self.0 & STATE_MASK {
            0 => WaiterState::Init,
            1 => WaiterState::Runnable,
            2 => WaiterState::Running,
            3 => WaiterState::Parking,
            4 => WaiterState::Parked,
            5 => WaiterState::Done,
            _ => WaiterState::Cancelled,
        }
    }
    /// Cheaper than `state() == state`: one comparison.
    #[inline(always)]
    pub(crate) fn is(self, state: WaiterState) -> bool {
        self.0 & STATE_MASK == state as u64
    }
    #[inline(always)]
    pub(crate) fn is_claimed(self) -> bool {
        self.0 & CLAIMED != 0
    }
    #[inline(always)]
    fn has_wake(self) -> bool {
        self.0 & WAKE != 0
    }
    #[inline(always)]
    pub(crate) fn arm(self) -> CompletedBy {
        ((self.0 & ARM_MASK) >> ARM_SHIFT) as CompletedBy
    }
    #[inline(always)]
    pub(crate) fn ticket(self) -> Ticket {
        Ticket(self.0 & TICKET_MASK)
    }
    #[inline(always)]
    fn with_state(self, state: WaiterState) -> Self {
        Self((self.0 & !STATE_MASK) | state as u64)
    }
    /// The next ticket. It is the topmost part of the word, so it wraps by itself.
    #[inline(always)]
    fn with_next_ticket(self) -> Self {
        Self(self.0.wrapping_add(1 << TICKET_SHIFT))
    }
    #[inline(always)]
    fn with_arm(self, arm: CompletedBy) -> Self {
        Self((self.0 & !ARM_MASK) | (u64::from(arm) << ARM_SHIFT))
    }
    /// In a wait that no owner has completed yet.
    #[inline(always)]
    pub(crate) fn is_waiting(self) -> bool {
        // PARKING and PARKED are neighbours, so this is one subtraction and one comparison.
        (self.0 & (STATE_MASK | CLAIMED)).wrapping_sub(WaiterState::Parking as u64) < 2
    }
    /// What cancellation may do to the current wait; `None` if there is no wait, or it is claimed.
    #[inline(always)]
    pub(crate) fn kind(self) -> Option<WaitKind> {
        self.is_waiting().then(|| match self.arm() & KIND_MASK {
            0 => WaitKind::Revocable,
            1 => WaitKind::Binding,
            2 => WaitKind::Shielded,
            _ => WaitKind::Watching,
        })
    }
    /// Is the waiter in a wait that such a notice ends?
    #[inline(always)]
    pub(crate) fn is_ended_by(self, notice: WakerNotice) -> bool {
        self.is_waiting() && self.arm() & notice.bit() != 0
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.state())?;
        if self.is_claimed() {
            write!(f, "+CLAIMED")?;
        }
        if self.has_wake() {
            write!(f, "+WAKE")?;
        }
        write!(f, " arm {} ticket {}", self.arm(), self.0 >> TICKET_SHIFT)
    }
}

/// What the claimer must do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Claim {
    /// Another owner completed this wait, or it is over: do nothing.
    Lost,
    /// The caller owns the wait, and the waiter is already RUNNABLE: fill the slot, then enqueue the waiter, once.
    Direct,
    /// The caller owns the wait: fill the slot, then call [`Word::release`].
    Held,
}

/// What the owner must do after releasing its claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Release {
    /// The waiter's worker will see the WAKE bit when it commits: do nothing.
    Deferred,
    /// The waiter is RUNNABLE: enqueue it (or unpark the thread, or call the waker), once.
    Enqueue,
}

/// What the worker must do after committing a park.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Commit {
    /// The fiber sleeps; the completion owner will enqueue it.
    Parked,
    /// The fiber was woken meanwhile and is RUNNABLE: enqueue it.
    Requeue,
}

/// Checks on edges: in debug builds where each edge is taken. With `FIBRA_SPEC_ASSERT=1` in release builds likewise, except for the edges
/// of `debug_check_edge`, which are checked when the next step is taken: see [`Word::check_is`].
#[cfg(not(any(loom, shuttle)))]
mod spec_assert {
    use crate::prim::atomic::{AtomicBool, Ordering};
    static ENABLED: AtomicBool = AtomicBool::new(cfg!(debug_assertions));
    /// Turned on once, when a runtime is built (no `getenv` later).
    pub(crate) fn enable() {
        // Relaxed: a switch for diagnostics; nothing is published through it.
        ENABLED.store(true, Ordering::Relaxed);
    }
    #[inline(always)]
    pub(crate) fn enabled() -> bool {
        // Relaxed: as above.
        cfg!(debug_assertions) || ENABLED.load(Ordering::Relaxed)
    }
}
#[cfg(any(loom, shuttle))]
mod spec_assert {
    pub(crate) fn enabled() -> bool {
        true
    }
}
#[cfg(not(any(loom, shuttle)))]
pub(crate) use spec_assert::enable as enable_spec_assert;
pub(crate) use spec_assert::enabled as is_spec_asserted;

/// For the edges of a word that only its owner touches: debug builds only, they are on the hottest paths.
#[inline(always)]
fn debug_check_edge(from: Snapshot, allowed: &[WaiterState], to: WaiterState) {
    if cfg!(debug_assertions) {
        check_edge(from, allowed, to);
    }
}

#[inline(always)]
fn check_edge(from: Snapshot, allowed: &[WaiterState], to: WaiterState) {
    if spec_assert::enabled() {
        check_edge_now(from, allowed, to);
    }
}

/// Out of line, so that a build that does not check pays only for the test of the switch.
#[cold]
#[inline(never)]
fn check_edge_now(from: Snapshot, allowed: &[WaiterState], to: WaiterState) {
    assert!(
        allowed.contains(&from.state()),
        "fibra: illegal transition of a wait word: {from:?} to {to:?} (a bug in fibra, please report it)"
    );
}

/// The word.
///
/// The owner of a word changes it by a difference (from RUNNABLE to RUNNING: one more), so an edge that is taken from a wrong state leads
/// to a wrong state, and so does every later edge.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Word(AtomicU64);

impl Word {
    // A thread that alone may change the word, and knows its state, changes it by a difference.
    /// From INIT to RUNNABLE.
    const BEGIN: u64 = WaiterState::Runnable as u64 - WaiterState::Init as u64;
    /// From RUNNABLE to RUNNING.
    const RUN: u64 = WaiterState::Running as u64 - WaiterState::Runnable as u64;
    /// From PARKING to PARKED.
    const SLEEP: u64 = WaiterState::Parked as u64 - WaiterState::Parking as u64;

    /// A word in INIT. The zero word is INIT too, so zeroed memory holds valid words.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A plain store, by the thread that alone changes the word in this state. Other threads may meanwhile do read-modify-writes that
    /// change nothing (a claim that comes too late, a canceller's look). loom does not know that such a read-modify-write cannot undo a
    /// store that it has not read, so under loom the store is a read-modify-write of the same order.
    #[inline(always)]
    fn set(&self, to: Snapshot, order: Ordering) {
        #[cfg(loom)]
        self.0.swap(to.0, order);
        #[cfg(not(loom))]
        self.0.store(to.0, order);
    }

    /// Where transitions are asserted: checks that this is the state now. Called after steps that `debug_check_edge` checks in debug builds
    /// only. By the differences above, a worker that finds a waiter of its queues RUNNING knows that it was RUNNABLE, and that every
    /// step since the frame was free began where it must.
    #[inline(always)]
    pub(crate) fn check_is(&self, state: WaiterState) {
        if spec_assert::enabled() {
            // Relaxed: the caller's own word.
            check_edge_now(Snapshot(self.0.load(Ordering::Relaxed)), &[state], state);
        }
    }

    /// The current value, for decisions that a later compare-exchange confirms, and for diagnostics.
    #[inline(always)]
    pub(crate) fn snapshot(&self) -> Snapshot {
        // Acquire: pairs with `finish` (a joiner that sees DONE sees the result) and with `release` (a thread that sees RUNNABLE
        // sees its slot filled).
        Snapshot(self.0.load(Ordering::Acquire))
    }

    /// INIT → RUNNABLE, with a new ticket that names this start. The caller enqueues it once.
    #[inline(always)]
    pub(crate) fn publish_spawned(&self) -> Ticket {
        // Relaxed: the frame is the spawner's alone until it is enqueued; it got it from a pool with acquire.
        let now = Snapshot(self.0.load(Ordering::Relaxed));
        debug_check_edge(now, &[WaiterState::Init], WaiterState::Runnable);
        let to = Snapshot(now.0 + Self::BEGIN).with_next_ticket();
        // Release: pairs with the acquire in `start`; the closure is written before.
        self.set(to, Ordering::Release);
        to.ticket()
    }

    /// RUNNABLE → INIT of an unstarted frame whose one queue entry the spawner took out again before a worker or thief did. The ticket
    /// stays, so that the next start has another one.
    #[inline(always)]
    pub(crate) fn withdraw(&self) {
        // Relaxed, both: the frame is the spawner's alone again, by the queue it came from.
        let now = Snapshot(self.0.load(Ordering::Relaxed));
        debug_check_edge(now, &[WaiterState::Runnable], WaiterState::Init);
        self.set(Snapshot(now.0 - Self::BEGIN), Ordering::Relaxed);
    }

    /// RUNNABLE → RUNNING of a frame that is not bound to a worker, by the holder of an entry with this ticket. False: the entry is
    /// stale (another holder took the frame) and has to be dropped.
    #[inline(always)]
    pub(crate) fn start(&self, ticket: Ticket) -> bool {
        // Relaxed: confirmed by the compare-exchange. The arm is whatever woke a task last, cancellation for one.
        let from = Snapshot(self.0.load(Ordering::Relaxed));
        if !from.is(WaiterState::Runnable) || from.ticket() != ticket {
            return false;
        }
        // A new ticket: an old entry of this start must not match when the fiber is RUNNABLE again after a yield.
        let running = from.with_state(WaiterState::Running);
        let to = if seeded_bug("start_keeps_ticket") { running } else { running.with_next_ticket() };
        // Acquire: pairs with the release in `publish_spawned`, the closure is seen. No reader needs a release here.
        match self.0.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => true,
            Err(actual) => self.start_with_arm(Snapshot(actual), ticket, to),
        }
    }

    /// [`Word::start`] of a task that was woken as another arm than the first (by cancellation), or nothing.
    #[cold]
    #[inline(never)]
    fn start_with_arm(&self, now: Snapshot, ticket: Ticket, to: Snapshot) -> bool {
        now.state() == WaiterState::Runnable
            && now.ticket() == ticket
            // Acquire: as in `start`, and pairs with `claim`. A thread that fails here was slower than another holder of an entry.
            && self.0.compare_exchange(now.0, to.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// [`start`](Self::start) of a frame that is in no queue others can reach: its one entry was taken out, or it never had one.
    #[inline(always)]
    pub(crate) fn start_owned(&self) {
        // Relaxed: the frame is this worker's alone, by the queue it came from.
        let now = Snapshot(self.0.load(Ordering::Relaxed));
        debug_check_edge(now, &[WaiterState::Runnable], WaiterState::Running);
        debug_assert_eq!(now.arm(), 0, "of an unstarted fiber that was in no wait");
        // Relaxed: as above; cancellers only read.
        self.set(Snapshot(now.0 + Self::RUN).with_next_ticket(), Ordering::Relaxed);
    }

    /// RUNNABLE → RUNNING of a started fiber, by the worker it lives on. Keeps the arm, which the fiber is about to read.
    #[inline(always)]
    pub(crate) fn resume(&self) {
        // Relaxed: only this worker moves a RUNNABLE fiber of its own, and the queue it came from did the ordering.
        let now = Snapshot(self.0.load(Ordering::Relaxed));
        debug_check_edge(now, &[WaiterState::Runnable], WaiterState::Running);
        // Relaxed: as above; others only look at RUNNING to leave it alone.
        self.set(Snapshot(now.0 + Self::RUN), Ordering::Relaxed);
    }

    /// RUNNING → RUNNABLE after the fiber has switched out to yield.
    #[inline(always)]
    pub(crate) fn yielded(&self) {
        // Relaxed, both: as in `resume`.
        let now = Snapshot(self.0.load(Ordering::Relaxed));
        debug_check_edge(now, &[WaiterState::Running], WaiterState::Runnable);
        self.set(Snapshot(now.0 - Self::RUN), Ordering::Relaxed);
    }

    /// RUNNING → PARKING with a new ticket. From here on a completion owner may claim the wait.
    #[inline(always)]
    pub(crate) fn begin_park(&self, kind: WaitKind) -> Ticket {
        self.begin_park_as(kind, None)
    }

    /// The same for a wait that such a notice ends as well.
    #[inline(always)]
    pub(crate) fn begin_park_as(&self, kind: WaitKind, notice: Option<WakerNotice>) -> Ticket {
        // Relaxed: the waiter's own word in RUNNING, which no other thread changes.
        let now = Snapshot(self.0.load(Ordering::Relaxed));
        check_edge(now, &[WaiterState::Running], WaiterState::Parking);
        let arm = kind as CompletedBy | notice.map_or(0, WakerNotice::bit);
        let to = Snapshot::new(WaiterState::Parking, arm, now.with_next_ticket().ticket());
        // Relaxed in the bug. Release: pairs with the look of a canceller, which comes by the word alone and then asks what the waiter has
        // raised before this wait (BARRIER, CLEANUP; see `revoke.rs`). An owner learns of the ticket from the object, under whose lock it
        // is published after this. The handshake with a canceller is `commit_park`'s.
        self.set(to, if seeded_bug("begin_park_relaxed") { Ordering::Relaxed } else { Ordering::Release });
        to.ticket()
    }

    /// PARKING → RUNNING because the wait was completed (or refused) before parking. False: a completion owner has claimed it,
    /// so the waiter has to park and see what that owner did.
    #[inline(always)]
    pub(crate) fn abort_park(&self) -> bool {
        // Relaxed: confirmed by the compare-exchange.
        let now = Snapshot(self.0.load(Ordering::Relaxed));
        check_edge(now, &[WaiterState::Parking], WaiterState::Running);
        if now.is_claimed() {
            return false;
        }
        let to = now.with_state(WaiterState::Running).with_arm(0);
        if seeded_bug("abort_by_store") {
            self.0.store(to.0, Ordering::SeqCst);
            return true;
        }
        // SeqCst: one of the edges that race with `claim`.
        self.0.compare_exchange(now.0, to.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// On the scheduler's stack, after the fiber has left its own: PARKING → PARKED, or RUNNABLE if it was woken meanwhile.
    #[inline(always)]
    pub(crate) fn commit_park(&self) -> Commit {
        if self.commit_unless_woken().is_some() { Commit::Parked } else { self.commit_claimed() }
    }

    /// PARKING → PARKED; returns the new word, which names the wait (the wait may be over by now). `None`: an owner has claimed the wait
    /// meanwhile, and [`commit_claimed`](Self::commit_claimed) has to commit.
    #[inline(always)]
    pub(crate) fn commit_unless_woken(&self) -> Option<Snapshot> {
        // Relaxed: confirmed by the compare-exchange, which expects the word without WAKE: if WAKE is set, it fails.
        let now = Snapshot(self.0.load(Ordering::Relaxed) & !WAKE);
        check_edge(now, &[WaiterState::Parking], WaiterState::Parked);
        let to = Snapshot(now.0 + Self::SLEEP);
        if seeded_bug("commit_by_store") {
            self.0.store(to.0, Ordering::SeqCst);
            return Some(to);
        }
        // SeqCst: release half pairs with the claimer (the stack is quiescent); and the first half of the handshake with a canceller: the
        // flag is read after this (see `revoke.rs`).
        self.0.compare_exchange(now.0, to.0, Ordering::SeqCst, Ordering::Relaxed).is_ok().then_some(to)
    }

    /// [`commit_park`](Self::commit_park) of a wait that was claimed, or is claimed at this moment, by an owner that may be done with it.
    #[cold]
    #[inline(never)]
    pub(crate) fn commit_claimed(&self) -> Commit {
        // Relaxed: confirmed by the compare-exchange.
        let mut now = Snapshot(self.0.load(Ordering::Relaxed));
        loop {
            let (to, commit) = if now.has_wake() {
                (Snapshot(now.0 & !(CLAIMED | WAKE)).with_state(WaiterState::Runnable), Commit::Requeue)
            } else {
                (now.with_state(WaiterState::Parked), Commit::Parked)
            };
            // SeqCst: as above; acquire half pairs with `release` (the slot is filled).
            match self.0.compare_exchange_weak(now.0, to.0, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return commit,
                Err(actual) => now = Snapshot(actual),
            }
        }
    }

    /// Tries to become the completion owner of the wait named by `ticket`. With `direct` (fibers: no worker runs them before they are
    /// enqueued) a PARKED waiter goes straight to RUNNABLE.
    #[inline]
    pub(crate) fn claim(&self, ticket: Ticket, arm: CompletedBy, direct: bool) -> Claim {
        // Relaxed: confirmed by a read-modify-write on both paths.
        let mut now = Snapshot(self.0.load(Ordering::Relaxed));
        let mut confirmed = false;
        loop {
            let fits = now.is_waiting() && (now.ticket() == ticket || seeded_bug("stale_ticket"));
            let stolen = seeded_bug("claim_claimed") && now.ticket() == ticket && now.is(WaiterState::Parking);
            if !fits && !stolen {
                if confirmed {
                    return Claim::Lost;
                }
                // A wake is a read-modify-write on every path: a plain load could be older than the park it is meant for.
                // SeqCst: pairs with `commit_park`.
                now = Snapshot(self.0.fetch_or(0, Ordering::SeqCst));
                confirmed = true;
                continue;
            }
            let (to, claim) = if direct && now.is(WaiterState::Parked) {
                (now.with_state(WaiterState::Runnable).with_arm(arm), Claim::Direct)
            } else {
                (Snapshot(now.0 | CLAIMED).with_arm(arm), Claim::Held)
            };
            // SeqCst: acquire half pairs with `commit_park` (the stack is quiescent), release half with the waiter's read of the arm.
            match self.0.compare_exchange_weak(now.0, to.0, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return claim,
                Err(actual) => {
                    now = Snapshot(actual);
                    confirmed = false;
                }
            }
        }
    }

    /// [`claim`](Self::claim) of a fiber that is PARKED, in a wait that cancellation may end: by far the most are. False: the fiber is not
    /// PARKED in such a wait (any more); its wait may be claimed by `claim` all the same.
    #[inline(always)]
    pub(crate) fn claim_parked(&self, ticket: Ticket, arm: CompletedBy) -> bool {
        // (The kind of such a wait is 0.)
        let (from, to) =
            (Snapshot::new(WaiterState::Parked, 0, ticket), Snapshot::new(WaiterState::Runnable, arm, ticket));
        // SeqCst: as in `claim`. Relaxed on failure: nothing is read.
        self.0.compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// [`claim`](Self::claim) of a fiber that is PARKED in a wait which such a notice ends: as a rule it is. False: the fiber is not PARKED
    /// in such a wait (any more); its wait may be claimed by `claim` all the same.
    #[inline(always)]
    pub(crate) fn claim_noticed(&self, notice: WakerNotice, arm: CompletedBy) -> bool {
        let by = u64::from(notice.bit()) << ARM_SHIFT;
        // Relaxed: confirmed by the compare-exchange.
        let now = Snapshot(self.0.load(Ordering::Relaxed));
        let to = now.with_state(WaiterState::Runnable).with_arm(arm);
        if seeded_bug("notice_by_store") && now.is(WaiterState::Parked) {
            self.0.store(to.0, Ordering::SeqCst);
            return true;
        }
        now.0 & (STATE_MASK | CLAIMED | by) == WaiterState::Parked as u64 | by
            // SeqCst: as in `claim`. Relaxed on failure: nothing is read.
            && self.0.compare_exchange(now.0, to.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Ends a [`Claim::Held`]: the waiter sees afterwards what the owner wrote before.
    #[inline]
    pub(crate) fn release(&self) -> Release {
        // Relaxed: confirmed by the compare-exchange.
        let mut now = Snapshot(self.0.load(Ordering::Relaxed));
        loop {
            debug_assert!(now.is_claimed(), "release of a wait that is not claimed: {now:?}");
            let (to, release) = if now.is(WaiterState::Parking) {
                (Snapshot(now.0 | WAKE), Release::Deferred)
            } else {
                check_edge(now, &[WaiterState::Parked], WaiterState::Runnable);
                (Snapshot(now.0 & !CLAIMED).with_state(WaiterState::Runnable), Release::Enqueue)
            };
            // SeqCst: release half pairs with `commit_park` and `snapshot`: the slot is filled.
            match self.0.compare_exchange_weak(now.0, to.0, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return release,
                Err(actual) => now = Snapshot(actual),
            }
        }
    }

    /// PARKED → RUNNING by the waiter itself (a thread whose time is up, an async wait that is polled again or dropped): a claim like any
    /// other, as [`ARM_TIMEOUT`]. False: an owner was faster; wait until it has released.
    pub(crate) fn take_back(&self) -> bool {
        // Relaxed: confirmed by the compare-exchange.
        let now = Snapshot(self.0.load(Ordering::Relaxed));
        if now.is_claimed() || !now.is(WaiterState::Parked) {
            return false;
        }
        let to = now.with_state(WaiterState::Running).with_arm(ARM_TIMEOUT);
        if seeded_bug("take_back_by_store") {
            self.0.store(to.0, Ordering::SeqCst);
            return true;
        }
        // SeqCst: one of the edges that race with `claim`.
        self.0.compare_exchange(now.0, to.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// INIT → RUNNING for the record of a thread or an async wait, which is never enqueued by a spawner.
    pub(crate) fn adopt(&self) {
        // Relaxed, both: the record is its new owner's alone; it came from a pool with acquire.
        let now = Snapshot(self.0.load(Ordering::Relaxed));
        check_edge(now, &[WaiterState::Init], WaiterState::Running);
        self.set(now.with_state(WaiterState::Running), Ordering::Relaxed);
    }

    /// RUNNING → DONE or CANCELLED, on the scheduler's stack, after the last switch.
    #[inline(always)]
    pub(crate) fn finish(&self, cancelled: bool) {
        // Relaxed: the worker's own word.
        let now = Snapshot(self.0.load(Ordering::Relaxed));
        let to = if cancelled { WaiterState::Cancelled } else { WaiterState::Done };
        debug_check_edge(now, &[WaiterState::Running], to);
        // Release: pairs with the acquire in `snapshot`: the result is in the frame. (The arm of its last wait stays until it is recycled.)
        self.set(Snapshot(now.0 + (to as u64 - WaiterState::Running as u64)), Ordering::Release);
    }

    /// Back to INIT, keeping the ticket: stale wakers of the former life stay stale. From RUNNING for the records of threads and async
    /// waits, which never end.
    #[inline(always)]
    pub(crate) fn recycle(&self) {
        // Relaxed, both: the frame is in the hands of one thread again; the pool orders its next life.
        let now = Snapshot(self.0.load(Ordering::Relaxed));
        debug_check_edge(now, &[WaiterState::Done, WaiterState::Cancelled, WaiterState::Running], WaiterState::Init);
        self.set(now.with_state(WaiterState::Init).with_arm(0), Ordering::Relaxed);
    }

    /// Makes the word INIT again, in memory that went back to the system meanwhile and may read as zero, with a ticket that is at least as
    /// high as any that this word has given out: stale wakers of all former lives stay stale.
    pub(crate) fn renew(&self, floor: Ticket) {
        if seeded_bug("renew_forgets_tickets") {
            return;
        }
        // Relaxed: the word is in the hands of one thread, which has it from the slab; others only look (see `set`).
        self.set(Snapshot::new(WaiterState::Init, 0, floor), Ordering::Relaxed);
    }

    /// Zero, as a word in memory without content reads. For the model, where no system takes memory away.
    #[cfg(all(test, any(loom, shuttle)))]
    pub(crate) fn lose_memory(&self) {
        // Relaxed: stands for the kernel, which orders nothing.
        self.0.swap(0, Ordering::Relaxed);
    }

    /// The canceller's look at the word, after it has set the flag: a read-modify-write even if nothing changes.
    #[inline]
    pub(crate) fn look_after_flag(&self) -> Snapshot {
        if seeded_bug("cancel_plain_load") {
            // Relaxed: the bug.
            return Snapshot(self.0.load(Ordering::Relaxed));
        }
        // SeqCst read-modify-write: second half of the handshake with `commit_park`.
        Snapshot(self.0.fetch_or(0, Ordering::SeqCst))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
