//! The flight recorder: what every worker and every fiber did, in a file that [Perfetto](https://ui.perfetto.dev) opens.
//!
//! ```
//! let file = std::env::temp_dir().join(format!("fibra-doc-{}.json", std::process::id()));
//! let recording = fibra::trace::record(&file)?;
//! fibra::run(|| {
//!     let (tx, rx) = fibra::channel::bounded(1);
//!     let reader = fibra::Builder::new().name("reader").spawn(move || rx.iter().sum::<u32>()).unwrap();
//!     (0..10).for_each(|number| tx.send(number).unwrap());
//!     drop(tx);
//!     assert_eq!(reader.join().unwrap(), 45);
//! });
//! recording.finish()?;
//! assert!(std::fs::read_to_string(&file)?.contains("reader"));
//! # std::fs::remove_file(&file)?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! There are two groups of tracks in the file. *Workers*: one slice per turn, named after the fiber that ran, with marks where a timer or
//! readiness woke a fiber and where unstarted fibers were stolen. *Fibers*: running (on which worker, and why it left), waiting (named by
//! the reason, with the object and the source line), ready (woken by whom), from the spawn to the end. Arrows lead from the turn that woke
//! or spawned a fiber to the turn in which that one ran.
//!
//! Each worker writes into a ring of its own, of 32,768 entries (2 MiB): about one per turn, one per wake and one per spawn. When it is
//! full the oldest are overwritten: a recording holds the end of what happened, and says how many entries were overwritten (`otherData`
//! in the file).
//!
//! * *A part of a program*: [`record`], and [`Recording::finish`].
//! * *A whole program*: `FIBRA_TRACE=file`, which is written when a runtime ends, when the function given to `run` panics, when a
//!   deadlock is reported and at the dump signal.
//! * *Always, to see the last seconds when something went wrong*: `FIBRA_TRACE=last:file`, or
//!   [`RuntimeBuilder::trace_last`](crate::RuntimeBuilder::trace_last), written when the function given to `run` panics, when a deadlock
//!   is reported and at the dump signal (`FIBRA_DUMP_SIGNAL`); [`dump_last`] writes it when asked.
//!
//! The recorder is one for the process: it sees all runtimes. Off, it costs nothing; what it costs when it is on is in the guide. A fiber
//! that is woken in the moment in which it parks has no arrow, since the waker is not known to the worker that puts it back; nor has a
//! wake by a thread that is no worker.

// ```text
// mod.rs     recordings, and what is kept of the last seconds
// tracks.rs  entries of all tapes become tracks              chrome.rs  tracks become a file
// ```
// On the floor of `runtime` and `inspect`, since runtimes switch it on and write it when they end. Below: `sched::flight`.

mod chrome;
mod tracks;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use crate::monitor::per_process::PerProcess;
use crate::monitor::{errands, fork, objects};
use crate::prim::say;
use crate::prim::sync::Mutex;
use crate::sched::flight;
use tracks::Moment;

/// Records what all workers and fibers of the process do from now on, until [`finish`](Recording::finish) or the drop of what is returned;
/// then it is written to this file, which is created at once. In the child of a fork nothing is recorded any more, and what is returned
/// here writes nothing there.
///
/// Other workers than the calling one begin at their next fair point (after at most 61 turns) or when they next wake. Several recordings
/// may be made at the same time.
///
/// # Errors
/// If the file cannot be created; the error names it.
pub fn record(path: impl AsRef<Path>) -> io::Result<Recording> {
    let path = path.as_ref().to_path_buf();
    let process = fork::process();
    let file = File::create(&path).map_err(|error| about(&path, &error))?;
    // (Before the beginning: what is noted from now on is part of it.)
    let start = Moment::now();
    flight::want(objects::runtimes);
    Ok(Recording { open: Some(Open { file, path, start, process }) })
}

/// A recording that is going on; see [`record`].
#[derive(Debug)]
#[must_use = "it ends, and is written, when this is dropped"]
pub struct Recording {
    /// `None`: it was finished.
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    path: PathBuf,
    start: Moment,
    /// In which it was begun: see [`fork::process`].
    process: u64,
}

impl Recording {
    /// Ends it and writes the file. Blocks the thread for as long as that takes.
    ///
    /// Dropping it does the same; an error is then only said on standard error.
    ///
    /// # Errors
    /// If the file cannot be written; the error names it.
    pub fn finish(mut self) -> io::Result<()> {
        self.open.take().map_or(Ok(()), Open::write)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.open.take().map(Open::write) {
            say(format_args!("{error}"));
        }
    }
}

impl Open {
    fn write(self) -> io::Result<()> {
        if self.process != fork::epoch() {
            // In the child of a fork: recording and file are the parent's.
            return Ok(());
        }
        let picture = tracks::picture(&flight::tracks(), self.start);
        flight::unwant(objects::runtimes);
        chrome::write(&picture, BufWriter::new(self.file)).map_err(|error| about(&self.path, &error))
    }
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("fibra: the trace {} could not be written: {error}", path.display()))
}

// ---- What is kept --------------------------------------------------------------------------------------------------------

/// What is recorded all the time, once that is wanted, and where it is written.
#[derive(Debug, Default)]
struct Kept {
    since: Option<Moment>,
    /// The last seconds.
    last: Option<PathBuf>,
    /// Everything, at the end of each runtime too.
    whole: Option<PathBuf>,
}

static KEPT: PerProcess<KeptTrace> = PerProcess::new(KeptTrace::default);

