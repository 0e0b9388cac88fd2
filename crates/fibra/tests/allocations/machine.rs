//! A loop that has warmed up allocates nothing.
#![cfg(not(any(fibra_asan, fibra_tsan)))] // Counts allocations: the sanitizers make their own.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::counting;
use crate::support;
use fibra::machine::platform::{self, Accepted, Buffers, Io, Socket, outcome};
use fibra::machine::{
    CANCELLED, EventLoop, Machine, OP_ACCEPT, OP_READ, OP_TIMER, OpPool, Overflow, Ports, Request, RingReader,
    RingWriter, Timestamp, ring,
};

const ECHO: u32 = 1;
const HOLD: u32 = 2;
const STREAM: u32 = 3;

#[derive(Default)]
struct Server {
    held: Option<Request>,
    stream: Option<Request>,
}
impl Machine for Server {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        while let Some(request) = ports.input.submissions.pop() {
            match request.opcode() {
                ECHO => ports.complete(request, 1),
                HOLD => self.held = Some(request),
                _ => self.stream = Some(request),
            }
        }
        while let Some(cancel) = ports.input.cancellations.pop() {
            if let Some(held) = self.held.take_if(|held| held.id() == cancel.id()) {
                ports.complete(held, CANCELLED);
            } else if let Some(stream) = self.stream.take_if(|stream| stream.id() == cancel.id()) {
                ports.complete(stream, CANCELLED);
            }
        }
        if let Some(stream) = &mut self.stream {
            let _ = stream.data_mut::<RingWriter<u64>>().unwrap().write(1);
            ports.ring(stream);
        }
    }
}

/// Every round: echoes, a timer, a cancelled operation, a cancelled timer, and what was rung.
struct App {
    pool: OpPool<u64>,
    streams: OpPool<RingWriter<u64>>,
    reader: Option<RingReader<u64>>,
    rounds: u32,
    read: u64,
    counted: u32,
}
impl App {
    fn round(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
        while ports.input.completions.pop().is_some() {}
        while ports.input.notifications.pop().is_some() {
            while self.reader.as_mut().is_some_and(|reader| reader.read().is_some()) {
                self.read += 1;
            }
        }
        for _ in 0..4 {
            if let Ok(op) = self.pool.take(ECHO, 0) {
                ports.submit(op);
            }
        }
        if let Ok(op) = self.pool.take(OP_TIMER, 0) {
            ports.submit(op.at(now + Duration::from_nanos(1)));
        }
        for (opcode, due) in [(HOLD, now), (OP_TIMER, now + Duration::from_secs(3600))] {
            if let Ok(op) = self.pool.take(opcode, 0) {
                let id = ports.submit(op.at(due));
                ports.cancel(id).unwrap();
            }
        }
    }
}
impl Machine for App {
    // S3-09, S3-20, S3-56: no allocation per cycle, of any kind of operation.
    fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
        if self.reader.is_none() {
            let (writer, reader) = ring(4, Overflow::OverwriteOldest);
            self.reader = Some(reader);
            let op = self.streams.take(STREAM, writer).unwrap().standing();
            ports.submit(op);
        }
        self.rounds += 1;
        self.round(now, ports);
        if self.rounds == self.counted {
            ports.stop();
        }
    }
}

/// Counts from the first tick of the loop that is warm to the last.
struct Counted<M> {
    machine: M,
    ticks: u32,
    warm: u32,
    last: u32,
    began: usize,
}
impl<M: Machine> Machine for Counted<M> {
    fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
        self.ticks += 1;
        if self.ticks == self.warm {
            self.began = counting::so_far();
        }
        if self.ticks == self.last {
            // Everything that this thread did in between, the loop included.
            assert_eq!(counting::so_far() - self.began, 0, "a warm loop allocates");
        }
        self.machine.tick(now, ports);
    }
}

#[test]
fn a_warm_loop_allocates_nothing() {
    let _alone = crate::alone();
    let _watchdog = support::watchdog(60);
    let app = App {
        pool: OpPool::with_capacity(32),
        streams: OpPool::with_capacity(1),
        reader: None,
        rounds: 0,
        read: 0,
        counted: 10_000,
    };
    let counted = Counted { machine: app, ticks: 0, warm: 1_000, last: 9_000, began: 0 };
    EventLoop::new().app(counted).platform(Server::default()).run().unwrap();
}

const CONNECTIONS: usize = 100;
const ROUNDS: usize = 60;

/// Echoes; a buffer is needed only between a read and the end of its write.
struct Echo {
    listener: Socket,
    buffers: Buffers,
    pool: OpPool<Io>,
    begun: bool,
    served: usize,
    began: usize,
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
                    ports.submit(self.pool.io(platform::read_with(&socket, &self.buffers)).unwrap());
                    platform::accept(&self.listener)
                }
                (OP_READ, 0) => continue,
                (OP_READ, number) => io.into_write_all(..number),
                _ => {
                    self.served += 1;
                    match self.served {
                        served if served == CONNECTIONS * 10 => self.began = counting::so_far(),
                        served if served == CONNECTIONS * ROUNDS => {
                            assert_eq!(counting::so_far() - self.began, 0, "a warm echo server allocates");
                            ports.stop();
                        }
                        _ => {}
                    }
                    io.into_read()
                }
            };
            ports.submit(self.pool.io(next).unwrap());
        }
    }
}

// S3-56, S3-105: reads and writes of a hundred connections, the loop and the platform included: nothing is allocated.
#[test]
fn a_warm_echo_server_of_machines_allocates_nothing() {
    let _alone = crate::alone();
    let _watchdog = support::watchdog(60);
    let listener = Socket::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let to = listener.local_address().unwrap().ip().unwrap();
    let clients = std::thread::spawn(move || {
        let mut streams: Vec<_> = (0..CONNECTIONS).map(|_| TcpStream::connect(to).unwrap()).collect();
        for round in 0..ROUNDS {
            // Some rounds at once, some one by one.
            for stream in &mut streams {
                stream.write_all(&[round as u8; 40]).unwrap();
                if round % 2 == 0 {
                    stream.read_exact(&mut [0; 40]).unwrap();
                }
            }
            if round % 2 == 1 {
                streams.iter_mut().for_each(|stream| stream.read_exact(&mut [0; 40]).unwrap());
            }
        }
        streams
    });
    let (buffers, pool) = (Buffers::new(CONNECTIONS, 1024), OpPool::with_capacity(CONNECTIONS + 1));
    let echo = Echo { listener, buffers, pool, begun: false, served: 0, began: 0 };
    EventLoop::new().app(echo).run().unwrap();
    drop(clients.join().unwrap());
}

// S3-56: a fiber that calls a machine of its worker again and again.
#[test]
fn a_warm_caller_allocates_nothing() {
    let _watchdog = support::watchdog(60);
    let rt = fibra::Runtime::builder().workers(1).max_workers(1).build().unwrap();
    rt.run(|| {
        let mut caller = fibra::machine::Caller::new(fibra::Handle::current().attach(Server::default()));
        let mut calls = |number| (0..number).for_each(|_| assert_eq!(caller.call(ECHO, 1_u64).unwrap().result, 1));
        calls(1_000);
        let began = counting::so_far();
        calls(10_000);
        assert_eq!(counting::so_far() - began, 0, "a warm caller allocates");
    });
}
