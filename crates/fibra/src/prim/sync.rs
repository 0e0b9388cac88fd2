//! Locks that block the OS thread: for cold paths, the blocking pool and the parking of plain threads. No poisoning: a
//! panic under one of these locks is a bug in fibra, and the data they guard stays consistent between statements.

#[cfg(loom)]
use loom::sync as imp;
#[cfg(all(shuttle, not(loom)))]
use shuttle::sync as imp;
#[cfg(not(any(loom, shuttle)))]
use std::sync as imp;

#[allow(clippy::disallowed_types)] // This is the facade the lint points to.
mod wrapped {
    use super::imp;
    use std::time::Duration;

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(imp::Mutex<T>);
    pub(crate) type MutexGuard<'a, T> = imp::MutexGuard<'a, T>;

    impl<T> Mutex<T> {
        #[cfg(not(loom))]
        pub(crate) const fn new(value: T) -> Self {
            Self(imp::Mutex::new(value))
        }
        #[cfg(loom)]
        pub(crate) fn new(value: T) -> Self {
            Self(imp::Mutex::new(value))
        }

        pub(crate) fn into_inner(self) -> T {
            match self.0.into_inner() {
                Ok(value) => value,
                Err(poisoned) => poisoned.into_inner(),
            }
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            match self.0.lock() {
                Ok(guard) => guard,
                Err(poisoned) => poisoned.into_inner(),
            }
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(imp::Condvar);

    impl Condvar {
        #[cfg(not(loom))]
        pub(crate) const fn new() -> Self {
            Self(imp::Condvar::new())
        }
        #[cfg(loom)]
        pub(crate) fn new() -> Self {
            Self(imp::Condvar::new())
        }

        pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            match self.0.wait(guard) {
                Ok(guard) => guard,
                Err(poisoned) => poisoned.into_inner(),
            }
        }

        /// Waits until notified or until `timeout` has passed; the caller looks at its condition and at the clock itself.
        pub(crate) fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, timeout: Duration) -> MutexGuard<'a, T> {
            #[cfg(loom)]
            {
                // loom has no time: a timed wait may end at any moment, which is what the models want to explore.
                let _ = timeout;
                drop(guard);
                unreachable!("models use explicit time-outs instead of timed waits");
            }
            #[cfg(not(loom))]
            match self.0.wait_timeout(guard, super::super::policy::patient(timeout)) {
                Ok((guard, _)) => guard,
                Err(poisoned) => poisoned.into_inner().0,
            }
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

#[cfg(loom)]
pub(crate) use loom::sync::Arc;
#[cfg(not(loom))]
pub(crate) use std::sync::Arc;
pub(crate) use wrapped::{Condvar, Mutex, MutexGuard};
