//! The lock of a mutex, without what it guards.
//!
//! Above: `Mutex`, `ReentrantMutex`, `Condvar`. Below: the gate. One word holds the name of the lock's holder (see
//! `owner`), and two flags:
//!
//! ```text
//!  WAITING    the queue is not empty: the unlocker goes to the gate
//!  CALLED     a waiter was told to try for itself and has not done so yet: the unlocker need not call another one
//!  0          free           UNNAMED    held by an async guard, or by a waiter that it was handed to and that has not woken yet
//!  HANDING    unlocked, but for the queue alone: the next thread that has the gate's lock decides
//! ```
//!
//! Locking is one compare-exchange from 0, unlocking one back to 0. *Barging*: an unlock with a non-empty queue lets
//! the lock go and calls the head, which tries for itself. A running fiber may take the lock meanwhile, which costs
//! nothing; handing it over would make every waiter wait for a switch per turn. A waiter that was called and came too
//! late goes back to the head of the queue. *Hand-over*: a head that has waited for about a millisecond is given the
//! lock by the unlocker, so that it cannot be starved. But this happens at most once in a millisecond: in a long queue
//! every waiter has waited that long, and a lock that is only handed over costs a wake on another worker per turn.
//!
//! An arm of a select is always given the lock, since no code runs there that could try; an async waiter is always
//! called, and may be overtaken.

use std::panic::Location;

use crate::prim::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::policy;
use crate::sync::gate::{Ask, Gate, GateTask, GateWait, Rules, Who};
use crate::sync::owner::{self, FREE_BITS, UNNAMED};
use crate::wait::park;
use crate::wait::reason::WaitReason;
use crate::wait::wake;
use crate::waiter::node::Outcome;
use std::task::{Context, Poll};

const WAITING: usize = 1;
const CALLED: usize = 2; // See the header, for this flag and the one before.
const OWNER: usize = !FREE_BITS;
/// An owner like `UNNAMED`.
const HANDING: usize = UNNAMED << 1;
const _: () = assert!((WAITING | CALLED) & OWNER == 0 && HANDING & OWNER == HANDING);

/// After this long at most, the head of the queue is given the lock.
const PATIENCE_NANOS: u64 = 1_000_000;

/// Rounds of looking at the lock before parking, each twice as long as the one before.
const SPIN_ROUNDS: u32 = 6;

#[derive(Debug)]
pub(crate) struct MutexRules {
    word: AtomicUsize,
    /// When it was last handed over. Touched under the gate's lock.
    handed: AtomicU64,
}

/// Has it waited for so long that it is given the lock? What a waiter wants of this gate is the moment since when it has waited.
fn is_due(want: usize) -> bool {
    #[cfg(any(loom, shuttle))]
    if super::model_clock::is_late() {
        return true;
    }
    now().saturating_sub(want as u64) >= PATIENCE_NANOS
}

/// Fibra's clock. In models time stands still.
fn now() -> u64 {
    if cfg!(any(loom, shuttle)) { 1 } else { policy::now() }
}

impl MutexRules {
    /// Has it been long enough since the last hand-over?
    fn may_hand_over(&self) -> bool {
        // In models there is no time; there a late waiter is served. Relaxed: under the gate's lock.
        cfg!(any(loom, shuttle)) || now().saturating_sub(self.handed.load(Ordering::Relaxed)) >= PATIENCE_NANOS
    }

    /// Replaces the word by the result of `f`, if that is `Some`.
    #[inline(always)]
    fn change(&self, f: impl Fn(usize) -> Option<usize>) -> Option<usize> {
        // Relaxed: confirmed by the compare-exchange.
        let mut now = self.word.load(Ordering::Relaxed);
        loop {
            let to = f(now)?;
            // AcqRel: the new holder sees what the last one did (pairs with unlocking); the thread that lets go
            // publishes what it did. Relaxed on failure: tried again.
            match self.word.compare_exchange_weak(now, to, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(now),
                Err(actual) => now = actual,
            }
        }
    }
}

impl Rules for MutexRules {
    const BARGES: bool = true;

    fn grant(&self, _: usize) -> bool {
        self.change(|word| (word & OWNER == 0).then_some(word | UNNAMED)).is_some()
    }

    fn revoke(&self, _: usize) {
        self.change(|word| Some(word & !OWNER));
    }

    fn is_grantable(&self, _: usize) -> bool {
        // Relaxed: a waiter that acts on it tries for itself.
        self.word.load(Ordering::Relaxed) & OWNER == 0
    }

