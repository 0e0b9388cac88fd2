//! The monitor: the thread that looks after a runtime's workers, what it reports, the counters, and the registries of the process.
//!
//! In reading order:
//!
//! ```text
//! sysmon.rs      the thread: rescue, growth, deadlines, stalls, deadlocks
//! elastic.rs     when a worker is added
//! stall.rs       reports a worker that stands still, with a backtrace (claim.rs: which thread may touch the buffer it is taken through)
//! errands.rs     what the thread has others do: printing, calling wakers
//! hook.rs        the panic hook of fibers          describe.rs    names the fiber whose stack overflowed
//! metrics.rs     what a runtime counts             stats.rs       the same, printed
//! objects.rs     every runtime, every channel      open_scopes.rs every scope       names.rs  actors by name, locks by number
//! deep_channels.rs  reports unbounded channels that hold many values
//! stack_marks.rs how much stack fibers have used, by place of spawn
//! fork.rs        every lock of the process, held over a fork
//! per_process.rs what a forked child makes anew   once_per_site.rs  places that were reported
//! ```
//!
//! Above: `wait` and all else; `inspect` reads the registries, `runtime` starts the thread and installs the hooks. Below: `sched`, which
//! calls the monitor by `sched::sysmon` and `sched::monitoring`. Beside: `reactor` and `blocking`, whose locks `fork.rs` takes.

#[allow(dead_code)] // Without backtraces, nothing but its tests and models uses it.
pub(crate) mod claim;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod deep_channels;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod describe;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod elastic;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod errands;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod fork;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod hook;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod metrics;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod names;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod objects;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod once_per_site;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod open_scopes;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod per_process;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod stack_marks;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod stall;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod stats;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod sysmon;
