//! What is to be started, and how.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{CommandArgs, CommandEnvs, ExitStatus, Output, Stdio};

use super::Child;
use crate::task::blocking;

/// A program to be started: [`std::process::Command`] for fibers, with what `CommandExt` has for Unix.
///
/// ```
/// use fibra::process::Command;
///
/// fibra::run(|| {
///     let status = Command::new("sh").args(["-c", "exit 3"]).status().unwrap();
///     assert_eq!(status.code(), Some(3));
///     let error = Command::new("no such program").status().unwrap_err();
///     assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// });
/// ```
pub struct Command {
    inner: std::process::Command,
    /// Which of the three were set: [`output`](Self::output) sets the others.
    stdin: bool,
    stdout: bool,
    stderr: bool,
    kill_on_drop: bool,
}

impl Command {
    /// Starts this program: a path, or a name that is looked for in `PATH`.
    pub fn new<S: AsRef<OsStr>>(program: S) -> Self {
        std::process::Command::new(program).into()
    }

    /// One more argument.
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Self {
        self.inner.arg(arg);
        self
    }

    /// More arguments.
    pub fn args<I, S>(&mut self, args: I) -> &mut Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.inner.args(args);
        self
    }

    /// Sets a variable of its environment.
    pub fn env<K: AsRef<OsStr>, V: AsRef<OsStr>>(&mut self, key: K, value: V) -> &mut Self {
        self.inner.env(key, value);
        self
    }

    /// Sets several.
    pub fn envs<I, K, V>(&mut self, variables: I) -> &mut Self
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.inner.envs(variables);
        self
    }

    /// It does not get this variable.
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Self {
        self.inner.env_remove(key);
        self
    }

    /// It gets no variable but those that are set from now on.
    pub fn env_clear(&mut self) -> &mut Self {
        self.inner.env_clear();
        self
    }

    /// The folder it starts in.
    pub fn current_dir<P: AsRef<Path>>(&mut self, dir: P) -> &mut Self {
        self.inner.current_dir(dir);
        self
    }

    /// Its standard input; [`Stdio::piped`] to write to it, [`Stdio::null`] for none. By default that of this process; for
    /// [`output`](Self::output) none.
    pub fn stdin<T: Into<Stdio>>(&mut self, stdin: T) -> &mut Self {
        self.inner.stdin(stdin);
        self.stdin = true;
        self
    }

    /// Its standard output. By default that of this process; [`output`](Self::output) reads it.
    pub fn stdout<T: Into<Stdio>>(&mut self, stdout: T) -> &mut Self {
        self.inner.stdout(stdout);
        self.stdout = true;
        self
    }

    /// Its standard error. By default that of this process; [`output`](Self::output) reads it.
    pub fn stderr<T: Into<Stdio>>(&mut self, stderr: T) -> &mut Self {
        self.inner.stderr(stderr);
        self.stderr = true;
        self
    }

    /// Runs it as this user.
    pub fn uid(&mut self, id: u32) -> &mut Self {
        self.inner.uid(id);
        self
    }

    /// Runs it as this group.
    pub fn gid(&mut self, id: u32) -> &mut Self {
        self.inner.gid(id);
        self
    }

    /// What it sees as its own name.
    pub fn arg0<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Self {
        self.inner.arg0(arg);
        self
    }

    /// Puts it into a process group; 0: one of its own, which Ctrl-C does not reach.
    pub fn process_group(&mut self, group: i32) -> &mut Self {
        self.inner.process_group(group);
        self
    }

    /// Is the process killed when its [`Child`] is dropped, by cancellation for example? Then it is also waited for, by a thread apart.
    /// Not by default: see [`process`](super).
    pub fn kill_on_drop(&mut self, kill: bool) -> &mut Self {
        self.kill_on_drop = kill;
        self
    }

    /// The program.
    #[must_use]
    pub fn get_program(&self) -> &OsStr {
        self.inner.get_program()
    }

    /// Its arguments.
    pub fn get_args(&self) -> CommandArgs<'_> {
        self.inner.get_args()
    }

    /// The variables that were set or removed.
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        self.inner.get_envs()
    }

    /// The folder it starts in, if that was set.
    #[must_use]
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.inner.get_current_dir()
    }

    /// Starts it.
    ///
    /// # Errors
    /// As [`std::process::Command::spawn`].
    #[track_caller]
    pub fn spawn(&mut self) -> io::Result<Child> {
        let inner = &mut self.inner;
        // If this fiber is cancelled, it learns of that when the child is here, and the child's fate is decided by its drop.
        Child::new(blocking(|| inner.spawn())?, self.kill_on_drop)
    }

    /// Starts it and waits until it has exited.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn) and [`Child::wait`].
    #[track_caller]
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        self.spawn()?.wait()
    }

    /// Starts it, reads what it writes, and waits until it has exited. Without a word on them, its standard input is empty, and its
    /// standard output and error are read.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn) and [`Child::wait_with_output`].
    #[track_caller]
    pub fn output(&mut self) -> io::Result<Output> {
        self.set_the_others([Stdio::null, Stdio::piped, Stdio::piped]);
        // The next call decides anew, also if this one is cancelled.
        let spawned = Undo(self).0.spawn();
        spawned?.wait_with_output()
    }

    /// Sets those of the three streams that were not set.
    fn set_the_others(&mut self, [stdin, stdout, stderr]: [fn() -> Stdio; 3]) {
        if !self.stdin {
            self.inner.stdin(stdin());
        }
        if !self.stdout {
            self.inner.stdout(stdout());
        }
        if !self.stderr {
            self.inner.stderr(stderr());
        }
    }
}

/// Takes back what [`Command::output`] has set.
struct Undo<'a>(&'a mut Command);

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        self.0.set_the_others([Stdio::inherit, Stdio::inherit, Stdio::inherit]);
    }
}

impl From<std::process::Command> for Command {
    /// Takes over all that was set, save that [`output`](Self::output) does not know which of the three streams were; set them here.
    ///
    /// It is started on a thread of the blocking pool: a function given to `pre_exec` must not ask for a signal when its parent thread
    /// ends (`PR_SET_PDEATHSIG`), for that thread does.
    fn from(inner: std::process::Command) -> Self {
        Self { inner, stdin: false, stdout: false, stderr: false, kill_on_drop: false }
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
