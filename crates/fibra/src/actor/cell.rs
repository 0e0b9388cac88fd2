//! An actor with its type: the mailbox, the value, and its turns.
//!
//! Above: `addr`, `context`, `supervisor`. Below: `desk` (the protocol), `core`, `scope::launch` (a turn is a fiber of the root scope),
//! `wait::watch` (a turn learns that its handler waits).
//!
//! ```text
//!  launch ──▶ turn: take the value out ──▶ messages, up to the budget ──▶ put it back ──▶ EMPTY, or launch the next turn
//!                                            │ failure, stop, kill
//!                                            ▼
//!                                 stopping, drop the value, tell those who are bound; then GONE, or held for the supervisor
//! ```
//!
//! Invariants
//! * The value lies in `body` whenever no turn runs, and is taken out by a turn: a second turn would find it gone (S2-56).
//! * A turn has a fiber from its launch to its end, and the actor no other stack: so one without a turn owns none.
//! * A turn that was launched but never ran (the runtime shuts down) ends the actor: see [`Turn`].
//! * User code (handlers, hooks, destructors) runs with its panics caught.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;

use super::context::Context;
use super::core::{AnyCell, Choices, Core, Marks, Mode};
use super::desk::{Again, Desk, Next, Rest, Take};
use super::error::{CallError, Failure, StopReason};
use super::state::{ActorState, KILL, LOOK, NOW, Word};
use super::{Actor, quiescence, registry};
use crate::cancel::{cancel_waiting, is_cancellation};
use crate::prim::atomic::Ordering;
use crate::prim::spin::SpinLock;
use crate::prim::{FirstPanic, discard_payload};
use crate::runtime::Handle;
use crate::task::{launch, shield};
use crate::wait::waitable::Wait;
use crate::wait::watch::{Interrupt, Watch, watched};
use crate::waiter::cancel_reason::CancelReason;

/// Makes the value of a life.
pub(super) type Factory<A> = Arc<dyn Fn() -> Result<A, Failure> + Send + Sync>;

/// The value, between turns.
enum Body<A> {
    /// A turn has it, or the actor has ended.
    Away,
    /// It was not started yet.
    New(A),
    /// The first turn of a life makes it.
    Make(Factory<A>),
    Here(A),
}

/// See the header.
pub(super) struct Cell<A: Actor> {
    pub(super) core: Core,
    pub(super) desk: Desk<A::Message>,
    body: SpinLock<Body<A>>,
}

/// How the messages of a turn came to an end.
enum Turned {
    /// There is none left.
    Idle,
    /// The budget is spent.
    Spent,
    End(StopReason),
}

impl<A: Actor> Cell<A> {
    /// A new actor, whose first turn is launched.
    pub(super) fn spawn(actor: A, home: Handle, choices: &Choices, site: &'static Location<'static>) -> Arc<Self> {
        let cell = Arc::new(Self {
            core: Core::new(home, choices, site),
            desk: Desk::new(Word::runnable(), choices.capacity),
            body: SpinLock::new(Body::New(actor)),
        });
        quiescence::add_member(&cell);
        cell.launch(false);
        cell
    }

    /// One that is held until its supervisor starts it.
    pub(super) fn held(home: Handle, choices: &Choices, site: &'static Location<'static>) -> Arc<Self> {
        let cell = Arc::new(Self {
            core: Core::new(home, choices, site),
            desk: Desk::new(Word::held(), choices.capacity),
            body: SpinLock::new(Body::Away),
        });
        quiescence::add_member(&cell);
        cell
    }

    /// Launches a turn. The caller has made the actor RUNNABLE.
    pub(super) fn launch(self: &Arc<Self>, behind: bool) {
        if let Some(domain) = self.core.domain() {
            domain.enter();
        }
        let turn = Turn(Some(self.clone()));
        // Refused: it is dropped, which ends the actor.
        drop(launch(self.core.home.shared(), move || turn.run(), self.core.site, behind));
    }

    pub(super) fn then(self: &Arc<Self>, next: Next) {
        if next == Next::Launch {
            self.launch(false);
        }
    }

    // ---- what may be asked of it ------------------------------------------------------------------------------------------

