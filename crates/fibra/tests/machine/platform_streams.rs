//! A platform that reads, writes, accepts and connects, on a loop of its own.

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;
use std::time::Duration;

use crate::support;
use fibra::machine::platform::{self, Accepted, Address, Buffers, Io, Readiness, Socket, outcome};
use fibra::machine::{
    CANCELLED, Done, EventLoop, Machine, NotInFlight, OP_ACCEPT, OP_CLOSE, OP_READ, OP_TIMER, OP_WATCH, OP_WRITE,
    OP_WRITE_ALL, OpId, OpPool, Overflow, Platform, Ports, Timestamp, ring,
};

/// A machine that is a function.
pub(crate) struct Tick<F>(pub(crate) F);
impl<F: FnMut(Timestamp, &mut Ports<'_>) + 'static> Machine for Tick<F> {
    fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
        (self.0)(now, ports);
    }
}

/// A step of a [`play`]: what to do next, given the answer to what was done before.
type Step = Box<dyn FnOnce(&mut Stage<'_, '_>)>;

/// What a step may use.
struct Stage<'a, 'b> {
    ports: &'a mut Ports<'b>,
    pool: &'a mut OpPool<Io>,
    /// What was answered since the step before.
    done: Vec<Done>,
}

impl Stage<'_, '_> {
    fn submit(&mut self, io: Io) -> OpId {
        self.ports.submit(self.pool.io(io).expect("the pool is large enough"))
    }

    /// The one answer, as a number and what the operation carried.
    fn answer(&mut self) -> (std::io::Result<usize>, Io) {
        assert_eq!(self.done.len(), 1, "{:?}", self.done);
        let done = self.done.remove(0);
        (outcome(done.result()), done.into_data::<Io>().unwrap())
    }
}

/// Runs steps one after the other, each when everything that is in flight, but for `standing` operations, has been answered.
fn play(standing: usize, steps: Vec<Step>) {
    let left = Rc::new(Cell::new(steps.len()));
    let (seen, mut steps) = (left.clone(), steps.into_iter());
    let (mut pool, mut answers) = (OpPool::with_capacity(8), Vec::new());
    let app = Tick(move |_, ports: &mut Ports<'_>| {
        while let Some(done) = ports.input.completions.pop() {
            answers.push(done);
        }
        while ports.in_flight() <= standing {
            let Some(step) = steps.next() else { return ports.stop() };
            seen.set(seen.get() - 1);
            let done = std::mem::take(&mut answers);
            step(&mut Stage { ports, pool: &mut pool, done });
        }
    });
    EventLoop::new().app(app).run().unwrap();
    assert_eq!(left.get(), 0, "all steps were taken");
}

fn loopback() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

fn error(outcome: std::io::Result<usize>) -> i32 {
    outcome.unwrap_err().raw_os_error().unwrap()
}

/// An echo server of machines: accepts, reads, writes back, until the other side ends.
struct Echo {
    listener: Socket,
    pool: OpPool<Io>,
    /// How many connections are still to end.
    left: usize,
    begun: bool,
}

impl Machine for Echo {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        if !std::mem::replace(&mut self.begun, true) {
            ports.submit(self.pool.io(platform::accept(&self.listener)).unwrap());
        }
        while let Some(done) = ports.input.completions.pop() {
            let (opcode, result) = (done.opcode(), outcome(done.result()).unwrap());
            let mut io = done.into_data::<Io>().unwrap();
            let next = match (opcode, result) {
                (OP_ACCEPT, _) => {
                    let Accepted { socket, .. } = io.take_accepted().unwrap();
                    // Not for a Unix socket.
                    let _ = socket.set_nodelay(true);
                    ports.submit(self.pool.io(platform::read(&socket, vec![0; 1000])).unwrap());
                    platform::accept(&self.listener)
                }
                (OP_READ, 0) => {
                    self.left -= 1;
                    continue;
                }
                (OP_READ, number) => io.into_write_all(..number),
                (OP_WRITE_ALL, _) => io.into_read(),
                other => panic!("{other:?}"),
            };
            ports.submit(self.pool.io(next).unwrap());
        }
        if self.left == 0 {
            ports.stop();
        }
    }
}

