//! A client that always sends or takes a little, just before time is up, does not hold a connection: no byte restarts a deadline. The tests
//! check that the time-outs come, not when.

use std::io::{self, Read, Write};
use std::time::Duration;

use crate::support::{Client, serve_with, watchdog};
use fibra::net::TcpStream;
use fibra::time::Instant;
use fibra_http::{ConnectionError, Layered, Limits, Request, Response, Server, Transport, serve_connection};

/// Time-outs that are to come.
const SHORT: Duration = Duration::from_millis(200);

/// Time-outs that are to come, but not while a client sends its first request.
const MEDIUM: Duration = Duration::from_secs(2);

/// Time-outs that are not to come.
const LONG: Duration = Duration::from_secs(3600);

/// How long a server may go on listening to a client that trickles, before the test fails.
const PATIENCE: Duration = Duration::from_secs(20 * crate::support::SLOWDOWN);

/// Sends these pieces again and again until the server sends something or closes the connection. Returns all that the server sends.
#[track_caller]
fn trickle(client: &mut Client, pieces: &[&str]) -> String {
    let until = Instant::after(PATIENCE);
    let stream = client.stream.get_mut();
    stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let mut said = vec![0; 1000];
    for piece in pieces.iter().cycle() {
        assert!(!until.remaining().is_zero(), "the server still listens");
        let sent = stream.write_all(piece.as_bytes());
        match stream.read(&mut said) {
            Ok(count) => {
                said.truncate(count);
                break;
            }
            Err(error) if sent.is_ok() && error.kind() == io::ErrorKind::WouldBlock => {}
            // The server has closed the connection, with bytes unread.
            Err(_) => return String::new(),
        }
    }
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut said);
    String::from_utf8(said).unwrap()
}

