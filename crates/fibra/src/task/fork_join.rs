//! `join(a, b)`: two functions, perhaps at the same time, in the rayon manner.
//!
//! `b` is offered to the other workers while `a` runs here. Usually no worker takes it; then `b` is taken back and runs here as well: a
//! push, a pop and two calls. Closure and result of `b` stay on the joining stack in a [`Half`], and the frame that is offered only points
//! there: nothing is allocated and nothing is counted, and no fiber exists unless a thief takes the offer. `sched::life::offer` is the
//! scheduler's side of it.
//!
//! Invariants:
//! * [`join`] does not leave, in any way, before `b` was taken back or its fiber has ended: the half outlives the fiber that runs it.
//! * The closure is taken out of the half by the thief, which holds the frame in RUNNING, or by the joiner, which has taken the offer back.
//! * What the thief writes into the half is read after DONE is seen in the frame's join state; the frame is recycled after that, when the
//!   thief has let go of the list of joiners.

use std::any::Any;
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use super::fiber::shield;
use super::join::JoinWait;
use super::locals;
use super::run::{drop_quietly, end_of_user_code};
use super::spawn::fill;
use crate::cancel::cancel_fiber;
use crate::cancel::end_shields_of;
use crate::cancel::{is_cancellation, pass_on, reason_of};
use crate::fiber::frame::{FlagSet, Frame, FrameRef, RunResult, Thunk, flag};
use crate::fiber::local::drop_all;
use crate::fiber::outcome::FiberEnd;
use crate::fiber::top::FiberTop;
use crate::prim::atomic::Ordering;
use crate::sched::current;
use crate::sched::here::Here;
use crate::sched::life::offer::Offered;
use crate::sched::shared::{RootRef, RuntimeShared};
use crate::sched::worker::Worker;
use crate::wait::park::{Wait, wait, wait_to_pass_on};
use crate::wait::reason::WaitReason;
use crate::waiter::cancel_reason::CancelReason;

/// Runs two functions, at the same time if another worker is free, and returns what both return.
///
/// `a` runs right here. `b` is offered to the other workers meanwhile; if none has taken it when `a` is done, it runs here too,
/// and the whole costs little more than the two calls (some 15 ns). Both may borrow from the caller. This is for dividing work:
///
/// ```
/// fn sum(numbers: &[u64]) -> u64 {
///     if numbers.len() <= 1000 {
///         return numbers.iter().sum();
///     }
///     let (left, right) = numbers.split_at(numbers.len() / 2);
///     let (left, right) = fibra::join(|| sum(left), || sum(right));
///     left + right
/// }
///
/// let numbers: Vec<u64> = (0..100_000).collect();
/// assert_eq!(fibra::run(|| sum(&numbers)), 4_999_950_000);
/// ```
///
/// * If `a` waits (for a channel, say), its worker may start `b` meanwhile, as a fiber of its own. If `b` was taken and takes longer
///   than `a`, the calling fiber waits, and its worker runs others.
/// * **Panics.** If one of them panics, so does `join`, when both are over; if both do, the panic of `a` counts. If `a` panics before a
///   worker has taken `b`, then `b` never runs; if it was taken, it is cancelled.
/// * **Cancellation** of the calling fiber, or of a scope around the call, reaches `a` as any other code; a `b` that runs elsewhere
///   is told when `a` is over at the latest, and waited for in any case. `join` itself is no point of cancellation. Inside
///   [`shield`](crate::shield), both are shielded.
/// * **Fiber-locals**: `b` has its own, as if it were spawned, wherever it runs; inherited ones are copied when `join` is called.
///   [`current`](crate::current) in `b` is the calling fiber or another one.
/// * **Stack**: a recursion of joins uses the stack of the fiber that calls. A `b` that runs elsewhere gets one of the same size.
/// * **One after the other**, first `a`, then `b`: on a plain thread (also one that has entered a runtime; and there both have the
///   thread's locals), inside [`no_suspend`](crate::no_suspend), and when the runtime's cap of fibers is reached. So a library should
///   not have `a` wait for something that `b` does.
#[track_caller]
#[inline]
pub fn join<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB + Send,
    RB: Send,
{
    let site = Location::caller();
    let Some((worker, joiner, top)) = running() else {
        let first = a();
        return (first, b());
    };
    let flags = joiner.flags();
    if is_plain(worker, flags, top) {
        // SAFETY: just asked: it runs on this worker, and nothing stands against an offer.
        unsafe { offer(worker, joiner, flags, top, a, b, false, site) }
    } else {
        on_terms(worker, joiner, top, a, b, site)
    }
}

