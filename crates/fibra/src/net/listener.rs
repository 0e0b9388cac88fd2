//! Listening for TCP connections. Above: users. Below: `net::socket`, `net::arm`.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::addr::{ToSocketAddrs, first_of};
use super::common::accepts;
use super::socket::{Backoff, Socket, like_std};
use super::stream::TcpStream;
use crate::driver::socket;

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
accepts! {
    TcpListener, std::net::TcpListener, (TcpStream, SocketAddr), accept_now,
    /// Waits for a connection; returns it and the address of its other side.
    ///
    /// # Errors
    /// The connection was lost again, or there are no descriptors left (`EMFILE`): see [`incoming`](Self::incoming).
    accept,
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
    accept_timeout,
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
    accepting,
    /// Connections, one after the other, for ever. A connection that is lost before it is accepted is skipped. While the process or the
    /// system is out of descriptors or memory, it pauses and tries again: the connections wait in the listener's queue.
    incoming: Incoming, item: TcpStream,
}

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
}

fn accept_now(listener: &std::net::TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, from) = listener.accept()?;
    stream.set_nonblocking(true)?;
    Ok((TcpStream { socket: Socket::new_tcp(stream) }, from))
}

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
