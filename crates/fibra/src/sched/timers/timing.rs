//! A worker's timers and its one blocking point.
//!
//! Timers are the worker's own: set by its fibers, fired by its loop. Above: `worker.rs` (a busy worker looks now and then),
//! `search.rs` (a worker without work sleeps until the first is due) and `wait`, which sets them. Below: `sched::timers::heap`, `driver`.

use std::ptr;

use super::alarms::AlarmId;
use crate::driver::Timeout;
use crate::fiber::frame::FrameRef;
use crate::fiber::stack::StackTop;
use crate::prim::atomic::Ordering;
use crate::prim::bug::seeded_bug;
use crate::prim::{policy, prefetch_many};
use crate::sched::complete::complete_wait;
use crate::sched::enqueue::QueueEnd;
use crate::sched::members::scope::ScopeRef;
use crate::sched::shared::RuntimeShared;
use crate::sched::timers::heap::Timer;
use crate::sched::worker::{DRIVER_CYCLES, Worker};
use crate::waiter::word::{ARM_TIMEOUT, Claim, Ticket};

/// Timers that are fired together: their frames are fetched before the first is claimed.
const BATCH: usize = 16;
/// Most cache lines that are fetched of the innermost frames of a fiber that waits deep in its stack.
const STACK_LINES: usize = 8;
const LINE_BYTES: usize = 64;

/// What a timer of a wait is for: the wait of this fiber that has this ticket is over, its time is up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due(FrameRef, Ticket);

impl Due {
    pub(crate) fn new(frame: FrameRef, ticket: Ticket) -> Self {
        Self(frame, ticket)
    }

    /// Does the wait go on that this is for?
    fn is_live(self) -> bool {
        let now = self.0.waiter.word.snapshot();
        now.is_waiting() && now.ticket() == self.1
    }

    /// Ends the wait as timed out, unless another owner was faster: on any thread.
    pub(in crate::sched) fn complete(self) {
        // (A fiber has no waker.)
        drop(complete_wait(self.0.waiter_ref(), self.1, ARM_TIMEOUT, QueueEnd::Tail));
    }
}

/// What a timer in a seat's [`Wheel`](super::wheel::Wheel) is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WheelDue {
    Scope(ScopeDue),
    Alarm(AlarmId),
    /// The wait of a fiber that moves: it may be on no worker, so that a worker that is stuck must not keep its time.
    Wait(Due),
}

/// Something about a scope, in this life of its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScopeDue {
    pub(crate) scope: ScopeRef,
    pub(crate) life: u32,
    pub(crate) what: ScopeTimer,
}

/// What a timer does to a scope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScopeTimer {
    /// Its deadline has come.
    Deadline,
    /// It was asked to drain, and has had its time.
    Drained,
    /// It was cancelled, and shields have had their time.
    Grace,
}

impl RuntimeShared {
    /// Will a deadline of a seat do something? One whose scope, alarm or wait is over does nothing when it comes, and may lie there for
    /// long: what takes a timer back looks for it where it was set, and a worker that leaves has given its timers to another seat.
    pub(crate) fn has_live_deadlines(&self) -> bool {
        let is_live = |due| match due {
            WheelDue::Scope(due) => due.scope.is_open_in(due.life),
            WheelDue::Alarm(id) => self.alarms.is_set(id),
            WheelDue::Wait(due) => due.is_live() || seeded_bug("stale_wait_counts"),
        };
        // (Not under the lock of the store: scopes and alarms have locks of their own.)
        self.remotes[..self.seats.made()].iter().any(|remote| remote.wheel.purposes().into_iter().any(is_live))
    }
}

impl Worker {
    /// What a busy worker does after a bounded time: timers, and now and then the driver; also reads the clock.
    #[inline(never)]
    pub(in crate::sched) fn poll(&self) {
        if self.is_driver_due(DRIVER_CYCLES) {
            self.look_at_driver();
        } else {
            self.looks.clock.set(policy::now());
        }
        self.fire_timers(self.looks.clock.get());
        self.looks.polled_at.set(policy::cycles());
        self.note_idle_end();
    }

