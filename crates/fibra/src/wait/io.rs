//! Waiting for a descriptor: the loop around every operation on a socket.
//!
//! ```text
//!  try ── done, or an error ─────────────────────────────────────────────▶ return
//!   │ EAGAIN                                                   ▲
//!   ├── on a fiber ─────▶ link, registered with this worker's driver (reactor::source) ── park ── completed ──▶ try again
//!   └── on a thread ────▶ poll(2), until the deadline ─────────────────────────────────────────▶ try again
//! ```
//!
//! Above: `net`, in safe code. Below: `park`, and `reactor::readiness`, whose header says why no edge is lost: before each try the
//! operation notes what has been reported.
//!
//! * The socket is in non-blocking mode; a user of [`Io`] never sees `WouldBlock` or `Interrupted`.
//! * Cancellation and time end only the wait: nothing was read or written, the registration stays, and the next operation begins with a
//!   try. Cancellation is delivered on entry or while waiting, never after a try that succeeded: data that was read is not lost.
//! * [`Io`] closes in order: registrations first, then the descriptor (the order of its fields).
//! * An operation that timed out tries once more: data that came in time is not hidden by a worker that was busy when both came.
//! * A TCP read shorter than its buffer means that the queue is empty: the next read begins with waiting ([`Io::operate_stream`]).
//! * A thread that waits in `poll` hears of cancellation on entry; if it is in a scope, where a canceller could reach it, it waits like a
//!   fiber instead, and the driver of `reactor::outside_io` completes its wait.
//! * An operation that need not wait would let its fiber run on for ever, if its peer is fast enough: each takes more from the budget of
//!   `park` than other calls, since it is a system call.

mod future;

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::panic::Location;
use std::task::Waker;
use std::time::Duration;

use super::park::{self, Wait, Waitable};
use super::reason::WaitReason;
use super::waitable::Published;
use crate::driver::{Timeout, socket};
use crate::prim::bug::seeded_bug;
use crate::prim::policy;
use crate::reactor::source::Source;
pub(crate) use crate::reactor::source::{Direction, Seen};
use crate::sched::current;
use crate::sched::here::Here;
use crate::waiter::node::{Node, Outcome};

/// How an operation waits, if it has to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) direction: Direction,
    pub(crate) reason: WaitReason,
    pub(crate) site: &'static Location<'static>,
    pub(crate) limit: Limit,
}

/// How long an operation waits at most.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Never,
    /// From the moment when it first has to wait.
    After(Duration),
    /// Until this moment of `prim::policy`.
    Until(u64),
}

impl Limit {
    fn deadline(self) -> Option<u64> {
        match self {
            Self::Never => None,
            Self::After(limit) => {
                Some(policy::now().saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)))
            }
            Self::Until(deadline) => Some(deadline),
        }
    }
}

/// A socket that does not block, and its place among the sources.
#[derive(Debug)]
pub(crate) struct Io<S> {
    // Before the descriptor.
    source: Opened,
    inner: S,
}

