//! A client's view of a response: lengths, chunks, `HEAD`, panics, other protocols.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Running, serve, serve_with, watchdog};
use fibra::sync::Mutex;
use fibra_http::{ConnectionError, IntoResponse, Request, Response, ResponseError, Server, Status, Upgraded};

fn many(request: &mut Request<'_>) -> Response {
    match request.path() {
        "/text" => Response::text("text"),
        "/shared" => Response::bytes(Arc::<[u8]>::from(vec![7; 100_000])).header("content-type", "image/x-seven"),
        "/reader" => Response::reader(std::io::repeat(b'r'), 50_000),
        "/stream" => Response::stream(|out| {
            // Small pieces, large ones, and none at all.
            for size in [1, 0, 10, 9_000, 3, 40_000, 5_000, 5_000, 5_000, 1] {
                out.write_all(&vec![b's'; size])?;
            }
            Ok(())
        }),
        "/nothing" => Response::stream(|_| Ok(())),
        "/empty" => Response::new(200),
        "/204" => Response::new(204).with_body("not sent"),
        "/304" => Response::new(Status::NOT_MODIFIED).header("etag", "\"x\"").with_body("not sent"),
        "/odd" => Response::new(799),
        "/date" => Response::text("x").header("Date", "then"),
        _ => Response::new(404),
    }
}

/// Sizes of the bodies of the paths above.
const BODIES: &[(&str, usize)] =
    &[("/text", 4), ("/shared", 100_000), ("/reader", 50_000), ("/stream", 64_015), ("/nothing", 0), ("/empty", 0)];

#[test]
fn bodies_of_every_kind() {
    let _watchdog = watchdog(60);
    let server = serve(many);
    let mut client = server.connect();
    for (path, size) in BODIES {
        let answer = client.get(path);
        assert_eq!((answer.status, answer.body.len()), (200, *size), "{path}");
        let is_chunked = matches!(*path, "/stream" | "/nothing");
        assert_eq!(answer.header("transfer-encoding"), is_chunked.then_some("chunked"), "{path}");
        assert_eq!(answer.header("content-length").is_some(), !is_chunked, "{path}");
        assert!(answer.header("date").is_some_and(|date| date.ends_with(" GMT")));
    }
    assert_eq!(client.get("/shared").header("content-type"), Some("image/x-seven"));
    assert_eq!(client.get("/text").header("content-type"), Some("text/plain; charset=utf-8"));
    let types = client.get("/shared");
    assert_eq!(types.headers.iter().filter(|(name, _)| name == "content-type").count(), 1);
    let date = client.get("/date");
    assert_eq!(date.headers.iter().filter(|(name, _)| name == "date").count(), 1);
    assert_eq!(client.get("/odd").status, 799);
}

#[test]
fn bodies_that_are_not_sent() {
    let _watchdog = watchdog(60);
    let server = serve(many);
    let mut client = server.connect();
    for (path, size) in BODIES {
        client.send(format!("HEAD {path} HTTP/1.1\r\nHost: t\r\n\r\n"));
        let answer = client.answer_to("HEAD").unwrap();
        match *path {
            "/stream" | "/nothing" => assert_eq!(answer.header("content-length"), None),
            _ => assert_eq!(answer.header("content-length"), Some(size.to_string().as_str()), "{path}"),
        }
        assert_eq!(client.get("/text").text(), "text", "nothing of {path} was sent");
    }
    for path in ["/204", "/304"] {
        let answer = client.get(path);
        assert_eq!(answer.status.to_string(), path[1..]);
        assert_eq!((answer.header("content-length"), answer.header("transfer-encoding")), (None, None));
        assert_eq!(client.get("/text").text(), "text", "nothing of {path} was sent");
    }
}

