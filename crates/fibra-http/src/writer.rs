//! The body of a response that is made while it is sent. Above: `encode`. Below: `request`, whose connection it writes to.
//!
//! A chunk grows in the connection's buffer behind a place for its size, which is filled in when the chunk is closed. Code that flushes the
//! buffer closes the chunk first; that is why the request is lent out by [`BodyWriter::request`] only.

use std::fmt;
use std::io::{self, Write};

use crate::request::Request;

/// A chunk in the buffer is sent when it has so many bytes. Its size must have four digits.
const FULL: usize = 16 << 10;

/// Writes of this size and more are sent as they are, without a copy.
const LARGE: usize = 8 << 10;

/// The text before a chunk until its size is known.
const PLACE: &[u8] = b"0000\r\n";

/// How the end of the body is marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    Chunked,
    /// By the end of the connection.
    Close,
}

/// Writes the body of [`Response::stream`](crate::Response::stream). What is written is collected, and sent when there is enough of it or
/// with [`flush`](Write::flush).
pub struct BodyWriter<'a, 'c> {
    request: &'a mut Request<'c>,
    ending: Ending,
    /// Where the open chunk begins in the buffer.
    chunk: Option<usize>,
}

impl<'a, 'c> BodyWriter<'a, 'c> {
    pub(crate) fn new(request: &'a mut Request<'c>, ending: Ending) -> Self {
        Self { request, ending, chunk: None }
    }

    /// The request that is answered: its body may still be read.
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use fibra_http::Response;
    ///
    /// let echo = Response::stream(|out| {
    ///     let mut buffer = [0; 4096];
    ///     loop {
    ///         match out.request().body().read(&mut buffer)? {
    ///             0 => return Ok(()),
    ///             count => out.write_all(&buffer[..count])?,
    ///         }
    ///     }
    /// });
    /// # let _ = echo;
    /// ```
    pub fn request(&mut self) -> &mut Request<'c> {
        self.close_chunk();
        self.request
    }

    fn out(&mut self) -> &mut Vec<u8> {
        self.request.body.link.out()
    }

    fn close_chunk(&mut self) {
        let Some(start) = self.chunk.take() else { return };
        let out = self.out();
        let length = out.len() - start - PLACE.len();
        if length == 0 {
            return out.truncate(start);
        }
        for (place, shift) in [12, 8, 4, 0].into_iter().enumerate() {
            out[start + place] = b"0123456789abcdef"[length >> shift & 15];
        }
        out.extend_from_slice(b"\r\n");
    }

    /// The end of the body.
    pub(crate) fn finish(mut self) {
        self.close_chunk();
        if self.ending == Ending::Chunked {
            self.out().extend_from_slice(b"0\r\n\r\n");
        }
    }
}

impl Write for BodyWriter<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let is_chunked = self.ending == Ending::Chunked;
        if bytes.len() >= LARGE {
            self.close_chunk();
            if is_chunked {
                write!(self.out(), "{:x}\r\n", bytes.len())?;
            }
            self.request.body.link.flush_with(bytes)?;
            if is_chunked {
                self.out().extend_from_slice(b"\r\n");
            }
            return Ok(bytes.len());
        }
        if is_chunked && self.chunk.is_none() {
            self.chunk = Some(self.out().len());
            self.out().extend_from_slice(PLACE);
        }
        self.out().extend_from_slice(bytes);
        if self.out().len() >= FULL {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.close_chunk();
        self.request.body.link.flush()
    }
}

impl fmt::Debug for BodyWriter<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyWriter").field("ending", &self.ending).finish_non_exhaustive()
    }
}
