//! The map of a program for debuggers: `fiber::debugger`, and the words of the wait reasons. `gdb/fibra.py` finds it by its symbol,
//! `fibra::inspect::debugger::DEBUGGER_MAP`; it is constant and costs nothing while the program runs.
//!
//! Above: gdb. Below: `fiber::debugger`, `wait::reason`.

use crate::fiber::debugger::{FiberMap, map};
use crate::wait::reason::WaitReason;

/// Reasons have lower numbers.
const REASONS: usize = 128;

/// What the script reads.
#[derive(Debug)]
#[repr(C)]
struct DebuggerMap {
    fibers: FiberMap,
    reasons: [&'static str; REASONS],
}

#[used]
static DEBUGGER_MAP: DebuggerMap = DebuggerMap { fibers: map(), reasons: words() };

const fn words() -> [&'static str; REASONS] {
    let mut words = [""; REASONS];
    let mut at = 0;
    while at < WaitReason::ALL.len() {
        words[WaitReason::ALL[at] as usize] = WaitReason::ALL[at].words();
        at += 1;
    }
    words
}

/// Keeps the map in the program: a static that no code names is removed by the linker.
pub(crate) fn keep() {
    std::hint::black_box(&DEBUGGER_MAP);
}