    fn set_waiting(&self, waiting: bool) {
        self.change(|word| match waiting {
            true => Some(word | WAITING),
            // The queue that the lock was kept for is empty.
            false if word & OWNER == HANDING => Some(word & !(OWNER | WAITING)),
            false => Some(word & !WAITING),
        });
    }

    fn serve(&self, want: usize, who: Who) -> Outcome {
        let grants = match who {
            Who::Arm => true,
            Who::Task => false,
            Who::Waiter => is_due(want) && self.may_hand_over(),
        };
        let served = self.change(|word| match word & OWNER {
            // Another waiter was called already, and is no less entitled.
            0 if word & CALLED != 0 => None,
            0 | HANDING if grants => Some(word & !OWNER | UNNAMED),
            0 | HANDING if who == Who::Task => Some(word & !OWNER),
            0 | HANDING => Some(word & !OWNER | CALLED),
            _ => None,
        });
        if served.is_some() && grants && who == Who::Waiter {
            // Relaxed: under the gate's lock.
            self.handed.store(now(), Ordering::Relaxed);
        }
        match served {
            None => Outcome::Pending,
            Some(_) if grants => Outcome::Done,
            Some(_) => Outcome::Retry,
        }
    }

    fn uncall(&self, _: usize) {
        self.change(|word| Some(word & !CALLED));
    }
}

/// The description of a wait for the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Why {
    pub(crate) reason: WaitReason,
    pub(crate) site: &'static Location<'static>,
    pub(crate) deadline: Option<u64>,
}

/// See the header.
#[derive(Debug)]
pub(crate) struct RawMutex {
    gate: Gate<MutexRules>,
}

