//! A handler's view of a request, and that it does not matter how the bytes of it arrive.

use std::io::{Read, Write};

use crate::support::{Client, Running, serve, serve_with, watchdog};
use fibra_http::{BodyError, Request, Response, Server, Status, Version};

/// A handler that returns what it has seen.
fn mirror(request: &mut Request<'_>) -> Result<Response, BodyError> {
    let mut text = format!("{} {} {:?}", request.method(), request.target(), request.version());
    for (name, value) in request.headers() {
        text += &format!("|{name}={}", String::from_utf8_lossy(value));
    }
    text += &format!("|body={}", request.text()?);
    for (name, value) in request.body().trailers() {
        text += &format!("|{name}={}", String::from_utf8_lossy(value));
    }
    Ok(Response::text(text))
}

#[test]
fn method_target_version_and_headers() {
    let _watchdog = watchdog(60);
    let server = serve(|request: &mut Request<'_>| {
        assert_eq!(request.header("X-ONE"), Some("1"));
        assert_eq!(request.header("x-one"), Some("1"), "the first of several");
        assert_eq!(request.header("x-two"), None);
        assert_eq!(request.header("x-latin"), None, "not UTF-8");
        assert_eq!(request.header_bytes("x-latin"), Some(&b"caf\xe9"[..]));
        assert_eq!(request.header_all("X-One").collect::<Vec<_>>(), [b"1", b"2"]);
        assert!(request.header_has("connection", "foo") && !request.header_has("connection", "fo"));
        assert_eq!(
            request.headers().map(|(name, _)| name).collect::<Vec<_>>(),
            ["Host", "X-One", "x-one", "X-Latin", "Connection", "empty"]
        );
        assert_eq!(request.header("empty"), Some(""));
        assert_eq!(request.version(), Version::Http11);
        assert!(request.peer_addr().is_some_and(|from| from.ip().is_loopback()));
        assert_eq!(request.body().announced(), Some(0));
        let text = format!("{} {} {:?} {:?}", request.method(), request.path(), request.query(), request.host());
        // A status of success would promise a tunnel.
        Response::text(text).with_status(Status::new(if request.method() == "CONNECT" { 403 } else { 200 }).unwrap())
    });
    let rest: &[u8] = b" HTTP/1.1\r\nHost: a.example\r\nX-One:  1\t \r\nx-one:2\r\n\
        X-Latin: caf\xe9\r\nConnection: keep-alive, Foo\r\nempty:\r\n\r\n";
    let mut client = server.connect();
    let mut ask = |line: &str| client.ask([line.as_bytes(), rest].concat()).text().to_owned();
    assert_eq!(ask("GET /a/b?c=d"), "GET /a/b Some(\"c=d\") Some(\"a.example\")");
    assert_eq!(ask("M-SEARCH /"), "M-SEARCH / None Some(\"a.example\")");
    assert_eq!(ask("OPTIONS *"), "OPTIONS * None Some(\"a.example\")");
    assert_eq!(ask("GET http://b.example:8080"), "GET / None Some(\"b.example:8080\")", "the target counts, not Host");
    assert_eq!(ask("GET http://b.example/x?y"), "GET /x Some(\"y\") Some(\"b.example\")");
    assert_eq!(ask("CONNECT c.example:443"), "CONNECT  None Some(\"c.example:443\")");
}

/// Requests in all forms, and how they are answered.
fn examples() -> (Vec<u8>, Vec<&'static str>) {
    let requests = [
        "GET /1 HTTP/1.1\r\nHost: t\r\n\r\n",
        "\r\n\r\nPOST /2 HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello",
        "POST /3 HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n7;x=y\r\n, world\r\n0\r\n\r\n",
        "POST /4 HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: Chunked\r\n\r\n1\r\na\r\n0\r\nT: u\r\n\r\n",
        "POST /5 HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n",
        "POST /6 HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n\r\n\r",
        "GET /7 HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
        "GET /8 HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n",
    ];
    let answers = vec![
        "GET /1 Http11|Host=t|body=",
        "POST /2 Http11|Host=t|Content-Length=5|body=hello",
        "POST /3 Http11|Host=t|Transfer-Encoding=chunked|body=hello, world",
        "POST /4 Http11|Host=t|Transfer-Encoding=Chunked|body=a|T=u",
        "POST /5 Http11|Host=t|Content-Length=0|body=",
        "POST /6 Http11|Host=t|Content-Length=3|Content-Length=3|body=\r\n\r",
        "GET /7 Http10|Connection=Keep-Alive|body=",
        "GET /8 Http11|Host=t|Connection=close|body=",
    ];
    (requests.concat().into_bytes(), answers)
}

#[track_caller]
fn expect(client: &mut Client, answers: &[&str]) {
    for expected in answers {
        let answer = client.answer();
        assert_eq!((answer.status, answer.text()), (200, *expected));
    }
    client.expect_end();
}

