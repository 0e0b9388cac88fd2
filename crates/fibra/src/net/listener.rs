//! Listening for TCP connections. Above: users. Below: `net::socket`, `net::arm`.

use std::io;
use std::net::SocketAddr;
use std::panic::Location;
use std::time::Duration;

use super::addr::{ToSocketAddrs, first_of};
use super::arm::{AcceptArm, Listening};
use super::socket::{Backoff, Socket, like_std, until};
use super::stream::TcpStream;
use crate::driver::socket;
use crate::time::Instant;
use crate::wait::io::{Direction, Limit, Readiness};

/// The longest pause of `incoming` while there are no descriptors to be had.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A TCP socket that accepts connections: [`std::net::TcpListener`] for fibers.
///
/// ```no_run
/// use std::io::Write;
/// use fibra::net::TcpListener;
///
/// fibra::run(|| -> std::io::Result<()> {
///     let listener = TcpListener::bind("127.0.0.1:8080")?;
///     for stream in listener.incoming() {
///         let mut stream = stream?;
///         // Spread: connections that have nothing to do with one another may live on different workers.
///         fibra::Builder::new().spread().spawn(move || stream.write_all(b"good day\n"))?;
///     }
///     Ok(())
/// });
/// ```
pub struct TcpListener {
    pub(super) socket: Socket<std::net::TcpListener>,
}

like_std!(TcpListener, std::net::TcpListener);

impl TcpListener {
    /// Listens on this address; port 0: on a free port. Of several addresses, on the first that can be had.
    ///
    /// As many connections as the system allows (`net.core.somaxconn`) may wait to be accepted; with std it is 128.
    ///
    /// # Errors
    /// The address is in use, not of this machine, or not allowed.
    pub fn bind<A: ToSocketAddrs>(address: A) -> io::Result<Self> {
        first_of(address, |address| socket::listen(&address, false)).map(Self::from)
    }

