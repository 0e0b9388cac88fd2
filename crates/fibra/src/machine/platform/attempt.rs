//! One try of an operation, which moves bytes, a datagram or a connection, or says that it would have to wait.
//!
//! Above: `machine`, which decides which operation is tried when. Below: `driver::transfer`, `receive`.

use std::os::fd::AsFd;

use super::io::{Accepted, Extra, Io, Readiness};
use super::reactor::Side;
use super::socket::{Socket, SocketKind};
use super::{OP_ACCEPT, OP_CONNECT, OP_READ, OP_RECEIVE, OP_RECV_FROM, OP_SEND_TO, OP_WATCH, OP_WRITE, OP_WRITE_ALL};
use crate::driver::transfer::{self, AGAIN, Errno};

/// How often a standing operation takes something before other operations have their turn.
const BATCH: usize = 32;

/// The result of a try.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// The operation is over, with this result. `drained`: the queue was empty. `rings`: something came before.
    Done { result: i32, drained: bool, rings: bool },
    /// Nothing can be moved now. `rings`: but something came before.
    Waits { rings: bool },
    /// Something came, and there may be more: other operations have their turn first.
    More { rings: bool },
    /// The system has no room for another descriptor: tried again later. `rings`: but something came before.
    Starved { rings: bool },
}

impl Tried {
    fn done(result: i32) -> Self {
        Self::Done { result, drained: false, rings: false }
    }

    fn of(transferred: Result<usize, Errno>) -> Self {
        match transferred {
            Ok(number) => Self::done(i32::try_from(number).unwrap_or(i32::MAX)),
            Err(AGAIN) => Self::Waits { rings: false },
            Err(error) => Self::done(-error),
        }
    }
}

/// What a try may use, beside the operation itself.
pub(super) struct Means<'a> {
    /// For standing receives: the received bytes on their way to the ring.
    pub(super) scratch: &'a mut Vec<u8>,
    /// A short read does not mean that the queue is empty.
    pub(super) ends: bool,
    /// The driver has reported something since it was last tried.
    pub(super) reported: bool,
    pub(super) standing: bool,
}

/// The size of the longest datagram, and enough for a stream.
const SCRATCH: usize = 1 << 16;

/// The direction in which an operation works. None: the opcode is no platform's, or the operation does not carry what it needs.
pub(super) fn side(opcode: u32, io: &Io) -> Option<Side> {
    let side = match (opcode, &io.extra) {
        (OP_READ, Extra::Nothing | Extra::Buffers(_) | Extra::Address(_)) => Side::Read,
        (OP_WRITE | OP_WRITE_ALL, Extra::Nothing | Extra::Buffers(_) | Extra::Address(_)) => Side::Write,
        (OP_ACCEPT, Extra::Nothing | Extra::Accepts(_)) => Side::Read,
        (OP_RECV_FROM, Extra::Nothing | Extra::Address(_)) => Side::Read,
        (OP_RECEIVE, Extra::Bytes(_) | Extra::Datagrams(_)) => Side::Read,
        (OP_SEND_TO, Extra::Address(_)) => Side::Write,
        (OP_WATCH, Extra::Watch(Readiness::Readable)) => Side::Read,
        (OP_WATCH, Extra::Watch(Readiness::Writable)) => Side::Write,
        _ => return None,
    };
    io.socket.is_some().then_some(side)
}

fn receive(socket: &Socket, room: &mut [u8]) -> Result<usize, Errno> {
    match socket.kind() {
        SocketKind::Tcp | SocketKind::Socket => transfer::receive(socket.as_fd(), room),
        SocketKind::File => transfer::read(socket.as_fd(), room),
        SocketKind::Watched => Err(libc::EOPNOTSUPP),
    }
}

