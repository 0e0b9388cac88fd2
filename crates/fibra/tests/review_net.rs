//! What an adversarial review of the I/O core found: each of these hung, or lied, before the fix beside it.
#![cfg(not(any(loom, shuttle)))]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use fibra::net::{TcpListener, TcpStream, UnixStream};
use fibra::{Runtime, channel};

fn workers(count: usize) -> Runtime {
    Runtime::builder().workers(count).build().unwrap()
}

/// Two ends of one connection.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (here, listener.accept().unwrap().0)
}

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

/// Waits for a byte that does not come, with the driver of whoever runs here.
fn wait_in_vain(stream: &UnixStream) {
    fibra::select! {
        on(stream.readable()) -> _ready => panic!("nobody wrote"),
        after(Duration::from_millis(1)) => {}
    }
}

// A socket's registration moved to whoever waited last, and stayed there when that wait was over: somebody else who still waited depended
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
