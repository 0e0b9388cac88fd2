//! The types of a snapshot: plain data, with nothing of the runtime in it.
//!
//! Above: `text.rs`, `json.rs`, `graph.rs`, and the user. Below: nothing; `collect.rs` fills them.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::fiber::id::FiberId;
use crate::monitor::metrics::WorkerMetrics;
use crate::wait::reason::WaitReason;

/// A picture of a running program: see [`inspect`](crate::inspect). `Display` is for people, [`to_json`](Self::to_json) for tools.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub(super) fibers: Vec<FiberInfo>,
    pub(super) workers: Vec<WorkerInfo>,
    pub(super) channels: Vec<ChannelInfo>,
    pub(super) locks: Vec<LockInfo>,
    pub(super) semaphores: Vec<SemaphoreInfo>,
    pub(super) scopes: Vec<ScopeInfo>,
    pub(super) sockets: Vec<SocketInfo>,
    pub(super) stacks: Vec<StackInfo>,
    pub(super) timers: usize,
    pub(super) took: Duration,
    /// The stack address at which the fiber that asks for deadlocks called the inspector: what lies deeper is the inspector's own. 0: no
    /// fiber, or not known.
    pub(super) asked_at: usize,
}

impl Snapshot {
    /// The fibers and tasks that have not ended, by id.
    pub fn fibers(&self) -> &[FiberInfo] {
        &self.fibers
    }

    /// One of them.
    pub fn fiber(&self, id: FiberId) -> Option<&FiberInfo> {
        self.fibers.binary_search_by_key(&id, |fiber| fiber.id).ok().map(|at| &self.fibers[at])
    }

    /// The workers of the runtimes.
    pub fn workers(&self) -> &[WorkerInfo] {
        &self.workers
    }

    /// The channels of the process that can be sent to, by id.
    pub fn channels(&self) -> &[ChannelInfo] {
        &self.channels
    }

    /// The locks that fibers wait for.
    pub fn locks(&self) -> &[LockInfo] {
        &self.locks
    }

    /// The semaphores that fibers wait for.
    pub fn semaphores(&self) -> &[SemaphoreInfo] {
        &self.semaphores
    }

    /// The scopes that are open. [`ScopeInfo::parent`] makes a tree of them.
    pub fn scopes(&self) -> &[ScopeInfo] {
        &self.scopes
    }

    /// The sockets and pipes that fibers wait for.
    pub fn sockets(&self) -> &[SocketInfo] {
        &self.sockets
    }

    /// How much stack the fibers that have ended had used, by place of spawn, the deepest first: with `FIBRA_STACK_MARKS=1`, else empty.
    /// [`stacks`](super::stacks) measures the others too.
    pub fn stacks(&self) -> &[StackInfo] {
        &self.stacks
    }

    /// How many fibers wait in a call with a deadline: each has a timer.
    pub fn timers(&self) -> usize {
        self.timers
    }

    /// How long it took to take the snapshot.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// The scopes around a fiber, the outermost first.
    ///
    /// ```
    /// fibra::run(|| {
    ///     fibra::Scope::builder().name("outer").run(|s| {
    ///         let inside = s.spawn(|| {
    ///             let snapshot = fibra::inspect::snapshot();
    ///             let me = fibra::current().unwrap().id();
    ///             snapshot.scope_path(snapshot.fiber(me).unwrap()).iter().filter_map(|s| s.name.clone()).collect::<Vec<_>>()
    ///         });
    ///         assert_eq!(inside.join().unwrap(), ["outer".into()]);
    ///     }).unwrap();
    /// });
    /// ```
    pub fn scope_path(&self, fiber: &FiberInfo) -> Vec<&ScopeInfo> {
        let mut path = Vec::new();
        let mut at = fiber.scope;
        // (Its parts were read one after another: a circle would be a mistake of that kind.)
        while let Some(scope) = at.and_then(|at| self.scope(at)).filter(|_| path.len() <= self.scopes.len()) {
            path.push(scope);
            at = scope.parent;
        }
        path.reverse();
        path
    }

    pub(super) fn scope(&self, id: u64) -> Option<&ScopeInfo> {
        self.scopes.binary_search_by_key(&id, |scope| scope.id).ok().map(|at| &self.scopes[at])
    }

    pub(super) fn channel(&self, id: u64) -> Option<&ChannelInfo> {
        self.channels.binary_search_by_key(&id, |channel| channel.id).ok().map(|at| &self.channels[at])
    }
}

/// What a fiber is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FiberState {
    /// It has not run yet.
    NotStarted,
    /// It could run, and waits for its worker.
    Ready,
    /// It runs.
    Running,
    /// It waits for something: [`FiberInfo::wait`] says for what.
    Parked,
}

impl FiberState {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            FiberState::NotStarted => "not started",
            FiberState::Ready => "ready to run",
            FiberState::Running => "running",
            FiberState::Parked => "parked",
        }
    }
}

/// A fiber, or a task ([`spawn_future`](crate::spawn_future)).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FiberInfo {
    /// Its number, which no other fiber of the process ever has.
    pub id: FiberId,
    /// The name it was given.
    pub name: Option<Arc<str>>,
    /// The status that it last set: [`set_status`](crate::Fiber::set_status).
    pub status: String,
    /// What it is doing.
    pub state: FiberState,
    /// Why it waits, on what, where and since when.
    pub wait: Option<WaitInfo>,
    /// The worker on which it lives, once it has started.
    pub worker: Option<usize>,
    /// The scope whose child it is; `None`: the run's.
    pub scope: Option<u64>,
    /// Where it was spawned.
    pub spawned_at: Option<&'static Location<'static>>,
    /// A future that is polled, and has no stack while it waits.
    pub is_task: bool,
    /// It does not hold up the end of a run.
    pub is_daemon: bool,
    /// The function given to `run`.
    pub is_root: bool,
}

