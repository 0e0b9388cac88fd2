//! The head of a request: found in the received bytes, taken apart by `httparse`, and judged more strictly than `httparse` does.
//!
//! Above: `connection`, which has the bytes, and `request`, which shows them. The result is an index of places in the bytes, so that a
//! connection keeps one and nothing is allocated for the next request.
//!
//! * Lines end with CR LF and nothing else. (`httparse` takes a bare LF too; smuggling requests needs two servers that see different
//!   lines.)
//! * The fields that say how long the body is must agree.

use std::mem::MaybeUninit;

use httparse::Header;

use crate::error::HeadError;
use crate::limits::Limits;
use crate::target::{self, Parts};

/// Header fields that are parsed on the stack. More, if the limit allows them, are parsed once more on the heap.
const FIELDS_ON_STACK: usize = 64;

/// Room for more header fields than these is given back with the next request.
const KEPT_FIELDS: usize = 256;

/// The version of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
}

/// How the end of the body is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Framing {
    #[default]
    None,
    Length(u64),
    Chunked,
}

/// A piece of the head.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// The span of a piece that lies in these bytes.
    fn of(piece: &[u8], bytes: &[u8]) -> Self {
        let start = piece.as_ptr().addr() - bytes.as_ptr().addr();
        Self { start: start as u32, end: (start + piece.len()) as u32 }
    }

    fn get<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start as usize..self.end as usize]
    }
}

/// The places of everything in a head, and its meaning.
#[derive(Debug, Default)]
pub(crate) struct Index {
    method: Span,
    target: Span,
    parts: Parts,
    fields: Vec<(Span, Span)>,
    host: Option<Span>,
    pub(crate) version: Version,
    pub(crate) framing: Framing,
    /// Does the client want the connection to stay?
    pub(crate) keep_alive: bool,
    /// Does it wait for `100 Continue` before it sends the body?
    pub(crate) expects_continue: bool,
    pub(crate) is_head: bool,
    pub(crate) length: usize,
}

/// The progress of the search for the end of a head.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Search {
    /// Bytes that have been looked at.
    seen: usize,
}

/// Looks for a head at the beginning of `bytes`; true if it is there, and then the index describes it. `search` is kept between calls while
/// more bytes come, and new for each head.
pub(crate) fn find(bytes: &[u8], search: &mut Search, limits: &Limits, index: &mut Index) -> Result<bool, HeadError> {
    // A bare line feed before the head: `httparse` would skip it.
    if bytes.first() == Some(&b'\n') {
        return Err(HeadError::Malformed);
    }
    // Most heads come whole: parsed at once. If not, the end is looked for first, so that a head that comes byte by byte is not
    // parsed for each of them.
    if search.seen > 0 && !scan(bytes, search)? {
        return too_long_if(bytes.len() >= limits.max_head_bytes);
    }
    let mut on_stack = [const { MaybeUninit::uninit() }; FIELDS_ON_STACK];
    let fields = limits.max_headers.min(FIELDS_ON_STACK);
    let is_there = match parse(bytes, &mut on_stack[..fields], limits, index) {
        Err(HeadError::TooManyHeaders) if limits.max_headers > FIELDS_ON_STACK => {
            // The received bytes decide how much is allocated, not the limit: each field ends a line or is the one behind the last line,
            // and the first line is not a field.
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
            let mut on_heap = vec![MaybeUninit::uninit(); limits.max_headers.min(lines)];
            parse(bytes, &mut on_heap, limits, index)?
        }
        done => done?,
    };
    if !is_there {
        if search.seen > 0 || scan(bytes, search)? {
            // There is an empty line, and still no head.
            return Err(HeadError::Malformed);
        }
        return too_long_if(bytes.len() >= limits.max_head_bytes);
    }
    too_long_if(index.length > limits.max_head_bytes)?;
    Ok(true)
}

fn too_long_if(too_long: bool) -> Result<bool, HeadError> {
    if too_long { Err(HeadError::TooLong) } else { Ok(false) }
}

