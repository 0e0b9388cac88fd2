//! A client that is refused while it is still sending gets its answer: the connection is read from before it is closed, for a bounded time
//! and a bounded number of bytes.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{Client, serve_with, watchdog};
use fibra::time::Instant;
use fibra_http::{ConnectionError, HeadError, Limits, Request, Server, Transport, serve_connection};

/// Times that are not to come.
const LONG: Duration = Duration::from_secs(3600);

/// Times that are to come.
const SHORT: Duration = Duration::from_millis(200);

/// How long a server may go on listening, before the test fails.
const PATIENCE: Duration = Duration::from_secs(20 * crate::support::SLOWDOWN);

/// All of it is sent before the first byte of the answer is read, as simple clients do; sending must not fail.
#[test]
fn a_client_that_sends_far_more_than_it_may_before_it_reads_gets_its_413() {
    const LENGTH: usize = 24 << 20;
    let _watchdog = watchdog(120);
    let builder = Server::builder().max_body_bytes(1000).linger(Duration::from_secs(30));
    let server = serve_with(builder, |request: &mut Request<'_>| request.bytes());
    let announced = format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {LENGTH}\r\n\r\n").into_bytes();
    let chunked =
        format!("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{LENGTH:x}\r\n").into_bytes();
    for head in [announced, chunked] {
        let mut client = server.connect();
        client.stream.get_mut().write_all(&head).unwrap();
        client.stream.get_mut().write_all(&vec![b'x'; LENGTH]).expect("all of it is taken");
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection")), (413, Some("close")));
        client.expect_end();
    }
}

/// Sends without end, and counts what is taken.
struct Endless {
    begin: io::Cursor<&'static [u8]>,
    taken: Arc<AtomicU64>,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.begin.read(buffer)? {
            0 => {
                // Relaxed: a number, of one thread.
                self.taken.fetch_add(buffer.len() as u64, Ordering::Relaxed);
                Ok(buffer.len())
            }
            count => Ok(count),
        }
    }
}

impl Write for Endless {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        Ok(buffer.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Endless {
    fn set_read_timeout(&mut self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
    fn set_write_timeout(&mut self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn no_more_is_read_than_the_limit_says() {
    let _watchdog = watchdog(120);
    for most in [0, 1, 5000, 100_001, 10 << 20] {
        let limits = Limits { max_linger_bytes: most, linger: LONG, ..Limits::default() };
        let taken = Arc::new(AtomicU64::new(0));
        let endless = Endless { begin: io::Cursor::new(b"rubbish\n"), taken: taken.clone() };
        match serve_connection(endless, &limits, |_: &mut Request<'_>| "fine") {
            Err(ConnectionError::Head(HeadError::Malformed)) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(taken.load(Ordering::Relaxed), most); // Relaxed: see above.
    }
}

/// The client is refused, calls `then`, and goes on sending a byte now and then until the server has closed the connection.
fn refused_and_sending(client: &mut Client, then: impl FnOnce()) {
    let until = Instant::after(PATIENCE);
    client.send("rubbish\n");
    assert_eq!(client.answer().status, 400);
    client.expect_end();
    then();
    // The server has closed its half; when it closes the other, sending fails.
    while client.stream.get_mut().write_all(b"x").is_ok() {
        assert!(!until.remaining().is_zero(), "the server still listens");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A byte now and then does not lengthen the time; bytes at a good rate lengthen it, but not for ever.
#[test]
fn lingering_comes_to_an_end() {
    let _watchdog = watchdog(120);
    let builders = [
        Server::builder().linger(SHORT).min_rate(u32::MAX),
        Server::builder().linger(SHORT).min_rate(1).body_timeout(SHORT),
        Server::builder().linger(SHORT).min_rate(0).body_timeout(SHORT),
    ];
    for builder in builders {
        refused_and_sending(&mut serve_with(builder, |_: &mut Request<'_>| "fine").connect(), || ());
    }
}

/// Each byte lengthens the time by a second here. A server that stops does not wait that long.
#[test]
fn a_server_that_stops_lingers_no_longer_than_it_must() {
    let _watchdog = watchdog(120);
    let builder = Server::builder().linger(SHORT).min_rate(1).body_timeout(LONG);
    let server = serve_with(builder, |_: &mut Request<'_>| "fine");
    let mut client = server.connect();
    let (refused, is_refused) = fibra::channel::unbounded();
    let sending = std::thread::spawn(move || refused_and_sending(&mut client, || refused.send(()).unwrap()));
    is_refused.recv().unwrap();
    server.stopper.drain(LONG);
    assert_eq!(server.wait().cut_off, 0);
    sending.join().unwrap();
}
