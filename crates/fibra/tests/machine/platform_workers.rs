//! Platforms beside fibers: machines of a runtime share their worker's driver, and fibers ask them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::platform_streams::Tick;
use crate::support::{self, workers};
use fibra::machine::platform::{self, Accepted, Io, Socket, outcome};
use fibra::machine::{
    CallError, EventLoop, MachineRef, OP_ACCEPT, OP_READ, OP_WRITE, OP_WRITE_ALL, OpPool, Overflow, Platform, Ports,
    ring,
};

/// How many descriptors this process has open.
fn descriptors() -> usize {
    let open =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    // ThreadSanitizer talks to its symboliser, which it starts when it needs it, by pipes.
    open.filter(|file| !(cfg!(fibra_tsan) && file.to_string_lossy().starts_with("pipe:"))).count()
}

/// What is registered in the epoll instances of this process, eventfds aside.
pub(crate) fn registered() -> usize {
    let infos = std::fs::read_dir("/proc/self/fdinfo").unwrap();
    let infos = infos.filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok());
    // The data of an eventfd is all ones.
    let is_entry = |line: &&str| line.starts_with("tfd:") && !line.contains(" ffffffffffffffff");
    infos.map(|info| info.lines().filter(is_entry).count()).sum()
}

// S3-105, S3-107: an attached machine needs no destination for I/O; its worker's driver serves it and the fibers.
#[test]
fn an_attached_machine_serves_connections() {
    let _watchdog = support::watchdog(60);
    for workers in [1, 2] {
        let rt = support::workers(workers);
        let listener = Socket::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let to = listener.local_address().unwrap().ip().unwrap();
        let (mut pool, mut begun) = (OpPool::<Io>::with_capacity(20), false);
        rt.attach(Tick(move |_, ports: &mut Ports<'_>| {
            if !std::mem::replace(&mut begun, true) {
                ports.submit(pool.io(platform::accept(&listener)).unwrap());
            }
            while let Some(done) = ports.input.completions.pop() {
                let (opcode, result) = (done.opcode(), outcome(done.result()).unwrap());
                let mut io = done.into_data::<Io>().unwrap();
                let next = match (opcode, result) {
                    (OP_ACCEPT, _) => {
                        let Accepted { socket, .. } = io.take_accepted().unwrap();
                        ports.submit(pool.io(platform::read(&socket, vec![0; 100])).unwrap());
                        platform::accept(&listener)
                    }
                    (OP_READ, 0) => continue,
                    (OP_READ, number) => io.into_write_all(..number),
                    (OP_WRITE_ALL, _) => io.into_read(),
                    other => panic!("{other:?}"),
                };
                ports.submit(pool.io(next).unwrap());
            }
        }));
        let talk = move || {
            let mut stream = fibra::net::TcpStream::connect(to).unwrap();
            for number in 0..50_u8 {
                stream.write_all(&[number; 30]).unwrap();
                let mut heard = [0; 30];
                stream.read_exact(&mut heard).unwrap();
                assert_eq!(heard, [number; 30]);
            }
        };
        rt.run(|| {
            let clients: Vec<_> = (0..10).map(|_| fibra::spawn(talk)).collect();
            clients.into_iter().for_each(|client| client.join().unwrap());
        });
    }
}

// S3-105: a fiber may ask a worker's platform, as it may ask any machine.
#[test]
fn a_fiber_asks_a_platform() {
    let _watchdog = support::watchdog(60);
    let rt = workers(2);
    let platform = rt.attach_with(Platform::new);
    let (here, mut there) = UnixStream::pair().unwrap();
    let socket = Socket::from(here);
    rt.run(move || {
        // Cancelled by time: the operation is left with the platform, which answers into the void.
        let silent = platform.call_timeout(OP_READ, platform::read(&socket, vec![0; 9]), Duration::from_millis(5));
        assert!(silent.unwrap_err().is_timed_out());
        there.write_all(b"word").unwrap();
        let answer = platform.call(OP_READ, platform::read(&socket, vec![0; 9])).unwrap();
        assert_eq!((answer.result, &answer.data.buffer()[..4]), (4, &b"word"[..]));
        let answer = platform.call(OP_WRITE, answer.data.into_write(..2)).unwrap();
        assert_eq!(answer.result, 2);
        let mut heard = [0; 2];
        there.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"wo");
        // Broken: an error of the system, not of the call.
        drop(there);
        let answer = platform.call(OP_WRITE, platform::write(&socket, *b"x")).unwrap();
        assert_eq!(outcome(answer.result).unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    });
}

