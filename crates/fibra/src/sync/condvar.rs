//! [`Condvar`]: waiting for a condition on the value that a mutex guards.
//!
//! Above: users. Below: the gate, with rules that count notifications, and `mutex::raw`. Waiting links the node and *then* lets the mutex
//! go, all before the fiber parks, so a notification between the two finds the node. The notifier takes the notified waiter out of the
//! queue; a notification for a waiter that left meanwhile (time, cancellation) goes to the next. Afterwards the mutex is locked again in
//! any case, as a binding wait: the guard is valid whichever way the wait ended.

use std::cell::Cell;
use std::panic::Location;
use std::time::Duration;

use super::gate::{Ask, Gate, Rules};
use super::mutex::raw::{RawMutex, Why};
use super::mutex::{MutexGuard, cancelled};
use super::owner;
use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::prim::bug::seeded_bug;
use crate::time::Instant;
use crate::wait::reason::WaitReason;
use crate::waiter::node::Outcome;

/// Locks the mutex again, whatever happens. (It cannot fail where a wait has just been possible.)
#[cold]
fn relock(raw: &RawMutex, site: &'static Location<'static>) {
    let me = owner::me();
    if !raw.try_lock(me) {
        let why = Why { reason: WaitReason::CondvarRelock, site, deadline: None };
        assert!(raw.lock_slow(me, why) == Outcome::Done, "fibra: a binding wait without a deadline was ended");
    }
}

/// All of it is only touched under the gate's lock, but for the flag.
#[derive(Debug)]
struct Notifications {
    /// Is the queue not empty? A notification without a waiter costs one load.
    waiting: AtomicUsize,
    /// How many more waiters are to be let go, beside those that were there at the last `notify_all`. Not 0 while the lock is free only if
    /// such a crowd is still being let go: then it takes several rounds.
    left: AtomicUsize,
    /// The waiters that `left` counts have a number below this one (`notify_one`).
    left_before: AtomicUsize,
    /// All waiters with a number below this one are to be let go (`notify_all`).
    before: AtomicUsize,
    /// The number of the next waiter.
    next: AtomicUsize,
}

/// What a waiter wants that has no number yet.
const NOT_NUMBERED: usize = usize::MAX;

// Relaxed (all of them): under the gate's lock; but for `waiting`, see `is_waiting`.
const UNDER_LOCK: Ordering = Ordering::Relaxed;

impl Rules for Notifications {
    fn grant(&self, number: usize) -> bool {
        if !self.is_grantable(number) {
            return false;
        }
        if !self.was_there(number) {
            self.left.store(self.left.load(UNDER_LOCK) - 1, UNDER_LOCK);
        }
        true
    }

    fn revoke(&self, number: usize) {
        if !self.was_there(number) {
            self.left.store(self.left.load(UNDER_LOCK) + 1, UNDER_LOCK);
        }
    }

    fn is_grantable(&self, number: usize) -> bool {
        self.was_there(number) || self.left.load(UNDER_LOCK) > 0 && number < self.left_before.load(UNDER_LOCK)
    }

    /// Every waiter gets a number when it comes.
    fn enlist(&self, _: usize) -> usize {
        let number = self.next.load(UNDER_LOCK);
        self.next.store(number + 1, UNDER_LOCK);
        number
    }

    fn set_waiting(&self, waiting: bool) {
        // Relaxed: see `is_waiting`.
        self.waiting.store(usize::from(waiting), Ordering::Relaxed);
        if !waiting {
            // No waiter is left for these notifications.
            self.left.store(0, UNDER_LOCK);
        }
    }
}

impl Notifications {
    /// Had this waiter come already at the last `notify_all`?
    fn was_there(&self, number: usize) -> bool {
        number < self.before.load(UNDER_LOCK)
    }