fn echo(listener: Socket, connections: usize) -> impl FnOnce() + Send {
    move || {
        let pool = OpPool::with_capacity(connections + 1);
        EventLoop::new().app(Echo { listener, pool, left: connections, begun: false }).run().unwrap();
    }
}

fn talk(stream: &mut (impl Read + Write), rounds: usize) {
    for round in 0..rounds {
        let said = vec![round as u8; 1 + round * 37 % 3000];
        stream.write_all(&said).unwrap();
        let mut heard = vec![0; said.len()];
        stream.read_exact(&mut heard).unwrap();
        assert!(said == heard);
    }
}

// S3-105, S3-107: accepts, reads and writes for clients of std, over TCP and Unix sockets.
#[test]
fn an_echo_server_of_machines() {
    let _watchdog = support::watchdog(60);
    let listener = Socket::listen(loopback()).unwrap();
    let to = listener.local_address().unwrap().ip().unwrap();
    let server = std::thread::spawn(echo(listener, 8));
    let clients = [0; 8].map(|_| std::thread::spawn(move || talk(&mut TcpStream::connect(to).unwrap(), 100)));
    clients.into_iter().for_each(|client| client.join().unwrap());
    server.join().unwrap();

    let name = format!("fibra echo {}", std::process::id());
    let name = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&name).unwrap();
    let server = std::thread::spawn(echo(listener.into(), 3));
    (0..3).for_each(|_| talk(&mut UnixStream::connect_addr(&name).unwrap(), 50));
    server.join().unwrap();
}

// S3-105: connecting, both ends by machines; a refusal is an answer, too.
#[test]
fn connecting() {
    let _watchdog = support::watchdog(60);
    let listener = Socket::listen(loopback()).unwrap();
    let to = listener.local_address().unwrap();
    let path = std::env::temp_dir().join(format!("fibra-connecting-{}", std::process::id()));
    let unix_listener = UnixListener::bind(&path).unwrap();
    let unix = Address::from(std::os::unix::net::SocketAddr::from_pathname(&path).unwrap());
    let (keeps, unix_again) = (listener.clone(), unix.clone());
    play(
        0,
        vec![
            Box::new(move |stage| {
                stage.submit(platform::connect(to).tagged(1));
                stage.submit(platform::accept(&keeps).tagged(2));
            }),
            Box::new(|stage| {
                let done = std::mem::take(&mut stage.done).into_iter();
                let mut ends = done.map(|done| {
                    assert!(done.result() >= 0);
                    let mut io = done.into_data::<Io>().unwrap();
                    match io.tag() {
                        1 => io.into_socket().unwrap(),
                        _ => {
                            let accepted = io.take_accepted().unwrap();
                            assert_eq!(Some(&accepted.from), io.address().or(Some(&accepted.from)));
                            accepted.socket
                        }
                    }
                });
                let (one, two) = (ends.next().unwrap(), ends.next().unwrap());
                drop(ends);
                stage.submit(platform::write(&one, *b"hello"));
                stage.submit(platform::read(&two, [0; 8]));
            }),
            Box::new(move |stage| {
                let read = stage.done.iter().find(|done| done.opcode() == OP_READ).unwrap();
                assert_eq!((read.result(), &read.data::<Io>().unwrap().buffer()[..5]), (5, &b"hello"[..]));
                stage.submit(platform::connect(unix));
            }),
            Box::new(move |stage| {
                let (outcome, io) = stage.answer();
                assert_eq!(outcome.unwrap(), 0);
                assert_eq!(io.into_socket().unwrap().local_address().unwrap(), Address::Unnamed);
                drop(unix_listener);
                std::fs::remove_file(&path).unwrap();
                stage.submit(platform::connect(unix_again));
            }),
            Box::new(move |stage| {
                let (outcome, io) = stage.answer();
                assert_eq!((error(outcome), io.socket().is_none()), (libc::ENOENT, true));
                let to = listener.local_address().unwrap();
                drop(listener);
                stage.submit(platform::connect(to));
            }),
            Box::new(|stage| {
                let (outcome, io) = stage.answer();
                assert_eq!((error(outcome), io.socket().is_none()), (libc::ECONNREFUSED, true));
                stage.submit(platform::connect(Address::Unnamed));
            }),
            Box::new(|stage| assert_eq!(error(stage.answer().0), libc::EDESTADDRREQ)),
        ],
    );
}

