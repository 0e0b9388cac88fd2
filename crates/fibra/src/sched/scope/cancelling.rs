//! Cancelling a scope and what is inside it; asking it to drain; the end of its grace. Three requests that go the same way: to the body,
//! to the scopes open inside it, and to the children that have started, on whichever worker.

use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::{Cause, Listener, NEVER, PanicSlot, Reach, ScopeRecord, ScopeRef, State};
use crate::fiber::CENSUS;
use crate::fiber::frame::{FrameRef, flag};
use crate::fiber::top::Standing;
use crate::prim::atomic::{AtomicBool, Ordering, handshake_load_u64};
use crate::prim::clock;
use crate::prim::sync::Mutex;
use crate::sched::enqueue::Place;
use crate::sched::shared::{Command, Shared};
use crate::sched::timing::ScopeTimer;
use crate::sched::worker::Worker;
use crate::sched::{cancel, current, wake};
use crate::wait::node::{Node, WaitList, WaiterRef};
use crate::wait::word::{self, Arm, Ticket};

/// Instead of a cause: not cancelled, but told to drain.
const DRAIN: u32 = 0;
/// Instead of a cause: cancelled before, and the time for shields is over.
const OVERDUE: u32 = 32;

/// How often one looks at an owner that is about to wait, before that counts as waiting. (It takes a moment; but on a plain thread a waker
/// may be called meanwhile, which may be what is looking.)
const LOOKS: usize = 1000;

fn is_cause(code: u32) -> bool {
    code != DRAIN && code != OVERDUE
}

impl ScopeRecord {
    /// Cancels it, if this life of it is still going on. The first cause stays.
    pub(crate) fn cancel(&'static self, life: u32, cause: &Cause, reach: Reach) {
        let mut told = Told::default();
        self.state.with(|state| {
            if self.life() == life && state.body.is_some() {
                self.cancel_held(state, cause, reach, &mut told);
            }
        });
        told.tell(cause);
    }

    fn cancel_held(&'static self, state: &mut State, cause: &Cause, reach: Reach, told: &mut Told) {
        if self.root.cancel(cause.code) {
            state.children_cause = cause.clone();
            told.add(self, state);
        }
        let Some(body) = state.body else { return };
        if reach == Reach::Children {
            return;
        }
        if state.cause.code == 0 {
            state.cause = cause.clone();
        }
        // SeqCst read-modify-write: the canceller's first half of the handshake with a parker; `interrupt` is the second.
        body.get().flags.fetch_or(flag::CANCEL_BODY, Ordering::SeqCst);
        if state.barrier {
            // It is behind a shield; unless it waits there for just this.
            return cancel::interrupt_watcher(body);
        }
        match state.inner {
            Some(inner) => inner.state.with(|state| inner.cancel_held(state, cause, reach, told)),
            // All locks from the cancelled scope to the innermost are held: no shield can be opened in between.
            None => cancel::interrupt(body),
        }
    }

    /// Is the body cancelled? On the owner. A child's panic that nobody has taken becomes a cancellation here: the owner is about to wait
    /// for something else.
    ///
    /// Unless it need not wait (`settled`): then it may be about to take that very panic.
    pub(crate) fn is_body_cancelled(&'static self, settled: bool) -> bool {
        let (cancelled, untaken) = self.state.with(|state| {
            let untaken = !settled && !self.isolate.get() && state.panics.iter().any(|panic| panic.is_told());
            (state.cause.code != 0, untaken)
        });
        if !cancelled && untaken {
            self.cancel(self.life(), &Cause::from(cancel::code::PANICKED), Reach::All);
        }
        cancelled || untaken
    }

    /// On the owner: has a child panicked whose panic nobody has taken?
    pub(crate) fn has_untaken_panic(&self) -> bool {
        !self.isolate.get() && self.state.with(|state| state.panics.iter().any(|panic| panic.is_there()))
    }

