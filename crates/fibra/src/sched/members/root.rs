//! Root scopes: who counts in a `run`, and when it is over.
//!
//! Every `run` has a root scope, and a runtime has one of its own for what is spawned from outside. `spawn` counts up, the
//! end of a fiber counts down, and the one who waits is woken at zero. Spawning must not touch a line that all workers share,
//! so a worker keeps its own difference for the root it last dealt with and adds it to the shared number
//! only when it deals with another root, or when it is asked to.
//!
//! The shared number is `pending = live + UNFLUSHED × (workers that may still hold a difference)`:
//!
//! 1. It starts at 1, the unit of whoever owns the root, so it is never 0 while differences are out.
//! 2. To drain, the owner adds UNFLUSHED for each worker, gives its unit back, sets `draining` and posts a flush to each worker. If no
//!    worker has ever turned to this root (`used`), there is nothing to flush. A worker that turns to it later sees `draining`: it marks
//!    `used` and then looks at `draining`, the owner sets `draining` and then looks at `used`, both with a read-modify-write on `used`.
//! 3. A worker that handles the flush adds its difference, takes one UNFLUSHED away, in one addition, and turns away from the root. From
//!    then on it sees `draining` (the flag was set before the flush was posted), does not turn to the root again and counts on the shared
//!    number directly. As long as it is turned to the root it has not flushed, and may go on counting for itself.
//! 4. Whoever brings the number to 0 wakes the owner. Differences of workers that have not flushed yet make the
//!    number wrong, but not 0: their UNFLUSHED is still in it.
//! 5. The owner closes the root: 0 → CLOSED. Whoever wants to count up directly does so by compare-exchange and is refused on
//!    a closed root.
//!
//! Roots are recycled and never freed (`prim::slab`), and serve one runtime as long as it lives: a worker that brought the number to 0
//! still looks for the waiter when the owner may already be gone. At worst it wakes the owner of the next `run` once in vain. Daemons do
//! not count in `pending`, but keep the root from being recycled.

use std::cell::Cell;
use std::ops::Deref;

use crate::prim::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::spin::SpinLock;
use crate::waiter::cancel_reason::ReasonKind;
use crate::waiter::node::WaiterRef;
use crate::waiter::word::Ticket;

/// Far above any number of fibers, far below what 64 bits hold for 65,536 workers.
const UNFLUSHED: i64 = 1 << 44;
/// The value of a closed root; a little arithmetic on it keeps it negative.
const CLOSED: i64 = i64::MIN / 2;

/// The wait of the owner: woken when the root may be empty.
pub(crate) type RootWaiter = (WaiterRef, Ticket);

/// A root scope. See the header.
#[derive(Debug)]
pub(crate) struct Root {
    pending: AtomicI64,
    draining: AtomicBool,
    /// Has anything ever been counted by a worker? If not, there is nothing to flush.
    used: AtomicBool,
    /// Why everything in it is cancelled, if it is. Unstarted fibers look here when they start.
    cancel: CancelMark,
    /// Why its daemons are cancelled, if they are.
    cancel_daemons: CancelMark,
    waiter: SpinLock<Option<RootWaiter>>,
    /// How often it was recycled: tells commands of a life that is over.
    life: AtomicU32,
    /// Daemons that still refer to it, and one for the owner; whoever brings it to 0 recycles the root.
    users: AtomicI64,
}

impl Root {
    /// A root that holds its owner's unit.
    pub(crate) fn new() -> Self {
        Self {
            pending: AtomicI64::new(1),
            draining: AtomicBool::new(false),
            used: AtomicBool::new(false),
            cancel: CancelMark::new(),
            cancel_daemons: CancelMark::new(),
            waiter: SpinLock::new(None),
            life: AtomicU32::new(0),
            users: AtomicI64::new(1),
        }
    }

    /// A new life, for a new `run`.
    pub(crate) fn reset(&self) {
        // Relaxed, all: the root is its new owner's alone; the pool it came from orders this.
        self.pending.store(1, Ordering::Relaxed);
        self.draining.store(false, Ordering::Relaxed);
        self.used.store(false, Ordering::Relaxed);
        self.cancel.clear();
        self.cancel_daemons.clear();
        // Relaxed, like the others.
        self.users.store(1, Ordering::Relaxed);
        // Relaxed: see `life`.
        self.life.fetch_add(1, Ordering::Relaxed);
    }

