//! Sockets of std on plain threads against fiber sockets: each kind, both ways, on one worker and on two. The peers know nothing of each
//! other but the protocol: lines that are answered in capitals, datagrams that come back.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as UnixAddr;

use crate::support;
use fibra::Runtime;

const CLIENTS: usize = 6;
const LINES: usize = 150;

/// Answers each line in capitals, until the end; then says how many there were.
fn serve<S>(stream: &S)
where
    for<'a> &'a S: Read + Write,
{
    let mut count = 0;
    for line in BufReader::new(stream).lines() {
        let answer = line.unwrap().to_uppercase() + "\n";
        let mut to = stream;
        to.write_all(answer.as_bytes()).unwrap();
        count += 1;
    }
    let mut to = stream;
    write!(to, "{count} lines").unwrap();
}

/// Sends lines of all lengths, in pipelines of several, ends its direction, and checks every answer.
fn ask<S>(stream: &S, n: usize, end: impl FnOnce(&S))
where
    for<'a> &'a S: Read + Write,
{
    let mut reading = BufReader::new(stream);
    let mut line = String::new();
    for first in (0..LINES).step_by(5) {
        let said = |at: usize| format!("client {n} line {at} {}", "x".repeat(at * at % 3000));
        let pipeline: String = (first..first + 5).map(|at| said(at) + "\n").collect();
        let mut to = stream;
        to.write_all(pipeline.as_bytes()).unwrap();
        for at in first..first + 5 {
            line.clear();
            reading.read_line(&mut line).unwrap();
            assert_eq!(line.trim_end_matches('\n'), said(at).to_uppercase());
        }
    }
    end(stream);
    line.clear();
    reading.read_to_string(&mut line).unwrap();
    assert_eq!(line, format!("{LINES} lines"));
}

fn abstract_address(name: &str) -> UnixAddr {
    UnixAddr::from_abstract_name(format!("fibra {name} {}", std::process::id())).unwrap()
}

/// On a runtime with one worker, and with two.
fn with_workers(test: impl Fn(&Runtime)) {
    let _watchdog = support::watchdog(120);
    for count in [1, 2] {
        test(&Runtime::builder().workers(count).build().unwrap());
    }
}

/// So many threads.
fn on_threads(client: impl Fn(usize) + Send + Sync) {
    std::thread::scope(|s| {
        for n in 0..CLIENTS {
            let client = &client;
            s.spawn(move || client(n));
        }
    });
}

/// So many fibers.
fn on_fibers(runtime: &Runtime, client: impl Fn(usize) + Send + Sync) {
    runtime.run(|| {
        fibra::scope(|s| {
            for n in 0..CLIENTS {
                let client = &client;
                s.spawn(move || client(n));
            }
        });
    });
}

#[test]
fn tcp_served_by_fibers() {
    with_workers(|runtime| {
        let listener = fibra::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = runtime.spawn(move || {
            fibra::scope(|s| {
                for stream in listener.incoming().take(CLIENTS) {
                    let stream = stream.unwrap();
                    s.spawn(move || serve(&stream));
                }
            });
        });
        on_threads(|n| {
            let stream = std::net::TcpStream::connect(address).unwrap();
            ask(&stream, n, |stream| stream.shutdown(std::net::Shutdown::Write).unwrap());
        });
        server.join().unwrap();
    });
}

#[test]
fn tcp_served_by_threads() {
    with_workers(|runtime| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || on_threads(|_| serve(&listener.accept().unwrap().0)));
        on_fibers(runtime, |n| {
            let stream = fibra::net::TcpStream::connect(address).unwrap();
            ask(&stream, n, |stream| stream.shutdown(std::net::Shutdown::Write).unwrap());
        });
        server.join().unwrap();
    });
}

