//! The record of a scope, as the scheduler sees it: the count of its children, the state that cancellation keeps, and how it closes.
//!
//! A scope is opened by a fiber or a plain thread, its *owner*, which runs the scope's *body*. Its children are fibers whose `root` is the
//! scope's. Three things are kept here:
//!
//! * **The count.** Children that are started or end on the worker the body lives on are counted there without an atomic (`local`); all
//!   others on the shared number of the [`Root`]. The owner adds its difference when the body is over, and is woken at zero. No other
//!   worker keeps a difference that would have to be flushed, unlike in the root of a `run`: scopes are short, and waking a worker costs
//!   more than a shared line.
//! * **The children.** Started children are in a list: on the owner's worker there is one list per scope, on every other worker one list
//!   for all scopes that live elsewhere (`holders` says which workers have any). An unstarted child looks at the scope when it starts.
//! * **The body.** A canceller of the body marks the owner (`CANCEL_BODY`) and ends the owner's wait, as any canceller does. The
//!   cancellation concerns this scope and everything inside it, so the mark is removed when the scope closes.
//!
//! How a canceller reaches what is inside: scopes that the body opens are linked from the outside in (`inner`); a child that opens scopes
//! has the outermost of them in its `CancelState`. So the canceller of a scope reaches everything below it at once. A scope that is opened
//! while cancellation is held off (inside `shield`, or by a destructor during unwinding) is linked to no outer scope: cancellation of an
//! outer scope does not concern it, but it can be cancelled itself. The level at which this happens is `hold`; see `cancel`.
//!
//! Records are process-wide, recycled and never freed (`prim::slab`): a token, a timer or a worker that ended the last child may look at
//! a record that serves another scope by then. `life` tells the two apart; it is compared under the lock of `state`, which is also held
//! while a scope is closed.
//!
//! Locks are taken from the outside in, hand over hand: a thread that holds the lock of one scope takes the lock of the next scope inside
//! before it lets go of the first. No user code runs under the lock; commands to workers are posted after it, and a *visit* keeps the
//! runtime alive until then. The canceller's stack does not grow with the depth of the tree of scopes: the scopes that it has yet to tell
//! are in a list (`cancel::telling`).
//!
//! Above: `cancel`, `scope` and `task`. Below: `root.rs`, which counts, `fiber::frame` and `prim::slab`.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::Location;
use std::ptr;
use std::sync::Arc;

use super::root::{Holders, Root, RootWaiter};
use crate::fiber::frame::{Frame, FrameRef, NO_HOME};
use crate::fiber::top::CancelState;
use crate::prim::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::prim::slab::{Cache, Free, Never, Record, Slab};
use crate::prim::spin::SpinLock;
use crate::prim::sync::Mutex;
use crate::sched::current;
use crate::sched::shared::{RootRef, RuntimeShared};
use crate::sched::timers::timing::{ScopeDue, ScopeTimer, WheelDue};
use crate::sched::worker::Worker;
use crate::waiter::cancel_reason::{CancelReason, ReasonKind};
use crate::waiter::node::{WaitList, WaiterRef};

/// A scope, by address: valid for ever, but perhaps in another life.
pub(crate) type ScopeRef = &'static ScopeRecord;

/// A scope in one of its lives.
pub(crate) type InLife = (ScopeRef, u32);

/// No deadline.
pub(crate) const NEVER: u64 = u64::MAX;

