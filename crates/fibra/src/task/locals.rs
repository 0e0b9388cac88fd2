//! Fiber-locals: like thread-locals, but one value per fiber. On a plain thread they are thread-locals. Above: users. Below:
//! `fiber::local`, the map of a fiber's values.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::run::drop_quietly;
use crate::cancel;
use crate::fiber::frame::FrameRef;
use crate::fiber::local::{CloneValue, Inherited, LocalMap, drop_values};
use crate::fiber::top::FiberTop;
use crate::sched::current;

/// Declares fiber-locals.
///
/// Each fiber that uses one gets its own value, made by the initialiser on first use and dropped at the end of the fiber. With
/// `inherit`, a fiber starts with a clone of its parent's value (which must be `Clone + Send`). On plain threads each thread has its own.
///
/// Values are dropped in the reverse order of their first use. A destructor may use other ones: those that are gone are made anew, and
/// dropped as well. (After its end, a thread drops its fiber-locals together with its thread-locals. If the destructor of a
/// thread-local makes a value when that has been done, it is not dropped.)
///
/// ```
/// use std::cell::Cell;
///
/// fibra::fiber_local! {
///     static REQUEST: Cell<u64> = Cell::new(0);
///     inherit static TRACE: Option<String> = None;
/// }
///
/// fibra::run(|| {
///     REQUEST.set(7);
///     TRACE.scope(Some("abc".into()), || {
///         let child = fibra::spawn(|| (REQUEST.get(), TRACE.with(|trace| trace.clone())));
///         assert_eq!(child.join().unwrap(), (0, Some("abc".into())));
///     });
///     assert_eq!(REQUEST.get(), 7);
/// });
/// ```
#[macro_export]
macro_rules! fiber_local {
    () => {};
    ($(#[$attr:meta])* $vis:vis inherit static $name:ident : $ty:ty = $init:expr; $($rest:tt)*) => {
        $crate::fiber_local!(@one [$(#[$attr])*] [$vis] $name, $ty, $init, $crate::FiberLocal::new_inherited);
        $crate::fiber_local!($($rest)*);
    };
    ($(#[$attr:meta])* $vis:vis inherit static $name:ident : $ty:ty = $init:expr) => {
        $crate::fiber_local!(@one [$(#[$attr])*] [$vis] $name, $ty, $init, $crate::FiberLocal::new_inherited);
    };
    ($(#[$attr:meta])* inherit $vis:vis static $name:ident : $ty:ty = $init:expr; $($rest:tt)*) => {
        $crate::fiber_local!(@one [$(#[$attr])*] [$vis] $name, $ty, $init, $crate::FiberLocal::new_inherited);
        $crate::fiber_local!($($rest)*);
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident : $ty:ty = $init:expr; $($rest:tt)*) => {
        $crate::fiber_local!(@one [$(#[$attr])*] [$vis] $name, $ty, $init, $crate::FiberLocal::new);
        $crate::fiber_local!($($rest)*);
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident : $ty:ty = $init:expr) => {
        $crate::fiber_local!(@one [$(#[$attr])*] [$vis] $name, $ty, $init, $crate::FiberLocal::new);
    };
    (@one [$(#[$attr:meta])*] [$vis:vis] $name:ident, $ty:ty, $init:expr, $new:path) => {
        $(#[$attr])*
        $vis static $name: $crate::FiberLocal<$ty> = {
            // The byte makes the key unique: statics of size zero may share an address. Its name is one that an initialiser does not
            // use: items of a macro are not hygienic.
            static __FIBRA_LOCAL_KEY: u8 = 0;
            $new(&__FIBRA_LOCAL_KEY, || -> $ty { $init })
        };
    };
}

/// A fiber-local, declared with [`fiber_local!`](crate::fiber_local).
pub struct FiberLocal<T: 'static> {
    key: &'static u8,
    init: fn() -> T,
    inherit: Option<CloneValue>,
    _value: PhantomData<fn() -> T>,
}

impl<T: 'static> std::fmt::Debug for FiberLocal<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FiberLocal").field("type", &std::any::type_name::<T>()).finish_non_exhaustive()
    }
}

thread_local! {
    /// The map of a plain thread. Without a destructor, so that it can still be used while the values in it are dropped.
    static THREAD: Cell<*mut ()> = const { Cell::new(std::ptr::null_mut()) };
    static AT_THREAD_END: AtThreadEnd = const { AtThreadEnd };
}

/// Drops a thread's values when the thread ends.
struct AtThreadEnd;

impl Drop for AtThreadEnd {
    fn drop(&mut self) {
        THREAD.with(drop_values);
    }
}

/// Calls `f` with the map of the current fiber or thread. `f` calls one method of the map and no user code.
fn with_map<R>(f: impl FnOnce(&mut LocalMap) -> R) -> R {
    match current::fiber().and_then(|frame| frame.top()) {
        Some(top) => with_map_at(&top.locals, || (), f),
        // A value that is made by a destructor of another thread-local, when the thread's own have been dropped already, is leaked.
        None => {
            let register = || {
                let _ = AT_THREAD_END.try_with(|_| ());
            };
            THREAD.with(|locals| with_map_at(locals, register, f))
        }
    }
}

#[inline]
fn with_map_at<R>(locals: &Cell<*mut ()>, is_new: impl FnOnce(), f: impl FnOnce(&mut LocalMap) -> R) -> R {
    let mut map = locals.get().cast::<LocalMap>();
    if map.is_null() {
        map = Box::into_raw(Box::default());
        locals.set(map.cast());
        is_new();
    }
    // SAFETY: made above (or in `adopt`), freed in `fiber::local::drop_values` at the end of this very fiber or thread; only the fiber
    // (thread) itself touches it, and `f` does not come back here.
    f(unsafe { &mut *map })
}

impl<T: 'static> FiberLocal<T> {
    /// For the macro.
    #[doc(hidden)]
    pub const fn new(key: &'static u8, init: fn() -> T) -> Self {
        Self { key, init, inherit: None, _value: PhantomData }
    }

    fn key(&'static self) -> usize {
        std::ptr::from_ref(self.key).addr()
    }

    /// Calls `f` with this fiber's value, which is made first if need be.
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        let value = match with_map(|map| map.get(self.key())) {
            Some(value) => value,
            None => {
                // The initialiser is user code: it runs without the map, and may have set the value itself meanwhile.
                let value: Box<dyn Any> = Box::new((self.init)());
                let replaced = with_map(|map| map.set(self.key(), value, self.inherit));
                drop(replaced);
                with_map(|map| map.get(self.key())).expect("just set")
            }
        };
        // SAFETY: boxed, so it stays where it is while the map changes. It is replaced only by `scope`, which keeps the old box until its
        // closure ends, and by the initialiser above, before a reference to it exists; it is dropped at the end of the fiber. `f` runs on
        // this fiber.
        let value = unsafe { &*value };
        f(value.downcast_ref::<T>().expect("one type per key"))
    }

    /// Calls `f` with this fiber's value, if it was set: the call makes no value.
    pub(crate) fn if_set<R>(&'static self, f: impl FnOnce(&T) -> R) -> Option<R> {
        let has_map = match current::fiber().and_then(|frame| frame.top()) {
            Some(top) => !top.locals.get().is_null(),
            None => !THREAD.with(Cell::get).is_null(),
        };
        let is_set = has_map && with_map(|map| map.get(self.key())).is_some();
        is_set.then(|| self.with(f))
    }

    /// Runs `f` with `value` in place of this fiber's; afterwards, also after a panic, the old value is back.
    pub fn scope<R>(&'static self, value: T, f: impl FnOnce() -> R) -> R {
        struct Restore {
            key: usize,
            inherit: Option<CloneValue>,
            old: Option<Box<dyn Any>>,
        }
        impl Drop for Restore {
            fn drop(&mut self) {
                let current = match self.old.take() {
                    Some(old) => with_map(|map| map.set(self.key, old, self.inherit)),
                    None => with_map(|map| map.remove(self.key)),
                };
                drop(current);
            }
        }
        let old = with_map(|map| map.set(self.key(), Box::new(value), self.inherit));
        let _restore = Restore { key: self.key(), inherit: self.inherit, old };
        f()
    }
}

impl<T: Clone + Send + 'static> FiberLocal<T> {
    /// For the macro.
    #[doc(hidden)]
    pub const fn new_inherited(key: &'static u8, init: fn() -> T) -> Self {
        fn clone_value<T: Clone + Send + 'static>(value: &dyn Any) -> Box<dyn Any + Send> {
            Box::new(value.downcast_ref::<T>().expect("one type per key").clone())
        }
        Self { key, init, inherit: Some(clone_value::<T>), _value: PhantomData }
    }
}

impl<T: 'static> FiberLocal<Cell<T>> {
    /// A copy of the value in the cell.
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// Sets the value in the cell.
    pub fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }

    /// Takes the value out of the cell and leaves the default.
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(Cell::take)
    }

    /// Replaces the value in the cell.
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

impl<T: 'static> FiberLocal<RefCell<T>> {
    /// Calls `f` with a borrow of the value in the cell.
    pub fn with_borrow<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.with(|cell| f(&cell.borrow()))
    }

    /// Calls `f` with a mutable borrow of the value in the cell.
    pub fn with_borrow_mut<R>(&'static self, f: impl FnOnce(&mut T) -> R) -> R {
        self.with(|cell| f(&mut cell.borrow_mut()))
    }

    /// Sets the value in the cell.
    pub fn set(&'static self, value: T) {
        self.with(|cell| drop(cell.replace(value)));
    }
}

/// Does this fiber, which runs, have any locals?
///
/// # Safety
/// It is the running one.
#[inline(always)]
pub(crate) unsafe fn has_locals(frame: FrameRef) -> bool {
    // SAFETY: it runs, so it has a stack.
    let top = unsafe { frame.top().unwrap_unchecked() };
    !top.locals.get().is_null()
}

/// The values that children of this fiber (the running one) start with.
pub(crate) fn inherited(frame: FrameRef) -> Inherited {
    let Some(top) = frame.top() else { return Inherited::default() };
    let map = top.locals.get().cast::<LocalMap>();
    // SAFETY: as in `with_map`. Cloning is user code, but it only reads here, and a clone that reaches for its own local finds the map
    // unlocked: it is read through a shared reference, which `with_map` must not alias mutably; hence the detour over a taken map.
    if map.is_null() {
        return Inherited::default();
    }
    top.locals.set(std::ptr::null_mut());
    // SAFETY: the map is ours alone while it is taken off the fiber.
    let inherited = catch_unwind(AssertUnwindSafe(|| unsafe { &*map }.inherited()));
    put_back(top, map);
    match inherited {
        Ok(inherited) => inherited,
        Err(payload) => cancel::pass_on(payload),
    }
}

/// Puts a map that was taken off a fiber back; what user code set meanwhile is dropped.
fn put_back(top: &FiberTop, map: *mut LocalMap) {
    let meanwhile = top.locals.replace(map.cast()).cast::<LocalMap>();
    if !meanwhile.is_null() {
        // SAFETY: made by `with_map` while ours was away, and no other reference to it exists.
        drop_quietly(unsafe { Box::from_raw(meanwhile) });
    }
}

/// A fiber starts: takes over the values that its parent left for it.
pub(crate) fn adopt(top: &FiberTop, inherited: Inherited) {
    top.locals.set(Box::into_raw(Box::new(LocalMap::from_inherited(inherited))).cast());
}

/// Does this fiber (the running one) have locals that must not go to another thread?
pub(crate) fn must_stay(top: &FiberTop) -> bool {
    let map = top.locals.get().cast::<LocalMap>();
    // SAFETY: as in `with_map`: the fiber's own map, and nothing here calls user code.
    unsafe { map.as_ref() }.is_some_and(LocalMap::must_stay)
}

/// A task's locals travel with it between polls, if all of them are `Send`.
pub(crate) fn detach(top: &FiberTop) -> *mut () {
    top.locals.replace(std::ptr::null_mut())
}

/// See [`detach`].
pub(crate) fn attach(top: &FiberTop, locals: *mut ()) {
    top.locals.set(locals);
}

/// Drops locals that no fiber will get again.
pub(crate) fn drop_detached(locals: *mut ()) {
    if !locals.is_null() {
        // SAFETY: `detach` took it off a fiber, and it is attached to none.
        drop_quietly(unsafe { Box::from_raw(locals.cast::<LocalMap>()) });
    }
}
