//! Lets the owner of a fiber know when that fiber waits: actors learn here that a handler is suspended (WAITING) and goes on (RUNNING).
//!
//! Above: `actor`, which runs handlers inside [`watched`]. Below: `park`, which asks a fiber with the flag WATCHED before and after each
//! wait; a fiber without the flag pays nothing, since the flag is one more bit of a test that is made anyway.
//!
//! Invariants
//! * `FiberTop::watch` points to a [`WaitObserver`] only while [`watched`] runs on that fiber: the guard takes it away also when `f`
//!   unwinds.
//! * An [`Interrupt`] names a frame only from before a wait of its fiber begins until that wait is over, so under its lock the frame is
//!   that fiber's and is not recycled.
//! * Both calls of a [`WaitObserver`] run on the fiber, with its word RUNNING; they call no user code and do not wait.

use std::any::Any;

use super::waitable::Wait;
use crate::fiber::frame::{FrameRef, flag};
use crate::prim::spin::SpinLock;
use crate::sched::current;
use crate::waiter::word::WaiterState;

/// A listener for the waits of a fiber.
pub(crate) trait WaitObserver {
    /// The fiber is about to wait. It may be cancelled in here, by its [`interrupt`](Self::interrupt).
    fn parks(&self, how: &Wait);
    /// The wait is over, however it ended.
    fn is_back(&self);
    /// Where the frame is noted during the wait.
    fn interrupt(&self) -> &Interrupt;
    /// Data that it keeps for code that runs on the fiber: see [`with_current`].
    fn data(&self) -> &dyn Any;
    /// The object that the fiber runs for, in a type that both sides know.
    fn owner(&self) -> Box<dyn Any>;
    /// The same in words, for the report of a panic. No user code runs in here.
    fn label(&self) -> Option<String> {
        None
    }
}

/// The waiting fiber, for code that wants to cancel it or to know whether it was woken; see the header.
pub(crate) struct Interrupt(SpinLock<Option<FrameRef>>);

impl Interrupt {
    pub(crate) const fn new() -> Self {
        Self(SpinLock::new(None))
    }

    fn set(&self, frame: Option<FrameRef>) {
        self.0.with(|slot| *slot = frame);
    }

    /// Calls `f` with the fiber that waits, if it does. It stays the same fiber until `f` returns; `f` calls no user code.
    pub(crate) fn with(&self, f: impl FnOnce(FrameRef)) {
        self.0.with(|slot| slot.map(f));
    }

    /// Is the fiber parked, in a wait that no owner has completed? False also if it does not wait.
    pub(crate) fn is_parked(&self) -> bool {
        self.0.with(|slot| {
            slot.is_some_and(|frame| {
                let word = frame.waiter.word.snapshot();
                word.is(WaiterState::Parked) && !word.is_claimed()
            })
        })
    }
}

impl std::fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupt").field("is_parked", &self.is_parked()).finish()
    }
}

/// What `FiberTop::watch` points to.
type WatchSlot<'a> = &'a dyn WaitObserver;

/// Runs `f` on the current fiber with its waits watched. On a plain thread, which is not watched, it just runs `f`.
pub(crate) fn watched<R>(watch: &dyn WaitObserver, f: impl FnOnce() -> R) -> R {
    struct Restore {
        frame: FrameRef,
        before: *const (),
        lower: bool,
    }
    impl Drop for Restore {
        fn drop(&mut self) {
            if let Some(top) = self.frame.top() {
                top.watch.set(self.before);
            }
            if self.lower {
                self.frame.lower(flag::WATCHED);
            }
        }
    }
    let Some((frame, top)) = current::fiber().and_then(|frame| Some((frame, frame.top()?))) else { return f() };
    let slot: WatchSlot<'_> = watch;
    let before = top.watch.replace(std::ptr::from_ref(&slot).cast());
    let lower = !frame.has(flag::WATCHED);
    if lower {
        frame.raise(flag::WATCHED);
    }
    let _restore = Restore { frame, before, lower };
    f()
}

/// Calls `f` with the innermost watch of the current fiber, and with its data if that is a `T`.
pub(crate) fn with_current<T: 'static, R>(f: impl FnOnce(&T, &dyn WaitObserver) -> R) -> Option<R> {
    let frame = current::fiber().filter(|frame| frame.has(flag::WATCHED))?;
    // SAFETY: it is the running fiber.
    let watch = unsafe { slot_of(frame) }?;
    watch.data().downcast_ref::<T>().map(|data| f(data, watch))
}

/// What a fiber runs for, in words: for the hook of panics.
pub(crate) fn label_of(frame: FrameRef) -> Option<String> {
    if !frame.has(flag::WATCHED) {
        return None;
    }
    // SAFETY: the hook asks about the fiber that panics on this thread, which waits for the hook; not kept.
    unsafe { slot_of(frame) }?.label()
}

/// # Safety
/// `frame` is the running fiber, and the answer is not kept beyond a call into the watch.
unsafe fn slot_of<'a>(frame: FrameRef) -> Option<WatchSlot<'a>> {
    let slot = frame.top()?.watch.get();
    // SAFETY: set by `watched`, further up on this very stack, which takes it away before it returns; and only the fiber itself sets it.
    unsafe { slot.cast::<WatchSlot<'a>>().as_ref() }.copied()
}

/// The running fiber, which has the flag WATCHED, is about to wait.
#[cold]
pub(super) fn parks(frame: FrameRef, how: &Wait) {
    // SAFETY: the running fiber; not kept.
    if let Some(watch) = unsafe { slot_of(frame) } {
        watch.interrupt().set(Some(frame));
        watch.parks(how);
    }
}

/// The running fiber, which has the flag WATCHED, has waited.
#[cold]
pub(super) fn is_back(frame: FrameRef) {
    // SAFETY: the running fiber; not kept.
    if let Some(watch) = unsafe { slot_of(frame) } {
        watch.interrupt().set(None);
        watch.is_back();
    }
}
