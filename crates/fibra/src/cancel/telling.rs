//! Telling the children: the work that a walk through scopes (`scopes.rs`) has noted under their locks is done when the
//! locks are free.
//!
//! Above: `scopes.rs`, `grace.rs`. Below: `request.rs`, `sched::members`, and the commands that workers send to each
//! other.

use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::request;
use crate::fiber::CENSUS;
use crate::fiber::frame::{Frame, FrameRef, flag};
use crate::prim::atomic::Ordering;
use crate::prim::policy;
use crate::sched::current;
use crate::sched::members::scope::{Listener, NEVER, Order, Reach, ScopeRecord, ScopeRef, ScopeState};
use crate::sched::shared::{Command, RuntimeShared};
use crate::sched::timers::timing::ScopeTimer;
use crate::sched::worker::Worker;
use crate::waiter::cancel_reason::{CancelReason, ReasonKind};

impl Order {
    /// The same for a command to a worker, which has no place for the text of a custom reason.
    fn without_words(&self) -> Order<ReasonKind> {
        match self {
            Self::Cancel(reason) => Order::Cancel(reason.kind()),
            Self::Drain => Order::Drain,
            Self::EndShields => Order::EndShields,
        }
    }
}

impl Order<ReasonKind> {
    /// The text of a custom reason is in the one that `kept` gives.
    fn with_words(self, kept: impl FnOnce() -> Option<CancelReason>) -> Order {
        match self {
            Self::Cancel(kind) => {
                let kept = if kind == ReasonKind::Custom { kept() } else { None };
                let kept = kept.filter(|reason| reason.kind() == ReasonKind::Custom);
                Order::Cancel(kept.unwrap_or_else(|| kind.without_words()))
            }
            Self::Drain => Order::Drain,
            Self::EndShields => Order::EndShields,
        }
    }
}

/// The work that remains to be done when the locks are free: the scopes whose children have to be told, and then the
/// listeners, which call user code.
///
/// A list and no recursion: a tree of scopes may be much deeper than the stack of its canceller.
#[derive(Default)]
#[must_use = "no child is told before `tell`"]
pub(super) struct Told {
    scopes: VecDeque<PendingScope>,
    listeners: VecDeque<(Arc<dyn Listener>, CancelReason)>,
}

/// A scope whose children have to be told, and what was read from it under its lock.
struct PendingScope {
    scope: ScopeRef,
    life: u32,
    shared: NonNull<RuntimeShared>,
    home: u32,
    grace: u64,
    limited: bool,
    order: Order,
}

impl Told {
    /// Under the lock of the scope.
    pub(super) fn add(&mut self, scope: ScopeRef, state: &ScopeState, order: Order) {
        // SAFETY: the lock is held, so the scope stays open.
        let shared = unsafe { scope.shared() };
        shared.visitors.enter();
        if let Order::Cancel(reason) = &order
            && let Some(listener) = &state.listener
        {
            self.listeners.push_back((listener.clone(), reason.clone()));
        }
        self.scopes.push_back(PendingScope {
            scope,
            life: scope.life(),
            shared: NonNull::from(shared),
            home: scope.home(),
            grace: scope.grace.get(),
            limited: scope.limited.get(),
            order,
        });
    }

