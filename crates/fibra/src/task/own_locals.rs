//! Starts and ends a fiber with thread-locals of its own: [`Builder::own_locals`](crate::Builder::own_locals).
//!
//! Above: `sched`, which calls [`run_with_own_locals`] for a fiber that wants them (handed down by `runtime`), and `builder.rs`. Below:
//! `fiber::donors` (threads that lend their thread-locals), `wait::own_locals` (the switch).
//!
//! Invariant: functions that are on the stack while the thread pointer changes use no thread-local themselves; what does is called, and
//! not inlined.

use std::io;
use std::panic::Location;
use std::task::Waker;
use std::time::Duration;

use crate::fiber::donor::{Donor, Loan, Stage};
use crate::fiber::donors;
use crate::fiber::frame::FrameRef;
#[cfg(fibra_force_moves)]
use crate::fiber::frame::{FlagSet, flag};
use crate::prim::atomic::{AtomicBool, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::instant::Instant;
use crate::prim::thread_pointer;
use crate::sched::shared::RuntimeShared;
use crate::wait::own_locals;
use crate::wait::park::{self, Outcome, Wait, Waitable};
use crate::wait::reason::WaitReason;
use crate::wait::waitable::{Nothing, Published, linked_or};
use crate::waiter::node::Node;

/// How long a fiber waits for what it is not told of before it looks again, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(5));

/// Can fibers have thread-locals of their own here?
pub(crate) fn are_to_be_had() -> io::Result<()> {
    thread_pointer::is_writable().map_err(|why| io::Error::new(io::ErrorKind::Unsupported, format!("fibra: {why}")))
}

/// Further flags of a fiber that is being started, in a build for the suites in which fibers move wherever they can (see `.ci/deep`). Each
/// costs a thread, so only so many of a runtime's do.
#[cfg(fibra_force_moves)]
pub(crate) fn forced(shared: &RuntimeShared, flags: FlagSet, spread: bool) -> FlagSet {
    const IN_ALL: u64 = 3000;
    let moves = shared.config.force_moves
        && !spread
        && !flags.has(flag::TASK | flag::HALF | flag::PINNED | flag::WANTS_LOCALS | flag::CALLS_WAKERS)
        && shared.donors.asked() < IN_ALL;
    (flag::WANTS_LOCALS | flag::MOVES).only_if(moves)
}

/// Runs the whole of the current fiber with thread-locals of its own, which have been dropped when this returns. `run` does not unwind, and
/// does nothing but drop the fiber's closure if the fiber is not wanted any more.
#[inline(never)]
pub(crate) fn run_with_own_locals(frame: FrameRef, is_wanted: &dyn Fn() -> bool, run: &mut dyn FnMut()) {
    match borrow(frame, is_wanted) {
        Some(donor) => {
            if own_locals::within(&donor, run) && !seeded_bug("locals_dropped_beside_local_fibers") {
                give_back_on_the_spot(donor);
            } else {
                give_back(donor);
            }
        }
        // It was cancelled while there was no thread.
        None => run(),
    }
}

/// Takes a donor, or starts one, and waits until it stands still. None: there is none to be had, and the fiber is not wanted any more.
#[inline(never)]
fn borrow(frame: FrameRef, is_wanted: &dyn Fn() -> bool) -> Option<Donor> {
    #[cfg(fibra_force_moves)]
    if crate::prim::thread::quiet_threads() > 300 {
        // (The suites start many fibers. This one stays, and uses its worker's.)
        return None;
    }
    // SAFETY: the running fiber's own, which lives.
    let (name, shared) =
        unsafe { (frame.extras().and_then(|extras| extras.name.as_deref()), RuntimeShared::of(frame)) };
    // The name of a thread is given when it starts. (A runtime on its caller's thread promises to start none of its own accord.)
    let ready = if name.is_some() || shared.config.current_thread { None } else { shared.donors.take() };
    let donor = match ready {
        Some(ready) => ready,
        None => start(shared, name.unwrap_or(donors::NAME), is_wanted)?,
    };
    // (The suites count fibers that wait, and take a fiber that does for one that has begun.)
    #[cfg(fibra_force_moves)]
    while donor.thread_pointer().is_none() {
        crate::prim::thread::yield_now();
    }
    wait_for(donor.loan(), Stage::Coming);
    look_until(|| donor.thread_pointer().is_some());
    Some(donor)
}

/// Starts a donor, as soon as the system has a thread to give.
fn start(shared: &RuntimeShared, name: &str, is_wanted: &dyn Fn() -> bool) -> Option<Donor> {
    let mut donor = None;
    look_until(|| match shared.donors.start(name) {
        Ok(started) => {
            donor = Some(started);
            true
        }
        Err(error) => {
            no_thread(&error);
            !is_wanted()
        }
    });
    donor
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
    let loan = donor.give_back();
    wait_for(&loan, Stage::Ended);
}

/// The same, and no other fiber of this worker runs meanwhile: they may share values with those thread-locals that are not `Send`, such as
/// an `Rc`, and the donor drops them on its own thread.
#[inline(never)]
fn give_back_on_the_spot(donor: Donor) {
    donor.give_back_and_join();
}

/// The wait for a donor to come so far.
struct Reaches<'a>(&'a Loan, Stage);

impl Waitable for Reaches<'_> {
    fn publish(&self, node: &Node) -> Published {
        let (waiter, ticket, _) = node.target();
        linked_or(self.0.enlist(self.1, waiter, ticket), Outcome::Done)
    }

    fn unpublish(&self, _: &Node, _: &mut Vec<Waker>) {
        self.0.strike();
    }
}

/// What a fiber does that waits for a donor. No cancellation ends this, not even when the time for shields is over: the fiber has not
/// begun, or has ended. (A binding reason: what it waits for is done by a thread.)
fn how(deadline: Option<u64>) -> Wait {
    Wait { reason: WaitReason::BlockingRunning, object: 0, site: Location::caller(), deadline }
}

/// Waits on the current fiber until the donor has come so far, and tells of it.
fn wait_for(loan: &Loan, stage: Stage) {
    while !loan.has_reached(stage) {
        let _ = park::wait(&Reaches(loan, stage), how(None));
    }
}

/// Waits on the current fiber until `holds`, which it looks at again and again: for what is not told.
fn look_until(mut holds: impl FnMut() -> bool) {
    let (mut pause, longest) = PAUSES;
    while !holds() {
        let _ = park::wait(&Nothing, how(Some(Instant::after(pause).as_nanos())));
        pause = (pause * 2).min(longest);
    }
}