    /// Wakes the fibers whose timers are due, and fires the due deadlines of the worker's wheel.
    ///
    /// In batches, because a sleeper's frame and stack have long left the caches, and with many sleepers most of firing and resuming is
    /// waiting for memory: the frames of a batch are fetched together, then the tops of their stacks, long before each is run.
    pub(in crate::sched) fn fire_timers(&self, now: u64) {
        self.looks.fired_at.set(now);
        let mut fired = 0;
        while self.next_deadline().is_some_and(|deadline| deadline <= now) {
            let mut due = [None; BATCH];
            self.timers.with(|timers| {
                for place in &mut due {
                    *place = timers.pop_expired(now);
                    if place.is_none() {
                        break;
                    }
                }
            });
            fired += due.iter().flatten().count() as u64;
            // One after the other, with nothing in between that takes long: so the processor looks for several pages at the same time.
            due.iter().flatten().for_each(|Due(frame, _)| frame.fetch());
            due.iter().flatten().for_each(|Due(frame, _)| frame.fetch_stack());
            let mut woken = [None; BATCH];
            for (Due(frame, ticket), place) in due.into_iter().flatten().zip(&mut woken) {
                match frame.waiter.word.claim(ticket, ARM_TIMEOUT, true) {
                    Claim::Lost => {}
                    Claim::Direct => *place = Some(frame),
                    // The fiber that set the timer is off its stack whenever this worker fires timers.
                    Claim::Held => unreachable!("a timer fired while its fiber was parking"),
                }
            }
            for frame in woken.into_iter().flatten() {
                self.stats().wakes_timer.add(1);
                self.stats().parked.sub(1);
                fetch_turn(frame);
                self.note_wake(frame);
                self.push_ready(frame);
            }
        }
        self.looks.pace.note(fired, now);
        self.shared.fire_deadlines(self.index, now, u64::MAX);
        self.fire_late(now);
        let timers = self.next_deadline().is_some() || self.remote().wheel.next_deadline().is_some();
        self.looks.armed.set(timers || self.io.registrar.is_in_use() || self.shared.late.is_looked_at());
    }

    /// Sets a timer for a wait of the running fiber, which ends it as timed out. Whether it has fired or not, `remove_timer` may be called
    /// for it later.
    pub(crate) fn set_timer(&self, frame: FrameRef, ticket: Ticket, deadline: u64) -> Timer {
        let timer = self.timers.with(|timers| timers.insert(deadline, Due(frame, ticket)));
        self.arm_timers();
        timer
    }

    /// Sets a timer that fires even if this worker is stuck. It may fire when what it was for is over, and does nothing then.
    pub(crate) fn set_wheel_timer(&self, due: WheelDue, deadline: u64) -> Timer {
        let (timer, _) = self.remote().wheel.insert(deadline, due);
        self.arm_timers();
        timer
    }

    /// A busy worker looks at its timers now and then from now on.
    pub(in crate::sched) fn arm_timers(&self) {
        if !self.looks.armed.replace(true) {
            self.looks.polled_at.set(policy::cycles());
        }
    }

    /// Takes a timer of this worker back if it has not fired.
    pub(crate) fn remove_timer(&self, timer: Timer) {
        self.timers.with(|timers| timers.remove(timer));
    }

    /// When a sleeping worker should wake for its timers: when the first is due; but if many are set and due all the time, not sooner
    /// than a pause after the last time (`pace.rs`).
    pub(in crate::sched) fn wake_for_timers_at(&self) -> Option<u64> {
        let own = self.wake_for_own_timers_at();
        match self.remote().wheel.next_deadline() {
            None => own,
            Some(deadline) => Some(own.map_or(deadline, |own| own.min(deadline))),
        }
    }