// S3-105, S3-43..S3-45: an operation in flight that is cancelled is answered, and its buffer comes back; one that could be completed is.
#[test]
fn cancelling_gives_the_buffer_back() {
    let _watchdog = support::watchdog(60);
    let (silent, _peer) = UnixStream::pair().unwrap();
    let socket = Socket::from(silent);
    let (here, mut there) = UnixStream::pair().unwrap();
    let other = Socket::from(here);
    play(
        0,
        vec![
            Box::new(move |stage| {
                let mut buffer = Vec::with_capacity(100);
                buffer.extend([7; 10]);
                let id = stage.submit(platform::read(&socket, buffer));
                stage.ports.cancel(id).unwrap();
            }),
            Box::new(move |stage| {
                assert_eq!(stage.done[0].result(), CANCELLED);
                let (outcome, io) = stage.answer();
                assert_eq!(error(outcome), libc::ECANCELED);
                let buffer = io.into_buffer();
                assert_eq!((buffer.capacity(), &buffer[..]), (100, &[7; 10][..]));
                there.write_all(b"x").unwrap();
                let id = stage.submit(platform::read(&other, buffer));
                stage.ports.cancel(id).unwrap();
            }),
            Box::new(|stage| {
                assert_eq!(stage.ports.cancel(stage.done[0].id()), Err(NotInFlight));
                let (outcome, io) = stage.answer();
                assert_eq!((outcome.unwrap(), io.buffer()[0]), (1, b'x'), "completion beats cancellation");
            }),
        ],
    );
}

// S3-102, S3-105: of one direction, in the order in which they came; those behind one that is cancelled have their turn.
#[test]
fn operations_of_a_direction_wait_in_order() {
    let _watchdog = support::watchdog(60);
    let (here, there) = UnixStream::pair().unwrap();
    let (here, there) = (Socket::from(here), Socket::from(there));
    let order = Rc::new(RefCell::new(Vec::new()));
    let (mut pool, seen, mut begun) = (OpPool::<Io>::with_capacity(8), order.clone(), false);
    let app = Tick(move |now: Timestamp, ports: &mut Ports<'_>| {
        if !std::mem::replace(&mut begun, true) {
            let reads =
                [1, 2, 3, 4].map(|tag| ports.submit(pool.io(platform::read(&here, [0; 1]).tagged(tag)).unwrap()));
            ports.cancel(reads[1]).unwrap();
            ports.submit(pool.take(OP_TIMER, platform::read(&here, [])).unwrap().at(now + Duration::from_millis(5)));
        }
        while let Some(done) = ports.input.completions.pop() {
            if done.opcode() == OP_TIMER {
                ports.submit(pool.io(platform::write(&there, *b"abc")).unwrap());
            } else if done.opcode() == OP_READ {
                let io = done.data::<Io>().unwrap();
                seen.borrow_mut().push((io.tag(), done.result(), io.buffer()[0]));
            }
        }
        if ports.in_flight() == 0 {
            ports.stop();
        }
    });
    EventLoop::new().app(app).run().unwrap();
    assert_eq!(*order.borrow(), [(2, CANCELLED, 0), (1, 1, b'a'), (3, 1, b'b'), (4, 1, b'c')]);
}

