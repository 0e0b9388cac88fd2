//! The running fiber or plain thread, with its record, its cancellation state and the scopes that are open on it.
//!
//! This file only finds these things. The rules of cancellation (`cancel`: levels, shields, delivery) lie above, and are asked through
//! [`rules`](Here::rules). Below: `current.rs`, and the records of scopes and threads.

use super::current;
use super::members::scope::{NEVER, ScopeRecord, ScopeRef};
use super::rules::CancelRules;
use super::shared::RuntimeShared;
use super::worker::Worker;
use crate::fiber::frame::{FlagSet, FrameRef, flag};
use crate::fiber::top::CancelState;
use crate::waiter::node::WaiterRef;
use crate::waiter::record::ThreadRecord;

/// What stays the same of a [`Here`] if its fiber goes on on another worker: for code that waits in between, or runs code that may.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a> {
    pub(crate) waiter: WaiterRef,
    pub(crate) state: &'a CancelState,
    pub(crate) frame: Option<FrameRef>,
}

impl<'a> Owner<'a> {
    /// On this fiber or thread: itself, with the worker that runs it now.
    #[inline]
    pub(crate) fn here(self) -> Here<'a> {
        let worker = || current::worker().expect("a fiber runs on a worker");
        Here { waiter: self.waiter, state: self.state, fiber: self.frame.map(|frame| (worker(), frame)) }
    }
}

/// A fiber, or a plain thread.
#[derive(Clone, Copy)]
pub(crate) struct Here<'a> {
    pub(crate) waiter: WaiterRef,
    pub(crate) state: &'a CancelState,
    pub(crate) fiber: Option<(&'a Worker, FrameRef)>,
}

impl<'a> Here<'a> {
    /// `None` on a worker's own stack, and on a thread that is being torn down.
    pub(crate) fn new() -> Option<Self> {
        match current::worker() {
            Some(worker) => worker.current.get().map(|frame| Self::on(worker, frame)),
            None => ThreadRecord::mine().map(Self::on_thread),
        }
    }

    /// A fiber of this worker: the one that runs, or one that has just left its stack.
    pub(crate) fn on(worker: &'a Worker, frame: FrameRef) -> Self {
        let top = frame.top().expect("a running fiber has a stack");
        Self { waiter: frame.waiter_ref(), state: &top.cancel, fiber: Some((worker, frame)) }
    }

    /// This thread, which waits with this record.
    pub(crate) fn on_thread(record: &'static ThreadRecord) -> Self {
        Self { waiter: record.waiter_ref(), state: current::thread_cancel_state(), fiber: None }
    }

    /// Itself, without its worker.
    pub(crate) fn owner(self) -> Owner<'a> {
        Owner { waiter: self.waiter, state: self.state, frame: self.fiber.map(|(_, frame)| frame) }
    }

    /// The rules of cancellation that hold here. `None`: a plain thread that runs the body of no scope, which nothing cancels.
    pub(crate) fn rules(&self) -> Option<&'static dyn CancelRules> {
        match self.fiber {
            Some((worker, _)) => Some(worker.rules()),
            // SAFETY: an open scope of this thread's own.
            None => self.innermost().map(|scope| unsafe { scope.shared() }.config.rules),
        }
    }

    /// Is cancellation only seen here, and never delivered?
    pub(crate) fn is_cooperative(&self) -> bool {
        match self.fiber {
            Some((worker, _)) => worker.shared.config.cooperative,
            // SAFETY: an open scope of this thread's own.
            None => self.innermost().is_some_and(|scope| unsafe { scope.shared() }.config.cooperative),
        }
    }

    #[inline(always)]
    pub(crate) fn flags(&self) -> FlagSet {
        self.waiter.get().flags.look()
    }

    /// The innermost scope whose body runs here.
    pub(crate) fn innermost(&self) -> Option<ScopeRef> {
        ScopeRecord::from_ptr(self.state.open.get())
    }

    /// The scopes whose bodies run here, from the inside out.
    pub(crate) fn open_scopes(&self) -> impl Iterator<Item = ScopeRef> + use<> {
        std::iter::successors(self.innermost(), |scope| scope.outer.get())
    }

    /// Is one of the scopes whose bodies run here a scope of this runtime?
    pub(crate) fn is_in_scope_of(&self, shared: &RuntimeShared) -> bool {
        // SAFETY: open scopes of our own.
        self.open_scopes().any(|scope| std::ptr::eq(unsafe { scope.shared() }, shared))
    }

    /// The scope that this fiber is a child of.
    pub(crate) fn parent(&self) -> Option<ScopeRef> {
        let (_, frame) = self.fiber?;
        // SAFETY: the flag is what `of` asks for.
        frame.has(flag::SCOPED).then(|| unsafe { ScopeRecord::of(frame) })
    }

    /// The scope that the running code belongs to: the innermost open one, or the one this fiber is a child of.
    pub(crate) fn scope(&self) -> Option<ScopeRef> {
        self.innermost().or_else(|| self.parent())
    }

    /// The nearest deadline of the scopes around.
    pub(crate) fn nearest_deadline(&self) -> u64 {
        self.scope().map_or(NEVER, |scope| scope.deadline.get())
    }
}
