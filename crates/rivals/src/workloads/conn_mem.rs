//! `conn_mem`: connections that have done their handshake and one request, and wait for the next. When all are there, the growth of
//! resident memory and of page tables is divided by their number, at once or when they have waited for so many seconds (`idle`). With TLS
//! (rustls, the same configuration for both peers) and without.
//!
//! The clients are another process (`rivals --clients ..`), of std's sockets on one thread; it ends when this one does. What the kernel
//! keeps for a socket is not counted.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use interop::rustls::StreamOwned;
use interop::tls::{Trust, connection_to};

use crate::load::raise_descriptor_limit;
use crate::measure::{Memory, Meter, Sample, Span, die_after_seconds};
use crate::peers::fibra::Fibra;
use crate::peers::{Blocking, Peer, Setup, tokio as tokio_peer};
use crate::plan::{Case, Goal, Params, Size, Workload};
use crate::race::CHILD_LIMIT_SECONDS;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "conn_mem",
    operation: "one connection after its handshake and one request: bytes of memory and page tables",
    cases,
    sides: &[(Peer::Fibra, with_fibra), (Peer::Tokio, with_tokio)],
};

fn cases(size: Size) -> Vec<Case> {
    let case = |tls, idle| {
        Case::new(&[("n", size.pick(4_000, 50)), ("tls", tls), ("idle", idle), ("w", 2)], &[Peer::Fibra, Peer::Tokio])
            .metric("bytes", "bytes each", Goal::Shown)
            .metric("page_table_bytes", "of them page tables", Goal::Shown)
            .metric("ns", "ns to connect and ask (CPU)", Goal::Shown)
    };
    // After 12 seconds fibra has given back the stack pages that only the handshake needed.
    vec![case(0, 0), case(1, 0), case(1, size.pick(12, 0))]
}

pub(super) const REQUEST: usize = 100;
pub(super) const ANSWER: usize = 200;
/// Time for the last of them to wait again, and for the workers to be idle.
pub(super) const SETTLE: Duration = Duration::from_millis(300);
const LOOK: Duration = Duration::from_millis(5);

/// Requests that were answered.
static ANSWERED: AtomicU64 = AtomicU64::new(0);

pub(super) fn note_answered() -> u64 {
    // Relaxed: a count that is only waited for; nothing else is read through it.
    ANSWERED.fetch_add(1, Ordering::Relaxed) + 1
}

fn all_answered(n: usize) -> bool {
    // Relaxed: as above.
    ANSWERED.load(Ordering::Relaxed) >= n as u64
}

fn setup(params: &Params) -> Setup {
    // Stacks that were there before would not be counted.
    Setup { workers: params.workers(), kept_stacks: 1 }
}

pub(super) fn finish(before: &Memory, connecting: &Span, n: usize) -> ! {
    let after = Memory::now();
    let each = |before: u64, after: u64| (after as f64 - before as f64) / n as f64;
    let page_tables = each(before.page_tables, after.page_tables);
    let mut sample = connecting.sample(n as u64);
    sample.set("bytes", each(before.resident, after.resident) + page_tables);
    sample.set("page_table_bytes", page_tables);
    sample.print_and_exit()
}

fn with_fibra(params: &Params) -> Sample {
    raise_descriptor_limit();
    let (n, tls, trust) = (params.size("n"), params.get("tls") == 1, Trust::new());
    let idle = params.get("idle");
    Fibra::run(setup(params), move || {
        let listener = fibra::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        Fibra::join(Fibra::spawn(|| ()));
        let before = Memory::now();
        let meter = Meter::start();
        start_clients(address, n, tls, &trust);
        let mut handles = Vec::with_capacity(n);
        handles.extend(listener.incoming().take(n).map(|stream| {
            let (stream, trust) = (stream.expect("clients connect"), trust.clone());
            // A fiber of its own for each kind: what is not needed is not on its stack.
            if tls {
                Fibra::spawn_spread(move || answer(StreamOwned::new(trust.accept(), stream)))
            } else {
                Fibra::spawn_spread(move || answer(stream))
            }
        }));
        while !all_answered(n) {
            Fibra::sleep(LOOK);
        }
        let connecting = meter.stop();
        Fibra::sleep(SETTLE + Duration::from_secs(idle));
        finish(&before, &connecting, n)
    })
}

