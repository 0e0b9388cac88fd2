//! Starting fibers: `spawn` and its relatives. Above: users, `scope`, `builder.rs`. Below: `sched`, `fiber`.
//!
//! A spawn takes a frame from the worker's cache, moves the closure into it, counts it and pushes it: no allocation for a small closure, no
//! shared line touched. The stack comes when the fiber first runs.

use std::panic::Location;
use std::ptr;

use super::join::JoinHandle;
use super::locals;
use super::run::Closure;
use crate::fiber::frame::{Extras, FlagSet, FrameRef, Thunk, flag};
use crate::fiber::outcome::FiberEnd;
use crate::fiber::slab;
use crate::prim::atomic::Ordering;
use crate::sched::members::scope::{NotStarted, ScopeRecord, ScopeRef};
use crate::sched::shared::{RootRef, RuntimeShared};
use crate::sched::worker::{Worker, take_ids};
use crate::sched::{current, flight};
use crate::wait::own_locals;
use crate::waiter::cancel_reason::ReasonKind;

/// Starts a fiber. It belongs to the root scope: `run` returns only after it has ended, whether or not it is joined.
///
/// The closure may be stolen by another worker until it first runs; from then on the fiber stays on its worker.
///
/// If the runtime is shutting down, or its cap of fibers is reached, nothing is started and the handle says so when it is joined.
///
/// # Panics
/// On a thread that is neither in a runtime nor has entered one with [`Handle::enter`](crate::Handle::enter).
///
/// ```
/// let sum = fibra::run(|| {
///     let children: Vec<_> = (0..10u64).map(|i| fibra::spawn(move || i * i)).collect();
///     children.into_iter().map(|child| child.join().unwrap()).sum::<u64>()
/// });
/// assert_eq!(sum, 285);
/// ```
#[track_caller]
#[inline]
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let site = Location::caller();
    match current::worker() {
        // SAFETY: `F` is `Send` and `'static`, so it may run on any worker at any time; `T` likewise may go to any joiner.
        Some(worker) => unsafe { spawn_on(worker, f, site) },
        None => match current::runtime() {
            // SAFETY: as above.
            Some(shared) => unsafe { spawn_with(&shared, shared.root, f, site, flag::NONE, None) },
            None => no_runtime("spawn"),
        },
    }
}

/// Starts a fiber that stays on this worker, so that the closure need not be `Send`.
///
/// # Panics
/// On a thread that is no worker of a runtime.
///
/// ```
/// use std::{cell::Cell, rc::Rc};
///
/// fibra::run(|| {
///     let seen = Rc::new(Cell::new(0));
///     let child = {
///         let seen = seen.clone();
///         fibra::spawn_local(move || seen.set(7))
///     };
///     child.join().unwrap();
///     assert_eq!(seen.get(), 7);
/// });
/// ```
#[track_caller]
pub fn spawn_local<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    let site = Location::caller();
    let Some(worker) = current::worker() else {
        panic!(
            "fibra: spawn_local on a thread that runs no fibers: a fiber that must not move needs a worker to stay on"
        );
    };
    // SAFETY: PINNED: it runs on this worker's thread and nowhere else, and so does a joiner that takes a `T` that is not `Send`, since the
    // handle is `Send` only if `T` is. (The fiber that runs here stays, too: see `try_spawn_thunk`.)
    unsafe { spawn_with(&worker.shared, root_of(worker), f, site, flag::PINNED, None) }
}

#[cold]
#[inline(never)]
#[track_caller]
pub(crate) fn no_runtime(what: &str) -> ! {
    panic!(
        "fibra: {what} on a thread without a runtime: call it inside fibra::run or Runtime::run, or make a \
         runtime current on this thread with Handle::enter"
    );
}

/// The root scope that a spawn on this worker counts in: that of the run the running fiber is in.
#[inline(always)]
pub(crate) fn root_of(worker: &Worker) -> RootRef {
    match worker.current.get() {
        // SAFETY: the flag is what `of` asks for.
        Some(parent) if parent.has(flag::SCOPED) => unsafe { ScopeRecord::of(parent) }.run(),
        // SAFETY: the running fiber counts in it.
        Some(parent) => unsafe { RootRef::from_ptr(parent.root.get()) },
        None => worker.shared.root,
    }
}

