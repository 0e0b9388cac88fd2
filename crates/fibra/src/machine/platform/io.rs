//! The data of an operation for a platform, and the functions that make one.
//!
//! Above: users. Below: `socket`, `receive`. `machine` carries the operations out.
//!
//! All operations carry the same type, so that one pool serves a machine that reads, writes and accepts. Socket, buffer
//! and ring of the initiator belong to the operation until it is answered, and come back with it. This is plain
//! ownership: nothing has to be kept alive by hand, and nothing can be freed too early.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use super::super::op::Op;
use super::super::pool::{Exhausted, OpPool};
use super::super::ring::RingWriter;
use super::buffers::Buffers;
use super::receive::{ByteWriter, DatagramWriter};
use super::socket::Socket;
use super::{
    OP_ACCEPT, OP_CLOSE, OP_CONNECT, OP_READ, OP_RECEIVE, OP_RECV_FROM, OP_SEND_TO, OP_WATCH, OP_WRITE, OP_WRITE_ALL,
};
use crate::driver::transfer::Address;

/// A connection that a listener has accepted.
#[derive(Debug)]
pub struct Accepted {
    /// The connection.
    pub socket: Socket,
    /// The address of the other side.
    pub from: Address,
}

/// The event to wait for with [`watch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// Reading or accepting, or the end of it, or an error.
    Readable,
    /// Writing, or an error.
    Writable,
}

/// The part of an operation's data beside socket and buffer.
#[derive(Default)]
pub(super) enum Extra {
    #[default]
    Nothing,
    /// The address to send to, or received from.
    Address(Address),
    Accepted(Accepted),
    /// Standing: accepted connections go here.
    Accepts(RingWriter<Accepted>),
    Bytes(ByteWriter),
    Datagrams(DatagramWriter),
    /// The buffer comes from here when it is needed, and goes back.
    Buffers(Buffers),
    Watch(Readiness),
}

/// The data of an operation for a [`Platform`](super::Platform): a socket, a buffer, an address, a ring; and after the answer their state.
/// Made by [`read`], [`write()`] and the others; handed to a pool of operations by [`OpPool::io`].
pub struct Io {
    pub(super) socket: Option<Socket>,
    pub(super) buffer: Vec<u8>,
    /// The part of the buffer that is read into or written.
    pub(super) start: u32,
    pub(super) end: u32,
    /// The start of the range when [`write_all`] began.
    pub(super) written_from: u32,
    pub(super) extra: Extra,
    opcode: u32,
    standing: bool,
    tag: u64,
}

impl Io {
    fn new(opcode: u32, socket: Option<Socket>, buffer: Vec<u8>, extra: Extra) -> Self {
        let end = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        Self { socket, buffer, start: 0, end, written_from: 0, extra, opcode, standing: false, tag: 0 }
    }

    /// The opcode of the operation that it was made for.
    pub fn opcode(&self) -> u32 {
        self.opcode
    }

    /// Gives it a number of the requester's own: the index of a connection, say. It comes back with the answer.
    #[must_use]
    pub fn tagged(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    /// The number that [`tagged`](Self::tagged) gave it; 0 if it was not called.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Uses only this part of the buffer: to write what was read, to go on after a short write, to read behind what is there already.
    ///
    /// # Panics
    /// If the buffer is shorter.
    #[must_use]
    pub fn range(mut self, range: impl RangeBounds<usize>) -> Self {
        self.set_range(range);
        self
    }

    fn set_range(&mut self, range: impl RangeBounds<usize>) {
        let len = self.buffer.len();
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => len,
        };
        assert!(start <= end && end <= len, "fibra: a buffer of {len} bytes has no range {start}..{end}");
        let most = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        (self.start, self.end) = (most(start), most(end));
    }

    /// The socket that it works on. Of [`connect`]: after the answer.
    pub fn socket(&self) -> Option<&Socket> {
        self.socket.as_ref()
    }

    /// The buffer, all of it: the answer says how much of its range was used.
    pub fn buffer(&self) -> &[u8] {
        &self.buffer
    }

    /// The buffer, to be filled for what comes next.
    pub fn buffer_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// Takes socket and buffer out.
    pub fn into_parts(mut self) -> (Option<Socket>, Vec<u8>) {
        (self.socket.take(), std::mem::take(&mut self.buffer))
    }