#[derive(Debug)]
struct Opened(&'static Source);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<S: AsFd> Io<S> {
    /// Takes over a socket in non-blocking mode.
    pub(crate) fn new(inner: S) -> Self {
        Self { source: Opened(Source::open(inner.as_fd().as_raw_fd())), inner }
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> &S {
        &self.inner
    }

    pub(crate) fn into_inner(self) -> S {
        self.inner
    }

    /// Does `attempt`, again and again as long as it would block, waiting in between. Time-outs are errors, cancellation unwinds.
    pub(crate) fn operate<T>(&self, ask: Ask, mut attempt: impl FnMut(&S) -> io::Result<T>) -> io::Result<T> {
        park::entry_of_operation();
        match self.attempt(ask.direction, &mut attempt) {
            Ok(done) => done,
            Err(seen) => self.wait_and_retry(ask, seen, attempt),
        }
    }

    /// The same for reading from a stream where a read shorter than its `room` has emptied the queue: true of TCP, not of Unix streams,
    /// where a read also stops at ancillary data.
    #[inline]
    pub(crate) fn operate_stream(
        &self,
        ask: Ask,
        room: usize,
        attempt: impl FnMut(&S) -> io::Result<usize>,
    ) -> io::Result<usize> {
        park::entry_of_operation();
        let source = self.source.0;
        let mut attempt = noting_short(source, room, attempt);
        let seen = match source.is_drained() {
            Some(seen) => seen,
            None => match self.attempt(Direction::Read, &mut attempt) {
                Ok(done) => return done,
                Err(seen) => seen,
            },
        };
        self.wait_and_retry(ask, seen, attempt)
    }

    /// One try. `Err`: it would block, with the number of reports *before* it: a report that comes between the try and the wait must make
    /// the wait stale.
    #[inline(always)]
    fn attempt<T>(
        &self,
        direction: Direction,
        attempt: &mut impl FnMut(&S) -> io::Result<T>,
    ) -> Result<io::Result<T>, Seen> {
        let seen = self.reports(direction);
        match try_once(&self.inner, attempt) {
            Some(done) => Ok(done),
            None if seeded_bug("io_notes_after_the_try") => Err(self.reports(direction)),
            None => Err(seen),
        }
    }

    /// After a try in vain, with the number of reports before it.
    fn wait_and_retry<T>(
        &self,
        ask: Ask,
        mut seen: Seen,
        mut attempt: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        let deadline = ask.limit.deadline();
        loop {
            let in_time = self.wait(ask, seen, deadline)?;
            match self.attempt(ask.direction, &mut attempt) {
                Ok(done) => return done,
                Err(now) if in_time => seen = now,
                Err(_) => return Err(timed_out()),
            }
        }
    }

    /// One wait, until trying again is worth it. False: time was up.
    fn wait(&self, ask: Ask, seen: Seen, deadline: Option<u64>) -> io::Result<bool> {
        if current::worker().is_none() && !may_be_cancelled() {
            return self.poll(ask, deadline);
        }
        let readiness = self.readiness(ask.direction, seen);
        let object = self.inner.as_fd().as_raw_fd() as u64;
        let ended = park::wait(&readiness, Wait { reason: ask.reason, object, site: ask.site, deadline });
        readiness.take_error().map_or(Ok(ended != Outcome::TimedOut), Err)
    }

    fn poll(&self, ask: Ask, deadline: Option<u64>) -> io::Result<bool> {
        let timeout = deadline.map_or(Timeout::Forever, Timeout::Until);
        socket::poll(self.inner.as_fd(), ask.direction.interest(), timeout)
    }

    /// One try, which may end with `WouldBlock`. It does not let others run.
    pub(crate) fn try_now<T>(&self, mut attempt: impl FnMut(&S) -> io::Result<T>) -> io::Result<T> {
        loop {
            match attempt(&self.inner) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// Is trying worth it now?
    pub(crate) fn is_ready(&self, direction: Direction) -> io::Result<bool> {
        socket::poll(self.inner.as_fd(), direction.interest(), Timeout::Until(0))
    }

    /// The number of reports so far: to be asked before a try.
    #[inline(always)]
    pub(crate) fn reports(&self, direction: Direction) -> Seen {
        self.source.0.reports(direction)
    }

    /// One direction of the socket, as something to wait on. `seen` is the number of reports before the last try; without a try, reports
    /// from now on count.
    pub(crate) fn readiness(&self, direction: Direction, seen: Seen) -> Readiness<'_> {
        let (source, descriptor) = (self.source.0, self.inner.as_fd());
        Readiness { source, descriptor, direction, seen: Cell::new(seen), error: RefCell::new(None) }
    }
}

/// A read that notes in the source that it was short, so that the next one begins with waiting.
#[inline(always)]
fn noting_short<S>(
    source: &'static Source,
    room: usize,
    mut read: impl FnMut(&S) -> io::Result<usize>,
) -> impl FnMut(&S) -> io::Result<usize> {
    move |inner| {
        let seen = source.reports(Direction::Read);
        let done = read(inner);
        if done.as_ref().is_ok_and(|len| (1..room).contains(len)) {
            source.note_drained(seen);
        }
        done
    }
}

/// One try. None: it would block.
#[inline(always)]
fn try_once<S, T>(inner: &S, attempt: &mut impl FnMut(&S) -> io::Result<T>) -> Option<io::Result<T>> {
    loop {
        match attempt(inner) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            done => return Some(done),
        }
    }
}

/// Could a canceller reach this thread?
pub(crate) fn may_be_cancelled() -> bool {
    Here::new().is_some_and(|here| here.innermost().is_some())
}

#[cold]
fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the operation took longer than its time-out")
}

