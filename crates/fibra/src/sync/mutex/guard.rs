//! Guards: a guard stands for the held lock, and dropping it lets the lock go. Above: users, `Condvar`. Below: `raw`.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use super::Mutex;
use super::raw::RawMutex;

/// Not `Send`: the lock is let go by the fiber or thread that took it.
type StaysHere = PhantomData<*const ()>;

/// The right to use what a [`Mutex`] guards; from [`Mutex::lock`]. It stays with its fiber.
#[must_use = "the mutex is unlocked when the guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    stays: StaysHere,
}

// SAFETY: a shared guard gives shared access to the value, and nothing else.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// # Safety
    /// The current fiber or thread has locked the mutex, and makes only this guard for it.
    #[inline(always)]
    pub(in crate::sync) unsafe fn new(mutex: &'a Mutex<T>) -> Self {
        Self { mutex, stays: PhantomData }
    }

    /// The mutex it belongs to.
    pub fn mutex(this: &Self) -> &'a Mutex<T> {
        this.mutex
    }

    /// A guard of a part of the value.
    ///
    /// ```
    /// use fibra::sync::{Mutex, MutexGuard};
    ///
    /// let mutex = Mutex::new((1, "one".to_owned()));
    /// let mut name = MutexGuard::map(mutex.lock(), |both| &mut both.1);
    /// name.push('!');
    /// drop(name);
    /// assert_eq!(mutex.into_inner().1, "one!");
    /// ```
    pub fn map<U: ?Sized>(this: Self, part: impl FnOnce(&mut T) -> &mut U) -> MappedMutexGuard<'a, U> {
        // If `part` panics, `this` unlocks.
        // SAFETY: the lock is held for as long as `this` or what becomes of it lives.
        let value: *mut U = part(unsafe { &mut *this.mutex.data_ptr() });
        let this = ManuallyDrop::new(this);
        MappedMutexGuard { raw: this.mutex.raw(), value, stays: PhantomData, borrows: PhantomData }
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.mutex.data_ptr() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and the guard borrowed mutably.
        unsafe { &mut *self.mutex.data_ptr() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.mutex.raw().unlock();
    }
}

/// The right to use a part of what a [`Mutex`] guards; from [`MutexGuard::map`].
#[must_use = "the mutex is unlocked when the guard is dropped"]
pub struct MappedMutexGuard<'a, T: ?Sized> {
    raw: &'a RawMutex,
    value: *mut T,
    stays: StaysHere,
    borrows: PhantomData<&'a mut T>,
}

// SAFETY: a shared guard gives shared access to the value, and nothing else.
unsafe impl<T: ?Sized + Sync> Sync for MappedMutexGuard<'_, T> {}

impl<'a, T: ?Sized> MappedMutexGuard<'a, T> {
    /// A guard of a part of that.
    pub fn map<U: ?Sized>(this: Self, part: impl FnOnce(&mut T) -> &mut U) -> MappedMutexGuard<'a, U> {
        // SAFETY: the lock is held for as long as `this` or what becomes of it lives.
        let value: *mut U = part(unsafe { &mut *this.value });
        let this = ManuallyDrop::new(this);
        MappedMutexGuard { raw: this.raw, value, stays: PhantomData, borrows: PhantomData }
    }
}

impl<T: ?Sized> Deref for MappedMutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.value }
    }
}

impl<T: ?Sized> DerefMut for MappedMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and the guard borrowed mutably.
        unsafe { &mut *self.value }
    }
}

impl<T: ?Sized> Drop for MappedMutexGuard<'_, T> {
    fn drop(&mut self) {
        self.raw.unlock();
    }
}

/// The right to use what a [`Mutex`] guards; from [`Mutex::lock_async`]. It may move between threads and fibers, so it belongs to none in
/// particular: a holder that locks the mutex again waits for ever.
#[must_use = "the mutex is unlocked when the guard is dropped"]
pub struct AsyncMutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    borrows: PhantomData<&'a mut T>,
}

impl<'a, T: ?Sized> AsyncMutexGuard<'a, T> {
    /// # Safety
    /// The mutex was locked for this guard alone, without the name of a holder.
    pub(in crate::sync) unsafe fn new(mutex: &'a Mutex<T>) -> Self {
        Self { mutex, borrows: PhantomData }
    }

    /// The mutex it belongs to.
    pub fn mutex(this: &Self) -> &'a Mutex<T> {
        this.mutex
    }
}

impl<T: ?Sized> Deref for AsyncMutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.mutex.data_ptr() }
    }
}

impl<T: ?Sized> DerefMut for AsyncMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and the guard borrowed mutably.
        unsafe { &mut *self.mutex.data_ptr() }
    }
}

impl<T: ?Sized> Drop for AsyncMutexGuard<'_, T> {
    fn drop(&mut self) {
        self.mutex.raw().unlock();
    }
}

macro_rules! shown {
    ($($guard:ident),+) => {$(
        impl<T: ?Sized + fmt::Debug> fmt::Debug for $guard<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&**self, f)
            }
        }
        impl<T: ?Sized + fmt::Display> fmt::Display for $guard<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&**self, f)
            }
        }
    )+};
}
shown!(MutexGuard, MappedMutexGuard, AsyncMutexGuard);
