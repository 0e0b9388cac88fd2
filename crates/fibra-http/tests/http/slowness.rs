//! A client that is too slow is not waited for. Time-outs here are short, and the tests check that they come, not when.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{eventually, serve_with, watchdog};
use fibra::sync::Mutex;
use fibra_http::{BodyError, ConnectionError, HeadError, Request, Response, Server};

const SHORT: Duration = Duration::from_millis(50);

#[test]
fn a_head_that_does_not_come_to_its_end() {
    let _watchdog = watchdog(60);
    let server = serve_with(Server::builder().head_timeout(SHORT), |_: &mut Request<'_>| "fine");
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: t\r\n");
    let said = client.rest();
    assert!(said.starts_with("HTTP/1.1 408 "), "{said:?}");
    // The same for a new connection on which nothing comes at all.
    let said = server.connect().rest();
    assert!(said.starts_with("HTTP/1.1 408 "), "{said:?}");
}

/// Slow loris: always a byte just in time. The time-out is that of the whole head, so this does not help the client.
#[test]
fn a_head_that_comes_byte_by_byte() {
    let _watchdog = watchdog(60);
    let server = serve_with(Server::builder().head_timeout(Duration::from_millis(200)), |_: &mut Request<'_>| "fine");
    let mut client = server.connect();
    client.stream.get_ref().set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    client.send("GET / HTTP/1.1\r\nHost: t\r\nX: ");
    let mut seen = Vec::new();
    let mut buffer = [0; 1000];
    loop {
        client.send("x");
        match client.stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => seen.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // The server has closed, and the client went on sending.
            Err(_) => break,
        }
    }
    assert!(seen.is_empty() || seen.starts_with(b"HTTP/1.1 408 "), "{:?}", String::from_utf8_lossy(&seen));
}

#[test]
fn a_connection_that_is_silent_between_requests() {
    let _watchdog = watchdog(60);
    let server = serve_with(Server::builder().idle_timeout(SHORT), |_: &mut Request<'_>| "fine");
    let mut client = server.connect();
    assert_eq!(client.get("/").status, 200);
    client.expect_end();
}

#[test]
fn a_body_that_does_not_come() {
    let _watchdog = watchdog(60);
    let log = Arc::new(Mutex::new(Vec::new()));
    let told = log.clone();
    let builder = Server::builder().body_timeout(SHORT).on_error(move |error, _| told.lock().push(error.to_string()));
    let server = serve_with(builder, |request: &mut Request<'_>| match request.path() {
        "/unread" => Ok(Response::text("not read")),
        _ => request.text().map(Response::text),
    });
    for framing in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
        let mut client = server.connect();
        let answer = client.ask(format!("POST / HTTP/1.1\r\nHost: t\r\n{framing}\r\n\r\n5\r\nhe"));
        assert_eq!((answer.status, answer.header("connection")), (408, Some("close")));
        client.expect_end();
        // The handler does not read it, but the server reads it away to keep the connection: not for ever either.
        let mut client = server.connect();
        let answer = client.ask(format!("POST /unread HTTP/1.1\r\nHost: t\r\n{framing}\r\n\r\n5\r\nhe"));
        assert_eq!(answer.text(), "not read");
        client.expect_end();
    }
    drop(server);
    assert_eq!(*log.lock(), [BodyError::TimedOut.to_string(), BodyError::TimedOut.to_string()]);
}

/// A byte now and then does not help a body either, if the rate is too low.
#[test]
fn a_body_that_comes_byte_by_byte() {
    let _watchdog = watchdog(60);
    let builder = Server::builder().body_timeout(Duration::from_millis(200)).min_rate(1 << 30);
    let server = serve_with(builder, |request: &mut Request<'_>| request.text());
    let mut client = server.connect();
    client.stream.get_ref().set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\n");
    let mut seen = Vec::new();
    let mut buffer = [0; 1000];
    loop {
        client.send("x");
        match client.stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => seen.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // The server has closed, and the client went on sending.
            Err(_) => break,
        }
    }
    assert!(seen.is_empty() || seen.starts_with(b"HTTP/1.1 408 "), "{:?}", String::from_utf8_lossy(&seen));
}

/// A body may take longer than the time-out if it comes fast enough.
#[test]
fn a_body_that_comes_at_a_good_rate_has_time() {
    let _watchdog = watchdog(60);
    let builder = Server::builder().body_timeout(Duration::from_millis(200)).min_rate(100);
    let server = serve_with(builder, |request: &mut Request<'_>| request.text());
    let mut client = server.connect();
    // Half a second in all; the first 500 bytes, which come with the head, alone grant five.
    client.send(format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1000\r\n\r\n{}", "x".repeat(500)));
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(100));
        client.send([b'x'; 100]);
    }
    let answer = client.answer();
    assert_eq!((answer.status, answer.body.len()), (200, 1000));
}

#[test]
fn a_client_that_does_not_take_its_answer() {
    let _watchdog = watchdog(60);
    let log = Arc::new(Mutex::new(Vec::new()));
    let told = log.clone();
    let report = move |error: &ConnectionError, _| match error {
        ConnectionError::Io(error) => told.lock().push(error.kind()),
        other => panic!("{other:?}"),
    };
    // So fast a rate that the size of the answer grants next to nothing.
    let builder = Server::builder().write_timeout(SHORT).min_rate(1 << 30).on_error(report);
    let server = serve_with(builder, |request: &mut Request<'_>| match request.path() {
        "/bytes" => Response::bytes(vec![0; 100 << 20]),
        _ => Response::stream(|out| {
            loop {
                std::io::Write::write_all(out, &[0; 1000])?;
            }
        }),
    });
    let mut client = server.connect();
    client.send("GET /bytes HTTP/1.1\r\nHost: t\r\n\r\n");
    eventually(|| log.lock().len() == 1, "the server gives up");
    assert_eq!(log.lock()[0], std::io::ErrorKind::TimedOut);
}

/// The slow loris of the other direction: it always takes a little, just in time for the next write. The time is that of the whole answer.
#[test]
fn a_client_that_takes_its_answer_bit_by_bit() {
    let _watchdog = watchdog(60);
    const LENGTH: usize = 100 << 20;
    let builder = Server::builder().write_timeout(Duration::from_millis(500)).min_rate(1 << 30);
    let server = serve_with(builder, |_: &mut Request<'_>| Response::bytes(vec![0; LENGTH]));
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    let mut taken = 0;
    let mut buffer = vec![0; 64 << 10];
    // All of it would take at least eight seconds.
    while let Ok(count @ 1..) = client.stream.get_mut().read(&mut buffer) {
        taken += count;
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(taken < LENGTH, "the server was patient");
}

#[test]
fn a_head_error_says_its_status() {
    assert_eq!(HeadError::TimedOut.status().code(), 408);
    assert_eq!(HeadError::Malformed.status().code(), 400);
}

/// The time that a handler takes between two reads does not count against the client.
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
    // The system takes it, also while the server does not read.
    let body = "x".repeat(30_000);
    let mut client = server.connect();
    let began = fibra::time::Instant::now();
    client.send(format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", body.len()));
    // The first read has to wait, so that the time begins.
    begins.recv().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    client.send(&body);
    // If this thread was without a processor for so long, the client was too slow indeed.
    let in_time = began.elapsed() < SHORT;
    let answer = client.answer();
    assert!((answer.status, answer.text()) == (200, "30000") || !in_time && answer.status == 408, "{answer:?}");
}
