//! What becomes of operations whose socket is closed, by another machine, another platform or another thread; and of those on
//! descriptors that cannot do what is asked.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;

use crate::mesh::waits_in_epoll;
use crate::platform_streams::Tick;
use crate::platform_workers::registered;
use crate::support;
use fibra::Runtime;
use fibra::machine::platform::{self, Accepted, Address, Io, Readiness, Socket, byte_ring, outcome};
use fibra::machine::{
    CANCELLED, EventLoop, MachineRef, OP_CLOSE, OP_CONNECT, OP_READ, OP_TIMER, OpPool, Overflow, Platform, Ports, Seat,
    Timestamp, ring,
};

const EBADF: i32 = -libc::EBADF;

/// Operations that wait for ever, each on a socket of its own: every kind of descriptor, and every kind of operation that waits for one.
/// With them what must stay open for them to wait.
fn waiting_operations() -> (Vec<(Socket, Io)>, Vec<OwnedFd>) {
    let (mut operations, mut kept) = (Vec::new(), Vec::new());
    let mut add = |socket: Socket, io: fn(&Socket) -> Io| {
        let io = io(&socket).tagged(operations.len() as u64);
        operations.push((socket, io));
    };
    let mut stream = || {
        let (here, there) = UnixStream::pair().unwrap();
        kept.push(OwnedFd::from(there));
        Socket::from(here)
    };
    add(stream(), |socket| platform::read(socket, vec![1; 9]));
    add(stream(), |socket| platform::receive_into(socket, byte_ring(8, Overflow::DropNewest).0));
    add(stream(), |socket| platform::watch(socket, Readiness::Readable));
    // More than the system takes from a writer to whom no one listens.
    add(stream(), |socket| platform::write_all(socket, vec![1; 8 << 20]));
    let (reading, writing) = std::io::pipe().unwrap();
    kept.push(writing.into());
    add(OwnedFd::from(reading).into(), |socket| platform::read(socket, vec![1; 9]));
    add(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().into(), |socket| platform::recv_from(socket, vec![1; 9]));
    let listen = || Socket::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    add(listen(), platform::accept);
    add(listen(), |socket| platform::accept_into(socket, ring::<Accepted>(1, Overflow::DropNewest).0));
    (operations, kept)
}

/// Has `waits` (a platform of the loop with this app) wait for every kind of operation; `closes` closes their sockets. Each is answered
/// with `EBADF`, once, and a buffer comes back as it was.
fn close_under_operations(waits: MachineRef, closes: MachineRef) -> Tick<impl FnMut(Timestamp, &mut Ports<'_>)> {
    let (operations, kept) = waiting_operations();
    let (all, mut operations) = (operations.len(), Some(operations));
    let mut pool = OpPool::<Io>::with_capacity(2 * all);
    let (mut sockets, mut answers) = (Vec::new(), vec![0; all]);
    Tick(move |_, ports: &mut Ports<'_>| {
        let _ = &kept;
        for (socket, io) in operations.take().into_iter().flatten() {
            ports.submit(pool.io(io).unwrap().to(waits));
            sockets.push(socket);
        }
        // All of them wait: each is registered, and what was registered before has nothing to do with this process.
        if sockets.len() == all && registered() >= all {
            for socket in sockets.drain(..) {
                ports.submit(pool.io(platform::close(socket)).unwrap().to(closes));
            }
        } else if !sockets.is_empty() {
            // Looks again.
            ports.submit(OpPool::with_capacity(1).take(OP_TIMER, ()).unwrap());
        }
        while let Some(done) = ports.input.completions.pop() {
            match done.opcode() {
                OP_TIMER => continue,
                OP_CLOSE => assert_eq!(done.result(), 0),
                opcode => {
                    let result = done.result();
                    let io = done.into_data::<Io>().unwrap();
                    assert_eq!(result, EBADF, "{opcode} {}", io.tag());
                    assert!(io.socket().unwrap().is_closed());
                    assert!(io.buffer().iter().all(|byte| *byte == 1), "as it was");
                    answers[io.tag() as usize] += 1;
                }
            }
        }
        if sockets.is_empty() && ports.in_flight() == 0 {
            assert_eq!(answers, vec![1; all]);
            assert_eq!(registered(), 0);
            ports.stop_all();
        }
    })
}