    /// Which life this is. Commands that name a root say which of its lives they mean, since a worker may read them late.
    pub(crate) fn life(&self) -> u32 {
        // Relaxed: for the owner it does not change; a worker that has a fiber of the new life got it after the reset, and one
        // that has none has nothing to mistake.
        self.life.load(Ordering::Relaxed)
    }

    /// A daemon refers to it.
    pub(crate) fn add_user(&self) {
        // Relaxed: the spawner is in this root, so it cannot be recycled meanwhile.
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// The owner or a daemon is done with it. True: recycle it.
    #[must_use]
    pub(crate) fn remove_user(&self) -> bool {
        // AcqRel: everything the others did with it happens before it is recycled.
        self.users.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Should workers count on the shared number directly?
    pub(crate) fn is_draining(&self) -> bool {
        // Acquire: pairs with the release in `begin_drain`; a worker that handled the flush certainly sees it.
        self.draining.load(Ordering::Acquire)
    }

    /// A worker wants to keep a difference for this root. False: it is being drained, count directly.
    fn enter(&self) -> bool {
        // Acquire: if somebody else has marked it, and only after the owner's look, then he saw `draining`, and so do we.
        if !self.used.load(Ordering::Acquire) {
            // SeqCst read-modify-write: pairs with the owner's look in `begin_drain`; whichever comes later sees the other.
            self.used.swap(true, Ordering::SeqCst);
        }
        !self.is_draining()
    }

    /// Counts one up directly. False: the root is closed, nothing may start in it any more.
    pub(crate) fn try_add(&self) -> bool {
        // Relaxed: confirmed by the compare-exchange.
        let mut now = self.pending.load(Ordering::Relaxed);
        loop {
            if now < CLOSED / 2 && !seeded_bug("add_to_closed") {
                return false;
            }
            // AcqRel: pairs with `close`; a fiber counted before is drained.
            match self.pending.compare_exchange_weak(now, now + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(actual) => now = actual,
            }
        }
    }

    /// Adds a worker's difference (or −1 for a fiber that ended). Returns the owner to wake if this made the number 0.
    #[must_use]
    pub(crate) fn add(&self, difference: i64) -> Option<RootWaiter> {
        // AcqRel: everything the fibers did happens before the owner goes on.
        let was = self.pending.fetch_add(difference, Ordering::AcqRel);
        if was + difference == 0 { self.take_waiter() } else { None }
    }

    /// Step 3: a worker's flush.
    #[must_use]
    pub(crate) fn flush(&self, difference: i64) -> Option<RootWaiter> {
        self.add(difference - UNFLUSHED)
    }

    /// Step 2. True if `workers` have to be asked to flush; the owner's unit is given back either way.
    pub(crate) fn begin_drain(&self, workers: usize) -> bool {
        let unflushed = if seeded_bug("drain_uncovered") { 0 } else { UNFLUSHED * workers as i64 };
        // The seeded bug looks before `draining` is set.
        let too_early = seeded_bug("drain_looks_first").then(|| self.used.load(Ordering::SeqCst));
        // AcqRel: as in `add`. The owner is the one who asks, so nobody needs waking if this is 0.
        self.pending.fetch_add(unflushed - 1, Ordering::AcqRel);
        // Release: pairs with `is_draining`.
        self.draining.store(true, Ordering::Release);
        // SeqCst read-modify-write: pairs with the one in `enter`; whichever comes later sees the other.
        let used = too_early.unwrap_or_else(|| self.used.fetch_or(false, Ordering::SeqCst));
        if !used {
            // AcqRel: as above.
            self.pending.fetch_sub(unflushed, Ordering::AcqRel);
        }
        used
    }

    /// A scope's drain: its owner's worker is the only one with a difference, so the owner adds it itself and gives its unit back.
    pub(crate) fn begin_direct(&self, difference: i64) {
        // Release: pairs with `is_draining`. Only that worker looks; whoever opens the next scope of this record clears it.
        self.draining.store(true, Ordering::Release);
        // AcqRel: as in `add`. The owner is the one who asks, so nobody needs waking if this is 0.
        self.pending.fetch_add(difference - 1, Ordering::AcqRel);
    }

    /// Counts one up directly, where the spawner is counted itself: it cannot be closed.
    pub(crate) fn add_child(&self) {
        // Relaxed: the spawner is counted, so this does not go from 0 to 1; its own end, which comes later, orders it.
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// Has everything in it ended? Asked by the owner, after `begin_direct`.
    pub(crate) fn is_empty(&self) -> bool {
        // Acquire: pairs with the release in `add`: everything the fibers did happens before.
        self.pending.load(Ordering::Acquire) == 0
    }

    /// Step 5: 0 → CLOSED. False: something still counts.
    pub(crate) fn close(&self) -> bool {
        // AcqRel: as in `add`. Acquire on failure is not needed, the owner waits and asks again.
        self.pending.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            // Relaxed: the owner's own question.
            || self.pending.load(Ordering::Relaxed) < CLOSED / 2
    }

    /// Steps 4 and 5, as often as it takes: the owner waits with `wait`, which publishes itself here, until nothing counts. False: `wait`
    /// has given up, and something still counts.
    pub(crate) fn close_when_empty(&self, mut wait: impl FnMut() -> bool) -> bool {
        while !self.close() {
            if !wait() {
                return self.close();
            }
        }
        true
    }

    /// Registers the owner's wait. False: the number is 0 already, do not wait.
    pub(crate) fn publish(&self, waiter: RootWaiter) -> bool {
        self.waiter.with(|slot| *slot = Some(waiter));
        // AcqRel read-modify-write: whoever brings the number to 0 after this finds the waiter; if it was brought to 0 before, we see it.
        if self.pending.fetch_add(0, Ordering::AcqRel) != 0 || seeded_bug("publish_without_look") {
            return true;
        }
        // Either we take our own registration back, or the one who reached 0 has it and will wake us.
        self.waiter.with(Option::take).is_none()
    }

    /// Takes the registration back, if nobody has taken it.
    pub(crate) fn unpublish(&self) {
        self.waiter.with(|slot| *slot = None);
    }

    fn take_waiter(&self) -> Option<RootWaiter> {
        self.waiter.with(Option::take)
    }

    /// Cancels everything that starts in it from now on; the caller posts the rest to the workers. False if it was cancelled before.
    pub(crate) fn cancel(&self, reason: ReasonKind) -> bool {
        self.cancel.set(reason)
    }

    /// Cancels every daemon that starts in it from now on; the caller posts the rest to the workers. The first reason stays.
    pub(crate) fn cancel_daemons(&self, reason: ReasonKind) {
        self.cancel_daemons.set(reason);
    }

    /// Why its daemons are cancelled, if they are.
    pub(crate) fn daemons_cancelled(&self) -> Option<ReasonKind> {
        self.cancel_daemons.get()
    }

    /// Why it is cancelled, if it is.
    #[inline(always)]
    pub(crate) fn cancelled(&self) -> Option<ReasonKind> {
        self.cancel.get()
    }

    /// Is it cancelled?
    #[inline(always)]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_set()
    }
}

/// Why something is cancelled, if it is: the bits of the reason, or 0.
#[derive(Debug)]
struct CancelMark(AtomicU32);

impl CancelMark {
    fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    fn clear(&self) {
        // Relaxed: see `Root::reset`.
        self.0.store(0, Ordering::Relaxed);
    }

    /// False if it was set before: the first reason stays.
    fn set(&self, reason: ReasonKind) -> bool {
        // SeqCst: set before the workers are asked to cancel what has started; a fiber that starts later sees it.
        self.0.compare_exchange(0, reason.to_bits(), Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    #[inline(always)]
    fn bits(&self) -> u32 {
        // Acquire: pairs with `set`.
        self.0.load(Ordering::Acquire)
    }

    #[inline(always)]
    fn is_set(&self) -> bool {
        self.bits() != 0
    }

    #[inline(always)]
    fn get(&self) -> Option<ReasonKind> {
        ReasonKind::from_bits(self.bits())
    }
}

/// On which workers children of a scope have started, one bit each (modulo 64): for whoever cancels the scope. Both sides of a handshake: a
/// child that starts marks its worker and then looks at [`Root::is_cancelled`]; a canceller marks the root and then looks here.
#[derive(Debug)]
pub(crate) struct Holders(AtomicU64);

impl Holders {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(crate) fn clear(&self) {
        // Relaxed: the scope is its new owner's alone.
        self.0.store(0, Ordering::Relaxed);
    }

    /// A child is about to start on this worker.
    #[inline(always)]
    pub(crate) fn mark(&self, worker: usize) {
        let bit = 1 << (worker % 64);
        // Acquire: what was seen by whoever set the bit, perhaps another worker of the same bit, is seen here: that the root is cancelled.
        if self.0.load(Ordering::Acquire) & bit == 0 {
            // SeqCst read-modify-write: of this one and that of `look` the later one sees the earlier one, and what came before it.
            self.0.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// By a canceller that has marked the root.
    pub(crate) fn look(&self) -> HoldersSeen {
        if seeded_bug("holders_by_load") {
            // SeqCst: the bug. The child's look at the root is an acquire load, which may be older than its mark here.
            return HoldersSeen(self.0.load(Ordering::SeqCst));
        }
        // SeqCst read-modify-write: as above. A child whose mark is not seen here sees that the root is cancelled.
        HoldersSeen(self.0.fetch_or(0, Ordering::SeqCst))
    }
}

/// What a canceller saw there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldersSeen(u64);

impl HoldersSeen {
    /// May children have started on this worker?
    pub(crate) fn may_have(self, worker: usize) -> bool {
        self.0 & (1 << (worker % 64)) != 0
    }
}

/// One worker's difference for the root it last dealt with. `R` refers to a root; the worker's wakes of root owners go through `wake`.
#[derive(Debug)]
pub(crate) struct Tally<R: Copy> {
    root: Cell<Option<R>>,
    difference: Cell<i64>,
}

impl<R: Copy + Deref<Target = Root>> Tally<R> {
    pub(crate) const fn new() -> Self {
        Self { root: Cell::new(None), difference: Cell::new(0) }
    }

    #[inline(always)]
    pub(crate) fn is_turned_to(&self, root: R) -> bool {
        self.root.get().is_some_and(|mine| std::ptr::eq(&raw const *mine, &raw const *root))
    }

    /// A fiber of `root` is about to be published by this worker. False: the root is closed.
    #[inline(always)]
    pub(crate) fn count_spawn(&self, root: R, wake: impl Fn(Option<RootWaiter>)) -> bool {
        if !(self.is_turned_to(root) || self.turn_to(root, wake)) {
            return root.try_add();
        }
        self.difference.set(self.difference.get() + 1);
        true
    }

    /// A fiber of `root` has ended on this worker.
    #[inline(always)]
    pub(crate) fn count_end(&self, root: R, wake: impl Fn(Option<RootWaiter>)) {
        if self.is_turned_to(root) || self.turn_to(root, &wake) {
            self.count_end_here();
        } else {
            wake(root.add(-1));
        }
    }

    /// The same for a worker that [is turned to](Self::is_turned_to) the root.
    #[inline(always)]
    pub(crate) fn count_end_here(&self) {
        self.difference.set(self.difference.get() - 1);
    }

    /// Settles with the root that was dealt with before, and turns to another. False: that one is being drained.
    #[cold]
    #[inline(never)]
    fn turn_to(&self, root: R, wake: impl Fn(Option<RootWaiter>)) -> bool {
        if root.is_draining() {
            return false;
        }
        wake(self.settle());
        let entered = root.enter();
        if entered {
            self.root.set(Some(root));
        }
        entered
    }

    /// Step 3: the flush that the owner of `root` has asked for. Returns the owner to wake.
    #[must_use]
    pub(crate) fn flush(&self, root: R) -> Option<RootWaiter> {
        let difference = if self.is_turned_to(root) {
            if !seeded_bug("flush_stays_turned") {
                self.root.set(None);
            }
            self.difference.replace(0)
        } else {
            0
        };
        root.flush(difference)
    }

    /// Adds the difference to its root and forgets both. Returns the owner to wake.
    #[must_use]
    pub(crate) fn settle(&self) -> Option<RootWaiter> {
        self.root.take().and_then(|root| root.add(self.difference.replace(0)))
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
