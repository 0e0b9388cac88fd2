//! Sockets in the shapes of `std::net`, method for method: a fiber that waits parks, and its worker goes on with another.
//!
//! ```
//! use std::io::{Read, Write};
//! use fibra::net::{TcpListener, TcpStream};
//!
//! fibra::run(|| -> std::io::Result<()> {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let address = listener.local_addr()?;
//!     let server = fibra::spawn(move || -> std::io::Result<()> {
//!         let (mut stream, _) = listener.accept()?;
//!         let mut line = [0; 5];
//!         stream.read_exact(&mut line)?;
//!         stream.write_all(&line)
//!     });
//!     let mut client = TcpStream::connect(address)?;
//!     client.write_all(b"hello")?;
//!     let mut answer = String::new();
//!     client.read_to_string(&mut answer)?;
//!     assert_eq!(answer, "hello");
//!     server.join().unwrap()
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | to | there is |
//! |---|---|
//! | talk over TCP | [`TcpListener`], [`TcpStream`] |
//! | send datagrams | [`UdpSocket`] |
//! | talk to the same machine | [`UnixListener`], [`UnixStream`], [`UnixDatagram`] |
//! | find an address | [`ToSocketAddrs`], [`lookup_host`] |
//! | do all that in async code | [`read_async`](TcpStream::read_async), [`accept_async`](TcpListener::accept_async) and their like |
//! | wait for several things | [`select!`](crate::select): `on(listener.accepting())`, `on(stream.readable())`, `on(stream.writable())` |
//!
//! Rules that hold for all of them:
//!
//! * Streams are [`Read`](std::io::Read) and [`Write`](std::io::Write), by value and by reference, so code that takes such a stream runs on
//!   them unchanged. Two fibers may read and write one stream at once, through references.
//! * No operation fails with `WouldBlock` or `Interrupted`, except those that do not wait (`try_accept`, `try_read`, ..), which say
//!   `WouldBlock` if they would have to. An operation that takes longer than its time-out, or its `_deadline`, fails with `TimedOut` (std
//!   says `WouldBlock` there).
//! * Cancelling a fiber that waits for a socket unwinds it; [`timeout`](crate::timeout) around an operation works. In both cases nothing
//!   was read or written by the operation that was left (`write_all` and its like are several), and the socket can be used on.
//! * A socket may be used from any worker and any thread, and closed on another thread than it was made on.
//! * On a plain thread operations block the thread, in `poll(2)`. An operation that is called within a [`scope`](crate::scope) can be
//!   cancelled there, too.
//! * The `_async` forms park the task and run under any executor. Dropping such a future cancels it; nothing was read, written or accepted
//!   by it. Time-outs that were set on the socket do not apply to them.
//! * Sockets convert from and to their namesakes in std. A socket of fibra is in non-blocking mode, which the duplicates of a descriptor
//!   share; that is why there is no `set_nonblocking`, and why a socket that has clones stays in that mode when it is converted.

// ```text
// socket.rs    the common part of all sockets; the macros for their common methods      socket/streaming.rs  reads of streams
// common.rs    the common methods of datagram sockets, and of listeners
// arm.rs       readiness and accepting as arms of a select
// addr.rs      ToSocketAddrs, lookup_host    abandon.rs  calls on other threads that may be given up
// listener.rs  TcpListener           stream.rs  TcpStream          split.rs  its halves
// udp.rs       UdpSocket             unix.rs    UnixListener, UnixStream     unix_datagram.rs  UnixDatagram
// ```

mod abandon;
pub(crate) mod addr;
mod arm;
#[cfg(test)]
mod between_try_and_wait;
mod common;
mod listener;
mod socket;
mod split;
mod stream;
mod udp;
mod unix;
mod unix_datagram;

pub use addr::{ToSocketAddrs, lookup_host};
pub use arm::{AcceptArm, ReadyArm};
pub use listener::{Incoming, TcpListener};
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReuniteError, UnixReadHalf, UnixReuniteError, UnixWriteHalf};
pub use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6};
pub use stream::TcpStream;
pub use udp::UdpSocket;
pub use unix::{UnixIncoming, UnixListener, UnixStream};
pub use unix_datagram::UnixDatagram;

/// Converts a socket of fibers into one that machines work on.
macro_rules! for_machines {
    ($($ours:ident),+) => {$(
        impl From<$ours> for crate::machine::platform::Socket {
            fn from(socket: $ours) -> Self {
                std::os::fd::OwnedFd::from(socket).into()
            }
        }
    )+};
}
for_machines!(TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream);