// S3-105: a socket that is closed on another thread answers what waits for it here, whatever it is.
#[test]
fn closed_by_a_platform_of_another_thread() {
    support::in_child("closed_by_a_platform_of_another_thread", || {
        let mut seats = Seat::mesh(2);
        let (here, there) = (seats.remove(0), seats.remove(0));
        let elsewhere = std::thread::spawn(move || EventLoop::at(there).run().unwrap());
        let app = close_under_operations(MachineRef::platform(0), MachineRef::platform(1));
        EventLoop::at(here).app(app).run().unwrap();
        elsewhere.join().unwrap();
    });
}

// S3-105: the same with two platforms of one thread.
#[test]
fn closed_by_another_platform_of_the_thread() {
    support::in_child("closed_by_another_platform_of_the_thread", || {
        let (mut children, mut inner) = (Vec::new(), None);
        let around = Tick(move |now, ports: &mut Ports<'_>| {
            while children.len() < 2 {
                children.push(ports.child(Platform::new()));
            }
            let (waits, closes) = (children[0].id(), children[1].id());
            let inner = inner.get_or_insert_with(|| close_under_operations(waits, closes));
            fibra::machine::Machine::tick(inner, now, ports);
            for child in &mut children {
                child.tick(now, ports);
                child.forward_all(ports);
            }
        });
        EventLoop::new().platform(around).run().unwrap();
    });
}

// S3-105: the same beside fibers: a fiber waits on one worker, a platform of the other one closes.
#[test]
fn closed_under_a_call_of_a_fiber() {
    let _watchdog = support::watchdog(60);
    let rt = Runtime::builder().workers(2).build().unwrap();
    // From outside they go to different workers.
    let (waits, closes) = (rt.attach_with(Platform::new), rt.attach_with(Platform::new));
    assert_ne!(waits.thread, closes.thread);
    let (here, _there) = UnixStream::pair().unwrap();
    let socket = Socket::from(here);
    for _ in 0..2 {
        let theirs = socket.clone();
        let reading = rt.spawn(move || waits.call(OP_READ, platform::read(&theirs, vec![1; 9])).unwrap());
        let closing = rt.spawn({
            let socket = socket.clone();
            move || closes.call(OP_CLOSE, platform::close(socket)).unwrap()
        });
        let answer = reading.join().unwrap();
        assert_eq!((answer.result, answer.data.buffer()), (EBADF, &[1; 9][..]));
        // The second time it is closed already.
        assert!(matches!(closing.join().unwrap().result, 0 | EBADF));
    }
}

// S3-105: submitting against closing on another thread: whichever is faster, the operation is answered, and with nothing but `EBADF`.
#[test]
fn submitting_against_closing() {
    let _watchdog = support::watchdog(120);
    const ROUNDS: usize = 2_000;
    const SOCKETS: usize = 16;
    let mut seats = Seat::mesh(2);
    let (here, there) = (seats.remove(0), seats.remove(0));
    let elsewhere = std::thread::spawn(move || {
        // Does not sleep: what is sent to it is done at once, while the sender goes on.
        let mut pool = OpPool::with_capacity(1);
        let restless = Tick(move |_, ports: &mut Ports<'_>| {
            while ports.input.completions.pop().is_some() {}
            if let Ok(timer) = pool.take(OP_TIMER, ()) {
                ports.submit(timer);
            }
        });
        EventLoop::at(there).app(restless).run().unwrap();
    });
    let (mut pool, mut rounds) = (OpPool::<Io>::with_capacity(2 * SOCKETS), 0);
    let mut kept = Vec::new();
    let app = Tick(move |_, ports: &mut Ports<'_>| {
        while let Some(done) = ports.input.completions.pop() {
            assert_eq!(done.result(), if done.opcode() == OP_CLOSE { 0 } else { EBADF });
        }
        if ports.in_flight() > 0 {
            return;
        }
        rounds += 1;
        if rounds > ROUNDS {
            return ports.stop_all();
        }
        kept.clear();
        for number in 0..SOCKETS {
            // A closed socket is shut down, of which every driver hears that comes too late to be told; a pipe cannot be.
            let (socket, there) = if number % 2 == 0 {
                let (here, there) = UnixStream::pair().unwrap();
                (Socket::from(here), OwnedFd::from(there))
            } else {
                let (reading, writing) = std::io::pipe().unwrap();
                (Socket::from(OwnedFd::from(reading)), OwnedFd::from(writing))
            };
            kept.push(there);
            ports.submit(pool.io(platform::read(&socket, [0; 1])).unwrap());
            ports.submit(pool.io(platform::close(socket)).unwrap().to(MachineRef::platform(1)));
        }
    });
    EventLoop::at(here).app(app).run().unwrap();
    elsewhere.join().unwrap();
}

