//! Delivery: what runs here unwinds, quietly, from the blocking call it is in up to the scope that was cancelled, or to the end of the
//! fiber. When it may is said in `levels.rs`.

use std::any::Any;
use std::panic::resume_unwind;

use crate::fiber::frame::{FrameRef, flag};
use crate::prim::atomic::{AtomicBool, Ordering};
use crate::sched::here::Here;
use crate::sched::members::scope::NEVER;
use crate::sched::worker::{Worker, signal};
use crate::wait::fiber::leave;

/// The payload of a quiet unwinding.
struct Cancelled;

/// True if this panic payload is fibra's cancellation and not somebody's panic: code that catches panics should pass it on with
/// [`std::panic::resume_unwind`].
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

/// Unwinds if what runs here is cancelled and may be unwound.
pub(crate) fn checkpoint() {
    if let Some(here) = Here::new() {
        checkpoint_on(here, &|| false);
    }
}

/// The same for one who need not wait if `settled`; see [`Here::is_due_unless`].
#[inline(never)]
pub(super) fn checkpoint_on(here: Here<'_>, settled: &dyn Fn() -> bool) {
    if here.nearest_deadline() != NEVER {
        here.check_deadlines();
    }
    if here.flags().has(flag::ANY_CANCEL) && here.is_due_unless(settled) {
        deliver_on(here);
    }
}

/// Unwinds what runs here, which is cancelled and may be unwound.
pub(crate) fn deliver() -> ! {
    deliver_on(Here::new().expect("only fibers, and threads in a scope, are cancelled"))
}

#[cold]
#[inline(never)]
pub(super) fn deliver_on(here: Here<'_>) -> ! {
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
    unwind_quietly()
}

/// Unwinds as a cancellation does.
pub(crate) fn unwind_quietly() -> ! {
    resume_unwind(payload())
}

/// What a cancellation unwinds with.
pub(crate) fn payload() -> Box<dyn Any + Send> {
    Box::new(Cancelled)
}

/// Somebody caught the cancellation and went on: others get a turn before it is delivered again, so that a loop around
/// `catch_unwind` does not hold up the worker; it is said once.
fn repeated(worker: &Worker, frame: FrameRef) {
    static SAID: AtomicBool = AtomicBool::new(false);
    // Relaxed: said once or twice, no more depends on it.
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
        unsafe { leave(worker, frame, signal::YIELD) };
    }
}

/// Goes on here with a panic that was caught elsewhere. No hook is called for that, so the fiber notes by itself that it unwinds; and, if
/// it is a cancellation, that one has arrived.
pub(crate) fn pass_on(payload: Box<dyn Any + Send>) -> ! {
    if let Some(here) = Here::new() {
        if is_cancellation(&*payload) {
            here.state.deliveries.set(here.state.deliveries.get().max(1));
        }
        here.begin_unwinding();
    }
    resume_unwind(payload)
}
