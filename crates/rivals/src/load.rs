//! The client of the network workloads, the same for all peers: one thread, a raw epoll loop, one request at a time on each connection.
//!
//! Above: `workloads/tcp_echo`, `workloads/http`. Below: the kernel.
//!
//! * *Full load*: the next request follows the answer at once.
//! * At a *rate*: requests are due at fixed moments, whether or not the server keeps up; one that finds no free connection waits, and its
//!   latency counts from the moment it was due. So a server that stalls is not spared the requests of that time.
//!
//! The reported CPU time is the server's: that of the process minus that of this thread.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::measure::{Meter, Sample, percentile, thread_cpu_seconds};
use crate::plan::Params;

const EVENTS: usize = 256;
/// One in this many latencies is kept.
const KEPT: u64 = 7;

/// What the client sends, and how it knows the end of an answer.
#[derive(Clone, Copy)]
pub(crate) struct Exchange {
    pub(crate) request: &'static [u8],
    /// Finds the length of an answer, given its beginning; none: not yet known. All answers are as long as the first.
    pub(crate) answer: fn(&[u8]) -> Option<usize>,
}

/// Runs the server on this thread, and the client on a thread of its own. `c` connections, `n` requests, `rate` requests per second (0: as
/// fast as possible).
pub(crate) fn with_client(params: &Params, exchange: Exchange, serve: impl FnOnce(TcpListener)) -> Sample {
    with_client_until(params, exchange, |listener, _| serve(listener))
}

/// The same for a server that does not end with its connections: it is told when the client is done.
pub(crate) fn with_client_until(
    params: &Params,
    exchange: Exchange,
    serve: impl FnOnce(TcpListener, mpsc::Receiver<()>),
) -> Sample {
    let listener = listen();
    let address = listener.local_addr().expect("it has one");
    beside_client(params, exchange, address, |finished| serve(listener, finished))
}

/// The same for a server that insists on binding itself, to a port that was free a moment ago.
pub(crate) fn with_client_at(
    params: &Params,
    exchange: Exchange,
    serve: impl FnOnce(SocketAddr, mpsc::Receiver<()>),
) -> Sample {
    let address = listen().local_addr().expect("it has one");
    beside_client(params, exchange, address, |finished| serve(address, finished))
}

fn listen() -> TcpListener {
    raise_descriptor_limit();
    TcpListener::bind("127.0.0.1:0").expect("a port is free")
}

fn beside_client(
    params: &Params,
    exchange: Exchange,
    address: SocketAddr,
    serve: impl FnOnce(mpsc::Receiver<()>),
) -> Sample {
    let (connections, requests, rate) = (params.size("c"), params.get("n"), params.get("rate"));
    let (done, finished) = mpsc::channel();
    let client = std::thread::spawn(move || {
        let sample = client(address, exchange, connections, requests, rate);
        // A server that has ended with its connections does not listen.
        let _ = done.send(());
        sample
    });
    serve(finished);
    client.join().expect("the client ends")
}

/// One pass to warm up, then one that is measured.
fn client(address: SocketAddr, exchange: Exchange, connections: usize, requests: u64, rate: u64) -> Sample {
    let mut clients = Clients::connect(address, exchange, connections);
    clients.pass(requests / 4, 0);
    let (meter, mine) = (Meter::start(), thread_cpu_seconds());
    clients.pass(requests, rate);
    let (mut span, mine) = (meter.stop(), thread_cpu_seconds() - mine);
    span.cpu_seconds -= mine;
    let mut sample = span.sample(requests);
    clients.latencies.sort_by(f64::total_cmp);
    sample.set("p99_us", percentile(&clients.latencies, 0.99));
    sample.set("p999_us", percentile(&clients.latencies, 0.999));
    sample
}

struct Connection {
    stream: TcpStream,
    /// When the request under way was due.
    due: Instant,
    received: usize,
}

struct Clients {
    epoll: Epoll,
    exchange: Exchange,
    connections: Vec<Connection>,
    answer: usize,
    latencies: Vec<f64>,
}

impl Clients {
    fn connect(address: SocketAddr, exchange: Exchange, connections: usize) -> Self {
        let epoll = Epoll::new();
        let connections: Vec<_> = (0..connections)
            .map(|index| {
                let stream = connect(address);
                stream.set_nodelay(true).expect("a stream has that option");
                if index == 0 {
                    return Connection { stream, due: Instant::now(), received: 0 };
                }
                epoll.add(&stream, index);
                Connection { stream, due: Instant::now(), received: 0 }
            })
            .collect();
        let answer = probe(&connections[0].stream, exchange);
        epoll.add(&connections[0].stream, 0);
        Self { epoll, exchange, connections, answer, latencies: Vec::new() }
    }

