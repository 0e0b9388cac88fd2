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
//! * A TCP read shorter than its buffer means that the queue is empty: the next read begins with waiting ([`Io::is_drained`]).
//! * A fiber's wait has a stack frame of its own ([`wait`]), with the node and little else, and the operation around it keeps little:
//!   most connections of a server wait in a read most of the time, and each 64 bytes of the stack are a page for one connection of sixteen
//!   (decision 74).
//! * A thread that waits in `poll` hears of cancellation on entry; if it is in a scope, where a canceller could reach it, it waits like a
//!   fiber instead, and the driver of `reactor::outside_io` completes its wait.
//! * An operation that need not wait would let its fiber run on for ever, if its peer is fast enough: each takes more from the budget of
//!   `park` than other calls, since it is a system call.

mod future;

use std::cell::{Cell, RefCell};
use std::io;
use std::num::NonZero;
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
    /// (A deadline of 0 is over, as one of 1 is.)
    fn deadline(self) -> Option<NonZero<u64>> {
        let deadline = match self {
            Self::Never => return None,
            Self::After(limit) => from_now(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)),
            Self::Until(deadline) => deadline,
        };
        Some(NonZero::new(deadline).unwrap_or(NonZero::<u64>::MIN))
    }
}

/// The moment so many nanoseconds from now. (Out of line: what reading the clock needs on the stack would be there during the wait.)
#[inline(never)]
fn from_now(nanos: u64) -> u64 {
    policy::now().saturating_add(nanos)
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
            Err(seen) => self.wait_and_retry(ask, seen, || self.attempt(ask.direction, &mut attempt)),
        }
    }

    /// Reading from a stream in parts, of which the caller makes a read: is a try known to be in vain? Then the read begins with
    /// waiting, as after such a try.
    #[inline(always)]
    pub(crate) fn is_drained(&self) -> Option<Seen> {
        self.source.0.is_drained()
    }

    /// The same: one try. A read shorter than its `room` has emptied the queue; that is true of TCP, not of Unix streams, where a read also
    /// stops at ancillary data: there `room` is 0.
    #[inline(always)]
    pub(crate) fn attempt_stream(&self, room: usize, read: impl FnMut(&S) -> io::Result<usize>) -> Tried {
        match self.attempt(Direction::Read, &mut noting_short(self.source.0, room, read)) {
            Ok(Ok(len)) => Tried::Done(len),
            Ok(Err(error)) => Tried::Failed(error),
            Err(seen) => Tried::InVain(seen),
        }
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
    #[inline(always)]
    pub(crate) fn wait_and_retry<T>(
        &self,
        ask: Ask,
        mut seen: Seen,
        mut attempt: impl FnMut() -> Result<io::Result<T>, Seen>,
    ) -> io::Result<T> {
        let deadline = ask.limit.deadline();
        loop {
            let what = What { descriptor: self.inner.as_fd(), direction: ask.direction, reason: ask.reason };
            let ended = match deadline {
                None => wait(self.source.0, what, ask.site, seen),
                Some(deadline) => wait_until(self.source.0, what, ask.site, seen, deadline),
            };
            match ended {
                Ended::Reported => match attempt() {
                    Ok(done) => return done,
                    Err(now) => seen = now,
                },
                Ended::TimedOut => return attempt().unwrap_or_else(|_| Err(timed_out())),
                Ended::Refused => register(self.source.0, ask.direction)?,
                Ended::Failed(error) => return Err(error),
            }
        }
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
        Readiness::new(self.source.0, self.inner.as_fd(), direction, seen)
    }
}

/// How a try on a stream ended, in two registers.
#[must_use]
pub(crate) enum Tried {
    Done(usize),
    Failed(io::Error),
    /// It would block; with the number of reports before it.
    InVain(Seen),
}

impl Tried {
    #[inline(always)]
    pub(crate) fn into_result(self) -> Result<io::Result<usize>, Seen> {
        match self {
            Self::Done(len) => Ok(Ok(len)),
            Self::Failed(error) => Ok(Err(error)),
            Self::InVain(seen) => Err(seen),
        }
    }
}

/// A socket and what is waited for, in one register.
#[derive(Clone, Copy)]
struct What<'a> {
    descriptor: BorrowedFd<'a>,
    direction: Direction,
    reason: WaitReason,
}

impl What<'_> {
    #[inline(always)]
    fn how(self, site: &'static Location<'static>, deadline: Option<NonZero<u64>>) -> Wait {
        let object = self.descriptor.as_raw_fd() as u64;
        Wait { reason: self.reason, object, site, deadline: deadline.map(NonZero::get) }
    }
}

/// How a wait ended, in two registers.
enum Ended {
    /// Trying again is worth it.
    Reported,
    TimedOut,
    /// It cannot be registered: doing so once more says why.
    Refused,
    /// It cannot be waited for.
    Failed(io::Error),
}

impl Ended {
    fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::TimedOut => Self::TimedOut,
            Outcome::Closed => Self::Refused,
            _ => Self::Reported,
        }
    }
}

/// One wait, until trying again is worth it; `seen`: the number of reports before the last try. All operations on all sockets share it,
/// and its arguments and its result are in registers: they take no place in the stack frame of the operation, which stays while the fiber
/// waits.
#[inline(never)]
fn wait(source: &'static Source, what: What<'_>, site: &'static Location<'static>, seen: Seen) -> Ended {
    wait_here(source, what, site, seen, None)
}

