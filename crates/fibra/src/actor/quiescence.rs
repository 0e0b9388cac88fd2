//! [`run_until_quiescent`]: runs a program of actors until none of them has work and none can get any, and reports those that are stuck.
//!
//! Above: users. Below: `core`, `cell` (which tell a [`Domain`] of turns and waits), fiber-locals, by which everything that is started
//! inside belongs to the domain.
//!
//! A domain counts who may still send: the function, fibers that were started inside, turns of actors that are launched or run, timers and
//! attached receivers. A handler that waits counts as long as its wait may end from outside (a timer, a socket, a file, a future, a
//! select). When the count is 0, what still waits waits for another that waits: that is a deadlock.
//!
//! Invariants
//! * The count is raised before what it counts becomes visible, and lowered by that itself: so 0 is final, but for handlers that were woken
//!   and have not come back yet. Those are told by their fibers' words, which are not parked then; the look is repeated until all are.
//! * The fiber-local of a turn is not counted, the turn is; its clones, which fibers inherit that a handler starts, are.

use std::any::Any;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Actor;
use super::cell::Cell;
use super::core::{AnyCell, Core, Detail, Marks};
use super::error::{ActorId, StopReason};
use super::state::ActorState;
use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::prim::spin::SpinLock;
use crate::runtime::run;
use crate::scope::scope;
use crate::sync::Event;
use crate::task::{JoinHandle, current};
use crate::time::sleep;
use crate::wait::reason::WaitReason;
use crate::wait::waitable::Wait;
use crate::wait::watch::{Interrupt, WaitObserver, watched};

/// The pause between two looks at handlers that were woken and have not come back yet.
const PAUSE: Duration = Duration::from_micros(50);

/// What a handler waits for.
#[derive(Clone)]
pub(super) struct WaitingFor {
    reason: WaitReason,
    site: &'static Location<'static>,
    detail: Option<Detail>,
}

impl fmt::Display for WaitingFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail {
            Some(Detail::Actor(other)) => write!(f, "{} ({})", self.reason, other.core().label())?,
            Some(Detail::Lock(lock)) => {
                write!(f, "{} (lock {:#x}", self.reason, lock.id)?;
                match lock.owner() {
                    Some(owner) => write!(f, ", held by {owner})")?,
                    None => f.write_str(")")?,
                }
            }
            None => write!(f, "{}", self.reason)?,
        }
        write!(f, " at {}", self.site)
    }
}

/// Can the wait be ended by something that is no part of the domain?
fn ends_from_outside(how: &Wait) -> bool {
    use WaitReason::*;
    let by_time = how.deadline.is_some();
    by_time
        || matches!(
            how.reason,
            Sleep
                | BlockingQueued
                | BlockingRunning
                | BlockOn
                | Select
                | TokenCancelled
                | NetRead
                | NetWrite
                | NetAccept
                | NetConnect
                | NetLookup
                | FileCall
                | PipeRead
                | PipeWrite
                | ChildExit
                | StdinRead
                | MachineCall
                | MachineIdle
        )
}

/// See the header.
pub(super) struct Domain {
    active: AtomicUsize,
    is_quiet: Event,
    members: SpinLock<Vec<Weak<dyn AnyCell>>>,
}

impl Domain {
    fn new() -> Arc<Self> {
        Arc::new(Self { active: AtomicUsize::new(0), is_quiet: Event::new(), members: SpinLock::new(Vec::new()) })
    }

    pub(super) fn enter(&self) {
        // SeqCst: the count is one variable, and its changes are looked at in one order.
        self.active.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn leave(&self) {
        // SeqCst: as in `enter`; what was done before is seen by the one that finds 0.
        if self.active.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.is_quiet.set();
        }
    }

    fn is_active(&self) -> bool {
        // SeqCst: as in `enter`.
        self.active.load(Ordering::SeqCst) != 0
    }

    /// Runs a turn in here: what it starts belongs to the domain.
    pub(super) fn within<R>(self: &Arc<Self>, f: impl FnOnce() -> R) -> R {
        DOMAIN.scope(Member::Uncounted(self.clone()), f)
    }

    fn waiting(&self) -> Vec<Arc<dyn AnyCell>> {
        let members: Vec<_> = self.members.with(|members| {
            members.retain(|member| member.strong_count() > 0);
            members.iter().filter_map(Weak::upgrade).collect()
        });
        // (A held one waits for its supervisor.)
        let waits = |cell: &Arc<dyn AnyCell>| cell.core().if_extra(|extra| extra.waiting_for.is_some());
        members.into_iter().filter(waits).collect()
    }

