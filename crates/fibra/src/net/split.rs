//! The halves of a connection, for two owners: of TCP and of Unix sockets, which differ in nothing but the type. Below: `net::stream`,
//! `net::unix`.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

use super::stream::TcpStream;
use super::unix::UnixStream;

macro_rules! halves {
    ($stream:ident, $name:literal, $read:ident, $write:ident, $error:ident) => {
        #[doc = concat!("The half that reads; see [`", $name, "::into_split`].")]
        #[derive(Debug)]
        pub struct $read {
            stream: Arc<$stream>,
        }

        #[doc = concat!("The half that writes; see [`", $name, "::into_split`]. Dropping it ends the direction.")]
        #[derive(Debug)]
        pub struct $write {
            stream: Arc<$stream>,
            /// Dropping it ends the direction.
            ends: bool,
        }

        /// The halves belong to different connections; the error gives them back.
        #[derive(Debug)]
        pub struct $error(pub $read, pub $write);

        impl fmt::Display for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the two halves are of different connections")
            }
        }

        impl std::error::Error for $error {}

        impl $read {
            pub(super) fn new(stream: Arc<$stream>) -> Self {
                Self { stream }
            }

            /// Makes one connection of its two halves again.
            ///
            /// # Errors
            /// They belong to different connections.
            pub fn reunite(self, other: $write) -> Result<$stream, $error> {
                if !Arc::ptr_eq(&self.stream, &other.stream) {
                    return Err($error(self, other));
                }
                other.forget();
                Ok(Arc::into_inner(self.stream).expect("there are two halves, and both are here"))
            }
        }

        impl $write {
            pub(super) fn new(stream: Arc<$stream>) -> Self {
                Self { stream, ends: true }
            }

            /// Drops it, and leaves the direction open.
            pub fn forget(mut self) {
                self.ends = false;
            }

            /// Makes one connection of its two halves again.
            ///
            /// # Errors
            /// They belong to different connections.
            pub fn reunite(self, other: $read) -> Result<$stream, $error> {
                other.reunite(self)
            }
        }

        impl Drop for $write {
            fn drop(&mut self) {
                if self.ends {
                    // Not connected any more: ended already.
                    let _ = self.stream.shutdown(Shutdown::Write);
                }
            }
        }

        impl AsRef<$stream> for $read {
            fn as_ref(&self) -> &$stream {
                &self.stream
            }
        }

        impl AsRef<$stream> for $write {
            fn as_ref(&self) -> &$stream {
                &self.stream
            }
        }

        impl Read for $read {
            #[track_caller]
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                (&*self.stream).read(buffer)
            }
            #[track_caller]
            fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                (&*self.stream).read_vectored(buffers)
            }
        }

        impl Write for $write {
            #[track_caller]
            fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
                (&*self.stream).write(buffer)
            }
            #[track_caller]
            fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
                (&*self.stream).write_vectored(buffers)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
    };
}

halves!(TcpStream, "TcpStream", OwnedReadHalf, OwnedWriteHalf, ReuniteError);
halves!(UnixStream, "UnixStream", UnixReadHalf, UnixWriteHalf, UnixReuniteError);