    /// The same of children that have ended, and whose end nobody was waiting for.
    pub(crate) fn has_told_panic(&self) -> bool {
        !self.isolate.get() && self.state.with(|state| state.panics.iter().any(|panic| panic.is_told()))
    }

    /// The time that a cancelled scope gives to shields is over: they hold nothing off any more, for the body, the children and what is
    /// open inside.
    pub(crate) fn end_grace(&'static self, life: u32) {
        let mut told = Told::default();
        self.state.with(|state| {
            if self.life() == life && state.body.is_some() && self.root.cancelled() != 0 {
                self.end_grace_held(state, &mut told);
            }
        });
        told.tell(&Cause::from(OVERDUE));
    }

    fn end_grace_held(&'static self, state: &mut State, told: &mut Told) {
        state.overdue = true;
        told.add(self, state);
        if let Some(body) = state.body.filter(|_| state.cause.code != 0) {
            cancel::end_shields(body);
        }
        if let Some(inner) = state.inner {
            inner.state.with(|state| inner.end_grace_held(state, told));
        }
    }

    /// Why the body is cancelled; code 0 if it is not.
    pub(crate) fn body_cause(&self) -> Cause {
        self.state.with(|state| state.cause.clone())
    }

    /// Have shields had their time in here?
    pub(crate) fn is_overdue(&self) -> bool {
        self.state.with(|state| state.overdue && state.cause.code != 0)
    }

    /// Why the children are cancelled; code 0 if they are not.
    pub(crate) fn children_cause(&self) -> Cause {
        self.state.with(|state| state.children_cause.clone())
    }

    /// A child is about to end with a panic; the payload is kept for its handle and for the scope.
    pub(crate) fn keep_panic(&'static self, payload: Box<dyn std::any::Any + Send>) -> Arc<PanicSlot> {
        let (payload, told) = (Mutex::new(Some(payload)), AtomicBool::new(false));
        let slot = Arc::new(PanicSlot { payload, told, scope: self, life: self.life() });
        self.state.with(|state| state.panics.push(slot.clone()));
        slot
    }

    /// How many children have panicked so far.
    pub(crate) fn panics(&self) -> usize {
        self.state.with(|state| state.panics.len())
    }

    /// A child has panicked, and nobody was joining it. If the owner waits for something else, or for nothing any more, that cancels the
    /// scope; if it is running, it may yet join the child: it decides when it next waits. If it is about to wait, perhaps for this child,
    /// which it then finds ended, that is seen in a moment.
    pub(crate) fn panicked(&'static self, life: u32) {
        if self.isolate.get() {
            return;
        }
        let cause = Cause::from(cancel::code::PANICKED);
        let mut told = Told::default();
        for looks in 0.. {
            let look_again = self.state.with(|state| {
                let Some(body) = state.body.filter(|_| self.life() == life) else { return false };
                let mut untaken = false;
                for panic in state.panics.iter().filter(|panic| panic.is_there()) {
                    panic.tell();
                    untaken = true;
                }
                if !untaken {
                    // Somebody has joined it meanwhile.
                    return false;
                }
                if state.over {
                    self.cancel_held(state, &cause, Reach::Children, &mut told);
                    return false;
                }
                // SeqCst: as in `cancel_held`.
                body.get().flags.fetch_or(flag::CANCEL_BODY, Ordering::SeqCst);
                let seen = body.get().word.look_after_flag();
                if seen.is(word::State::Parking) && !seen.is_claimed() && looks < LOOKS {
                    return true;
                }
                if seen.is_waiting() {
                    self.cancel_held(state, &cause, Reach::All, &mut told);
                }
                false
            });
            if !look_again {
                break;
            }
            crate::prim::thread::yield_now();
        }
        told.tell(&cause);
    }