    /// After what lies in the mailbox now.
    pub(super) fn stop(self: &Arc<Self>) {
        let next = self.desk.ask_stop(!self.core.is_kept);
        self.then(next);
    }

    /// After the message at hand.
    pub(super) fn shut_down(self: &Arc<Self>) {
        let next = self.desk.ask(NOW);
        self.then(next);
    }

    /// The last address was dropped.
    pub(super) fn look(self: &Arc<Self>) {
        let next = self.desk.ask(LOOK);
        self.then(next);
    }

    /// Now. A handler that waits is cancelled; one that runs is cancelled when it waits.
    pub(super) fn kill(self: &Arc<Self>, reason: StopReason) {
        self.core.with_extra(|extra| _ = extra.reason.get_or_insert(reason));
        let next = self.desk.ask(KILL);
        self.then(next);
        // The other half is in `parks`: a handler that begins to wait after the request finds it, one that began before is noted there.
        cancel_waiting(&self.core.interrupt, &CancelReason::Handle);
    }

    /// The supervisor starts the next life. False: it is not held.
    pub(super) fn start_life(self: &Arc<Self>, factory: Factory<A>) -> bool {
        self.body.with(|body| *body = Body::Make(factory));
        let started = self.desk.word.start();
        if started {
            self.launch(false);
        }
        started
    }

    /// The supervisor gives a held actor up.
    pub(super) fn release(self: &Arc<Self>, reason: StopReason) {
        if self.desk.word.release() {
            self.close(reason, None);
        }
    }

    // ---- a turn -----------------------------------------------------------------------------------------------------------

    fn turn(self: Arc<Self>) {
        // S2-04, checked where an actor leaves the queue.
        let is_runnable = self.desk.word.begin();
        assert!(is_runnable, "fibra: a turn of an actor that is not runnable (a bug in fibra, please report it)");
        let running = Running { cell: &self, marks: Marks::new(self.core.id), has_left: std::cell::Cell::new(false) };
        let domain = self.core.domain();
        let rest = watched(&running, || match &domain {
            Some(domain) => domain.within(|| self.play(&running.marks)),
            None => self.play(&running.marks),
        });
        if let Some(behind) = rest {
            self.launch(behind);
        }
        if let Some(domain) = domain {
            domain.leave();
        }
    }

    /// Plays one turn. Some: the next one is to be launched, behind others or not.
    fn play(self: &Arc<Self>, marks: &Marks) -> Option<bool> {
        let mut ctx = Context::new(self.clone());
        let mut actor = match self.enter(&mut ctx, marks) {
            Ok(actor) => actor,
            Err((actor, reason)) => {
                self.finish(actor, reason, None, marks);
                return None;
            }
        };
        loop {
            let mut kept = None;
            let turned = catch_unwind(AssertUnwindSafe(|| self.messages(&mut actor, &mut ctx, marks, &mut kept)));
            let spent = match turned {
                Ok(Ok(Turned::Idle)) => false,
                Ok(Ok(Turned::Spent)) => true,
                Ok(Ok(Turned::End(reason))) => {
                    self.finish(Some(actor), reason, None, marks);
                    return None;
                }
                Ok(Err(failure)) => {
                    self.finish(Some(actor), StopReason::Failed(failure), kept, marks);
                    return None;
                }
                Err(payload) => {
                    let reason = self.reason_of(payload);
                    let kept = kept.filter(|_| reason.failure().is_some());
                    self.finish(Some(actor), reason, kept, marks);
                    return None;
                }
            };
            // Acquire: what the dropped addresses' owners did is seen. (None is left: none can come, but from this very turn.)
            if !spent && self.core.addresses.load(Ordering::Acquire) == 0 && self.desk.is_idle() {
                self.finish(Some(actor), StopReason::Unreachable, None, marks);
                return None;
            }
            self.put(Body::Here(actor));
            match self.desk.rest() {
                Rest::Idle => return None,
                Rest::Launch => return Some(spent),
                Rest::Look => {}
            }
            let Body::Here(back) = self.body.with(|body| std::mem::replace(body, Body::Away)) else {
                unreachable!("it was put there a moment ago, and the turn goes on")
            };
            actor = back;
        }
    }

