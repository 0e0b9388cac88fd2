//! What all actors have, whatever their type: id, runtime, address count, end, and what few of them have (name, links, timers, supervisor).
//!
//! Above: `cell` (an actor with its type), `addr`, `context`, `supervisor`, `quiescence`. Below: `state`, `sync`, `wait::watch`.
//!
//! Invariants
//! * `addresses` counts addresses; it leaves 0 only by the running actor itself ([`Context::address`](super::Context::address)).
//! * `ended` is set once, when the actor is GONE for good, after the reason was written.
//! * Whatever is taken out of [`Extra`] is used and dropped without its lock: it may be user code.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, OnceLock};

use super::error::{ActorId, CallError, Down, StopReason};
use super::quiescence::{Domain, WaitingFor};
use super::state::ActorState;
use crate::channel::Overflow;
use crate::prim::FirstPanic;
use crate::prim::atomic::AtomicU32;
use crate::prim::spin::SpinLock;
use crate::runtime::Handle;
use crate::sched::current;
use crate::sync::Event;
use crate::task::JoinHandle;
use crate::wait::waitable::Wait;
use crate::wait::watch::{self, Interrupt};

/// An actor, as others see it that do not know its type.
pub(super) trait AnyCell: Send + Sync {
    fn core(&self) -> &Core;
    fn state(&self) -> ActorState;
    /// Ends it because of this reason, now: the handler is cancelled.
    fn kill_for(self: Arc<Self>, reason: StopReason);
}

/// The one that decides what happens when a life of an actor ends.
pub(super) trait Keeper: Send + Sync {
    /// A life has ended; the actor is held until the keeper starts the next one, or releases it. False: the keeper has given it up.
    fn ended(&self, reason: StopReason) -> bool;
    /// The first turn of a life has begun and `started` has returned.
    fn has_started(&self);
}

/// One that is told when a life ends.
pub(super) enum Bond {
    Monitor(Box<dyn FnOnce(Down) + Send>),
    Link(Arc<dyn AnyCell>),
}

/// A call that an actor waits in; `is_answered` as soon as there is an answer.
pub(super) struct CallEdge {
    pub(super) callee: Arc<dyn AnyCell>,
    pub(super) is_answered: crate::prim::atomic::AtomicBool,
}

/// What few actors have.
#[derive(Default)]
pub(super) struct Extra {
    pub(super) name: Option<Arc<str>>,
    pub(super) reason: Option<StopReason>,
    pub(super) bonds: Vec<Bond>,
    /// Timers and attached receivers of this life.
    pub(super) plugs: Vec<JoinHandle<()>>,
    pub(super) calls: Vec<Arc<CallEdge>>,
    /// Under which names the registry has it.
    pub(super) registered: Vec<String>,
    pub(super) keeper: Option<Arc<dyn Keeper>>,
    pub(super) waiting_for: Option<WaitingFor>,
    pub(super) domain: Option<Arc<Domain>>,
}

/// What one chooses when an actor is made.
#[derive(Clone)]
pub(super) struct Choices {
    pub(super) name: Option<Arc<str>>,
    pub(super) capacity: usize,
    pub(super) overflow: Overflow,
    pub(super) budget: u32,
    pub(super) keeper: Option<Arc<dyn Keeper>>,
}

/// The end of an actor, which few wait for: the event is made for the first one who does.
///
/// Whether it is over changes under a lock, and one who waits looks at it under that lock when the event is there: so either it sees that
/// it is over, or the end finds the event.
pub(super) struct End {
    is_over: SpinLock<bool>,
    event: OnceLock<Box<Event>>,
}

impl End {
    fn new() -> Self {
        Self { is_over: SpinLock::new(false), event: OnceLock::new() }
    }

    pub(super) fn is_set(&self) -> bool {
        self.is_over.with(|is_over| *is_over)
    }

    /// It is over; those that wait go on.
    pub(super) fn set(&self) {
        self.is_over.with(|is_over| *is_over = true);
        if let Some(event) = self.event.get() {
            event.set();
        }
    }

    /// To wait for.
    pub(super) fn event(&self) -> &Event {
        let event = self.event.get_or_init(Box::default);
        if self.is_set() {
            event.set();
        }
        event
    }
}

/// See the header.
pub(super) struct Core {
    pub(super) id: ActorId,
    pub(super) home: Handle,
    pub(super) site: &'static Location<'static>,
    pub(super) addresses: AtomicU32,
    pub(super) ended: End,
    pub(super) interrupt: Interrupt,
    pub(super) budget: u32,
    pub(super) overflow: Overflow,
    pub(super) is_kept: bool,
    pub(super) is_counted: bool,
    extra: SpinLock<Option<Box<Extra>>>,
}

