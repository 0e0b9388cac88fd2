//! Limits: an impossible limit is refused when it is set, with a message that says what is possible; and no limit costs memory before bytes
//! come for it.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use crate::support::{serve_with, watchdog};
use fibra_http::{Builder, ConnectionError, LimitError, Limits, Request, Server, serve_connection};

/// An earlier version allocated as many fields as the limit allows for a request with more than 64: a panic or an abort, by a remote
/// request.
#[test]
fn header_fields_cost_what_arrives_and_not_what_may() {
    let _watchdog = watchdog(60);
    for most in [1 << 40, usize::MAX / 64, usize::MAX, 1000] {
        let server = serve_with(Server::builder().max_headers(most), |request: &mut Request<'_>| {
            format!("{} fields", request.headers().count())
        });
        let mut client = server.connect();
        for count in [1, 63, 64, 65, 66, 500, 1000] {
            let head = format!("GET / HTTP/1.1\r\nHost: t\r\n{}", "A: b\r\n".repeat(count - 1));
            // Whole; then cut before the end, and in the middle of the last field.
            for cut in [head.len(), head.len() - 2, head.len() - 5] {
                client.send(&head[..cut]);
                assert_eq!(client.ask(format!("{}\r\n", &head[cut..])).text(), format!("{count} fields"));
            }
        }
    }
}

/// The name of a limit, how it is set, and its value in the error.
type Case = (&'static str, fn(&mut Limits), &'static str);

const IMPOSSIBLE: [Case; 8] = [
    ("max_head_bytes", |limits| limits.max_head_bytes = 0, "0"),
    ("max_head_bytes", |limits| limits.max_head_bytes = usize::MAX, "18446744073709551615"),
    ("max_headers", |limits| limits.max_headers = 0, "0"),
    ("max_requests", |limits| limits.max_requests = 0, "0"),
    ("head_timeout", |limits| limits.head_timeout = Duration::ZERO, "0ns"),
    ("idle_timeout", |limits| limits.idle_timeout = Duration::ZERO, "0ns"),
    ("body_timeout", |limits| limits.body_timeout = Duration::ZERO, "0ns"),
    ("write_timeout", |limits| limits.write_timeout = Duration::ZERO, "0ns"),
];

/// Checks it in every way in which a builder makes a server.
fn expect_refused(builder: Builder, field: &str, value: &str) {
    let listener = || fibra::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = builder.clone().bind("127.0.0.1:0").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    let error = error.downcast::<LimitError>().unwrap();
    assert_eq!(error.field(), field);
    let text = error.to_string();
    let what_to_do =
        text.strip_prefix(&format!("fibra-http: {field} cannot be {value}: ")).unwrap_or_else(|| panic!("{text}"));
    assert!(what_to_do.contains("set "), "{text}");
    assert_eq!(builder.clone().try_listen(listener()).unwrap_err(), error);
    let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| builder.listen(listener()))).unwrap_err();
    assert_eq!(panicked.downcast_ref::<String>(), Some(&text));
}

#[test]
fn what_is_not_possible_is_refused_when_it_is_set() {
    let _watchdog = watchdog(60);
    for (field, set, value) in IMPOSSIBLE {
        let mut limits = Limits::default();
        set(&mut limits);
        expect_refused(Server::builder().limits(limits.clone()), field, value);
        let (_client, connection) = fibra::net::UnixStream::pair().unwrap();
        match serve_connection(connection, &limits, |_: &mut Request<'_>| "fine") {
            Err(ConnectionError::Limits(error)) => assert_eq!(error.field(), field),
            other => panic!("{other:?}"),
        }
    }
    expect_refused(Server::builder().head_timeout(Duration::ZERO), "head_timeout", "0ns");
    for bytes in [0, (32 << 10) - 1, (1 << 30) + 1, usize::MAX] {
        expect_refused(Server::builder().stack_size(bytes), "stack_size", &bytes.to_string());
    }
}

/// The stack sizes that are accepted are those that fibers can have.
#[test]
fn the_least_and_the_greatest_stack_serve() {
    let _watchdog = watchdog(60);
    for bytes in [32 << 10, 1 << 30] {
        let server = serve_with(Server::builder().stack_size(bytes), |_: &mut Request<'_>| "fine");
        assert_eq!(server.connect().get("/").status, 200, "{bytes}");
    }
}

/// The server does not allocate a limit as it was given, nor add up times without care for overflow: extreme limits work.
#[test]
fn the_greatest_and_the_least_limits_serve() {
    let _watchdog = watchdog(60);
    let greatest = Limits {
        max_head_bytes: 1 << 30,
        max_headers: usize::MAX,
        max_body_bytes: u64::MAX,
        max_requests: u64::MAX,
        head_timeout: Duration::MAX,
        idle_timeout: Duration::MAX,
        body_timeout: Duration::MAX,
        write_timeout: Duration::MAX,
        min_rate: u32::MAX,
        max_drain_bytes: u64::MAX,
        linger: Duration::MAX,
        max_linger_bytes: u64::MAX,
        batch: true,
    };
    let least_rate = Limits { min_rate: 0, ..greatest.clone() };
    let none = Limits {
        max_body_bytes: 0,
        max_drain_bytes: 0,
        linger: Duration::ZERO,
        max_linger_bytes: 0,
        batch: false,
        ..Limits::default()
    };
    let many = "A: b\r\n".repeat(80);
    let get = format!("GET / HTTP/1.1\r\nHost: t\r\n{many}\r\n");
    for limits in [greatest, least_rate] {
        let builder = Server::builder().limits(limits).max_connections(usize::MAX);
        let server = serve_with(builder, |request: &mut Request<'_>| match request.path() {
            "/unread" => Ok("not read".to_owned()),
            _ => request.text(),
        });
        let mut client = server.connect();
        assert_eq!(client.ask(&get).text(), "");
        for path in ["/", "/unread"] {
            let post = format!("POST {path} HTTP/1.1\r\nHost: t\r\n");
            let expected = if path == "/" { "hello" } else { "not read" };
            assert_eq!(client.ask(format!("{post}Content-Length: 5\r\n\r\nhello")).text(), expected);
            let chunks = "5;extension\r\nhello\r\n0\r\nA: b\r\n\r\n";
            assert_eq!(client.ask(format!("{post}Transfer-Encoding: chunked\r\n\r\n{chunks}")).text(), expected);
        }
        assert_eq!(client.ask("rubbish\n").status, 400);
    }
    let server = serve_with(Server::builder().limits(none), |request: &mut Request<'_>| request.text());
    let mut client = server.connect();
    assert_eq!(client.get("/").status, 200);
    assert_eq!(client.ask("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\n").status, 413);
}
