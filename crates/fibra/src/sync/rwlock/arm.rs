//! Locking a [`RwLock`], as an arm of a select: whoever wins has the lock.

use std::cell::Cell;
use std::fmt;

use super::guard::{RwLockReadGuard, RwLockWriteGuard};
use super::raw::{RwRules, want};
use super::{RwLock, raw};
use crate::select::case::Case;
use crate::select::{Arm, sealed};
use crate::sync::gate::GateWait;
use crate::sync::owner;
use crate::waiter::node::Outcome;

macro_rules! arm {
    ($(#[$doc:meta])* $arm:ident, $guard:ident, $want:expr, $end:ident, $noted:expr) => {
        $(#[$doc])*
        pub struct $arm<'a, T: ?Sized> {
            lock: &'a RwLock<T>,
            wait: GateWait<'a, RwRules>,
            told: Cell<Outcome>,
        }

        impl<'a, T: ?Sized> $arm<'a, T> {
            pub(super) fn new(lock: &'a RwLock<T>) -> Self {
                Self { lock, wait: lock.raw.gate().arm($want), told: Cell::new(Outcome::Pending) }
            }

            /// Lets go of what was won and not asked for.
            fn clear(&self) {
                if self.told.replace(Outcome::Pending) == Outcome::Done {
                    self.lock.raw.$end();
                }
            }
        }

        impl<T: ?Sized> sealed::Sealed for $arm<'_, T> {
            fn case(&mut self) -> Case<'_> {
                self.clear();
                self.lock.raw.refuse_arm($want);
                Case::object(&self.wait, &self.told)
            }
        }

        impl<'a, T: ?Sized> Arm for $arm<'a, T> {
            type Output = $guard<'a, T>;

            fn finish(&mut self) -> Self::Output {
                let told = self.told.replace(Outcome::Pending);
                assert_eq!(told, Outcome::Done, "fibra: the result of an arm that did not win");
                let noted: fn(&raw::RawRwLock) = $noted;
                noted(&self.lock.raw);
                $guard::new(self.lock)
            }
        }

        impl<T: ?Sized> Drop for $arm<'_, T> {
            fn drop(&mut self) {
                self.clear();
            }
        }

        impl<T: ?Sized> fmt::Debug for $arm<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($arm)).finish_non_exhaustive()
            }
        }
    };
}

arm!(
    /// Locking for reading, as an arm; see [`RwLock::reading`].
    ReadArm, RwLockReadGuard, want::READ, end_read, |raw| raw.note_reader(owner::me())
);
arm!(
    /// Locking for writing, as an arm; see [`RwLock::writing`].
    WriteArm, RwLockWriteGuard, want::WRITE, end_write, |raw| raw.note_owner(owner::me())
);
