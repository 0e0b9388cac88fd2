//! A wait on a socket is served by its own worker, whichever others wait, come late or go; readers of all kinds share a socket, and every
//! byte arrives.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::ends::pair;
use crate::support::{self, workers};
use fibra::net::{TcpListener, TcpStream, UnixStream};
use fibra::time::Instant;
use fibra::{Runtime, channel};

/// A fiber of a runtime with one worker that reads one byte, and has parked for it when this returns: another fiber has run after it.
fn parked_reader(runtime: &Runtime, stream: &Arc<UnixStream>) -> fibra::JoinHandle<u8> {
    let (began, begins) = channel::bounded(1);
    let stream = stream.clone();
    let reading = runtime.spawn(move || {
        began.send(()).unwrap();
        let mut byte = [0];
        (&*stream).read_exact(&mut byte).unwrap();
        byte[0]
    });
    begins.recv().unwrap();
    runtime.run(|| {});
    reading
}

/// Waits for a byte that does not come, with the driver of the current worker.
pub(crate) fn wait_in_vain(stream: &UnixStream) {
    fibra::select! {
        on(stream.readable()) -> _ready => panic!("no byte was written"),
        after(Duration::from_millis(1)) => {}
    }
}

// A socket's registration moved to the last waiter, and stayed there when that wait was over: another one that still waited depended
// on a worker that had nothing to do with it. Here that worker is not run any more.
#[test]
fn a_wait_is_served_by_its_own_worker() {
    let _watchdog = support::watchdog(60);
    let (here, mut there) = UnixStream::pair().unwrap();
    let (here, runtime, other) = (Arc::new(here), workers(1), Runtime::current_thread().unwrap());
    let reading = parked_reader(&runtime, &here);
    other.run(|| wait_in_vain(&here));
    there.write_all(b"x").unwrap();
    assert_eq!(reading.join().unwrap(), b'x');
}

// The same; here the worker it depended on is gone.
#[test]
fn a_wait_survives_the_runtime_of_another_reader() {
    let _watchdog = support::watchdog(60);
    let (here, mut there) = UnixStream::pair().unwrap();
    let (here, runtime) = (Arc::new(here), workers(1));
    let reading = parked_reader(&runtime, &here);
    let other = workers(2);
    other.run(|| wait_in_vain(&here));
    drop(other);
    there.write_all(b"x").unwrap();
    assert_eq!(reading.join().unwrap(), b'x');
}

// The same; here the worker it depended on computes.
#[test]
fn a_wait_does_not_depend_on_a_busy_worker() {
    let _watchdog = support::watchdog(60);
    let (here, mut there) = UnixStream::pair().unwrap();
    let (here, runtime, other) = (Arc::new(here), workers(1), workers(1));
    let reading = parked_reader(&runtime, &here);
    let read = std::sync::mpsc::channel();
    let waited = Arc::clone(&here);
    let computing = other.spawn(move || {
        wait_in_vain(&waited);
        there.write_all(b"x").unwrap();
        // Holds its worker until the other fiber has read.
        read.1.recv().unwrap();
    });
    assert_eq!(reading.join().unwrap(), b'x');
    read.0.send(()).unwrap();
    computing.join().unwrap();
}

// One connection sets both selects going; the one that finds it gone waited for the next connection and for nothing else.
#[test]
fn an_accepting_arm_that_comes_too_late_leaves_the_others_alive() {
    let _watchdog = support::watchdog(60);
    for count in [1, 2] {
        workers(count).run(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let (stop, stopped) = channel::bounded::<()>(0);
            let accepted = AtomicUsize::new(0);
            fibra::scope(|s| {
                for _ in 0..4 {
                    s.spawn(|| {
                        loop {
                            fibra::select! {
                                on(listener.accepting()) -> connection => {
                                    connection.unwrap();
                                    accepted.fetch_add(1, SeqCst);
                                }
                                recv(stopped) -> _closed => return,
                            }
                        }
                    });
                }
                for round in 1..=20 {
                    let _client = TcpStream::connect(address).unwrap();
                    while accepted.load(SeqCst) < round {
                        fibra::yield_now();
                    }
                }
                drop(stop);
            });
        });
    }
}

