//! Sockets of platform machines: a descriptor that is open for as long as a handle to it exists, operations in flight
//! included.
//!
//! Above: `io` (operations carry a handle), `reactor` and `machine` (which work on it), users. Below: `driver`.
//!
//! A descriptor's number means another file as soon as it was closed and opened again. So no code here refers to a
//! descriptor by its bare number: every user has a counted handle, and the number is closed with the last one. Whatever
//! a user drops or forgets, an operation reaches the file that it was made for or none at all.
//!
//! Invariants:
//! * `homes` are the drivers in which the descriptor is registered, by its own number; they are told before it is closed;
//! * once `closed`, it is in no driver and no operation is tried on it, but its number stays taken until the last handle is gone;
//! * a driver that it has left by being closed reports it once more: an operation that waits for it on that driver's
//!   thread finds it closed.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::driver::transfer::{self, Address};
use crate::driver::{Interest, Key, OF_MACHINE, Registrar, WeakRegistrar, socket};
use crate::prim::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::spin::SpinLock;
use crate::prim::sync::Arc;

/// What kind of thing a descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SocketKind {
    /// A TCP connection or listener. A read that is shorter than its room has taken all there was.
    Tcp,
    /// Another socket.
    Socket,
    /// A pipe, a terminal, an eventfd ..: in non-blocking mode.
    File,
    /// The descriptor belongs to other code, which sets its mode: nothing is read or written here.
    Watched,
}

/// A socket (or another descriptor) that a [`Platform`](super::Platform) works on. Clones are handles to the same one; operations in flight
/// have one each. It is closed when the last handle is gone, or by [`close`](super::close()).
///
/// It comes from a socket of std (or of [`fibra::net`](crate::net)), from any [`OwnedFd`], or from a platform that accepted or connected
/// it.
///
/// ```
/// use fibra::machine::platform::Socket;
/// use std::net::{Ipv4Addr, UdpSocket};
///
/// let socket = Socket::from(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?);
/// assert!(socket.local_address()?.ip().is_some_and(|address| address.port() != 0));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Socket(Arc<SocketShared>);

/// The part of a socket that all handles share.
pub(super) struct SocketShared {
    descriptor: OwnedFd,
    /// Tells it from others that have or had the same number: unique, but for those 2^32 later.
    id: u32,
    kind: SocketKind,
    closed: AtomicBool,
    homes: SpinLock<Homes>,
}

/// The drivers in which it is registered: usually one.
#[derive(Default)]
struct Homes {
    first: Option<SocketHome>,
    others: Vec<SocketHome>,
}

struct SocketHome {
    at: WeakRegistrar,
    interest: Interest,
}

impl Homes {
    fn find(&mut self, registrar: &Registrar) -> Option<&mut SocketHome> {
        self.first.iter_mut().chain(&mut self.others).find(|home| home.at.id() == registrar.id())
    }

    fn add(&mut self, home: SocketHome) {
        // Entries of drivers that are gone make room.
        match &mut self.first {
            Some(first) if first.at.upgrade().is_some() => {
                self.others.retain(|home| home.at.upgrade().is_some());
                self.others.push(home);
            }
            first => *first = Some(home),
        }
    }
}

impl SocketShared {
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    fn key(&self) -> Key {
        Key { index: self.descriptor.as_raw_fd() as u32 | OF_MACHINE, generation: self.id }
    }

    /// Has a driver report what becomes possible, beginning with what is possible at once if it was not watched before.
    fn register(&self, registrar: &Registrar, interest: Interest) -> io::Result<Interest> {
        let (key, descriptor) = (self.key(), self.descriptor.as_raw_fd());
        self.homes.with(|homes| {
            // Relaxed: the lock orders it. A closer that comes later finds the driver among the homes, and tells it.
            if self.closed.load(Ordering::Relaxed) && !seeded_bug("platform_registers_closed") {
                return Err(io::Error::from_raw_os_error(libc::EBADF));
            }
            let before = homes.find(registrar).map_or(Interest::NONE, |home| home.interest);
            let now = before | interest;
            if now != before {
                registrar.watch(descriptor, key, before, now)?;
                match homes.find(registrar) {
                    Some(home) => home.interest = now,
                    None => homes.add(SocketHome { at: registrar.downgrade(), interest }),
                }
            }
            Ok(now)
        })
    }

    /// Ends the registration with that driver, which reports nothing any more.
    pub(super) fn leave(&self, registrar: &Registrar) {
        self.homes.with(|homes| {
            if let Some(home) = homes.find(registrar) {
                let interest = std::mem::replace(&mut home.interest, Interest::NONE);
                // The descriptor was registered there: a failure has no consequence.
                let _ = registrar.watch(self.descriptor.as_raw_fd(), self.key(), interest, Interest::NONE);
            }
        });
    }

    /// Leaves every driver; `each` is called for each of them.
    fn leave_all(&self, each: impl Fn(&Registrar)) {
        let (key, descriptor) = (self.key(), self.descriptor.as_raw_fd());
        self.homes.with(|homes| {
            for home in homes.first.take().into_iter().chain(homes.others.drain(..)) {
                if let Some(registrar) = home.at.upgrade() {
                    // As above.
                    let _ = registrar.watch(descriptor, key, home.interest, Interest::NONE);
                    each(&registrar);
                }
            }
        });
    }
}

/// First out of the drivers, then closed: a duplicate of the descriptor would keep its entries there.
impl Drop for SocketShared {
    fn drop(&mut self) {
        // No operation waits for it: each would have a handle.
        self.leave_all(|_| ());
    }
}