fn send(socket: &Socket, bytes: &[u8]) -> Result<usize, Errno> {
    match socket.kind() {
        SocketKind::Tcp | SocketKind::Socket => transfer::send(socket.as_fd(), bytes),
        SocketKind::File => transfer::write(socket.as_fd(), bytes),
        SocketKind::Watched => Err(libc::EOPNOTSUPP),
    }
}

/// Tries an operation that has a [`side`], and with it a socket.
pub(super) fn attempt(opcode: u32, io: &mut Io, means: &mut Means<'_>) -> Tried {
    let Some(socket) = &io.socket else { return Tried::done(-libc::EINVAL) };
    if socket.is_closed() {
        return Tried::done(-libc::EBADF);
    }
    let mut tried = attempt_open(opcode, io, means);
    // Nothing was moved, and another thread has closed the socket meanwhile: an end or an error that the closing itself made is not the
    // other side's. (Closed, and then shut down: a try that found it shut down sees the mark. A connection that failed has no socket.)
    if let Tried::Done { result, .. } = &mut tried
        && (*result < 0 || *result == 0 && opcode != OP_ACCEPT)
        && io.socket.as_ref().is_some_and(Socket::is_closed)
    {
        *result = -libc::EBADF;
    }
    tried
}

fn attempt_open(opcode: u32, io: &mut Io, means: &mut Means<'_>) -> Tried {
    let Some(socket) = &io.socket else { return Tried::done(-libc::EINVAL) };
    match opcode {
        OP_READ => read(io, means.ends),
        OP_WRITE => Tried::of(send(socket, io.part())),
        OP_WRITE_ALL => write_all(io),
        OP_ACCEPT => accept(io),
        OP_CONNECT => connected(io),
        OP_RECV_FROM => recv_from(io),
        OP_SEND_TO => match &io.extra {
            Extra::Address(to) => Tried::of(transfer::send_to(socket.as_fd(), io.part(), to)),
            _ => Tried::done(-libc::EINVAL),
        },
        OP_RECEIVE => receive_into(io, means),
        OP_WATCH => watch(socket, io, means),
        _ => Tried::done(-libc::EOPNOTSUPP),
    }
}

fn read(io: &mut Io, ends: bool) -> Tried {
    if !io.take_buffer() {
        let socket = io.socket.as_ref().map(|socket| transfer::is_possible(socket.as_fd(), Side::Read.interest()));
        // A buffer is missing only if there is something for it.
        return if socket == Some(Ok(false)) { Tried::Waits { rings: false } } else { Tried::done(-libc::ENOBUFS) };
    }
    let room = &mut io.buffer[io.start as usize..io.end as usize];
    let Some(socket) = io.socket.as_ref().filter(|_| !room.is_empty()) else { return Tried::done(0) };
    match receive(socket, room) {
        Ok(number) => {
            let drained = socket.kind() == SocketKind::Tcp && (1..room.len()).contains(&number) && !ends;
            Tried::Done { result: i32::try_from(number).unwrap_or(i32::MAX), drained, rings: false }
        }
        Err(error) => {
            // Nothing came: others may need the buffer.
            io.give_buffer_back();
            Tried::of(Err(error))
        }
    }
}

/// Each partial write moves the start of the range. The result is the number of bytes from the first start, which follows from `end` and
/// the length that was asked for.
fn write_all(io: &mut Io) -> Tried {
    loop {
        let Some(socket) = &io.socket else { return Tried::done(-libc::EINVAL) };
        if io.part().is_empty() {
            return Tried::done(i32::try_from(io.end - io.written_from).unwrap_or(i32::MAX));
        }
        match send(socket, io.part()) {
            Ok(number) => io.start += number as u32,
            error => return Tried::of(error),
        }
    }
}

/// Errors of a connection that came and went before it was accepted: the next one is as good.
fn is_passing(error: Errno) -> bool {
    use libc::{ECONNABORTED, EHOSTDOWN, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENOPROTOOPT, EPROTO};
    matches!(error, ECONNABORTED | EPROTO | ENETDOWN | ENETUNREACH | EHOSTDOWN | EHOSTUNREACH | ENOPROTOOPT)
}