// S3-105: a write of more than the system takes at once is short, or, with write_all, done when the last byte was taken.
#[test]
fn writing_more_than_there_is_room_for() {
    let _watchdog = support::watchdog(60);
    const ALL: usize = 3_000_000;
    let listener = TcpListener::bind(loopback()).unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut other, _) = listener.accept().unwrap();
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        other.read_to_end(&mut all).unwrap();
        all
    });
    let socket = Socket::from(stream);
    let data: Vec<u8> = (0..ALL).map(|index| (index / 7) as u8).collect();
    let (expected, written) = (data.clone(), Rc::new(Cell::new(0)));
    let seen = written.clone();
    play(
        0,
        vec![
            Box::new(move |stage| {
                stage.submit(platform::write(&socket, data));
            }),
            Box::new(move |stage| {
                let (outcome, io) = stage.answer();
                let number = outcome.unwrap();
                assert!((1..=ALL).contains(&number));
                seen.set(number);
                stage.submit(io.into_write_all(number..));
            }),
            Box::new(move |stage| assert_eq!(stage.answer().0.unwrap(), ALL - written.get())),
        ],
    );
    assert!(reader.join().unwrap() == expected);
}

// S3-107, S3-57, S3-76, S3-78: one sleep learns of what comes first: data, a timer, a message from another thread.
#[test]
fn the_one_wait_hears_of_data_and_of_time() {
    let _watchdog = support::watchdog(20);
    let (here, there) = UnixStream::pair().unwrap();
    let socket = Socket::from(here);
    let far = Duration::from_secs(3600);
    let (mut pool, mut begun) = (OpPool::<Io>::with_capacity(4), None);
    let mut writer = Some(there);
    let mut writing = None;
    let app = Tick(move |now: Timestamp, ports: &mut Ports<'_>| {
        let started = *begun.get_or_insert_with(|| {
            ports.submit(pool.io(platform::read(&socket, [0; 8])).unwrap());
            ports.submit(pool.take(OP_TIMER, platform::read(&socket, [])).unwrap().at(now + far));
            ports.submit(
                pool.take(OP_TIMER, platform::read(&socket, []).tagged(1)).unwrap().at(now + Duration::from_millis(20)),
            );
            now
        });
        while let Some(done) = ports.input.completions.pop() {
            match (done.opcode(), done.data::<Io>().unwrap().tag()) {
                // First the near timer, although the read is pending; never early.
                (OP_TIMER, 1) => {
                    assert!(now - started >= Duration::from_millis(20));
                    let mut there = writer.take().unwrap();
                    writing = Some(std::thread::spawn(move || {
                        std::thread::sleep(Duration::from_millis(20));
                        there.write_all(b"data").unwrap();
                    }));
                }
                // Then the data, although the far timer is set.
                (OP_READ, _) => {
                    assert_eq!(done.result(), 4);
                    writing.take().unwrap().join().unwrap();
                    ports.stop();
                }
                other => panic!("{other:?}"),
            }
        }
    });
    EventLoop::new().app(app).run().unwrap();
}

