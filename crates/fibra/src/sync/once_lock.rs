//! [`OnceLock`] and [`LazyLock`]: a value that is made once. Above: users. Below: `once`, which says who may make it, and from when on it
//! is there for everybody.

use std::fmt;
use std::mem::MaybeUninit;

use super::once::Once;
use super::turns::TurnFuture;
use crate::prim::cell::UnsafeCell;

/// A value that is set once. Like [`std::sync::OnceLock`], but waiting for whoever makes it parks the fiber, and making it may wait too.
///
/// If making it fails (it panics, the fiber is cancelled, the future is dropped), it is not set, and the next one makes it.
///
/// ```
/// use fibra::sync::OnceLock;
/// static CONFIG: OnceLock<String> = OnceLock::new();
/// assert_eq!(CONFIG.get(), None);
/// assert_eq!(CONFIG.get_or_init(|| "made once".to_owned()), "made once");
/// assert_eq!(CONFIG.set("too late".to_owned()), Err("too late".to_owned()));
/// ```
pub struct OnceLock<T> {
    once: Once,
    /// Written by whoever runs; there if complete.
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: one writes the value before it is complete, and all read it afterwards (`Sync`); who wrote it need not be who drops it (`Send`).
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}
// SAFETY: it owns its value.
unsafe impl<T: Send> Send for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// Without a value.
    #[must_use]
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { once: Once::new(), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// As above, where atomics cannot be made by constant functions.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { once: Once::new(), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    #[cfg(all(test, any(loom, shuttle)))]
    pub(super) fn once(&self) -> &Once {
        &self.once
    }

    /// The value.
    ///
    /// # Safety
    /// It is complete.
    #[inline(always)]
    unsafe fn there(&self) -> &T {
        // SAFETY: complete: it was written, before whoever found out, and nobody writes any more while this is shared.
        self.value.with(|value| unsafe { (*value).assume_init_ref() })
    }

    /// The value, if it is set.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: complete.
        self.once.is_completed().then(|| unsafe { self.there() })
    }

    /// The value, if it is set.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        // SAFETY: complete, and we have it for ourselves.
        self.once.is_complete().then(|| self.value.with_mut(|value| unsafe { (*value).assume_init_mut() }))
    }

    /// Sets the value, unless it is set. If somebody is making it, waits for him.
    ///
    /// # Errors
    /// The given one, if it was set before.
    #[track_caller]
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("called once"));
        value.map_or(Ok(()), Err)
    }

    /// The value; if it is not set, `f` makes it. If somebody else is about it, waits for him.
    ///
    /// # Panics
    /// If called from within `f`, by the same fiber or thread: it would wait for itself.
    #[track_caller]
    #[inline]
    pub fn get_or_init(&self, f: impl FnOnce() -> T) -> &T {
        match self.get_or_try_init(|| Ok::<T, std::convert::Infallible>(f())) {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// The value; if it is not set, `f` may make it.
    ///
    /// # Errors
    /// That of `f`. It is not set then, and the next one tries.
    ///
    /// # Panics
    /// As [`get_or_init`](Self::get_or_init).
    ///
    /// ```
    /// let port = fibra::sync::OnceLock::new();
    /// assert!(port.get_or_try_init(|| "many".parse::<u16>()).is_err());
    /// assert_eq!(port.get_or_try_init(|| "80".parse::<u16>()), Ok(&80));
    /// ```
    #[track_caller]
    #[inline]
    pub fn get_or_try_init<E>(&self, f: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if !self.once.is_complete() {
            self.init(f)?;
        }
        // SAFETY: complete.
        Ok(unsafe { self.there() })
    }

    #[cold]
    #[track_caller]
    fn init<E>(&self, f: impl FnOnce() -> Result<T, E>) -> Result<(), E> {
        if let Some(running) = self.once.begin() {
            let made = f()?;
            // SAFETY: we alone run, and nobody reads before it is complete.
            self.value.with_mut(|value| unsafe { (*value).write(made) });
            running.complete();
        }
        Ok(())
    }

    /// Like [`get_or_init`](Self::get_or_init), for a value that is made by async code.
    ///
    /// ```
    /// let value = fibra::sync::OnceLock::new();
    /// assert_eq!(fibra::block_on(value.get_or_init_async(|| async { 7 })), &7);
    /// ```
    pub async fn get_or_init_async<F: Future<Output = T>>(&self, f: impl FnOnce() -> F) -> &T {
        if !self.once.is_complete()
            && let Some(running) = self.once.begin_async().await
        {
            let made = f().await;
            // SAFETY: we alone run, and nobody reads before it is complete.
            self.value.with_mut(|value| unsafe { (*value).write(made) });
            running.complete();
        }
        // SAFETY: complete.
        unsafe { self.there() }
    }

    /// The value, as soon as somebody has set it.
    #[track_caller]
    pub fn wait(&self) -> &T {
        self.once.wait();
        // SAFETY: complete.
        unsafe { self.there() }
    }

    /// The value, as soon as somebody has set it; or `None` if nobody has for so long.
    #[track_caller]
    pub fn wait_timeout(&self, timeout: std::time::Duration) -> Option<&T> {
        // SAFETY: complete.
        self.once.wait_timeout(timeout).then(|| unsafe { self.there() })
    }

    /// Waits until somebody has set it, as a future.
    pub fn wait_async(&self) -> TurnFuture<'_> {
        self.once.wait_async()
    }

    /// The value, if it was set.
    pub fn into_inner(mut self) -> Option<T> {
        self.take()
    }

    /// Takes the value out: it is not set any more.
    pub fn take(&mut self) -> Option<T> {
        if !self.once.is_complete() {
            return None;
        }
        self.once.reset();
        // SAFETY: it was complete, we have it for ourselves, and it is not complete any more, so nobody reads it again.
        Some(self.value.with_mut(|value| unsafe { (*value).assume_init_read() }))
    }
}

