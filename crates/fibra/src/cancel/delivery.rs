//! Delivery: a cancelled fiber or thread unwinds, quietly, from the blocking call that it is in up to the scope that
//! was cancelled, or to the end of the fiber. `levels.rs` decides whether it may unwind now.
//!
//! The unwinder looks at every stack frame twice, for some 1,500 instructions each time. So the functions here do not unwind on behalf of
//! their callers: they prepare ([`prepare_on`]) and return, and `resume_unwind` is called from the frame of the blocking call itself.
//!
//! Above: the blocking calls, by way of `rules.rs`. Below: `levels.rs`, `unwinding.rs`, `sched::here`.

use std::any::Any;
use std::panic::resume_unwind;

use crate::fiber::frame::{FrameRef, flag};
use crate::prim::atomic::{AtomicBool, Ordering};
use crate::sched::here::Here;
use crate::sched::members::scope::NEVER;
use crate::sched::worker::Worker;
use crate::wait::fiber::step_aside;

/// The payload of the unwinding that a cancellation starts.
struct Cancelled;

/// True if this panic payload is fibra's cancellation and not a panic of the program: code that catches panics should
/// pass it on with [`std::panic::resume_unwind`].
///
/// ```
/// use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
/// use std::time::Duration;
///
/// fibra::run(|| {
///     let sleeper = fibra::spawn(|| {
///         let caught = catch_unwind(AssertUnwindSafe(|| fibra::sleep(Duration::from_secs(3600))));
///         let payload = caught.unwrap_err();
///         assert!(fibra::is_cancellation(&*payload));
///         resume_unwind(payload)
///     });
///     fibra::yield_now();
///     sleeper.cancel();
///     assert!(sleeper.join().unwrap_err().is_cancelled());
/// });
/// ```
pub fn is_cancellation(payload: &(dyn Any + Send)) -> bool {
    payload.is::<Cancelled>()
}

/// Unwinds if the current fiber or thread is cancelled and may be unwound.
pub(crate) fn checkpoint() {
    if let Some(here) = Here::new() {
        checkpoint_on(here, &|| false);
    }
}

/// The same for a caller that need not wait if `settled`; see [`Here::is_due_unless`].
#[inline(never)]
pub(super) fn checkpoint_on(here: Here<'_>, settled: &dyn Fn() -> bool) {
    if here.nearest_deadline() != NEVER {
        here.check_deadlines();
    }
    if here.flags().has(flag::ANY_CANCEL) && here.is_due_unless(settled) {
        resume_unwind(prepare_on(here));
    }
}

/// Unwinds the current fiber or thread, which is cancelled and may be unwound.
#[inline(always)] // See the header.
pub(crate) fn deliver() -> ! {
    resume_unwind(prepare())
}

#[cold]
#[inline(never)]
fn prepare() -> Box<dyn Any + Send> {
    prepare_on(Here::new().expect("only fibers, and threads in a scope, are cancelled"))
}

/// Notes that the current fiber or thread unwinds from now on; the caller goes on with `resume_unwind` of the payload that this gives, at
/// once.
pub(super) fn prepare_on(here: Here<'_>) -> Box<dyn Any + Send> {
    let deliveries = here.state.deliveries.get() + 1;
    here.state.deliveries.set(deliveries);
    if let Some((worker, frame)) = here.fiber {
        worker.stats().cancellations.add(1);
        if deliveries > 1 {
            repeated(worker, frame);
        }
        crate::fiber::overflow_reserve(frame);
    }
    here.begin_unwinding();
    payload()
}

/// Unwinds as a cancellation does.
#[inline(always)] // See the header.
pub(crate) fn unwind_quietly() -> ! {
    resume_unwind(payload())
}

/// The payload that a cancellation unwinds with.
pub(crate) fn payload() -> Box<dyn Any + Send> {
    Box::new(Cancelled)
}

/// The program caught the cancellation and went on: other fibers get a turn before it is delivered again, so that a
/// loop around `catch_unwind` does not hold up the worker; a report says so once.
fn repeated(worker: &Worker, frame: FrameRef) {
    static SAID: AtomicBool = AtomicBool::new(false);
    // Relaxed: reported once or twice, no more depends on it.
    if !SAID.swap(true, Ordering::Relaxed) {
        // Relaxed: the id of a running fiber does not change.
        let id = frame.id.load(Ordering::Relaxed);
        crate::prim::say(format_args!(
            "fibra: fiber #{id} caught its cancellation and made another blocking call; it is cancelled again. \
             Code that catches panics should pass on those for which fibra::is_cancellation is true."
        ));
    }
    if !frame.has(flag::NO_SUSPEND) {
        // SAFETY: on the current fiber, whose word is RUNNING.
        unsafe { step_aside(worker, frame) };
    }
}

/// Goes on here with a panic that was caught elsewhere. No hook is called for that, so the fiber itself notes that it
/// unwinds; and, if the payload is a cancellation, that the cancellation has arrived.
pub(crate) fn pass_on(payload: Box<dyn Any + Send>) -> ! {
    if let Some(here) = Here::new() {
        if is_cancellation(&*payload) {
            here.state.deliveries.set(here.state.deliveries.get().max(1));
        }
        here.begin_unwinding();
    }
    resume_unwind(payload)
}
