//! The forms that std's sockets do not have (`try_`, `_timeout`, `_deadline`, arms), those that they have but not for every kind (`peek`,
//! halves, `linger`), and what conversions keep. On fibers and on plain threads alike.
#![allow(clippy::disallowed_types)] // Deadlines may be std's.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::time::Duration;

use crate::ends::{listener, pair};
use crate::support;
use fibra::Runtime;
use fibra::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
use fibra::time::Instant;

const SHORT: Duration = Duration::from_millis(4);
const LONG: Duration = Duration::from_secs(3600);

/// On a fiber, and on this thread.
fn both_ways(test: fn()) {
    let _watchdog = support::watchdog(60);
    test();
    Runtime::builder().workers(1).build().unwrap().run(test);
}

fn kind<T: std::fmt::Debug>(result: std::io::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn accepting_with_a_limit() {
    both_ways(|| {
        let (listener, address) = listener();
        assert_eq!(kind(listener.try_accept()), ErrorKind::WouldBlock);
        let begin = Instant::now();
        assert_eq!(kind(listener.accept_timeout(SHORT)), ErrorKind::TimedOut);
        assert!(begin.elapsed() >= SHORT);
        assert_eq!(kind(listener.accept_timeout(Duration::ZERO)), ErrorKind::TimedOut);
        assert_eq!(kind(listener.accept_deadline(begin)), ErrorKind::TimedOut, "the past: one try");
        let clients: Vec<_> = (0..4).map(|_| TcpStream::connect(address).unwrap()).collect();
        let accepted = [
            listener.try_accept().unwrap().1,
            listener.accept_timeout(LONG).unwrap().1,
            listener.accept_deadline(begin).unwrap().1,
            listener.accept_deadline(std::time::Instant::now() + LONG).unwrap().1,
        ];
        let addresses: Vec<_> = clients.iter().map(|client| client.local_addr().unwrap()).collect();
        assert_eq!(addresses, accepted);
        assert_eq!(kind(listener.try_accept()), ErrorKind::WouldBlock);
    });
}

#[test]
fn accepting_unix_connections_with_a_limit() {
    both_ways(|| {
        let name = format!("fibra forms {} {:?}", std::process::id(), std::thread::current().id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        assert_eq!(kind(listener.try_accept()), ErrorKind::WouldBlock);
        assert_eq!(kind(listener.accept_timeout(SHORT)), ErrorKind::TimedOut);
        assert_eq!(kind(listener.accept_deadline(Instant::now())), ErrorKind::TimedOut);
        let _clients: Vec<_> = (0..4).map(|_| UnixStream::connect_addr(&address).unwrap()).collect();
        listener.try_accept().unwrap();
        listener.accept_timeout(LONG).unwrap();
        listener.accept_deadline(Instant::FAR_FUTURE).unwrap();
        for stream in (&listener).into_iter().take(1) {
            assert!(stream.unwrap().peer_addr().unwrap().is_unnamed());
        }
        assert!(listener.take_error().unwrap().is_none());
    });
}

#[test]
fn connecting_to_a_unix_listener_whose_queue_is_full() {
    both_ways(|| {
        let path = std::env::temp_dir().join(format!("fibra-forms-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        // SAFETY: the descriptor is open, and the call takes no pointers. Shortens the queue.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 1) }, 0);
        let mut queued = Vec::new();
        let error = loop {
            match UnixStream::connect_timeout(&path, SHORT) {
                Ok(stream) => queued.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!((error.kind(), queued.is_empty()), (ErrorKind::TimedOut, false));
        assert_eq!(kind(UnixStream::connect_deadline(&path, Instant::now())), ErrorKind::TimedOut);
        assert_eq!(kind(UnixStream::connect_timeout(&path, Duration::ZERO)), ErrorKind::InvalidInput);
        listener.accept().unwrap();
        UnixStream::connect_deadline(&path, Instant::after(LONG)).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(kind(UnixStream::connect_timeout(&path, LONG)), ErrorKind::NotFound);
    });
}

#[test]
fn connecting_with_a_deadline() {
    both_ways(|| {
        let (listener, address) = listener();
        // It is connected at once, on the same machine: the past is soon enough.
        TcpStream::connect_deadline(&address, Instant::after(LONG)).unwrap();
        drop(listener);
        assert_eq!(kind(TcpStream::connect_deadline(&address, Instant::after(LONG))), ErrorKind::ConnectionRefused);
    });
}

/// All that a stream can do, of either kind.
macro_rules! streams {
    ($name:ident, $pair:expr) => {
        #[test]
        fn $name() {
            both_ways(|| {
                let (here, there) = $pair;
                let mut word = [0; 4];
                assert_eq!(kind(here.try_read(&mut word)), ErrorKind::WouldBlock);
                assert_eq!(here.try_read(&mut []).unwrap(), 0);
                assert_eq!(here.read_deadline(&mut [], Instant::now()).unwrap(), 0);
                assert_eq!(kind(here.read_deadline(&mut word, Instant::after(SHORT))), ErrorKind::TimedOut);
                // The time-out of the stream does not count if there is a deadline.
                here.set_read_timeout(Some(LONG)).unwrap();
                assert_eq!(kind(here.read_deadline(&mut word, Instant::after(SHORT))), ErrorKind::TimedOut);
                assert_eq!(there.try_write(b"abcdefgh").unwrap(), 8);
                assert_eq!(here.peek(&mut word).unwrap(), 4);
                assert_eq!(here.peek(&mut []).unwrap(), 0);
                assert_eq!((here.try_read(&mut word).unwrap(), &word), (4, b"abcd"));
                assert_eq!((here.read_deadline(&mut word, Instant::now()).unwrap(), &word), (4, b"efgh"));
                // Until nothing fits.
                let mut sent = 0;
                let error = loop {
                    match there.try_write(&[1; 64 * 1024]) {
                        Ok(len) => sent += len,
                        Err(error) => break error,
                    }
                };
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                // The kernel may find room for a little more.
                let error = loop {
                    match there.write_deadline(&[1; 1000], Instant::after(SHORT)) {
                        Ok(len) => sent += len,
                        Err(error) => break error,
                    }
                };
                assert_eq!(error.kind(), ErrorKind::TimedOut);
                (&here).read_exact(&mut vec![0; sent]).unwrap();
                assert_eq!(there.write_deadline(&[1], Instant::after(LONG)).unwrap(), 1);
                (&here).read_exact(&mut [0]).unwrap();
                // Halves.
                let (reading, mut writing) = here.into_split();
                writing.write_all(b"x").unwrap();
                let here = writing.reunite(reading).unwrap();
                let (mut reading, writing) = here.into_split();
                drop(writing);
                let mut all = String::new();
                (&there).read_to_string(&mut all).unwrap();
                assert_eq!(all, "x");
                (&there).write_all(b"yz").unwrap();
                assert_eq!(reading.as_ref().peek(&mut word).unwrap(), 2);
                assert_eq!(reading.read(&mut word).unwrap(), 2);
                let (other, ours) = $pair.0.into_split();
                drop(ours);
                let (_, ours) = there.into_split();
                assert!(other.reunite(ours).unwrap_err().to_string().contains("different"));
            });
        }
    };
}
streams!(tcp_streams, pair());
streams!(unix_streams, UnixStream::pair().unwrap());

// A write that cannot be finished in time has written what the system took, no more: no byte is counted twice.
#[test]
fn a_partial_write_counts_what_was_taken() {
    both_ways(|| {
        let (here, there) = UnixStream::pair().unwrap();
        here.set_write_timeout(Some(SHORT)).unwrap();
        let all: Vec<u8> = (0..4 << 20).map(|at: u32| ((at * 7) >> 3) as u8).collect();
        let mut written = 0;
        let error = loop {
            match (&here).write(&all[written..]) {
                Ok(len) => written += len,
                Err(error) => break error,
            }
        };
        assert!(error.kind() == ErrorKind::TimedOut && written > 0 && written < all.len());
        let mut heard = vec![0; written];
        (&there).read_exact(&mut heard).unwrap();
        assert!(heard == all[..written]);
        assert_eq!(kind(there.try_read(&mut heard)), ErrorKind::WouldBlock);
        (&here).write_all(&all[written..][..1000]).unwrap();
        (&there).read_exact(&mut heard[..1000]).unwrap();
        assert!(heard[..1000] == all[written..][..1000]);
    });
}

#[test]
fn lingering() {
    both_ways(|| {
        let (here, there) = pair();
        assert_eq!(here.linger().unwrap(), None);
        here.set_linger(Some(Duration::from_secs(3))).unwrap();
        assert_eq!(here.linger().unwrap(), Some(Duration::from_secs(3)));
        here.set_linger(Some(Duration::ZERO)).unwrap();
        assert_eq!(here.linger().unwrap(), Some(Duration::ZERO));
        drop(here);
        assert_eq!(kind((&there).read(&mut [0])), ErrorKind::ConnectionReset);
        there.set_linger(None).unwrap();
        assert_eq!(there.linger().unwrap(), None);
    });
}

#[test]
fn datagrams_with_a_limit() {
    both_ways(|| {
        let (here, there) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let (from, to) = (here.local_addr().unwrap(), there.local_addr().unwrap());
        let mut word = [0; 8];
        assert_eq!(kind(there.try_recv_from(&mut word)), ErrorKind::WouldBlock);
        assert_eq!(kind(there.recv_from_timeout(&mut word, SHORT)), ErrorKind::TimedOut);
        assert_eq!(kind(there.recv_from_deadline(&mut word, Instant::now())), ErrorKind::TimedOut);
        assert_eq!(kind(there.try_recv(&mut word)), ErrorKind::WouldBlock);
        assert_eq!(kind(there.recv_timeout(&mut word, SHORT)), ErrorKind::TimedOut);
        assert_eq!(kind(there.recv_deadline(&mut word, Instant::now())), ErrorKind::TimedOut);
        here.connect(to).unwrap();
        for len in 1..=6 {
            let sent = match len % 2 {
                0 => here.try_send(&word[..len]),
                _ => here.try_send_to(&word[..len], to),
            };
            assert_eq!(sent.unwrap(), len);
        }
        assert_eq!(there.try_recv_from(&mut word).unwrap(), (1, from));
        assert_eq!(there.recv_from_timeout(&mut word, LONG).unwrap(), (2, from));
        assert_eq!(there.recv_from_deadline(&mut word, Instant::now()).unwrap(), (3, from));
        assert_eq!(there.try_recv(&mut word).unwrap(), 4);
        assert_eq!(there.recv_timeout(&mut word, LONG).unwrap(), 5);
        assert_eq!(there.recv_deadline(&mut word, Instant::FAR_FUTURE).unwrap(), 6);
    });
}

#[test]
fn unix_datagrams_with_a_limit() {
    both_ways(|| {
        let path = std::env::temp_dir().join(format!("fibra-forms-datagram-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let (here, there) = (UnixDatagram::unbound().unwrap(), UnixDatagram::bind(&path).unwrap());
        here.connect(&path).unwrap();
        let mut word = [0; 8];
        assert_eq!(kind(there.try_recv(&mut word)), ErrorKind::WouldBlock);
        assert_eq!(kind(there.recv_timeout(&mut word, SHORT)), ErrorKind::TimedOut);
        assert_eq!(kind(there.try_recv_from(&mut word)), ErrorKind::WouldBlock);
        assert_eq!(kind(there.recv_from_timeout(&mut word, SHORT)), ErrorKind::TimedOut);
        assert_eq!(here.try_send(b"ab").unwrap(), 2);
        assert_eq!((there.peek(&mut word).unwrap(), there.try_recv(&mut word).unwrap()), (2, 2));
        assert_eq!(here.try_send_to(b"abc", &path).unwrap(), 3);
        assert_eq!(there.recv_deadline(&mut word, Instant::after(LONG)).unwrap(), 3);
        while here.try_send(b"x").is_ok() {}
        assert_eq!(kind(here.try_send(b"x")), ErrorKind::WouldBlock);
        assert_eq!(kind(here.try_send_to(b"x", &path)), ErrorKind::WouldBlock);
        assert_eq!(there.recv_from_deadline(&mut word, Instant::after(LONG)).unwrap().0, 1);
        assert_eq!(there.try_recv_from(&mut word).unwrap().0, 1);
        std::fs::remove_file(&path).unwrap();
    });
}

// Time-outs go along when a socket is converted, both ways.
#[test]
fn conversions_keep_time_outs() {
    let _watchdog = support::watchdog(60);
    let (here, _there) = std::os::unix::net::UnixStream::pair().unwrap();
    // The kernel counts in ticks, and rounds up.
    let limit = Duration::from_millis(40);
    here.set_read_timeout(Some(limit)).unwrap();
    let here = UnixStream::from(here);
    assert_eq!((here.read_timeout().unwrap(), here.write_timeout().unwrap()), (Some(limit), None));
    assert_eq!(kind((&here).read(&mut [0])), ErrorKind::TimedOut);
    here.set_read_timeout(None).unwrap();
    here.set_write_timeout(Some(2 * limit)).unwrap();
    let here: std::os::unix::net::UnixStream = here.into();
    assert_eq!((here.read_timeout().unwrap(), here.write_timeout().unwrap()), (None, Some(2 * limit)));
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(limit)).unwrap();
    assert_eq!(UdpSocket::from(socket).read_timeout().unwrap(), Some(limit));
}

// A clone that becomes std's does not put the others into blocking mode: a fiber that waits there must not hold up its worker.
#[test]
fn a_converted_clone_leaves_the_others_alone() {
    let _watchdog = support::watchdog(60);
    Runtime::builder().workers(1).build().unwrap().run(|| {
        let (here, there) = UnixStream::pair().unwrap();
        let mut clone: std::os::unix::net::UnixStream = here.try_clone().unwrap().into();
        assert_eq!(kind(clone.read(&mut [0])), ErrorKind::WouldBlock);
        let reading = fibra::spawn_local(move || {
            (&here).read_exact(&mut [0; 3]).unwrap();
            here
        });
        fibra::yield_now();
        (&there).write_all(b"abc").unwrap();
        let here = reading.join().unwrap();
        drop(clone);
        // The last one blocks.
        let mut here: std::os::unix::net::UnixStream = here.into();
        let writing = std::thread::spawn(move || {
            std::thread::sleep(SHORT);
            (&there).write_all(b"x").unwrap();
        });
        here.read_exact(&mut [0]).unwrap();
        writing.join().unwrap();
    });
}

// As many connections as the system allows wait to be accepted.
#[test]
fn the_queue_of_a_listener_is_long() {
    let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse::<u32>().unwrap();
    for listener in [TcpListener::bind("127.0.0.1:0"), TcpListener::bind_reuse_port("127.0.0.1:0")] {
        let listener = listener.unwrap();
        // SAFETY: a structure of numbers, for which zeroes are valid.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
        let to = (&raw mut info).cast();
        // SAFETY: the option is a `tcp_info`, of which the kernel writes at most so many bytes.
        let done =
            unsafe { libc::getsockopt(listener.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut len) };
        // Of a listener, this field is the length of the queue.
        assert_eq!((done, info.tcpi_sacked), (0, most));
    }
}
