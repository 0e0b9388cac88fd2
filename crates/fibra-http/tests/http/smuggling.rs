//! Requests that two servers in a row could see differently are refused: with 400 (or the number that says it better), and the connection
//! is closed, so that nothing behind it is taken for a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Running, serve, serve_with, watchdog};
use fibra_http::{Limits, Request, Response, Server};

/// The request that is smuggled, if the server lets it.
const SECOND: &str = "GET /second HTTP/1.1\r\nHost: test\r\n\r\n";

/// A server that reads bodies, and counts its requests.
fn counting() -> (Running, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let server = serve(move |request: &mut Request<'_>| {
        // Relaxed: read after the connection is closed.
        counted.fetch_add(1, Ordering::Relaxed);
        request.bytes().map(Response::bytes)
    });
    (server, count)
}

/// Sends the request and another one behind it: only this one status comes, and then the end of the connection.
#[track_caller]
fn refused(server: &Running, request: &str, status: u16) {
    let said = server.talk(format!("{request}{SECOND}"));
    let expected = format!("HTTP/1.1 {status} ");
    assert!(said.starts_with(&expected), "{request:?} was answered with {said:?}");
    assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{request:?}: something was smuggled: {said:?}");
    assert!(said.contains("\r\nConnection: close\r\n"), "{request:?}: {said:?}");
}

