//! A TCP echo server of machines: no fiber and no thread per connection, no allocation per request, and no buffer for a connection that is
//! idle.
//!
//! ```text
//! cargo run --release -p fibra --example machine_echo                     # talks to itself, and ends
//! cargo run --release -p fibra --example machine_echo -- 127.0.0.1:7000   # serves until it is stopped
//! ```
//!
//! What it shows: `machine::Platform` as the default platform, a standing accept into a ring, reads into shared `Buffers`, operations that
//! are turned into the next one (`into_write_all`, `into_read`), errors of one connection that concern no other.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;

use fibra::machine::platform::{self, Accepted, Buffers, Io, Socket, outcome};
use fibra::machine::{
    EventLoop, Machine, OP_READ, OP_WRITE_ALL, OpPool, Overflow, Ports, RingReader, RingWriter, Timestamp, ring,
};

/// Connections at a time. What comes beyond that is closed.
const CONNECTIONS: usize = 10_000;
/// Buffers that are in use at the same time, at most, and their size.
const BUFFERS: usize = 256;
const SIZE: usize = 16 << 10;

struct Echo {
    listener: Socket,
    /// For the standing accept, until that is submitted.
    accepts: Option<RingWriter<Accepted>>,
    accepted: RingReader<Accepted>,
    buffers: Buffers,
    pool: OpPool<Io>,
}

impl Echo {
    fn new(listener: Socket) -> Self {
        let (accepts, accepted) = ring(128, Overflow::DropNewest);
        let pool = OpPool::with_capacity(CONNECTIONS + 1);
        Self { listener, accepts: Some(accepts), accepted, buffers: Buffers::new(BUFFERS, SIZE), pool }
    }

    fn submit(&mut self, io: Io, ports: &mut Ports<'_>) {
        // Exhausted: there are too many connections. Dropping what the operation would have carried closes this one.
        if let Ok(op) = self.pool.io(io) {
            ports.submit(op);
        }
    }
}

impl Machine for Echo {
    fn tick(&mut self, _now: Timestamp, ports: &mut Ports<'_>) {
        if let Some(ring) = self.accepts.take() {
            self.submit(platform::accept_into(&self.listener, ring), ports);
        }
        // The standing accept was rung: all that is in the ring.
        while ports.input.notifications.pop().is_some() {
            while let Some(Accepted { socket, .. }) = self.accepted.read() {
                let _ = socket.set_nodelay(true);
                self.submit(platform::read_with(&socket, &self.buffers), ports);
            }
        }
        while let Some(done) = ports.input.completions.pop() {
            let (opcode, outcome) = (done.opcode(), outcome(done.result()));
            let Ok(io) = done.into_data::<Io>() else { continue };
            match (opcode, outcome) {
                (OP_READ, Ok(number @ 1..)) => self.submit(io.into_write_all(..number), ports),
                (OP_WRITE_ALL, Ok(_)) => self.submit(io.into_read(), ports),
                // More connections speak than there are buffers: later. (What is not read waits in the system.)
                (OP_READ, Err(error)) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.submit(io.into_read(), ports);
                }
                // The end, or an error. With the last handle, in `io`, the socket is closed.
                _ => {}
            }
        }
    }
}

fn main() -> io::Result<()> {
    if let Some(address) = std::env::args().nth(1) {
        let address: SocketAddr = address.parse().map_err(io::Error::other)?;
        return EventLoop::new().app(Echo::new(Socket::listen(address)?)).run();
    }
    let listener = Socket::listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = listener.local_address()?.ip().expect("it is TCP");
    let looping = EventLoop::new().app(Echo::new(listener));
    let stopper = looping.stopper();
    let clients = thread::spawn(move || -> io::Result<usize> {
        let mut streams = (0..50).map(|_| TcpStream::connect(address)).collect::<io::Result<Vec<_>>>()?;
        let mut echoed = 0;
        for round in 0..100_u8 {
            for stream in &mut streams {
                stream.write_all(&[round; 100])?;
            }
            for stream in &mut streams {
                let mut answer = [0; 100];
                stream.read_exact(&mut answer)?;
                echoed += usize::from(answer == [round; 100]);
            }
        }
        stopper.stop();
        Ok(echoed)
    });
    looping.run()?;
    let echoed = clients.join().expect("clients do not panic")?;
    println!("{echoed} of 5000 messages came back over 50 connections");
    Ok(())
}
