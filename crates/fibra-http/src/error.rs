//! The errors: one type for each kind of failure. Below: `status`, `limits`.

use std::error::Error;
use std::fmt;
use std::io;

use crate::limits::LimitError;
use crate::status::Status;

/// What is wrong with the head of a request. It is answered with [`status`](Self::status), and the connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HeadError {
    /// It is not of the form that RFC 9112 gives it: a bare line feed, a folded line, a space before a colon, a byte that must not be
    /// there.
    Malformed,
    /// It is longer than [`Limits::max_head_bytes`](crate::Limits::max_head_bytes).
    TooLong,
    /// It has more fields than [`Limits::max_headers`](crate::Limits::max_headers).
    TooManyHeaders,
    /// A version other than 1.0 and 1.1.
    Version,
    /// A target that is not of one of the four forms, or not of the one that goes with the method.
    Target,
    /// No `Host`, several, or one that is no host.
    Host,
    /// `Content-Length` is no number, or there are several different ones.
    ContentLength,
    /// `Transfer-Encoding` does not end with `chunked`, or stands beside `Content-Length` or in a request of version 1.0.
    TransferEncoding,
    /// A transfer coding other than `chunked`.
    UnknownCoding,
    /// An `Expect` other than `100-continue`.
    Expectation,
    /// The body is announced to be longer than [`Limits::max_body_bytes`](crate::Limits::max_body_bytes).
    BodyTooLong,
    /// It did not come within [`Limits::head_timeout`](crate::Limits::head_timeout).
    TimedOut,
}

impl HeadError {
    /// The status with which it is answered.
    pub fn status(self) -> Status {
        match self {
            Self::Version => Status::HTTP_VERSION_NOT_SUPPORTED,
            Self::UnknownCoding => Status::NOT_IMPLEMENTED,
            Self::Expectation => Status::EXPECTATION_FAILED,
            Self::BodyTooLong => Status::CONTENT_TOO_LARGE,
            Self::TimedOut => Status::REQUEST_TIMEOUT,
            _ => Status::BAD_REQUEST,
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Malformed => "the head of the request is malformed",
            Self::TooLong => "the head of the request is too long",
            Self::TooManyHeaders => "the request has too many header fields",
            Self::Version => "only versions 1.0 and 1.1 are spoken here",
            Self::Target => "the target of the request is malformed",
            Self::Host => "the request needs one valid Host",
            Self::ContentLength => "the Content-Length of the request is invalid",
            Self::TransferEncoding => "the Transfer-Encoding of the request is invalid",
            Self::UnknownCoding => "the only transfer coding known here is chunked",
            Self::Expectation => "the only expectation known here is 100-continue",
            Self::BodyTooLong => "the body of the request is too long",
            Self::TimedOut => "the head of the request took too long",
        }
    }
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Error for HeadError {}

/// Why a body could not be read. As a response, [`status`](Self::status): a handler may pass it on with `?`.
#[derive(Debug)]
#[non_exhaustive]
pub enum BodyError {
    /// It is longer than [`Limits::max_body_bytes`](crate::Limits::max_body_bytes), or than the handler allows.
    TooLong,
    /// The chunks it comes in are malformed.
    Malformed,
    /// It came more slowly than [`Limits::body_timeout`](crate::Limits::body_timeout) allows.
    TimedOut,
    /// The connection was closed before its end.
    Incomplete,
    /// It was to be text, and is not UTF-8.
    NotUtf8,
    /// The connection failed.
    Io(io::Error),
}

impl BodyError {
    /// The status with which it is answered.
    pub fn status(&self) -> Status {
        match self {
            Self::TooLong => Status::CONTENT_TOO_LARGE,
            Self::TimedOut => Status::REQUEST_TIMEOUT,
            _ => Status::BAD_REQUEST,
        }
    }

    pub(crate) fn text(&self) -> &'static str {
        match self {
            Self::TooLong => "the body of the request is too long",
            Self::Malformed => "the chunks of the request's body are malformed",
            Self::TimedOut => "the body of the request took too long",
            Self::Incomplete => "the body of the request is incomplete",
            Self::NotUtf8 => "the body of the request is not UTF-8",
            Self::Io(_) => "the connection failed",
        }
    }

