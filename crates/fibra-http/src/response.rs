//! The response of a handler. Above: `encode`, which sends it. Below: `status`, `error`.
//!
//! * Nothing that would break out of a header line gets into `fields`; a refused field makes the response an error, and 500 is sent.
//! * A response with static or given bytes and without header fields of its own allocates nothing.

use std::convert::Infallible;
use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use crate::error::{BodyError, ResponseError};
use crate::status::Status;
use crate::upgrade::Upgraded;
use crate::writer::BodyWriter;

/// An answer: status, header fields, body.
///
/// ```
/// use fibra_http::{Response, Status};
///
/// let page = Response::html("<p>Good day").header("cache-control", "max-age=60");
/// assert_eq!(page.status(), Status::OK);
/// let gone = Response::new(410).with_body("it was here yesterday");
/// assert_eq!(gone.status(), Status::GONE);
/// ```
///
/// The server alone sets `Content-Length`, `Transfer-Encoding`, `Date` and `Connection`; `header("connection", "close")` closes the
/// connection after this response. To `HEAD` the body is not sent, but its length is told.
#[must_use = "a response does nothing unless the handler returns it"]
pub struct Response {
    pub(crate) status: Status,
    pub(crate) content_type: Option<&'static str>,
    /// The header fields, as they are sent.
    pub(crate) fields: Vec<u8>,
    pub(crate) content: Content,
    pub(crate) closes: bool,
    pub(crate) has_date: bool,
    pub(crate) error: Option<ResponseError>,
}

pub(crate) type Make = Box<dyn FnOnce(&mut BodyWriter<'_, '_>) -> io::Result<()> + Send>;
pub(crate) type TakeOver = Box<dyn FnOnce(Upgraded) + Send>;

pub(crate) enum Content {
    Empty,
    Static(&'static [u8]),
    Owned(Vec<u8>),
    Shared(Arc<[u8]>),
    Reader(Box<dyn Read + Send>, u64),
    Made(Make),
    Upgrade(TakeOver),
}

impl Response {
    /// Without a body. The status may be a number, `Response::new(404)`, or a [`Status`].
    pub fn new<S>(status: S) -> Self
    where
        S: TryInto<Status>,
        S::Error: Into<ResponseError>,
    {
        let (status, error) = match status.try_into().map_err(Into::into) {
            Ok(status) if status.code() >= 200 => (status, None),
            Ok(status) => (Status::INTERNAL_SERVER_ERROR, Some(ResponseError::Status(status.code()))),
            Err(error) => (Status::INTERNAL_SERVER_ERROR, Some(error)),
        };
        Self {
            status,
            content_type: None,
            fields: Vec::new(),
            content: Content::Empty,
            closes: false,
            has_date: false,
            error,
        }
    }

    /// 200, with text.
    pub fn text(text: impl Into<ResponseBody>) -> Self {
        Self::new(Status::OK).with_body(text).typed("text/plain; charset=utf-8")
    }

    /// 200, with a page.
    pub fn html(text: impl Into<ResponseBody>) -> Self {
        Self::new(Status::OK).with_body(text).typed("text/html; charset=utf-8")
    }

    /// 200, with bytes (`application/octet-stream`, unless it is given another type).
    pub fn bytes(bytes: impl Into<ResponseBody>) -> Self {
        Self::new(Status::OK).with_body(bytes).typed("application/octet-stream")
    }

    /// 200, with the first `length` bytes that a reader gives: a file, say. If it gives fewer, the connection is closed in the middle of
    /// it.
    ///
    /// ```
    /// use fibra_http::Response;
    ///
    /// let zeros = Response::reader(std::io::repeat(0), 1 << 20).header("content-type", "application/octet-stream");
    /// # let _ = zeros;
    /// ```
    pub fn reader(reader: impl Read + Send + 'static, length: u64) -> Self {
        let mut response = Self::new(Status::OK);
        response.content = Content::Reader(Box::new(reader), length);
        response
    }

    /// 200, with a body that is made while it is sent, of a length that is not known yet: in chunks, or to a client of version 1.0 up to
    /// the end of the connection. If `make` fails or panics, the connection is closed without that end (to a client of version 1.0 it is
    /// reset), so that the client does not take a part for all of it. If it panics before anything was sent, the client gets 500.
    ///
    /// ```
    /// use std::io::Write;
    /// use fibra_http::Response;
    ///
    /// let numbers = Response::stream(|out| {
    ///     for number in 0..1000 {
    ///         writeln!(out, "{number}")?;
    ///     }
    ///     Ok(())
    /// });
    /// # let _ = numbers;
    /// ```
    pub fn stream(make: impl FnOnce(&mut BodyWriter<'_, '_>) -> io::Result<()> + Send + 'static) -> Self {
        let mut response = Self::new(Status::OK);
        response.content = Content::Made(Box::new(make));
        response
    }

