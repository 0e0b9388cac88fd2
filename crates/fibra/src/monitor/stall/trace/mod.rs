//! Where a thread is: its registers and a piece of its stack, taken by this thread or by a signal handler, unwound and named afterwards.
//!
//! ```text
//! capture.rs  takes a `Snapshot` of a thread that computes (a signal) or is blocked (from outside)
//! unwind.rs   from a snapshot to return addresses, by the unwind tables of the loaded modules
//! symbols.rs  from addresses to functions and lines, and what of them is worth showing
//! ```
//!
//! Above: `stall.rs` takes the snapshot on sysmon's thread; `report.rs` has it named on the reporter's. Below: `claim.rs`, signals, gimli
//! and the `backtrace` crate. Left out without the feature `backtrace`, under sanitizers (which hold signals back) and on machines
//! other than x86_64 and aarch64: then `no_trace.rs` stands in for it.

mod capture;
mod symbols;
mod unwind;

pub(super) use symbols::{functions, name};

/// A snapshot of a thread that computes.
pub(super) fn computing(thread: u32) -> Result<Snapshot, NoTrace> {
    symbols::can_be_named()?;
    capture::computing(thread)
}

/// A snapshot of a thread that is blocked.
pub(super) fn blocked(thread: u32) -> Result<Snapshot, NoTrace> {
    symbols::can_be_named()?;
    capture::blocked(thread)
}

/// A snapshot of a fiber that is suspended, of which this is known.
pub(super) fn suspended(at: crate::fiber::context::Suspended) -> Result<Snapshot, NoTrace> {
    symbols::can_be_named()?;
    capture::suspended(at)
}

/// In the child of a fork, which has one thread.
pub(super) fn forget() {
    capture::forget();
    symbols::forget();
}

/// Why there is no snapshot.
pub(super) type NoTrace = &'static str;

/// Registers by their numbers in DWARF; unknown ones are `None`.
pub(super) type Registers = [Option<u64>; REGISTERS];

#[cfg(target_arch = "x86_64")]
const REGISTERS: usize = 17; // 16 general ones and the return address.
#[cfg(target_arch = "aarch64")]
const REGISTERS: usize = 33; // x0 to x30, the stack pointer, the next instruction.

/// The most of a stack that is copied. A frame with larger variables hides what called it.
const PIECE: usize = 64 << 10;

/// A thread at one moment.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    registers: Registers,
    /// The next instruction; after the system call, for one that is blocked in it.
    pc: u64,
    /// Where the copy begins: its stack pointer.
    sp: u64,
    stack: Vec<u8>,
}

impl Snapshot {
    /// A word of the stack, if it was copied.
    fn word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.sp)?).ok()?;
        let bytes = self.stack.get(offset..offset.checked_add(8)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }

    /// The first address above the copy.
    fn end(&self) -> u64 {
        self.sp.saturating_add(self.stack.len() as u64)
    }
}