/// A wait.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WaitInfo {
    /// What kind of wait.
    pub reason: WaitReason,
    /// What it waits for.
    pub object: Object,
    /// The line of the program that waits.
    pub at: &'static Location<'static>,
    /// How long it has waited.
    pub since: Duration,
    /// It ends by itself when time is up.
    pub has_deadline: bool,
}

/// What a fiber waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Object {
    /// Nothing that has a name: time, the blocking pool, standard input.
    None,
    /// The end of a fiber.
    Fiber(FiberId),
    /// A channel, by its id.
    Channel(u64),
    /// One of several operations on channels. `true`: there are other arms beside those.
    Select(Vec<SelectArm>, bool),
    /// A lock, by its address.
    Lock(u64),
    /// A semaphore, by its address.
    Semaphore(u64),
    /// The children of a scope, by its id.
    Scope(u64),
    /// A socket or a pipe, by its descriptor.
    Socket(i32),
    /// Something else that lies at this address: an event, a barrier, a condition, a token.
    At(u64),
}

/// An arm of a select.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SelectArm {
    /// The channel, by its id.
    pub channel: u64,
    /// It sends, or waits until it could; otherwise it receives, or waits for the other side to close.
    pub sends: bool,
}

/// A worker: an OS thread that runs fibers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The name of its runtime.
    pub runtime: String,
    /// The fiber it runs.
    pub running: Option<FiberId>,
    /// The system's number of its thread; 0 if that is not known.
    pub thread: u32,
    /// Its state and what it has counted.
    pub metrics: WorkerMetrics,
}

/// A channel.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ChannelInfo {
    /// Its number, which no other channel of the process ever has.
    pub id: u64,
    /// The name it was given.
    pub name: Option<Box<str>>,
    /// Where it was made.
    pub made_at: &'static Location<'static>,
    /// How many values are in it.
    pub len: usize,
    /// How many fit; `None`: no bound; 0: a rendezvous.
    pub capacity: Option<usize>,
    /// Handles that can send.
    pub senders: usize,
    /// Handles that can receive.
    pub receivers: usize,
    /// Fibers that wait to send. (Threads and futures that do are not counted.)
    pub waiting_senders: usize,
    /// Fibers that wait to receive.
    pub waiting_receivers: usize,
    /// It was closed.
    pub closed: bool,
    /// Where it lies.
    pub(super) address: usize,
}

/// Which lock it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockKind {
    /// A [`Mutex`](crate::sync::Mutex).
    Mutex,
    /// A [`ReentrantMutex`](crate::sync::ReentrantMutex).
    Reentrant,
    /// A [`RwLock`](crate::sync::RwLock).
    RwLock,
}

/// The holder of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockHolder {
    /// It is free, and about to be taken.
    Nobody,
    /// A fiber.
    Fiber(FiberId),
    /// A thread that is no worker.
    Thread,
    /// So many readers.
    Readers(usize),
    /// A holder without a name (a guard of an async form, or a fiber that has ended and left its guard behind), or it is not known.
    Unknown,
}

/// A lock that fibers wait for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LockInfo {
    /// Where it lies.
    pub address: u64,
    /// Which lock it is.
    pub kind: LockKind,
    /// Its holder.
    pub holder: LockHolder,
    /// The fibers that wait for it, those that have waited longest first.
    pub waiting: Vec<FiberId>,
}

/// A semaphore that fibers wait for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SemaphoreInfo {
    /// Where it lies.
    pub address: u64,
    /// Permits that are left, if that is known.
    pub available: Option<usize>,
    /// Permits in all.
    pub total: Option<usize>,
    /// The fibers that wait for it, those that have waited longest first.
    pub waiting: Vec<FiberId>,
}

/// A scope that is open.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ScopeInfo {
    /// Names it as long as it is open.
    pub id: u64,
    /// The name it was given.
    pub name: Option<Arc<str>>,
    /// Where it was opened.
    pub opened_at: Option<&'static Location<'static>>,
    /// The fiber that opened it; `None`: a plain thread.
    pub owner: Option<FiberId>,
    /// The scope around it; `None`: the run's.
    pub parent: Option<u64>,
    /// How long until its own deadline, if it has one.
    pub deadline_in: Option<Duration>,
    /// Its children that have not ended.
    pub children: usize,
    /// Its body is over: it waits for its children.
    pub is_ending: bool,
    /// It was cancelled.
    pub is_cancelled: bool,
    /// It was asked to come to an end.
    pub is_draining: bool,
}

/// A socket or pipe that fibers wait for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SocketInfo {
    /// Its descriptor.
    pub descriptor: i32,
    /// The fibers that wait for it, and why.
    pub waiting: Vec<(FiberId, WaitReason)>,
}

/// How much stack the fibers that were spawned at one place have used; see [`stacks`](super::stacks).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StackInfo {
    /// Where they were spawned.
    pub spawned_at: &'static Location<'static>,
    /// How many were measured.
    pub fibers: u64,
    /// The bytes that the deepest of their stacks has touched: whole pages.
    pub deepest: usize,
    /// The size of that stack, as `stack_size` means it: about 13 KiB of it are not for the fiber's use.
    pub size: usize,
}
