//! Cancelling a scope and what is inside it; asking it to drain; the end of its grace. Three requests that go the same way: to the body,
//! to the scopes open inside it, and to the children that have started, on whichever worker.

use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::{InLife, Listener, NEVER, NotStarted, Order, PanicSlot, Reach, ScopeRecord, ScopeRef, State};
use crate::cancel::reason::{CancelReason, ReasonKind};
use crate::fiber::CENSUS;
use crate::fiber::frame::{FrameRef, flag};
use crate::fiber::top::Standing;
use crate::prim::atomic::{AtomicBool, Ordering, handshake_load_u64};
use crate::prim::clock;
use crate::prim::spin::Locked;
use crate::prim::sync::Mutex;
use crate::sched::enqueue::Place;
use crate::sched::shared::{Command, Shared};
use crate::sched::timing::ScopeTimer;
use crate::sched::worker::Worker;
use crate::sched::{cancel, current, wake};
use crate::wait::node::{Node, WaitList, WaiterRef};
use crate::wait::word::{self, Arm, Ticket};

/// How often one looks at an owner that is about to wait, before that counts as waiting. (It takes a moment; but on a plain thread a waker
/// may be called meanwhile, which may be what is looking.)
const LOOKS: usize = 1000;

/// What a child's failure comes to.
enum Verdict {
    Nothing,
    Cancel(CancelReason, Reach),
    /// The owner is about to wait, perhaps for this very child.
    LookAgain,
}

impl ScopeRecord {
    /// Cancels it, if this life of it is still going on. The first reason stays.
    pub(crate) fn cancel(&'static self, life: u32, reason: &CancelReason, reach: Reach) {
        let mut told = Told::default();
        self.cancel_into(life, reason, reach, &mut told);
        told.tell();
    }

    fn cancel_into(&'static self, life: u32, reason: &CancelReason, reach: Reach, told: &mut Told) {
        let mut held = self.state.lock();
        if held.with(|state| self.life() == life && state.body.is_some()) {
            self.cancel_held(held, reason, reach, told);
        }
    }

    fn cancel_held(&'static self, held: Locked<'_, State>, reason: &CancelReason, reach: Reach, told: &mut Told) {
        self.inwards(held, |scope, state| scope.cancel_one(state, reason, reach, told));
    }

    /// Cancels one, and says which scope inside comes next.
    fn cancel_one(
        &'static self,
        state: &mut State,
        reason: &CancelReason,
        reach: Reach,
        told: &mut Told,
    ) -> Option<ScopeRef> {
        let body = state.body?;
        if self.root.cancel(reason.kind()) {
            state.children_reason = Some(reason.clone());
            told.add(self, state, Order::Cancel(reason.clone()));
        }
        if reach == Reach::Children {
            return None;
        }
        state.reason.get_or_insert_with(|| reason.clone());
        // The canceller's first half of the handshake with a parker; `interrupt` is the second.
        body.get().flags.announce(flag::CANCEL_BODY);
        if state.barrier {
            // It is behind a shield; unless it waits there for just this.
            cancel::interrupt_watcher(body);
        } else if state.inner.is_none() {
            // The lock of the innermost is held: no scope can be opened in it, behind a shield or not, nor can it be closed.
            cancel::interrupt(body);
        }
        state.inner
    }

    /// Goes from a scope inwards, as far as `visit` says. Each lock is taken before the last is given back, so none is closed meanwhile.
    fn inwards(
        &'static self,
        mut held: Locked<'_, State>,
        mut visit: impl FnMut(ScopeRef, &mut State) -> Option<ScopeRef>,
    ) {
        let mut scope = self;
        while let Some(inner) = held.with(|state| visit(scope, state)) {
            held = inner.state.lock();
            scope = inner;
        }
    }

