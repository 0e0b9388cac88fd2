//! The system calls on sockets that std has no safe function for: asking a descriptor what is possible, connecting without waiting for
//! the connection, and binding an address that several sockets share.
//!
//! Above: `wait::io` (which asks) and `net` (which is safe code). Below: the kernel. Every descriptor made here is close-on-exec and does
//! not block.

use super::{Interest, Timeout};
use crate::prim::policy;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;
use std::{io, mem, ptr};

/// Waits until the operation may be possible; errors and hang-ups count too, and a try tells them apart. False: the time was up. Blocks
/// the thread.
pub(crate) fn poll(descriptor: BorrowedFd<'_>, interest: Interest, timeout: Timeout) -> io::Result<bool> {
    let mut events = 0;
    if interest.contains(Interest::READ) {
        events |= libc::POLLIN | libc::POLLRDHUP;
    }
    if interest.contains(Interest::WRITE) {
        events |= libc::POLLOUT;
    }
    let mut asked = libc::pollfd { fd: descriptor.as_raw_fd(), events, revents: 0 };
    loop {
        let left = match timeout {
            Timeout::Forever => None,
            Timeout::Until(0) => Some(0),
            Timeout::Until(deadline) => Some(policy::patience(deadline.saturating_sub(policy::now()))),
        };
        let time = left.map(|left| libc::timespec {
            tv_sec: (left / 1_000_000_000) as libc::time_t,
            tv_nsec: (left % 1_000_000_000) as libc::c_long,
        });
        let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: one structure is passed, which lives through the call, as does the time if there is one; there is no signal mask.
        let count = unsafe { libc::ppoll(&raw mut asked, 1, time, ptr::null()) };
        match count {
            0 => match timeout {
                // The kernel's clock ran out before ours.
                Timeout::Until(deadline) if policy::now() < deadline => {}
                _ => return Ok(false),
            },
            1.. => return Ok(true),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

/// An address as the kernel takes it.
#[derive(Clone, Copy)]
#[repr(C)]
union RawAddress {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
    unix: libc::sockaddr_un,
}

pub(super) struct Address {
    raw: RawAddress,
    pub(super) len: usize,
    pub(super) family: c_int,
}

impl Address {
    pub(super) fn of(address: &SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => {
                let raw = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                Self { raw: RawAddress { v4: raw }, len: size_of::<libc::sockaddr_in>(), family: libc::AF_INET }
            }
            SocketAddr::V6(v6) => {
                let raw = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                Self { raw: RawAddress { v6: raw }, len: size_of::<libc::sockaddr_in6>(), family: libc::AF_INET6 }
            }
        }
    }

    /// Of a Unix socket: a path, or a name in the abstract namespace.
    pub(super) fn of_unix(name: &[u8], is_abstract: bool) -> io::Result<Self> {
        // SAFETY: a structure of numbers, for which zeroes are valid.
        let mut raw: libc::sockaddr_un = unsafe { mem::zeroed() };
        let refused = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if !is_abstract && name.contains(&0) {
            return refused("paths of sockets have no zero bytes");
        }
        // A path ends with a zero, an abstract name begins with one.
        if name.len() >= raw.sun_path.len() {
            return refused("the path of a socket has at most 107 bytes");
        }
        raw.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in raw.sun_path[usize::from(is_abstract)..].iter_mut().zip(name) {
            *to = from.cast_signed();
        }
        let len = mem::offset_of!(libc::sockaddr_un, sun_path) + name.len() + 1;
        Ok(Self { raw: RawAddress { unix: raw }, len, family: libc::AF_UNIX })
    }

    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.raw).cast()
    }
}

pub(super) fn new_socket(family: c_int, kind: c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers.
    let descriptor = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and owned by nothing else.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn set_option(socket: &OwnedFd, option: c_int) -> io::Result<()> {
    let on: c_int = 1;
    // SAFETY: the option is an int.
    unsafe { set_option_to(socket.as_fd(), option, &on) }
}

/// Sets an option of the socket itself.
///
/// # Safety
/// Options of this name are of this type.
unsafe fn set_option_to<T>(socket: BorrowedFd<'_>, option: c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value lives through the call, and is of the option's type (the caller's promise).
    let done =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, ptr::from_ref(value).cast(), len) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// How long closing the socket waits for what was written (`SO_LINGER`); zero: it resets the connection.
pub(crate) fn set_linger(socket: BorrowedFd<'_>, linger: Option<Duration>) -> io::Result<()> {
    let seconds = linger.map_or(0, |linger| c_int::try_from(linger.as_secs()).unwrap_or(c_int::MAX));
    let value = libc::linger { l_onoff: c_int::from(linger.is_some()), l_linger: seconds };
    // SAFETY: the option is a `linger`.
    unsafe { set_option_to(socket, libc::SO_LINGER, &value) }
}

/// What `set_linger` has set.
pub(crate) fn linger(socket: BorrowedFd<'_>) -> io::Result<Option<Duration>> {
    let mut value = libc::linger { l_onoff: 0, l_linger: 0 };
    let mut len = size_of::<libc::linger>() as libc::socklen_t;
    let (option, to) = (libc::SO_LINGER, (&raw mut value).cast());
    // SAFETY: the option is a `linger`, which has this length and lives through the call, as the length does.
    let done = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, to, &raw mut len) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((value.l_onoff != 0).then(|| Duration::from_secs(value.l_linger.unsigned_abs().into())))
}

/// Is it a TCP connection, and nothing else that a descriptor may be?
pub(crate) fn is_tcp(socket: BorrowedFd<'_>) -> bool {
    let mut protocol: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    let (option, to) = (libc::SO_PROTOCOL, (&raw mut protocol).cast());
    // SAFETY: the option is an int, which lives through the call, as the length does.
    let done = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, to, &raw mut len) };
    done == 0 && protocol == libc::IPPROTO_TCP
}

