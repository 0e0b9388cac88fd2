//! Locking as an arm of a select: whoever wins by it holds the lock.

use std::cell::Cell;
use std::fmt;
use std::panic::Location;

use super::raw::MutexRules;
use super::{Mutex, MutexGuard};
use crate::select::case::Case;
use crate::select::{Arm, sealed};
use crate::sync::gate::GateWait;
use crate::sync::owner;
use crate::waiter::node::Outcome;

/// Locking, as an arm; see [`Mutex::locking`]. If it wins and nobody asks for the guard, the mutex is unlocked again.
pub struct LockArm<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    wait: GateWait<'a, MutexRules>,
    told: Cell<Outcome>,
    site: &'static Location<'static>,
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
        LockArm { mutex: self, wait: self.raw.arm(), told: Cell::new(Outcome::Pending), site: Location::caller() }
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
        Case::object(&self.wait, &self.told)
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
