//! Runs a fiber with thread-locals of its own: the thread pointer is switched along with the stack.
//!
//! Above: `task::own_locals`. Below: `fiber::donor`, which lends the thread-locals, and `Worker::suspend`.
//!
//! Invariants
//! * All code on the stack of such a fiber, inside [`within`], runs with the fiber's thread pointer; all code on the scheduler's stack runs
//!   with that of the worker's thread. (A panic hook, which is called on the scheduler's stack by the fiber, runs with the fiber's.) So an
//!   address of a thread-local that the compiler keeps on the fiber's stack is right after every suspension.
//! * Fibra's own thread-local, the current worker, is written anew whenever the fiber comes back.
//! * The functions here that set the thread pointer are not inlined and use no thread-local themselves; see `prim::thread_pointer`.

use std::cell::Cell;
use std::ptr;

use super::reason::WaitReason;
use crate::fiber::donor::Donor;
use crate::fiber::frame::{FrameRef, NO_HOME, flag};
use crate::fiber::top::{CancelState, FiberTop};
use crate::prim::bug::seeded_bug;
use crate::prim::thread_pointer;
use crate::sched::current;
use crate::sched::here::Here;
use crate::sched::worker::{Worker, signal};
use crate::waiter::word::WaitKind;

/// What `FiberTop::own_locals` points to.
struct OwnLocals {
    /// The fiber's thread pointer.
    own: usize,
    /// That of the thread on which it runs at the moment.
    threads: Cell<usize>,
    /// It has started local fibers, with which it may share what is not `Send`: it stays with them, and they stand still while its
    /// thread-locals are dropped.
    stays: Cell<bool>,
}

/// Runs `run`, which does not unwind, on the current fiber with the thread-locals that the donor lends, which stands still. True: there may
/// be values in them that other fibers of this worker share, although they are not `Send`.
#[inline(never)]
pub(crate) fn within(donor: &Donor, run: &mut dyn FnMut()) -> bool {
    let own = donor.thread_pointer().expect("a donor that stands still");
    let (frame, worker) = here();
    let top = frame.top().expect("a running fiber has a stack");
    let locals = OwnLocals { own, threads: Cell::new(thread_pointer::get()), stays: Cell::new(false) };
    top.own_locals.set(ptr::from_ref(&locals).cast());
    frame.raise(flag::OWN_LOCALS);
    // SAFETY: the donor stands still while it is borrowed; this function and those it calls in here use thread-locals only in
    // calls of their own.
    unsafe { enter(&locals, worker) };
    run();
    // SAFETY: back to the pointer of the thread that the fiber runs on.
    unsafe { exit(&locals) };
    frame.lower(flag::OWN_LOCALS);
    top.own_locals.set(ptr::null());
    // (A fiber that was spread is PINNED, too, but shares nothing.)
    locals.stays.get() || frame.has(flag::PINNED) && !frame.has(flag::SPREAD)
}

#[inline(never)]
fn here() -> (FrameRef, *const Worker) {
    let worker = current::worker().expect("a fiber runs on a worker");
    (worker.current.get().expect("a fiber runs"), worker)
}

/// # Safety
/// See [`within`].
#[inline(never)]
unsafe fn enter(locals: &OwnLocals, worker: *const Worker) {
    // SAFETY: the caller's promise.
    unsafe { thread_pointer::set(locals.own) };
    arrive(worker);
}

/// With the fiber's thread pointer: the worker it runs on.
#[inline(never)]
fn arrive(worker: *const Worker) {
    current::set_worker(worker);
}

/// # Safety
/// See [`within`].
#[inline(never)]
unsafe fn exit(locals: &OwnLocals) {
    // What is left of its thread-locals is dropped by the donor, on no worker.
    arrive(ptr::null());
    // SAFETY: the caller's promise.
    unsafe { thread_pointer::set(locals.threads.get()) };
}

