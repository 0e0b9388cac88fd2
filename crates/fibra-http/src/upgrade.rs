//! A connection that has gone over to another protocol. Below: `transport`.

use std::any::Any;
use std::fmt;
use std::io::{self, Read, Write};

use crate::transport::Transport;

/// A connection after [`Response::upgrade`](crate::Response::upgrade): a stream, to be read and written.
///
/// Bytes that the client had sent already behind its request are read first. There are no time-outs any more.
pub struct Upgraded {
    transport: Box<dyn Transport>,
    early: Vec<u8>,
    /// How many of the early bytes have been read.
    read: usize,
}

impl Upgraded {
    pub(crate) fn new(transport: Box<dyn Transport>, early: Vec<u8>) -> Self {
        Self { transport, early, read: 0 }
    }

    /// The transport, and the bytes that were read from it and not yet taken.
    pub fn into_parts(mut self) -> (Box<dyn Transport>, Vec<u8>) {
        self.early.drain(..self.read);
        (self.transport, self.early)
    }

    /// The same, if the transport is of this type: a [`fibra::net::TcpStream`], mostly.
    ///
    /// # Errors
    /// Itself, if it is of another type.
    pub fn downcast<T: Transport>(self) -> Result<(T, Vec<u8>), Self> {
        let any: &dyn Any = &*self.transport;
        if !any.is::<T>() {
            return Err(self);
        }
        let (transport, early) = self.into_parts();
        let any: Box<dyn Any> = transport;
        Ok((*any.downcast().expect("it was looked at"), early))
    }

    /// The transport, to set its time-outs.
    pub fn transport(&mut self) -> &mut dyn Transport {
        &mut *self.transport
    }
}

impl Read for Upgraded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read < self.early.len() {
            let count = (&self.early[self.read..]).read(buffer)?;
            self.read += count;
            return Ok(count);
        }
        self.transport.read(buffer)
    }
}

impl Write for Upgraded {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.transport.write(buffer)
    }
    fn write_vectored(&mut self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.transport.write_vectored(buffers)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.transport.flush()
    }
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgraded").field("early", &(self.early.len() - self.read)).finish_non_exhaustive()
    }
}