    /// Takes the buffer out. One of [`Buffers`] is then the caller's: it does not go back.
    pub fn into_buffer(mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    /// Takes the socket out. Of [`connect`]: the connection.
    pub fn into_socket(mut self) -> Option<Socket> {
        self.socket.take()
    }

    /// The address: where a datagram came from, where one was sent, where a connection goes or comes from.
    pub fn address(&self) -> Option<&Address> {
        match &self.extra {
            Extra::Address(address) => Some(address),
            Extra::Accepted(accepted) => Some(&accepted.from),
            _ => None,
        }
    }

    /// Takes out the connection that [`accept`] has got.
    pub fn take_accepted(&mut self) -> Option<Accepted> {
        match std::mem::take(&mut self.extra) {
            Extra::Accepted(accepted) => Some(accepted),
            other => {
                self.extra = other;
                None
            }
        }
    }

    /// Makes it a [`write()`] of this part of its buffer, to the same socket: what was read, say. Nothing is copied or counted.
    ///
    /// # Panics
    /// If the buffer is shorter.
    #[must_use]
    pub fn into_write(mut self, range: impl RangeBounds<usize>) -> Self {
        self.opcode = OP_WRITE;
        self.range(range)
    }

    /// The same with [`write_all`].
    ///
    /// # Panics
    /// If the buffer is shorter.
    #[must_use]
    pub fn into_write_all(mut self, range: impl RangeBounds<usize>) -> Self {
        self.opcode = OP_WRITE_ALL;
        self.range(range)
    }

    /// Makes it a [`read`] into all of its buffer, from the same socket. A buffer that came from [`Buffers`] goes back to them, and another
    /// one is taken when there is something to read.
    #[must_use]
    pub fn into_read(mut self) -> Self {
        self.opcode = OP_READ;
        self.give_buffer_back();
        self.range(..)
    }

    /// Makes it a [`send_to`] of this part of its buffer, from the same socket: a reply, if it was a [`recv_from`] before.
    ///
    /// # Panics
    /// If the buffer is shorter.
    #[must_use]
    pub fn into_send_to(mut self, to: impl Into<Address>, range: impl RangeBounds<usize>) -> Self {
        self.opcode = OP_SEND_TO;
        self.extra = Extra::Address(to.into());
        self.range(range)
    }

    /// Makes it a [`recv_from`] into all of its buffer, from the same socket.
    #[must_use]
    pub fn into_recv_from(mut self) -> Self {
        self.opcode = OP_RECV_FROM;
        self.extra = Extra::Address(Address::Unnamed);
        self.range(..)
    }

    /// Takes a buffer, if it has none and is to have one of [`Buffers`]. False: they have none.
    pub(super) fn take_buffer(&mut self) -> bool {
        if let Extra::Buffers(buffers) = &self.extra
            && self.buffer.is_empty()
        {
            match buffers.take() {
                Some(buffer) => self.buffer = buffer,
                None => return false,
            }
            self.set_range(..);
        }
        true
    }

    pub(super) fn give_buffer_back(&mut self) {
        if let Extra::Buffers(buffers) = &self.extra
            && !self.buffer.is_empty()
        {
            buffers.give(std::mem::take(&mut self.buffer));
            (self.start, self.end) = (0, 0);
        }
    }

    /// The part of the buffer that is in use.
    pub(super) fn part(&self) -> &[u8] {
        &self.buffer[self.start as usize..self.end as usize]
    }
}

/// A buffer of [`Buffers`] goes back to them.
impl Drop for Io {
    fn drop(&mut self) {
        self.give_buffer_back();
    }
}

impl fmt::Debug for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Io")
            .field("opcode", &self.opcode)
            .field("socket", &self.socket)
            .field("buffer", &self.buffer.len())
            .field("range", &(self.start..self.end))
            .field("tag", &self.tag)
            .finish_non_exhaustive()
    }
}

/// A machine's own supply of operations for a platform.
impl OpPool<Io> {
    /// Takes an operation out for what [`read`], [`write()`] or one of the others has made.
    ///
    /// # Errors
    /// All operations are in use: what it would have carried comes back.
    pub fn io(&mut self, io: Io) -> Result<Op<Io>, Exhausted<Io>> {
        let (opcode, standing) = (io.opcode, io.standing);
        let op = self.take(opcode, io)?;
        Ok(if standing { op.standing() } else { op })
    }
}

/// Reads into the buffer (its length is the room, not its capacity). Answered with the number of bytes as soon as there are any; 0: the
/// other side has ended, or there is no room.
pub fn read(socket: &Socket, buffer: impl Into<Vec<u8>>) -> Io {
    Io::new(OP_READ, Some(socket.clone()), buffer.into(), Extra::Nothing)
}

/// Reads into a buffer that is taken from `buffers` when there is something to be read, and not before: a thousand connections that
/// are idle need none. It goes back when the answer is dropped, or by [`Io::into_read`]. Answered with `ENOBUFS` if there is none then.
pub fn read_with(socket: &Socket, buffers: &Buffers) -> Io {
    Io::new(OP_READ, Some(socket.clone()), Vec::new(), Extra::Buffers(buffers.clone()))
}