/// The record of a scope; see the header. `root` is first, so that a child's root is also its scope.
#[repr(C)]
pub(crate) struct ScopeRecord {
    pub(crate) root: Root,
    // Written by the owner while it opens the scope, before any other thread knows of the scope.
    shared: Cell<*const RuntimeShared>,
    run: Cell<Option<RootRef>>,
    /// The worker that counts without atomics; `NO_HOME` if none does. Atomic, because a worker that is late with a command may look when
    /// the record serves another scope; what the worker concludes from it then does not matter.
    home: AtomicU32,
    pub(crate) outer: Cell<Option<ScopeRef>>,
    pub(crate) hold: Cell<u32>,
    /// The nearest deadline of this scope and all scopes around it, and its own deadline.
    pub(crate) deadline: Cell<u64>,
    pub(crate) own_deadline: Cell<u64>,
    pub(crate) isolate: Cell<bool>,
    pub(crate) limited: Cell<bool>,
    /// How long shields hold after the scope was cancelled, in nanoseconds.
    pub(crate) grace: Cell<u64>,
    // Touched by the home worker only. (Without one, by none.)
    local: Cell<i64>,
    pub(in crate::sched) started: Cell<*const Frame>,

    /// Workers other than `home` on which children have started.
    pub(crate) holders: Holders,
    pub(crate) has_tasks: AtomicBool,
    /// A child was ended, or not started at all, because the scope is cancelled.
    cut_short: AtomicBool,
    pub(crate) state: SpinLock<ScopeState>,
}

// SAFETY: each cell is written while no other thread knows of the scope, or is touched by the home worker only; see the fields.
unsafe impl Sync for ScopeRecord {}
// SAFETY: as above.
unsafe impl Send for ScopeRecord {}

/// Gets told when a scope is cancelled; the token of a scope is one.
pub(crate) trait Listener: Send + Sync {
    /// The scope was cancelled; called once, with no lock held. The listener adds scopes that are to be cancelled with it to `more`.
    fn cancelled(&self, reason: &CancelReason, more: &mut Vec<InLife>);
}

/// An order to a scope and to everything inside it. `R`: the reason, with its words or without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order<R = CancelReason> {
    /// Be cancelled, for this reason.
    Cancel(R),
    /// Come to an end by yourself.
    Drain,
    /// You were cancelled before, and the time for shields is over.
    EndShields,
}

/// The payload of a child's panic: for the child's handle, which may take it, and for its scope, which passes it on if no joiner took it.
#[derive(Debug)]
pub(crate) struct PanicSlot {
    payload: Mutex<Option<Box<dyn std::any::Any + Send>>>,
    /// The child has ended and no joiner was waiting: the owner decides what becomes of the panic. While this is false, a join may be
    /// under way.
    told: AtomicBool,
    pub(crate) scope: ScopeRef,
    pub(crate) life: u32,
}

impl PanicSlot {
    /// Takes the payload; later calls give `None`.
    pub(crate) fn take(&self) -> Option<Box<dyn std::any::Any + Send>> {
        self.payload.lock().take()
    }

    pub(crate) fn is_there(&self) -> bool {
        self.payload.lock().is_some()
    }

    /// Under the lock of the scope.
    pub(crate) fn tell(&self) {
        // Relaxed: guarded by that lock.
        self.told.store(true, Ordering::Relaxed);
    }

    /// Under the lock of the scope: has the owner been told of the panic, and has no joiner taken it?
    fn is_told(&self) -> bool {
        // Relaxed: as above.
        self.told.load(Ordering::Relaxed) && self.is_there()
    }
}

/// Stands in the storage of a child's frame if the child never ran. The child's handle may take it; otherwise the scope fails.
#[derive(Debug)]
pub(crate) struct NotStarted {
    pub(crate) scope: ScopeRef,
    pub(crate) life: u32,
}

impl NotStarted {
    /// A joiner has learnt that the child never ran.
    pub(crate) fn take(self) {
        self.scope.take_unstarted(self.life);
    }
}

/// Counts the children of a scope that never ran. A number and no list: a body that keeps spawning in a full runtime may come to millions.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Unstarted {
    /// The number of such children that were not joined.
    pub(crate) untaken: usize,
    /// Why the first was refused; `None` if there was no stack for it.
    pub(crate) refused: Option<ReasonKind>,
    /// The handle of one was dropped, so that this child will not be joined: the scope fails.
    pub(crate) told: bool,
    /// All, joined or not.
    total: usize,
}