    fn wake_for_own_timers_at(&self) -> Option<u64> {
        let (deadline, timers) = self.timers.with(|timers| (timers.next_deadline(), timers.len()));
        Some(deadline?.max(self.looks.fired_at.get() + self.looks.pace.pause(timers)))
    }

    /// The earliest deadline, if there is one.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.timers.with(|timers| timers.next_deadline())
    }

    /// The one blocking point.
    pub(in crate::sched) fn platform_wait(&self, timeout: Timeout) {
        let now = self.io.driver.with(|driver| driver.wait(timeout));
        match now {
            Ok(now) => {
                self.looks.clock.set(now);
                self.looks.looked_at.set(policy::cycles());
            }
            // The driver handles interruptions itself; what is left is a closed descriptor, and sleeping on is no answer to that.
            Err(error) => panic!("fibra: a worker cannot wait any more: {error}"),
        }
    }
}

/// Fetches what else the next turn of a suspended fiber touches: its innermost frames, if these lie deep, and, in case it ends, its
/// neighbours in the list of started fibers.
#[inline(always)]
fn fetch_turn(frame: FrameRef) {
    // SAFETY: claimed by this worker and not queued yet, so its context does not change.
    let innermost = frame.context.with(|context| unsafe { (*context).to_bits() });
    // Relaxed: this worker's own.
    let fetched = StackTop::fetched_from(frame.stack.load(Ordering::Relaxed));
    // Where a context is no stack pointer (see `fiber::context`) this is of no use, and does no harm.
    for line in 0..(fetched.saturating_sub(innermost) / LINE_BYTES).min(STACK_LINES) {
        prefetch_many(ptr::without_provenance(innermost.wrapping_add(line * LINE_BYTES)));
    }
    frame.fetch_neighbours();
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sched::current;
    use crate::sched::here::Here;
    use crate::sched::quiet::tests::of_one_worker;
    use crate::sched::timers::alarms::Alarm;

    // A timer whose wait, scope or alarm is over wakes nothing, however far its moment is.
    #[test]
    fn a_deadline_that_nothing_waits_for_silences_no_report() {
        let far = || policy::now() + 3_600_000_000_000;
        let runtime = of_one_worker();
        let shared = runtime.handle().shared().clone();
        let with_worker = |set: &dyn Fn(&Worker)| set(current::worker().expect("on a fiber"));
        runtime.run(|| {
            assert!(!shared.has_live_deadlines());
            with_worker(&|worker| {
                let frame = worker.current.get().unwrap();
                let over = Due::new(frame, frame.waiter.word.snapshot().ticket());
                worker.set_wheel_timer(WheelDue::Wait(over), far());
            });
            assert!(!shared.has_live_deadlines(), "the root runs");
            let (scope, life) = crate::timeout(Duration::from_secs(3600), || {
                assert!(shared.has_live_deadlines(), "a scope with a deadline is open");
                let scope = Here::new().and_then(|here| here.innermost()).expect("a scope is open");
                (scope, scope.life())
            })
            .unwrap();
            let due = ScopeDue { scope, life, what: ScopeTimer::Grace };
            with_worker(&|worker| _ = worker.set_wheel_timer(WheelDue::Scope(due), far()));
            assert!(!shared.has_live_deadlines(), "the scope is closed");
            let alarm = Alarm::set(far(), std::task::Waker::noop()).unwrap();
            assert!(shared.has_live_deadlines(), "an alarm is set");
            drop(alarm);
            assert!(!shared.has_live_deadlines(), "the alarm is gone");
            // SAFETY: it keeps nothing that belongs to a thread of the system.
            let moving = unsafe { crate::Builder::new().own_locals().moving() };
            if let Ok(sleeps) = moving.spawn(|| crate::sleep(Duration::from_secs(3600))) {
                while !shared.has_live_deadlines() {
                    crate::yield_now();
                }
                sleeps.cancel();
                assert!(sleeps.join().is_err());
            }
            assert!(!shared.has_live_deadlines(), "the sleeper is cancelled");
        });
    }
}