#[test]
fn unix_served_by_fibers() {
    with_workers(|runtime| {
        let address = abstract_address("served by fibers");
        let listener = fibra::net::UnixListener::bind_addr(&address).unwrap();
        let server = runtime.spawn(move || {
            fibra::scope(|s| {
                for stream in listener.incoming().take(CLIENTS) {
                    let stream = stream.unwrap();
                    s.spawn(move || serve(&stream));
                }
            });
        });
        on_threads(|n| {
            let stream = std::os::unix::net::UnixStream::connect_addr(&address).unwrap();
            ask(&stream, n, |stream| stream.shutdown(std::net::Shutdown::Write).unwrap());
        });
        server.join().unwrap();
    });
}

#[test]
fn unix_served_by_threads() {
    with_workers(|runtime| {
        let address = abstract_address("served by threads");
        let listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
        let server = std::thread::spawn(move || on_threads(|_| serve(&listener.accept().unwrap().0)));
        on_fibers(runtime, |n| {
            let stream = fibra::net::UnixStream::connect_addr(&address).unwrap();
            ask(&stream, n, |stream| stream.shutdown(std::net::Shutdown::Write).unwrap());
        });
        server.join().unwrap();
    });
}

/// Both kinds of datagram socket have the same methods, in both libraries: sends each datagram back, the bytes reversed.
macro_rules! serve_datagrams {
    ($socket:expr, $count:expr, $reply:ident) => {{
        let mut buffer = [0; 2048];
        for _ in 0..$count {
            let (len, from) = $socket.recv_from(&mut buffer).unwrap();
            buffer[..len].reverse();
            assert_eq!($socket.$reply(&buffer[..len], &from).unwrap(), len);
        }
    }};
}

macro_rules! ask_datagrams {
    ($socket:expr, $n:expr) => {{
        let mut buffer = [0; 2048];
        for at in 0..LINES {
            let mut said: Vec<u8> = (0..at * 7 % 1500).map(|byte| (byte * $n) as u8).collect();
            assert_eq!($socket.send(&said).unwrap(), said.len());
            let len = $socket.recv(&mut buffer).unwrap();
            said.reverse();
            assert!(buffer[..len] == said);
        }
    }};
}

#[test]
fn udp_both_ways() {
    with_workers(|runtime| {
        let server = fibra::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let serving = runtime.spawn(move || serve_datagrams!(server, CLIENTS * LINES, send_to));
        on_threads(|n| {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(address).unwrap();
            ask_datagrams!(socket, n);
        });
        serving.join().unwrap();

        let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let serving = std::thread::spawn(move || serve_datagrams!(server, CLIENTS * LINES, send_to));
        on_fibers(runtime, |n| {
            let socket = fibra::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(address).unwrap();
            ask_datagrams!(socket, n);
        });
        serving.join().unwrap();
    });
}

#[test]
fn unix_datagrams_both_ways() {
    with_workers(|runtime| {
        let server = fibra::net::UnixDatagram::bind_addr(&abstract_address("datagrams")).unwrap();
        let serving = runtime.spawn(move || serve_datagrams!(server, CLIENTS * LINES, send_to_addr));
        on_threads(|n| {
            let mine = abstract_address(&format!("datagrams {n}"));
            let socket = std::os::unix::net::UnixDatagram::bind_addr(&mine).unwrap();
            socket.connect_addr(&abstract_address("datagrams")).unwrap();
            ask_datagrams!(socket, n);
        });
        serving.join().unwrap();

        let server = std::os::unix::net::UnixDatagram::bind_addr(&abstract_address("datagrams")).unwrap();
        let serving = std::thread::spawn(move || serve_datagrams!(server, CLIENTS * LINES, send_to_addr));
        on_fibers(runtime, |n| {
            let mine = abstract_address(&format!("datagrams {n}"));
            let socket = fibra::net::UnixDatagram::bind_addr(&mine).unwrap();
            socket.connect_addr(&abstract_address("datagrams")).unwrap();
            ask_datagrams!(socket, n);
        });
        serving.join().unwrap();
    });
}
