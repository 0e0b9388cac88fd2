//! The body of a request, as a reader.
//!
//! Above: `request` and `connection`. Below: `wire` and `chunk`. Bytes that came with the head lie in `tail`, the part of the connection's
//! buffer behind the head; more is read into it, or straight into the reader's buffer if that is larger. What follows the body is the
//! next request and stays in `tail`.
//!
//! * Not a byte beyond the body is given out, and bytes beyond it are read only into `tail`.
//! * An error is for ever: after it the end of the body cannot be found, and the connection is closed.
//! * Nothing is read before the handler reads: a client that waits for `100 Continue` gets it with the first read.

use std::io::{self, Read};
use std::time::Duration;

use fibra::time::Instant;

use crate::chunk::{self, Malformed};
use crate::error::{BodyError, is_timeout};
use crate::head::Framing;
use crate::wire::Link;

/// The part of the buffer behind the head has at least so many bytes, for a request with a body: a line with a chunk's size fits, and so
/// does a modest trailer.
pub(crate) const LEAST_TAIL: usize = 4 << 10;

/// Bytes of chunk extensions that a body may have in all. No handler reads them, and they cost time.
const MOST_EXTENSIONS: usize = 16 << 10;

/// Trailer fields that a body may have.
const MOST_TRAILERS: usize = 32;

/// How much room [`Body::bytes`] makes before anything has come: a client that announces a long body must not cost memory.
const FIRST_ROOM: u64 = 64 << 10;

/// The progress of reading the body. Belongs to the connection, and outlives the [`Body`].
#[derive(Debug, Default)]
pub(crate) struct BodyState {
    /// What lies in the tail: `tail[start..end]`.
    pub(crate) start: usize,
    pub(crate) end: usize,
    stage: Stage,
    announced: Option<u64>,
    /// Bytes of the body that have been given out.
    given: u64,
    /// Bytes that may be given out.
    limit: u64,
    extensions: usize,
    pub(crate) expects_continue: bool,
    /// How long the client was waited for, for the time-out. The handler's time between two reads does not count.
    waited: Duration,
    trailers: Vec<(String, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Done,
    /// So many bytes are left, and no trailer follows them.
    Length(u64),
    Size,
    /// So many bytes of a chunk are left.
    Data(u64),
    DataEnd,
    Trailer,
    /// After an error.
    Broken,
}

impl BodyState {
    /// Begins the body of a request; as far as it has come, it lies in `tail[..end]`.
    pub(crate) fn begin(&mut self, framing: Framing, expects_continue: bool, end: usize, limit: u64) {
        let stage = match framing {
            Framing::None | Framing::Length(0) => Stage::Done,
            Framing::Length(length) => Stage::Length(length),
            Framing::Chunked => Stage::Size,
        };
        let announced = match framing {
            Framing::None => Some(0),
            Framing::Length(length) => Some(length),
            Framing::Chunked => None,
        };
        let expects_continue = expects_continue && stage != Stage::Done;
        let mut trailers = std::mem::take(&mut self.trailers);
        trailers.clear();
        *self = Self {
            start: 0,
            end,
            stage,
            announced,
            given: 0,
            limit,
            extensions: 0,
            expects_continue,
            waited: Duration::ZERO,
            trailers,
        };
    }

    pub(crate) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.stage == Stage::Broken
    }

    /// How many bytes are left, if that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        match self.stage {
            Stage::Done => Some(0),
            Stage::Length(left) => Some(left),
            _ => None,
        }
    }
}

/// The body of a request. It is read with [`Read`], or as a whole with [`bytes`](Self::bytes) and [`text`](Self::text).
///
/// Its end is the end of the body, chunked or not. Errors of reading are [`BodyError`]s inside of [`io::Error`]s. What is not read is
/// read away afterwards if it is not too much, or else the connection is closed.
pub struct Body<'c> {
    pub(crate) tail: &'c mut [u8],
    pub(crate) state: &'c mut BodyState,
    pub(crate) link: &'c mut dyn Link,
}