impl std::fmt::Debug for ScopeRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScopeRecord").field("root", &self.root).finish_non_exhaustive()
    }
}

/// What the lock of a scope guards.
#[derive(Default)]
pub(crate) struct ScopeState {
    /// The owner; `None` if the scope is closed.
    pub(crate) body: Option<WaiterRef>,
    /// It is the outermost on its owner, and no shield is around it: so a cancellation of the owner concerns it.
    pub(crate) is_outermost: bool,
    /// For reports: its name, and where it was opened.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) site: Option<&'static Location<'static>>,
    /// The body has returned or unwound: it will not join the children any more.
    pub(crate) over: bool,
    /// Why the body is cancelled, if it is.
    pub(crate) reason: Option<CancelReason>,
    /// Why the children are cancelled, if they are.
    pub(crate) children_reason: Option<CancelReason>,
    pub(crate) inner: Option<ScopeRef>,
    /// A scope that is not linked here is open inside, behind a shield: the body cannot be woken.
    pub(crate) barrier: bool,
    /// How many open inner scopes were opened by destructors during unwinding: cancelling this scope does not unwind what runs in them.
    pub(crate) cleanups: u32,
    pub(crate) panics: Vec<Arc<PanicSlot>>,
    pub(crate) unstarted: Unstarted,
    pub(crate) draining: bool,
    /// The time that shields get after a cancellation is over.
    pub(crate) overdue: bool,
    pub(crate) watchers: Watchers,
    pub(crate) listener: Option<Arc<dyn Listener>>,
    /// How many children may run at once, how many do run, and the children that wait for their turn.
    pub(crate) limit: usize,
    pub(crate) running: usize,
    pub(crate) waiting: VecDeque<FrameRef>,
}

impl ScopeState {
    /// Why the scope fails, if its failed children stay unjoined.
    pub(crate) fn untaken_failure(&self) -> Option<CancelReason> {
        let panicked = self.panics.iter().any(|panic| panic.is_there());
        Self::failure(panicked, self.unstarted.untaken > 0)
    }

    /// Why the scope fails because of those failed children for which no join is under way or possible.
    pub(crate) fn told_failure(&self) -> Option<CancelReason> {
        let panicked = self.panics.iter().any(|panic| panic.is_told());
        Self::failure(panicked, self.unstarted.told && self.unstarted.untaken > 0)
    }

    fn failure(panicked: bool, not_started: bool) -> Option<CancelReason> {
        let not_started = not_started.then_some(CancelReason::NotStarted);
        if panicked { Some(CancelReason::Panicked) } else { not_started }
    }
}

/// The waiters for the scope to be drained.
#[derive(Default)]
pub(crate) struct Watchers(pub(crate) Option<WaitList>);

/// A child's failure that no joiner has taken, and that becomes a cancellation of this scope, for this reason: its owner waits for
/// something else.
pub(crate) struct Failure {
    pub(crate) of: InLife,
    pub(crate) reason: CancelReason,
}

/// How much of a scope is cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    Children,
    /// The children, the body, and the scopes that are open inside the body.
    All,
}

/// What the owner learns from a scope that it has closed.
pub(crate) struct Closed {
    /// Why the body was cancelled, if it was.
    pub(crate) reason: Option<CancelReason>,
    /// Panics of children, in the order in which they came, also those that were taken by a join.
    pub(crate) panics: Vec<Arc<PanicSlot>>,
    /// Children that never ran.
    pub(crate) unstarted: Unstarted,
    /// The time that shields get was over, and the owner has a mark that says so.
    pub(crate) overdue: bool,
}

static SCOPES: Slab<ScopeRecord> = Slab::new();

impl Record for ScopeRecord {
    /// A program has few scopes open at once; each chunk is twice as large as the one before.
    const FIRST: usize = 8;
    type Aside = Never;
    fn slab() -> &'static Slab<Self> {
        &SCOPES
    }
    fn make(_: u32) -> Self {
        Self::new()
    }
    fn recall(aside: Never) -> &'static [Self] {
        match aside {}
    }
}

