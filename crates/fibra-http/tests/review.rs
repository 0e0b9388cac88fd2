//! What a review of the server found: each of these was broken once.

mod support;

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use fibra::sync::Mutex;
use fibra_http::{ConnectionError, Request, Response, ResponseError, Server, Status};
use support::{serve, serve_with, watchdog};

/// Gives something, and then panics.
struct Panics(usize);

impl Read for Panics {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        assert!(self.0 > 0, "on purpose");
        self.0 -= 1;
        buffer.fill(b'r');
        Ok(buffer.len())
    }
}

fn is_chunk_of_nothing(text: &str) -> bool {
    text.contains("\r\n0000\r\n") || text.ends_with("\r\n0\r\n\r\n")
}

/// Answers that were collected for earlier requests are not lost with the one whose body panics; and that one is answered too, if nothing
/// of it has been sent.
#[test]
fn a_panic_while_the_body_is_made_costs_earlier_requests_nothing() {
    let _watchdog = watchdog(60);
    let log = Arc::new(Mutex::new(Vec::new()));
    let told = log.clone();
    let builder = Server::builder().on_error(move |error, _| told.lock().push(error.to_string()));
    let server = serve_with(builder, |request: &mut Request<'_>| match request.path() {
        "/stream" => Response::stream(|out| {
            out.write_all(b"some")?;
            panic!("on purpose")
        }),
        "/flushed" => Response::stream(|out| {
            out.write_all(b"some")?;
            out.flush()?;
            out.write_all(b"more")?;
            panic!("on purpose")
        }),
        "/reader" => Response::reader(Panics(0), 100_000),
        "/reader-late" => Response::reader(Panics(3), 100_000),
        _ => Response::text("fine"),
    });
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n");
    for (path, is_sent) in [("/stream", false), ("/flushed", true), ("/reader", false), ("/reader-late", true)] {
        let mut client = server.connect();
        client.send([get("/"), get("/"), get(path), get("/")].concat());
        for _ in 0..2 {
            assert_eq!(client.answer().text(), "fine", "before {path}");
        }
        let rest = client.rest();
        assert!(!is_chunk_of_nothing(&rest) && !rest.contains("more"), "{path}: {rest:?}");
        assert_eq!(rest.matches("HTTP/1.1 ").count(), 1, "{path}: {rest:?}");
        let status = if is_sent { "HTTP/1.1 200 " } else { "HTTP/1.1 500 " };
        assert!(rest.starts_with(status), "{path}: {rest:?}");
        if !is_sent {
            assert!(rest.contains("\r\nConnection: close\r\n") && rest.ends_with("\r\n\r\n"), "{path}: {rest:?}");
        }
    }
    drop(server);
    assert_eq!(*log.lock(), ["a handler panicked"; 4]);
}

/// To a client of version 1.0 the end of the connection is the end of the body: one that breaks off is reset.
#[test]
fn a_body_that_breaks_off_does_not_look_whole_to_version_1_0() {
    let _watchdog = watchdog(60);
    let server = serve(|request: &mut Request<'_>| {
        let panics = request.path() == "/panic";
        Response::stream(move |out| {
            out.write_all(b"some")?;
            out.flush()?;
            assert!(!panics, "on purpose");
            Err(std::io::Error::other("no more"))
        })
    });
    for path in ["/error", "/panic"] {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.0\r\n\r\n"));
        let error = client.stream.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{path}");
    }
}

