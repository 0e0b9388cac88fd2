//! A chat server over TCP: an actor per connection, an actor for the room, a supervisor that starts the room anew.
//!
//! ```text
//! cargo run --release -p fibra --example chat -- 127.0.0.1:7000              (then: nc 127.0.0.1 7000)
//! cargo run --release -p fibra --example chat -- --self-test [clients] [lines]
//! ```
//!
//! A line is said to all others in the room. `/name NAME` gives a name, `/crash` makes the room fail (it is started anew, and those who
//! are in it stay), `/quit` leaves. What it shows: `ctx.attach`, which turns the lines of a socket into messages under back-pressure; a
//! handler that writes to a socket, and blocks; monitors, by which the room learns that a connection has ended; a registered name.
//!
//! Messages go round: from a connection to the room, and from there to all connections. Were a connection one actor, it could wait for a
//! place in the room's mailbox while the room waits for a place in its own, and both would stand still. So it is two: a reader, which only
//! sends to the room, and a writer, which only the room sends to. No circle of senders that wait is left.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use fibra::actor::{self, Actor, Addr, Context, Failure, Recipient, Reply, StopReason, Supervisor, registry};
use fibra::net::{TcpListener, TcpStream};
use fibra::stream;
use fibra::sync::Mutex;

/// The name of the room.
const ROOM: &str = "chat.room";

/// How many lines a client may be behind before it holds up the room.
const HEARD_LATE: usize = 1024;

/// What a connection is told to write.
struct Say(String);

/// Who is in the room. It lies outside of the actor, so that it survives a failure.
type Members = Arc<Mutex<BTreeMap<u64, Recipient<Say>>>>;

struct Room {
    members: Members,
}

enum RoomMsg {
    Join(u64, Addr<Writer>),
    Line(u64, String),
    Left(u64),
    Crash,
    Count(Reply<usize>),
}

impl Actor for Room {
    type Message = RoomMsg;

    fn handle(&mut self, message: RoomMsg, ctx: &mut Context<Self>) -> Result<(), Failure> {
        match message {
            RoomMsg::Join(number, writer) => {
                ctx.monitor(&writer, move |_| RoomMsg::Left(number));
                self.members.lock().insert(number, writer.recipient());
            }
            RoomMsg::Line(from, line) => {
                let others =
                    self.members.lock().iter().filter(|(id, _)| **id != from).map(|(_, to)| to.clone()).collect();
                let others: Vec<Recipient<Say>> = others;
                // One that reads slowly holds up the room for a moment, and then misses a line. One that has ended will be told of.
                others.iter().for_each(|to| drop(to.send_timeout(Say(line.clone()), Duration::from_secs(1))));
            }
            RoomMsg::Left(number) => drop(self.members.lock().remove(&number)),
            RoomMsg::Crash => return Err(Failure::msg("a client said /crash")),
            RoomMsg::Count(reply) => reply.send(self.members.lock().len()),
        }
        Ok(())
    }
}

/// The half of a connection that writes lines.
struct Writer {
    socket: TcpStream,
}

impl Actor for Writer {
    type Message = Say;

    fn handle(&mut self, Say(line): Say, _: &mut Context<Self>) -> Result<(), Failure> {
        Ok(writeln!(self.socket, "{line}")?)
    }

