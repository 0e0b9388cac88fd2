//! The server: accepts connections, gives each a fiber, and comes to an orderly end.
//!
//! Below: `crowd`, `connection`. The fiber that calls [`Server::serve`] accepts; each connection is put on the worker with the fewest
//! fibers, or the least busy one ([`fibra::Builder::spread`]). Between two requests it may go on elsewhere, in a new fiber, where
//! [`fibra::better_place`] says so; it keeps its seat in the crowd meanwhile. With several listeners ([`Builder::listeners`]) each
//! further one has a fiber of its own that accepts, and connections stay on the worker where they were accepted. On every path,
//! `serve` returns only after the last connection has ended.
//!
//! The end, in steps:
//! 1. The listener's queue is emptied: a client in it has connected, and gets an answer. The listener is closed.
//! 2. Every gate is told: idle connections end; each of the others answers its current request and ends then.
//! 3. When the grace is over, the connections that are left are cancelled, and waited for.
#![allow(clippy::disallowed_types)] // The lock of `Stop`: held for a few instructions in which nothing waits.

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fibra::net::{TcpListener, TcpStream, ToSocketAddrs};
use fibra::sync::Event;
use fibra::time::Instant;
use fibra::{BetterPlace, CancelToken, Scope};

use crate::connection::{Connection, End, guarded, pass_on_cancellation};
use crate::crowd::{Crowd, Seat};
use crate::error::ConnectionError;
use crate::limits::{LimitError, Limits};
use crate::request::Request;
use crate::response::IntoResponse;
use crate::transport::Transport;

/// The longest pause while accepting fails because the system lacks the resources for a connection.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// As many connections as the system lets wait in the queue of a listener.
const LONGEST_QUEUE: usize = 4096;

/// Connections that are accepted in a row before those that are served on the same worker have their turn.
const AT_ONCE: usize = 16;

/// Connections at once, unless the builder says otherwise: below what descriptors mostly allow.
const MOST_CONNECTIONS: usize = 10_000;

/// The stack sizes that a fiber can have.
const STACK_SIZES: std::ops::RangeInclusive<usize> = 32 << 10..=1 << 30;

type Report = Arc<dyn Fn(&ConnectionError, Option<SocketAddr>) + Send + Sync>;

/// An HTTP/1.1 server.
///
/// ```
/// use std::io::{Read, Write};
/// use fibra_http::{Request, Response, Server};
///
/// fibra::run(|| -> std::io::Result<()> {
///     let server = Server::bind("127.0.0.1:0")?;
///     let (address, stopper) = (server.local_addr()?, server.stopper());
///     let server = fibra::spawn(move || {
///         server.serve(|request| match (request.method(), request.path()) {
///             ("GET", "/") => Response::text("good day"),
///             _ => Response::new(404),
///         })
///     });
///
///     let mut client = fibra::net::TcpStream::connect(address)?;
///     client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
///     let mut answer = String::new();
///     client.read_to_string(&mut answer)?;
///     assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\ngood day"));
///
///     stopper.drain(std::time::Duration::from_secs(10));
///     server.join().unwrap()?;
///     Ok(())
/// }).unwrap();
/// ```
///
/// The handler is called for each request, on the fiber of its connection, so it may block as it likes. What it needs, it owns or has in
/// an `Arc`. If it panics, the client gets 500, and the connection is closed. See [`IntoResponse`] for what it may return.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    /// Those that share its port.
    further: Vec<TcpListener>,
    options: Builder,
    stop: Arc<Stop>,
}

/// The settings of a server before it starts; see [`Server::builder`]. Limits of a connection are explained at [`Limits`].
///
/// ```
/// use std::time::Duration;
/// use fibra_http::Server;
///
/// let server = Server::builder().max_connections(500).max_body_bytes(64 << 10).idle_timeout(Duration::from_secs(5)).bind("127.0.0.1:0");
/// assert!(server.is_ok());
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `bind` or `listen`"]
pub struct Builder {
    limits: Limits,
    max_connections: usize,
    stack_size: Option<usize>,
    listeners: usize,
    moving: bool,
    report: Option<Report>,
}

