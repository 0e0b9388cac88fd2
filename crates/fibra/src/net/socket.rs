//! The common part of all sockets: a socket of std in non-blocking mode, the loop around its operations, and its time-outs.
//!
//! Above: the types of this module, which name the operations. Below: `wait::io`. `socket/streaming.rs` has the reads of streams.

mod streaming;

use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::channel;
use crate::driver::socket;
use crate::prim::atomic::{AtomicU64, Ordering};
use crate::time::{Instant, sleep};
use crate::wait::io::{Ask, Direction, Io, Limit};
use crate::wait::park;
use crate::wait::reason::WaitReason;

/// Time-outs in nanoseconds; 0: none. Shared by the clones of a socket, as the kernel's are.
#[derive(Debug, Default)]
pub(super) struct Limits {
    read: AtomicU64,
    write: AtomicU64,
}

impl Limits {
    fn cell(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }
}

/// See the header.
#[derive(Debug)]
pub(super) struct Socket<S> {
    pub(super) io: Io<S>,
    limits: Arc<Limits>,
    /// Does a short read mean an empty queue? See [`Io::attempt_stream`]. Only for TCP connections, not for everything that was converted
    /// to a `TcpStream`: on packets, or kernel sockets of another kind, a short read does not mean that.
    short_is_last: bool,
}

impl<S: AsFd> Socket<S> {
    /// Wraps a socket in non-blocking mode.
    pub(super) fn new(inner: S) -> Self {
        Self::with_limits(inner, Arc::default(), false)
    }

    /// Wraps a TCP connection in non-blocking mode.
    pub(super) fn new_tcp(inner: S) -> Self {
        Self::with_limits(inner, Arc::default(), true)
    }

    /// Wraps a socket of std, with its time-outs.
    pub(super) fn adopt(inner: S) -> Self
    where
        S: Namesake,
    {
        inner.set_blocking(false).expect("an open socket can be put into non-blocking mode");
        let is_tcp = socket::is_tcp(inner.as_fd());
        let socket = Self::with_limits(inner, Arc::default(), is_tcp);
        // A time-out that cannot be read was never set.
        for (direction, limit) in [Direction::Read, Direction::Write].into_iter().zip(socket.get().limits()) {
            let _ = socket.set_limit(direction, limit);
        }
        socket
    }

    /// Converts it back to std, with its time-outs.
    pub(super) fn give_up(self) -> S
    where
        S: Namesake,
    {
        let limits = [Direction::Read, Direction::Write].map(|direction| self.limit(direction));
        // The mode belongs to all clones: in blocking mode, a fiber that uses another one would hold up its worker.
        let is_last = Arc::strong_count(&self.limits) == 1;
        let inner = self.io.into_inner();
        if is_last {
            inner.set_blocking(true).expect("an open socket can be put into blocking mode");
        }
        inner.set_limits(limits);
        inner
    }

    fn with_limits(inner: S, limits: Arc<Limits>, short_is_last: bool) -> Self {
        Self { io: Io::new(inner), limits, short_is_last }
    }

    #[inline(always)]
    pub(super) fn get(&self) -> &S {
        self.io.get()
    }

    /// Another handle to the same socket: `clone` duplicates the descriptor, which stays in non-blocking mode.
    pub(super) fn try_clone(&self, clone: impl FnOnce(&S) -> io::Result<S>) -> io::Result<Self> {
        Ok(Self::with_limits(clone(self.get())?, self.limits.clone(), self.short_is_last))
    }

    pub(super) fn limit(&self, direction: Direction) -> Option<Duration> {
        // Relaxed: a number by itself.
        match self.limits.cell(direction).load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }

    fn within(&self, direction: Direction) -> Limit {
        self.limit(direction).map_or(Limit::Never, Limit::After)
    }

    pub(super) fn set_limit(&self, direction: Direction, limit: Option<Duration>) -> io::Result<()> {
        let nanos = match limit {
            None => 0,
            Some(Duration::ZERO) => return Err(zero_timeout()),
            Some(limit) => u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
        };
        // Relaxed: a number by itself.
        self.limits.cell(direction).store(nanos, Ordering::Relaxed);
        Ok(())
    }

    #[inline]
    pub(super) fn reading<T>(
        &self,
        site: &'static Location<'static>,
        attempt: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        self.reading_until(site, self.within(Direction::Read), attempt)
    }