/// The fast path of `spawn`.
///
/// # Safety
/// `F` and `T` may be sent to any worker, and outlive the fiber.
#[inline(always)]
unsafe fn spawn_on<F: FnOnce() -> T, T>(worker: &Worker, f: F, site: &'static Location<'static>) -> JoinHandle<T> {
    let shared = &*worker.shared;
    let root = root_of(worker);
    let base = shared.base_flags.look();
    if has_locals(worker) || !base.has(flag::UNCAPPED) || !worker.count_spawn(root) {
        // SAFETY: passed on.
        return unsafe { spawn_with(shared, root, f, site, flag::NONE, None) };
    }
    // SAFETY: passed on; the thunk is the one for `F`.
    unsafe { push_counted(worker, root, f, Closure::<F, T>::THUNK, site, base) }
}

/// The rest of the fast paths: a fiber that is counted already gets a frame, and is pushed into the worker's queue.
///
/// # Safety
/// As [`spawn_on`]; `thunk` expects an `F` in the storage and leaves a `T`.
#[inline(always)]
unsafe fn push_counted<F, T>(
    worker: &Worker,
    root: RootRef,
    f: F,
    thunk: &'static Thunk,
    site: &'static Location<'static>,
    flags: FlagSet,
) -> JoinHandle<T> {
    let frame = worker.take_frame();
    // SAFETY: a fresh frame.
    unsafe { fill(frame, &worker.shared, root, worker.take_id(), f, thunk, site, flags) };
    worker.stats().spawned.add(1);
    let ticket = frame.waiter.word.publish_spawned();
    worker.push_spawned(frame, ticket);
    JoinHandle::new(frame)
}

/// Does the running fiber have fiber-locals, which a child may inherit?
#[inline(always)]
fn has_locals(worker: &Worker) -> bool {
    // SAFETY: the running fiber.
    worker.current.get().is_some_and(|frame| unsafe { locals::has_locals(frame) })
}

/// Starts a child of a scope with choices. Err: it was refused. The caller is told, so the scope need not be.
///
/// # Safety
/// As [`spawn_child`].
pub(crate) unsafe fn try_spawn_child<F: FnOnce() -> T, T>(
    scope: ScopeRef,
    f: F,
    site: &'static Location<'static>,
    flags: FlagSet,
    extras: Extras,
    spread_to: Option<usize>,
) -> Result<JoinHandle<T>, RefusedBecause> {
    // SAFETY: the scope is open.
    let shared = unsafe { scope.shared() };
    if let Some(reason) = scope.root.cancelled() {
        scope.note_cut_short();
        drop(f);
        return Ok(refused(shared, site, reason));
    }
    // SAFETY: passed on.
    let spawned =
        unsafe { try_spawn(shared, scope.root_ref(), f, site, flags | flag::SCOPED, Some(extras), spread_to) };
    spawned.map_err(|refused| refused.reason)
}

/// Starts a child of a scope.
///
/// # Safety
/// The caller keeps the scope open: it is its owner or one of its children. `F` and `T` may be sent to any worker, unless it is PINNED to
/// the one this runs on; they outlive the scope.
#[inline]
pub(crate) unsafe fn spawn_child<F: FnOnce() -> T, T>(
    scope: ScopeRef,
    f: F,
    site: &'static Location<'static>,
    flags: FlagSet,
) -> JoinHandle<T> {
    // SAFETY: passed on; the thunk is the one for `F`.
    unsafe { spawn_child_thunk(scope, f, Closure::<F, T>::THUNK, site, flags) }
}

/// The same for a child that may end without a value: it then counts as cancelled. This needs no unwinding, which not every program can do.
///
/// # Safety
/// As [`spawn_child`].
pub(crate) unsafe fn spawn_child_or_none<F: FnOnce() -> Option<T>, T>(
    scope: ScopeRef,
    f: F,
    site: &'static Location<'static>,
    flags: FlagSet,
) -> JoinHandle<T> {
    // SAFETY: passed on; the thunk is the one for `F`.
    unsafe { spawn_child_thunk(scope, f, Closure::<F, Option<T>>::THUNK_OR_NONE, site, flags) }
}

