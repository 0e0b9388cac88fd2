//! The record of a question: a waiter asks, and one answerer, wherever it is, writes the answer to the waiter's stack.
//!
//! Above: `channel::answer`, which has the slot and waits; `sched`, whose workers keep free records. Below: `prim` only.
//!
//! The slot lies on the stack of the waiter, which may give up (time, cancellation, a panic) and leave while the answerer lives on. So the
//! answerer does not know the slot, but this record, which is recycled and never freed, and the *life* of it in which it may answer. Life
//! and state lie in one word:
//!
//! ```text
//!  CLOSED ── open ──▶ ASKED ── publish ──▶ AWAITED        the waiter
//!    ▲                 │ │                  │ │
//!    └──── close ──────┘ └──▶  BUSY  ◀──────┘ │           the answerer: one compare-exchange, then it writes the slot
//!    ▲                          │             │
//!    │                          ▼             │
//!    │                       ANSWERED         │           it lets the waiter go, if there was one to let go
//!    └──────────────── close ─────────────────┘
//! ```
//!
//! Invariants
//! * A life has one answerer. The slot is written between BUSY and ANSWERED, by it alone; the waiter does not leave while the word is BUSY.
//!   That is a few instructions: the waiter spins.
//! * An answerer whose life is over finds another number in the word, and touches nothing. Lives are numbers of 61 bits.
//! * After ANSWERED the answerer does not touch the record; what it needs to wake the waiter it has copied before.

use super::node::{Node, WaiterRef};
use super::word::Ticket;
use crate::prim::atomic::{AtomicU64, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::cell::UnsafeCell;

/// No question: the waiter has left, or never came.
const CLOSED: u64 = 0;
/// The waiter does something else meanwhile.
const ASKED: u64 = 1;
/// The waiter waits, or is about to.
const AWAITED: u64 = 2;
/// The answerer writes.
const BUSY: u64 = 3;
/// The answer is in the slot; or the answerer is gone, and there will be none.
const ANSWERED: u64 = 4;
const STATE: u64 = 7;
/// One life.
const LIFE: u64 = 8;

/// The wait that an answer ends.
type Target = (WaiterRef, Ticket);

/// See the header.
#[derive(Debug)]
pub(crate) struct AnswerRecord {
    word: AtomicU64,
    /// Of the waiter; written before ASKED.
    slot: UnsafeCell<*mut ()>,
    /// Written before AWAITED.
    target: UnsafeCell<Option<Target>>,
}

// SAFETY: the cells are written by the waiter in states in which the answerer does not read them (before ASKED, before AWAITED), and read
// by the answerer in BUSY, into which it comes by a compare-exchange from the very state before which they were written.
unsafe impl Sync for AnswerRecord {}
// SAFETY: as above; the pointer is only used by the answerer, under the contract of `answer`.
unsafe impl Send for AnswerRecord {}

/// One life of a record: what both sides know.
#[derive(Clone, Copy)]
pub(crate) struct Question {
    record: &'static AnswerRecord,
    life: u64,
}

impl AnswerRecord {
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU64::new(CLOSED),
            slot: UnsafeCell::new(std::ptr::null_mut()),
            target: UnsafeCell::new(None),
        }
    }

    /// The next life of a record that the caller has taken. The answer goes to `slot`.
    #[inline(always)]
    pub(crate) fn open(&'static self, slot: *mut ()) -> Question {
        // Relaxed: the word of a record that was given back is changed by its holder alone.
        let life = (self.word.load(Ordering::Relaxed) & !STATE) + LIFE;
        // SAFETY: no answerer of an earlier life comes into BUSY any more, and there is none of this one yet.
        self.slot.with_mut(|place| unsafe { *place = slot });
        // Release: pairs with the acquire of the answerer that goes BUSY; it sees the slot.
        self.word.store(life | ASKED, Ordering::Release);
        Question { record: self, life }
    }
}

