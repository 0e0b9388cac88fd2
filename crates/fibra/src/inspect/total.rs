//! A run in which nothing can happen any more: found when all workers sleep, and reported.
//!
//! It is a total deadlock if every fiber of the runtime waits for another one, and nothing else could wake one of them:
//!
//! 1. all workers sleep, and no fiber is ready;
//! 2. no fiber waits for time, a socket, a process, a file, a blocking call, a machine or a future, and no scope has a deadline;
//! 3. there is no task: a future may wait for anything, and what it waits for is not written down;
//! 4. no blocking call runs or is queued, no thread of fibra calls wakers, no future waits for a socket (it may have been polled by hand,
//!    with a waker that does anything), no machine is attached, and no signal is listened to;
//! 5. a `run` is under way: without one, it is plain threads that use the runtime;
//! 6. the process has no thread but the runtime's own. If there is one, it may have the other end of anything, and be about to use it.
//!
//! If all of it holds, it is reported at once. If only the last does not, it is reported when nothing has happened for [`PATIENCE`], as
//! something that may be a deadlock, and nothing else is done; but a deadlock that is certain is certain whatever other threads do.
//! Anything else is silence: a report that is wrong is worse than none.
//!
//! Above: `runtime::builder`, which has sysmon or the last worker ask ([`look`]). Below: `deadlock.rs`, `sched::quiet`.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::collect::collect;
use super::deadlock;
use super::graph::inside;
use super::snapshot::Snapshot;
use crate::cancel::cancel_started;
use crate::fiber::frame::{self, flag};
use crate::monitor::{errands, objects};
use crate::prim::atomic::Ordering;
use crate::prim::thread;
use crate::reactor::{signals, source};
use crate::sched::monitoring::OnDeadlock;
use crate::sched::shared::RuntimeShared;
use crate::trace::{self, When};
use crate::wait::reason::WaitReason;
use crate::waiter::cancel_reason::ReasonKind;
use crate::waiter::word::WaiterState;

/// So long nothing has happened before a deadlock is spoken of that a thread from outside could end.
const PATIENCE: Duration = Duration::from_secs(10);
/// Until the next look, at first, if a thread is there that is not ours: one that is about to end, perhaps.
const SOON: Duration = Duration::from_millis(100);
/// The report of a deadlock that ends the process gets so much time.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// The exit code of a program that ended in a deadlock.
const EXIT_CODE: i32 = 102;

/// Asked by sysmon, or by a worker where there is none, when all workers have slept for `quiet`; see
/// [`QuietLook`](crate::sched::monitoring::QuietLook). `said` remembers what
/// was reported, so that it is said once.
pub(crate) fn look(shared: &Arc<RuntimeShared>, quiet: Duration, said: &mut u64) -> Option<Duration> {
    super::debugger::keep();
    // These may end without a fiber that runs: a worker wakes and finds nothing, a blocking call ends that no fiber waits for. No end of a
    // wait brings the next look then. Each look comes after twice the time, so that they are few.
    let again = Some(quiet.max(SOON));
    if !is_still(shared) || is_awaiting(shared) {
        return again;
    }
    if is_any_fiber_free(shared) {
        return None;
    }
    let outside = outside_threads(shared);
    if outside > 0 && quiet < PATIENCE {
        return Some(quiet.max(SOON).min(PATIENCE - quiet).max(SOON));
    }
    let (snapshot, found) = collect(Some(shared));
    let waits = snapshot.fibers.iter().map(inside);
    if snapshot.fibers.is_empty() || !waits.into_iter().all(|wait| wait.is_some()) {
        return None;
    }
    if !is_still(shared) {
        return again;
    }
    let mut hasher = DefaultHasher::new();
    found.iter().for_each(|found| found.watch.hash(&mut hasher));
    let what = hasher.finish();
    if std::mem::replace(said, what) == what {
        return None;
    }
    let deadlocks = deadlock::of(&snapshot, &found);
    let certain = outside == 0;
    let action = if certain { shared.config.on_deadlock } else { OnDeadlock::Report };
    let text = report(shared, &snapshot, &deadlocks, quiet, outside, action);
    errands::say_soon(text.clone());
    // Not here: a file may be a pipe that is not read, and sysmon must not wait for that.
    let written = errands::have_done(|| trace::write_at(When::Deadlock));
    match action {
        OnDeadlock::Exit => {
            // Without a reader it ends all the same. (The trace first: it has something said.)
            let _ = written.is_done_within(LAST_WAIT);
            let _ = errands::said_within(LAST_WAIT);
            std::process::exit(EXIT_CODE)
        }
        OnDeadlock::Panic => {
            // What the cancellation does is not part of it.
            let _ = written.is_done_within(LAST_WAIT);
            *shared.deadlock.lock() = Some(text);
            cancel_started(shared, None, false, ReasonKind::RootFailed);
        }
        _ => {}
    }
    None
}

