//! Runtimes: building them, running on them, shutting them down. Above: users. Below: `launch.rs`, `roots.rs`, `task::spawn`.

use std::fmt;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

use super::builder::RuntimeBuilder;
use super::error::ShutdownError;
use super::roots::{cancel_root, drain, run_root};
use crate::cancel::{self, is_cancellation};
use crate::fiber::frame::{Extras, flag};
use crate::fiber::stack::StackSize;
use crate::inspect::{leaks, list};
use crate::monitor::fork;
use crate::monitor::metrics::Metrics;
use crate::prim::sync::Mutex;
use crate::runtime::launch::{self, Launched, Threads};
use crate::sched::current;
use crate::sched::here::Here;
use crate::sched::members::scope::Reach;
use crate::sched::shared::Shared;
use crate::sched::staff::threads::run_worker;
use crate::sched::worker::Worker;
use crate::task::builder::Builder;
use crate::task::join::JoinHandle;
use crate::task::spawn::{spawn_with, try_spawn};
use crate::time::Instant;
use crate::wait::reason::WaitReason;
use crate::waiter::cancel_reason::{CancelReason, ReasonKind};

/// A runtime: some workers, and the fibers that live on them. Several may exist in one process.
///
/// Dropping it cancels everything that runs on it and waits for the end of it.
///
/// ```
/// let rt = fibra::Runtime::builder().workers(2).name("doc").build()?;
/// let handle = rt.spawn(|| 40);
/// assert_eq!(rt.run(|| handle.join().unwrap() + 2), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Runtime {
    shared: Arc<Shared>,
    threads: Mutex<Threads>,
    /// Worker 0 of a current-thread runtime, when no `run` is using it.
    own: Option<Mutex<OwnWorker>>,
    down: bool,
}

/// The worker of a current-thread runtime, and the thread its started fibers belong to.
struct OwnWorker {
    /// Taken while a `run` is going on.
    worker: Option<Box<Worker>>,
    thread: Option<ThreadId>,
}

// SAFETY: a worker is owner-only; it is used by one thread at a time (taken out of the lock), and by another thread than before only if no
// started fiber lives on it (`Runtime::drive`), so nothing of the old thread's is on any of its stacks.
unsafe impl Send for OwnWorker {}

