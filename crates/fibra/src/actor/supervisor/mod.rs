//! Supervisors: actors that start others, and start them anew when they fail.
//!
//! Above: users. Below: `cell` (an actor that is *held* between two lives), `context` (pauses before a restart are its timers).
//!
//! ```text
//! mod.rs       Supervisor: strategy, limits, children; how it is started
//! child.rs     a child as its supervisor sees it: start and wait, stop and wait, give up
//! running.rs   SupervisorActor: what happens when a child ends
//! dynamic.rs   children that come and go while it runs
//! ```
//!
//! Outcomes, which `tests/actor/matrix.rs` compares with what happens. "Fails" is an error, a panic or a kill.
//!
//! | child | ends normally | fails |
//! |---|---|---|
//! | permanent | restarted | restarted |
//! | transient | removed | restarted |
//! | temporary | removed | removed |
//! | significant, when it is removed | the supervisor shuts down | the supervisor shuts down |
//!
//! | strategy | a restart of child *i* |
//! |---|---|
//! | one_for_one | starts *i* |
//! | one_for_all | stops all others, last first; starts all, first first |
//! | rest_for_one | stops those after *i*, last first; starts *i* and those after it |
//!
//! Temporary children that are stopped for the sake of another are removed, not started again. More than `max_restarts` within their time:
//! all children are stopped, last first, and the supervisor itself fails; if it has a supervisor, that decides about it. A child that is
//! stopped finishes the message at hand; after its `shutdown` time it is killed. A child that fails in `started`, or cannot be made, has
//! failed like any other, but when the supervisor starts for the first time: then the supervisor fails.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::addr::Addr;
use super::builder::{self, Builder};
use super::cell::{Cell, Factory};
use super::error::{Failure, StopReason};
use super::{Actor, Choices};
use crate::runtime::Handle;

mod child;
mod dynamic;
mod running;

use child::{ChildOf, Children};
pub use running::{SupervisorActor, SupervisorMessage};

/// Whom a failure concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Strategy {
    OneForOne,
    OneForAll,
    RestForOne,
}

/// When a child is started anew.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Restart {
    /// Always.
    #[default]
    Permanent,
    /// After a failure, a kill or the failure of one it is linked to.
    Transient,
    /// Never.
    Temporary,
}

/// How a supervisor treats a child.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildOptions {
    /// When it is started anew.
    pub restart: Restart,
    /// How long it may take to stop, before it is killed.
    pub shutdown: Duration,
    /// Does the supervisor shut down when this child is removed?
    pub significant: bool,
}

impl Default for ChildOptions {
    /// Permanent, 5 seconds, not significant.
    fn default() -> Self {
        Self { restart: Restart::Permanent, shutdown: Duration::from_secs(5), significant: false }
    }
}

/// Why a supervisor has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SupervisorError {
    /// There were more restarts in a time than it allows.
    TooManyRestarts {
        /// The child whose failure was the last one.
        child: String,
        /// How many there may be.
        allowed: u32,
        /// In which time.
        within: Duration,
        /// Why that child has ended.
        reason: String,
    },
    /// A child could not be started when the supervisor was.
    StartFailed {
        /// Which one.
        child: String,
        /// Why.
        reason: String,
    },
    /// It has no child of this name.
    NoSuchChild(String),
    /// It has another child of this name, which must be stopped first.
    NameTaken(String),
    /// It waits for the very actor that asks it to start, and neither could go on: the names from the asking actor back to it.
    WouldDeadlock(Vec<String>),
    /// It was killed, or failed otherwise.
    Ended(String),
}

impl fmt::Display for SupervisorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyRestarts { child, allowed, within, reason } => {
                write!(
                    f,
                    "more than {allowed} restarts within {within:?}; the last one was of \"{child}\", which {reason}"
                )
            }
            Self::StartFailed { child, reason } => write!(f, "the child \"{child}\" could not be started: {reason}"),
            Self::NoSuchChild(name) => write!(f, "the supervisor has no child \"{name}\""),
            Self::NameTaken(name) => {
                write!(f, "the supervisor has a child \"{name}\" already: stop that one first, or choose another name")
            }
            Self::WouldDeadlock(names) => write!(
                f,
                "these actors would wait for each other for ever: {}; a child that starts (its factory or `started`) \
                 must not wait for its supervisor: ask in a later message, such as one that `started` sends to itself",
                names.join(" waits for ")
            ),
            Self::Ended(reason) => write!(f, "the supervisor has ended: {reason}"),
        }
    }
}