/// Every record that exists, of open scopes and of free ones.
pub(crate) fn all() -> impl Iterator<Item = ScopeRef> {
    SCOPES.all()
}

/// For a fork: while the caller holds this, no other thread is inside the registry.
pub(crate) fn lock_slab() -> Free<ScopeRecord> {
    SCOPES.lock()
}

/// Free records of one worker.
pub(in crate::sched) type ScopeCache = Cache<ScopeRecord>;

/// The owner's settings for a scope that it opens.
pub(crate) struct Opening {
    pub(crate) owner: WaiterRef,
    pub(crate) outer: Option<ScopeRef>,
    /// The owner may go on on another worker while the scope is open: no worker counts plainly.
    pub(crate) moves: bool,
    /// Cancellation of outer scopes does not concern this one.
    pub(crate) shielded: bool,
    pub(crate) hold: u32,
    /// The nearest deadline of the scopes around it, and its own.
    pub(crate) outer_deadline: u64,
    pub(crate) deadline: u64,
    pub(crate) isolate: bool,
    pub(crate) limit: Option<usize>,
    pub(crate) grace: u64,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) site: &'static Location<'static>,
}

impl ScopeRecord {
    fn new() -> Self {
        Self {
            root: Root::new(),
            shared: Cell::new(ptr::null()),
            run: Cell::new(None),
            home: AtomicU32::new(NO_HOME),
            outer: Cell::new(None),
            hold: Cell::new(0),
            deadline: Cell::new(NEVER),
            own_deadline: Cell::new(NEVER),
            isolate: Cell::new(false),
            limited: Cell::new(false),
            grace: Cell::new(NEVER),
            local: Cell::new(0),
            started: Cell::new(ptr::null()),
            holders: Holders::new(),
            has_tasks: AtomicBool::new(false),
            cut_short: AtomicBool::new(false),
            state: SpinLock::new(ScopeState::default()),
        }
    }

    /// The scope of a child.
    ///
    /// # Safety
    /// The fiber has `SCOPED`.
    #[inline(always)]
    pub(crate) unsafe fn of(frame: &Frame) -> ScopeRef {
        // SAFETY: `root` of such a fiber is the first field of a record, and records live for ever.
        unsafe { &*frame.root.get().cast::<ScopeRecord>() }
    }

    /// The scope behind the address in `CancelState::open` and in fields like it; `None` for null.
    pub(crate) fn from_ptr(scope: *const ()) -> Option<ScopeRef> {
        // SAFETY: only addresses of records are kept there, and records live for ever.
        unsafe { scope.cast::<ScopeRecord>().as_ref() }
    }

    /// The outermost scope that is open on this fiber, unless it was opened behind a shield.
    pub(crate) fn outermost(state: &CancelState) -> Option<ScopeRef> {
        // Acquire: pairs with the release in `scope::body`, when the scope was opened.
        Self::from_ptr(state.outermost.load(Ordering::Acquire))
    }

    pub(crate) fn as_ptr(&'static self) -> *const () {
        ptr::from_ref(self).cast()
    }

    pub(crate) fn root_ref(&'static self) -> RootRef {
        // SAFETY: the record's root, first field; records live for ever.
        unsafe { RootRef::from_ptr(self.as_ptr()) }
    }

    pub(crate) fn life(&self) -> u32 {
        self.root.life()
    }

    /// Is the scope open, in this life of the record?
    pub(in crate::sched) fn is_open_in(&self, life: u32) -> bool {
        self.state.with(|state| self.life() == life && state.body.is_some())
    }

    /// The root scope of the run that this scope belongs to: fibers that its children spawn without naming a scope count there.
    pub(crate) fn run(&self) -> RootRef {
        self.run.get().expect("an open scope belongs to a run")
    }

