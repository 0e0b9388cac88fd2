//! An open file. Above: users. Below: `driver::file`, the blocking pool.
//!
//! A read first takes what is in memory (`driver::file::read_at_once`); everything else that could wait for a device is a call on the pool.
//!
//! The kernel has a lock around the position of a file, held through every call that uses it: a reader that comes while another thread
//! waits for the device waits with it, also if it only asks for what is in memory. So while such a call is on the pool, other calls that
//! use the position go there too.

use std::fmt;
use std::fs::{FileTimes, Metadata, Permissions};
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::SystemTime;

use super::{OpenOptions, call};
use crate::driver::file::{HERE, read_at_once};
use crate::prim::atomic::{AtomicU32, Ordering};
use crate::sched::current;
use crate::wait::park;

/// Reads of more bytes go to the pool: copying them from memory would hold up the worker longer than the call on the pool takes.
const AT_ONCE: usize = 64 * 1024;
/// Buffers that the kernel takes in one call.
const MOST_BUFFERS: usize = 1024;

/// An open file: [`std::fs::File`] for fibers. `Read`, `Write` and `Seek` are there for the file and for references to it; all share one
/// position, as in std. [`FileExt`] reads and writes at positions of its own.
///
/// ```
/// use fibra::fs::File;
/// use std::io::{Read, Seek, Write};
///
/// fibra::run(|| -> std::io::Result<()> {
///     let path = std::env::temp_dir().join(format!("fibra-file-{}", std::process::id()));
///     let mut file = File::options().read(true).write(true).create(true).open(&path)?;
///     file.write_all(b"hello")?;
///     file.rewind()?;
///     let mut text = String::new();
///     file.read_to_string(&mut text)?;
///     assert_eq!(text, "hello");
///     fibra::fs::remove_file(path)
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct File {
    inner: std::fs::File,
    /// Calls on the pool, or on their way there, that hold the kernel's lock on the position. Clones share both.
    moving: Arc<AtomicU32>,
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`std::fs::File::open`].
    #[track_caller]
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        OpenOptions::new().read(true).open(path)
    }

    /// Opens a file for writing: a new one, or one that is emptied.
    ///
    /// # Errors
    /// As [`std::fs::File::create`].
    #[track_caller]
    pub fn create<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path)
    }

    /// Creates a file that must not exist, for reading and writing.
    ///
    /// # Errors
    /// As [`std::fs::File::create_new`].
    #[track_caller]
    pub fn create_new<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        OpenOptions::new().read(true).write(true).create_new(true).open(path)
    }

    /// Options to open a file in other ways.
    #[must_use]
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Waits until all that was written, and the file's metadata, is on the device.
    ///
    /// # Errors
    /// As [`std::fs::File::sync_all`].
    #[track_caller]
    pub fn sync_all(&self) -> io::Result<()> {
        call(|| self.inner.sync_all())
    }

    /// Waits until all that was written is on the device.
    ///
    /// # Errors
    /// As [`std::fs::File::sync_data`].
    #[track_caller]
    pub fn sync_data(&self) -> io::Result<()> {
        call(|| self.inner.sync_data())
    }

    /// Sets the length of the file: cuts it, or fills it up with zeroes.
    ///
    /// # Errors
    /// As [`std::fs::File::set_len`].
    #[track_caller]
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        call(|| self.inner.set_len(size))
    }

    /// The file's metadata.
    ///
    /// # Errors
    /// As [`std::fs::File::metadata`].
    #[track_caller]
    pub fn metadata(&self) -> io::Result<Metadata> {
        call(|| self.inner.metadata())
    }

    /// Another handle to the same open file, with the same position.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let inner = self.inner.try_clone()?;
        Ok(Self { inner, moving: self.moving.clone() })
    }

    /// Changes its permissions.
    ///
    /// # Errors
    /// As [`std::fs::File::set_permissions`].
    #[track_caller]
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        call(|| self.inner.set_permissions(permissions))
    }

    /// Changes its times.
    ///
    /// # Errors
    /// As [`std::fs::File::set_times`].
    #[track_caller]
    pub fn set_times(&self, times: FileTimes) -> io::Result<()> {
        call(|| self.inner.set_times(times))
    }

    /// Changes the time of its last change.
    ///
    /// # Errors
    /// As [`std::fs::File::set_modified`].
    #[track_caller]
    pub fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.set_times(FileTimes::new().set_modified(time))
    }

    /// Converts it to a file of std.
    #[must_use]
    pub fn into_std(self) -> std::fs::File {
        self.inner
    }

    /// Reads what is in memory, if the read is small enough to be done on the worker.
    fn at_once(&self, buffers: &mut [IoSliceMut<'_>], offset: i64) -> Option<usize> {
        let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let may_wait = offset == HERE && self.is_moving();
        if may_wait || current::worker().is_none() || wanted > AT_ONCE || buffers.len() > MOST_BUFFERS {
            return None;
        }
        park::entry();
        read_at_once(self.inner.as_fd(), buffers, offset)
    }
}

