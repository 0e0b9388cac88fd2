//! Nothing starves: neither sockets by fibers, nor fibers by sockets, nor a worker by one socket that is always ready. What is compared are
//! turns, not times: how often the one got on while the other did.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::support::{self, workers};
use crate::tools;
use crate::tools::turns;
use fibra::Scope;
use fibra::net::{TcpListener, TcpStream, UdpSocket, UnixStream};

/// Sends back what it gets, on a thread: nothing wakes a worker but its driver.
fn echo_thread() -> (UnixStream, std::thread::JoinHandle<()>) {
    let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || drop(std::io::copy(&mut &there, &mut &there)));
    (here.into(), thread)
}

// Fibers that yield for ever, on every worker: sockets are heard, timers fire, mail comes.
#[test]
fn yielding_fibers_starve_no_socket() {
    let _watchdog = support::watchdog(60);
    for count in [1, 2] {
        let stop = AtomicBool::new(false);
        let (echoing, threads): (Vec<_>, Vec<_>) = (0..4).map(|_| echo_thread()).unzip();
        workers(count).run(|| {
            fibra::scope(|s| {
                for _ in 0..20 {
                    s.spawn(|| {
                        while !stop.load(SeqCst) {
                            fibra::yield_now();
                        }
                    });
                }
                fibra::scope(|s| {
                    for mut stream in &echoing {
                        s.spawn(move || {
                            for round in 0..50_u8 {
                                stream.write_all(&[round]).unwrap();
                                let mut answer = [0];
                                stream.read_exact(&mut answer).unwrap();
                                assert_eq!(answer, [round]);
                            }
                        });
                    }
                    s.spawn(|| (0..10).for_each(|_| fibra::sleep(Duration::from_micros(300))));
                    s.spawn(|| {
                        let (tx, rx) = fibra::channel::bounded(1);
                        let sending = std::thread::spawn(move || (0..100).try_for_each(|n| tx.send(n)));
                        assert_eq!(rx.iter().count(), 100);
                        fibra::blocking(|| sending.join().unwrap().unwrap());
                    });
                });
                stop.store(true, SeqCst);
            });
        });
        drop(echoing);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// One fiber is always ready and gets on `rounds` times; its neighbour on the one worker yields. Both are counted: the neighbour must have
/// had a turn for every few of the other's.
fn beside_a_neighbour(rounds: u64, mut get_on: impl FnMut()) {
    const MOST_PER_TURN: u64 = 40;
    let (stop, fired, turns) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    fibra::scope(|s| {
        s.spawn_local(|| {
            while !stop.load(SeqCst) {
                turns.fetch_add(1, SeqCst);
                fibra::yield_now();
            }
        });
        // A timer that is due soon must fire, however ready the socket is.
        s.spawn_local(|| {
            fibra::sleep(Duration::from_millis(1));
            fired.store(true, SeqCst);
        });
        fibra::yield_now();
        let before = turns.load(SeqCst);
        for _ in 0..rounds {
            get_on();
        }
        let had = turns.load(SeqCst) - before;
        assert!(had >= rounds / MOST_PER_TURN, "{had} turns of the neighbour, {rounds} operations of the other");
        while !fired.load(SeqCst) {
            get_on();
        }
        stop.store(true, SeqCst);
    });
}

#[test]
fn a_socket_that_is_always_ready_leaves_its_worker_to_others() {
    let _watchdog = support::watchdog(60);
    let rounds = turns(4_000) as u64;
    workers(1).run(|| {
        // Reads, of what is there already.
        let (mut here, mut there) = UnixStream::pair().unwrap();
        beside_a_neighbour(rounds, || {
            there.write_all(b"x").unwrap();
            here.read_exact(&mut [0]).unwrap();
        });
        // Writes alone, which a thread takes away.
        let (mut here, there) = std::os::unix::net::UnixStream::pair().map(|(a, b)| (UnixStream::from(a), b)).unwrap();
        let reading = std::thread::spawn(move || std::io::copy(&mut &there, &mut std::io::sink()).unwrap());
        beside_a_neighbour(rounds, || here.write_all(b"x").unwrap());
        drop(here);
        fibra::blocking(|| reading.join().unwrap());
        // Datagrams.
        let (one, two) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let to = two.local_addr().unwrap();
        beside_a_neighbour(rounds, || {
            one.send_to(b"x", to).unwrap();
            two.recv(&mut [0]).unwrap();
        });
        // Connections.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        beside_a_neighbour(rounds / 10, || {
            let client = TcpStream::connect(address).unwrap();
            assert_eq!(listener.accept().unwrap().1, client.local_addr().unwrap());
        });
    });
}

