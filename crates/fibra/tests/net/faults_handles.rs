//! Handles to sockets in odd hands: clones, duplicates, other workers and plain threads; numbers of descriptors that are used again; edges
//! that come at the wrong moment. Each test is alone in its process and leaves as many descriptors as it found.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::ends::pair;
use crate::support::{self, until_parked};
use crate::tools::{Rng, turns};
use fibra::net::{TcpListener, TcpStream, UdpSocket, UnixStream};
use fibra::{Builder, Runtime};

/// Runs the test in a process of its own, on a runtime with three workers, and counts descriptors.
fn faults(name: &str, test: impl FnOnce(&Runtime)) {
    if !support::is_child(name) {
        let ended = support::rerun_self(name, &[]);
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    let _watchdog = support::watchdog(50);
    let before = support::fds();
    let runtime = Runtime::builder().workers(3).build().unwrap();
    test(&runtime);
    drop(runtime);
    // The driver of plain threads stays: two descriptors.
    assert!(support::fds() <= before + 2, "{before} descriptors before, {} after", support::fds());
}

fn spread<T: Send + 'static>(runtime: &Runtime, f: impl FnOnce() -> T + Send + 'static) -> fibra::JoinHandle<T> {
    runtime.handle().spawn_with(Builder::new().spread(), f).unwrap()
}

// A socket is waited for on each worker, on a thread, and on a thread in a scope, in turn; each time it waits before the byte comes. The
// registration moves along; an earlier waiter gets nothing and misses nothing.
#[test]
fn a_socket_goes_round() {
    faults("a_socket_goes_round", |runtime| {
        let (here, there) = UnixStream::pair().unwrap();
        let here = Arc::new(here);
        for round in 0..40_u8 {
            let stream = here.clone();
            let read = move || {
                let mut byte = [0];
                (&*stream).read_exact(&mut byte).unwrap();
                byte[0]
            };
            match round % 5 {
                0 => {
                    let thread = std::thread::spawn(read);
                    std::thread::sleep(Duration::from_millis(1));
                    (&there).write_all(&[round]).unwrap();
                    assert_eq!(thread.join().unwrap(), round);
                }
                1 => {
                    let handle = runtime.handle();
                    let thread = std::thread::spawn(move || {
                        let _entered = handle.enter();
                        fibra::scope(|_| read())
                    });
                    std::thread::sleep(Duration::from_millis(1));
                    (&there).write_all(&[round]).unwrap();
                    assert_eq!(thread.join().unwrap(), round);
                }
                _ => {
                    let fiber = spread(runtime, read);
                    until_parked(runtime, 1);
                    (&there).write_all(&[round]).unwrap();
                    assert_eq!(fiber.join().unwrap(), round);
                }
            }
        }
    });
}

// Several wait for one direction of one socket, on all workers and on threads; the last waiter has the registration, and all are told.
#[test]
fn all_of_them_wait_for_one_socket() {
    faults("all_of_them_wait_for_one_socket", |runtime| {
        for round in 0..10 {
            let (here, there) = UnixStream::pair().unwrap();
            let here = Arc::new(here);
            let fibers: Vec<_> = (0..6)
                .map(|n| {
                    let stream = here.clone();
                    let fiber = spread(runtime, move || (&*stream).read(&mut [0]).unwrap());
                    if round % 2 == 0 {
                        until_parked(runtime, n + 1);
                    }
                    fiber
                })
                .collect();
            let (handle, stream) = (runtime.handle(), here.clone());
            let thread = std::thread::spawn(move || {
                let _entered = handle.enter();
                fibra::scope(|_| (&*stream).read(&mut [0]).unwrap())
            });
            until_parked(runtime, 6);
            // One byte each, one after the other, then the end for one.
            for _ in 0..6 {
                (&there).write_all(b"x").unwrap();
            }
            there.shutdown(Shutdown::Write).unwrap();
            let got: usize = fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum();
            assert_eq!(got + thread.join().unwrap(), 6);
        }
    });
}

