//! `Runtime` and `run`: running functions and fibers on a runtime. Above: users. Beside: `handle.rs` (references to a runtime),
//! `shutdown.rs` (its end). Below: `builder.rs`, `own.rs`, `roots.rs`, `task::spawn`.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::builder::RuntimeBuilder;
use super::handle::Handle;
use super::own::{Lease, OwnWorker};
use super::roots::run_root;
use super::shutdown::end_daemons;
use crate::cancel::{self, is_cancellation};
use crate::fiber::frame::{Extras, flag};
use crate::fiber::stack::StackSize;
use crate::monitor::fork;
use crate::monitor::metrics::Metrics;
use crate::prim::sync::Mutex;
use crate::runtime::launch::{self, Launched, Threads};
use crate::sched::current;
use crate::sched::shared::RuntimeShared;
use crate::sched::staff::threads::run_worker;
use crate::sched::worker::Worker;
use crate::task::join::JoinHandle;
use crate::task::spawn::{spawn_with, try_spawn};
use crate::wait::reason::WaitReason;
use crate::waiter::cancel_reason::ReasonKind;

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
    pub(super) shared: Arc<RuntimeShared>,
    pub(super) threads: Mutex<Threads>,
    /// Worker 0 of a current-thread runtime, when no `run` is using it.
    pub(super) own: Option<Mutex<OwnWorker>>,
    /// It was shut down, or given up.
    pub(super) down: bool,
}

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
        let own = own.map(|driver| Mutex::new(OwnWorker::new(Worker::new(0, shared.clone(), driver))));
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
        cancel::cancel_daemons(shared, Some(root), ReasonKind::RunEnded);
        shared.release_root(root);
        match result {
            Ok(Ok(value)) => value,
            Ok(Err(payload)) => raise(payload),
            Err(error) => panic!("fibra: the root fiber of a run ended without a result: {error}"),
        }
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &RuntimeShared {
        &self.shared
    }

    /// A `run` of a current-thread runtime: the calling thread is the worker meanwhile.
    pub(super) fn drive<T>(
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
        Handle::new(self.shared.clone())
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

    pub(super) fn refuse_in_fork(&self) {
        assert!(
            self.shared.fork_epoch == fork::epoch(),
            "fibra: this runtime was built before fork(): its threads exist only in the parent process; build a \
             new one here"
        );
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
    run_on(Runtime::builder(), Location::caller(), f, |_| false, None)
}

/// `run` with a builder's choices; `failed` says whether the result cancels the root scope.
pub(crate) fn run_on<F, T>(
    builder: RuntimeBuilder,
    site: &'static Location<'static>,
    f: F,
    failed: impl FnOnce(&T) -> bool,
    leak_timeout: Option<Duration>,
) -> T
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
        // The daemons go now; nothing new starts.
        shared.refuse();
        end_daemons(&shared, site, None).expect("without a deadline it waits for ever");
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
        Ok(Ok(value)) => value,
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

#[cfg(test)]
mod tests;