// S3-44: a platform of another runtime is not reached, and the buffer comes back; so is one of a runtime without machines.
#[test]
fn a_platform_of_another_runtime_is_not_reached() {
    let _watchdog = support::watchdog(60);
    let (one, two) = (workers(1), workers(1));
    let platform = one.attach_with(Platform::new);
    let (here, _there) = UnixStream::pair().unwrap();
    let socket = Socket::from(here);
    let asks = move |platform: MachineRef| {
        let socket = socket.clone();
        move || match platform.call(OP_READ, platform::read(&socket, vec![5; 5])) {
            Err(CallError::Unreachable(io)) => assert_eq!(io.into_buffer(), [5; 5]),
            other => panic!("{other:?}"),
        }
    };
    two.run(asks(platform));
    two.run(asks(MachineRef::platform(0)));
    two.attach(Tick(|_, _: &mut Ports<'_>| ()));
    two.run(asks(platform));
    two.run(asks(MachineRef::platform(platform.thread)));
}

// S3-107: an event loop on a fiber sleeps as the fiber does, in its worker's driver; two of them on one worker have a platform each.
#[test]
fn event_loops_on_fibers() {
    let _watchdog = support::watchdog(60);
    let rt = workers(1);
    rt.run(|| {
        let loops: Vec<_> = (0..3)
            .map(|_| {
                let (here, there) = UnixStream::pair().unwrap();
                let looping = fibra::spawn(move || {
                    let socket = Socket::from(here);
                    let (mut pool, mut begun) = (OpPool::<Io>::with_capacity(1), false);
                    let app = Tick(move |_, ports: &mut Ports<'_>| {
                        if !std::mem::replace(&mut begun, true) {
                            ports.submit(pool.io(platform::read(&socket, [0; 9])).unwrap());
                        }
                        while let Some(done) = ports.input.completions.pop() {
                            assert_eq!(done.result(), 3);
                            ports.stop();
                        }
                    });
                    EventLoop::new().app(app).run().unwrap();
                });
                (looping, there)
            })
            .collect();
        fibra::sleep(Duration::from_millis(5));
        for (looping, mut there) in loops {
            there.write_all(b"abc").unwrap();
            looping.join().unwrap();
        }
    });
}

// S3-81, S3-98: whichever goes first, the platform, the asking machine, the loop or the runtime: nothing stays registered, no descriptor
// stays open, every operation is back in its pool.
#[test]
fn nothing_is_left_behind() {
    support::in_child("nothing_is_left_behind", leave_nothing_behind);
}

fn leave_nothing_behind() {
    let before = (descriptors(), registered());
    for round in 0..6 {
        let rt = workers(2);
        let quiet = (descriptors(), registered());
        let (here, there) = UnixStream::pair().unwrap();
        let (socket, gauge) = (Socket::from(here), Arc::new(AtomicUsize::new(0)));
        let (tell, told) = mpsc::channel();
        let (mut pool, mut begun, theirs) = (OpPool::<Io>::with_capacity(2), false, socket.clone());
        let free = pool.gauge();
        let (writer, reader) = ring::<Accepted>(1, Overflow::DropNewest);
        let mut writer = Some(writer);
        let listener = Socket::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let counted = gauge.clone();
        let asks = rt.attach(Tick(move |_, ports: &mut Ports<'_>| {
            if !std::mem::replace(&mut begun, true) {
                ports.submit(pool.io(platform::read(&theirs, [0; 9])).unwrap());
                ports.submit(pool.io(platform::accept_into(&listener, writer.take().unwrap())).unwrap());
                tell.send(ports.me()).unwrap();
            }
            while ports.input.completions.pop().is_some() {
                counted.fetch_add(1, SeqCst);
            }
        }));
        let me = told.recv().unwrap();
        assert_eq!(asks, me);
        // Until both wait.
        while registered() < quiet.1 + 2 {
            std::thread::yield_now();
        }
        match round {
            // The one who asked; its platform answers.
            0 => rt.run(move || assert!(asks.detach())),
            // The platform: what it had in hand comes back.
            1 => {
                rt.run(move || assert!(MachineRef::platform(me.thread).detach()));
                while gauge.load(SeqCst) < 2 {
                    std::thread::yield_now();
                }
            }
            // The runtime, with both.
            _ => drop(rt),
        }
        while free.available() < free.capacity() {
            std::thread::yield_now();
        }
        // The platform is still there in the first round: what it knows of a socket lasts as long as the socket.
        let left = [quiet.1 + 1, quiet.1].get(round).copied().unwrap_or(before.1);
        assert_eq!(registered(), left, "round {round}");
        drop((socket, there, reader));
        assert_eq!(registered(), before.1, "round {round}");
    }
    assert_eq!((descriptors(), registered()), before);
}
