//! Actors: values that own a mailbox, handle one message at a time, may block, and are looked after when they fail.
//!
//! ```
//! use fibra::actor::{self, Actor, Addr, Context, Failure, Reply};
//!
//! struct Account {
//!     cents: i64,
//! }
//! enum Op {
//!     Deposit(i64),
//!     Balance(Reply<i64>),
//! }
//! impl Actor for Account {
//!     type Message = Op;
//!     fn handle(&mut self, op: Op, _: &mut Context<Self>) -> Result<(), Failure> {
//!         match op {
//!             Op::Deposit(cents) => self.cents += cents,
//!             Op::Balance(reply) => reply.send(self.cents),
//!         }
//!         Ok(())
//!     }
//! }
//!
//! fibra::run(|| {
//!     let account: Addr<Account> = actor::spawn(Account { cents: 0 });
//!     account.send(Op::Deposit(250)).unwrap();
//!     assert_eq!(account.call(Op::Balance), Ok(250));
//! });
//! ```
//!
//! * An actor without messages owns no stack and sits in no queue; it never holds up [`run`](crate::run).
//! * A handler may block, select, lock and do I/O: it keeps its fiber meanwhile, and the actor's later messages wait. It is never
//!   re-entered. Between messages an actor may move to another worker.
//! * Messages of one sender are handled in order. After [a number of messages](Builder::budget) others have their turn.
//! * When a handler fails, by an error or a panic, the actor has failed, and nothing else: its [supervisor](Supervisor) starts it anew
//!   under the same address. The mailbox is kept, the failing message is dropped, its caller gets [`CallError::Crashed`].
//!
//! # Layout
//!
//! ```text
//! state.rs    the state word and its table            desk.rs      mailbox and state: the protocol of senders and turns
//! mail.rs     what lies in a mailbox                  cell.rs      an actor with its value: turns, lives, the end
//! places.rs   senders that wait for a place           baton.rs     the lock without its value
//! core.rs     what all actors have                    addr.rs      Addr, WeakAddr, arms
//! call.rs     Reply, calls, circles of calls          context.rs   Context: timers, attached receivers, monitors, links
//! registry.rs names and groups                        lock.rs      Lock, lock_by_id
//! model.rs    models of the protocol                  recipient.rs Recipient
//! supervisor/ supervisors                             quiescence.rs run_until_quiescent
//! error.rs    errors and reasons                      builder.rs   Builder
//! ```

#[cfg(not(any(loom, shuttle)))]
mod addr;
mod baton;
#[cfg(not(any(loom, shuttle)))]
mod builder;
#[cfg(not(any(loom, shuttle)))]
mod call;
#[cfg(not(any(loom, shuttle)))]
mod cell;
#[cfg(not(any(loom, shuttle)))]
mod context;
#[cfg(not(any(loom, shuttle)))]
mod core;
mod desk;
#[cfg(not(any(loom, shuttle)))]
mod error;
#[cfg(not(any(loom, shuttle)))]
mod lock;
mod mail;
#[cfg(all(test, any(loom, shuttle)))]
mod model;
mod places;
#[cfg(not(any(loom, shuttle)))]
mod quiescence;
#[cfg(not(any(loom, shuttle)))]
mod recipient;
#[cfg(not(any(loom, shuttle)))]
pub mod registry;
mod state;
#[cfg(not(any(loom, shuttle)))]
mod supervisor;

#[cfg(not(any(loom, shuttle)))]
mod public {
    pub use super::addr::{Addr, SendArm, StoppedArm, WeakAddr};
    pub use super::builder::Builder;
    pub use super::call::Reply;
    pub use super::context::{Context, IntoReceiver, Plug};
    pub use super::error::{ActorId, CallError, Down, Failure, SendError, SendTimeoutError, StopReason, TrySendError};
    pub use super::lock::{AsyncLockGuard, Lock, LockError, LockGuard, lock_both, lock_by_id};
    pub use super::quiescence::{Deadlocked, StuckActor, run_until_quiescent};
    pub use super::recipient::Recipient;
    pub use super::registry::Group;
    pub use super::state::ActorState;
    pub use super::supervisor::{
        ChildOptions, Restart, Supervisor, SupervisorActor, SupervisorError, SupervisorMessage,
    };
    pub use crate::channel::Overflow;
}
#[cfg(not(any(loom, shuttle)))]
use self::core::Choices;
#[cfg(not(any(loom, shuttle)))]
pub use public::*;

/// A value with a mailbox.
///
/// An actor has one type of messages. One that takes several kinds has an `enum`: the compiler then checks that none is forgotten, a
/// mailbox is one queue without a box per message, and what other actors need is `From`: see [`Addr::recipient`].
#[cfg(not(any(loom, shuttle)))]
pub trait Actor: Sized + Send + 'static {
    /// What it is sent.
    type Message: Send + 'static;

    /// Handles one message.
    ///
    /// # Errors
    /// The actor has failed: it ends, or its supervisor starts it anew. A panic is the same.
    fn handle(&mut self, message: Self::Message, ctx: &mut Context<Self>) -> Result<(), Failure>;

    /// Called before the first message of each life.
    ///
    /// # Errors
    /// As [`handle`](Self::handle).
    fn started(&mut self, _ctx: &mut Context<Self>) -> Result<(), Failure> {
        Ok(())
    }

    /// Called at the end of each life, whatever the reason; after a failure the value may be half changed. It may block.
    fn stopping(&mut self, _why: &StopReason) {}

    /// A copy of a message, to be delivered once more if this life fails in handling it. By default there is none: the message that makes
    /// an actor fail is dropped. (For actors with a supervisor: others have no second life.)
    fn redeliver(_message: &Self::Message) -> Option<Self::Message> {
        None
    }

    /// Called with a message that has made the actor fail twice.
    fn on_poison(&mut self, _message: Self::Message, _ctx: &mut Context<Self>) {}
}

/// Starts an actor with a mailbox of 64 messages. [`Builder`] has choices.
///
/// # Panics
/// On a thread that is neither in a runtime nor has entered one with [`Handle::enter`](crate::Handle::enter).
#[cfg(not(any(loom, shuttle)))]
#[track_caller]
pub fn spawn<A: Actor>(actor: A) -> Addr<A> {
    let home = builder::home("actor::spawn");
    let site = std::panic::Location::caller();
    Addr::counted(cell::Cell::spawn(actor, home, &builder::defaults(), site))
}
