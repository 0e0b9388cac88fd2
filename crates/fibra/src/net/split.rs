//! The halves of a TCP connection, for two owners.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

use super::stream::TcpStream;

/// The half that reads; see [`TcpStream::into_split`].
#[derive(Debug)]
pub struct OwnedReadHalf {
    stream: Arc<TcpStream>,
}

/// The half that writes; see [`TcpStream::into_split`]. When it is dropped, the other side reads the end of the stream.
#[derive(Debug)]
pub struct OwnedWriteHalf {
    stream: Arc<TcpStream>,
    /// Dropping it ends the direction.
    ends: bool,
}

/// The halves are of different connections; here they are again.
#[derive(Debug)]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the two halves are of different connections")
    }
}

impl std::error::Error for ReuniteError {}

impl OwnedReadHalf {
    pub(super) fn new(stream: Arc<TcpStream>) -> Self {
        Self { stream }
    }

    /// Makes one of two again.
    ///
    /// # Errors
    /// They are of different connections.
    pub fn reunite(self, other: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
        if !Arc::ptr_eq(&self.stream, &other.stream) {
            return Err(ReuniteError(self, other));
        }
        other.forget();
        Ok(Arc::into_inner(self.stream).expect("there are two halves, and both are here"))
    }
}

impl OwnedWriteHalf {
    pub(super) fn new(stream: Arc<TcpStream>) -> Self {
        Self { stream, ends: true }
    }

    /// Drops it, and leaves the direction open.
    pub fn forget(mut self) {
        self.ends = false;
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if self.ends {
            // Not connected any more: ended already.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
    }
}

impl AsRef<TcpStream> for OwnedReadHalf {
    fn as_ref(&self) -> &TcpStream {
        &self.stream
    }
}

impl AsRef<TcpStream> for OwnedWriteHalf {
    fn as_ref(&self) -> &TcpStream {
        &self.stream
    }
}

impl Read for OwnedReadHalf {
    #[track_caller]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self.stream).read(buffer)
    }
    #[track_caller]
    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self.stream).read_vectored(buffers)
    }
}

impl Write for OwnedWriteHalf {
    #[track_caller]
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        (&*self.stream).write(buffer)
    }
    #[track_caller]
    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self.stream).write_vectored(buffers)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