    /// [`bind`](Self::bind) with `SO_REUSEPORT`: several listeners, also of other processes of this user, share the port, and the system
    /// distributes connections among them.
    ///
    /// ```
    /// use fibra::net::TcpListener;
    ///
    /// let first = TcpListener::bind_reuse_port("127.0.0.1:0")?;
    /// let second = TcpListener::bind_reuse_port(first.local_addr()?)?;
    /// assert_eq!(first.local_addr()?, second.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_reuse_port<A: ToSocketAddrs>(address: A) -> io::Result<Self> {
        first_of(address, |address| socket::listen(&address, true)).map(Self::from)
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// If the system cannot say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get().local_addr()
    }

    /// Waits for a connection; returns it and the address of its other side.
    ///
    /// # Errors
    /// The connection was lost again, or there are no descriptors left (`EMFILE`): see [`incoming`](Self::incoming).
    #[track_caller]
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.socket.accepting(Location::caller(), Limit::Never, accept_now)
    }

    /// A connection that is there already.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock): there is none. Otherwise as [`accept`](Self::accept).
    pub fn try_accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.socket.trying(accept_now)
    }

    /// [`accept`](Self::accept), waiting so long at most.
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// use std::time::Duration;
    /// use fibra::net::{TcpListener, TcpStream};
    ///
    /// fibra::run(|| {
    ///     let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    ///     let soon = Duration::from_millis(2);
    ///     assert_eq!(listener.accept_timeout(soon).unwrap_err().kind(), ErrorKind::TimedOut);
    ///     assert_eq!(listener.try_accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    ///     let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    ///     assert_eq!(listener.accept_timeout(soon).unwrap().1, client.local_addr().unwrap());
    /// });
    /// ```
    ///
    /// # Errors
    /// [`TimedOut`](io::ErrorKind::TimedOut), and as [`accept`](Self::accept).
    #[track_caller]
    pub fn accept_timeout(&self, timeout: Duration) -> io::Result<(TcpStream, SocketAddr)> {
        self.socket.accepting(Location::caller(), Limit::After(timeout), accept_now)
    }

    /// [`accept`](Self::accept), waiting until then at most.
    ///
    /// # Errors
    /// [`TimedOut`](io::ErrorKind::TimedOut), and as [`accept`](Self::accept).
    #[track_caller]
    pub fn accept_deadline(&self, deadline: impl Into<Instant>) -> io::Result<(TcpStream, SocketAddr)> {
        self.socket.accepting(Location::caller(), until(deadline), accept_now)
    }

    /// The async form of [`accept`](Self::accept). Dropped before it is ready, it has accepted nothing.
    ///
    /// # Errors
    /// As there.
    pub async fn accept_async(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.socket.reading_async(accept_now).await
    }

    /// Accepting, as an arm of [`select!`](crate::select). If another caller takes the connection first, it waits for the next one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use fibra::net::TcpListener;
    ///
    /// fibra::run(|| {
    ///     let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    ///     fibra::select! {
    ///         on(listener.accepting()) -> _connection => unreachable!("no client connects"),
    ///         after(Duration::from_millis(1)) => {}
    ///     }
    /// });
    /// ```
    pub fn accepting(&self) -> AcceptArm<'_, (TcpStream, SocketAddr)> {
        AcceptArm::new(self)
    }

    /// Connections, one after the other, for ever. A connection that is lost before it is accepted is skipped. While the process or the
    /// system is out of descriptors or memory, it pauses and tries again: the connections wait in the listener's queue.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// Another handle to the same socket.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone(std::net::TcpListener::try_clone)? })
    }

    /// The value of `IP_TTL`.
    ///
    /// # Errors
    /// If the system cannot say.
    pub fn ttl(&self) -> io::Result<u32> {
        self.socket.get().ttl()
    }

    /// Sets the number of hops that packets may make.
    ///
    /// # Errors
    /// The value is out of range.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.socket.get().set_ttl(ttl)
    }

    /// The error that is pending on the socket, if any, which is then forgotten.
    ///
    /// # Errors
    /// If the system cannot say.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.get().take_error()
    }
}

fn accept_now(listener: &std::net::TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, from) = socket::accept(listener)?;
    Ok((TcpStream { socket: Socket::new_tcp(stream) }, from))
}

impl Listening for TcpListener {
    type Accepted = (TcpStream, SocketAddr);

    fn readiness(&self) -> Readiness<'_> {
        let io = &self.socket.io;
        io.readiness(Direction::Read, io.reports(Direction::Read))
    }

    fn accept_if_any(&self) -> io::Result<Self::Accepted> {
        self.socket.io.try_now(accept_now)
    }
}

/// See [`TcpListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    #[track_caller]
    fn next(&mut self) -> Option<Self::Item> {
        Some(accept_patiently(|| self.listener.accept()).map(|(stream, _)| stream))
    }
}

impl std::iter::FusedIterator for Incoming<'_> {}

/// Accepts, with pauses while the system lacks the resources for a connection.
#[track_caller]
pub(super) fn accept_patiently<T>(accept: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let mut backoff = Backoff::new(LONGEST_PAUSE);
    loop {
        match accept() {
            Err(error) if is_lost(&error) => {}
            Err(error) if is_shortage(&error) => backoff.sleep(),
            done => return done,
        }
    }
}

/// Was it an error of the connection that would have been accepted? (Linux passes on errors of its network.) It is out of the queue.
fn is_lost(error: &io::Error) -> bool {
    const LOST: [i32; 8] = [
        libc::ECONNABORTED,
        libc::EPROTO,
        libc::ENOPROTOOPT,
        libc::ENETDOWN,
        libc::ENETUNREACH,
        libc::EHOSTDOWN,
        libc::EHOSTUNREACH,
        libc::ENONET,
    ];
    error.raw_os_error().is_some_and(|code| LOST.contains(&code))
}

/// Is the system, or this process, out of a resource that may become free again?
fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}
