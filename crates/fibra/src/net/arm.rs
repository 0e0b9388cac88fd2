//! Sockets as arms of a select: readiness, and accepting.
//!
//! A completion of the driver says that trying is worth it; the trying is done by whoever was called. `ReadyArm` says no more than that.
//! `AcceptArm` hands out a connection: if somebody else was faster, it has not won, and the select goes on.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::task::Waker;

use crate::select::case::Case;
use crate::select::{Arm, sealed};
use crate::wait::io::{Direction, Io, Readiness};
use crate::wait::waitable::{Published, Waitable};
use crate::waiter::node::{Node, Outcome};

/// Waiting until a socket can be read or written, as an arm; see [`TcpStream::readable`](super::TcpStream::readable). It yields an
/// `io::Result<()>`: an error if the wait could not be arranged, which is rare (the system is out of memory).
pub struct ReadyArm<'a> {
    readiness: Readiness<'a>,
    told: Cell<Outcome>,
}

impl<'a> ReadyArm<'a> {
    pub(crate) fn new<S: AsFd>(io: &'a Io<S>, direction: Direction) -> Self {
        Self { readiness: io.readiness(direction, io.reports(direction)), told: Cell::new(Outcome::Pending) }
    }
}

impl sealed::Sealed for ReadyArm<'_> {
    fn case(&mut self) -> Case<'_> {
        Case::object(&self.readiness, &self.told)
    }
}

impl Arm for ReadyArm<'_> {
    type Output = io::Result<()>;

    fn finish(&mut self) -> io::Result<()> {
        self.readiness.take_error().map_or(Ok(()), Err)
    }
}

impl fmt::Debug for ReadyArm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyArm").field("direction", &self.readiness.direction()).finish_non_exhaustive()
    }
}

/// A listener of any kind.
pub(super) trait Listening {
    /// A connection and where it comes from.
    type Accepted;
    fn readiness(&self) -> Readiness<'_>;
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
    readiness: Readiness<'a>,
    /// What a try has brought.
    accepted: RefCell<Option<io::Result<T>>>,
}

/// Accepting: what is waited for is the readiness of the listener, what is tried is more.
impl<T> Waitable for Offer<'_, T> {
    fn try_now(&self) -> Outcome {
        if self.readiness.has_failed() || self.accepted.borrow().is_some() {
            return Outcome::Done;
        }
        self.readiness.begin_try();
        loop {
            match self.listener.accept_if_any() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.readiness.end_try(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => {
                    *self.accepted.borrow_mut() = Some(done);
                    return Outcome::Done;
                }
            }
        }
    }

    fn publish(&self, node: &Node) -> Published {
        self.readiness.publish(node)
    }

    fn unpublish(&self, node: &Node, owed: &mut Vec<Waker>) {
        self.readiness.unpublish(node, owed);
    }

    fn is_won(&self) -> bool {
        self.try_now() != Outcome::Pending
    }
}

impl<'a, T> AcceptArm<'a, T> {
    pub(super) fn new(listener: &'a dyn Listening<Accepted = T>) -> Self {
        let offer = Offer { listener, readiness: listener.readiness(), accepted: RefCell::new(None) };
        Self { offer, told: Cell::new(Outcome::Pending) }
    }
}

impl<T> sealed::Sealed for AcceptArm<'_, T> {
    fn case(&mut self) -> Case<'_> {
        Case::object(&self.offer, &self.told)
    }
}

impl<T> Arm for AcceptArm<'_, T> {
    type Output = io::Result<T>;

    fn finish(&mut self) -> io::Result<T> {
        if let Some(error) = self.offer.readiness.take_error() {
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