// S3-106, S3-105: accepting for as long as it lasts; what the ring refuses is closed; ended by cancellation, with one completion.
#[test]
fn standing_accept() {
    let _watchdog = support::watchdog(60);
    let listener = Socket::listen(loopback()).unwrap();
    let to = listener.local_address().unwrap().ip().unwrap();
    let clients: Vec<_> = (0..5).map(|_| TcpStream::connect(to).unwrap()).collect();
    let (writer, mut reader) = ring(3, Overflow::DropNewest);
    let (mut writer, mut pool, mut id) = (Some(writer), OpPool::<Io>::with_capacity(1), None);
    let mut rung = 0;
    let app = Tick(move |_, ports: &mut Ports<'_>| {
        if let Some(writer) = writer.take() {
            id = Some(ports.submit(pool.io(platform::accept_into(&listener, writer)).unwrap()));
        }
        while ports.input.notifications.pop().is_some() {
            rung += 1;
            let stats = reader.stats();
            if stats.written == 5 {
                ports.cancel(id.unwrap()).unwrap();
            }
        }
        while let Some(done) = ports.input.completions.pop() {
            assert_eq!(done.result(), CANCELLED);
            let stats = reader.stats();
            assert_eq!((stats.written, stats.dropped, reader.len()), (5, 2, 3));
            let kept: Vec<Accepted> = std::iter::from_fn(|| reader.read()).collect();
            let froms: Vec<_> = kept.iter().map(|accepted| accepted.from.ip().unwrap()).collect();
            let locals: Vec<_> = clients.iter().map(|client| client.local_addr().unwrap()).collect();
            assert_eq!(froms, locals[..3], "in order");
            // The others were closed.
            for client in &clients[3..] {
                client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                assert_eq!((&*client).read(&mut [0]).unwrap_or(0), 0);
            }
            assert!(rung >= 1);
            ports.stop();
        }
    });
    EventLoop::new().app(app).run().unwrap();
}

// S3-105: any descriptor can be watched: once, or standing; also one that others read.
#[test]
fn watching() {
    let _watchdog = support::watchdog(60);
    let (mut reading, mut writing) = std::io::pipe().unwrap();
    let watched = Socket::watching(&reading).unwrap();
    let file = Socket::watching(std::fs::File::open("/proc/self/exe").unwrap()).unwrap();
    let mut again = Some(watched.clone());
    let (mut pool, mut steps, mut standing) = (OpPool::<Io>::with_capacity(4), 0, None);
    let app = Tick(move |_, ports: &mut Ports<'_>| {
        if steps == 0 {
            steps = 1;
            ports.submit(pool.io(platform::watch(&file, Readiness::Readable)).unwrap());
            writing.write_all(b"x").unwrap();
        }
        while ports.input.notifications.pop().is_some() {
            let mut bytes = [0; 8];
            assert!(reading.read(&mut bytes).unwrap() > 0, "rung, so there is something");
            steps += 1;
            if steps < 8 {
                writing.write_all(b"more").unwrap();
            } else {
                ports.cancel(standing.unwrap()).unwrap();
            }
        }
        while let Some(done) = ports.input.completions.pop() {
            match (steps, done.opcode()) {
                // What is always ready cannot be waited for, and need not be: it is ready.
                (1, OP_WATCH) => {
                    assert_eq!(done.result(), 0);
                    ports.submit(pool.io(platform::read(&watched, [0; 1])).unwrap());
                }
                (1, OP_READ) => {
                    assert_eq!(done.result(), -libc::EOPNOTSUPP, "to be watched, and nothing else");
                    steps = 2;
                    ports.submit(pool.io(platform::watch(&watched, Readiness::Readable)).unwrap());
                }
                (2, OP_WATCH) => {
                    assert_eq!(done.result(), 0);
                    assert_eq!(reading.read(&mut [0; 8]).unwrap(), 1);
                    steps = 3;
                    let op = pool.io(platform::watch(&again.take().unwrap(), Readiness::Readable)).unwrap().standing();
                    standing = Some(ports.submit(op));
                    writing.write_all(b"more").unwrap();
                }
                (8, OP_WATCH) => {
                    assert_eq!(done.result(), CANCELLED);
                    ports.stop();
                }
                other => panic!("{other:?}"),
            }
        }
    });
    EventLoop::new().app(app).run().unwrap();
}