    fn put(&self, body: Body<A>) {
        let before = self.body.with(|slot| std::mem::replace(slot, body));
        debug_assert!(matches!(before, Body::Away), "two turns at once");
    }

    /// Takes the value out, making and starting it if this is the first turn of a life.
    #[allow(clippy::type_complexity)]
    fn enter(&self, ctx: &mut Context<A>, marks: &Marks) -> Result<A, (Option<A>, StopReason)> {
        let made = match self.body.with(|body| std::mem::replace(body, Body::Away)) {
            Body::Here(actor) => return Ok(actor),
            Body::New(actor) => Ok(actor),
            Body::Make(factory) => match catch_unwind(AssertUnwindSafe(|| factory())) {
                Ok(made) => made,
                Err(payload) => return Err((None, self.reason_of(payload))),
            },
            Body::Away => unreachable!("fibra: two turns of one actor at once (a bug in fibra, please report it)"),
        };
        let mut actor = made.map_err(|failure| (None, StopReason::Failed(failure)))?;
        let started = catch_unwind(AssertUnwindSafe(|| actor.started(ctx)));
        marks.answer(if matches!(started, Ok(Ok(()))) { CallError::Dropped } else { CallError::Crashed });
        match started {
            Ok(Ok(())) => {
                if let Some(keeper) = self.core.if_extra(|extra| extra.keeper.clone()) {
                    keeper.has_started();
                }
                Ok(actor)
            }
            Ok(Err(failure)) => Err((Some(actor), StopReason::Failed(failure))),
            Err(payload) => {
                let reason = self.reason_of(payload);
                Err((Some(actor), reason))
            }
        }
    }

    /// Handles messages, up to the budget.
    #[inline]
    fn messages(
        &self,
        actor: &mut A,
        ctx: &mut Context<A>,
        marks: &Marks,
        kept: &mut Option<Again<A::Message>>,
    ) -> Result<Turned, Failure> {
        for _ in 0..self.core.budget {
            let (message, crashes) = match self.desk.take() {
                Take::Letter(letter) => (letter.open(), 0),
                Take::Again(again) if again.crashes > 1 => {
                    actor.on_poison(again.message, ctx);
                    marks.answer(CallError::Dropped);
                    continue;
                }
                Take::Again(again) => (again.message, again.crashes),
                Take::Nothing => return Ok(Turned::Idle),
                Take::Stop => return Ok(Turned::End(StopReason::Stopped)),
                Take::Now => return Ok(Turned::End(StopReason::Shutdown)),
                Take::Kill => return Ok(Turned::End(self.kill_reason())),
            };
            *kept = A::redeliver(&message).map(|message| Again { message, crashes: crashes + 1 });
            actor.handle(message, ctx)?;
            *kept = None;
            marks.answer(CallError::Dropped);
        }
        Ok(Turned::Spent)
    }

    fn kill_reason(&self) -> StopReason {
        self.core.if_extra(|extra| extra.reason.take()).unwrap_or(StopReason::Killed)
    }

    /// What a handler or hook unwound with.
    fn reason_of(&self, payload: Box<dyn Any + Send>) -> StopReason {
        if !is_cancellation(&*payload) {
            return StopReason::Failed(Failure::of_panic(payload));
        }
        discard_payload(payload);
        if self.desk.word.requests() & KILL != 0 { self.kill_reason() } else { StopReason::Shutdown }
    }

    // ---- the end ------------------------------------------------------------------------------------------------------------

    /// A life is over.
    fn finish(self: &Arc<Self>, actor: Option<A>, reason: StopReason, kept: Option<Again<A::Message>>, marks: &Marks) {
        let is_failure = reason.failure().is_some();
        marks.mode.set(if is_failure { Mode::Crashed } else { Mode::Ended });
        marks.answer(marks.mode.get().refusal());
        if let Some(mut actor) = actor {
            let mut panics = FirstPanic::default();
            // Shielded: one that was killed cleans up all the same.
            panics.catch(|| shield(|| actor.stopping(&reason)));
            panics.catch(|| shield(|| drop(actor)));
        }
        if is_failure && let Some(kept) = kept {
            self.desk.keep_for_later(kept);
        }
        self.core.tell_bonds(&reason);
        match self.core.if_extra(|extra| extra.keeper.clone()) {
            Some(keeper) => {
                self.desk.hold();
                if !keeper.ended(reason.clone()) {
                    self.release(reason);
                }
            }
            None => {
                self.close(reason.clone(), Some(marks));
                self.desk.word.end();
                self.core.ended.set();
                // Those that came meanwhile: one that comes later finds that it has ended.
                self.core.tell_bonds(&reason);
            }
        }
    }