impl<T> Drop for OnceLock<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        let lock = Self::new();
        let _ = lock.set(value);
        lock
    }
}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> Self {
        self.get().cloned().map_or_else(Self::new, Self::from)
    }
}

impl<T: PartialEq> PartialEq for OnceLock<T> {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl<T: Eq> Eq for OnceLock<T> {}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Some(value) => f.debug_tuple("OnceLock").field(value).finish(),
            None => f.debug_tuple("OnceLock").field(&format_args!("<uninit>")).finish(),
        }
    }
}

// ---- Lazily -----------------------------------------------------------------------------------------------------------------

#[cfg(not(any(loom, shuttle)))]
pub use lazy::LazyLock;

#[cfg(not(any(loom, shuttle)))]
mod lazy {
    use std::cell::Cell;
    use std::fmt;
    use std::ops::Deref;

    use super::OnceLock;
    use crate::task::shield;

    /// A value that is made when it is first looked at. Like [`std::sync::LazyLock`], but waiting for whoever makes it parks the fiber, and
    /// making it may wait too.
    ///
    /// The function is there once. So cancellation is held off while it runs (as by [`shield`](crate::shield)): whoever looks first decides
    /// for all. If it panics, the value can never be made, and everybody who looks panics, as in std.
    ///
    /// ```
    /// use fibra::sync::LazyLock;
    /// static TABLE: LazyLock<Vec<u64>> = LazyLock::new(|| (0..10).map(|n| n * n).collect());
    /// assert_eq!(TABLE[3], 9);
    /// ```
    pub struct LazyLock<T, F = fn() -> T> {
        value: OnceLock<T>,
        /// Taken by the one who makes the value.
        make: Cell<Option<F>>,
    }

    // SAFETY: `make` is only touched by the one who runs the initialiser of `value`, on whichever thread (`F: Send`), one after the other.
    unsafe impl<T: Send + Sync, F: Send> Sync for LazyLock<T, F> {}

    impl<T, F: FnOnce() -> T> LazyLock<T, F> {
        /// A value that `make` will make.
        pub const fn new(make: F) -> Self {
            Self { value: OnceLock::new(), make: Cell::new(Some(make)) }
        }

        /// The value, made now if it was not before.
        ///
        /// # Panics
        /// If making it panics or did so before, and if it asks for itself while it is made.
        #[track_caller]
        #[inline]
        pub fn force(this: &Self) -> &T {
            this.value.get_or_init(|| match this.make.take() {
                Some(make) => shield(make),
                None => poisoned(),
            })
        }

        /// The value, if it has been made.
        pub fn get(this: &Self) -> Option<&T> {
            this.value.get()
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn poisoned() -> ! {
        panic!("fibra: a LazyLock whose function panicked: it has no value")
    }

    impl<T, F: FnOnce() -> T> Deref for LazyLock<T, F> {
        type Target = T;
        #[inline]
        fn deref(&self) -> &T {
            Self::force(self)
        }
    }

    impl<T: Default> Default for LazyLock<T> {
        fn default() -> Self {
            Self::new(T::default)
        }
    }

    impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.value.get() {
                Some(value) => f.debug_tuple("LazyLock").field(value).finish(),
                None => f.debug_tuple("LazyLock").field(&format_args!("<uninit>")).finish(),
            }
        }
    }
}
