//! TCP on fibers: against clients and servers of std, both ways; streams as std documents them; many connections at once.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::ends::{listener, pair, raised_limit};
use crate::support::{self, alone, workers};
use fibra::channel;
use fibra::net::{TcpListener, TcpStream, ToSocketAddrs, lookup_host};

fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => return,
            len => stream.write_all(&buffer[..len]).unwrap(),
        }
    }
}

#[test]
fn clients_of_std_are_served() {
    let _watchdog = support::watchdog(60);
    let runtime = workers(2);
    let (listener, address) = listener();
    let server = runtime.spawn(move || {
        fibra::scope(|s| {
            for stream in listener.incoming().take(8) {
                let stream = stream.unwrap();
                s.spawn(move || echo(stream));
            }
        });
    });
    let clients: Vec<_> = (0..8_u8)
        .map(|n| {
            std::thread::spawn(move || {
                let mut stream = std::net::TcpStream::connect(address).unwrap();
                for round in 0..200_u8 {
                    stream.write_all(&[n, round, 3]).unwrap();
                    let mut answer = [0; 3];
                    stream.read_exact(&mut answer).unwrap();
                    assert_eq!(answer, [n, round, 3]);
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    server.join().unwrap();
}

#[test]
fn servers_of_std_are_used() {
    let _watchdog = support::watchdog(60);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        for _ in 0..4 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            all.reverse();
            stream.write_all(&all).unwrap();
        }
    });
    workers(2).run(|| {
        for n in 0..4_usize {
            let stream = TcpStream::connect(address).unwrap();
            assert_eq!(stream.peer_addr().unwrap(), address);
            let said: Vec<u8> = (0..100_000 * n + 5).map(|at| at as u8).collect();
            (&stream).write_all(&said).unwrap();
            // Half-close: the other direction goes on.
            stream.shutdown(Shutdown::Write).unwrap();
            let mut heard = Vec::new();
            (&stream).read_to_end(&mut heard).unwrap();
            heard.reverse();
            assert!(heard == said);
        }
    });
    server.join().unwrap();
}

// Two fibers of different workers on one stream, whose directions are registered apart, and the same on one worker.
#[test]
fn one_reads_while_another_writes() {
    let _watchdog = support::watchdog(60);
    for count in [1, 2] {
        workers(count).run(|| {
            let (here, there) = pair();
            const BYTES: usize = 3 << 20;
            fibra::scope(|s| {
                for stream in [&here, &there] {
                    let mut writing = stream;
                    s.spawn(move || {
                        let chunk: Vec<u8> = (0..64 * 1024).map(|at| at as u8).collect();
                        for _ in 0..BYTES / chunk.len() {
                            writing.write_all(&chunk).unwrap();
                        }
                    });
                    let mut reading = stream;
                    s.spawn(move || {
                        let mut all = vec![0; BYTES];
                        reading.read_exact(&mut all).unwrap();
                        assert!(all.iter().enumerate().all(|(at, byte)| *byte == at as u8));
                    });
                }
            });
        });
    }
}

// A stream goes from worker to worker: its registration moves along, and no edge is lost on the way.
#[test]
fn a_stream_is_used_on_every_worker_stress() {
    let _watchdog = support::watchdog(120);
    let runtime = workers(3);
    runtime.run(|| {
        let (here, there) = pair();
        let server = fibra::spawn(move || echo(there));
        let here = Arc::new(here);
        for round in 0..300_u32 {
            let stream = here.clone();
            let used = fibra::Builder::new().spread().spawn(move || {
                let mut stream = &*stream;
                stream.write_all(&round.to_le_bytes()).unwrap();
                let mut answer = [0; 4];
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(u32::from_le_bytes(answer), round);
            });
            used.unwrap().join().unwrap();
        }
        drop(here);
        server.join().unwrap();
    });
}

// Several fibers of several workers wait for one direction; the home moves to the last waiter, and all of them are told.
#[test]
fn many_read_one_stream_stress() {
    let _watchdog = support::watchdog(120);
    let runtime = workers(3);
    let total = Arc::new(AtomicUsize::new(0));
    let counted = total.clone();
    runtime.run(move || {
        let (here, mut there) = pair();
        fibra::scope(|s| {
            for _ in 0..6 {
                let (mut stream, total) = (&here, &counted);
                s.spawn(move || {
                    let mut byte = [0];
                    while stream.read(&mut byte).unwrap() == 1 {
                        total.fetch_add(1, SeqCst);
                    }
                });
            }
            for round in 0..2000 {
                there.write_all(&[1]).unwrap();
                if round % 7 == 0 {
                    fibra::yield_now();
                }
            }
            drop(there);
        });
    });
    assert_eq!(total.load(SeqCst), 2000);
}

#[test]
fn a_thousand_connections() {
    if !alone("a_thousand_connections") {
        return;
    }
    let _watchdog = support::watchdog(120);
    let before = support::fds();
    let runtime = workers(2);
    let count = raised_limit(2200).saturating_sub(200).min(2000) / 2;
    assert!(count >= 400, "a limit of 1024 descriptors is what every system gives");
    runtime.run(move || {
        let (listener, address) = listener();
        fibra::scope(|s| {
            s.spawn(|| {
                fibra::scope(|s| {
                    for stream in listener.incoming().take(count) {
                        let stream = stream.unwrap();
                        s.spawn(move || echo(stream));
                    }
                });
            });
            let streams: Vec<_> = (0..count).map(|_| TcpStream::connect(address).unwrap()).collect();
            for round in 0..5_u8 {
                for mut stream in &streams {
                    stream.write_all(&[round; 64]).unwrap();
                }
                for mut stream in &streams {
                    let mut answer = [0; 64];
                    stream.read_exact(&mut answer).unwrap();
                    assert_eq!(answer, [round; 64]);
                }
            }
        });
    });
    drop(runtime);
    assert!(support::fds() <= before, "{} descriptors before, {} after", before, support::fds());
}

#[test]
fn streams_do_what_std_documents() {
    let _watchdog = support::watchdog(60);
    workers(1).run(|| {
        let (here, there) = pair();
        // Zero bytes: at once, although nothing is there to be read.
        assert_eq!((&here).read(&mut []).unwrap(), 0);
        assert_eq!((&here).write(&[]).unwrap(), 0);
        assert_eq!(here.peek(&mut []).unwrap(), 0);
        // Vectored, and peeked at.
        assert_eq!((&here).write_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b"cde")]).unwrap(), 5);
        let mut peeked = [0; 5];
        assert_eq!(there.peek(&mut peeked).unwrap(), 5);
        let (mut one, mut two) = ([0; 3], [0; 8]);
        let read = (&there).read_vectored(&mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)]).unwrap();
        assert_eq!((read, &one, &two[..2], &peeked), (5, b"abc", &b"de"[..], b"abcde"));
        (&here).flush().unwrap();
        // Options.
        here.set_nodelay(true).unwrap();
        assert!(here.nodelay().unwrap() && !there.nodelay().unwrap());
        here.set_ttl(43).unwrap();
        assert_eq!(here.ttl().unwrap(), 43);
        assert_eq!(here.local_addr().unwrap(), there.peer_addr().unwrap());
        assert!(here.take_error().unwrap().is_none());
        assert_eq!(here.set_read_timeout(Some(Duration::ZERO)).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(format!("{here:?}").contains("addr"));
        // Clones share the connection and the time-outs.
        let clone = here.try_clone().unwrap();
        here.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        assert_eq!(clone.read_timeout().unwrap(), Some(Duration::from_millis(5)));
        assert_eq!((&clone).read(&mut [0; 4]).unwrap_err().kind(), ErrorKind::TimedOut);
        drop(here);
        (&there).write_all(b"still").unwrap();
        let mut heard = [0; 5];
        (&clone).read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"still");
        // Halves.
        let (mut reading, mut writing) = clone.into_split();
        writing.write_all(b"x").unwrap();
        drop(writing);
        let mut all = String::new();
        (&there).read_to_string(&mut all).unwrap();
        assert_eq!(all, "x");
        (&there).write_all(b"y").unwrap();
        assert_eq!(reading.read(&mut heard).unwrap(), 1);
        let (other, _) = pair().0.into_split();
        let (reading, writing) = there.into_split();
        let error = other.reunite(writing).unwrap_err();
        assert!(error.to_string().contains("different"));
        assert!(reading.reunite(error.1).is_ok());
    });
}