/// The same with a deadline, which needs more stack.
#[inline(never)]
fn wait_until(
    source: &'static Source,
    what: What<'_>,
    site: &'static Location<'static>,
    seen: Seen,
    deadline: NonZero<u64>,
) -> Ended {
    wait_here(source, what, site, seen, Some(deadline))
}

#[inline(always)]
fn wait_here(
    source: &'static Source,
    what: What<'_>,
    site: &'static Location<'static>,
    seen: Seen,
    deadline: Option<NonZero<u64>>,
) -> Ended {
    match park::wait_if_plain(Report { source, direction: what.direction, seen }, what.how(site, deadline)) {
        Some(ended) => Ended::of(ended),
        None => wait_closely(source, what, site, seen, deadline),
    }
}

/// After a wait that could not be registered: says why. (If it can be by now, the next wait finds it so.)
#[cold]
#[inline(never)]
fn register(source: &'static Source, direction: Direction) -> io::Result<()> {
    source.register(direction)
}

/// The wait of a thread, or of a fiber that is cancelled, holds cancellation off, or may not wait.
#[cold]
#[inline(never)]
fn wait_closely(
    source: &'static Source,
    what: What<'_>,
    site: &'static Location<'static>,
    seen: Seen,
    deadline: Option<NonZero<u64>>,
) -> Ended {
    let how = what.how(site, deadline);
    if current::worker().is_none() && !may_be_cancelled() {
        let timeout = how.deadline.map_or(Timeout::Forever, Timeout::Until);
        return match socket::poll(what.descriptor, what.direction.interest(), timeout) {
            Ok(true) => Ended::Reported,
            Ok(false) => Ended::TimedOut,
            Err(error) => Ended::Failed(error),
        };
    }
    let readiness = Readiness::new(source, what.descriptor, what.direction, seen);
    let ended = park::wait(&readiness, how);
    readiness.take_error().map_or_else(|| Ended::of(ended), Ended::Failed)
}

/// The next report, as something to wait for: [`Readiness`] in as few words as a wait needs. `Closed`: it cannot be registered.
#[derive(Clone, Copy)]
struct Report {
    source: &'static Source,
    direction: Direction,
    /// The number of reports before the last try.
    seen: Seen,
}

impl Waitable for Report {
    #[inline(always)]
    fn publish(&self, node: &Node) -> Published {
        (self.source.link_briefly(self.direction, self.seen, node), None)
    }

    #[inline(always)]
    fn unpublish(&self, node: &Node, _: &mut Vec<Waker>) {
        self.source.unlink(self.direction, node);
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

impl<'a> Readiness<'a> {
    fn new(source: &'static Source, descriptor: BorrowedFd<'a>, direction: Direction, seen: Seen) -> Self {
        Self { source, descriptor, direction, seen: Cell::new(seen), error: RefCell::new(None) }
    }

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

    // A fiber that waits in a read keeps little stack for it, below its own frames. What an idle connection costs depends on that: see
    // decision 74. (Unoptimised code keeps more; then the figure says only that nothing large was added.)
    #[test]
    #[cfg(not(any(fibra_context = "corosensei", fibra_context = "thread", fibra_asan, fibra_tsan)))]
    fn a_read_that_waits_is_not_deep() {
        use crate::fiber::context::{Context, look};
        use crate::net::{TcpListener, TcpStream};
        use crate::prim::atomic::{AtomicUsize, Ordering};
        use crate::waiter::word::WaiterState;
        use std::io::Read;
        use std::sync::Arc;

        #[inline(never)]
        fn read_here(mut stream: &TcpStream, here: &AtomicUsize, buffer: &mut [u8]) -> usize {
            let mark = std::hint::black_box(0_u8);
            here.store((&raw const mark).addr(), Ordering::Relaxed); // Relaxed: looked at on the same worker.
            stream.read(buffer).unwrap() + usize::from(std::hint::black_box(mark))
        }

        let most = if cfg!(debug_assertions) { 2304 } else { 320 };
        let runtime = crate::runtime::Runtime::builder().workers(1).build().unwrap();
        runtime.run(move || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let stream = listener.accept().unwrap().0;
            let (here, place) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let reader = crate::task::spawn({
                let (here, place) = (here.clone(), place.clone());
                move || {
                    let frame = current::fiber().unwrap();
                    place.store(std::ptr::from_ref(frame).expose_provenance(), Ordering::Relaxed); // Relaxed: as above.
                    // The first read is short, so that the second begins with waiting.
                    (read_here(&stream, &here, &mut [0; 8]), read_here(&stream, &here, &mut [0; 8]))
                }
            });
            let depth = || {
                crate::time::sleep(Duration::from_millis(20));
                // Relaxed: as above.
                let frame = std::ptr::with_exposed_provenance(place.load(Ordering::Relaxed));
                // SAFETY: a frame, stored by its fiber; frames are never freed.
                let frame: crate::fiber::frame::FrameRef = unsafe { &*frame };
                assert_eq!(frame.waiter.word.snapshot().state(), WaiterState::Parked);
                // SAFETY: the fiber is parked, and this code runs on its worker, which alone resumes it.
                let context = frame.context.with(|context: *const Context| unsafe { *context });
                here.load(Ordering::Relaxed) - look(context.to_bits()).unwrap().sp // Relaxed: as above.
            };
            let first = depth();
            there.write_all(b"x").unwrap();
            let second = depth();
            there.write_all(b"y").unwrap();
            assert_eq!(reader.join().unwrap(), (1, 1));
            println!("{first} bytes deep in a read that tried, {second} in one that began with waiting");
            assert!(first <= most + 64 && second <= most, "{first} and {second} bytes deep");
        });
    }
}
