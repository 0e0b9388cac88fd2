//! The lock of a [`RwLock`](super::RwLock), without what it guards.
//!
//! Above: `RwLock` and its guards. Below: the gate, whose queue is served strictly in order: a writer that waits holds back the readers
//! behind it, so neither starves the other. One word:
//!
//! ```text
//!  WAITING       the queue is not empty: newcomers join it, and whoever frees something goes to the gate
//!  WRITER        held for writing
//!  UPGRADABLE    held by the one reader that may become a writer; it is not counted as a reader
//!  READER × n    held by n readers
//! ```
//!
//! Locking and unlocking are one read-modify-write while nobody waits. An upgrade waits before all others, since it holds what they
//! wait for, and nobody new comes in meanwhile.

use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::prim::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::prim::bug::seeded_bug;
use crate::sync::gate::{Ask, Gate, GateTask, Rules};
use crate::sync::owner;
use crate::wait::reason::WaitReason;
use crate::waiter::node::Outcome;

const WAITING: usize = 1;
const WRITER: usize = 2; // Somebody writes.
const UPGRADABLE: usize = 4; // Somebody reads who may write later.
const READER: usize = 8; // One reader.

/// What one may want of the lock.
pub(crate) mod want {
    pub(crate) const READ: usize = 0;
    pub(crate) const WRITE: usize = 1;
    /// To read, and perhaps to write later.
    pub(crate) const UPGRADABLE: usize = 2;
    /// To write, by the one who may.
    pub(crate) const UPGRADE: usize = 3;
}

#[derive(Debug)]
pub(crate) struct RwRules {
    word: AtomicUsize,
}

/// The word with `want` granted, if it can be.
fn granted(word: usize, want: usize) -> Option<usize> {
    match want {
        want::READ if word & WRITER == 0 || seeded_bug("rwlock_reads_while_written") => Some(word + READER),
        want::WRITE if word & !WAITING == 0 => Some(word | WRITER),
        want::UPGRADABLE if word & (WRITER | UPGRADABLE) == 0 => Some(word | UPGRADABLE),
        want::UPGRADE if word & !(WAITING | UPGRADABLE) == 0 => Some(word & !UPGRADABLE | WRITER),
        _ => None,
    }
}

/// What has to be added to the word to undo a grant of `want`.
const fn undoing(want: usize) -> usize {
    match want {
        want::READ => READER.wrapping_neg(),
        want::WRITE => WRITER.wrapping_neg(),
        want::UPGRADABLE => UPGRADABLE.wrapping_neg(),
        _ => UPGRADABLE.wrapping_sub(WRITER),
    }
}

impl RwRules {
    /// Takes it if it can be had, unless one of `but` is set.
    #[inline(always)]
    fn take(&self, want: usize, but: usize) -> bool {
        // Relaxed: the compare-exchange does the ordering.
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & but != 0 {
                return false;
            }
            let Some(to) = granted(word, want) else { return false };
            // Acquire: pairs with the release of whoever had it before; what he wrote is seen. Relaxed on failure: as above.
            match self.word.compare_exchange_weak(word, to, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(current) => word = current,
            }
        }
    }
}

impl Rules for RwRules {
    const URGENT: Option<usize> = Some(want::UPGRADE);

    fn grant(&self, want: usize) -> bool {
        self.take(want, 0)
    }

    fn revoke(&self, want: usize) {
        // Release: the order of those who had it before us is passed on.
        self.word.fetch_add(undoing(want), Ordering::Release);
    }

    fn is_grantable(&self, want: usize) -> bool {
        // Relaxed: whoever is told yes comes back and takes it.
        granted(self.word.load(Ordering::Relaxed), want).is_some()
    }

    fn set_waiting(&self, waiting: bool) {
        // Relaxed: one word; a release that comes after this in its order finds the flag, and one that came before is found by the try
        // that follows.
        if waiting {
            self.word.fetch_or(WAITING, Ordering::Relaxed);
        } else {
            // Relaxed: as above.
            self.word.fetch_and(!WAITING, Ordering::Relaxed);
        }
    }
}

/// See the header.
#[derive(Debug)]
pub(crate) struct RawRwLock {
    gate: Gate<RwRules>,
    /// Who holds it for writing, or may come to: a number of `owner`, since a guard may outlive its fiber, in another one of the same
    /// worker, and then a new fiber has that one's frame. Zero: nobody, or somebody who cannot be named.
    owner: AtomicU64,
    /// Who took it for reading last, if nobody has let go of a reading since. See [`note_reader`](Self::note_reader).
    reader: AtomicU64,
}

