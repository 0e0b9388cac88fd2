//! Names and addresses. Looking a name up blocks an OS thread in the C library, for as long as the name server likes: so it is done on
//! a thread that nobody waits for. A fiber that is cancelled meanwhile goes at once, and the answer is dropped when it comes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs as StdToSocketAddrs};
use std::panic::Location;
use std::{iter, option, slice, vec};

use crate::net::abandon::abandonable;
use crate::sched::current;
use crate::wait::io::may_be_cancelled;
use crate::wait::reason::WaitReason;

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
/// the worker, and can be cancelled at any time: a lookup that hangs holds up nobody, not even the end of the runtime.
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
#[track_caller]
pub fn lookup_host<A: ToSocketAddrs>(host: A) -> io::Result<A::Iter> {
    host.to_socket_addrs()
}

/// Has the C library look it up.
#[track_caller]
fn look_up(
    host: impl StdToSocketAddrs<Iter = vec::IntoIter<SocketAddr>> + Send + 'static,
) -> io::Result<vec::IntoIter<SocketAddr>> {
    if current::worker().is_none() && !may_be_cancelled() {
        return host.to_socket_addrs();
    }
    look_up_with(move || host.to_socket_addrs().map(Iterator::collect))
}

/// For tests: a lookup whose answer comes from `answer`, whenever it likes.
#[track_caller]
pub fn look_up_with(
    answer: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> io::Result<vec::IntoIter<SocketAddr>> {
    Ok(abandonable(WaitReason::NetLookup, Location::caller(), None, answer)??.into_iter())
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
    #[track_caller]
    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        match self.parse() {
            Ok(address) => Ok(vec![address].into_iter()),
            Err(_) => look_up(self.to_owned()),
        }
    }
}

impl ToSocketAddrs for String {
    type Iter = vec::IntoIter<SocketAddr>;
    #[track_caller]
    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        ToSocketAddrs::to_socket_addrs(&**self)
    }
}

impl ToSocketAddrs for (&str, u16) {
    type Iter = vec::IntoIter<SocketAddr>;
    #[track_caller]
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
    #[track_caller]
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
    #[track_caller]
    fn to_socket_addrs(&self) -> io::Result<T::Iter> {
        (**self).to_socket_addrs()
    }
}

/// Does something with each address until it succeeds; the error is the last one.
#[track_caller]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Runtime;
    use crate::scope::timeout;
    use std::sync::mpsc;
    use std::time::Duration;

    /// A name whose server does not answer until it is told to.
    struct Slow(mpsc::Receiver<()>);

    impl StdToSocketAddrs for Slow {
        type Iter = vec::IntoIter<SocketAddr>;
        fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
            let _ = self.0.recv();
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], 80))].into_iter())
        }
    }

    #[test]
    fn a_lookup_that_hangs_holds_up_neither_cancellation_nor_shutdown() {
        let (answer, server) = mpsc::channel();
        let (_never, silent) = mpsc::channel();
        let (_never_too, silent_too) = mpsc::channel();
        let runtime = Runtime::builder().workers(1).build().unwrap();
        let fiber = runtime.spawn(|| look_up(Slow(silent)).map(|found| found.count()));
        let answered = runtime.spawn(|| look_up(Slow(server)).map(|found| found.count()));
        while runtime.metrics().parked < 2 {
            std::thread::yield_now();
        }
        assert!(!fiber.is_finished());
        fiber.cancel();
        assert!(fiber.join().unwrap_err().is_cancelled());
        answer.send(()).unwrap();
        assert_eq!(answered.join().unwrap().unwrap(), 1);
        let late = runtime.run(|| timeout(Duration::from_millis(1), || look_up(Slow(silent_too)).is_ok()));
        assert!(late.is_err());
        // Two of them hang still.
        runtime.shutdown_timeout(Duration::from_secs(20)).unwrap();
    }
}
