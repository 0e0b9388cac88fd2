//! An actor with its type: the mailbox, the value, and its turns.
//!
//! Above: `addr`, `context`, `supervisor`. Below: `desk` (the protocol), `core`, `scope::launch` (a turn is a fiber of the root scope),
//! `wait::watch` (a turn learns that its handler waits).
//!
//! ```text
//!  launch ──▶ turn: take the key out ──▶ messages, up to the budget ──▶ put it back ──▶ EMPTY, or launch the next turn
//!                                            │ failure, stop, kill
//!                                            ▼
//!                                 stopping, drop the value, tell those who are bound; then GONE, or held for the supervisor
//! ```
//!
//! Invariants
//! * The value stays where it is, under a key (`prim::keyed`). The key lies in the desk whenever no turn runs, and is taken out by a turn:
//!   a second turn would find it gone (S2-56).
//! * From its start to its end a life has a reference to its own actor (its context). Every actor comes to its end: when its last address
//!   is dropped a turn is launched, which ends it, and so does a turn that is refused.
//! * A turn has a fiber from its launch to its end, and the actor no other stack: so one without a turn owns none.
//! * A turn that was launched but never ran (the runtime shuts down) ends the actor: see [`ActorTurn`].
//! * User code (handlers, hooks, destructors) runs with its panics caught.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;

use super::context::Context;
use super::core::{AnyCell, Choices, Core, Marks, Mode, refusing};
use super::desk::{ActorDesk, Next, Pause};
use super::error::{CallError, Failure, StopReason};
use super::mail::{Again, Hand, Take};
use super::state::{ActorState, KILL, NEW_HELD, NEW_RUNNABLE, NOW};
use super::{Actor, quiescence, registry};
use crate::cancel::{cancel_waiting, is_cancellation};
use crate::prim::atomic::Ordering;
use crate::prim::keyed::{Key, Keyed};
use crate::prim::{FirstPanic, discard_payload};
use crate::runtime::Handle;
use crate::task::{launch, shield};
use crate::wait::waitable::Wait;
use crate::wait::watch::{Interrupt, WaitObserver, watched};
use crate::waiter::cancel_reason::CancelReason;

/// Makes the value of a life.
pub(super) type Factory<A> = Arc<dyn Fn() -> Result<A, Failure> + Send + Sync>;

/// A life of an actor: what the turn that has the key works on.
pub(super) enum Life<A: Actor> {
    /// It is over, or has not begun.
    None,
    /// The value was not started yet.
    New(A),
    /// The first turn makes the value.
    Make(Factory<A>),
    /// The context has a reference to the actor itself, which ends with the life.
    Here(A, Context<A>),
}

impl<A: Actor> Life<A> {
    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::None)
    }
}

/// The right to work on the life of an actor: in the desk between turns.
pub(super) type LifeKey<A> = Key<Life<A>>;

/// See the header.
pub(super) struct Cell<A: Actor> {
    pub(super) core: Core,
    pub(super) desk: ActorDesk<A::Message, LifeKey<A>>,
    life: Keyed<Life<A>>,
}

/// How the messages of a turn came to an end.
enum Turned {
    /// There is none left.
    Idle,
    /// None was handled: the value is to be started first.
    Starts,
    /// None was handled: the actor was not RUNNABLE, or had no value.
    Not,
    /// The budget is spent.
    Spent,
    End(StopReason),
}

impl<A: Actor> Cell<A> {
    /// A new actor, whose first turn is launched.
    pub(super) fn spawn(actor: A, home: Handle, choices: &Choices, site: &'static Location<'static>) -> Arc<Self> {
        let cell = Self::new(Life::New(actor), NEW_RUNNABLE, home, choices, site);
        cell.launch(false);
        cell
    }

    /// One that is held until its supervisor starts it.
    pub(super) fn held(home: Handle, choices: &Choices, site: &'static Location<'static>) -> Arc<Self> {
        Self::new(Life::None, NEW_HELD, home, choices, site)
    }

    fn new(life: Life<A>, state: u32, home: Handle, choices: &Choices, site: &'static Location<'static>) -> Arc<Self> {
        let (life, key) = Keyed::new(life);
        let core = Core::new(life.number(), home, choices, site);
        let cell = Arc::new(Self { core, desk: ActorDesk::new(state, choices.capacity, Some(key)), life });
        quiescence::add_member(&cell);
        cell
    }