/// # Safety
/// As [`spawn_child`]; `thunk` expects an `F` in the storage and leaves a `T`.
#[inline(always)]
unsafe fn spawn_child_thunk<F, T>(
    scope: ScopeRef,
    f: F,
    thunk: &'static Thunk,
    site: &'static Location<'static>,
    flags: FlagSet,
) -> JoinHandle<T> {
    // SAFETY: the scope is open.
    let shared = unsafe { scope.shared() };
    if let Some(reason) = scope.root.cancelled() {
        scope.note_cut_short();
        drop(f);
        return refused(shared, site, reason);
    }
    let base = shared.base_flags.look();
    if let Some(worker) = current::worker()
        && flags.is_empty()
        && ptr::eq(&*worker.shared, shared)
        && !has_locals(worker)
        && base.has(flag::UNCAPPED)
        && !scope.is_limited()
    {
        scope.count_spawn(Some(worker));
        // SAFETY: passed on.
        return unsafe { push_counted(worker, scope.root_ref(), f, thunk, site, base | flag::SCOPED) };
    }
    // SAFETY: passed on.
    unsafe { spawn_thunk_with(shared, scope.root_ref(), f, thunk, site, flags | flag::SCOPED, None) }
}

/// Writes everything a new fiber needs into its frame; `flags` are all of them, the runtime's base flags included.
///
/// # Safety
/// `frame` is fresh from the pool.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // One place that writes all of a frame is worth a long list.
pub(crate) unsafe fn fill<F>(
    frame: FrameRef,
    shared: &RuntimeShared,
    root: RootRef,
    id: u64,
    f: F,
    thunk: &'static Thunk,
    site: &'static Location<'static>,
    flags: FlagSet,
) {
    // Relaxed, all: the frame is ours until it is published.
    frame.waiter.flags.start_with(flags);
    frame.id.store(id, Ordering::Relaxed);
    frame.runtime.store(ptr::from_ref(shared).cast_mut().cast(), Ordering::Relaxed);
    frame.root.set(root.as_ptr());
    frame.site.set(site);
    frame.thunk.set(Some(thunk));
    frame.join.reset(true);
    // SAFETY: a fresh frame's storage is empty.
    unsafe { frame.put(f) };
}

/// Every spawn but the fast path. Never fails: if it is refused, the handle says so.
///
/// # Safety
/// As [`spawn_on`]; with PINNED they need not be sendable, but then this is a worker of `shared` (or `home` is set to this thread's).
pub(crate) unsafe fn spawn_with<F: FnOnce() -> T, T>(
    shared: &RuntimeShared,
    root: RootRef,
    f: F,
    site: &'static Location<'static>,
    flags: FlagSet,
    extras: Option<Extras>,
) -> JoinHandle<T> {
    // SAFETY: passed on; the thunk is the one for `F`.
    unsafe { spawn_thunk_with(shared, root, f, Closure::<F, T>::THUNK, site, flags, extras) }
}

/// The same for a fiber that may end without a value; see [`spawn_child_or_none`].
///
/// # Safety
/// As [`spawn_with`].
pub(crate) unsafe fn spawn_or_none_with<F: FnOnce() -> Option<T>, T>(
    shared: &RuntimeShared,
    root: RootRef,
    f: F,
    site: &'static Location<'static>,
    extras: Extras,
) -> JoinHandle<T> {
    // SAFETY: passed on; the thunk is the one for `F`.
    unsafe { spawn_thunk_with(shared, root, f, Closure::<F, Option<T>>::THUNK_OR_NONE, site, flag::NONE, Some(extras)) }
}

/// # Safety
/// As [`spawn_with`]; `thunk` expects an `F` in the storage and leaves a `T`.
unsafe fn spawn_thunk_with<F, T>(
    shared: &RuntimeShared,
    root: RootRef,
    f: F,
    thunk: &'static Thunk,
    site: &'static Location<'static>,
    flags: FlagSet,
    extras: Option<Extras>,
) -> JoinHandle<T> {
    // SAFETY: passed on.
    match unsafe { try_spawn_thunk(shared, root, f, thunk, site, flags, extras, None) } {
        Ok(handle) => handle,
        Err(Refused { reason, f }) => {
            drop(f);
            // SAFETY: with SCOPED, the root is a scope's.
            unsafe { refused_in(shared, root, flags, site, reason) }
        }
    }
}

/// Why nothing was started; the closure comes back.
pub(crate) struct Refused<F> {
    pub(crate) reason: RefusedBecause,
    pub(crate) f: F,
}

/// See [`Refused`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RefusedBecause {
    /// Shutdown has begun, or the process is a fork of the one the runtime lives in.
    ShuttingDown,
    /// `max_fibers` are alive.
    Full,
}

