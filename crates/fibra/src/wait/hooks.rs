//! Hooks around every suspension of a fiber, for libraries that keep the context of what runs in thread-locals: `tracing`, `opentelemetry`,
//! tokio's `enter`. The fibers of a worker share its thread-locals, so that what one of them leaves there while it waits is seen by the
//! next one. A hook takes it away before a fiber leaves its worker, and puts it back when the fiber runs again.
//!
//! * [`install`] adds a [`SwitchHook`] for every fiber of the process: for a library whose context any code may change.
//! * [`carry`] brings a [`Carried`] value along for the time of one call: for a guard that would otherwise have to be dropped before each
//!   blocking call.
//!
//! ```
//! use std::cell::Cell;
//! thread_local!(static REQUEST: Cell<u32> = const { Cell::new(0) }); // some library's
//!
//! struct Follow;
//! impl fibra::hooks::SwitchHook for Follow {
//!     type Saved = u32;
//!     fn suspend(&self) -> u32 {
//!         REQUEST.replace(0)
//!     }
//!     fn resume(&self, saved: u32) {
//!         REQUEST.set(saved);
//!     }
//! }
//!
//! fibra::hooks::install(Follow);
//! fibra::run(|| {
//!     let requests: Vec<_> = (1..=3)
//!         .map(|number| {
//!             fibra::spawn_local(move || {
//!                 assert_eq!(REQUEST.get(), 0, "nothing of a neighbour's");
//!                 REQUEST.set(number);
//!                 fibra::yield_now(); // the others run meanwhile
//!                 assert_eq!(REQUEST.get(), number);
//!                 REQUEST.set(0);
//!             })
//!         })
//!         .collect();
//!     requests.into_iter().for_each(|request| request.join().unwrap());
//! });
//! ```
//!
//! Hooks run on the worker, on the stack of the fiber that leaves or comes back, as part of its turn: they are to be short. They must not
//! block: a blocking call inside panics, as in [`no_suspend`](crate::no_suspend). A panic of a hook is reported like every panic, and ends
//! there: the fiber goes on, and what was put aside may be lost. A program without hooks pays nothing.
//!
//! The futures of [`spawn_future`](crate::spawn_future) suspend by returning, not by leaving a stack: hooks are not called between two
//! polls. Their libraries have means of their own for that (`Instrument`, `WithContext`).

// Above: users, and `sched::worker`, which tells of the first and the last moment of a fiber. Below: `fiber::top`, where a fiber's carried
// values are found.
//
// Invariants
// * No user code runs while a word is PARKING: hooks run around the whole wait, with the word RUNNING before and after.
// * `FiberTop::carried` is the innermost of the values that are carried on that fiber: each lies in the frame of its `carry`, which takes
//   it off when it returns or unwinds.
// * Installed hooks are never removed and never freed: a fiber may be suspended inside one for ever.
// * The flag HOOKED of a fiber is up if hooks are installed (it was spawned since, or is the one that installed them) or if it carries
//   something. It is one more bit of tests that are made anyway.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::fiber::frame::{FrameRef, flag};
use crate::monitor::objects;
use crate::prim::atomic::{AtomicPtr, Ordering};
use crate::prim::discard_payload;
use crate::sched::current;

/// What a library wants done around the suspensions of every fiber; see [`install`] and the [module](self).
pub trait SwitchHook: Send + Sync + 'static {
    /// What is put aside while a fiber is suspended. It lies on that fiber's stack, and so need not be `Send`.
    type Saved;

    /// On a fiber that is about to run its function for the first time.
    fn started(&self) {}

    /// The running fiber is about to leave: take what it has in thread-locals away.
    fn suspend(&self) -> Self::Saved;

    /// The fiber is back: put it where it was.
    fn resume(&self, saved: Self::Saved);

    /// On a fiber whose function has returned or unwound: take away what is left of it.
    fn ended(&self) {}
}

/// A [`SwitchHook`], whatever it puts aside.
trait AnyHook: Send + Sync {
    fn started(&self);
    fn around(&self, rest: &mut dyn FnMut());
    fn ended(&self);
}

impl<H: SwitchHook> AnyHook for H {
    fn started(&self) {
        contain(|| SwitchHook::started(self));
    }

