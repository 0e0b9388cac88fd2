//! Files in the shapes of `std::fs`, method for method: a fiber that waits for a disk parks, and its worker goes on with another.
//!
//! ```
//! use fibra::fs::{self, File};
//! use std::io::{BufRead, BufReader, Write};
//!
//! fibra::run(|| -> std::io::Result<()> {
//!     let folder = std::env::temp_dir().join(format!("fibra-doc-{}", std::process::id()));
//!     fs::create_dir_all(&folder)?;
//!     let mut file = File::create(folder.join("notes"))?;
//!     file.write_all(b"one\ntwo\n")?;
//!     let lines = BufReader::new(File::open(folder.join("notes"))?).lines();
//!     assert_eq!(lines.collect::<Result<Vec<_>, _>>()?, ["one", "two"]);
//!     assert_eq!(fs::read_dir(&folder)?.count(), 1);
//!     fs::remove_dir_all(&folder)
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! * Every call goes to the [blocking pool](crate::blocking), since the system has no other way to wait for files: some tens of
//!   microseconds to go there and come back. Reads of up to 64 KiB are tried first where they are, and cost a system call if the data is in
//!   memory. Otherwise let a call do much: [`read`], [`write()`], a [`BufReader`](std::io::BufReader) or
//!   [`BufWriter`](std::io::BufWriter) around a [`File`]; or make many calls of `std::fs` in one [`blocking`](crate::blocking).
//! * Cancellation takes back a call that has not started, and otherwise arrives when it has ended: nothing is half done that std would not
//!   leave half done. So do not open named pipes here that nobody may ever open at the other end.
//! * Errors, partial reads and the end of a file are as in std; no call fails with `Interrupted`.
//! * On a plain thread the calls are those of std, made where they are.

// ```text
// mod.rs      the functions           file.rs  File
// options.rs  OpenOptions             dir.rs   ReadDir, DirEntry, DirBuilder
// ```

mod dir;
mod file;
mod options;

use std::io;
use std::panic::Location;
use std::path::{Path, PathBuf};

pub use dir::{DirBuilder, DirEntry, ReadDir};
pub use file::File;
pub use options::OpenOptions;
pub use std::fs::{FileTimes, FileType, Metadata, Permissions};

use crate::task::blocking_as;
use crate::wait::reason::WaitReason;

/// Makes a call that may wait for a device.
#[track_caller]
fn call<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    blocking_as(WaitReason::FileCall, Location::caller(), f)
}

/// The functions that take one path.
macro_rules! of_a_path {
    ($($(#[$doc:meta])+ $name:ident -> $output:ty;)+) => {$(
        $(#[$doc])+
        ///
        /// # Errors
        /// As the function of that name in `std::fs`.
        #[track_caller]
        pub fn $name<P: AsRef<Path>>(path: P) -> io::Result<$output> {
            let path = path.as_ref();
            call(|| std::fs::$name(path))
        }
    )+};
}

of_a_path! {
    /// Reads a whole file; see [`std::fs::read`].
    read -> Vec<u8>;
    /// Reads a whole file of text; see [`std::fs::read_to_string`].
    read_to_string -> String;
    /// Makes a folder; see [`std::fs::create_dir`].
    create_dir -> ();
    /// Makes a folder, and those above it that are missing; see [`std::fs::create_dir_all`].
    create_dir_all -> ();
    /// Removes an empty folder; see [`std::fs::remove_dir`].
    remove_dir -> ();
    /// Removes a folder with all that is in it; see [`std::fs::remove_dir_all`].
    remove_dir_all -> ();
    /// Removes a file; see [`std::fs::remove_file`].
    remove_file -> ();
    /// What the system knows of a file; see [`std::fs::metadata`].
    metadata -> Metadata;
    /// The same, of a symbolic link itself; see [`std::fs::symlink_metadata`].
    symlink_metadata -> Metadata;
    /// The path without links and dots; see [`std::fs::canonicalize`].
    canonicalize -> PathBuf;
    /// Where a symbolic link leads; see [`std::fs::read_link`].
    read_link -> PathBuf;
    /// Is there something at this path? See [`std::fs::exists`].
    exists -> bool;
}

/// The functions that take two.
macro_rules! of_two_paths {
    ($($(#[$doc:meta])+ $name:ident($path:path) -> $output:ty;)+) => {$(
        $(#[$doc])+
        ///
        /// # Errors
        /// As the function of that name in std.
        #[track_caller]
        pub fn $name<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<$output> {
            let (from, to) = (from.as_ref(), to.as_ref());
            call(|| $path(from, to))
        }
    )+};
}

of_two_paths! {
    /// Copies a file with its permissions, and says how many bytes it has; see [`std::fs::copy`].
    copy(std::fs::copy) -> u64;
    /// Gives a file another name; see [`std::fs::rename`].
    rename(std::fs::rename) -> ();
    /// Gives the file `from` the further name `to`; see [`std::fs::hard_link`].
    hard_link(std::fs::hard_link) -> ();
    /// Makes `to` a symbolic link to `from`; see [`std::os::unix::fs::symlink`].
    symlink(std::os::unix::fs::symlink) -> ();
}

/// Is there something at this path? As [`exists`].
///
/// # Errors
/// As [`std::fs::exists`].
#[track_caller]
pub fn try_exists<P: AsRef<Path>>(path: P) -> io::Result<bool> {
    exists(path)
}

/// Writes a whole file, in the place of what was there; see [`std::fs::write`].
///
/// # Errors
/// As [`std::fs::write`].
#[track_caller]
pub fn write<P: AsRef<Path>, C: AsRef<[u8]>>(path: P, contents: C) -> io::Result<()> {
    let (path, contents) = (path.as_ref(), contents.as_ref());
    call(|| std::fs::write(path, contents))
}

/// Changes the permissions of a file; see [`std::fs::set_permissions`].
///
/// # Errors
/// As [`std::fs::set_permissions`].
#[track_caller]
pub fn set_permissions<P: AsRef<Path>>(path: P, permissions: Permissions) -> io::Result<()> {
    let path = path.as_ref();
    call(|| std::fs::set_permissions(path, permissions))
}

/// What is in a folder, in no order; see [`std::fs::read_dir`].
///
/// # Errors
/// As [`std::fs::read_dir`].
#[track_caller]
pub fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    let path = path.as_ref();
    call(|| std::fs::read_dir(path)).map(ReadDir::new)
}