/// Looks for the empty line in the new bytes; reports bare line feeds at once.
fn scan(bytes: &[u8], search: &mut Search) -> Result<bool, HeadError> {
    for at in search.seen..bytes.len() {
        if bytes[at] == b'\n' {
            if at == 0 || bytes[at - 1] != b'\r' {
                return Err(HeadError::Malformed);
            }
            if at >= 3 && &bytes[at - 3..at] == b"\r\n\r" {
                search.seen = at + 1;
                return Ok(true);
            }
        }
    }
    search.seen = bytes.len();
    Ok(false)
}

fn parse<'b>(
    bytes: &'b [u8],
    fields: &mut [MaybeUninit<Header<'b>>],
    limits: &Limits,
    index: &mut Index,
) -> Result<bool, HeadError> {
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, fields) {
        Ok(httparse::Status::Complete(length)) => index.length = length,
        Ok(httparse::Status::Partial) => return Ok(false),
        Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooManyHeaders),
        Err(httparse::Error::Version) => return other_version(bytes),
        Err(_) => return Err(HeadError::Malformed),
    }
    let head = &bytes[..index.length];
    // Each CR is followed by LF, or `httparse` would have complained; so there are as many of both, unless an LF stands alone.
    let count = |wanted: u8| head.iter().filter(|byte| **byte == wanted).count();
    if count(b'\n') != count(b'\r') {
        return Err(HeadError::Malformed);
    }
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Err(HeadError::Malformed);
    };
    index.version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    index.method = Span::of(method.as_bytes(), head);
    index.target = Span::of(target.as_bytes(), head);
    index.parts = target::parse(method, target.as_bytes())?;
    index.is_head = method == "HEAD";
    interpret(request.headers, head, limits, index)?;
    Ok(true)
}