    fn around(&self, rest: &mut dyn FnMut()) {
        let saved = contain(|| self.suspend());
        rest();
        if let Some(saved) = saved {
            contain(|| self.resume(saved));
        }
    }

    fn ended(&self) {
        contain(|| SwitchHook::ended(self));
    }
}

/// Runs a call into a hook: it must not suspend, and its panic ends here.
fn contain<R>(call: impl FnOnce() -> R) -> Option<R> {
    /// Lowers what was raised here.
    struct Lower(FrameRef);
    impl Drop for Lower {
        fn drop(&mut self) {
            self.0.lower(flag::NO_SUSPEND);
        }
    }
    let _open = current::fiber().filter(|frame| !frame.has(flag::NO_SUSPEND)).map(|frame| {
        frame.raise(flag::NO_SUSPEND);
        Lower(frame)
    });
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => Some(result),
        Err(payload) => {
            discard_payload(payload);
            None
        }
    }
}

struct Installed {
    hook: Box<dyn AnyHook>,
    /// The one that was installed before.
    before: *const Installed,
}

// SAFETY: written before it is published, and only read since; hooks are `Send` and `Sync`.
unsafe impl Sync for Installed {}

/// The hook that was installed last.
static LAST: AtomicPtr<Installed> = AtomicPtr::new(ptr::null_mut());

fn last() -> Option<&'static Installed> {
    // Acquire: pairs with the release in `install`.
    // SAFETY: null, or from a box that is never freed.
    unsafe { LAST.load(Ordering::Acquire).as_ref() }
}

impl Installed {
    fn before(&self) -> Option<&'static Installed> {
        // SAFETY: as in `last`.
        unsafe { self.before.as_ref() }
    }
}

/// From now on this hook is called around every suspension of every fiber of the process: of those that are spawned from now on, and of the
/// one that calls this. For good: there is no way to take a hook out.
///
/// Several hooks are like layers: the one that was installed last is suspended first and resumed last.
pub fn install<H: SwitchHook>(hook: H) {
    let new = Box::into_raw(Box::new(Installed { hook: Box::new(hook), before: ptr::null() }));
    // Relaxed: only compared, and confirmed below.
    let mut before = LAST.load(Ordering::Relaxed);
    loop {
        // SAFETY: just made, and not published.
        unsafe { (*new).before = before };
        // Release: pairs with the acquire in `last`. Acquire is not needed: what lies before is not read here.
        match LAST.compare_exchange(before, new, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => break,
            Err(actual) => before = actual,
        }
    }
    for runtime in objects::runtimes() {
        runtime.base_flags.raise(flag::HOOKED);
    }
    if let Some(frame) = current::fiber() {
        // What is carried here was raised for that alone perhaps; from now on it is for good.
        let mut link = frame.top().map_or(ptr::null(), |top| top.carried.get()).cast::<Link<'_>>();
        // SAFETY: the running fiber's own links, which are on its stack and do not change meanwhile.
        while let Some(carried) = unsafe { link.as_ref() } {
            carried.lower.set(false);
            link = carried.outer;
        }
        frame.raise(flag::HOOKED);
    }
}

/// Are there hooks? For a runtime that has just been built, after it can be found.
pub(crate) fn are_installed() -> bool {
    last().is_some()
}

/// The fiber, which has the flag HOOKED, is about to run its function.
#[cold]
pub(crate) fn started() {
    fn first_to_last(hook: Option<&'static Installed>) {
        if let Some(hook) = hook {
            first_to_last(hook.before());
            hook.hook.started();
        }
    }
    first_to_last(last());
}

/// Its function has returned or unwound.
#[cold]
pub(crate) fn ended() {
    let mut hook = last();
    while let Some(installed) = hook {
        installed.hook.ended();
        hook = installed.before();
    }
}

/// Runs `rest`, in which the running fiber, which has the flag HOOKED, may leave its worker.
#[cold]
#[inline(never)]
pub(super) fn around<R>(frame: FrameRef, rest: impl FnOnce() -> R) -> R {
    fn layers(hook: Option<&'static Installed>, rest: &mut dyn FnMut()) {
        match hook {
            Some(installed) => installed.hook.around(&mut || layers(installed.before(), rest)),
            None => rest(),
        }
    }
    let carried = frame.top().map_or(ptr::null(), |top| top.carried.get()).cast::<Link<'_>>();
    // SAFETY: the running fiber's own list, which does not change before it runs again; see the header.
    unsafe { each(carried, false) };
    let (mut rest, mut result) = (Some(rest), None);
    layers(last(), &mut || result = rest.take().map(|rest| rest()));
    // SAFETY: as above.
    unsafe { each(carried, true) };
    result.expect("every layer calls the next one")
}

