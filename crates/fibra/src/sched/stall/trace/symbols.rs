//! From addresses to functions and lines, by the debug information of the program, or its symbol table if there is none.

use super::Snapshot;
use super::unwind;
use crate::sched::stall::frames::Frame;

/// The frames of a snapshot by name, innermost first. Slow the first time: the program's file is read.
pub(crate) fn name(snapshot: &Snapshot) -> Vec<Frame> {
    let mut named = Vec::new();
    for address in unwind::frames(snapshot) {
        let before = named.len();
        // Functions that were inlined come before the one they are part of.
        backtrace::resolve(std::ptr::without_provenance_mut(address as usize), |symbol| {
            let function = symbol.name().map(|name| format!("{name:#}"));
            let file = symbol.filename().map(|file| file.display().to_string());
            named.push(Frame { address, function, file, line: symbol.lineno() });
        });
        if named.len() == before {
            named.push(Frame { address, ..Frame::default() });
        }
    }
    named
}
