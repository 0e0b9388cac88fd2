//! Copying between two connections, in both directions at once.

use std::io::{ErrorKind, Read, Result, Write};
use std::net::Shutdown;

use super::copy;
use crate::net::{TcpStream, UnixStream};
use crate::scope::try_scope;
use crate::task::JoinHandle;

/// A connection that two fibers can use at once, one for each direction, and whose direction out can be ended alone.
pub trait Duplex: Sync {
    /// Reads as [`Read::read`].
    ///
    /// # Errors
    /// As there.
    fn read_shared(&self, buffer: &mut [u8]) -> Result<usize>;
    /// Writes as [`Write::write`].
    ///
    /// # Errors
    /// As there.
    fn write_shared(&self, buffer: &[u8]) -> Result<usize>;
    /// Tells the other side that nothing more comes; it may go on sending.
    ///
    /// # Errors
    /// As [`TcpStream::shutdown`].
    fn finish(&self) -> Result<()>;
}

macro_rules! duplex {
    ($($stream:ty),+) => {$(
        impl Duplex for $stream {
            #[track_caller]
            fn read_shared(&self, buffer: &mut [u8]) -> Result<usize> {
                (&mut &*self).read(buffer)
            }
            #[track_caller]
            fn write_shared(&self, buffer: &[u8]) -> Result<usize> {
                (&mut &*self).write(buffer)
            }
            fn finish(&self) -> Result<()> {
                self.shutdown(Shutdown::Write)
            }
        }
    )+};
}
duplex!(TcpStream, UnixStream);

/// One side of it, as a stream.
struct Side<'a, D: ?Sized>(&'a D);

impl<D: Duplex + ?Sized> Read for Side<'_, D> {
    #[track_caller]
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.0.read_shared(buffer)
    }
}

impl<D: Duplex + ?Sized> Write for Side<'_, D> {
    #[track_caller]
    fn write(&mut self, buffer: &[u8]) -> Result<usize> {
        self.0.write_shared(buffer)
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Passes on what comes from one to the other, both ways, until both have said all they had to say: what a proxy does. When one side ends,
/// the other is told, and its direction goes on. Gives the number of bytes from `a` to `b`, and from `b` to `a`.
///
/// ```
/// use fibra::net::UnixStream;
/// use std::io::{Read, Write};
/// use std::net::Shutdown;
///
/// fibra::run(|| -> std::io::Result<()> {
///     let (mut client, front) = UnixStream::pair()?;
///     let (back, mut server) = UnixStream::pair()?;
///     let proxy = fibra::spawn(move || fibra::io::copy_bidirectional(&front, &back));
///     client.write_all(b"ping")?;
///     client.shutdown(Shutdown::Write)?;
///     let mut request = String::new();
///     server.read_to_string(&mut request)?;
///     server.write_all(b"pong!")?;
///     drop(server);
///     let mut answer = String::new();
///     client.read_to_string(&mut answer)?;
///     assert_eq!((&*request, &*answer), ("ping", "pong!"));
///     assert_eq!(proxy.join().unwrap()?, (4, 5));
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The first of either direction; the other one is ended by that. If the runtime's cap of fibers is reached: it needs one more.
///
/// # Panics
/// On a plain thread without a runtime, as [`scope`](crate::scope()).
#[track_caller]
pub fn copy_bidirectional<A, B>(a: &A, b: &B) -> Result<(u64, u64)>
where
    A: Duplex + ?Sized,
    B: Duplex + ?Sized,
{
    try_scope(|s| {
        let there = s.spawn(|| one_way(a, b)).try_join();
        if let Ok(Err(error)) = there {
            // As a rule the runtime is full, and it was not started: one direction without the other might never come to an end.
            return Err(std::io::Error::other(error));
        }
        let back = one_way(b, a)?;
        match there.unwrap_or_else(JoinHandle::join) {
            Ok(there) => Ok((there, back)),
            // It failed before, and its error is the scope's; or it panicked, which the scope passes on.
            Err(error) => Err(std::io::Error::other(error)),
        }
    })
}

fn one_way<A: Duplex + ?Sized, B: Duplex + ?Sized>(from: &A, to: &B) -> Result<u64> {
    let copied = copy(&mut Side(from), &mut Side(to))?;
    match to.finish() {
        // It is gone already, and has said all it had to say.
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(copied),
        finished => finished.map(|()| copied),
    }
}
