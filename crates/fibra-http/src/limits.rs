//! What a connection may cost: sizes and times. Set by [`Builder`](crate::Builder), read everywhere.

use std::time::Duration;

/// The limits of a connection; those of a server are set with its [`Builder`](crate::Builder), whose methods have the same names.
///
/// ```
/// use fibra_http::Limits;
///
/// let limits = Limits { max_body_bytes: 1 << 20, ..Limits::default() };
/// assert_eq!(limits.max_headers, 100);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs)] // Meant to be written with `..Limits::default()`.
pub struct Limits {
    /// The bytes of a request's head, with its empty line. Longer: 400, and the connection is closed. 16 KiB.
    pub max_head_bytes: usize,
    /// The header fields of a request. More: 400, and the connection is closed. 100.
    pub max_headers: usize,
    /// The bytes of a request's body. More: 413, and the connection is closed. 2 MiB.
    pub max_body_bytes: u64,
    /// How many requests a connection may bring; the last one is answered with `Connection: close`. No limit.
    pub max_requests: u64,
    /// How long a head may take, from its first byte to its last; and how long a new connection may be silent. Longer: 408. 10 s.
    pub head_timeout: Duration,
    /// How long a connection may be silent between two requests. 60 s.
    pub idle_timeout: Duration,
    /// How long a body may be waited for in all, beside what [`min_rate`](Self::min_rate) grants it. (What the handler does between two
    /// reads does not count.) Longer: 408. 30 s.
    pub body_timeout: Duration,
    /// How long it may take to send an answer, beside what [`min_rate`](Self::min_rate) grants it; for an answer that is made bit by bit,
    /// each bit. Longer: the connection is closed. 30 s.
    pub write_timeout: Duration,
    /// Bytes a second that the other side has to take or give: so many of them lengthen the time-outs of bodies and answers by a second.
    /// 1000; with 0 those time-outs never come.
    pub min_rate: u32,
    /// How much of a body that nobody has read is read away to keep the connection. More: it is closed. 64 KiB.
    pub max_drain_bytes: u64,
    /// How long an answer is given to arrive before a connection is closed on which the other side is still sending. (Closing at once
    /// would make the system throw away what it has not taken yet.) 1 s.
    pub linger: Duration,
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
            batch: true,
        }
    }
}

impl Limits {
    /// The time that so many bytes are granted.
    pub(crate) fn granted(&self, bytes: u64) -> Duration {
        match self.min_rate {
            0 => Duration::MAX,
            rate => Duration::from_millis(bytes.saturating_mul(1000) / u64::from(rate)),
        }
    }
}
