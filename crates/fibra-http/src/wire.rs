//! A transport with a buffer for outgoing bytes, and the time-outs.
//!
//! Above: `body`, which reads from it, `encode`, which fills the buffer, and `connection`. Below: `transport`.
//!
//! * What is in the buffer is sent before the connection waits for bytes of the client.
//! * The first attempt of a write costs no look at the clock; only a write that could not be done at once has a deadline.

use std::io::{self, IoSlice};
use std::time::Duration;

use fibra::time::Instant;

use crate::limits::Limits;
use crate::transport::Transport;

/// A buffer that has grown beyond this is given back when it is empty.
const KEPT: usize = 64 << 10;

/// The least time-out that is asked for: a time-out of zero is none.
const LEAST: Duration = Duration::from_micros(1);

/// The greatest time-out: a transport may be limited by the range of the system's structures.
const GREATEST: Duration = Duration::from_secs(365 * 86_400);

/// See the header.
pub(crate) struct Wire<T> {
    pub(crate) transport: T,
    pub(crate) out: Vec<u8>,
    pub(crate) limits: Limits,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    /// A write failed: a part may have been sent, and nothing can follow it.
    pub(crate) broken: bool,
    /// How often something was sent.
    sends: u64,
}

/// The same, for code that must not know the transport.
pub(crate) trait Link {
    fn limits(&self) -> &Limits;
    fn out(&mut self) -> &mut Vec<u8>;
    /// How often something was sent, or sending it began.
    fn sends(&self) -> u64;
    /// Sends what is in the buffer.
    fn flush(&mut self) -> io::Result<()>;
    /// Sends what is in the buffer and this after it.
    fn flush_with(&mut self, more: &[u8]) -> io::Result<()>;
    /// Reads, waiting for so long at most.
    fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<usize>;
    fn peer_addr(&self) -> Option<std::net::SocketAddr>;
}

impl<T: Transport> Wire<T> {
    pub(crate) fn new(transport: T, limits: Limits) -> Self {
        Self { transport, out: Vec::new(), limits, read_timeout: None, write_timeout: None, broken: false, sends: 0 }
    }

    fn set_write_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        let timeout = Some(timeout.max(LEAST));
        if self.write_timeout != timeout {
            self.transport.set_write_timeout(timeout)?;
            self.write_timeout = timeout;
        }
        Ok(())
    }

    /// Tells the client that nothing follows. A layer may have to write for that; this write has the time-out of an answer.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.set_write_timeout(self.limits.write_timeout)?;
        self.transport.finish()
    }

    /// Sends the buffer and then `more`, all of both.
    fn send(&mut self, more: &[u8]) -> io::Result<()> {
        let total = self.out.len() + more.len();
        if total == 0 {
            return Ok(());
        }
        if self.broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // Broken until all is sent: unwinding out of a write leaves it broken, too.
        self.broken = true;
        self.sends += 1;
        self.set_write_timeout(self.limits.write_timeout)?;
        let (mut sent, mut deadline) = (0, None);
        while sent < total {
            let written = if more.is_empty() {
                self.transport.write(&self.out[sent..])
            } else if sent < self.out.len() {
                self.transport.write_vectored(&[IoSlice::new(&self.out[sent..]), IoSlice::new(more)])
            } else {
                self.transport.write(&more[sent - self.out.len()..])
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if sent < total {
                let limits = &self.limits;
                let deadline: Instant = *deadline.get_or_insert_with(|| {
                    Instant::after(limits.write_timeout).saturating_add(limits.granted(total as u64))
                });
                match deadline.remaining() {
                    Duration::ZERO => return Err(io::ErrorKind::TimedOut.into()),
                    remaining => self.set_write_timeout(remaining.min(self.limits.write_timeout))?,
                }
            }
        }
        self.transport.flush()?;
        self.broken = false;
        self.out.clear();
        if self.out.capacity() > KEPT {
            self.out = Vec::new();
        }
        Ok(())
    }
}

impl<T: Transport> Link for Wire<T> {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    fn sends(&self) -> u64 {
        self.sends
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send(&[])
    }

    fn flush_with(&mut self, more: &[u8]) -> io::Result<()> {
        self.send(more)
    }

    fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<usize> {
        let timeout = Some(timeout.clamp(LEAST, GREATEST));
        if self.read_timeout != timeout {
            self.transport.set_read_timeout(timeout)?;
            self.read_timeout = timeout;
        }
        loop {
            match self.transport.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    fn peer_addr(&self) -> Option<std::net::SocketAddr> {
        self.transport.peer_addr()
    }
}
