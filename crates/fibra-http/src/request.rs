//! A request, as a handler sees it. Below: `head` and `body`.

use std::fmt;
use std::net::SocketAddr;

use crate::body::Body;
use crate::error::BodyError;
use crate::head::{Head, Version, tokens};

/// A request. References into its head do not hinder reading its body.
///
/// ```
/// use fibra_http::{BodyError, Request, Response};
///
/// fn greet(request: &mut Request<'_>) -> Result<Response, BodyError> {
///     let language = request.header("accept-language").unwrap_or("en");
///     let name = request.body().text()?;
///     Ok(Response::text(match language {
///         "de" => format!("Guten Tag, {name}"),
///         _ => format!("Good day, {name}"),
///     }))
/// }
/// ```
pub struct Request<'c> {
    pub(crate) head: Head<'c>,
    pub(crate) body: Body<'c>,
}

impl<'c> Request<'c> {
    /// The method, as it was sent: `GET`. Methods are told apart by case.
    pub fn method(&self) -> &'c str {
        self.head.method()
    }

    /// The target, as it was sent: `/search?q=fiber`, or in one of the other forms of RFC 9112, 3.2.
    pub fn target(&self) -> &'c str {
        self.head.target()
    }

    /// The path: `/search`. Not decoded. `*` of `OPTIONS *`, and empty for `CONNECT`.
    pub fn path(&self) -> &'c str {
        self.head.path()
    }

    /// What follows the first question mark: `q=fiber`. Not decoded.
    pub fn query(&self) -> Option<&'c str> {
        self.head.query()
    }

    /// The host, and port if there is one, that the request is for: from the target if that names one, else from `Host`.
    pub fn host(&self) -> Option<&'c str> {
        self.head.host()
    }

    /// The version of the request.
    pub fn version(&self) -> Version {
        self.head.index.version
    }

    /// The value of a header field, the first if there are several, if it is UTF-8. Case of the name does not matter.
    pub fn header(&self, name: &str) -> Option<&'c str> {
        self.head.find(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The value of a header field as bytes, the first if there are several.
    pub fn header_bytes(&self, name: &str) -> Option<&'c [u8]> {
        self.head.find(name)
    }

    /// The values of a header field, in the order in which they came.
    pub fn header_all(&self, name: &str) -> impl Iterator<Item = &'c [u8]> {
        self.headers().filter(move |(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// All header fields, in the order in which they came.
    pub fn headers(&self) -> impl Iterator<Item = (&'c str, &'c [u8])> + use<'c> {
        fields(self.head)
    }

    /// Does a header field that is a list have this word in it, whatever its case? For `Connection: keep-alive, Upgrade` and the like.
    pub fn header_has(&self, name: &str, word: &str) -> bool {
        self.header_all(name).flat_map(tokens).any(|token| token.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// The body.
    pub fn body(&mut self) -> &mut Body<'c> {
        &mut self.body
    }

    /// All of the body; short for `request.body().bytes()`.
    ///
    /// # Errors
    /// As [`Body::bytes`].
    pub fn bytes(&mut self) -> Result<Vec<u8>, BodyError> {
        self.body.bytes()
    }

    /// All of the body, as text; short for `request.body().text()`.
    ///
    /// # Errors
    /// As [`Body::text`].
    pub fn text(&mut self) -> Result<String, BodyError> {
        self.body.text()
    }

    /// The address of the client, if the transport knows it.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.body.link.peer_addr()
    }
}

fn fields<'c>(head: Head<'c>) -> impl Iterator<Item = (&'c str, &'c [u8])> {
    (0..head.len()).filter_map(move |number| head.field(number))
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Headers<'c>(Head<'c>);
        impl fmt::Debug for Headers<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let text = |value| String::from_utf8_lossy(value);
                f.debug_map().entries(fields(self.0).map(|(name, value)| (name, text(value)))).finish()
            }
        }
        f.debug_struct("Request")
            .field("method", &self.method())
            .field("target", &self.target())
            .field("version", &self.version())
            .field("headers", &Headers(self.head))
            .field("body", &self.body)
            .finish()
    }
}
