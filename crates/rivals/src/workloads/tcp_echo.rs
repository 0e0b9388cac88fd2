//! `tcp_echo`: a server sends back what it reads, over as many connections as given; one client thread (a raw epoll loop, the same for all
//! peers) keeps one request of 64 bytes under way on each. One operation is one request.
//!
//! The CPU is the server's: that of the process without that of the client's thread. A raw epoll loop as the server shows the limit.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Instant;

use ::tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::measure::{Meter, Sample, percentile, thread_cpu_seconds};
use crate::peers::fibra::Fibra;
use crate::peers::{Blocking, Peer, Setup, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "tcp_echo",
    operation: "64 bytes to a server and back; the CPU is the server's",
    cases,
    sides: &[(Peer::Fibra, with_fibra), (Peer::Tokio, with_tokio), (Peer::Epoll, with_epoll)],
};

const REQUEST: usize = 64;
const EVENTS: usize = 256;
/// Every so manieth latency is kept.
const KEPT: u64 = 7;

fn cases(size: Size) -> Vec<Case> {
    let mut cases = Vec::new();
    for connections in [1, 64, 1000] {
        let connections = if size == Size::Quick { u64::min(connections, 20) } else { connections };
        for w in [1, 2] {
            let n = size.pick(if connections == 1 { 30_000 } else { 200_000 }, 200);
            let goal = if connections == 1 { Goal::Shown } else { Goal::Ratio(1.0) };
            let mut case = Case::new(&[("c", connections), ("n", n), ("w", w)], &[Peer::Fibra, Peer::Tokio])
                .metric("cpu", "server CPU ns/request", goal)
                .metric("ns", "ns/request", Goal::Shown)
                .metric("p99_us", "p99 µs", Goal::Shown);
            if w == 1 {
                case = case.beside(Peer::Epoll);
            }
            cases.push(case);
        }
        if size == Size::Quick && connections == 20 {
            break;
        }
    }
    cases
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 2000 }
}

fn with_fibra(params: &Params) -> Sample {
    let connections = params.size("c");
    with_client(params, |listener| {
        let listener = fibra::net::TcpListener::from(listener);
        Fibra::run(setup(params), move || {
            let serving: Vec<_> = listener
                .incoming()
                .take(connections)
                .map(|stream| {
                    let mut stream = stream.expect("clients connect");
                    Fibra::spawn_spread(move || {
                        let mut buffer = [0; 4096];
                        while let Ok(len @ 1..) = stream.read(&mut buffer) {
                            if stream.write_all(&buffer[..len]).is_err() {
                                return;
                            }
                        }
                    })
                })
                .collect();
            serving.into_iter().for_each(Fibra::join);
        });
    })
}

fn with_tokio(params: &Params) -> Sample {
    let connections = params.size("c");
    with_client(params, |listener| {
        listener.set_nonblocking(true).expect("a listener can be non-blocking");
        tokio_peer::run(setup(params), async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("it is non-blocking");
            let mut serving = Vec::new();
            for _ in 0..connections {
                let (mut stream, _) = listener.accept().await.expect("clients connect");
                serving.push(tokio::spawn(async move {
                    let mut buffer = [0; 4096];
                    while let Ok(len @ 1..) = stream.read(&mut buffer).await {
                        if stream.write_all(&buffer[..len]).await.is_err() {
                            return;
                        }
                    }
                }));
            }
            for task in serving {
                task.await.expect("a task of the benchmark does not panic");
            }
        });
    })
}

fn with_epoll(params: &Params) -> Sample {
    let connections = params.size("c");
    with_client(params, |listener| {
        let epoll = Epoll::new();
        let mut streams: Vec<_> = (0..connections)
            .map(|index| {
                let (stream, _) = listener.accept().expect("clients connect");
                stream.set_nonblocking(true).expect("a stream can be non-blocking");
                epoll.add(&stream, index);
                Some(stream)
            })
            .collect();
        let mut open = connections;
        let mut buffer = [0; 4096];
        while open > 0 {
            epoll.wait(|index| {
                let Some(stream) = &mut streams[index] else { return };
                loop {
                    match stream.read(&mut buffer) {
                        Ok(len @ 1..) => stream.write_all(&buffer[..len]).expect("answers are small"),
                        Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                        _ => break,
                    }
                }
                streams[index] = None;
                open -= 1;
            });
        }
    })
}

/// Runs the server on this thread, beside the client on its own.
fn with_client(params: &Params, serve: impl FnOnce(TcpListener)) -> Sample {
    raise_descriptor_limit();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has one");
    let (connections, requests) = (params.size("c"), params.get("n"));
    let client = std::thread::spawn(move || client(address, connections, requests));
    serve(listener);
    client.join().expect("the client ends")
}

/// One request under way on each connection, until so many are answered; then once more, measured.
fn client(address: SocketAddr, connections: usize, requests: u64) -> Sample {
    let epoll = Epoll::new();
    let streams: Vec<_> = (0..connections)
        .map(|index| {
            let stream = TcpStream::connect(address).expect("the server listens");
            stream.set_nonblocking(true).expect("a stream can be non-blocking");
            stream.set_nodelay(true).expect("a stream has that option");
            epoll.add(&stream, index);
            stream
        })
        .collect();
    let mut sent = vec![Instant::now(); connections];
    let mut latencies = Vec::new();
    let mut pass = |requests: u64| {
        let (mut to_send, mut answered) = (requests, 0);
        let mut send = |index: usize, sent: &mut Vec<Instant>| {
            if to_send > 0 {
                to_send -= 1;
                sent[index] = Instant::now();
                (&streams[index]).write_all(&[7; REQUEST]).expect("the server reads");
            }
        };
        (0..connections).for_each(|index| send(index, &mut sent));
        let requests = requests.max(1);
        latencies.clear();
        while answered < requests {
            epoll.wait(|index| {
                let mut answer = [0; REQUEST];
                // Answers are small and come whole.
                if let Ok(len) = (&streams[index]).read(&mut answer) {
                    assert_eq!(len, REQUEST, "an answer in one piece");
                    if answered % KEPT == 0 {
                        latencies.push(sent[index].elapsed().as_secs_f64() * 1e6);
                    }
                    answered += 1;
                    send(index, &mut sent);
                }
            });
        }
    };
    pass(requests / 4);
    let (meter, mine) = (Meter::start(), thread_cpu_seconds());
    pass(requests);
    let (mut span, mine) = (meter.stop(), thread_cpu_seconds() - mine);
    span.cpu_seconds -= mine;
    let mut sample = span.sample(requests);
    latencies.sort_by(f64::total_cmp);
    sample.set("p99_us", percentile(&latencies, 0.99));
    sample
}

struct Epoll(OwnedFd);

impl Epoll {
    fn new() -> Self {
        // SAFETY: the call takes no pointers.
        let descriptor = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(descriptor >= 0, "an epoll instance can be had");
        // SAFETY: just opened, and nobody else's.
        Self(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    fn add(&self, stream: &TcpStream, index: usize) {
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: index as u64 };
        // SAFETY: the event lives through the call.
        let done =
            unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, stream.as_raw_fd(), &raw mut event) };
        assert_eq!(done, 0, "a stream can be watched");
    }

    fn wait(&self, mut each: impl FnMut(usize)) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        // SAFETY: there is room for that many events.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), EVENTS as i32, -1) };
        for event in events.iter().take(usize::try_from(count).unwrap_or(0)) {
            each(event.u64 as usize);
        }
    }
}

/// To what is allowed: a thousand connections have two thousand descriptors.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit lives through both calls.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
}