/// The plain case, which is the usual one.
///
/// # Safety
/// `joiner` is the running fiber and may park.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // What its callers know already.
unsafe fn offer<A, B, RA, RB>(
    worker: &Worker,
    joiner: FrameRef,
    joiner_flags: FlagSet,
    top: &'static FiberTop,
    a: A,
    b: B,
    is_shielded: bool,
    site: &'static Location<'static>,
) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB + Send,
    RB: Send,
{
    let half =
        Half { closure: UnsafeCell::new(ManuallyDrop::new(b)), end: UnsafeCell::new(ManuallyDrop::new(End::NotRun)) };
    // From here to the end `half` does not move: a thief that takes the offer has its address.
    let frame = worker.take_frame();
    // The half counts in the scope that its joiner is a child of, and is cancelled with it.
    let scoped = joiner_flags.among(flag::SCOPED);
    let shielded = flag::HOLD_OFF.only_if(is_shielded);
    let flags = flag::HALF | flag::UNCAPPED | scoped | shielded | worker.shared.base_flags.look();
    let offered = Offered { half: (&raw const half).cast(), joiner };
    // SAFETY: the joiner counts in its root, and waits until the half has ended; the frame is fresh.
    unsafe {
        let root = RootRef::from_ptr(joiner.root.get());
        fill(frame, &worker.shared, root, worker.take_id(), offered, Half::<B, RB>::THUNK, site, flags);
    }
    let ticket = frame.waiter.word.publish_spawned();
    worker.offer(frame, ticket);

    let first = catch_unwind(AssertUnwindSafe(a));

    // The joiner may have gone on on another worker than it began on.
    #[cfg(feature = "unstable-migration")]
    let worker = current::worker().expect("a fiber runs on a worker");
    if worker.take_back(frame, ticket) {
        // SAFETY: no thief started it, nor will: the half belongs to the joiner alone, and the closure is in it.
        let b = unsafe { half.take_closure() };
        return match first {
            Ok(first) => (first, with_fresh_locals(joiner, top, b)),
            Err(payload) => fail(payload, b),
        };
    }
    wait_for(joiner, frame, is_shielded, first.is_err(), site);
    // SAFETY: it has ended, which `wait_for` has seen: the half is ours alone. If it says so, the closure is still in it.
    match unsafe { (first, half.take_end()) } {
        (Ok(first), End::Returned(second)) => (first, second),
        (Ok(_), End::Unwound(payload)) => pass_on(payload),
        // SAFETY: as above.
        (Ok(first), End::NotRun) => (first, with_fresh_locals(joiner, top, unsafe { half.take_closure() })),
        (Err(payload), End::Returned(second)) => fail(payload, second),
        (Err(payload), End::Unwound(other)) => fail_twice(payload, other),
        // SAFETY: as above.
        (Err(payload), End::NotRun) => fail(payload, unsafe { half.take_closure() }),
    }
}

