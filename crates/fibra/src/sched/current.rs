//! The current worker, fiber and runtime of a thread.
//!
//! One thread-local pointer, set while a thread runs a worker's loop. A started fiber stays on its worker, so the
//! compiler may keep what it read here across a switch. (With `unstable-migration` it may not: there the accessor is opaque, which
//! helps this crate but not the thread-locals of other crates; that is why the feature is unsafe.)
//!
//! Above: everything that asks where it runs. Below: `worker.rs` and `shared.rs`, to which it points.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::Arc;

use super::shared::RuntimeShared;
use super::worker::Worker;
use crate::fiber::frame::FrameRef;
use crate::fiber::top::CancelState;
use crate::prim::policy::{self, Rng};

thread_local! {
    static WORKER: Cell<*const Worker> = const { Cell::new(ptr::null()) };
    /// Runtimes entered with `Handle::enter`, innermost last.
    static ENTERED: RefCell<Vec<Arc<RuntimeShared>>> = const { RefCell::new(Vec::new()) };
}

/// Cancellation state of this thread, where it runs no fibers.
pub(crate) fn thread_cancel_state<'a>() -> &'a CancelState {
    thread_local! {
        static STATE: CancelState = const { CancelState::new() };
    }
    // SAFETY: it has no destructor, so it is there until the thread ends, and is used by code that runs on this thread.
    STATE.with(|state| unsafe { &*ptr::from_ref(state) })
}

/// Counts the unwindings on this thread that do not belong to the running code: those of suspended fibers of any runtime (each is inside a
/// destructor), and those below the loops that run on this thread. The count belongs to the thread and not to a worker, as std's count
/// does: a current-thread runtime leaves its fibers behind when a `run` is over. See `cancel`.
#[cfg_attr(not(feature = "unstable-migration"), inline(always))]
#[cfg_attr(feature = "unstable-migration", inline(never))]
pub(crate) fn suspended_unwindings<'a>() -> &'a Cell<u32> {
    thread_local! {
        static SUSPENDED: Cell<u32> = const { Cell::new(0) };
    }
    // SAFETY: as in `thread_cancel_state`; what unwinds is never moved to another thread.
    SUSPENDED.with(|suspended| unsafe { &*ptr::from_ref(suspended) })
}

/// The worker whose loop runs on this thread, if any.
#[cfg_attr(not(feature = "unstable-migration"), inline(always))]
#[cfg_attr(feature = "unstable-migration", inline(never))]
pub(crate) fn worker<'a>() -> Option<&'a Worker> {
    // SAFETY: `set_worker` is called by the loop itself, which clears it before the worker goes away; code that asks runs inside the
    // loop (on a fiber or on the scheduler's stack) and ends before it.
    unsafe { WORKER.get().as_ref() }
}

/// Like [`set_worker`]; gives what was set before.
pub(crate) fn replace_worker(worker: *const Worker) -> *const Worker {
    WORKER.replace(worker)
}

/// Set at the beginning of a worker's loop, cleared (null) at its end.
pub(crate) fn set_worker(worker: *const Worker) {
    WORKER.set(worker);
}

/// The fiber this code runs on, if any.
#[inline(always)]
pub(crate) fn fiber() -> Option<FrameRef> {
    worker()?.current.get()
}

/// The runtime that `spawn` means here: the worker's own, or the one entered last.
pub(crate) fn runtime() -> Option<Arc<RuntimeShared>> {
    match worker() {
        Some(worker) => Some(worker.shared.clone()),
        None => ENTERED.try_with(|entered| entered.borrow().last().cloned()).ok().flatten(),
    }
}

/// Makes `shared` the current runtime of this thread until [`leave`].
pub(crate) fn enter(shared: Arc<RuntimeShared>) {
    ENTERED.with_borrow_mut(|entered| entered.push(shared));
}

/// Undoes one [`enter`] of this runtime, the last one (guards may be dropped in any order).
pub(crate) fn leave(shared: &Arc<RuntimeShared>) {
    // Dropped after the borrow has ended: it may be the last reference, and dropping a runtime's rest is more than a pop.
    // Nothing is left to undo if the thread ends and its thread-locals are gone (a guard kept in one of them).
    let gone = ENTERED.try_with(|entered| {
        let mut entered = entered.borrow_mut();
        let at = entered.iter().rposition(|other| Arc::ptr_eq(other, shared));
        at.map(|at| entered.remove(at))
    });
    drop(gone);
}

/// A random number below `bound`, from the policy of the worker that runs here, or from the thread's own generator.
#[inline]
pub(crate) fn choose(bound: usize) -> usize {
    match worker() {
        Some(worker) => worker.policy.with(|policy| policy.choose(bound)),
        None => choose_on_thread(bound),
    }
}

fn choose_on_thread(bound: usize) -> usize {
    thread_local! {
        static RNG: RefCell<Rng> = RefCell::new(policy::chance());
    }
    // While the thread is torn down, any number will do.
    RNG.try_with(|rng| rng.borrow_mut().below(bound)).unwrap_or(0)
}
