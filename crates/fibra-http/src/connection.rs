//! One connection: request after request, on one fiber.
//!
//! Above: `server`, which accepts connections, and [`serve_connection`], for connections that were accepted elsewhere. Below: `head`,
//! `body`, `encode`, `wire`.
//!
//! ```text
//!  ┌──▶ a head is in the buffer? ── no ─▶ flush; wait: idle if no byte of a head came ── end, or too late ─▶ close
//!  │         │ yes                                                                                          ▲
//!  │         ▼                                                                                              │
//!  │    handler ── response, into the buffer or out ── what is left of the body is read away ── must close ─┘
//!  └────────────────────────────────────────────────────────────────────────────────────────────── may stay
//! ```
//!
//! * The buffer holds the head that is handled, then the bytes behind it; nothing is moved or parsed twice.
//! * Only the wait for the first byte of a request is idle: a server that drains may end it ([`Gate`]). A client that has begun to send a
//!   request is answered.
//! * Every answer is flushed before a wait and before the connection is closed.
//! * Each wait has a deadline that no byte moves. A new connection has one deadline, from its beginning to the end of its first head; after
//!   an answer there is one for the silence (empty lines are silence) and, from the first byte of a head, one for the head.
//! * A panic of this code or of the transport ends the connection and nothing else; a request that was begun and not answered gets 500.

use std::any::Any;
use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use fibra::BetterPlace;
use fibra::time::Instant;

use crate::body::{self, Body};
use crate::encode::{self, After, Sent};
use crate::error::{ConnectionError, HeadError, is_timeout};
use crate::gate::Gate;
use crate::head::{self, Framing, Head, Index, Search, Version};
use crate::limits::Limits;
use crate::request::Request;
use crate::response::{IntoResponse, Response, TakeOver};
use crate::status::Status;
use crate::transport::Transport;
use crate::upgrade::Upgraded;
use crate::wire::{Link, Wire};

/// The buffer of a new connection.
const FIRST_ROOM: usize = 4 << 10;

/// A buffer that has grown beyond this, for a long head, is given back when it is empty.
const KEPT: usize = 32 << 10;

/// Answers that are collected for pipelined requests are sent when there are so many bytes of them.
const BATCH: usize = 32 << 10;

/// The buffer for what is read from a connection that lingers, once so much has come.
const LINGERING_ROOM: usize = 32 << 10;

/// The longest time-out: time-outs are added to one another, and must not overflow.
const LONG: Duration = Duration::from_secs(365 * 86_400);

/// Serves one connection that was accepted elsewhere (over TLS, a Unix socket, or in a test) until it ends. Returns the number of requests
/// that were answered.
///
/// ```
/// use std::io::{Read, Write};
/// use fibra::net::UnixStream;
/// use fibra_http::{Limits, Request, serve_connection};
///
/// fibra::run(|| {
///     let (mut client, server) = UnixStream::pair().unwrap();
///     let server = fibra::spawn(move || {
///         serve_connection(server, &Limits::default(), |request: &mut Request<'_>| request.path().to_owned())
///     });
///     client.write_all(b"GET /there HTTP/1.0\r\n\r\n").unwrap();
///     let mut answer = String::new();
///     client.read_to_string(&mut answer).unwrap();
///     assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n/there"));
///     assert_eq!(server.join().unwrap().unwrap(), 1);
/// });
/// ```
///
/// # Errors
/// The limits are not possible, a request was refused, a handler or the transport panicked, or the connection failed. It is closed in any
/// case.
pub fn serve_connection<T, F, R>(transport: T, limits: &Limits, handler: F) -> Result<u64, ConnectionError>
where
    T: Transport,
    F: Fn(&mut Request<'_>) -> R,
    R: IntoResponse,
{
    limits.check()?;
    let mut connection = Connection::new(transport, limits.clone());
    let ended = connection.run(&handler, None, &|_| {});
    connection.conclude(ended, None)
}

/// See the header.
pub(crate) struct Connection<T> {
    input: Input,
    index: Index,
    body: body::BodyState,
    wire: Wire<T>,
    /// Requests that were answered.
    answered: u64,
    /// The deadline of the first head.
    first_head_ends: Instant,
    /// What a waiting client may expect, if this code panics.
    phase: Phase,
    taken_over: Option<TakeOver>,
    /// Whether it may go on elsewhere between two requests.
    pub(crate) moves: bool,
    /// After so many answers it last asked whether it should.
    asked: u64,
}

/// The phase of a connection between two heads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Nothing of an answer to the request in the buffer has been made; there may be no request.
    Unanswered,
    /// A part of the answer may be in the buffer, or sent.
    Answering,
    /// The request in the buffer has its answer.
    Answered,
}

