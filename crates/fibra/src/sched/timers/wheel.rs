//! Deadlines that must be kept although the worker they were set on is stuck: those of scopes (deadline, drain, grace), the alarms of
//! futures that wait for time, and the waits of fibers that move. Each seat has such a store beside the owner-only timers of its worker.
//! The store has a lock, so that sysmon can fire the timers of a stuck worker.
//!
//! Above: `timing.rs` (a worker fires what is due in its own store), `sysmon.rs` (fires what is overdue in any store), and scopes, which
//! set and remove timers. Below: `sched::timers::heap`, the heap.
//!
//! Invariants
//! * A timer ends once: it is fired, or its removal says that it was there. Both happen under the lock.
//! * `next` is the earliest deadline in the store, written under the lock. A look without the lock is a hint: a thread that sets a timer
//!   for another worker wakes that worker afterwards (`RuntimeShared::set_scope_timer`), and sysmon looks again.
//!
//! Rejected: one store for the whole runtime, which is what the design asks for. Every `timeout` would take a lock that all workers share,
//! and one sleeper would have to be chosen to wake for it. A store per seat has a lock that no other worker wants, each worker sleeps
//! until its own deadlines as before, and sysmon, which watches whenever a worker is awake, sees all of them (decision 54).

use crate::prim::atomic::{AtomicU64, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::spin::SpinLock;
use crate::sched::timers::heap::{Timer, Timers};

/// No deadline.
const NEVER: u64 = u64::MAX;

/// See the header. `P` says what a timer is for.
#[derive(Debug)]
pub(crate) struct Wheel<P: Copy> {
    next: AtomicU64,
    timers: SpinLock<Timers<P>>,
}

impl<P: Copy> Wheel<P> {
    pub(crate) fn new() -> Self {
        Self { next: AtomicU64::new(NEVER), timers: SpinLock::new(Timers::new()) }
    }

    /// The earliest deadline, if there is one.
    #[inline(always)]
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        // Relaxed: a hint, see the header.
        let next = self.next.load(Ordering::Relaxed);
        (next != NEVER).then_some(next)
    }

    /// Sets a timer. True: it is the earliest now.
    pub(crate) fn insert(&self, deadline: u64, purpose: P) -> (Timer, bool) {
        self.change(|timers| {
            let timer = timers.insert(deadline, purpose);
            (timer, timers.next_deadline() == Some(deadline))
        })
    }

    /// Takes a timer back. False: it was fired, or is just being fired.
    pub(crate) fn remove(&self, timer: Timer) -> bool {
        self.change(|timers| timers.remove(timer)) || seeded_bug("wheel_removed_anyway")
    }

    /// Takes one timer out whose deadline is not after `now`. The caller fires it, without the lock.
    pub(crate) fn pop_expired(&self, now: u64) -> Option<P> {
        if self.next_deadline().is_none_or(|next| next > now) {
            return None;
        }
        self.change(|timers| timers.pop_expired(now))
    }

    /// Takes out the earliest timer with its deadline, due or not: for a worker that leaves.
    pub(crate) fn pop_any(&self) -> Option<(P, u64)> {
        self.change(|timers| {
            let deadline = timers.next_deadline()?;
            timers.pop_expired(deadline).map(|purpose| (purpose, deadline))
        })
    }

    /// What the timers in it are for, at this moment.
    pub(crate) fn purposes(&self) -> Vec<P> {
        if self.next_deadline().is_none() {
            return Vec::new();
        }
        self.timers.with(|timers| timers.purposes().collect())
    }

    fn change<R>(&self, f: impl FnOnce(&mut Timers<P>) -> R) -> R {
        self.timers.with(|timers| {
            let result = f(timers);
            // Relaxed: under the lock; for looks without it see the header.
            self.next.store(timers.next_deadline().unwrap_or(NEVER), Ordering::Relaxed);
            result
        })
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model {
    use super::*;
    use crate::prim::model::{check, thread};
    use crate::prim::sync::Arc;

    // S1-104, C-18: a scope ends and takes its deadline back while the rescuer fires what is due: one of the two has it, never both.
    #[test]
    fn model_removal_against_rescue() {
        check(3, || {
            let wheel = Arc::new(Wheel::<u32>::new());
            let (timer, earliest) = wheel.insert(5, 7);
            assert!(earliest);
            let rescuer = {
                let wheel = wheel.clone();
                thread::spawn(move || wheel.pop_expired(5))
            };
            let removed = wheel.remove(timer);
            let fired = rescuer.join().unwrap();
            let left = wheel.pop_expired(5);
            assert!(left.is_none() || !removed && fired.is_none());
            assert_eq!(u32::from(removed) + u32::from(fired.is_some()) + u32::from(left.is_some()), 1);
        });
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn deadlines_come_in_order_and_end_once() {
        let wheel = Wheel::<u32>::new();
        assert_eq!(wheel.next_deadline(), None);
        let (late, first) = wheel.insert(20, 2);
        assert!(first);
        let (early, first) = wheel.insert(10, 1);
        assert!(first);
        assert!(!wheel.insert(30, 3).1);
        assert_eq!(wheel.next_deadline(), Some(10));
        assert_eq!(wheel.pop_expired(9), None);
        assert!(wheel.remove(early) && !wheel.remove(early));
        assert_eq!(wheel.pop_expired(25), Some(2));
        assert!(!wheel.remove(late), "fired");
        assert_eq!(wheel.next_deadline(), Some(30));
    }
}
