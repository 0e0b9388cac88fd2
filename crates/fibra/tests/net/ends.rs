//! The ends of connections that the tests of sockets begin with, and room for many of them.

use std::net::SocketAddr;

use fibra::net::{TcpListener, TcpStream};

/// A listener on a free port, and its address.
pub(crate) fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Two ends of one connection.
pub(crate) fn pair() -> (TcpStream, TcpStream) {
    let (listener, address) = listener();
    let here = TcpStream::connect(address).unwrap();
    (here, listener.accept().unwrap().0)
}

/// Raises the limit of descriptors to this, as far as allowed; says what it is then.
pub(crate) fn raised_limit(wanted: u64) -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit lives through the calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = limit.rlim_cur.max(wanted.min(limit.rlim_max));
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
    limit.rlim_cur as usize
}