impl RawMutex {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self { gate: Gate::new(MutexRules { word: AtomicUsize::new(0), handed: AtomicU64::new(0) }) }
    }
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { gate: Gate::new(MutexRules { word: AtomicUsize::new(0), handed: AtomicU64::new(0) }) }
    }

    #[inline(always)]
    fn word(&self) -> &AtomicUsize {
        &self.gate.rules().word
    }

    pub(crate) fn gate(&self) -> &Gate<MutexRules> {
        &self.gate
    }

    /// Locking it, as an arm of a select: for an owner without a name. (The arm is handed the lock whenever it is the
    /// head: since when it waits plays no part.)
    pub(super) fn arm(&self) -> GateWait<'_, MutexRules> {
        self.gate.arm(0)
    }

    /// Names it in reports.
    pub(crate) fn id(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }

    /// Where the lock's word lies in it, and how to read the holder from that word, for reports: see `sync::seen`.
    #[cfg(not(any(loom, shuttle)))]
    pub(in crate::sync) const SEEN: (usize, usize) = (
        std::mem::offset_of!(Self, gate) + Gate::<MutexRules>::RULES + std::mem::offset_of!(MutexRules, word),
        OWNER & !HANDING,
    );

    /// The name of the holder; 0 if the lock is free.
    #[inline(always)]
    pub(crate) fn owner(&self) -> usize {
        // Relaxed: the caller acts only on its own name, and that one it wrote itself.
        self.word().load(Ordering::Relaxed) & OWNER
    }

    /// Is the queue not empty?
    #[cfg(all(test, any(loom, shuttle)))]
    pub(super) fn has_queue(&self) -> bool {
        // Relaxed: the model's thread asks until the answer is yes.
        self.word().load(Ordering::Relaxed) & WAITING != 0
    }

    /// Takes it for `me` if it is free and the queue is empty.
    #[inline(always)]
    pub(crate) fn lock_fast(&self, me: usize) -> bool {
        // Acquire: pairs with the release in `unlock`. Relaxed on failure: nothing is read.
        self.word().compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes it for `me` if it is free.
    #[inline]
    pub(crate) fn try_lock(&self, me: usize) -> bool {
        self.lock_fast(me) || self.barge(me, 0)
    }

    /// Takes it for `me`, and lowers `flags`, if it is free, whether or not others wait.
    fn barge(&self, me: usize, flags: usize) -> bool {
        let free = |word| (word & OWNER == 0).then_some(word & !flags | me);
        self.gate.rules().change(free).is_some()
    }

    /// It was handed over: from now on it carries the name of its holder.
    pub(super) fn adopt(&self, me: usize) {
        if me != UNNAMED {
            // Relaxed: the owner part is ours alone to change, and the grant has done the ordering.
            self.word().fetch_xor(UNNAMED ^ me, Ordering::Relaxed);
        }
    }

    /// Waits for it: `Done`, `TimedOut` or `Cancelled`.
    #[inline(never)]
    pub(crate) fn lock_slow(&self, me: usize, why: Why) -> Outcome {
        if self.spin(me) {
            return Outcome::Done;
        }
        let mut ask = Ask {
            want: now() as usize,
            first: false,
            reason: why.reason,
            object: self.id(),
            site: why.site,
            deadline: why.deadline,
        };
        loop {
            match self.gate.wait_or_cancelled(ask) {
                Outcome::Done => {
                    self.adopt(me);
                    return Outcome::Done;
                }
                Outcome::Retry => {
                    if self.barge(me, CALLED) {
                        return Outcome::Done;
                    }
                    // Too late. CALLED is lowered before the node is linked again: an unlock from now on has to look
                    // for a waiter to call.
                    self.gate.rules().uncall(0);
                    ask.first = true;
                }
                not => {
                    // An unlock that came while this waiter counted as called has called no other.
                    if ask.first && !seeded_bug("mutex_call_not_passed_on") {
                        self.gate.settle();
                    }
                    return not;
                }
            }
        }
    }

    /// A short wait without parking, for a lock that is held on another processor while its queue is empty.
    #[cfg(not(any(loom, shuttle)))]
    fn spin(&self, me: usize) -> bool {
        for round in 0..SPIN_ROUNDS {
            // Relaxed: confirmed by the compare-exchange.
            let word = self.word().load(Ordering::Relaxed);
            if word & OWNER == 0 {
                if self.barge(me, 0) {
                    return true;
                }
            } else if word & WAITING != 0 || !owner::may_let_go_soon(word & OWNER) {
                return false;
            }
            for _ in 0..1 << round {
                std::hint::spin_loop();
            }
        }
        false
    }
    #[cfg(any(loom, shuttle))]
    fn spin(&self, _: usize) -> bool {
        let _ = (SPIN_ROUNDS, owner::me);
        false
    }

    /// Lets it go. Only its holder may call this.
    #[inline(always)]
    pub(crate) fn unlock(&self) {
        // Relaxed: confirmed by the compare-exchange.
        let word = self.word().load(Ordering::Relaxed);
        // Release: pairs with the acquire of the next holder. Relaxed on failure: tried again.
        if word & !OWNER != 0 || self.word().compare_exchange(word, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            self.unlock_slow();
        }
    }

    #[cold]
    #[inline(never)]
    fn unlock_slow(&self) {
        if self.release() {
            self.gate.settle();
        }
    }

    /// Lets it go from a place where no user code may run: while PARKING.
    pub(crate) fn unlock_parking(&self) {
        if self.release() {
            let mut owed = Vec::new();
            self.gate.settle_owing(&mut owed);
            if !owed.is_empty() {
                wake::call_wakers_soon(owed);
            }
        }
    }

    /// True: the queue has to be looked at, and only a waiter in it can get the lock.
    fn release(&self) -> bool {
        let calls = |word| word & (WAITING | CALLED) == WAITING && !seeded_bug("mutex_unlock_forgets");
        let before = self.gate.rules().change(|word| Some(word & !OWNER | if calls(word) { HANDING } else { 0 }));
        before.is_some_and(calls)
    }

    /// Async: see [`GateTask`]. `since` is the first poll.
    pub(crate) fn poll_lock(&self, task: &mut GateTask, since: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        if *since == 0 {
            if park::lets_others_run(cx) {
                return Poll::Pending;
            }
            if self.try_lock(UNNAMED) {
                return Poll::Ready(());
            }
            *since = now();
        }
        task.poll(&self.gate, *since as usize, cx).map(drop)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    // S2-36: uncontended, one compare-exchange takes the lock and one lets it go: no more than the word is touched. The
    // gate is locked meanwhile, so that a thread that went there would wait for ever, and nothing else of the mutex
    // changes.
    #[test]
    fn an_uncontended_lock_touches_the_word_only() {
        let mutex = RawMutex::new();
        // Relaxed, all: one thread.
        let word = || mutex.word().load(Ordering::Relaxed);
        mutex.gate().update(|rules| {
            for me in [UNNAMED, UNNAMED << 2, UNNAMED << 7] {
                assert!(mutex.lock_fast(me) && word() == me, "0 to its name, in one step");
                assert!(!mutex.lock_fast(UNNAMED) && word() == me, "and not twice");
                mutex.unlock();
                assert_eq!((word(), rules.handed.load(Ordering::Relaxed)), (0, 0));
            }
        });
    }
}
