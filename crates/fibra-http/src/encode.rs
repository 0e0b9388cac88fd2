//! Sending a response. Above: `connection`. Below: `response`, `writer`, `wire`.
//!
//! A response of bytes ends up in the connection's buffer, or is sent with what is in it; the buffer is flushed by the connection before it
//! waits. Whether the connection can stay is decided here, once, although not all is known when the head is written.

use std::io::{self, Read, Write};

use crate::date;
use crate::error::{ConnectionError, ResponseError};
use crate::head::Version;
use crate::request::Request;
use crate::response::{Content, Response, TakeOver};
use crate::status::Status;
use crate::wire::Link;
use crate::writer::{BodyWriter, Ending};

/// Bodies up to this size are copied behind the head; larger ones are sent beside it.
const COPIED: usize = 16 << 10;

/// How much of a reader's body is read at once.
const PIECE: usize = 16 << 10;

/// What becomes of the connection after a response.
pub(crate) enum After {
    Stay,
    Close,
    TakenOver(TakeOver),
}

/// The result of sending: what becomes of the connection, and errors that the server should report.
pub(crate) struct Sent {
    pub(crate) after: After,
    pub(crate) error: Option<ConnectionError>,
}

/// How the end of the body is found.
enum Length {
    /// There is no body, and no field that says so.
    None,
    Known(u64),
    Chunked,
    Close,
    /// Of 101.
    Upgrade,
    /// Of 200 to `CONNECT`.
    Tunnel,
}

/// Writes a response; `may_stay`: the server has no reason to close the connection.
pub(crate) fn respond(
    request: &mut Request<'_>,
    mut response: Response,
    may_stay: bool,
) -> Result<Sent, ConnectionError> {
    let is_tunnel = response.status != Status::SWITCHING_PROTOCOLS && matches!(response.content, Content::Upgrade(_));
    let promises_tunnel = (200..300).contains(&response.status.code()) && request.method() == "CONNECT";
    if is_tunnel != promises_tunnel {
        response.error.get_or_insert(ResponseError::Tunnel);
    }
    if response.status.code() < 200 && !matches!(response.content, Content::Upgrade(_)) {
        // An upgrade that was given a body: no handler would take the connection over.
        response.error.get_or_insert(ResponseError::Status(response.status.code()));
    }
    let mut error = None;
    if let Some(refused) = response.error.take() {
        error = Some(ConnectionError::Response(refused));
        response = Response::new(Status::INTERNAL_SERVER_ERROR);
    }
    if response.status == Status::RESET_CONTENT {
        // It must not have a body (RFC 9110, 15.3.6).
        response.content = Content::Empty;
    }
    let index = request.head.index;
    let is_head = index.is_head;
    let is_bodiless = response.status.has_no_body();
    let sends_body = !is_head && !is_bodiless;
    let length = match &response.content {
        Content::Upgrade(_) if is_tunnel && request.body.is_finished() => Length::Tunnel,
        Content::Upgrade(_) if index.version == Version::Http11 && request.body.is_finished() => Length::Upgrade,
        Content::Upgrade(_) => {
            // The client cannot have asked for it.
            response = Response::new(Status::BAD_REQUEST).header("connection", "close");
            Length::Known(0)
        }
        _ if is_bodiless => Length::None,
        Content::Made(_) if index.version == Version::Http10 => Length::Close,
        Content::Made(_) => Length::Chunked,
        Content::Empty => Length::Known(0),
        Content::Static(bytes) => Length::Known(bytes.len() as u64),
        Content::Owned(bytes) => Length::Known(bytes.len() as u64),
        Content::Shared(bytes) => Length::Known(bytes.len() as u64),
        Content::Reader(_, length) => Length::Known(*length),
    };
    if request.body.state.expects_continue && matches!(length, Length::Chunked) && sends_body {
        // The handler may read the body while it makes the answer; behind the head it would be too late for `100 Continue`.
        request.body.state.expects_continue = false;
        request.body.link.out().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
    }
    // A client that wanted a tunnel may have begun to speak through it: that must not be taken for requests.
    let wanted_tunnel = request.method() == "CONNECT";
    let mut stays = may_stay && index.keep_alive && !response.closes && !wanted_tunnel && body_allows_more(request);
    if matches!(length, Length::Close) && sends_body {
        stays = false;
    }
    // Too late for `100 Continue`.
    request.body.state.expects_continue = false;
    write_head(request.body.link.out(), &response, &length, stays, index.version);
    let after = if stays { After::Stay } else { After::Close };
    match response.content {
        Content::Upgrade(take_over) => {
            request.body.link.flush()?;
            return Ok(Sent { after: After::TakenOver(take_over), error });
        }
        _ if !sends_body => {}
        Content::Empty => {}
        Content::Static(bytes) => send_bytes(request.body.link, bytes)?,
        Content::Owned(bytes) => send_bytes(request.body.link, &bytes)?,
        Content::Shared(bytes) => send_bytes(request.body.link, &bytes)?,
        Content::Reader(reader, length) => send_reader(request.body.link, reader, length)?,
        Content::Made(make) => {
            let ending = if matches!(length, Length::Chunked) { Ending::Chunked } else { Ending::Close };
            let mut writer = BodyWriter::new(request, ending);
            if let Err(why) = make(&mut writer) {
                // The part that was made may be of use; the missing end tells the client that it is not all.
                let _ = writer.flush();
                return Err(ConnectionError::Truncated(why));
            }
            writer.finish();
        }
    }
    Ok(Sent { after, error })
}

