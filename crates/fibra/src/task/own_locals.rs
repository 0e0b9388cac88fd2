//! Starts and ends a fiber with thread-locals of its own: [`Builder::own_locals`](crate::Builder::own_locals).
//!
//! Above: `sched`, which calls [`run_with_own_locals`] for a fiber that wants them (handed down by `runtime`), and `builder.rs`. Below:
//! `fiber::donor` (a thread that lends its thread-locals), `wait::own_locals` (the switch).
//!
//! Invariant: functions that are on the stack while the thread pointer changes use no thread-local themselves; what does is called, and
//! not inlined.

use std::io;
use std::panic::Location;
use std::time::Duration;

use crate::fiber::donor::Donor;
use crate::fiber::frame::FrameRef;
use crate::prim::atomic::{AtomicBool, Ordering};
use crate::prim::instant::Instant;
use crate::prim::thread_pointer;
use crate::wait::own_locals;
use crate::wait::park::{self, Wait};
use crate::wait::reason::WaitReason;
use crate::wait::waitable::Nothing;

/// How long a fiber waits for its donor before it looks again, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(5));

/// Can fibers have thread-locals of their own here?
pub(crate) fn are_to_be_had() -> io::Result<()> {
    thread_pointer::is_writable().map_err(|why| io::Error::new(io::ErrorKind::Unsupported, format!("fibra: {why}")))
}

/// Runs the whole of the current fiber with thread-locals of its own, which have been dropped when this returns. `run` does not unwind, and
/// does nothing but drop the fiber's closure if the fiber is not wanted any more.
#[inline(never)]
pub(crate) fn run_with_own_locals(frame: FrameRef, is_wanted: &dyn Fn() -> bool, run: &mut dyn FnMut()) {
    match borrow(frame, is_wanted) {
        Some(donor) => {
            own_locals::within(&donor, run);
            give_back(donor);
        }
        // It was cancelled while there was no thread.
        None => run(),
    }
}

/// Starts a donor and waits until it stands still. None: there is none to be had, and the fiber is not wanted any more.
#[inline(never)]
fn borrow(frame: FrameRef, is_wanted: &dyn Fn() -> bool) -> Option<Donor> {
    // SAFETY: the running fiber's own, which lives.
    let name = unsafe { frame.extras() }.and_then(|extras| extras.name.as_deref());
    let mut donor = None;
    let mut is_given_up = false;
    wait_until(|| {
        match Donor::start(name.unwrap_or("fibra-locals")) {
            Ok(started) => donor = Some(started),
            Err(error) => {
                no_thread(&error);
                is_given_up = !is_wanted();
            }
        }
        donor.is_some() || is_given_up
    });
    let donor = donor?;
    wait_until(|| donor.thread_pointer().is_some());
    Some(donor)
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
}

/// Waits until the thread-locals have been dropped.
#[inline(never)]
fn give_back(donor: Donor) {
    let given_back = donor.give_back();
    wait_until(|| given_back.are_dropped());
}

/// Waits on the current fiber until `holds`. No cancellation ends this, not even when the time for shields is over: the fiber has not
/// begun, or has ended.
fn wait_until(mut holds: impl FnMut() -> bool) {
    let (mut pause, longest) = PAUSES;
    while !holds() {
        let deadline = Some(Instant::after(pause).as_nanos());
        // (A binding reason: what it waits for is done by a thread.)
        let how = Wait { reason: WaitReason::BlockingRunning, object: 0, site: Location::caller(), deadline };
        let _ = park::wait(&Nothing, how);
        pause = (pause * 2).min(longest);
    }
}