/// One direction of a socket, as something to wait on: for an operation that was tried in vain, its future, or an arm of a select.
#[derive(Debug)]
pub(crate) struct Readiness<'a> {
    source: &'static Source,
    descriptor: BorrowedFd<'a>,
    direction: Direction,
    /// The number of reports before the last try.
    seen: Cell<Seen>,
    /// Why the direction cannot be waited for: then there is nothing to wait for.
    error: RefCell<Option<io::Error>>,
}

impl Readiness<'_> {
    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    /// A try begins.
    pub(crate) fn begin_try(&self) {
        self.seen.set(self.source.reports(self.direction));
    }

    /// The try was in vain: registers already now, when no locks are held.
    pub(crate) fn end_try(&self) -> Outcome {
        self.source.register(self.direction).map_or_else(|error| self.fail(error), |()| Outcome::Pending)
    }

    /// The direction cannot be waited for: the wait ends with that error.
    fn fail(&self, error: io::Error) -> Outcome {
        *self.error.borrow_mut() = Some(error);
        Outcome::Done
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.error.borrow().is_some()
    }

    pub(crate) fn take_error(&self) -> Option<io::Error> {
        self.error.take()
    }
}

/// The wait ends when a try is worth it, or when the direction cannot be waited for; see [`Readiness::take_error`].
impl Waitable for Readiness<'_> {
    fn try_now(&self) -> Outcome {
        if self.has_failed() {
            return Outcome::Done;
        }
        self.begin_try();
        match socket::poll(self.descriptor, self.direction.interest(), Timeout::Until(0)) {
            Ok(true) => Outcome::Done,
            Ok(false) => self.end_try(),
            Err(error) => self.fail(error),
        }
    }

    /// `Retry`: something was reported since the try.
    fn publish(&self, node: &Node) -> Published {
        if self.has_failed() {
            return (Outcome::Done, None);
        }
        let published = match self.source.link(self.direction, self.seen.get(), node) {
            Ok(true) => Outcome::Pending,
            Ok(false) => Outcome::Retry,
            Err(error) => self.fail(error),
        };
        (published, None)
    }

    fn unpublish(&self, node: &Node, _: &mut Vec<Waker>) {
        self.source.unlink(self.direction, node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    // On a plain thread: a report that comes between its try and its wait is not slept through, and neither is one that came while no
    // operation waited.
    #[test]
    fn a_thread_hears_of_what_was_reported_before_it_waited() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let io = Io::new(here);
        let wait = |seen: Seen, limit: Duration| {
            let readiness = io.readiness(Direction::Read, seen);
            let deadline = Some(policy::now() + limit.as_nanos() as u64);
            let site = Location::caller();
            park::wait(&readiness, Wait { reason: WaitReason::NetRead, object: 0, site, deadline })
        };
        let seen = io.reports(Direction::Read);
        assert_eq!(wait(seen, Duration::from_millis(1)), Outcome::TimedOut);
        there.write_all(b"x").unwrap();
        while io.reports(Direction::Read) == seen {
            std::thread::yield_now();
        }
        assert_eq!(wait(seen, Duration::from_secs(20)), Outcome::Retry);
        let seen = io.reports(Direction::Read);
        there.write_all(b"y").unwrap();
        assert_ne!(wait(seen, Duration::from_secs(20)), Outcome::TimedOut);
    }
}
