//! `blocking`: code that blocks its OS thread, moved to a thread that runs no fibers. Above: users, `fs`, `net`. Below: `blocking::pool`,
//! `wait::park`.
//!
//! The job lives on the waiting fiber's stack, closure and result with it, so the closure may borrow. While it is queued, cancellation
//! takes it back; once it has started, a thread of the pool is using this stack and the wait is binding.
//!
//! `spawn_blocking` starts a fiber that makes such a call. The function stays where its joiner can reach it ([`Unbegun`]) until a thread of
//! the pool begins with it: a job of the pool that joins another one would otherwise wait for a thread which, in a full pool, is its own.

use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::join::{Caught, JoinHandle};
use super::spawn::{no_runtime, root_of, spawn_or_none_with};
use crate::blocking::pool::{Job, is_served_here, stack_in_use};
use crate::cancel;
use crate::fiber::frame::{Errand, Extras};
use crate::prim::atomic::{AtomicBool, Ordering};
use crate::prim::instant::Instant;
use crate::prim::spin::SpinLock;
use crate::prim::sync::Mutex;
use crate::sched::complete::complete_wait;
use crate::sched::current;
use crate::sched::enqueue::QueueEnd;
use crate::sched::shared::RuntimeShared;
use crate::wait::park::{self, Outcome, Wait, Waitable, wait, wait_or_cancelled};
use crate::wait::reason::WaitReason;
use crate::wait::waitable::{Published, linked_or};
use crate::waiter::node::{Node, WaiterRef};
use crate::waiter::word::{ARM_FIRST, Ticket};

/// Runs `f` on a thread of the blocking pool while this fiber waits: for system calls, C libraries, std locks and long computations, which
/// would otherwise hold up every fiber of the worker. Inside, the context is a plain thread; `f` may borrow from the caller.
///
/// On a plain thread `f` is called right here.
///
/// Cancellation takes a job back that has not started; one that has cannot be abandoned, and cancellation arrives when it has ended.
///
/// ```
/// use std::time::Duration;
///
/// fibra::run(|| {
///     let mut log = Vec::new();
///     fibra::blocking(|| {
///         std::thread::sleep(Duration::from_millis(1));
///         log.push("slept for real");
///     });
///     assert_eq!(log, ["slept for real"]);
/// });
/// ```
#[track_caller]
pub fn blocking<F, T>(f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    blocking_as(WaitReason::BlockingRunning, Location::caller(), f)
}

/// The same for a layer whose own reason says what the fiber does once the job has started: a binding reason.
pub(crate) fn blocking_as<F, T>(reason: WaitReason, site: &'static Location<'static>, f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    let Some(worker) = current::worker() else {
        park::entry();
        return f();
    };
    let job = BlockingJob {
        job: Job::new(BlockingJob::<F, T>::run),
        shared: worker.shared.clone(),
        closure: UnsafeCell::new(Some(f)),
        result: UnsafeCell::new(None),
        submitted: Cell::new(false),
        state: SpinLock::new(JobState { finished: false, waiter: None }),
    };
    // From here to the end `job` does not move: the pool has its address.
    let object = std::ptr::from_ref(&job).addr() as u64;
    let queued = Wait { reason: WaitReason::BlockingQueued, object, site, deadline: None };
    match wait_or_cancelled(&Submit(&job), queued) {
        Outcome::Cancelled if job.take_back() => {
            // No thread will run it: the closure is dropped with the job.
            drop(job);
            cancel::deliver();
        }
        // The pool could not take it.
        Outcome::Closed => {
            said_once();
            // SAFETY: the pool has not taken it: the closure is still there and ours.
            let f = unsafe { (*job.closure.get()).take() };
            drop(job);
            return f.expect("the pool refused the job, so the closure is still there")();
        }
        _ => {}
    }
    // It has started: binding. (Usually it has ended, and this does not park.)
    while !job.is_finished() {
        let _ = wait(&Rest(&job), Wait { reason, ..queued });
    }
    // SAFETY: finished, seen under the lock: the pool's thread wrote it before and touches the job no more.
    let result = unsafe { (*job.result.get()).take() };
    match result.expect("a finished job has a result") {
        Ok(value) => value,
        Err(payload) => cancel::pass_on(payload),
    }
}

fn said_once() {
    static SAID: AtomicBool = AtomicBool::new(false);
    // Relaxed: reported once or twice, no more depends on it.
    if !SAID.swap(true, Ordering::Relaxed) {
        crate::prim::say(format_args!(
            "fibra: no thread could be started for blocking work; it runs on the worker and holds up its fibers"
        ));
    }
}

