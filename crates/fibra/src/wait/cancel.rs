//! Delivering cancellation: the fiber unwinds, quietly, from the blocking call it is in up to its end.
//!
//! The request (flag and claim) is `sched::cancel`'s. Here: when a fiber may be unwound, and how. It is held off while a `shield`
//! is open and while *this fiber* unwinds already (a second unwinding out of a destructor would abort the process), which is a flag of its
//! own, set before our own unwinding and by the panic hook. `resume_unwind` calls no hook, and a program may replace ours; so
//! `thread::panicking()`, which belongs to the whole worker, is asked too, and believed if no parked neighbour explains it.

use std::any::Any;
use std::panic::resume_unwind;

use crate::fiber::frame::{FrameRef, flag};
use crate::fiber::id::FiberId;
use crate::fiber::top::FiberTop;
use crate::prim::atomic::{AtomicBool, Ordering};
use crate::sched::current;
use crate::sched::worker::{Worker, signal};

/// Why a fiber was cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum CancelReason {
    /// [`JoinHandle::cancel`](crate::JoinHandle::cancel), or its handle was dropped after `cancel_on_drop`.
    Handle = 1,
    /// The runtime is shutting down.
    Shutdown = 2,
    /// The root function of its `run` panicked or returned an error.
    RootFailed = 3,
    /// It is a daemon, and the `run` it was started in is over.
    RunEnded = 4,
    /// It never started: as many fibers as the runtime's cap allows were alive.
    Full = 5,
}

impl CancelReason {
    pub(crate) fn from_bits(bits: u32) -> Option<Self> {
        let all = [Self::Handle, Self::Shutdown, Self::RootFailed, Self::RunEnded, Self::Full];
        all.into_iter().find(|reason| *reason as u32 == bits)
    }

    /// The reason in a frame's flags, if it is cancelled.
    pub(crate) fn of(frame: FrameRef) -> Option<Self> {
        let flags = frame.flags();
        if flags & flag::CANCEL == 0 {
            return None;
        }
        Self::from_bits((flags & flag::REASON_MASK) >> flag::REASON_SHIFT)
    }
}

/// A clause that reads by itself and after "was cancelled: ".
impl std::fmt::Display for CancelReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Handle => "its handle asked for it",
            Self::Shutdown => "the runtime is shutting down",
            Self::RootFailed => "the root function failed",
            Self::RunEnded => "the run it was a daemon of has ended",
            Self::Full => "the runtime's cap of fibers was reached, so it never started",
        })
    }
}

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

/// Must cancellation of the running fiber wait? Asked if HOLD_OFF is set or somebody on this thread unwinds, which say that it may have to.
#[cold]
#[inline(never)]
pub(crate) fn held_off(worker: &Worker, frame: FrameRef) -> bool {
    let top = frame.top().expect("a running fiber has a stack");
    let held_off = is_still_unwinding(worker, frame, top) || top.shields.get() != 0 || worker.shared.config.cooperative;
    if !held_off {
        frame.lower(flag::HOLD_OFF);
    }
    held_off
}

/// This fiber unwinds from now on, until it is found not to any more.
pub(crate) fn begin_unwinding(frame: FrameRef, top: &FiberTop) {
    top.unwinding.set(true);
    top.dirty.set(true);
    frame.raise(flag::HOLD_OFF);
}

fn is_still_unwinding(worker: &Worker, frame: FrameRef, top: &FiberTop) -> bool {
    // The flag is ours, the question the thread's: if nobody unwinds on this worker, this fiber does not either. (A neighbour
    // that parked inside a destructor can make the answer a late yes, never an early no.)
    if !std::thread::panicking() {
        top.unwinding.set(false);
    } else if worker.parked_unwinding.get() == 0 {
        // Somebody on this thread unwinds, and nobody who does is parked: it is this fiber, and the hook was not called for it.
        begin_unwinding(frame, top);
    }
    top.unwinding.get()
}

/// How whatever runs here is being unwound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unwinding {
    Cancelled,
    Panicked(FiberId),
}

/// Is whatever runs here being unwound, and by what?
pub(crate) fn unwinding() -> Option<Unwinding> {
    if !std::thread::panicking() {
        return None;
    }
    let running = current::worker().and_then(|worker| Some((worker, worker.current.get()?)));
    let Some((worker, frame)) = running else { return Some(Unwinding::Panicked(FiberId::NONE)) };
    let top = frame.top().expect("a running fiber has a stack");
    if !is_still_unwinding(worker, frame, top) {
        return None;
    }
    // A fiber that was told to end and then panicked on its way counts as cancelled.
    let delivered = top.deliveries.get() > 0 && frame.has(flag::CANCEL);
    Some(if delivered { Unwinding::Cancelled } else { Unwinding::Panicked(FiberId::of(frame)) })
}

/// Suspends the running fiber, which may be unwinding (it is inside a destructor): its neighbours have to know, since
/// `thread::panicking()` is true for them meanwhile.
///
/// # Safety
/// As [`Worker::suspend`].
#[cold]
#[inline(never)]
pub(crate) unsafe fn suspend_unwinding(worker: &Worker, frame: FrameRef, signal: usize) {
    let top = frame.top().expect("a running fiber has a stack");
    let counted = u32::from(is_still_unwinding(worker, frame, top));
    worker.parked_unwinding.set(worker.parked_unwinding.get() + counted);
    // SAFETY: passed on.
    unsafe { worker.suspend(frame, signal) };
    worker.parked_unwinding.set(worker.parked_unwinding.get() - counted);
}

/// Unwinds if this fiber is cancelled and may be unwound.
#[inline]
pub(crate) fn checkpoint() {
    let Some(worker) = current::worker() else { return };
    let Some(frame) = worker.current.get() else { return };
    if frame.has(flag::CANCEL) && !held_off(worker, frame) {
        deliver();
    }
}

/// Unwinds the current fiber, which is cancelled and may be unwound.
#[cold]
#[inline(never)]
pub(crate) fn deliver() -> ! {
    let worker = current::worker().expect("only fibers are cancelled");
    let frame = worker.current.get().expect("only fibers are cancelled");
    let top = frame.top().expect("a running fiber has a stack");
    let deliveries = top.deliveries.get() + 1;
    top.deliveries.set(deliveries);
    top.dirty.set(true);
    worker.stats().cancellations.add(1);
    if deliveries > 1 {
        repeated(worker, frame);
    }
    begin_unwinding(frame, top);
    crate::fiber::overflow_reserve(frame);
    resume_unwind(Box::new(Cancelled))
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
        unsafe { suspend_unwinding(worker, frame, signal::YIELD) };
    }
}

/// Goes on here with a panic that was caught elsewhere. No hook is called for that, so the fiber notes by itself that it unwinds.
pub(crate) fn pass_on(payload: Box<dyn Any + Send>) -> ! {
    if let Some(frame) = current::fiber()
        && let Some(top) = frame.top()
    {
        begin_unwinding(frame, top);
    }
    resume_unwind(payload)
}