    /// Launches a turn. The caller has made the actor RUNNABLE.
    pub(super) fn launch(self: &Arc<Self>, behind: bool) {
        if let Some(domain) = self.core.domain() {
            domain.enter();
        }
        let turn = ActorTurn(Some(self.clone()));
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
        let next = self.desk.ensure_turn();
        self.then(next);
    }

    /// Now. A handler that waits is cancelled; one that runs is cancelled when it waits.
    pub(super) fn kill(self: &Arc<Self>, reason: StopReason) {
        // In one step, so that the reason and the request reach the same life; see `start_life`.
        let next = self.core.with_extra(|extra| {
            extra.reason.get_or_insert(reason);
            self.desk.ask(KILL)
        });
        self.then(next);
        // The other half is in `parks`: a handler that begins to wait after the request finds it, one that began before is noted there.
        self.cancel_killed();
    }

    /// Cancels the handler that waits, if it was killed: not that of the next life, in which the request is gone.
    fn cancel_killed(&self) {
        cancel_waiting(&self.core.interrupt, &CancelReason::Handle, || self.desk.seen().requests() & KILL != 0);
    }

    /// The supervisor starts the next life, which knows nothing of what was asked of the one before or meanwhile. False: it is not held.
    pub(super) fn start_life(self: &Arc<Self>, factory: Factory<A>) -> bool {
        let mut life = Life::Make(factory);
        let (started, _stale) = self.core.with_extra(|extra| {
            // (What was there is nothing, and goes with `life`.)
            let started = self.desk.start(|key| std::mem::swap(self.life.open(key), &mut life));
            (started, if started { extra.reason.take() } else { None })
        });
        if started {
            self.launch(false);
        }
        started
    }

    /// The supervisor gives a held actor up.
    pub(super) fn release(self: &Arc<Self>, reason: StopReason) {
        if self.desk.release() {
            self.close(reason, true);
        }
    }

    // ---- a turn -----------------------------------------------------------------------------------------------------------

    fn turn(self: Arc<Self>) {
        let running = Running { cell: &self, marks: Marks::new(self.core.id), has_left: std::cell::Cell::new(false) };
        let domain = self.core.domain();
        let rest = watched(&running, || match &domain {
            Some(domain) => domain.within(|| self.play(&running.marks)),
            None => self.play(&running.marks),
        });
        if rest {
            self.launch(true);
        }
        if let Some(domain) = domain {
            domain.leave();
        }
    }

    /// Plays one turn. True: the next one is to be launched, behind others.
    fn play(self: &Arc<Self>, marks: &Marks) -> bool {
        let (mut key, mut hand, mut begins) = (None, Hand::new(), true);
        loop {
            let mut kept = None;
            let messages = || self.messages(&mut key, &mut hand, &mut begins, marks, &mut kept);
            let (reason, kept) = match catch_unwind(AssertUnwindSafe(messages)) {
                Ok(Ok(Turned::Idle)) => return false,
                Ok(Ok(Turned::Spent)) => match self.desk.pause(&mut key, || self.has_address()) {
                    Pause::Idle => return false,
                    Pause::Launch => return true,
                    Pause::GoOn => continue,
                },
                Ok(Ok(Turned::Starts)) => match key.as_mut().map(|key| self.enter(self.life.open(key), marks)) {
                    Some(Err(reason)) => (reason, None),
                    _ => continue,
                },
                // S2-04, checked where an actor leaves the queue; S2-56.
                Ok(Ok(Turned::Not)) => {
                    panic!("fibra: a turn of an actor that is not runnable (a bug in fibra, please report it)")
                }
                Ok(Ok(Turned::End(reason))) => (reason, None),
                Ok(Err(failure)) => (StopReason::Failed(failure), kept),
                Err(payload) => (self.reason_of(payload), kept),
            };
            self.finish(key, reason, kept, marks);
            return false;
        }
    }