#[test]
fn they_convert_from_and_to_std() {
    let _watchdog = support::watchdog(60);
    let (here, there) = pair();
    let mut there: std::net::TcpStream = there.into();
    let writing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(10));
        there.write_all(b"abc").unwrap();
        there
    });
    // Blocking again: a read waits.
    let mut here: std::net::TcpStream = here.into();
    let mut byte = [0];
    here.read_exact(&mut byte).unwrap();
    let there = writing.join().unwrap();
    let here = TcpStream::from(here);
    assert_eq!(here.as_fd().as_raw_fd(), here.as_raw_fd());
    // SAFETY: it was just given up by its owner.
    let here = unsafe { TcpStream::from_raw_fd(here.into_raw_fd()) };
    let here = TcpStream::from(OwnedFd::from(here));
    workers(1).run(|| {
        let mut rest = [0; 2];
        (&here).read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"bc");
        drop(there);
        assert_eq!((&here).read(&mut rest).unwrap(), 0);
    });
    let (listener, address) = listener();
    let listener: std::net::TcpListener = listener.into();
    assert_eq!(TcpListener::from(listener).local_addr().unwrap(), address);
}

// Plain threads, with and without a runtime anywhere.
#[test]
fn plain_threads_use_them_too() {
    let _watchdog = support::watchdog(60);
    let (listener, address) = listener();
    let server = std::thread::spawn(move || echo(listener.accept().unwrap().0));
    let stream = TcpStream::connect(address).unwrap();
    for round in 0..100_u8 {
        (&stream).write_all(&[round; 10]).unwrap();
        let mut answer = [0; 10];
        (&stream).read_exact(&mut answer).unwrap();
        assert_eq!(answer, [round; 10]);
    }
    stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    assert_eq!((&stream).read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
    drop(stream);
    server.join().unwrap();
}

#[test]
fn a_stream_goes_between_fibers_and_threads() {
    let _watchdog = support::watchdog(60);
    let runtime = workers(2);
    let (here, there) = pair();
    let server = runtime.spawn(move || echo(there));
    let mut here = Some(here);
    for round in 0..50_u8 {
        let stream = here.take().unwrap();
        let talk = move || {
            (&stream).write_all(&[round]).unwrap();
            let mut answer = [0];
            (&stream).read_exact(&mut answer).unwrap();
            assert_eq!(answer, [round]);
            stream
        };
        here = Some(if round % 2 == 0 { runtime.run(talk) } else { talk() });
    }
    drop(here);
    server.join().unwrap();
}

#[test]
fn names_are_looked_up() {
    let _watchdog = support::watchdog(60);
    workers(1).run(|| {
        let found: Vec<_> = lookup_host(("localhost", 80)).unwrap().collect();
        assert!(!found.is_empty() && found.iter().all(|address| address.ip().is_loopback() && address.port() == 80));
        assert!("not an address".to_socket_addrs().is_err());
        assert!(("256.0.0.1:bad").to_socket_addrs().is_err());
        let several: &[SocketAddr] = &["127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()];
        assert_eq!(several.to_socket_addrs().unwrap().count(), 2);
        // The first that answers.
        let (listener, address) = listener();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let both: &[SocketAddr] = &[closed, address];
        assert_eq!(TcpStream::connect(both).unwrap().peer_addr().unwrap(), address);
        drop(listener);
        let none: &[SocketAddr] = &[];
        assert_eq!(TcpStream::connect(none).unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

// A fiber that yields for ever keeps no fiber from hearing of its socket, and sockets that are always ready keep no fiber from running.
#[test]
fn no_fiber_starves() {
    let _watchdog = support::watchdog(60);
    let runtime = workers(1);
    runtime.run(|| {
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let yielding = fibra::spawn(move || {
            while !seen.load(SeqCst) {
                fibra::yield_now();
            }
        });
        // The peer is a thread, so that nothing here wakes this worker but its driver.
        let (here, there) = pair();
        let peer = std::thread::spawn(move || echo(there));
        for _ in 0..20 {
            (&here).write_all(b"x").unwrap();
            (&here).read_exact(&mut [0]).unwrap();
        }
        done.store(true, SeqCst);
        yielding.join().unwrap();
        drop(here);
        peer.join().unwrap();
    });
    // The other way round: 50 pairs that never run dry, and one fiber that counts.
    runtime.run(|| {
        let stop = AtomicBool::new(false);
        let transferred = AtomicU64::new(0);
        fibra::scope(|s| {
            for _ in 0..50 {
                let (here, there) = pair();
                let (stop, transferred) = (&stop, &transferred);
                s.spawn(move || {
                    let (mut here, mut there) = (&here, &there);
                    while !stop.load(SeqCst) {
                        here.write_all(&[1; 512]).unwrap();
                        there.read_exact(&mut [0; 512]).unwrap();
                        transferred.fetch_add(1, SeqCst);
                    }
                });
            }
            let before = transferred.load(SeqCst);
            for _ in 0..50 {
                fibra::yield_now();
            }
            // Timers too.
            fibra::sleep(Duration::from_millis(1));
            assert!(transferred.load(SeqCst) > before, "and the sockets have had their turn");
            stop.store(true, SeqCst);
        });
    });
}

#[test]
fn sockets_are_arms_of_a_select() {
    let _watchdog = support::watchdog(60);
    for on_thread in [false, true] {
        let runtime = workers(2);
        let test = move || {
            let (listener, address) = listener();
            let (tx, rx) = channel::bounded::<u8>(1);
            // Nothing is possible: the channel's turn comes, and the listener is as it was.
            fibra::select! {
                on(listener.accepting()) -> _accepted => panic!("no client connects"),
                recv(rx) -> _message => panic!("no sender sends"),
                after(Duration::from_millis(5)) => {}
            }
            let sending = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(5));
                tx.send(3).unwrap();
                tx
            });
            fibra::select! {
                on(listener.accepting()) -> _accepted => panic!("no client connects"),
                recv(rx) -> message => assert_eq!(message, Ok(3)),
            }
            let _tx = sending.join().unwrap();
            let mut streams = Vec::new();
            for round in 0..20 {
                // Before or while it waits.
                let connecting = std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_micros(100 * round));
                    std::net::TcpStream::connect(address).unwrap()
                });
                fibra::select! {
                    on(listener.accepting()) -> accepted => streams.push(accepted.unwrap().0),
                    recv(rx) -> _message => panic!("no sender sends"),
                }
                let mut client = connecting.join().unwrap();
                let stream = streams.last().unwrap();
                fibra::select_biased! {
                    on(stream.writable()) -> ready => ready.unwrap(),
                    default => panic!("a new connection can be written to"),
                }
                fibra::select! {
                    on(stream.readable()) -> _ready => panic!("nothing was sent"),
                    default => {}
                }
                let writing = std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_micros(100 * round));
                    client.write_all(b"now").unwrap();
                    client
                });
                fibra::select! {
                    recv(rx) -> _message => panic!("no sender sends"),
                    on(stream.readable()) -> ready => ready.unwrap(),
                }
                let mut word = [0; 3];
                (&*stream).read_exact(&mut word).unwrap();
                assert_eq!(&word, b"now");
                drop(writing.join().unwrap());
            }
        };
        if on_thread { test() } else { runtime.run(test) }
    }
}
