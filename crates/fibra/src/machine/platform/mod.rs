//! I/O for machines: a ready-made platform, and the operations that it carries out.
//!
//! A machine that wants to read submits an operation that carries a socket and a buffer. The [`Platform`] tries at once; if there is
//! nothing to be had, the operation waits, and the loop sleeps in the one place where it ever does, until the system says that there is.
//! The answer is the number of bytes, or minus the number of the error ([`outcome`] makes a [`std::io::Result`] of it), and the buffer
//! comes back with it. Machines that submit without a [destination](crate::machine::Op::to) reach the platform of their loop; children
//! name it: [`MachineRef::platform`](crate::machine::MachineRef::platform).
//!
//! ```
//! use fibra::machine::platform::{self, Io, Socket, outcome};
//! use fibra::machine::{EventLoop, Machine, OpPool, Ports, Timestamp};
//! use std::os::unix::net::UnixStream;
//!
//! /// Writes to one end of a connection, and reads at the other.
//! struct App {
//!     ends: [Socket; 2],
//!     pool: OpPool<Io>,
//! }
//!
//! impl Machine for App {
//!     fn tick(&mut self, _now: Timestamp, ports: &mut Ports<'_>) {
//!         if ports.in_flight() == 0 && ports.input.is_empty() {
//!             let [here, there] = &self.ends;
//!             ports.submit(self.pool.io(platform::read(here, vec![0; 100])).unwrap());
//!             ports.submit(self.pool.io(platform::write(there, *b"good day")).unwrap());
//!         }
//!         while let Some(done) = ports.input.completions.pop() {
//!             let number = outcome(done.result()).unwrap();
//!             if done.opcode() == platform::OP_READ {
//!                 let io = done.into_data::<Io>().unwrap();
//!                 assert_eq!(&io.buffer()[..number], b"good day");
//!                 ports.stop();
//!             }
//!         }
//!     }
//! }
//!
//! let (here, there) = UnixStream::pair()?;
//! let app = App { ends: [here.into(), there.into()], pool: OpPool::with_capacity(4) };
//! EventLoop::new().app(app).run()?; // Without another platform, it is this one.
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | operation | made by | answered with |
//! |---|---|---|
//! | [`OP_READ`] | [`read`], [`read_with`] | bytes; 0: the end |
//! | [`OP_WRITE`] | [`write()`] | bytes, perhaps not all |
//! | [`OP_WRITE_ALL`] | [`write_all`] | bytes, all |
//! | [`OP_ACCEPT`] | [`accept`], standing [`accept_into`] | the new descriptor's number |
//! | [`OP_CONNECT`] | [`connect`] | 0 |
//! | [`OP_RECV_FROM`] | [`recv_from`] | bytes |
//! | [`OP_SEND_TO`] | [`send_to`] | bytes |
//! | [`OP_RECEIVE`] | standing [`receive_into`] a ring | 0: the end of a stream |
//! | [`OP_WATCH`] | [`watch`]; may be made standing | 0 |
//! | [`OP_CLOSE`] | [`close`] | 0 |
//!
//! # What holds
//!
//! * Every operation is answered exactly once. Cancelled while it waits, with [`CANCELLED`], and nothing was
//!   moved (but for [`write_all`], [`receive_into`] and [`accept_into`]); if something could be moved before the cancellation was seen, it
//!   was, and the answer says so. Socket, buffer and ring come back either way.
//! * Operations of one direction on one socket are carried out in the order in which they came.
//! * A socket is open as long as a handle to it exists; every operation has one. Dropping or forgetting handles,
//!   answers, machines or the platform never closes it too early.
//! * In a steady state nothing is allocated, and an operation costs the system calls that it is about, and no others: a socket is
//!   registered with the driver once.
//!
//! # What goes wrong
//!
//! | what | answer |
//! |---|---|
//! | the socket was [closed](close) before, or is closed meanwhile | `-EBADF` |
//! | another platform of the same thread works on the socket now | `-EBUSY` |
//! | an opcode that is no platform's | `-EOPNOTSUPP` |
//! | data that is no [`Io`], or one that lacks what the opcode needs | `-EINVAL` |
//! | reading or writing what is to be [watched](Socket::watching) only | `-EOPNOTSUPP` |
//! | watching what cannot be (a file on a disk) | `-EPERM` |
//! | reading into no room, writing nothing to a stream | 0, at once |
//! | no buffer is left in [`Buffers`] | `-ENOBUFS` |
//! | no descriptor is left for an accepted connection | none: it is tried again, after a pause that grows to 100 ms |
//! | a platform on a loop that is not reached from here | [`UNREACHABLE`] |