    fn stopping(&mut self, _: &StopReason) {
        // The reader sees that, and ends as well.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// The half that reads lines.
struct Reader {
    socket: TcpStream,
    number: u64,
    room: Addr<Room>,
    name: String,
}

enum ReaderMsg {
    Input(String),
    /// There will be no further line.
    Closed,
}

impl Actor for Reader {
    type Message = ReaderMsg;

    fn started(&mut self, ctx: &mut Context<Self>) -> Result<(), Failure> {
        writeln!(self.socket, "welcome, {}", self.name)?;
        let writer = actor::Builder::new().mailbox(HEARD_LATE).spawn(Writer { socket: self.socket.try_clone()? })?;
        self.room.send(RoomMsg::Join(self.number, writer))?;
        let socket = self.socket.try_clone()?;
        let input = stream::producer(move |tx| {
            let lines = BufReader::new(socket).lines().map_while(Result::ok);
            let _ = lines.map(ReaderMsg::Input).chain([ReaderMsg::Closed]).try_for_each(|line| tx.send(line));
        });
        ctx.attach(input, |message| message);
        Ok(())
    }

    fn handle(&mut self, message: ReaderMsg, ctx: &mut Context<Self>) -> Result<(), Failure> {
        match message {
            ReaderMsg::Closed => ctx.stop(),
            ReaderMsg::Input(line) => match line.split_once(' ').unwrap_or((&line, "")) {
                ("/name", name) => self.name = name.to_owned(),
                ("/quit", _) => ctx.stop(),
                ("/crash", _) => self.room.send(RoomMsg::Crash)?,
                _ => self.room.send(RoomMsg::Line(self.number, format!("{}: {line}", self.name)))?,
            },
        }
        Ok(())
    }

    fn stopping(&mut self, _: &StopReason) {
        // The fiber that reads lines ends with it, and the room lets the writer go.
        let _ = self.socket.shutdown(Shutdown::Both);
        let _ = self.room.send(RoomMsg::Left(self.number));
    }
}

/// Starts the room, and accepts connections until the listener fails.
fn serve(listener: &TcpListener) -> std::io::Result<()> {
    let members = Members::default();
    let sup = Supervisor::one_for_one().max_restarts(100, Duration::from_secs(1)).name("rooms");
    let room = sup.child("room", move || Ok::<_, Failure>(Room { members: members.clone() }));
    registry::register(ROOM, &room).map_err(std::io::Error::other)?;
    let _rooms = sup.spawn();
    for number in 1.. {
        let (socket, _) = listener.accept()?;
        let name = format!("guest {number}");
        // It lives by what is attached to it.
        actor::spawn(Reader { socket, number, room: room.clone(), name });
    }
    Ok(())
}

/// A client that says its lines, and reads until it has heard so many.
fn chatter(address: std::net::SocketAddr, number: usize, lines: usize, hears: usize) -> std::io::Result<usize> {
    let mut socket = TcpStream::connect(address)?;
    let mut input = BufReader::new(socket.try_clone()?).lines();
    input.next().transpose()?;
    // All have come before the first one speaks: the room has counted them.
    let room = registry::lookup::<Room>(ROOM).expect("the room is open");
    while room.call(RoomMsg::Count).map_err(std::io::Error::other)? <= hears / lines.max(1) {
        fibra::sleep(Duration::from_millis(1));
    }
    writeln!(socket, "/name client{number}")?;
    for line in 0..lines {
        // In the middle of it all, the room fails once per client.
        if line == lines / 2 {
            writeln!(socket, "/crash")?;
        }
        writeln!(socket, "line {line}")?;
    }
    let mut heard = BTreeMap::new();
    for line in input.take(hears) {
        let line = line?;
        let (who, what) = line.split_once(": line ").ok_or_else(|| std::io::Error::other(line.clone()))?;
        let next: &mut usize = heard.entry(who.to_owned()).or_default();
        assert_eq!(what, next.to_string(), "the lines of {who} are in order");
        *next += 1;
    }
    writeln!(socket, "/quit")?;
    Ok(heard.values().sum())
}

fn self_test(clients: usize, lines: usize) -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = fibra::spawn(move || serve(&listener));
    let talkers: Vec<_> = (0..clients)
        .map(|number| fibra::spawn(move || chatter(address, number, lines, (clients - 1) * lines)))
        .collect();
    let mut heard = 0;
    for talker in talkers {
        heard += talker.join().map_err(std::io::Error::other)??;
    }
    println!("{clients} clients said {lines} lines each, and heard {heard} lines of each other");
    server.cancel();
    let _ = server.join();
    registry::unregister(ROOM);
    Ok(())
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    fibra::run(|| match arguments.first().map(String::as_str) {
        Some("--self-test") => self_test(number(1, 8).max(2), number(2, 50)),
        address => serve(&TcpListener::bind(address.unwrap_or("127.0.0.1:7000"))?),
    })
}