// S3-105: idle connections need no buffer: it is taken when there is something to read; with none left the answer says so.
#[test]
fn buffers_are_taken_when_there_is_something_to_read() {
    let _watchdog = support::watchdog(60);
    let buffers = Buffers::new(1, 16);
    let [(one, mut to_one), (two, mut to_two)] = [0; 2].map(|_| UnixStream::pair().unwrap());
    let sockets = [Socket::from(one), Socket::from(two)];
    let (pool_of, mut begun, mut first) = (buffers.clone(), false, None::<Io>);
    let mut pool = OpPool::<Io>::with_capacity(4);
    let app = Tick(move |_, ports: &mut Ports<'_>| {
        if !std::mem::replace(&mut begun, true) {
            for (tag, socket) in (0..).zip(&sockets) {
                ports.submit(pool.io(platform::read_with(socket, &pool_of).tagged(tag)).unwrap());
            }
            to_one.write_all(b"one").unwrap();
        }
        while let Some(done) = ports.input.completions.pop() {
            let result = done.result();
            let io = done.into_data::<Io>().unwrap();
            match (first.is_some(), io.tag()) {
                (false, 0) => {
                    assert_eq!((result, io.buffer().len(), &io.buffer()[..3]), (3, 16, &b"one"[..]));
                    // As long as it has its buffer, there is none for the other.
                    assert_eq!(pool_of.available(), 0);
                    first = Some(io);
                    to_two.write_all(b"two").unwrap();
                }
                (true, 1) => {
                    assert_eq!((result, io.buffer().len()), (-libc::ENOBUFS, 0));
                    let next = first.take().unwrap().into_read();
                    assert_eq!(pool_of.available(), 1);
                    ports.submit(pool.io(next).unwrap());
                    ports.submit(pool.io(io.into_read().tagged(2)).unwrap());
                }
                (false, 2) => {
                    assert_eq!((result, &io.buffer()[..3]), (3, &b"two"[..]));
                    ports.stop();
                }
                other => panic!("{other:?}"),
            }
        }
    });
    EventLoop::new().app(app).run().unwrap();
    // Also that of the read that was cancelled at the end.
    assert_eq!(buffers.available(), 1);
}

// S3-105: closing answers what is pending, and what comes later; for all handles.
#[test]
fn closing_answers_what_is_pending() {
    let _watchdog = support::watchdog(60);
    let (here, mut there) = UnixStream::pair().unwrap();
    there.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let socket = Socket::from(here);
    let (other, third) = (socket.clone(), socket.clone());
    play(
        0,
        vec![
            Box::new(move |stage| {
                stage.submit(platform::read(&socket, vec![1; 9]));
                stage.submit(platform::close(socket));
            }),
            Box::new(move |stage| {
                let results: Vec<_> = stage.done.iter().map(|done| (done.opcode(), done.result())).collect();
                assert_eq!(results, [(OP_READ, -libc::EBADF), (OP_CLOSE, 0)]);
                assert_eq!(stage.done.remove(0).into_data::<Io>().unwrap().buffer(), [1; 9]);
                assert!(other.is_closed());
                assert_eq!(there.read(&mut [0]).unwrap(), 0, "the other side hears of it, although handles are left");
                stage.submit(platform::write(&other, *b"x"));
            }),
            Box::new(move |stage| {
                assert_eq!(error(stage.answer().0), libc::EBADF);
                stage.submit(platform::close(third));
            }),
            Box::new(|stage| assert_eq!(error(stage.answer().0), libc::EBADF)),
        ],
    );
}

// S3-84: a platform may be a child of another machine, which sees what goes through.
#[test]
fn a_platform_inside_another_machine() {
    let _watchdog = support::watchdog(60);
    let (here, mut there) = UnixStream::pair().unwrap();
    let socket = Socket::from(here);
    let mut inner = None;
    let through = Rc::new(Cell::new(0));
    let counted = through.clone();
    let around = Tick(move |now, ports: &mut Ports<'_>| {
        if inner.is_none() {
            inner = Some(ports.child(Platform::new()));
        }
        let inner = inner.as_mut().unwrap();
        inner.tick(now, ports);
        while let Some(mut request) = ports.input.submissions.pop() {
            counted.set(counted.get() + 1);
            request.set_destination(inner.id());
            ports.forward(request);
        }
        inner.forward_all(ports);
    });
    let (mut pool, mut begun) = (OpPool::<Io>::with_capacity(4), false);
    let app = Tick(move |_, ports: &mut Ports<'_>| {
        if !std::mem::replace(&mut begun, true) {
            ports.submit(pool.io(platform::read(&socket, [0; 8])).unwrap());
        }
        while let Some(done) = ports.input.completions.pop() {
            assert_eq!((done.opcode(), done.result()), (OP_READ, 4));
            ports.stop();
        }
    });
    let writing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        there.write_all(b"data").unwrap();
        there
    });
    EventLoop::new().app(app).platform(around).run().unwrap();
    writing.join().unwrap();
    assert_eq!(through.get(), 1);
}

