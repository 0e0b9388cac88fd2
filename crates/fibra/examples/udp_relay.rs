//! A UDP relay of machines: what comes in at one address is sent on to another. When datagrams come faster than they can be sent, the
//! oldest are thrown away, and counted: for sound, video or measurements, where what is late is worth nothing.
//!
//! ```text
//! cargo run --release -p fibra --example udp_relay                                     # relays to itself, and ends
//! cargo run --release -p fibra --example udp_relay -- 127.0.0.1:7000 127.0.0.1:7001    # from, to; until it is stopped
//! ```
//!
//! What it shows: a standing receive into a ring of one's own with an overflow policy, its statistics, one sending operation that is used
//! again and again; all memory is allocated before the first datagram.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fibra::machine::platform::{self, DatagramReader, DatagramWriter, Io, RecvStats, Socket, datagram_ring, outcome};
use fibra::machine::{EventLoop, Machine, OP_SEND_TO, OpPool, Overflow, Ports, Timestamp};

/// How much the ring holds at most.
const DATAGRAMS: usize = 64;
const BYTES: usize = 64 << 10;

struct Relay {
    socket: Socket,
    to: SocketAddr,
    /// For the standing receive, until that is submitted.
    ring: Option<DatagramWriter>,
    received: DatagramReader,
    /// The receive, and one datagram on its way.
    pool: OpPool<Io>,
    /// Room for that datagram, if it is not on its way.
    room: Option<Vec<u8>>,
    sent: u64,
    /// An empty datagram ends it, and then it says here what it has done.
    report: Option<mpsc::Sender<(RecvStats, u64)>>,
}

impl Relay {
    fn new(socket: UdpSocket, to: SocketAddr, report: Option<mpsc::Sender<(RecvStats, u64)>>) -> Self {
        let (ring, received) = datagram_ring(DATAGRAMS, BYTES, Overflow::OverwriteOldest);
        let (pool, room) = (OpPool::with_capacity(2), Some(vec![0; 64 << 10]));
        Self { socket: socket.into(), to, ring: Some(ring), received, pool, room, sent: 0, report }
    }

    /// Sends the oldest datagram on, if there is one, and none on its way.
    fn send_next(&mut self, ports: &mut Ports<'_>) {
        let Some(mut room) = self.room.take() else { return };
        match self.received.read(&mut room) {
            Some((0, _from)) if self.report.is_some() => {
                if let Some(report) = self.report.take() {
                    let _ = report.send((self.received.stats(), self.sent));
                }
                ports.stop();
            }
            Some((number, _from)) => {
                let io = platform::send_to(&self.socket, room, self.to).range(..number);
                ports.submit(self.pool.io(io).expect("one receive and one send"));
            }
            None => self.room = Some(room),
        }
    }
}

impl Machine for Relay {
    fn tick(&mut self, _now: Timestamp, ports: &mut Ports<'_>) {
        if let Some(ring) = self.ring.take() {
            let receive = platform::receive_into(&self.socket, ring);
            ports.submit(self.pool.io(receive).expect("one receive and one send"));
        }
        while let Some(done) = ports.input.completions.pop() {
            if done.opcode() != OP_SEND_TO {
                // The standing receive has ended: an error of the socket.
                eprintln!("udp_relay: {:?}", outcome(done.result()));
                return ports.stop();
            }
            self.sent += u64::from(done.result() >= 0);
            self.room = done.into_data::<Io>().ok().map(Io::into_buffer);
        }
        while ports.input.notifications.pop().is_some() {}
        self.send_next(ports);
    }
}

fn main() -> io::Result<()> {
    let arguments: Vec<SocketAddr> =
        std::env::args().skip(1).map(|text| text.parse().map_err(io::Error::other)).collect::<io::Result<_>>()?;
    if let [from, to] = arguments[..] {
        return EventLoop::new().app(Relay::new(UdpSocket::bind(from)?, to, None)).run();
    }

    // A sender that does not wait, and a receiver at the other end that counts.
    let (inside, sink) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    let (from, to) = (inside.local_addr()?, sink.local_addr()?);
    let (report, reported) = mpsc::channel();
    let sending = thread::spawn(move || -> io::Result<(RecvStats, u64)> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        for number in 0..2_000_u64 {
            socket.send_to(&number.to_be_bytes(), from)?;
            if number % 64 == 63 {
                // The system itself throws datagrams away if its own room is full: not so fast.
                thread::sleep(Duration::from_millis(1));
            }
        }
        loop {
            // Any datagram may be lost, also this one.
            socket.send_to(&[], from)?;
            if let Ok(report) = reported.recv_timeout(Duration::from_millis(10)) {
                return Ok(report);
            }
        }
    });
    let counting = thread::spawn(move || -> io::Result<u64> {
        let (mut came, mut last, mut room) = (0, None, [0; 64]);
        loop {
            if sink.recv(&mut room)? == 0 {
                return Ok(came);
            }
            let number = u64::from_be_bytes(room[..8].try_into().expect("eight bytes"));
            assert!(last < Some(number), "in order");
            (came, last) = (came + 1, Some(number));
        }
    });
    EventLoop::new().app(Relay::new(inside, to, Some(report))).run()?;
    let (stats, sent) = sending.join().expect("the sender does not panic")?;
    UdpSocket::bind("127.0.0.1:0")?.send_to(&[], to)?;
    let came = counting.join().expect("the counter does not panic")?;
    println!("{sent} relayed, {} thrown away, {came} seen at the other end", stats.overwritten);
    Ok(())
}