    /// With a limit of its own.
    #[inline]
    pub(super) fn reading_until<T>(
        &self,
        site: &'static Location<'static>,
        limit: Limit,
        attempt: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        self.io.operate(Ask { direction: Direction::Read, reason: WaitReason::NetRead, site, limit }, attempt)
    }

    #[inline]
    pub(super) fn writing<T>(
        &self,
        site: &'static Location<'static>,
        attempt: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        self.writing_until(site, self.within(Direction::Write), attempt)
    }

    /// With a limit of its own.
    #[inline]
    pub(super) fn writing_until<T>(
        &self,
        site: &'static Location<'static>,
        limit: Limit,
        attempt: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        self.io.operate(Ask { direction: Direction::Write, reason: WaitReason::NetWrite, site, limit }, attempt)
    }

    /// Tries once, without waiting.
    pub(super) fn trying<T>(&self, attempt: impl FnMut(&S) -> io::Result<T>) -> io::Result<T> {
        park::count(park::cost::OPERATION);
        self.io.try_now(attempt)
    }

    /// The async form of [`reading`](Self::reading) and [`accepting`](Self::accepting).
    pub(super) fn reading_async<T>(
        &self,
        attempt: impl FnMut(&S) -> io::Result<T> + Unpin,
    ) -> impl Future<Output = io::Result<T>> {
        self.io.operate_async(Direction::Read, attempt)
    }

    /// The async form of [`streaming`](Self::streaming).
    pub(super) async fn streaming_async(
        &self,
        room: usize,
        attempt: impl FnMut(&S) -> io::Result<usize> + Unpin,
    ) -> io::Result<usize> {
        if self.short_is_last {
            self.io.operate_stream_async(room, attempt).await
        } else {
            self.reading_async(attempt).await
        }
    }

    /// The async form of [`writing`](Self::writing) and [`connecting`](Self::connecting).
    pub(super) fn writing_async<T>(
        &self,
        attempt: impl FnMut(&S) -> io::Result<T> + Unpin,
    ) -> impl Future<Output = io::Result<T>> {
        self.io.operate_async(Direction::Write, attempt)
    }

    /// Waits until a try is worth it.
    pub(super) async fn ready_async(&self, direction: Direction) -> io::Result<()> {
        let is_ready = |_: &S| match self.io.is_ready(direction)? {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        };
        self.io.operate_async(direction, is_ready).await
    }

    pub(super) fn accepting<T>(
        &self,
        site: &'static Location<'static>,
        limit: Limit,
        attempt: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        self.io.operate(Ask { direction: Direction::Read, reason: WaitReason::NetAccept, site, limit }, attempt)
    }

    pub(super) fn connecting<T>(
        &self,
        site: &'static Location<'static>,
        limit: Limit,
        attempt: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        self.io.operate(Ask { direction: Direction::Write, reason: WaitReason::NetConnect, site, limit }, attempt)
    }
}

#[cold]
pub(super) fn zero_timeout() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "a time-out of zero would end every operation: use None for no time-out",
    )
}

/// A limit that a caller gives as a moment.
pub(super) fn until(deadline: impl Into<Instant>) -> Limit {
    Limit::Until(deadline.into().as_nanos())
}

/// The pauses between tries of an operation whose readiness the kernel does not report.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    most: Duration,
}

impl Backoff {
    pub(super) fn new(most: Duration) -> Self {
        Self { next: Duration::from_millis(1), most }
    }

    /// Sleeps, each time twice as long up to the most.
    #[track_caller]
    pub(super) fn sleep(&mut self) {
        sleep(self.next);
        self.lengthen();
    }

    pub(super) async fn sleep_async(&mut self) {
        // The channel yields once, and is never closed.
        let _ = channel::after(self.next).recv_async().await;
        self.lengthen();
    }

    fn lengthen(&mut self) {
        self.next = (self.next * 2).min(self.most);
    }

    /// The same, unless `deadline` has passed, which is an error; if the deadline comes sooner, sleeps until then.
    #[track_caller]
    pub(super) fn sleep_until(&mut self, deadline: Instant) -> io::Result<()> {
        let left = deadline.remaining();
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.next = self.next.min(left);
        self.sleep();
        Ok(())
    }
}

/// A socket of std, as conversions see it.
pub(super) trait Namesake {
    fn set_blocking(&self, blocking: bool) -> io::Result<()>;
    /// Its time-outs for reading and writing, if such sockets have them.
    fn limits(&self) -> [Option<Duration>; 2];
    fn set_limits(&self, limits: [Option<Duration>; 2]);
}