impl RawRwLock {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        let (owner, reader) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { gate: Gate::new(RwRules { word: AtomicUsize::new(0) }), owner, reader }
    }
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        let (owner, reader) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { gate: Gate::new(RwRules { word: AtomicUsize::new(0) }), owner, reader }
    }

    /// Where its word, and the number of who writes, lie in it, for reports: see `sync::seen`.
    #[cfg(not(any(loom, shuttle)))]
    pub(in crate::sync) const SEEN: (usize, usize) = (
        std::mem::offset_of!(Self, gate) + Gate::<RwRules>::RULES + std::mem::offset_of!(RwRules, word),
        std::mem::offset_of!(Self, owner),
    );

    /// What a word says: does a fiber write, and how many read?
    #[cfg(not(any(loom, shuttle)))]
    pub(in crate::sync) fn read_word(word: usize) -> (bool, usize) {
        (word & WRITER != 0, word / READER + usize::from(word & UPGRADABLE != 0))
    }

    pub(crate) fn gate(&self) -> &Gate<RwRules> {
        &self.gate
    }

    fn rules(&self) -> &RwRules {
        self.gate.rules()
    }

    /// Takes it if that is possible now and nobody waits.
    #[inline(always)]
    pub(crate) fn try_take(&self, want: usize) -> bool {
        self.rules().take(want, WAITING) || self.try_slowly(want)
    }

    #[inline(never)]
    fn try_slowly(&self, want: usize) -> bool {
        // Relaxed: if the flag is up, that is looked at again under the lock: perhaps it is so only for a moment.
        self.rules().word.load(Ordering::Relaxed) & WAITING != 0 && self.gate.try_now(want)
    }

    /// Takes it for reading even if others wait.
    pub(crate) fn try_read_recursive(&self) -> bool {
        self.rules().take(want::READ, 0)
    }

    /// From upgradable to writing, if there is no other reader. Those who wait do not come before.
    pub(crate) fn try_upgrade(&self) -> bool {
        self.rules().take(want::UPGRADE, 0)
    }

    /// Notes that `me`, who runs here, holds it for writing, or may come to.
    #[inline(always)]
    pub(crate) fn note_owner(&self, me: usize) {
        // Relaxed: whoever compares it with his own name either wrote that himself or finds another.
        self.owner.store(owner::number_of(me), Ordering::Relaxed);
    }

    /// Notes that `me`, who runs here, holds it for reading. A record for each reader would cost more than the lock, so there is one place,
    /// for the last reader, and every reader that lets go clears it. So a fiber that finds its own name there has a guard: of each
    /// that it had and let go, the clearing came after the noting, on its own thread (guards that are named cannot be sent). A fiber
    /// that finds another name, or none, knows nothing.
    #[inline(always)]
    pub(crate) fn note_reader(&self, me: usize) {
        // Models have no use for it, and would be larger.
        if !cfg!(any(loom, shuttle)) {
            // Relaxed: as above.
            self.reader.store(owner::number_of(me), Ordering::Relaxed);
        }
    }

    fn forget_reader(&self) {
        if !cfg!(any(loom, shuttle)) {
            // Relaxed: as above.
            self.reader.store(0, Ordering::Relaxed);
        }
    }

    /// How `me`, who runs here and wants this of the lock, holds it already, if that would be a wait for itself. (The owner may read
    /// beside its own upgradable reading; if it has to wait for that, then behind a writer that waits for it.)
    #[cfg(not(any(loom, shuttle)))]
    fn held_by(&self, me: usize, want: usize) -> Option<&'static str> {
        let me = owner::number_of(me);
        // Relaxed, both: as in `note_owner` and `note_reader`.
        if want != want::UPGRADE && self.owner.load(Ordering::Relaxed) == me {
            Some("for writing, or as an upgradable reader")
        } else if matches!(want, want::WRITE | want::UPGRADE) && self.reader.load(Ordering::Relaxed) == me {
            Some("for reading")
        } else {
            None
        }
    }

    /// Whoever holds it must not wait for it.
    #[cfg(not(any(loom, shuttle)))]
    #[track_caller]
    fn refuse_own(&self, want: usize) {
        if let Some(how) = self.held_by(owner::me(), want) {
            owned_already(how);
        }
    }

    /// The same for an arm of a select, which has not tried yet: if it cannot be had because its holder asks.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn refuse_arm(&self, want: usize) {
        if want == want::WRITE || self.is_locked_for_writing() {
            self.refuse_own(want);
        }
    }
    #[cfg(any(loom, shuttle))]
    pub(crate) fn refuse_arm(&self, _: usize) {}

    fn forget_owner(&self) {
        // Relaxed: as above.
        self.owner.store(0, Ordering::Relaxed);
    }

    /// Waits for it; false if time was up. The owner is not noted. Cancellation unwinds.
    #[cold]
    #[track_caller]
    pub(crate) fn wait(&self, want: usize, deadline: Option<u64>) -> bool {
        #[cfg(not(any(loom, shuttle)))]
        if deadline.is_none() {
            self.refuse_own(want);
        }
        let reason = match want {
            want::WRITE => WaitReason::RwLockWrite,
            want::UPGRADE => WaitReason::RwLockUpgrade,
            _ => WaitReason::RwLockRead,
        };
        let ask = Ask {
            want,
            first: want == want::UPGRADE,
            reason,
            object: std::ptr::from_ref(self).addr() as u64,
            site: Location::caller(),
            deadline,
        };
        match self.gate.wait(ask) {
            Outcome::Done => true,
            Outcome::TimedOut => false,
            other => unreachable!("{other:?}: waiters are served, and `wait` unwinds"),
        }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn take(&self, want: usize) {
        if !self.try_take(want) {
            self.wait(want, None);
        }
    }

    /// True if it was had in time.
    #[track_caller]
    pub(crate) fn take_by(&self, want: usize, deadline: u64) -> bool {
        self.try_take(want) || self.wait(want, Some(deadline))
    }

    pub(crate) fn take_async(&self, want: usize) -> Taking<'_> {
        Taking { raw: self, want, wait: GateTask::new() }
    }

    // ---- Letting go -----------------------------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn end_read(&self) {
        self.forget_reader();
        // AcqRel: pairs with the acquire of the writer that comes next: he sees that we have read. (Release would do; see `.ci/tsan`.)
        let word = self.rules().word.fetch_sub(READER, Ordering::AcqRel);
        // Whoever waits waits for the last reader, or for somebody else.
        if word & WAITING != 0 && word < 2 * READER && !seeded_bug("rwlock_reader_goes_silently") {
            self.gate.settle();
        }
    }

    #[inline]
    pub(crate) fn end_write(&self) {
        self.forget_owner();
        self.exchange(undoing(want::WRITE));
    }

    pub(crate) fn end_upgradable(&self) {
        self.forget_owner();
        self.exchange(undoing(want::UPGRADABLE));
    }

    /// From writing to reading, without letting a writer in between.
    pub(crate) fn downgrade(&self) {
        let me = owner::me();
        // Relaxed: as in `note_owner`. Somebody else, or nobody: the guard of a future.
        let is_mine = self.owner.load(Ordering::Relaxed) == owner::number_of(me);
        self.forget_owner();
        self.exchange(READER.wrapping_sub(WRITER));
        if is_mine {
            self.note_reader(me);
        }
    }

    pub(crate) fn downgrade_to_upgradable(&self) {
        self.exchange(UPGRADABLE.wrapping_sub(WRITER));
    }

    /// From upgradable to plain reading.
    pub(crate) fn downgrade_upgradable(&self) {
        self.forget_owner();
        self.exchange(READER.wrapping_sub(UPGRADABLE));
        self.note_reader(owner::me());
    }

    /// Adds to the word what makes it less of a lock, and serves those who can go on.
    #[inline(always)]
    fn exchange(&self, difference: usize) {
        // Release: pairs with the acquire of whoever takes it next; what we wrote is seen.
        let word = self.rules().word.fetch_add(difference, Ordering::Release);
        if word & WAITING != 0 {
            self.gate.settle();
        }
    }

    // ---- Looking --------------------------------------------------------------------------------------------------------

    pub(crate) fn is_locked(&self) -> bool {
        // Relaxed: an answer for the moment.
        self.rules().word.load(Ordering::Relaxed) & !WAITING != 0
    }

    pub(crate) fn is_locked_for_writing(&self) -> bool {
        // Relaxed: an answer for the moment.
        self.rules().word.load(Ordering::Relaxed) & WRITER != 0
    }
}

#[cfg(not(any(loom, shuttle)))]
#[cold]
#[inline(never)]
#[track_caller]
fn owned_already(how: &str) -> ! {
    panic!(
        "fibra: locking a RwLock that this very fiber (or thread) holds {how}: it would wait for itself for ever. \
         Drop the guard first; who reads and may have to write takes it by `upgradable_read`, and then `upgrade`s"
    );
}

/// The wait of a future for the lock. Ready: it is the caller's.
#[derive(Debug)]
pub(crate) struct Taking<'a> {
    raw: &'a RawRwLock,
    want: usize,
    wait: GateTask,
}

impl Future for Taking<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let polled = this.wait.poll(&this.raw.gate, this.want, cx).map(drop);
        #[cfg(not(any(loom, shuttle)))]
        if polled.is_pending()
            && let Some(how) = this.raw.held_by(owner::me(), this.want)
        {
            owner::report_own("RwLock", how);
        }
        polled
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.wait.leave(&self.raw.gate);
    }
}
