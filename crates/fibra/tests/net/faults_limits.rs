//! Out of descriptors: every call that needs one says so and leaves nothing behind; accepting waits until there are some again.
//! Each test is alone in its process, whose limit it lowers.

use std::fs::File;
use std::io::{ErrorKind, Read, Result, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::support;
use fibra::Runtime;
use fibra::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};

const LIMIT: u64 = 100;

/// Runs the test in a process of its own with a low limit of descriptors, and counts them.
fn scarce(name: &str, test: impl Fn(&Runtime)) {
    if !support::is_child(name) {
        let ended = support::rerun_self(name, &[]);
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    let _watchdog = support::watchdog(50);
    let limit = libc::rlimit { rlim_cur: LIMIT, rlim_max: LIMIT };
    // SAFETY: the limit lives through the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let before = support::fds();
    for count in [1, 2] {
        let runtime = Runtime::builder().workers(count).build().unwrap();
        test(&runtime);
        drop(runtime);
        // The driver of plain threads stays, where it was needed.
        let after = support::fds() - if name == "drivers" { 2 } else { 0 };
        assert!(after <= before, "{before} descriptors before, {after} after");
    }
}

/// All descriptors but so many.
fn hoard(spare: usize) -> Vec<File> {
    let mut all = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        all.push(file);
    }
    all.truncate(all.len() - spare);
    all
}

#[track_caller]
fn assert_out_of_descriptors<T>(result: Result<T>) {
    assert_eq!(result.err().and_then(|error| error.raw_os_error()), Some(libc::EMFILE));
}

// Every way to make a socket.
#[test]
#[cfg_attr(fibra_tsan, ignore = "the sanitizer opens and closes descriptors of its own: no limit is exact")]
fn making_sockets() {
    scarce("making_sockets", |runtime| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let name = UnixAddr::from_abstract_name(format!("fibra scarce {}", std::process::id())).unwrap();
        let unix = UnixListener::bind_addr(&name).unwrap();
        let (here, there) = UnixStream::pair().unwrap();
        runtime.run(move || {
            let rest = hoard(0);
            for _ in 0..3 {
                assert_out_of_descriptors(TcpListener::bind("127.0.0.1:0"));
                assert_out_of_descriptors(TcpListener::bind_reuse_port("127.0.0.1:0"));
                assert_out_of_descriptors(TcpStream::connect(address));
                assert_out_of_descriptors(TcpStream::connect_timeout(&address, Duration::from_secs(9)));
                assert_out_of_descriptors(UdpSocket::bind("127.0.0.1:0"));
                assert_out_of_descriptors(UdpSocket::bind_reuse_port("127.0.0.1:0"));
                assert_out_of_descriptors(UnixListener::bind_addr(&UnixAddr::from_abstract_name("x").unwrap()));
                assert_out_of_descriptors(UnixStream::connect_addr(&name));
                assert_out_of_descriptors(UnixStream::pair());
                assert_out_of_descriptors(UnixDatagram::unbound());
                assert_out_of_descriptors(UnixDatagram::pair());
                assert_out_of_descriptors(listener.try_clone());
                assert_out_of_descriptors(here.try_clone());
            }
            // One is not enough for two.
            let rest: Vec<_> = rest.into_iter().skip(1).collect();
            assert_out_of_descriptors(UnixStream::pair());
            assert_out_of_descriptors(UnixDatagram::pair());
            // What there is works on: waiting needs none.
            here.set_read_timeout(Some(Duration::from_millis(3))).unwrap();
            assert_eq!((&here).read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
            (&there).write_all(b"x").unwrap();
            assert_eq!((&here).read(&mut [0; 4]).unwrap(), 1);
            assert_eq!(listener.accept_timeout(Duration::from_millis(3)).unwrap_err().kind(), ErrorKind::TimedOut);
            // And one is enough for one.
            drop(UnixStream::connect_addr(&name).unwrap());
            drop(TcpStream::connect(address).unwrap());
            drop((rest, unix));
            drop(TcpStream::connect(address).unwrap());
        });
    });
}