    /// Is there an address? Asked under the lock of the desk: the one who drops the last address looks at the state after that.
    #[inline]
    fn has_address(&self) -> bool {
        // Acquire: what the owners of dropped addresses did is seen. (None is left: none can come, but from this very turn.)
        self.core.addresses.load(Ordering::Acquire) != 0
    }

    /// Makes and starts the value: this is the first turn of a life.
    fn enter(self: &Arc<Self>, life: &mut Life<A>, marks: &Marks) -> Result<(), StopReason> {
        let made = match life.take() {
            Life::New(actor) => Ok(actor),
            Life::Make(factory) => match catch_unwind(AssertUnwindSafe(|| factory())) {
                Ok(made) => made,
                Err(payload) => return Err(self.reason_of(payload)),
            },
            Life::None | Life::Here(..) => panic!("fibra: a life that begins twice (a bug in fibra, please report it)"),
        };
        *life = Life::Here(made.map_err(StopReason::Failed)?, Context::new(self.clone()));
        let Life::Here(actor, ctx) = life else { return Ok(()) };
        let started = catch_unwind(AssertUnwindSafe(|| actor.started(ctx)));
        marks.answer(if matches!(started, Ok(Ok(()))) { CallError::Dropped } else { CallError::Crashed });
        match started {
            Ok(Ok(())) => {
                if let Some(keeper) = self.core.if_extra(|extra| extra.keeper.clone()) {
                    keeper.has_started();
                }
                Ok(())
            }
            Ok(Err(failure)) => Err(StopReason::Failed(failure)),
            Err(payload) => Err(self.reason_of(payload)),
        }
    }

