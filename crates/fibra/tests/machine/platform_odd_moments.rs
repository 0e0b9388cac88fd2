//! Platforms at odd moments: no descriptors, no room, handles that go too early or never, loops that never rest.

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Duration;

use crate::platform_streams::Tick;
use crate::platform_workers::registered;
use crate::support;
use fibra::machine::platform::{self, Io, Readiness, Socket, outcome};
use fibra::machine::{
    ABANDONED, CANCELLED, EventLoop, MachineRef, OP_ACCEPT, OP_READ, OP_TIMER, OP_WATCH, OP_WRITE, OpPool, Platform,
    Ports, Seat, Timestamp,
};

fn pair() -> (Socket, UnixStream) {
    let (here, there) = UnixStream::pair().unwrap();
    (here.into(), there)
}

// S3-105: without descriptors an accept waits, and goes on when there are some again; it costs no answer and no spinning.
#[test]
fn accepting_without_descriptors() {
    support::in_child("accepting_without_descriptors", accept_without_descriptors);
}

fn accept_without_descriptors() {
    let listener = Socket::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let to = listener.local_address().unwrap().ip().unwrap();
    let (mut pool, mut begun, mut ticks) = (OpPool::<Io>::with_capacity(2), false, 0);
    let (mut client, mut hoard) = (None, Vec::new());
    let app = Tick(move |now: Timestamp, ports: &mut Ports<'_>| {
        ticks += 1;
        if !std::mem::replace(&mut begun, true) {
            client = Some(TcpStream::connect(to).unwrap());
            // All that there are.
            while let Ok(file) = std::fs::File::open("/dev/null") {
                hoard.push(file);
            }
            ports.submit(pool.io(platform::accept(&listener)).unwrap());
            let timer = pool.take(OP_TIMER, platform::read(&listener, [])).unwrap();
            ports.submit(timer.at(now + Duration::from_millis(60)));
        }
        while let Some(done) = ports.input.completions.pop() {
            if done.opcode() == OP_TIMER {
                // Nothing was answered meanwhile. Now there is room.
                assert!(!hoard.is_empty());
                hoard.clear();
            } else {
                assert_eq!((done.opcode(), hoard.len()), (OP_ACCEPT, 0));
                let number = outcome(done.result()).unwrap();
                let accepted = done.into_data::<Io>().unwrap().take_accepted().unwrap();
                assert_eq!(accepted.socket.as_raw_fd() as usize, number);
                assert_eq!(accepted.from.ip().unwrap(), client.take().unwrap().local_addr().unwrap());
                assert!(ticks < 10, "{ticks}");
                ports.stop();
            }
        }
    });
    EventLoop::new().app(app).run().unwrap();
}

// S3-54: a pool that is exhausted gives back what the operation would have carried.
#[test]
fn an_exhausted_pool_gives_the_buffer_back() {
    let _watchdog = support::watchdog(60);
    let (socket, _there) = pair();
    let mut pool = OpPool::<Io>::with_capacity(1);
    let first = pool.io(platform::read(&socket, vec![1; 4])).unwrap();
    let refused = pool.io(platform::read(&socket, vec![2; 4])).unwrap_err();
    assert_eq!(refused.0.into_buffer(), [2; 4]);
    assert_eq!(first.buffer(), [1; 4]);
}

// S3-105: no room to read into, and nothing to write, is answered at once.
#[test]
fn nothing_to_read_into_and_nothing_to_write() {
    let _watchdog = support::watchdog(60);
    let (socket, _there) = pair();
    let (mut pool, mut begun, mut answers) = (OpPool::<Io>::with_capacity(4), false, 0);
    let app = Tick(move |_, ports: &mut Ports<'_>| {
        if !std::mem::replace(&mut begun, true) {
            ports.submit(pool.io(platform::read(&socket, [])).unwrap());
            ports.submit(pool.io(platform::read(&socket, [0; 8]).range(3..3)).unwrap());
            ports.submit(pool.io(platform::write(&socket, [])).unwrap());
            ports.submit(pool.io(platform::write_all(&socket, [])).unwrap());
        }
        while let Some(done) = ports.input.completions.pop() {
            assert_eq!(done.result(), 0);
            answers += 1;
        }
        if answers == 4 {
            ports.stop();
        }
    });
    EventLoop::new().app(app).run().unwrap();
}

