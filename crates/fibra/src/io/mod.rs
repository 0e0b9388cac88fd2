//! Standard input for fibers, and copying from one stream to another; with the traits and types of `std::io` beside them.
//!
//! ```
//! use fibra::io::{self, Cursor};
//!
//! fibra::run(|| {
//!     let mut copied = Vec::new();
//!     assert_eq!(io::copy(&mut Cursor::new("hello"), &mut copied).unwrap(), 5);
//!     assert_eq!(copied, b"hello");
//! });
//! ```
//!
//! [`stdin`] parks the fiber that reads, can be cancelled, and holds up no shutdown: a program whose daemon waits for a line ends all the
//! same.
//! [`stdout`] and [`stderr`] are for output that may be more than its reader takes at once: they write on the
//! [blocking pool](crate::blocking). `println!` writes on the calling thread, and blocks the worker if that takes long.

// ```text
// stdin.rs  Stdin, StdinLock, Lines      stdout.rs  Stdout, Stderr
// copy.rs   copy                         duplex.rs  copy_bidirectional
// ```

mod copy;
mod duplex;
mod stdin;
mod stdout;

pub use copy::copy;
pub use duplex::{Duplex, copy_bidirectional};
pub use std::io::{
    BufRead, BufReader, BufWriter, Cursor, Empty, Error, ErrorKind, IoSlice, IoSliceMut, IsTerminal, LineWriter, Read,
    Repeat, Result, Seek, SeekFrom, Sink, Write, empty, prelude, read_to_string, repeat, sink,
};
pub use stdin::{Lines, Stdin, StdinLock, stdin};
pub use stdout::{Stderr, Stdout, stderr, stdout};
