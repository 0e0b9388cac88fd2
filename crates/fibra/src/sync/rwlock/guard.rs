//! Guards of a [`RwLock`], and guards of a part of the value.
//!
//! Each exists while the lock is held as it says, and lets go when it is dropped: that is what makes its references valid. The guard of a
//! fiber or a thread belongs to that one ([`Here`]): it cannot be sent, since the lock knows its holder by name. The guard of a future may
//! go anywhere ([`Anywhere`]). Above: users. Below: `raw`.

use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::time::Duration;

use super::RwLock;
use super::raw::{RawRwLock, want};
use crate::time::Instant;
use crate::wait::park;

/// Marks a guard that stays with the fiber or thread that has it.
#[derive(Debug)]
pub struct Here(PhantomData<*const ()>);

// SAFETY: it holds nothing; the pointer is there to keep it from being `Send`, and looking at a guard from elsewhere does no harm.
unsafe impl Sync for Here {}

/// Marks a guard that may be sent.
#[derive(Debug)]
pub struct Anywhere(());

/// Holds a [`RwLock`] for reading.
#[must_use = "dropped at once, it unlocks at once"]
#[clippy::has_significant_drop]
pub struct RwLockReadGuard<'a, T: ?Sized, H = Here> {
    lock: &'a RwLock<T>,
    holder: PhantomData<H>,
}

/// Holds a [`RwLock`] for writing.
#[must_use = "dropped at once, it unlocks at once"]
#[clippy::has_significant_drop]
pub struct RwLockWriteGuard<'a, T: ?Sized, H = Here> {
    lock: &'a RwLock<T>,
    holder: PhantomData<H>,
}

/// Holds a [`RwLock`] for reading, as the one that may become the writer.
#[must_use = "dropped at once, it unlocks at once"]
#[clippy::has_significant_drop]
pub struct RwLockUpgradableReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    holder: PhantomData<Here>,
}

/// Holds a [`RwLock`] for reading, and shows a part of its value.
#[must_use = "dropped at once, it unlocks at once"]
#[clippy::has_significant_drop]
pub struct MappedRwLockReadGuard<'a, T: ?Sized, H = Here> {
    raw: &'a RawRwLock,
    part: NonNull<T>,
    holder: PhantomData<(&'a T, H)>,
}

/// Holds a [`RwLock`] for writing, and shows a part of its value.
#[must_use = "dropped at once, it unlocks at once"]
#[clippy::has_significant_drop]
pub struct MappedRwLockWriteGuard<'a, T: ?Sized, H = Here> {
    raw: &'a RawRwLock,
    part: NonNull<T>,
    holder: PhantomData<(&'a mut T, H)>,
}

// SAFETY: like a `&T` and a marker, which says whether it may be sent.
unsafe impl<T: ?Sized + Sync, H: Send> Send for MappedRwLockReadGuard<'_, T, H> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync, H: Sync> Sync for MappedRwLockReadGuard<'_, T, H> {}
// SAFETY: like a `&mut T` and a marker, which says whether it may be sent.
unsafe impl<T: ?Sized + Send, H: Send> Send for MappedRwLockWriteGuard<'_, T, H> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync, H: Sync> Sync for MappedRwLockWriteGuard<'_, T, H> {}

/// Holds a [`RwLock`] for reading, and may be sent; from [`RwLock::read_async`].
pub type AsyncRwLockReadGuard<'a, T> = RwLockReadGuard<'a, T, Anywhere>;
/// Holds a [`RwLock`] for writing, and may be sent; from [`RwLock::write_async`].
pub type AsyncRwLockWriteGuard<'a, T> = RwLockWriteGuard<'a, T, Anywhere>;

macro_rules! guard {
    ($guard:ident $(, $holder:ident)? : $end:ident) => {
        impl<'a, T: ?Sized $(, $holder)?> $guard<'a, T $(, $holder)?> {
            /// The caller holds the lock in this way, and leaves it to this guard.
            #[inline(always)]
            pub(super) fn new(lock: &'a RwLock<T>) -> Self {
                Self { lock, holder: PhantomData }
            }

            /// The lock that it holds.
            #[must_use]
            pub fn rwlock(guard: &Self) -> &'a RwLock<T> {
                guard.lock
            }

            /// The lock, which stays held.
            fn into_lock(guard: Self) -> &'a RwLock<T> {
                mem::ManuallyDrop::new(guard).lock
            }
        }

        impl<T: ?Sized $(, $holder)?> Deref for $guard<'_, T $(, $holder)?> {
            type Target = T;
            #[inline(always)]
            fn deref(&self) -> &T {
                // SAFETY: the lock is held for as long as the guard lives, so no other guard has exclusive access to the value.
                unsafe { &*self.lock.value.get() }
            }
        }

        impl<T: ?Sized $(, $holder)?> Drop for $guard<'_, T $(, $holder)?> {
            #[inline]
            fn drop(&mut self) {
                self.lock.raw.$end();
            }
        }

        show!($guard $(, $holder)?);
    };
}

