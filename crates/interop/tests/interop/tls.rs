//! TLS over fiber sockets: rustls knows nothing of fibers and needs nothing but `Read` and `Write`. Against itself on plain threads with
//! std's sockets, both ways, and fibers on both sides.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::support;
use fibra::Runtime;
use fibra::net::{TcpListener, TcpStream, UnixStream};
use interop::tls::Trust;
use rustls::{ConnectionCommon, SideData, StreamOwned};

fn workers(count: usize) -> Runtime {
    Runtime::builder().workers(count).build().unwrap()
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) >> 3 ^ seed) as u8).collect()
}

type Server<S> = StreamOwned<rustls::ServerConnection, S>;
type Client<S> = StreamOwned<rustls::ClientConnection, S>;

/// Reads up to the peer's close notice, then answers with the same bytes backwards, and closes.
fn serve<S: Read + Write>(trust: &Trust, socket: S) {
    let mut stream: Server<S> = StreamOwned::new(trust.accept(), socket);
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all.reverse();
    stream.write_all(&all).unwrap();
    close(stream);
}

/// Sends `len` bytes, ends its direction, and receives them backwards on the other direction, which is still open.
fn ask<S: Read + Write>(trust: &Trust, socket: S, len: usize) {
    let mut stream: Client<S> = StreamOwned::new(trust.connect(), socket);
    shake_hands(&mut stream);
    let said = bytes(len, len);
    stream.write_all(&said).unwrap();
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).unwrap();
    heard.reverse();
    assert!(heard == said, "{len} bytes");
}

fn shake_hands<S: Read + Write>(stream: &mut Client<S>) {
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).unwrap();
    }
}

fn close<C, D, S>(mut stream: StreamOwned<C, S>)
where
    C: std::ops::DerefMut<Target = ConnectionCommon<D>>,
    D: SideData,
    S: Read + Write,
{
    stream.conn.send_close_notify();
    stream.flush().unwrap();
}

const SIZES: [usize; 4] = [0, 1, 20_000, 5 << 20];

#[test]
fn a_fiber_serves_clients_of_std() {
    let _watchdog = support::watchdog(60);
    let trust = Trust::new();
    let (listener, address) = listener();
    let runtime = workers(2);
    let trusted = trust.clone();
    let server = runtime.spawn(move || {
        fibra::scope(|s| {
            for stream in listener.incoming().take(SIZES.len()) {
                let (stream, trust) = (stream.unwrap(), &trusted);
                s.spawn(move || serve(trust, stream));
            }
        });
    });
    let clients = SIZES.map(|len| {
        let trust = trust.clone();
        std::thread::spawn(move || ask(&trust, std::net::TcpStream::connect(address).unwrap(), len))
    });
    clients.into_iter().for_each(|client| client.join().unwrap());
    server.join().unwrap();
}

#[test]
fn a_fiber_asks_servers_of_std() {
    let _watchdog = support::watchdog(60);
    let trust = Trust::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let trusted = trust.clone();
    let server = std::thread::spawn(move || {
        std::thread::scope(|s| {
            for _ in SIZES {
                let (stream, trust) = (listener.accept().unwrap().0, &trusted);
                s.spawn(move || serve(trust, stream));
            }
        });
    });
    workers(2).run(|| {
        fibra::scope(|s| {
            for len in SIZES {
                let trust = &trust;
                s.spawn(move || ask(trust, TcpStream::connect(address).unwrap(), len));
            }
        });
    });
    server.join().unwrap();
}

// Both sides, in each version, through references too: one connection in one direction at a time, as `Stream` is.
#[test]
fn fibers_on_both_sides() {
    let _watchdog = support::watchdog(60);
    for version in rustls::ALL_VERSIONS {
        let trust = Trust::with_versions(&[*version]);
        for count in [1, 2] {
            workers(count).run(|| {
                fibra::scope(|s| {
                    for len in SIZES {
                        let trust = &trust;
                        let (here, there) = UnixStream::pair().unwrap();
                        s.spawn(move || serve(trust, &there));
                        s.spawn(move || ask(trust, here, len));
                    }
                });
            });
        }
    }
}

