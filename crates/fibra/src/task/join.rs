//! Join handles: waiting for a fiber and taking its result.
//!
//! The result lives in the fiber's frame, and the handle keeps the frame from being recycled. A joiner parks on the list in the frame; many
//! may wait at once through a shared handle, one takes the result. Above: users, `gather.rs`, `select::join`. Below: `fiber::outcome`,
//! `wait::park`.

mod error;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::{self, MaybeUninit};
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::blocking::{LOOK, is_pool_stuck, would_rather_wait};
use super::run::Panic;
use super::unread;
use crate::cancel::cancel_fiber;
use crate::cancel::{is_cancellation, pass_on, reason_of};
use crate::fiber::frame::{Errand, Frame, FrameRef, flag};
use crate::fiber::id::FiberId;
use crate::fiber::outcome::{Detach, FiberEnd};
use crate::fiber::slab;
use crate::prim::bug::seeded_bug;
use crate::prim::instant::Instant;
use crate::sched::current;
use crate::sched::members::scope::NotStarted;
use crate::wait::park::{self, Wait, Waitable, wait, wait_as_fiber};
use crate::wait::reason::WaitReason;
use crate::wait::task::TaskWait;
use crate::wait::waitable::{Published, linked_or};
use crate::waiter::cancel_reason::CancelReason;
use crate::waiter::node::{Node, Outcome};
pub use error::JoinError;
use error::JoinErrorKind;

/// The handle of a fiber: join it, cancel it, ask for it. Dropping it lets the fiber go on by itself.
///
/// ```
/// use fibra::JoinError;
///
/// fibra::run(|| {
///     let child = fibra::spawn(|| 6 * 7);
///     assert_eq!(child.join().unwrap(), 42);
///
///     let failing = fibra::spawn(|| -> u32 { std::panic::resume_unwind(Box::new("no luck")) });
///     let error: JoinError = failing.join().unwrap_err();
///     assert!(error.is_panic());
///     assert_eq!(error.message(), "no luck");
/// });
/// ```
pub struct JoinHandle<T> {
    frame: FrameRef,
    _result: PhantomData<T>,
}

/// The result of a function that was called with its panics caught: by a thread of the blocking pool, or by a joiner itself.
pub(crate) type Caught<T> = Result<T, Box<dyn Any + Send>>;

