//! [`Once`]: something that is done once, by the first caller, while the others wait.
//!
//! Above: users, `OnceLock` and through it `LazyLock`. Below: the gate; `turns` for callers that wait and do not want to do it themselves.
//! What a waiter wants of the gate is that the work be done: it is let in when the work is done, or to do it. If the caller that does the
//! work fails (it panics, is cancelled, its future is dropped), the next in the queue does it. Once the work is done, asking is one acquire
//! load.

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::gate::{Ask, Gate, GateTask, Rules};
use super::owner;
use super::turns::{TurnFuture, Turns, TurnsWord, wait_forms};
use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::prim::bug::seeded_bug;
use crate::wait::park;
use crate::wait::reason::WaitReason;
use crate::waiter::node::Outcome;

const INCOMPLETE: usize = 0; // No caller has begun.
const RUNNING: usize = 1;
const COMPLETE: usize = 2; // Done, for good.
const STATE: usize = 3; // The bits that say which of these.
const WAITING: usize = 4; // The queue is not empty.

struct OnceRules {
    word: AtomicUsize,
}

impl OnceRules {
    fn take(&self, but: usize) -> bool {
        // Acquire: sees what a caller did that failed before, and, if the state is COMPLETE, what the caller did that completed it.
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            match word & STATE {
                COMPLETE => return true,
                INCOMPLETE if word & but == 0 => {}
                _ => return false,
            }
            // Acquire, both: as above.
            match self.word.compare_exchange_weak(word, word | RUNNING, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return true,
                Err(current) => word = current,
            }
        }
    }
}

impl Rules for OnceRules {
    const CALLS_ALL: bool = true;

    fn grant(&self, _: usize) -> bool {
        self.take(0)
    }

    fn revoke(&self, _: usize) {
        // Relaxed: it is either complete for ever or ours.
        if self.word.load(Ordering::Relaxed) & STATE == RUNNING {
            // AcqRel: what callers did that failed before is passed on. (Release would do; see `.ci/tsan`, which asks for this.)
            self.word.fetch_sub(RUNNING, Ordering::AcqRel);
        }
    }

    fn is_grantable(&self, _: usize) -> bool {
        // Relaxed: a caller that is told yes looks again.
        self.word.load(Ordering::Relaxed) & STATE != RUNNING
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

/// Something that is done once. Like [`std::sync::Once`], but waiting for the caller that does it parks the fiber, and there is no
/// poisoning: if the function panics or is cancelled, it has not been done, and the next caller does it.
///
/// ```
/// use fibra::sync::Once;
/// static START: Once = Once::new();
/// let mut calls = 0;
/// START.call_once(|| calls += 1);
/// START.call_once(|| calls += 1);
/// assert!(calls == 1 && START.is_completed());
/// ```
pub struct Once {
    gate: Gate<OnceRules>,
    /// The caller that does it now, if it can be named: see `owner`.
    owner: AtomicUsize,
    /// For callers that only wait.
    done: Turns,
}

/// The right, and the duty, to do it. Dropped without [`complete`](Self::complete), it has not been done.
pub(super) struct Running<'a>(&'a Once);

impl Running<'_> {
    pub(super) fn complete(self) {
        let once = self.0;
        std::mem::forget(self);
        // Release: pairs with the acquire of a caller that finds it complete; that caller sees what was done.
        once.end(COMPLETE - RUNNING);
        let _ = once.done.change(|state| Some(TurnsWord { open: true, ..state.next_turn() }));
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.end(RUNNING.wrapping_neg());
    }
}