#[test]
fn pipelined_and_split_at_every_byte() {
    let _watchdog = watchdog(120);
    let server = serve(mirror);
    let (bytes, answers) = examples();
    let mut client = server.connect();
    client.send(&bytes);
    expect(&mut client, &answers);
    for split in 1..bytes.len() {
        let mut client = server.connect();
        client.send(&bytes[..split]);
        // Now and then long enough for the server to have read the first part; the result must be the same either way.
        if split % 8 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        client.send(&bytes[split..]);
        expect(&mut client, &answers);
    }
}

#[test]
fn byte_by_byte() {
    let _watchdog = watchdog(120);
    let server = serve(mirror);
    let (bytes, answers) = examples();
    let mut client = server.connect();
    for byte in bytes {
        client.send([byte]);
    }
    expect(&mut client, &answers);
}

/// The same over a transport that gives one byte at a time, without randomness.
#[test]
fn reads_of_every_size() {
    let _watchdog = watchdog(120);
    let (bytes, answers) = examples();
    for size in [1, 2, 3, 5, 7, 16, 61, 64, 100, 1000] {
        let served = served_in_memory(&bytes, size, fibra_http::Limits::default(), mirror);
        let mut rest = served.as_str();
        for expected in &answers {
            let at = rest.find(expected).unwrap_or_else(|| panic!("{size}: {expected} is missing in {served}"));
            rest = &rest[at + expected.len()..];
        }
        assert_eq!(rest, "");
    }
}

/// A transport whose other side is a piece of memory.
struct Memory {
    input: std::io::Cursor<Vec<u8>>,
    size: usize,
    output: std::sync::Arc<fibra::sync::Mutex<Vec<u8>>>,
}

impl Read for Memory {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let size = buffer.len().min(self.size);
        self.input.read(&mut buffer[..size])
    }
}

impl Write for Memory {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        let size = buffer.len().min(self.size);
        self.output.lock().extend_from_slice(&buffer[..size]);
        Ok(size)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl fibra_http::Transport for Memory {
    fn set_read_timeout(&mut self, _: Option<std::time::Duration>) -> std::io::Result<()> {
        Ok(())
    }
    fn set_write_timeout(&mut self, _: Option<std::time::Duration>) -> std::io::Result<()> {
        Ok(())
    }
}

/// What a connection answers to these bytes. On a plain thread: no runtime is needed.
fn served_in_memory<R: fibra_http::IntoResponse>(
    bytes: &[u8],
    size: usize,
    limits: fibra_http::Limits,
    handler: fn(&mut Request<'_>) -> R,
) -> String {
    let output = std::sync::Arc::default();
    let memory = Memory { input: std::io::Cursor::new(bytes.to_vec()), size, output: std::sync::Arc::clone(&output) };
    let _ = fibra_http::serve_connection(memory, &limits, handler);
    String::from_utf8_lossy(&output.lock()).into_owned()
}

#[test]
fn connections_stay_as_long_as_both_want() {
    let _watchdog = watchdog(60);
    let server = serve_with(Server::builder().max_requests(3), |request: &mut Request<'_>| match request.path() {
        "/close" => Response::text("bye").header("Connection", "close"),
        _ => Response::text("hi"),
    });
    let closes = |answer: &crate::support::Answer| answer.header("connection") == Some("close");
    let mut client = server.connect();
    assert!(
        !closes(&client.get("/")) && !closes(&client.get("/")) && closes(&client.get("/")),
        "the third is the last"
    );
    client.expect_end();
    let mut client = server.connect();
    assert!(closes(&client.get("/close")));
    client.expect_end();
    let mut client = server.connect();
    assert!(closes(&client.ask("GET / HTTP/1.0\r\n\r\n")));
    client.expect_end();
    let mut client = server.connect();
    let kept = client.ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(kept.header("connection"), Some("keep-alive"));
    let mut client = server.connect();
    assert!(closes(&client.ask("GET / HTTP/1.1\r\nHost: t\r\nConnection: foo, Close\r\n\r\n")));
    client.expect_end();
}

#[test]
fn what_a_client_waits_for_is_said_when_the_body_is_read() {
    let _watchdog = watchdog(60);
    let server = serve(|request: &mut Request<'_>| match request.path() {
        "/ignore" => Ok(Response::new(403)),
        "/stream" => Ok(Response::stream(|out| {
            let text = out.request().text()?;
            out.write_all(text.as_bytes())
        })),
        _ => request.text().map(Response::text),
    });
    let expecting = |path: &str, more: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n{more}\r\n")
    };
    let mut client = server.connect();
    for path in ["/", "/stream"] {
        assert_eq!(client.ask(expecting(path, "")).status, 100);
        let answer = client.ask("hello");
        assert_eq!((answer.status, answer.text()), (200, "hello"));
    }
    // The body is there already: the handler does not have to wait.
    let answer = client.ask(format!("{}hello", expecting("/", "")));
    assert_eq!((answer.status, answer.text()), (200, "hello"));
    // Not read: whether the body follows cannot be known, so the connection is closed.
    let answer = client.ask(expecting("/ignore", ""));
    assert_eq!((answer.status, answer.header("connection")), (403, Some("close")));
    client.expect_end();
    // A client of version 1.0 does not wait.
    let mut client = server.connect();
    client.send("POST / HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello");
    assert_eq!(client.answer().text(), "hello");
}