    /// Is the body cancelled? On the owner. A child's failure that nobody has taken becomes a cancellation here: the owner is about to wait
    /// for something else.
    ///
    /// Unless it need not wait (`settled`): then it may be about to take that very panic.
    pub(crate) fn is_body_cancelled(&'static self, settled: bool) -> bool {
        let (is_cancelled, failure) = self.state.with(|state| {
            let failure = if settled || self.isolate.get() { None } else { state.told_failure() };
            (state.reason.is_some(), failure)
        });
        match failure {
            Some(reason) if !is_cancelled => {
                self.cancel(self.life(), &reason, Reach::All);
                true
            }
            _ => is_cancelled,
        }
    }

    /// On the owner: has a child panicked whose panic nobody has taken?
    pub(crate) fn has_untaken_panic(&self) -> bool {
        !self.isolate.get() && self.state.with(|state| state.panics.iter().any(|panic| panic.is_there()))
    }

    /// On the owner: has a child failed (panicked, or not been started) whose end nobody was waiting for?
    pub(crate) fn has_told_failure(&self) -> bool {
        !self.isolate.get() && self.state.with(|state| state.told_failure().is_some())
    }

    /// A child could not be started, for this reason: none if there is no stack for it. The caller is in the scope, or ends the child. The
    /// handle may yet be joined: it tells the scope if it was not.
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

    /// Somebody has joined a child that was not started.
    pub(super) fn take_unstarted(&self, life: u32) {
        self.state.with(|state| {
            // In another life there is nothing to take: the scope is over, and has said so itself. If only its body is over then it has
            // failed, and children were cancelled for that.
            if self.life() == life && state.body.is_some() && !state.over {
                state.unstarted.untaken -= 1;
            }
        });
    }

    /// The time that a cancelled scope gives to shields is over: they hold nothing off any more, for the body, the children and what is
    /// open inside.
    pub(crate) fn end_grace(&'static self, life: u32) {
        let mut told = Told::default();
        let mut held = self.state.lock();
        if held.with(|state| self.life() == life && state.body.is_some() && self.root.is_cancelled()) {
            self.end_grace_held(held, &mut told);
        } else {
            drop(held);
        }
        told.tell();
    }

    fn end_grace_held(&'static self, held: Locked<'_, State>, told: &mut Told) {
        self.inwards(held, |scope, state| {
            state.overdue = true;
            told.add(scope, state, Order::EndShields);
            if let Some(body) = state.body.filter(|_| state.reason.is_some()) {
                cancel::end_shields(body, state.cleanups == 0);
            }
            state.inner
        });
    }

    /// A destructor of its body opens a scope during unwinding, or has closed it: see [`State::cleanups`].
    pub(crate) fn add_cleanup(&self, opens: bool) {
        self.state.with(|state| if opens { state.cleanups += 1 } else { state.cleanups -= 1 });
    }

    /// Why the body is cancelled, if it is.
    pub(crate) fn body_reason(&self) -> Option<CancelReason> {
        self.state.with(|state| state.reason.clone())
    }

    /// Is the body cancelled?
    pub(crate) fn has_body_reason(&self) -> bool {
        self.state.with(|state| state.reason.is_some())
    }

    /// Have shields had their time in here?
    pub(crate) fn is_overdue(&self) -> bool {
        self.state.with(|state| state.overdue && state.reason.is_some())
    }

    /// And for the children?
    pub(crate) fn are_children_overdue(&self) -> bool {
        self.state.with(|state| state.overdue)
    }