    /// On any thread, after the scope was marked: cancels the children that have started. What those have opened is left to `told`.
    fn cancel_children(&'static self, shared: &Shared, life: u32, cause: &Cause, told: &mut Told) {
        // SeqCst: second half of the handshake with `list_on`; `Root::cancel` was the first.
        let holders = handshake_load_u64(&self.holders);
        let here = current::worker().filter(|worker| ptr::eq(&*worker.shared, shared)).map(|worker| worker.index);
        let home = self.home.get() as usize;
        for index in 0..shared.remotes.len() {
            if index != home && holders & (1 << (index % 64)) == 0 {
                continue;
            }
            match current::worker() {
                Some(worker) if here == Some(index) => told.add_children(worker, self, life, cause),
                _ => shared.post(index, Command::Scope { scope: self, life, cause: cause.code }),
            }
        }
        // SeqCst read-modify-write: as above.
        if is_cause(cause.code) && self.has_tasks.fetch_or(false, Ordering::SeqCst) {
            // A task leaves this map before its frame is recycled, so under the lock all are alive.
            for frame in shared.tasks.lock().values() {
                if frame.root.get() == self.as_ptr() {
                    told.add_fiber(frame, cause);
                }
            }
        }
        // Those that wait for their turn start now, and end at once.
        if is_cause(cause.code) && self.limited.get() {
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
        self.state.with(|state| {
            if self.life() == life && state.body.is_some() {
                self.drain_held(state, &mut told);
            }
        });
        told.tell(&Cause::default());
    }

    fn drain_held(&'static self, state: &mut State, told: &mut Told) {
        if std::mem::replace(&mut state.draining, true) {
            return;
        }
        told.add(self, state);
        if let Some(list) = &state.watchers.0 {
            // SAFETY: under the lock of the list.
            while let Some((waiter, ticket, arm)) = unsafe { list.pop_front() } {
                let waker = wake::complete(waiter, ticket, arm, Place::Tail);
                debug_assert!(waker.is_none(), "futures do not watch scopes");
            }
        }
        if let Some(inner) = state.inner {
            inner.state.with(|state| inner.drain_held(state, told));
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.state.with(|state| state.draining)
    }

    /// Links the node of somebody who waits for the scope to be drained. False: it is.
    pub(crate) fn watch(&self, node: &Node, waiter: WaiterRef, ticket: Ticket, arm: Arm) -> bool {
        self.state.with(|state| {
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

    /// Sets the one who is told when the scope is cancelled. Err: it is cancelled already, for this cause.
    pub(crate) fn set_listener(&self, listener: Arc<dyn Listener>) -> Result<(), Cause> {
        self.state.with(|state| {
            if state.children_cause.code != 0 {
                return Err(state.children_cause.clone());
            }
            state.listener = Some(listener);
            Ok(())
        })
    }
}

/// What remains to be done when the locks are free: the scopes whose children have to be told. Those may have opened further scopes, which
/// are added meanwhile: a tree of fibers may be deeper than the stack of whoever cancels it.
#[derive(Default)]
pub(in crate::sched) struct Told(Vec<ToTell>);

/// A scope in a life, its runtime, and who wants to know.
type ToTell = (ScopeRef, u32, NonNull<Shared>, Option<Arc<dyn Listener>>);

impl Told {
    /// Under the lock of the scope.
    fn add(&mut self, scope: ScopeRef, state: &State) {
        // SAFETY: the lock is held, so the scope stays open.
        let shared = unsafe { scope.shared() };
        shared.visitors.enter();
        self.0.push((scope, scope.life(), NonNull::from(shared), state.listener.clone()));
    }

    /// A fiber: cancels it and the scopes that are open on it. The caller keeps the frame from being recycled.
    pub(in crate::sched) fn add_fiber(&mut self, frame: FrameRef, cause: &Cause) {
        cancel::request(frame, cause.code);
        if frame.has(flag::OPEN_SCOPES) {
            // The stack may be another fiber's by the time it is looked at, but it does not go away during a census.
            let census = CENSUS.lock();
            let scope = frame.top().and_then(|top| outermost(&top.standing));
            drop(census);
            self.add_open_scopes(frame, scope, cause);
        }
    }

    /// The same (or drains it, or ends its grace), for a started fiber of the worker this runs on.
    fn add_fiber_here(&mut self, frame: FrameRef, cause: &Cause) {
        if is_cause(cause.code) {
            cancel::request(frame, cause.code);
        } else if cause.code == OVERDUE {
            cancel::end_shields(frame.waiter_ref());
        }
        if frame.has(flag::OPEN_SCOPES)
            && let Some(top) = frame.top()
        {
            self.add_open_scopes(frame, outermost(&top.standing), cause);
        }
    }

    /// The children of a scope that have started on this worker.
    fn add_children(&mut self, worker: &Worker, scope: ScopeRef, life: u32, cause: &Cause) {
        if scope.life() != life {
            return;
        }
        let mut at = scope.list_on(worker).get();
        // SAFETY: frames live for ever; the list is this worker's and does not change while we walk it (cancelling only enqueues).
        while let Some(frame) = unsafe { at.as_ref() } {
            at = frame.next_started.get();
            if frame.root.get() == scope.as_ptr() {
                self.add_fiber_here(frame, cause);
            }
        }
    }

    fn add_open_scopes(&mut self, frame: FrameRef, outermost: Option<ScopeRef>, cause: &Cause) {
        let Some(scope) = outermost else { return };
        scope.state.with(|state| {
            // Perhaps it was closed meanwhile, and serves somebody else.
            if state.body == Some(frame.waiter_ref()) {
                match cause.code {
                    DRAIN => scope.drain_held(state, self),
                    OVERDUE => scope.end_grace_held(state, self),
                    _ => scope.cancel_held(state, cause, Reach::All, self),
                }
            }
        });
    }

    /// With no lock held.
    pub(in crate::sched) fn tell(mut self, cause: &Cause) {
        while let Some((scope, life, shared, listener)) = self.0.pop() {
            // SAFETY: the visit keeps it there.
            let shared = unsafe { shared.as_ref() };
            if is_cause(cause.code) && scope.grace.get() != NEVER {
                scope.set_timer(shared, life, ScopeTimer::Grace, clock::now().saturating_add(scope.grace.get()));
            }
            scope.cancel_children(shared, life, cause, &mut self);
            if is_cause(cause.code)
                && let Some(listener) = listener
            {
                listener.cancelled(cause);
            }
            shared.visitors.leave();
        }
    }
}

impl Worker {
    /// Cancels (or, for cause 0, drains) the children of a scope that have started on this worker, and the scopes that they have opened.
    pub(in crate::sched) fn cancel_children_here(&self, scope: ScopeRef, life: u32, code: u32) {
        // The words of a custom cause are kept by the scope. In another life they are somebody else's, and nobody is told.
        let text = if code == cancel::code::CUSTOM { scope.children_cause().text } else { None };
        let (mut told, cause) = (Told::default(), Cause { code, text });
        told.add_children(self, scope, life, &cause);
        told.tell(&cause);
    }

    /// Cancels a started fiber of this worker.
    pub(in crate::sched) fn cancel_fiber_here(&self, frame: FrameRef, cause: u32) {
        let (mut told, cause) = (Told::default(), Cause::from(cause));
        told.add_fiber_here(frame, &cause);
        told.tell(&cause);
    }
}

/// Cancels a fiber and the scopes that are open on it. The caller keeps the frame from being recycled, and holds no lock.
pub(crate) fn cancel_fiber(frame: FrameRef, cause: u32) {
    let (mut told, cause) = (Told::default(), Cause::from(cause));
    told.add_fiber(frame, &cause);
    told.tell(&cause);
}

fn outermost(standing: &Standing) -> Option<ScopeRef> {
    // Acquire: pairs with the release in `scope::body`, when the scope was opened.
    ScopeRecord::from_ptr(standing.outermost.load(Ordering::Acquire))
}
