//! Folders: listing their entries, and making them. Above: users. Below: the blocking pool.
//!
//! The entries of a folder are fetched in batches, so that a large folder costs few calls on the pool.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::{FileType, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt};
use std::path::{Path, PathBuf};

use super::call;

/// Entries that are fetched at once: about as many as the system gives std in one call.
const BATCH: usize = 256;

/// The entries of a folder; see [`read_dir`](super::read_dir).
pub struct ReadDir {
    /// None: it has come to its end.
    inner: Option<std::fs::ReadDir>,
    fetched: VecDeque<io::Result<DirEntry>>,
}

impl ReadDir {
    pub(super) fn new(inner: std::fs::ReadDir) -> Self {
        Self { inner: Some(inner), fetched: VecDeque::new() }
    }
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    #[track_caller]
    fn next(&mut self) -> Option<Self::Item> {
        if self.fetched.is_empty()
            && let Some(inner) = &mut self.inner
        {
            let fetched = &mut self.fetched;
            call(|| fetched.extend(inner.take(BATCH).map(|entry| entry.map(DirEntry::new))));
            if self.fetched.is_empty() {
                self.inner = None;
            }
        }
        self.fetched.pop_front()
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// An entry of a folder: [`std::fs::DirEntry`] for fibers.
pub struct DirEntry {
    inner: std::fs::DirEntry,
    /// The kind as the folder records it, as most file systems do.
    kind: Option<FileType>,
}

impl DirEntry {
    fn new(inner: std::fs::DirEntry) -> Self {
        let kind = inner.file_type().ok();
        Self { inner, kind }
    }

    /// The path of the folder, as it was given, with the name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.inner.path()
    }

    /// The name alone.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        self.inner.file_name()
    }

    /// Its metadata; if it is a link, that of the link itself.
    ///
    /// # Errors
    /// As [`std::fs::DirEntry::metadata`].
    #[track_caller]
    pub fn metadata(&self) -> io::Result<Metadata> {
        call(|| self.inner.metadata())
    }

    /// Its kind (file, folder, link), which was fetched along with the name.
    ///
    /// # Errors
    /// As [`std::fs::DirEntry::file_type`].
    #[track_caller]
    pub fn file_type(&self) -> io::Result<FileType> {
        self.kind.map_or_else(|| call(|| self.inner.file_type()), Ok)
    }

    /// The number of its inode.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.inner.ino()
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// How a folder is made: [`std::fs::DirBuilder`] for fibers.
#[derive(Debug)]
pub struct DirBuilder {
    inner: std::fs::DirBuilder,
}

impl DirBuilder {
    /// A builder that makes a single folder.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "std's has none either")]
    pub fn new() -> Self {
        Self { inner: std::fs::DirBuilder::new() }
    }

    /// Also makes the missing folders above it; and it is no error if the folder exists.
    pub fn recursive(&mut self, recursive: bool) -> &mut Self {
        self.inner.recursive(recursive);
        self
    }

    /// With these permissions, as far as the process may give them.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.inner.mode(mode);
        self
    }

    /// Makes it.
    ///
    /// # Errors
    /// As [`std::fs::DirBuilder::create`].
    #[track_caller]
    pub fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let path = path.as_ref();
        call(|| self.inner.create(path))
    }
}