/// Like [`blocking`], but does not wait: the handle can be joined.
///
/// A thread of the pool that joins it (inside `blocking`, that is) before a thread has begun with it runs it right there, so jobs may wait
/// for jobs even if the pool is full. Inside a scope or a [`timeout`](crate::timeout()), deep in a stack, and with
/// [`JoinSet::join_next`](crate::JoinSet::join_next), it does so only if the pool is full and stays so. Joins with a deadline do not: they
/// wait until a thread is free, or the time is over.
///
/// # Panics
/// Like [`spawn`](crate::spawn).
///
/// ```
/// fibra::run(|| {
///     let reading = fibra::spawn_blocking(|| std::fs::metadata("/").unwrap().is_dir());
///     assert!(reading.join().unwrap());
/// });
/// ```
#[track_caller]
pub fn spawn_blocking<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let site = Location::caller();
    let (shared, root) = match current::worker() {
        Some(worker) => (worker.shared.clone(), root_of(worker)),
        None => match current::runtime() {
            Some(shared) => {
                let root = shared.root;
                (shared, root)
            }
            None => no_runtime("spawn_blocking"),
        },
    };
    let job = Arc::new(Unbegun { pool: shared.blocking().number(), f: Mutex::new(Some(f)) });
    let errand = Arc::downgrade(&job);
    let body = move || blocking_as(WaitReason::BlockingRunning, site, move || job.begin().map(|f| f()));
    // SAFETY: the closure and what it returns are `Send` and `'static`.
    unsafe { spawn_or_none_with(&shared, root, body, site, Extras { errand: Some(errand), ..Extras::default() }) }
}

/// The function that a fiber of `spawn_blocking` was started for, until a thread begins with it: a thread of the pool, or one that joins
/// the fiber.
struct Unbegun<F> {
    /// The pool whose threads may run it.
    pool: usize,
    f: Mutex<Option<F>>,
}

impl<F> Unbegun<F> {
    /// Once.
    fn begin(&self) -> Option<F> {
        self.f.lock().take()
    }
}

impl<F, T> Errand for Unbegun<F>
where
    F: FnOnce() -> T + Send,
{
    fn is_open(&self) -> bool {
        self.f.lock().is_some()
    }

    /// On a thread of its pool, as in the job that this would have been: not on a fiber that such a thread runs (its stack is small),
    /// not where another runtime was entered, and only as long as most of the stack is left.
    fn is_fit_here(&self) -> bool {
        is_served_here(self.pool)
            && current::worker().is_none()
            && current::runtime().is_some_and(|shared| shared.blocking().number() == self.pool)
            && stack_in_use() < STACK_FOR_STARVING
    }

    unsafe fn run_here(&self, result: *mut ()) -> bool {
        let Some(f) = self.begin() else { return false };
        let outcome: Caught<T> = catch_unwind(AssertUnwindSafe(f));
        // SAFETY: the caller's promise; the fiber returns what `f` does.
        unsafe { result.cast::<Caught<T>>().write(outcome) };
        true
    }
}

/// So much of the stack of a pool's thread (2 MiB) may be in use when a join runs a job on top of it: the first in general, the second if
/// no other thread will run the job.
const STACK_FOR_JOINERS: usize = 256 << 10;
const STACK_FOR_STARVING: usize = 1536 << 10;

/// How often a joiner that could run a job itself looks whether a thread will do it.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

/// On a thread of a pool: is there a reason to leave the function that this thread waits for to another thread? Yes if a scope of this
/// thread is open: if that is cancelled, a wait ends, and a function would not. Or if much of the stack is in use.
pub(crate) fn would_rather_wait() -> bool {
    !current::thread_cancel_state().open.get().is_null() || stack_in_use() > STACK_FOR_JOINERS
}

/// Also on a thread of a pool: will no other thread run it? That is assumed if jobs are queued, and none was begun between two looks.
pub(crate) fn is_pool_stuck() -> bool {
    thread_local! {
        /// The pool's count of begun jobs, and since when it has not changed.
        static SEEN: Cell<Option<(u64, Instant)>> = const { Cell::new(None) };
    }
    let begun = current::runtime().and_then(|shared| shared.blocking().starved_at());
    match (begun, SEEN.get()) {
        (Some(begun), Some((before, since))) if begun == before => since.elapsed() >= LOOK,
        _ => {
            SEEN.set(begun.map(|begun| (begun, Instant::now())));
            false
        }
    }
}

