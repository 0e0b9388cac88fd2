//! Machines that do I/O: an echo server without a fiber for each connection, on the event loop of a worker, and clients on fibers; then one
//! operation after the other between two machines.

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use fibra::machine::platform::{self, Accepted, Buffers, Io, Socket, outcome};
use fibra::machine::{
    EventLoop, Machine, OP_READ, OP_WRITE_ALL, OpPool, Overflow, Ports, RingReader, RingWriter, Timestamp, ring,
};
use fibra::net::TcpStream;
use fibra::time::Instant;

use super::page::{Page, rate};
use super::{Options, Outcome};

/// Connections at once, and requests on each.
const CLIENTS: usize = 64;
const REQUESTS: usize = 500;
const MESSAGE: &[u8; 16] = b"no fiber for you";
/// The platform's answer to a read when all buffers are in use.
const ENOBUFS: i32 = 105;
/// Operations between two machines.
const OPERATIONS: usize = 1_000_000;

pub(crate) fn run(page: &Page, _options: &Options) -> Outcome {
    echo(page).map_err(|error| error.to_string())?;
    operations(page).map_err(|error| error.to_string())
}

fn echo(page: &Page) -> io::Result<()> {
    let listener = Socket::listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = listener.local_address()?.ip().ok_or_else(|| io::Error::other("a TCP listener has an address"))?;
    // Fewer than connections: one is taken when there is something to read.
    let buffers = Buffers::new(CLIENTS / 4, 1024);
    let shared = buffers.clone();
    let server = fibra::Handle::current().attach(Echo::new(listener, shared));
    let begin = Instant::now();
    fibra::try_scope(|clients| {
        for _ in 0..CLIENTS {
            clients.spawn(|| ask(address));
        }
        Ok::<_, io::Error>(())
    })?;
    let (took, requests) = (begin.elapsed(), CLIENTS * REQUESTS);
    page.timed("echo", took, requests, &format!("  ({CLIENTS} connections, no fiber and no stack for any of them)"));
    page.row("", format_args!("{} requests a second, with clients and server here", rate(requests, took)));
    // The machine goes, and its operations under way are cancelled.
    if !server.detach() {
        return Err(io::Error::other("the server has gone before it was told to"));
    }
    page.row(
        "buffers",
        format_args!(
            "{} of {} bytes served all of them; {} are back",
            CLIENTS / 4,
            buffers.size(),
            buffers.available()
        ),
    );
    Ok(())
}

/// Accepts for as long as it lives, and sends back what it reads.
struct Echo {
    listener: Socket,
    /// For the standing accept, until that is submitted.
    accepts: Option<RingWriter<Accepted>>,
    accepted: RingReader<Accepted>,
    buffers: Buffers,
    pool: OpPool<Io>,
}

impl Echo {
    fn new(listener: Socket, buffers: Buffers) -> Self {
        let (accepts, accepted) = ring(CLIENTS, Overflow::DropNewest);
        // One for each connection, and one to accept.
        Self { listener, accepts: Some(accepts), accepted, buffers, pool: OpPool::with_capacity(CLIENTS + 1) }
    }

    /// Without an operation left there are too many connections: dropping the socket closes this one.
    fn submit(&mut self, io: Io, ports: &mut Ports<'_>) {
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
        while ports.input.notifications.pop().is_some() {
            while let Some(Accepted { socket, .. }) = self.accepted.read() {
                self.submit(platform::read_with(&socket, &self.buffers), ports);
            }
        }
        while let Some(done) = ports.input.completions.pop() {
            let (opcode, outcome) = (done.opcode(), outcome(done.result()));
            let Ok(io) = done.into_data::<Io>() else { continue };
            match (opcode, outcome) {
                (OP_READ, Ok(number @ 1..)) => self.submit(io.into_write_all(..number), ports),
                (OP_WRITE_ALL, Ok(_)) => self.submit(io.into_read(), ports),
                // All buffers are in use: unread bytes wait in the system.
                (OP_READ, Err(error)) if error.raw_os_error() == Some(ENOBUFS) => self.submit(io.into_read(), ports),
                // The end of the connection: with the last handle, in `io`, the socket is closed.
                _ => {}
            }
        }
    }
}

fn ask(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut answer = [0; MESSAGE.len()];
    for _ in 0..REQUESTS {
        stream.write_all(MESSAGE)?;
        stream.read_exact(&mut answer)?;
        if answer != *MESSAGE {
            return Err(io::Error::other(format!("an echo of {MESSAGE:?} is {answer:?}")));
        }
    }
    Ok(())
}

/// Asks so many times, one question after the other, and counts wrong answers.
struct Asks {
    pool: OpPool<u32>,
    left: usize,
}

impl Machine for Asks {
    fn tick(&mut self, _now: Timestamp, ports: &mut Ports<'_>) {
        while let Some(done) = ports.input.completions.pop() {
            assert_eq!(done.data::<u32>().map(|number| *number as i32 + 1), Some(done.result()));
        }
        if self.left == 0 {
            return ports.stop();
        }
        self.left -= 1;
        if let Ok(op) = self.pool.take(0, (self.left % 1000) as u32) {
            ports.submit(op);
        }
    }
}

/// Adds one to the number that it is sent.
struct Adds;

impl Machine for Adds {
    fn tick(&mut self, _now: Timestamp, ports: &mut Ports<'_>) {
        while let Some(request) = ports.input.submissions.pop() {
            let number = request.data::<u32>().map_or(0, |number| *number as i32);
            ports.complete(request, number + 1);
        }
    }
}

/// An event loop of two machines, on a thread that waits for nothing else.
fn operations(page: &Page) -> io::Result<()> {
    let took = fibra::blocking(|| {
        let begin = Instant::now();
        let asks = Asks { pool: OpPool::with_capacity(4), left: OPERATIONS };
        EventLoop::new().app(asks).platform(Adds).run().map(|()| begin.elapsed())
    })?;
    page.timed("operations", took, OPERATIONS, "  (from one machine to another and back, nothing allocated)");
    Ok(())
}
