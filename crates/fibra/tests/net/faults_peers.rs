//! Peers that misbehave: that are slow, stop half-way, reset, hang up; and what the kernel reports of it (`RDHUP`, `HUP`, `ERR`) to those
//! who wait in either direction. Each test is alone in its process and leaves as many descriptors as it found.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::sync::Arc;
use std::time::Duration;

use crate::ends::listener;
use crate::support::{self, until_parked};
use fibra::net::{TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
use fibra::time::Instant;
use fibra::{JoinHandle, Runtime};

/// Runs the test in a process of its own, on runtimes with one worker and with three, and counts descriptors.
fn faults(name: &str, test: impl Fn(&Runtime)) {
    if !support::is_child(name) {
        let ended = support::rerun_self(name, &[]);
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    let _watchdog = support::watchdog(50);
    let before = support::fds();
    for count in [1, 3] {
        let runtime = Runtime::builder().workers(count).build().unwrap();
        test(&runtime);
        drop(runtime);
        assert!(support::fds() <= before, "{before} descriptors before, {} after", support::fds());
    }
}

/// A fiber socket and its peer of std.
fn pair() -> (TcpStream, std::net::TcpStream) {
    let (listener, address) = listener();
    let there = std::net::TcpStream::connect(address).unwrap();
    (listener.accept().unwrap().0, there)
}

fn unix_pair() -> (UnixStream, std::os::unix::net::UnixStream) {
    let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    (here.into(), there)
}

/// Closes such that the other side sees a reset.
fn reset(stream: std::net::TcpStream) {
    TcpStream::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// A fiber that writes until it cannot.
fn writer<S>(runtime: &Runtime, stream: Arc<S>) -> JoinHandle<(usize, ErrorKind)>
where
    S: Send + Sync + 'static,
    for<'a> &'a S: Write,
{
    runtime.spawn(move || {
        let mut written = 0;
        loop {
            match (&*stream).write(&[7; 50_000]) {
                Ok(len) => written += len,
                Err(error) => return (written, error.kind()),
            }
        }
    })
}

fn reader<S>(runtime: &Runtime, stream: Arc<S>) -> JoinHandle<std::io::Result<usize>>
where
    S: Send + Sync + 'static,
    for<'a> &'a S: Read,
{
    runtime.spawn(move || (&*stream).read(&mut [0; 64]))
}

// One reads, one writes, both wait: a reset is told to both.
#[test]
fn a_reset_reaches_both_directions() {
    faults("a_reset_reaches_both_directions", |runtime| {
        let (here, there) = pair();
        let here = Arc::new(here);
        let (reading, writing) = (reader(runtime, here.clone()), writer(runtime, here.clone()));
        until_parked(runtime, 2);
        reset(there);
        let kinds = [reading.join().unwrap().map_err(|error| error.kind()), Err(writing.join().unwrap().1)];
        // The error is told once; a later caller finds the connection gone.
        let gone = |kind: &Result<usize, ErrorKind>| {
            matches!(kind, Ok(0) | Err(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe))
        };
        assert!(kinds.iter().all(gone) && kinds.contains(&Err(ErrorKind::ConnectionReset)), "{kinds:?}");
        // From now on.
        assert_eq!((&*here).write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!((&*here).read(&mut [0]).unwrap(), 0);
    });
}

// A reset in the middle of `write_all` and of `read_exact`: an error, after what had come before.
#[test]
fn a_reset_in_the_middle() {
    faults("a_reset_in_the_middle", |runtime| {
        let (here, mut there) = pair();
        let writing = runtime.spawn(move || (&here).write_all(&vec![1; 64 << 20]).unwrap_err().kind());
        there.read_exact(&mut [0; 100_000]).unwrap();
        until_parked(runtime, 1);
        reset(there);
        assert!(matches!(writing.join().unwrap(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe));
        let (here, mut there) = pair();
        let reading = runtime.spawn(move || {
            let mut all = [0; 100];
            (&here).read_exact(&mut all[..3]).unwrap();
            (all[..3].to_vec(), (&here).read_exact(&mut all[3..]).unwrap_err().kind())
        });
        there.write_all(b"abc").unwrap();
        until_parked(runtime, 1);
        reset(there);
        assert_eq!(reading.join().unwrap(), (b"abc".to_vec(), ErrorKind::ConnectionReset));
    });
}

// The other side has said all it has to say (RDHUP), and reads on: a writer here is not disturbed, nor set going in vain for ever.
#[test]
fn a_half_closed_peer_still_reads() {
    faults("a_half_closed_peer_still_reads", |runtime| {
        let (here, mut there) = pair();
        let here = Arc::new(here);
        let (reading, writing) = (reader(runtime, here.clone()), writer(runtime, here.clone()));
        until_parked(runtime, 2);
        there.shutdown(Shutdown::Write).unwrap();
        assert_eq!(reading.join().unwrap().unwrap(), 0);
        until_parked(runtime, 1);
        let switches = runtime.metrics().switches;
        std::thread::sleep(Duration::from_millis(30));
        // It may be told once or twice that there is a little room.
        assert!(runtime.metrics().switches - switches < 50, "the writer waits, quietly");
        let mut all = vec![0; 1 << 20];
        for _ in 0..20 {
            there.read_exact(&mut all).unwrap();
            assert!(all.iter().all(|byte| *byte == 7));
        }
        // The end is still the end.
        for _ in 0..3 {
            assert_eq!((&*here).read(&mut [0]).unwrap(), 0);
        }
        here.shutdown(Shutdown::Write).unwrap();
        assert_eq!(writing.join().unwrap().1, ErrorKind::BrokenPipe);
        // All that was taken arrives, and then the end.
        there.read_to_end(&mut all).unwrap();
    });
}

// A Unix socket whose peer goes (HUP), while both directions wait.
#[test]
fn a_unix_peer_hangs_up() {
    faults("a_unix_peer_hangs_up", |runtime| {
        let (here, there) = unix_pair();
        let here = Arc::new(here);
        let (reading, writing) = (reader(runtime, here.clone()), writer(runtime, here.clone()));
        until_parked(runtime, 2);
        drop(there);
        // What it had not read is lost, which Unix sockets report as a reset.
        let read = reading.join().unwrap();
        assert!(matches!(&read, Ok(0)) || read.unwrap_err().kind() == ErrorKind::ConnectionReset);
        assert!(matches!(writing.join().unwrap().1, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset));
        // A connecting one, whose listener goes.
        let name = format!("fibra hangs up {}", std::process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let stream = UnixStream::connect_addr(&address).unwrap();
        let waiting = reader(runtime, Arc::new(stream));
        until_parked(runtime, 1);
        drop(listener);
        let read = waiting.join().unwrap();
        assert!(matches!(&read, Ok(0)) || read.unwrap_err().kind() == ErrorKind::ConnectionReset);
    });
}

// Datagrams: what comes back of one that no socket wanted (ERR) wakes a receiver that waits.
#[test]
fn an_unwanted_datagram_is_reported() {
    faults("an_unwanted_datagram_is_reported", |runtime| {
        let unused = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        socket.connect(unused).unwrap();
        let waiting = socket.clone();
        let waiting = runtime.spawn(move || waiting.recv(&mut [0; 8]).unwrap_err().kind());
        until_parked(runtime, 1);
        socket.send(b"is there a socket?").unwrap();
        assert_eq!(waiting.join().unwrap(), ErrorKind::ConnectionRefused);
        // It can be used on.
        let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(other.local_addr().unwrap()).unwrap();
        let (again, here) = (socket.clone(), socket.local_addr().unwrap());
        let waiting = runtime.spawn(move || again.recv(&mut [0; 8]).unwrap());
        until_parked(runtime, 1);
        other.send_to(b"here", here).unwrap();
        assert_eq!(waiting.join().unwrap(), 4);
        // A Unix datagram socket whose only sender goes.
        let (one, two) = UnixDatagram::pair().unwrap();
        two.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        drop(one);
        assert!(matches!(two.recv(&mut [0]), Err(_) | Ok(0)));
        assert!(two.send(b"x").is_err());
    });
}

// Clients that say a byte now and then hold nothing up but themselves: others are served, a time-out or a deadline ends them.
#[test]
fn slow_clients_hold_no_other_up() {
    faults("slow_clients_hold_no_other_up", |runtime| {
        const SLOW: usize = 40;
        let (listener, address) = listener();
        let serve = |stream: &TcpStream, deadline: Instant| -> std::io::Result<()> {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\n") {
                // The whole head must come in time: a byte now and then does not help.
                if stream.read_deadline(&mut byte, deadline)? == 0 {
                    return Ok(());
                }
                head.push(byte[0]);
            }
            let mut to = stream;
            to.write_all(b"thanks")
        };
        let server = runtime.spawn(move || {
            let mut ended = Vec::new();
            for (number, stream) in listener.incoming().take(SLOW + 1).enumerate() {
                let stream = stream.unwrap();
                // The last is the fast one, whose thread may be without a processor for longer than that.
                let limit = Duration::from_millis(if number < SLOW { 60 } else { 60_000 });
                ended.push(fibra::spawn(move || serve(&stream, Instant::after(limit))));
            }
            ended.into_iter().map(|fiber| fiber.join().unwrap()).collect::<Vec<_>>()
        });
        let mut slow: Vec<_> = (0..SLOW).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        let mut fast = std::net::TcpStream::connect(address).unwrap();
        fast.write_all(b"GET\n").unwrap();
        let mut thanks = String::new();
        fast.read_to_string(&mut thanks).unwrap();
        assert_eq!(thanks, "thanks");
        // Until the last of them is cut off.
        while !slow.is_empty() {
            slow.retain_mut(|stream| stream.write_all(b"x").is_ok());
            std::thread::sleep(Duration::from_millis(1));
        }
        let ended = server.join().unwrap();
        let cut = ended.iter().filter(|end| end.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut));
        assert_eq!(cut.count(), SLOW);
    });
}

// A peer that never reads: the write time-out ends the write, which says how far it came; and the connection is as it was.
#[test]
fn a_peer_that_does_not_read() {
    faults("a_peer_that_does_not_read", |runtime| {
        let (here, mut there) = pair();
        runtime.run(move || {
            here.set_write_timeout(Some(Duration::from_millis(10))).unwrap();
            let mut written = 0;
            let buffers = [IoSlice::new(&[1; 10_000]), IoSlice::new(&[2; 10_000])];
            let error = loop {
                match (&here).write_vectored(&buffers) {
                    Ok(len) => written += len,
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            // The kernel may find room for a little more; not for ever.
            let error = loop {
                match (&here).write(&[0; 100]) {
                    Ok(len) => written += len,
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            here.shutdown(Shutdown::Write).unwrap();
            let reading = std::thread::spawn(move || {
                let mut all = Vec::new();
                there.read_to_end(&mut all).unwrap();
                all.len()
            });
            // Not one byte more than was said.
            assert_eq!(fibra::blocking(|| reading.join().unwrap()), written);
        });
    });
}

// Nothing to read or to write is never an end, an error, or a wait.
#[test]
fn nothing_at_all() {
    faults("nothing_at_all", |runtime| {
        let (here, there) = pair();
        let here = Arc::new(here);
        let waiting = reader(runtime, here.clone());
        until_parked(runtime, 1);
        let stream = here.clone();
        runtime.run(move || {
            assert_eq!((&*stream).read(&mut []).unwrap(), 0);
            assert_eq!((&*stream).read_vectored(&mut []).unwrap(), 0);
            assert_eq!((&*stream).write(&[]).unwrap(), 0);
            assert_eq!((&*stream).write_vectored(&[IoSlice::new(&[]), IoSlice::new(&[])]).unwrap(), 0);
            (&*stream).write_all(&[]).unwrap();
            (&*stream).flush().unwrap();
        });
        assert!(!waiting.is_finished());
        drop(there);
        assert_eq!(waiting.join().unwrap().unwrap(), 0);
        assert_eq!((&*here).read(&mut []).unwrap(), 0);
    });
}

// The time-out of a connection that no listener accepts; then the same address, with success.
#[test]
fn a_connection_that_takes_too_long() {
    faults("a_connection_that_takes_too_long", |runtime| {
        let (listener, address) = listener();
        // SAFETY: the descriptor is open, and the call takes no pointers. Shortens the queue to one.
        assert_eq!(unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 0) }, 0);
        runtime.run(move || {
            let limit = Duration::from_millis(30);
            let mut queued = Vec::new();
            let error = loop {
                match TcpStream::connect_timeout(&address, limit) {
                    Ok(stream) => queued.push(stream),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            let error = TcpStream::connect_deadline(&address, Instant::after(limit)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            assert!(fibra::timeout(limit, || TcpStream::connect(address)).is_err());
            for stream in &queued {
                assert_eq!(listener.accept().unwrap().1, stream.local_addr().unwrap());
            }
            // There is room: this one does not wait.
            TcpStream::connect_timeout(&address, Duration::from_secs(40)).unwrap();
        });
    });
}