    /// Why the children are cancelled, if they are.
    pub(crate) fn children_reason(&self) -> Option<CancelReason> {
        self.state.with(|state| state.children_reason.clone())
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

    /// A child has panicked, and nobody was joining it. If the owner waits for something else, or for nothing any more, that cancels the
    /// scope; if it is running, it may yet join the child: it decides when it next waits. If it is about to wait, perhaps for this child,
    /// which it then finds ended, that is seen in a moment.
    pub(crate) fn panicked(&'static self, life: u32) {
        self.child_failed(life, false);
    }

    /// The same. `not_started`: what has happened is that the handle of a child which could not be started is gone.
    pub(super) fn child_failed(&'static self, life: u32, not_started: bool) {
        let mut told = Told::default();
        for looks in 0.. {
            let mut held = self.state.lock();
            let verdict = held.with(|state| {
                // In this order: it may be another life, and then the rest is not for us to read.
                let Some(body) = state.body.filter(|_| self.life() == life && !self.isolate.get()) else {
                    return Verdict::Nothing;
                };
                for panic in state.panics.iter().filter(|panic| panic.is_there()) {
                    panic.tell();
                }
                state.unstarted.told |= not_started;
                let Some(reason) = state.told_failure() else {
                    // Somebody has joined it meanwhile.
                    return Verdict::Nothing;
                };
                if state.over {
                    return Verdict::Cancel(reason, Reach::Children);
                }
                // As in `cancel_one`.
                body.get().flags.announce(flag::CANCEL_BODY);
                let seen = body.get().word.look_after_flag();
                if seen.is(word::State::Parking) && !seen.is_claimed() && looks < LOOKS {
                    Verdict::LookAgain
                } else if let Some(reason) = state.told_failure().filter(|_| seen.is_waiting()) {
                    // Still there: whoever joined it before he began this wait has taken it, and that is seen now.
                    Verdict::Cancel(reason, Reach::All)
                } else {
                    Verdict::Nothing
                }
            });
            match verdict {
                Verdict::Cancel(reason, reach) => {
                    self.cancel_held(held, &reason, reach, &mut told);
                    break;
                }
                Verdict::Nothing => break,
                Verdict::LookAgain => {
                    drop(held);
                    crate::prim::thread::yield_now();
                }
            }
        }
        told.tell();
    }

    /// On any thread, after the scope was marked: cancels the children that have started. It may be over by now, and its record serve
    /// another scope: nothing is read from it that is not atomic, and nothing done to a child before `life` is compared.
    fn cancel_children(&'static self, entry: &Entry, shared: &Shared, told: &mut Told) {
        let (life, order) = (entry.life, &entry.order);
        // SeqCst: second half of the handshake with `list_on`; `Root::cancel` was the first.
        let holders = handshake_load_u64(&self.holders);
        let here = current::worker().filter(|worker| ptr::eq(&*worker.shared, shared)).map(|worker| worker.index);
        for index in 0..shared.remotes.len() {
            if index != entry.home as usize && holders & (1 << (index % 64)) == 0 {
                continue;
            }
            match current::worker() {
                Some(worker) if here == Some(index) => told.children_here(worker, self, life, order),
                _ => shared.post(index, Command::Scope { scope: self, life, order: order.without_words() }),
            }
        }
        let Order::Cancel(reason) = order else { return };
        // SeqCst read-modify-write: as above.
        if self.has_tasks.fetch_or(false, Ordering::SeqCst) {
            let tasks = shared.tasks.lock();
            // A task leaves this map before its frame is recycled, so under the lock all are alive. If one of the next life is in it, that
            // life is seen here.
            let here = tasks.values().filter(|_| self.life() == life);
            for frame in here.filter(|frame| frame.root.get() == self.as_ptr()) {
                told.fiber(frame, reason);
            }
        }
        // Those that wait for their turn start now, and end at once.
        if entry.limited {
            let waiting = self.state.with(|state| {
                if self.life() != life {
                    return VecDeque::new();
                }
                state.running += state.waiting.len();
                std::mem::take(&mut state.waiting)
            });
            for frame in waiting {
                shared.inject_spawned(frame, frame.waiter.word.snapshot().ticket());
            }
        }
    }

    /// From any thread; `shared` is its runtime, kept there by the caller. It is not taken back: in another life it does nothing.
    pub(crate) fn set_timer(&'static self, shared: &Shared, life: u32, what: ScopeTimer, at: u64) {
        match current::worker() {
            Some(worker) if ptr::eq(&*worker.shared, shared) => _ = worker.set_scope_timer(self, life, what, at),
            _ => shared.post(0, Command::ScopeTimer { scope: self, life, what, at }),
        }
    }

    // ---- draining: a request to come to an end

    /// Asks the children, and what is open inside, to come to an end.
    pub(crate) fn drain(&'static self, life: u32) {
        let mut told = Told::default();
        let mut held = self.state.lock();
        if held.with(|state| self.life() == life && state.body.is_some()) {
            self.drain_held(held, &mut told);
        } else {
            drop(held);
        }
        told.tell();
    }

    fn drain_held(&'static self, held: Locked<'_, State>, told: &mut Told) {
        self.inwards(held, |scope, state| {
            if std::mem::replace(&mut state.draining, true) {
                return None;
            }
            told.add(scope, state, Order::Drain);
            if let Some(list) = &state.watchers.0 {
                // SAFETY: under the lock of the list.
                while let Some((waiter, ticket, arm)) = unsafe { list.pop_front() } {
                    let waker = wake::complete(waiter, ticket, arm, Place::Tail);
                    debug_assert!(waker.is_none(), "futures do not watch scopes");
                }
            }
            state.inner
        });
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.state.with(|state| state.draining)
    }

    /// Links the node of somebody who waits for the scope to be drained. False: it is. In another life it never will be.
    pub(crate) fn watch(&self, life: u32, node: &Node, waiter: WaiterRef, ticket: Ticket, arm: Arm) -> bool {
        self.state.with(|state| {
            if self.life() != life || state.body.is_none() {
                return true;
            }
            if state.draining {
                return false;
            }
            node.set(waiter, ticket, arm);
            // SAFETY: under the lock of the list; the node stays until it is unlinked.
            unsafe { state.watchers.0.get_or_insert_with(WaitList::new).push_back(node) };
            true
        })
    }

    pub(crate) fn unwatch(&self, node: &Node) {
        self.state.with(|state| {
            if let Some(list) = &state.watchers.0 {
                // SAFETY: under the lock of the list.
                unsafe { list.remove(node) };
            }
        });
    }

    /// Sets the one who is told when the scope is cancelled. Err: it is cancelled already, for this reason.
    pub(crate) fn set_listener(&self, listener: Arc<dyn Listener>) -> Result<(), CancelReason> {
        self.state.with(|state| {
            if let Some(reason) = &state.children_reason {
                return Err(reason.clone());
            }
            state.listener = Some(listener);
            Ok(())
        })
    }
}

/// What remains to be done when the locks are free: the scopes whose children have to be told, and then the listeners, which call user
/// code.
///
/// A list and no recursion: a tree of scopes may be much deeper than the stack of whoever cancels it.
#[derive(Default)]
#[must_use = "nobody is told before `tell`"]
pub(crate) struct Told {
    scopes: VecDeque<Entry>,
    listeners: VecDeque<(Arc<dyn Listener>, CancelReason)>,
}

/// A scope whose children have to be told, and what was read from it under its lock.
struct Entry {
    scope: ScopeRef,
    life: u32,
    shared: NonNull<Shared>,
    home: u32,
    grace: u64,
    limited: bool,
    order: Order,
}

impl Told {
    /// Under the lock of the scope.
    fn add(&mut self, scope: ScopeRef, state: &State, order: Order) {
        // SAFETY: the lock is held, so the scope stays open.
        let shared = unsafe { scope.shared() };
        shared.visitors.enter();
        if let Order::Cancel(reason) = &order
            && let Some(listener) = &state.listener
        {
            self.listeners.push_back((listener.clone(), reason.clone()));
        }
        self.scopes.push_back(Entry {
            scope,
            life: scope.life(),
            shared: NonNull::from(shared),
            home: scope.home(),
            grace: scope.grace.get(),
            limited: scope.limited.get(),
            order,
        });
    }

