//! Unix sockets on fibers.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::support;
use fibra::net::{UnixDatagram, UnixListener, UnixStream};

/// A path for a socket, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fibra-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn streams_over_a_path() {
    let _watchdog = support::watchdog(60);
    let place = Place::new("stream");
    let listener = UnixListener::bind(&place.0).unwrap();
    assert_eq!(listener.local_addr().unwrap().as_pathname().unwrap(), place.0);
    let path = place.0.clone();
    fibra::run(|| {
        let server = fibra::spawn(move || {
            for stream in listener.incoming().take(3) {
                let stream = stream.unwrap();
                std::io::copy(&mut &stream, &mut &stream).unwrap();
            }
        });
        for n in 0..3_usize {
            let said = vec![n as u8; 300_000 * n + 1];
            let mut heard = Vec::new();
            let mut talk = |stream: &UnixStream| {
                fibra::scope(|s| {
                    s.spawn(|| {
                        let mut writing = stream;
                        writing.write_all(&said).unwrap();
                        writing.shutdown(Shutdown::Write).unwrap();
                    });
                    let mut reading = stream;
                    reading.read_to_end(&mut heard).unwrap();
                });
            };
            match n {
                0 => talk(&UnixStream::connect(&path).unwrap()),
                1 => talk(&UnixStream::connect_addr(&SocketAddr::from_pathname(&path).unwrap()).unwrap()),
                _ => talk(&std::os::unix::net::UnixStream::connect(&path).unwrap().into()),
            }
            assert!(heard == said);
        }
        server.join().unwrap();
    });
    assert_eq!(UnixStream::connect(&place.0).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

// The listener's queue is full: connecting waits, can be cancelled, and goes on when there is room.
#[test]
fn a_full_queue_is_waited_for() {
    let _watchdog = support::watchdog(60);
    let name = format!("fibra full {}", std::process::id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    // SAFETY: the descriptor is open, and the call takes no pointers. Shortens the queue.
    assert_eq!(unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 1) }, 0);
    let test = || {
        let connect = || UnixStream::connect_addr(&address).unwrap();
        // There is room for one; for the others time may be up before they have tried.
        let mut queued = vec![connect()];
        while let Ok(stream) = fibra::timeout(Duration::from_millis(10), connect) {
            queued.push(stream);
        }
        fibra::scope(|s| {
            let waiting = s.spawn(|| connect().local_addr().map(|_| ()));
            fibra::yield_now();
            for _ in 0..=queued.len() {
                listener.accept().unwrap();
            }
            waiting.join().unwrap().unwrap();
        });
    };
    fibra::run(test);
}

#[test]
fn pairs_and_their_time_outs() {
    let _watchdog = support::watchdog(60);
    fibra::run(|| {
        let (here, there) = UnixStream::pair().unwrap();
        here.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        assert_eq!((&here).read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
        let clone = there.try_clone().unwrap();
        drop(there);
        (&clone).write_all(b"ab").unwrap();
        let mut word = [0; 2];
        (&here).read_exact(&mut word).unwrap();
        assert_eq!(&word, b"ab");
        fibra::select! {
            on(here.readable()) -> _ready => panic!("all was read"),
            on(here.writable()) -> ready => ready.unwrap(),
        }
        drop(clone);
        assert_eq!((&here).read(&mut word).unwrap(), 0);
        assert_eq!((&here).write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn datagrams_wait_for_room() {
    let _watchdog = support::watchdog(60);
    let place = Place::new("datagram");
    fibra::run(|| {
        let receiving = UnixDatagram::bind(&place.0).unwrap();
        let (connected, free) = (UnixDatagram::unbound().unwrap(), UnixDatagram::unbound().unwrap());
        connected.connect(&place.0).unwrap();
        connected.set_write_timeout(Some(Duration::from_millis(5))).unwrap();
        free.set_write_timeout(Some(Duration::from_millis(5))).unwrap();
        // Both kinds of sender come to an end.
        let mut sent = 0;
        while connected.send(&[1; 1000]).is_ok() {
            sent += 1;
        }
        assert_eq!(connected.send(&[1]).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(free.send_to(&[2], &place.0).unwrap_err().kind(), ErrorKind::TimedOut);
        connected.set_write_timeout(None).unwrap();
        free.set_write_timeout(None).unwrap();
        fibra::scope(|s| {
            s.spawn(|| assert_eq!(connected.send(&[3]).unwrap(), 1));
            s.spawn(|| assert_eq!(free.send_to(&[4], &place.0).unwrap(), 1));
            fibra::yield_now();
            let mut buffer = [0; 1000];
            for _ in 0..sent + 2 {
                receiving.recv(&mut buffer).unwrap();
            }
        });
        let (one, other) = UnixDatagram::pair().unwrap();
        one.send(b"abc").unwrap();
        let mut buffer = [0; 2];
        assert_eq!(other.recv_from(&mut buffer).unwrap().0, 2);
        let std: std::os::unix::net::UnixDatagram = other.into();
        one.send(b"z").unwrap();
        assert_eq!(std.recv(&mut buffer).unwrap(), 1);
    });
}
