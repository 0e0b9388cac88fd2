//! Standard output and standard error, written on the blocking pool: a pipe that nobody empties blocks a thread there, and no worker.

use std::io::{self, IsTerminal, Write};

use crate::task::blocking;

macro_rules! output {
    ($(#[$doc:meta])+ $name:ident, $function:ident) => {
        $(#[$doc])+
        #[derive(Debug)]
        pub struct $name {
            _private: (),
        }

        #[doc = concat!("The [`", stringify!($name), "`] of the process.")]
        #[must_use]
        pub fn $function() -> $name {
            $name { _private: () }
        }

        impl Write for &$name {
            #[track_caller]
            fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
                blocking(|| io::$function().write(buffer))
            }
            #[track_caller]
            fn write_vectored(&mut self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
                blocking(|| io::$function().write_vectored(buffers))
            }
            #[track_caller]
            fn write_all(&mut self, buffer: &[u8]) -> io::Result<()> {
                blocking(|| io::$function().write_all(buffer))
            }
            #[track_caller]
            fn flush(&mut self) -> io::Result<()> {
                blocking(|| io::$function().flush())
            }
        }

        impl Write for $name {
            #[track_caller]
            fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
                (&*self).write(buffer)
            }
            #[track_caller]
            fn write_vectored(&mut self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
                (&*self).write_vectored(buffers)
            }
            #[track_caller]
            fn write_all(&mut self, buffer: &[u8]) -> io::Result<()> {
                (&*self).write_all(buffer)
            }
            #[track_caller]
            fn flush(&mut self) -> io::Result<()> {
                (&*self).flush()
            }
        }

        impl $name {
            /// Is it a terminal?
            #[must_use]
            pub fn is_terminal(&self) -> bool {
                io::$function().is_terminal()
            }
        }
    };
}

output! {
    /// Standard output: std's, with its buffer, but written on the [blocking pool](crate::blocking). For much output wrap it in a
    /// [`BufWriter`](std::io::BufWriter): each write goes to the pool. A write that has begun cannot be cancelled.
    ///
    /// ```
    /// use std::io::Write;
    ///
    /// fibra::run(|| writeln!(fibra::io::stdout(), "hello")).unwrap();
    /// ```
    Stdout, stdout
}
output! {
    /// Standard error, likewise.
    Stderr, stderr
}