    /// # Safety
    /// The caller keeps the scope open: it is the owner, a child, or holds the lock of `state`.
    pub(crate) unsafe fn shared<'a>(&self) -> &'a RuntimeShared {
        // SAFETY: the runtime outlives its fibers and the scopes of threads that use it (they are visitors, or counted in its root).
        unsafe { &*self.shared.get() }
    }

    // ---- opening and closing, by the owner

    /// Opens a scope whose children run on `shared`.
    pub(crate) fn open(shared: &RuntimeShared, run: RootRef, how: &Opening) -> ScopeRef {
        let worker = current::worker().filter(|worker| ptr::eq(&*worker.shared, shared));
        let record = worker.map_or_else(|| SCOPES.take(), |worker| worker.caches.scopes.with(ScopeCache::take));
        record.root.reset();
        record.shared.set(shared);
        record.run.set(Some(run));
        let home = worker.filter(|_| !how.moves && !shared.migrates()).map_or(NO_HOME, |worker| worker.index as u32);
        // Relaxed: no other thread knows of the scope yet; see the field.
        record.home.store(home, Ordering::Relaxed);
        record.outer.set(how.outer);
        record.hold.set(how.hold);
        record.deadline.set(how.deadline.min(how.outer_deadline));
        record.own_deadline.set(how.deadline);
        record.isolate.set(how.isolate);
        record.limited.set(how.limit.is_some());
        record.grace.set(how.grace);
        debug_assert!(record.local.get() == 0 && record.started.get().is_null());
        // Relaxed, all: no other thread knows of the scope yet.
        record.holders.clear();
        record.cut_short.store(false, Ordering::Relaxed);
        record.has_tasks.store(false, Ordering::Relaxed);
        record.state.with(|state| {
            let limit = how.limit.unwrap_or(usize::MAX);
            let (name, site) = (how.name.clone(), Some(how.site));
            let is_outermost = how.outer.is_none() && !how.shielded;
            *state = ScopeState { body: Some(how.owner), is_outermost, limit, name, site, ..ScopeState::default() };
        });
        match how.outer {
            Some(outer) if how.shielded => outer.state.with(|state| state.barrier = true),
            Some(outer) => outer.state.with(|state| {
                state.inner = Some(record);
                record.inherit(state);
            }),
            None => {}
        }
        record
    }

    /// Takes over the cancellation and draining of the outer scope: they hold in this scope from its beginning.
    fn inherit(&'static self, outer: &ScopeState) {
        self.state.with(|state| {
            state.draining = outer.draining;
            if let Some(reason) = &outer.reason {
                state.reason = Some(reason.clone());
                state.children_reason = Some(reason.clone());
                self.root.cancel(reason.kind());
            }
        });
    }

    /// For the outermost scope that a child opens: draining of the scope `from`, which the child belongs to, holds in this scope too.
    pub(crate) fn inherit_draining(&'static self, from: ScopeRef) {
        if from.state.with(|state| state.draining) {
            self.state.with(|state| state.draining = true);
        }
    }

    /// Adds the owner's difference and gives the owner's unit back; from now on every worker counts on the shared number.
    pub(crate) fn begin_drain(&self) {
        self.root.begin_direct(self.local.replace(0));
    }

    /// Closes the scope. All children have ended: only stale tokens, timers and workers still refer to it.
    pub(crate) fn close(&'static self) -> Closed {
        // First unlink from the outer scope, so that no canceller comes from there any more. A canceller takes our lock while it holds the
        // outer one: if it found us, it is done with us before the state is taken below. So it never meets a closed scope, or the next
        // scope of this record.
        if let Some(outer) = self.outer.take() {
            outer.state.with(|state| {
                state.inner = None;
                state.barrier = false;
            });
        }
        let (closed, listener) = self.state.with(|state| {
            let state = std::mem::take(state);
            debug_assert!(state.watchers.0.is_none_or(|list| list.is_empty()), "a child watches a scope that is over");
            let overdue = state.overdue && state.reason.is_some();
            let ScopeState { reason, panics, unstarted, listener, .. } = state;
            (Closed { reason, panics, unstarted, overdue }, listener)
        });
        drop(listener);
        closed
    }

