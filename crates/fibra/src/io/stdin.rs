//! Standard input.
//!
//! ```text
//!  a caller ── locks the buffer ── takes what is there ── not enough: asks for more ── waits (revocable) ── goes on
//!                                                             │                          ▲
//!                                                             ▼                          │
//!  a stray ─────────────────────────────────────── reads once from std's ── leaves it, rings the bell
//! ```
//!
//! The system has no way to read standard input that neither blocks nor changes it for the other processes that share it. So it is read
//! on a thread that nobody waits for (`blocking::strays`), one piece at a time, when somebody wants something. A caller who gives up loses
//! nothing: the piece that comes later, and of a line all that has come, stays in the buffer for the next one, of whatever fiber, runtime
//! or thread. An end or an error is left for the next one likewise, once.

use std::fmt;
use std::io::{self, BufRead, IsTerminal, Read};
use std::panic::Location;

use crate::blocking::strays;
use crate::monitor::per_process::PerProcess;
use crate::prim::sync::Mutex as ThreadMutex;
use crate::sync::{Event, Mutex, MutexGuard};
use crate::wait::reason::WaitReason;

static INPUT: PerProcess<Input> = PerProcess::new(Input::default);

/// See the header.
#[derive(Default)]
struct Input {
    buffer: Mutex<Buffer>,
    /// Rings when a piece is there.
    bell: Event,
    coming: ThreadMutex<Coming>,
}

/// What was read, and nobody has consumed.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

/// The next piece.
#[derive(Default)]
struct Coming {
    asked_for: bool,
    /// Empty: the end.
    piece: Option<io::Result<Vec<u8>>>,
}

impl Buffer {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    fn consume(&mut self, amount: usize) {
        self.start = (self.start + amount).min(self.bytes.len());
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
    }

    /// Waits for more, and appends it. False: the end.
    #[track_caller]
    fn grow(&mut self) -> io::Result<bool> {
        let piece = next_piece(Location::caller())?;
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(&piece);
        Ok(!piece.is_empty())
    }

    /// Waits until there is this byte, or the end; says how many bytes that is. Nothing is consumed.
    #[track_caller]
    fn find(&mut self, byte: u8) -> io::Result<usize> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.rest()[searched..].iter().position(|other| *other == byte) {
                return Ok(searched + at + 1);
            }
            searched = self.rest().len();
            if !self.grow()? {
                return Ok(searched);
            }
        }
    }
}

/// Waits for the next piece. Whoever calls holds the buffer, so nobody else takes it.
fn next_piece(site: &'static Location<'static>) -> io::Result<Vec<u8>> {
    let input = INPUT.get();
    loop {
        let mut coming = input.coming.lock();
        if let Some(piece) = coming.piece.take() {
            return piece;
        }
        if !coming.asked_for {
            input.bell.reset();
            strays::start(|| {
                let piece = read_piece();
                let mut coming = input.coming.lock();
                *coming = Coming { asked_for: false, piece: Some(piece) };
                // Under the lock: after it, somebody may have asked for the next piece, for which it must not ring. (No user code runs
                // by that: nobody waits here with a waker.)
                input.bell.set();
            })?;
            coming.asked_for = true;
        }
        drop(coming);
        input.bell.wait_as(WaitReason::StdinRead, None, site);
    }
}