// SAFETY: the handle moves a `T` from the fiber to its joiner, and is otherwise a reference to atomics.
unsafe impl<T: Send> Send for JoinHandle<T> {}
// SAFETY: through a shared handle one can wait, ask and cancel, but not reach the `T`.
unsafe impl<T: Send> Sync for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    #[inline(always)]
    pub(crate) fn new(frame: FrameRef) -> Self {
        Self { frame, _result: PhantomData }
    }

    /// Waits until the fiber has ended and takes what it returned.
    ///
    /// # Errors
    /// If it panicked (the payload is in the error), was cancelled, never got a stack, or is the very fiber that calls.
    #[track_caller]
    #[inline]
    pub fn join(self) -> Result<T, JoinError> {
        if self.frame.join.has_value() { Ok(self.take_value()) } else { self.join_slowly(Location::caller()) }
    }

    /// The join of a fiber that has not ended, or without a value, or whose worker still has its list of joiners.
    #[inline(never)]
    fn join_slowly(self, site: &'static Location<'static>) -> Result<T, JoinError> {
        let here = current::worker().and_then(|worker| Some((worker, worker.current.get()?)));
        let Some((worker, fiber)) = here.filter(|(_, fiber)| !self.has_ended() && self.is_joined_as_usual(fiber))
        else {
            return self.join_otherwise(site);
        };
        let is_next = worker.run_next_if_newest(self.frame);
        let end = JoinWait::<true> { frame: self.frame, is_next };
        // (The wait unwinds if the joiner is cancelled; otherwise, as a rule, the fiber has ended, or the joiner waits once more.)
        let _ended = wait_as_fiber(worker, fiber, end, self.how(WaitReason::Join, None, site));
        if self.frame.join.has_value() { Ok(self.take_value()) } else { self.join_at_last(site) }
    }

    /// Does this fiber join another fiber, for which the joiner has nothing to do but to wait?
    #[inline(always)]
    fn is_joined_as_usual(&self, by: FrameRef) -> bool {
        !std::ptr::eq(by, self.frame) && !self.frame.has(flag::EXTRAS)
    }

    /// [`join`](Self::join) in all other cases.
    #[cold]
    #[inline(never)]
    fn join_otherwise(self, site: &'static Location<'static>) -> Result<T, JoinError> {
        if self.has_ended() {
            self.visit_if_refused();
            return self.take_result();
        }
        if self.is_current() {
            return Err(self.error(JoinErrorKind::SelfJoin));
        }
        if self.frame.has(flag::EXTRAS)
            && let Some(result) = self.do_errand_or_wait(site)
        {
            return self.conclude_errand(result);
        }
        self.join_at_last(site)
    }

    /// The same after the steps that come before the wait.
    #[cold]
    #[inline(never)]
    fn join_at_last(self, site: &'static Location<'static>) -> Result<T, JoinError> {
        self.wait_for::<true>(WaitReason::Join, None, site);
        self.take_result()
    }

    /// Like [`join`](Self::join), but gives up after `timeout` and hands the handle back.
    ///
    /// # Errors
    /// The handle itself if time was up.
    #[track_caller]
    pub fn join_timeout(self, timeout: Duration) -> Result<Result<T, JoinError>, Self> {
        self.join_at(Instant::now().saturating_add(timeout), Location::caller())
    }

    /// Like [`join`](Self::join), but gives up at `deadline` and hands the handle back.
    ///
    /// # Errors
    /// The handle itself if time was up.
    #[track_caller]
    pub fn join_deadline(self, deadline: impl Into<Instant>) -> Result<Result<T, JoinError>, Self> {
        self.join_at(deadline.into(), Location::caller())
    }

    fn join_at(self, deadline: Instant, site: &'static Location<'static>) -> Result<Result<T, JoinError>, Self> {
        match self.frame.join.result() {
            None if self.is_current() => return Ok(Err(self.error(JoinErrorKind::SelfJoin))),
            None if !self.wait_for::<true>(WaitReason::Join, Some(deadline), site) => return Err(self),
            Some(FiberEnd::Cancelled | FiberEnd::NotStarted) => visit_scheduler(),
            _ => {}
        }
        Ok(self.take_result())
    }

    /// Takes the result if the fiber has ended.
    ///
    /// # Errors
    /// The handle itself if it has not.
    pub fn try_join(self) -> Result<Result<T, JoinError>, Self> {
        park::count_call();
        if self.has_ended() { Ok(self.take_result()) } else { Err(self) }
    }

    /// Waits until the fiber has ended, without taking anything. Many may wait at once.
    ///
    /// # Panics
    /// If it is the very fiber that calls: that wait would never end.
    #[track_caller]
    pub fn wait(&self) {
        park::count_call();
        assert!(self.has_ended() || !self.is_current(), "fibra: a fiber cannot wait for its own end");
        let _takes_nothing = TakesNothing(self);
        self.wait_until(None, Location::caller());
    }

    /// Waits until the fiber has ended or `timeout` has passed. True if it has ended.
    #[track_caller]
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        let _takes_nothing = TakesNothing(self);
        self.wait_until(Some(Instant::now().saturating_add(timeout)), Location::caller())
    }

    /// Waits until the fiber has ended or `deadline` has come. True if it has ended.
    #[track_caller]
    pub fn wait_deadline(&self, deadline: impl Into<Instant>) -> bool {
        let _takes_nothing = TakesNothing(self);
        self.wait_until(Some(deadline.into()), Location::caller())
    }

    /// Joins in any case: a binding wait for this reason.
    pub(crate) fn join_bound(self, reason: WaitReason, site: &'static Location<'static>) -> Result<T, JoinError> {
        debug_assert!(reason.is_binding());
        self.wait_for::<true>(reason, None, site);
        self.take_result()
    }

    #[inline(always)]
    fn wait_until(&self, deadline: Option<Instant>, site: &'static Location<'static>) -> bool {
        self.wait_for::<false>(WaitReason::Join, deadline, site)
    }

    /// `SOLE`: as in [`JoinWait`].
    #[inline(always)] // A join without a deadline pays for none.
    fn wait_for<const SOLE: bool>(
        &self,
        reason: WaitReason,
        deadline: Option<Instant>,
        site: &'static Location<'static>,
    ) -> bool {
        let how = self.how(reason, deadline, site);
        while !self.has_ended() {
            let is_next =
                deadline.is_none() && current::worker().is_some_and(|worker| worker.run_next_if_newest(self.frame));
            if wait(JoinWait::<SOLE> { frame: self.frame, is_next }, how) == Outcome::TimedOut {
                return self.has_ended();
            }
        }
        true
    }

    #[inline(always)]
    fn how(&self, reason: WaitReason, deadline: Option<Instant>, site: &'static Location<'static>) -> Wait {
        Wait { reason, object: self.id().as_u64(), site, deadline: deadline.map(Instant::as_nanos) }
    }

    /// The function that the fiber was started for, if it was not begun, and will be: see `spawn_blocking`.
    pub(crate) fn errand(&self) -> Option<Arc<dyn Errand>> {
        // A function that was cancelled before it began must not run. Where cancellation is cooperative it runs all the same. (A fiber that
        // unwinds holds cancellation off too: but then its function is gone, and the upgrade after this look fails.)
        if self.frame.has(flag::CANCEL) && !self.frame.has(flag::HOLD_OFF) {
            return None;
        }
        // SAFETY: the handle keeps the frame from being recycled.
        let errand = unsafe { self.frame.extras() }?.errand.as_ref()?.upgrade()?;
        errand.is_open().then_some(errand)
    }

    /// Runs that function here, if this is a thread that may.
    pub(crate) fn do_errand(&self) -> Option<Caught<T>> {
        let errand = self.errand().filter(|errand| errand.is_fit_here())?;
        let mut result = MaybeUninit::<Caught<T>>::uninit();
        // SAFETY: fit; a place for just that, since `T` is what the fiber returns.
        let done = unsafe { errand.run_here(result.as_mut_ptr().cast()) };
        // SAFETY: written, it says.
        done.then(|| unsafe { result.assume_init() })
    }

    /// The same for a join, which would do nothing else until the fiber has ended. If there is a reason against running it here, the join
    /// waits for another thread as long as one may become free.
    #[cold]
    #[inline(never)]
    fn do_errand_or_wait(&self, site: &'static Location<'static>) -> Option<Caught<T>> {
        while self.errand()?.is_fit_here() && would_rather_wait() && !is_pool_stuck() {
            if self.wait_until(Some(Instant::after(LOOK)), site) {
                return None;
            }
        }
        self.do_errand()
    }

    /// The end of a join whose fiber has nothing left to do: the fiber ends by itself, and need not wait for a thread that tells it.
    #[cold]
    pub(crate) fn conclude_errand(self, result: Caught<T>) -> Result<T, JoinError> {
        self.cancel();
        result.map_err(|payload| {
            if is_cancellation(&*payload) {
                // A scope around the join was cancelled.
                pass_on(payload);
            }
            self.error(JoinErrorKind::Panicked(payload))
        })
    }

    /// Has it ended?
    pub fn is_finished(&self) -> bool {
        park::count_call();
        self.has_ended()
    }

    /// [`is_finished`](Self::is_finished) for fibra's own use: it does not let others run.
    #[inline(always)]
    pub(crate) fn has_ended(&self) -> bool {
        self.frame.join.is_over()
    }

    /// Asks the fiber to end: if it is parked it is woken at once and unwinds (its destructors run), otherwise it unwinds at its next
    /// blocking call. Returns without waiting for that. Does nothing to a fiber that has ended.
    pub fn cancel(&self) {
        if !self.has_ended() {
            cancel_fiber(self.frame, &CancelReason::Handle);
        }
    }

    /// From now on, dropping this handle cancels the fiber instead of letting it go on.
    #[must_use = "it is the handle that is returned which cancels when it is dropped"]
    pub fn cancel_on_drop(self) -> Self {
        // Read by this handle's own drop.
        self.frame.raise(flag::CANCEL_ON_DROP);
        self
    }

    /// The fiber's id.
    pub fn id(&self) -> FiberId {
        FiberId::of(self.frame)
    }

    /// The fiber's name, if it was given one.
    pub fn name(&self) -> Option<&str> {
        // SAFETY: the handle keeps the frame from being recycled.
        unsafe { self.frame.extras() }.and_then(|extras| extras.name.as_deref())
    }

    /// The end of the fiber, as something to wait on. Other waiters may exist.
    pub(crate) fn end(&self) -> JoinWait<false> {
        JoinWait::new(self.frame)
    }

    /// Makes a gathering's node a member for this fiber: it is brought there when the fiber has ended. False: it has already.
    pub(crate) fn gather(&self, node: &Node) -> bool {
        link_joiner(self.frame, node)
    }

    /// Takes such a node back. When this returns, it is not in the fiber's list: the gathering may have it.
    pub(crate) fn leave(&self, node: &Node) {
        unpublish_joiner(self.frame, node);
    }

    /// Before a result is taken that was there already; see [`visit_scheduler`].
    pub(crate) fn visit_if_refused(&self) {
        if let Some(FiberEnd::Cancelled | FiberEnd::NotStarted) = self.frame.join.result() {
            visit_scheduler();
        }
    }

    /// Did it end with a panic?
    pub(crate) fn has_panicked(&self) -> bool {
        self.frame.join.result() == Some(FiberEnd::Panicked)
    }

    fn is_current(&self) -> bool {
        is_current(self.frame)
    }

    /// The usual end of a join: see [`has_value`](crate::fiber::outcome::JoinState::has_value).
    #[inline(always)]
    fn take_value(self) -> T {
        let frame = self.frame;
        mem::forget(self);
        // SAFETY: DONE, so the fiber's side is through with the frame; `publish_value` put a `T` there and it was not taken: only the owned
        // handle does.
        let value = unsafe { frame.take::<T>() };
        recycle(frame);
        value
    }

    /// The fiber has ended: take the result out, recycle the frame.
    #[inline(never)]
    fn take_result(self) -> Result<T, JoinError> {
        let frame = self.frame;
        let outcome = frame.join.result().expect("asked only after the end");
        let result = match outcome {
            // SAFETY: DONE, so the fiber's side is through with the storage; `publish_value` put a `T` there and it was not taken: only the
            // owned handle does.
            FiberEnd::Value => Ok(unsafe { frame.take::<T>() }),
            // SAFETY: as above, `publish_panic`.
            FiberEnd::Panicked => Err(self.error(JoinErrorKind::Panicked(unsafe { frame.take::<Panic>() }.payload()))),
            FiberEnd::Cancelled => Err(self.error(JoinErrorKind::Cancelled(reason_of(frame)))),
            FiberEnd::NoStack => Err(self.error(JoinErrorKind::NoStack)),
            FiberEnd::NotStarted => {
                // SAFETY: as above; `refused_child` or `stackless` put it there.
                unsafe { frame.take::<NotStarted>() }.take();
                // A fiber that was refused has a reason; a fiber that got no stack has none.
                let reason = reason_of(frame);
                Err(self.error(reason.map_or(JoinErrorKind::NoStack, |reason| JoinErrorKind::Cancelled(Some(reason)))))
            }
        };
        mem::forget(self);
        frame.join.wait_until_unlocked();
        recycle(frame);
        result
    }

    #[cold]
    #[inline(never)]
    fn error(&self, kind: JoinErrorKind<Box<dyn Any + Send>>) -> JoinError {
        // SAFETY: the handle keeps the frame from being recycled.
        let name = unsafe { self.frame.extras() }.and_then(|extras| extras.name.clone());
        JoinError::new(self.id(), name, kind)
    }
}

