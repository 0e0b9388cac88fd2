//! Opening a scope, running its body, waiting for its children, closing it: what every kind of scope has in common.
//!
//! The owner does all of this, a fiber or a plain thread. Nothing can make it leave before its children have ended: not a panic, which is
//! caught, and not cancellation, which the last wait does not take part in; should anything else unwind out of there, the process is
//! aborted, because the children may borrow from this very stack.
//!
//! Above: `scope.rs`, which turns the end of a scope into values and panics. Below: `sched::members::scope`, the record; `cancel`, which
//! says which cancellations concern the owner.

use std::any::Any;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;

use super::empty::Empty;
use super::token::CancelToken;
use crate::cancel::{self, is_cancellation};
use crate::fiber::frame::{FlagSet, flag};
use crate::prim::atomic::Ordering;
use crate::prim::bug::seeded_bug;
use crate::prim::policy;
use crate::sched::complete::complete_wait;
use crate::sched::current;
use crate::sched::enqueue::QueueEnd;
use crate::sched::here::{Here, Owner};
use crate::sched::members::scope::{Closed, NEVER, Opening, PanicSlot, Reach, ScopeRecord, ScopeRef, Unstarted};
use crate::sched::shared::{OutsideScope, RootRef, RuntimeShared};
use crate::sched::timers::heap::Timer;
use crate::sched::timers::timing::{ScopeDue, ScopeTimer, WheelDue};
use crate::task::run::drop_quietly;
use crate::task::spawn::{no_runtime, root_of};
use crate::wait::park::{Wait, wait};
use crate::wait::reason::WaitReason;
use crate::waiter::cancel_reason::CancelReason;
use crate::waiter::word::{ARM_FIRST, WaiterState};

/// The options of a scope.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) name: Option<Arc<str>>,
    /// On fibra's clock.
    pub(crate) deadline: Option<u64>,
    pub(crate) tokens: Vec<CancelToken>,
    pub(crate) limit: Option<usize>,
    pub(crate) isolate: bool,
    /// In nanoseconds.
    pub(crate) grace: Option<u64>,
}

/// A scope that is over.
pub(crate) struct Finished<T> {
    pub(crate) result: Result<T, Box<dyn Any + Send>>,
    /// Why the body was cancelled, if it was.
    pub(crate) reason: Option<CancelReason>,
    pub(crate) panics: Vec<Arc<PanicSlot>>,
    /// Children that never ran.
    pub(crate) unstarted: Unstarted,
    /// A child had panicked before the body was over.
    pub(crate) child_panicked_first: bool,
    /// Siblings were cancelled for the panic of a child, and did not come to their end.
    pub(crate) cut_short_by_panic: bool,
    /// An enclosing, unshielded scope is cancelled as well: unwinding goes on.
    pub(crate) outer_cancelled: bool,
}

/// A thread's hold on a runtime, for the time of a scope: it counts in the runtime's root like a fiber.
struct Outsider {
    shared: Arc<RuntimeShared>,
    counted: bool,
}

impl Outsider {
    fn leave(self, scope: ScopeRef) {
        self.shared.outside_scopes.lock().retain(|open| !std::ptr::eq(open.scope, scope));
        if self.counted
            && let Some((waiter, ticket)) = self.shared.root.add(-1)
        {
            let waker = complete_wait(waiter, ticket, ARM_FIRST, QueueEnd::Tail);
            debug_assert!(waker.is_none(), "a runtime's owner is a fiber or a thread");
        }
        if !self.counted {
            // The end of the runtime has come and gone, so this owner waits for the threads that cancelled this scope through a token.
            self.shared.visitors.await_none();
        }
    }
}

