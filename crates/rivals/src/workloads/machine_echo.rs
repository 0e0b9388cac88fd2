//! `machine_echo`: `tcp_echo` with a server of machines on one event loop, beside a raw epoll loop. One operation is one request; the CPU
//! is the server's.

use fibra::machine::platform::{self, Accepted, Buffers, Io, Socket, outcome};
use fibra::machine::{EventLoop, Machine, OP_ACCEPT, OP_READ, OpPool, Ports, Timestamp};

use crate::load::{Epoll, Exchange, with_client};
use crate::measure::Sample;
use crate::peers::Peer;
use crate::plan::{Case, Goal, Params, Size, Workload};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "machine_echo",
    operation: "64 bytes to a server of machines and back; the CPU is the server's",
    cases,
    sides: &[(Peer::Fibra, with_fibra), (Peer::Epoll, with_epoll)],
};

const REQUEST: usize = 64;
const ECHO: Exchange = Exchange { request: &[7; REQUEST], answer: |_| Some(REQUEST) };

fn cases(size: Size) -> Vec<Case> {
    let case = |connections: u64| {
        let connections = if size == Size::Quick { u64::min(connections, 20) } else { connections };
        let params = [("c", connections), ("n", size.pick(200_000, 200)), ("rate", 0), ("w", 1)];
        Case::new(&params, &[Peer::Fibra, Peer::Epoll])
            .metric("cpu", "server CPU ns/request", Goal::Ratio(1.05))
            .metric("ns", "ns/request", Goal::Shown)
            .metric("p99_us", "p99 µs", Goal::Shown)
    };
    if size == Size::Quick { vec![case(64)] } else { vec![case(64), case(1000)] }
}

/// Ends when all its connections have.
struct Echo {
    listener: Socket,
    buffers: Buffers,
    pool: OpPool<Io>,
    to_accept: usize,
    open: usize,
    begun: bool,
}

impl Echo {
    fn submit(&mut self, io: Io, ports: &mut Ports<'_>) {
        ports.submit(self.pool.io(io).expect("one for each connection, and one to accept"));
    }
}

impl Machine for Echo {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        if !std::mem::replace(&mut self.begun, true) {
            self.submit(platform::accept(&self.listener), ports);
        }
        while let Some(done) = ports.input.completions.pop() {
            let (opcode, outcome) = (done.opcode(), outcome(done.result()));
            let Ok(mut io) = done.into_data::<Io>() else { continue };
            match (opcode, outcome) {
                (OP_ACCEPT, _) => {
                    let Accepted { socket, .. } = io.take_accepted().expect("clients connect");
                    self.to_accept -= 1;
                    self.open += 1;
                    self.submit(platform::read_with(&socket, &self.buffers), ports);
                    if self.to_accept > 0 {
                        self.submit(platform::accept(&self.listener), ports);
                    }
                }
                (OP_READ, Ok(number @ 1..)) => self.submit(io.into_write_all(..number), ports),
                (OP_READ, _) | (_, Err(_)) => self.open -= 1,
                (_, Ok(_)) => self.submit(io.into_read(), ports),
            }
        }
        if self.to_accept + self.open == 0 {
            ports.stop();
        }
    }
}

fn with_fibra(params: &Params) -> Sample {
    let connections = params.size("c");
    with_client(params, ECHO, |listener| {
        let echo = Echo {
            listener: listener.into(),
            buffers: Buffers::new(connections, 4096),
            pool: OpPool::with_capacity(connections + 1),
            to_accept: connections,
            open: 0,
            begun: false,
        };
        EventLoop::new().app(echo).run().expect("an event loop runs");
    })
}

fn with_epoll(params: &Params) -> Sample {
    let connections = params.size("c");
    with_client(params, ECHO, |listener| {
        Epoll::serve(&listener, connections, |request, out| out.extend_from_slice(request));
    })
}