/// Joining a fiber that was cancelled already. Perhaps it was refused because the runtime shuts down: a fiber that spawns and joins in a
/// loop would then never wait again; here it visits the scheduler, where it learns that it is cancelled too, and unwinds. Or it was refused
/// because the runtime is full, and other fibers have to run before that changes.
#[cold]
#[inline(never)]
fn visit_scheduler() {
    if current::fiber().is_some_and(|frame| !frame.has(flag::NO_SUSPEND)) {
        park::yield_now();
    }
}

#[inline(always)]
fn recycle(frame: FrameRef) {
    match current::worker() {
        Some(worker) => worker.recycle(frame),
        None => {
            frame.clear_extras();
            frame.waiter.word.recycle();
            slab::give_shared(frame);
        }
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if self.frame.has(flag::CANCEL_ON_DROP) {
            self.cancel();
        }
        // A result without a destructor needs no taking out.
        let mut taken = false;
        loop {
            match self.frame.join.detach(taken) {
                Detach::LeaveToFiber => return,
                Detach::Recycle => return recycle(self.frame),
                Detach::TakeResult(outcome) => {
                    match outcome {
                        FiberEnd::Value if Frame::must_be_taken::<T>() || unread::may_matter::<T>() => {
                            // SAFETY: READY: the value is in the frame and the handle's to drop; `detach` says so once.
                            let value = unsafe { self.frame.take::<T>() };
                            // The frame must not be lost if the value's destructor panics: that panic goes on to the caller after the frame
                            // is recycled.
                            let _again = DetachOnDrop(self.frame);
                            unread::look_at(self.frame, &value);
                            drop(value);
                            return;
                        }
                        FiberEnd::Panicked => {
                            // SAFETY: as above.
                            unsafe { self.frame.take::<Panic>() }.unjoined();
                        }
                        FiberEnd::NotStarted => {
                            // SAFETY: as above.
                            unsafe { self.frame.take::<NotStarted>() }.unjoined();
                        }
                        _ => {}
                    }
                    taken = true;
                }
            }
        }
    }
}

