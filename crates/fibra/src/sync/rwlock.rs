//! [`RwLock`]: many readers or one writer, in the order in which they came.
//!
//! Above: users. Below: `raw`, the lock itself; `guard`, what one holds; `arm`, both as arms of a select.

use std::cell::UnsafeCell;
use std::fmt;
use std::time::Duration;

use super::owner;
use crate::time::Instant;
use crate::wait::park;

mod arm;
mod guard;
pub(crate) mod raw;

pub use arm::{ReadArm, WriteArm};
pub use guard::{
    Anywhere, AsyncRwLockReadGuard, AsyncRwLockWriteGuard, Here, MappedRwLockReadGuard, MappedRwLockWriteGuard,
    RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard,
};
use raw::{RawRwLock, want};

/// A lock that many may hold for reading, or one for writing.
///
/// Waiters are served in the order in which they came: a writer that waits holds back the readers that come after it, so neither side
/// starves the other. There is no poisoning: a guard that is dropped by a panic lets go like any other. Fibers, threads and async code may
/// share one.
///
/// ```
/// use fibra::sync::RwLock;
///
/// fibra::run(|| {
///     let table = RwLock::new(vec![1, 2, 3]);
///     {
///         let (one, two) = (table.read(), table.read());
///         assert_eq!(one.len() + two.len(), 6);
///     }
///     table.write().push(4);
///     assert_eq!(*table.read(), [1, 2, 3, 4]);
/// });
/// ```
///
/// # Locking it again
///
/// A fiber (or thread) that locks it so that it would wait for itself panics, with a text that says so, where the lock knows: always if
/// it holds it for writing or as the upgradable reader; if it holds it for reading and wants to write (or to upgrade), as long as no other
/// reader has come or gone since it took it, because the lock remembers the last reader only. One that holds it for reading must
/// not lock it for reading again either: if a writer has come in between, the two wait for each other, and since the writer may give up
/// that is no error. [`read_recursive`](Self::read_recursive) is for that.
///
/// The guards of the async forms may go anywhere, so their holder is not known. A future that awaits a lock which the fiber that polls it
/// holds itself is reported once, on standard error: it may be that another part of the same future lets go.
///
/// # Upgrading
///
/// At most one holds it by [`upgradable_read`](Self::upgradable_read), beside any number of readers; it may become the writer without
/// another writer in between.
pub struct RwLock<T: ?Sized> {
    raw: RawRwLock,
    value: UnsafeCell<T>,
}

// SAFETY: it owns its value.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: sharing it hands out `&T` to many (Sync) and `&mut T` to one at a time (Send); `raw` keeps the two apart.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