impl std::error::Error for SupervisorError {}

/// What a supervisor goes by.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) strategy: Strategy,
    pub(super) max_restarts: u32,
    pub(super) within: Duration,
    pub(super) backoff: (Duration, Duration),
    pub(super) name: Option<String>,
}

/// A supervisor that is being described: its children, and what happens when they fail. See the tables in the guide.
///
/// ```
/// use fibra::actor::{self, Actor, CallError, Context, Failure, Reply, Supervisor};
/// use std::time::Duration;
///
/// struct Counter(u32);
/// enum Msg { Add, Crash, Get(Reply<u32>) }
/// impl Actor for Counter {
///     type Message = Msg;
///     fn handle(&mut self, msg: Msg, _: &mut Context<Self>) -> Result<(), Failure> {
///         match msg {
///             Msg::Add => self.0 += 1,
///             Msg::Crash => return Err(Failure::msg("as asked")),
///             Msg::Get(reply) => reply.send(self.0),
///         }
///         Ok(())
///     }
/// }
/// fibra::run(|| {
///     let sup = Supervisor::one_for_one().max_restarts(5, Duration::from_secs(10));
///     let counter = sup.child("counter", || Ok::<_, Failure>(Counter(0)));
///     let sup = sup.spawn();
///     counter.send(Msg::Add).unwrap();
///     counter.send(Msg::Crash).unwrap();
///     counter.send(Msg::Add).unwrap(); // kept for the next life
///     assert_eq!(counter.call(Msg::Get), Ok(1)); // under the same address
///     sup.stop();
///     sup.stopped();
///     assert_eq!(counter.call(Msg::Get), Err(CallError::Stopped));
/// });
/// ```
#[must_use = "it does nothing before `spawn` or `run`"]
pub struct Supervisor {
    settings: Settings,
    children: Arc<Children>,
}

impl Supervisor {
    fn with(strategy: Strategy) -> Self {
        let settings = Settings {
            strategy,
            max_restarts: 3,
            within: Duration::from_secs(5),
            backoff: (Duration::ZERO, Duration::ZERO),
            name: None,
        };
        Self { settings, children: Children::new() }
    }

    /// A child that fails is started anew, and no other.
    pub fn one_for_one() -> Self {
        Self::with(Strategy::OneForOne)
    }

    /// If one child fails, all are started anew.
    pub fn one_for_all() -> Self {
        Self::with(Strategy::OneForAll)
    }

    /// If one child fails, it and those after it are started anew.
    pub fn rest_for_one() -> Self {
        Self::with(Strategy::RestForOne)
    }

    /// How many restarts there may be within a time; one more, and the supervisor fails. By default 3 within 5 seconds.
    pub fn max_restarts(mut self, restarts: u32, within: Duration) -> Self {
        (self.settings.max_restarts, self.settings.within) = (restarts, within);
        self
    }

    /// A pause before a restart: `min` the first time, twice as long each time a child fails again soon, `max` at most; of that, a random
    /// part between one half and the whole. By default there is none.
    pub fn backoff(mut self, min: Duration, max: Duration) -> Self {
        self.settings.backoff = (min, max.max(min));
        self
    }

    /// A name, for reports.
    pub fn name(mut self, name: impl AsRef<str>) -> Self {
        self.settings.name = Some(name.as_ref().to_owned());
        self
    }

    /// Adds a child, which `make` makes for each of its lives, on the child's own turn. The address is good at once, and over restarts:
    /// what is sent to it waits for the child.
    ///
    /// # Panics
    /// On a thread that is neither in a runtime nor has entered one.
    #[track_caller]
    pub fn child<A, E, F>(&self, name: impl AsRef<str>, make: F) -> Addr<A>
    where
        A: Actor,
        E: Into<Failure>,
        F: Fn() -> Result<A, E> + Send + Sync + 'static,
    {
        self.child_with(name, ChildOptions::default(), make)
    }

