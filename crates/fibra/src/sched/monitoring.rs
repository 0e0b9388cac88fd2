//! What a runtime is told about the monitor, which lies above: settings, and functions that the monitor calls.
//!
//! Above: `runtime::builder`, which settles it, and `monitor::stall` and `quiet.rs`, which act on it. The scheduler only keeps it.

use std::sync::Arc;
use std::time::Duration;

use super::shared::RuntimeShared;

/// How long a worker may stand still before it is reported, unless `FIBRA_STALL_MS` says otherwise.
pub(crate) const STALL_MILLIS: u64 = 1000;
/// When a stall is reported, with what, and the function that lists the fibers it holds up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StallConfig {
    pub(crate) after: Duration,
    /// With a backtrace.
    pub(crate) backtrace: bool,
    /// The started fibers of a worker of this runtime.
    pub(crate) fibers: fn(&RuntimeShared, usize) -> OnWorker,
}

/// The started fibers of a worker, as text: a line each.
#[derive(Debug, Default)]
pub(crate) struct OnWorker {
    /// The one that runs; empty if the worker is between two fibers.
    pub(crate) running: String,
    /// Where that one was spawned.
    pub(crate) site: String,
    /// How many others there are.
    pub(crate) others: usize,
    /// Some of them.
    pub(crate) list: String,
}

/// What happens when every fiber of a run waits for another one, for ever: see
/// [`RuntimeBuilder::on_deadlock`](crate::RuntimeBuilder::on_deadlock).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum OnDeadlock {
    /// It is reported on standard error, and the program goes on waiting.
    Report,
    /// It is reported, and the process ends with exit code 102.
    Exit,
    /// It is reported, the run is cancelled, and `run` panics with the report.
    Panic,
    /// Deadlocks are not looked for.
    Off,
}

/// Asked when all workers have slept for this long; answers when it wants to be asked again, if they still do then. The last argument is
/// its memory, for whatever it likes.
pub(crate) type QuietLook = fn(&Arc<RuntimeShared>, Duration, &mut u64) -> Option<Duration>;
