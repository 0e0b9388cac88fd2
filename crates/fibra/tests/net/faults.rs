//! What goes wrong with sockets: refused, reset, slow, out of descriptors; time-outs and cancellation at every point. Nothing leaks.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::ends::{listener, pair};
use crate::support::{self, alone, workers};
use fibra::net::TcpStream;

/// Closing it resets the connection.
fn reset(stream: TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the option is a `linger`, which lives through the call.
    let done = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    assert_eq!(done, 0);
}

#[test]
fn refused() {
    let _watchdog = support::watchdog(60);
    let attempt = || {
        let address = listener().1;
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let error = TcpStream::connect_timeout(&address, Duration::from_secs(9)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let error = TcpStream::connect_timeout(&address, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    };
    attempt();
    workers(1).run(attempt);
}

// The peer resets while a fiber waits in a write, and while one waits in a read.
#[test]
fn reset_while_waiting() {
    let _watchdog = support::watchdog(60);
    for workers_count in [1, 2] {
        let runtime = workers(workers_count);
        let (here, there) = pair();
        let writer = runtime.spawn(move || {
            loop {
                if let Err(error) = (&here).write(&[0; 64 * 1024]) {
                    return error.kind();
                }
            }
        });
        support::eventually(|| runtime.metrics().parked == 1, || "the writer waits".to_owned());
        reset(there);
        assert!(matches!(writer.join().unwrap(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe));
        let (here, there) = pair();
        let reader = runtime.spawn(move || (&here).read(&mut [0; 8]).unwrap_err().kind());
        support::eventually(|| runtime.metrics().parked == 1, || "the reader waits".to_owned());
        reset(there);
        assert_eq!(reader.join().unwrap(), ErrorKind::ConnectionReset);
    }
}

// Shutting down here, on another thread, ends the wait of a read here.
#[test]
fn shut_down_while_waiting() {
    let _watchdog = support::watchdog(60);
    let runtime = workers(1);
    let (here, _there) = pair();
    let here = Arc::new(here);
    let stream = here.clone();
    let reader = runtime.spawn(move || (&*stream).read(&mut [0; 8]).unwrap());
    support::eventually(|| runtime.metrics().parked == 1, || "the reader waits".to_owned());
    here.shutdown(Shutdown::Read).unwrap();
    assert_eq!(reader.join().unwrap(), 0);
}

// A read, a write, an accept and a connect that take too long; each thing can be used afterwards.
#[test]
fn timeouts_leave_sockets_usable() {
    let _watchdog = support::watchdog(60);
    let test = |limited: &dyn Fn(&mut dyn FnMut()) -> bool, on_fiber: bool| {
        let (here, there) = pair();
        let limit = Duration::from_millis(5);
        here.set_read_timeout(Some(limit)).unwrap();
        here.set_write_timeout(Some(limit)).unwrap();
        for _ in 0..3 {
            let begin = fibra::time::Instant::now();
            assert_eq!((&here).read(&mut [0; 4]).unwrap_err().kind(), ErrorKind::TimedOut);
            assert!(begin.elapsed() >= limit);
        }
        let mut written = 0;
        let error = loop {
            match (&here).write(&[7; 64 * 1024]) {
                Ok(len) => written += len,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let mut all = vec![0; written];
        (&there).read_exact(&mut all).unwrap();
        here.set_read_timeout(None).unwrap();
        here.set_write_timeout(None).unwrap();
        assert_eq!(here.read_timeout().unwrap(), None);
        (&here).write_all(b"on").unwrap();
        (&there).write_all(b"ok").unwrap();
        let mut word = [0; 2];
        (&there).read_exact(&mut word).unwrap();
        assert_eq!(&word, b"on");
        (&here).read_exact(&mut word).unwrap();
        assert_eq!(&word, b"ok");
        if on_fiber {
            // The same by the time-out of a scope, which unwinds.
            assert!(!limited(&mut || drop((&here).read(&mut [0; 4]))));
            (&there).write_all(b"go").unwrap();
            (&here).read_exact(&mut word).unwrap();
            assert_eq!(&word, b"go");
            let (listener, address) = listener();
            assert!(!limited(&mut || drop(listener.accept())));
            let client = TcpStream::connect(address).unwrap();
            assert_eq!(listener.accept().unwrap().1, client.local_addr().unwrap());
        }
    };
    let limited = |f: &mut dyn FnMut()| fibra::timeout(Duration::from_millis(5), f).is_ok();
    for count in [1, 2] {
        workers(count).run(|| test(&limited, true));
    }
    test(&|_| true, false);
}

// A plain thread inside a scope waits such that it can be cancelled.
#[test]
fn a_thread_in_a_scope_can_be_cancelled() {
    let _watchdog = support::watchdog(60);
    let runtime = workers(1);
    let _entered = runtime.handle().enter();
    let (here, there) = pair();
    for _ in 0..3 {
        let ended = fibra::timeout(Duration::from_millis(10), || drop((&here).read(&mut [0; 4])));
        assert!(ended.is_err());
    }
    // And hears of its socket all the same, each time.
    let ended = fibra::timeout(Duration::from_secs(50), || {
        for round in 0..50_u64 {
            fibra::scope(|s| {
                let mut there = &there;
                s.spawn(move || {
                    fibra::sleep(Duration::from_micros(20 * round));
                    there.write_all(b"x").unwrap();
                });
                (&here).read_exact(&mut [0]).unwrap();
            });
        }
    });
    assert!(ended.is_ok());
}

// A fiber that accepts, reads and writes is cancelled after every number of steps; whatever it held is closed, and the listener serves on.
#[test]
fn cancelled_at_every_point() {
    if !alone("cancelled_at_every_point") {
        return;
    }
    let _watchdog = support::watchdog(120);
    let before = support::fds();
    let runtime = workers(2);
    let (listener, address) = listener();
    let listener = Arc::new(listener);
    for round in 0..40_u32 {
        let (serving, steps) = (listener.clone(), Arc::new(AtomicUsize::new(0)));
        let count = steps.clone();
        let server = runtime.spawn(move || {
            loop {
                let (mut stream, _) = serving.accept().unwrap();
                count.fetch_add(1, SeqCst);
                let mut buffer = [0; 256];
                // The reset of a client whose answer no caller took is an error like any other.
                while let Ok(len @ 1..) = stream.read(&mut buffer) {
                    count.fetch_add(1, SeqCst);
                    if stream.write_all(&buffer[..len]).is_err() {
                        break;
                    }
                    count.fetch_add(1, SeqCst);
                }
            }
        });
        let wanted = (round % 9) as usize;
        let mut client = None;
        while steps.load(SeqCst) < wanted {
            let client = client.get_or_insert_with(|| std::net::TcpStream::connect(address).unwrap());
            if client.write_all(&[1; 16]).is_err() {
                break;
            }
            let mut answer = [0; 16];
            client.read_exact(&mut answer).unwrap();
        }
        server.cancel();
        assert!(server.join().unwrap_err().is_cancelled());
    }
    // Nothing is left in the queue but clients that have gone; the next one is served.
    drop(runtime);
    let mut client = std::net::TcpStream::connect(address).unwrap();
    client.write_all(b"x").unwrap();
    let mine = client.local_addr().unwrap();
    while listener.accept().unwrap().1 != mine {}
    drop((client, listener));
    assert!(support::fds() <= before, "{before} descriptors before, {} after", support::fds());
}

// Out of descriptors: `accept` says so, `incoming` waits until there are some again.
#[test]
fn out_of_descriptors() {
    if !alone("out_of_descriptors") {
        return;
    }
    let _watchdog = support::watchdog(60);
    let runtime = workers(1);
    let (listener, address) = listener();
    let listener = Arc::new(listener);
    let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
    // SAFETY: the limit lives through the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let mut client = std::net::TcpStream::connect(address).unwrap();
    let mut hoard = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        hoard.push(file);
    }
    let accepting = listener.clone();
    let error = runtime.run(move || accepting.accept().map(|_| ()).unwrap_err());
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    let patient = listener.clone();
    let server = runtime.spawn(move || {
        let mut stream = patient.incoming().next().unwrap().unwrap();
        let mut word = [0; 5];
        stream.read_exact(&mut word).unwrap();
        word
    });
    // It waits, and others run.
    support::eventually(|| runtime.metrics().parked == 1, || "it pauses".to_owned());
    runtime.run(|| fibra::sleep(Duration::from_millis(20)));
    assert!(!server.is_finished());
    drop(hoard);
    client.write_all(b"hello").unwrap();
    assert_eq!(&server.join().unwrap(), b"hello");
}

// Descriptors are reused at once by others: a registration of the past reaches no waiter.
#[test]
fn descriptors_are_reused_stress() {
    let _watchdog = support::watchdog(120);
    let runtime = workers(3);
    runtime.run(|| {
        fibra::scope(|s| {
            for n in 0..4_u8 {
                s.spawn(move || {
                    for round in 0..150_u8 {
                        let (here, there) = pair();
                        // Closed while a byte is on its way, on another worker.
                        let reading = fibra::Builder::new().spread().spawn(move || {
                            let mut byte = [0];
                            (&there).read_exact(&mut byte).unwrap();
                            byte[0]
                        });
                        if round % 3 == 0 {
                            fibra::yield_now();
                        }
                        (&here).write_all(&[n ^ round]).unwrap();
                        (&here).write_all(&[1, 2, 3]).unwrap();
                        drop(here);
                        assert_eq!(reading.unwrap().join().unwrap(), n ^ round);
                    }
                });
            }
        });
    });
}

// A socket that outlives its runtime is used in the next one.
#[test]
fn a_socket_outlives_its_runtime() {
    if !alone("a_socket_outlives_its_runtime") {
        return;
    }
    let _watchdog = support::watchdog(60);
    let before = support::fds();
    let (here, there) = pair();
    let (here, there) = (Arc::new(here), Arc::new(there));
    for round in 0..5_u8 {
        let (here, there) = (here.clone(), there.clone());
        let runtime = workers(1 + usize::from(round) % 2);
        runtime.run(move || {
            let reading = fibra::spawn_local(move || {
                let mut byte = [0];
                (&*here).read_exact(&mut byte).unwrap();
                byte[0]
            });
            fibra::yield_now();
            (&*there).write_all(&[round]).unwrap();
            assert_eq!(reading.join().unwrap(), round);
        });
    }
    assert_eq!(support::fds(), before + 2, "the drivers of the runtimes are closed although the sockets are not");
}

// A worker with nothing but waiting sockets sleeps.
#[test]
fn waiting_costs_nothing() {
    if !alone("waiting_costs_nothing") {
        return;
    }
    let _watchdog = support::watchdog(60);
    let runtime = workers(2);
    let pairs: Vec<_> = (0..20).map(|_| pair()).collect();
    let (streams, others): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let waiting: Vec<_> =
        streams.into_iter().map(|mut stream| runtime.spawn(move || stream.read(&mut [0]).unwrap())).collect();
    support::eventually(|| runtime.metrics().parked == 20, || "all wait".to_owned());
    std::thread::sleep(Duration::from_millis(20));
    let before = support::cpu_time();
    std::thread::sleep(Duration::from_millis(300));
    let used = support::cpu_time() - before;
    assert!(used < Duration::from_millis(30), "{used:?} of processor time while all fibers wait");
    drop(others);
    assert!(waiting.into_iter().all(|fiber| fiber.join().unwrap() == 0));
}

// Operations that need not wait may be done where a fiber must not be suspended; one that has to wait panics.
#[test]
fn no_suspend_allows_what_does_not_wait() {
    let _watchdog = support::watchdog(60);
    workers(1).run(|| {
        let (here, there) = pair();
        fibra::no_suspend(|| {
            for _ in 0..100 {
                (&here).write_all(b"x").unwrap();
            }
        });
        let mut all = [0; 100];
        (&there).read_exact(&mut all).unwrap();
        let waiting = fibra::spawn_local(move || fibra::no_suspend(|| drop((&there).read(&mut all))));
        assert!(waiting.join().unwrap_err().message().contains("no_suspend"));
    });
}

// A child of a fork closes what it has inherited: the registrations of the parent are not concerned.
#[test]
fn a_forked_child_leaves_registrations_alone() {
    if !alone("a_forked_child_leaves_registrations_alone") {
        return;
    }
    let _watchdog = support::watchdog(60);
    let runtime = workers(1);
    let (here, there) = pair();
    let here = Arc::new(here);
    let stream = here.clone();
    let reader = runtime.spawn(move || {
        let mut byte = [0];
        (&*stream).read_exact(&mut byte).unwrap();
        byte[0]
    });
    support::eventually(|| runtime.metrics().parked == 1, || "the reader waits".to_owned());
    // SAFETY: the child drops a socket and ends at once.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // The last handle of this process' copy but one, which the fiber has: dropped as often as it takes to close it.
        // SAFETY: the count is two: this one, and that of a fiber which does not exist here.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(&here)) };
        drop(here);
        // SAFETY: ends the process without running anything.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: the status lives through the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    (&there).write_all(&[9]).unwrap();
    assert_eq!(reader.join().unwrap(), 9);
}
