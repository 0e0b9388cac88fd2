//! Futures: `block_on` polls one where it is, `spawn_future` makes one a task of its own.
//!
//! A task is a frame without a stack between polls. Each poll runs on a pooled fiber stack, so the future may even make blocking calls (it
//! then stays on that worker until the poll ends). When it is pending, the stack goes back and the frame parks; its waker makes it
//! stealable work again. A task that has fiber-locals which are not inherited (and so need not be `Send`) keeps its stack and its worker
//! instead. Above: users, `scope.rs`. Below: `spawn.rs`, `wait::poll`.

use std::cell::Cell;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::{Pin, pin};
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::join::JoinHandle;
use super::locals;
use super::run::{drop_quietly, end_of_user_code, publish_panic, publish_value, start_of_user_code};
use super::spawn::{Refused, no_runtime, refused, refused_in, root_of, try_spawn_thunk};
use crate::fiber::frame::{FlagSet, Frame, FrameRef, RunResult, Thunk, flag};
use crate::sched::current;
use crate::sched::members::scope::ScopeRef;
use crate::sched::shared::{RootRef, RuntimeShared};
use crate::sched::worker::signal;
use crate::wait::park::{self, Outcome, Wait, wait, wait_or_cancelled, wait_with};
use crate::wait::poll::{self, Polling};
use crate::wait::reason::WaitReason;
use crate::waiter::node::WaiterRef;
use crate::waiter::record::ThreadRecord;
use crate::waiter::word::{WaitKind, WakerNotice};

/// Runs a future to its end, here: on a fiber the fiber parks while the future is pending, on a plain thread the thread blocks.
///
/// ```
/// let answer = fibra::run(|| {
///     let child = fibra::spawn(|| 42);
///     fibra::block_on(async { child.await.unwrap() })
/// });
/// assert_eq!(answer, 42);
/// ```
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    park::count_call();
    match block_on_until(pin!(future), None, WaitReason::BlockOn, Location::caller()) {
        Some(output) => output,
        None => unreachable!("without a deadline"),
    }
}

/// The same for a wait that has a reason of its own, and perhaps an end.
#[inline(always)] // What is constant at the caller's is worth 12 instructions.
pub(crate) fn block_on_until<F: Future>(
    future: Pin<&mut F>,
    deadline: Option<u64>,
    reason: WaitReason,
    site: &'static Location<'static>,
) -> Option<F::Output> {
    let how = Wait { reason, object: 0, site, deadline };
    match current::fiber() {
        Some(frame) => {
            let (waiter, polls) = (frame.waiter_ref(), poll::polls_of(frame));
            if poll::is_inside(polls) {
                return poll_inside(future, how, waiter, polls, |polling, how| wait(polling, how));
            }
            let polling = Polling::<false>::for_waiter(waiter, polls);
            poll_until_ready(future, &polling, how, |how| wait(&polling, how))
        }
        None => ThreadRecord::with_mine(|record| poll_on_thread(future, how, record)),
    }
}

/// [`block_on_until`] on a plain thread, with the very record that the waker names. (A lent record would be another one each time.)
#[inline(never)]
fn poll_on_thread<F: Future>(future: Pin<&mut F>, how: Wait, record: &'static ThreadRecord) -> Option<F::Output> {
    let polls = poll::polls_of_thread();
    if poll::is_inside(polls) {
        return poll_inside(future, how, record.waiter_ref(), polls, |polling, how| wait_with(record, polling, how));
    }
    let polling = Polling::<false>::for_waiter(record.waiter_ref(), polls);
    poll_until_ready(future, &polling, how, |how| wait_with(record, &polling, how))
}

/// [`block_on_until`] in the poll of another future.
#[cold]
#[inline(never)]
fn poll_inside<F: Future>(
    future: Pin<&mut F>,
    how: Wait,
    waiter: WaiterRef,
    polls: &Cell<u32>,
    wait: impl Fn(&Polling<'_, true>, Wait) -> Outcome,
) -> Option<F::Output> {
    let polling = Polling::<true>::for_waiter(waiter, polls);
    poll_until_ready(future, &polling, how, |how| wait(&polling, how))
}

#[inline(always)]
fn poll_until_ready<F: Future, const INSIDE: bool>(
    mut future: Pin<&mut F>,
    polling: &Polling<'_, INSIDE>,
    how: Wait,
    wait: impl Fn(Wait) -> Outcome,
) -> Option<F::Output> {
    let waker = polling.waker();
    let mut cx = Context::from_waker(&waker);
    loop {
        polling.begin_poll();
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return Some(output);
        }
        let ended = wait(Wait { object: polling.object(), ..how });
        if ended == Outcome::TimedOut {
            return None;
        }
        // The future was woken during its own poll: it wants to go on, but other fibers of this worker come first, or it could keep them
        // waiting for ever.
        if ended == Outcome::Retry && current::fiber().is_some() {
            park::yield_now();
        }
    }
}

