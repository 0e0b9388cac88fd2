//! The system calls of a platform machine: bytes, datagrams and connections, moved at once or not at all.
//!
//! Above: `machine::platform`, which tries and, told `EAGAIN`, waits for the driver. Below: the kernel.
//!
//! * Nothing here waits: sockets are called with `MSG_DONTWAIT`, other descriptors are in non-blocking mode (their owner sees to it).
//! * An error is its number, and never `EINTR`: an interrupted call is made again.
//! * A socket whose other side is gone is an error (`EPIPE`), not a signal.

use super::socket::{Address as Raw, new_socket};
use std::ffi::c_int;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::{fmt, io, mem};

/// The number of an error.
pub(crate) type Errno = c_int;

/// Where a datagram or a connection comes from, or goes to.
#[derive(Clone, Default)]
pub enum Address {
    /// Of TCP or UDP.
    Ip(SocketAddr),
    /// Of a Unix socket that has a path or a name.
    Unix(Box<UnixAddr>),
    /// No address: a Unix socket without a name, or an address that the system did not give.
    #[default]
    Unnamed,
}

impl Address {
    /// The address of TCP or UDP, if it is one.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            _ => None,
        }
    }

    /// As the kernel takes it.
    fn raw(&self) -> Result<Raw, Errno> {
        match self {
            Self::Ip(address) => Ok(Raw::of(address)),
            Self::Unix(address) => {
                let (name, is_abstract) = match (address.as_pathname(), address.as_abstract_name()) {
                    (Some(path), _) => (path.as_os_str().as_bytes(), false),
                    (None, Some(name)) => (name, true),
                    (None, None) => return Err(libc::EDESTADDRREQ),
                };
                Raw::of_unix(name, is_abstract).map_err(|_| libc::EINVAL)
            }
            Self::Unnamed => Err(libc::EDESTADDRREQ),
        }
    }
}

impl PartialEq for Address {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ip(one), Self::Ip(two)) => one == two,
            (Self::Unix(one), Self::Unix(two)) => {
                (one.as_pathname(), one.as_abstract_name()) == (two.as_pathname(), two.as_abstract_name())
            }
            (Self::Unnamed, Self::Unnamed) => true,
            _ => false,
        }
    }
}

impl Eq for Address {}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(address) => address.fmt(f),
            Self::Unnamed => f.write_str("(unnamed)"),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl From<UnixAddr> for Address {
    fn from(address: UnixAddr) -> Self {
        if address.is_unnamed() { Self::Unnamed } else { Self::Unix(Box::new(address)) }
    }
}

/// Room for any address that the kernel may write.
struct Told {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl Told {
    fn nothing() -> Self {
        // SAFETY: a structure of numbers, for which zeroes are valid.
        Self { storage: unsafe { mem::zeroed() }, len: size_of::<libc::sockaddr_storage>() as libc::socklen_t }
    }

    fn address(&self) -> Address {
        let storage = &raw const self.storage;
        match c_int::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the storage is large and aligned enough for every kind of address, and its family says that this is the kind.
                let v4 = unsafe { &*storage.cast::<libc::sockaddr_in>() };
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(v4.sin_port))).into()
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let v6 = unsafe { &*storage.cast::<libc::sockaddr_in6>() };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let (flow, scope) = (v6.sin6_flowinfo, v6.sin6_scope_id);
                SocketAddr::V6(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), flow, scope)).into()
            }
            libc::AF_UNIX => {
                // SAFETY: as above.
                let unix = unsafe { &*storage.cast::<libc::sockaddr_un>() };
                let len = (self.len as usize).saturating_sub(mem::offset_of!(libc::sockaddr_un, sun_path));
                let name = unix.sun_path.map(c_char_to_byte);
                let name = &name[..len.min(name.len())];
                let address = match name {
                    [] => return Address::Unnamed,
                    [0, name @ ..] => UnixAddr::from_abstract_name(name),
                    path => {
                        let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
                        UnixAddr::from_pathname(std::ffi::OsStr::from_bytes(&path[..end]))
                    }
                };
                address.map_or(Address::Unnamed, Address::from)
            }
            _ => Address::Unnamed,
        }
    }

    fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.storage).cast()
    }
}

#[allow(clippy::unnecessary_cast)] // It is signed on some processors.
fn c_char_to_byte(char: std::ffi::c_char) -> u8 {
    char as u8
}