impl Core {
    pub(super) fn new(id: u64, home: Handle, choices: &Choices, site: &'static Location<'static>) -> Self {
        let domain = super::quiescence::current_domain();
        let is_counted = domain.is_some();
        let is_kept = choices.keeper.is_some();
        let extra = (choices.name.is_some() || is_kept || is_counted).then(|| {
            let (name, keeper) = (choices.name.clone(), choices.keeper.clone());
            Box::new(Extra { name, keeper, domain, ..Extra::default() })
        });
        Self {
            id: ActorId(id),
            home,
            site,
            addresses: AtomicU32::new(1),
            ended: End::new(),
            interrupt: Interrupt::new(),
            budget: choices.budget,
            overflow: choices.overflow,
            is_kept,
            is_counted,
            extra: SpinLock::new(extra),
        }
    }

    /// Calls `f` with what few have, made first if need be. No user code in there.
    pub(super) fn with_extra<R>(&self, f: impl FnOnce(&mut Extra) -> R) -> R {
        self.extra.with(|extra| f(extra.get_or_insert_default()))
    }

    /// The same if it is there.
    pub(super) fn if_extra<R: Default>(&self, f: impl FnOnce(&mut Extra) -> R) -> R {
        self.extra.with(|extra| extra.as_mut().map_or_else(R::default, |extra| f(extra)))
    }

    pub(super) fn name(&self) -> Option<Arc<str>> {
        self.if_extra(|extra| extra.name.clone())
    }

    /// How it is called in reports.
    pub(super) fn label(&self) -> String {
        match self.name() {
            Some(name) => name.to_string(),
            None => self.id.to_string(),
        }
    }

    pub(super) fn domain(&self) -> Option<Arc<Domain>> {
        if self.is_counted { self.if_extra(|extra| extra.domain.clone()) } else { None }
    }

    /// Why it has ended; of one that has.
    pub(super) fn reason(&self) -> StopReason {
        self.if_extra(|extra| extra.reason.clone()).unwrap_or(StopReason::Shutdown)
    }

    /// A life has ended: its timers and attached receivers go, and those who are bound to it are told. What a monitor's closure or its
    /// destructor panics with is dropped: the actor has to come to its end.
    pub(super) fn tell_bonds(&self, reason: &StopReason) {
        let (plugs, bonds) =
            self.if_extra(|extra| (std::mem::take(&mut extra.plugs), std::mem::take(&mut extra.bonds)));
        plugs.iter().for_each(JoinHandle::cancel);
        drop(plugs);
        let mut panics = FirstPanic::default();
        for bond in bonds {
            match bond {
                Bond::Monitor(tell) => {
                    let down = Down { id: self.id, name: self.name(), reason: reason.clone() };
                    panics.catch(|| tell(down));
                }
                Bond::Link(other) => {
                    let id = self.id;
                    // (The other one's half of the link is of no use any more.)
                    let mine = other.core().if_extra(|extra| {
                        let is_mine = |bond: &Bond| matches!(bond, Bond::Link(cell) if cell.core().id == id);
                        extra.bonds.iter().position(is_mine).map(|at| extra.bonds.swap_remove(at))
                    });
                    drop(mine);
                    if !reason.is_normal() {
                        other.kill_for(StopReason::Linked(id));
                    }
                }
            }
        }
        panics.discard();
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("id", &self.id.0).field("name", &self.name()).finish_non_exhaustive()
    }
}

/// What happens to a [`Reply`](super::Reply) that is dropped now, on this fiber.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// In a handler: how that ends decides.
    Handling,
    /// What the actor had is dropped, because of a failure.
    Crashed,
    /// What the actor had is dropped, because it has ended otherwise.
    Ended,
    /// A message is dropped that an overflow policy refused or evicted.
    Refused,
}

impl Mode {
    pub(super) fn refusal(self) -> CallError {
        match self {
            Self::Handling | Self::Refused => CallError::Dropped,
            Self::Crashed => CallError::Crashed,
            Self::Ended => CallError::Stopped,
        }
    }
}

/// A call whose reply was dropped.
pub(super) trait Refuse {
    fn refuse(self: Box<Self>, why: CallError);
}

/// What an actor waits for, in words that a report completes.
#[derive(Clone)]
pub(super) enum Detail {
    Actor(Arc<dyn AnyCell>),
    Lock(Arc<super::lock::LockCore>),
}

#[derive(Default)]
struct RareMarks {
    /// Calls whose replies the handler has dropped.
    unanswered: Vec<Box<dyn Refuse>>,
    /// What the handler is about to wait for.
    detail: Option<Detail>,
}

/// What a turn notes about the handler that runs; see [`watch::with_current`].
pub(super) struct Marks {
    pub(super) id: ActorId,
    pub(super) mode: Cell<Mode>,
    /// What few handlers need: a null pointer until one does.
    rare: RefCell<Option<Box<RareMarks>>>,
}