/// Starts a future as a task of the current runtime. Between polls it owns no stack and may move to another worker.
///
/// # Panics
/// Like [`spawn`](crate::spawn).
///
/// ```
/// let sum = fibra::run(|| {
///     let tasks: Vec<_> = (0..10u64).map(|i| fibra::spawn_future(async move { i })).collect();
///     tasks.into_iter().map(|task| task.join().unwrap()).sum::<u64>()
/// });
/// assert_eq!(sum, 45);
/// ```
#[track_caller]
pub fn spawn_future<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let site = Location::caller();
    let (shared, root) = match current::worker() {
        Some(worker) => (worker.shared.clone(), root_of(worker)),
        None => match current::runtime() {
            Some(shared) => {
                let root = shared.root;
                (shared, root)
            }
            None => no_runtime("spawn_future"),
        },
    };
    // SAFETY: the future and its output are `Send` and `'static`.
    unsafe { start_task(&shared, root, future, site, flag::TASK) }
}

/// Starts a future as a task of this runtime that does not hold up `run`. If that is refused, the handle says so.
pub(crate) fn spawn_daemon_future<F>(
    shared: &Arc<RuntimeShared>,
    future: F,
    site: &'static Location<'static>,
) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let here = current::worker().filter(|worker| Arc::ptr_eq(&worker.shared, shared));
    let flags = flag::TASK | flag::DAEMON | flag::UNCAPPED;
    // SAFETY: the future and its output are `Send` and `'static`.
    unsafe { start_task(shared, here.map_or(shared.root, root_of), future, site, flags) }
}

/// The same for one that stays until the runtime ends, also if the run in which it was started is over before.
pub(crate) fn spawn_keeping_future<F>(
    shared: &Arc<RuntimeShared>,
    future: F,
    site: &'static Location<'static>,
) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // SAFETY: the future and its output are `Send` and `'static`.
    unsafe { start_task(shared, shared.root, future, site, flag::TASK | flag::DAEMON | flag::UNCAPPED) }
}

/// Starts a future as the child of a scope.
///
/// # Safety
/// The future and its output are `Send` and outlive the scope, which is open.
pub(crate) unsafe fn spawn_future_in<F: Future>(
    scope: ScopeRef,
    future: F,
    site: &'static Location<'static>,
) -> JoinHandle<F::Output> {
    // SAFETY: the scope is open.
    let shared = unsafe { scope.shared() };
    match scope.root.cancelled() {
        // SAFETY: the caller's promise.
        None => unsafe { start_task(shared, scope.root_ref(), future, site, flag::TASK | flag::SCOPED) },
        Some(reason) => {
            scope.note_cut_short();
            drop(future);
            refused(shared, site, reason)
        }
    }
}

/// # Safety
/// The future and its output are `Send` and outlive the fiber.
unsafe fn start_task<F: Future>(
    shared: &RuntimeShared,
    root: RootRef,
    future: F,
    site: &'static Location<'static>,
    flags: FlagSet,
) -> JoinHandle<F::Output> {
    let task = Box::new(Task { future: Some(Box::pin(future)), is_begun: false, locals: ptr::null_mut() });
    // SAFETY: the caller's promise; the thunk is the one for what is put into the frame.
    let spawned =
        unsafe { try_spawn_thunk::<_, F::Output>(shared, root, task, TaskThunk::<F>::THUNK, site, flags, None, None) };
    match spawned {
        Ok(handle) => handle,
        Err(Refused { reason, f }) => {
            drop(f);
            // SAFETY: with SCOPED, the root is a scope's.
            unsafe { refused_in(shared, root, flags, site, reason) }
        }
    }
}

