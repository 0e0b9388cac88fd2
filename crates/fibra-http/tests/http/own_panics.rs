//! A panic of a connection's own code (its transport stands for it), of a layer over it, or of the error hook: the client is answered
//! if that is possible, the panic is reported, and the server goes on.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{Client, serve_with, watchdog};
use fibra::net::TcpStream;
use fibra::sync::Mutex;
use fibra_http::{ConnectionError, Request, Server, Transport};

/// The place where a connection panics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Nowhere,
    Wrapping,
    /// In the read with this number.
    Read(usize),
    Write,
    Finish,
}

struct Faulty {
    below: TcpStream,
    place: Place,
    reads: usize,
}

impl Read for Faulty {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads += 1;
        assert!(self.place != Place::Read(self.reads), "read, on purpose");
        self.below.read(buffer)
    }
}

impl Write for Faulty {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        assert!(self.place != Place::Write, "write, on purpose");
        self.below.write(buffer)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Faulty {
    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.below.set_read_timeout(timeout)
    }
    fn set_write_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.below.set_write_timeout(timeout)
    }
    fn finish(&mut self) -> io::Result<()> {
        assert!(self.place != Place::Finish, "finish, on purpose");
        self.below.shutdown(std::net::Shutdown::Write)
    }
}

const CLOSE: &str = "GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";

/// What is sent on a connection that panics at this place, the statuses that come back, and what is reported.
const CASES: [(Place, &str, &[&str], Option<&str>); 7] = [
    (Place::Nowhere, CLOSE, &["200"], None),
    (Place::Wrapping, CLOSE, &[], Some("the server's own code panicked: wrapping, on purpose")),
    // Before anything has come.
    (Place::Read(1), CLOSE, &["500"], Some("the server's own code panicked: read, on purpose")),
    // In the middle of a head.
    (Place::Read(2), "GET / HT", &["500"], Some("the server's own code panicked: read, on purpose")),
    // Between two requests there is nothing to answer: a client could take it for the answer to its next request.
    (Place::Read(2), GET, &["200"], Some("the server's own code panicked: read, on purpose")),
    (Place::Write, CLOSE, &[], Some("the server's own code panicked: write, on purpose")),
    (Place::Finish, CLOSE, &["200"], Some("the server's own code panicked: finish, on purpose")),
];

#[test]
fn a_panic_of_the_connection_is_answered_and_reported() {
    let _watchdog = watchdog(60);
    let (errors, told) = fibra::channel::unbounded();
    let server = Server::builder()
        .on_error(move |error, from| {
            assert!(from.is_some());
            errors.send(error.to_string()).unwrap();
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let (address, stopper) = (server.local_addr().unwrap(), server.stopper());
    let connections = AtomicUsize::new(0);
    let wrap = move |below| {
        // Relaxed: a number for each.
        let number = connections.fetch_add(1, Ordering::Relaxed);
        let place = CASES[number % CASES.len()].0;
        assert!(place != Place::Wrapping, "wrapping, on purpose");
        Ok(Faulty { below, place, reads: 0 })
    };
    let serving = std::thread::spawn(move || fibra::run(|| server.serve_over(wrap, |_: &mut Request<'_>| "fine")));
    // Twice, so that each fault is followed by connections without one.
    for (place, request, statuses, reported) in [CASES, CASES].concat() {
        let mut client = Client::new(address);
        client.send(request);
        let mut said = Vec::new();
        // Closed at once with bytes unread: that may be a reset.
        let _ = client.stream.read_to_end(&mut said);
        let said = String::from_utf8(said).unwrap();
        let seen: Vec<&str> = said.match_indices("HTTP/1.1 ").map(|(at, _)| &said[at + 9..at + 12]).collect();
        assert_eq!(seen, statuses, "{place:?}, {request:?}: {said:?}");
        if seen.last() == Some(&"500") {
            assert!(said.contains("\r\nConnection: close\r\n"), "{said}");
        }
        if let Some(reported) = reported {
            assert_eq!(told.recv_timeout(Duration::from_secs(20 * crate::support::SLOWDOWN)).unwrap(), reported);
        }
    }
    stopper.drain(Duration::from_secs(3600));
    assert_eq!(serving.join().unwrap().unwrap().cut_off, 0);
    assert!(told.try_recv().is_err(), "each is reported once");
}

/// A panic of the hook does not reach the client.
#[test]
fn a_panic_of_the_error_hook_costs_no_answer() {
    let _watchdog = watchdog(60);
    let called = Arc::new(Mutex::new(Vec::new()));
    let calls = called.clone();
    let builder = Server::builder().on_error(move |error: &ConnectionError, _| {
        calls.lock().push(error.to_string());
        panic!("on purpose");
    });
    let server = serve_with(builder, |_: &mut Request<'_>| panic!("on purpose") as &'static str);
    for (request, status) in [("rubbish\r\n\r\n", "400"), (GET, "500"), ("GET / HTTP/1.1\r\n\r\n", "400")] {
        let said = server.talk(request);
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {said:?}");
    }
    drop(server);
    assert_eq!(called.lock().len(), 3);
}

/// The variable that is set in the process that panics.
const CHILD: &str = "FIBRA_HTTP_PANICS_WITHOUT_A_HOOK";

/// The panic is reported even if the program's panic hook prints nothing. In a process of its own, whose standard error is read.
#[test]
fn a_panic_that_no_hook_is_told_of_is_a_line_on_standard_error() {
    let _watchdog = watchdog(60);
    if std::env::var_os(CHILD).is_some() {
        return panic_without_a_hook();
    }
    let path = concat!(module_path!(), "::a_panic_that_no_hook_is_told_of_is_a_line_on_standard_error");
    let (_, name) = path.split_once("::").unwrap();
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8(child.stderr).unwrap();
    assert!(child.status.success(), "{said}");
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("fibra-http: ")).collect();
    assert_eq!(lines, ["fibra-http: a connection ended: the server's own code panicked: read, on purpose"], "{said}");
}

fn panic_without_a_hook() {
    std::panic::set_hook(Box::new(|_| {}));
    let server = Server::bind("127.0.0.1:0").unwrap();
    let (address, stopper) = (server.local_addr().unwrap(), server.stopper());
    let wrap = |below| Ok(Faulty { below, place: Place::Read(1), reads: 0 });
    let serving = std::thread::spawn(move || fibra::run(|| server.serve_over(wrap, |_: &mut Request<'_>| "fine")));
    let said = Client::new(address).rest();
    assert!(said.starts_with("HTTP/1.1 500 "), "{said}");
    stopper.drain(Duration::from_secs(3600));
    serving.join().unwrap().unwrap();
}

/// A payload that panics when it is dropped, with another one of its kind.
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 {
            std::panic::panic_any(Bomb(self.0 - 1));
        }
    }
}

/// Holds even if each such panic carries another payload of that kind.
#[test]
fn what_a_handler_panics_with_may_panic_when_it_is_dropped() {
    let _watchdog = watchdog(60);
    fibra::run(|| {
        let (mut client, server) = fibra::net::UnixStream::pair().unwrap();
        let server = fibra::spawn(move || {
            let handler = |_: &mut Request<'_>| -> &'static str { std::panic::panic_any(Bomb(20)) };
            fibra_http::serve_connection(server, &fibra_http::Limits::default(), handler)
        });
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
        assert!(matches!(server.join(), Ok(Ok(1))));
    });
}