impl Runtime {
    /// A builder with the defaults: one worker per core.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::new()
    }

    /// A runtime with the defaults.
    ///
    /// # Errors
    /// See [`RuntimeBuilder::build`].
    pub fn new() -> io::Result<Self> {
        Self::builder().build()
    }

    /// A runtime of one worker and no other thread: fibers run inside [`run`](Self::run), on the thread that calls it, in a deterministic
    /// order, and a peer that is woken runs at once. (After a flood of fibers a thread of the process,
    /// `fibra-trim`, exists for some seconds and gives their memory back. It runs no fiber.)
    ///
    /// A started fiber never moves to another thread. So while fibers that were started by one thread are still there (spawned with
    /// [`spawn`](Self::spawn) and parked between two runs), `run` on another thread panics.
    ///
    /// Without another thread nothing notices that this one stands still, so stalls are neither reported nor counted.
    ///
    /// # Errors
    /// See [`RuntimeBuilder::build`].
    ///
    /// ```
    /// let rt = fibra::Runtime::current_thread()?;
    /// let here = std::thread::current().id();
    /// let there = rt.run(|| fibra::spawn(|| std::thread::current().id()).join().unwrap());
    /// assert_eq!(here, there);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn current_thread() -> io::Result<Self> {
        Self::builder().current_thread().build()
    }

    pub(crate) fn from_launched(launched: Launched) -> Self {
        let Launched { shared, threads, own } = launched;
        let own = own.map(|driver| {
            let worker = Some(Box::new(Worker::new(0, shared.clone(), driver)));
            Mutex::new(OwnWorker { worker, thread: None })
        });
        Self { shared, threads: Mutex::new(threads), own, down: false }
    }

    /// Runs `f` on a fiber of this runtime and waits for it and for every fiber that it and its children started (daemons excepted,
    /// which are cancelled). Blocks the calling thread. May be called many times, also by several threads at once.
    ///
    /// # Panics
    /// With what `f` panicked with, after its fibers were cancelled and have ended. Inside a fiber: there is nothing to block there; just
    /// call `f`, or spawn it.
    #[track_caller]
    pub fn run<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        refuse_inside_fiber("Runtime::run");
        self.refuse_in_fork();
        let site = Location::caller();
        let shared = &*self.shared;
        // Before the root, which would be lost if this is refused.
        #[allow(clippy::manual_map)] // In a closure it would lose the caller's location.
        let lease = match &self.own {
            Some(own) => Some(Lease::take(own)),
            None => None,
        };
        let root = shared.take_root();
        let body = move || run_root(shared, root, site, f, |_| false, None);
        let result = match lease {
            None => {
                // SAFETY: `F` and `T` are `Send`. They need not be `'static`: this thread waits for the end of the fiber before it
                // returns, and nothing can make it return earlier (the wait is binding).
                let handle = unsafe { spawn_with(shared, root, body, site, flag::ROOT, Some(root_extras())) };
                handle.join_bound(WaitReason::RunEnd, site)
            }
            Some(lease) => self.drive(lease, body, site, root),
        };
        drop(leaks::look(shared, Some(root)));
        cancel::cancel_daemons(shared, Some(root), ReasonKind::RunEnded);
        shared.release_root(root);
        match result {
            Ok(Ok(value)) => value,
            Ok(Err(payload)) => raise(payload),
            Err(error) => panic!("fibra: the root fiber of a run ended without a result: {error}"),
        }
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// A `run` of a current-thread runtime: the calling thread is the worker meanwhile.
    fn drive<T>(
        &self,
        lease: Lease<'_>,
        body: impl FnOnce() -> T,
        site: &'static Location<'static>,
        root: crate::sched::shared::RootRef,
    ) -> Result<T, crate::task::join::JoinError> {
        let worker = lease.worker();
        // The root fiber is pinned to this worker, so that nothing need be `Send`; it is pushed as the worker's own once its loop runs.
        // Not null before if the runtime is dropped on a fiber of another one, which goes on as such afterwards.
        let before = current::replace_worker(worker);
        // SAFETY: PINNED to this thread's worker; it has ended when `handle` is joined below, before anything it borrows goes away
        // (the loop does not unwind: `run_worker`).
        let handle =
            unsafe { spawn_with(&self.shared, root, body, site, flag::ROOT | flag::PINNED, Some(root_extras())) };
        run_worker(worker, || handle.has_ended() && worker.has_called_wakers());
        current::set_worker(before);
        drop(lease);
        self.shared.ring_all();
        handle.join()
    }

    /// Starts a fiber on this runtime. It belongs to the runtime itself, not to any `run`: dropping the runtime cancels it.
    #[track_caller]
    pub fn spawn<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: `Send` and `'static`.
        unsafe { spawn_with(&self.shared, self.shared.root, f, Location::caller(), flag::NONE, None) }
    }

    /// A handle that can be given to other threads and outlives the runtime.
    pub fn handle(&self) -> Handle {
        Handle { shared: self.shared.clone() }
    }

    /// What the runtime has counted so far.
    pub fn metrics(&self) -> Metrics {
        Metrics::collect(&self.shared)
    }

    /// Changes the number of workers that stay for good, at run time. New ones are started at once. Superfluous ones take no more work
    /// and leave when the fibers that have started on them have ended: started fibers never change threads.
    ///
    /// # Errors
    /// `InvalidInput` if `workers` is 0 or above [`max_workers`](RuntimeBuilder::max_workers), which is fixed when a runtime is built;
    /// `Unsupported` for a current-thread runtime; what the system said if it has no thread or file descriptor to give. Then some may
    /// have been started.
    ///
    /// ```
    /// let rt = fibra::Runtime::builder().workers(1).max_workers(4).build()?;
    /// rt.set_workers(3)?;
    /// assert_eq!(rt.metrics().pool.workers, 3);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn set_workers(&self, workers: usize) -> io::Result<()> {
        self.refuse_in_fork();
        let (config, most) = (&self.shared.config, self.shared.remotes.len());
        if config.current_thread {
            let text = "fibra: a current-thread runtime has one worker: build one with Runtime::builder() for more";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        if workers == 0 || workers > most {
            let text = format!(
                "fibra: set_workers({workers}): this runtime may have 1 to {most} workers; the most is set with \
                 Runtime::builder().max_workers()"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.shared.set_workers(workers)
    }

    /// Cancels everything and waits until it has ended, at most for `timeout`. A fiber that was spawned and has not started never runs: its
    /// closure is dropped, and its handle says cancelled. To have its work done, join it first, or spawn it inside [`run`](Self::run),
    /// which waits for all that its function spawned.
    ///
    /// # Errors
    /// The fibers and threads that are stuck. The runtime is then abandoned: its threads and the fibers on them stay behind.
    ///
    /// # Panics
    /// On a fiber of this runtime, which would wait for itself.
    #[track_caller]
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Result<(), ShutdownError> {
        self.refuse_on_own_fiber("shutdown_timeout");
        let result = self.shut_down(Some(Instant::after(timeout)));
        if result.is_err() {
            self.down = true;
            self.threads.lock().abandon();
            // The threads that stay behind use it.
            mem::forget(self.shared.clone());
        }
        result
    }

    #[track_caller]
    fn refuse_in_fork(&self) {
        assert!(
            self.shared.fork_epoch == fork::epoch(),
            "fibra: this runtime was built before fork(): its threads exist only in the parent process; build a \
             new one here"
        );
    }

    fn is_own_fiber(&self) -> bool {
        current::worker().is_some_and(|worker| Arc::ptr_eq(&worker.shared, &self.shared))
    }

    /// Is this thread in a scope that is counted here?
    fn has_open_scope_here(&self) -> bool {
        current::worker().is_none() && Here::new().is_some_and(|here| here.is_in_scope_of(&self.shared))
    }

    #[track_caller]
    fn refuse_on_own_fiber(&self, what: &str) {
        assert!(
            !self.is_own_fiber(),
            "fibra: {what} of a runtime inside one of its own fibers: it would wait for itself for ever"
        );
        let own = self.shared.blocking().is_served_here();
        assert!(
            !own,
            "fibra: {what} of a runtime inside one of its own blocking calls: it would wait for itself for ever"
        );
        assert!(
            !self.has_open_scope_here(),
            "fibra: {what} of a runtime inside a scope whose fibers it runs: it would wait for the scope for ever"
        );
    }

    /// The numbered steps of `runtime::launch`.
    fn shut_down(&mut self, deadline: Option<Instant>) -> Result<(), ShutdownError> {
        if mem::replace(&mut self.down, true) {
            return Ok(());
        }
        let shared = self.shared.clone();
        if shared.fork_epoch != fork::epoch() {
            self.threads.lock().forget();
            mem::forget(shared);
            return Ok(());
        }
        let site = Location::caller();
        let suspects = leaks::look(&shared, None);
        // 1. Refuse.
        shared.refuse();
        // 2 and 3. On the thread of a current-thread runtime the fibers need a thread that runs them: a last fiber does the waiting.
        let drained = match &self.own {
            None => wind_down(&shared, site, deadline),
            Some(own) => {
                let leftover = own.lock();
                let elsewhere = leftover.thread.is_some_and(|thread| thread != std::thread::current().id());
                let stuck = elsewhere && leftover.worker.as_ref().is_some_and(|worker| worker.has_bound());
                drop(leftover);
                if stuck {
                    // They belong to another thread; resuming them here could break them. They are leaked instead.
                    crate::prim::say(format_args!(
                        "fibra: a current-thread runtime was dropped on another thread than the one its fibers \
                         live on; they are leaked: {}",
                        list::fibers_of(&shared)
                    ));
                    mem::forget(shared);
                    return Ok(());
                }
                let lease = Lease::take(own);
                let root = shared.take_root();
                let body = || wind_down(&shared, site, deadline);
                let result = self.drive(lease, body, site, root);
                shared.release_root(root);
                // No stack for the last fiber: the other fibers cannot be brought to their end.
                result.unwrap_or(Err(()))
            }
        };
        if drained.is_err() {
            return Err(ShutdownError { stuck: list::fibers_of(&shared), blocking: shared.blocking().threads() });
        }
        leaks::report(&shared, suspects);
        // 4. Stop.
        launch::stop(&shared);
        let deadline_nanos = deadline.map(Instant::as_nanos);
        drop(shared.blocking().close());
        if let Err(running) = shared.blocking().shutdown(deadline_nanos) {
            return Err(ShutdownError { stuck: String::new(), blocking: running });
        }
        // 5. Join.
        self.threads.lock().join();
        if let Some(own) = &self.own
            && let Some(worker) = own.lock().worker.take()
        {
            worker.retire();
        }
        shared.visitors.await_none();
        Ok(())
    }
}

/// Steps 2 and 3 of shutdown: cancel, and wait until everything has ended.
fn wind_down(shared: &Shared, site: &'static Location<'static>, deadline: Option<Instant>) -> Result<(), ()> {
    cancel_root(shared, shared.root, ReasonKind::Shutdown);
    let outside = shared.outside_scopes.lock().clone();
    for open in outside.into_iter().filter(|open| !open.shielded) {
        open.scope.cancel(open.life, &CancelReason::Shutdown, Reach::All);
    }
    drain(shared, shared.root, WaitReason::RunEnd, site, deadline)?;
    end_daemons(shared, site, deadline)
}

/// Cancels the daemons and waits for them.
fn end_daemons(shared: &Shared, site: &'static Location<'static>, deadline: Option<Instant>) -> Result<(), ()> {
    cancel::cancel_daemons(shared, None, ReasonKind::Shutdown);
    drain(shared, shared.daemons, WaitReason::RuntimeEnd, site, deadline)
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if self.down {
            return;
        }
        let waits_for_itself =
            || self.is_own_fiber() || self.shared.blocking().is_served_here() || self.has_open_scope_here();
        if cancel::unwinding().is_some() && waits_for_itself() {
            // It is refused below, and a second panic would abort: leak it instead.
            self.threads.lock().abandon();
            mem::forget(self.shared.clone());
            return;
        }
        self.refuse_on_own_fiber("dropping");
        if self.shut_down(None).is_err() {
            // Something is left that refers to it.
            self.threads.lock().abandon();
            mem::forget(self.shared.clone());
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.shared.config;
        f.debug_struct("Runtime")
            .field("name", &config.name)
            .field("workers", &config.workers)
            .field("max_workers", &config.max_workers)
            .field("current_thread", &config.current_thread)
            .finish_non_exhaustive()
    }
}

/// The worker of a current-thread runtime, while a `run` uses it.
struct Lease<'a> {
    own: &'a Mutex<OwnWorker>,
    worker: Option<Box<Worker>>,
}

