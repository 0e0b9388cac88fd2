//! Waiting for the exit of a child: a descriptor that can be read from when it has exited, in the worker's event loop like a socket.
//!
//! That is a pidfd, or, on a kernel without them (before Linux 5.3), a pipe whose other end a thread closes when it has seen the exit. It
//! is opened by the first wait. How it exited is asked of std, which takes the process out of the system's table; until then its number is
//! its own.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::Location;
use std::process::ExitStatus;
use std::time::Duration;

use crate::blocking::strays;
use crate::driver::file::{await_exit, open_process};
use crate::prim::sync::Mutex;
use crate::select::case::Case;
use crate::select::{Arm, sealed};
use crate::wait::io::{Ask, Direction, Io, Limit, Readiness};
use crate::wait::reason::WaitReason;
use crate::wait::waitable::{Published, Waitable};
use crate::waiter::node::{Node, Outcome};
use std::sync::OnceLock;
use std::task::Waker;

/// The process itself, and what tells of its exit.
#[derive(Debug)]
pub(super) struct Exit {
    child: Mutex<std::process::Child>,
    process: u32,
    tells: OnceLock<Io<OwnedFd>>,
}

impl Exit {
    pub(super) fn new(child: std::process::Child) -> Self {
        Self { process: child.id(), child: Mutex::new(child), tells: OnceLock::new() }
    }

    pub(super) fn id(&self) -> u32 {
        self.process
    }

    pub(super) fn kill(&self) -> io::Result<()> {
        self.child.lock().kill()
    }

    pub(super) fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        self.child.lock().try_wait()
    }

    pub(super) fn into_child(self) -> std::process::Child {
        self.child.into_inner()
    }

    /// `WouldBlock`: it has not.
    fn has_exited(&self) -> io::Result<ExitStatus> {
        self.try_wait()?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn tells(&self) -> io::Result<&Io<OwnedFd>> {
        if let Some(tells) = self.tells.get() {
            return Ok(tells);
        }
        let opened = match open_process(self.process) {
            // A kernel that does not know it, or a filter that does not like it.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => watch(self.process)?,
            opened => opened?,
        };
        // Somebody may have been faster.
        Ok(self.tells.get_or_init(|| Io::new(opened)))
    }

    /// Waits until it has exited. `TimedOut` if that takes longer than `limit`.
    pub(super) fn wait(&self, limit: Option<Duration>, site: &'static Location<'static>) -> io::Result<ExitStatus> {
        crate::wait::park::entry();
        if let Some(status) = self.try_wait()? {
            return Ok(status);
        }
        let limit = limit.map_or(Limit::Never, Limit::After);
        let ask = Ask { direction: Direction::Read, reason: WaitReason::ChildExit, site, limit };
        match self.tells() {
            Ok(tells) => tells.operate(ask, |_| self.has_exited()),
            Err(error) => self.after_all(error),
        }
    }

    /// It cannot be waited for; perhaps because somebody else has just been told of its exit, and its number is gone.
    fn after_all(&self, error: io::Error) -> io::Result<ExitStatus> {
        self.try_wait()?.ok_or(error)
    }
}

/// A descriptor that tells of the exit, made by a thread that waits for it.
fn watch(process: u32) -> io::Result<OwnedFd> {
    let (reader, writer) = io::pipe()?;
    strays::start(move || {
        await_exit(process);
        drop(writer);
    })?;
    Ok(reader.into())
}

/// Waiting for a child to exit, as an arm; see [`Child::exiting`](super::Child::exiting). It yields what `wait` returns.
pub struct ExitArm<'a> {
    offer: Offer<'a>,
    told: Cell<Outcome>,
}

struct Offer<'a> {
    exit: &'a Exit,
    site: &'static Location<'static>,
    /// Of what tells of the exit, once that is open.
    readiness: OnceCell<Readiness<'a>>,
    status: RefCell<Option<io::Result<ExitStatus>>>,
}

impl<'a> Offer<'a> {
    fn readiness(&self) -> io::Result<&Readiness<'a>> {
        let tells = self.exit.tells()?;
        Ok(self.readiness.get_or_init(|| tells.readiness(Direction::Read, tells.reports(Direction::Read))))
    }

    /// It is over, with this.
    fn end(&self, status: io::Result<ExitStatus>) -> Outcome {
        *self.status.borrow_mut() = Some(status);
        Outcome::Done
    }

    /// After something was done with the readiness: if it went wrong, the arm has won by that.
    fn unless_failed(&self, readiness: &Readiness<'_>, outcome: Outcome) -> Outcome {
        readiness.take_error().map_or(outcome, |error| self.end(Err(error)))
    }
}

