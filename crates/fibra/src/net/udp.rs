//! UDP sockets. Above: users. Below: `net::socket`, `driver::socket`.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::panic::Location;

use super::addr::{ToSocketAddrs, first_of};
use super::common::datagrams;
use super::socket::{Socket, like_std, timeouts_and_readiness};
use crate::driver::socket;

/// A UDP socket: [`std::net::UdpSocket`] for fibers.
///
/// ```
/// use fibra::net::UdpSocket;
///
/// fibra::run(|| -> std::io::Result<()> {
///     let here = UdpSocket::bind("127.0.0.1:0")?;
///     let there = UdpSocket::bind("127.0.0.1:0")?;
///     here.send_to(b"ping", there.local_addr()?)?;
///     let mut buffer = [0; 16];
///     let (len, from) = there.recv_from(&mut buffer)?;
///     assert_eq!((&buffer[..len], from), (&b"ping"[..], here.local_addr()?));
///     Ok(())
/// }).unwrap();
/// ```
pub struct UdpSocket {
    socket: Socket<std::net::UdpSocket>,
}

like_std!(UdpSocket, std::net::UdpSocket);
timeouts_and_readiness!(UdpSocket);
datagrams! {
    UdpSocket, std::net::UdpSocket, SocketAddr, an unconnected one: "UdpSocket::bind(\"127.0.0.1:0\")",
    /// Waits for a datagram of the address it is connected to.
    ///
    /// # Errors
    /// Time-outs, and what the system reports: `ConnectionRefused` if no socket was bound there for a datagram sent before.
    recv,
    /// Sends a datagram to the address it is connected to.
    ///
    /// # Errors
    /// What the system reports.
    send,
}

impl UdpSocket {
    /// A socket with this address; port 0: with a free port.
    ///
    /// # Errors
    /// The address is in use, not of this machine, or not allowed.
    pub fn bind<A: ToSocketAddrs>(address: A) -> io::Result<Self> {
        first_of(address, std::net::UdpSocket::bind).map(Self::from)
    }

    /// [`bind`](Self::bind) with `SO_REUSEPORT`: several sockets share the port, and the system distributes datagrams among them.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_reuse_port<A: ToSocketAddrs>(address: A) -> io::Result<Self> {
        first_of(address, |address| socket::bind_datagram_shared(&address)).map(Self::from)
    }

    /// [`recv_from`](Self::recv_from) without taking the datagram.
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.socket.reading(Location::caller(), |socket| socket.peek_from(buffer))
    }

    /// Sends a datagram to the first of the addresses.
    ///
    /// # Errors
    /// There is no address, or what the system reports.
    #[track_caller]
    pub fn send_to<A: ToSocketAddrs>(&self, buffer: &[u8], address: A) -> io::Result<usize> {
        let Some(address) = address.to_socket_addrs()?.next() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name stands for no address"));
        };
        self.socket.writing(Location::caller(), |socket| socket.send_to(buffer, address))
    }

    /// [`send_to`](Self::send_to), if there is room.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock): there is none. Otherwise as [`send_to`](Self::send_to).
    pub fn try_send_to(&self, buffer: &[u8], address: SocketAddr) -> io::Result<usize> {
        self.socket.trying(|socket| socket.send_to(buffer, address))
    }

    /// Sends to and receives from this address only.
    ///
    /// # Errors
    /// There is no address, or what the system reports.
    pub fn connect<A: ToSocketAddrs>(&self, address: A) -> io::Result<()> {
        first_of(address, |address| self.socket.get().connect(address))
    }

    /// [`recv`](Self::recv) without taking the datagram.
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.reading(Location::caller(), |socket| socket.peek(buffer))
    }

    /// The async form of [`peek_from`](Self::peek_from).
    ///
    /// # Errors
    /// As there.
    pub async fn peek_from_async(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.socket.reading_async(|socket| socket.peek_from(buffer)).await
    }

    /// The async form of [`send_to`](Self::send_to). Takes an address and not a name: looking a name up blocks.
    ///
    /// ```
    /// use fibra::net::UdpSocket;
    ///
    /// fibra::block_on(async {
    ///     let (here, there) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    ///     here.send_to_async(b"one", there.local_addr()?).await?;
    ///     let mut buffer = [0; 8];
    ///     assert_eq!(there.recv_from_async(&mut buffer).await?, (3, here.local_addr()?));
    ///     Ok::<_, std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// What the system reports.
    pub async fn send_to_async(&self, buffer: &[u8], address: SocketAddr) -> io::Result<usize> {
        self.socket.writing_async(|socket| socket.send_to(buffer, address)).await
    }

    /// The async form of [`peek`](Self::peek).
    ///
    /// # Errors
    /// As there.
    pub async fn peek_async(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.reading_async(|socket| socket.peek(buffer)).await
    }
}

/// The options that are passed on to std as they are.
macro_rules! options {
    ($($doc:literal $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)+) => {
        impl UdpSocket {
            $(
                #[doc = $doc]
                ///
                /// # Errors
                /// What the system reports.
                pub fn $name(&self, $($argument: $kind),*) -> io::Result<$result> {
                    self.socket.get().$name($($argument),*)
                }
            )+
        }
    };
}

options! {
    "The address of this socket." local_addr() -> SocketAddr;
    "The address it is connected to." peer_addr() -> SocketAddr;
    "May it send to broadcast addresses?" broadcast() -> bool;
    "Lets it send to broadcast addresses." set_broadcast(broadcast: bool) -> ();
    "The number of hops that packets may make." ttl() -> u32;
    "Sets the number of hops that packets may make." set_ttl(ttl: u32) -> ();
    "Does this machine get its own multicasts (IPv4)?" multicast_loop_v4() -> bool;
    "Lets this machine get its own multicasts (IPv4)." set_multicast_loop_v4(on: bool) -> ();
    "The number of hops that multicasts may make (IPv4)." multicast_ttl_v4() -> u32;
    "Sets the number of hops that multicasts may make (IPv4)." set_multicast_ttl_v4(ttl: u32) -> ();
    "Does this machine get its own multicasts (IPv6)?" multicast_loop_v6() -> bool;
    "Lets this machine get its own multicasts (IPv6)." set_multicast_loop_v6(on: bool) -> ();
    "Joins a multicast group (IPv4)." join_multicast_v4(group: &Ipv4Addr, interface: &Ipv4Addr) -> ();
    "Joins a multicast group (IPv6)." join_multicast_v6(group: &Ipv6Addr, interface: u32) -> ();
    "Leaves a multicast group (IPv4)." leave_multicast_v4(group: &Ipv4Addr, interface: &Ipv4Addr) -> ();
    "Leaves a multicast group (IPv6)." leave_multicast_v6(group: &Ipv6Addr, interface: u32) -> ();
}