/// All cases but the plain one: see [`is_plain`].
#[cold]
#[inline(never)]
fn on_terms<A, B, RA, RB>(
    worker: &Worker,
    joiner: FrameRef,
    top: &'static FiberTop,
    a: A,
    b: B,
    site: &'static Location<'static>,
) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB + Send,
    RB: Send,
{
    /// The place under the cap of fibers that a join holds, whether or not its half becomes a fiber.
    struct CapUnit(&'static RuntimeShared);
    impl Drop for CapUnit {
        fn drop(&mut self) {
            self.0.dismiss();
        }
    }
    /// The offer lies in a queue of this worker: the fiber stays here until it is over.
    struct Stays(FrameRef);
    impl Drop for Stays {
        fn drop(&mut self) {
            self.0.raise(flag::MOVES);
        }
    }
    let _stays = joiner.has(flag::MOVES).then(|| {
        joiner.lower(flag::MOVES);
        Stays(joiner)
    });
    // First: cloning is user code, and may panic.
    let inherited = locals::inherited(joiner);
    // A shield that is open here stays so until the join is over, and holds off cancellation from outside, for the half as well.
    // (Cancellation from a scope inside the shield is held off for the half too: it cannot tell the one from the other.)
    let is_shielded = Here::on(worker, joiner).hold() != 0 || worker.shared.config.cooperative;
    if !is_shielded {
        // The flag has outlived its reason; it is lowered, so that the next join takes the plain way.
        joiner.lower(flag::HOLD_OFF);
    }
    let b = move || {
        if !inherited.is_empty()
            && let Some(top) = current::fiber().and_then(Frame::top)
        {
            locals::adopt(top, inherited);
        }
        if is_shielded { shield(b) } else { b() }
    };
    // SAFETY: the runtime of the running fiber, which outlives the join.
    let shared = unsafe { RuntimeShared::of(joiner) };
    if joiner.has(flag::NO_SUSPEND) || !shared.admit() {
        let first = a();
        return (first, with_fresh_locals(joiner, top, b));
    }
    let _place = CapUnit(shared);
    // SAFETY: the running fiber, and it may park.
    unsafe { offer(worker, joiner, joiner.flags(), top, a, b, is_shielded, site) }
}

/// The worker and the fiber that this runs on.
#[inline(always)]
fn running<'a>() -> Option<(&'a Worker, FrameRef, &'static FiberTop)> {
    let worker = current::worker()?;
    let frame = worker.current.get()?;
    Some((worker, frame, frame.top()?))
}

/// Is there nothing to be considered, as in almost all cases?
#[inline(always)]
fn is_plain(worker: &Worker, joiner_flags: FlagSet, top: &FiberTop) -> bool {
    !joiner_flags.has(flag::NO_SUSPEND | flag::HOLD_OFF | flag::MOVES)
        && top.locals.get().is_null()
        && !worker.shared.is_capped()
        && !std::thread::panicking()
}

/// Runs the second half on the joining fiber, with fiber-locals of its own.
#[inline(always)]
fn with_fresh_locals<RB>(joiner: FrameRef, top: &'static FiberTop, b: impl FnOnce() -> RB) -> RB {
    /// Drops the half's locals and brings the joiner's back, also when the half panics.
    struct Fresh {
        joiner: FrameRef,
        top: &'static FiberTop,
        outer: *mut (),
    }
    impl Drop for Fresh {
        #[inline(always)]
        fn drop(&mut self) {
            drop_all(self.joiner, self.top);
            locals::attach(self.top, self.outer);
        }
    }
    let _fresh = Fresh { joiner, top, outer: locals::detach(top) };
    b()
}

/// The first half panicked, or was cancelled. What is left of the second one is dropped before that goes on.
#[cold]
#[inline(never)]
fn fail<Left>(payload: Box<dyn Any + Send>, left: Left) -> ! {
    drop_quietly(left);
    pass_on(payload)
}

/// Both panicked, or were cancelled. The first counts, unless it is a mere cancellation.
#[cold]
#[inline(never)]
fn fail_twice(first: Box<dyn Any + Send>, second: Box<dyn Any + Send>) -> ! {
    if is_cancellation(&*first) { fail(second, first) } else { fail(first, second) }
}