#[test]
fn bodies_that_no_handler_reads() {
    let _watchdog = watchdog(60);
    let server = serve_with(Server::builder().max_drain_bytes(1000), |_: &mut Request<'_>| "no, thanks");
    let mut client = server.connect();
    let with_length =
        |length: usize| format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n{}", "x".repeat(length));
    let chunked = |length: usize| {
        let head = "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
        format!("{head}{}0\r\n\r\n", "1\r\nx\r\n".repeat(length))
    };
    for request in [with_length(1000), chunked(1000), with_length(0), chunked(0)] {
        assert_eq!(client.ask(request).header("connection"), None);
    }
    assert_eq!(client.get("/").text(), "no, thanks", "what was not read did not disturb");
    assert_eq!(client.ask(with_length(1001)).header("connection"), Some("close"));
    client.expect_end();
    let mut client = server.connect();
    assert_eq!(client.ask(chunked(1001)).status, 200);
    client.expect_end();
}

#[test]
fn bodies_have_limits() {
    let _watchdog = watchdog(60);
    let server = serve_with(Server::builder().max_body_bytes(10_000), |request: &mut Request<'_>| {
        if request.path() == "/small" {
            request.body().limit(10);
        }
        let announced = request.body().announced();
        request.bytes().map(|bytes| format!("{} of {announced:?}", bytes.len()))
    });
    let with_length = |path: &str, length: usize| {
        format!("POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n{}", "x".repeat(length))
    };
    let chunked = |path: &str, length: usize| {
        let head = format!("POST {path} HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
        format!("{head}{}0\r\n\r\n", "a\r\n0123456789\r\n".repeat(length / 10))
    };
    let mut client = server.connect();
    assert_eq!(client.ask(with_length("/", 10_000)).text(), "10000 of Some(10000)");
    assert_eq!(client.ask(chunked("/", 10_000)).text(), "10000 of None");
    assert_eq!(client.ask(with_length("/small", 10)).text(), "10 of Some(10)");
    for request in [with_length("/", 10_001), chunked("/", 10_010), with_length("/small", 11), chunked("/small", 20)] {
        let mut client = server.connect();
        let answer = client.ask(request);
        assert_eq!((answer.status, answer.header("connection")), (413, Some("close")));
        client.expect_end();
    }
}

#[test]
fn large_bodies_come_whole() {
    let _watchdog = watchdog(60);
    let server = serve_with(Server::builder().max_body_bytes(1 << 30), |request: &mut Request<'_>| {
        request.bytes().map(Response::bytes)
    });
    let body: Vec<u8> = (0..3_000_000u32).map(|number| (number * 7 / 3) as u8).collect();
    let mut client = server.connect();
    let mut writer = client.stream.get_ref().try_clone().unwrap();
    let sent = body.clone();
    let writing = std::thread::spawn(move || {
        write!(writer, "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", sent.len()).unwrap();
        writer.write_all(&sent).unwrap();
        write!(writer, "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        for chunk in sent.chunks(70_001) {
            write!(writer, "{:X}\r\n", chunk.len()).unwrap();
            writer.write_all(chunk).unwrap();
            writer.write_all(b"\r\n").unwrap();
        }
        writer.write_all(b"0\r\n\r\n").unwrap();
    });
    for _ in 0..2 {
        assert!(client.answer().body == body);
    }
    writing.join().unwrap();
    assert_eq!(client.get("/").body, b"");
}

#[test]
fn a_client_that_goes_away_in_the_middle_disturbs_no_other() {
    let _watchdog = watchdog(60);
    let server: Running = serve(mirror);
    let (bytes, _) = examples();
    for end in (1..bytes.len()).step_by(7) {
        let mut client = server.connect();
        client.send(&bytes[..end]);
        drop(client);
    }
    // Half-closed: a request that was sent before is answered.
    let mut client = server.connect();
    client.send("GET /1 HTTP/1.1\r\nHost: t\r\n\r\n");
    client.stream.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.answer().status, 200);
    client.expect_end();
    // A body that breaks off is an error to the handler that reads it, and answered as such.
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhel");
    client.stream.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.answer().status, 400);
}

/// The handler's own limit for reading does not limit how much may be read away for the next request.
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