// What has arrived in time is read, even if the worker looks at its timers first because it was busy when both came.
#[test]
fn a_time_out_does_not_hide_what_has_arrived() {
    let _watchdog = support::watchdog(60);
    const LIMIT: Duration = Duration::from_millis(300);
    let (mut here, mut there) = pair();
    workers(1).run(|| {
        here.set_read_timeout(Some(LIMIT)).unwrap();
        let began = Instant::now();
        let reading = fibra::spawn_local(move || here.read(&mut [0; 8]).map_err(|error| error.kind()));
        // It parks.
        fibra::yield_now();
        there.write_all(b"in time").unwrap();
        let in_time = began.elapsed() < LIMIT;
        // The worker is busy until it is too late.
        std::thread::sleep(LIMIT * 2);
        let read = reading.join().unwrap();
        assert!(read == Ok(7) || (!in_time && read == Err(ErrorKind::TimedOut)), "{read:?}");
    });
}

/// Reads to the end, in pieces.
fn read_all(mut stream: &TcpStream, room: usize) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; room]);
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => return all,
            len => all.extend_from_slice(&buffer[..len]),
        }
    }
}

// The end of the stream comes with the last bytes, just after them, or just before the reader waits again: it is reported once.
#[test]
fn the_end_is_read_after_a_short_read_stress() {
    let _watchdog = support::watchdog(120);
    for count in [1, 2] {
        let runtime = workers(count);
        for round in 0..300 {
            let (here, mut there) = pair();
            let reading = runtime.spawn(move || read_all(&here, 64));
            if round % 3 == 0 {
                std::thread::yield_now();
            }
            there.write_all(b"abc").unwrap();
            if round % 2 == 0 {
                // It may have read that by now, or not.
                std::thread::yield_now();
            }
            drop(there);
            assert_eq!(reading.join().unwrap(), b"abc");
        }
    }
}

// The same where it is certain: bytes and end are reported together, while no fiber waits.
#[test]
fn an_end_that_was_reported_with_the_data_is_read() {
    let _watchdog = support::watchdog(60);
    workers(1).run(|| {
        let (mut here, mut there) = pair();
        fibra::select! {
            on(here.readable()) -> _ready => panic!("no byte was written"),
            after(Duration::from_millis(1)) => {}
        }
        there.write_all(b"abc").unwrap();
        drop(there);
        // The worker sleeps in its driver, which reports both.
        fibra::sleep(Duration::from_millis(5));
        let mut buffer = [0; 64];
        assert_eq!(here.read(&mut buffer).unwrap(), 3);
        assert_eq!(here.read(&mut buffer).unwrap(), 0);
    });
}

