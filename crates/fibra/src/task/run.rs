//! Running the function of a fiber: the thunks of closures, and how a result or a panic gets into the frame.
//!
//! Above: `spawn.rs`, which fills frames; `futures.rs`, `turn.rs` and `fork_join.rs`, which publish results of their own. Below: `fiber`,
//! `cancel`.
//!
//! Invariant: no panic of user code leaves a thunk; each is published in the frame, or counted as told to no joiner.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

use super::fiber::shield;
use super::{locals, unread};
use crate::cancel::is_cancellation;
use crate::fiber::frame::{Extras, Frame, RunResult, Thunk, flag};
use crate::fiber::local::drop_all;
use crate::fiber::outcome::FiberEnd;
use crate::prim::atomic::{AtomicU64, Ordering};
use crate::prim::discard_payload;
use crate::sched::members::scope::{PanicSlot, ScopeRecord};
use crate::sched::shared::RuntimeShared;

/// The thunks of one closure type.
pub(crate) struct Closure<F, T>(PhantomData<(F, T)>);

impl<F: FnOnce() -> T, T> Closure<F, T> {
    pub(crate) const THUNK: &'static Thunk = &Thunk { run: Self::run, discard: Self::discard };

    unsafe fn run(frame: &Frame) -> RunResult {
        // SAFETY: passed on, and `run_and` publishes when the closure is gone from the storage, which is this fiber's.
        unsafe { Self::run_and(frame, |value| publish_value(frame, value)) }
    }

    /// # Safety
    /// `fill` put an `F` there, and this is the one run of this fiber.
    #[inline(always)]
    unsafe fn run_and(frame: &Frame, publish: impl FnOnce(T) -> RunResult) -> RunResult {
        // SAFETY: the caller's promise.
        let f = unsafe { frame.take::<F>() };
        start_of_user_code(frame);
        let result = catch_unwind(AssertUnwindSafe(f));
        end_of_user_code(frame);
        match result {
            Ok(value) => publish(value),
            // SAFETY: the closure is gone from the storage, which is this fiber's.
            Err(payload) => unsafe { publish_panic(frame, payload) },
        }
    }

    unsafe fn discard(frame: &Frame) {
        // SAFETY: `fill` put an `F` there, and it never ran.
        let f = unsafe { frame.take::<F>() };
        // The values that its parent left for it are dropped here, with everything else: their destructors are user code.
        start_of_user_code(frame);
        drop_quietly(f);
        end_of_user_code(frame);
    }
}

impl<F: FnOnce() -> Option<T>, T> Closure<F, Option<T>> {
    /// Of a closure that may have no value to return: its fiber then ends as cancelled.
    pub(crate) const THUNK_OR_NONE: &'static Thunk = &Thunk { run: Self::run_or_none, discard: Self::discard };

    unsafe fn run_or_none(frame: &Frame) -> RunResult {
        let publish = |value| match value {
            // SAFETY: as in `run`.
            Some(value) => unsafe { publish_value(frame, value) },
            None => RunResult::Ended(FiberEnd::Cancelled),
        };
        // SAFETY: passed on.
        unsafe { Self::run_and(frame, publish) }
    }
}

/// Before the first line of user code: takes over the values that the parent left for this fiber.
#[inline(always)]
pub(crate) fn start_of_user_code(frame: &Frame) {
    // SAFETY: the running fiber's own frame.
    if let Some(extras) = unsafe { frame.extras() } {
        adopt_inherited(frame, extras);
    }
}

#[cold]
#[inline(never)]
fn adopt_inherited(frame: &Frame, extras: &Extras) {
    let inherited = extras.inherited.lock().take();
    match (inherited, frame.top()) {
        (Some(inherited), Some(top)) => locals::adopt(top, inherited),
        // It never gets a stack.
        (inherited, _) => drop_quietly(inherited),
    }
}

/// Drops what the user's code left behind on this fiber (its locals) before its result is published.
pub(crate) fn end_of_user_code(frame: &Frame) {
    if let Some(top) = frame.top() {
        top.cancel.unwinding.set(false);
        drop_all(frame, top);
    }
}

/// Drops a value of the user's; a destructor that panics has been reported by the hook, and its panic ends here. Shielded: a destructor
/// that blocks on a cancelled fiber finishes, as it would while unwinding.
pub(crate) fn drop_quietly<V>(value: V) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(move || shield(move || drop(value)))) {
        shield(move || discard_payload(payload));
    }
}

/// # Safety
/// On the fiber, which owns its empty storage.
#[inline(always)]
pub(crate) unsafe fn publish_value<T>(frame: &Frame, value: T) -> RunResult {
    // SAFETY: the caller's promise.
    unsafe { frame.put(value) };
    if (Frame::must_be_taken::<T>() || unread::may_matter::<T>()) && !frame.join.publish_result(FiberEnd::Value) {
        // SAFETY: just put there, and the handle is gone.
        let value = unsafe { frame.take::<T>() };
        unread::look_at(frame, &value);
        drop_quietly(value);
        // Its destructor may have used fiber-locals once more.
        end_of_user_code(frame);
    }
    RunResult::Ended(FiberEnd::Value)
}

/// # Safety
/// As [`publish_value`].
#[cold]
#[inline(never)]
pub(crate) unsafe fn publish_panic(frame: &Frame, payload: Box<dyn std::any::Any + Send>) -> RunResult {
    if is_cancellation(&*payload) {
        return RunResult::Ended(FiberEnd::Cancelled);
    }
    // SAFETY: frames live for ever, and this is the running fiber's.
    let shared = unsafe { RuntimeShared::of(&*ptr::from_ref(frame)) };
    let panic = if frame.has(flag::SCOPED) {
        // SAFETY: the flag is what `of` asks for.
        Panic::RuntimeShared(unsafe { ScopeRecord::of(frame) }.keep_panic(payload))
    } else {
        Panic::Own { payload, untold: shared.detached_panics.clone() }
    };
    // SAFETY: the caller's promise.
    unsafe { frame.put(panic) };
    if !frame.join.publish_result(FiberEnd::Panicked) {
        // SAFETY: just put there, and the handle is gone.
        unsafe { frame.take::<Panic>() }.unjoined();
        // As in `publish_value`.
        end_of_user_code(frame);
    }
    RunResult::Ended(FiberEnd::Panicked)
}

/// The trace that a fiber leaves in its frame if it panics.
pub(crate) enum Panic {
    Own {
        payload: Box<dyn Any + Send>,
        /// Where its runtime counts panics that no joiner received. Its own reference: a handle may outlive the runtime, and be dropped on
        /// any thread.
        untold: Arc<AtomicU64>,
    },
    /// The child of a scope: shared with the scope, which passes on a panic that no joiner takes.
    RuntimeShared(Arc<PanicSlot>),
}

impl Panic {
    /// The payload, for the joiner.
    pub(crate) fn payload(self) -> Box<dyn Any + Send> {
        match self {
            Self::Own { payload, .. } => payload,
            Self::RuntimeShared(slot) => {
                slot.take().unwrap_or_else(|| Box::new("a panic that its scope has passed on"))
            }
        }
    }

    /// The handle was dropped without taking the panic.
    pub(crate) fn unjoined(self) {
        match self {
            Self::Own { payload, untold } => {
                // Relaxed: a number for people.
                untold.fetch_add(1, Ordering::Relaxed);
                drop_quietly(payload);
            }
            Self::RuntimeShared(slot) => {
                slot.unjoined();
                drop_quietly(slot);
            }
        }
    }
}