/// Waits until the half in `frame`, which was started, has ended, and recycles the frame.
#[cold]
#[inline(never)]
fn wait_for(joiner: FrameRef, frame: FrameRef, is_shielded: bool, has_failed: bool, site: &'static Location<'static>) {
    /// The thief is using the stack that an unwinding would take away. Nothing below unwinds; if it did, this aborts the process.
    struct NoWayOut;
    impl Drop for NoWayOut {
        fn drop(&mut self) {
            crate::prim::say(format_args!("fibra: the wait for the other half of a join was unwound (a bug in fibra)"));
            std::process::abort();
        }
    }
    let no_way_out = NoWayOut;
    // Relaxed: the id of a live fiber does not change.
    let object = frame.id.load(Ordering::Relaxed);
    let how = Wait { reason: WaitReason::JoinHalf, object, site, deadline: None };
    let mut is_told = false;
    while frame.join.result().is_none() {
        let here = Here::new().expect("a fiber waits for its half");
        // A cancellation that may not be delivered here is told to the half, which is shielded as well: there it can only be observed.
        let is_due = here.flags().has(flag::ANY_CANCEL) && (here.is_due() || is_shielded && here.is_observable());
        if !is_told && (is_due || has_failed) {
            let reason = here.reason().filter(|_| is_due).unwrap_or(CancelReason::OtherHalf);
            cancel_fiber(frame, &reason);
            if joiner.has(flag::OVERDUE) {
                end_shields_of(frame);
            }
            is_told = true;
        }
        let half = JoinWait::<true>::new(frame);
        // No other owner may end this wait. But cancellation is passed on, and for that it may interrupt it, once.
        let _ = if is_told { wait(half, how) } else { wait_to_pass_on(half, how) };
    }
    std::mem::forget(no_way_out);
    // A half that was cancelled from elsewhere, with the scope of both, takes its joiner along: there is no value to go on with.
    if !is_told
        && frame.join.result() == Some(FiberEnd::Cancelled)
        && let Some(reason) = reason_of(frame)
    {
        cancel_fiber(joiner, &reason);
    }
    frame.join.wait_until_unlocked();
    current::worker().expect("a fiber runs on a worker").recycle(frame);
}

/// The second half of a join, on the joining stack. Nothing is dropped with it: what was put in is taken out.
struct Half<B, RB> {
    /// Present until its runner has taken it out.
    closure: UnsafeCell<ManuallyDrop<B>>,
    end: UnsafeCell<ManuallyDrop<End<RB>>>,
}

/// How the fiber of a half ended.
enum End<RB> {
    /// It did not run it: cancelled before it started, or without a stack. The closure is still there.
    NotRun,
    Returned(RB),
    Unwound(Box<dyn Any + Send>),
}

impl<B: FnOnce() -> RB, RB> Half<B, RB> {
    const THUNK: &'static Thunk = &Thunk { run: Self::run, discard: Self::discard };

    /// # Safety
    /// The caller alone has the half (see the header), and the closure was not taken out.
    #[inline(always)]
    unsafe fn take_closure(&self) -> B {
        // SAFETY: the caller's promise.
        unsafe { ManuallyDrop::take(&mut *self.closure.get()) }
    }

    /// # Safety
    /// The caller alone has the half, and calls this once.
    unsafe fn take_end(&self) -> End<RB> {
        // SAFETY: the caller's promise.
        unsafe { ManuallyDrop::take(&mut *self.end.get()) }
    }

    /// A thief took the offer: this is now a fiber. On its stack.
    unsafe fn run(frame: &Frame) -> RunResult {
        count_start();
        if frame.flags().among(flag::CANCEL | flag::HOLD_OFF) == flag::CANCEL {
            // The joiner runs it, if it has to be run.
            return RunResult::Ended(FiberEnd::Value);
        }
        // SAFETY: `offer` put it there; it waits until this fiber has ended, so the half is there, and RUNNING makes it ours till then.
        let half = unsafe { &*frame.take::<Offered>().half.cast::<Self>() };
        // SAFETY: as above, and the closure was not run.
        let b = unsafe { half.take_closure() };
        let result = catch_unwind(AssertUnwindSafe(b));
        end_of_user_code(frame);
        let (end, outcome) = match result {
            Ok(value) => (End::Returned(value), FiberEnd::Value),
            Err(payload) if is_cancellation(&*payload) => (End::Unwound(payload), FiberEnd::Cancelled),
            Err(payload) => (End::Unwound(payload), FiberEnd::Panicked),
        };
        // SAFETY: the joiner reads it only after the end of this fiber.
        unsafe { *half.end.get() = ManuallyDrop::new(end) };
        RunResult::Ended(outcome)
    }

    /// No stack could be had: the half stays as it is, and its joiner will run it.
    unsafe fn discard(_: &Frame) {
        count_start();
    }
}

/// A half counts as a fiber from the moment it is one.
fn count_start() {
    current::worker().expect("a fiber starts on a worker").stats().spawned.add(1);
}