    /// Refuses everything from now on. Of one that was released, which is GONE by now, it is the end.
    fn close(&self, reason: StopReason, marks: Option<&Marks>) {
        let names = self.core.with_extra(|extra| {
            extra.reason = Some(reason.clone());
            std::mem::take(&mut extra.registered)
        });
        registry::forget(&names, self.core.id);
        let left = self.desk.close();
        if let Some(marks) = marks {
            marks.mode.set(Mode::Ended);
        }
        FirstPanic::default().drop_each(left);
        if marks.is_none() {
            self.core.ended.set();
            // As in `finish`.
            self.core.tell_bonds(&reason);
        }
    }

    /// A turn that was launched will never run: the runtime shuts down.
    fn abandon(self: &Arc<Self>) {
        let body = self.body.with(|body| std::mem::replace(body, Body::Away));
        FirstPanic::default().catch(|| drop(body));
        self.core.tell_bonds(&StopReason::Shutdown);
        self.desk.word.end();
        self.close(StopReason::Shutdown, None);
        if let Some(keeper) = self.core.if_extra(|extra| extra.keeper.clone()) {
            // (It is gone whatever that says.)
            let _ = keeper.ended(StopReason::Shutdown);
        }
        if let Some(domain) = self.core.domain() {
            domain.leave();
        }
    }
}

impl<A: Actor> AnyCell for Cell<A> {
    fn core(&self) -> &Core {
        &self.core
    }

    fn state(&self) -> ActorState {
        match self.desk.word.state() {
            // Woken, but not on its worker yet.
            ActorState::Waiting if !self.desk.word.is_held() && !self.core.interrupt.is_parked() => {
                ActorState::Runnable
            }
            state => state,
        }
    }

    fn kill_for(self: Arc<Self>, reason: StopReason) {
        self.kill(reason);
    }
}

impl<A: Actor> fmt::Debug for Cell<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell").field("core", &self.core).field("desk", &self.desk).finish()
    }
}

/// A turn that was launched. Dropped without having run, it ends the actor.
struct Turn<A: Actor>(Option<Arc<Cell<A>>>);

impl<A: Actor> Turn<A> {
    fn run(mut self) {
        if let Some(cell) = self.0.take() {
            cell.turn();
        }
    }
}

impl<A: Actor> Drop for Turn<A> {
    fn drop(&mut self) {
        if let Some(cell) = self.0.take() {
            cell.abandon();
        }
    }
}

/// A turn that runs, as the one that watches its fiber.
struct Running<'a, A: Actor> {
    cell: &'a Arc<Cell<A>>,
    marks: Marks,
    /// Its domain does not count it at the moment.
    has_left: std::cell::Cell<bool>,
}

impl<A: Actor> Watch for Running<'_, A> {
    fn parks(&self, how: &Wait) {
        let cell = self.cell;
        cell.desk.word.wait();
        if cell.core.is_counted {
            self.has_left.set(quiescence::parks(&cell.core, how, &self.marks));
        }
        if cell.desk.word.requests() & KILL != 0 {
            cancel_waiting(&cell.core.interrupt, &CancelReason::Handle);
        }
    }

    fn is_back(&self) {
        if self.cell.core.is_counted {
            quiescence::is_back(&self.cell.core, self.has_left.replace(false));
        }
        self.cell.desk.word.go_on();
    }

    fn interrupt(&self) -> &Interrupt {
        &self.cell.core.interrupt
    }

    fn data(&self) -> &dyn Any {
        &self.marks
    }

    fn owner(&self) -> Box<dyn Any> {
        let cell: Arc<dyn AnyCell> = self.cell.clone();
        Box::new(cell)
    }
}