/// Runs `body` in a scope. If it fails, its children are cancelled. Returns when all have ended.
#[track_caller]
pub(crate) fn run<T>(
    options: &Options,
    what: &str,
    site: &'static Location<'static>,
    failed: impl FnOnce(&T) -> bool,
    body: impl FnOnce(ScopeRef) -> T,
) -> Finished<T> {
    let Some(here) = Here::new() else {
        panic!("fibra: {what} where nothing can wait: on a worker's own stack, or in a thread that is torn down")
    };
    // (A fiber that moves may come back from its body on another worker.)
    let owner = here.owner();
    // Kept for a plain thread: a fiber keeps its runtime by itself.
    let runtime: Arc<RuntimeShared>;
    let (outsider, open) = match here.fiber {
        Some((worker, frame)) => {
            assert!(
                !frame.has(flag::NO_SUSPEND),
                "fibra: {what} inside `no_suspend`: it would have to wait for its children"
            );
            // SAFETY: the runtime outlives its fibers, of which the caller is one.
            let shared = unsafe { RuntimeShared::of(frame) };
            (None, Open::new(owner, shared, root_of(worker), options, true, site))
        }
        None => {
            assert!(
                here.waiter.get().word.snapshot().is(WaiterState::Running),
                "fibra: {what} in a waker that is called while its thread is about to wait: it would be taken for \
                 that wait"
            );
            let Some(entered) = current::runtime() else { no_runtime(what) };
            runtime = entered;
            let shared = &runtime;
            let counted = shared.fork_epoch == crate::monitor::fork::epoch() && shared.root.try_add();
            let open = Open::new(owner, shared, shared.root, options, counted, site);
            if counted {
                let (scope, life, shielded) = (open.scope, open.scope.life(), open.shielded);
                shared.outside_scopes.lock().push(OutsideScope { scope, life, shielded });
                if shared.is_closing() && !shielded {
                    open.cancel(&CancelReason::Shutdown);
                }
            } else {
                open.cancel(&CancelReason::Shutdown);
            }
            (Some(Outsider { shared: runtime.clone(), counted }), open)
        }
    };
    let scope = open.scope;
    let mut result = catch_unwind(AssertUnwindSafe(|| body(scope)));
    open.body_has_ended(result.is_err());
    // A panic in here must not skip the wait for the children, nor the steps after it.
    let abort = AbortOnUnwind;
    let child_panicked_first = scope.has_untaken_panic();
    let failed = match &result {
        Ok(value) => failed(value),
        Err(_) => true,
    };
    if failed {
        let reason = match &result {
            Err(payload) if is_cancellation(&**payload) => owner.here().reason(),
            _ => None,
        };
        scope.cancel(scope.life(), &reason.unwrap_or(CancelReason::Failed), Reach::Children);
    }
    scope.body_is_over();
    scope.begin_drain();
    while !scope.root.is_empty() {
        let how = Wait { reason: WaitReason::ScopeEnd, object: scope.as_ptr().addr() as u64, site, deadline: None };
        let _ = wait(&Empty(&scope.root), how);
    }
    // The children's work is not done: the scope does not count as a success, even if the body had nothing left to do. Where nothing is
    // unwound (cooperative cancellation) there has to be a value.
    let cut_short = result.is_ok() && scope.was_cut_short() && !owner.here().is_cooperative();
    let cut_short_by_panic = scope.was_cut_short_by_panic();
    let (closed, outer_cancelled) = open.close();
    if let Some(outsider) = outsider {
        outsider.leave(scope);
    }
    scope.recycle();
    std::mem::forget(abort);
    if cut_short {
        drop_quietly(std::mem::replace(&mut result, Err(cancel::payload())));
    }
    let Closed { reason, panics, unstarted, .. } = closed;
    Finished { result, reason, panics, unstarted, child_panicked_first, cut_short_by_panic, outer_cancelled }
}

/// Nothing may unwind between the end of a body and the end of its children.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        crate::prim::say(format_args!(
            "fibra: a scope was about to be left while its fibers may still run (a bug in fibra, please report it)"
        ));
        std::process::abort();
    }
}

/// From this scope outwards, on the owner of all of them.
fn around(scope: Option<ScopeRef>) -> impl Iterator<Item = ScopeRef> {
    std::iter::successors(scope, |scope| scope.outer.get())
}

/// An open scope, on its owner.
struct Open<'a, 'b> {
    owner: Owner<'a>,
    scope: ScopeRef,
    options: &'b Options,
    shielded: bool,
    /// The state that has to be restored.
    /// If this is a destructor during unwinding: what [`Here::enter_unwinding`] gave.
    was_inside: Option<u32>,
    deliveries: u32,
    lower: FlagSet,
    shared: &'b RuntimeShared,
    /// Its deadline, and the seat whose worker keeps it.
    timer: Option<(usize, Timer)>,
}

impl<'a, 'b> Open<'a, 'b> {
    /// `counted`: the runtime lives, and a worker of it keeps the deadline.
    fn new(
        owner: Owner<'a>,
        shared: &'b RuntimeShared,
        run: RootRef,
        options: &'b Options,
        counted: bool,
        site: &'static Location<'static>,
    ) -> Self {
        let (here, state) = (owner.here(), owner.state);
        let hold = here.hold();
        let was_unwinding = here.is_unwinding();
        let outer = here.innermost();
        let shielded = hold > outer.map_or(0, |outer| outer.hold.get());
        debug_assert!(shielded || !was_unwinding, "what unwinds holds off more than anything before");
        let deadline = options.deadline.unwrap_or(NEVER);
        let scope = ScopeRecord::open(
            shared,
            run,
            &Opening {
                owner: owner.waiter,
                moves: owner.frame.is_some_and(|frame| frame.has(flag::MOVES)),
                outer,
                shielded,
                hold,
                outer_deadline: here.nearest_deadline(),
                deadline,
                isolate: options.isolate,
                limit: options.limit,
                grace: options.grace.unwrap_or(NEVER),
                name: options.name.clone(),
                site,
            },
        );
        let was_inside = was_unwinding.then(|| {
            // In this scope nothing unwinds yet; what the unwinding around it holds off stays held off.
            state.cleanups.set(state.cleanups.get() + 1);
            around(outer).for_each(|scope| scope.add_cleanup(true));
            here.enter_unwinding()
        });
        let open = Self {
            owner,
            scope,
            options,
            shielded,
            was_inside,
            deliveries: state.deliveries.replace(0),
            lower: flag::NONE,
            shared,
            timer: None,
        };
        open.begin(outer.is_none(), if counted { deadline } else { NEVER })
    }