macro_rules! limit_setters {
    ($($name:ident: $kind:ty),+ $(,)?) => {
        impl Builder {
            $(
                #[doc = concat!("Sets [`Limits::", stringify!($name), "`].")]
                pub fn $name(mut self, $name: $kind) -> Self {
                    self.limits.$name = $name;
                    self
                }
            )+
        }
    };
}

limit_setters! {
    max_head_bytes: usize,
    max_headers: usize,
    max_body_bytes: u64,
    max_requests: u64,
    head_timeout: Duration,
    idle_timeout: Duration,
    body_timeout: Duration,
    write_timeout: Duration,
    min_rate: u32,
    max_drain_bytes: u64,
    linger: Duration,
    max_linger_bytes: u64,
    batch: bool,
}

impl Builder {
    /// All limits at once.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// At most so many connections at once; more wait in the listener's queue. 10,000.
    ///
    /// # Panics
    /// If it is 0.
    #[track_caller]
    pub fn max_connections(mut self, connections: usize) -> Self {
        assert!(connections > 0, "fibra-http: max_connections(0): no client could ever connect");
        self.max_connections = connections;
        self
    }

    /// The stack of each connection's fiber, and so of handlers: from 32 KiB to 1 GiB; by default that of the runtime.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// So many listeners share the port (`SO_REUSEPORT`), each with a fiber of its own that accepts; the system distributes connections
    /// among them by their addresses, and a connection stays on the worker where it was accepted. 1.
    ///
    /// For servers with many short connections: as many listeners as workers accept without a hand-over from one worker to another. With
    /// few or long connections the default is better, because it looks at how busy each worker is. Each further listener may exceed
    /// [`max_connections`](Self::max_connections) by one. Only for [`bind`](Self::bind): an existing listener has its port for itself.
    ///
    /// ```
    /// use fibra_http::Server;
    ///
    /// let server = Server::builder().listeners(2).bind("127.0.0.1:0");
    /// assert!(server.is_ok());
    /// ```
    ///
    /// # Panics
    /// If it is 0.
    #[track_caller]
    pub fn listeners(mut self, listeners: usize) -> Self {
        assert!(listeners > 0, "fibra-http: listeners(0): no client could ever connect");
        self.listeners = listeners;
        self
    }

    /// Whether a connection may go on on another worker between two requests, where [`fibra::better_place`] says so: then it leaves a
    /// worker that is saturated or stands down. It goes on in a new fiber, so fiber-locals and the fiber's number are those of a run of
    /// requests and not of the connection. True; with several [`listeners`](Self::listeners) connections stay in any case.
    ///
    /// ```
    /// use fibra_http::Server;
    ///
    /// let server = Server::builder().moving(false).bind("127.0.0.1:0");
    /// assert!(server.is_ok());
    /// ```
    pub fn moving(mut self, moving: bool) -> Self {
        self.moving = moving;
        self
    }

    /// Sets a hook for every error that ends a connection or spoils a response: for logs. Without it, only a panic of the server's own code
    /// ([`ConnectionError::Internal`]) is reported, by a line on standard error. If the hook itself panics, the connection goes on.
    pub fn on_error(mut self, report: impl Fn(&ConnectionError, Option<SocketAddr>) + Send + Sync + 'static) -> Self {
        self.report = Some(Arc::new(report));
        self
    }

    /// Listens on this address.
    ///
    /// # Errors
    /// `InvalidInput` with a [`LimitError`] for a limit that is not possible; else as [`TcpListener::bind`].
    pub fn bind<A: ToSocketAddrs>(self, address: A) -> io::Result<Server> {
        self.check()?;
        if self.listeners == 1 {
            return Ok(self.try_listen(TcpListener::bind(address)?)?);
        }
        let first = TcpListener::bind_reuse_port(address)?;
        let address = first.local_addr()?;
        let further = (1..self.listeners).map(|_| TcpListener::bind_reuse_port(address)).collect::<io::Result<_>>()?;
        Ok(Server { further, ..self.try_listen(first)? })
    }