// Many handshakes at once; then a request on each, while all are open.
#[test]
fn many_handshakes_at_once() {
    let _watchdog = support::watchdog(120);
    const COUNT: usize = 150;
    let trust = Trust::new();
    let (listener, address) = listener();
    let shaken = AtomicUsize::new(0);
    let all = fibra::sync::Event::new();
    workers(2).run(|| {
        fibra::scope(|s| {
            s.spawn(|| {
                fibra::scope(|s| {
                    for stream in listener.incoming().take(COUNT) {
                        let (stream, trust) = (stream.unwrap(), &trust);
                        s.spawn(move || serve(trust, stream));
                    }
                });
            });
            for n in 0..COUNT {
                let (trust, shaken, all) = (&trust, &shaken, &all);
                s.spawn(move || {
                    let mut stream: Client<_> = StreamOwned::new(trust.connect(), TcpStream::connect(address).unwrap());
                    shake_hands(&mut stream);
                    if shaken.fetch_add(1, SeqCst) + 1 == COUNT {
                        all.set();
                    }
                    all.wait();
                    let said = bytes(1000, n);
                    stream.write_all(&said).unwrap();
                    stream.conn.send_close_notify();
                    stream.flush().unwrap();
                    let mut heard = Vec::new();
                    stream.read_to_end(&mut heard).unwrap();
                    heard.reverse();
                    assert!(heard == said);
                });
            }
        });
    });
    assert_eq!(shaken.load(SeqCst), COUNT);
}

/// Counts the bytes that are read.
struct Counted(TcpStream, Arc<AtomicUsize>);

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let len = self.0.read(buffer)?;
        self.1.fetch_add(len, SeqCst);
        Ok(len)
    }
}

impl Write for Counted {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.0.write(buffer)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// The first message of a client's handshake.
fn first_words(trust: &Trust) -> Vec<u8> {
    let mut words = Vec::new();
    trust.connect().write_tls(&mut words).unwrap();
    words
}

// A fiber is cancelled in mid-handshake, after every few bytes that it has got; the listener serves on, and nothing is left open.
#[test]
fn cancelled_in_mid_handshake() {
    let _watchdog = support::watchdog(120);
    let trust = Trust::new();
    let runtime = workers(1);
    let words = first_words(&trust);
    let (listener, address) = listener();
    let listener = Arc::new(listener);
    for len in (0..words.len()).step_by(words.len() / 20).chain([1, 5, words.len() - 1, words.len()]) {
        let (serving, trusted, steps) = (listener.clone(), trust.clone(), Arc::new(AtomicUsize::new(0)));
        let counted = steps.clone();
        let server = runtime.spawn(move || {
            let stream = serving.accept().unwrap().0;
            counted.fetch_add(1, SeqCst);
            serve(&trusted, Counted(stream, counted));
        });
        let mut client = std::net::TcpStream::connect(address).unwrap();
        client.write_all(&words[..len]).unwrap();
        // It has accepted, has read them all, and waits for more.
        let waits = || steps.load(SeqCst) == 1 + len && runtime.metrics().parked == 1;
        support::eventually(waits, || "it waits".to_owned());
        server.cancel();
        assert!(server.join().unwrap_err().is_cancelled());
        // The answer so far, then the end: the connection is closed. (Bytes that the fiber had not read would make that a reset.)
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest);
        assert_eq!(rest.is_empty(), len < words.len(), "{len} of {}", words.len());
    }
    // The client side is cancelled, whose server says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = silent.local_addr().unwrap();
    let trusted = trust.clone();
    let client = runtime.spawn(move || ask(&trusted, TcpStream::connect(to).unwrap(), 10));
    let mut stream = silent.accept().unwrap().0;
    let mut heard = vec![0; words.len()];
    stream.read_exact(&mut heard).unwrap();
    support::eventually(|| runtime.metrics().parked == 1, || "it waits".to_owned());
    client.cancel();
    assert!(client.join().unwrap_err().is_cancelled());
    stream.read_to_end(&mut heard).unwrap();
    // And now a handshake that is not cancelled.
    let (serving, trusted) = (listener.clone(), trust.clone());
    let server = runtime.spawn(move || serve(&trusted, serving.accept().unwrap().0));
    ask(&trust, std::net::TcpStream::connect(address).unwrap(), 1000);
    server.join().unwrap();
}

// A peer that speaks something else is an error, on either side, and not a hang.
#[test]
fn nonsense_is_refused() {
    let _watchdog = support::watchdog(60);
    let trust = Trust::new();
    workers(1).run(|| {
        let (here, there) = UnixStream::pair().unwrap();
        (&here).write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut server: Server<_> = StreamOwned::new(trust.accept(), there);
        assert_eq!(server.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::InvalidData);
        let (here, there) = UnixStream::pair().unwrap();
        (&there).write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let mut client: Client<_> = StreamOwned::new(trust.connect(), here);
        assert_eq!(client.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::InvalidData);
        // A client that trusts no certificate.
        let (here, there) = UnixStream::pair().unwrap();
        let stranger = Trust::new();
        fibra::scope(|s| {
            s.spawn(|| {
                let mut server: Server<_> = StreamOwned::new(trust.accept(), there);
                assert!(server.read(&mut [0]).is_err());
            });
            let mut client: Client<_> = StreamOwned::new(stranger.connect(), here);
            assert!(client.write_all(b"x").and_then(|()| client.flush()).is_err());
        });
    });
}