// A thousand sockets that are always ready, each with its fiber, and one fiber that wants to run, one that sleeps, one that gets mail.
#[test]
fn a_thousand_ready_sockets_starve_no_fiber() {
    let _watchdog = support::watchdog(60);
    const MOST_PER_TURN: u64 = 40;
    let count = sockets(1_000);
    for workers_count in [1, 2] {
        let (stop, transferred) = (AtomicBool::new(false), AtomicU64::new(0));
        workers(workers_count).run(|| {
            let ended = Scope::builder().run(|s| {
                for _ in 0..count {
                    let (mut here, mut there) = UnixStream::pair().unwrap();
                    let (stop, transferred) = (&stop, &transferred);
                    s.spawn(move || {
                        while !stop.load(SeqCst) {
                            here.write_all(&[1; 16]).unwrap();
                            there.read_exact(&mut [0; 16]).unwrap();
                            transferred.fetch_add(1, SeqCst);
                        }
                    });
                }
                // Between two of its turns, each of the others had one, of a bounded length.
                for _ in 0..20 {
                    let before = transferred.load(SeqCst);
                    fibra::yield_now();
                    let between = transferred.load(SeqCst) - before;
                    if workers_count == 1 {
                        assert!(between <= count as u64 * MOST_PER_TURN, "{between} transfers before a turn");
                    }
                }
                fibra::sleep(Duration::from_millis(1));
                let (stream, thread) = echo_thread();
                (&stream).write_all(b"x").unwrap();
                (&stream).read_exact(&mut [0]).unwrap();
                drop(stream);
                fibra::blocking(|| thread.join().unwrap());
                let before = transferred.load(SeqCst);
                while transferred.load(SeqCst) == before {
                    fibra::yield_now();
                }
                stop.store(true, SeqCst);
            });
            ended.unwrap();
        });
    }
}

// A thousand sockets that become ready at once, by a thread outside: all are served, and the fiber that yields has its turns meanwhile.
#[test]
fn a_thousand_sockets_become_ready_at_once() {
    let _watchdog = support::watchdog(60);
    let count = sockets(1_000);
    let (heres, theres): (Vec<_>, Vec<_>) = (0..count)
        .map(|_| std::os::unix::net::UnixStream::pair().map(|(here, there)| (UnixStream::from(here), there)).unwrap())
        .unzip();
    let served = AtomicU64::new(0);
    let runtime = workers(1);
    runtime.run(|| {
        fibra::scope(|s| {
            for mut stream in &heres {
                let served = &served;
                s.spawn(move || {
                    for _ in 0..3 {
                        stream.read_exact(&mut [0]).unwrap();
                        served.fetch_add(1, SeqCst);
                    }
                });
            }
            let writing = std::thread::spawn(move || {
                for _ in 0..3 {
                    for mut stream in &theres {
                        stream.write_all(b"x").unwrap();
                    }
                }
                theres
            });
            let mut own = 0_u64;
            while served.load(SeqCst) < 3 * count as u64 {
                own += 1;
                fibra::yield_now();
            }
            // All of them at once between two turns would be one turn.
            assert!(own > 3, "{own} turns while {count} sockets were served");
            drop(fibra::blocking(|| writing.join().unwrap()));
        });
    });
}

/// So many pairs of sockets, as far as the limit of descriptors can be raised.
fn sockets(wanted: usize) -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit lives through the calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = limit.rlim_max.min(20_000);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
    // Several tests share the process.
    tools::stacks(wanted).min(limit.rlim_cur as usize / 8)
}
