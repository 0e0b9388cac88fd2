//! A small, correct HTTP/1.1 server on the fibers of [fibra]: one fiber for each connection, plain blocking handlers.
//!
//! ```no_run
//! use fibra_http::{Response, Server};
//!
//! #[fibra::main]
//! fn main() -> std::io::Result<()> {
//!     let server = Server::bind("127.0.0.1:8080")?;
//!     server.serve(|request| match (request.method(), request.path()) {
//!         ("GET", "/") => Ok(Response::text("good day")),
//!         ("POST", "/length") => request.text().map(|text| Response::text(format!("{}", text.len()))),
//!         _ => Ok(Response::new(404)),
//!     })?;
//!     Ok(())
//! }
//! ```
//!
//! | to | there is |
//! |---|---|
//! | serve | [`Server`], its [`Builder`] and [`Limits`] ([`LimitError`]); [`serve_connection`] for streams from elsewhere |
//! | see what is asked | [`Request`], [`Body`] |
//! | answer | [`Response`], [`Status`], [`IntoResponse`]; [`BodyWriter`] for answers that are made while they are sent |
//! | stop | [`Stopper`]: a graceful end, with a grace |
//! | use TLS | [`Server::serve_over`], [`Layered`], [`Transport`] |
//! | speak something else | [`Response::upgrade`], [`Upgraded`] |
//! | know what went wrong | [`Builder::on_error`], [`ConnectionError`] |
//!
//! # What is spoken
//!
//! HTTP/1.1 and HTTP/1.0: connections that stay, pipelining (answers in order, sent together if the requests came together), bodies of
//! a known length and in chunks, both ways, `Expect: 100-continue` (answered when the body is first read), `HEAD`, trailers of requests,
//! `Upgrade`.
//! Not spoken: HTTP/2 and 3, transfer codings other than `chunked`, trailers of responses.
//!
//! # What is refused
//!
//! Where RFC 9112 leaves it to the server to be lenient, this one is not: if two programs in a row see different requests in the same
//! bytes, a request can be smuggled past the first of them. Each of these is answered with 400 (except for those with another number), and
//! the connection is closed:
//!
//! * a line that does not end with CR LF, a CR elsewhere, a folded header line, a space before the colon, a control character;
//! * `Content-Length` together with `Transfer-Encoding`; several different lengths; a length that is not made of digits;
//! * `Transfer-Encoding` that does not end with `chunked`, or in a request of version 1.0; another coding before it (501);
//! * no `Host` in a request of version 1.1, several, or one that is no host;
//! * a target that is not of the form that goes with the method;
//! * a head that is too long or has too many fields, chunk sizes that overflow or have anything but hexadecimal digits in them;
//! * a version other than 1.0 and 1.1 (505), an expectation other than `100-continue` (417), a body that is too long (413), a head or a
//!   body that comes too slowly, and a new connection on which nothing comes (408).
//!
//! On the other side, a response whose header fields would break out of their line is not sent.
#![forbid(unsafe_code)]

mod body;
mod chunk;
mod connection;
mod crowd;
mod date;
mod encode;
mod error;
mod gate;
mod head;
mod limits;
mod request;
mod response;
mod server;
mod status;
mod target;
mod transport;
mod upgrade;
mod wire;
mod writer;

pub use body::Body;
pub use connection::serve_connection;
pub use error::{BodyError, ConnectionError, HeadError, ResponseError};
pub use head::Version;
pub use limits::{LimitError, Limits};
pub use request::Request;
pub use response::{IntoResponse, Response, ResponseBody};
pub use server::{Builder, Drained, Server, Stopper};
pub use status::Status;
pub use transport::{Layered, Transport};
pub use upgrade::Upgraded;
pub use writer::BodyWriter;

/// The program in the prose is a test too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