/// A wait through a shared handle. The child of a scope may have panicked meanwhile; it counted as joined, but no joiner has taken its
/// panic: its scope has to know, also if the wait was cancelled.
struct TakesNothing<'a, T>(&'a JoinHandle<T>);

impl<T> Drop for TakesNothing<'_, T> {
    fn drop(&mut self) {
        let frame = self.0.frame;
        if frame.join.result() == Some(FiberEnd::Panicked) && frame.has(flag::SCOPED) {
            // SAFETY: DONE, `publish_panic` put it there; it is taken by the owned handle only, and that is borrowed here.
            unsafe {
                frame.look_at::<Panic, _>(|panic| {
                    if let Panic::RuntimeShared(slot) = panic {
                        slot.unjoined();
                    }
                });
            }
        }
    }
}

/// The rest of a handle's drop after its result was taken out.
struct DetachOnDrop(FrameRef);

impl Drop for DetachOnDrop {
    fn drop(&mut self) {
        if self.0.join.detach(true) == Detach::Recycle {
            recycle(self.0);
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("JoinHandle");
        debug.field("id", &self.id()).field("name", &self.name()).field("finished", &self.has_ended()).finish()
    }
}

fn is_current(fiber: FrameRef) -> bool {
    current::fiber().is_some_and(|frame| std::ptr::eq(frame, fiber))
}

/// The end of a fiber, as something to wait on. `SOLE`: the waiter owns the handle, so that it is the only one that waits for the fiber.
#[derive(Clone, Copy)]
pub(crate) struct JoinWait<const SOLE: bool> {
    frame: FrameRef,
    /// The fiber has not started, and this worker runs it when the joiner has parked: until then only the joiner knows of it.
    is_next: bool,
}

impl<const SOLE: bool> JoinWait<SOLE> {
    pub(crate) fn new(frame: FrameRef) -> Self {
        Self { frame, is_next: false }
    }
}

impl<const SOLE: bool> Waitable for JoinWait<SOLE> {
    /// (The waiter's own end counts as there at once: joining oneself is an error, not a wait.)
    fn try_now(&self) -> Outcome {
        if self.is_settled() || is_current(self.frame) { Outcome::Done } else { Outcome::Pending }
    }

