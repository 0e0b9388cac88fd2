//! How much stack fibers have used, by the place where they were spawned.
//!
//! A fiber that ends says how deep its stack was touched, if `FIBRA_STACK_MARKS=1`: then every fiber has the flag HOOKED, whose fibers are
//! led to a function at their end anyway, so that no other fiber pays for the question. It also gives the pages back, so that the next
//! fiber on the same stack is measured for itself.
//!
//! Above: `task::fiber`, which tells of the end of a fiber; `inspect`, which asks. Below: `fiber::stack`, `per_process.rs`.

use std::collections::HashMap;
use std::panic::Location;

use super::per_process::PerProcess;
use crate::fiber::frame::{self, FrameRef};
use crate::fiber::stack;
use crate::prim::atomic::{AtomicBool, Ordering};
use crate::prim::sync::Mutex;
use crate::waiter::word::WaiterState;

/// The deepest stack of the fibers that were spawned at one place.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mark {
    /// How many were measured.
    pub(crate) fibers: u64,
    /// Bytes that the deepest of them touched; whole pages.
    pub(crate) deepest: usize,
    /// The size of the stack of that one.
    pub(crate) size: usize,
}

pub(crate) type Marks = HashMap<&'static Location<'static>, Mark>;

/// Those of fibers that have ended.
#[derive(Default)]
struct Ended(Mutex<Marks>);

static ENDED: PerProcess<Ended> = PerProcess::new(Ended::default);
static IS_ON: AtomicBool = AtomicBool::new(false);

/// From now on, fibers are measured when they end: those of runtimes that are built from now on.
pub(crate) fn turn_on() {
    IS_ON.store(true, Ordering::Relaxed); // Relaxed: nothing else hangs on it.
}

pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed) // Relaxed: as above.
}

/// The running fiber is about to end.
pub(crate) fn note_end(frame: FrameRef) {
    // Relaxed: the running fiber's own.
    let top = frame.stack.load(Ordering::Relaxed).addr();
    let Some(site) = frame.site.get() else { return };
    if let Some((deepest, size)) = stack::touched(top) {
        add(&mut ENDED.get().0.lock(), site, deepest, size);
        stack::freshen();
    }
}

fn add(marks: &mut Marks, site: &'static Location<'static>, deepest: usize, size: usize) {
    let mark = marks.entry(site).or_default();
    mark.fibers += 1;
    if deepest >= mark.deepest {
        (mark.deepest, mark.size) = (deepest, size);
    }
}

/// What was measured of fibers that have ended.
pub(crate) fn of_ended() -> Marks {
    if is_on() { ENDED.get().0.lock().clone() } else { Marks::new() }
}

/// The same, and the fibers that have started and not ended are measured now: some µs for each.
pub(crate) fn of_all() -> Marks {
    let mut marks = of_ended();
    frame::census(|frame| {
        let is_live = !matches!(
            frame.waiter.word.snapshot().state(),
            WaiterState::Init | WaiterState::Done | WaiterState::Cancelled
        );
        let top = frame.watch().stack_end();
        if let (true, Some(site)) = (is_live && top != 0, frame.site.get())
            && let Some((deepest, size)) = stack::touched(top)
        {
            add(&mut marks, site, deepest, size);
        }
    });
    marks
}