impl<'a> Lease<'a> {
    #[track_caller]
    fn take(own: &'a Mutex<OwnWorker>) -> Self {
        let me = std::thread::current().id();
        let mut slot = own.lock();
        let Some(worker) = slot.worker.take() else {
            panic!("fibra: this current-thread runtime is already running on another thread");
        };
        let moved = slot.thread.is_some_and(|thread| thread != me);
        if moved && worker.has_bound() {
            slot.worker = Some(worker);
            drop(slot);
            panic!(
                "fibra: fibers of this current-thread runtime were started on another thread and are still there: \
                 started fibers never change threads, so it can only run on that thread"
            );
        }
        slot.thread = Some(me);
        Self { own, worker: Some(worker) }
    }

    fn worker(&self) -> &Worker {
        self.worker.as_ref().expect("given back only on drop")
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.own.lock().worker = self.worker.take();
    }
}

fn root_extras() -> Extras {
    Extras { name: Some("main".into()), stack_size: Some(StackSize::ROOT), ..Extras::default() }
}

#[track_caller]
fn refuse_inside_fiber(what: &str) {
    assert!(
        current::worker().is_none(),
        "fibra: {what} inside a fiber: it would block the worker. Call the function directly, or spawn it"
    );
}

/// Runs `f` on a runtime of its own and waits for every fiber it started; the calling thread becomes worker 0, so `f` needs to be neither
/// `Send` nor `'static`. The root fiber has a stack of 8 MiB.
///
/// The runtime has the defaults of [`Runtime::builder`], environment included.
///
/// # Panics
/// With what `f` panicked with, after its fibers were cancelled and have ended. Inside a fiber; if the runtime cannot be built (use
/// [`Runtime::builder`] to get the error instead).
///
/// ```
/// let mut log = Vec::new();
/// fibra::run(|| {
///     let child = fibra::spawn(|| "child");
///     log.push(child.join().unwrap());
///     log.push("parent");
/// });
/// assert_eq!(log, ["child", "parent"]);
/// ```
#[track_caller]
pub fn run<F, T>(f: F) -> T
where
    F: FnOnce() -> T,
{
    run_on(Runtime::builder(), Location::caller(), f, |_| false, None).0
}

