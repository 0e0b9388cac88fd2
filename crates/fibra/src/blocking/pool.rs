//! The blocking pool: OS threads for calls that block, as many as needed up to a limit, gone again when idle for long.
//!
//! Above: `blocking` and `spawn_blocking`, which make a [`Job`], wait for it like for anything else, and run user code inside it.
//! Below: `prim` only; nothing here knows fibers.
//!
//! **Jobs** are intrusive: the [`Job`] is the first field of a larger struct that lives on a waiting stack or in a box. The pool
//! touches it from `submit` until it calls `run`, and never again: by the time `run` returns, the struct may be gone.
//! So the pool cannot know that a job has finished, only that it was started; finishing is the affair of the layer above.
//!
//! **One lock decides everything**: the queue, which threads are idle, which leave. In particular
//!
//! 1. A job goes to the end of the queue; queued jobs start in that order.
//! 2. `submit` then takes exactly one thread off the idle list and wakes it; if there is none, it starts a thread; if the limit is
//!    reached, the job waits for a thread to become free. So two jobs that wait for each other get two threads.
//! 3. A thread leaves when its time is up, *if it is still on the idle list*: otherwise a `submit` has counted on it, and it looks at the
//!    queue again. This is the race between "idle for too long" and "here is a job", and the lock decides it.
//! 4. A job is in the queue only while a thread exists: a thread leaves only when the queue is empty, and the first thread is
//!    started under the lock, before its job is queued. Starting further ones happens outside of the lock, and may fail without harm.
//!
//! The idle list is a stack: the thread that was idle last is woken first, so that under light load the other threads time out.
//!
//! **Threads are joined**, not merely told to go: a leaving thread puts its handle on the `roster` as the last one to have left and
//! joins the one before it; `shutdown` joins the rest. Lock order: state before roster; no thread takes the state under the roster.
//!
//! **After `fork`** the child has none of the threads, and perhaps a locked lock. Every entry point asks first whether it
//! is in the process that made the pool, and in another it touches nothing.

use crate::prim::atomic::{AtomicBool, Ordering};
use crate::prim::sync::{Arc, Condvar, Mutex, MutexGuard};
use crate::prim::thread::JoinHandle;
use crate::prim::{policy, thread};
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::ptr::NonNull;
use std::time::Duration;
use std::{io, mem};

/// Threads a pool has at most, unless the builder says otherwise: enough for calls that mostly wait, bounded in memory.
pub(crate) const MAX_THREADS: usize = 512;
/// How long an idle thread waits for a job before it ends, in nanoseconds.
const KEEP_ALIVE: u64 = 10_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JobState {
    /// Not submitted to a pool.
    New,
    /// In the queue: the one state in which it can be revoked.
    Queued,
    /// A thread runs it, or has run it.
    Started,
    /// Taken back, by `revoke` or by `close`.
    Revoked,
}

/// A piece of work for the pool; first field of the struct that holds the rest of it. All but `run` is guarded by the pool's lock.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Job {
    next: Cell<Option<NonNull<Job>>>,
    previous: Cell<Option<NonNull<Job>>>,
    state: Cell<JobState>,
    run: unsafe fn(NonNull<Job>),
}

impl Job {
    /// A job that calls `run` with its own address, once, on a thread of the pool. `run` catches panics and completes
    /// the job's waiter; after that the job may vanish at any moment.
    pub(crate) const fn new(run: unsafe fn(NonNull<Job>)) -> Self {
        Self { next: Cell::new(None), previous: Cell::new(None), state: Cell::new(JobState::New), run }
    }
}

/// Queued jobs, first in first out, any of which can be taken out of the middle.
#[derive(Debug, Default)]
struct JobList {
    first: Option<NonNull<Job>>,
    last: Option<NonNull<Job>>,
    len: usize,
}

// SAFETY: the list is used under the pool's lock, or by the thread that detached it; its jobs are alive while they are in
// it (contract of `submit`), and no other code touches their links.
unsafe impl Send for JobList {}

impl JobList {
    /// # Safety
    /// The job is alive, in no list, and stays alive until it is taken out.
    unsafe fn push_back(&mut self, job: NonNull<Job>) {
        // SAFETY: the caller vouches for `job`, and `last` is in the list, hence alive.
        unsafe {
            job.as_ref().next.set(None);
            job.as_ref().previous.set(self.last);
            match self.last {
                Some(last) => last.as_ref().next.set(Some(job)),
                None => self.first = Some(job),
            }
        }
        self.last = Some(job);
        self.len += 1;
    }