impl<F> std::fmt::Debug for Unbegun<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unbegun").finish_non_exhaustive()
    }
}

#[repr(C)]
struct BlockingJob<F, T> {
    job: Job,
    shared: Arc<RuntimeShared>,
    /// Until it is run; dropped with the job otherwise (revoked, or never submitted because the wait was refused).
    closure: UnsafeCell<Option<F>>,
    result: UnsafeCell<Option<Caught<T>>>,
    /// Does the pool know of it? The fiber's own note.
    submitted: Cell<bool>,
    state: SpinLock<JobState>,
}

struct JobState {
    finished: bool,
    waiter: Option<(WaiterRef, Ticket)>,
}

// SAFETY: handed from the fiber to one thread of the pool and back: closure and result are `Send` (bounds of `blocking`), and each side
// touches them only in its own phase; `state` is a lock.
unsafe impl<F: Send, T: Send> Sync for BlockingJob<F, T> {}

impl<F: FnOnce() -> T, T> BlockingJob<F, T> {
    fn address(&self) -> NonNull<Job> {
        // `job` is the first field (`repr(C)`); the pointer keeps the whole struct's provenance.
        NonNull::from(self).cast()
    }

    /// After a cancellation: true if the pool never had it or gave it back, so that it will not run.
    fn take_back(&self) -> bool {
        // SAFETY: submitted, and not finished: the pool knows it, or a thread is running it.
        !self.submitted.get() || !self.is_finished() && unsafe { self.shared.blocking().revoke(self.address()) }
    }

    fn is_finished(&self) -> bool {
        self.state.with(|state| state.finished)
    }

    /// On a thread of the pool.
    unsafe fn run(job: NonNull<Job>) {
        // SAFETY: `address` made it; the fiber waits for `finished` before it leaves.
        let this = unsafe { job.cast::<Self>().as_ref() };
        // Code in here is on a plain thread, but may spawn into the runtime it came from.
        let shared = this.shared.clone();
        current::enter(shared.clone());
        // SAFETY: started once, so the closure is there and ours.
        let f = unsafe { (*this.closure.get()).take() }.expect("a job is run once");
        let result = catch_unwind(AssertUnwindSafe(f));
        current::leave(&shared);
        // SAFETY: the fiber reads it only after `finished`.
        unsafe { *this.result.get() = Some(result) };
        // The fiber may be gone as soon as the lock is released: what is needed after that is copied out under it.
        let waiter = this.state.with(|state| {
            state.finished = true;
            state.waiter.take()
        });
        if let Some((waiter, ticket)) = waiter
            && let Some(waker) = complete_wait(waiter, ticket, ARM_FIRST, QueueEnd::Tail)
        {
            waker.wake();
        }
    }
}

/// The wait of a job that is being submitted.
struct Submit<'a, F, T>(&'a BlockingJob<F, T>);

impl<F: FnOnce() -> T, T> Waitable for Submit<'_, F, T> {
    fn publish(&self, node: &Node) -> Published {
        let (waiter, ticket, _) = node.target();
        self.0.state.with(|state| state.waiter = Some((waiter, ticket)));
        // SAFETY: the job stays on the waiting stack until it has finished or was revoked (`blocking`).
        let submitted = unsafe { self.0.shared.blocking().submit(self.0.address()) };
        self.0.submitted.set(submitted.is_ok());
        if submitted.is_err() {
            self.0.state.with(|state| state.waiter = None);
        }
        linked_or(submitted.is_ok(), Outcome::Closed)
    }

    // The caller takes the job back itself: it has to know whether that worked.
    fn unpublish(&self, _: &Node, _: &mut Vec<Waker>) {}
}

/// The wait of a job that has started.
struct Rest<'a, F, T>(&'a BlockingJob<F, T>);

impl<F: FnOnce() -> T, T> Waitable for Rest<'_, F, T> {
    fn publish(&self, node: &Node) -> Published {
        let (waiter, ticket, _) = node.target();
        let waits = self.0.state.with(|state| {
            state.waiter = Some((waiter, ticket));
            !state.finished
        });
        linked_or(waits, Outcome::Done)
    }

    fn unpublish(&self, _: &Node, _: &mut Vec<Waker>) {
        self.0.state.with(|state| state.waiter = None);
    }
}
