//! [`Builder`]: an actor with a name, a mailbox of another size, another overflow policy or budget.

use std::io;
use std::panic::Location;
use std::sync::Arc;

use super::Actor;
use super::addr::Addr;
use super::cell::Cell;
use super::core::Choices;
use super::places::MOST;
use crate::channel::Overflow;
use crate::runtime::Handle;
use crate::task::no_runtime;

/// Messages that a mailbox holds by default.
pub(super) const MAILBOX: usize = 64;
/// Messages of one turn by default: then others have theirs.
pub(super) const BUDGET: u32 = 32;

pub(super) fn defaults() -> Choices {
    Choices { name: None, capacity: MAILBOX, overflow: Overflow::Block, budget: BUDGET, keeper: None }
}

#[track_caller]
pub(super) fn home(what: &str) -> Handle {
    match Handle::try_current() {
        Some(home) => home,
        None => no_runtime(what),
    }
}

/// What one may choose about an actor before it is spawned.
///
/// ```
/// use fibra::actor::{Actor, Builder, Context, Failure};
/// use fibra::channel::Overflow;
/// # struct Log;
/// # impl Actor for Log {
/// #     type Message = String;
/// #     fn handle(&mut self, _: String, _: &mut Context<Self>) -> Result<(), Failure> { Ok(()) }
/// # }
/// # fn main() -> std::io::Result<()> {
/// fibra::run(|| {
///     let log = Builder::new().name("log").mailbox(1024).overflow(Overflow::DropOldest).budget(8).spawn(Log)?;
///     assert_eq!(log.name().as_deref(), Some("log"));
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone)]
#[must_use = "it does nothing before `spawn`"]
pub struct Builder {
    pub(super) choices: Choices,
}

impl Builder {
    /// The defaults: no name, a mailbox of 64, senders wait, 32 messages a turn.
    pub fn new() -> Self {
        Self { choices: defaults() }
    }

    /// A name, for reports. (To be found by a name, see [`registry`](super::registry).)
    pub fn name(mut self, name: impl AsRef<str>) -> Self {
        self.choices.name = Some(Arc::from(name.as_ref()));
        self
    }

    /// How many messages the mailbox holds; at least 1.
    pub fn mailbox(mut self, capacity: usize) -> Self {
        self.choices.capacity = capacity.min(MOST);
        self
    }

    /// What happens to a message for which there is no place: its sender waits, it is dropped, or the oldest one is. A call whose message
    /// is dropped fails with [`CallError::Dropped`](super::CallError::Dropped).
    pub fn overflow(mut self, policy: Overflow) -> Self {
        self.choices.overflow = policy;
        self
    }

    /// How many messages it handles before other actors have their turn; at least 1.
    pub fn budget(mut self, messages: u32) -> Self {
        self.choices.budget = messages;
        self
    }

    /// Starts the actor.
    ///
    /// # Errors
    /// A mailbox or a budget of 0.
    ///
    /// # Panics
    /// On a thread that is neither in a runtime nor has entered one.
    #[track_caller]
    pub fn spawn<A: Actor>(self, actor: A) -> io::Result<Addr<A>> {
        let invalid = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if self.choices.capacity == 0 {
            return invalid("an actor with a mailbox of 0 could never be sent to: give at least 1");
        }
        if self.choices.budget == 0 {
            return invalid("an actor with a budget of 0 messages a turn would never handle one: give at least 1");
        }
        let home = home("actor::Builder::spawn");
        Ok(Addr::counted(Cell::spawn(actor, home, &self.choices, Location::caller())))
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Choices { name, capacity, overflow, budget, .. } = &self.choices;
        f.debug_struct("Builder")
            .field("name", name)
            .field("mailbox", capacity)
            .field("overflow", overflow)
            .field("budget", budget)
            .finish()
    }
}