impl Question {
    /// The record, to be given back by the waiter after it has [closed](Self::close) the question.
    #[inline(always)]
    pub(crate) fn record(self) -> &'static AnswerRecord {
        self.record
    }

    /// Names it in reports.
    pub(crate) fn object(self) -> u64 {
        std::ptr::from_ref(self.record).addr() as u64
    }

    // ---- the answerer -------------------------------------------------------------------------------------------------------

    /// Does the waiter not wait any more? Asked by the answerer.
    pub(crate) fn is_closed(self) -> bool {
        // Relaxed: a look in passing.
        let word = self.record.word.load(Ordering::Relaxed);
        word != self.life | ASKED && word != self.life | AWAITED
    }

    /// Answers, if the waiter is there still; with nothing, if there will be no answer. Gives the wait to be ended, if there is one. Err:
    /// the waiter has left.
    ///
    /// # Safety
    /// The caller is the one answerer of this question, and answers once. The slot is a cell of an `Option<T>`, which is `None`.
    #[inline(always)]
    pub(crate) unsafe fn answer<T>(self, value: Option<T>) -> Result<Option<Target>, Option<T>> {
        let word = &self.record.word;
        // Relaxed: a guess; the compare-exchange does the ordering.
        let mut now = word.load(Ordering::Relaxed);
        let from = loop {
            let life = if seeded_bug("answer_of_any_life") { now & !STATE } else { self.life };
            if now != life | ASKED && now != life | AWAITED {
                return Err(value);
            }
            // Acquire: pairs with the release of `open` and `leave_asked`; slot and target are seen. Relaxed on failure: tried again.
            match word.compare_exchange(now, self.life | BUSY, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break now & STATE,
                Err(actual) => now = actual,
            }
        };
        if seeded_bug("answer_not_busy") {
            // Lets the waiter leave while it writes. Relaxed: the bug.
            word.store(self.life | from, Ordering::Relaxed);
        }
        // SAFETY: BUSY, by the one answerer: the waiter has written both before, and does not until it finds ANSWERED.
        let slot = self.record.slot.with(|slot| unsafe { *slot });
        // SAFETY: as above; AWAITED came after the target.
        let target = if from == AWAITED { self.record.target.with(|target| unsafe { *target }) } else { None };
        // SAFETY: the slot is such a cell (contract), alive and untouched by the waiter until it finds ANSWERED. It is `None`, so nothing
        // is dropped.
        unsafe { (*slot.cast::<UnsafeCell<Option<T>>>()).with_mut(|slot| slot.write(value)) };
        // Release: pairs with the acquire of the waiter that finds ANSWERED; it sees the answer. (Relaxed: a bug.)
        let done = if seeded_bug("answer_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        word.store(self.life | ANSWERED, done);
        Ok(target)
    }

    // ---- the waiter ---------------------------------------------------------------------------------------------------------

    /// The waiter is about to wait, with this node. False: there is an answer.
    #[inline(always)]
    pub(crate) fn publish(self, node: &Node) -> bool {
        let (waiter, ticket, _) = node.target();
        // SAFETY: the answerer reads it only after AWAITED, which the waiter alone sets.
        self.record.target.with_mut(|target| unsafe { *target = Some((waiter, ticket)) });
        if seeded_bug("answer_untargeted") && !self.is_answered() {
            // Looks, and says that it waits in another step. Relaxed: the bug.
            self.record.word.store(self.life | AWAITED, Ordering::Relaxed);
            return true;
        }
        self.leave_asked(AWAITED)
    }

    /// Is the answer there? Asked by the waiter.
    #[inline(always)]
    pub(crate) fn is_answered(self) -> bool {
        // Acquire: pairs with the release of the answer.
        self.record.word.load(Ordering::Acquire) == self.life | ANSWERED
    }

    /// Time or cancellation has ended the wait. False: there is an answer.
    pub(crate) fn unpublish(self) -> bool {
        self.leave_state(AWAITED, ASKED)
    }

    /// The waiter leaves, and does not wait at the moment. False: there is an answer. May be called again.
    pub(crate) fn close(self) -> bool {
        if seeded_bug("answer_closed_blindly") {
            // Relaxed: the bug.
            self.record.word.store(self.life | CLOSED, Ordering::Relaxed);
            return true;
        }
        // Acquire: as in `is_answered`.
        match self.record.word.load(Ordering::Acquire) {
            word if word == self.life | ANSWERED => false,
            // It has left before.
            word if word == self.life | CLOSED => true,
            _ => self.leave_asked(CLOSED),
        }
    }

    #[inline(always)]
    fn leave_asked(self, to: u64) -> bool {
        // Release: pairs with the acquire of the answerer; it sees the target. Acquire on failure: pairs with the release of the answer.
        let (release, acquire) = (Ordering::Release, Ordering::Acquire);
        match self.record.word.compare_exchange(self.life | ASKED, self.life | to, release, acquire) {
            Ok(_) => true,
            Err(actual) if actual == self.life | ANSWERED => false,
            Err(_) => self.leave_state(ASKED, to),
        }
    }

    /// The same from any state that the waiter has set; spins while the answerer writes.
    #[cold]
    #[inline(never)]
    fn leave_state(self, from: u64, to: u64) -> bool {
        loop {
            // Release, and acquire on failure: as in `leave_asked`.
            let (release, acquire) = (Ordering::Release, Ordering::Acquire);
            match self.record.word.compare_exchange(self.life | from, self.life | to, release, acquire) {
                Ok(_) => return true,
                Err(actual) if actual == self.life | ANSWERED => return false,
                Err(actual) => {
                    debug_assert!(actual == self.life | BUSY, "only the answerer changes what the waiter set")
                }
            }
            #[cfg(not(any(loom, shuttle)))]
            std::hint::spin_loop();
            crate::prim::thread::yield_now();
        }
    }
}

impl std::fmt::Debug for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Question").field("is_closed", &self.is_closed()).finish()
    }
}

#[cfg(not(any(loom, shuttle)))]
pub(crate) use pool::{ANSWERS, AnswerCache};

#[cfg(not(any(loom, shuttle)))]
mod pool {
    use super::AnswerRecord;
    use crate::prim::slab::{Cache, Never, Record, Slab};

    pub(crate) static ANSWERS: Slab<AnswerRecord> = Slab::new();

    /// Free records of one worker.
    pub(crate) type AnswerCache = Cache<AnswerRecord>;

    impl Record for AnswerRecord {
        /// One per call of an actor that waits at this moment.
        const FIRST: usize = 16;
        type Aside = Never;
        fn slab() -> &'static Slab<Self> {
            &ANSWERS
        }
        fn make(_: u32) -> Self {
            Self::new()
        }
        fn recall(aside: Never) -> &'static [Self] {
            match aside {}
        }
    }
}