impl Body<'_> {
    /// All bytes that are left of it.
    ///
    /// # Errors
    /// It is too long, comes too slowly, breaks off, or is malformed.
    pub fn bytes(&mut self) -> Result<Vec<u8>, BodyError> {
        let room = self.state.left().unwrap_or(0).min(FIRST_ROOM);
        let mut bytes = Vec::with_capacity(room as usize);
        self.read_to_end(&mut bytes).map_err(BodyError::from_io)?;
        Ok(bytes)
    }

    /// All bytes that are left of it, as text.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes); it is not UTF-8.
    pub fn text(&mut self) -> Result<String, BodyError> {
        String::from_utf8(self.bytes()?).map_err(|_| BodyError::NotUtf8)
    }

    /// The length that was announced: 0 if there is no body, `None` if it comes in chunks.
    pub fn announced(&self) -> Option<u64> {
        self.state.announced
    }

    /// Allows so many bytes for this body, if that is less than the server does. A body that is announced to be longer fails with the
    /// first read.
    pub fn limit(&mut self, bytes: u64) {
        self.state.limit = self.state.limit.min(bytes);
    }

    /// The fields that came after a body in chunks, when all of it has been read. They are for information: nothing that concerns the
    /// connection is taken from them.
    pub fn trailers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.state.trailers.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// Has all of it been read?
    pub fn is_finished(&self) -> bool {
        self.state.is_done()
    }

    /// Reads and throws away at most so many bytes; true if that was all.
    pub(crate) fn drain(&mut self, most: u64) -> Result<bool, BodyError> {
        // The handler's limit is for what it reads itself.
        self.state.limit = self.state.given.saturating_add(most);
        let mut scratch = [0; 1024];
        loop {
            match self.read(&mut scratch).map_err(BodyError::from_io) {
                Ok(0) => return Ok(true),
                Ok(_) => {}
                Err(BodyError::TooLong) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    fn buffered(&self) -> &[u8] {
        &self.tail[self.state.start..self.state.end]
    }

    /// Before waiting for the client: sends what is in the buffer, with `100 Continue` if the client waits for it. Returns how long to
    /// wait.
    fn before_waiting(&mut self) -> Result<Duration, BodyError> {
        if std::mem::take(&mut self.state.expects_continue) {
            self.link.out().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        self.link.flush().map_err(BodyError::Io)?;
        let limits = self.link.limits();
        let allowed = limits.body_timeout.saturating_add(limits.granted(self.state.given));
        match allowed.saturating_sub(self.state.waited) {
            Duration::ZERO => Err(BodyError::TimedOut),
            remaining => Ok(remaining),
        }
    }

    /// Reads more into the tail.
    fn fill(&mut self) -> Result<(), BodyError> {
        let timeout = self.before_waiting()?;
        if self.state.start > 0 {
            self.tail.copy_within(self.state.start..self.state.end, 0);
            self.state.end -= self.state.start;
            self.state.start = 0;
        }
        if self.state.end == self.tail.len() {
            // Only lines and trailers are gathered here.
            return Err(BodyError::Malformed);
        }
        let began = Instant::now();
        let read = self.link.read(&mut self.tail[self.state.end..], timeout);
        self.state.waited += began.elapsed();
        match read {
            Ok(0) => Err(BodyError::Incomplete),
            Ok(count) => {
                self.state.end += count;
                Ok(())
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Reads bytes of the body, of which `left` are left here.
    fn read_data(&mut self, buffer: &mut [u8], left: u64) -> Result<usize, BodyError> {
        let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if self.buffered().is_empty() {
            if most >= self.tail.len() {
                let timeout = self.before_waiting()?;
                let began = Instant::now();
                let read = self.link.read(&mut buffer[..most], timeout);
                self.state.waited += began.elapsed();
                return match read {
                    Ok(0) => Err(BodyError::Incomplete),
                    Ok(count) => Ok(count),
                    Err(error) => Err(failed(error)),
                };
            }
            self.fill()?;
        }
        let there = self.buffered();
        let count = most.min(there.len());
        buffer[..count].copy_from_slice(&there[..count]);
        self.state.start += count;
        Ok(count)
    }

    fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize, BodyError> {
        loop {
            match self.state.stage {
                Stage::Done => return Ok(0),
                Stage::Broken => return Err(BodyError::Incomplete),
                Stage::Length(left) | Stage::Data(left) => {
                    let allowed = self.state.limit.saturating_sub(self.state.given);
                    if left > allowed {
                        return Err(BodyError::TooLong);
                    }
                    let count = self.read_data(buffer, left)?;
                    self.state.given += count as u64;
                    let left = left - count as u64;
                    self.state.stage = match (self.state.stage, left) {
                        (Stage::Length(_), 0) => Stage::Done,
                        (Stage::Length(_), _) => Stage::Length(left),
                        (_, 0) => Stage::DataEnd,
                        _ => Stage::Data(left),
                    };
                    return Ok(count);
                }
                Stage::Size => match chunk::size_line(self.buffered())? {
                    None => self.fill()?,
                    Some(line) => {
                        self.state.start += line.length;
                        self.state.extensions += line.extension;
                        if self.state.extensions > MOST_EXTENSIONS {
                            return Err(BodyError::Malformed);
                        }
                        self.state.stage = if line.size == 0 { Stage::Trailer } else { Stage::Data(line.size) };
                    }
                },
                Stage::DataEnd => match chunk::data_end(self.buffered())? {
                    None => self.fill()?,
                    Some(length) => {
                        self.state.start += length;
                        self.state.stage = Stage::Size;
                    }
                },
                Stage::Trailer => match chunk::trailer_end(self.buffered())? {
                    None => self.fill()?,
                    Some(length) => {
                        self.take_trailers(length)?;
                        self.state.start += length;
                        self.state.stage = Stage::Done;
                    }
                },
            }
        }
    }

    fn take_trailers(&mut self, length: usize) -> Result<(), BodyError> {
        let section = &self.tail[self.state.start..self.state.start + length];
        if length == 2 {
            return Ok(());
        }
        let mut fields = [httparse::EMPTY_HEADER; MOST_TRAILERS];
        match httparse::parse_headers(section, &mut fields) {
            Ok(httparse::Status::Complete((parsed, fields))) if parsed == length => {
                let owned = fields.iter().map(|field| (field.name.to_owned(), field.value.trim_ascii().to_vec()));
                self.state.trailers.extend(owned);
                Ok(())
            }
            _ => Err(BodyError::Malformed),
        }
    }
}

impl From<Malformed> for BodyError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

fn failed(error: io::Error) -> BodyError {
    if is_timeout(&error) { BodyError::TimedOut } else { BodyError::Io(error) }
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.read_some(buffer).map_err(|error| {
            self.state.stage = Stage::Broken;
            error.into()
        })
    }
}

impl std::fmt::Debug for Body<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Body")
            .field("given", &self.state.given)
            .field("left", &self.state.left())
            .finish_non_exhaustive()
    }
}