// S3-13: the opcodes by hand do what the functions do; what fits no opcode is refused.
#[test]
fn opcodes_by_hand() {
    let _watchdog = support::watchdog(60);
    let (here, there) = UnixStream::pair().unwrap();
    let (here, there) = (Socket::from(here), Socket::from(there));
    let (mut pool, mut others, mut begun) = (OpPool::<Io>::with_capacity(8), OpPool::with_capacity(4), false);
    let mut results = Vec::new();
    let app = Tick(move |_, ports: &mut Ports<'_>| {
        if !std::mem::replace(&mut begun, true) {
            // What was made for a read serves a write.
            ports.submit(pool.take(OP_WRITE, platform::read(&there, *b"by hand").tagged(0)).unwrap());
            ports.submit(pool.take(OP_READ, platform::write(&here, [0; 9]).tagged(1)).unwrap());
            ports.submit(pool.take(77, platform::write(&here, [0; 9]).tagged(2)).unwrap());
            ports.submit(pool.take(OP_ACCEPT, platform::connect(Address::Unnamed).tagged(3)).unwrap());
            ports.submit(pool.take(OP_CLOSE, platform::connect(Address::Unnamed).tagged(4)).unwrap());
            ports.submit(others.take(OP_READ, "no Io").unwrap());
            ports.submit(others.take(5, "no Io").unwrap());
        }
        while let Some(done) = ports.input.completions.pop() {
            let which = done.data::<Io>().map_or(100 + u64::from(done.opcode() != OP_READ), Io::tag);
            results.push((which, done.result()));
        }
        if ports.in_flight() == 0 {
            results.sort_unstable();
            let (no, bad) = (-libc::EOPNOTSUPP, -libc::EINVAL);
            assert_eq!(results, [(0, 7), (1, 7), (2, no), (3, bad), (4, bad), (100, bad), (101, no)]);
            ports.stop();
        }
    });
    EventLoop::new().app(app).run().unwrap();
}

// S3-105: a first read that took all there was, before the socket was known to the driver: the next one still hears of what comes.
#[test]
fn a_first_read_that_was_short() {
    let _watchdog = support::watchdog(20);
    let listener = TcpListener::bind(loopback()).unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let socket = Socket::from(listener.accept().unwrap().0);
    stream.write_all(b"one").unwrap();
    while stream.peer_addr().is_ok() && !readable(&socket) {
        std::thread::yield_now();
    }
    play(
        0,
        vec![
            Box::new(move |stage| {
                stage.submit(platform::read(&socket, [0; 8]));
            }),
            Box::new(move |stage| {
                let (outcome, io) = stage.answer();
                assert_eq!(outcome.unwrap(), 3);
                stage.submit(io.into_read());
                stream.write_all(b"more").unwrap();
            }),
            Box::new(|stage| assert_eq!(stage.answer().0.unwrap(), 4)),
        ],
    );
}

/// Whether something has come.
fn readable(socket: &Socket) -> bool {
    let socket = std::os::fd::AsFd::as_fd(socket).try_clone_to_owned().unwrap();
    TcpStream::from(socket).peek(&mut [0; 8]).is_ok_and(|number| number == 3)
}