/// What a task keeps between polls: in the frame's storage, as a box.
struct Task<F> {
    /// Taken out before its output is published, so that it is dropped on a fiber.
    future: Option<Pin<Box<F>>>,
    /// It was polled before: the steps at the start of user code are done.
    is_begun: bool,
    /// Its fiber-locals, which travel with it.
    locals: *mut (),
}

/// A task was woken during its own poll: as in `poll_until_ready`, but without a look at cancellation, which would unwind: the bare switch.
fn let_others_run(frame: FrameRef) {
    let worker = current::worker().expect("a task is polled on a worker");
    // SAFETY: on the current fiber, whose word is RUNNING.
    unsafe { worker.suspend(frame, signal::YIELD) };
}

struct TaskThunk<F>(PhantomData<F>);

impl<F: Future> TaskThunk<F> {
    const THUNK: &'static Thunk = &Thunk { run: Self::run, discard: Self::discard };

    unsafe fn run(frame: &Frame) -> RunResult {
        // SAFETY: `spawn_future` or the last poll put it there.
        let mut task = unsafe { frame.take::<Box<Task<F>>>() };
        // SAFETY: frames live for ever.
        let frame: FrameRef = unsafe { &*ptr::from_ref(frame) };
        let top = frame.top().expect("a running fiber has a stack");
        if std::mem::replace(&mut task.is_begun, true) {
            locals::attach(top, std::mem::replace(&mut task.locals, ptr::null_mut()));
        } else {
            start_of_user_code(frame);
        }
        let polling = Polling::<false>::for_waiter(frame.waiter_ref(), poll::polls_of(frame));
        let waker = polling.waker();
        loop {
            polling.begin_poll();
            let future = task.future.as_mut().expect("taken only at the end").as_mut();
            let mut cx = Context::from_waker(&waker);
            match catch_unwind(AssertUnwindSafe(|| future.poll(&mut cx))) {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready(output)) => {
                    drop_quietly(task);
                    end_of_user_code(frame);
                    // SAFETY: the task is gone from the storage, which is this fiber's.
                    return unsafe { publish_value(frame, output) };
                }
                Err(payload) => {
                    drop_quietly(task);
                    end_of_user_code(frame);
                    // SAFETY: as above.
                    return unsafe { publish_panic(frame, payload) };
                }
            }
            if locals::must_stay(top) {
                // Law 1: its fiber-locals need not be `Send`, so it keeps its stack and waits here, like `block_on`.
                let site = frame.site.get().unwrap_or(Location::caller());
                let how = Wait { reason: WaitReason::BlockOn, object: polling.object(), site, deadline: None };
                match wait_or_cancelled(&polling, how) {
                    Outcome::Cancelled => {
                        drop_quietly(task);
                        end_of_user_code(frame);
                        return RunResult::Ended(crate::fiber::outcome::FiberEnd::Cancelled);
                    }
                    Outcome::Retry => let_others_run(frame),
                    _ => {}
                }
                continue;
            }
            if polling.is_called() {
                // A future that is woken by its own poll again and again commits no park: it learns here that it is cancelled.
                if frame.has(flag::ANY_CANCEL) {
                    drop_quietly(task);
                    end_of_user_code(frame);
                    return RunResult::Ended(crate::fiber::outcome::FiberEnd::Cancelled);
                }
                let_others_run(frame);
                continue;
            }
            // Park: back into the storage first, since another worker may poll it as soon as this one has committed. That is the worker's
            // part; it puts the task into a queue again if it was called or cancelled meanwhile.
            task.locals = locals::detach(top);
            // SAFETY: the storage is empty: the task was taken out above.
            unsafe { frame.put(task) };
            // Nothing of it stays on this stack.
            drop(polling);
            frame.waiter.word.begin_park_as(WaitKind::Revocable, Some(WakerNotice::Outer));
            return RunResult::Pending;
        }
    }

    unsafe fn discard(frame: &Frame) {
        // SAFETY: as in `run`; it will not be polled again.
        let mut task = unsafe { frame.take::<Box<Task<F>>>() };
        match (task.is_begun, frame.top()) {
            (false, _) => start_of_user_code(frame),
            (true, Some(top)) => locals::attach(top, std::mem::replace(&mut task.locals, ptr::null_mut())),
            (true, None) => locals::drop_detached(std::mem::replace(&mut task.locals, ptr::null_mut())),
        }
        drop_quietly(task);
        end_of_user_code(frame);
    }
}
