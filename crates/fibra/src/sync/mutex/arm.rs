//! Locking as an arm of a select: whoever wins by it holds the lock.

use std::cell::Cell;
use std::fmt;
use std::panic::Location;

use super::{Mutex, MutexGuard};
use crate::select::case::{Case, Single};
use crate::select::{Arm, sealed};
use crate::sync::gate::GateArm;
use crate::sync::owner::{self, SOMEBODY};
use crate::wait::node::{Node, Outcome, WaiterRef};
use crate::wait::word::{Arm as ArmNumber, Ticket};
use std::task::Waker;

/// Locking, as an arm; see [`Mutex::locking`]. If it wins and nobody asks for the guard, the mutex is unlocked again.
pub struct LockArm<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    wants: Wants<'a>,
    told: Cell<Outcome>,
    site: &'static Location<'static>,
}

/// What the engine sees of it.
struct Wants<'a>(&'a super::RawMutex);

impl Wants<'_> {
    fn arm(&self) -> GateArm<'_, super::raw::MutexRules> {
        // An arm is handed the lock whenever it is the head: since when it waits plays no part.
        GateArm { gate: self.0.gate(), want: 0 }
    }
}

impl Single for Wants<'_> {
    fn try_complete(&self) -> bool {
        // Without the gate's lock.
        self.0.try_lock(SOMEBODY)
    }
    fn publish(&self, node: &Node, waiter: WaiterRef, ticket: Ticket, arm: ArmNumber) -> bool {
        self.arm().publish(node, waiter, ticket, arm)
    }
    fn unpublish(&self, node: &Node, owed: &mut Vec<Waker>) {
        self.arm().unpublish(node, owed);
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locking it, as an arm of [`select!`](crate::select): `on(mutex.locking())`, or `lock(mutex)` for short.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let mutex = fibra::sync::Mutex::new(1);
    /// fibra::select! {
    ///     on(mutex.locking()) -> mut guard => *guard += 1,
    ///     after(Duration::from_secs(1)) => panic!("nobody holds it"),
    /// }
    /// assert_eq!(mutex.into_inner(), 2);
    /// ```
    #[track_caller]
    pub fn locking(&self) -> LockArm<'_, T> {
        LockArm { mutex: self, wants: Wants(&self.raw), told: Cell::new(Outcome::Pending), site: Location::caller() }
    }
}

impl<T: ?Sized> LockArm<'_, T> {
    /// Forgets whether it has won. True: it had, and the lock is held for it.
    fn take(&self) -> bool {
        self.told.replace(Outcome::Pending) == Outcome::Done
    }
}

impl<T: ?Sized> sealed::Sealed for LockArm<'_, T> {
    fn case(&mut self) -> Case<'_> {
        if self.take() {
            self.mutex.raw.unlock();
        }
        // The others are not worth waiting for: whoever holds this one in a select over it has made a mistake.
        self.mutex.refuse_own(owner::me(), self.site);
        Case::single(&self.wants, &self.told)
    }
}

impl<'a, T: ?Sized> Arm for LockArm<'a, T> {
    type Output = MutexGuard<'a, T>;

    fn finish(&mut self) -> MutexGuard<'a, T> {
        assert!(self.take(), "fibra: the result of an arm that did not win");
        self.mutex.raw.adopt(owner::me());
        // SAFETY: it was locked for this arm, which has forgotten it.
        unsafe { MutexGuard::new(self.mutex) }
    }
}

impl<T: ?Sized> Drop for LockArm<'_, T> {
    fn drop(&mut self) {
        if self.take() {
            self.mutex.raw.unlock();
        }
    }
}

impl<T: ?Sized> fmt::Debug for LockArm<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockArm").field("mutex", &self.mutex.raw).finish_non_exhaustive()
    }
}