/// The number of the error that the last call of this thread ended with.
fn errno() -> Errno {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Makes a call until it is not interrupted.
#[inline(always)]
fn uninterrupted(mut call: impl FnMut() -> isize) -> Result<usize, Errno> {
    loop {
        if let Ok(done) = usize::try_from(call()) {
            return Ok(done);
        }
        match errno() {
            libc::EINTR => {}
            error => return Err(error),
        }
    }
}

const NOW: c_int = libc::MSG_DONTWAIT;

/// Reads from a socket.
pub(crate) fn receive(socket: BorrowedFd<'_>, room: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the room has this length, and is ours to write to.
    uninterrupted(|| unsafe { libc::recv(socket.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), NOW) })
}

/// Writes to a socket.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    let flags = NOW | libc::MSG_NOSIGNAL;
    // SAFETY: the bytes have this length.
    uninterrupted(|| unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) })
}

/// Reads from a descriptor that is no socket.
pub(crate) fn read(descriptor: BorrowedFd<'_>, room: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the room has this length, and is ours to write to.
    uninterrupted(|| unsafe { libc::read(descriptor.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) })
}

/// Writes to a descriptor that is no socket.
pub(crate) fn write(descriptor: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the bytes have this length.
    uninterrupted(|| unsafe { libc::write(descriptor.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) })
}

/// Receives a datagram, and says how long it was (it may be longer than the room) and where it came from.
pub(crate) fn receive_from(socket: BorrowedFd<'_>, room: &mut [u8]) -> Result<(usize, Address), Errno> {
    let mut from = Told::nothing();
    let flags = NOW | libc::MSG_TRUNC;
    let len = uninterrupted(|| {
        let (descriptor, room, len) = (socket.as_raw_fd(), room.as_mut_ptr(), room.len());
        // SAFETY: the room has this length and is ours to write to; so has the address, and both live through the call.
        unsafe { libc::recvfrom(descriptor, room.cast(), len, flags, from.as_mut_ptr(), &raw mut from.len) }
    })?;
    // The kernel leaves the length at 0 if it has no address to give.
    Ok((len, if from.len == 0 { Address::Unnamed } else { from.address() }))
}

/// Sends a datagram.
pub(crate) fn send_to(socket: BorrowedFd<'_>, bytes: &[u8], to: &Address) -> Result<usize, Errno> {
    let to = to.raw()?;
    let flags = NOW | libc::MSG_NOSIGNAL;
    uninterrupted(|| {
        let (descriptor, from, len) = (socket.as_raw_fd(), bytes.as_ptr(), bytes.len());
        // SAFETY: bytes and address have these lengths, and live through the call.
        unsafe { libc::sendto(descriptor, from.cast(), len, flags, to.as_ptr(), to.len as libc::socklen_t) }
    })
}

/// Takes a connection that is waiting. The new descriptor does not block.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> Result<(OwnedFd, Address), Errno> {
    let mut from = Told::nothing();
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let descriptor = uninterrupted(|| {
        // SAFETY: the address has this length, and lives through the call.
        let descriptor = unsafe { libc::accept4(listener.as_raw_fd(), from.as_mut_ptr(), &raw mut from.len, flags) };
        descriptor as isize
    })?;
    // SAFETY: just opened, and owned by this function alone.
    Ok((unsafe { OwnedFd::from_raw_fd(descriptor as c_int) }, from.address()))
}

/// A stream socket that is being connected. True: it is connected already; else it can be written to when that is decided.
/// `EAGAIN`: a Unix listener's queue is full, and the system does not report when it has room again.
pub(crate) fn connect(to: &Address) -> Result<(OwnedFd, bool), Errno> {
    let to = to.raw()?;
    let socket = new_socket(to.family, libc::SOCK_STREAM).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
    // SAFETY: the address has that length and lives through the call.
    let done = unsafe { libc::connect(socket.as_raw_fd(), to.as_ptr(), to.len as libc::socklen_t) };
    match if done < 0 { errno() } else { 0 } {
        0 => Ok((socket, true)),
        // The connection is under way; an interrupted call goes on too.
        libc::EINPROGRESS | libc::EINTR => Ok((socket, false)),
        error => Err(error),
    }
}

/// The result of a connection that was under way: the error that is pending on the socket.
pub(crate) fn take_error(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    match option(socket, libc::SO_ERROR)? {
        0 => Ok(()),
        error => Err(error),
    }
}

