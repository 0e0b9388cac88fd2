//! A fiber that ends, and the next of a set to end, as arms.

use std::cell::Cell;
use std::fmt;

use super::arm::{Arm, sealed};
use super::case::Case;
use crate::task::join_set::take_result;
use crate::task::{JoinError, JoinHandle, JoinNext, JoinWait};
use crate::waiter::node::Outcome;

/// Waits for a fiber to end; takes nothing. (`select!` then joins it, which does not wait any more.)
pub struct JoinArm<'a, T> {
    handle: &'a JoinHandle<T>,
    end: JoinWait<false>,
    told: Cell<Outcome>,
}

impl<'a, T> JoinArm<'a, T> {
    pub(super) fn new(handle: &'a JoinHandle<T>) -> Self {
        Self { handle, end: handle.end(), told: Cell::new(Outcome::Pending) }
    }
}

impl<T> sealed::Sealed for JoinArm<'_, T> {
    fn case(&mut self) -> Case<'_> {
        Case::object(&self.end, &self.told)
    }
}

impl<T> Arm for JoinArm<'_, T> {
    type Output = ();
    fn finish(&mut self) {}
}

impl<T> fmt::Debug for JoinArm<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JoinArm").field(self.handle).finish()
    }
}

impl<T> sealed::Sealed for JoinNext<'_, T> {
    fn case(&mut self) -> Case<'_> {
        Case::object(&*self.members, &self.told)
    }
}

impl<T> Arm for JoinNext<'_, T> {
    type Output = Option<Result<T, JoinError>>;

    fn finish(&mut self) -> Self::Output {
        take_result(self.members)
    }
}
