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

use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::prim::bug::seeded_bug;
use crate::sync::gate::{Ask, Gate, GateTask, Rules, Waited};
use crate::sync::owner;
use crate::wait::reason::WaitReason;

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
    /// Who holds it for writing, or may come to: see `owner`. Zero: nobody, or somebody who cannot be named.
    owner: AtomicUsize,
}

impl RawRwLock {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self { gate: Gate::new(RwRules { word: AtomicUsize::new(0) }), owner: AtomicUsize::new(0) }
    }
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { gate: Gate::new(RwRules { word: AtomicUsize::new(0) }), owner: AtomicUsize::new(0) }
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

    /// Notes who holds it. (Models tell their threads apart by themselves.)
    #[inline(always)]
    pub(crate) fn note_owner(&self) {
        // Relaxed: whoever compares it with his own name either wrote that himself or finds another.
        self.owner.store(owner::me(), Ordering::Relaxed);
    }

    fn forget_owner(&self) {
        // Relaxed: as above.
        self.owner.store(0, Ordering::Relaxed);
    }

    /// Waits for it; false if time was up. The owner is not noted. Cancellation unwinds.
    #[cold]
    #[track_caller]
    pub(crate) fn wait(&self, want: usize, deadline: Option<u64>) -> bool {
        #[cfg(not(any(loom, shuttle)))]
        // Relaxed: as in `note_owner`.
        if want != want::UPGRADE && deadline.is_none() && self.owner.load(Ordering::Relaxed) == owner::me() {
            owned_already();
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
            Waited::Granted => true,
            Waited::TimedOut => false,
            Waited::Called | Waited::Refused | Waited::Cancelled => unreachable!("waiters are served; `wait` unwinds"),
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
        self.forget_owner();
        self.exchange(READER.wrapping_sub(WRITER));
    }

    pub(crate) fn downgrade_to_upgradable(&self) {
        self.exchange(UPGRADABLE.wrapping_sub(WRITER));
    }

    /// From upgradable to plain reading.
    pub(crate) fn downgrade_upgradable(&self) {
        self.forget_owner();
        self.exchange(READER.wrapping_sub(UPGRADABLE));
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
fn owned_already() -> ! {
    panic!(
        "fibra: locking a RwLock that this very fiber (or thread) holds for writing, or as an upgradable reader: it \
         would wait for itself for ever. Drop the guard first, or use `upgrade`"
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
        this.wait.poll(&this.raw.gate, this.want, cx).map(drop)
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.wait.leave(&self.raw.gate);
    }
}