fn answer(mut stream: impl Read + Write) {
    let mut request = [0; REQUEST];
    while stream.read_exact(&mut request).is_ok() {
        stream.write_all(&[1; ANSWER]).and_then(|()| stream.flush()).expect("the client reads");
        note_answered();
    }
}

fn with_tokio(params: &Params) -> Sample {
    raise_descriptor_limit();
    let (n, tls, trust) = (params.size("n"), params.get("tls") == 1, Trust::new());
    let idle = params.get("idle");
    tokio_peer::run(setup(params), async move {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        tokio::spawn(async {}).await.expect("an empty task ends");
        let acceptor = tokio_rustls::TlsAcceptor::from(trust.server.clone());
        let before = Memory::now();
        let meter = Meter::start();
        start_clients(address, n, tls, &trust);
        let mut handles = Vec::with_capacity(n);
        for _ in 0..n {
            let (stream, _) = listener.accept().await.expect("clients connect");
            // A task of its own for each kind: what is not needed is not kept.
            handles.push(if tls {
                let acceptor = acceptor.clone();
                tokio::spawn(async move { answer_async(acceptor.accept(stream).await.expect("a handshake")).await })
            } else {
                tokio::spawn(answer_async(stream))
            });
        }
        while !all_answered(n) {
            tokio::time::sleep(LOOK).await;
        }
        let connecting = meter.stop();
        tokio::time::sleep(SETTLE + Duration::from_secs(idle)).await;
        finish(&before, &connecting, n)
    })
}

async fn answer_async(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut request = [0; REQUEST];
    while stream.read_exact(&mut request).await.is_ok() {
        stream.write_all(&[1; ANSWER]).await.expect("the client reads");
        stream.flush().await.expect("the client reads");
        note_answered();
    }
}

/// Starts the process of the clients, and tells it which certificate to trust. It ends when the server is gone, which is this process.
#[allow(clippy::zombie_processes, reason = "this process ends first")]
pub(super) fn start_clients(address: SocketAddr, n: usize, tls: bool, trust: &Trust) {
    let program = std::env::current_exe().expect("a program knows itself");
    let mut command = Command::new(program);
    command.args(["--clients", &address.to_string(), &n.to_string(), if tls { "tls" } else { "plain" }]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a child can be started");
    let mut stdin = child.stdin.take().expect("it was asked for");
    stdin.write_all(&trust.certificate).expect("the child reads");
}

/// The process of the clients: connects, asks once, keeps the connections until the server goes.
pub(crate) fn clients(arguments: &[String]) -> ExitCode {
    die_after_seconds(CHILD_LIMIT_SECONDS);
    raise_descriptor_limit();
    let [address, n, kind] = arguments else { return ExitCode::from(2) };
    let (Ok(address), Ok(n)) = (address.parse::<SocketAddr>(), n.parse::<usize>()) else { return ExitCode::from(2) };
    let mut certificate = Vec::new();
    std::io::stdin().read_to_end(&mut certificate).expect("the parent sends the certificate to trust");
    let trusting = interop::tls::client_that_trusts(certificate);
    let connect = || std::net::TcpStream::connect(address).expect("the server listens");
    let mut kept: Vec<Box<dyn Read>> = Vec::with_capacity(n);
    for _ in 0..n {
        kept.push(match kind.as_str() {
            "tls" => Box::new(ask(StreamOwned::new(connection_to(&trusting), connect()))),
            _ => Box::new(ask(connect())),
        });
    }
    // Until the server is gone.
    if let Some(first) = kept.first_mut() {
        let _ = first.read(&mut [0]);
    }
    ExitCode::SUCCESS
}

fn ask<S: Read + Write>(mut stream: S) -> S {
    stream.write_all(&[0; REQUEST]).and_then(|()| stream.flush()).expect("the server reads");
    stream.read_exact(&mut [0; ANSWER]).expect("the server answers");
    stream
}