    /// Takes it out of the [`io::Error`] in which it came through `Read`.
    pub(crate) fn from_io(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(error) => error,
            Err(error) if is_timeout(&error) => Self::TimedOut,
            Err(error) => Self::Io(error),
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{}: {error}", self.text()),
            _ => f.write_str(self.text()),
        }
    }
}

impl Error for BodyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<BodyError> for io::Error {
    fn from(error: BodyError) -> Self {
        let kind = match &error {
            BodyError::Io(error) => error.kind(),
            BodyError::TooLong => io::ErrorKind::FileTooLarge,
            BodyError::Malformed | BodyError::NotUtf8 => io::ErrorKind::InvalidData,
            BodyError::TimedOut => io::ErrorKind::TimedOut,
            BodyError::Incomplete => io::ErrorKind::UnexpectedEof,
        };
        Self::new(kind, error)
    }
}

/// Why a response cannot be sent as it is: 500 is sent instead.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ResponseError {
    /// The name of a header field has a byte that must not be there. (The name, or the part of it that can be shown.)
    HeaderName(String),
    /// The value of this header field has a line break or another control character.
    HeaderValue(String),
    /// Only the server sets this header field: `Content-Length`, `Transfer-Encoding`, and `Connection` other than `close`.
    Reserved(String),
    /// The status is not of three digits, or an interim one.
    Status(u16),
    /// `CONNECT` was answered with 200 or the like, which promises a tunnel, but not by [`Response::tunnel`](crate::Response::tunnel); or
    /// that was used for another method.
    Tunnel,
}

impl fmt::Display for ResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeaderName(name) => write!(f, "{name:?} is no name for a header field"),
            Self::HeaderValue(name) => write!(f, "the value for the header field {name} has a control character"),
            Self::Reserved(name) => write!(f, "the header field {name} is set by the server itself"),
            Self::Status(code) => write!(f, "{code} is no status to answer with"),
            Self::Tunnel => f.write_str("success of CONNECT, and nothing else, is answered with Response::tunnel"),
        }
    }
}

impl Error for ResponseError {}

/// Why a connection was ended by the server, or by accident. A client that goes away between two requests is no error.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The head of a request was refused.
    Head(HeadError),
    /// A body could not be read to its end.
    Body(BodyError),
    /// A handler made a response that cannot be sent.
    Response(ResponseError),
    /// A handler panicked.
    Panicked,
    /// The server's own code panicked, or the transport, with this message: not the handler. The client got 500 if it waited for an answer
    /// and nothing of one had been sent.
    Internal(String),
    /// The limits are not possible: nothing was read. Only from [`serve_connection`](crate::serve_connection); a server says it before.
    Limits(LimitError),
    /// A body that was announced with a length ended before that length, or making it failed.
    Truncated(io::Error),
    /// Writing failed or took too long, or the transport could not be set up.
    Io(io::Error),
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head(error) => error.fmt(f),
            Self::Body(error) => error.fmt(f),
            Self::Response(error) => error.fmt(f),
            Self::Panicked => f.write_str("a handler panicked"),
            Self::Internal(message) => write!(f, "the server's own code panicked: {message}"),
            Self::Limits(error) => error.fmt(f),
            Self::Truncated(error) => write!(f, "the body of the response broke off: {error}"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl Error for ConnectionError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Head(error) => Some(error),
            Self::Body(error) => Some(error),
            Self::Response(error) => Some(error),
            Self::Panicked | Self::Internal(_) => None,
            Self::Limits(error) => Some(error),
            Self::Truncated(error) | Self::Io(error) => Some(error),
        }
    }
}

impl From<HeadError> for ConnectionError {
    fn from(error: HeadError) -> Self {
        Self::Head(error)
    }
}

impl From<LimitError> for ConnectionError {
    fn from(error: LimitError) -> Self {
        Self::Limits(error)
    }
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Did the operation take longer than it may? (Transports over std's sockets say `WouldBlock`.)
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}
