//! `http`: a server answers a small GET with 13 bytes, over connections that are kept; one request is under way on each (see `load`). One
//! operation is one request.
//!
//! fibra runs `fibra-http`, tokio hyper, may may_minihttp; all parse the request and write a complete answer with a date. The raw epoll
//! loop parses nothing and always writes the same bytes: the limit. The CPU is the server's.
//!
//! `crates/rivals/wrk` runs the same servers in processes of their own, against wrk.

use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;

use crate::load::{Epoll, Exchange, with_client, with_client_at, with_client_until};
use crate::measure::Sample;
use crate::peers::{Peer, Setup, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "http",
    operation: "a small GET and its answer; the CPU is the server's",
    cases,
    sides: &[(Peer::Fibra, with_fibra), (Peer::Tokio, with_tokio), (Peer::May, with_may), (Peer::Epoll, with_epoll)],
};

const GET: Exchange = Exchange { request: b"GET / HTTP/1.1\r\nHost: localhost:8080\r\n\r\n", answer };
const GREETING: &str = "Hello, World!";
/// Requests per second at half load.
const HALF: u64 = 20_000;
/// 1.25 times hyper's requests per second.
const GOAL: f64 = 0.8;

fn cases(size: Size) -> Vec<Case> {
    let mut cases = Vec::new();
    for rate in [0, HALF] {
        for w in [1, 2] {
            let (connections, n) = (size.pick(64, 10), size.pick(200_000, 200));
            let goal = if rate == 0 { Goal::Ratio(GOAL) } else { Goal::Shown };
            let peers = [Peer::Fibra, Peer::Tokio, Peer::May];
            let mut case = Case::new(&[("c", connections), ("n", n), ("rate", rate), ("w", w)], &peers)
                .metric("ns", "ns/request", goal)
                .metric("cpu", "server CPU ns/request", Goal::Shown)
                .metric("p99_us", "p99 µs", Goal::Shown)
                .metric("p999_us", "p99.9 µs", Goal::Shown);
            if w == 1 {
                case = case.beside(Peer::Epoll);
            }
            cases.push(case);
        }
    }
    cases
}

/// The length of an answer: its head, and what that says of the body.
fn answer(beginning: &[u8]) -> Option<usize> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) = response.parse(beginning).expect("servers answer in HTTP") else {
        return None;
    };
    assert_eq!(response.code, Some(200), "{:?}", String::from_utf8_lossy(beginning));
    let length = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = std::str::from_utf8(length.expect("the length is known").value).expect("digits");
    Some(head + length.parse::<usize>().expect("digits"))
}

fn setup(params: &Params) -> Setup {
    Setup { workers: params.workers(), kept_stacks: 2000 }
}

fn with_fibra(params: &Params) -> Sample {
    with_client_until(params, GET, |listener, finished| serve_fibra(setup(params), listener, finished))
}

fn with_tokio(params: &Params) -> Sample {
    with_client_until(params, GET, |listener, finished| serve_hyper(setup(params), listener, finished))
}

fn with_may(params: &Params) -> Sample {
    with_client_at(params, GET, |address, finished| serve_may(setup(params), address, finished))
}

fn with_epoll(params: &Params) -> Sample {
    let connections = params.size("c");
    with_client(params, GET, |listener| Epoll::serve(&listener, connections, answer_blindly))
}

/// One of the servers alone, on `port`, for ever.
pub(crate) fn serve(peer: Peer, params: &Params) {
    let address = SocketAddr::from(([127, 0, 0, 1], u16::try_from(params.get("port")).expect("a port")));
    let listen = || TcpListener::bind(address).expect("the port is free");
    let (_never, finished) = mpsc::channel();
    match peer {
        Peer::Fibra => serve_fibra(setup(params), listen(), finished),
        Peer::Tokio => serve_hyper(setup(params), listen(), finished),
        Peer::May => serve_may(setup(params), address, finished),
        Peer::Epoll => Epoll::serve(&listen(), params.size("c"), answer_blindly),
        other => panic!("there is no HTTP server of {}", other.name()),
    }
}

/// Whatever came, it was one request.
fn answer_blindly(_: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 13\r\n\
          date: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\nHello, World!",
    );
}

fn serve_hyper(setup: Setup, listener: TcpListener, finished: mpsc::Receiver<()>) {
    use hyper::service::service_fn;
    listener.set_nonblocking(true).expect("a listener can be non-blocking");
    tokio_peer::run(setup, async move {
        let listener = tokio::net::TcpListener::from_std(listener).expect("it is non-blocking");
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).expect("a stream has that option");
                tokio::spawn(async move {
                    let service = service_fn(|_: hyper::Request<hyper::body::Incoming>| async {
                        let body = http_body_util::Full::new(bytes::Bytes::from_static(GREETING.as_bytes()));
                        hyper::Response::builder().header("content-type", "text/plain").body(body)
                    });
                    let stream = hyper_util::rt::TokioIo::new(stream);
                    // The client closes it in the end.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .pipeline_flush(true)
                        .serve_connection(stream, service)
                        .await;
                });
            }
        });
        tokio::task::spawn_blocking(move || finished.recv()).await.expect("it waits").expect("the client ends");
        accepting.abort();
    });
}

fn serve_may(setup: Setup, address: SocketAddr, finished: mpsc::Receiver<()>) {
    #[derive(Clone)]
    struct Greets;
    impl may_minihttp::HttpService for Greets {
        fn call(&mut self, _: may_minihttp::Request, response: &mut may_minihttp::Response) -> std::io::Result<()> {
            response.header("content-type: text/plain");
            response.body(GREETING);
            Ok(())
        }
    }
    may::config().set_workers(setup.workers).set_pool_capacity(setup.kept_stacks).set_stack_size(0x1000);
    let server = may_minihttp::HttpServer(Greets).start(address).expect("the port is still free");
    finished.recv().expect("the client ends");
    drop(server);
}

fn serve_fibra(setup: Setup, listener: TcpListener, finished: mpsc::Receiver<()>) {
    let runtime = fibra::Runtime::builder().workers(setup.workers).build().expect("the runtime starts");
    runtime.run(move || {
        let server = fibra_http::Server::builder().listen(fibra::net::TcpListener::from(listener));
        let stopper = server.stopper();
        fibra::spawn(move || {
            fibra::blocking(move || finished.recv()).expect("the client ends");
            stopper.stop();
        });
        server.serve(|_: &mut fibra_http::Request<'_>| fibra_http::Response::text(GREETING)).expect("it serves");
    });
}