    #[inline(always)]
    fn publish(&self, node: &Node) -> Published {
        let is_linked =
            if SOLE { announce_joiner(self.frame, node, self.is_next) } else { link_joiner(self.frame, node) };
        linked_or(is_linked, Outcome::Done)
    }

    fn unpublish(&self, node: &Node, _: &mut Vec<Waker>) {
        unpublish_joiner(self.frame, node);
    }

    fn is_settled(&self) -> bool {
        self.frame.join.is_over()
    }
}

/// The publication of a joiner that owns the handle. False: the fiber has ended, and nothing is linked.
#[inline(always)]
fn announce_joiner(frame: FrameRef, node: &Node, is_next: bool) -> bool {
    debug_assert!(frame.joiners.is_empty(), "a fiber whose handle is being joined has no other waiter");
    // SAFETY: the list is the handle's side's alone until the announcement, and the handle is the joiner's; the node stays where it is, on
    // the joiner's stack, until it is unlinked.
    unsafe { frame.joiners.push_back(node) };
    if is_next {
        frame.join.announce_before_start();
        return true;
    }
    let announced = frame.join.announce_joiner();
    if !announced {
        // SAFETY: it has ended without looking at the list.
        unsafe { frame.joiners.remove(node) };
    }
    announced
}

/// False: the fiber has ended, and nothing is linked.
fn link_joiner(frame: FrameRef, node: &Node) -> bool {
    let Some(locked) = frame.join.lock() else { return false };
    // SAFETY: under the lock of the list; the node stays where it is (a waiting stack, a record, a set of handles) until it is unlinked.
    unsafe { frame.joiners.push_back(node) };
    frame.join.unlock(locked, true);
    true
}

fn unpublish_joiner(frame: FrameRef, node: &Node) {
    match frame.join.lock() {
        Some(locked) => {
            // SAFETY: under the lock of the list.
            unsafe { frame.joiners.remove(node) };
            frame.join.unlock(locked, !frame.joiners.is_empty());
        }
        // The worker that ended the fiber unlinks every node before it unlocks for the last time; the node must not go before that.
        None if seeded_bug("joiner_leaves_early") => {}
        None => frame.join.wait_until_unlocked(),
    }
}

/// The future of a [`JoinHandle`]. Dropping it detaches the fiber, like dropping the handle.
#[must_use = "futures do nothing unless polled"]
pub struct JoinFuture<T> {
    handle: Option<JoinHandle<T>>,
    wait: TaskWait,
}

impl<T> IntoFuture for JoinHandle<T> {
    type Output = Result<T, JoinError>;
    type IntoFuture = JoinFuture<T>;