// Clones have registrations of their own: one is dropped on another worker, after it has waited there, while the other waits here.
#[test]
fn a_clone_is_dropped_while_another_waits() {
    faults("a_clone_is_dropped_while_another_waits", |runtime| {
        for round in 0..20_u8 {
            let (here, there) = pair();
            let clone = here.try_clone().unwrap();
            clone.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
            let (clone, kind) = spread(runtime, move || {
                let kind = (&clone).read(&mut [0]).unwrap_err().kind();
                (clone, kind)
            })
            .join()
            .unwrap();
            assert_eq!(kind, ErrorKind::TimedOut);
            here.set_read_timeout(None).unwrap();
            let waiting = spread(runtime, move || {
                let mut byte = [0];
                (&here).read_exact(&mut byte).unwrap();
                byte[0]
            });
            until_parked(runtime, 1);
            match round % 2 {
                0 => drop(clone),
                _ => spread(runtime, move || drop(clone)).join().unwrap(),
            }
            (&there).write_all(&[round]).unwrap();
            assert_eq!(waiting.join().unwrap(), round);
        }
    });
}

// The description lives on in a duplicate that fibra knows nothing of. After the socket is closed, nothing that happens to it reaches
// the socket in the place of the old one: number, source and all.
#[test]
fn a_duplicate_outlives_the_socket() {
    faults("a_duplicate_outlives_the_socket", |runtime| {
        runtime.run(|| {
            for _ in 0..20 {
                let (old, mut old_peer) = UnixStream::pair().unwrap();
                old.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
                assert_eq!((&old).read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut, "registered");
                let (number, duplicate) = (old.as_raw_fd(), old.as_fd().try_clone_to_owned().unwrap());
                drop(old);
                let (new, mut new_peer) = UnixStream::pair().unwrap();
                assert!(new.as_raw_fd() == number || new_peer.as_raw_fd() == number, "the number is used again");
                // Waiting for readiness is exact: one event of the past would end it.
                for stream in [&new, &new_peer] {
                    old_peer.write_all(b"for the old one").unwrap();
                    fibra::select! {
                        on(stream.readable()) -> _ready => panic!("that was for another socket"),
                        after(Duration::from_millis(2)) => {}
                    }
                }
                new_peer.write_all(b"x").unwrap();
                assert_eq!((&new).read(&mut [0; 4]).unwrap(), 1);
                drop(duplicate);
                assert_eq!(old_peer.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
            }
        });
    });
}

// An event of a socket is fetched, and before it is brought the socket is closed and its place used again: sockets that are closed by
// any reader first, with events for all of them under way.
#[test]
fn a_place_is_used_again_at_once() {
    faults("a_place_is_used_again_at_once", |runtime| {
        runtime.run(|| {
            for _ in 0..turns(30) {
                // All become readable within one look of the worker at its driver.
                let pairs: Vec<_> = (0..16).map(|_| UnixStream::pair().unwrap()).collect();
                let others: Vec<_> = pairs.iter().map(|(_, there)| there.try_clone().unwrap()).collect();
                let shared = Arc::new(fibra::sync::Mutex::new(pairs));
                let fibers: Vec<_> = (0..16)
                    .map(|n| {
                        let shared = shared.clone();
                        fibra::spawn_local(move || {
                            let here = shared.lock()[n].0.try_clone().unwrap();
                            let mut byte = [0];
                            (&here).read_exact(&mut byte).unwrap();
                            drop(here);
                            // In its place, with an event of its own to wait for.
                            let (new, mut peer) = UnixStream::pair().unwrap();
                            new.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
                            fibra::select! {
                                on(new.readable()) -> _ready => panic!("an event of the past"),
                                after(Duration::from_micros(200)) => {}
                            }
                            peer.write_all(&byte).unwrap();
                            (&new).read_exact(&mut byte).unwrap();
                            byte[0]
                        })
                    })
                    .collect();
                fibra::yield_now();
                for (n, other) in others.iter().enumerate() {
                    let mut other = other;
                    other.write_all(&[n as u8]).unwrap();
                }
                for (n, fiber) in fibers.into_iter().enumerate() {
                    assert_eq!(fiber.join().unwrap(), n as u8);
                }
            }
        });
    });
}

// Waited for on one worker, with the registration on another, and closed on a third: by a fiber that is cancelled, by the last of its
// owners, by the one that shut it down.
#[test]
fn closed_elsewhere() {
    faults("closed_elsewhere", |runtime| {
        for round in 0..30 {
            let (here, there) = pair();
            let here = Arc::new(here);
            let waiting: Vec<_> = (0..3)
                .map(|n| {
                    let stream = here.clone();
                    spread(runtime, move || match n {
                        0 => (&*stream).write_all(&vec![0; 32 << 20]).is_err(),
                        _ => (&*stream).read(&mut [0]).is_ok_and(|len| len == 0),
                    })
                })
                .collect();
            until_parked(runtime, 3);
            match round % 3 {
                // The last handle goes with the last of the fibers, wherever that is.
                0 => {
                    drop(here);
                    waiting.iter().for_each(|fiber| fiber.cancel());
                    assert!(waiting.into_iter().all(|fiber| fiber.join().unwrap_err().is_cancelled()));
                    let mut rest = Vec::new();
                    let _ = (&there).read_to_end(&mut rest);
                }
                1 => {
                    spread(runtime, move || here.shutdown(Shutdown::Both).unwrap()).join().unwrap();
                    assert!(waiting.into_iter().all(|fiber| fiber.join().unwrap()));
                }
                _ => {
                    // Handed to the one that closes it, after its fibers have gone.
                    waiting.iter().for_each(|fiber| fiber.cancel());
                    waiting.into_iter().for_each(|fiber| drop(fiber.join()));
                    let here = Arc::into_inner(here).expect("all others are gone");
                    spread(runtime, move || drop(here)).join().unwrap();
                    let mut rest = Vec::new();
                    let _ = (&there).read_to_end(&mut rest);
                }
            }
        }
    });
}

// A byte comes between the try and the wait, or before, or after: for many moments, with the reader on one worker, on another than before,
// and on a thread.
#[test]
fn no_edge_is_lost_stress() {
    faults("no_edge_is_lost_stress", |runtime| {
        let mut rng = Rng::new();
        let rounds = turns(3_000);
        for kind in 0..3 {
            let (here, there) = UnixStream::pair().unwrap();
            let (here, got) = (Arc::new(here), Arc::new(AtomicUsize::new(0)));
            let (stream, counted) = (here.clone(), got.clone());
            let reader: Box<dyn FnOnce() + Send> = match kind {
                // One fiber.
                0 => {
                    let fiber = runtime.spawn(move || {
                        for _ in 0..rounds {
                            (&*stream).read_exact(&mut [0]).unwrap();
                            counted.fetch_add(1, SeqCst);
                        }
                    });
                    Box::new(move || fiber.join().unwrap())
                }
                // Another one each time, on another worker.
                1 => {
                    let fiber = runtime.spawn(move || {
                        for _ in 0..rounds {
                            let (stream, counted) = (stream.clone(), counted.clone());
                            let read = Builder::new().spread().spawn(move || {
                                (&*stream).read_exact(&mut [0]).unwrap();
                                counted.fetch_add(1, SeqCst);
                            });
                            read.unwrap().join().unwrap();
                        }
                    });
                    Box::new(move || fiber.join().unwrap())
                }
                // A thread in a scope, whose completions come from a thread of their own.
                _ => {
                    let handle = runtime.handle();
                    let thread = std::thread::spawn(move || {
                        let _entered = handle.enter();
                        fibra::scope(|_| {
                            for _ in 0..rounds {
                                (&*stream).read_exact(&mut [0]).unwrap();
                                counted.fetch_add(1, SeqCst);
                            }
                        });
                    });
                    Box::new(move || thread.join().unwrap())
                }
            };
            let mut there = &there;
            for round in 0..rounds {
                // The next byte comes when the last was read, a random moment later: a lost edge is the end of it.
                while got.load(SeqCst) < round {
                    std::hint::spin_loop();
                    std::thread::yield_now();
                }
                for _ in 0..rng.below(600) {
                    std::hint::spin_loop();
                }
                there.write_all(b"x").unwrap();
            }
            reader();
        }
    });
}

// Reading less than there is, and then the rest: the edge has been told once, and is not told again.
#[test]
fn reading_piece_by_piece() {
    faults("reading_piece_by_piece", |runtime| {
        let (here, there) = UnixStream::pair().unwrap();
        let reader = runtime.spawn(move || {
            let (mut sum, mut piece) = (0, [0; 3]);
            loop {
                match (&here).read(&mut piece).unwrap() {
                    0 => return sum,
                    len => sum += piece[..len].iter().map(|byte| usize::from(*byte)).sum::<usize>(),
                }
            }
        });
        let mut expected = 0;
        for round in 0..500_usize {
            until_parked(runtime, 1);
            let words: Vec<u8> = (0..round % 11 + 1).map(|at| (at * round) as u8).collect();
            expected += words.iter().map(|byte| usize::from(*byte)).sum::<usize>();
            (&there).write_all(&words).unwrap();
        }
        drop(there);
        assert_eq!(reader.join().unwrap(), expected);
        // Datagrams: several in the queue, told of once.
        let (one, two) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let to = two.local_addr().unwrap();
        let receiver = runtime.spawn(move || (0..50).map(|_| two.recv(&mut [0; 4]).unwrap()).sum::<usize>());
        until_parked(runtime, 1);
        for _ in 0..50 {
            one.send_to(b"abc", to).unwrap();
        }
        assert_eq!(receiver.join().unwrap(), 150);
        // Connections: several in the queue, told of once.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = runtime.spawn(move || listener.incoming().take(50).filter(|stream| stream.is_ok()).count());
        until_parked(runtime, 1);
        let clients: Vec<_> = (0..50).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        assert_eq!(acceptor.join().unwrap(), clients.len());
    });
}

// What was converted to a stream need not be TCP: of a socket that keeps packets apart, a short read is not the last.
#[test]
fn packets_as_a_stream() {
    faults("packets_as_a_stream", |_| {
        let mut pair = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the call writes two descriptors, for which there is room.
        assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) }, 0);
        // SAFETY: just opened, and of this test alone.
        let [here, there] = pair.map(|number| unsafe { OwnedFd::from_raw_fd(number) });
        Runtime::builder().workers(1).build().unwrap().run(move || {
            let (here, there) = (TcpStream::from(here), TcpStream::from(there));
            let reading = fibra::spawn_local(move || {
                let mut packet = [0; 16];
                (0..4).map(|_| (&here).read(&mut packet).unwrap()).collect::<Vec<_>>()
            });
            fibra::yield_now();
            // It waits. All of them come at once, while it cannot run: it is told once.
            for len in 1..=4 {
                (&there).write_all(&[0; 16][..len]).unwrap();
            }
            assert_eq!(reading.join().unwrap(), [1, 2, 3, 4]);
        });
    });
}