    /// # Safety
    /// As for [`Self::push_back`].
    unsafe fn push_front(&mut self, job: NonNull<Job>) {
        // SAFETY: the caller vouches for `job`, and `first` is in the list, hence alive.
        unsafe {
            job.as_ref().previous.set(None);
            job.as_ref().next.set(self.first);
            match self.first {
                Some(first) => first.as_ref().previous.set(Some(job)),
                None => self.last = Some(job),
            }
        }
        self.first = Some(job);
        self.len += 1;
    }

    fn pop_front(&mut self) -> Option<NonNull<Job>> {
        let job = self.first?;
        // SAFETY: it is in this list.
        unsafe { self.remove(job) };
        Some(job)
    }

    /// # Safety
    /// The job is in this list.
    unsafe fn remove(&mut self, job: NonNull<Job>) {
        // SAFETY: jobs in the list are alive, and so are their neighbours.
        unsafe {
            let (previous, next) = (job.as_ref().previous.take(), job.as_ref().next.take());
            match previous {
                Some(previous) => previous.as_ref().next.set(next),
                None => self.first = next,
            }
            match next {
                Some(next) => next.as_ref().previous.set(previous),
                None => self.last = previous,
            }
        }
        self.len -= 1;
    }
}

/// The jobs that were still queued when the pool was closed, first come first. Each job belongs to the code that takes it from here, and
/// its waiter waits until that code completes it.
#[derive(Debug)]
#[must_use = "the waiters of these jobs wait until the caller completes them"]
pub(crate) struct UnstartedJobs(JobList);

impl Iterator for UnstartedJobs {
    type Item = NonNull<Job>;
    fn next(&mut self) -> Option<NonNull<Job>> {
        self.0.pop_front()
    }
}

/// An idle thread: where it waits, and whether it was taken off the idle list (guarded by the pool's lock).
#[derive(Debug)]
struct Sleeper {
    woken: AtomicBool,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct PoolState {
    queue: JobList,
    idle: Vec<Arc<Sleeper>>,
    /// Threads that exist or are being started: the number that the limit counts.
    threads: usize,
    /// Threads that exist for sure: the queue may be non-empty only if this is not 0.
    existing: usize,
    /// Threads that are inside a job.
    running: usize,
    peak: usize,
    started: u64,
    /// Jobs that were taken out of the queue to be run.
    begun: u64,
    closed: bool,
}

#[derive(Debug, Default)]
struct Roster {
    handles: Vec<(u64, JoinHandle<()>)>,
    last_to_leave: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct PoolShared {
    state: Mutex<PoolState>,
    /// Notified when a thread leaves a closed pool.
    left: Condvar,
    roster: Mutex<Roster>,
    name: String,
    max_threads: usize,
    keep_alive: u64,
    process: u32,
    /// Simulates a system that has no threads left to give.
    #[cfg(test)]
    refuse_threads: AtomicBool,
}

thread_local! {
    /// The pool that this thread serves, if any, by the address of its `PoolShared`, and the thread's number there.
    static SERVES: Cell<(usize, u64)> = const { Cell::new((0, 0)) };
    /// The approximate address at which the stack of such a thread begins.
    static STACK_BEGINS: Cell<usize> = const { Cell::new(0) };
}

/// The pool. Dropping it closes it and leaves its threads to end by themselves, after what was queued; see [`Self::shutdown`].
#[derive(Debug)]
pub(crate) struct BlockingPool {
    shared: Arc<PoolShared>,
}

impl BlockingPool {
    /// A pool of at most `max_threads` threads (at least one) called `name-blocking-N`. Starts none yet.
    pub(crate) fn new(name: &str, max_threads: usize) -> Self {
        Self::with_keep_alive(name, max_threads, KEEP_ALIVE)
    }

    /// The same with another time for which idle threads stay, in nanoseconds.
    pub(crate) fn with_keep_alive(name: &str, max_threads: usize, keep_alive: u64) -> Self {
        Self {
            shared: Arc::new(PoolShared {
                state: Mutex::new(PoolState::default()),
                left: Condvar::new(),
                roster: Mutex::new(Roster::default()),
                name: name.to_owned(),
                max_threads: max_threads.max(1),
                keep_alive,
                process: std::process::id(),
                #[cfg(test)]
                refuse_threads: AtomicBool::new(false),
            }),
        }
    }