    /// Puts the record back into the pool, after [`close`](Self::close).
    pub(crate) fn recycle(&'static self) {
        debug_assert!(self.started.get().is_null() && self.local.get() == 0);
        match current::worker() {
            Some(worker) => worker.caches.scopes.with(|cache| cache.give(self)),
            None => SCOPES.give(self),
        }
    }

    // ---- counting

    #[inline(always)]
    pub(crate) fn home(&self) -> u32 {
        // Relaxed: each fiber in the scope came to know of the scope after this was written; see the field.
        self.home.load(Ordering::Relaxed)
    }

    /// Is this the worker that counts without atomics?
    #[inline(always)]
    fn counts_plainly_on(&self, worker: &Worker) -> bool {
        worker.index as u32 == self.home() && ptr::eq(&*worker.shared, self.shared.get()) && !self.root.is_draining()
    }

    /// A child is about to be published. The scope is open, because the spawner is in it.
    #[inline(always)]
    pub(crate) fn count_spawn(&self, worker: Option<&Worker>) {
        match worker {
            Some(worker) if self.counts_plainly_on(worker) => self.local.set(self.local.get() + 1),
            _ => self.root.add_child(),
        }
    }

    /// A child has ended on this worker. Returns the owner to wake. The record may serve another scope afterwards.
    #[inline(always)]
    #[must_use]
    pub(in crate::sched) fn count_end(&self, worker: &Worker) -> Option<RootWaiter> {
        if self.counts_plainly_on(worker) {
            self.local.set(self.local.get() - 1);
            return None;
        }
        self.root.add(-1)
    }

    /// Has the scope a limit on how many children run at once?
    #[inline(always)]
    pub(crate) fn is_limited(&self) -> bool {
        self.limited.get()
    }

    /// Holds a child back while as many children as allowed run. True: it was held back, and is set going when its turn comes. For children
    /// that may run on any worker.
    pub(crate) fn hold_back(&self, frame: FrameRef) -> bool {
        if !self.limited.get() {
            return false;
        }
        self.state.with(|state| {
            // Cancelled children are not held back: they end as soon as they start.
            if state.running < state.limit || state.children_reason.is_some() {
                state.running += 1;
                return false;
            }
            state.waiting.push_back(frame);
            true
        })
    }

    /// A child has ended: returns the held-back child whose turn it is now.
    pub(in crate::sched) fn next_in_turn(&self) -> Option<FrameRef> {
        if !self.limited.get() {
            return None;
        }
        self.state.with(|state| {
            let next = state.waiting.pop_front();
            if next.is_none() {
                state.running -= 1;
            }
            next
        })
    }

    // ---- why it is cancelled, and children that failed

    /// Why the body is cancelled, if it is.
    pub(crate) fn body_reason(&self) -> Option<CancelReason> {
        self.state.with(|state| state.reason.clone())
    }

    /// Is the body cancelled?
    pub(crate) fn has_body_reason(&self) -> bool {
        self.state.with(|state| state.reason.is_some())
    }

    /// Why the children are cancelled, if they are.
    pub(crate) fn children_reason(&self) -> Option<CancelReason> {
        self.state.with(|state| state.children_reason.clone())
    }

    /// On the owner: is there a child's panic that no joiner has taken?
    pub(crate) fn has_untaken_panic(&self) -> bool {
        !self.isolate.get() && self.state.with(|state| state.panics.iter().any(|panic| panic.is_there()))
    }

    /// On the owner: has a child failed (panicked, or not been started) while no joiner was waiting for its end?
    pub(crate) fn has_told_failure(&self) -> bool {
        !self.isolate.get() && self.state.with(|state| state.told_failure().is_some())
    }

