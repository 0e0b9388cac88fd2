//! Names and addresses. Looking a name up blocks an OS thread in the C library, so it is done on the blocking pool; a fiber that is
//! cancelled meanwhile goes at once, and the answer is dropped when it comes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs as StdToSocketAddrs};
use std::{iter, option, slice, vec};

use crate::scope::{current, spawn_blocking};

/// What stands for one or several addresses: [`std::net::ToSocketAddrs`], but a name is looked up off the worker.
///
/// ```
/// use fibra::net::ToSocketAddrs;
///
/// let mut addresses = "127.0.0.1:80".to_socket_addrs()?;
/// assert_eq!(addresses.next().unwrap().port(), 80);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait ToSocketAddrs {
    /// The addresses, one by one.
    type Iter: Iterator<Item = SocketAddr>;

    /// The addresses it stands for. May wait, for a name server.
    ///
    /// # Errors
    /// It is no address, or its name is not known.
    fn to_socket_addrs(&self) -> io::Result<Self::Iter>;
}

/// Looks up the addresses of a name: `lookup_host("localhost:80")` or `lookup_host(("localhost", 80))`. On a fiber this does not hold up
/// the worker, and can be cancelled.
///
/// ```
/// fibra::run(|| {
///     let addresses: Vec<_> = fibra::net::lookup_host(("127.0.0.1", 8080)).unwrap().collect();
///     assert_eq!(addresses, ["127.0.0.1:8080".parse().unwrap()]);
/// });
/// ```
///
/// # Errors
/// As [`ToSocketAddrs::to_socket_addrs`].
pub fn lookup_host<A: ToSocketAddrs>(host: A) -> io::Result<A::Iter> {
    host.to_socket_addrs()
}

/// Has the C library look it up.
fn look_up(
    host: impl StdToSocketAddrs<Iter = vec::IntoIter<SocketAddr>> + Send + 'static,
) -> io::Result<vec::IntoIter<SocketAddr>> {
    if current().is_none() {
        return host.to_socket_addrs();
    }
    match spawn_blocking(move || host.to_socket_addrs()).join() {
        Ok(found) => found,
        Err(error) => Err(io::Error::other(error)),
    }
}

macro_rules! is_an_address {
    ($($kind:ty),+) => {$(
        impl ToSocketAddrs for $kind {
            type Iter = option::IntoIter<SocketAddr>;
            fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
                StdToSocketAddrs::to_socket_addrs(self)
            }
        }
    )+};
}
is_an_address!(SocketAddr, SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

impl ToSocketAddrs for str {
    type Iter = vec::IntoIter<SocketAddr>;
    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        match self.parse() {
            Ok(address) => Ok(vec![address].into_iter()),
            Err(_) => look_up(self.to_owned()),
        }
    }
}

impl ToSocketAddrs for String {
    type Iter = vec::IntoIter<SocketAddr>;
    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        ToSocketAddrs::to_socket_addrs(&**self)
    }
}

impl ToSocketAddrs for (&str, u16) {
    type Iter = vec::IntoIter<SocketAddr>;
    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        let (host, port) = *self;
        match host.parse::<IpAddr>() {
            Ok(address) => Ok(vec![SocketAddr::new(address, port)].into_iter()),
            Err(_) => look_up((host.to_owned(), port)),
        }
    }
}

impl ToSocketAddrs for (String, u16) {
    type Iter = vec::IntoIter<SocketAddr>;
    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        ToSocketAddrs::to_socket_addrs(&(&*self.0, self.1))
    }
}

impl<'a> ToSocketAddrs for &'a [SocketAddr] {
    type Iter = iter::Cloned<slice::Iter<'a, SocketAddr>>;
    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        Ok(self.iter().cloned())
    }
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {
    type Iter = T::Iter;
    fn to_socket_addrs(&self) -> io::Result<T::Iter> {
        (**self).to_socket_addrs()
    }
}

/// Does something with each address until it succeeds; the error is the last one.
pub(super) fn first_of<A: ToSocketAddrs, T>(
    addresses: A,
    mut attempt: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for address in addresses.to_socket_addrs()? {
        match attempt(address) {
            Ok(done) => return Ok(done),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the name stands for no address")))
}