/// [`Worker::suspend`] of a fiber with thread-locals of its own.
///
/// # Safety
/// As there; the fiber has OWN_LOCALS.
#[cold]
#[inline(never)]
pub(super) unsafe fn suspend(worker: &Worker, frame: FrameRef, signal: usize) {
    // SAFETY: it runs, so it has a stack; with the flag, `within` is further down on it, and its record with it.
    let locals = unsafe { &*frame.top().unwrap_unchecked().own_locals.get().cast::<OwnLocals>() };
    let signal = signal_of(worker, frame, locals, signal);
    // SAFETY: the pointer of the thread that it runs on. Until it is set back only the switch and the scheduler run.
    unsafe { thread_pointer::set(locals.threads.get()) };
    // SAFETY: passed on.
    let word = unsafe { worker.suspend(frame, signal) };
    locals.threads.set(thread_pointer::get());
    // SAFETY: the donor stands still until `within` returns. The word of a resume is the worker.
    unsafe { enter(locals, ptr::with_exposed_provenance(word)) };
}

/// The current fiber of this worker is about to start a local fiber: it stays here from now on, if it is one that moves. What the two share
/// need not be `Send`.
pub(crate) fn stay_with_local_fibers(worker: &Worker) {
    let owner = worker.current.get().filter(|frame| frame.has(flag::OWN_LOCALS));
    let locals = owner.and_then(|frame| frame.top()).map(|top| top.own_locals.get().cast::<OwnLocals>());
    // SAFETY: the running fiber has OWN_LOCALS, so `within` is further down on its stack, and its record with it.
    if let Some(locals) = locals.and_then(|locals| unsafe { locals.as_ref() })
        && !seeded_bug("moves_away_from_local_fibers")
    {
        locals.stays.set(true);
    }
}

/// Do the scopes that are open on this fiber let it move? Not if one was opened behind a shield, or by a destructor during unwinding: then
/// not every scope concerns it, and only its worker can judge that. Otherwise each scope was opened by a fiber that moves, and so no worker
/// counts plainly in it.
fn may_move_within_scopes(worker: &Worker, frame: FrameRef, state: &CancelState) -> bool {
    if state.open.get().is_null() {
        return true;
    }
    if state.shields.get() != 0 || state.cleanups.get() != 0 || frame.has(flag::BARRIER | flag::CLEANUP) {
        return false;
    }
    let mut scopes = Here::on(worker, frame).open_scopes();
    let are_free = scopes.all(|scope| scope.home() == NO_HOME && scope.hold.get() == 0);
    debug_assert!(are_free, "a scope that was opened while the fiber stayed was left open");
    are_free
}

/// How a fiber with thread-locals of its own suspends: so that it goes on on any worker, if it may and nothing binds it to this one. What
/// binds it: local fibers of its own; a shield, cancellation or an unwinding, which its worker has to judge, also around an open scope; a
/// wait that cancellation cannot end, other than that for the end of a scope; the poll of a future.
#[inline(never)]
fn signal_of(worker: &Worker, frame: FrameRef, locals: &OwnLocals, signal: usize) -> usize {
    let is_free = frame.has(flag::MOVES) && !locals.stays.get();
    if !is_free || frame.has(flag::PINNED | flag::ANY_CANCEL | flag::NO_SUSPEND) || std::thread::panicking() {
        return signal;
    }
    // (The flag may have outlived its reason.)
    let holds_off = || worker.rules().wait_kind(Here::on(worker, frame)) != WaitKind::Revocable;
    if frame.has(flag::HOLD_OFF) && holds_off() {
        return signal;
    }
    let Some(top) = frame.top() else { return signal };
    if top.polls.get() != 0 || !may_move_within_scopes(worker, frame, &top.cancel) {
        return signal;
    }
    let reason = || WaitReason::from_bits(FiberTop::reason_of(top.wait_words().0));
    // (The children of a scope may borrow from its owner's stack, which stays where it is while the owner moves: so waits for its end
    // do not bind.)
    let is_binding = || reason().is_none_or(|reason| reason.is_binding() && reason != WaitReason::ScopeEnd);
    match signal {
        signal::YIELD => signal::YIELD_MOVING,
        // (If it has a deadline, its timer is where any worker may take it back: `FiberParker::leave_anywhere_until`.)
        signal::PARK if !is_binding() => signal::PARK_MOVING,
        _ => signal,
    }
}