    /// With no lock held.
    pub(crate) fn tell(mut self) {
        loop {
            while let Some(entry) = self.scopes.pop_front() {
                // SAFETY: the visit keeps it there.
                let shared = unsafe { entry.shared.as_ref() };
                if matches!(entry.order, Order::Cancel(_)) && entry.grace != NEVER {
                    let at = clock::now().saturating_add(entry.grace);
                    entry.scope.set_timer(shared, entry.life, ScopeTimer::Grace, at);
                }
                entry.scope.cancel_children(&entry, shared, &mut self);
                shared.visitors.leave();
            }
            let Some((listener, reason)) = self.listeners.pop_front() else { return };
            let mut more = Vec::new();
            listener.cancelled(&reason, &mut more);
            for (scope, life) in more {
                scope.cancel_into(life, &reason, Reach::All, &mut self);
            }
        }
    }

    /// On this worker: the children of a scope that have started here, and the scopes that they have opened.
    pub(in crate::sched) fn children_here(&mut self, worker: &Worker, scope: ScopeRef, life: u32, order: &Order) {
        if scope.life() != life {
            return;
        }
        let mut at = scope.list_on(worker).get();
        // SAFETY: frames live for ever; the list is this worker's and does not change while we walk it (cancelling only enqueues).
        while let Some(frame) = unsafe { at.as_ref() } {
            at = frame.next_started.get();
            if frame.root.get() == scope.as_ptr() {
                self.fiber_here(frame, order);
            }
        }
    }

