//! A child process: its pipes, its exit, its end.

use std::fmt;
use std::io;
use std::panic::Location;
use std::process::{ExitStatus, Output};
use std::time::Duration;

use super::exit::{Exit, ExitArm};
use super::pipe::Pipe;
use super::{ChildStderr, ChildStdin, ChildStdout};
use crate::blocking::strays;
use crate::select::private::{case, select_cases};
use crate::time::Instant;
use crate::wait::park;

/// How much of a pipe is read at once.
const CHUNK: usize = 64 * 1024;

/// A child process: [`std::process::Child`] for fibers.
///
/// ```
/// use fibra::process::Command;
/// use std::time::Duration;
///
/// fibra::run(|| -> std::io::Result<()> {
///     let mut child = Command::new("sleep").arg("100").spawn()?;
///     fibra::select! {
///         on(child.exiting()) -> status => panic!("too early: {status:?}"),
///         after(Duration::from_millis(10)) => child.kill()?,
///     }
///     assert!(!child.wait()?.success());
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Child {
    /// Its standard input, if that was piped. [`wait`](Self::wait) closes it; `take()` it to keep it open.
    pub stdin: Option<ChildStdin>,
    /// Its standard output, if that was piped.
    pub stdout: Option<ChildStdout>,
    /// Its standard error, if that was piped.
    pub stderr: Option<ChildStderr>,
    /// None: it is being dropped.
    exit: Option<Exit>,
    kill_on_drop: bool,
}

impl Child {
    /// Takes over a child of std. If a pipe cannot be put into non-blocking mode, the process is killed.
    ///
    /// # Errors
    /// The system refuses that mode.
    pub(super) fn new(mut child: std::process::Child, kill_on_drop: bool) -> io::Result<Self> {
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let mut this =
            Self { stdin: None, stdout: None, stderr: None, exit: Some(Exit::new(child)), kill_on_drop: true };
        this.stdin = stdin.map(ChildStdin::from_std).transpose()?;
        this.stdout = stdout.map(ChildStdout::from_std).transpose()?;
        this.stderr = stderr.map(ChildStderr::from_std).transpose()?;
        this.kill_on_drop = kill_on_drop;
        Ok(this)
    }

    fn exit(&self) -> &Exit {
        self.exit.as_ref().expect("there until it is dropped")
    }

    /// The number of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.exit().id()
    }

    /// Kills it (`SIGKILL`). No error if it has exited. Then wait for it, which does not take long.
    ///
    /// # Errors
    /// The system refuses it: the child runs as somebody else.
    pub fn kill(&mut self) -> io::Result<()> {
        self.exit().kill()
    }

    /// Closes its standard input and waits until it has exited. Once that is so, the answer stays the same.
    ///
    /// # Errors
    /// There are no descriptors left to wait with; or somebody else has waited for it.
    #[track_caller]
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        self.exit().wait(None, Location::caller())
    }

    /// The same for at most so long. Standard input stays open if time was up.
    ///
    /// # Errors
    /// `TimedOut`; and as [`wait`](Self::wait).
    #[track_caller]
    pub fn wait_timeout(&mut self, timeout: Duration) -> io::Result<ExitStatus> {
        let status = self.exit().wait(Some(timeout), Location::caller())?;
        drop(self.stdin.take());
        Ok(status)
    }

    /// The same until `deadline` at most.
    ///
    /// # Errors
    /// As [`wait_timeout`](Self::wait_timeout).
    #[track_caller]
    pub fn wait_deadline(&mut self, deadline: impl Into<Instant>) -> io::Result<ExitStatus> {
        self.wait_timeout(deadline.into().saturating_duration_since(Instant::now()))
    }

    /// Its status if it has exited.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        park::count(park::cost::OPERATION);
        self.exit().try_wait()
    }

    /// Waiting until it has exited, as an arm of [`select!`](crate::select): `on(child.exiting()) -> status`. Its result is that of
    /// [`wait`](Self::wait), but standard input stays as it is.
    #[track_caller]
    pub fn exiting(&self) -> ExitArm<'_> {
        ExitArm::new(self.exit())
    }

    /// Closes its standard input, reads what it writes to those pipes that are still here, both at once, and waits until it has exited.
    ///
    /// # Errors
    /// As [`wait`](Self::wait), or reading failed.
    #[track_caller]
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let (out, err) = (self.stdout.take(), self.stderr.take());
        read_both(out.as_ref().map(|out| &out.pipe), &mut stdout, err.as_ref().map(|err| &err.pipe), &mut stderr)?;
        let status = self.wait()?;
        Ok(Output { status, stdout, stderr })
    }
}

/// Reads two pipes to their ends, whichever has something.
#[track_caller]
fn read_both<'a>(
    mut one: Option<&'a Pipe>,
    into_one: &mut Vec<u8>,
    mut two: Option<&'a Pipe>,
    into_two: &mut Vec<u8>,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let mut read = drain(&mut one, into_one, &mut buffer)?;
        read |= drain(&mut two, into_two, &mut buffer)?;
        match (one, two) {
            (None, None) => return Ok(()),
            _ if read => crate::task::yield_now(),
            (Some(one), Some(two)) => {
                let (mut first, mut second) = (one.readable(), two.readable());
                select_cases(&mut [case(&mut first), case(&mut second)]);
            }
            (Some(last), None) | (None, Some(last)) => {
                let mut only = last.readable();
                select_cases(&mut [case(&mut only)]);
            }
        }
    }
}

/// Reads once, without waiting. True: something was there. A pipe that has come to its end is done with.
fn drain(pipe: &mut Option<&Pipe>, into: &mut Vec<u8>, buffer: &mut [u8]) -> io::Result<bool> {
    let Some(open) = pipe else { return Ok(false) };
    match open.read_now(buffer) {
        Ok(0) => {
            *pipe = None;
            Ok(false)
        }
        Ok(read) => {
            into.extend_from_slice(&buffer[..read]);
            Ok(true)
        }
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(false),
            _ => Err(error),
        },
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let Some(exit) = self.exit.take().filter(|_| self.kill_on_drop) else { return };
        if matches!(exit.try_wait(), Ok(None)) && exit.kill().is_ok() && matches!(exit.try_wait(), Ok(None)) {
            // It needs a moment to die; somebody has to see to it. Without a thread for that it stays in the table.
            let mut child = exit.into_child();
            let _ = strays::start(move || drop(child.wait()));
        }
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child")
            .field("id", &self.id())
            .field("stdin", &self.stdin)
            .field("stdout", &self.stdout)
            .field("stderr", &self.stderr)
            .finish_non_exhaustive()
    }
}
