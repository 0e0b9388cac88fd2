//! Datagrams, and standing receives into the requester's ring.

use std::cell::Cell;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::rc::Rc;

use crate::platform_streams::Tick;
use crate::support;
use fibra::machine::platform::{
    self, Address, ByteReader, DatagramReader, Io, RecvStats, Socket, byte_ring, datagram_ring, outcome,
};
use fibra::machine::{
    CANCELLED, EventLoop, Machine, MachineRef, OP_RECV_FROM, OP_SEND_TO, OpId, OpPool, Overflow, Ports, Seat, Timestamp,
};

fn udp() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

// S3-105: datagrams one by one, with their addresses: UDP and Unix; empty ones; ones that are too long.
#[test]
fn datagrams_there_and_back() {
    let _watchdog = support::watchdog(60);
    let ((one, to_one), (two, to_two)) = (udp(), udp());
    let names = ["one", "two"].map(|name| {
        let name = format!("fibra datagrams {name} {}", std::process::id());
        std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap()
    });
    let unix = names.each_ref().map(|name| Socket::from(UnixDatagram::bind_addr(name).unwrap()));
    let [unix_one, unix_two] = names.map(Address::from);
    let ends = [
        ([Socket::from(one), Socket::from(two)], [Address::from(to_one), Address::from(to_two)]),
        (unix, [unix_one, unix_two]),
    ];
    for ([here, there], [to_here, to_there]) in ends {
        let mut pool = OpPool::<Io>::with_capacity(4);
        // What each reply has; and what arrives of it, after the first.
        let (mut lengths, mut expected) = ([3, 0, 2000].into_iter(), [3, 3, 0, 1000].into_iter());
        let app = Tick(move |_, ports: &mut Ports<'_>| {
            if ports.in_flight() == 0 && ports.input.is_empty() {
                ports.submit(pool.io(platform::recv_from(&there, vec![0; 1000])).unwrap());
                ports.submit(pool.io(platform::recv_from(&here, vec![0; 1000])).unwrap());
                ports.submit(pool.io(platform::send_to(&here, vec![7; 3], to_there.clone())).unwrap());
            }
            while let Some(done) = ports.input.completions.pop() {
                let (opcode, number) = (done.opcode(), outcome(done.result()).unwrap());
                let io = done.into_data::<Io>().unwrap();
                if opcode == OP_SEND_TO {
                    continue;
                }
                assert_eq!(opcode, OP_RECV_FROM);
                let expected = expected.next().unwrap();
                assert_eq!((number, &io.buffer()[..number]), (expected, &vec![7; expected][..]));
                let from = io.address().unwrap().clone();
                assert!(from == to_here || from == to_there);
                match lengths.next() {
                    Some(length) => {
                        let socket = io.socket().unwrap();
                        ports.submit(pool.io(platform::recv_from(socket, io.buffer().to_vec())).unwrap());
                        let reply = platform::send_to(socket, vec![7; length], from);
                        ports.submit(pool.io(reply).unwrap());
                    }
                    None => ports.stop(),
                }
            }
        });
        EventLoop::new().app(app).run().unwrap();
    }
}

/// Has a standing receive into a ring; reads it only when it has `all`, and then cancels it.
struct Late {
    socket: Socket,
    reader: DatagramReader,
    ring: Option<platform::DatagramWriter>,
    pool: OpPool<Io>,
    id: Option<OpId>,
    all: u64,
    came: Rc<Cell<(RecvStats, Vec<u8>)>>,
}

impl Machine for Late {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        if let Some(ring) = self.ring.take() {
            self.id = Some(ports.submit(self.pool.io(platform::receive_into(&self.socket, ring)).unwrap()));
        }
        while let Some(notice) = ports.input.notifications.pop() {
            assert_eq!(Some(notice.id()), self.id);
            if self.reader.stats().received == self.all {
                ports.cancel(notice.id()).unwrap();
            }
        }
        while let Some(done) = ports.input.completions.pop() {
            assert_eq!((done.result(), done.is_standing()), (CANCELLED, true));
            let mut firsts = Vec::new();
            let mut room = [0; 100];
            while let Some((number, from)) = self.reader.read(&mut room) {
                assert!(number == 10 && from.ip().is_some());
                firsts.push(room[0]);
            }
            self.came.set((self.reader.stats(), firsts));
            ports.stop();
        }
    }
}

// S3-21, S3-35, S3-45, S3-49..S3-51, S3-106: the requester's ring, its policy, its statistics, from a real network; ended by
// cancellation, with one completion.
#[test]
fn a_ring_overflows_as_its_policy_says() {
    let _watchdog = support::watchdog(60);
    for (overflow, kept, stats) in [
        (Overflow::DropNewest, vec![0, 1, 2], RecvStats { received: 8, read: 3, dropped: 5, ..Default::default() }),
        (
            Overflow::OverwriteOldest,
            vec![5, 6, 7],
            RecvStats { received: 8, read: 3, overwritten: 5, ..Default::default() },
        ),
    ] {
        let ((socket, to), (sender, _)) = (udp(), udp());
        (0..8).for_each(|number| assert_eq!(sender.send_to(&[number; 10], to).unwrap(), 10));
        let (writer, reader) = datagram_ring(3, 1000, overflow);
        let came = Rc::new(Cell::default());
        let (ring, pool, all) = (Some(writer), OpPool::with_capacity(1), 8);
        let app = Late { socket: socket.into(), reader, ring, pool, id: None, all, came: came.clone() };
        EventLoop::new().app(app).run().unwrap();
        assert_eq!(came.take(), (stats, kept));
    }
}

