//! Where a fiber that moves goes on when it is woken: first where it last ran (S1-92), if that worker has nothing to do, and the one on
//! which it is woken has, or is none. (Where nothing else waits, it goes on where it was woken: a message to another processor costs more
//! than its memory there is worth, and fibers that talk to each other come together.)
//!
//! Its memory may still be in the caches there. But that is a hint and no more: a worker that runs something is not waited for, so the
//! fiber goes on where it was woken, as stealable work. So one that makes no progress, has more than it can run, is leaving or has left
//! never gets a fiber in this way (S1-93, S1-94). What it may yet do is to begin: between the look at it and the moment in which it reads
//! its mail, something else may have begun to run there. So what was sent lies in a list from which others take it back, if the worker has
//! not taken it after [`LATE`]: they do so where they look at late deadlines (`timers/late.rs`). And what the worker takes, it takes into
//! its deque, where it is stealable.
//!
//! ```text
//!  woken on A, last ran on B, which sleeps or searches ── into B's list, Command::TakeReturns ──▶ B: into its deque ──▶ runs on B
//!                                                              └─ B does not come: taken back by C, or by sysmon ──▶ runs elsewhere
//! ```
//!
//! Nothing else is new: the command wakes B as every command does (`reach::post`), and is answered for a seat that has no worker any more.
//!
//! Above: `enqueue.rs`. Below: `reach.rs`, `idle.rs`, and the fiber's record, which keeps where it last ran.
//!
//! Invariant: while the list is not empty, a command that empties it is posted, or is about to be by the thread that put the first in.

use std::collections::VecDeque;

use crate::fiber::frame::FrameRef;
use crate::prim::atomic::{AtomicU64, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::policy;
use crate::prim::spin::SpinLock;
use crate::sched::phase::Phase;
use crate::sched::queue::Entry;
use crate::sched::shared::{Command, RuntimeShared};
use crate::sched::worker::Worker;

/// What a worker has not taken for so long, in nanoseconds, others take back: as with late deadlines.
const LATE: u64 = 500_000;
/// So many are sent to a worker, which had nothing to do, before it takes them (S1-94).
const MOST: usize = 16;
/// The list is empty.
const NEVER: u64 = u64::MAX;

/// The fibers that come back to a worker. See the header.
#[derive(Debug)]
pub(crate) struct Returns {
    /// Since when it has not been empty.
    since: AtomicU64,
    entries: SpinLock<VecDeque<Entry>>,
}

impl Returns {
    pub(crate) fn new() -> Self {
        Self { since: AtomicU64::new(NEVER), entries: SpinLock::new(VecDeque::new()) }
    }

    /// `None`: there are too many. True: it is the first.
    fn push(&self, entry: Entry) -> Option<bool> {
        self.entries.with(|entries| {
            if entries.len() == MOST {
                return None;
            }
            entries.push_back(entry);
            if entries.len() == 1 {
                self.since.store(policy::now(), Ordering::Relaxed); // Relaxed: a hint for those who look without the lock.
            }
            Some(entries.len() == 1)
        })
    }

    /// Since when its oldest has been in it.
    pub(crate) fn since(&self) -> Option<u64> {
        let since = self.since.load(Ordering::Relaxed); // Relaxed: a hint.
        (since != NEVER && !seeded_bug("returns_to_a_hog")).then_some(since)
    }

    /// One, if there was any by then.
    fn pop(&self, since: u64) -> Option<Entry> {
        // (The worker itself asks for all of them; it has read the command that was posted after the push.)
        if since != NEVER && self.since().is_none_or(|first| first > since) {
            return None;
        }
        self.entries.with(|entries| {
            let entry = entries.pop_front();
            if entries.is_empty() {
                self.since.store(NEVER, Ordering::Relaxed); // Relaxed: as above.
            }
            entry
        })
    }

    /// Is there nothing in it? Exact only for what was pushed before the call.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.with(|entries| entries.is_empty())
    }

    /// Is there something in it that its worker should have taken by now?
    pub(in crate::sched) fn is_late(&self, now: u64) -> bool {
        self.since().is_some_and(|since| since.saturating_add(LATE) <= now)
    }
}

impl RuntimeShared {
    /// Sends a fiber that moves, was woken and is RUNNABLE in the caller's hands to where it last ran, if that is a good place. False: the
    /// caller keeps it. `here`: the worker that this runs on.
    #[cold]
    #[inline(never)]
    pub(in crate::sched) fn sends_back(&self, frame: FrameRef, here: Option<usize>) -> bool {
        let Some(last) = frame.top().and_then(|top| top.last_worker()) else { return false };
        let is_free = matches!(self.idle.phase(last), Phase::Sleep | Phase::Spin) || seeded_bug("returns_to_a_hog");
        if here == Some(last) || !is_free {
            return false;
        }
        let entry = Entry::contested(frame.address(), frame.waiter.word.snapshot().ticket().to_bits());
        let Some(is_first) = self.remotes[last].returns.push(entry) else { return false };
        // Others look at each other's lists from now on.
        self.late.begin();
        if is_first {
            self.post(last, Command::TakeReturns(last));
        }
        true
    }

    /// What this seat should have taken by now goes to any worker. Called by sysmon, and for a seat that has no worker.
    pub(crate) fn rescue_returns(&self, seat: usize, since: u64) -> u64 {
        let late = std::iter::from_fn(|| self.remotes[seat].returns.pop(since));
        late.map(|entry| self.inject(entry)).count() as u64
    }
}

impl Worker {
    /// Is there something in the list of another worker? For a worker that is about to sleep: it may have sent it there itself, and if that
    /// worker has begun to run something meanwhile, there may be no other that takes it back.
    pub(in crate::sched) fn others_have_returns(&self) -> bool {
        let mut seats = 0..self.shared.seats.made();
        self.shared.late.is_looked_at()
            && seats.any(|seat| seat != self.index && self.shared.remotes[seat].returns.since().is_some())
    }

    /// Takes what was sent here into its deque.
    #[cold]
    pub(in crate::sched) fn take_returns(&self) {
        self.take_returns_of(self.index, NEVER);
    }

    /// Takes over what another worker should have taken by now.
    #[cold]
    pub(in crate::sched) fn take_late_returns_of(&self, seat: usize, now: u64) {
        if self.shared.remotes[seat].returns.is_late(now) {
            self.take_returns_of(seat, now.saturating_sub(LATE));
        }
    }

    fn take_returns_of(&self, seat: usize, since: u64) {
        while let Some(entry) = self.shared.remotes[seat].returns.pop(since) {
            self.push_entry(entry);
        }
    }
}