    /// Cancels (or drains, or ends the grace of) a started fiber of the worker that this runs on.
    pub(in crate::sched) fn fiber_here(&mut self, frame: FrameRef, order: &Order) {
        match order {
            Order::Cancel(reason) => _ = cancel::request(frame, reason.kind()),
            Order::Drain => {}
            Order::EndShields => cancel::end_shields_of(frame),
        }
        if frame.has(flag::OPEN_SCOPES)
            && let Some(top) = frame.top()
        {
            self.open_scopes(frame, outermost(&top.standing), order);
        }
    }

    /// Cancels a fiber and the scopes that are open on it, from anywhere. The caller keeps the frame from being recycled.
    pub(in crate::sched) fn fiber(&mut self, frame: FrameRef, reason: &CancelReason) {
        cancel::request(frame, reason.kind());
        if frame.has(flag::OPEN_SCOPES) {
            // The stack may be another fiber's by the time it is looked at, but it does not go away during a census.
            let census = CENSUS.lock();
            let scope = frame.top().and_then(|top| outermost(&top.standing));
            drop(census);
            self.open_scopes(frame, scope, &Order::Cancel(reason.clone()));
        }
    }

    fn open_scopes(&mut self, frame: FrameRef, outermost: Option<ScopeRef>, order: &Order) {
        let Some(scope) = outermost else { return };
        let mut held = scope.state.lock();
        // Perhaps it was closed meanwhile, and serves somebody else.
        if held.with(|state| state.body != Some(frame.waiter_ref())) {
            return;
        }
        match order {
            Order::Cancel(reason) => scope.cancel_held(held, reason, Reach::All, self),
            Order::Drain => scope.drain_held(held, self),
            Order::EndShields => scope.end_grace_held(held, self),
        }
    }
}

/// Cancels a fiber and the scopes that are open on it. The caller keeps the frame from being recycled, and holds no lock.
pub(crate) fn cancel_fiber(frame: FrameRef, reason: &CancelReason) {
    let mut told = Told::default();
    told.fiber(frame, reason);
    told.tell();
}

/// Cancels these scopes, each if it is still in this life.
pub(crate) fn cancel_all(scopes: &[InLife], reason: &CancelReason) {
    let mut told = Told::default();
    for (scope, life) in scopes {
        scope.cancel_into(*life, reason, Reach::All, &mut told);
    }
    told.tell();
}

fn outermost(standing: &Standing) -> Option<ScopeRef> {
    // Acquire: pairs with the release in `scope::body`, when the scope was opened.
    ScopeRecord::from_ptr(standing.outermost.load(Ordering::Acquire))
}
