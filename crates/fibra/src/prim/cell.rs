//! `UnsafeCell` in loom's shape (`with`, `with_mut`), so that loom can check that accesses do not overlap; and the cell of one owner.

/// A cell whose accesses are scoped by closures.
#[cfg(not(loom))]
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Calls `f` with a pointer for reading. Dereferencing it is the caller's promise that no thread writes meanwhile.
    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Calls `f` with a pointer for writing. Dereferencing it is the caller's promise that no other thread reads or writes.
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;

/// A cell for data that one thread alone touches, and never from within itself: the owner-only parts of a worker.
///
/// Debug builds check that a closure passed to [`OwnerCell::with`] does not reach the same cell again; release builds trust the
/// callers, all of which are methods of `sched::worker::Worker` and pass closures that call one method of the value.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct OwnerCell<T> {
    value: std::cell::UnsafeCell<T>,
    #[cfg(debug_assertions)]
    entered: std::cell::Cell<bool>,
}

#[cfg(not(loom))]
impl<T> OwnerCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            value: std::cell::UnsafeCell::new(value),
            #[cfg(debug_assertions)]
            entered: std::cell::Cell::new(false),
        }
    }

    pub(crate) fn into_inner(self) -> T {
        self.value.into_inner()
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        #[cfg(debug_assertions)]
        assert!(!self.entered.replace(true), "an owner's cell was entered twice");
        // SAFETY: not `Sync`, so one thread only; and not entered twice: see the type.
        let result = f(unsafe { &mut *self.value.get() });
        #[cfg(debug_assertions)]
        self.entered.set(false);
        result
    }
}