#[test]
#[should_panic(expected = "a buffer of 4 bytes has no range 2..5")]
fn a_range_lies_in_its_buffer() {
    let _ = platform::write(&pair().0, [0; 4]).range(2..5);
}

// S3-105: two platforms of one thread do not work on one socket at the same time; one after the other they do.
#[test]
fn two_platforms_of_a_thread() {
    let _watchdog = support::watchdog(60);
    let (socket, mut there) = pair();
    let (mut children, mut pool, mut step) = (Vec::new(), OpPool::<Io>::with_capacity(4), 0);
    let mut first = None;
    let around = Tick(move |now, ports: &mut Ports<'_>| {
        while children.len() < 2 {
            children.push(ports.child(Platform::new()));
        }
        for child in &mut children {
            child.tick(now, ports);
            child.forward_all(ports);
        }
        let to = |child: usize| children[child].id();
        if step == 0 {
            step = 1;
            let read = |tag| platform::read(&socket, [0; 8]).tagged(tag);
            first = Some(ports.submit(pool.io(read(0)).unwrap().to(to(0))));
            ports.submit(pool.io(read(1)).unwrap().to(to(1)));
        }
        while let Some(done) = ports.input.completions.pop() {
            let tag = done.data::<Io>().unwrap().tag();
            match (step, tag) {
                (1, 1) => {
                    assert_eq!(done.result(), -libc::EBUSY);
                    step = 2;
                    ports.cancel(first.unwrap()).unwrap();
                }
                (2, 0) => {
                    assert_eq!(done.result(), CANCELLED);
                    step = 3;
                    there.write_all(b"data").unwrap();
                    ports.submit(pool.io(platform::read(&socket, [0; 8]).tagged(2)).unwrap().to(to(1)));
                }
                (3, 2) => {
                    assert_eq!(done.result(), 4);
                    ports.stop();
                }
                other => panic!("{other:?} {done:?}"),
            }
        }
    });
    EventLoop::new().platform(around).run().unwrap();
}

// S3-105: one socket, two loops: what each has in hand is told to each.
#[test]
fn one_socket_and_two_loops() {
    let _watchdog = support::watchdog(60);
    let (socket, mut there) = pair();
    let mut seats = Seat::mesh(2);
    let (one, two) = (seats.remove(0), seats.remove(0));
    let elsewhere = std::thread::spawn(move || EventLoop::at(two).run().unwrap());
    let (mut pool, mut begun, mut bytes) = (OpPool::<Io>::with_capacity(8), false, 0);
    let app = Tick(move |_, ports: &mut Ports<'_>| {
        if !std::mem::replace(&mut begun, true) {
            for thread in [0, 1, 0, 1] {
                let read = pool.io(platform::read(&socket, [0; 1])).unwrap();
                ports.submit(read.to(MachineRef::platform(thread)));
            }
            there.write_all(b"data").unwrap();
        }
        while let Some(done) = ports.input.completions.pop() {
            bytes += done.result();
        }
        if bytes == 4 {
            ports.stop_all();
        }
    });
    EventLoop::at(one).app(app).run().unwrap();
    elsewhere.join().unwrap();
}

// S3-105: dropped handles close, and a descriptor that gets the same number is another one. Late reports of the old one reach no operation.
#[test]
fn a_number_that_is_used_again() {
    support::in_child("a_number_that_is_used_again", use_a_number_again);
}