impl Once {
    /// Not done yet.
    #[must_use]
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            gate: Gate::new(OnceRules { word: AtomicUsize::new(INCOMPLETE) }),
            owner: AtomicUsize::new(0),
            done: Turns::new(TurnsWord { open: false, first: 0, second: 0, turn: 0 }),
        }
    }

    /// As above, where atomics cannot be made by constant functions.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            gate: Gate::new(OnceRules { word: AtomicUsize::new(INCOMPLETE) }),
            owner: AtomicUsize::new(0),
            done: Turns::new(TurnsWord { open: false, first: 0, second: 0, turn: 0 }),
        }
    }

    /// Has it been done?
    #[must_use]
    #[inline]
    pub fn is_completed(&self) -> bool {
        self.is_complete() || self.is_complete_by_now()
    }

    /// It was not done at the first look: asks again, after other fibers had their turn, if one was due. (A look that finds it done does
    /// not count against the budget: finished objects are read by all fibers at all times.)
    #[cold]
    #[inline(never)]
    pub(super) fn is_complete_by_now(&self) -> bool {
        park::count_call();
        self.is_complete()
    }

    #[inline(always)]
    pub(super) fn is_complete(&self) -> bool {
        // Acquire: pairs with the release in `end`.
        self.gate.rules().word.load(Ordering::Acquire) & STATE == COMPLETE
    }

    /// Makes it not done. The caller has exclusive access.
    pub(super) fn reset(&mut self) {
        *self = Self::new();
    }

    /// The caller that did it has ended, with success or without.
    fn end(&self, difference: usize) {
        // Relaxed: a caller compares it only with its own name, and either wrote that itself or finds another name.
        self.owner.store(0, Ordering::Relaxed);
        // Release: pairs with the acquire of the caller that looks next.
        let word = self.gate.rules().word.fetch_add(difference, Ordering::Release);
        if word & WAITING != 0 && !seeded_bug("once_ends_silently") {
            self.gate.settle();
        }
    }

    /// Called by a waiter that was let in: either to do it, or because it is done.
    fn let_in(&self) -> Option<Running<'_>> {
        // (Not `then_some`: that would make a `Running` in any case and drop it, and the drop would end what another caller does.)
        (!self.is_complete()).then(|| Running(self))
    }

    /// `None`: it is done. Waits for the caller that does it.
    #[cold]
    #[track_caller]
    pub(super) fn begin(&self) -> Option<Running<'_>> {
        if !self.gate.rules().take(WAITING) {
            #[cfg(not(any(loom, shuttle)))]
            // Relaxed: as in `end`.
            if self.owner.load(Ordering::Relaxed) == owner::me() {
                reentered();
            }
            let ask = Ask {
                want: 0,
                first: false,
                reason: WaitReason::OnceWait,
                object: std::ptr::from_ref(self).addr() as u64,
                site: Location::caller(),
                deadline: None,
            };
            match self.gate.wait(ask) {
                Outcome::Done => {}
                other => unreachable!("{other:?} without a deadline, from `wait`, of a waiter that is served"),
            }
        }
        let running = self.let_in()?;
        // Relaxed: as in `end`.
        self.owner.store(owner::me(), Ordering::Relaxed);
        Some(running)
    }

    /// [`begin`](Self::begin) for futures; no owner is noted, since a future may move.
    pub(super) async fn begin_async(&self) -> Option<Running<'_>> {
        Entering { once: self, wait: GateTask::new() }.await;
        self.let_in()
    }

    /// Calls `f`, unless that was done before; if another caller is doing it, waits for that caller. When this returns, it has been done.
    ///
    /// If `f` panics, or its fiber is cancelled, it has not been done: one of the waiting callers calls its own `f`.
    ///
    /// # Panics
    /// If called from within `f`, by the same fiber or thread: it would wait for itself.
    #[track_caller]
    #[inline]
    pub fn call_once(&self, f: impl FnOnce()) {
        if self.is_complete() {
            return;
        }
        if let Some(running) = self.begin() {
            f();
            running.complete();
        }
    }

    fn wait_until(&self, deadline: Option<u64>, site: &'static Location<'static>) -> bool {
        park::entry();
        self.done.wait_open(WaitReason::OnceWait, deadline, site)
    }

    /// Waits until it has been done, as a future.
    pub fn wait_async(&self) -> TurnFuture<'_> {
        TurnFuture::new(&self.done)
    }
}

wait_forms! {
    Once,
    /// Waits until it has been done, by any caller.
    wait,
    /// Waits until it has been done, for at most `timeout`. True if it has.
    wait_timeout,
    /// Waits until it has been done, until `deadline` at most. True if it has.
    wait_deadline
}

#[cfg(not(any(loom, shuttle)))]
#[cold]
#[inline(never)]
#[track_caller]
fn reentered() -> ! {
    panic!(
        "fibra: what is to be done once (Once, OnceLock, LazyLock) asks for itself while this very fiber (or thread) \
         does it: it would wait for itself for ever"
    );
}

impl Default for Once {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").field("is_completed", &self.is_complete()).finish()
    }
}

/// A future's wait to be let in.
struct Entering<'a> {
    once: &'a Once,
    wait: GateTask,
}

impl Future for Entering<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.wait.poll(&this.once.gate, 0, cx).map(drop)
    }
}

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        self.wait.leave(&self.once.gate);
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
