//! The records of waiters that are not fibers: OS threads and async waits.
//!
//! Lowest floor, like word and node: a completion owner (`sched::complete`) has to be able to wake any kind of waiter. A record is
//! recycled and never freed, so a late waker may look at its word at any time and finds a stale ticket.
//!
//! A thread parks on a mutex and a condition variable of its record (the facade's, so that loom can drive them): the
//! word says whether the wait is over, the flag under the mutex that an owner has called. A task's record holds its waker: it is
//! *notified, never filled*; what it waits for is taken inside `poll`.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::task::Waker;
use std::time::Duration;

use super::node::{Node, Waiter, WaiterKind, WaiterRef};
use super::revoke;
use super::word::{Claim, Commit, CompletedBy, Release, Ticket, WaitKind, WaiterState};
use crate::prim::bug::seeded_bug;
use crate::prim::discard_payload;
use crate::prim::sync::{Condvar, Mutex};

/// The record of a thread that waits.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ThreadRecord {
    waiter: Waiter,
    called: Mutex<bool>,
    signal: Condvar,
}

impl ThreadRecord {
    pub(crate) fn new() -> Self {
        Self { waiter: Waiter::new(WaiterKind::Thread), called: Mutex::new(false), signal: Condvar::new() }
    }

    pub(crate) fn waiter_ref(&'static self) -> WaiterRef {
        // SAFETY: `'static`, of kind Thread for ever.
        unsafe { WaiterRef::new(NonNull::from(self).cast()) }
    }

    fn of(waiter: WaiterRef) -> &'static ThreadRecord {
        debug_assert_eq!(waiter.get().kind(), WaiterKind::Thread);
        // SAFETY: waiters of kind Thread exist only as the first field of a record (`repr(C)`), and records live for ever.
        unsafe { waiter.as_ptr().cast::<ThreadRecord>().as_ref() }
    }

    fn call(&self) {
        if !seeded_bug("call_unmarked") {
            *self.called.lock() = true;
        }
        self.signal.notify_one();
    }

    /// Blocks until the word is RUNNABLE, or until `left` says that no time is left (`Some(0)`). True if RUNNABLE.
    pub(crate) fn park(&self, left: impl Fn() -> Option<Duration>) -> bool {
        let mut called = self.called.lock();
        loop {
            if self.waiter.word.snapshot().state() == WaiterState::Runnable {
                *called = false;
                return true;
            }
            if std::mem::take(&mut *called) {
                // A call for an earlier wait: look at the word again.
                continue;
            }
            called = match left() {
                None => self.signal.wait(called),
                Some(Duration::ZERO) => return false,
                Some(left) => self.signal.wait_timeout(called, left),
            };
        }
    }
}

/// The record of an async wait: notified, never filled.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct TaskRecord {
    waiter: Waiter,
    waker: Mutex<Option<Waker>>,
    /// The one node of the wait: here and not in the future, so that a forgotten future leaves nothing dangling.
    pub(crate) node: Node,
}

// SAFETY: `node` is only touched under the lock of the object it is linked in, or by the future that holds the record; the rest is atomics
// and a lock.
unsafe impl Sync for TaskRecord {}
// SAFETY: as above.
unsafe impl Send for TaskRecord {}

impl TaskRecord {
    pub(crate) fn new() -> Self {
        Self { waiter: Waiter::new(WaiterKind::Task), waker: Mutex::new(None), node: Node::new() }
    }

    pub(crate) fn waiter(&'static self) -> &'static Waiter {
        &self.waiter
    }

    pub(crate) fn waiter_ref(&'static self) -> WaiterRef {
        // SAFETY: `'static`, of kind Task for ever.
        unsafe { WaiterRef::new(NonNull::from(self).cast()) }
    }

    fn of(waiter: WaiterRef) -> &'static TaskRecord {
        debug_assert_eq!(waiter.get().kind(), WaiterKind::Task);
        // SAFETY: as in `ThreadRecord::of`.
        unsafe { waiter.as_ptr().cast::<TaskRecord>().as_ref() }
    }