// S3-105: far more sockets are closed elsewhere than a loop hears of in one turn, all of them while it is busy: each is answered.
#[test]
fn many_are_closed_while_the_loop_is_busy() {
    let _watchdog = support::watchdog(60);
    const MANY: usize = 100;
    let mut seats = Seat::mesh(2);
    let (here, there) = (seats.remove(0), seats.remove(0));
    let elsewhere = std::thread::spawn(move || EventLoop::at(there).run().unwrap());
    let (mut pool, mut timers) = (OpPool::<Io>::with_capacity(2 * MANY), OpPool::with_capacity(1));
    let (mut sockets, mut kept, mut step, mut answers) = (Vec::new(), Vec::new(), 0, 0);
    let app = Tick(move |_, ports: &mut Ports<'_>| {
        let mut is_time = step == 0;
        while let Some(done) = ports.input.completions.pop() {
            match done.opcode() {
                OP_TIMER => is_time = true,
                OP_CLOSE => assert_eq!(done.result(), 0),
                _ => {
                    assert_eq!(done.result(), EBADF);
                    answers += 1;
                }
            }
        }
        if answers == MANY && ports.in_flight() == 0 {
            return ports.stop_all();
        }
        if !is_time || step == 3 {
            return;
        }
        match step {
            // They wait when the timer is due: the platform has its turn first.
            0 => (0..MANY).for_each(|_| {
                let (reading, writing) = std::io::pipe().unwrap();
                let socket = Socket::from(OwnedFd::from(reading));
                kept.push(writing);
                ports.submit(pool.io(platform::read(&socket, [0; 1])).unwrap());
                sockets.push(socket);
            }),
            1 => sockets.iter().for_each(|socket| {
                let close = pool.io(platform::close(socket.clone())).unwrap();
                ports.submit(close.to(MachineRef::platform(1)));
            }),
            _ => {
                while !sockets.iter().all(Socket::is_closed) {
                    std::thread::yield_now();
                }
            }
        }
        step += 1;
        ports.submit(timers.take(OP_TIMER, ()).unwrap());
    });
    EventLoop::at(here).app(app).run().unwrap();
    elsewhere.join().unwrap();
}

// S3-105: descriptors that cannot do what is asked: an answer says so, and nothing waits for what never comes.
#[test]
fn foreign_descriptors() {
    let _watchdog = support::watchdog(60);
    let file = || OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
    let (file, folder) =
        (Socket::from(file()), Socket::from(OwnedFd::from(std::fs::File::open("/proc/self").unwrap())));
    let (_reading, writing) = std::io::pipe().unwrap();
    let pipe = Socket::from(OwnedFd::from(writing));
    let asks = [
        // What the system cannot report cannot be watched for long. (Once, it is ready: `watching`.)
        (platform::watch(&file, Readiness::Readable), true, -libc::EPERM),
        (platform::read(&file, [0; 4]), false, 4),
        (platform::read(&folder, [0; 4]), false, -libc::EISDIR),
        (platform::write(&file, [0; 4]), false, EBADF),
        (platform::read(&pipe, [0; 4]), false, EBADF),
        (platform::accept(&pipe), false, -libc::ENOTSOCK),
        (platform::recv_from(&pipe, [0; 4]), false, -libc::ENOTSOCK),
        (platform::send_to(&pipe, [0; 4], Address::Unnamed), false, -libc::EDESTADDRREQ),
    ];
    let (all, mut asks) = (asks.len(), Some(asks));
    let (mut pool, mut expected) = (OpPool::<Io>::with_capacity(all), Vec::new());
    let answered = Rc::new(Cell::new(0));
    let counted = answered.clone();
    let app = Tick(move |_, ports: &mut Ports<'_>| {
        for (io, standing, result) in asks.take().into_iter().flatten() {
            let op = pool.io(io.tagged(expected.len() as u64)).unwrap();
            ports.submit(if standing { op.standing() } else { op });
            expected.push(result);
        }
        while let Some(done) = ports.input.completions.pop() {
            let tag = done.data::<Io>().unwrap().tag() as usize;
            assert_eq!((tag, done.result()), (tag, expected[tag]));
            counted.set(counted.get() + 1);
        }
        if counted.get() == all {
            ports.stop();
        }
    });
    EventLoop::new().app(app).run().unwrap();
    assert_eq!(answered.get(), all);
}

