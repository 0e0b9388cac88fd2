//! `machine_mem`: `conn_mem` with a server of machines on one event loop: connections that have asked once and wait for the next request,
//! each with a read that is in flight. The buffers are few: an idle connection holds none.

use std::net::SocketAddr;

use fibra::machine::platform::{self, Accepted, Buffers, Io, Socket, outcome};
use fibra::machine::{EventLoop, Machine, OP_ACCEPT, OP_READ, OpPool, Ports, Timestamp};
use interop::tls::Trust;

use super::conn_mem::{ANSWER, REQUEST, SETTLE, finish, note_answered, start_clients};
use crate::load::raise_descriptor_limit;
use crate::measure::{Memory, Meter, Sample, Span};
use crate::peers::Peer;
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "machine_mem",
    operation: "one idle connection of a server of machines: bytes of memory and page tables",
    cases,
    sides: &[(Peer::Fibra, with_fibra)],
};

fn cases(size: Size) -> Vec<Case> {
    vec![
        Case::new(&[("n", size.pick(10_000, 50)), ("w", 1)], &[Peer::Fibra])
            .metric("bytes", "bytes each", Goal::AtMost(600.0))
            .metric("ns", "ns to connect and ask (CPU)", Goal::Shown),
    ]
}

/// As many as are asking at one moment, and more.
const BUFFERS: usize = 16;

struct Server {
    listener: Socket,
    address: SocketAddr,
    trust: Trust,
    buffers: Buffers,
    pool: OpPool<Io>,
    to_accept: usize,
    connections: usize,
    /// When the loop is there, and nothing that belongs to connections.
    before: Option<Memory>,
    meter: Option<Meter>,
}

impl Server {
    fn submit(&mut self, io: Io, ports: &mut Ports<'_>) {
        ports.submit(self.pool.io(io).expect("one for each connection, and one to accept"));
    }

    /// Every connection waits: measures a little later, and ends the process.
    fn all_answered(&mut self) {
        let connecting: Span = self.meter.take().expect("the last answer is one").stop();
        let (before, connections) = (self.before.expect("of the first tick"), self.connections);
        std::thread::spawn(move || {
            std::thread::sleep(SETTLE);
            finish(&before, &connecting, connections)
        });
    }
}

impl Machine for Server {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        if self.before.is_none() {
            (self.before, self.meter) = (Some(Memory::now()), Some(Meter::start()));
            self.buffers = Buffers::new(BUFFERS, 4096);
            self.pool = OpPool::with_capacity(self.connections + 1);
            start_clients(self.address, self.connections, false, &self.trust);
            self.submit(platform::accept(&self.listener), ports);
        }
        while let Some(done) = ports.input.completions.pop() {
            let (opcode, outcome) = (done.opcode(), outcome(done.result()));
            let Ok(mut io) = done.into_data::<Io>() else { continue };
            match (opcode, outcome) {
                (OP_ACCEPT, _) => {
                    let Accepted { socket, .. } = io.take_accepted().expect("clients connect");
                    self.to_accept -= 1;
                    self.submit(platform::read_with(&socket, &self.buffers), ports);
                    if self.to_accept > 0 {
                        self.submit(platform::accept(&self.listener), ports);
                    }
                }
                (OP_READ, Ok(REQUEST)) => self.submit(io.into_write_all(..ANSWER), ports),
                (OP_READ, ended) => panic!("a request comes as a whole, and its connection stays: {ended:?}"),
                (_, written) => {
                    written.expect("the client reads");
                    self.submit(io.into_read(), ports);
                    if note_answered() == self.connections as u64 {
                        self.all_answered();
                    }
                }
            }
        }
    }
}

fn with_fibra(params: &Params) -> Sample {
    raise_descriptor_limit();
    let connections = params.size("n");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    let server = Server {
        listener: listener.into(),
        address,
        trust: Trust::new(),
        buffers: Buffers::new(1, 1),
        pool: OpPool::with_capacity(1),
        to_accept: connections,
        connections,
        before: None,
        meter: None,
    };
    EventLoop::new().app(server).run().expect("an event loop runs");
    unreachable!("it is ended by its measurement")
}
