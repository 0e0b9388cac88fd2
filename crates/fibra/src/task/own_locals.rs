//! Starts and ends a fiber with thread-locals of its own: [`Builder::own_locals`](crate::Builder::own_locals).
//!
//! Above: `sched`, which calls [`run_with_own_locals`] for a fiber that wants them (handed down by `runtime`), and `builder.rs`. Below:
//! `fiber::donor` (a thread that lends its thread-locals), `wait::own_locals` (the switch), futures to wait for the donor.
//!
//! Invariant: functions that are on the stack while the thread pointer changes use no thread-local themselves; what does is called, and
//! not inlined.

use std::io;
use std::panic::Location;
use std::time::Duration;

use super::fiber::{shield, yield_now};
use super::futures::block_on;
use crate::fiber::donor::{Donor, Stage};
use crate::fiber::frame::FrameRef;
use crate::prim::atomic::{AtomicBool, Ordering};
use crate::prim::instant::Instant;
use crate::prim::thread_pointer;
use crate::wait::own_locals;
use crate::wait::park::{self, Wait};
use crate::wait::reason::WaitReason;
use crate::wait::waitable::Nothing;

/// How long a fiber waits when the system has no thread to lend, before it asks again.
const NO_THREAD_PAUSE: Duration = Duration::from_millis(10);

/// Can fibers have thread-locals of their own here?
pub(crate) fn are_to_be_had() -> io::Result<()> {
    thread_pointer::is_writable().map_err(|why| io::Error::new(io::ErrorKind::Unsupported, format!("fibra: {why}")))
}

/// Runs the whole of the current fiber with thread-locals of its own, which have been dropped when this returns. `run` does not unwind.
#[inline(never)]
pub(crate) fn run_with_own_locals(frame: FrameRef, run: &mut dyn FnMut()) {
    let donor = borrow(frame);
    while !own_locals::within(&donor, run) {
        wait_a_moment();
    }
    give_back(donor);
}

/// Starts a donor and waits until it has started.
#[inline(never)]
fn borrow(frame: FrameRef) -> Donor {
    // Shielded: a fiber that is cancelled meanwhile has not begun, and its closure is dropped in the ordinary way.
    shield(|| {
        loop {
            // SAFETY: the running fiber's own, which lives.
            let name = unsafe { frame.extras() }.and_then(|extras| extras.name.as_deref());
            match Donor::start(name.unwrap_or("fibra-locals")) {
                Ok(donor) => {
                    block_on(donor.reached(Stage::Here));
                    return donor;
                }
                Err(error) => no_thread(&error),
            }
        }
    })
}

#[cold]
fn no_thread(error: &io::Error) {
    static SAID: AtomicBool = AtomicBool::new(false);
    // Relaxed: said once or twice, no more depends on it.
    if !SAID.swap(true, Ordering::Relaxed) {
        crate::prim::say(format_args!(
            "fibra: no thread to lend thread-locals to a new fiber, it waits until there is one: {error}"
        ));
    }
    let deadline = Some(Instant::after(NO_THREAD_PAUSE).as_nanos());
    let how = Wait { reason: WaitReason::Sleep, object: 0, site: Location::caller(), deadline };
    let _ = park::wait(&Nothing, how);
}

/// The donor is on its way into the system call in which it stands still.
#[inline(never)]
fn wait_a_moment() {
    shield(yield_now);
}

/// Waits until the thread-locals have been dropped.
#[inline(never)]
fn give_back(donor: Donor) {
    let ended = donor.reached(Stage::Ended);
    drop(donor);
    shield(|| block_on(ended));
}