impl<T> RwLock<T> {
    /// A lock around `value`, held by no fiber or thread.
    ///
    /// ```
    /// use fibra::sync::RwLock;
    /// static NAMES: RwLock<Vec<String>> = RwLock::new(Vec::new());
    /// NAMES.write().push("ada".to_owned());
    /// assert_eq!(NAMES.read().len(), 1);
    /// ```
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self { raw: RawRwLock::new(), value: UnsafeCell::new(value) }
    }

    /// As above, where atomics cannot be made by constant functions.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self { raw: RawRwLock::new(), value: UnsafeCell::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// The value: no guard of the lock can exist now.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// A pointer to the value, whether locked or not.
    pub fn data_ptr(&self) -> *mut T {
        self.value.get()
    }

    /// Is it held, for reading or for writing?
    #[must_use]
    pub fn is_locked(&self) -> bool {
        park::count_call();
        self.raw.is_locked()
    }

    /// Is it held for writing?
    #[must_use]
    pub fn is_locked_exclusive(&self) -> bool {
        park::count_call();
        self.raw.is_locked_for_writing()
    }

    // ---- Reading --------------------------------------------------------------------------------------------------------

    /// Locks it for reading, waiting until no writer holds it and none waits that came before.
    ///
    /// # Panics
    /// If this fiber or thread holds it for writing and would wait for itself.
    #[track_caller]
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let me = owner::me_calling();
        self.raw.take(want::READ);
        self.reading_as(me)
    }

    /// The guard of `me`, the current fiber or thread, which holds it for reading.
    #[inline(always)]
    fn reading_as(&self, me: usize) -> RwLockReadGuard<'_, T> {
        self.raw.note_reader(me);
        RwLockReadGuard::new(self)
    }

    /// Like [`read`](Self::read), but does not queue behind a writer that waits: for a caller that may hold it for reading already. Readers
    /// that do only this starve writers.
    ///
    /// ```
    /// let lock = fibra::sync::RwLock::new(1);
    /// let (outer, inner) = (lock.read(), lock.read_recursive());
    /// assert_eq!(*outer + *inner, 2);
    /// ```
    #[track_caller]
    pub fn read_recursive(&self) -> RwLockReadGuard<'_, T> {
        let me = owner::me_calling();
        if !self.raw.try_read_recursive() {
            self.raw.take(want::READ);
        }
        self.reading_as(me)
    }

    /// Like [`try_read`](Self::try_read), whether a writer waits or not.
    pub fn try_read_recursive(&self) -> Option<RwLockReadGuard<'_, T>> {
        let me = owner::me_calling();
        self.raw.try_read_recursive().then(|| self.reading_as(me))
    }

    /// Like [`read`](Self::read), as a future whose guard may go to another thread.
    ///
    /// ```
    /// let lock = fibra::sync::RwLock::new(1);
    /// fibra::block_on(async {
    ///     let guard = lock.read_async().await;
    ///     assert_eq!(*guard, 1);
    /// });
    /// ```
    pub async fn read_async(&self) -> AsyncRwLockReadGuard<'_, T> {
        self.raw.take_async(want::READ).await;
        RwLockReadGuard::new(self)
    }

    /// Locking it for reading, as an arm of [`select!`](crate::select): `on(lock.reading()) -> guard => ..`
    pub fn reading(&self) -> ReadArm<'_, T> {
        ReadArm::new(self)
    }

    // ---- Writing --------------------------------------------------------------------------------------------------------

    /// Locks it for writing, waiting until no other guard exists.
    ///
    /// # Panics
    /// If this fiber or thread holds it, and would wait for itself; see [Locking it again](Self#locking-it-again).
    ///
    /// ```should_panic
    /// let lock = fibra::sync::RwLock::new(1);
    /// let first = lock.read();
    /// let second = lock.write(); // a panic, not a hang
    /// ```
    #[track_caller]
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let me = owner::me_calling();
        self.raw.take(want::WRITE);
        self.writing_as(me)
    }

    /// The guard of `me`, the current fiber or thread, which holds it for writing.
    #[inline(always)]
    fn writing_as(&self, me: usize) -> RwLockWriteGuard<'_, T> {
        self.raw.note_owner(me);
        RwLockWriteGuard::new(self)
    }

    /// Like [`write`](Self::write), as a future whose guard may go to another thread.
    ///
    /// ```
    /// let lock = fibra::sync::RwLock::new(1);
    /// fibra::block_on(async {
    ///     *lock.write_async().await += 1;
    /// });
    /// assert_eq!(lock.into_inner(), 2);
    /// ```
    pub async fn write_async(&self) -> AsyncRwLockWriteGuard<'_, T> {
        self.raw.take_async(want::WRITE).await;
        RwLockWriteGuard::new(self)
    }

    /// Locking it for writing, as an arm of [`select!`](crate::select): `on(lock.writing()) -> guard => ..`
    ///
    /// ```
    /// let lock = fibra::sync::RwLock::new(1);
    /// fibra::select! {
    ///     on(lock.writing()) -> mut guard => *guard += 1,
    /// }
    /// assert_eq!(*lock.read(), 2);
    /// ```
    pub fn writing(&self) -> WriteArm<'_, T> {
        WriteArm::new(self)
    }

    // ---- Upgradable -----------------------------------------------------------------------------------------------------

    /// Locks it for reading by the one reader that may become a writer.
    ///
    /// # Panics
    /// If this fiber or thread holds it so already, or for writing, and would wait for itself.
    ///
    /// ```
    /// use fibra::sync::{RwLock, RwLockUpgradableReadGuard};
    ///
    /// let lock = RwLock::new(vec![1]);
    /// let reading = lock.upgradable_read();
    /// if !reading.contains(&2) {
    ///     let mut writing = RwLockUpgradableReadGuard::upgrade(reading);
    ///     writing.push(2); // no other writer has been here since we looked
    /// }
    /// assert_eq!(*lock.read(), [1, 2]);
    /// ```
    #[track_caller]
    pub fn upgradable_read(&self) -> RwLockUpgradableReadGuard<'_, T> {
        let me = owner::me_calling();
        self.raw.take(want::UPGRADABLE);
        self.upgradable_as(me)
    }

    /// The guard of `me`, the current fiber or thread, which holds it for upgradable reading.
    #[inline(always)]
    fn upgradable_as(&self, me: usize) -> RwLockUpgradableReadGuard<'_, T> {
        self.raw.note_owner(me);
        RwLockUpgradableReadGuard::new(self)
    }
}

