//! The options with which a file is opened. Above: users. Below: the blocking pool.

use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::{File, call};

/// How a file is opened: [`std::fs::OpenOptions`] for fibers.
///
/// ```
/// use fibra::fs::OpenOptions;
///
/// fibra::run(|| {
///     let error = OpenOptions::new().write(true).open("/nowhere/at/all").unwrap_err();
///     assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// });
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    inner: std::fs::OpenOptions,
}

macro_rules! switches {
    ($($(#[$doc:meta])+ $name:ident: $kind:ty;)+) => {$(
        $(#[$doc])+
        pub fn $name(&mut self, $name: $kind) -> &mut Self {
            self.inner.$name($name);
            self
        }
    )+};
}

impl OpenOptions {
    /// Nothing is asked for yet.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "std's has none either")]
    pub fn new() -> Self {
        Self { inner: std::fs::OpenOptions::new() }
    }

    switches! {
        /// For reading.
        read: bool;
        /// For writing.
        write: bool;
        /// For writing at the end, whatever was written by others meanwhile.
        append: bool;
        /// An existing file is emptied.
        truncate: bool;
        /// A missing file is created.
        create: bool;
        /// The file is created, and must not exist.
        create_new: bool;
        /// The permissions of a file that is created, as far as the process may give them.
        mode: u32;
        /// Flags for `open(2)`.
        custom_flags: i32;
    }

    /// Opens the file.
    ///
    /// # Errors
    /// As [`std::fs::OpenOptions::open`].
    #[track_caller]
    pub fn open<P: AsRef<Path>>(&self, path: P) -> io::Result<File> {
        let path = path.as_ref();
        call(|| self.inner.open(path)).map(File::from)
    }
}

impl From<std::fs::OpenOptions> for OpenOptions {
    fn from(inner: std::fs::OpenOptions) -> Self {
        Self { inner }
    }
}