    fn into_future(self) -> JoinFuture<T> {
        JoinFuture { handle: Some(self), wait: TaskWait::default() }
    }
}

impl<T> Unpin for JoinFuture<T> {}

impl<T> JoinFuture<T> {
    /// Ends the wait that the last poll published.
    fn withdraw(&mut self) {
        if let Some(handle) = &self.handle {
            let _ended = self.wait.withdraw(&handle.end());
        }
    }
}

impl<T> Future for JoinFuture<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.withdraw();
        let this = &mut *self;
        let handle = this.handle.as_ref().expect("a future is not polled after it is ready");
        if handle.is_current() && !handle.has_ended() {
            return Poll::Ready(Err(handle.error(JoinErrorKind::SelfJoin)));
        }
        if !handle.has_ended() {
            match this.wait.publish(cx.waker(), &handle.end()) {
                Outcome::Pending => return Poll::Pending,
                Outcome::Retry => this.withdraw(),
                _ => {}
            }
        }
        let handle = this.handle.take().expect("present above");
        // Usually a joiner was woken between DONE and this; one that was not woken sees the result all the same.
        Poll::Ready(handle.take_result())
    }
}

impl<T> Drop for JoinFuture<T> {
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl<T> fmt::Debug for JoinFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinFuture").field("handle", &self.handle).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