macro_rules! namesakes {
    ($($listener:ty),+; $($other:ty),+) => {
        $(impl Namesake for $listener {
            fn set_blocking(&self, blocking: bool) -> io::Result<()> {
                self.set_nonblocking(!blocking)
            }
            fn limits(&self) -> [Option<Duration>; 2] {
                [None; 2]
            }
            fn set_limits(&self, _: [Option<Duration>; 2]) {}
        })+
        $(impl Namesake for $other {
            fn set_blocking(&self, blocking: bool) -> io::Result<()> {
                self.set_nonblocking(!blocking)
            }
            fn limits(&self) -> [Option<Duration>; 2] {
                [self.read_timeout().ok().flatten(), self.write_timeout().ok().flatten()]
            }
            fn set_limits(&self, limits: [Option<Duration>; 2]) {
                // An open socket takes any length that is not zero, and ours are not.
                let _ = self.set_read_timeout(limits[0]);
                let _ = self.set_write_timeout(limits[1]);
            }
        })+
    };
}
namesakes! {
    std::net::TcpListener, std::os::unix::net::UnixListener;
    std::net::TcpStream, std::net::UdpSocket, std::os::unix::net::UnixStream, std::os::unix::net::UnixDatagram
}

/// The conversions that each type has, all alike: `socket` is its only field.
macro_rules! like_std {
    ($ours:ident, $std:ty) => {
        impl From<$std> for $ours {
            /// Puts it into non-blocking mode, which its duplicates share. Time-outs stay.
            fn from(socket: $std) -> Self {
                Self { socket: crate::net::socket::Socket::adopt(socket) }
            }
        }

        impl From<$ours> for $std {
            /// Puts it into blocking mode, unless there are clones of it, which share the mode: then it says `WouldBlock` where it
            /// would wait. Convert the last one. Time-outs stay.
            fn from(socket: $ours) -> Self {
                socket.socket.give_up()
            }
        }

        impl From<std::os::fd::OwnedFd> for $ours {
            fn from(descriptor: std::os::fd::OwnedFd) -> Self {
                <$std>::from(descriptor).into()
            }
        }

        impl From<$ours> for std::os::fd::OwnedFd {
            /// As for the socket of std: in blocking mode, unless there are clones of it.
            fn from(socket: $ours) -> Self {
                <$std>::from(socket).into()
            }
        }

        impl std::os::fd::AsFd for $ours {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.socket.get().as_fd()
            }
        }

        impl std::os::fd::AsRawFd for $ours {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                self.socket.get().as_raw_fd()
            }
        }

        impl std::os::fd::IntoRawFd for $ours {
            fn into_raw_fd(self) -> std::os::fd::RawFd {
                <$std>::from(self).into_raw_fd()
            }
        }

        crate::driver::socket::from_raw_fd!($ours => $std);

        impl std::fmt::Debug for $ours {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.socket.get().fmt(f)
            }
        }
    };
}
pub(super) use like_std;