/// An upgrade that is given a body is none: 101 would make the client speak another protocol to nobody.
#[test]
fn an_upgrade_with_a_body_is_not_sent() {
    let _watchdog = watchdog(60);
    let log = Arc::new(Mutex::new(Vec::new()));
    let told = log.clone();
    let builder = Server::builder().on_error(move |error: &ConnectionError, _| told.lock().push(error.to_string()));
    let server = serve_with(builder, |_: &mut Request<'_>| Response::upgrade("echo", |_| ()).with_body("and a body"));
    let answer = server.connect().ask("GET / HTTP/1.1\r\nHost: t\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!((answer.status, answer.header("upgrade")), (500, None));
    drop(server);
    assert_eq!(*log.lock(), [ResponseError::Status(101).to_string()]);
}

/// A client may begin to speak through a tunnel before it has been granted. If it is not, that is not a request.
#[test]
fn what_follows_a_refused_tunnel_is_no_request() {
    let _watchdog = watchdog(60);
    let server = serve(|request: &mut Request<'_>| match request.method() {
        "CONNECT" => Response::new(403),
        _ => Response::text("smuggled"),
    });
    let said = server.talk("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\nGET / HTTP/1.1\r\nHost: t\r\n\r\n");
    assert!(said.starts_with("HTTP/1.1 403 ") && said.contains("\r\nConnection: close\r\n"), "{said}");
    assert!(!said.contains("smuggled"), "{said}");
}

#[test]
fn a_target_without_a_host_is_refused() {
    let _watchdog = watchdog(60);
    let server = serve(|_: &mut Request<'_>| "fine");
    for target in ["http://:80/", "http://:/", "https://:443", "http://?a", "http:///"] {
        let answer = server.connect().ask(format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n"));
        assert_eq!(answer.status, 400, "{target}");
    }
}

#[test]
fn a_205_has_no_body() {
    let _watchdog = watchdog(60);
    let server = serve(|_: &mut Request<'_>| Response::new(Status::RESET_CONTENT).with_body("not sent"));
    let answer = server.connect().get("/");
    assert_eq!((answer.status, answer.header("content-length")), (205, Some("0")));
}

/// The time that a handler takes between two reads is not the client's fault.
#[test]
fn a_handler_that_takes_its_time_does_not_time_out_its_client() {
    let _watchdog = watchdog(60);
    const SHORT: Duration = Duration::from_millis(300);
    let builder = Server::builder().body_timeout(SHORT).min_rate(1 << 30);
    let (begun, begins) = fibra::channel::unbounded();
    let server = serve_with(builder, move |request: &mut Request<'_>| {
        begun.send(()).unwrap();
        let mut first = [0; 1];
        request.body().read_exact(&mut first)?;
        fibra::sleep(2 * SHORT);
        request.body().bytes().map(|rest| format!("{}", 1 + rest.len())).map_err(std::io::Error::from)
    });
    let body = "x".repeat(100_000);
    let mut client = server.connect();
    client.send(format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", body.len()));
    // So that the first read has to wait, and time begins.
    begins.recv().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let answer = client.ask(&body);
    assert_eq!((answer.status, answer.text()), (200, "100000"));
}

/// Something lies unread behind a request that asked for the end of the connection: closing at once would make the system throw away what
/// the client has not taken yet.
#[test]
fn what_lies_behind_the_last_request_does_not_cost_the_answer() {
    let _watchdog = watchdog(60);
    const LENGTH: usize = 400_000;
    let (done, is_done) = fibra::channel::unbounded();
    let server = serve_with(Server::builder().linger(Duration::from_secs(20)), move |request: &mut Request<'_>| {
        let mut body = vec![0; 1 << 20];
        let mut length = 0;
        while let Ok(count @ 1..) = request.body().read(&mut body[length..]) {
            length += count;
        }
        done.send(()).unwrap();
        Response::bytes(vec![b'y'; LENGTH])
    });
    let body = "x".repeat(100_000);
    let post =
        format!("POST / HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}\r\n", body.len());
    // One that fills the buffer to its last byte, and more behind it.
    let get = "GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\nA: ";
    let get = format!("{get}{}\r\n\r\n\r\n", "x".repeat(4096 - get.len() - 4));
    for request in [post, get] {
        let mut client = server.connect();
        client.send(&request);
        is_done.recv().unwrap();
        // Time for the wrong thing to be done.
        std::thread::sleep(Duration::from_millis(200));
        let answer = client.answer();
        assert_eq!((answer.status, answer.body.len()), (200, LENGTH));
        client.expect_end();
    }
}

/// What the handler allows itself to read does not say what may be read away for the next request.
#[test]
fn a_limit_of_a_handler_that_reads_nothing_does_not_cost_the_connection() {
    let _watchdog = watchdog(60);
    let server = serve(|request: &mut Request<'_>| {
        request.body().limit(10);
        "fine"
    });
    let mut client = server.connect();
    let with_length = format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 20\r\n\r\n{}", "x".repeat(20));
    let chunked =
        "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n14\r\n01234567890123456789\r\n0\r\n\r\n";
    client.send([with_length.as_str(), chunked, with_length.as_str()].concat());
    for _ in 0..3 {
        let answer = client.answer();
        assert_eq!((answer.text(), answer.header("connection")), ("fine", None));
    }
    assert_eq!(client.get("/").text(), "fine");
}