impl Socket {
    pub(super) fn new(descriptor: OwnedFd, kind: SocketKind) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: a number that others do not have, that is all.
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let (closed, homes) = (AtomicBool::new(false), SpinLock::new(Homes::default()));
        Self(Arc::new(SocketShared { descriptor, id, kind, closed, homes }))
    }

    /// Makes a handle of a socket. It is put into non-blocking mode, which accepting needs; other calls never wait, whatever the mode.
    fn of_socket(descriptor: OwnedFd) -> Self {
        // Cannot fail for an open descriptor.
        let _ = transfer::set_nonblocking(descriptor.as_fd());
        let is_tcp = socket::is_tcp(descriptor.as_fd());
        Self::new(descriptor, if is_tcp { SocketKind::Tcp } else { SocketKind::Socket })
    }

    /// Listens for TCP connections; port 0: on one that is free.
    ///
    /// # Errors
    /// The address is in use, not of this machine, or not allowed.
    pub fn listen(address: SocketAddr) -> io::Result<Self> {
        socket::listen(&address, false).map(|descriptor| Self::new(descriptor, SocketKind::Tcp))
    }

    /// A duplicate of a descriptor that other code owns, to be [watched](super::watch()) and nothing else. Its mode is
    /// left as it is.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn watching(descriptor: impl AsFd) -> io::Result<Self> {
        let duplicate = descriptor.as_fd().try_clone_to_owned()?;
        Ok(Self::new(duplicate, SocketKind::Watched))
    }

    /// The descriptor, if this is the last handle to it, and it was not closed.
    ///
    /// # Errors
    /// There are others: operations in flight, or clones.
    pub fn into_descriptor(self) -> Result<OwnedFd, Self> {
        if self.is_closed() || Arc::strong_count(&self.0) > 1 {
            return Err(self);
        }
        // The descriptor cannot be moved out of what has a destructor; its duplicate is as good. The original is closed with the handle.
        match self.0.descriptor.try_clone() {
            Ok(descriptor) => Ok(descriptor),
            Err(_) => Err(self),
        }
    }

    /// The address that it is bound to.
    ///
    /// # Errors
    /// It is no socket.
    pub fn local_address(&self) -> io::Result<Address> {
        transfer::local_address(self.as_fd())
    }

    /// For a TCP connection: sends written bytes at once (`TCP_NODELAY`), instead of waiting for more.
    ///
    /// # Errors
    /// It is no TCP connection.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        transfer::set_nodelay(self.as_fd(), nodelay)
    }

    /// Whether it was closed by [`close`](super::close()): operations on it are answered with `EBADF`.
    pub fn is_closed(&self) -> bool {
        // Relaxed: on the closer's own thread it is exact; elsewhere it is noticed when it is noticed.
        self.0.closed.load(Ordering::Relaxed)
    }

    /// Ends it for all handles. False: it was. The drivers of other threads report it once more, so that operations there are answered;
    /// the closer's own does not.
    pub(super) fn close(&self, own: &Registrar) -> bool {
        // Relaxed: the lock of the homes orders it for `register`, and that of what is told for the platforms that hear of it.
        if self.0.closed.swap(true, Ordering::Relaxed) {
            return false;
        }
        self.0.leave_all(|registrar| {
            if registrar.id() != own.id() && !seeded_bug("platform_closes_quietly") {
                registrar.tell(self.0.key());
            }
        });
        if Arc::strong_count(&self.0) > 1 && matches!(self.0.kind, SocketKind::Tcp | SocketKind::Socket) {
            // The shutdown ends the connection at once. Closing the descriptor would do so too, but another handle may
            // be using its number, so the close has to wait for the last handle.
            transfer::shut_down(self.as_fd());
        }
        true
    }

    pub(super) fn kind(&self) -> SocketKind {
        self.0.kind
    }

    pub(super) fn id(&self) -> u32 {
        self.0.id
    }

    pub(super) fn number(&self) -> u32 {
        self.0.descriptor.as_raw_fd() as u32
    }

    pub(super) fn register(&self, registrar: &Registrar, interest: Interest) -> io::Result<Interest> {
        self.0.register(registrar, interest)
    }

    pub(super) fn downgrade(&self) -> std::sync::Weak<SocketShared> {
        Arc::downgrade(&self.0)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.descriptor.as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.descriptor.as_raw_fd()
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut socket = f.debug_struct("Socket");
        socket.field("fd", &self.as_raw_fd());
        if self.is_closed() {
            socket.field("closed", &true);
        }
        socket.finish()
    }
}

impl From<OwnedFd> for Socket {
    /// Any descriptor. What is no socket is put into non-blocking mode, which its duplicates share: use [`Socket::watching`] for one that
    /// others read.
    fn from(descriptor: OwnedFd) -> Self {
        if transfer::is_socket(descriptor.as_fd()) {
            return Self::of_socket(descriptor);
        }
        // What cannot be put into that mode (a descriptor that only names a file) cannot be read either.
        let _ = transfer::set_nonblocking(descriptor.as_fd());
        Self::new(descriptor, SocketKind::File)
    }
}

macro_rules! from_std {
    ($($socket:ty),+) => {$(
        impl From<$socket> for Socket {
            fn from(socket: $socket) -> Self {
                Self::of_socket(socket.into())
            }
        }
    )+};
}
from_std!(
    std::net::TcpStream,
    std::net::TcpListener,
    std::net::UdpSocket,
    std::os::unix::net::UnixStream,
    std::os::unix::net::UnixListener,
    std::os::unix::net::UnixDatagram
);