    /// Queues `job`; it will be run exactly once, unless it is revoked. A full pool lets it wait.
    ///
    /// # Errors
    /// When there is no thread and none can be started, when the pool is closed, and in a forked child. The job was not queued then.
    ///
    /// # Safety
    /// The job stays where it is and alive until its `run` has been called, [`Self::revoke`] returned true for it, or
    /// [`Self::close`] handed it out. It is not with a pool already.
    pub(crate) unsafe fn submit(&self, job: NonNull<Job>) -> io::Result<()> {
        let shared = &self.shared;
        let mut state = shared.open()?;
        if state.existing == 0 {
            // Under the lock, so that the job is queued only once a thread is certain to see it (rule 4).
            shared.start_counted(&mut state)?;
            // SAFETY: the caller's promise.
            unsafe { state.enqueue(job) };
            return Ok(());
        }
        // SAFETY: the caller's promise. From here on the job may run, and be gone, as soon as the lock is released.
        unsafe { state.enqueue(job) };
        if let Some(sleeper) = state.idle.pop() {
            // Relaxed: guarded by the lock.
            sleeper.woken.store(true, Ordering::Relaxed);
            drop(state);
            sleeper.wake.notify_one();
        } else if state.threads < shared.max_threads {
            let number = state.reserve_thread();
            drop(state);
            if shared.start_thread(number, false).is_err() {
                // The job is queued, and a thread exists: it gets its turn when that one is free.
                let mut state = shared.state.lock();
                state.threads -= 1;
                shared.left.notify_all();
            }
        }
        Ok(())
    }

    /// Like [`Self::submit`], for a job that must not wait for another one to end: it goes to an idle thread, or to one that is started for
    /// it, and is the next job to be run.
    ///
    /// # Errors
    /// As for `submit`, and when no thread is idle and none can be started, or the limit is reached. The job was not queued then.
    ///
    /// # Safety
    /// As for `submit`.
    pub(crate) unsafe fn submit_at_once(&self, job: NonNull<Job>) -> io::Result<()> {
        let shared = &self.shared;
        let mut state = shared.open()?;
        let sleeper = state.idle.pop();
        match &sleeper {
            // Relaxed: guarded by the lock.
            Some(sleeper) => sleeper.woken.store(true, Ordering::Relaxed),
            None if state.threads >= shared.max_threads => {
                return Err(io::Error::new(io::ErrorKind::WouldBlock, "every thread for blocking calls is in a call"));
            }
            // Under the lock, so that the job is queued only once it has its thread.
            None => shared.start_counted(&mut state)?,
        }
        // First, not last: jobs for which no thread could be started may be queued, and the thread is not for them.
        // SAFETY: the caller's promise.
        unsafe { state.enqueue_first(job) };
        drop(state);
        if let Some(sleeper) = sleeper {
            sleeper.wake.notify_one();
        }
        Ok(())
    }

    /// Takes `job` back. True: it was still queued, and the pool will not touch it any more. False: it was started (and may have ended), or
    /// it was taken back before.
    ///
    /// # Safety
    /// The job was submitted to this pool and is alive.
    pub(crate) unsafe fn revoke(&self, job: NonNull<Job>) -> bool {
        if self.shared.is_forked() {
            // The job was submitted in the parent, whose threads do not exist here.
            return true;
        }
        let mut state = self.shared.state.lock();
        // SAFETY: alive, says the caller; its state is guarded by the lock; a queued job is in the queue.
        unsafe {
            if job.as_ref().state.get() != JobState::Queued {
                return false;
            }
            state.queue.remove(job);
            job.as_ref().state.set(JobState::Revoked);
        }
        true
    }

    /// Refuses further jobs, takes back those that were not started, for the caller to complete as cancelled, and lets
    /// idle threads end.
    pub(crate) fn close(&self) -> UnstartedJobs {
        if self.shared.is_forked() {
            return UnstartedJobs(JobList::default());
        }
        let mut state = self.shared.state.lock();
        let jobs = mem::take(&mut state.queue);
        let mut next = jobs.first;
        while let Some(job) = next {
            // SAFETY: jobs of a list are alive; the lock is held.
            unsafe {
                job.as_ref().state.set(JobState::Revoked);
                next = job.as_ref().next.get();
            }
        }
        PoolShared::send_home(state);
        UnstartedJobs(jobs)
    }