#[test]
#[should_panic(expected = "at least one")]
fn a_ring_of_no_room() {
    ring::<Accepted>(0, Overflow::DropNewest);
}

// S3-43..S3-45, S3-105: a connection that is under way, and one that waits for room in the queue of a Unix listener, are cancelled like
// everything else; those that are not wait on, and are answered when there is room.
#[test]
fn cancelling_connections() {
    let _watchdog = support::watchdog(60);
    let name = format!("fibra-cancelling-{}", std::process::id());
    let to = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&to).unwrap();
    // SAFETY: asks for a shorter queue, of an open socket.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let to = Address::from(to);
    let (mut pool, mut begun, mut second) = (OpPool::<Io>::with_capacity(8), false, None);
    let mut listener = Some(listener);
    let mut results = Vec::new();
    let app = Tick(move |now: Timestamp, ports: &mut Ports<'_>| {
        if !std::mem::replace(&mut begun, true) {
            // One has room in a queue of length 0.
            for tag in 0..3 {
                let id = ports.submit(pool.io(platform::connect(to.clone()).tagged(tag)).unwrap());
                second = second.or(Some(id).filter(|_| tag == 1));
            }
            ports.submit(OpPool::with_capacity(1).take(OP_TIMER, ()).unwrap().at(now));
        }
        while let Some(done) = ports.input.completions.pop() {
            if done.opcode() == OP_TIMER {
                ports.cancel(second.unwrap()).unwrap();
                continue;
            }
            assert_eq!(done.opcode(), OP_CONNECT);
            let result = done.result();
            let io = done.into_data::<Io>().unwrap();
            assert_eq!(io.socket().is_some(), outcome(result).is_ok(), "connected, or nothing");
            results.push((io.tag(), result));
            if result == CANCELLED {
                // Room for the one that was not cancelled.
                drop(listener.as_ref().unwrap().accept().unwrap());
            }
        }
        if results.len() == 3 {
            assert_eq!(results, [(0, 0), (1, CANCELLED), (2, 0)]);
            listener = None;
            ports.stop();
        }
    });
    EventLoop::new().app(app).run().unwrap();
}

// S3-77, S3-76: a loop whose machine reads from a socket waits in epoll, where that socket is registered; and what comes for it ends the
// wait.
#[test]
#[cfg_attr(any(fibra_asan, fibra_tsan), ignore = "the tools make system calls of their own")]
fn a_read_waits_in_epoll() {
    support::in_child("a_read_waits_in_epoll", || {
        use std::io::Write;
        let (here, mut there) = UnixStream::pair().unwrap();
        let number = here.as_raw_fd();
        let (tell, told) = std::sync::mpsc::channel();
        let reading = std::thread::spawn(move || {
            let (socket, mut pool) = (Socket::from(here), OpPool::<Io>::with_capacity(1));
            let mut begun = false;
            let app = Tick(move |_, ports: &mut Ports<'_>| {
                if !std::mem::replace(&mut begun, true) {
                    ports.submit(pool.io(platform::read(&socket, [0; 9])).unwrap());
                    // SAFETY: asks for a number.
                    tell.send(unsafe { libc::gettid() }).unwrap();
                }
                while let Some(done) = ports.input.completions.pop() {
                    assert_eq!(done.result(), 4);
                    ports.stop();
                }
            });
            EventLoop::new().app(app).run().unwrap();
        });
        let thread = told.recv().unwrap();
        let is_there = || waits_in_epoll(thread) && registered() == 1;
        support::eventually(is_there, || format!("{} registered, descriptor {number}", registered()));
        there.write_all(b"data").unwrap();
        reading.join().unwrap();
    });
}