// A read stops before urgent data although there is more behind it.
#[test]
fn urgent_data_is_not_the_end_of_the_data() {
    let _watchdog = support::watchdog(60);
    workers(1).run(|| {
        for registered_first in [false, true] {
            let (mut here, there) = pair();
            there.set_nodelay(true).unwrap();
            if registered_first {
                fibra::select! {
                    on(here.readable()) -> _ready => panic!("no byte was written"),
                    after(Duration::from_millis(1)) => {}
                }
            }
            for (bytes, flags) in [(&b"abc"[..], 0), (b"!", libc::MSG_OOB), (b"def", 0)] {
                use std::os::fd::AsRawFd;
                // SAFETY: the bytes live through the call, and the socket is open.
                let sent = unsafe { libc::send(there.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
                assert_eq!(sent, bytes.len() as isize);
            }
            // All of it has arrived, and was reported, before the first read.
            while here.peek(&mut [0; 64]).unwrap() < 3 {}
            fibra::sleep(Duration::from_millis(5));
            let mut six = [0; 6];
            here.read_exact(&mut six[..1]).unwrap();
            let mut all = six[..1].to_vec();
            while all.len() < 6 {
                let len = here.read(&mut [0; 64]).map(|len| all.resize(all.len() + len, 0));
                len.unwrap();
            }
            assert_eq!(all.len(), 6);
            drop(there);
            assert_eq!(here.read(&mut six).unwrap(), 0);
        }
    });
}

// Pieces of all sizes into rooms of all sizes, read by fibers of several workers and by plain threads in turn.
#[test]
fn every_byte_arrives_with_any_reader_stress() {
    let _watchdog = support::watchdog(120);
    const BYTES: usize = 200_000;
    let runtime = workers(3);
    let (here, mut there) = pair();
    let writing = runtime.spawn(move || {
        let all: Vec<u8> = (0..BYTES).map(|at| (at * 7 + at / 251) as u8).collect();
        let (mut at, mut size) = (0, 1);
        while at < BYTES {
            let end = BYTES.min(at + size);
            there.write_all(&all[at..end]).unwrap();
            (at, size) = (end, size * 5 % 1021);
            if size % 3 == 0 {
                fibra::yield_now();
            }
        }
        all
    });
    let (here, mut read, mut room) = (Arc::new(here), Vec::new(), 7);
    while read.len() < BYTES {
        let stream = here.clone();
        let some = move || {
            let mut some = Vec::new();
            for _ in 0..20 {
                let mut buffer = vec![0; room];
                match (&*stream).read(&mut buffer).unwrap() {
                    0 => break,
                    len => some.extend_from_slice(&buffer[..len]),
                }
            }
            some
        };
        read.extend(match room % 3 {
            0 => some(),
            1 => runtime.run(some),
            _ => runtime.run(|| fibra::Builder::new().spread().spawn(some).unwrap().join().unwrap()),
        });
        room = room * 3 % 1019 + 1;
    }
    assert!(read == writing.join().unwrap());
}

// The same socket in several arms, both directions.
#[test]
fn one_socket_in_several_arms() {
    let _watchdog = support::watchdog(60);
    for count in [1, 2] {
        workers(count).run(|| {
            let (here, mut there) = UnixStream::pair().unwrap();
            let mut won = [0; 3];
            for round in 0..200_u8 {
                let writer = fibra::spawn(move || there.write_all(&[round]).map(|()| there));
                fibra::select! {
                    on(here.readable()) -> ready => { ready.unwrap(); won[0] += 1 }
                    on(here.readable()) -> ready => { ready.unwrap(); won[1] += 1 }
                    on(here.writable()) -> ready, if round % 4 == 0 => { ready.unwrap(); won[2] += 1 }
                }
                let mut byte = [0];
                (&here).read_exact(&mut byte).unwrap();
                assert_eq!(byte, [round]);
                there = writer.join().unwrap().unwrap();
            }
            assert!(won[0] + won[1] > 0 && won[2] > 0, "{won:?}");
        });
    }
}

/// Reads single bytes until the end, and gives up now and then; says how many it read.
fn read_impatiently(mut stream: &UnixStream, patience: u64) -> usize {
    let mut read = 0;
    loop {
        let done = fibra::timeout(Duration::from_micros(patience), || stream.read(&mut [0]).unwrap());
        match done {
            Ok(0) => return read,
            Ok(_) => read += 1,
            Err(_timed_out) => {}
        }
    }
}

// Fibers of two runtimes and a plain thread read one socket, some of them cancelled again and again: no byte is lost, no reader is
// forgotten.
#[test]
fn readers_of_all_kinds_share_a_socket_stress() {
    let _watchdog = support::watchdog(120);
    const BYTES: usize = 3000;
    let (here, mut there) = UnixStream::pair().unwrap();
    let (here, runtimes) = (Arc::new(here), [workers(2), workers(1)]);
    let mut readers = Vec::new();
    for (index, runtime) in runtimes.iter().cycle().take(6).enumerate() {
        let stream = here.clone();
        readers.push(runtime.spawn(move || {
            if index % 3 == 0 {
                return read_impatiently(&stream, 20 + 30 * index as u64);
            }
            let (mut read, mut byte) = (0, [0]);
            while (&*stream).read(&mut byte).unwrap() == 1 {
                read += 1;
            }
            read
        }));
    }
    let stream = here.clone();
    let thread = std::thread::spawn(move || {
        let mut read = 0;
        loop {
            // Inside a select a thread waits with the driver of its kind.
            fibra::select! { on(stream.readable()) -> ready => ready.unwrap() }
            // (Another may have been faster; then this one waits in `poll`.)
            match (&*stream).read(&mut [0]).unwrap() {
                0 => return read,
                _ => read += 1,
            }
        }
    });
    for round in 0..BYTES {
        there.write_all(&[1]).unwrap();
        if round % 5 == 0 {
            std::thread::yield_now();
        }
    }
    drop(there);
    let read: usize = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
    assert_eq!(read + thread.join().unwrap(), BYTES);
}

// A worker that is never idle looks at its driver after a bounded time, also if its mail never ends.
#[test]
fn a_worker_that_is_never_idle_serves_its_sockets() {
    let _watchdog = support::watchdog(60);
    let runtime = workers(2);
    let (here, mut there) = UnixStream::pair().unwrap();
    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    // Two fibers of different workers that call each other: inbox and sleep, for ever.
    let (ping, pinged) = channel::bounded(0);
    let (pong, ponged) = channel::bounded(0);
    let stop = over.clone();
    let first = runtime.spawn(move || while pinged.recv().is_ok() && pong.send(()).is_ok() {});
    let second = runtime.spawn(move || {
        while !stop.load(SeqCst) && ping.send(()).is_ok() && ponged.recv().is_ok() {
            fibra::yield_now();
        }
    });
    let yielding = over.clone();
    let third = runtime.spawn(move || {
        while !yielding.load(SeqCst) {
            fibra::yield_now();
        }
    });
    let echo = runtime.spawn(move || {
        let mut byte = [0];
        while (&here).read(&mut byte).unwrap() == 1 {
            (&here).write_all(&byte).unwrap();
        }
    });
    for round in 0..200_u8 {
        there.write_all(&[round]).unwrap();
        let mut byte = [0];
        there.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [round]);
    }
    drop(there);
    echo.join().unwrap();
    over.store(true, SeqCst);
    for fiber in [first, second, third] {
        fiber.join().unwrap();
    }
}

// Fibers that change workers at every suspension: registrations follow.
#[cfg(feature = "unstable-migration")]
#[test]
fn fibers_that_move_use_sockets_stress() {
    let _watchdog = support::watchdog(120);
    let builder = Runtime::builder().workers(3);
    // SAFETY: what runs here keeps nothing of a thread across a suspension.
    let runtime = unsafe { builder.force_migration() }.build().unwrap();
    runtime.run(|| {
        let (here, there) = pair();
        let echo = fibra::spawn(move || {
            let (mut buffer, mut there) = ([0; 64], there);
            loop {
                match there.read(&mut buffer).unwrap() {
                    0 => return,
                    len => there.write_all(&buffer[..len]).unwrap(),
                }
            }
        });
        for round in 0..500_u32 {
            (&here).write_all(&round.to_le_bytes()).unwrap();
            let mut answer = [0; 4];
            (&here).read_exact(&mut answer).unwrap();
            assert_eq!(u32::from_le_bytes(answer), round);
            if round % 7 == 0 {
                fibra::select! {
                    on(here.readable()) -> _ready => panic!("no byte was written"),
                    after(Duration::from_micros(50)) => {}
                }
            }
        }
        drop(here);
        echo.join().unwrap();
    });
}