fn accept(io: &mut Io) -> Tried {
    let Some(listener) = &io.socket else { return Tried::done(-libc::EINVAL) };
    let mut rings = false;
    for _ in 0..BATCH {
        match transfer::accept(listener.as_fd()) {
            Ok((descriptor, from)) => {
                let accepted = Accepted { socket: Socket::new(descriptor, listener.kind()), from };
                let number = accepted.socket.number() as i32;
                match &mut io.extra {
                    Extra::Accepts(ring) => {
                        // A connection that the ring refuses or throws out is closed here.
                        drop(ring.write(accepted));
                        rings = true;
                    }
                    extra => {
                        *extra = Extra::Accepted(accepted);
                        return Tried::done(number);
                    }
                }
            }
            Err(AGAIN) => return Tried::Waits { rings },
            Err(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => return Tried::Starved { rings },
            Err(error) if is_passing(error) => {}
            Err(error) => return Tried::Done { result: -error, drained: false, rings },
        }
    }
    Tried::More { rings }
}

/// A connection that was under way is decided.
fn connected(io: &mut Io) -> Tried {
    let Some(socket) = &io.socket else { return Tried::done(-libc::EINVAL) };
    match transfer::take_error(socket.as_fd()) {
        Ok(()) => Tried::done(0),
        Err(error) => {
            io.socket = None;
            Tried::done(-error)
        }
    }
}

fn recv_from(io: &mut Io) -> Tried {
    let room = &mut io.buffer[io.start as usize..io.end as usize];
    let Some(socket) = &io.socket else { return Tried::done(-libc::EINVAL) };
    let received = transfer::receive_from(socket.as_fd(), room).map(|(len, from)| {
        io.extra = Extra::Address(from);
        len.min(room.len())
    });
    Tried::of(received)
}

fn receive_into(io: &mut Io, means: &mut Means<'_>) -> Tried {
    means.scratch.resize(SCRATCH, 0);
    let Some(socket) = &io.socket else { return Tried::done(-libc::EINVAL) };
    let mut rings = false;
    for _ in 0..BATCH {
        let came = match &mut io.extra {
            Extra::Bytes(ring) => match receive(socket, means.scratch) {
                // The end of the stream.
                Ok(0) => return Tried::Done { result: 0, drained: false, rings },
                Ok(number) => {
                    ring.write(&means.scratch[..number]);
                    if socket.kind() == SocketKind::Tcp && number < means.scratch.len() && !means.ends {
                        return Tried::Waits { rings: true };
                    }
                    Ok(())
                }
                Err(error) => Err(error),
            },
            Extra::Datagrams(ring) => match transfer::receive_from(socket.as_fd(), means.scratch) {
                Ok((len, from)) => {
                    let room = means.scratch.len();
                    ring.write(&means.scratch[..len.min(room)], from, len > room);
                    Ok(())
                }
                Err(error) => Err(error),
            },
            _ => Err(libc::EINVAL),
        };
        match came {
            Ok(()) => rings = true,
            Err(AGAIN) => return Tried::Waits { rings },
            Err(error) => return Tried::Done { result: -error, drained: false, rings },
        }
    }
    Tried::More { rings }
}

fn watch(socket: &Socket, io: &Io, means: &Means<'_>) -> Tried {
    let Extra::Watch(readiness) = &io.extra else { return Tried::done(-libc::EINVAL) };
    let side = if *readiness == Readiness::Readable { Side::Read } else { Side::Write };
    // Others may work on it, so what is known from earlier means nothing: a report is believed, otherwise the system is asked.
    let possible = means.reported || transfer::is_possible(socket.as_fd(), side.interest()) == Ok(true);
    match (possible, means.standing) {
        (true, false) => Tried::done(0),
        (rings, _) => Tried::Waits { rings },
    }
}