/// How a connection came to its end.
#[derive(Debug)]
pub(crate) enum End {
    /// The client has closed it, or nothing came for long enough, or both sides had agreed on the end.
    Closed,
    /// The server ends it, and the client may still be sending.
    Lingering,
    /// An idle wait is over because the server drains; but what is in the buffer is a request that was begun.
    Draining,
    /// Another protocol takes over.
    TakenOver,
    /// It has not ended: between two requests, it should go on elsewhere.
    Moving(BetterPlace),
}

/// Bytes that came: `buffer[start..end]`.
struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    search: Search,
}

impl Input {
    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Does the buffer hold nothing but, at most, the first half of an empty line?
    fn is_blank(&self) -> bool {
        matches!(self.bytes(), [] | [b'\r'])
    }

    /// Makes room for at least one more byte, for a head of at most `longest` bytes.
    fn make_room(&mut self, longest: usize) {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > KEPT || self.buffer.is_empty() {
                self.buffer = vec![0; FIRST_ROOM.min(longest.max(64))];
            }
        }
        if self.end == self.buffer.len() {
            if self.start > 0 {
                self.move_to_front();
            } else {
                let larger = (2 * self.buffer.len()).min(longest.max(self.buffer.len() + 1));
                self.buffer.resize(larger, 0);
            }
        }
    }

    fn move_to_front(&mut self) {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
    }

    /// Makes room for at least so many bytes behind a head of this length.
    fn make_tail(&mut self, head: usize, tail: usize) {
        if self.buffer.len() - self.start < head + tail {
            self.move_to_front();
            if self.buffer.len() < head + tail {
                self.buffer.resize(head + tail, 0);
            }
        }
    }

    /// Empty lines before a request are skipped (RFC 9112, 2.2).
    fn skip_empty_lines(&mut self) {
        while self.bytes().starts_with(b"\r\n") {
            self.start += 2;
            self.search = Search::default();
        }
    }
}

impl<T: Transport> Connection<T> {
    pub(crate) fn new(transport: T, mut limits: Limits) -> Self {
        for limit in [
            &mut limits.head_timeout,
            &mut limits.idle_timeout,
            &mut limits.body_timeout,
            &mut limits.write_timeout,
            &mut limits.linger,
        ] {
            *limit = (*limit).min(LONG);
        }
        Self {
            input: Input { buffer: Vec::new(), start: 0, end: 0, search: Search::default() },
            index: Index::default(),
            body: body::BodyState::default(),
            first_head_ends: Instant::after(limits.head_timeout),
            wire: Wire::new(transport, limits),
            answered: 0,
            phase: Phase::Unanswered,
            taken_over: None,
            moves: false,
            asked: 0,
        }
    }