/// Writes the buffer. Answered with the number of bytes as soon as some were taken: [`Io::into_write`] goes on with the rest.
pub fn write(socket: &Socket, buffer: impl Into<Vec<u8>>) -> Io {
    Io::new(OP_WRITE, Some(socket.clone()), buffer.into(), Extra::Nothing)
}

/// Writes the buffer, all of it. Answered with the number of bytes when the last was taken. Cancelled or failed, it
/// does not tell how much was written: the connection is good for nothing but closing.
pub fn write_all(socket: &Socket, buffer: impl Into<Vec<u8>>) -> Io {
    Io::new(OP_WRITE_ALL, Some(socket.clone()), buffer.into(), Extra::Nothing)
}

/// Accepts a connection: [`Io::take_accepted`]. While there are no descriptors left it waits, and tries again now and then.
pub fn accept(listener: &Socket) -> Io {
    Io::new(OP_ACCEPT, Some(listener.clone()), Vec::new(), Extra::Nothing)
}

/// Accepts connections for as long as it is not cancelled: they go into the ring, and the operation is rung. A connection that the ring
/// refuses, or throws out, is closed.
pub fn accept_into(listener: &Socket, ring: RingWriter<Accepted>) -> Io {
    let mut io = Io::new(OP_ACCEPT, Some(listener.clone()), Vec::new(), Extra::Accepts(ring));
    io.standing = true;
    io
}

/// Connects a TCP socket, or a Unix socket. Answered with 0; the connection is [`Io::into_socket`].
pub fn connect(to: impl Into<Address>) -> Io {
    Io::new(OP_CONNECT, None, Vec::new(), Extra::Address(to.into()))
}

/// Receives a datagram into the buffer: [`Io::address`] says where it came from. Answered with the number of bytes in the buffer; what
/// it had no room for is lost.
pub fn recv_from(socket: &Socket, buffer: impl Into<Vec<u8>>) -> Io {
    Io::new(OP_RECV_FROM, Some(socket.clone()), buffer.into(), Extra::Address(Address::Unnamed))
}

/// Sends a datagram, also an empty one. Answered with its length.
pub fn send_to(socket: &Socket, buffer: impl Into<Vec<u8>>, to: impl Into<Address>) -> Io {
    Io::new(OP_SEND_TO, Some(socket.clone()), buffer.into(), Extra::Address(to.into()))
}

/// A ring that a standing receive writes: of [`byte_ring`](super::byte_ring) or [`datagram_ring`](super::datagram_ring).
#[derive(Debug)]
pub enum ReceiveRing {
    /// For streams.
    Bytes(ByteWriter),
    /// For datagrams.
    Datagrams(DatagramWriter),
}

impl From<ByteWriter> for ReceiveRing {
    fn from(ring: ByteWriter) -> Self {
        Self::Bytes(ring)
    }
}

impl From<DatagramWriter> for ReceiveRing {
    fn from(ring: DatagramWriter) -> Self {
        Self::Datagrams(ring)
    }
}

/// Receives into the requester's ring for as long as it is not cancelled: what comes is written there under the ring's overflow policy,
/// counted in its statistics, and the operation is rung. It ends with one answer: 0 at the end of a stream, minus the error,
/// or [`CANCELLED`](crate::machine::CANCELLED).
pub fn receive_into(socket: &Socket, ring: impl Into<ReceiveRing>) -> Io {
    let extra = match ring.into() {
        ReceiveRing::Bytes(ring) => Extra::Bytes(ring),
        ReceiveRing::Datagrams(ring) => Extra::Datagrams(ring),
    };
    let mut io = Io::new(OP_RECEIVE, Some(socket.clone()), Vec::new(), extra);
    io.standing = true;
    io
}

/// Waits until something may be possible with a descriptor; any code may then do it. Answered with 0. Made
/// [standing](crate::machine::Op::standing), it is not answered but rung, every time that something comes.
pub fn watch(socket: &Socket, readiness: Readiness) -> Io {
    Io::new(OP_WATCH, Some(socket.clone()), Vec::new(), Extra::Watch(readiness))
}

/// Closes a socket for every holder of a handle to it: operations that are pending on it are answered with `EBADF`, and
/// so are later ones. Answered with 0. (Dropping the last handle closes a socket, too; then nothing can be pending on
/// it.)
pub fn close(socket: Socket) -> Io {
    Io::new(OP_CLOSE, Some(socket), Vec::new(), Extra::Nothing)
}