/// The exit: what is waited for is the readiness of the descriptor that tells of it, what is tried is to ask for the status.
impl Waitable for Offer<'_> {
    fn try_now(&self) -> Outcome {
        if self.status.borrow().is_some() {
            return Outcome::Done;
        }
        let readiness = self.readiness();
        if let Ok(readiness) = readiness {
            readiness.begin_try();
        }
        match (self.exit.has_exited(), readiness) {
            (Err(error), Ok(readiness)) if error.kind() == io::ErrorKind::WouldBlock => {
                self.unless_failed(readiness, readiness.end_try())
            }
            (Err(error), Err(unopened)) if error.kind() == io::ErrorKind::WouldBlock => self.end(Err(unopened)),
            (done, _) => self.end(done),
        }
    }

    fn publish(&self, node: &Node) -> Published {
        if self.status.borrow().is_some() {
            return (Outcome::Done, None);
        }
        match self.readiness() {
            Ok(readiness) => (self.unless_failed(readiness, readiness.publish(node).0), None),
            Err(error) => (self.end(Err(error)), None),
        }
    }

    fn unpublish(&self, node: &Node, owed: &mut Vec<Waker>) {
        if let Some(readiness) = self.readiness.get() {
            readiness.unpublish(node, owed);
        }
    }
}

impl<'a> ExitArm<'a> {
    #[track_caller]
    pub(super) fn new(exit: &'a Exit) -> Self {
        let offer = Offer { exit, site: Location::caller(), readiness: OnceCell::new(), status: RefCell::new(None) };
        Self { offer, told: Cell::new(Outcome::Pending) }
    }
}

impl sealed::Sealed for ExitArm<'_> {
    fn case(&mut self) -> Case<'_> {
        Case::object(&self.offer, &self.told)
    }
}

impl Arm for ExitArm<'_> {
    type Output = io::Result<ExitStatus>;

    fn finish(&mut self) -> io::Result<ExitStatus> {
        match self.offer.status.take() {
            Some(Err(error)) => self.offer.exit.after_all(error),
            Some(status) => status,
            // It won by what the kernel said: now std takes note.
            None => self.offer.exit.wait(None, self.offer.site),
        }
    }
}

impl fmt::Debug for ExitArm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExitArm").field("process", &self.offer.exit.process).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::run;
    use crate::task::spawn;
    use std::io::Write;
    use std::process::{Command, Stdio};

    // Two wait; the other one was told, and took the process out of the table, just before this one asked for a descriptor.
    #[test]
    fn who_comes_too_late_for_a_descriptor_gets_the_status() {
        let exit = Exit::new(Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap());
        await_exit(exit.process);
        let arm_that_failed = |exit: &Exit| {
            let mut arm = ExitArm::new(exit);
            assert_eq!(arm.offer.end(Err(io::Error::from_raw_os_error(libc::ESRCH))), Outcome::Done);
            arm.finish()
        };
        assert_eq!(exit.try_wait().unwrap().unwrap().code(), Some(3));
        assert_eq!(exit.after_all(io::Error::from_raw_os_error(libc::ESRCH)).unwrap().code(), Some(3));
        assert_eq!(arm_that_failed(&exit).unwrap().code(), Some(3));
        let mut running = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let input = running.stdin.take();
        let exit = Exit::new(running);
        assert_eq!(arm_that_failed(&exit).unwrap_err().raw_os_error(), Some(libc::ESRCH), "it has not exited");
        drop(input);
        assert!(exit.wait(None, Location::caller()).unwrap().success());
    }

    // What a kernel without pidfds gets.
    #[test]
    fn a_thread_tells_of_the_exit_too() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let exit = Exit::new(child);
        exit.tells.set(Io::new(watch(exit.process).unwrap())).unwrap();
        run(|| {
            let soon = Some(Duration::from_millis(5));
            assert_eq!(exit.wait(soon, Location::caller()).unwrap_err().kind(), io::ErrorKind::TimedOut);
            let ends = spawn(move || input.write_all(b"").map(|()| drop(input)));
            assert!(exit.wait(None, Location::caller()).unwrap().success());
            ends.join().unwrap().unwrap();
        });
        assert!(exit.wait(None, Location::caller()).unwrap().success(), "it is remembered");
    }
}