fn use_a_number_again() {
    let (mut pool, mut round) = (OpPool::<Io>::with_capacity(4), 0);
    let mut current: Option<(Socket, UnixStream)> = None;
    let mut numbers = Vec::new();
    let app = Tick(move |_, ports: &mut Ports<'_>| {
        while let Some(done) = ports.input.completions.pop() {
            let io = done.data::<Io>().unwrap();
            assert_eq!((done.result(), io.buffer()[0], io.tag()), (1, round as u8, round));
        }
        if ports.in_flight() == 0 {
            round += 1;
            if round > 200 {
                assert!(registered() <= 1);
                return ports.stop();
            }
            // Made readable once more before it goes: an event that is on its way when the number gets a new owner.
            if let Some((socket, mut there)) = current.take() {
                there.write_all(b"late").unwrap();
                drop(socket);
            }
            let (here, mut there) = UnixStream::pair().unwrap();
            numbers.push(here.as_raw_fd());
            let socket = Socket::from(here);
            ports.submit(pool.io(platform::read(&socket, [0; 4]).tagged(round)).unwrap());
            // In half of the rounds it has to wait for it.
            if round % 2 == 0 {
                there.write_all(&[round as u8]).unwrap();
                current = Some((socket, there));
            } else {
                let byte = round as u8;
                let mut writer = there.try_clone().unwrap();
                std::thread::spawn(move || writer.write_all(&[byte]).unwrap());
                current = Some((socket, there));
            }
            numbers.dedup();
            assert!(round < 10 || numbers.len() < round as usize, "numbers are used again");
        }
    });
    EventLoop::new().app(app).run().unwrap();
    assert_eq!(registered(), 0);
}

type Thing = Box<dyn std::any::Any + Send>;

/// Forgotten, but reachable, so that leak checkers do not mind.
static FORGOTTEN: OnceLock<fibra::sync::Mutex<Vec<Thing>>> = OnceLock::new();

fn forget(thing: impl std::any::Any + Send) {
    FORGOTTEN.get_or_init(|| fibra::sync::Mutex::new(Vec::new())).lock().push(Box::new(thing));
}

// S3-98, S3-100: whatever is forgotten stays in memory, and does no harm: an answer with its buffer, an operation, a socket.
#[test]
fn forgotten_things_do_no_harm() {
    let _watchdog = support::watchdog(60);
    let (socket, mut there) = pair();
    let (mut pool, mut begun) = (OpPool::<Io>::with_capacity(4), 0);
    let app = Tick(move |_, ports: &mut Ports<'_>| {
        if begun == 0 {
            begun = 1;
            ports.submit(pool.io(platform::read(&socket, vec![0; 64])).unwrap());
            forget(pool.io(platform::read(&socket, vec![0; 64])));
            forget(socket.clone());
            there.write_all(b"x").unwrap();
        }
        while let Some(done) = ports.input.completions.pop() {
            assert_eq!(done.result(), 1);
            forget(done);
            begun += 1;
            if begun == 3 {
                ports.stop();
            } else {
                ports.submit(pool.io(platform::read(&socket, vec![0; 64])).unwrap());
                there.write_all(b"x").unwrap();
            }
        }
    });
    EventLoop::new().app(app).run().unwrap();
}

// S3-57, S3-107: machines that always have something to do do not keep the loop from hearing of I/O.
#[test]
fn a_loop_that_never_rests_hears_of_data() {
    let _watchdog = support::watchdog(60);
    let (socket, mut there) = pair();
    let (mut pool, mut begun) = (OpPool::<Io>::with_capacity(2), false);
    let mut writing = None;
    let app = Tick(move |now: Timestamp, ports: &mut Ports<'_>| {
        if !std::mem::replace(&mut begun, true) {
            ports.submit(pool.io(platform::read(&socket, [0; 8])).unwrap());
            let mut writer = there.try_clone().unwrap();
            writing = Some(std::thread::spawn(move || writer.write_all(b"data").unwrap()));
            there.flush().unwrap();
        }
        let mut is_over = false;
        while let Some(done) = ports.input.completions.pop() {
            is_over |= done.opcode() == OP_READ;
        }
        if is_over {
            writing.take().unwrap().join().unwrap();
            return ports.stop();
        }
        // A timer that is due at once: there is always something.
        ports.submit(pool.take(OP_TIMER, platform::read(&socket, [])).unwrap().at(now));
    });
    EventLoop::new().app(app).run().unwrap();
}

