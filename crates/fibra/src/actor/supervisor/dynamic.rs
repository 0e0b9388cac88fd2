//! Children that come and go while their supervisor runs: what one asks of the address of a [`SupervisorActor`].
//!
//! Above: users. Below: `running`, whose turn does it, so that it never meets a restart half-way.

use std::panic::Location;
use std::sync::Arc;

use super::super::Actor;
use super::super::addr::Addr;
use super::super::builder::{self, Builder};
use super::super::error::{CallError, Failure};
use super::running::{SupervisorActor, SupervisorMessage};
use super::{ChildOptions, SupervisorError, add_child};

impl Addr<SupervisorActor> {
    /// Adds a child behind the others and starts it; waits until it has started. It is treated like those that the supervisor began with:
    /// also after a restart of the supervisor, if that has one of its own.
    ///
    /// A child cannot call this in its `started` or its factory, since the supervisor waits for these: it gets an error at once.
    ///
    /// ```
    /// use fibra::actor::{Actor, ChildOptions, Context, Failure, Restart, Supervisor};
    /// # struct Session;
    /// # impl Actor for Session {
    /// #     type Message = ();
    /// #     fn handle(&mut self, (): (), _: &mut Context<Self>) -> Result<(), Failure> { Ok(()) }
    /// # }
    /// fibra::run(|| {
    ///     let sessions = Supervisor::one_for_one().spawn();
    ///     let options = ChildOptions { restart: Restart::Transient, ..ChildOptions::default() };
    ///     let one = sessions.start_child("one", options, || Ok::<_, Failure>(Session)).unwrap();
    ///     one.send(()).unwrap();
    ///     assert_eq!(sessions.children(), Ok(vec![("one".to_owned(), true)]));
    ///     sessions.stop_child("one").unwrap();
    ///     assert!(!one.is_alive());
    /// });
    /// ```
    ///
    /// # Errors
    /// The child could not be started ([`SupervisorError::StartFailed`]) and was removed again; there is another one of this name; the
    /// caller is a child for whose start the supervisor waits ([`SupervisorError::WouldDeadlock`]); or the supervisor has ended.
    ///
    /// # Panics
    /// On a thread that is neither in a runtime nor has entered one.
    #[track_caller]
    pub fn start_child<A, E, F>(
        &self,
        name: impl AsRef<str>,
        options: ChildOptions,
        make: F,
    ) -> Result<Addr<A>, SupervisorError>
    where
        A: Actor,
        E: Into<Failure>,
        F: Fn() -> Result<A, E> + Send + Sync + 'static,
    {
        let (home, site) = (builder::home("start_child"), Location::caller());
        let name = name.as_ref().to_owned();
        let make = Arc::new(move || make().map_err(Into::into));
        self.call(move |reply| {
            SupervisorMessage::act(move |supervisor| {
                if supervisor.find_named(&name).is_some() {
                    return reply.send(Err(SupervisorError::NameTaken(name)));
                }
                let choices = Builder::new().name(&name).choices;
                let addr = add_child(&supervisor.children, home, choices, options, make, None, site);
                let started = supervisor.start_added();
                reply.send(match started {
                    Ok(()) => Ok(addr),
                    Err(reason) => Err(SupervisorError::StartFailed { child: name, reason: reason.to_string() }),
                });
            })
        })
        .unwrap_or_else(|error| Err(refused(error)))
    }

    /// Stops a child for good: it finishes the message at hand, and is killed after its `shutdown` time. Waits for its end.
    ///
    /// # Errors
    /// There is no child of this name, or the supervisor has ended.
    #[track_caller]
    pub fn stop_child(&self, name: impl AsRef<str>) -> Result<(), SupervisorError> {
        let name = name.as_ref().to_owned();
        self.call(move |reply| {
            SupervisorMessage::act(move |supervisor| {
                reply.send(match supervisor.find_named(&name) {
                    Some(index) => {
                        supervisor.stop_for_good(index);
                        Ok(())
                    }
                    None => Err(SupervisorError::NoSuchChild(name)),
                });
            })
        })
        .unwrap_or_else(|error| Err(refused(error)))
    }

    /// The names of its children, first first, and whether each is running.
    ///
    /// # Errors
    /// The supervisor has ended.
    #[track_caller]
    pub fn children(&self) -> Result<Vec<(String, bool)>, SupervisorError> {
        self.call(SupervisorMessage::children).map_err(refused)
    }
}

/// Why the supervisor has not done it.
fn refused(error: CallError) -> SupervisorError {
    match error {
        CallError::Cycle(names) => SupervisorError::WouldDeadlock(names),
        error => SupervisorError::Ended(error.to_string()),
    }
}