impl RefusedBecause {
    pub(crate) fn reason(self) -> ReasonKind {
        match self {
            RefusedBecause::ShuttingDown => ReasonKind::Shutdown,
            RefusedBecause::Full => ReasonKind::Full,
        }
    }
}

/// # Safety
/// As [`spawn_with`].
pub(crate) unsafe fn try_spawn<F: FnOnce() -> T, T>(
    shared: &RuntimeShared,
    root: RootRef,
    f: F,
    site: &'static Location<'static>,
    flags: FlagSet,
    extras: Option<Extras>,
    spread_to: Option<usize>,
) -> Result<JoinHandle<T>, Refused<F>> {
    // SAFETY: passed on; the thunk is the one for `F`.
    unsafe { try_spawn_thunk(shared, root, f, Closure::<F, T>::THUNK, site, flags, extras, spread_to) }
}

/// # Safety
/// As [`spawn_with`]; `thunk` expects an `F` in the storage and leaves a `T`.
#[allow(clippy::too_many_arguments)] // The one slow path of all spawns.
pub(crate) unsafe fn try_spawn_thunk<F, T>(
    shared: &RuntimeShared,
    root: RootRef,
    f: F,
    thunk: &'static Thunk,
    site: &'static Location<'static>,
    mut flags: FlagSet,
    mut extras: Option<Extras>,
    spread_to: Option<usize>,
) -> Result<JoinHandle<T>, Refused<F>> {
    #[cfg(fibra_force_moves)]
    {
        flags |= super::own_locals::forced(shared, flags, spread_to.is_some());
    }
    let worker_here = || current::worker().filter(|worker| ptr::eq(&*worker.shared, shared));
    let mut worker = worker_here();
    let parent = worker.and_then(|worker| worker.current.get());
    if flags.has(flag::PINNED) {
        // Every local fiber comes by here.
        worker.into_iter().for_each(own_locals::stay_with_local_fibers);
    }
    // A fiber in a scope may still start children: shutdown cancels that fiber, and waits until it has ended.
    let closing = !flags.has(flag::ROOT | flag::SCOPED) && shared.is_closing();
    if closing || !flags.has(flag::ROOT) && shared.fork_epoch != crate::monitor::fork::epoch() {
        return Err(Refused { reason: RefusedBecause::ShuttingDown, f });
    }
    // Before anything is counted: cloning what the child inherits is user code, and may panic.
    // (A turn of an actor is no child of the sender that launches it.)
    let parent = parent.filter(|_| !flags.has(flag::WATCHED));
    if let Some(inherited) = parent.map(locals::inherited).filter(|inherited| !inherited.is_empty()) {
        *extras.get_or_insert_default().inherited.lock() = Some(inherited);
        // That code may have waited, and a fiber that moves may have come back on another worker.
        worker = worker_here();
    }
    if flags.has(flag::ROOT | flag::UNCAPPED) {
        // A full runtime must still be able to run a root, and above all to shut down.
        flags |= flag::UNCAPPED;
    } else if !shared.admit() {
        return Err(Refused { reason: RefusedBecause::Full, f });
    }
    // SAFETY: with SCOPED, the root is a scope's.
    let scope = unsafe { scope_of(root, flags) };
    let counted = if flags.has(flag::ROOT) {
        true
    } else if let Some(scope) = scope {
        scope.count_spawn(worker);
        if flags.has(flag::TASK | flag::MOVES) {
            scope.note_task();
        }
        true
    } else if flags.has(flag::DAEMON) {
        root.add_user();
        let counted = shared.daemons.try_add();
        if !counted {
            shared.release_root(root);
        }
        counted
    } else {
        match worker {
            Some(worker) => worker.count_spawn(root),
            None => root.try_add(),
        }
    };
    if !counted {
        shared.dismiss();
        return Err(Refused { reason: RefusedBecause::ShuttingDown, f });
    }
    let (frame, id) = match worker {
        Some(worker) => (worker.take_frame(), worker.take_id()),
        None => (slab::take_shared(), take_ids(1)),
    };
    // What need not be `Send` stays where it was spawned.
    debug_assert!(spread_to.is_none() || !flags.has(flag::PINNED));
    if spread_to.is_some() {
        flags |= flag::SPREAD.only_if(!flags.has(flag::PINNED)) | flag::PINNED;
    }
    // SAFETY: a fresh frame.
    unsafe { fill(frame, shared, root, id, f, thunk, site, flags | shared.base_flags.look()) };
    if let Some(extras) = extras {
        frame.set_extras(extras);
    }
    let handle = JoinHandle::new(frame);
    if flags.has(flag::TASK | flag::MOVES) {
        shared.tasks.lock().insert(id, frame);
    }
    if flags.has(flag::TASK) {
        // Relaxed: a gauge; the worker that starts the task takes it back.
        shared.tasks_parked.fetch_add(1, Ordering::Relaxed);
    }
    match worker {
        Some(worker) => worker.stats().spawned.add(1),
        None => {
            // Relaxed: a number for people.
            shared.spawned_outside.fetch_add(1, Ordering::Relaxed);
        }
    }
    if flight::is_on() {
        flight::note_spawn(worker, frame, site);
    }
    let ticket = frame.waiter.word.publish_spawned();
    if let Some(scope) = scope
        && !flags.has(flag::PINNED | flag::TASK)
        && scope.hold_back(frame)
    {
        return Ok(handle);
    }
    match (worker, spread_to) {
        (_, Some(target)) => {
            let target = shared.reserve(target);
            // Relaxed: published by the inbox.
            frame.home.store(target as u32, Ordering::Relaxed);
            shared.deliver(target, frame);
        }
        (Some(worker), None) if flags.has(flag::PINNED) => {
            // Relaxed: this worker's own.
            frame.home.store(worker.index as u32, Ordering::Relaxed);
            worker.push_local(frame);
        }
        // A joiner must not take a task: it would run the task as a fiber that has just started.
        (Some(worker), None) if flags.has(flag::TASK) => worker.push_fresh(frame),
        (Some(_), None) if flags.has(flag::BEHIND) => shared.inject_spawned(frame, ticket),
        (Some(worker), None) => worker.push_spawned(frame, ticket),
        (None, None) if flags.has(flag::TASK) => shared.inject_task(frame),
        (None, None) => shared.inject_spawned(frame, ticket),
    }
    Ok(handle)
}