// S3-44, S3-81: the platform panics or goes while operations wait: they are answered.
#[test]
fn a_platform_that_goes_answers() {
    let _watchdog = support::watchdog(60);
    let (socket, _there) = pair();
    let results = Rc::new(RefCell::new(Vec::new()));
    let (seen, mut inner, mut pool, mut step) = (results.clone(), None, OpPool::<Io>::with_capacity(2), 0);
    let around = Tick(move |now, ports: &mut Ports<'_>| {
        if step == 0 {
            inner = Some(ports.child(Platform::new()));
        }
        if let Some(inner) = &mut inner {
            inner.tick(now, ports);
            inner.forward_all(ports);
            if step == 0 {
                step = 1;
                ports.submit(pool.io(platform::read(&socket, [0; 8])).unwrap().to(inner.id()));
                ports.submit(pool.io(platform::watch(&socket, Readiness::Readable)).unwrap().to(inner.id()));
                ports.submit(pool_timer(now).to(ports.me()));
            }
        }
        while let Some(done) = ports.input.completions.pop() {
            match done.opcode() {
                OP_TIMER => inner = None,
                opcode @ (OP_READ | OP_WATCH) => seen.borrow_mut().push((opcode, done.result())),
                other => panic!("{other}"),
            }
        }
        if seen.borrow().len() == 2 {
            ports.stop();
        }
    });
    EventLoop::new().platform(around).run().unwrap();
    assert_eq!(*results.borrow(), [(OP_READ, ABANDONED), (OP_WATCH, ABANDONED)]);
}

fn pool_timer(now: Timestamp) -> fibra::machine::Op<()> {
    OpPool::with_capacity(1).take(OP_TIMER, ()).unwrap().at(now + Duration::from_millis(10))
}

// S3-105: a write that has to wait is told when there is room, and a reader and a writer of one socket do not disturb each other.
#[test]
fn both_directions_wait_at_once() {
    let _watchdog = support::watchdog(60);
    let (socket, there) = pair();
    let other = Socket::from(there);
    let (mut pool, mut begun) = (OpPool::<Io>::with_capacity(8), false);
    let (sent, came) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    const ALL: usize = 1 << 20;
    let counted = (sent.clone(), came.clone());
    let app = Tick(move |_, ports: &mut Ports<'_>| {
        if !std::mem::replace(&mut begun, true) {
            ports.submit(pool.io(platform::write_all(&socket, vec![1; ALL])).unwrap());
            ports.submit(pool.io(platform::read(&socket, [0; 8])).unwrap());
            ports.submit(pool.io(platform::read(&other, vec![0; 5000]).tagged(1)).unwrap());
        }
        while let Some(done) = ports.input.completions.pop() {
            let (opcode, result) = (done.opcode(), outcome(done.result()).unwrap());
            let io = done.into_data::<Io>().unwrap();
            match (opcode, io.tag()) {
                (OP_READ, 1) => {
                    counted.1.set(counted.1.get() + result);
                    if counted.1.get() == ALL {
                        ports.submit(pool.io(platform::write(io.socket().unwrap(), *b"thanks")).unwrap());
                    } else {
                        ports.submit(pool.io(io.into_read()).unwrap());
                    }
                }
                (OP_READ, _) => {
                    assert_eq!((result, counted.0.get()), (6, ALL));
                    ports.stop();
                }
                (OP_WRITE, _) => {}
                _ => counted.0.set(result),
            }
        }
    });
    EventLoop::new().app(app).run().unwrap();
    assert_eq!((sent.get(), came.get()), (ALL, ALL));
}
