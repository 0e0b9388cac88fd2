//! What a connection runs over: a stream that can be read and written, with limits to how long it waits.
//!
//! Above: `wire`. TCP and Unix streams of fibra are transports; what is layered over one of them (TLS) becomes one by [`Layered`].

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

    /// Nothing will be written any more: tells the other side, and leaves reading open. Does nothing by default.
    ///
    /// # Errors
    /// The connection is gone.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// It will be dropped now, and that must not look like an orderly end: an answer that only the end of the connection ends broke off.
    /// Does nothing by default.
    fn abort(&mut self) {}

    /// Who is at the other end, if that can be said.
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
        // Makes the system reset the connection. If it refuses, there is nothing else to be done.
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

/// A stream over a TCP connection (TLS, say) as a transport: time-outs are those of the connection below.
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
}

impl<S: Read + Write + Send + 'static> Layered<S> {
    /// Of a stream, and how to find the connection below it.
    pub fn new(stream: S, below: fn(&S) -> &TcpStream) -> Self {
        Self { stream, below, goodbye: |stream| stream.flush() }
    }

    /// What it says before the connection below is closed for writing: the `close_notify` of TLS. By default it is flushed.
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

impl<S: Read> Read for Layered<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer)
    }
    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.stream.read_vectored(buffers)
    }
}

impl<S: Write> Write for Layered<S> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.write(buffer)
    }
    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream.write_vectored(buffers)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl<S: Read + Write + Send + 'static> Transport for Layered<S> {
    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        (self.below)(&self.stream).set_read_timeout(timeout)
    }
    fn set_write_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        (self.below)(&self.stream).set_write_timeout(timeout)
    }
    fn finish(&mut self) -> io::Result<()> {
        (self.goodbye)(&mut self.stream)?;
        (self.below)(&self.stream).shutdown(Shutdown::Write)
    }
    fn abort(&mut self) {
        // As for TCP itself.
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