    /// Sets the waker of the wait that is about to be published.
    pub(crate) fn set_waker(&self, waker: Option<Waker>) {
        // The old one is dropped outside the lock.
        let old = std::mem::replace(&mut *self.waker.lock(), waker);
        drop_waker(old);
    }

    /// Begins a wait that nothing but a notification ends; RUNNING → PARKING → PARKED at once, since a task has no stack to leave.
    pub(crate) fn begin(&self) -> Ticket {
        self.waiter.word.begin_park(WaitKind::Revocable)
    }
}

/// The waker of a task whose wait is claimed: it is user code, to be called without any lock held and not on the scheduler's stack.
///
/// Taken before the release, because from then on the waiter may go on and give its record back, and the record may serve another wait:
/// this would take that wait's waker. (A thread's record stays its own; a call that comes too late makes it look once more.)
fn take_waker(waiter: WaiterRef) -> Option<Waker> {
    (waiter.get().kind() == WaiterKind::Task).then(|| TaskRecord::of(waiter).waker.lock().take()).flatten()
}

/// Calls each waker; one that panics does not stop the others.
pub(crate) fn call_wakers(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(call_waker);
}

/// Drops a waker, which is user code. A panic of the waker stays here: a future whose value was just taken has yet to forget it.
fn drop_waker(waker: Option<Waker>) {
    if waker.is_some()
        && let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(waker)))
    {
        discard_payload(payload);
    }
}

/// Calls a waker. A panic of the waker stays here: it must not reach the completion owner, which has nothing to do with that task.
pub(crate) fn call_waker(waker: Waker) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        discard_payload(payload);
    }
}

/// A claimed wait, which its holder has to complete: fill its slot, then wake the waiter, once. Until then the waiter cannot move on, and
/// no other owner can end its wait; so no user code may run in between. One word: the waiter, and in its lowest bits what was promised when
/// it was claimed.
#[derive(Debug)]
#[must_use = "the waiter sleeps until it is set going"]
pub(crate) struct Claimed(NonNull<Waiter>);

/// The bit that says: the claim has to be released first.
const HELD: usize = 1;
/// The bit that the holder may set for its own use.
const MARKED: usize = 2;
const _: () = assert!(align_of::<Waiter>() > HELD | MARKED);

// SAFETY: a reference to a waiter in type-stable memory, like `WaiterRef`.
unsafe impl Send for Claimed {}

impl Claimed {
    /// Claims the wait named by (waiter, ticket) as `arm`. `None`: another owner has completed it.
    #[inline(always)]
    pub(crate) fn of(waiter: WaiterRef, ticket: Ticket, arm: CompletedBy) -> Option<Self> {
        Self::of_parked(waiter, ticket, arm).or_else(|| Self::of_any(waiter, ticket, arm))
    }

    /// [`of`](Self::of) by one compare-exchange, if a fiber waits and is parked. `None`: the wait may be claimed all the same.
    #[inline(always)]
    pub(crate) fn of_parked(waiter: WaiterRef, ticket: Ticket, arm: CompletedBy) -> Option<Self> {
        let claimed = waiter.get().kind() == WaiterKind::Fiber && waiter.get().word.claim_parked(ticket, arm);
        claimed.then(|| Self(waiter.as_ptr()))
    }

    /// [`of`](Self::of) for a waiter of any kind in any state.
    #[cold]
    #[inline(never)]
    pub(crate) fn of_any(waiter: WaiterRef, ticket: Ticket, arm: CompletedBy) -> Option<Self> {
        let claimed = Self(waiter.as_ptr());
        match waiter.get().word.claim(ticket, arm, waiter.get().kind() == WaiterKind::Fiber) {
            Claim::Lost => None,
            Claim::Direct => Some(claimed),
            Claim::Held => Some(Self(claimed.0.map_addr(|at| at | HELD))),
        }
    }

    /// Sets the holder's mark if `mark` is true; the mark is read when the waiter is woken.
    #[inline(always)]
    pub(crate) fn marked(self, mark: bool) -> Self {
        Self(self.0.map_addr(|at| at | if mark { MARKED } else { 0 }))
    }

    #[inline(always)]
    pub(crate) fn is_marked(&self) -> bool {
        self.0.addr().get() & MARKED != 0
    }

