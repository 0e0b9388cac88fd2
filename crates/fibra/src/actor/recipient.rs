//! [`Recipient`]: the address of an actor of which one only knows a message that it takes.
//!
//! Above: users. Below: `addr`. The conversion is made on the actor's own turn: a message that is not delivered comes back as it was.

use std::any::Any;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::Actor;
use super::addr::{Addr, without_timeout};
use super::error::{ActorId, SendError, SendTimeoutError, TrySendError};
use super::mail::{Letter, Make, NoPlace};
use crate::time::Instant;
use crate::wait::park;

impl<A: Actor> Addr<A> {
    /// An address that only knows one message that the actor takes, and not its type.
    pub fn recipient<M: Send + 'static>(&self) -> Recipient<M>
    where
        A::Message: From<M>,
    {
        Recipient { to: Arc::new(self.clone()) }
    }
}

/// One that takes messages of a type, whatever else it takes.
trait Takes<M>: Send + Sync {
    fn send(
        &self,
        message: M,
        deadline: Option<u64>,
        site: &'static Location<'static>,
    ) -> Result<(), SendTimeoutError<M>>;
    fn try_send(&self, message: M) -> Result<(), TrySendError<M>>;
    fn id(&self) -> ActorId;
    fn is_alive(&self) -> bool;
}

/// A message that is converted on the actor's turn, so that one that is not delivered comes back as it was.
struct Converted<M>(M);

impl<M: Send + 'static, T: From<M>> Make<T> for Converted<M> {
    fn make(self: Box<Self>) -> T {
        self.0.into()
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

fn converted_back<M: Send + 'static, T>(letter: Letter<T>) -> M {
    let Letter::Make(make) = letter else { unreachable!("a recipient sends what is converted") };
    make.into_any().downcast::<Converted<M>>().expect("the letter that was to be sent").0
}

impl<A: Actor, M: Send + 'static> Takes<M> for Addr<A>
where
    A::Message: From<M>,
{
    fn send(
        &self,
        message: M,
        deadline: Option<u64>,
        site: &'static Location<'static>,
    ) -> Result<(), SendTimeoutError<M>> {
        let sent = self.append_until(Letter::Make(Box::new(Converted(message))), deadline, site);
        sent.map_err(|error| error.map(converted_back))
    }
    fn try_send(&self, message: M) -> Result<(), TrySendError<M>> {
        park::count_call();
        let letter = Letter::Make(Box::new(Converted(message)));
        self.append_now(letter).map_err(|(no_place, letter)| match no_place {
            NoPlace::Full => TrySendError::Full(converted_back(letter)),
            _ => TrySendError::Stopped(converted_back(letter)),
        })
    }
    fn id(&self) -> ActorId {
        Addr::id(self)
    }
    fn is_alive(&self) -> bool {
        Addr::is_alive(self)
    }
}

/// The address of any actor that takes messages of type `M`; see [`Addr::recipient`].
pub struct Recipient<M> {
    to: Arc<dyn Takes<M>>,
}

impl<M> Recipient<M> {
    /// Sends a message; see [`Addr::send`].
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn send(&self, message: M) -> Result<(), SendError<M>> {
        self.to.send(message, None, Location::caller()).map_err(without_timeout)
    }

    /// Sends a message if there is a place; see [`Addr::try_send`].
    ///
    /// # Errors
    /// As there.
    pub fn try_send(&self, message: M) -> Result<(), TrySendError<M>> {
        self.to.try_send(message)
    }

    /// Sends a message within a time; see [`Addr::send_timeout`].
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn send_timeout(&self, message: M, timeout: Duration) -> Result<(), SendTimeoutError<M>> {
        self.to.send(message, Some(Instant::after(timeout).as_nanos()), Location::caller())
    }

    /// The id of the actor.
    pub fn id(&self) -> ActorId {
        self.to.id()
    }

    /// Has it not ended?
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.to.is_alive()
    }
}

impl<M> Clone for Recipient<M> {
    fn clone(&self) -> Self {
        Self { to: self.to.clone() }
    }
}

impl<M> fmt::Debug for Recipient<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recipient").field("id", &self.to.id().0).finish()
    }
}