/// The scope of a child that is about to be started.
///
/// # Safety
/// If `flags` has SCOPED, the root is that of a scope.
unsafe fn scope_of(root: RootRef, flags: FlagSet) -> Option<ScopeRef> {
    // SAFETY: the root of a child is the first field of its scope's record, and records live for ever.
    (flags.has(flag::SCOPED)).then(|| unsafe { &*root.as_ptr().cast::<ScopeRecord>() })
}

/// A handle of a fiber that was never started: it has ended already, cancelled.
#[cold]
pub(crate) fn refused<T>(
    shared: &RuntimeShared,
    site: &'static Location<'static>,
    reason: ReasonKind,
) -> JoinHandle<T> {
    never_started(shared, site, reason, None)
}

/// The same for a spawn that was refused although its scope, if it has one, is not cancelled: work is lost, and the scope fails unless
/// the handle is joined.
///
/// # Safety
/// As [`scope_of`].
#[cold]
pub(crate) unsafe fn refused_in<T>(
    shared: &RuntimeShared,
    root: RootRef,
    flags: FlagSet,
    site: &'static Location<'static>,
    reason: RefusedBecause,
) -> JoinHandle<T> {
    // SAFETY: passed on.
    let scope = unsafe { scope_of(root, flags) };
    let lost = scope.map(|scope| scope.not_started(Some(reason.reason())));
    never_started(shared, site, reason.reason(), lost)
}

fn never_started<T>(
    shared: &RuntimeShared,
    site: &'static Location<'static>,
    reason: ReasonKind,
    lost: Option<NotStarted>,
) -> JoinHandle<T> {
    let frame = slab::take_shared();
    // Relaxed, all: the frame is ours until the handle is given out.
    frame.waiter.flags.start_cancelled(reason);
    frame.id.store(take_ids(1), Ordering::Relaxed);
    frame.runtime.store(ptr::from_ref(shared).cast_mut().cast(), Ordering::Relaxed);
    frame.site.set(site);
    frame.thunk.set(None);
    frame.join.reset(true);
    let ticket = frame.waiter.word.publish_spawned();
    let started = frame.waiter.word.start(ticket);
    debug_assert!(started);
    frame.waiter.word.finish(true);
    let outcome = if lost.is_some() { FiberEnd::NotStarted } else { FiberEnd::Cancelled };
    if let Some(lost) = lost {
        // SAFETY: the frame is ours, and its storage empty.
        unsafe { frame.put(lost) };
    }
    let _ = frame.join.finish(outcome);
    JoinHandle::new(frame)
}