macro_rules! show {
    ($guard:ident $(, $holder:ident)?) => {
        impl<T: ?Sized + fmt::Debug $(, $holder)?> fmt::Debug for $guard<'_, T $(, $holder)?> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }

        impl<T: ?Sized + fmt::Display $(, $holder)?> fmt::Display for $guard<'_, T $(, $holder)?> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }
    };
}

guard!(RwLockReadGuard, H: end_read);
guard!(RwLockWriteGuard, H: end_write);
guard!(RwLockUpgradableReadGuard: end_upgradable);
show!(MappedRwLockReadGuard, H);
show!(MappedRwLockWriteGuard, H);

impl<T: ?Sized, H> DerefMut for RwLockWriteGuard<'_, T, H> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: held for writing for as long as the guard lives: no other guard exists.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<'a, T: ?Sized, H> RwLockReadGuard<'a, T, H> {
    /// A guard that shows only a part of the value.
    ///
    /// ```
    /// use fibra::sync::{RwLock, RwLockReadGuard};
    /// let lock = RwLock::new((1, "one".to_owned()));
    /// let name = RwLockReadGuard::map(lock.read(), |pair| pair.1.as_str());
    /// assert_eq!(&*name, "one");
    /// ```
    pub fn map<U: ?Sized>(guard: Self, part: impl FnOnce(&T) -> &U) -> MappedRwLockReadGuard<'a, U, H> {
        let part = NonNull::from(part(&*guard));
        MappedRwLockReadGuard { raw: &Self::into_lock(guard).raw, part, holder: PhantomData }
    }

    /// Like [`map`](Self::map), if there is such a part.
    ///
    /// # Errors
    /// The guard, if there is not.
    pub fn try_map<U: ?Sized>(
        guard: Self,
        part: impl FnOnce(&T) -> Option<&U>,
    ) -> Result<MappedRwLockReadGuard<'a, U, H>, Self> {
        match part(&*guard).map(NonNull::from) {
            None => Err(guard),
            Some(part) => Ok(MappedRwLockReadGuard { raw: &Self::into_lock(guard).raw, part, holder: PhantomData }),
        }
    }
}

impl<'a, T: ?Sized, H> RwLockWriteGuard<'a, T, H> {
    /// A guard that shows only a part of the value.
    ///
    /// ```
    /// use fibra::sync::{RwLock, RwLockWriteGuard};
    /// let lock = RwLock::new((1, 2));
    /// *RwLockWriteGuard::map(lock.write(), |pair| &mut pair.1) += 1;
    /// assert_eq!(*lock.read(), (1, 3));
    /// ```
    pub fn map<U: ?Sized>(mut guard: Self, part: impl FnOnce(&mut T) -> &mut U) -> MappedRwLockWriteGuard<'a, U, H> {
        let part = NonNull::from(part(&mut *guard));
        MappedRwLockWriteGuard { raw: &Self::into_lock(guard).raw, part, holder: PhantomData }
    }

    /// Like [`map`](Self::map), if there is such a part.
    ///
    /// # Errors
    /// The guard, if there is not.
    pub fn try_map<U: ?Sized>(
        mut guard: Self,
        part: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedRwLockWriteGuard<'a, U, H>, Self> {
        match part(&mut *guard).map(NonNull::from) {
            None => Err(guard),
            Some(part) => Ok(MappedRwLockWriteGuard { raw: &Self::into_lock(guard).raw, part, holder: PhantomData }),
        }
    }

    /// From writing to reading, without another writer in between.
    ///
    /// ```
    /// use fibra::sync::{RwLock, RwLockWriteGuard};
    /// let lock = RwLock::new(1);
    /// let reading = RwLockWriteGuard::downgrade(lock.write());
    /// assert_eq!(*reading + *lock.read(), 2);
    /// ```
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, T, H> {
        let lock = Self::into_lock(guard);
        lock.raw.downgrade();
        RwLockReadGuard::new(lock)
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// From writing to upgradable reading, without another writer in between.
    pub fn downgrade_to_upgradable(guard: Self) -> RwLockUpgradableReadGuard<'a, T> {
        let lock = Self::into_lock(guard);
        lock.raw.downgrade_to_upgradable();
        RwLockUpgradableReadGuard::new(lock)
    }
}