    /// Closes the pool and waits until its threads have ended, jobs still queued included (to take those back, call [`Self::close`]
    /// first). May be called again.
    ///
    /// # Errors
    /// How many jobs had not ended when `deadline` (on `prim::policy`) had passed: their threads end by themselves, after them. Called from
    /// inside a job of this pool, that job counts as one that does not end.
    pub(crate) fn shutdown(&self, deadline: Option<u64>) -> Result<(), usize> {
        let shared = &self.shared;
        if shared.is_forked() {
            return Ok(());
        }
        let (pool, own_number) = SERVES.get();
        let own = usize::from(pool == Arc::as_ptr(shared).addr());
        PoolShared::send_home(shared.state.lock());
        let mut state = shared.state.lock();
        while state.threads > own {
            let unfinished = state.running + state.queue.len - own;
            let now = policy::now();
            state = match deadline {
                Some(deadline) if deadline <= now && unfinished > 0 => return Err(unfinished),
                // Threads without a job are about to end, and are waited for whatever the clock says.
                Some(deadline) if unfinished > 0 => {
                    shared.left.wait_timeout(state, Duration::from_nanos(deadline - now))
                }
                _ => shared.left.wait(state),
            };
        }
        drop(state);
        let roster = mem::take(&mut *shared.roster.lock());
        let others = roster.handles.into_iter().filter(|&(number, _)| own == 0 || number != own_number);
        others.map(|(_, handle)| handle).chain(roster.last_to_leave).for_each(join);
        if own == 0 { Ok(()) } else { Err(own) }
    }

    /// Is this a thread of this pool, hence inside one of its jobs?
    pub(crate) fn is_served_here(&self) -> bool {
        is_served_here(self.number())
    }

    /// A number that tells it from other pools that exist.
    pub(crate) fn number(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// If jobs wait for a thread, all threads are inside jobs, and no further one is being started: how many jobs were begun so far. If
    /// that number is the same after a while, then no thread has become free.
    pub(crate) fn starved_at(&self) -> Option<u64> {
        if self.shared.is_forked() {
            return None;
        }
        let state = self.shared.state.lock();
        let busy = state.running == state.existing && state.existing == state.threads;
        (state.queue.len > 0 && busy).then_some(state.begun)
    }

    /// The number of threads that exist or are being started.
    pub(crate) fn threads(&self) -> usize {
        self.look(|state| state.threads)
    }

    /// The number of jobs that wait for a thread.
    pub(crate) fn queued(&self) -> usize {
        self.look(|state| state.queue.len)
    }

    /// The number of jobs that run or wait for a thread.
    pub(crate) fn busy(&self) -> usize {
        self.look(|state| state.running + state.queue.len)
    }

    /// The highest number of threads there has been at once.
    pub(crate) fn peak(&self) -> usize {
        self.look(|state| state.peak)
    }

    fn look(&self, what: impl FnOnce(&PoolState) -> usize) -> usize {
        if self.shared.is_forked() { 0 } else { what(&self.shared.state.lock()) }
    }
}

impl Drop for BlockingPool {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            // Leaks a reference: what belongs to the parent's threads is left alone.
            mem::forget(self.shared.clone());
        } else {
            PoolShared::send_home(self.shared.state.lock());
        }
    }
}

impl PoolState {
    /// Counts a thread that is about to be started, and numbers it.
    fn reserve_thread(&mut self) -> u64 {
        self.threads += 1;
        self.peak = self.peak.max(self.threads);
        self.started += 1;
        self.started
    }

    /// # Safety
    /// As for `BlockingPool::submit`.
    unsafe fn enqueue(&mut self, job: NonNull<Job>) {
        // SAFETY: the caller's promise; `mark` has found the job in no list.
        unsafe {
            Self::mark(job);
            self.queue.push_back(job);
        }
    }

    /// # Safety
    /// As for `BlockingPool::submit`.
    unsafe fn enqueue_first(&mut self, job: NonNull<Job>) {
        // SAFETY: as in `enqueue`.
        unsafe {
            Self::mark(job);
            self.queue.push_front(job);
        }
    }

    /// The job, which must not be queued, is so from now on.
    ///
    /// # Safety
    /// As for `BlockingPool::submit`.
    unsafe fn mark(job: NonNull<Job>) {
        // SAFETY: alive, says the caller.
        let state = unsafe { &job.as_ref().state };
        assert!(state.get() != JobState::Queued, "fibra: a blocking job was submitted twice");
        state.set(JobState::Queued);
    }
}

impl PoolShared {
    fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// The state of a pool that takes jobs.
    fn open(&self) -> io::Result<MutexGuard<'_, PoolState>> {
        if self.is_forked() {
            return Err(io::Error::other(
                "fork: the threads of this runtime stayed in the parent process; build a new runtime in the child",
            ));
        }
        let state = self.state.lock();
        if state.closed {
            return Err(io::Error::other("the runtime is shutting down and takes no more blocking calls"));
        }
        Ok(state)
    }

    /// Starts a thread under the lock, which counts as existing if it could be started.
    fn start_counted(self: &Arc<Self>, state: &mut PoolState) -> io::Result<()> {
        let number = state.reserve_thread();
        if let Err(error) = self.start_thread(number, true) {
            state.threads -= 1;
            return Err(error);
        }
        state.existing += 1;
        Ok(())
    }