impl Marks {
    pub(super) fn new(id: ActorId) -> Self {
        Self { id, mode: Cell::new(Mode::Handling), rare: RefCell::new(None) }
    }

    /// The handler has dropped the reply of a call.
    pub(super) fn note_unanswered(&self, call: Box<dyn Refuse>) {
        self.rare.borrow_mut().get_or_insert_default().unanswered.push(call);
    }

    /// Answers the calls whose replies the handler has dropped.
    #[inline(always)]
    pub(super) fn answer(&self, why: CallError) {
        if self.rare.borrow().is_some() {
            self.answer_all(&why);
        }
    }

    #[cold]
    #[inline(never)]
    fn answer_all(&self, why: &CallError) {
        let unanswered = self.rare.borrow_mut().as_mut().map(|rare| std::mem::take(&mut rare.unanswered));
        for call in unanswered.into_iter().flatten() {
            call.refuse(why.clone());
        }
    }

    /// What the handler is about to wait for.
    pub(super) fn detail(&self) -> Option<Detail> {
        self.rare.borrow().as_ref()?.detail.clone()
    }

    /// Notes that. Gives what was noted before, which is not dropped in here.
    fn set_detail(&self, detail: Option<Detail>) -> Option<Detail> {
        std::mem::replace(&mut self.rare.borrow_mut().get_or_insert_default().detail, detail)
    }
}

/// Runs `f`, which drops what an actor had: calls that lose their replies in there are answered according to `mode`, also if another
/// actor's turn does it, such as that of a supervisor, or a plain thread.
pub(super) fn refusing(id: ActorId, mode: Mode, f: impl FnOnce()) {
    match InMode::enter(mode) {
        Some(_in_mode) => f(),
        None if current::fiber().is_none() => {
            let _in_mode = PlainMode(PLAIN.replace(mode));
            f();
        }
        None => {
            let marks = Marks::new(id);
            marks.mode.set(mode);
            watch::watched(&Refusing { marks, interrupt: Interrupt::new() }, f);
        }
    }
}

thread_local! {
    /// What happens to a reply that is dropped on this thread, where it runs no fiber.
    static PLAIN: Cell<Mode> = const { Cell::new(Mode::Refused) };
}

/// What happens to a reply that is dropped here, where no turn runs.
pub(super) fn plain_mode() -> Mode {
    if current::fiber().is_none() { PLAIN.get() } else { Mode::Refused }
}

/// A thread without a fiber has another mode until this is dropped, also by a panic.
struct PlainMode(Mode);

impl Drop for PlainMode {
    fn drop(&mut self) {
        PLAIN.set(self.0);
    }
}

/// Drops a message that an overflow policy refused or evicted: calls that lose their replies in there are answered at once, and not when
/// the handler of the sender has returned. (That handler may be the one that waits for the answer.)
#[cold]
pub(super) fn drop_refused<T>(message: T) {
    let _in_mode = InMode::enter(Mode::Refused);
    drop(message);
}

/// The turn that runs here has another mode until this is dropped, also by a panic.
struct InMode(Mode);

impl InMode {
    /// None: no turn runs here.
    fn enter(mode: Mode) -> Option<Self> {
        watch::with_current::<Marks, _>(|marks, _| marks.mode.replace(mode)).map(Self)
    }
}

impl Drop for InMode {
    fn drop(&mut self) {
        watch::with_current::<Marks, _>(|marks, _| marks.mode.set(self.0));
    }
}

/// A fiber that drops what an actor had, and is no turn itself.
struct Refusing {
    marks: Marks,
    interrupt: Interrupt,
}

impl watch::WaitObserver for Refusing {
    fn parks(&self, _: &Wait) {}
    fn is_back(&self) {}
    fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }
    fn data(&self) -> &dyn Any {
        &self.marks
    }
    fn owner(&self) -> Box<dyn Any> {
        Box::new(())
    }
}

/// The actor whose handler runs here.
pub(super) fn current_id() -> Option<ActorId> {
    watch::with_current::<Marks, _>(|marks, _| marks.id)
}

/// The actor whose handler runs here, to be kept.
#[inline]
pub(super) fn current_actor() -> Option<Arc<dyn AnyCell>> {
    watch::with_current::<Marks, _>(|_, watch| watch.owner().downcast::<Arc<dyn AnyCell>>().ok().map(|cell| *cell))?
}

/// Notes what the handler that runs here is about to wait for, until the answer is dropped.
pub(super) fn note(detail: impl FnOnce() -> Detail) -> impl Drop {
    struct Noted(bool);
    impl Drop for Noted {
        fn drop(&mut self) {
            if self.0 {
                watch::with_current::<Marks, _>(|marks, _| marks.set_detail(None));
            }
        }
    }
    Noted(watch::with_current::<Marks, _>(|marks, _| marks.set_detail(Some(detail()))).is_some())
}