    /// Waits until nothing inside can go on by itself; gives those that wait.
    fn until_quiet(&self, function: &Function, site: &'static Location<'static>) -> Vec<Arc<dyn AnyCell>> {
        loop {
            self.is_quiet.reset();
            if self.is_active() {
                self.is_quiet.wait_as(WaitReason::ActorsQuiescent, None, site);
                continue;
            }
            let waiting = self.waiting();
            // Woken, and not back yet? It is counted again when it is.
            let all_parked =
                waiting.iter().all(|cell| cell.core().interrupt.is_parked()) && function.is_parked_or_over();
            if all_parked && !self.is_active() {
                return waiting;
            }
            sleep(PAUSE);
        }
    }
}

/// One that counts, until it is dropped.
struct Share(Arc<Domain>);

impl Share {
    fn of(domain: Arc<Domain>) -> Self {
        domain.enter();
        Self(domain)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// How a fiber belongs to a domain.
enum Member {
    Not,
    Counted(Share),
    Uncounted(Arc<Domain>),
}

impl Member {
    fn domain(&self) -> Option<&Arc<Domain>> {
        match self {
            Self::Not => None,
            Self::Counted(share) => Some(&share.0),
            Self::Uncounted(domain) => Some(domain),
        }
    }
}

/// What a fiber inherits is counted, for as long as it lives.
impl Clone for Member {
    fn clone(&self) -> Self {
        self.domain().map_or(Self::Not, |domain| Self::Counted(Share::of(domain.clone())))
    }
}

crate::fiber_local! {
    inherit static DOMAIN: Member = Member::Not;
}

/// Runs `f`, whose fibers and tasks belong to no domain: for one that only waits for the end of an actor, and sends nothing.
pub(super) fn uncounted<R>(f: impl FnOnce() -> R) -> R {
    DOMAIN.scope(Member::Not, f)
}

/// The domain of what runs here.
pub(super) fn current_domain() -> Option<Arc<Domain>> {
    DOMAIN.if_set(|member| member.domain().cloned())?
}

/// A new actor, which is told of in reports if it belongs to a domain.
pub(super) fn add_member<A: Actor>(cell: &Arc<Cell<A>>) {
    if let Some(domain) = cell.core.domain() {
        let member: Weak<dyn AnyCell> = Arc::downgrade(cell) as _;
        domain.members.with(|members| members.push(member));
    }
}

/// A handler is about to wait. True: its domain does not count it until it is back.
pub(super) fn parks(core: &Core, how: &Wait, marks: &Marks) -> bool {
    let waiting_for = WaitingFor { reason: how.reason, site: how.site, detail: marks.detail() };
    core.with_extra(|extra| extra.waiting_for = Some(waiting_for));
    let leaves = !ends_from_outside(how);
    if leaves && let Some(domain) = core.domain() {
        domain.leave();
    }
    leaves
}

/// A handler's wait is over.
pub(super) fn is_back(core: &Core, has_left: bool) {
    if has_left && let Some(domain) = core.domain() {
        domain.enter();
    }
    let before = core.with_extra(|extra| extra.waiting_for.take());
    drop(before);
}

/// The function itself, which may wait like a handler.
struct Function {
    domain: Arc<Domain>,
    interrupt: Interrupt,
    waiting_for: SpinLock<Option<(WaitingFor, bool)>>,
}

impl Function {
    fn is_parked_or_over(&self) -> bool {
        self.waiting_for.with(|waiting| waiting.is_none()) || self.interrupt.is_parked()
    }
}

impl WaitObserver for Function {
    fn parks(&self, how: &Wait) {
        let waiting_for = WaitingFor { reason: how.reason, site: how.site, detail: None };
        let leaves = !ends_from_outside(how);
        self.waiting_for.with(|waiting| *waiting = Some((waiting_for, leaves)));
        if leaves {
            self.domain.leave();
        }
    }

    fn is_back(&self) {
        if self.waiting_for.with(|waiting| waiting.take()).is_some_and(|(_, has_left)| has_left) {
            self.domain.enter();
        }
    }

    fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    fn data(&self) -> &dyn Any {
        &()
    }

    fn owner(&self) -> Box<dyn Any> {
        Box::new(())
    }
}

/// An actor that waits for what will not come; see [`Deadlocked`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StuckActor {
    /// Which one; none if it is the function itself.
    pub id: Option<ActorId>,
    /// Its name, or its id.
    pub name: String,
    /// What it waits for, in words, and where.
    pub waits_for: String,
}

/// Actors were left waiting when nothing could go on any more; see [`run_until_quiescent`].
#[derive(Clone, Debug)]
pub struct Deadlocked {
    actors: Vec<StuckActor>,
}

impl Deadlocked {
    /// Those that wait.
    pub fn actors(&self) -> &[StuckActor] {
        &self.actors
    }
}

impl fmt::Display for Deadlocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadlock: no actor can go on, and these wait:")?;
        for actor in &self.actors {
            write!(f, "\n  {}: {}", actor.name, actor.waits_for)?;
        }
        Ok(())
    }
}

