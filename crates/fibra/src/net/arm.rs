//! Sockets as arms of a select: readiness, and accepting.
//!
//! A completion of the driver says that trying is worth it; the trying is done by whoever was called. `ReadyArm` says no more than that.
//! `AcceptArm` hands out a connection: if somebody else was faster, it has not won, and the select goes on.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::task::Waker;

use crate::select::case::{Case, Single};
use crate::select::{Arm, sealed};
use crate::wait::io::{Direction, Io, Seen};
use crate::wait::node::{Node, Outcome, WaiterRef};
use crate::wait::word::{Arm as ArmNumber, Ticket};

/// A socket of any kind, to the engine.
pub(crate) trait Watched {
    fn is_ready(&self, direction: Direction) -> io::Result<bool>;
    fn register(&self, direction: Direction) -> io::Result<()>;
    fn reports(&self, direction: Direction) -> Seen;
    fn link(
        &self,
        direction: Direction,
        seen: Seen,
        node: &Node,
        to: (WaiterRef, Ticket, ArmNumber),
    ) -> io::Result<bool>;
    fn unlink(&self, direction: Direction, node: &Node);
}

impl<S: AsFd> Watched for Io<S> {
    fn is_ready(&self, direction: Direction) -> io::Result<bool> {
        Io::is_ready(self, direction)
    }
    fn register(&self, direction: Direction) -> io::Result<()> {
        Io::register(self, direction)
    }
    fn reports(&self, direction: Direction) -> Seen {
        Io::reports(self, direction)
    }
    fn link(
        &self,
        direction: Direction,
        seen: Seen,
        node: &Node,
        to: (WaiterRef, Ticket, ArmNumber),
    ) -> io::Result<bool> {
        Io::link(self, direction, seen, node, to)
    }
    fn unlink(&self, direction: Direction, node: &Node) {
        Io::unlink(self, direction, node);
    }
}

/// Waiting until a socket can be read or written, as an arm; see [`TcpStream::readable`](super::TcpStream::readable). It yields an
/// `io::Result<()>`: an error if the wait could not be arranged, which is rare (the system is out of memory).
pub struct ReadyArm<'a> {
    wants: Wants<'a>,
    told: Cell<Outcome>,
}

/// What the engine sees.
struct Wants<'a> {
    io: &'a dyn Watched,
    direction: Direction,
    /// What had been reported before the last try.
    seen: Cell<Seen>,
    /// Why it cannot be waited for: then there is nothing to wait for.
    error: RefCell<Option<io::Error>>,
}

impl<'a> Wants<'a> {
    fn new(io: &'a dyn Watched, direction: Direction) -> Self {
        Self { io, direction, seen: Cell::new(io.reports(direction)), error: RefCell::new(None) }
    }

    /// A try begins.
    fn begin_try(&self) {
        self.seen.set(self.io.reports(self.direction));
    }

    /// True: it went wrong, and the arm has won by that.
    fn note(&self, done: io::Result<()>) -> bool {
        match done {
            Ok(()) => false,
            Err(error) => {
                *self.error.borrow_mut() = Some(error);
                true
            }
        }
    }

    fn has_failed(&self) -> bool {
        self.error.borrow().is_some()
    }

    /// Not ready: registers already now, when no locks are held.
    fn prepare(&self) -> bool {
        self.note(self.io.register(self.direction))
    }

    /// After a try in vain. False: there may be something now, or it went wrong.
    fn publish(&self, node: &Node, to: (WaiterRef, Ticket, ArmNumber)) -> bool {
        let linked = || self.io.link(self.direction, self.seen.get(), node, to);
        !self.has_failed() && linked().unwrap_or_else(|error| !self.note(Err(error)))
    }
}

impl Single for Wants<'_> {
    fn try_complete(&self) -> bool {
        if self.has_failed() {
            return true;
        }
        self.begin_try();
        match self.io.is_ready(self.direction) {
            Ok(true) => true,
            Ok(false) => self.prepare(),
            Err(error) => self.note(Err(error)),
        }
    }

    fn publish(&self, node: &Node, waiter: WaiterRef, ticket: Ticket, arm: ArmNumber) -> bool {
        Wants::publish(self, node, (waiter, ticket, arm))
    }

    fn unpublish(&self, node: &Node, _: &mut Vec<Waker>) {
        self.io.unlink(self.direction, node);
    }
}

impl<'a> ReadyArm<'a> {
    pub(crate) fn new(io: &'a dyn Watched, direction: Direction) -> Self {
        Self { wants: Wants::new(io, direction), told: Cell::new(Outcome::Pending) }
    }
}

impl sealed::Sealed for ReadyArm<'_> {
    fn case(&mut self) -> Case<'_> {
        Case::single(&self.wants, &self.told)
    }
}

impl Arm for ReadyArm<'_> {
    type Output = io::Result<()>;

    fn finish(&mut self) -> io::Result<()> {
        self.wants.error.take().map_or(Ok(()), Err)
    }
}

impl fmt::Debug for ReadyArm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyArm").field("direction", &self.wants.direction).finish_non_exhaustive()
    }
}

/// A listener of any kind.
pub(super) trait Listening {
    /// A connection and where it comes from.
    type Accepted;
    fn watched(&self) -> &dyn Watched;
    /// `WouldBlock`: there is none.
    fn accept_if_any(&self) -> io::Result<Self::Accepted>;
}

/// Accepting a connection, as an arm; see [`TcpListener::accepting`](super::TcpListener::accepting). It yields what `accept` returns. If
/// it wins and nobody asks for the connection, that is closed.
pub struct AcceptArm<'a, T> {
    offer: Offer<'a, T>,
    told: Cell<Outcome>,
}

struct Offer<'a, T> {
    listener: &'a dyn Listening<Accepted = T>,
    wants: Wants<'a>,
    /// What a try has brought.
    accepted: RefCell<Option<io::Result<T>>>,
}

impl<T> Single for Offer<'_, T> {
    fn try_complete(&self) -> bool {
        if self.wants.has_failed() || self.accepted.borrow().is_some() {
            return true;
        }
        self.wants.begin_try();
        loop {
            match self.listener.accept_if_any() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.wants.prepare(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => {
                    *self.accepted.borrow_mut() = Some(done);
                    return true;
                }
            }
        }
    }

    fn publish(&self, node: &Node, waiter: WaiterRef, ticket: Ticket, arm: ArmNumber) -> bool {
        self.wants.publish(node, (waiter, ticket, arm))
    }

    fn unpublish(&self, node: &Node, _: &mut Vec<Waker>) {
        self.wants.io.unlink(self.wants.direction, node);
    }

    fn is_won(&self) -> bool {
        self.try_complete()
    }
}

impl<'a, T> AcceptArm<'a, T> {
    pub(super) fn new(listener: &'a dyn Listening<Accepted = T>) -> Self {
        let wants = Wants::new(listener.watched(), Direction::Read);
        Self { offer: Offer { listener, wants, accepted: RefCell::new(None) }, told: Cell::new(Outcome::Pending) }
    }
}

impl<T> sealed::Sealed for AcceptArm<'_, T> {
    fn case(&mut self) -> Case<'_> {
        Case::single(&self.offer, &self.told)
    }
}

impl<T> Arm for AcceptArm<'_, T> {
    type Output = io::Result<T>;

    fn finish(&mut self) -> io::Result<T> {
        if let Some(error) = self.offer.wants.error.take() {
            return Err(error);
        }
        self.offer.accepted.take().expect("fibra: the result of an arm that did not win")
    }
}

impl<T> fmt::Debug for AcceptArm<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceptArm").finish_non_exhaustive()
    }
}