    /// Adds a child that is treated as `options` say.
    ///
    /// # Panics
    /// As [`child`](Self::child).
    #[track_caller]
    pub fn child_with<A, E, F>(&self, name: impl AsRef<str>, options: ChildOptions, make: F) -> Addr<A>
    where
        A: Actor,
        E: Into<Failure>,
        F: Fn() -> Result<A, E> + Send + Sync + 'static,
    {
        self.child_built(Builder::new().name(name), options, make)
    }

    /// Adds a child with a mailbox, a policy or a budget of its own.
    ///
    /// # Panics
    /// As [`child`](Self::child); also if the mailbox or the budget is 0.
    #[track_caller]
    pub fn child_built<A, E, F>(&self, builder: Builder, options: ChildOptions, make: F) -> Addr<A>
    where
        A: Actor,
        E: Into<Failure>,
        F: Fn() -> Result<A, E> + Send + Sync + 'static,
    {
        let make = Arc::new(move || make().map_err(Into::into));
        self.add(builder.choices, options, make, None)
    }

    /// Adds a supervisor as a child. Its own children keep their addresses also when it is started anew.
    ///
    /// # Panics
    /// As [`child`](Self::child).
    #[track_caller]
    pub fn nest(&self, name: impl AsRef<str>, options: ChildOptions, inner: Supervisor) -> Addr<SupervisorActor> {
        let (settings, children) = (inner.settings.clone(), inner.children.clone());
        let choices = Builder::new().name(name).choices;
        let nested = children.clone();
        let make = Arc::new(move || Ok(SupervisorActor::new(settings.clone(), children.clone(), false)));
        self.add(choices, options, make, Some(nested))
    }

    #[track_caller]
    fn add<A: Actor>(
        &self,
        choices: Choices,
        options: ChildOptions,
        make: Factory<A>,
        nested: Option<Arc<Children>>,
    ) -> Addr<A> {
        assert!(
            choices.capacity > 0 && choices.budget > 0,
            "fibra: a child needs a mailbox and a budget of at least 1"
        );
        let home = builder::home("Supervisor::child");
        add_child(&self.children, home, choices, options, make, nested, Location::caller())
    }

    /// Starts the supervisor, which starts its children, one after the other. It runs until it is stopped, a significant child is removed,
    /// or it fails; dropping the address does not end it. It ends with its runtime at the latest.
    ///
    /// # Panics
    /// On a thread that is neither in a runtime nor has entered one.
    #[track_caller]
    pub fn spawn(self) -> Addr<SupervisorActor> {
        let home = builder::home("Supervisor::spawn");
        let mut choices = builder::defaults();
        choices.name = self.settings.name.as_deref().map(Arc::from);
        let actor = SupervisorActor::new(self.settings, self.children, true);
        Addr::counted(Cell::spawn(actor, home, &choices, Location::caller()))
    }

    /// Starts the supervisor and waits for its end.
    ///
    /// # Errors
    /// If it failed.
    ///
    /// # Panics
    /// As [`spawn`](Self::spawn).
    #[track_caller]
    pub fn run(self) -> Result<(), SupervisorError> {
        let reason = self.spawn().stopped();
        result_of(&reason)
    }
}

/// Adds a child that is held until its supervisor starts it.
fn add_child<A: Actor>(
    children: &Arc<Children>,
    home: Handle,
    choices: Choices,
    options: ChildOptions,
    make: Factory<A>,
    nested: Option<Arc<Children>>,
    site: &'static Location<'static>,
) -> Addr<A> {
    let keeper = children.next_keeper();
    let choices = Choices { keeper: Some(keeper.clone()), ..choices };
    let addr = Addr::counted(Cell::held(home, &choices, site));
    let name = choices.name.as_deref().unwrap_or("a child").to_owned();
    children.add(Arc::new(ChildOf::new(name, options, addr.clone(), make, keeper, nested)));
    addr
}

/// How the end of a supervisor reads to the one that ran it.
fn result_of(reason: &StopReason) -> Result<(), SupervisorError> {
    if reason.is_normal() {
        return Ok(());
    }
    let error = reason.failure().and_then(|failure| failure.downcast_ref::<SupervisorError>()).cloned();
    Err(error.unwrap_or_else(|| SupervisorError::Ended(reason.to_string())))
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").field("settings", &self.settings).finish_non_exhaustive()
    }
}