impl std::error::Error for Deadlocked {}

/// Runs `f`, and returns when no actor that was spawned inside has work and none can get any: no turn is launched or runs, fibers that were
/// started inside have ended, no timer or attached receiver is pending, and no handler waits for time, input or a future. On a thread
/// without a runtime it makes one, as [`run`](crate::run) does.
///
/// Messages from outside (from a thread, or an actor that was spawned before) are not foreseen.
///
/// ```
/// use fibra::actor::{self, Actor, Context, Failure, Lock};
/// use std::sync::Arc;
///
/// struct Fork { mine: Arc<Lock<()>>, other: Arc<Lock<()>> }
/// impl Actor for Fork {
///     type Message = ();
///     fn handle(&mut self, (): (), _: &mut Context<Self>) -> Result<(), Failure> {
///         let _mine = self.mine.lock();
///         while !self.other.is_locked() {
///             fibra::yield_now();
///         }
///         let _other = self.other.lock();
///         Ok(())
///     }
/// }
/// let stuck = actor::run_until_quiescent(|| {
///     let (a, b) = (Arc::new(Lock::new(())), Arc::new(Lock::new(())));
///     actor::spawn(Fork { mine: a.clone(), other: b.clone() }).send(()).unwrap();
///     actor::spawn(Fork { mine: b, other: a }).send(()).unwrap();
/// });
/// assert_eq!(stuck.unwrap_err().actors().len(), 2);
/// ```
///
/// # Errors
/// If handlers, or `f` itself, are left waiting for each other. They are listed, and then ended: the actors are killed, `f` is cancelled.
///
/// # Panics
/// With what `f` panicked with.
#[track_caller]
pub fn run_until_quiescent<F, T>(f: F) -> Result<T, Deadlocked>
where
    F: FnOnce() -> T,
{
    let site = Location::caller();
    if current().is_some() { run_here(f, site) } else { run(|| run_here(f, site)) }
}

fn run_here<F: FnOnce() -> T, T>(f: F, site: &'static Location<'static>) -> Result<T, Deadlocked> {
    let domain = Domain::new();
    let waiting_for = SpinLock::new(None);
    let function = &Function { domain: domain.clone(), interrupt: Interrupt::new(), waiting_for };
    scope(|s| {
        let share = Share::of(domain.clone());
        let child: JoinHandle<T> = s.spawn_local({
            let domain = domain.clone();
            move || {
                let _share = share;
                watched(function, || domain.within(f))
            }
        });
        let waiting = domain.until_quiet(function, site);
        let mut actors: Vec<StuckActor> = waiting.iter().map(|cell| stuck(&**cell)).collect();
        if let Some((waits, _)) = function.waiting_for.with(|waiting| waiting.clone()) {
            let waits_for = waits.to_string();
            actors.push(StuckActor { id: None, name: "the function itself".to_owned(), waits_for });
        }
        if actors.is_empty() {
            return child.join().map_err(|error| error.resume_unwind());
        }
        for cell in waiting {
            debug_assert_ne!(cell.state(), ActorState::Gone);
            cell.kill_for(StopReason::Killed);
        }
        child.cancel();
        let _ = child.join();
        Err(Deadlocked { actors })
    })
}

fn stuck(cell: &dyn AnyCell) -> StuckActor {
    let core = cell.core();
    let waits_for = core.if_extra(|extra| extra.waiting_for.as_ref().map(ToString::to_string)).unwrap_or_default();
    StuckActor { id: Some(core.id), name: core.label(), waits_for }
}