/// Can another request follow this one's body?
fn body_allows_more(request: &Request<'_>) -> bool {
    let state = &request.body.state;
    if state.is_done() {
        return true;
    }
    let most = request.body.link.limits().max_drain_bytes;
    // A client that was not told to send its body may send it or not: it is not known what comes next.
    !state.is_broken() && !state.expects_continue && state.left().is_none_or(|left| left <= most)
}

fn write_head(out: &mut Vec<u8>, response: &Response, length: &Length, stays: bool, version: Version) {
    let status = response.status;
    match status.line() {
        Some(line) => out.extend_from_slice(line.as_bytes()),
        None => {
            out.extend_from_slice(b"HTTP/1.1 ");
            decimal(out, u64::from(status.code()));
            out.extend_from_slice(b" \r\n");
        }
    }
    if !response.has_date {
        out.extend_from_slice(b"Date: ");
        date::append(out);
        out.extend_from_slice(b"\r\n");
    }
    if let Some(content_type) = response.content_type {
        out.extend_from_slice(b"Content-Type: ");
        out.extend_from_slice(content_type.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(&response.fields);
    match length {
        Length::None | Length::Close | Length::Tunnel => {}
        Length::Known(length) => {
            out.extend_from_slice(b"Content-Length: ");
            decimal(out, *length);
            out.extend_from_slice(b"\r\n");
        }
        Length::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Length::Upgrade => out.extend_from_slice(b"Connection: upgrade\r\n"),
    }
    if !matches!(length, Length::Upgrade | Length::Tunnel) {
        if !stays {
            out.extend_from_slice(b"Connection: close\r\n");
        } else if version == Version::Http10 {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a number.
fn decimal(out: &mut Vec<u8>, mut number: u64) {
    // The greatest number has twenty digits.
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

fn send_bytes(link: &mut dyn Link, bytes: &[u8]) -> io::Result<()> {
    if bytes.len() > COPIED {
        return link.flush_with(bytes);
    }
    link.out().extend_from_slice(bytes);
    Ok(())
}

fn send_reader(link: &mut dyn Link, reader: Box<dyn Read + Send>, length: u64) -> Result<(), ConnectionError> {
    let mut reader = reader.take(length);
    let mut left = length;
    while left > 0 {
        let out = link.out();
        let start = out.len();
        out.resize(start + PIECE, 0);
        let read = loop {
            match reader.read(&mut out[start..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => break done,
            }
        };
        let count = *read.as_ref().unwrap_or(&0);
        out.truncate(start + count);
        left -= count as u64;
        let is_short = count == 0;
        if is_short || out.len() >= PIECE {
            link.flush()?;
        }
        if let Err(error) = read {
            return Err(ConnectionError::Truncated(error));
        }
        if is_short {
            let text = "the reader of the response's body gave fewer bytes than were announced";
            return Err(ConnectionError::Truncated(io::Error::new(io::ErrorKind::UnexpectedEof, text)));
        }
    }
    Ok(())
}

/// The answer to a request that could not be understood.
pub(crate) fn refuse(link: &mut dyn Link, status: Status, text: &'static str, version: Version) {
    let response = Response::text(text).with_status(status);
    let length = Length::Known(text.len() as u64);
    write_head(link.out(), &response, &length, false, version);
    link.out().extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for number in [0, 1, 9, 10, 99, 100, 12345, u64::MAX] {
            let mut out = Vec::new();
            decimal(&mut out, number);
            assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
    }
}