    /// Serves requests. Errors that do not end the connection are given to `report`. A panic is an error.
    pub(crate) fn run<F, R>(
        &mut self,
        handler: &F,
        gate: Option<&Gate>,
        report: &dyn Fn(&ConnectionError),
    ) -> Result<End, ConnectionError>
    where
        F: Fn(&mut Request<'_>) -> R,
        R: IntoResponse,
    {
        guarded(|| self.serve(handler, gate, report))
    }

    fn serve<F, R>(
        &mut self,
        handler: &F,
        gate: Option<&Gate>,
        report: &dyn Fn(&ConnectionError),
    ) -> Result<End, ConnectionError>
    where
        F: Fn(&mut Request<'_>) -> R,
        R: IntoResponse,
    {
        loop {
            if let ControlFlow::Break(end) = self.await_head(gate)? {
                return Ok(end);
            }
            let sent = self.handle(handler, gate)?;
            self.phase = Phase::Answered;
            self.answered += 1;
            if let Some(error) = &sent.error {
                report(error);
            }
            match sent.after {
                After::Stay => {}
                After::Close => {
                    self.wire.flush()?;
                    let is_asked_for = !self.index.keep_alive && self.body.is_done();
                    // Nothing follows the request: not in the buffer, and not in the system, as far as can be known without a system call.
                    // (Some clients send an empty line behind a body.)
                    let is_all = self.index.framing == Framing::None && self.input.end < self.input.buffer.len();
                    let is_quiet = is_asked_for && is_all && self.body.start == self.body.end;
                    return Ok(if is_quiet { End::Closed } else { End::Lingering });
                }
                After::TakenOver(take_over) => {
                    self.taken_over = Some(take_over);
                    self.leave_request();
                    return Ok(End::TakenOver);
                }
            }
            if !self.body.is_done() && !self.drain_body()? {
                return Ok(End::Lingering);
            }
            self.leave_request();
            if !self.wire.limits.batch || self.wire.out.len() >= BATCH {
                self.wire.flush()?;
            }
        }
    }

    /// Waits until the head of a request is there, and its index is made.
    fn await_head(&mut self, gate: Option<&Gate>) -> Result<ControlFlow<End>, ConnectionError> {
        // See the header.
        let is_new = self.answered == 0;
        let mut silence_ends = is_new.then_some(self.first_head_ends);
        let mut head_ends = silence_ends;
        let mut has_tried = false;
        loop {
            self.input.skip_empty_lines();
            let is_idle = self.input.is_blank();
            if !is_idle {
                let Self { input, index, wire, .. } = self;
                let mut search = input.search;
                if head::find(input.bytes(), &mut search, &wire.limits, index)? {
                    input.search = Search::default();
                    return Ok(ControlFlow::Continue(()));
                }
                input.search = search;
            }
            self.wire.flush()?;
            self.input.make_room(self.wire.limits.max_head_bytes);
            if is_idle {
                // Once after each answer: it comes back here on its new fiber.
                if self.moves && self.answered > self.asked {
                    self.asked = self.answered;
                    if let Some(place) = fibra::better_place() {
                        return Ok(ControlFlow::Break(End::Moving(place)));
                    }
                }
                let remaining = match silence_ends {
                    Some(until) => until.remaining(),
                    None => {
                        let all = self.wire.limits.idle_timeout;
                        silence_ends = Some(Instant::after(all));
                        all
                    }
                };
                // Bytes that are there already are read without waiting, however late it is: once, in case this server was the slow side.
                let has_time = !(remaining.is_zero() && std::mem::replace(&mut has_tried, true));
                match self.wait_idly(gate, has_time.then_some(remaining)) {
                    Silence::Broken => continue,
                    Silence::Ended(end) => return Ok(ControlFlow::Break(end)),
                    Silence::TooLong if is_new => return Err(HeadError::TimedOut.into()),
                    // Silence is no error of a client that has its answer; and it might take a 408 for the answer to its next request.
                    Silence::TooLong => return Ok(ControlFlow::Break(End::Closed)),
                }
            }
            let until = *head_ends.get_or_insert_with(|| Instant::after(self.wire.limits.head_timeout));
            let remaining = until.remaining();
            if remaining.is_zero() {
                return Err(HeadError::TimedOut.into());
            }
            match self.read_more(remaining) {
                // It went away in the middle of a head: there is no client to answer.
                Ok(0) => return Ok(ControlFlow::Break(End::Closed)),
                Ok(_) => {}
                Err(error) if is_timeout(&error) => return Err(HeadError::TimedOut.into()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The wait for the first byte of a request, if there is time left for one.
    fn wait_idly(&mut self, gate: Option<&Gate>, timeout: Option<Duration>) -> Silence {
        if gate.is_some_and(|gate| !gate.enter_idle()) {
            return Silence::Ended(End::Draining);
        }
        let read = match timeout {
            Some(timeout) => self.read_more(timeout),
            None => Err(io::ErrorKind::TimedOut.into()),
        };
        let goes_on = gate.is_none_or(Gate::leave_idle);
        match read {
            Ok(0) => Silence::Ended(End::Closed),
            Ok(_) if goes_on => Silence::Broken,
            Err(error) if is_timeout(&error) && goes_on => Silence::TooLong,
            // A reset between two requests: the client is gone, as after an orderly end.
            Err(error) if !is_timeout(&error) => Silence::Ended(End::Closed),
            _ => Silence::Ended(End::Draining),
        }
    }

    /// Reads into the room behind the bytes that have come.
    fn read_more(&mut self, timeout: Duration) -> io::Result<usize> {
        let count = self.wire.read(&mut self.input.buffer[self.input.end..], timeout)?;
        self.input.end += count;
        Ok(count)
    }

    /// The server drains, and the idle wait was ended: has a request come in the meantime?
    pub(crate) fn has_request(&mut self) -> Result<bool, ConnectionError> {
        guarded(|| {
            self.input.skip_empty_lines();
            if self.input.is_blank() {
                self.input.make_room(self.wire.limits.max_head_bytes);
                // A read that fails brings no request.
                let _ = self.read_more(Duration::ZERO);
                self.input.skip_empty_lines();
            }
            Ok(!self.input.is_blank())
        })
    }

    /// Calls the handler and sends what it returns.
    fn handle<F, R>(&mut self, handler: &F, gate: Option<&Gate>) -> Result<Sent, ConnectionError>
    where
        F: Fn(&mut Request<'_>) -> R,
        R: IntoResponse,
    {
        let Self { input, index, body, wire, answered, phase, .. } = self;
        let index = &*index;
        let limits = &wire.limits;
        if index.framing != Framing::None {
            input.make_tail(index.length, body::LEAST_TAIL);
        }
        let there = input.end - input.start - index.length;
        body.begin(index.framing, index.expects_continue, there, limits.max_body_bytes);
        let is_last = *answered + 1 >= limits.max_requests;
        let (head, tail) = input.buffer[input.start..].split_at_mut(index.length);
        let mut request = Request { head: Head { bytes: head, index }, body: Body { tail, state: body, link: wire } };
        let response = catch_unwind(AssertUnwindSafe(|| handler(&mut request).into_response()));
        let (response, mut panicked) = match response {
            Ok(response) => (response, false),
            Err(payload) => {
                pass_on_cancellation(payload);
                (Response::new(Status::INTERNAL_SERVER_ERROR), true)
            }
        };
        // Decided as late as possible: a server that began to drain meanwhile announces the end.
        // Requests that have come behind this one are answered too.
        let state = &request.body.state;
        let more_is_there = state.is_done() && state.start < state.end;
        let may_stay = !panicked && !is_last && (more_is_there || gate.is_none_or(|gate| !gate.is_draining()));
        *phase = Phase::Answering;
        // Answers to earlier requests may be in the buffer.
        let (earlier, sends) = (request.body.link.out().len(), request.body.link.sends());
        let sent = catch_unwind(AssertUnwindSafe(|| encode::respond(&mut request, response, may_stay)));
        let sent = match sent {
            Ok(sent) => sent?,
            // The handler panicked while the body was made.
            Err(payload) => {
                pass_on_cancellation(payload);
                panicked = true;
                let link = &mut *request.body.link;
                if link.sends() != sends {
                    // The part that was sent cannot be taken back, and the part in the buffer is of no use: a chunk there may be open.
                    link.out().clear();
                    return Err(ConnectionError::Panicked);
                }
                link.out().truncate(earlier);
                encode::respond(&mut request, Response::new(Status::INTERNAL_SERVER_ERROR), false)?
            }
        };
        Ok(if panicked { Sent { error: Some(ConnectionError::Panicked), ..sent } } else { sent })
    }

    /// Reads away what the handler has left of the body; false if that is too much.
    fn drain_body(&mut self) -> Result<bool, ConnectionError> {
        let Self { input, index, body, wire, .. } = self;
        let most = wire.limits.max_drain_bytes;
        let tail = &mut input.buffer[input.start + index.length..];
        Body { tail, state: body, link: wire }.drain(most).map_err(ConnectionError::Body)
    }

    /// What lies behind the body is the next request.
    fn leave_request(&mut self) {
        let tail = self.input.start + self.index.length;
        (self.input.start, self.input.end) = (tail + self.body.start, tail + self.body.end);
        self.phase = Phase::Unanswered;
    }

    /// Closes the connection in the way that its end requires. A panic is an error.
    pub(crate) fn conclude(
        self,
        ended: Result<End, ConnectionError>,
        gate: Option<&Gate>,
    ) -> Result<u64, ConnectionError> {
        guarded(|| self.end(ended, gate))
    }

    fn end(mut self, ended: Result<End, ConnectionError>, gate: Option<&Gate>) -> Result<u64, ConnectionError> {
        match ended {
            // (One that moves is not concluded: its new fiber has it.)
            Ok(End::Closed | End::Draining | End::Moving(_)) => {
                // So that a layer can write its farewell (`close_notify` of TLS); the client may be gone already.
                let _ = self.wire.finish();
            }
            Ok(End::Lingering) => self.linger(gate),
            Ok(End::TakenOver) => {
                let answered = self.answered;
                return self.hand_over().map(|()| answered);
            }
            Err(ConnectionError::Head(error)) => {
                // Answers to earlier requests that are still in the buffer go first.
                encode::refuse(&mut self.wire, error.status(), error.text(), Version::Http11);
                self.linger(gate);
                return Err(error.into());
            }
            // As for heads. Between two requests there is nothing to answer, as with `Silence::TooLong`.
            Err(error @ ConnectionError::Internal(_)) if self.phase != Phase::Answering => {
                let is_awaited = self.answered == 0 || !self.input.is_blank();
                if self.phase == Phase::Unanswered && is_awaited {
                    let status = Status::INTERNAL_SERVER_ERROR;
                    encode::refuse(&mut self.wire, status, "the server failed", Version::Http11);
                }
                self.linger(gate);
                return Err(error);
            }
            // The answer broke off, and to a client of version 1.0 the end of the connection is the end of the answer: it must not look
            // like one.
            Err(error @ (ConnectionError::Truncated(_) | ConnectionError::Panicked | ConnectionError::Internal(_)))
                if self.index.version == Version::Http10 =>
            {
                self.wire.transport.abort();
                return Err(error);
            }
            Err(error @ (ConnectionError::Body(_) | ConnectionError::Truncated(_) | ConnectionError::Panicked)) => {
                // The request was answered already, as far as possible; earlier answers may be on their way.
                self.linger(gate);
                return Err(error);
            }
            Err(error) => return Err(error),
        }
        Ok(self.answered)
    }

    /// Lets the last answer arrive: closing a socket with unread bytes makes the system reset it, and the client may then
    /// lose what it has not yet read. Both the time and the bytes that are read meanwhile have a bound: see [`Limits::linger`].
    fn linger(&mut self, gate: Option<&Gate>) {
        if self.wire.flush().is_err() || self.wire.finish().is_err() {
            return;
        }
        let Self { input: Input { buffer, .. }, wire, .. } = self;
        if buffer.is_empty() {
            buffer.resize(FIRST_ROOM, 0);
        }
        let (linger, most) = (wire.limits.linger, wire.limits.max_linger_bytes);
        let began = Instant::now();
        let mut seen = 0;
        while seen < most {
            let is_draining = gate.is_some_and(Gate::is_draining);
            let granted =
                if is_draining { Duration::ZERO } else { wire.limits.granted(seen).min(wire.limits.body_timeout) };
            let left = linger.saturating_add(granted).saturating_sub(began.elapsed());
            if left.is_zero() {
                return;
            }
            let room = buffer.len().min(usize::try_from(most - seen).unwrap_or(usize::MAX));
            match wire.read(&mut buffer[..room], left.min(linger)) {
                Ok(0) | Err(_) => return,
                Ok(count) => seen += count as u64,
            }
            if seen >= LINGERING_ROOM as u64 && buffer.len() < LINGERING_ROOM {
                buffer.resize(LINGERING_ROOM, 0);
            }
        }
    }

    /// Gives the connection to another protocol.
    fn hand_over(mut self) -> Result<(), ConnectionError> {
        let Some(take_over) = self.taken_over.take() else { return Ok(()) };
        let early = self.input.bytes().to_vec();
        let mut transport = self.wire.transport;
        transport.set_read_timeout(None)?;
        transport.set_write_timeout(None)?;
        let upgraded = Upgraded::new(Box::new(transport), early);
        catch_unwind(AssertUnwindSafe(|| take_over(upgraded))).map_err(|payload| {
            pass_on_cancellation(payload);
            ConnectionError::Panicked
        })
    }
}

/// How a wait for the first byte of a request came to its end.
enum Silence {
    /// Something has come.
    Broken,
    TooLong,
    /// The connection has ended, too.
    Ended(End),
}

/// Makes a panic of the server's own code, or of a transport, an error.
pub(crate) fn guarded<T>(call: impl FnOnce() -> Result<T, ConnectionError>) -> Result<T, ConnectionError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|payload| {
        let message = payload.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        let error = ConnectionError::Internal(message.to_owned());
        pass_on_cancellation(payload);
        Err(error)
    })
}

/// Cancellation is not a panic of the handler: it goes on unwinding.
pub(crate) fn pass_on_cancellation(payload: Box<dyn Any + Send>) {
    if fibra::is_cancellation(&*payload) {
        resume_unwind(payload);
    }
    // The destructor of a payload may panic; that panic is swallowed. (Its payload may do the same: it is not dropped.)
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}