    /// A server on an existing listener.
    ///
    /// # Panics
    /// If a limit is not possible: see [`try_listen`](Self::try_listen).
    #[track_caller]
    pub fn listen(self, listener: TcpListener) -> Server {
        self.try_listen(listener).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A server on an existing listener.
    ///
    /// ```
    /// use fibra_http::Server;
    ///
    /// let listener = fibra::net::TcpListener::bind("127.0.0.1:0").unwrap();
    /// let error = Server::builder().max_headers(0).try_listen(listener).unwrap_err();
    /// assert_eq!(error.field(), "max_headers");
    /// ```
    ///
    /// # Errors
    /// One of the [`Limits`] is not possible ([`Limits::check`]), or the size of the stack is not.
    pub fn try_listen(self, listener: TcpListener) -> Result<Server, LimitError> {
        self.check()?;
        let stop = Stop { requested: CancelToken::new(), deadline: Mutex::new(None), again: Event::new() };
        Ok(Server { listener, further: Vec::new(), options: self, stop: Arc::new(stop) })
    }

    fn check(&self) -> Result<(), LimitError> {
        match self.stack_size {
            // Otherwise each connection would be closed as soon as it comes.
            Some(bytes) if !STACK_SIZES.contains(&bytes) => {
                let advice = "set at least 32768 (32 KiB) and at most 1073741824 (1 GiB), or leave it out for that of \
                              the runtime";
                Err(LimitError::new("stack_size", bytes, advice))
            }
            _ => self.limits.check(),
        }
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            max_connections: MOST_CONNECTIONS,
            stack_size: None,
            listeners: 1,
            moving: true,
            report: None,
        }
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("limits", &self.limits)
            .field("max_connections", &self.max_connections)
            .field("stack_size", &self.stack_size)
            .field("listeners", &self.listeners)
            .field("moving", &self.moving)
            .finish_non_exhaustive()
    }
}

/// How a server came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Drained {
    /// Connections that were still there when the grace was over, and were cancelled.
    pub cut_off: usize,
}

#[derive(Debug)]
struct Stop {
    requested: CancelToken,
    deadline: Mutex<Option<Instant>>,
    /// A later call has moved the deadline.
    again: Event,
}

impl Stop {
    fn deadline(&self) -> Option<Instant> {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stops a server, from anywhere; see [`Server::stopper`].
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Stop>);

impl Stopper {
    /// Asks the server to come to an end: it accepts no client any more, idle connections are closed at once, running requests are answered
    /// with `Connection: close`, and what is left after `grace` is cancelled. Does not wait: [`Server::serve`] returns when all that is
    /// done. Of several calls, the one that grants the least time counts.
    pub fn drain(&self, grace: Duration) {
        let until = Instant::after(grace);
        {
            let mut deadline = self.0.deadline.lock().unwrap_or_else(PoisonError::into_inner);
            *deadline = Some(deadline.map_or(until, |before| before.min(until)));
        }
        self.0.requested.cancel();
        self.0.again.set();
    }

    /// Ends the server at once: running requests are cancelled.
    pub fn stop(&self) {
        self.drain(Duration::ZERO);
    }

    /// Has it been asked to come to an end?
    pub fn is_draining(&self) -> bool {
        self.0.requested.is_cancelled()
    }