    /// Lets the waiter go on. A fiber is given to `enqueue`, an async waiter's waker is returned: it is user code, to be called
    /// when no lock is held.
    #[must_use]
    #[inline(always)]
    pub(crate) fn make_runnable_with(self, enqueue: impl FnOnce(WaiterRef)) -> Option<Waker> {
        let waiter = self.waiter();
        if self.0.addr().get() & HELD == 0 {
            // (Only fibers are claimed without HELD.)
            enqueue(waiter);
            return None;
        }
        Self::release(waiter, enqueue)
    }

    /// The waiter, without the marks.
    #[inline(always)]
    fn waiter(&self) -> WaiterRef {
        let waiter =
            self.0.map_addr(|at| NonZero::new(at.get() & !(HELD | MARKED)).expect("a waiter is not at address zero"));
        // SAFETY: the waiter that was claimed.
        unsafe { WaiterRef::new(waiter) }
    }

    /// The fiber that [`of_parked`](Self::of_parked) claimed, to be enqueued, once.
    #[inline(always)]
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn into_fiber(self) -> WaiterRef {
        debug_assert!(self.0.addr().get() & (HELD | MARKED) == 0, "claimed while it was parked, and not marked since");
        // SAFETY: the waiter that was claimed.
        unsafe { WaiterRef::new(self.0) }
    }

    /// [`make_runnable_with`](Self::make_runnable_with) if the claim has to be released first.
    #[cold]
    #[inline(never)]
    fn release(waiter: WaiterRef, enqueue: impl FnOnce(WaiterRef)) -> Option<Waker> {
        let late = seeded_bug("waker_after_release");
        // If the waiter has not parked yet (`Deferred`), it needs no call; a call does no harm.
        let waker = if late { None } else { take_waker(waiter) };
        if waiter.get().word.release() == Release::Deferred {
            return waker;
        }
        match waiter.get().kind() {
            WaiterKind::Fiber => enqueue(waiter),
            WaiterKind::Thread => ThreadRecord::of(waiter).call(),
            WaiterKind::Task if late => return take_waker(waiter),
            WaiterKind::Task => {}
        }
        waker
    }
}

/// Completes the wait named by (waiter, ticket) with `arm`, if no other owner has, where there is no slot to fill: claim,
/// release, wake. No user code runs here: see [`Claimed::make_runnable_with`].
#[must_use]
#[inline(always)]
pub(crate) fn complete_with(
    waiter: WaiterRef,
    ticket: Ticket,
    arm: CompletedBy,
    enqueue: impl FnOnce(WaiterRef),
) -> Option<Waker> {
    Claimed::of(waiter, ticket, arm)?.make_runnable_with(enqueue)
}

impl ThreadRecord {
    /// From PARKING to RUNNING: the thread commits its park itself, and returns when the wait was completed, or when `left` says that no
    /// time is left and no owner was faster. `is_due`: see [`revoke::commit`].
    pub(crate) fn leave_until(&self, left: impl Fn() -> Option<Duration>, is_due: impl FnOnce(WaitKind) -> bool) {
        let word = &self.waiter.word;
        if revoke::commit(&self.waiter, is_due) == Commit::Parked && !self.park(&left) && word.take_back() {
            return;
        }
        // Claimed, but perhaps not released yet.
        self.park(|| None);
        word.resume();
        word.check_is(WaiterState::Running);
    }
}

#[cfg(not(any(loom, shuttle)))]
pub(crate) use pool::Locks;

#[cfg(not(any(loom, shuttle)))]
mod pool {
    use super::{TaskRecord, ThreadRecord, WaiterState, drop_waker};
    use crate::prim::slab::{Free, Never, Record, Slab};
    use crate::waiter::answer::{ANSWERS, AnswerRecord};

    static THREADS: Slab<ThreadRecord> = Slab::new();
    static TASKS: Slab<TaskRecord> = Slab::new();