impl<'a, T: ?Sized> RwLockUpgradableReadGuard<'a, T> {
    fn upgraded(guard: Self) -> RwLockWriteGuard<'a, T> {
        RwLockWriteGuard::new(Self::into_lock(guard))
    }

    /// Becomes the writer, waiting until the other readers are gone; no new ones come in meanwhile, and no other writer in between. If
    /// cancelled, it lets go.
    ///
    /// # Panics
    /// If this fiber or thread holds the lock for reading besides, and would wait for itself; see
    /// [Locking it again](RwLock#locking-it-again).
    #[track_caller]
    pub fn upgrade(guard: Self) -> RwLockWriteGuard<'a, T> {
        park::count_call();
        if !guard.lock.raw.try_upgrade() {
            guard.lock.raw.wait(want::UPGRADE, None);
        }
        Self::upgraded(guard)
    }

    /// Becomes the writer if there are no other readers now.
    ///
    /// # Errors
    /// The guard as it was, if there are.
    ///
    /// ```
    /// use fibra::sync::{RwLock, RwLockUpgradableReadGuard};
    /// let lock = RwLock::new(1);
    /// let other = lock.read();
    /// let mine = RwLockUpgradableReadGuard::try_upgrade(lock.upgradable_read()).unwrap_err();
    /// drop(other);
    /// *RwLockUpgradableReadGuard::try_upgrade(mine).unwrap() += 1;
    /// ```
    pub fn try_upgrade(guard: Self) -> Result<RwLockWriteGuard<'a, T>, Self> {
        park::count_call();
        if guard.lock.raw.try_upgrade() { Ok(Self::upgraded(guard)) } else { Err(guard) }
    }

    /// Becomes the writer, waiting for at most `timeout`.
    ///
    /// # Errors
    /// The guard as it was, if time was up first.
    #[track_caller]
    pub fn try_upgrade_for(guard: Self, timeout: Duration) -> Result<RwLockWriteGuard<'a, T>, Self> {
        Self::try_upgrade_until(guard, Instant::after(timeout))
    }

    /// Becomes the writer, waiting until `deadline` at most.
    ///
    /// # Errors
    /// The guard as it was, if time was up first.
    #[track_caller]
    pub fn try_upgrade_until(guard: Self, deadline: impl Into<Instant>) -> Result<RwLockWriteGuard<'a, T>, Self> {
        park::count_call();
        let raw = &guard.lock.raw;
        let upgraded = raw.try_upgrade() || raw.wait(want::UPGRADE, Some(deadline.into().as_nanos()));
        if upgraded { Ok(Self::upgraded(guard)) } else { Err(guard) }
    }

    /// Becomes a reader like any other.
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, T> {
        let lock = Self::into_lock(guard);
        lock.raw.downgrade_upgradable();
        RwLockReadGuard::new(lock)
    }
}

// ---- Parts ------------------------------------------------------------------------------------------------------------------

impl<T: ?Sized, H> Deref for MappedRwLockReadGuard<'_, T, H> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: it points into the value, which is locked for reading for as long as this lives.
        unsafe { self.part.as_ref() }
    }
}

impl<T: ?Sized, H> Drop for MappedRwLockReadGuard<'_, T, H> {
    fn drop(&mut self) {
        self.raw.end_read();
    }
}

impl<'a, T: ?Sized, H> MappedRwLockReadGuard<'a, T, H> {
    /// A guard that shows only a part of that.
    pub fn map<U: ?Sized>(guard: Self, part: impl FnOnce(&T) -> &U) -> MappedRwLockReadGuard<'a, U, H> {
        let part = NonNull::from(part(&*guard));
        let raw = mem::ManuallyDrop::new(guard).raw;
        MappedRwLockReadGuard { raw, part, holder: PhantomData }
    }
}

impl<T: ?Sized, H> Deref for MappedRwLockWriteGuard<'_, T, H> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: it points into the value, which is locked for writing for as long as this lives.
        unsafe { self.part.as_ref() }
    }
}

impl<T: ?Sized, H> DerefMut for MappedRwLockWriteGuard<'_, T, H> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and this guard is the only way to it.
        unsafe { self.part.as_mut() }
    }
}

impl<T: ?Sized, H> Drop for MappedRwLockWriteGuard<'_, T, H> {
    fn drop(&mut self) {
        self.raw.end_write();
    }
}

impl<'a, T: ?Sized, H> MappedRwLockWriteGuard<'a, T, H> {
    /// A guard that shows only a part of that.
    pub fn map<U: ?Sized>(mut guard: Self, part: impl FnOnce(&mut T) -> &mut U) -> MappedRwLockWriteGuard<'a, U, H> {
        let part = NonNull::from(part(&mut *guard));
        let raw = mem::ManuallyDrop::new(guard).raw;
        MappedRwLockWriteGuard { raw, part, holder: PhantomData }
    }
}