    /// A token that is cancelled when the server is asked to come to an end: for long answers and upgraded connections, which can then end
    /// by themselves.
    ///
    /// ```
    /// use fibra_http::Server;
    ///
    /// fibra::run(|| {
    ///     let server = Server::bind("127.0.0.1:0").unwrap();
    ///     let (stopper, token) = (server.stopper(), server.stopper().token());
    ///     stopper.stop();
    ///     token.wait();
    /// });
    /// ```
    pub fn token(&self) -> CancelToken {
        self.0.requested.child()
    }
}

impl Server {
    /// A server with the usual limits.
    ///
    /// # Errors
    /// As [`TcpListener::bind`].
    pub fn bind<A: ToSocketAddrs>(address: A) -> io::Result<Self> {
        Self::builder().bind(address)
    }

    /// A server with other limits.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// If the system cannot say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// A handle that stops this server.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// Serves until it is stopped: by a [`Stopper`], or because the enclosing scope is asked to [drain](Scope::drain). If this fiber is
    /// cancelled, so are all connections.
    ///
    /// # Errors
    /// The listener's descriptor is not a listening socket.
    ///
    /// # Panics
    /// On a thread that is in no runtime.
    pub fn serve<F, R>(self, handler: F) -> io::Result<Drained>
    where
        F: Fn(&mut Request<'_>) -> R + Send + Sync + 'static,
        R: IntoResponse,
    {
        self.serve_over(Ok, handler)
    }

    /// Serves over a layer on each TCP connection: TLS. `wrap` is called on the connection's fiber, may do a handshake,
    /// and is given [`head_timeout`](Limits::head_timeout) for it, apart from the time of the first head. If it fails, the connection is
    /// closed.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    ///
    /// # Panics
    /// On a thread that is in no runtime.
    pub fn serve_over<T, W, F, R>(self, wrap: W, handler: F) -> io::Result<Drained>
    where
        T: Transport,
        W: Fn(TcpStream) -> io::Result<T> + Send + Sync + 'static,
        F: Fn(&mut Request<'_>) -> R + Send + Sync + 'static,
        R: IntoResponse,
    {
        let Self { listener, further, options, stop } = self;
        let crowd = Arc::new(Crowd::new(options.max_connections));
        let mut fiber = fibra::Builder::new().name("http");
        if let Some(bytes) = options.stack_size {
            fiber = fiber.stack_size(bytes);
        }
        let moves = options.moving && further.is_empty();
        let Builder { limits, report, .. } = options;
        let attendant = Arc::new(Attendant { wrap, handler, limits, report, fiber: fiber.clone(), moves });
        let closing = Closing(&crowd);
        let start = |stream: TcpStream| {
            let seat = crowd.enter();
            let (number, run) = (seat.number(), seat.run);
            let from = attendant.from(&stream);
            let attends = attendant.clone();
            let attend = move || attends.attend(stream, seat, from);
            let fiber = fiber.clone();
            let stays = !further.is_empty() && fibra::current().is_some();
            match if stays { fiber.spawn_local(attend) } else { fiber.spread().spawn(attend) } {
                Ok(fiber) => crowd.set_fiber(number, run, fiber),
                // The runtime starts no fibers any more, or there are too many: the connection is closed already.
                Err(error) => attendant.tell(&error.into(), from),
            }
        };
        let over = CancelToken::new();
        if further.is_empty() {
            accept_until_stopped(&listener, &stop, &over, &crowd, &start)?;
        } else {
            fibra::scope(|s| {
                for listener in &further {
                    let accepts = || accept_until_stopped(listener, &stop, &over, &crowd, &start);
                    // (Spread in a row, they go to different workers.)
                    fibra::Builder::new().name("http-accept").spread().spawn_scoped(s, accepts)?;
                }
                let ended = accept_until_stopped(&listener, &stop, &over, &crowd, &start);
                over.cancel();
                ended
            })?;
        }
        drop((listener, further));
        crowd.drain();
        let cut_off = wait_for_the_last(&stop, &crowd);
        drop(closing);
        Ok(Drained { cut_off })
    }
}

fn accept_until_stopped(
    listener: &TcpListener,
    stop: &Stop,
    over: &CancelToken,
    crowd: &Arc<Crowd>,
    start: &dyn Fn(TcpStream),
) -> io::Result<()> {
    let mut pause = Duration::ZERO;
    loop {
        fibra::select! {
            on(crowd.room.waiting()) => {}
            on(stop.requested.cancelled()) => break,
            on(over.cancelled()) => break,
            draining() => break,
        }
        let accepted = fibra::select_biased! {
            on(stop.requested.cancelled()) => break,
            on(over.cancelled()) => break,
            draining() => break,
            on(listener.accepting()) -> accepted => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                pause = Duration::ZERO;
                start(stream);
                // What else has come already. (An error comes again, above.)
                for _ in 1..AT_ONCE {
                    match crowd.room.is_set().then(|| listener.try_accept()) {
                        Some(Ok((stream, _))) => start(stream),
                        Some(Err(_)) | None => break,
                    }
                }
                // However many clients want to connect, the connections that are served on this worker have their turn.
                fibra::yield_now();
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
            // No descriptors or no memory, or the network is down: that may pass, and a client that wants to connect waits in the queue.
            Err(_) => {
                pause = (2 * pause).clamp(Duration::from_millis(1), LONGEST_PAUSE);
                fibra::select! {
                    on(stop.requested.cancelled()) => break,
                    on(over.cancelled()) => break,
                    draining() => break,
                    after(pause) => {}
                }
            }
        }
    }
    // A client in the queue has connected before the stop. The loop is bounded: new clients may come without end.
    for _ in 0..LONGEST_QUEUE {
        if !crowd.room.is_set() {
            break;
        }
        fibra::select_biased! {
            on(listener.accepting()) -> accepted => match accepted {
                Ok((stream, _)) => start(stream),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => break,
            },
            default => break,
        }
    }
    Ok(())
}

/// Waits until all connections have ended, cancels those that are left when the grace is over, and returns how many these were.
fn wait_for_the_last(stop: &Stop, crowd: &Crowd) -> usize {
    loop {
        stop.again.reset();
        // If a scope asked to drain, there is no deadline here: the scope itself decides when to cancel.
        let left = stop.deadline().map_or(Duration::MAX, |deadline| deadline.remaining());
        fibra::select_biased! {
            on(crowd.empty.waiting()) => return 0,
            on(stop.again.waiting()) => {}
            after(left) => {
                let cut_off = crowd.cut();
                crowd.empty.wait();
                return cut_off;
            }
        }
    }
}

/// No connection outlives `serve`, however it ends.
struct Closing<'a>(&'a Crowd);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if !self.0.empty.is_set() {
            self.0.cut();
            // While this fiber unwinds, waiting is still possible; and if it does not, it is not cancelled.
            self.0.empty.wait();
        }
    }
}