    fn begin(mut self, is_outermost: bool, deadline: u64) -> Self {
        let (here, state) = (self.owner.here(), self.owner.state);
        let parent = here.parent();
        // A scope that is opened behind a shield is not found from outside: a cancellation of the fiber does not concern it, nor the scopes
        // that are opened in it.
        let is_found = is_outermost && !self.shielded;
        let parent = parent.filter(|_| is_found);
        let inherits_early = seeded_bug("drains_by_an_old_note");
        if inherits_early && let Some(parent) = parent {
            self.scope.inherit_draining(parent);
            crate::prim::thread::yield_now();
        }
        if is_found {
            // Release: pairs with the acquire in `sched::members::scope`, from which a canceller comes to the scope.
            state.outermost.store(self.scope.as_ptr().cast_mut(), Ordering::Release);
        }
        state.open.set(self.scope.as_ptr());
        let cleanup = flag::CLEANUP.only_if(self.was_inside.is_some());
        let raise = flag::OPEN_SCOPES | cleanup | flag::BARRIER.only_if(self.shielded);
        // A canceller of the fiber sets its flag in the same word. If it comes later, it finds the scope; if it came earlier, its flag is
        // seen here.
        let before = self.owner.waiter.get().flags.announce(raise);
        self.lower = raise.without(before);
        // After that, and by the lock of the scope around it: there it is noted that it drains, before the flags of a fiber that moves
        // are looked at. So either this scope is found, or it finds the note.
        if !inherits_early && let Some(parent) = parent {
            self.scope.inherit_draining(parent);
        }
        // Not behind a shield, this one's or that of a scope around it.
        if before.among(flag::CANCEL | flag::BARRIER) == flag::CANCEL
            && !self.shielded
            && let Some(reason) = here.reason()
        {
            self.cancel(&reason);
        }
        for token in &self.options.tokens {
            token.subscribe(self.scope, self.scope.life());
        }
        if deadline != NEVER {
            if deadline <= policy::now() {
                self.cancel(&CancelReason::TimedOut);
            } else {
                let due = ScopeDue { scope: self.scope, life: self.scope.life(), what: ScopeTimer::Deadline };
                let due = WheelDue::Scope(due);
                self.timer = Some(match here.fiber {
                    Some((worker, frame)) => {
                        if frame.has(flag::MOVES) {
                            // As its waits with a deadline: `FiberParker::leave_anywhere_until`.
                            self.shared.late.begin();
                        }
                        (worker.index, worker.set_wheel_timer(due, deadline))
                    }
                    // A plain thread's: kept by the first worker.
                    None => (0, self.shared.set_wheel_timer(0, due, deadline)),
                });
            }
        }
        self
    }

    fn cancel(&self, reason: &CancelReason) {
        self.scope.cancel(self.scope.life(), reason, Reach::All);
    }

    /// An unwinding of the body, if there was one, has arrived here.
    fn body_has_ended(&self, unwound: bool) {
        if unwound {
            self.owner.state.unwinding.set(false);
        }
    }

    /// Closes the scope. True: an enclosing, unshielded scope is cancelled as well.
    fn close(self) -> (Closed, bool) {
        let (here, scope) = (self.owner.here(), self.scope);
        let state = here.state;
        for token in &self.options.tokens {
            token.unsubscribe(scope);
        }
        // In the child of a fork no worker keeps the timer any more, and its lock may be held by a thread that does not exist there.
        if let Some((seat, timer)) = self.timer
            && self.shared.fork_epoch == crate::monitor::fork::epoch()
        {
            // If the timer is gone, it was fired, which does nothing to a scope that is closed: see `life`.
            self.shared.remotes[seat].wheel.remove(timer);
        }
        let outer = scope.outer.get();
        state.open.set(outer.map_or(std::ptr::null(), ScopeRecord::as_ptr));
        if outer.is_none() {
            // Release: as when it was opened.
            state.outermost.store(std::ptr::null_mut(), Ordering::Release);
        }
        let closed = scope.close();
        // The owner's own flags; a canceller that comes from them to the scope finds it closed, under its lock.
        here.waiter.get().flags.lower(self.lower);
        if here.flags().has(flag::CANCEL_BODY) {
            here.lower_body_flag();
        }
        if closed.overdue {
            here.lower_overdue_flag();
        }
        state.deliveries.set(self.deliveries);
        if let Some(before) = self.was_inside {
            state.cleanups.set(state.cleanups.get() - 1);
            around(outer).for_each(|scope| scope.add_cleanup(false));
            here.leave_unwinding(before);
        }
        let outer_cancelled = !self.shielded && here.is_cancelled_at_level();
        (closed, outer_cancelled)
    }
}
