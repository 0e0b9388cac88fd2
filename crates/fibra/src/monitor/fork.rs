//! `fork` in a process with a runtime: the child has one thread, so the runtimes of the parent are dead there.
//!
//! A counter that the child's side of `fork` raises tells such a runtime from a live one: spawning on it gives a cancelled
//! handle, running on it panics with an explanation, dropping it forgets it. New runtimes may be built in the child. `exec` after
//! `fork`, as `std::process::Command` does it, is not concerned.
//!
//! What the whole process shares must therefore be usable in the child, whatever the other threads were doing when they ceased to exist.
//! So the thread that forks first takes every lock of the process, and parent and child give them back: no other thread is inside then, and
//! what they guard is whole. In this order, which is also the order of every thread that takes two of them:
//!
//! ```text
//! TAPES     sched::flight
//! NAMES     names: held for a look, and nothing is locked under it
//! RUNTIMES, OBJECTS          monitor::objects
//! SETUP     below: one-time preparations, so that no `Once` is half done
//! ROOTS     sched::shared    SCOPES   sched::members::scope
//! CENSUS    fiber            FRAMES   fiber::slab
//! ARENAS    stack::arena     WARM, ROOM, COLD, OWN    stack::cache
//! THREADS, TASKS, ANSWERS    waiter::record, waiter::answer
//! OUTSIDE   outside_io       SOURCES  source, and the lock of each source
//! ONE_AT_A_TIME  prim::thread                 OUTSIDE_TAPE   sched::flight
//! ```
//!
//! The tidy test holds that every process-wide lock is named in this file. Locks of one runtime are not among them: it is dead in the
//! child, and code that touches it there asks for the epoch first.
//!
//! Above: `launch` and `scope`. Below: `fiber` and `waiter::record`, which lend their locks.

use crate::fiber;
use crate::prim::atomic::{AtomicU32, Ordering};
use crate::prim::cell::UnsafeCell;
pub(crate) use crate::prim::epoch::epoch;
use crate::prim::slab::Free;
use crate::prim::sync::{Mutex, MutexGuard};
use crate::prim::thread::StartsLock;
use crate::sched::flight;
use crate::sched::members::root::Root;
use crate::sched::members::scope::ScopeRecord;
use crate::waiter::record;

static SETUP: Mutex<()> = Mutex::new(());

/// Every lock of the process.
struct Locks {
    tapes: flight::TapesLock,
    _names: super::names::NamesLock,
    _objects: super::objects::Locks,
    _setup: MutexGuard<'static, ()>,
    _roots: Free<Root>,
    _scopes: Free<ScopeRecord>,
    _fiber: fiber::Locks,
    _waker: record::Locks,
    _outside: crate::reactor::outside_io::OutsideLock,
    sources: crate::reactor::source::SlabLock,
    starts: StartsLock,
    outside_tape: flight::OutsideTapeLock,
}

impl Locks {
    fn take() -> Self {
        // Fields are evaluated in the order written here: the order of the header.
        Self {
            tapes: flight::TapesLock::take(),
            _names: super::names::NamesLock::take(),
            _objects: super::objects::Locks::take(),
            _setup: SETUP.lock(),
            _roots: crate::sched::shared::lock_roots(),
            _scopes: crate::sched::members::scope::lock_slab(),
            _fiber: fiber::Locks::take(),
            _waker: record::Locks::take(),
            _outside: crate::reactor::outside_io::OutsideLock::take(),
            sources: crate::reactor::source::SlabLock::take(),
            starts: StartsLock::take(),
            outside_tape: flight::OutsideTapeLock::take(),
        }
    }
}

/// The locks between the two halves of a fork.
struct Held(UnsafeCell<Option<Locks>>);

// SAFETY: touched only by the thread that holds all the locks, or is about to give them back: one at a time, and the same one.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

extern "C" fn before_fork() {
    let locks = Locks::take();
    // SAFETY: this thread holds all the locks, so no other is here.
    HELD.0.with_mut(|held| unsafe { *held = Some(locks) });
}

extern "C" fn after_fork() {
    drop(take_held());
}

fn take_held() -> Option<Locks> {
    // SAFETY: this is the thread that forked (in the child: its image), and it holds the locks.
    HELD.0.with_mut(|held| unsafe { (*held).take() })
}

/// Only plain memory here: many a child calls nothing but `exec`, and must come that far.
extern "C" fn after_fork_in_child() {
    // Relaxed: the child has one thread. The handlers are registered, or this were not called; the thread that was about to say so
    // may have stayed behind.
    crate::prim::epoch::raise();
    INSTALLED.store(DONE, Ordering::Relaxed);
    if let Some(mut locks) = take_held() {
        locks.sources.forget_waits();
        locks.starts.forget_starts();
        locks.tapes.forget_in_child();
        locks.outside_tape.forget_in_child();
    }
    fiber::trim::forget();
    super::stall::forget_in_child();
    crate::prim::thread::forget_quiet_threads();
}

/// Whether the handlers are registered: not yet, done, or the number of the process in which a thread is just doing it.
static INSTALLED: AtomicU32 = AtomicU32::new(NOT_YET);
/// No process has this number.
const NOT_YET: u32 = 0;
/// Nor this one: the kernel's numbers end at 2^22.
const DONE: u32 = u32::MAX;

/// Prepares the process for its first runtime, and for being forked: `steps` are those that may be taken only once. A fork comes before
/// them or after them.
pub(crate) fn set_up(steps: impl FnOnce()) {
    install();
    let _alone = SETUP.lock();
    steps();
}

/// Registers the handlers, once; also for a program that has a thread of fibra without a runtime. No `Once`: a fork may come in between,
/// and the child would wait for a thread that does not exist there.
pub(crate) fn install() {
    // Acquire, here and below: pairs with the release of DONE; a thread that sees it forks with the handlers.
    let mut now = INSTALLED.load(Ordering::Acquire);
    if now == DONE {
        return;
    }
    let me = std::process::id();
    while now != DONE {
        if now == me {
            // Another thread of this process is about to finish.
            crate::prim::thread::yield_now();
            now = INSTALLED.load(Ordering::Acquire);
            continue;
        }
        // No thread has begun; or a thread of the parent had, when this child was forked, and did not come to it.
        match INSTALLED.compare_exchange(now, me, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => {
                // SAFETY: registers functions that take locks in their order and touch atomics. If it fails (out of memory), forks go
                // unnoticed.
                unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork_in_child)) };
                // Release: as above.
                INSTALLED.store(DONE, Ordering::Release);
                return;
            }
            Err(actual) => now = actual,
        }
    }
}

/// Which process this is, among those that forks have made. From the first question on, forks are counted.
pub(crate) fn process() -> u64 {
    install();
    epoch()
}

/// Every lock of the process, until it is dropped.
#[cfg(all(test, not(any(fibra_asan, fibra_tsan))))]
pub(crate) fn lock_everything() -> impl Sized {
    Locks::take()
}
