//! From addresses to functions and lines, by the debug information of the program, or its symbol table if there is none.

use super::Snapshot;
use super::unwind;
use crate::sched::stall::frames::Frame;

/// Where the functions of a snapshot begin, innermost first: the same for two snapshots of the same place, and cheap to know.
pub(crate) fn functions(snapshot: &Snapshot) -> Vec<u64> {
    unwind::frames(snapshot).into_iter().map(|address| unwind::start_of_function(address).unwrap_or(address)).collect()
}

/// The frames of a snapshot by name, innermost first. Slow: the program's file and its debug information are read, and not kept, since
/// they can be large and reports are rare.
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
    backtrace::clear_symbol_cache();
    named
}