#[test]
fn to_a_client_of_version_1_0_a_stream_ends_with_the_connection() {
    let _watchdog = watchdog(60);
    let server = serve(many);
    let mut client = server.connect();
    let answer = client.ask("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!((answer.header("transfer-encoding"), answer.header("connection")), (None, Some("close")));
    assert_eq!(answer.body.len(), 64_015);
}

#[test]
fn a_stream_is_seen_as_it_is_made() {
    let _watchdog = watchdog(60);
    let (go, wait) = fibra::channel::unbounded::<()>();
    let server = serve(move |_: &mut Request<'_>| {
        let wait = wait.clone();
        Response::stream(move |out| {
            out.write_all(b"first")?;
            out.flush()?;
            wait.recv().expect("the client says when");
            out.write_all(b"second")
        })
    });
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(b"first\r\n") {
        client.stream.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
    go.send(()).unwrap();
    while !seen.ends_with(b"second\r\n0\r\n\r\n") {
        client.stream.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
}

#[test]
fn a_body_may_be_read_while_the_answer_is_made() {
    let _watchdog = watchdog(60);
    let server = serve(|_: &mut Request<'_>| {
        Response::stream(|out| {
            let mut buffer = [0; 100];
            loop {
                match out.request().body().read(&mut buffer)? {
                    0 => return Ok(()),
                    count => out.write_all(&buffer[..count])?,
                }
            }
        })
    });
    let mut client = server.connect();
    let body = "0123456789".repeat(5_000);
    let answer = client.ask(format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    assert_eq!(answer.text(), body);
    let chunks: String =
        body.as_bytes().chunks(777).map(|_| "309\r\n".to_owned() + &"y".repeat(777) + "\r\n").collect();
    let answer =
        client.ask(format!("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"));
    assert_eq!(answer.body.len(), body.len().div_ceil(777) * 777);
    assert_eq!(client.get("/").text(), "");
}

/// A server, and the errors that it reported to its hook.
fn logging(handler: fn(&mut Request<'_>) -> Response) -> (Running, Arc<Mutex<Vec<String>>>) {
    let log = Arc::new(Mutex::new(Vec::new()));
    let told = log.clone();
    let report = move |error: &ConnectionError, from: Option<std::net::SocketAddr>| {
        assert!(from.is_some());
        told.lock().push(error.to_string());
    };
    (serve_with(Server::builder().on_error(report), handler), log)
}

#[test]
fn panics_are_answered_with_500() {
    let _watchdog = watchdog(60);
    let (server, log) = logging(|request| match request.path() {
        "/panic" => panic!("on purpose"),
        _ => Response::text("fine"),
    });
    let mut client = server.connect();
    assert_eq!(client.get("/").status, 200);
    let answer = client.get("/panic");
    assert_eq!((answer.status, answer.header("connection")), (500, Some("close")));
    assert!(!String::from_utf8_lossy(&answer.body).contains("purpose"));
    client.expect_end();
    assert_eq!(server.connect().get("/").status, 200, "others are not concerned");
    drop(server);
    assert_eq!(*log.lock(), ["a handler panicked"]);
}

#[test]
fn a_body_that_breaks_off_is_not_taken_for_a_whole_one() {
    let _watchdog = watchdog(60);
    let (server, log) = logging(|request| match request.path() {
        "/short" => Response::reader(&b"short"[..], 10),
        "/fails" => Response::reader(Fails, 10),
        "/error" => Response::stream(|out| {
            out.write_all(b"some")?;
            Err(std::io::Error::other("no more"))
        }),
        _ => Response::stream(|out| {
            out.write_all(&[b'x'; 100])?;
            panic!("on purpose")
        }),
    });
    for (path, said) in [("/short", "short"), ("/fails", ""), ("/error", "4\r\nsome\r\n"), ("/panic", "")] {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n"));
        let all = client.rest();
        let body = all.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        assert!(!body.ends_with("0\r\n\r\n"), "{path}: {all:?}");
        assert!(body.ends_with(said) && body.len() < 15, "{path}: {all:?}");
    }
    drop(server);
    assert_eq!(log.lock().len(), 4);
}

struct Fails;

impl Read for Fails {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::other("cannot be read"))
    }
}

#[test]
fn nothing_breaks_out_of_a_header_line() {
    let _watchdog = watchdog(60);
    let (server, log) = logging(|request| Response::text("fine").header("x-said", request.bytes().unwrap()));
    let ask = |value: &[u8]| {
        let head = format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", value.len());
        server.connect().ask([head.as_bytes(), value].concat())
    };
    assert_eq!(ask(b"plain \xe9\t!").status, 200);
    for value in [&b"a\r\nset-cookie: b"[..], b"a\nb", b"a\rb", b"\0", b"\x7f"] {
        let answer = ask(value);
        assert_eq!((answer.status, answer.header("x-said"), answer.header("set-cookie")), (500, None, None));
        assert_eq!(answer.body, b"");
    }
    drop(server);
    assert_eq!(log.lock().len(), 5);

    let mut response = Response::new(200);
    for name in ["", "a b", "a:", "a\r\nb", "\u{e9}"] {
        assert!(matches!(response.try_header(name, "x"), Err(ResponseError::HeaderName(_))), "{name:?}");
    }
    for name in ["content-length", "Transfer-Encoding", "CONNECTION"] {
        assert_eq!(response.try_header(name, "x"), Err(ResponseError::Reserved(name.to_owned())));
    }
    assert_eq!(response.error(), None, "what was refused was not written");
    assert_eq!(Response::new(42).error(), Some(&ResponseError::Status(42)));
    assert_eq!(Response::new(100).error(), Some(&ResponseError::Status(100)));
    assert!(Response::upgrade("a\r\nb", |_| ()).error().is_some());
}

#[test]
fn what_a_handler_may_return() {
    let _watchdog = watchdog(60);
    let status = |response: Response| response.status().code();
    assert_eq!(status("text".into_response()), 200);
    assert_eq!(status(String::new().into_response()), 200);
    assert_eq!(status(vec![1u8].into_response()), 200);
    assert_eq!(status(().into_response()), 204);
    assert_eq!(status(Status::CREATED.into_response()), 201);
    assert_eq!(status(None::<Response>.into_response()), 404);
    assert_eq!(status(Err::<Response, _>(Status::FORBIDDEN).into_response()), 403);
    assert_eq!(status(Err::<Response, _>(fibra_http::BodyError::TooLong).into_response()), 413);
    assert_eq!(status(std::io::Error::from(fibra_http::BodyError::TimedOut).into_response()), 408);
    assert_eq!(status(std::io::Error::other("x").into_response()), 500);
    let boxed: Box<dyn std::error::Error + Send + Sync> = "x".into();
    assert_eq!(status(boxed.into_response()), 500);
}

/// Sends back in capitals what it receives.
fn shout(mut connection: Upgraded) {
    let mut buffer = [0; 64];
    while let Ok(count @ 1..) = connection.read(&mut buffer) {
        buffer[..count].make_ascii_uppercase();
        if connection.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

#[test]
fn another_protocol_takes_over() {
    let _watchdog = watchdog(60);
    let server = serve(|request: &mut Request<'_>| {
        if !(request.header_has("connection", "upgrade") && request.header_has("upgrade", "shout")) {
            return Response::new(426).header("upgrade", "shout").header("connection", "upgrade");
        }
        Response::upgrade("shout", |connection| match connection.downcast::<fibra::net::UnixStream>() {
            Ok(_) => unreachable!("it is no Unix socket"),
            Err(connection) => shout(connection),
        })
    });
    let mut client = server.connect();
    let refused = client.get("/");
    assert_eq!((refused.status, refused.header("upgrade")), (426, Some("shout")));
    // The first word comes in the same packet as the request.
    client.send("GET / HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\nearly");
    let answer = client.answer();
    assert_eq!(
        (answer.status, answer.header("upgrade"), answer.header("connection")),
        (101, Some("shout"), Some("upgrade"))
    );
    assert_eq!(answer.header("content-length"), None);
    let mut said = [0; 10];
    client.stream.read_exact(&mut said[..5]).unwrap();
    client.send(" late");
    client.stream.read_exact(&mut said[5..]).unwrap();
    assert_eq!(&said, b"EARLY LATE");
    client.stream.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    client.expect_end();
    // With a body it is not known where the other protocol begins.
    let mut client = server.connect();
    let answer = client
        .ask("GET / HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: shout\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(answer.status, 400);
    client.expect_end();
    let mut client = server.connect();
    assert_eq!(client.ask("GET / HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n").status, 400);
}

#[test]
fn tunnels_are_for_connect_and_connect_is_for_tunnels() {
    let _watchdog = watchdog(60);
    let (server, log) = logging(|request| match request.host() {
        Some("tunnel:1") => Response::tunnel(shout),
        _ => Response::text("no tunnel"),
    });
    let mut client = server.connect();
    client.send("CONNECT tunnel:1 HTTP/1.1\r\nHost: tunnel:1\r\n\r\nearly");
    let said = {
        client.stream.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
        client.rest()
    };
    assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("\r\n\r\nEARLY"), "{said}");
    assert!(!said.contains("Content-Length") && !said.contains("Connection"), "{said}");
    for wrong in ["CONNECT other:1 HTTP/1.1\r\nHost: other:1\r\n\r\n", "GET / HTTP/1.1\r\nHost: tunnel:1\r\n\r\n"] {
        assert_eq!(server.connect().ask(wrong).status, 500);
    }
    drop(server);
    assert_eq!(*log.lock(), [ResponseError::Tunnel.to_string(), ResponseError::Tunnel.to_string()]);
}

#[test]
fn answers_that_are_collected_arrive_in_order() {
    let _watchdog = watchdog(60);
    for batch in [true, false] {
        let server = serve_with(Server::builder().batch(batch), |request: &mut Request<'_>| {
            let number: usize = request.path()[1..].parse().unwrap();
            "x".repeat(number % 300)
        });
        let mut client = server.connect();
        let mut writer = client.stream.get_ref().try_clone().unwrap();
        let writing = std::thread::spawn(move || {
            let requests: String =
                (0..2000).map(|number| format!("GET /{number} HTTP/1.1\r\nHost: t\r\n\r\n")).collect();
            writer.write_all(requests.as_bytes()).unwrap();
        });
        for number in 0..2000 {
            assert_eq!(client.answer().body.len(), number % 300);
        }
        writing.join().unwrap();
    }
}

/// A reader that gives some bytes, and then panics.
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

/// Answers that were collected for earlier requests are not lost with the answer whose body panics; and that request is answered too, if
/// nothing of its answer has been sent.
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

/// To a client of version 1.0 the end of the connection is the end of the body: a connection whose body breaks off is reset.
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

/// An upgrade that is given a body is none: 101 would make the client speak another protocol although no handler takes over.
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

#[test]
fn a_205_has_no_body() {
    let _watchdog = watchdog(60);
    let server = serve(|_: &mut Request<'_>| Response::new(Status::RESET_CONTENT).with_body("not sent"));
    let answer = server.connect().get("/");
    assert_eq!((answer.status, answer.header("content-length")), (205, Some("0")));
}

/// Bytes lie unread behind a request that asked for the end of the connection: closing at once would make the system throw away the part
/// of the answer that the client has not taken yet.
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
    // A request that fills the buffer to its last byte, and more behind it.
    let get = "GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\nA: ";
    let get = format!("{get}{}\r\n\r\n\r\n", "x".repeat(4096 - get.len() - 4));
    for request in [post, get] {
        let mut client = server.connect();
        client.send(&request);
        is_done.recv().unwrap();
        // Gives a wrong server the time to fail.
        std::thread::sleep(Duration::from_millis(200));
        let answer = client.answer();
        assert_eq!((answer.status, answer.body.len()), (200, LENGTH));
        client.expect_end();
    }
}