/// What all connections share.
struct Attendant<W, F> {
    wrap: W,
    handler: F,
    limits: Limits,
    report: Option<Report>,
    /// What a fiber of a connection is like.
    fiber: fibra::Builder,
    /// Whether connections may go on on other workers.
    moves: bool,
}

impl<W, F> Attendant<W, F> {
    /// The address of the client. Asked for only if a hook wants to know.
    fn from(&self, stream: &TcpStream) -> Option<SocketAddr> {
        self.report.as_ref().and_then(|_| stream.peer_addr().ok())
    }

    /// Reports an error to the hook. A panic of the hook does not end the connection.
    fn tell(&self, error: &ConnectionError, from: Option<SocketAddr>) {
        match &self.report {
            Some(report) => {
                let _ = catch_unwind(AssertUnwindSafe(|| report(error, from))).map_err(pass_on_cancellation);
            }
            // The panic hook of the program may print nothing, and this error must not go unnoticed.
            None if matches!(error, ConnectionError::Internal(_)) => {
                let line = format!("fibra-http: a connection ended: {error}\n");
                // A closed pipe must not end the server.
                let _ = io::stderr().write_all(line.as_bytes());
            }
            None => {}
        }
    }

    /// Serves one connection, from its beginning.
    fn attend<T, R>(self: Arc<Self>, stream: TcpStream, seat: Seat, from: Option<SocketAddr>)
    where
        T: Transport,
        W: Fn(TcpStream) -> io::Result<T> + Send + Sync + 'static,
        F: Fn(&mut Request<'_>) -> R + Send + Sync + 'static,
        R: IntoResponse,
    {
        // Answers are written in one piece; waiting for more would only delay them.
        let _ = stream.set_nodelay(true);
        let wrapped = guarded(|| {
            let wrapped = fibra::timeout(self.limits.head_timeout, || (self.wrap)(stream));
            Ok(wrapped.map_err(io::Error::from)??)
        });
        let transport = match wrapped {
            Ok(transport) => transport,
            Err(error) => return self.tell(&error, from),
        };
        let mut connection = Connection::new(transport, self.limits.clone());
        connection.moves = self.moves;
        self.serve(seat, from, connection);
    }

    /// Serves one connection to its end, or until it should go on elsewhere: there a new fiber goes on. (The connection is the last
    /// parameter, so that it is dropped before the seat is given up, also when this fiber is cancelled.)
    fn serve<T, R>(self: Arc<Self>, seat: Seat, from: Option<SocketAddr>, mut connection: Connection<T>)
    where
        T: Transport,
        W: Send + Sync + 'static,
        F: Fn(&mut Request<'_>) -> R + Send + Sync + 'static,
        R: IntoResponse,
    {
        let gate = &*seat.gate;
        let report = |error: &ConnectionError| self.tell(error, from);
        // A draining server cancels this scope to end an idle wait; see `gate`.
        let ended = Scope::builder().token(gate.token()).run(|_| connection.run(&self.handler, Some(gate), &report));
        let ended = match ended {
            Ok(Ok(End::Draining)) | Err(_) => {
                seat.let_all_be_told();
                connection.moves = false;
                match connection.has_request() {
                    Ok(true) => connection.run(&self.handler, Some(gate), &report),
                    Ok(false) => Ok(End::Closed),
                    Err(error) => Err(error),
                }
            }
            Ok(Ok(End::Moving(place))) => return self.go_on(place, seat, from, connection),
            Ok(ended) => ended,
        };
        // Reported before lingering, which may be cut short.
        let is_reported = ended.as_ref().inspect_err(|error| report(error)).is_err();
        if let Err(error) = connection.conclude(ended, Some(gate))
            && !is_reported
        {
            report(&error);
        }
    }

    /// Goes on with a connection on a new fiber, or on this one if none can be started.
    fn go_on<T, R>(
        self: Arc<Self>,
        place: BetterPlace,
        mut seat: Seat,
        from: Option<SocketAddr>,
        connection: Connection<T>,
    ) where
        T: Transport,
        W: Send + Sync + 'static,
        F: Fn(&mut Request<'_>) -> R + Send + Sync + 'static,
        R: IntoResponse,
    {
        seat.run += 1;
        let (crowd, number, run) = (seat.crowd(), seat.number(), seat.run);
        let fiber = self.fiber.clone().place(place);
        // What a fiber that is not started was to take along stays here.
        let parcel = Arc::new(Mutex::new(Some((self, connection, seat))));
        let unpack = move |parcel: &Mutex<Option<_>>| parcel.lock().unwrap_or_else(PoisonError::into_inner).take();
        let taken = parcel.clone();
        let attend = move || {
            if let Some((all, connection, seat)) = unpack(&taken) {
                all.serve(seat, from, connection);
            }
        };
        // (To clone what a fiber inherits is code of the program.)
        match guarded(|| Ok(fiber.spawn(attend)?)) {
            Ok(fiber) => crowd.set_fiber(number, run, fiber),
            Err(_) => {
                if let Some((all, mut connection, seat)) = unpack(&parcel) {
                    connection.moves = false;
                    all.serve(seat, from, connection);
                }
            }
        }
    }
}
