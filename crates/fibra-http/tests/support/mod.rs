//! The shared part of the tests: a watchdog, a server on a runtime of its own, and a client on std's sockets that checks every byte.
#![allow(dead_code)] // Every test file uses another part.
#![allow(clippy::disallowed_types)] // The watchdog and the client must not depend on what they test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::panic::Location;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fibra_http::{Builder, Drained, IntoResponse, Request, Server, Stopper};

/// How much longer an operation takes here than in an ordinary build.
pub(crate) const SLOWDOWN: u64 = if cfg!(any(fibra_asan, fibra_tsan)) { 10 } else { 1 };

/// Ends the process, with the runtime's report, unless dropped in time.
#[must_use = "dropping the watchdog calls it off"]
pub(crate) struct Watchdog {
    called_off: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

/// Gives the test so many seconds.
#[track_caller]
pub(crate) fn watchdog(seconds: u64) -> Watchdog {
    let called_off = Arc::new((Mutex::new(false), Condvar::new()));
    let watched = called_off.clone();
    let test = std::thread::current().name().unwrap_or("a test on an unnamed thread").to_owned();
    let place = Location::caller();
    let limit = Duration::from_secs(seconds * SLOWDOWN);
    let thread = std::thread::spawn(move || {
        let (off, changed) = &*watched;
        let guard = off.lock().unwrap();
        let (guard, _) = changed.wait_timeout_while(guard, limit, |off| !*off).unwrap();
        if !*guard {
            // The report may itself hang.
            std::thread::spawn(|| {
                std::thread::sleep(Duration::from_secs(5));
                std::process::abort();
            });
            // Not `eprintln!`, which would be captured, and lost with the process.
            let _ = writeln!(std::io::stderr(), "\nwatchdog: {test} did not end within {limit:?} (set at {place})");
            fibra::__private::dump();
            std::process::abort();
        }
    });
    Watchdog { called_off, thread: Some(thread) }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *self.called_off.0.lock().unwrap() = true;
        self.called_off.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A server on a thread and a runtime of its own. It is stopped when it is dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) stopper: Stopper,
    thread: Option<JoinHandle<Drained>>,
}

/// Starts a server with the usual limits.
pub(crate) fn serve<F, R>(handler: F) -> Running
where
    F: Fn(&mut Request<'_>) -> R + Send + Sync + 'static,
    R: IntoResponse + 'static,
{
    serve_with(Server::builder(), handler)
}

/// Starts a server with these limits.
pub(crate) fn serve_with<F, R>(builder: Builder, handler: F) -> Running
where
    F: Fn(&mut Request<'_>) -> R + Send + Sync + 'static,
    R: IntoResponse + 'static,
{
    serve_on(fibra::Runtime::builder().workers(2), builder, handler)
}

/// Starts a server with these limits, on such a runtime.
pub(crate) fn serve_on<F, R>(runtime: fibra::RuntimeBuilder, builder: Builder, handler: F) -> Running
where
    F: Fn(&mut Request<'_>) -> R + Send + Sync + 'static,
    R: IntoResponse + 'static,
{
    let server = builder.bind("127.0.0.1:0").expect("there is a free port");
    let (address, stopper) = (server.local_addr().unwrap(), server.stopper());
    let thread = std::thread::spawn(move || {
        let runtime = runtime.build().expect("a runtime can be built");
        runtime.run(|| server.serve(handler)).expect("the listener is one")
    });
    Running { address, stopper, thread: Some(thread) }
}

impl Running {
    /// Waits until it has come to its end.
    pub(crate) fn wait(mut self) -> Drained {
        self.thread.take().expect("it is waited for once").join().expect("the server does not panic")
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Client {
        Client::new(self.address)
    }

    /// Sends this on a new connection, and reads until the connection is closed.
    #[track_caller]
    pub(crate) fn talk(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut client = self.connect();
        client.send(bytes);
        client.rest()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the server panicked");
        }
    }
}

/// A client on std's socket.
pub(crate) struct Client {
    pub(crate) stream: BufReader<TcpStream>,
}

/// A response as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).unwrap();
        // Far beyond what any test waits for: an answer that does not come fails the test, with its name.
        stream.set_read_timeout(Some(Duration::from_secs(30 * SLOWDOWN))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(30 * SLOWDOWN))).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    /// Sends; if the server has closed the connection, a later read reports it.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.get_mut().write_all(bytes.as_ref());
    }

    /// All that comes until the end.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> String {
        let mut all = Vec::new();
        self.stream.read_to_end(&mut all).expect("the connection is closed in order");
        String::from_utf8_lossy(&all).into_owned()
    }

    /// Asserts that nothing comes any more.
    #[track_caller]
    pub(crate) fn expect_end(&mut self) {
        assert_eq!(self.rest(), "");
    }

    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).expect("a line comes in time");
        if line.is_empty() {
            return None;
        }
        assert!(line.ends_with(b"\r\n"), "a line that does not end with CR LF: {:?}", String::from_utf8_lossy(&line));
        line.truncate(line.len() - 2);
        Some(String::from_utf8_lossy(&line).into_owned())
    }

    /// The next answer to a request with this method; `None` if the connection ends.
    pub(crate) fn answer_to(&mut self, method: &str) -> Option<Answer> {
        let first = self.line()?;
        let status: u16 = first.strip_prefix("HTTP/1.1 ").expect("a status line").get(..3).unwrap().parse().unwrap();
        let mut answer = Answer { status, headers: Vec::new(), body: Vec::new() };
        loop {
            let line = self.line().expect("a head comes whole");
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ").expect("a header field");
            answer.headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        if method == "HEAD" || status < 200 || status == 204 || status == 304 {
            return Some(answer);
        }
        if answer.header("transfer-encoding") == Some("chunked") {
            loop {
                let line = self.line().expect("a chunk's size");
                let size = usize::from_str_radix(&line, 16).expect("a chunk's size");
                let mut chunk = vec![0; size + 2];
                self.stream.read_exact(&mut chunk).expect("a chunk comes whole");
                assert!(chunk.ends_with(b"\r\n"), "a chunk ends with CR LF");
                if size == 0 {
                    break;
                }
                answer.body.extend_from_slice(&chunk[..size]);
            }
        } else if let Some(length) = answer.header("content-length") {
            answer.body = vec![0; length.parse().expect("a length")];
            self.stream.read_exact(&mut answer.body).expect("the body comes whole");
        } else {
            self.stream.read_to_end(&mut answer.body).expect("the connection is closed in order");
        }
        Some(answer)
    }

    #[track_caller]
    pub(crate) fn answer(&mut self) -> Answer {
        self.answer_to("GET").expect("there is an answer")
    }

    /// Sends and waits for the answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, bytes: impl AsRef<[u8]>) -> Answer {
        self.send(bytes);
        self.answer()
    }

    #[track_caller]
    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"))
    }
}

/// Waits until the condition holds.
#[track_caller]
pub(crate) fn eventually(mut holds: impl FnMut() -> bool, what: &str) {
    let until = Instant::now() + Duration::from_secs(20 * SLOWDOWN);
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The open descriptors of this process.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux has /proc").count() - 1
}