// ---- What one call carries -----------------------------------------------------------------------------------------------

/// What is brought along by [`carry`]: something that is entered while a fiber runs, and left while it waits.
pub trait Carried {
    /// The fiber runs from now on.
    fn enter(&mut self);

    /// It does not run any more.
    fn leave(&mut self);
}

/// A value that is carried, on the stack of its `carry`.
struct Link<'a> {
    carried: RefCell<&'a mut dyn Carried>,
    outer: *const Link<'a>,
    /// The flag HOOKED was raised for it, and is lowered at its end.
    lower: Cell<bool>,
}

/// Leaves (or enters, if so said) this one and those around it: from the inside out, and back.
///
/// # Safety
/// Links of the running fiber, all of them there.
unsafe fn each(link: *const Link<'_>, enter: bool) {
    // SAFETY: the caller's promise.
    let Some(link) = (unsafe { link.as_ref() }) else { return };
    if enter {
        // SAFETY: as above.
        unsafe { each(link.outer, enter) };
        link.enter();
    } else {
        link.leave();
        // SAFETY: as above.
        unsafe { each(link.outer, enter) };
    }
}

impl Link<'_> {
    // (Borrowed only if a hook of its own suspends, which it must not.)
    fn enter(&self) {
        contain(|| self.carried.borrow_mut().enter());
    }

    fn leave(&self) {
        contain(|| self.carried.borrow_mut().leave());
    }
}

/// Calls `f` with `carried` entered, which is left around every suspension of this fiber inside `f`, and at the end, also if `f` unwinds.
/// On a plain thread it is entered before `f` and left after it.
///
/// ```
/// use fibra::hooks::Carried;
/// use std::cell::Cell;
/// thread_local!(static DEPTH: Cell<u32> = const { Cell::new(0) });
///
/// /// A guard that must be dropped in order, like that of tokio's `Handle::enter`.
/// struct Entered;
/// impl Drop for Entered {
///     fn drop(&mut self) {
///         DEPTH.set(DEPTH.get() - 1);
///     }
/// }
///
/// #[derive(Default)]
/// struct Enters(Option<Entered>);
/// impl Carried for Enters {
///     fn enter(&mut self) {
///         DEPTH.set(DEPTH.get() + 1);
///         self.0 = Some(Entered);
///     }
///     fn leave(&mut self) {
///         self.0 = None;
///     }
/// }
///
/// fibra::run(|| {
///     let neighbour = fibra::spawn_local(|| DEPTH.get());
///     fibra::hooks::carry(Enters::default(), || {
///         assert_eq!(DEPTH.get(), 1);
///         assert_eq!(neighbour.join().unwrap(), 0);
///         assert_eq!(DEPTH.get(), 1);
///     });
/// });
/// ```
pub fn carry<T>(mut carried: impl Carried, f: impl FnOnce() -> T) -> T {
    /// Takes the link off and leaves it, also when `f` unwinds.
    struct Off<'a, 'b> {
        link: &'a Link<'b>,
        place: Option<(FrameRef, &'static Cell<*const ()>)>,
    }
    impl Drop for Off<'_, '_> {
        fn drop(&mut self) {
            if let Some((frame, place)) = self.place {
                place.set(self.link.outer.cast());
                if self.link.lower.get() {
                    frame.lower(flag::HOOKED);
                }
            }
            self.link.leave();
        }
    }
    let place = current::fiber().and_then(|frame| Some((frame, &frame.top()?.carried)));
    let outer = place.map_or(ptr::null(), |(_, place)| place.get().cast());
    let lower = place.is_some_and(|(frame, _)| !frame.has(flag::HOOKED));
    let link = Link { carried: RefCell::new(&mut carried), outer, lower: Cell::new(lower) };
    link.enter();
    if let Some((frame, place)) = place {
        place.set(ptr::from_ref(&link).cast());
        if lower {
            frame.raise(flag::HOOKED);
        }
    }
    let _off = Off { link: &link, place };
    f()
}