    /// Starts thread `number`, which the caller has reserved. `counted`: the caller counts it as existing, under the lock.
    fn start_thread(self: &Arc<Self>, number: u64, counted: bool) -> io::Result<()> {
        #[cfg(test)]
        // Relaxed: set by the same thread.
        if self.refuse_threads.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let shared = self.clone();
        // The roster is locked while the thread starts, so that the thread finds its own handle there when it leaves.
        let mut roster = self.roster.lock();
        let handle =
            thread::start_quiet(format!("{}-blocking-{number}", self.name), move || shared.serve(number, counted))
                .map_err(|error| {
                    io::Error::new(error.kind(), format!("cannot start a thread for a blocking call: {error}"))
                })?;
        roster.handles.push((number, handle));
        Ok(())
    }

    /// Closes the pool and wakes every idle thread, so that it leaves.
    fn send_home(mut state: MutexGuard<'_, PoolState>) {
        state.closed = true;
        let idle = mem::take(&mut state.idle);
        for sleeper in &idle {
            // Relaxed: guarded by the lock.
            sleeper.woken.store(true, Ordering::Relaxed);
        }
        drop(state);
        for sleeper in idle {
            sleeper.wake.notify_one();
        }
    }

    /// The loop of a thread of the pool.
    fn serve(self: Arc<Self>, number: u64, counted: bool) {
        SERVES.set((Arc::as_ptr(&self).addr(), number));
        STACK_BEGINS.set(std::ptr::from_ref(&number).addr());
        let sleeper = Arc::new(Sleeper { woken: AtomicBool::new(false), wake: Condvar::new() });
        let mut state = self.state.lock();
        state.existing += usize::from(!counted);
        loop {
            while let Some(job) = state.queue.pop_front() {
                // SAFETY: a job in the queue is alive, and stays so until its `run` has been called.
                let run = unsafe {
                    job.as_ref().state.set(JobState::Started);
                    job.as_ref().run
                };
                state.running += 1;
                state.begun += 1;
                drop(state);
                // SAFETY: as above; the job was queued, so this is its only call.
                let outcome = panic::catch_unwind(AssertUnwindSafe(|| unsafe { run(job) }));
                // `run` lets no panic out; should it, the thread must still be counted. Dropping a payload might panic again.
                mem::forget(outcome);
                state = self.state.lock();
                state.running -= 1;
            }
            if state.closed {
                break;
            }
            // Relaxed: guarded by the lock, like every access to this flag.
            sleeper.woken.store(false, Ordering::Relaxed);
            state.idle.push(sleeper.clone());
            let until = policy::now().saturating_add(self.keep_alive);
            let mut now = policy::now();
            // Relaxed: as above.
            while !sleeper.woken.load(Ordering::Relaxed) && now < until {
                state = sleeper.wake.wait_timeout(state, Duration::from_nanos(until - now));
                now = policy::now();
            }
            // Relaxed: as above.
            if !sleeper.woken.load(Ordering::Relaxed) {
                // No `submit` counts on this thread, and from now on none can (rule 3).
                state.idle.retain(|other| !Arc::ptr_eq(other, &sleeper));
                break;
            }
        }
        state.threads -= 1;
        state.existing -= 1;
        let closed = state.closed;
        if closed {
            self.left.notify_all();
        }
        drop(state);
        if !closed {
            self.leave(number);
        }
    }

    /// Leaves an open pool: this thread's handle is left for the next one to join, or for `shutdown`.
    fn leave(&self, number: u64) {
        let mut roster = self.roster.lock();
        // Its handle is not there if `shutdown` has taken it meanwhile, and is joining it.
        let Some(place) = roster.handles.iter().position(|entry| entry.0 == number) else { return };
        let (_, own) = roster.handles.swap_remove(place);
        let before = roster.last_to_leave.replace(own);
        drop(roster);
        if let Some(before) = before {
            join(before);
        }
    }
}

/// Is this a thread of the pool with this number?
pub(crate) fn is_served_here(pool: usize) -> bool {
    SERVES.get().0 == pool
}

/// Is this a thread of some pool?
pub(crate) fn is_served_thread() -> bool {
    SERVES.get().0 != 0
}

/// On a thread of a pool: approximately how much of its stack is in use.
pub(crate) fn stack_in_use() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(&here).addr().abs_diff(STACK_BEGINS.get())
}

/// Waits for a thread that is about to end. It does not panic (`serve` catches); if it did, no caller could be told.
fn join(handle: JoinHandle<()>) {
    let _ = handle.join();
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