/// On a thread of its own: waits for what comes, and takes it from std's buffer.
fn read_piece() -> io::Result<Vec<u8>> {
    let mut std = io::stdin().lock();
    loop {
        match std.fill_buf() {
            Ok(bytes) => {
                let piece = bytes.to_vec();
                std.consume(piece.len());
                return Ok(piece);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Standard input of the process; see [`Stdin`].
#[must_use]
pub fn stdin() -> Stdin {
    Stdin { _private: () }
}

/// Standard input: [`std::io::Stdin`] for fibers. All handles share one buffer.
///
/// ```no_run
/// fibra::run(|| {
///     for line in fibra::io::stdin().lines() {
///         println!("you said {}", line.unwrap());
///     }
/// });
/// ```
///
/// * A fiber that reads parks. It can be cancelled, and a [`timeout`](crate::timeout) around it works; in both cases nothing that was typed
///   is lost, not even half a line: the next call has it.
/// * Nothing is read before somebody wants it, and then what the system has, up to some kilobytes. So a child process that shares standard
///   input finds what was not asked for. After a call that was given up, the thread that it had asked to read still waits for the next
///   input, which the next call gets.
/// * A shutdown does not wait for input. A fiber that waits here is cancelled by it like any other; to let a [`run`](crate::run) end beside
///   such a fiber, make it a [daemon](crate::Builder::daemon).
/// * `std::io::stdin` can be used beside it. It gets what comes later, and waits while somebody waits here.
#[derive(Debug)]
pub struct Stdin {
    _private: (),
}

impl Stdin {
    /// Waits until nobody else reads, and keeps the others from it until the lock is dropped. Only so is there
    /// [`BufRead`].
    #[track_caller]
    pub fn lock(&self) -> StdinLock<'static> {
        StdinLock { buffer: INPUT.get().buffer.lock() }
    }

    /// Reads a line with its end, and appends it to `line`. 0: there is no more. A call that is cancelled has taken nothing.
    ///
    /// # Errors
    /// As [`std::io::Stdin::read_line`].
    #[track_caller]
    pub fn read_line(&self, line: &mut String) -> io::Result<usize> {
        self.lock().read_line(line)
    }

    /// Is it a terminal?
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        io::stdin().is_terminal()
    }

    /// The lines, one after the other, without their ends. Other fibers may read too, a line at a time.
    pub fn lines(self) -> Lines {
        Lines { stdin: self }
    }
}

impl Read for &Stdin {
    #[track_caller]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.lock().read(buffer)
    }
    #[track_caller]
    fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        self.lock().read_to_end(buffer)
    }
    #[track_caller]
    fn read_to_string(&mut self, text: &mut String) -> io::Result<usize> {
        self.lock().read_to_string(text)
    }
}

impl Read for Stdin {
    #[track_caller]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
    #[track_caller]
    fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        (&*self).read_to_end(buffer)
    }
    #[track_caller]
    fn read_to_string(&mut self, text: &mut String) -> io::Result<usize> {
        (&*self).read_to_string(text)
    }
}

/// Standard input, for one reader alone; see [`Stdin::lock`].
pub struct StdinLock<'a> {
    buffer: MutexGuard<'a, Buffer>,
}

impl Read for StdinLock<'_> {
    #[track_caller]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }

    // As for lines: taken when it is whole.
    #[track_caller]
    fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        while self.buffer.grow()? {}
        let all = self.buffer.rest().len();
        buffer.extend_from_slice(self.buffer.rest());
        self.consume(all);
        Ok(all)
    }
}

impl BufRead for StdinLock<'_> {
    #[track_caller]
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.buffer.rest().is_empty() {
            self.buffer.grow()?;
        }
        Ok(self.buffer.rest())
    }

    fn consume(&mut self, amount: usize) {
        self.buffer.consume(amount);
    }

    // These two take a line out of the buffer when it is whole. (Those of the trait take it piece by piece, and whoever is cancelled has
    // the beginning and loses it.)
    #[track_caller]
    fn read_until(&mut self, byte: u8, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let found = self.buffer.find(byte)?;
        buffer.extend_from_slice(&self.buffer.rest()[..found]);
        self.consume(found);
        Ok(found)
    }

    #[track_caller]
    fn read_line(&mut self, line: &mut String) -> io::Result<usize> {
        let found = self.buffer.find(b'\n')?;
        let text = str::from_utf8(&self.buffer.rest()[..found]).map(|text| line.push_str(text));
        self.consume(found);
        match text {
            Ok(()) => Ok(found),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }
}

impl fmt::Debug for StdinLock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdinLock").finish_non_exhaustive()
    }
}

/// See [`Stdin::lines`].
#[derive(Debug)]
pub struct Lines {
    stdin: Stdin,
}

impl Iterator for Lines {
    type Item = io::Result<String>;

    #[track_caller]
    fn next(&mut self) -> Option<Self::Item> {
        let mut line = String::new();
        match self.stdin.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => {
                let end = line.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line).len());
                line.truncate(end.unwrap_or(line.len()));
                Some(Ok(line))
            }
            Err(error) => Some(Err(error)),
        }
    }
}