/// An option of the socket itself that is a number.
fn option(socket: BorrowedFd<'_>, option: c_int) -> Result<c_int, Errno> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    let to = (&raw mut value).cast();
    // SAFETY: the option is an int, which lives through the call, as the length does.
    let done = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, to, &raw mut len) };
    if done < 0 { Err(errno()) } else { Ok(value) }
}

/// Is it a socket, and nothing else that a descriptor may be?
pub(crate) fn is_socket(descriptor: BorrowedFd<'_>) -> bool {
    option(descriptor, libc::SO_TYPE).is_ok()
}

/// Ends both directions of a socket, for every holder of a descriptor of it. On what is not connected there is nothing to end.
pub(crate) fn shut_down(socket: BorrowedFd<'_>) {
    // SAFETY: the call takes no pointers.
    let _ = unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
}

/// Whether a TCP connection sends what is written at once (`TCP_NODELAY`), or waits for more as long as something is unacknowledged.
pub(crate) fn set_nodelay(socket: BorrowedFd<'_>, nodelay: bool) -> io::Result<()> {
    let value = c_int::from(nodelay);
    let (descriptor, len) = (socket.as_raw_fd(), size_of::<c_int>() as libc::socklen_t);
    // SAFETY: the option is an int, which lives through the call.
    let done =
        unsafe { libc::setsockopt(descriptor, libc::IPPROTO_TCP, libc::TCP_NODELAY, (&raw const value).cast(), len) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Puts a descriptor into non-blocking mode.
pub(crate) fn set_nonblocking(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes no pointers.
    let flags = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The address that a socket is bound to.
pub(crate) fn local_address(socket: BorrowedFd<'_>) -> io::Result<Address> {
    let mut at = Told::nothing();
    // SAFETY: the address has this length, and lives through the call.
    if unsafe { libc::getsockname(socket.as_raw_fd(), at.as_mut_ptr(), &raw mut at.len) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(at.address())
}

/// Whether an operation is possible now, without waiting.
pub(crate) fn is_possible(descriptor: BorrowedFd<'_>, interest: super::Interest) -> Result<bool, Errno> {
    super::socket::poll(descriptor, interest, super::Timeout::Until(0))
        .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
}

/// The answer of a try that has to be repeated after a wait: nothing is there yet.
pub(crate) const AGAIN: Errno = libc::EAGAIN;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixDatagram, UnixListener};

    #[test]
    fn datagrams_tell_where_they_come_from_and_how_long_they_were() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(here) = UdpSocket::bind(address) else { continue };
            let there = UdpSocket::bind(address).unwrap();
            let to = Address::from(there.local_addr().unwrap());
            assert_eq!(receive_from(there.as_fd(), &mut [0; 4]), Err(AGAIN));
            assert_eq!(send_to(here.as_fd(), b"longer", &to), Ok(6));
            let mut room = [0; 4];
            let from = here.local_addr().unwrap();
            assert_eq!(receive_from(there.as_fd(), &mut room), Ok((6, from.into())));
            assert_eq!(&room, b"long");
        }
        assert_eq!(send_to(std::io::stdin().as_fd(), b"", &Address::Unnamed), Err(libc::EDESTADDRREQ));
    }

    #[test]
    fn names_of_unix_sockets_are_told() {
        let name = UnixAddr::from_abstract_name(format!("fibra transfer {}", std::process::id())).unwrap();
        let (here, there) = (UnixDatagram::unbound().unwrap(), UnixDatagram::bind_addr(&name).unwrap());
        let to = Address::from(name);
        assert_eq!(local_address(there.as_fd()).unwrap(), to);
        assert_eq!(send_to(here.as_fd(), b"x", &to), Ok(1));
        assert_eq!(receive_from(there.as_fd(), &mut [0; 4]), Ok((1, Address::Unnamed)));
        let path = std::env::temp_dir().join(format!("fibra-transfer-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let to = Address::from(UnixAddr::from_pathname(&path).unwrap());
        assert_eq!(local_address(listener.as_fd()).unwrap(), to);
        assert!(connect(&to).unwrap().1);
        assert_eq!(accept(listener.as_fd()).unwrap().1, Address::Unnamed);
        std::fs::remove_file(path).unwrap();
        assert_eq!(connect(&to).unwrap_err(), libc::ENOENT);
    }
}