    /// Handles messages, up to the budget.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn messages(
        &self,
        key: &mut Option<LifeKey<A>>,
        hand: &mut Hand<A::Message>,
        begins: &mut bool,
        marks: &Marks,
        kept: &mut Option<Box<Again<A::Message>>>,
    ) -> Result<Turned, Failure> {
        let is_ready = |key: &mut LifeKey<A>| matches!(self.life.open(key), Life::Here(..));
        for _ in 0..self.core.budget {
            let take = self.desk.next(std::mem::take(begins), key, hand, is_ready, || self.has_address());
            let Some(Life::Here(actor, ctx)) = key.as_mut().map(|key| self.life.open(key)) else {
                return Ok(match take {
                    Take::Rested => Turned::Idle,
                    Take::Starts => Turned::Starts,
                    _ => Turned::Not,
                });
            };
            let mut crashes = 0;
            if take != Take::Message {
                match take {
                    Take::Make => make_in(hand),
                    Take::Again => match hand.again.take() {
                        Some(again) if again.crashes > 1 => {
                            actor.on_poison(again.message, ctx);
                            marks.answer(CallError::Dropped);
                            continue;
                        }
                        Some(again) => {
                            crashes = again.crashes;
                            hand.message.put(again.message);
                        }
                        None => return Ok(Turned::Not),
                    },
                    Take::Stop => return Ok(Turned::End(StopReason::Stopped)),
                    Take::Now => return Ok(Turned::End(StopReason::Shutdown)),
                    Take::Kill => return Ok(Turned::End(self.kill_reason())),
                    Take::Unreachable => return Ok(Turned::End(StopReason::Unreachable)),
                    _ => return Ok(Turned::Not),
                }
            }
            let message = hand.message.take();
            if let Some(message) = A::redeliver(&message) {
                *kept = Some(Box::new(Again { message, crashes: crashes + 1 }));
            }
            actor.handle(message, ctx)?;
            if kept.is_some() {
                *kept = None;
            }
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
        if self.desk.seen().requests() & KILL != 0 { self.kill_reason() } else { StopReason::Shutdown }
    }

    // ---- the end ------------------------------------------------------------------------------------------------------------

    /// A life is over. What is dropped in here is user code, and none of it keeps the actor from its end.
    fn finish(
        self: &Arc<Self>,
        mut key: Option<LifeKey<A>>,
        reason: StopReason,
        kept: Option<Box<Again<A::Message>>>,
        marks: &Marks,
    ) {
        let is_failure = reason.failure().is_some();
        marks.mode.set(if is_failure { Mode::Crashed } else { Mode::Ended });
        marks.answer(marks.mode.get().refusal());
        let mut panics = FirstPanic::default();
        if let Some(Life::Here(mut actor, _ctx)) = key.as_mut().map(|key| self.life.open(key).take()) {
            // Shielded: one that was killed cleans up all the same.
            panics.catch(|| shield(|| actor.stopping(&reason)));
            panics.catch(|| shield(|| drop(actor)));
        }
        let before = match kept {
            Some(kept) if is_failure => self.desk.keep_for_later(kept),
            kept => kept,
        };
        panics.catch(|| drop(before));
        self.core.tell_bonds(&reason);
        match self.core.if_extra(|extra| extra.keeper.clone()) {
            Some(keeper) => {
                self.desk.hold(key);
                if !keeper.ended(reason.clone()) {
                    self.release(reason.clone());
                }
            }
            None => {
                self.close(reason.clone(), false);
                self.desk.end();
                self.core.ended.set();
                // Those that came meanwhile: one that comes later finds that it has ended.
                self.core.tell_bonds(&reason);
            }
        }
        panics.catch(|| drop(reason));
        panics.discard();
    }

    /// Refuses everything from now on. `is_gone`: it has no turn, and this is its end.
    fn close(&self, reason: StopReason, is_gone: bool) {
        let (names, _before) =
            self.core.with_extra(|extra| (std::mem::take(&mut extra.registered), extra.reason.replace(reason.clone())));
        registry::forget(&names, self.core.id);
        let left = self.desk.close();
        refusing(self.core.id, Mode::Ended, || {
            let mut panics = FirstPanic::default();
            panics.drop_each(left.letters());
            panics.discard();
        });
        if is_gone {
            self.core.ended.set();
            // As in `finish`.
            self.core.tell_bonds(&reason);
        }
    }

    /// A turn that was launched will never run: the runtime shuts down.
    fn abandon(self: &Arc<Self>) {
        let life = self.desk.take_value().map(|mut key| self.life.open(&mut key).take());
        refusing(self.core.id, Mode::Ended, || {
            let mut panics = FirstPanic::default();
            panics.catch(|| drop(life));
            panics.discard();
        });
        self.core.tell_bonds(&StopReason::Shutdown);
        self.desk.end();
        self.close(StopReason::Shutdown, true);
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
        let seen = self.desk.seen();
        match seen.state() {
            // Woken, but not on its worker yet.
            ActorState::Waiting if !seen.is_held() && !self.core.interrupt.is_parked() => ActorState::Runnable,
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

/// Makes the message in the turn's hand.
#[cold]
#[inline(never)]
fn make_in<M>(hand: &mut Hand<M>) {
    if let Some(make) = hand.make.take() {
        hand.message.put(make.make());
    }
}

/// A turn that was launched. Dropped without having run, it ends the actor.
struct ActorTurn<A: Actor>(Option<Arc<Cell<A>>>);

impl<A: Actor> ActorTurn<A> {
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn run(mut self) {
        let cell = self.0.take();
        // There is nothing left to be dropped.
        std::mem::forget(self);
        if let Some(cell) = cell {
            cell.turn();
        }
    }
}

impl<A: Actor> Drop for ActorTurn<A> {
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

impl<A: Actor> WaitObserver for Running<'_, A> {
    fn parks(&self, how: &Wait) {
        let cell = self.cell;
        let is_killed = cell.desk.wait();
        if cell.core.is_counted {
            self.has_left.set(quiescence::parks(&cell.core, how, &self.marks));
        }
        if is_killed {
            cell.cancel_killed();
        }
    }

    fn is_back(&self) {
        if self.cell.core.is_counted {
            quiescence::is_back(&self.cell.core, self.has_left.replace(false));
        }
        self.cell.desk.go_on();
    }

    fn interrupt(&self) -> &Interrupt {
        &self.cell.core.interrupt
    }

    fn data(&self) -> &dyn Any {
        &self.marks
    }

    fn label(&self) -> Option<String> {
        let core = &self.cell.core;
        Some(match core.name() {
            Some(name) => format!("{} \"{name}\"", core.id),
            None => core.id.to_string(),
        })
    }

    fn owner(&self) -> Box<dyn Any> {
        let cell: Arc<dyn AnyCell> = self.cell.clone();
        Box::new(cell)
    }
}