/// Empty lines before a request are skipped. (An earlier version restarted the time of the head with each of them.)
#[test]
fn empty_lines_do_not_lengthen_the_time_of_a_new_connection() {
    let _watchdog = watchdog(120);
    let server = serve_with(Server::builder().head_timeout(SHORT), |_: &mut Request<'_>| "fine");
    for pieces in [&["\r\n"][..], &["\r", "\n"], &["\r\n\r", "\n"], &["\r\n\r\n"]] {
        let said = trickle(&mut server.connect(), pieces);
        assert!(said.starts_with("HTTP/1.1 408 "), "{pieces:?}: {said:?}");
    }
}

/// Between two requests the idle time counts, and the connection is closed without an answer, as if it had been silent.
#[test]
fn empty_lines_do_not_lengthen_the_idle_time() {
    let _watchdog = watchdog(120);
    let builder = Server::builder().idle_timeout(SHORT).head_timeout(LONG);
    let server = serve_with(builder, |_: &mut Request<'_>| "fine");
    for pieces in [&["\r\n"][..], &["\r", "\n"], &["\r\n\r", "\n"], &["\r\n\r\n"]] {
        let mut client = server.connect();
        assert_eq!(client.get("/").status, 200);
        assert_eq!(trickle(&mut client, pieces), "", "{pieces:?}");
    }
}

/// Some clients send an empty line behind a body. That is not the beginning of a head, even if only half of it has come.
#[test]
fn an_empty_line_between_two_requests_does_not_begin_a_head() {
    let _watchdog = watchdog(60);
    let server = serve_with(Server::builder().head_timeout(MEDIUM), |_: &mut Request<'_>| "fine");
    let mut clients = [("\r\n", ""), ("\r", "\n"), ("\r\n\r\n\r", "\n")].map(|(now, later)| {
        let mut client = server.connect();
        assert_eq!(client.get("/").status, 200);
        client.send(now);
        (client, later)
    });
    // Gives a wrong server the time to fail.
    std::thread::sleep(MEDIUM + SHORT);
    for (client, later) in &mut clients {
        assert_eq!(client.ask(format!("{later}GET / HTTP/1.1\r\nHost: t\r\n\r\n")).status, 200, "{later:?}");
    }
}

/// Holds for every part of a body: sizes, extensions, data or trailers. Read by the handler, or read away for the next request.
#[test]
fn no_part_of_a_body_lengthens_its_time() {
    let _watchdog = watchdog(240);
    let builder = Server::builder().body_timeout(SHORT).min_rate(u32::MAX);
    let server = serve_with(builder, |request: &mut Request<'_>| match request.path() {
        "/unread" => Ok(Response::text("not read")),
        _ => request.text().map(Response::text),
    });
    let chunked = "Transfer-Encoding: chunked";
    let parts: [(&str, &str, &[&str]); 6] = [
        ("Content-Length: 10000", "", &["x"]),
        (chunked, "", &["1\r\nx\r\n"]),
        (chunked, "", &["1", "\r", "\n", "x", "\r", "\n"]),
        (chunked, "1;", &["x"]),
        (chunked, "2710\r\n", &["x"]),
        (chunked, "0\r\n", &["A", ":", "b", "\r", "\n"]),
    ];
    for (framing, begin, pieces) in parts {
        let mut client = server.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: t\r\n{framing}\r\n\r\n{begin}"));
        let said = trickle(&mut client, pieces);
        assert!(said.starts_with("HTTP/1.1 408 "), "{framing}, {begin:?}, {pieces:?}: {said:?}");
        let mut client = server.connect();
        let answer = client.ask(format!("POST /unread HTTP/1.1\r\nHost: t\r\n{framing}\r\n\r\n{begin}"));
        assert_eq!(answer.text(), "not read");
        assert_eq!(trickle(&mut client, pieces), "", "{framing}, {begin:?}, {pieces:?}");
    }
}

/// Gives one request, and takes one byte of the answer at a time, always within the time-out of a write.
struct Sipping {
    request: io::Cursor<&'static [u8]>,
    taken: usize,
}

impl Read for Sipping {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.request.read(buffer)
    }
}

impl Write for Sipping {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        fibra::sleep(Duration::from_millis(5));
        self.taken += 1;
        Ok(buffer.len().min(1))
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Sipping {
    fn set_read_timeout(&mut self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
    fn set_write_timeout(&mut self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_answer_that_is_taken_byte_by_byte_is_given_up() {
    const LENGTH: usize = 10_000;
    let _watchdog = watchdog(240);
    type Answer = (&'static str, fn() -> Response);
    let answers: [Answer; 4] = [
        ("bytes", || Response::bytes(vec![b'x'; LENGTH])),
        ("many bytes", || Response::bytes(vec![b'x'; 10 * LENGTH])),
        ("a reader", || Response::reader(io::repeat(b'x'), LENGTH as u64)),
        ("a stream", || Response::stream(|out| out.write_all(&[b'x'; LENGTH]))),
    ];
    fibra::run(|| {
        for (kind, answer) in answers {
            let limits = Limits { write_timeout: SHORT, min_rate: u32::MAX, ..Limits::default() };
            let sipping = Sipping { request: io::Cursor::new(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n"), taken: 0 };
            match serve_connection(sipping, &limits, |_: &mut Request<'_>| answer()) {
                Err(ConnectionError::Io(error) | ConnectionError::Truncated(error)) => {
                    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{kind}");
                }
                other => panic!("{kind}: {other:?}"),
            }
        }
    });
}

/// A layer over a connection has one time for its whole handshake.
#[test]
fn a_handshake_that_comes_byte_by_byte_is_given_up() {
    let _watchdog = watchdog(120);
    let server = Server::builder().head_timeout(SHORT).bind("127.0.0.1:0").unwrap();
    let (address, stopper) = (server.local_addr().unwrap(), server.stopper());
    let serving = std::thread::spawn(move || {
        let wrap = |mut stream: TcpStream| {
            let mut byte = [0];
            while byte[0] != b'!' {
                stream.read_exact(&mut byte)?;
            }
            Ok(Layered::new(stream, |stream| stream))
        };
        fibra::run(|| server.serve_over(wrap, |_: &mut Request<'_>| "fine"))
    });
    assert_eq!(trickle(&mut Client::new(address), &["x"]), "");
    stopper.stop();
    serving.join().unwrap().unwrap();
}

/// A server that stops waits for requests that were begun; their time-outs bound that wait.
#[test]
fn clients_that_trickle_do_not_hold_up_a_server_that_stops() {
    let _watchdog = watchdog(120);
    let builder = Server::builder().head_timeout(MEDIUM).body_timeout(SHORT).min_rate(u32::MAX).linger(SHORT);
    let server = serve_with(builder, |request: &mut Request<'_>| request.text());
    let get = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
    let post = "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10000\r\n\r\n";
    let clients: Vec<_> = [("", "\r\n"), ("", "G"), (get, "\r\n"), (get, "G"), (post, "x"), ("rubbish\n", "x")]
        .into_iter()
        .map(|(first, piece)| {
            let mut client = server.connect();
            client.send(first);
            if first == get {
                assert_eq!(client.answer().status, 200);
            }
            std::thread::spawn(move || trickle(&mut client, &[piece]))
        })
        .collect();
    server.stopper.drain(LONG);
    assert_eq!(server.wait().cut_off, 0);
    for client in clients {
        client.join().unwrap();
    }
}