    fn pass(&mut self, requests: u64, rate: u64) {
        let requests = requests.max(1);
        self.latencies.clear();
        let begin = Instant::now();
        let due = |number: u64| match rate {
            0 => begin,
            rate => begin + Duration::from_nanos(number * 1_000_000_000 / rate),
        };
        let mut free: VecDeque<usize> = (0..self.connections.len()).collect();
        let (mut sent, mut answered) = (0, 0);
        let mut buffer = vec![0; 16 << 10];
        while answered < requests {
            while sent < requests && !free.is_empty() {
                let at = due(sent);
                if rate != 0 && at > Instant::now() {
                    break;
                }
                let index = free.pop_front().expect("one is free");
                let connection = &mut self.connections[index];
                connection.due = if rate == 0 { Instant::now() } else { at };
                connection.received = 0;
                (&connection.stream).write_all(self.exchange.request).expect("the server reads");
                sent += 1;
            }
            // Wait until the next request is due, unless nothing can be sent then.
            let pause = (rate != 0 && sent < requests && !free.is_empty())
                .then(|| due(sent).saturating_duration_since(Instant::now()));
            let Self { epoll, connections, answer, latencies, .. } = self;
            epoll.wait(pause, |index| {
                let connection = &mut connections[index];
                loop {
                    match (&connection.stream).read(&mut buffer) {
                        Ok(0) => panic!("the server closed a connection after {answered} answers"),
                        Ok(len) => connection.received += len,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        Err(error) => panic!("the client reads: {error}"),
                    }
                    if connection.received >= *answer {
                        assert_eq!(connection.received, *answer, "one answer to one request");
                        if answered % KEPT == 0 {
                            latencies.push(connection.due.elapsed().as_secs_f64() * 1e6);
                        }
                        answered += 1;
                        free.push_back(index);
                        break;
                    }
                }
            });
        }
    }
}

/// Servers that insist on binding themselves may not listen yet.
fn connect(address: SocketAddr) -> TcpStream {
    const PATIENCE: Duration = Duration::from_secs(5);
    let begin = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return stream,
            Err(error) if begin.elapsed() > PATIENCE => panic!("the server listens: {error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Asks once, and finds out how long an answer is.
fn probe(mut stream: &TcpStream, exchange: Exchange) -> usize {
    stream.write_all(exchange.request).expect("the server reads");
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    let length = loop {
        let len = stream.read(&mut buffer).expect("the server answers");
        assert!(len > 0, "the server closed the connection: {:?}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&buffer[..len]);
        if let Some(length) = (exchange.answer)(&answer).filter(|length| answer.len() >= *length) {
            break length;
        }
    };
    assert_eq!(answer.len(), length, "one answer to one request");
    stream.set_nonblocking(true).expect("a stream can be non-blocking");
    length
}

/// An epoll instance, for the client and for servers that show the limit.
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    pub(crate) fn new() -> Self {
        // SAFETY: the call takes no pointers.
        let descriptor = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(descriptor >= 0, "an epoll instance can be had");
        // SAFETY: just opened, and owned by this function alone.
        Self(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    pub(crate) fn add(&self, stream: &TcpStream, index: usize) {
        stream.set_nonblocking(true).expect("a stream can be non-blocking");
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: index as u64 };
        // SAFETY: the event lives through the call.
        let done =
            unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, stream.as_raw_fd(), &raw mut event) };
        assert_eq!(done, 0, "a stream can be watched");
    }

    /// Waits for events, at most for `pause`. A pause too short for the kernel's clock is not slept.
    pub(crate) fn wait(&self, pause: Option<Duration>, mut each: impl FnMut(usize)) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let time = pause.map(|pause| libc::timespec {
            tv_sec: pause.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(pause.subsec_nanos() as i32),
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: there is room for that many events, and the time is null or lives through the call.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                EVENTS as i32,
                time,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        for event in events.iter().take(usize::try_from(count).unwrap_or(0)) {
            each(event.u64 as usize);
        }
    }

    /// A server on this thread: `answer` gets what was read, and what is to be written. Ends when all connections have ended.
    pub(crate) fn serve(listener: &TcpListener, connections: usize, mut answer: impl FnMut(&[u8], &mut Vec<u8>)) {
        let epoll = Self::new();
        let mut streams: Vec<_> = (0..connections)
            .map(|index| {
                let (stream, _) = listener.accept().expect("clients connect");
                epoll.add(&stream, index);
                Some(stream)
            })
            .collect();
        let mut open = connections;
        let (mut buffer, mut out) = (vec![0; 4096], Vec::new());
        while open > 0 {
            epoll.wait(None, |index| {
                let Some(stream) = &mut streams[index] else { return };
                loop {
                    match stream.read(&mut buffer) {
                        Ok(len @ 1..) => {
                            out.clear();
                            answer(&buffer[..len], &mut out);
                            stream.write_all(&out).expect("answers are small");
                        }
                        Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                        _ => break,
                    }
                }
                streams[index] = None;
                open -= 1;
            });
        }
    }
}

/// Raises the limit of descriptors as far as allowed: a thousand connections have two thousand descriptors.
pub(crate) fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit lives through both calls.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
}