/// These never reach a handler.
#[test]
fn heads_that_are_refused() {
    let _watchdog = watchdog(60);
    let (server, count) = counting();
    let cases: &[(&str, u16)] = &[
        // The length of the body is ambiguous.
        ("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5, 5\r\n\r\nhello", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: +5\r\n\r\nhello", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: -5\r\n\r\nhello", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 0x5\r\n\r\nhello", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5 5\r\n\r\nhello", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5_0\r\n\r\nhello", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nContent-Length:\r\n\r\nhello", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 18446744073709551616\r\n\r\nhello", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 18446744073709551615\r\n\r\nhello", 413),
        ("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: identity\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400),
        (
            "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: \u{b}chunked\r\n\r\n0\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding:\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        ("POST / HTTP/1.0\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        // The end of a line is ambiguous.
        ("GET / HTTP/1.1\nHost: t\n\n", 400),
        ("GET / HTTP/1.1\r\nHost: t\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: t\r\n\n", 400),
        ("GET / HTTP/1.1\r\nHost: t\r\nA: b\nC: d\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: t\r\nA: b\rC: d\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: t\r\r\n\r\n", 400),
        ("GET / HTTP/1.1\rHost: t\r\r", 400),
        ("\nGET / HTTP/1.1\r\nHost: t\r\n\r\n", 400),
        ("\r\n\nGET / HTTP/1.1\r\nHost: t\r\n\r\n", 400),
        ("\rGET / HTTP/1.1\r\nHost: t\r\n\r\n", 400),
        // The end of a name or a value is ambiguous.
        ("GET / HTTP/1.1\r\nHost: t\r\nA: b\r\n folded: c\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: t\r\nA: b\r\n\tfolded\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n Host: t\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost : t\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nContent-Length : 5\r\n\r\nhello", 400),
        ("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: t\r\nno colon\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: t\r\n: no name\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: t\r\nA: \0\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: t\r\nA\0: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: t\r\nA: \u{7f}\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: t\r\n\u{e9}: b\r\n\r\n", 400),
        // The first line.
        ("GET  / HTTP/1.1\r\nHost: t\r\n\r\n", 400),
        ("GET /  HTTP/1.1\r\nHost: t\r\n\r\n", 400),
        ("GET / HTTP/1.1 \r\nHost: t\r\n\r\n", 400),
        ("GET / a HTTP/1.1\r\nHost: t\r\n\r\n", 400),
        ("GET /\r\nHost: t\r\n\r\n", 400),
        (" GET / HTTP/1.1\r\nHost: t\r\n\r\n", 400),
        ("G(T / HTTP/1.1\r\nHost: t\r\n\r\n", 400),
        ("GET /\u{1} HTTP/1.1\r\nHost: t\r\n\r\n", 400),
        ("GET /\u{e9} HTTP/1.1\r\nHost: t\r\n\r\n", 400),
        ("GET /#a HTTP/1.1\r\nHost: t\r\n\r\n", 400),
        ("GET relative HTTP/1.1\r\nHost: t\r\n\r\n", 400),
        ("GET * HTTP/1.1\r\nHost: t\r\n\r\n", 400),
        ("GET t:80 HTTP/1.1\r\nHost: t\r\n\r\n", 400),
        ("CONNECT / HTTP/1.1\r\nHost: t\r\n\r\n", 400),
        ("GET / HTTP/1.2\r\nHost: t\r\n\r\n", 505),
        ("GET / HTTP/2.0\r\nHost: t\r\n\r\n", 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("GET / HTTP/0.9\r\nHost: t\r\n\r\n", 505),
        ("GET / HTTP/1.10\r\nHost: t\r\n\r\n", 400),
        ("GET / HTTP/1,1\r\nHost: t\r\n\r\n", 400),
        ("GET / http/1.1\r\nHost: t\r\n\r\n", 400),
        ("GET / ICAP/1.1\r\nHost: t\r\n\r\n", 400),
        // The host is missing.
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a:80:80\r\n\r\n", 400),
        // An expectation that is not known.
        ("GET / HTTP/1.1\r\nHost: t\r\nExpect: the unexpected\r\n\r\n", 417),
        // Not HTTP at all.
        ("\u{16}\u{3}\u{1}\r\n\r\n", 400),
    ];
    for (request, status) in cases {
        refused(&server, request, *status);
    }
    drop(server);
    assert_eq!(count.load(Ordering::Relaxed), 0, "a handler has seen one of them"); // Relaxed: the server has ended.
}

/// These are noticed while the handler reads.
#[test]
fn bodies_that_are_refused() {
    let _watchdog = watchdog(60);
    let (server, _) = counting();
    let chunked = "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
    let bodies = [
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhelloXX0\r\n\r\n",
        "4\r\nhello\r\n0\r\n\r\n",
        "6\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5g\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "00000000000000005\r\nhello\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "5;a\rb\r\nhello\r\n0\r\n\r\n",
        "0\r\nA: b\n\r\n",
        "0\r\nA : b\r\n\r\n",
        "0\r\n folded\r\n\r\n",
        "0\n\r\n",
    ];
    for body in bodies {
        refused(&server, &format!("{chunked}{body}"), 400);
    }
    refused(&server, &format!("{chunked}ffffffffffffffff\r\nhello\r\n0\r\n\r\n"), 413);
    refused(&server, &format!("{chunked}5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(2000)), 400);
    // Short extensions, but very many of them.
    let padded = format!("1;{}\r\nx\r\n", "y".repeat(500));
    refused(&server, &format!("{chunked}{}0\r\n\r\n", padded.repeat(60)), 400);
    // A trailer that does not end.
    refused(&server, &format!("{chunked}0\r\n{}\r\n", "A: b\r\n".repeat(2000)), 400);
}

#[test]
fn heads_that_are_too_large() {
    let _watchdog = watchdog(60);
    let limits = Limits { max_head_bytes: 1000, max_headers: 70, ..Limits::default() };
    let server = serve_with(Server::builder().limits(limits), |_: &mut Request<'_>| "fine");
    let head = |fill: usize| format!("GET / HTTP/1.1\r\nHost: t\r\nA: {}\r\n\r\n", "x".repeat(fill));
    let fits = 1000 - head(0).len();
    let mut client = server.connect();
    assert_eq!(client.ask(head(fits)).status, 200, "exactly as long as it may be");
    refused(&server, &head(fits + 1), 400);
    refused(&server, &head(100_000), 400);
    // The end of the body never comes.
    refused(&server, &format!("GET / HTTP/1.1\r\nHost: t\r\nA: {}", "x".repeat(1000)), 400);
    refused(&server, &format!("GET /{}", "x".repeat(2000)), 400);
    let many = |count: usize| format!("GET / HTTP/1.1\r\nHost: t\r\n{}\r\n", "A: b\r\n".repeat(count));
    assert_eq!(client.ask(many(69)).status, 200, "exactly as many as there may be, more than fit on the stack");
    refused(&server, &many(70), 400);
}

#[test]
fn an_answer_before_the_refused_request_is_not_lost() {
    let _watchdog = watchdog(60);
    let (server, count) = counting();
    let said = server.talk(format!("{SECOND}{SECOND}GET / HTTP/1.1\nHost: t\n\n{SECOND}"));
    let statuses: Vec<&str> = said.match_indices("HTTP/1.1 ").map(|(at, _)| &said[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["200", "200", "400"]);
    drop(server);
    assert_eq!(count.load(Ordering::Relaxed), 2); // Relaxed: the server has ended.
}

/// The answer arrives although the client sends far more than the server reads: the connection is not reset under it.
#[test]
fn the_answer_arrives_though_the_client_is_still_sending() {
    let _watchdog = watchdog(60);
    let server = serve_with(Server::builder().max_body_bytes(1000), |_: &mut Request<'_>| "fine");
    for _ in 0..20 {
        let mut client = server.connect();
        client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 300000\r\n\r\n");
        client.send(vec![b'x'; 300_000]);
        let said = client.rest();
        assert!(said.starts_with("HTTP/1.1 413 "), "{said:?}");
    }
}

/// A client may begin to speak through a tunnel before the tunnel is granted. If it is not granted, these bytes are not a request.
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