    /// 101: the connection goes over to another protocol, which `take_over` speaks, on the connection's fiber. The handler has to check
    /// that the client wants that ([`Request::header_has`](crate::Request::header_has)), and to add what the protocol asks for.
    ///
    /// ```
    /// use std::io::Write;
    /// use fibra_http::{Request, Response};
    ///
    /// fn shout(request: &mut Request<'_>) -> Response {
    ///     if !request.header_has("upgrade", "shout") {
    ///         return Response::new(426).header("upgrade", "shout").header("connection", "upgrade");
    ///     }
    ///     Response::upgrade("shout", |mut connection| {
    ///         let _ = connection.write_all(b"GOOD DAY\n");
    ///     })
    /// }
    /// ```
    pub fn upgrade(protocol: &str, take_over: impl FnOnce(Upgraded) + Send + 'static) -> Self {
        let mut response = Self::new(Status::OK).header("upgrade", protocol);
        if response.error.is_none() {
            response.status = Status::SWITCHING_PROTOCOLS;
            response.content = Content::Upgrade(Box::new(take_over));
        }
        response
    }

    /// 200 to `CONNECT`: from here on the connection is a tunnel, which `take_over` serves, on the connection's fiber. To another method
    /// the client gets 500.
    ///
    /// ```
    /// use fibra_http::{Request, Response};
    ///
    /// fn proxy(request: &mut Request<'_>) -> Response {
    ///     let Some(target) = request.host().filter(|_| request.method() == "CONNECT").map(str::to_owned) else {
    ///         return Response::new(405);
    ///     };
    ///     Response::tunnel(move |client| {
    ///         let _ = (client, target); // connect there, and copy both ways
    ///     })
    /// }
    /// ```
    pub fn tunnel(take_over: impl FnOnce(Upgraded) + Send + 'static) -> Self {
        let mut response = Self::new(Status::OK);
        response.content = Content::Upgrade(Box::new(take_over));
        response
    }

    /// A redirect: 303 or another status with `Location`.
    ///
    /// ```
    /// use fibra_http::{Response, Status};
    ///
    /// let elsewhere = Response::redirect(Status::SEE_OTHER, "/login");
    /// assert_eq!(elsewhere.status(), Status::SEE_OTHER);
    /// ```
    pub fn redirect(status: Status, location: impl AsRef<[u8]>) -> Self {
        Self::new(status).header("location", location)
    }

    /// The same with this body: text or bytes, static, owned or shared.
    pub fn with_body(mut self, body: impl Into<ResponseBody>) -> Self {
        self.content = body.into().0;
        self
    }

    /// The same with this status.
    pub fn with_status(mut self, status: Status) -> Self {
        if status.code() < 200 {
            self.error.get_or_insert(ResponseError::Status(status.code()));
        } else {
            self.status = status;
        }
        self
    }

    fn typed(mut self, content_type: &'static str) -> Self {
        self.content_type = Some(content_type);
        self
    }

    /// The same with one more header field. One that is refused (see [`try_header`](Self::try_header)) makes it an
    /// [`error`](Self::error): it is not sent, and the client gets 500.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        if let Err(error) = self.try_header(name, value) {
            self.error.get_or_insert(error);
        }
        self
    }

    /// Adds a header field, unless it is refused.
    ///
    /// # Errors
    /// The name is no name; the value has a line break or another control character; only the server sets this field.
    ///
    /// ```
    /// use fibra_http::{Response, ResponseError};
    ///
    /// let mut response = Response::new(200);
    /// assert!(response.try_header("x-name", "plain").is_ok());
    /// let refused = response.try_header("x-name", "a\r\nset-cookie: b");
    /// assert_eq!(refused, Err(ResponseError::HeaderValue("x-name".into())));
    /// ```
    pub fn try_header(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), ResponseError> {
        let value = value.as_ref();
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(ResponseError::HeaderName(name.escape_default().to_string()));
        }
        if !value.iter().all(|byte| matches!(byte, b'\t' | b' '..=0x7e | 0x80..=0xff)) {
            return Err(ResponseError::HeaderValue(name.to_owned()));
        }
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        if is("content-length") || is("transfer-encoding") {
            return Err(ResponseError::Reserved(name.to_owned()));
        }
        if is("connection") {
            if value.eq_ignore_ascii_case(b"close") {
                self.closes = true;
                return Ok(());
            }
            if !value.eq_ignore_ascii_case(b"upgrade") {
                return Err(ResponseError::Reserved(name.to_owned()));
            }
        }
        if is("content-type") {
            self.content_type = None;
        }
        self.has_date |= is("date");
        for piece in [name.as_bytes(), b": ", value, b"\r\n"] {
            self.fields.extend_from_slice(piece);
        }
        Ok(())
    }

    /// The status it will be sent with.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Why it cannot be sent as it is, if there is a reason.
    pub fn error(&self) -> Option<&ResponseError> {
        self.error.as_ref()
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("headers", &String::from_utf8_lossy(&self.fields))
            .field("body", &self.content)
            .field("error", &self.error)
            .finish()
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("empty"),
            Self::Static(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Owned(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Shared(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Reader(_, length) => write!(f, "{length} bytes of a reader"),
            Self::Made(_) => f.write_str("made while it is sent"),
            Self::Upgrade(_) => f.write_str("another protocol"),
        }
    }
}

/// The bytes of a response, in one of the forms that they may have: `&'static str`, `String`, `&'static [u8]`, `Vec<u8>`, `Arc<[u8]>`,
/// `Arc<str>`.
#[derive(Debug)]
pub struct ResponseBody(Content);

impl From<&'static str> for ResponseBody {
    fn from(text: &'static str) -> Self {
        Self(Content::Static(text.as_bytes()))
    }
}