/// The forms of locking that do not wait, or not for ever, for one of the three ways to hold the lock.
macro_rules! forms {
    (
        $mode:literal, $want:expr, $holding_as:ident -> $guard:ident,
        $(#[$on_try:meta])* $try_now:ident, $try_for:ident, $try_until:ident $(, $timeout:ident, $deadline:ident)?
    ) => {
        impl<T: ?Sized> RwLock<T> {
            $(#[$on_try])*
            #[inline]
            pub fn $try_now(&self) -> Option<$guard<'_, T>> {
                let me = owner::me_calling();
                self.raw.try_take($want).then(|| self.$holding_as(me))
            }

            #[doc = concat!("Locks it for ", $mode, ", waiting for at most `timeout`.")]
            #[track_caller]
            pub fn $try_for(&self, timeout: Duration) -> Option<$guard<'_, T>> {
                self.$try_until(Instant::after(timeout))
            }

            #[doc = concat!("Locks it for ", $mode, ", waiting until `deadline` at most.")]
            #[track_caller]
            pub fn $try_until(&self, deadline: impl Into<Instant>) -> Option<$guard<'_, T>> {
                let me = owner::me_calling();
                self.raw.take_by($want, deadline.into().as_nanos()).then(|| self.$holding_as(me))
            }

            $(
                #[doc = concat!("The same as [`", stringify!($try_for), "`](Self::", stringify!($try_for), "), under")]
                /// the name that other blocking calls have for it.
                #[track_caller]
                pub fn $timeout(&self, timeout: Duration) -> Option<$guard<'_, T>> {
                    self.$try_for(timeout)
                }

                #[doc = concat!("The same as [`", stringify!($try_until), "`](Self::", stringify!($try_until), "),")]
                /// under the name that other blocking calls have for it.
                #[track_caller]
                pub fn $deadline(&self, deadline: impl Into<Instant>) -> Option<$guard<'_, T>> {
                    self.$try_until(deadline)
                }
            )?
        }
    };
}

forms! {
    "reading", want::READ, reading_as -> RwLockReadGuard,
    /// Locks it for reading if that is possible now and no waiter is in the queue.
    ///
    /// ```
    /// let lock = fibra::sync::RwLock::new(1);
    /// let writing = lock.write();
    /// assert!(lock.try_read().is_none());
    /// drop(writing);
    /// assert_eq!(*lock.try_read().unwrap(), 1);
    /// ```
    try_read, try_read_for, try_read_until, read_timeout, read_deadline
}
forms! {
    "writing", want::WRITE, writing_as -> RwLockWriteGuard,
    /// Locks it for writing if that is possible now.
    try_write, try_write_for, try_write_until, write_timeout, write_deadline
}
forms! {
    "upgradable reading", want::UPGRADABLE, upgradable_as -> RwLockUpgradableReadGuard,
    /// Locks it for upgradable reading if that is possible now and no waiter is in the queue.
    try_upgradable_read, try_upgradable_read_for, try_upgradable_read_until
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

/// Shows the value if it can be read now.
impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // (Not `try_read_recursive`, which may let others run.)
        match self.raw.try_read_recursive().then(|| self.reading_as(owner::me())) {
            Some(value) => f.debug_struct("RwLock").field("value", &&*value).finish(),
            None => f.debug_struct("RwLock").field("value", &format_args!("<locked>")).finish(),
        }
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