/// `run` with a builder's choices; `failed` says whether the result cancels the root scope. Returns the runtime too, which has ended.
#[track_caller]
pub(crate) fn run_on<F, T>(
    builder: RuntimeBuilder,
    site: &'static Location<'static>,
    f: F,
    failed: impl FnOnce(&T) -> bool,
    leak_timeout: Option<Duration>,
) -> (T, Arc<Shared>)
where
    F: FnOnce() -> T,
{
    refuse_inside_fiber("fibra::run");
    let mut launched = match builder.launch(true) {
        Ok(launched) => launched,
        Err(error) => panic!("fibra::run could not build its runtime: {error}"),
    };
    let shared = launched.shared.clone();
    let driver = launched.own.take().expect("asked for");
    let worker = Worker::new(0, shared.clone(), driver);
    current::set_worker(&worker);
    let body = || {
        // Also if a value of the user's is dropped in there and panics: the daemons must not outlive this fiber.
        let result = catch_unwind(AssertUnwindSafe(|| run_root(&shared, shared.root, site, f, failed, leak_timeout)));
        let result = result.unwrap_or_else(Err);
        let suspects = leaks::look(&shared, None);
        // The daemons go now; nothing new starts.
        shared.refuse();
        end_daemons(&shared, site, None).expect("without a deadline it waits for ever");
        leaks::report(&shared, suspects);
        result
    };
    // SAFETY: PINNED to this thread's worker, so nothing need be `Send`; it has ended when the loop below is over, so nothing need be
    // `'static`.
    let spawned =
        unsafe { try_spawn(&shared, shared.root, body, site, flag::ROOT | flag::PINNED, Some(root_extras()), None) };
    let Ok(handle) = spawned else { unreachable!("a runtime that has just been built takes its root fiber") };
    run_worker(&worker, || handle.has_ended());
    let result = handle.join();
    launch::stop(&shared);
    drop(shared.blocking().close());
    let _ = shared.blocking().shutdown(None);
    launched.threads.join();
    worker.retire();
    shared.visitors.await_none();
    match result {
        Ok(Ok(value)) => (value, shared),
        Ok(Err(payload)) => raise(payload),
        Err(error) => panic!("fibra: the root fiber of a run ended without a result: {error}"),
    }
}