    impl Record for ThreadRecord {
        /// One per plain thread that has waited.
        const FIRST: usize = 16;
        type Aside = Never;
        fn slab() -> &'static Slab<Self> {
            &THREADS
        }
        fn make(_: u32) -> Self {
            Self::new()
        }
        fn recall(aside: Never) -> &'static [Self] {
            match aside {}
        }
    }

    impl Record for TaskRecord {
        /// One per future that waits at this moment.
        const FIRST: usize = 16;
        type Aside = Never;
        fn slab() -> &'static Slab<Self> {
            &TASKS
        }
        fn make(_: u32) -> Self {
            Self::new()
        }
        fn recall(aside: Never) -> &'static [Self] {
            match aside {}
        }
    }

    /// All locks, held over a fork: see `monitor::fork`.
    pub(crate) struct Locks {
        _threads: Free<ThreadRecord>,
        _tasks: Free<TaskRecord>,
        _answers: Free<AnswerRecord>,
    }

    impl Locks {
        pub(crate) fn take() -> Self {
            Self { _threads: THREADS.lock(), _tasks: TASKS.lock(), _answers: ANSWERS.lock() }
        }
    }

    /// This thread's record; goes back to the pool when the thread ends.
    struct Mine(&'static ThreadRecord);

    impl Mine {
        fn take() -> Self {
            let record = THREADS.take();
            record.waiter.word.adopt();
            Self(record)
        }
    }

    impl Drop for Mine {
        fn drop(&mut self) {
            debug_assert!(
                self.0.waiter.flags.look().without(super::super::flags::flag::ANY_NOTICE).is_empty(),
                "a thread's scopes end before it does"
            );
            self.0.waiter.word.recycle();
            THREADS.give(self.0);
        }
    }

    thread_local! {
        static MINE: Mine = Mine::take();
    }

    impl ThreadRecord {
        /// This thread's record; `None` while it is torn down.
        pub(crate) fn mine() -> Option<&'static ThreadRecord> {
            MINE.try_with(|mine| mine.0).ok()
        }

        /// Calls `f` with this thread's record. With a borrowed record during the thread's own destruction, when thread-locals are gone,
        /// and if the thread's record is in use: a waker that is called while this thread is about to park may wait itself.
        pub(crate) fn with_mine<R>(f: impl FnOnce(&'static ThreadRecord) -> R) -> R {
            match MINE.try_with(|mine| mine.0) {
                Ok(record) if record.waiter.word.snapshot().is(WaiterState::Running) => f(record),
                _ => {
                    let borrowed = Mine::take();
                    f(borrowed.0)
                }
            }
        }
    }

    impl TaskRecord {
        /// A record for one async wait.
        pub(crate) fn take() -> &'static TaskRecord {
            let record = TASKS.take();
            record.waiter.word.adopt();
            record
        }

        /// Gives it back: its node is in no list, and only stale tickets refer to it.
        pub(crate) fn give(&'static self) {
            let waker = self.waker.lock().take();
            self.waiter.word.recycle();
            TASKS.give(self);
            drop_waker(waker);
        }

        /// The number of records in use.
        #[cfg(test)]
        pub(crate) fn in_use() -> usize {
            let free = TASKS.lock();
            TASKS.made() - free.records.len()
        }
    }
}

/// Models have no statics: their records are leaked, and live for the rest of the model.
#[cfg(any(loom, shuttle))]
impl ThreadRecord {
    pub(crate) fn leaked() -> &'static ThreadRecord {
        let record: &'static ThreadRecord = Box::leak(Box::new(ThreadRecord::new()));
        record.waiter.word.adopt();
        record
    }
}

#[cfg(any(loom, shuttle))]
impl TaskRecord {
    /// Does a wait of this record still have its waker?
    #[cfg(test)]
    pub(crate) fn has_waker(&self) -> bool {
        self.waker.lock().is_some()
    }

    pub(crate) fn take() -> &'static TaskRecord {
        let record: &'static TaskRecord = Box::leak(Box::new(TaskRecord::new()));
        record.waiter.word.adopt();
        record
    }

    pub(crate) fn give(&'static self) {
        self.set_waker(None);
        self.waiter.word.recycle();
    }
}

#[cfg(all(test, any(loom, shuttle)))]
pub(crate) mod model;
