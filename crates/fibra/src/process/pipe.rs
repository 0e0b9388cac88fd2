//! The pipes to a child: this process's ends, in non-blocking mode. (The child's ends stay in blocking mode.) Above: users. Below:
//! `wait::io`, `driver::file`.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::panic::Location;
use std::process::Stdio;

use crate::driver::file::set_nonblocking;
use crate::net::ReadyArm;
use crate::wait::io::{Ask, Direction, Io, Limit};
use crate::wait::reason::WaitReason;

/// One end of a pipe.
#[derive(Debug)]
pub(super) struct Pipe {
    io: Io<std::fs::File>,
}

impl Pipe {
    fn new(descriptor: OwnedFd) -> io::Result<Self> {
        set_nonblocking(descriptor.as_fd(), true)?;
        Ok(Self { io: Io::new(descriptor.into()) })
    }

    /// Puts it into blocking mode again, for its next owner.
    fn into_descriptor(self) -> OwnedFd {
        let descriptor = OwnedFd::from(self.io.into_inner());
        set_nonblocking(descriptor.as_fd(), false).expect("an open pipe can be put into blocking mode");
        descriptor
    }

    fn reading<T>(
        &self,
        site: &'static Location<'static>,
        attempt: impl FnMut(&std::fs::File) -> io::Result<T>,
    ) -> io::Result<T> {
        self.io.operate(
            Ask { direction: Direction::Read, reason: WaitReason::PipeRead, site, limit: Limit::Never },
            attempt,
        )
    }

    fn writing<T>(
        &self,
        site: &'static Location<'static>,
        attempt: impl FnMut(&std::fs::File) -> io::Result<T>,
    ) -> io::Result<T> {
        self.io.operate(
            Ask { direction: Direction::Write, reason: WaitReason::PipeWrite, site, limit: Limit::Never },
            attempt,
        )
    }

    /// Reads what is there, without waiting; `WouldBlock` if that is nothing.
    pub(super) fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        io::Read::read(&mut self.io.get(), buffer)
    }

    pub(super) fn readable(&self) -> ReadyArm<'_> {
        ReadyArm::new(&self.io, Direction::Read)
    }

    fn writable(&self) -> ReadyArm<'_> {
        ReadyArm::new(&self.io, Direction::Write)
    }
}

macro_rules! pipe_end {
    ($(#[$doc:meta])+ $name:ident) => {
        $(#[$doc])+
        pub struct $name {
            pub(super) pipe: Pipe,
        }

        impl $name {
            /// Takes a pipe of std, and puts it into non-blocking mode.
            ///
            /// # Errors
            /// The system refuses that mode.
            pub fn from_std(end: std::process::$name) -> io::Result<Self> {
                Ok(Self { pipe: Pipe::new(end.into())? })
            }
        }

        impl From<$name> for OwnedFd {
            /// Puts it into blocking mode.
            fn from(end: $name) -> Self {
                end.pipe.into_descriptor()
            }
        }

        impl From<$name> for Stdio {
            /// For another child.
            fn from(end: $name) -> Self {
                OwnedFd::from(end).into()
            }
        }

        impl AsFd for $name {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.pipe.io.get().as_fd()
            }
        }

        impl AsRawFd for $name {
            fn as_raw_fd(&self) -> RawFd {
                self.as_fd().as_raw_fd()
            }
        }

        impl IntoRawFd for $name {
            fn into_raw_fd(self) -> RawFd {
                OwnedFd::from(self).into_raw_fd()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("fd", &self.as_raw_fd()).finish()
            }
        }
    };
}

macro_rules! reads {
    ($name:ident) => {
        impl $name {
            /// Waiting until there is something to read, or nothing will come any more, as an arm of [`select!`](crate::select):
            /// `on(output.readable())`.
            pub fn readable(&self) -> ReadyArm<'_> {
                self.pipe.readable()
            }
        }

        impl io::Read for &$name {
            #[track_caller]
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.pipe.reading(Location::caller(), |mut pipe| pipe.read(buffer))
            }
            #[track_caller]
            fn read_vectored(&mut self, buffers: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
                self.pipe.reading(Location::caller(), |mut pipe| pipe.read_vectored(buffers))
            }
        }

        impl io::Read for $name {
            #[track_caller]
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                (&*self).read(buffer)
            }
            #[track_caller]
            fn read_vectored(&mut self, buffers: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
                (&*self).read_vectored(buffers)
            }
        }
    };
}

pipe_end! {
    /// What a child reads as its standard input: it can be written to. Dropping it tells the child that nothing more comes.
    ChildStdin
}
pipe_end! {
    /// What a child writes to its standard output: it can be read from.
    ChildStdout
}
pipe_end! {
    /// What a child writes to its standard error: it can be read from.
    ChildStderr
}
reads!(ChildStdout);
reads!(ChildStderr);

impl ChildStdin {
    /// Waiting until there is room to write, or no reader is left, as an arm of [`select!`](crate::select): `on(input.writable())`.
    pub fn writable(&self) -> ReadyArm<'_> {
        self.pipe.writable()
    }
}

impl io::Write for &ChildStdin {
    #[track_caller]
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.pipe.writing(Location::caller(), |mut pipe| pipe.write(buffer))
    }
    #[track_caller]
    fn write_vectored(&mut self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.pipe.writing(Location::caller(), |mut pipe| pipe.write_vectored(buffers))
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Write for ChildStdin {
    #[track_caller]
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        (&*self).write(buffer)
    }
    #[track_caller]
    fn write_vectored(&mut self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(buffers)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