    /// One more of the present waiters is to be let go.
    fn notify_one(&self) {
        let next = self.next.load(UNDER_LOCK);
        // More than one if another notifier is letting a crowd go, and has not come to the waiters that came after it.
        let newcomers = next.saturating_sub(self.before.load(UNDER_LOCK));
        self.left.store(newcomers.min(self.left.load(UNDER_LOCK) + 1), UNDER_LOCK);
        self.left_before.store(next, UNDER_LOCK);
    }

    /// All present waiters are to be let go.
    fn notify_all(&self) {
        self.before.store(self.next.load(UNDER_LOCK), UNDER_LOCK);
    }
}

/// Did [`Condvar::wait_for`] or one of its kin give up?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// True if time was up before a notification came.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

/// Lets fibers and threads wait for a condition on the value that a [`Mutex`](super::Mutex) guards.
///
/// ```
/// use std::sync::Arc;
/// use fibra::sync::{Condvar, Mutex};
///
/// fibra::run(|| {
///     let shared = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
///     let producer = shared.clone();
///     fibra::spawn(move || {
///         producer.0.lock().push(7);
///         producer.1.notify_one();
///     });
///     let (queue, filled) = &*shared;
///     let mut queue = queue.lock();
///     while queue.is_empty() {
///         filled.wait(&mut queue);
///     }
///     assert_eq!(queue.pop(), Some(7));
/// });
/// ```
///
/// * There are no spurious wake-ups, but a notified waiter gets the mutex after others may have had it: check the condition again, in a
///   loop or with [`wait_while`](Self::wait_while).
/// * A notification goes to one of the present waiters, the first that came. If that one is cancelled or its time is up in the same moment,
///   the notification goes to the next, or counts for it; it is never lost.
/// * A cancelled fiber unwinds from `wait` with the mutex locked, as the guard that it holds promises; unwinding then unlocks it.
#[derive(Debug)]
pub struct Condvar {
    gate: Gate<Notifications>,
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl Condvar {
    /// A condition variable without waiters. In a `static` too.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        let (waiting, left) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (left_before, before, next) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        Self { gate: Gate::new(Notifications { waiting, left, left_before, before, next }) }
    }
    /// A condition variable without waiters.
    #[cfg(loom)]
    pub fn new() -> Self {
        let (waiting, left) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (left_before, before, next) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        Self { gate: Gate::new(Notifications { waiting, left, left_before, before, next }) }
    }

