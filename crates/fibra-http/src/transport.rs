//! The transport of a connection: a stream that can be read and written, with limits to how long it waits.
//!
//! Above: `wire`. TCP and Unix streams of fibra are transports; [`Layered`] makes a transport of a stream over one of them (TLS).

use std::any::Any;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use fibra::net::{TcpStream, UnixStream};

/// A stream that HTTP can be spoken over.
///
/// Reads and writes wait, and fail with [`TimedOut`](io::ErrorKind::TimedOut) when that takes longer than was allowed. For a stream that
/// only wraps another one, see [`Layered`].
pub trait Transport: Read + Write + Send + Any {
    /// How long a read waits at most. Never zero.
    ///
    /// # Errors
    /// The connection is gone.
    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// How long a write waits at most. Never zero.
    ///
    /// # Errors
    /// The connection is gone.
    fn set_write_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// Nothing will be written any more: tells the client, and leaves reading open. Does nothing by default.
    ///
    /// # Errors
    /// The connection is gone.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The transport will be dropped now, and that must not look like an orderly end: an answer whose end is the end of the connection
    /// broke off. Does nothing by default.
    fn abort(&mut self) {}

    /// The address of the other end, if it is known.
    fn peer_addr(&self) -> Option<SocketAddr> {
        None
    }
}

impl Transport for TcpStream {
    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        TcpStream::set_read_timeout(self, timeout)
    }
    fn set_write_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        TcpStream::set_write_timeout(self, timeout)
    }
    fn finish(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
    fn abort(&mut self) {
        // Makes the system reset the connection. If it refuses, nothing else can be done.
        let _ = self.set_linger(Some(Duration::ZERO));
    }
    fn peer_addr(&self) -> Option<SocketAddr> {
        TcpStream::peer_addr(self).ok()
    }
}

impl Transport for UnixStream {
    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        UnixStream::set_read_timeout(self, timeout)
    }
    fn set_write_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        UnixStream::set_write_timeout(self, timeout)
    }
    fn finish(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// A stream over a TCP connection (TLS, say) as a transport. Time-outs are those of the connection below; but if a read of the layer
/// makes several reads below, each of them just in time, it is cancelled: it unwinds, and is called again only for its farewell.
/// Likewise for writes, where each 64 KiB have that time.
///
/// ```
/// use std::io::{self, Read, Write};
/// use fibra::net::TcpStream;
/// use fibra_http::{Layered, Transport};
///
/// /// Stands for `rustls::StreamOwned<ServerConnection, TcpStream>`.
/// struct Tls {
///     sock: TcpStream,
/// }
/// # impl Read for Tls {
/// #     fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> { self.sock.read(buffer) }
/// # }
/// # impl Write for Tls {
/// #     fn write(&mut self, buffer: &[u8]) -> io::Result<usize> { self.sock.write(buffer) }
/// #     fn flush(&mut self) -> io::Result<()> { Ok(()) }
/// # }
///
/// fn over_tls(stream: TcpStream) -> impl Transport {
///     Layered::new(Tls { sock: stream }, |tls| &tls.sock)
/// }
/// ```
pub struct Layered<S> {
    stream: S,
    below: fn(&S) -> &TcpStream,
    goodbye: fn(&mut S) -> io::Result<()>,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    /// Bytes that the layer has been given since it was flushed.
    unflushed: usize,
}

/// The time that a layer may take beyond that of the connection below. The connection should report the time-out itself, because that
/// unwinds nothing.
const GRACE: Duration = Duration::from_millis(50);

/// Each piece of so many bytes that a layer sends has the time of one write below.
const PIECE: usize = 64 << 10;

/// Calls the layer, for so long at most.
fn within<T>(timeout: Option<Duration>, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    match timeout {
        // Without a runtime there is no scope that could cancel it.
        Some(timeout) if fibra::Handle::try_current().is_some() => fibra::timeout(timeout.saturating_add(GRACE), call)
            .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "the layer took too long"))),
        _ => call(),
    }
}

impl<S: Read + Write + Send + 'static> Layered<S> {
    /// Wraps a stream; `below` finds the connection below it.
    pub fn new(stream: S, below: fn(&S) -> &TcpStream) -> Self {
        Self { stream, below, goodbye: |stream| stream.flush(), read_timeout: None, write_timeout: None, unflushed: 0 }
    }

    /// Sets what the layer writes before the connection below is closed for writing: the `close_notify` of TLS. By default it is flushed.
    #[must_use]
    pub fn saying_goodbye(mut self, goodbye: fn(&mut S) -> io::Result<()>) -> Self {
        self.goodbye = goodbye;
        self
    }

    /// The stream.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// The stream.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The stream again.
    pub fn into_inner(self) -> S {
        self.stream
    }
}

impl<S> Layered<S> {
    /// Writes, with the time for so many bytes and those before them.
    fn writing<T>(&mut self, bytes: usize, call: impl FnOnce(&mut S) -> io::Result<T>) -> io::Result<T> {
        self.unflushed = self.unflushed.saturating_add(bytes);
        let pieces = u32::try_from(1 + self.unflushed / PIECE).unwrap_or(u32::MAX);
        let timeout = self.write_timeout.map(|timeout| timeout.saturating_mul(pieces));
        within(timeout, || call(&mut self.stream))
    }
}

impl<S: Read> Read for Layered<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        within(self.read_timeout, || self.stream.read(buffer))
    }
    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        within(self.read_timeout, || self.stream.read_vectored(buffers))
    }
}

impl<S: Write> Write for Layered<S> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.writing(buffer.len(), |stream| stream.write(buffer))
    }
    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes = buffers.iter().fold(0, |sum: usize, buffer| sum.saturating_add(buffer.len()));
        self.writing(bytes, |stream| stream.write_vectored(buffers))
    }
    fn flush(&mut self) -> io::Result<()> {
        self.writing(0, Write::flush)?;
        self.unflushed = 0;
        Ok(())
    }
}

impl<S: Read + Write + Send + 'static> Transport for Layered<S> {
    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.read_timeout = timeout;
        (self.below)(&self.stream).set_read_timeout(timeout)
    }
    fn set_write_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.write_timeout = timeout;
        (self.below)(&self.stream).set_write_timeout(timeout)
    }
    fn finish(&mut self) -> io::Result<()> {
        let goodbye = self.goodbye;
        self.writing(0, goodbye)?;
        (self.below)(&self.stream).shutdown(Shutdown::Write)
    }
    fn abort(&mut self) {
        // As for TCP without a layer.
        let _ = (self.below)(&self.stream).set_linger(Some(Duration::ZERO));
    }
    fn peer_addr(&self) -> Option<SocketAddr> {
        (self.below)(&self.stream).peer_addr().ok()
    }
}

impl<S: fmt::Debug> fmt::Debug for Layered<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Layered").field(&self.stream).finish()
    }
}
