//! TCP connections. Above: users. Below: `net::socket`, `net::addr`.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::addr::{ToSocketAddrs, first_of};
use super::socket::{Socket, like_std, reads_and_writes, timeouts_and_readiness, until, zero_timeout};
use super::split::{OwnedReadHalf, OwnedWriteHalf};
use crate::driver::socket;
use crate::time::Instant;
use crate::wait::io::Limit;

/// A TCP connection: [`std::net::TcpStream`] for fibers. It is closed when it is dropped.
///
/// ```
/// use std::io::{Read, Write};
/// use fibra::net::{TcpListener, TcpStream};
///
/// fibra::run(|| -> std::io::Result<()> {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let mut here = TcpStream::connect(listener.local_addr()?)?;
///     let (there, _) = listener.accept()?;
///     // One fiber writes while another reads, through references.
///     fibra::scope(|s| {
///         s.spawn(|| (&there).write_all(&[7; 100_000]).unwrap());
///         let mut all = vec![0; 100_000];
///         here.read_exact(&mut all).unwrap();
///         assert!(all.iter().all(|byte| *byte == 7));
///     });
///     Ok(())
/// }).unwrap();
/// ```
pub struct TcpStream {
    pub(super) socket: Socket<std::net::TcpStream>,
}

like_std!(TcpStream, std::net::TcpStream);
reads_and_writes!(TcpStream);
timeouts_and_readiness!(TcpStream);

impl TcpStream {
    /// Connects; of several addresses, to the first that answers.
    ///
    /// # Errors
    /// No socket listens there, or the way there fails. The error is that of the last address.
    #[track_caller]
    pub fn connect<A: ToSocketAddrs>(address: A) -> io::Result<Self> {
        let site = Location::caller();
        first_of(address, |address| Self::connect_to(&address, Limit::Never, site))
    }

    /// Connects, unless that takes longer than `timeout`.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); [`TimedOut`](io::ErrorKind::TimedOut); a time-out of zero.
    #[track_caller]
    pub fn connect_timeout(address: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        if timeout.is_zero() {
            return Err(zero_timeout());
        }
        Self::connect_to(address, Limit::After(timeout), Location::caller())
    }

    /// Connects, if that is possible until then.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); [`TimedOut`](io::ErrorKind::TimedOut).
    #[track_caller]
    pub fn connect_deadline(address: &SocketAddr, deadline: impl Into<Instant>) -> io::Result<Self> {
        Self::connect_to(address, until(deadline), Location::caller())
    }

    fn connect_to(address: &SocketAddr, limit: Limit, site: &'static Location<'static>) -> io::Result<Self> {
        let stream = Self { socket: Socket::new_tcp(std::net::TcpStream::from(socket::connect(address)?)) };
        stream.socket.connecting(site, limit, is_connected)?;
        Ok(stream)
    }

    /// Connects, in async code. To an address and not to a name: looking a name up blocks, see [`lookup_host`](super::lookup_host).
    ///
    /// ```
    /// use fibra::net::{TcpListener, TcpStream};
    ///
    /// fibra::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let here = TcpStream::connect_async(listener.local_addr()?).await?;
    ///     let (there, _) = listener.accept_async().await?;
    ///     here.write_all_async(b"hello").await?;
    ///     let mut heard = [0; 5];
    ///     there.read_exact_async(&mut heard).await?;
    ///     assert_eq!(&heard, b"hello");
    ///     Ok::<_, std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_async(address: SocketAddr) -> io::Result<Self> {
        let stream = Self { socket: Socket::new_tcp(std::net::TcpStream::from(socket::connect(&address)?)) };
        stream.socket.writing_async(is_connected).await?;
        Ok(stream)
    }

    /// The address of the other side.
    ///
    /// # Errors
    /// It is not connected any more.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get().peer_addr()
    }

    /// The address of this side.
    ///
    /// # Errors
    /// If the system cannot say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get().local_addr()
    }

    /// Ends reading, writing or both. The other side reads the end of the stream; a fiber that waits in a read here does so too.
    ///
    /// # Errors
    /// It is not connected any more.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.get().shutdown(how)
    }

    /// Another handle to the same connection. Time-outs are shared.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone(std::net::TcpStream::try_clone)? })
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
        self.socket.reading(Location::caller(), |stream| stream.peek(buffer))
    }

    /// The async form of [`peek`](Self::peek).
    ///
    /// # Errors
    /// As reading.
    pub async fn peek_async(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.socket.reading_async(|stream| stream.peek(buffer)).await
    }

    /// Are small writes sent at once (`TCP_NODELAY`)?
    ///
    /// # Errors
    /// If the system cannot say.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.socket.get().nodelay()
    }

    /// Has small writes sent at once, or not.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.socket.get().set_nodelay(nodelay)
    }

    /// How long closing waits for what was written and not yet taken (`SO_LINGER`); `None`: it does not wait.
    ///
    /// # Errors
    /// If the system cannot say.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        socket::linger(self.as_fd())
    }

    /// Sets how long closing waits for what was written, in whole seconds. With zero, closing resets the connection. Otherwise closing
    /// blocks the thread for so long: on a fiber, that is its worker.
    ///
    /// ```
    /// use std::io::{ErrorKind, Read};
    /// use std::time::Duration;
    /// use fibra::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let here = TcpStream::connect(listener.local_addr()?)?;
    /// let (mut there, _) = listener.accept()?;
    /// here.set_linger(Some(Duration::ZERO))?;
    /// drop(here);
    /// assert_eq!(there.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the system refuses.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        socket::set_linger(self.as_fd(), linger)
    }

    /// The number of hops that packets may make.
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

    /// Two halves, for two owners. (Where references do, no splitting is needed: `&TcpStream` reads and writes.) Dropping the half that
    /// writes ends that direction.
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use fibra::net::{TcpListener, TcpStream};
    ///
    /// fibra::run(|| {
    ///     let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    ///     let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    ///     let (mut reading, mut writing) = listener.accept().unwrap().0.into_split();
    ///     let echo = fibra::spawn(move || std::io::copy(&mut reading, &mut writing).unwrap());
    ///     (&here).write_all(b"there and back").unwrap();
    ///     here.shutdown(std::net::Shutdown::Write).unwrap();
    ///     let mut answer = String::new();
    ///     (&here).read_to_string(&mut answer).unwrap();
    ///     assert_eq!((answer.as_str(), echo.join().unwrap()), ("there and back", 14));
    /// });
    /// ```
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        let stream = Arc::new(self);
        (OwnedReadHalf::new(stream.clone()), OwnedWriteHalf::new(stream))
    }
}

/// The state of a connection attempt. `WouldBlock`: it is not decided yet.
fn is_connected(stream: &std::net::TcpStream) -> io::Result<()> {
    match stream.take_error()? {
        Some(error) => Err(error),
        None => match stream.peer_addr() {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Err(io::ErrorKind::WouldBlock.into()),
            done => done.map(|_| ()),
        },
    }
}