    /// Lets the mutex go, waits for a notification, and locks it again.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        let _notified = self.wait_at(guard, None, Location::caller());
    }

    /// Waits for as long as `condition` holds.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use fibra::sync::{Condvar, Mutex};
    ///
    /// fibra::run(|| {
    ///     let shared = Arc::new((Mutex::new(3), Condvar::new()));
    ///     for _ in 0..3 {
    ///         let done = shared.clone();
    ///         fibra::spawn(move || {
    ///             *done.0.lock() -= 1;
    ///             done.1.notify_one();
    ///         });
    ///     }
    ///     let mut left = shared.0.lock();
    ///     shared.1.wait_while(&mut left, |left| *left > 0);
    ///     assert_eq!(*left, 0);
    /// });
    /// ```
    #[track_caller]
    pub fn wait_while<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, mut condition: impl FnMut(&mut T) -> bool) {
        while condition(&mut *guard) {
            let _notified = self.wait_at(guard, None, Location::caller());
        }
    }

    /// [`wait`](Self::wait), for so long at most.
    ///
    /// ```
    /// use std::time::Duration;
    /// use fibra::sync::{Condvar, Mutex};
    ///
    /// let (mutex, never) = (Mutex::new(0), Condvar::new());
    /// let mut guard = mutex.lock();
    /// assert!(never.wait_for(&mut guard, Duration::from_millis(2)).timed_out());
    /// *guard += 1;
    /// ```
    #[track_caller]
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> WaitTimeoutResult {
        let notified = self.wait_at(guard, Some(Instant::after(timeout)), Location::caller());
        WaitTimeoutResult(!notified)
    }

    /// [`wait`](Self::wait), until `deadline` at most.
    #[track_caller]
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: impl Into<Instant>,
    ) -> WaitTimeoutResult {
        let notified = self.wait_at(guard, Some(deadline.into()), Location::caller());
        WaitTimeoutResult(!notified)
    }

    /// [`wait_while`](Self::wait_while), for so long at most: it timed out if the condition holds still.
    #[track_caller]
    pub fn wait_while_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        self.wait_while_until(guard, condition, Instant::after(timeout))
    }

    /// [`wait_while`](Self::wait_while), until `deadline` at most: it timed out if the condition holds still.
    #[track_caller]
    pub fn wait_while_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        deadline: impl Into<Instant>,
    ) -> WaitTimeoutResult {
        let deadline = deadline.into();
        while condition(&mut *guard) {
            if !self.wait_at(guard, Some(deadline), Location::caller()) {
                return WaitTimeoutResult(condition(&mut *guard));
            }
        }
        WaitTimeoutResult(false)
    }

    /// Lets one waiter go, the one that has waited longest. False: there is none.
    pub fn notify_one(&self) -> bool {
        if !self.is_waiting() {
            return false;
        }
        self.gate.update(Notifications::notify_one).1 > 0
    }

    /// Lets all present waiters go, and says how many there were.
    ///
    /// ```
    /// assert_eq!(fibra::sync::Condvar::new().notify_all(), 0);
    /// ```
    pub fn notify_all(&self) -> usize {
        if !self.is_waiting() {
            return 0;
        }
        self.gate.update(Notifications::notify_all).1
    }

    /// Is there a waiter? A waiter that began before the caller last had the mutex is seen.
    fn is_waiting(&self) -> bool {
        // Relaxed: it was set before the waiter let the mutex go, and a notifier that has changed the value has had the mutex since.
        self.gate.rules().waiting.load(Ordering::Relaxed) != 0
    }

    fn wait_at<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Option<Instant>,
        site: &'static Location<'static>,
    ) -> bool {
        let deadline = deadline.map(|deadline| deadline.as_nanos());
        match self.wait_or_cancelled(MutexGuard::mutex(guard).raw(), deadline, site) {
            Outcome::Cancelled => cancelled(),
            waited => waited != Outcome::TimedOut,
        }
    }

    /// One wait, at the end of which the mutex is locked again.
    pub(super) fn wait_or_cancelled(
        &self,
        raw: &RawMutex,
        deadline: Option<u64>,
        site: &'static Location<'static>,
    ) -> Outcome {
        let released = Cell::new(false);
        let ask = Ask {
            want: NOT_NUMBERED,
            first: false,
            reason: WaitReason::CondvarWait,
            object: std::ptr::from_ref(self).addr() as u64,
            site,
            deadline,
        };
        if seeded_bug("condvar_unlocks_first") {
            released.set(true);
            raw.unlock();
        }
        let waited = self.gate.wait_after(ask, || {
            if !released.replace(true) {
                raw.unlock_parking();
            }
        });
        if waited == Outcome::TimedOut && !released.replace(true) {
            // Time was up before the wait began. A caller that asks again and again must let others have the mutex all the same.
            raw.unlock();
        }
        if released.get() {
            relock(raw, site);
        }
        waited
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    // While a crowd is let go in rounds, the lock is free in between: notifications for waiters that came after the crowd are not lost, and
    // waiters that come after the notifications have no part in them.
    #[test]
    fn notifications_between_two_rounds() {
        let condvar = Condvar::new();
        let rules = condvar.gate.rules();
        let come = || rules.enlist(NOT_NUMBERED);
        let crowd = [come(), come()];
        rules.notify_all();
        rules.notify_one(); // for no waiter
        let newcomers = [come(), come()];
        rules.notify_one();
        rules.notify_one();
        let last = come();
        assert!(crowd.into_iter().chain(newcomers).all(|number| rules.grant(number)));
        assert!(!rules.grant(last), "it came after the last notification");
        rules.notify_one();
        assert!(rules.grant(last) && !rules.grant(come()));
    }
}
