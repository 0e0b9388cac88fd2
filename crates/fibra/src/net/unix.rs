//! Unix stream sockets, between processes of one machine. Above: users. Below: `net::socket`, `driver::socket`.
//!
//! The kernel does not report when a listener whose queue is full has room again: connecting to it is tried again, with pauses.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;
use std::panic::Location;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::common::accepts;
use super::socket::{Backoff, Socket, like_std, reads_and_writes, timeouts_and_readiness, zero_timeout};
use super::split::{UnixReadHalf, UnixWriteHalf};
use crate::driver::socket;
use crate::time::Instant;
use crate::wait::park;

/// The longest pause between two tries to connect to a listener whose queue is full.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// A Unix socket that accepts connections: [`std::os::unix::net::UnixListener`] for fibers.
pub struct UnixListener {
    socket: Socket<std::os::unix::net::UnixListener>,
}

like_std!(UnixListener, std::os::unix::net::UnixListener);
accepts! {
    UnixListener, std::os::unix::net::UnixListener, (UnixStream, SocketAddr), accept_now,
    /// Waits for a connection.
    ///
    /// # Errors
    /// There are no descriptors left, or what the system reports.
    accept,
    accept_timeout,
    /// Accepting, as an arm of [`select!`](crate::select); see [`TcpListener::accepting`](super::TcpListener::accepting).
    accepting,
    /// Connections, one after the other; see [`TcpListener::incoming`](super::TcpListener::incoming).
    incoming: UnixIncoming, item: UnixStream,
}

impl UnixListener {
    /// Listens on a new socket with this path. The file stays when it is dropped.
    ///
    /// # Errors
    /// There is something at that path, or what the system reports.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        std::os::unix::net::UnixListener::bind(path).map(Self::from)
    }

    /// Listens on an address, which may be an abstract name.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_addr(address: &SocketAddr) -> io::Result<Self> {
        std::os::unix::net::UnixListener::bind_addr(address).map(Self::from)
    }
}

fn accept_now(listener: &std::os::unix::net::UnixListener) -> io::Result<(UnixStream, SocketAddr)> {
    let (stream, from) = listener.accept()?;
    stream.set_nonblocking(true)?;
    Ok((UnixStream { socket: Socket::new(stream) }, from))
}

impl<'a> IntoIterator for &'a UnixListener {
    type Item = io::Result<UnixStream>;
    type IntoIter = UnixIncoming<'a>;

    fn into_iter(self) -> UnixIncoming<'a> {
        self.incoming()
    }
}

/// A connection to the same machine: [`std::os::unix::net::UnixStream`] for fibers.
///
/// ```
/// use std::io::{Read, Write};
/// use fibra::net::UnixStream;
///
/// fibra::run(|| {
///     let (mut here, mut there) = UnixStream::pair().unwrap();
///     let peer = fibra::spawn_local(move || there.write_all(b"good day").unwrap());
///     let mut said = String::new();
///     here.read_to_string(&mut said).unwrap();
///     assert_eq!(said, "good day");
///     peer.join().unwrap();
/// });
/// ```
pub struct UnixStream {
    socket: Socket<std::os::unix::net::UnixStream>,
}

like_std!(UnixStream, std::os::unix::net::UnixStream);
reads_and_writes!(UnixStream);
timeouts_and_readiness!(UnixStream);

impl UnixStream {
    /// Connects to the socket with this path.
    ///
    /// # Errors
    /// No socket listens there, or what the system reports.
    #[track_caller]
    pub fn connect<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        Self::connect_to(path.as_ref().as_os_str().as_bytes(), false, Instant::FAR_FUTURE)
    }

    /// Connects, unless that takes longer than `timeout`: it waits while the listener's queue of connections to be accepted is full.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); [`TimedOut`](io::ErrorKind::TimedOut); a time-out of zero.
    #[track_caller]
    pub fn connect_timeout<P: AsRef<Path>>(path: P, timeout: Duration) -> io::Result<Self> {
        if timeout.is_zero() {
            return Err(zero_timeout());
        }
        Self::connect_deadline(path, Instant::after(timeout))
    }

    /// Connects, if that is possible until then.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); [`TimedOut`](io::ErrorKind::TimedOut).
    #[track_caller]
    pub fn connect_deadline<P: AsRef<Path>>(path: P, deadline: impl Into<Instant>) -> io::Result<Self> {
        Self::connect_to(path.as_ref().as_os_str().as_bytes(), false, deadline.into())
    }

    /// Connects to an address, which may be an abstract name.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); the address has no name.
    #[track_caller]
    pub fn connect_addr(address: &SocketAddr) -> io::Result<Self> {
        if let Some(path) = address.as_pathname() {
            Self::connect_to(path.as_os_str().as_bytes(), false, Instant::FAR_FUTURE)
        } else if let Some(name) = address.as_abstract_name() {
            Self::connect_to(name, true, Instant::FAR_FUTURE)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "an address without a name"))
        }
    }

    #[track_caller]
    fn connect_to(name: &[u8], is_abstract: bool, deadline: Instant) -> io::Result<Self> {
        park::entry();
        let mut backoff = Backoff::new(LONGEST_PAUSE);
        loop {
            match socket::connect_unix(name, is_abstract) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => backoff.sleep_until(deadline)?,
                done => return Ok(Self { socket: Socket::new(done?.into()) }),
            }
        }
    }

    /// Waits until there is something to read, and copies it without taking it.
    ///
    /// # Errors
    /// As reading.
    #[track_caller]
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.socket.reading(Location::caller(), |socket| socket::peek(socket.as_fd(), buffer))
    }

    /// Two halves, for two owners; see [`TcpStream::into_split`](super::TcpStream::into_split).
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use fibra::net::UnixStream;
    ///
    /// fibra::run(|| {
    ///     let (here, mut there) = UnixStream::pair().unwrap();
    ///     let (reading, mut writing) = here.into_split();
    ///     writing.write_all(b"bye").unwrap();
    ///     drop(writing); // ends that direction
    ///     let mut said = String::new();
    ///     there.read_to_string(&mut said).unwrap();
    ///     assert_eq!(said, "bye");
    ///     drop(reading);
    /// });
    /// ```
    pub fn into_split(self) -> (UnixReadHalf, UnixWriteHalf) {
        let stream = Arc::new(self);
        (UnixReadHalf::new(stream.clone()), UnixWriteHalf::new(stream))
    }

    /// Connects to the socket with this path, in async code.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_async<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        let mut backoff = Backoff::new(LONGEST_PAUSE);
        loop {
            match socket::connect_unix(path.as_ref().as_os_str().as_bytes(), false) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => backoff.sleep_async().await,
                done => return Ok(Self { socket: Socket::new(done?.into()) }),
            }
        }
    }

    /// Two streams that are connected to one another.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = std::os::unix::net::UnixStream::pair()?;
        Ok((one.into(), other.into()))
    }

    /// Another handle to the same connection. Time-outs are shared.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone(std::os::unix::net::UnixStream::try_clone)? })
    }

    /// The address of this side.
    ///
    /// # Errors
    /// If the system cannot say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get().local_addr()
    }

    /// The address of the other side.
    ///
    /// # Errors
    /// It is not connected any more.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get().peer_addr()
    }

    /// Ends reading, writing or both.
    ///
    /// # Errors
    /// It is not connected any more.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.get().shutdown(how)
    }
}
