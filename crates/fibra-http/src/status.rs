//! Status codes. Below: nothing.

use std::fmt;

/// A status code of three digits. [`Response`](crate::Response) takes plain numbers too: `Response::new(404)`.
///
/// ```
/// use fibra_http::Status;
///
/// assert_eq!(Status::NOT_FOUND, Status::new(404).unwrap());
/// assert_eq!(Status::NOT_FOUND.to_string(), "404 Not Found");
/// assert!(Status::new(42).is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(u16);

impl Status {
    /// `None` unless it has three digits.
    pub const fn new(code: u16) -> Option<Self> {
        if code >= 100 && code <= 999 { Some(Self(code)) } else { None }
    }

    /// The number.
    pub const fn code(self) -> u16 {
        self.0
    }

    /// Does an answer with this status end after the head, whatever the head says?
    pub(crate) fn has_no_body(self) -> bool {
        self.0 < 200 || self.0 == 204 || self.0 == 304
    }
}

macro_rules! statuses {
    ($($code:literal $name:ident $reason:literal),+ $(,)?) => {
        impl Status {
            $(
                #[doc = concat!(stringify!($code), " ", $reason)]
                pub const $name: Self = Self($code);
            )+

            /// The reason phrase of the status; empty if it is not known here.
            pub const fn reason(self) -> &'static str {
                match self.0 {
                    $($code => $reason,)+
                    _ => "",
                }
            }

            /// The first line of an answer.
            pub(crate) fn line(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some(concat!("HTTP/1.1 ", stringify!($code), " ", $reason, "\r\n")),)+
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    100 CONTINUE "Continue",
    101 SWITCHING_PROTOCOLS "Switching Protocols",
    200 OK "OK",
    201 CREATED "Created",
    202 ACCEPTED "Accepted",
    203 NON_AUTHORITATIVE_INFORMATION "Non-Authoritative Information",
    204 NO_CONTENT "No Content",
    205 RESET_CONTENT "Reset Content",
    206 PARTIAL_CONTENT "Partial Content",
    300 MULTIPLE_CHOICES "Multiple Choices",
    301 MOVED_PERMANENTLY "Moved Permanently",
    302 FOUND "Found",
    303 SEE_OTHER "See Other",
    304 NOT_MODIFIED "Not Modified",
    307 TEMPORARY_REDIRECT "Temporary Redirect",
    308 PERMANENT_REDIRECT "Permanent Redirect",
    400 BAD_REQUEST "Bad Request",
    401 UNAUTHORIZED "Unauthorized",
    403 FORBIDDEN "Forbidden",
    404 NOT_FOUND "Not Found",
    405 METHOD_NOT_ALLOWED "Method Not Allowed",
    406 NOT_ACCEPTABLE "Not Acceptable",
    408 REQUEST_TIMEOUT "Request Timeout",
    409 CONFLICT "Conflict",
    410 GONE "Gone",
    411 LENGTH_REQUIRED "Length Required",
    412 PRECONDITION_FAILED "Precondition Failed",
    413 CONTENT_TOO_LARGE "Content Too Large",
    414 URI_TOO_LONG "URI Too Long",
    415 UNSUPPORTED_MEDIA_TYPE "Unsupported Media Type",
    416 RANGE_NOT_SATISFIABLE "Range Not Satisfiable",
    417 EXPECTATION_FAILED "Expectation Failed",
    421 MISDIRECTED_REQUEST "Misdirected Request",
    422 UNPROCESSABLE_CONTENT "Unprocessable Content",
    426 UPGRADE_REQUIRED "Upgrade Required",
    428 PRECONDITION_REQUIRED "Precondition Required",
    429 TOO_MANY_REQUESTS "Too Many Requests",
    431 REQUEST_HEADER_FIELDS_TOO_LARGE "Request Header Fields Too Large",
    500 INTERNAL_SERVER_ERROR "Internal Server Error",
    501 NOT_IMPLEMENTED "Not Implemented",
    502 BAD_GATEWAY "Bad Gateway",
    503 SERVICE_UNAVAILABLE "Service Unavailable",
    504 GATEWAY_TIMEOUT "Gateway Timeout",
    505 HTTP_VERSION_NOT_SUPPORTED "HTTP Version Not Supported",
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            "" => write!(f, "{}", self.0),
            reason => write!(f, "{} {reason}", self.0),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Status> for u16 {
    fn from(status: Status) -> u16 {
        status.0
    }
}

impl PartialEq<u16> for Status {
    fn eq(&self, code: &u16) -> bool {
        self.0 == *code
    }
}