/// Copies what can be received, and leaves it there.
pub(crate) fn peek(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer has this length, and is ours to write to.
    let len = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_PEEK) };
    usize::try_from(len).map_err(|_| io::Error::last_os_error())
}

fn begin_connect(address: &Address) -> io::Result<OwnedFd> {
    let socket = new_socket(address.family, libc::SOCK_STREAM)?;
    // SAFETY: the address has that length and lives through the call.
    let done = unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr(), address.len as libc::socklen_t) };
    if done < 0 {
        match io::Error::last_os_error() {
            // The connection is under way: the socket can be written to, or has an error, when that is decided. An interrupted call goes on
            // too.
            error if matches!(error.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => {}
            error => return Err(error),
        }
    }
    Ok(socket)
}

/// A TCP socket that is about to be connected: it can be written to when that is decided, and `SO_ERROR` says whether it succeeded.
pub(crate) fn connect(address: &SocketAddr) -> io::Result<OwnedFd> {
    begin_connect(&Address::of(address))
}

/// A connected Unix stream socket. `WouldBlock`: the listener's queue is full, and the kernel does not report when it has room again.
pub(crate) fn connect_unix(name: &[u8], is_abstract: bool) -> io::Result<OwnedFd> {
    begin_connect(&Address::of_unix(name, is_abstract)?)
}

fn bind(address: &SocketAddr, kind: c_int, shared: bool) -> io::Result<OwnedFd> {
    let address = Address::of(address);
    let socket = new_socket(address.family, kind)?;
    if kind == libc::SOCK_STREAM {
        set_option(&socket, libc::SO_REUSEADDR)?;
    }
    if shared {
        set_option(&socket, libc::SO_REUSEPORT)?;
    }
    // SAFETY: the address has that length and lives through the call.
    if unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr(), address.len as libc::socklen_t) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}

/// A UDP socket whose port other sockets may bind too (`SO_REUSEPORT`).
pub(crate) fn bind_datagram_shared(address: &SocketAddr) -> io::Result<OwnedFd> {
    bind(address, libc::SOCK_DGRAM, true)
}

/// A TCP listener; shared: other sockets may listen on its port too (`SO_REUSEPORT`).
pub(crate) fn listen(address: &SocketAddr, shared: bool) -> io::Result<OwnedFd> {
    /// The kernel reduces it to `net.core.somaxconn`. (std asks for 128: each connection of a burst beyond that waits for a second, until
    /// its first packet is sent again.)
    const BACKLOG: c_int = c_int::MAX;
    let socket = bind(address, libc::SOCK_STREAM, shared)?;
    // SAFETY: the call takes no pointers.
    if unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}

/// `FromRawFd` for a type that converts from its namesake in std: the function is unsafe by its trait, and `net` has safe code only.
macro_rules! from_raw_fd {
    ($($ours:ty => $std:ty),+ $(,)?) => {$(
        impl std::os::fd::FromRawFd for $ours {
            unsafe fn from_raw_fd(descriptor: std::os::fd::RawFd) -> Self {
                // SAFETY: the caller's promise, passed on: an open descriptor of this kind, now ours.
                let socket = unsafe { <$std as std::os::fd::FromRawFd>::from_raw_fd(descriptor) };
                socket.into()
            }
        }
    )+};
}
pub(crate) use from_raw_fd;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_poll_says_what_is_possible_and_keeps_to_its_deadline() {
        let (here, mut there) = UnixStream::pair().unwrap();
        assert!(poll(here.as_fd(), Interest::WRITE, Timeout::Forever).unwrap());
        assert!(!poll(here.as_fd(), Interest::READ, Timeout::Until(0)).unwrap());
        let deadline = policy::now() + 2_000_000;
        assert!(!poll(here.as_fd(), Interest::READ, Timeout::Until(deadline)).unwrap());
        assert!(policy::now() >= deadline);
        there.write_all(b"x").unwrap();
        assert!(poll(here.as_fd(), Interest::READ, Timeout::Forever).unwrap());
    }

    #[test]
    fn connecting_ends_with_a_connection_or_its_error() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let to = listener.local_addr().unwrap();
            let stream = TcpStream::from(connect(&to).unwrap());
            assert!(poll(stream.as_fd(), Interest::WRITE, Timeout::Forever).unwrap());
            assert_eq!(stream.peer_addr().unwrap(), to);
            assert_eq!(listener.accept().unwrap().1, stream.local_addr().unwrap());
            drop(listener);
            match connect(&to) {
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused),
                Ok(socket) => {
                    let stream = TcpStream::from(socket);
                    poll(stream.as_fd(), Interest::WRITE, Timeout::Forever).unwrap();
                    let error = stream.take_error().unwrap().unwrap();
                    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
                }
            }
        }
    }

    #[test]
    fn shared_ports_are_shared() {
        let first = TcpListener::from(listen(&"127.0.0.1:0".parse().unwrap(), true).unwrap());
        let address = first.local_addr().unwrap();
        let second = TcpListener::from(listen(&address, true).unwrap());
        assert_eq!(second.local_addr().unwrap(), address);
        assert!(listen(&address, false).is_err() && TcpListener::bind(address).is_err());
        assert!(bind_datagram_shared(&address).is_ok());
    }

    #[test]
    fn names_of_unix_sockets_are_checked() {
        for (name, is_abstract) in [(&[b'x'; 108][..], false), (&[b'x'; 108][..], true), (b"a\0b", false)] {
            assert_eq!(connect_unix(name, is_abstract).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        assert_eq!(connect_unix(b"/nowhere/at/all", false).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(connect_unix(b"fibra no listener", true).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