impl File {
    /// Is there a call on the pool that uses the position?
    fn is_moving(&self) -> bool {
        // Relaxed: a hint. A reader that misses a call that has just begun waits for it, as in std.
        self.moving.load(Ordering::Relaxed) > 0
    }

    /// Makes a call that uses the position, and may wait for a device.
    #[track_caller]
    fn call_moving<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        struct Moving<'a>(&'a AtomicU32);
        impl Drop for Moving<'_> {
            fn drop(&mut self) {
                // Relaxed: as in `is_moving`.
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        // Relaxed: as in `is_moving`.
        self.moving.fetch_add(1, Ordering::Relaxed);
        let _moving = Moving(&self.moving);
        call(f)
    }
}

/// Repeats the attempt if a signal interrupted it: callers never see that.
fn uninterrupted<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

impl Read for &File {
    #[track_caller]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(read) = self.at_once(&mut [IoSliceMut::new(buffer)], HERE) {
            return Ok(read);
        }
        self.call_moving(|| uninterrupted(|| (&self.inner).read(buffer)))
    }
    #[track_caller]
    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if let Some(read) = self.at_once(buffers, HERE) {
            return Ok(read);
        }
        self.call_moving(|| uninterrupted(|| (&self.inner).read_vectored(buffers)))
    }
    #[track_caller]
    fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        self.call_moving(|| (&self.inner).read_to_end(buffer))
    }
    #[track_caller]
    fn read_to_string(&mut self, text: &mut String) -> io::Result<usize> {
        self.call_moving(|| (&self.inner).read_to_string(text))
    }
}

impl Write for &File {
    #[track_caller]
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.call_moving(|| uninterrupted(|| (&self.inner).write(buffer)))
    }
    #[track_caller]
    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.call_moving(|| uninterrupted(|| (&self.inner).write_vectored(buffers)))
    }
    #[track_caller]
    fn write_all(&mut self, buffer: &[u8]) -> io::Result<()> {
        self.call_moving(|| (&self.inner).write_all(buffer))
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    #[track_caller]
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match to {
            // But not from the end: the length of the file may have to be fetched over a network.
            SeekFrom::Start(_) | SeekFrom::Current(_) if !self.is_moving() => (&self.inner).seek(to),
            _ => self.call_moving(|| (&self.inner).seek(to)),
        }
    }
}

impl Read for File {
    #[track_caller]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
    #[track_caller]
    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(buffers)
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

impl Write for File {
    #[track_caller]
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        (&*self).write(buffer)
    }
    #[track_caller]
    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(buffers)
    }
    #[track_caller]
    fn write_all(&mut self, buffer: &[u8]) -> io::Result<()> {
        (&*self).write_all(buffer)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    #[track_caller]
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

impl FileExt for File {
    #[track_caller]
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        // An offset that does not fit is left to std, which reports the error.
        if let Ok(offset) = i64::try_from(offset)
            && let Some(read) = self.at_once(&mut [IoSliceMut::new(buffer)], offset)
        {
            return Ok(read);
        }
        call(|| uninterrupted(|| self.inner.read_at(buffer, offset)))
    }
    #[track_caller]
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        call(|| uninterrupted(|| self.inner.write_at(buffer, offset)))
    }
    #[track_caller]
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        call(|| self.inner.read_exact_at(buffer, offset))
    }
    #[track_caller]
    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        call(|| self.inner.write_all_at(buffer, offset))
    }
}

impl From<std::fs::File> for File {
    fn from(inner: std::fs::File) -> Self {
        Self { inner, moving: Arc::default() }
    }
}

impl From<File> for std::fs::File {
    fn from(file: File) -> Self {
        file.inner
    }
}

impl From<OwnedFd> for File {
    fn from(descriptor: OwnedFd) -> Self {
        std::fs::File::from(descriptor).into()
    }
}

impl From<File> for OwnedFd {
    fn from(file: File) -> Self {
        file.inner.into()
    }
}

impl From<File> for Stdio {
    fn from(file: File) -> Self {
        file.inner.into()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}

impl IntoRawFd for File {
    fn into_raw_fd(self) -> RawFd {
        self.inner.into_raw_fd()
    }
}

crate::driver::socket::from_raw_fd!(File => std::fs::File);

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