// Two fibers in one stream, in both directions, at both ends, while handles of it come and go.
#[test]
fn both_directions_while_handles_come_and_go() {
    faults("both_directions_while_handles_come_and_go", |runtime| {
        const BYTES: usize = 2 << 20;
        let (here, there) = pair();
        runtime.run(|| {
            fibra::scope(|s| {
                for stream in [&here, &there] {
                    s.spawn(move || {
                        let mut rng = Rng::new();
                        let all: Vec<u8> = (0..BYTES).map(|at| ((at * 3) >> 2) as u8).collect();
                        let mut written = 0;
                        while written < BYTES {
                            let handle = stream.try_clone().unwrap();
                            let end = BYTES.min(written + 1 + rng.below(100_000));
                            (&handle).write_all(&all[written..end]).unwrap();
                            written = end;
                        }
                    });
                    s.spawn(move || {
                        let mut rng = Rng::new();
                        let mut at = 0;
                        while at < BYTES {
                            let handle = stream.try_clone().unwrap();
                            let mut piece = vec![0; (1 + rng.below(100_000)).min(BYTES - at)];
                            (&handle).read_exact(&mut piece).unwrap();
                            let right = |(n, byte): (usize, &u8)| *byte == (((at + n) * 3) >> 2) as u8;
                            assert!(piece.iter().enumerate().all(right));
                            at += piece.len();
                        }
                    });
                }
            });
        });
    });
}
