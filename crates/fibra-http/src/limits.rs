//! The limits of a connection: sizes and times. Set by [`Builder`](crate::Builder), read everywhere.
//!
//! * No limit is allocated as given: memory grows with the bytes that have come.
//! * No time is restarted by a byte that comes or is taken; each limit says what lengthens its time.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

/// The shortest head there is: `GET / HTTP/1.0`, an end of line and an empty line.
const SHORTEST_HEAD: usize = 18;

/// The longest head that may be allowed: a client can make the server hold that much, and places in a head are 32 bits wide.
const LONGEST_HEAD: usize = 1 << 30;

/// The limits of a connection; those of a server are set with its [`Builder`](crate::Builder), whose methods have the same names.
///
/// ```
/// use fibra_http::Limits;
///
/// let limits = Limits { max_body_bytes: 1 << 20, ..Limits::default() };
/// assert_eq!(limits.max_headers, 100);
/// ```
///
/// No limit costs memory by itself: received bytes do. A client that sends or takes a byte now and then gains no time by it, except what
/// [`min_rate`](Self::min_rate) grants. Limits that make no sense are refused before anything is served: see [`check`](Self::check).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs)] // Meant to be written with `..Limits::default()`.
pub struct Limits {
    /// The bytes of a request's head, with its empty line. Longer: 400, and the connection is closed. 16 KiB; at least 18 bytes and at most
    /// 1 GiB.
    pub max_head_bytes: usize,
    /// The header fields of a request. More: 400, and the connection is closed. 100; at least 1.
    pub max_headers: usize,
    /// The bytes of a request's body. More: 413, and the connection is closed. 2 MiB.
    pub max_body_bytes: u64,
    /// How many requests a connection may bring; the last one is answered with `Connection: close`. No limit; at least 1.
    pub max_requests: u64,
    /// How long a head may take, from its first byte to its last. A new connection has this time for everything from its beginning to the
    /// end of its first head: silence, empty lines, the head. Longer: 408, and the connection is closed. 10 s; more than zero.
    pub head_timeout: Duration,
    /// How long a connection may be silent between two requests, from the last answer to the first byte of the next head; empty lines count
    /// as silence. Longer: the connection is closed without an answer. 60 s; more than zero.
    pub idle_timeout: Duration,
    /// How long a body may be waited for in all, beside what [`min_rate`](Self::min_rate) grants it: data, chunk sizes, extensions and
    /// trailers together, read by the handler or read away. (What the handler does between two reads does not count.) Longer: 408. 30 s;
    /// more than zero.
    pub body_timeout: Duration,
    /// How long it may take to send an answer, beside what [`min_rate`](Self::min_rate) grants it, from when not all of it could be sent at
    /// once; for an answer that is made bit by bit, each bit. So long may also nothing at all be taken. Longer: the connection is closed.
    /// 30 s; more than zero.
    pub write_timeout: Duration,
    /// Bytes a second that the other side has to take or give: so many of them lengthen the time-outs of bodies and answers by a second.
    /// Of a body only its data counts. 1000; with 0 those time-outs never come.
    pub min_rate: u32,
    /// How much of a body that the handler has not read is read away to keep the connection. More: it is closed. 64 KiB.
    pub max_drain_bytes: u64,
    /// How long an answer is given to arrive before a connection is closed on which the other side is still sending. (Closing at once
    /// would make the system throw away what it has not taken yet.) Meanwhile what it sends is read and thrown away, which
    /// lengthens the time as [`min_rate`](Self::min_rate) says, by at most [`body_timeout`](Self::body_timeout) and not while the server
    /// stops. Silence for this long is the end in any case. 1 s.
    pub linger: Duration,
    /// How much is read and thrown away meanwhile. More: the connection is closed, and the other side may lose its answer. 64 MiB.
    pub max_linger_bytes: u64,
    /// Are answers to pipelined requests collected and sent together, as long as the next request is already there? An answer then waits
    /// for the handler of the next request. Yes.
    pub batch: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_head_bytes: 16 << 10,
            max_headers: 100,
            max_body_bytes: 2 << 20,
            max_requests: u64::MAX,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            min_rate: 1000,
            max_drain_bytes: 64 << 10,
            linger: Duration::from_secs(1),
            max_linger_bytes: 64 << 20,
            batch: true,
        }
    }
}

