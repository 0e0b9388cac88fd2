//! From addresses to functions and lines, by the debug information of the program, or its symbol table if there is none.

use super::unwind;
use super::{NoTrace, Snapshot};
use crate::monitor::stall::frames::Frame;
use crate::prim::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Threads that are just naming, with locks of the loader and of the `backtrace` crate, which do not come through a fork.
static NAMING: AtomicUsize = AtomicUsize::new(0);
/// There were some when this process was forked: their locks may be held for ever.
static IS_LOST: AtomicBool = AtomicBool::new(false);

struct Naming;

impl Naming {
    fn begin() -> Self {
        // SeqCst, here and below: stays between the locks' own steps, so that a child in which one is held sees it.
        NAMING.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Naming {
    fn drop(&mut self) {
        NAMING.fetch_sub(1, Ordering::SeqCst); // SeqCst: as above.
    }
}

/// Does naming come to an end in this process?
pub(crate) fn can_be_named() -> Result<(), NoTrace> {
    // Relaxed: set before this process has a second thread.
    if IS_LOST.load(Ordering::Relaxed) {
        return Err("this process was forked while another backtrace was made, which left its locks behind");
    }
    Ok(())
}

/// In the child of a fork, by its only thread.
pub(crate) fn forget() {
    // Relaxed, both: the child has one thread.
    if NAMING.swap(0, Ordering::Relaxed) != 0 {
        IS_LOST.store(true, Ordering::Relaxed);
    }
}

/// Where the functions of a snapshot begin, innermost first: the same for two snapshots of the same place, and cheap to know.
pub(crate) fn functions(snapshot: &Snapshot) -> Vec<u64> {
    let _naming = Naming::begin();
    unwind::frames(snapshot).into_iter().map(|address| unwind::start_of_function(address).unwrap_or(address)).collect()
}

/// The frames of a snapshot by name, innermost first. Slow: the program's file and its debug information are read, and not kept, since
/// they can be large and reports are rare.
pub(crate) fn name(snapshot: &Snapshot) -> Vec<Frame> {
    let _naming = Naming::begin();
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
