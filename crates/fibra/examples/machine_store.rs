//! A key-value server of machines in three layers: the server accepts, a *connection* machine for each client reads and writes bytes, and
//! inside it a *protocol* machine sees whole frames and nothing of sockets. The parent translates: what the child asks for in frames, it
//! asks the platform for in bytes.
//!
//! ```text
//! cargo run --release -p fibra --example machine_store                    # talks to itself, and ends
//! cargo run --release -p fibra --example machine_store -- 127.0.0.1:7000  # serves until it is stopped
//! ```
//!
//! A frame is four bytes of length (big-endian), then that many bytes of text: `SET key value` is answered with `OK`, `GET key` with
//! `VALUE value` or `NONE`.
//!
//! What it shows: children of children, a parent that makes other operations of its child's (protocol translation), and one that ends its
//! child's operations when the connection ends.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::thread;

use fibra::machine::platform::{self, Accepted, Io, Socket, outcome};
use fibra::machine::{
    Child, EventLoop, Machine, MachineRef, Message, OP_ACCEPT, OP_READ, OP_WRITE_ALL, OpPool, Ports, Request, Timestamp,
};

type Store = Rc<RefCell<HashMap<String, String>>>;

/// The protocol's own operations: give me the next frame; send this one.
const NEXT: u32 = 1;
const SEND: u32 = 2;
/// Longer frames end the connection.
const LONGEST: usize = 64 << 10;

/// Asks for a frame, answers it, asks for the next one.
struct Protocol {
    store: Store,
    pool: OpPool<Vec<u8>>,
    begun: bool,
}

impl Protocol {
    fn new(store: Store) -> Self {
        Self { store, pool: OpPool::with_capacity(1), begun: false }
    }

    fn answer(&self, frame: &[u8]) -> String {
        let text = String::from_utf8_lossy(frame);
        let mut words = text.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("SET"), Some(key), Some(value)) => {
                self.store.borrow_mut().insert(key.to_owned(), value.to_owned());
                "OK".to_owned()
            }
            (Some("GET"), Some(key), None) => match self.store.borrow().get(key) {
                Some(value) => format!("VALUE {value}"),
                None => "NONE".to_owned(),
            },
            _ => "WHAT?".to_owned(),
        }
    }
}

impl Machine for Protocol {
    fn tick(&mut self, _now: Timestamp, ports: &mut Ports<'_>) {
        if !std::mem::replace(&mut self.begun, true) {
            ports.submit(self.pool.take(NEXT, Vec::new()).expect("one at a time"));
        }
        while let Some(done) = ports.input.completions.pop() {
            let (opcode, result) = (done.opcode(), done.result());
            // The connection is at its end: nothing more is asked for.
            let Some(frame) = done.into_data::<Vec<u8>>().ok().filter(|_| result >= 0) else { continue };
            let next = match opcode {
                NEXT => self.pool.take(SEND, self.answer(&frame).into_bytes()),
                _ => self.pool.take(NEXT, frame),
            };
            ports.submit(next.expect("one at a time"));
        }
    }
}

/// Has the socket. Reads until there is a whole frame for its child, writes what that sends.
struct Connection {
    socket: Socket,
    store: Store,
    protocol: Option<Child<Protocol>>,
    /// What was read and is not given to the child yet.
    bytes: Vec<u8>,
    /// Of the child: it waits for a frame.
    wants: Option<Request>,
    /// Of the child: it waits until its frame is sent.
    sends: Option<Request>,
    pool: OpPool<Io>,
    reading: bool,
    ended: bool,
}

impl Connection {
    fn new(socket: Socket, store: Store) -> Self {
        let (protocol, pool) = (None, OpPool::with_capacity(2));
        Self {
            socket,
            store,
            protocol,
            bytes: Vec::new(),
            wants: None,
            sends: None,
            pool,
            reading: false,
            ended: false,
        }
    }

    /// The next frame, if all of it is there.
    fn take_frame(&mut self) -> Option<Vec<u8>> {
        let head = self.bytes.first_chunk::<4>()?;
        let length = u32::from_be_bytes(*head) as usize;
        if length > LONGEST {
            self.ended = true;
            return None;
        }
        let frame = self.bytes.get(4..4 + length)?.to_vec();
        self.bytes.drain(..4 + length);
        Some(frame)
    }

    /// Serves the child's wish for a frame, from what is there, or by reading more.
    fn serve(&mut self, ports: &mut Ports<'_>) {
        let Some(mut request) = self.wants.take() else { return };
        let frame = self.take_frame();
        match frame {
            Some(frame) => {
                if let Some(data) = request.data_mut::<Vec<u8>>() {
                    *data = frame;
                }
                ports.complete(request, 0);
            }
            None if self.ended => ports.complete(request, -libc::ECONNRESET),
            None => {
                if !std::mem::replace(&mut self.reading, true) {
                    let read = self.pool.io(platform::read(&self.socket, vec![0; 4096])).expect("one read, one write");
                    // On behalf of the child's operation: a trace shows what led to what.
                    ports.submit(read.caused_by(&request).to(MachineRef::platform(ports.me().thread)));
                }
                self.wants = Some(request);
            }
        }
    }
}