/// Goes on with the payload that a root function unwound with. A cancellation becomes a panic here: no scope or handle above could report
/// it.
#[track_caller]
fn raise(payload: Box<dyn std::any::Any + Send>) -> ! {
    assert!(
        !is_cancellation(&*payload),
        "fibra: the function given to `run` was cancelled: by the token of a scope that has no result to say so. Use \
         `Scope::builder()`, whose `run` returns an error"
    );
    resume_unwind(payload)
}

/// A reference to a runtime: to spawn on it from anywhere, or to make it the current one of a thread. Does not keep it running.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The runtime of this fiber, or the one this thread has entered.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn current() -> Self {
        match Self::try_current() {
            Some(handle) => handle,
            None => crate::task::spawn::no_runtime("Handle::current"),
        }
    }

    /// The runtime of this fiber, or the one this thread has entered, if any.
    pub fn try_current() -> Option<Self> {
        current::runtime().map(|shared| Self { shared })
    }

    /// Makes this runtime the current one of the thread until the guard is dropped, so that [`spawn`](crate::spawn) works on it.
    ///
    /// ```
    /// let rt = fibra::Runtime::builder().workers(1).build()?;
    /// let _entered = rt.handle().enter();
    /// assert_eq!(fibra::spawn(|| 7).join().unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use = "the runtime is current until the guard is dropped"]
    pub fn enter(&self) -> EnterGuard {
        current::enter(self.shared.clone());
        EnterGuard { shared: self.shared.clone(), _not_send: std::marker::PhantomData }
    }

    /// Starts a fiber on this runtime; see [`Runtime::spawn`]. After the runtime is gone, the handle says that it was cancelled.
    #[track_caller]
    pub fn spawn<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: `Send` and `'static`.
        unsafe { spawn_with(&self.shared, self.shared.root, f, Location::caller(), flag::NONE, None) }
    }

    /// Starts what `builder` describes on this runtime.
    ///
    /// # Errors
    /// See [`Builder::spawn`].
    #[track_caller]
    pub fn spawn_with<F, T>(&self, builder: Builder, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        builder.spawn_in(&self.shared, self.shared.root, f, Location::caller(), flag::NONE)
    }

    /// A scope whose children run on this runtime; see [`scope`](crate::scope()). The body runs where this is called, on any thread.
    ///
    /// ```
    /// let rt = fibra::Runtime::builder().workers(1).build()?;
    /// let text = String::from("borrowed by a fiber");
    /// let len = rt.handle().scope(|s| s.spawn(|| text.len()).join().unwrap());
    /// assert_eq!(len, 19);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    /// Like [`scope`](crate::scope()); on a fiber of another runtime.
    #[track_caller]
    pub fn scope<'env, F, T>(&self, f: F) -> T
    where
        F: for<'scope> FnOnce(&'scope crate::scope::Scope<'scope, 'env>) -> T,
    {
        assert!(
            current::worker().is_none_or(|worker| Arc::ptr_eq(&worker.shared, &self.shared)),
            "fibra: Handle::scope on a fiber of another runtime: its children would belong to two"
        );
        let _entered = self.enter();
        crate::scope::scope(f)
    }

    /// What the runtime has counted so far.
    pub fn metrics(&self) -> Metrics {
        Metrics::collect(&self.shared)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("name", &self.shared.config.name).finish_non_exhaustive()
    }
}

/// Keeps a runtime current on this thread; see [`Handle::enter`].
#[must_use = "the runtime is current until the guard is dropped"]
pub struct EnterGuard {
    shared: Arc<Shared>,
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Drop for EnterGuard {
    fn drop(&mut self) {
        current::leave(&self.shared);
    }
}

impl fmt::Debug for EnterGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnterGuard").field("runtime", &self.shared.config.name).finish()
    }
}

#[cfg(test)]
mod tests;