/// Reads a byte ring whenever it is rung, until the standing receive has ended.
struct Bytes {
    socket: Socket,
    to: Option<MachineRef>,
    ring: Option<(platform::ByteWriter, ByteReader)>,
    reader: Option<ByteReader>,
    pool: OpPool<Io>,
    came: Vec<u8>,
    rings: usize,
    all: usize,
}

impl Machine for Bytes {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        if let Some((writer, reader)) = self.ring.take() {
            self.reader = Some(reader);
            let op = self.pool.io(platform::receive_into(&self.socket, writer)).unwrap();
            ports.submit(match self.to {
                Some(to) => op.to(to),
                None => op,
            });
        }
        let reader = self.reader.as_mut().unwrap();
        while ports.input.notifications.pop().is_some() {
            self.rings += 1;
            let mut room = [0; 64];
            while let number @ 1.. = reader.read(&mut room) {
                self.came.extend(&room[..number]);
            }
        }
        while let Some(done) = ports.input.completions.pop() {
            // S3-39: the end of the stream ends it, after the last ring.
            assert_eq!((done.result(), reader.len()), (0, 0));
            assert_eq!(self.came.len(), self.all);
            assert!(self.came.iter().enumerate().all(|(index, byte)| *byte == (index / 3) as u8));
            assert!((1..=self.all).contains(&self.rings));
            let RecvStats { received, read, dropped, .. } = reader.stats();
            assert_eq!((received, read, dropped), (self.all as u64, self.all as u64, 0));
            ports.stop_all();
        }
    }
}

fn bytes(socket: UnixStream, to: Option<MachineRef>, all: usize) -> Bytes {
    let (ring, pool) = (Some(byte_ring(1 << 20, Overflow::DropNewest)), OpPool::with_capacity(1));
    Bytes { socket: socket.into(), to, ring, reader: None, pool, came: Vec::new(), rings: 0, all }
}

fn write_slowly(mut socket: UnixStream, all: usize) {
    for index in 0..all {
        socket.write_all(&[(index / 3) as u8]).unwrap();
        if index % 500 == 0 {
            std::thread::yield_now();
        }
    }
}

// S3-36, S3-37, S3-39, S3-42, S3-106: bytes of a stream, rung as they come, ended by its end.
#[test]
fn a_stream_flows_into_its_ring() {
    let _watchdog = support::watchdog(60);
    let (here, there) = UnixStream::pair().unwrap();
    let writing = std::thread::spawn(move || write_slowly(there, 5_000));
    EventLoop::new().app(bytes(here, None, 5_000)).run().unwrap();
    writing.join().unwrap();
}

// S3-42, S3-99, S3-106: the same with the requester on another thread than the platform: nothing is lost between write and ring.
#[test]
fn a_stream_flows_into_a_ring_of_another_thread() {
    let _watchdog = support::watchdog(60);
    let (here, there) = UnixStream::pair().unwrap();
    let writing = std::thread::spawn(move || write_slowly(there, 20_000));
    let mut seats = Seat::mesh(2);
    let (requesting, serving) = (seats.remove(0), seats.remove(0));
    let server = std::thread::spawn(move || EventLoop::at(serving).run().unwrap());
    EventLoop::at(requesting).app(bytes(here, Some(MachineRef::platform(1)), 20_000)).run().unwrap();
    server.join().unwrap();
    writing.join().unwrap();
}

// S3-38, S3-106: an error ends it, with one completion that says so.
#[test]
fn an_error_ends_a_standing_receive() {
    let _watchdog = support::watchdog(60);
    let ((socket, address), (unused, to)) = (udp(), udp());
    drop(unused);
    // Connected: the system tells that no socket is there.
    socket.connect(to).unwrap();
    let socket = Socket::from(socket);
    let (writer, reader) = datagram_ring(4, 100, Overflow::DropNewest);
    let (mut writer, mut pool) = (Some(writer), OpPool::<Io>::with_capacity(2));
    let app = Tick(move |_, ports: &mut Ports<'_>| {
        if let Some(writer) = writer.take() {
            ports.submit(pool.io(platform::receive_into(&socket, writer)).unwrap());
            ports.submit(pool.io(platform::write(&socket, *b"hello?")).unwrap());
        }
        assert!(ports.input.notifications.pop().is_none());
        while let Some(done) = ports.input.completions.pop() {
            if done.is_standing() {
                assert_eq!(done.result(), -libc::ECONNREFUSED);
                assert_eq!(reader.stats(), RecvStats::default());
                assert_eq!(socket.local_address().unwrap().ip().unwrap().port(), address.port());
                ports.stop();
            }
        }
    });
    EventLoop::new().app(app).run().unwrap();
}