    /// Does the work. The caller holds no lock.
    pub(super) fn tell(mut self) {
        loop {
            while let Some(entry) = self.scopes.pop_front() {
                // SAFETY: the visit keeps the scope alive.
                let shared = unsafe { entry.shared.as_ref() };
                if matches!(entry.order, Order::Cancel(_)) && entry.grace != NEVER {
                    let at = policy::now().saturating_add(entry.grace);
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
    fn children_here(&mut self, worker: &Worker, scope: ScopeRef, life: u32, order: &Order) {
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
    pub(super) fn fiber_here(&mut self, frame: FrameRef, order: &Order) {
        match order {
            Order::Cancel(reason) => _ = request::request(frame, reason.kind()),
            Order::Drain => {}
            Order::EndShields => request::end_shields_of(frame),
        }
        if frame.has(flag::OPEN_SCOPES)
            && let Some(top) = frame.top()
        {
            self.open_scopes(frame, ScopeRecord::outermost(&top.cancel), order);
        }
    }

    /// Cancels a fiber and the scopes that are open on it, from anywhere. The caller keeps the frame from being recycled.
    pub(super) fn fiber(&mut self, frame: FrameRef, reason: &CancelReason) {
        self.fiber_anywhere(frame, &Order::Cancel(reason.clone()));
    }

    /// Cancels (or drains, or ends the grace of) a fiber and the scopes that are open on it, from anywhere, while it may run. The caller
    /// keeps the frame from being recycled. A scope that the fiber opens in this moment, and that is not found here, learns of it itself,
    /// after it was made known: of the cancellation by the fiber's flag, of draining from the scope around it (`scope::body`).
    fn fiber_anywhere(&mut self, frame: FrameRef, order: &Order) {
        match order {
            Order::Cancel(reason) => _ = request::request(frame, reason.kind()),
            Order::Drain => {}
            Order::EndShields => request::end_shields_of(frame),
        }
        if frame.has(flag::OPEN_SCOPES) {
            // The stack may belong to another fiber by the time it is looked at, but it does not go away during a
            // census.
            let census = CENSUS.lock();
            let scope = frame.top().and_then(|top| ScopeRecord::outermost(&top.cancel));
            drop(census);
            self.open_scopes(frame, scope, order);
        }
    }

    fn open_scopes(&mut self, frame: FrameRef, outermost: Option<ScopeRef>, order: &Order) {
        let Some(scope) = outermost else { return };
        let mut held = scope.state.lock();
        // The scope may have been closed meanwhile, and its record may serve another scope: also one of the same fiber's, behind a shield
        // or within another scope.
        if held.with(|state| state.body != Some(frame.waiter_ref()) || !state.is_outermost) {
            return;
        }
        match order {
            Order::Cancel(reason) => scope.cancel_held(held, reason, Reach::All, self),
            Order::Drain => scope.drain_held(held, self),
            Order::EndShields => scope.end_grace_held(held, self),
        }
    }
}

/// On this worker: carries out an order for the children of a scope that have started here.
pub(super) fn tell_children_here(worker: &Worker, scope: ScopeRef, life: u32, order: Order<ReasonKind>) {
    // The text of a custom reason is kept by the scope. In another life of the record it belongs to another scope, and
    // no child is told.
    let order = order.with_words(|| scope.children_reason());
    let mut told = Told::default();
    told.children_here(worker, scope, life, &order);
    told.tell();
}

impl ScopeRecord {
    /// On any thread, after the scope was marked: cancels the children that have started. The scope may be over by now,
    /// and its record may serve another scope: only atomic fields are read from it, and nothing is done to a child
    /// before `life` is compared.
    fn cancel_children(&'static self, entry: &PendingScope, shared: &RuntimeShared, told: &mut Told) {
        let (life, order) = (entry.life, &entry.order);
        // Second half of the handshake with `list_on`; `Root::cancel` was the first.
        let holders = self.holders.look();
        let here = current::worker().filter(|worker| ptr::eq(&*worker.shared, shared)).map(|worker| worker.index);
        for index in 0..shared.remotes.len() {
            if index != entry.home as usize && !holders.may_have(index) {
                continue;
            }
            match current::worker() {
                Some(worker) if here == Some(index) => told.children_here(worker, self, life, order),
                _ => shared.post(index, Command::Scope { scope: self, life, order: order.without_words() }),
            }
        }
        // SeqCst read-modify-write: as above.
        if self.has_tasks.fetch_or(false, Ordering::SeqCst) {
            let tasks = shared.tasks.lock();
            // A task leaves this map before its frame is recycled, so under the lock all are alive. If one of the next life is in it, that
            // life is seen here.
            let here = tasks.values().filter(|_| self.life() == life);
            // (A task on no worker is between two polls, and has neither scopes nor shields open. A fiber that moves may; MOVES does not
            // tell, since it is lowered for as long as something binds the fiber.)
            let is_asked = |frame: &Frame| matches!(order, Order::Cancel(_)) || !frame.has(flag::TASK);
            for frame in here.filter(|frame| frame.root.get() == self.as_ptr() && is_asked(frame)) {
                told.fiber_anywhere(frame, order);
            }
        }
        if !matches!(order, Order::Cancel(_)) {
            return;
        }
        // Children that wait for their turn start now, and end at once.
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
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::sched::here::Here;

    // A canceller that has found the outermost scope of a fiber, and comes late, may find in its record one that the fiber has opened
    // since.
    #[test]
    fn a_record_that_serves_a_scope_behind_a_shield_is_left_alone() {
        let is_cancelled_late = || {
            let here = Here::new().expect("a fiber");
            let (_, frame) = here.fiber.expect("a fiber");
            let innermost = here.innermost();
            let mut told = Told::default();
            told.open_scopes(frame, innermost, &Order::Cancel(CancelReason::Handle));
            told.tell();
            innermost.is_some_and(|scope| scope.state.with(|state| state.reason.is_some()))
        };
        let runtime = crate::Runtime::builder().workers(1).build().unwrap();
        let fiber = runtime.spawn(move || {
            let behind = crate::shield(|| crate::scope(|_| is_cancelled_late()));
            let within = crate::scope(|_| crate::scope(|_| is_cancelled_late()));
            let outermost = crate::scope(|_| is_cancelled_late());
            (behind, within, outermost)
        });
        assert_eq!(fiber.join().unwrap(), (false, false, true));
    }
}