/// Do all workers sleep, with nothing to do?
fn is_still(shared: &RuntimeShared) -> bool {
    let seats = 0..shared.seats.made();
    !shared.is_closing()
        && seats.clone().all(|seat| !shared.idle.is_awake(seat))
        && seats.clone().all(|seat| shared.remotes[seat].fresh.is_empty() && shared.remotes[seat].returns.is_empty())
        && shared.injector.is_empty_handshake()
}

/// Is there something other than a fiber's own wait that will wake one: see the header, 2 to 4?
pub(super) fn is_awaiting(shared: &RuntimeShared) -> bool {
    // Relaxed: a number; whatever changes it wakes a worker.
    shared.tasks_parked.load(Ordering::Relaxed) != 0
        || shared.has_live_deadlines()
        || shared.blocking().busy() > 0
        // In this order: a waker that is on no socket any more is being called, or was.
        || source::may_call_wakers()
        || errands::are_wakers_called()
        || shared.machines.is_there()
        || signals::may_wake()
}

/// A first look at the fibers that ends at one that could go on by itself: a server that waits for its clients has one soon.
fn is_any_fiber_free(shared: &Arc<RuntimeShared>) -> bool {
    let runtime = Arc::as_ptr(shared).cast::<()>();
    let mut runs = false;
    let free = frame::census_until(|frame| {
        // Relaxed: compared only.
        if !std::ptr::eq(frame.runtime.load(Ordering::Relaxed), runtime) {
            return ControlFlow::Continue(());
        }
        match frame.waiter.word.snapshot().state() {
            WaiterState::Init | WaiterState::Done | WaiterState::Cancelled => return ControlFlow::Continue(()),
            WaiterState::Parked => {}
            _ => return ControlFlow::Break(()),
        }
        runs |= frame.has(flag::ROOT);
        let wait = frame.top().and_then(|top| Some((WaitReason::from_bits(top.wait_record()?.0)?, top.is_timed())));
        match wait {
            Some((reason, is_timed)) if is_inside(reason, is_timed) => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    });
    free || !runs
}

/// The same as [`inside`], as far as the reason says.
fn is_inside(reason: WaitReason, is_timed: bool) -> bool {
    super::graph::is_inside(reason) && (!is_timed || reason == WaitReason::RunEnd)
}

/// Threads of the process that could do anything.
fn outside_threads(shared: &RuntimeShared) -> usize {
    let all = || std::fs::read_dir("/proc/self/task").map_or(usize::MAX, Iterator::count);
    // Relaxed: a number.
    let callers = shared.config.callers_thread && shared.remotes[0].thread.load(Ordering::Relaxed) != 0;
    let others = objects::runtimes().len() - 1;
    thread::threads_not_quiet(all).saturating_sub(usize::from(callers)).saturating_add(others)
}

fn report(
    shared: &RuntimeShared,
    snapshot: &Snapshot,
    deadlocks: &[deadlock::Deadlock],
    quiet: Duration,
    outside: usize,
    action: OnDeadlock,
) -> String {
    let name = &shared.config.name;
    let (fibers, one) = match snapshot.fibers.len() {
        1 => (format!("the only fiber of \"{name}\" waits"), "it"),
        many => (format!("all {many} fibers of \"{name}\" wait for each other"), "one of them"),
    };
    let mut text = String::from("fibra: ");
    // Writing to a string does not fail.
    let _ = if outside == 0 {
        write!(
            text,
            "deadlock: {fibers}, and nothing is left that could wake {one}: no timer, no I/O, no blocking call, no \
             other thread.",
        )
    } else {
        let threads = if outside == 1 { "1 thread" } else { &format!("{outside} threads") };
        write!(
            text,
            "this may be a deadlock: {fibers}, and nothing has happened for {quiet:.0?}. Only {threads} of yours, or \
             of another runtime, could wake {one}.",
        )
    };
    text.push('\n');
    for deadlock in deadlocks {
        let _ = writeln!(text, "{deadlock}");
    }
    text.push_str("The fibers:\n");
    text.push_str(&snapshot.list());
    text.push_str(match action {
        OnDeadlock::Exit => {
            "The process ends with exit code 102 (FIBRA_DEADLOCK=report, or \
             RuntimeBuilder::on_deadlock, would let it wait)."
        }
        OnDeadlock::Panic => "The run is cancelled and panics.",
        _ => "They go on waiting.",
    });
    text
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::sched::quiet::tests::{of_one_worker, with_busy_worker};

    #[test]
    fn a_look_that_finds_a_worker_awake_is_not_the_last() {
        let runtime = of_one_worker();
        let shared = runtime.handle().shared().clone();
        let again = with_busy_worker(&runtime, || look(&shared, Duration::from_secs(3), &mut 0));
        assert_eq!(again, Some(Duration::from_secs(3)));
    }
}
