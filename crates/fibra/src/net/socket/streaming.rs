//! Reading from a stream, in functions of which few are on the stack while the fiber waits.
//!
//! Most connections of a server wait in a read most of the time, each with a page of stack or two; every 64 bytes decide about the second
//! page for one connection of sixteen (decision 74). So a read that begins with waiting is one small function, which has nothing in its
//! frame but what it needs to try again; what counts, tries, or looks at the clock is called and gone by then.
//!
//! Above: the types of `net`. Below: `wait::io`. A test there measures it.

use std::io::{self, IoSliceMut, Read};
use std::os::fd::AsFd;
use std::panic::Location;

use super::Socket;
use crate::wait::io::{Ask, Direction, Limit, Seen, Tried};
use crate::wait::park;
use crate::wait::reason::WaitReason;

impl<S: AsFd> Socket<S> {
    /// Reading from a stream, into one buffer or several.
    #[inline(always)]
    pub(in crate::net) fn streaming<B: Buffer<S> + ?Sized>(
        &self,
        site: &'static Location<'static>,
        buffer: &mut B,
    ) -> io::Result<usize> {
        if buffer.room() == 0 {
            return Ok(0);
        }
        // Neither way leaves anything in this stack frame. (Which way is taken is decided before the call counts in the budget, which may
        // let others run: then the wait will be stale, or the try too early.)
        match self.io.is_drained() {
            Some(seen) => self.wait_and_stream(site, buffer, seen),
            None => self.try_and_stream(site, buffer),
        }
    }

    /// The read that begins with a try.
    #[inline(never)]
    fn try_and_stream<B: Buffer<S> + ?Sized>(
        &self,
        site: &'static Location<'static>,
        buffer: &mut B,
    ) -> io::Result<usize> {
        park::entry_of_operation();
        match self.attempt_stream(buffer).into_result() {
            Ok(done) => done,
            Err(seen) => self.go_on_streaming(site, buffer, seen, self.within(Direction::Read)),
        }
    }

    /// The read that begins with waiting, as most do on a server.
    #[inline(never)]
    fn wait_and_stream<B: Buffer<S> + ?Sized>(
        &self,
        site: &'static Location<'static>,
        buffer: &mut B,
        seen: Seen,
    ) -> io::Result<usize> {
        park::entry_of_operation();
        match self.within(Direction::Read) {
            Limit::Never => self.go_on_streaming(site, buffer, seen, Limit::Never),
            _ => self.wait_and_stream_within(site, buffer, seen),
        }
    }

    /// The same with a limit, which needs more stack.
    #[inline(never)]
    fn wait_and_stream_within<B: Buffer<S> + ?Sized>(
        &self,
        site: &'static Location<'static>,
        buffer: &mut B,
        seen: Seen,
    ) -> io::Result<usize> {
        self.go_on_streaming(site, buffer, seen, self.within(Direction::Read))
    }

    #[inline(always)]
    fn go_on_streaming<B: Buffer<S> + ?Sized>(
        &self,
        site: &'static Location<'static>,
        buffer: &mut B,
        seen: Seen,
        limit: Limit,
    ) -> io::Result<usize> {
        let ask = Ask { direction: Direction::Read, reason: WaitReason::NetRead, site, limit };
        self.io.wait_and_retry(ask, seen, || self.retry_stream(buffer).into_result())
    }

    #[inline(always)]
    fn attempt_stream<B: Buffer<S> + ?Sized>(&self, buffer: &mut B) -> Tried {
        let room = if self.short_is_last { buffer.room() } else { 0 };
        self.io.attempt_stream(room, |socket| buffer.read_from(socket))
    }

    /// A call, so that the try takes no place on the stack while the fiber waits.
    #[inline(never)]
    fn retry_stream<B: Buffer<S> + ?Sized>(&self, buffer: &mut B) -> Tried {
        self.attempt_stream(buffer)
    }
}

/// A place to which a stream is read.
pub(in crate::net) trait Buffer<S> {
    fn room(&self) -> usize;
    fn read_from(&mut self, socket: &S) -> io::Result<usize>;
}

impl<S> Buffer<S> for [u8]
where
    for<'a> &'a S: Read,
{
    #[inline(always)]
    fn room(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn read_from(&mut self, mut socket: &S) -> io::Result<usize> {
        socket.read(self)
    }
}

/// Buffers that one system call fills (`UIO_MAXIOV`): later ones do not count as room.
const MOST_BUFFERS: usize = 1024;

impl<S> Buffer<S> for [IoSliceMut<'_>]
where
    for<'a> &'a S: Read,
{
    fn room(&self) -> usize {
        self.iter().take(MOST_BUFFERS).map(|buffer| buffer.len()).fold(0, usize::saturating_add)
    }

    fn read_from(&mut self, mut socket: &S) -> io::Result<usize> {
        socket.read_vectored(self)
    }
}
