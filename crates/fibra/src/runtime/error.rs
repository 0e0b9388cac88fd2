//! The error of a shutdown that takes too long: which fibers and threads are stuck. Above: `runtime.rs`, which makes it, and users. Below:
//! nothing.

use std::fmt;

/// A runtime did not come to its end in time.
#[derive(Debug, Clone)]
pub struct ShutdownError {
    pub(super) stuck: String,
    pub(super) blocking: usize,
}

impl ShutdownError {
    /// The fibers that have not ended, one per line, with what they wait for.
    pub fn stuck(&self) -> &str {
        &self.stuck
    }

    /// Threads of the blocking pool that were still there.
    pub fn blocking_threads(&self) -> usize {
        self.blocking
    }
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the runtime did not end in time")?;
        if !self.stuck.is_empty() {
            write!(f, "; these fibers are stuck:\n{}", self.stuck)?;
        }
        if self.blocking != 0 {
            write!(f, "; {} threads of the blocking pool have not ended", self.blocking)?;
        }
        Ok(())
    }
}

impl std::error::Error for ShutdownError {}