impl From<&'static [u8]> for ResponseBody {
    fn from(bytes: &'static [u8]) -> Self {
        Self(Content::Static(bytes))
    }
}

impl<const N: usize> From<&'static [u8; N]> for ResponseBody {
    fn from(bytes: &'static [u8; N]) -> Self {
        Self(Content::Static(bytes))
    }
}

impl From<String> for ResponseBody {
    fn from(text: String) -> Self {
        Self(Content::Owned(text.into_bytes()))
    }
}

impl From<Vec<u8>> for ResponseBody {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Content::Owned(bytes))
    }
}

impl From<Arc<[u8]>> for ResponseBody {
    fn from(bytes: Arc<[u8]>) -> Self {
        Self(Content::Shared(bytes))
    }
}

impl From<Arc<str>> for ResponseBody {
    fn from(text: Arc<str>) -> Self {
        Self(Content::Shared(text.into()))
    }
}

/// A status of less or more than three digits.
impl TryFrom<u16> for Status {
    type Error = ResponseError;
    fn try_from(code: u16) -> Result<Self, ResponseError> {
        Self::new(code).ok_or(ResponseError::Status(code))
    }
}

impl From<Infallible> for ResponseError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// What a handler may return.
///
/// | | is answered with |
/// |---|---|
/// | [`Response`] | itself |
/// | `&'static str`, `String` | 200 and text |
/// | `&'static [u8]`, `Vec<u8>` | 200 and bytes |
/// | [`Status`] | the status, without a body |
/// | `()` | 204 |
/// | `Option<T>` | `T`, or 404 |
/// | `Result<T, E>` | `T` or `E` |
/// | [`BodyError`] | 413, 408 or 400, and why |
/// | [`ResponseError`], [`io::Error`], `Box<dyn Error + Send + Sync>` | 500, and not why: that is for the server's log |
pub trait IntoResponse {
    /// As a response.
    fn into_response(self) -> Response;
}

impl IntoResponse for Response {
    fn into_response(self) -> Response {
        self
    }
}

impl IntoResponse for Status {
    fn into_response(self) -> Response {
        Response::new(self)
    }
}

impl IntoResponse for () {
    fn into_response(self) -> Response {
        Response::new(Status::NO_CONTENT)
    }
}

impl IntoResponse for &'static str {
    fn into_response(self) -> Response {
        Response::text(self)
    }
}

impl IntoResponse for String {
    fn into_response(self) -> Response {
        Response::text(self)
    }
}

impl IntoResponse for &'static [u8] {
    fn into_response(self) -> Response {
        Response::bytes(self)
    }
}

impl IntoResponse for Vec<u8> {
    fn into_response(self) -> Response {
        Response::bytes(self)
    }
}

impl<T: IntoResponse> IntoResponse for Option<T> {
    fn into_response(self) -> Response {
        self.map_or_else(|| Response::new(Status::NOT_FOUND), T::into_response)
    }
}

impl<T: IntoResponse, E: IntoResponse> IntoResponse for Result<T, E> {
    fn into_response(self) -> Response {
        self.map_or_else(E::into_response, T::into_response)
    }
}

impl IntoResponse for BodyError {
    fn into_response(self) -> Response {
        Response::text(self.text()).with_status(self.status())
    }
}

impl IntoResponse for ResponseError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Status::INTERNAL_SERVER_ERROR);
        response.error = Some(self);
        response
    }
}

impl IntoResponse for io::Error {
    fn into_response(self) -> Response {
        match self.downcast::<BodyError>() {
            Ok(error) => error.into_response(),
            Err(_) => Response::new(Status::INTERNAL_SERVER_ERROR),
        }
    }
}

impl IntoResponse for Box<dyn std::error::Error + Send + Sync> {
    fn into_response(self) -> Response {
        match self.downcast::<BodyError>() {
            Ok(error) => error.into_response(),
            Err(_) => Response::new(Status::INTERNAL_SERVER_ERROR),
        }
    }
}