    /// A child could not be started, for this reason: none if there is no stack for it. The caller is in the scope, or ends the child. The
    /// handle may yet be joined: a handle that is dropped without a join tells the scope.
    #[cold]
    pub(crate) fn not_started(&'static self, refused: Option<ReasonKind>) -> NotStarted {
        self.state.with(|state| {
            let unstarted = &mut state.unstarted;
            if unstarted.total == 0 {
                unstarted.refused = refused;
            }
            unstarted.total += 1;
            unstarted.untaken += 1;
        });
        NotStarted { scope: self, life: self.life() }
    }

    /// A joiner has joined a child that was not started.
    fn take_unstarted(&self, life: u32) {
        self.state.with(|state| {
            // In another life there is nothing to take: the scope is over and has reported the failure itself. If only its body is over,
            // the scope has failed and its children were cancelled for that.
            if self.life() == life && state.body.is_some() && !state.over {
                state.unstarted.untaken -= 1;
            }
        });
    }

    /// A child is about to end with a panic; the payload is kept for its handle and for the scope.
    pub(crate) fn keep_panic(&'static self, payload: Box<dyn std::any::Any + Send>) -> Arc<PanicSlot> {
        let (payload, told) = (Mutex::new(Some(payload)), AtomicBool::new(false));
        let slot = Arc::new(PanicSlot { payload, told, scope: self, life: self.life() });
        self.state.with(|state| state.panics.push(slot.clone()));
        slot
    }

    /// How many children have panicked so far, or could not be started.
    pub(crate) fn panics(&self) -> usize {
        self.state.with(|state| state.panics.len() + state.unstarted.total)
    }

    /// A child was ended, or not started, because of cancellation.
    pub(crate) fn note_cut_short(&self) {
        if self.root.is_cancelled() {
            // Relaxed: the child's end, which is counted after this, orders it for the owner; so does whatever tells the owner of a spawn.
            self.cut_short.store(true, Ordering::Relaxed);
        }
    }

    /// Asked by the owner, when all children have ended: was the scope cancelled from outside, and did that keep children from coming to
    /// their end? Children that the scope had cancelled itself before do not count: their results were not wanted any more.
    pub(crate) fn was_cut_short(&self) -> bool {
        use CancelReason::{Failed, NotStarted, Panicked, Scope};
        let from_outside = !matches!(self.body_reason(), None | Some(Panicked | NotStarted | Failed));
        // Relaxed: see above.
        from_outside && self.children_reason() != Some(Scope) && self.cut_short.load(Ordering::Relaxed)
    }

    /// Asked by the owner, when all children have ended: were children cut short because another child had panicked? Then the scope has no
    /// success, even if a joiner took that panic afterwards.
    pub(crate) fn was_cut_short_by_panic(&self) -> bool {
        // Relaxed: see above.
        self.children_reason() == Some(CancelReason::Panicked) && self.cut_short.load(Ordering::Relaxed)
    }

    /// The list that a started child is in, on this worker.
    pub(crate) fn list_on<'a>(&'static self, worker: &'a Worker) -> &'a Cell<*const Frame> {
        if worker.index as u32 == self.home() {
            return &self.started;
        }
        // The child, which is about to start, looks at the mark of the root after this.
        self.holders.mark(worker.index);
        &worker.residents.foreign
    }

    pub(crate) fn note_task(&self) {
        // SeqCst: as in `list_on`; tasks are looked for in the runtime's list.
        self.has_tasks.swap(true, Ordering::SeqCst);
    }

    /// Sets a timer for this scope, from any thread; `shared` is the scope's runtime, which the caller keeps alive. The timer is not taken
    /// back: in another life of the record it does nothing.
    pub(crate) fn set_timer(&'static self, shared: &RuntimeShared, life: u32, what: ScopeTimer, at: u64) {
        let due = WheelDue::Scope(ScopeDue { scope: self, life, what });
        match current::worker() {
            Some(worker) if ptr::eq(&*worker.shared, shared) => _ = worker.set_wheel_timer(due, at),
            _ => _ = shared.set_wheel_timer(0, due, at),
        }
    }
}