/// Reading and writing as std's streams do, for values and references.
macro_rules! reads_and_writes {
    ($ours:ident) => {
        impl $ours {
            /// Reads what is there.
            ///
            /// # Errors
            /// [`WouldBlock`](std::io::ErrorKind::WouldBlock): nothing is there. Otherwise as reading.
            pub fn try_read(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
                if buffer.is_empty() {
                    return Ok(0);
                }
                self.socket.trying(|mut socket| std::io::Read::read(&mut socket, buffer))
            }

            /// Writes as much as there is room for.
            ///
            /// # Errors
            /// [`WouldBlock`](std::io::ErrorKind::WouldBlock): there is no room. Otherwise as writing.
            pub fn try_write(&self, buffer: &[u8]) -> std::io::Result<usize> {
                self.socket.trying(|mut socket| std::io::Write::write(&mut socket, buffer))
            }

            /// Reads, waiting until `deadline` at most instead of the read time-out. (For a length of time there is
            /// [`set_read_timeout`](Self::set_read_timeout), as in std.)
            ///
            /// ```
            /// use std::io::{ErrorKind, Write};
            /// use std::time::Duration;
            /// use fibra::net::UnixStream;
            /// use fibra::time::Instant;
            ///
            /// fibra::run(|| {
            ///     let (here, mut there) = UnixStream::pair().unwrap();
            ///     let deadline = Instant::after(Duration::from_millis(2));
            ///     let mut word = [0; 5];
            ///     assert_eq!(here.read_deadline(&mut word, deadline).unwrap_err().kind(), ErrorKind::TimedOut);
            ///     there.write_all(b"hello").unwrap();
            ///     // What is there is read, however late it is.
            ///     assert_eq!(here.read_deadline(&mut word, deadline).unwrap(), 5);
            ///     assert_eq!(here.try_read(&mut word).unwrap_err().kind(), ErrorKind::WouldBlock);
            /// });
            /// ```
            ///
            /// # Errors
            /// [`TimedOut`](std::io::ErrorKind::TimedOut), and as reading.
            #[track_caller]
            pub fn read_deadline(
                &self,
                buffer: &mut [u8],
                deadline: impl Into<crate::time::Instant>,
            ) -> std::io::Result<usize> {
                if buffer.is_empty() {
                    return Ok(0);
                }
                let limit = crate::net::socket::until(deadline);
                let site = std::panic::Location::caller();
                self.socket.reading_until(site, limit, |mut socket| std::io::Read::read(&mut socket, buffer))
            }

            /// Writes some of it, waiting until `deadline` at most instead of the write time-out.
            ///
            /// # Errors
            /// [`TimedOut`](std::io::ErrorKind::TimedOut), and as writing.
            #[track_caller]
            pub fn write_deadline(
                &self,
                buffer: &[u8],
                deadline: impl Into<crate::time::Instant>,
            ) -> std::io::Result<usize> {
                let limit = crate::net::socket::until(deadline);
                let site = std::panic::Location::caller();
                self.socket.writing_until(site, limit, |mut socket| std::io::Write::write(&mut socket, buffer))
            }
        }

        /// In async code. Bytes move when the future is polled and at no other time: one that is dropped has read and written nothing
        /// ([`read_exact_async`](Self::read_exact_async) and [`write_all_async`](Self::write_all_async) are several operations). Time-outs
        /// that were set do not apply. They run under any executor.
        impl $ours {
            /// Reads what there is, as [`read`](std::io::Read::read) does. 0: the end, or there is no room.
            ///
            /// # Errors
            /// As reading.
            pub async fn read_async(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
                let room = buffer.len();
                if room == 0 {
                    return Ok(0);
                }
                let read = |mut socket: &_| std::io::Read::read(&mut socket, buffer);
                self.socket.streaming_async(room, read).await
            }

            /// Writes what there is room for, as [`write`](std::io::Write::write) does.
            ///
            /// # Errors
            /// As writing.
            pub async fn write_async(&self, buffer: &[u8]) -> std::io::Result<usize> {
                self.socket.writing_async(|mut socket| std::io::Write::write(&mut socket, buffer)).await
            }

            /// Fills the buffer.
            ///
            /// # Errors
            /// As reading; [`UnexpectedEof`](std::io::ErrorKind::UnexpectedEof), if the stream ends before.
            pub async fn read_exact_async(&self, buffer: &mut [u8]) -> std::io::Result<()> {
                let mut filled = 0;
                while filled < buffer.len() {
                    match self.read_async(&mut buffer[filled..]).await? {
                        0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                        len => filled += len,
                    }
                }
                Ok(())
            }

            /// Writes all of it.
            ///
            /// # Errors
            /// As writing.
            pub async fn write_all_async(&self, mut buffer: &[u8]) -> std::io::Result<()> {
                while !buffer.is_empty() {
                    match self.write_async(buffer).await? {
                        0 => return Err(std::io::ErrorKind::WriteZero.into()),
                        len => buffer = &buffer[len..],
                    }
                }
                Ok(())
            }
        }

        impl std::io::Read for &$ours {
            #[track_caller]
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.socket.streaming(std::panic::Location::caller(), buffer)
            }
            #[track_caller]
            fn read_vectored(&mut self, buffers: &mut [std::io::IoSliceMut<'_>]) -> std::io::Result<usize> {
                self.socket.streaming(std::panic::Location::caller(), buffers)
            }
        }

        impl std::io::Read for $ours {
            #[track_caller]
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                (&*self).read(buffer)
            }
            #[track_caller]
            fn read_vectored(&mut self, buffers: &mut [std::io::IoSliceMut<'_>]) -> std::io::Result<usize> {
                (&*self).read_vectored(buffers)
            }
        }

        impl std::io::Write for &$ours {
            #[track_caller]
            fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
                self.socket.writing(std::panic::Location::caller(), |mut socket| socket.write(buffer))
            }
            #[track_caller]
            fn write_vectored(&mut self, buffers: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                self.socket.writing(std::panic::Location::caller(), |mut socket| socket.write_vectored(buffers))
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        impl std::io::Write for $ours {
            #[track_caller]
            fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
                (&*self).write(buffer)
            }
            #[track_caller]
            fn write_vectored(&mut self, buffers: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                (&*self).write_vectored(buffers)
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
    };
}
pub(super) use reads_and_writes;

/// Time-outs and readiness, as all sockets that transfer something have them.
macro_rules! timeouts_and_readiness {
    ($ours:ident) => {
        impl $ours {
            /// How long a read waits at most; `None`: for ever. A read that takes longer is an error of kind
            /// [`TimedOut`](std::io::ErrorKind::TimedOut); nothing is lost, and it can be tried again. Shared by clones.
            ///
            /// # Errors
            /// A time-out of zero.
            pub fn set_read_timeout(&self, timeout: Option<std::time::Duration>) -> std::io::Result<()> {
                self.socket.set_limit(crate::wait::io::Direction::Read, timeout)
            }

            /// The same for writes.
            ///
            /// # Errors
            /// A time-out of zero.
            pub fn set_write_timeout(&self, timeout: Option<std::time::Duration>) -> std::io::Result<()> {
                self.socket.set_limit(crate::wait::io::Direction::Write, timeout)
            }

            /// What [`set_read_timeout`](Self::set_read_timeout) has set.
            ///
            /// # Errors
            /// None; a `Result` as in std.
            pub fn read_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                Ok(self.socket.limit(crate::wait::io::Direction::Read))
            }

            /// What [`set_write_timeout`](Self::set_write_timeout) has set.
            ///
            /// # Errors
            /// None; a `Result` as in std.
            pub fn write_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                Ok(self.socket.limit(crate::wait::io::Direction::Write))
            }

            /// Waiting until reading is possible, as an arm of [`select!`](crate::select): `on(socket.readable())`. Its result says
            /// whether waiting went well; then a read does not wait, unless another reader reads first.
            pub fn readable(&self) -> crate::net::ReadyArm<'_> {
                crate::net::ReadyArm::new(&self.socket.io, crate::wait::io::Direction::Read)
            }

            /// The same for writing: `on(socket.writable())`.
            pub fn writable(&self) -> crate::net::ReadyArm<'_> {
                crate::net::ReadyArm::new(&self.socket.io, crate::wait::io::Direction::Write)
            }

            /// Waits in async code until reading is possible; then a read does not wait, unless another reader reads first.
            ///
            /// # Errors
            /// The wait could not be arranged: the system is out of memory.
            pub async fn readable_async(&self) -> std::io::Result<()> {
                self.socket.ready_async(crate::wait::io::Direction::Read).await
            }

            /// The same for writing.
            ///
            /// # Errors
            /// As there.
            pub async fn writable_async(&self) -> std::io::Result<()> {
                self.socket.ready_async(crate::wait::io::Direction::Write).await
            }

            /// The error that is pending on the socket, if any, which is then forgotten (`SO_ERROR`).
            ///
            /// # Errors
            /// If the system cannot say.
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                self.socket.get().take_error()
            }
        }
    };
}
pub(super) use timeouts_and_readiness;

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    // A descriptor that cannot be watched (a file): the wait ends with an error, on a fiber and on a thread that could be cancelled, and
    // nothing is left linked.
    #[test]
    fn what_cannot_be_registered_is_an_error() {
        let socket = Socket::new(std::fs::File::open("/proc/self/exe").unwrap());
        let attempt = || {
            for limit in [Limit::Never, Limit::After(Duration::from_secs(60))] {
                let tried = Cell::new(0);
                let done: io::Result<()> = socket.reading_until(Location::caller(), limit, |_| {
                    tried.set(tried.get() + 1);
                    Err(io::ErrorKind::WouldBlock.into())
                });
                assert_eq!((done.unwrap_err().raw_os_error(), tried.get()), (Some(libc::EPERM), 1));
            }
        };
        let runtime = crate::runtime::Runtime::builder().workers(1).build().unwrap();
        runtime.run(attempt);
        let _entered = runtime.handle().enter();
        crate::scope::scope(|_| attempt());
    }
}