impl Machine for Connection {
    fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
        let store = &self.store;
        self.protocol.get_or_insert_with(|| ports.child(Protocol::new(store.clone())));
        // What the platform says.
        if let Some(protocol) = &mut self.protocol {
            protocol.tick(now, ports);
        }
        while let Some(done) = ports.input.completions.pop() {
            let (opcode, outcome) = (done.opcode(), outcome(done.result()));
            match (opcode, outcome) {
                (OP_READ, Ok(number @ 1..)) => {
                    self.reading = false;
                    if let Some(io) = done.data::<Io>() {
                        self.bytes.extend(&io.buffer()[..number]);
                    }
                }
                (OP_WRITE_ALL, Ok(_)) => {
                    if let Some(request) = self.sends.take() {
                        ports.complete(request, 0);
                    }
                }
                // The end, or an error.
                _ => (self.ended, self.reading) = (true, false),
            }
        }
        // What the child asks for.
        let Some(mut protocol) = self.protocol.take() else { return };
        while let Some(message) = protocol.output().next() {
            match message {
                Message::Submission(request) if request.opcode() == NEXT => self.wants = Some(request),
                Message::Submission(request) => {
                    let text = request.data::<Vec<u8>>().map_or(&[][..], |data| data);
                    let mut frame = (text.len() as u32).to_be_bytes().to_vec();
                    frame.extend(text);
                    let write = self.pool.io(platform::write_all(&self.socket, frame)).expect("one read, one write");
                    ports.submit(write.caused_by(&request).to(MachineRef::platform(ports.me().thread)));
                    self.sends = Some(request);
                }
                other => ports.forward(other),
            }
        }
        self.protocol = Some(protocol);
        self.serve(ports);
    }
}

/// Accepts, and has a child for each connection.
struct Server {
    listener: Socket,
    store: Store,
    connections: Vec<Child<Connection>>,
    pool: OpPool<Io>,
    begun: bool,
}

impl Machine for Server {
    fn tick(&mut self, now: Timestamp, ports: &mut Ports<'_>) {
        // Children first: what is theirs is not ours.
        for connection in &mut self.connections {
            connection.tick(now, ports);
        }
        if !std::mem::replace(&mut self.begun, true) {
            ports.submit(self.pool.io(platform::accept(&self.listener)).expect("one accept"));
        }
        while let Some(done) = ports.input.completions.pop() {
            if done.opcode() == OP_ACCEPT
                && let Ok(mut io) = done.into_data::<Io>()
            {
                if let Some(Accepted { socket, .. }) = io.take_accepted() {
                    let _ = socket.set_nodelay(true);
                    let mut connection = ports.child(Connection::new(socket, self.store.clone()));
                    connection.tick(now, ports);
                    self.connections.push(connection);
                }
                ports.submit(self.pool.io(platform::accept(&self.listener)).expect("one accept"));
            }
        }
        for connection in &mut self.connections {
            connection.forward_all(ports);
        }
        // Those that have ended go, with all that is theirs.
        self.connections.retain(|connection| !connection.machine().ended);
    }
}

fn server(listener: Socket) -> Server {
    Server { listener, store: Store::default(), connections: Vec::new(), pool: OpPool::with_capacity(1), begun: false }
}

/// Of a client.
fn ask(stream: &mut TcpStream, text: &str) -> io::Result<String> {
    stream.write_all(&(text.len() as u32).to_be_bytes())?;
    stream.write_all(text.as_bytes())?;
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let mut answer = vec![0; u32::from_be_bytes(head) as usize];
    stream.read_exact(&mut answer)?;
    String::from_utf8(answer).map_err(io::Error::other)
}

fn main() -> io::Result<()> {
    if let Some(address) = std::env::args().nth(1) {
        let address: SocketAddr = address.parse().map_err(io::Error::other)?;
        return EventLoop::new().app(server(Socket::listen(address)?)).run();
    }
    let listener = Socket::listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = listener.local_address()?.ip().expect("it is TCP");
    let looping = EventLoop::new().app(server(listener));
    let stopper = looping.stopper();
    let clients = thread::spawn(move || -> io::Result<()> {
        let mut streams = (0..10).map(|_| TcpStream::connect(address)).collect::<io::Result<Vec<_>>>()?;
        for (number, stream) in streams.iter_mut().enumerate() {
            assert_eq!(ask(stream, &format!("SET key{number} value of {number}"))?, "OK");
        }
        streams.rotate_left(3);
        for (number, stream) in streams.iter_mut().enumerate() {
            assert_eq!(ask(stream, &format!("GET key{number}"))?, format!("VALUE value of {number}"));
        }
        streams.truncate(1);
        println!("10 clients: {}, {}", ask(&mut streams[0], "GET key7")?, ask(&mut streams[0], "GET nothing")?);
        // A frame that is too long ends its connection, and no other.
        let mut rude = TcpStream::connect(address)?;
        rude.write_all(&u32::MAX.to_be_bytes())?;
        let ended = rude.read(&mut [0; 1]).unwrap_or(0);
        println!("{}, and {}", if ended == 0 { "a rude one is gone" } else { "?" }, ask(&mut streams[0], "SET a b")?);
        stopper.stop();
        Ok(())
    });
    looping.run()?;
    clients.join().expect("clients do not panic")
}