/// Made anew in a forked child, which records nothing.
#[derive(Debug, Default)]
struct KeptTrace {
    kept: Mutex<Kept>,
    /// Held while a file is written: several runtimes may end at once, and each of them writes the same file.
    writing: Mutex<()>,
}

/// What `FIBRA_TRACE` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wish {
    Last(PathBuf),
    Whole(PathBuf),
}

impl Wish {
    /// `file` or `last:file`. Err: what is wrong.
    pub(crate) fn parse(value: &OsStr) -> Result<Self, &'static str> {
        use std::os::unix::ffi::OsStrExt;
        let bytes = value.as_bytes();
        let (file, is_last) = match bytes.strip_prefix(b"last:") {
            Some(file) => (file, true),
            None => (bytes, false),
        };
        if file.is_empty() {
            return Err("expected a file name, or last: and a file name");
        }
        let path = PathBuf::from(OsStr::from_bytes(file));
        Ok(if is_last { Self::Last(path) } else { Self::Whole(path) })
    }
}

/// From now on all is recorded, for as long as the process lives.
pub(crate) fn keep(wish: Wish) -> io::Result<()> {
    if let Wish::Whole(path) | Wish::Last(path) = &wish
        && path.is_dir()
    {
        return Err(about(path, &io::Error::from(io::ErrorKind::IsADirectory)));
    }
    let mut kept = KEPT.get().kept.lock();
    match wish {
        Wish::Last(path) => kept.last = Some(path),
        Wish::Whole(path) => kept.whole = Some(path),
    }
    if kept.since.is_none() {
        kept.since = Some(Moment::now());
        flight::want(objects::runtimes);
    }
    Ok(())
}

/// Writes what was kept to this file, which need not be the one that was named when it was switched on: the last 32,768 entries of each
/// worker.
///
/// ```
/// // Nothing is kept, and it says how that is changed.
/// let error = fibra::trace::dump_last("/tmp/trace.json").unwrap_err();
/// assert!(error.to_string().contains("FIBRA_TRACE=last:"));
/// ```
///
/// # Errors
/// `NotFound` if nothing is kept: neither `FIBRA_TRACE` is set nor
/// [`RuntimeBuilder::trace_last`](crate::RuntimeBuilder::trace_last) was called. If the file cannot be written; the error names it.
pub fn dump_last(path: impl AsRef<Path>) -> io::Result<()> {
    let since = KEPT.get().kept.lock().since;
    let Some(since) = since else {
        let text = "fibra: nothing is recorded all the time, so there is no trace to write: start the program with \
                    FIBRA_TRACE=last:file, or build its runtime with RuntimeBuilder::trace_last";
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    };
    write_kept(path.as_ref(), since)
}

fn write_kept(path: &Path, since: Moment) -> io::Result<()> {
    let picture = tracks::picture(&flight::tracks(), since);
    let _one_at_a_time = KEPT.get().writing.lock();
    replace(path, |file| chrome::write(&picture, BufWriter::new(file))).map_err(|error| about(path, &error))
}

/// Writes a file that is whole at every moment: another one beside it takes its place. What is no plain file (a pipe, a device, a link) is
/// written itself, and so is a file beside which none can be made.
fn replace(path: &Path, write: impl FnOnce(File) -> io::Result<()>) -> io::Result<()> {
    let is_plain = fs::symlink_metadata(path).map_or_else(|e| e.kind() == io::ErrorKind::NotFound, |m| m.is_file());
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    let beside = PathBuf::from(beside);
    let made = if is_plain { File::create(&beside).ok() } else { None };
    let Some(file) = made else { return write(File::create(path)?) };
    write(file).and_then(|()| fs::rename(&beside, path)).inspect_err(|_| {
        // What is half written is of no use. If it cannot be removed either, the first error says more.
        let _ = fs::remove_file(&beside);
    })
}

/// When what was kept is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    /// The function given to `run` has panicked.
    Panic,
    Deadlock,
    Signal,
    /// A runtime has ended: only what is recorded as a whole.
    End,
}

/// Writes what was kept, if it was, and says so.
pub(crate) fn write_at(when: When) {
    let (since, files) = {
        let kept = KEPT.get().kept.lock();
        let last = kept.last.clone().filter(|_| when != When::End);
        (kept.since, kept.whole.iter().cloned().chain(last).collect::<Vec<_>>())
    };
    let Some(since) = since else { return };
    // At a deadlock: behind the report, which another thread prints.
    let say = |text: String| if when == When::Deadlock { errands::say_soon(text) } else { say(format_args!("{text}")) };
    for file in files {
        match write_kept(&file, since) {
            Ok(()) if when == When::End => {}
            Ok(()) => say(format!(
                "fibra: the trace up to this {} is in {}: open it at https://ui.perfetto.dev",
                match when {
                    When::Panic => "panic",
                    When::Deadlock => "deadlock",
                    _ => "moment",
                },
                file.display(),
            )),
            Err(error) => say(error.to_string()),
        }
    }
}

/// [`write_at`] the end of a runtime.
pub(crate) fn write_at_end() {
    write_at(When::End);
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::PathBuf;

    use super::Wish;

    #[test]
    fn the_variable_names_a_file_and_a_way() {
        assert_eq!(Wish::parse(OsStr::new("t.json")), Ok(Wish::Whole(PathBuf::from("t.json"))));
        assert_eq!(Wish::parse(OsStr::new("last:/tmp/t")), Ok(Wish::Last(PathBuf::from("/tmp/t"))));
        assert!(Wish::parse(OsStr::new("")).is_err());
        assert!(Wish::parse(OsStr::new("last:")).is_err());
    }
}