// For readers of the source. From the bottom up: `socket`, `buffers`, `receive`, `io`, `reactor`, `waiting`, `attempt`, `machine`.

mod attempt;
mod buffers;
mod io;
mod machine;
mod reactor;
mod receive;
mod socket;
mod waiting;

use std::io as std_io;

pub use self::buffers::Buffers;
pub use self::io::{
    Accepted, Io, Readiness, ReceiveRing, accept, accept_into, close, connect, read, read_with, receive_into,
    recv_from, send_to, watch, write, write_all,
};
pub use self::machine::Platform;
pub(crate) use self::reactor::Reactor;
pub use self::receive::{ByteReader, ByteWriter, DatagramReader, DatagramWriter, RecvStats, byte_ring, datagram_ring};
pub use self::socket::Socket;
use super::address::{ABANDONED, CANCELLED, UNREACHABLE};
pub use crate::driver::transfer::Address;

/// The platform's opcodes are from here on: programs number their own from below.
const FIRST_OP: u32 = 0x1000_0000;
const LAST_OP: u32 = FIRST_OP + 9;

/// Read into a buffer: [`read`], [`read_with`].
pub const OP_READ: u32 = FIRST_OP;
/// Write a buffer, as much as is taken: [`write()`].
pub const OP_WRITE: u32 = FIRST_OP + 1;
/// Write a buffer, all of it: [`write_all`].
pub const OP_WRITE_ALL: u32 = FIRST_OP + 2;
/// Accept a connection, or connections: [`accept`], [`accept_into`].
pub const OP_ACCEPT: u32 = FIRST_OP + 3;
/// Connect a socket: [`connect`].
pub const OP_CONNECT: u32 = FIRST_OP + 4;
/// Receive a datagram: [`recv_from`].
pub const OP_RECV_FROM: u32 = FIRST_OP + 5;
/// Send a datagram: [`send_to`].
pub const OP_SEND_TO: u32 = FIRST_OP + 6;
/// Receive into a ring until the end: [`receive_into`].
pub const OP_RECEIVE: u32 = FIRST_OP + 7;
/// Wait until something is possible: [`watch`].
pub const OP_WATCH: u32 = FIRST_OP + 8;
/// Close a socket: [`close`].
pub const OP_CLOSE: u32 = LAST_OP;

/// What the result of a platform's operation means: a number, or an error.
///
/// ```
/// use fibra::machine::platform::outcome;
/// use std::io::ErrorKind;
///
/// assert_eq!(outcome(17).unwrap(), 17);
/// assert_eq!(outcome(-104).unwrap_err().kind(), ErrorKind::ConnectionReset);
/// ```
///
/// # Errors
/// The number was negative. What is no number of the system's says what became of the operation.
pub fn outcome(result: i32) -> std_io::Result<usize> {
    match result {
        ABANDONED => Err(std_io::Error::other("the machine dropped the operation without an answer")),
        UNREACHABLE => Err(std_io::Error::new(std_io::ErrorKind::NotFound, "there is no such machine, or it is gone")),
        CANCELLED => Err(std_io::Error::from_raw_os_error(libc::ECANCELED)),
        result => usize::try_from(result).map_err(|_| std_io::Error::from_raw_os_error(result.saturating_neg())),
    }
}
