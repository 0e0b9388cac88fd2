//! Datagrams over Unix sockets, between processes of one machine. Above: users. Below: `net::socket`.
//!
//! A receiver whose queue is full makes senders wait. The kernel tells a connected sender when there is room. It does not tell a sender
//! that names the receiver with each datagram, so that sender tries again, with pauses.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::SocketAddr;
use std::panic::Location;
use std::path::Path;
use std::time::Duration;

use super::common::datagrams;
use super::socket::{Backoff, Socket, like_std, timeouts_and_readiness};
use crate::driver::socket;
use crate::time::Instant;
use crate::wait::io::Direction;
use crate::wait::park;

/// The longest pause between two tries to send to a receiver whose queue is full.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

type StdDatagram = std::os::unix::net::UnixDatagram;

/// A Unix datagram socket: [`std::os::unix::net::UnixDatagram`] for fibers.
///
/// ```
/// use fibra::net::UnixDatagram;
///
/// fibra::run(|| {
///     let (here, there) = UnixDatagram::pair().unwrap();
///     here.send(b"one").unwrap();
///     let mut buffer = [0; 8];
///     assert_eq!(there.recv(&mut buffer).unwrap(), 3);
/// });
/// ```
pub struct UnixDatagram {
    socket: Socket<StdDatagram>,
}

like_std!(UnixDatagram, std::os::unix::net::UnixDatagram);
timeouts_and_readiness!(UnixDatagram);
datagrams! {
    UnixDatagram, StdDatagram, SocketAddr, an unconnected one: "UnixDatagram::unbound()",
    /// Waits for a datagram.
    ///
    /// # Errors
    /// Time-outs, and what the system reports.
    recv,
    /// Sends to the address it is connected to. Waits while the receiver's queue is full.
    ///
    /// # Errors
    /// Time-outs, and what the system reports.
    send,
}

impl UnixDatagram {
    /// A socket with this path. The file stays when it is dropped.
    ///
    /// # Errors
    /// There is something at that path, or what the system reports.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        StdDatagram::bind(path).map(Self::from)
    }

    /// A socket with this address, which may be an abstract name.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_addr(address: &SocketAddr) -> io::Result<Self> {
        StdDatagram::bind_addr(address).map(Self::from)
    }

    /// A socket without an address.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn unbound() -> io::Result<Self> {
        StdDatagram::unbound().map(Self::from)
    }

    /// Two sockets that are connected to one another.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = StdDatagram::pair()?;
        Ok((one.into(), other.into()))
    }

    /// Sends to the socket with this path from now on.
    ///
    /// # Errors
    /// It is not there, or what the system reports.
    pub fn connect<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.socket.get().connect(path)
    }

    /// Sends to this address from now on.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_addr(&self, address: &SocketAddr) -> io::Result<()> {
        self.socket.get().connect_addr(address)
    }

    /// Waits until there is something to receive, and copies it without taking it.
    ///
    /// # Errors
    /// As receiving.
    #[track_caller]
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.reading(Location::caller(), |socket| socket::peek(socket.as_fd(), buffer))
    }

    /// Sends to the socket with this path. Waits while the receiver's queue is full.
    ///
    /// # Errors
    /// Time-outs, and what the system reports.
    #[track_caller]
    pub fn send_to<P: AsRef<Path>>(&self, buffer: &[u8], path: P) -> io::Result<usize> {
        let path = path.as_ref();
        self.sending_to(|socket| socket.send_to(buffer, path))
    }

    /// [`send_to`](Self::send_to), if there is room.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock): there is none. Otherwise as [`send_to`](Self::send_to).
    pub fn try_send_to<P: AsRef<Path>>(&self, buffer: &[u8], path: P) -> io::Result<usize> {
        let path = path.as_ref();
        self.socket.trying(|socket| socket.send_to(buffer, path))
    }

    /// Sends to this address. Waits while the receiver's queue is full.
    ///
    /// # Errors
    /// Time-outs, and what the system reports.
    #[track_caller]
    pub fn send_to_addr(&self, buffer: &[u8], address: &SocketAddr) -> io::Result<usize> {
        self.sending_to(|socket| socket.send_to_addr(buffer, address))
    }

    /// The async form of [`send_to`](Self::send_to).
    ///
    /// # Errors
    /// What the system reports.
    pub async fn send_to_async<P: AsRef<Path>>(&self, buffer: &[u8], path: P) -> io::Result<usize> {
        let mut backoff = Backoff::new(LONGEST_PAUSE);
        loop {
            match self.socket.get().send_to(buffer, path.as_ref()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => backoff.sleep_async().await,
                done => return done,
            }
        }
    }

    #[track_caller]
    fn sending_to(&self, attempt: impl Fn(&StdDatagram) -> io::Result<usize>) -> io::Result<usize> {
        park::entry();
        let deadline = self.socket.limit(Direction::Write).map_or(Instant::FAR_FUTURE, Instant::after);
        let mut backoff = Backoff::new(LONGEST_PAUSE);
        loop {
            match attempt(self.socket.get()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => backoff.sleep_until(deadline)?,
                done => return done,
            }
        }
    }

    /// The address of this socket.
    ///
    /// # Errors
    /// If the system cannot say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get().local_addr()
    }

    /// The address it is connected to.
    ///
    /// # Errors
    /// It is not connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get().peer_addr()
    }

    /// Ends receiving, sending or both.
    ///
    /// # Errors
    /// It is not connected.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.get().shutdown(how)
    }
}