impl Limits {
    /// Are these limits that a connection can be served with? [`Builder::bind`](crate::Builder::bind), `listen` and
    /// [`serve_connection`](crate::serve_connection) ask this first.
    ///
    /// ```
    /// use std::time::Duration;
    /// use fibra_http::Limits;
    ///
    /// assert!(Limits::default().check().is_ok());
    /// let error = Limits { head_timeout: Duration::ZERO, ..Limits::default() }.check().unwrap_err();
    /// assert_eq!(error.field(), "head_timeout");
    /// ```
    ///
    /// # Errors
    /// One of them is not possible; the error names it, its value, and what to set instead.
    pub fn check(&self) -> Result<(), LimitError> {
        let refuse =
            |field, value: &dyn fmt::Debug, advice| Err(LimitError { field, value: format!("{value:?}"), advice });
        if self.max_head_bytes < SHORTEST_HEAD {
            return refuse(
                "max_head_bytes",
                &self.max_head_bytes,
                "no head is so short; set at least 18, by default it is 16384",
            );
        }
        if self.max_head_bytes > LONGEST_HEAD {
            let advice =
                "a client could make the server hold that much; set at most 1073741824 (1 GiB), by default it is 16384";
            return refuse("max_head_bytes", &self.max_head_bytes, advice);
        }
        if self.max_headers == 0 {
            let advice = "a request of version 1.1 has at least one field, Host; set at least 1, by default it is 100";
            return refuse("max_headers", &self.max_headers, advice);
        }
        if self.max_requests == 0 {
            let advice = "a connection brings at least one request; set at least 1, or u64::MAX for no limit";
            return refuse("max_requests", &self.max_requests, advice);
        }
        let times = [
            ("head_timeout", self.head_timeout, "no head comes in no time; set more than zero, by default it is 10 s"),
            (
                "idle_timeout",
                self.idle_timeout,
                "no request comes in no time; set more than zero (60 s by default), or set max_requests to 1 to close \
                 after each answer",
            ),
            ("body_timeout", self.body_timeout, "no body comes in no time; set more than zero, by default it is 30 s"),
            (
                "write_timeout",
                self.write_timeout,
                "no answer is sent in no time; set more than zero, by default it is 30 s",
            ),
        ];
        match times.into_iter().find(|(_, time, _)| time.is_zero()) {
            Some((field, time, advice)) => refuse(field, &time, advice),
            None => Ok(()),
        }
    }

    /// The time that so many bytes are granted.
    pub(crate) fn granted(&self, bytes: u64) -> Duration {
        match self.min_rate {
            0 => Duration::MAX,
            rate => Duration::from_millis(bytes.saturating_mul(1000) / u64::from(rate)),
        }
    }
}

/// A limit that is not possible: which one, its value, and what to set instead. See [`Limits::check`].
///
/// ```
/// use fibra_http::Server;
///
/// let error = Server::builder().max_head_bytes(usize::MAX).bind("127.0.0.1:0").unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
/// assert!(error.to_string().starts_with("fibra-http: max_head_bytes cannot be 18446744073709551615: "));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitError {
    field: &'static str,
    value: String,
    advice: &'static str,
}

impl LimitError {
    /// Of a limit that is not one of [`Limits`].
    pub(crate) fn new(field: &'static str, value: usize, advice: &'static str) -> Self {
        Self { field, value: value.to_string(), advice }
    }

    /// The name of the limit, as in [`Limits`] or [`Builder`](crate::Builder).
    pub fn field(&self) -> &'static str {
        self.field
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fibra-http: {} cannot be {}: {}", self.field, self.value, self.advice)
    }
}

impl Error for LimitError {}

impl From<LimitError> for io::Error {
    fn from(error: LimitError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}