/// Refuses `HTTP/2.0` as another version; `HTTP/1.2.3` is no version, nor is one after two spaces. False: the line has not come to its end.
fn other_version(bytes: &[u8]) -> Result<bool, HeadError> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\r') else { return Ok(false) };
    let mut words = bytes[..end].split(|byte| *byte == b' ').skip(2);
    match (words.next(), words.next()) {
        (Some([b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9']), None) => Err(HeadError::Version),
        _ => Err(HeadError::Malformed),
    }
}

/// Reads the fields that concern the connection.
fn interpret(fields: &[Header<'_>], head: &[u8], limits: &Limits, index: &mut Index) -> Result<(), HeadError> {
    index.fields.clear();
    index.fields.shrink_to(KEPT_FIELDS);
    index.host = None;
    index.expects_continue = false;
    index.keep_alive = index.version == Version::Http11;
    let (mut length, mut coding, mut closes) = (None, None, false);
    for field in fields {
        let value = field.value.trim_ascii();
        index.fields.push((Span::of(field.name.as_bytes(), head), Span::of(value, head)));
        // Told apart by their lengths, most field names need no comparison.
        match field.name.len() {
            4 if field.name.eq_ignore_ascii_case("host") => {
                if index.host.is_some() || !target::is_authority(value) {
                    return Err(HeadError::Host);
                }
                index.host = Some(Span::of(value, head));
            }
            6 if field.name.eq_ignore_ascii_case("expect") => {
                if !value.eq_ignore_ascii_case(b"100-continue") || index.expects_continue {
                    return Err(HeadError::Expectation);
                }
                // A client of version 1.0 does not wait.
                index.expects_continue = index.version == Version::Http11;
            }
            10 if field.name.eq_ignore_ascii_case("connection") => {
                for token in tokens(value) {
                    closes |= token.eq_ignore_ascii_case(b"close");
                    index.keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if field.name.eq_ignore_ascii_case("content-length") => {
                let new = decimal(value).ok_or(HeadError::ContentLength)?;
                if length.is_some_and(|old| old != new) {
                    return Err(HeadError::ContentLength);
                }
                length = Some(new);
            }
            17 if field.name.eq_ignore_ascii_case("transfer-encoding") => coding = Some(join(coding, value)?),
            _ => {}
        }
    }
    index.keep_alive &= !closes;
    if index.host.is_none() && index.version == Version::Http11 {
        return Err(HeadError::Host);
    }
    index.framing = match (coding, length) {
        (None, None) => Framing::None,
        (None, Some(length)) if length > limits.max_body_bytes => return Err(HeadError::BodyTooLong),
        (None, Some(length)) => Framing::Length(length),
        (Some(_), Some(_)) => return Err(HeadError::TransferEncoding),
        (Some(_), None) if index.version == Version::Http10 => return Err(HeadError::TransferEncoding),
        (Some(Coding::Chunked), None) => Framing::Chunked,
        (Some(Coding::OtherThenChunked), None) => return Err(HeadError::UnknownCoding),
        (Some(Coding::NotChunked), None) => return Err(HeadError::TransferEncoding),
    };
    Ok(())
}

/// The meaning of the `Transfer-Encoding` fields so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Coding {
    Chunked,
    OtherThenChunked,
    /// It would have to be followed by `chunked`.
    NotChunked,
}

fn join(before: Option<Coding>, value: &[u8]) -> Result<Coding, HeadError> {
    let mut coding = before;
    for token in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
        let is_chunked = token.eq_ignore_ascii_case(b"chunked");
        coding = Some(match (coding, is_chunked) {
            // Nothing follows `chunked`, not even itself.
            (Some(Coding::Chunked | Coding::OtherThenChunked), _) => return Err(HeadError::TransferEncoding),
            (None, true) => Coding::Chunked,
            (Some(Coding::NotChunked), true) => Coding::OtherThenChunked,
            (_, false) => Coding::NotChunked,
        });
    }
    coding.ok_or(HeadError::TransferEncoding)
}

/// The parts of a list.
pub(crate) fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|token| !token.is_empty())
}

/// Digits and nothing else, of a number that fits.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// A view of the head of a request.
#[derive(Clone, Copy)]
pub(crate) struct Head<'c> {
    pub(crate) bytes: &'c [u8],
    pub(crate) index: &'c Index,
}

impl<'c> Head<'c> {
    /// The text of a piece that was found to be ASCII.
    fn text(&self, span: Span) -> &'c str {
        std::str::from_utf8(span.get(self.bytes)).unwrap_or_default()
    }

    pub(crate) fn method(&self) -> &'c str {
        self.text(self.index.method)
    }

    pub(crate) fn target(&self) -> &'c str {
        self.text(self.index.target)
    }

    pub(crate) fn path(&self) -> &'c str {
        let (start, end) = self.index.parts.path;
        match &self.target()[start..end] {
            // `http://host` and `http://host?query` have the path `/`.
            "" if self.method() != "CONNECT" => "/",
            path => path,
        }
    }

    pub(crate) fn query(&self) -> Option<&'c str> {
        self.index.parts.query.map(|(start, end)| &self.target()[start..end])
    }

    /// The host: the authority of the target, or `Host` if the target has none.
    pub(crate) fn host(&self) -> Option<&'c str> {
        match self.index.parts.authority {
            Some((start, end)) => Some(&self.target()[start..end]),
            None => self.index.host.map(|span| self.text(span)),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.index.fields.len()
    }

    pub(crate) fn field(&self, number: usize) -> Option<(&'c str, &'c [u8])> {
        let (name, value) = self.index.fields.get(number)?;
        Some((self.text(*name), value.get(self.bytes)))
    }

    pub(crate) fn find(&self, name: &str) -> Option<&'c [u8]> {
        let is_it = |span: &Span| span.get(self.bytes).eq_ignore_ascii_case(name.as_bytes());
        self.index.fields.iter().find(|(found, _)| is_it(found)).map(|(_, value)| value.get(self.bytes))
    }
}

#[cfg(test)]
mod tests;
