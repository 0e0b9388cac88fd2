//! `tcp_echo`: a server sends back what it reads, over as many connections as given; one request of 64 bytes is under way on each (see
//! `load`). One operation is one request.
//!
//! With `moves=1` a connection of fibra's asks after each answer whether it should go on elsewhere (`fibra::better_place`), as connections
//! of its HTTP server do. That is up to the program: started fibers stay where they are.
//!
//! The CPU is the server's. At `rate` requests per second, about half of what a core can carry, the latencies are those of a server that is
//! not overloaded. A raw epoll loop as the server shows the limit.

use std::io::{Read, Write};

use ::tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::load::{Epoll, Exchange, with_client};
use crate::measure::Sample;
use crate::peers::fibra::Fibra;
use crate::peers::may::May;
use crate::peers::{Blocking, Peer, Setup, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "tcp_echo",
    operation: "64 bytes to a server and back; the CPU is the server's",
    cases,
    sides: &[(Peer::Fibra, with_fibra), (Peer::Tokio, with_tokio), (Peer::May, with_may), (Peer::Epoll, with_epoll)],
};

const REQUEST: usize = 64;
const ECHO: Exchange = Exchange { request: &[7; REQUEST], answer: |_| Some(REQUEST) };
/// Requests per second at half load: two servers' worth of them fit on a core.
const HALF: u64 = 30_000;

fn cases(size: Size) -> Vec<Case> {
    let mut cases = Vec::new();
    for (connections, rate) in [(1, 0), (64, 0), (64, HALF), (1000, 0)] {
        let connections = if size == Size::Quick { u64::min(connections, 20) } else { connections };
        for (w, moves) in [(1, 0), (2, 0), (2, 1)] {
            let n = size.pick(if connections == 1 { 30_000 } else { 200_000 }, 200);
            let goal = if connections == 1 { Goal::Shown } else { Goal::Ratio(1.0) };
            let late = if connections == 1 { Goal::Shown } else { Goal::Ratio(1.0) };
            let peers = [Peer::Fibra, Peer::Tokio, Peer::May];
            let mut case =
                Case::new(&[("c", connections), ("n", n), ("rate", rate), ("moves", moves), ("w", w)], &peers)
                    .metric("cpu", "server CPU ns/request", goal)
                    .metric("ns", "ns/request", Goal::Shown)
                    .metric("p99_us", "p99 µs", late)
                    .metric("p999_us", "p99.9 µs", Goal::Shown);
            if w == 1 {
                case = case.beside(Peer::Epoll);
            }
            cases.push(case);
        }
        if size == Size::Quick && rate > 0 {
            break;
        }
    }
    cases
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 2000 }
}

fn with_fibra(params: &Params) -> Sample {
    let (connections, moves) = (params.size("c"), params.get("moves") > 0);
    with_client(params, ECHO, |listener| {
        let listener = fibra::net::TcpListener::from(listener);
        Fibra::run(setup(params), move || {
            let serving: Vec<_> = listener
                .incoming()
                .take(connections)
                .map(|stream| {
                    let stream = stream.expect("clients connect");
                    Fibra::spawn_spread(move || if moves { echo_where_there_is_room(stream) } else { echo(stream) })
                })
                .collect();
            serving.into_iter().for_each(Fibra::join);
        });
    })
}

fn with_may(params: &Params) -> Sample {
    let connections = params.size("c");
    with_client(params, ECHO, |listener| {
        May::run(setup(params), move || {
            let listener = May::listener(listener);
            let serving: Vec<_> = (0..connections)
                .map(|_| {
                    let (stream, _) = listener.accept().expect("clients connect");
                    May::spawn(move || echo(stream))
                })
                .collect();
            serving.into_iter().for_each(May::join);
        });
    })
}

/// The server's side of one connection, for peers whose tasks block.
fn echo(mut stream: impl Read + Write) {
    let mut buffer = [0; 4096];
    while let Ok(len @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..len]).is_err() {
            return;
        }
    }
}

/// The same between two requests of which the connection may go on on another worker. (The run waits for all fibers.)
fn echo_where_there_is_room(mut stream: fibra::net::TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(len @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..len]).is_err() {
            return;
        }
        if let Some(place) = fibra::better_place() {
            let builder = fibra::Builder::new().place(place);
            drop(builder.spawn(move || echo_where_there_is_room(stream)).expect("a fiber can be spawned"));
            return;
        }
    }
}

fn with_tokio(params: &Params) -> Sample {
    let connections = params.size("c");
    with_client(params, ECHO, |listener| {
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
    with_client(params, ECHO, |listener| {
        Epoll::serve(&listener, connections, |request, out| out.extend_from_slice(request));
    })
}