// `accept` says so, again and again, and keeps the connections; `incoming` waits, and then serves them all, in order.
#[test]
#[cfg_attr(fibra_tsan, ignore = "the sanitizer opens and closes descriptors of its own: no limit is exact")]
fn accepting() {
    scarce("accepting", |runtime| {
        const CLIENTS: usize = 20;
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let address = listener.local_addr().unwrap();
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        let rest = hoard(0);
        let accepting = listener.clone();
        runtime.run(move || {
            for _ in 0..3 {
                assert_out_of_descriptors(accepting.accept());
                assert_out_of_descriptors(accepting.try_accept());
                fibra::select! {
                    on(accepting.accepting()) -> accepted => assert_out_of_descriptors(accepted),
                }
            }
        });
        let incoming = listener.clone();
        let server = runtime.spawn(move || {
            for (n, stream) in incoming.incoming().take(CLIENTS).enumerate() {
                stream.unwrap().write_all(&[n as u8]).unwrap();
            }
        });
        support::eventually(|| runtime.metrics().parked == 1, || "it pauses".to_owned());
        // Meanwhile others run, and it does not turn in circles: it wakes 1, 2, 4, 8.. milliseconds later.
        let before = runtime.metrics().switches;
        runtime.run(|| fibra::sleep(Duration::from_millis(100)));
        let switches = runtime.metrics().switches - before;
        assert!(!server.is_finished() && switches < 200, "{switches} switches");
        // One free descriptor is enough: each is closed before the next is accepted.
        let rest: Vec<_> = rest.into_iter().skip(1).collect();
        for (n, client) in clients.iter_mut().enumerate() {
            let mut said = Vec::new();
            client.read_to_end(&mut said).unwrap();
            assert_eq!(said, [n as u8]);
        }
        server.join().unwrap();
        drop(rest);
    });
}

// Cancelled while it pauses for want of descriptors.
#[test]
#[cfg_attr(fibra_tsan, ignore = "the sanitizer opens and closes descriptors of its own: no limit is exact")]
fn cancelled_while_it_pauses() {
    scarce("cancelled_while_it_pauses", |runtime| {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let rest = hoard(0);
        for _ in 0..10 {
            let incoming = listener.clone();
            let server = runtime.spawn(move || incoming.incoming().next().map(|stream| stream.is_ok()));
            support::eventually(|| runtime.metrics().parked == 1, || "it pauses".to_owned());
            server.cancel();
            assert!(server.join().unwrap_err().is_cancelled());
        }
        drop(rest);
        assert_eq!(listener.accept().unwrap().1, client.local_addr().unwrap(), "the connection is still there");
    });
}

// A runtime cannot be built, and says what it needs; a thread in a scope cannot wait for a socket, and says so.
#[test]
#[cfg_attr(fibra_tsan, ignore = "the sanitizer opens and closes descriptors of its own: no limit is exact")]
fn drivers() {
    scarce("drivers", |runtime| {
        let (here, there) = UnixStream::pair().unwrap();
        let rest = hoard(1);
        let error = Runtime::builder().workers(1).build().unwrap_err();
        assert!(error.to_string().contains("ulimit -n"), "{error}");
        let handle = runtime.handle();
        let _entered = handle.enter();
        // The driver of plain threads needs two. Once it is there, it stays.
        let read = fibra::scope(|_| {
            here.set_read_timeout(Some(Duration::from_millis(3))).unwrap();
            (&here).read(&mut [0]).unwrap_err()
        });
        let is_expected = read.kind() == ErrorKind::TimedOut || read.to_string().contains("cannot create");
        assert!(is_expected, "{read:?}");
        fibra::select! {
            on(here.readable()) -> ready => assert!(ready.is_err()),
            after(Duration::from_millis(3)) => {}
        }
        drop(rest);
        fibra::scope(|_| {
            assert_eq!((&here).read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
            (&there).write_all(b"x").unwrap();
            assert_eq!((&here).read(&mut [0]).unwrap(), 1);
        });
    });
}
