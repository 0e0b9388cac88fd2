//! What a worker does when its own queues are empty: which workers it steals from, how long it searches, what it sleeps in. The steps
//! themselves, in their order, are in `sleep.rs`.
//!
//! Stealing is gated by age and by what the owner does, on the thief's side (`patience.rs`). Fibers that talk to one another are spawned
//! together and start soon on their spawner's worker (a pair split over two cores costs 20 times as much per message, for ever), while real
//! surplus waits longer.
//!
//! One worker searches at a time, for a bounded time, and less after searches that found nothing. After a few microseconds it gives its
//! processor away between two rounds: the owner that it watches, or the thread that brings it work, may need that very one. What a
//! searcher that gives up may have overlooked (it was too young) is its owner's: that worker is awake, and judges its surplus
//! (`surplus.rs`). If it computes on without switching, the searcher, which saw the surplus before it slept, comes back after a
//! millisecond; and for surplus that came later sysmon wakes one.

use std::cell::{Cell, RefCell};

use super::patience::{Sight, Watched};
use super::shared::{Remote, RuntimeShared};
use super::sleep::{self, Idler, Round, SearchEnd, Staying};
use super::staff::seats::may_leave;
use super::worker::{POLL_CYCLES, Worker};
use crate::driver::Timeout;
use crate::fiber::frame::FrameRef;
use crate::prim::atomic::Ordering;
use crate::prim::{policy, thread};

/// How long a searcher looks around before it sleeps; at most this, halved after each search in vain.
const SEARCH_NANOS: u64 = 80_000;
/// The least it looks around when it was woken to search: long enough to see that an owner stands still, so that what it was woken for
/// ripens.
const MIN_SEARCH_NANOS: u64 = 25_000;
/// How long a worker sleeps that saw unstarted fibers of others before it did: long enough for their owner to switch.
const SURPLUS_NAP_NANOS: u64 = 1_000_000;
/// At most so many fibers are taken at a time.
const STEAL_MOST: usize = 32;
/// Cycles after which a searcher looks at its driver (4 to 20 µs): a system call, where it would otherwise spin.
const SEARCH_POLL_CYCLES: u64 = POLL_CYCLES / 5;
/// So long a searcher spins without giving its processor to others in between.
const SPIN_ALONE_NANOS: u64 = 5_000;
/// Looks at the queues between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 16;

/// A worker's memory of its searches.
#[derive(Debug)]
pub(crate) struct SearchState {
    watched: RefCell<Vec<Option<Watched>>>,
    budget: Cell<u64>,
    /// Tries in a row to get a stack for a fiber while nothing else in the runtime ran.
    pub(super) starved_tries: Cell<u32>,
}

impl SearchState {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            watched: RefCell::new(vec![None; workers]),
            budget: Cell::new(SEARCH_NANOS),
            starved_tries: Cell::new(0),
        }
    }
}

impl Worker {
    /// Nothing to run here: look elsewhere, and sleep if there is nothing anywhere. Returns when it is worth looking at the own queues
    /// again.
    #[inline(never)]
    pub(super) fn find_work(&self) {
        self.publish_stack_counts();
        crate::fiber::trim::see_to_it();
        sleep::find_work(self);
        // Relaxed: a hint. What was sent to a worker without work (`life::homing`) runs at once.
        if self.remote().mail.has_commands.load(Ordering::Relaxed) {
            self.look_around();
        }
    }

    /// Every 61st turn: one from the injector before anything else.
    pub(super) fn take_injected_one(&self) -> Option<FrameRef> {
        while let Some(entry) = self.shared.injector.pop() {
            self.stats().injected.add(1);
            if let Some(frame) = self.start_entry(entry) {
                return Some(frame);
            }
        }
        None
    }
}

impl Remote {
    /// What a thief sees of its unstarted fibers, if there are any.
    fn sight(&self) -> Option<Sight> {
        let (oldest, stays) = self.fresh.oldest()?;
        let len = self.fresh.len();
        // Two counters that grow, but for what is popped: pushes and switches in the same moment do not cancel out.
        let progress = (oldest + len as u64).wrapping_add(self.stats.switches.get() << 32);
        Some(Sight { oldest, len, stays, progress })
    }

    /// The processor time that its thread has used, if it is known.
    pub(super) fn cpu_nanos(&self) -> Option<u64> {
        // Relaxed: a number; a thread that has left has no clock.
        match self.thread.load(Ordering::Relaxed) {
            0 => None,
            thread => policy::cpu_nanos(thread),
        }
    }
}

/// How this worker does what `sleep.rs` says.
impl Idler for Worker {
    type Runtime = RuntimeShared;

    fn runtime(&self) -> &RuntimeShared {
        &self.shared
    }

    fn index(&self) -> usize {
        self.index
    }

    fn has_own_news(&self) -> bool {
        // (The driver is what it sleeps in.)
        if self.wake_for_timers_at().is_some_and(|at| at <= policy::now()) || self.sees_late() {
            self.poll();
            if !self.remote().fresh.is_empty() {
                // A fiber that moves, whose time has come.
                return true;
            }
        }
        if !self.queues.stackless.with(|waiting| waiting.is_empty()) {
            self.retry_stackless();
        }
        !self.is_ready_empty()
    }

    fn has_own_work(&self) -> bool {
        self.has_local_work()
    }

    fn note_injected(&self, count: u64) {
        self.stats().injected.add(count);
    }

    fn wake_for_surplus(&self) {
        Worker::wake_for_surplus(self);
    }

    fn begin_search(&self, woken: bool) -> Round {
        self.stats().searches.add(1);
        let now = policy::now();
        let least = if woken { MIN_SEARCH_NANOS } else { 0 };
        Round { looks: 0, began: now, now, until: now + self.search.budget.get().max(least) }
    }

    /// From a random one on; never waits for a contended one. Young ones are only noted.
    fn steal(&self, round: &Round) -> bool {
        let remotes = &self.shared.remotes[..self.shared.seats.made()];
        let mut watched = self.search.watched.borrow_mut();
        let first = self.policy.with(|policy| policy.first_victim(remotes.len()));
        for offset in 0..remotes.len() {
            let victim = (first + offset) % remotes.len();
            if victim == self.index {
                continue;
            }
            let Some(sight) = remotes[victim].sight() else {
                watched[victim] = None;
                continue;
            };
            let limit = if self.is_temporary() { 1 } else { STEAL_MOST };
            // One whose clock cannot be read always has the processor, as far as we know.
            let time = || remotes[victim].cpu_nanos().unwrap_or(round.now);
            let most = Watched::look(&mut watched[victim], sight, round.now, time).min(limit);
            if most == 0 {
                continue;
            }
            let fresh = &remotes[victim].fresh;
            // SAFETY: this thread is the owner of its worker's deque.
            if let Some(stolen) = unsafe { sleep::steal_from(fresh, &self.remote().fresh, most) } {
                self.stats().stolen.add(stolen as u64);
                self.note_steal(stolen, victim);
                return true;
            }
        }
        false
    }

    fn pause(&self, round: &mut Round) -> Option<SearchEnd> {
        round.looks += 1;
        if round.looks.is_multiple_of(LOOKS_PER_CLOCK) {
            round.now = policy::now();
            if self.wake_for_timers_at().is_some_and(|at| at <= round.now) {
                self.poll();
                return Some(SearchEnd::Timer);
            }
            if self.is_driver_due(SEARCH_POLL_CYCLES) {
                self.look_at_driver();
                if !self.is_ready_empty() {
                    return Some(SearchEnd::Timer);
                }
            }
            if round.now >= round.until {
                return Some(SearchEnd::InVain);
            }
            if round.now.saturating_sub(round.began) > SPIN_ALONE_NANOS {
                thread::yield_now();
            }
        }
        std::hint::spin_loop();
        None
    }

    fn note_search(&self, end: SearchEnd) {
        match end {
            SearchEnd::Found => self.search.budget.set(SEARCH_NANOS),
            // Neither for nor against searching.
            SearchEnd::Interrupted => {}
            SearchEnd::Timer | SearchEnd::InVain => self.search.budget.set(self.search.budget.get() / 2),
        }
    }

    fn rest_at(&self) -> Option<u64> {
        self.thin_stacks();
        Worker::rest_at(self)
    }

    fn block(&self, rest_at: Option<u64>, surplus: bool) {
        self.stats().sleeps.add(1);
        let look_at = (surplus || self.others_have_returns()).then(|| policy::now() + SURPLUS_NAP_NANOS);
        let until = [self.wake_for_timers_at(), self.stackless_retry_at(), rest_at, look_at, self.leave_at()]
            .into_iter()
            .flatten()
            .min();
        // Nothing but others can wake it: it should be looked at whether there are any.
        let until = until.or_else(|| {
            self.shared.sysmon.start_if_late(&self.shared);
            self.shared.own_look.as_ref().and_then(|own| own.before_sleep(&self.shared))
        });
        loop {
            // (Not among the above: it is nothing that fibers could wait for.)
            let look_due = self.thinning.due();
            let since = self.before_sleep();
            self.platform_wait(until.into_iter().chain(look_due).min().map_or(Timeout::Forever, Timeout::Until));
            self.note_sleep(since);
            let now = self.cached_now();
            let is_for_look = look_due.is_some_and(|due| due <= now) && until.is_none_or(|until| now < until);
            if !is_for_look || self.io.driver.with(|driver| driver.has_fetched()) {
                return;
            }
            // For all others it sleeps on: a runtime in which nothing happens is quiet (`quiet.rs`), whatever its stacks hold. What comes
            // meanwhile ends the next wait.
            self.thin_step(now);
        }
    }

    fn see_to_seat(&self) -> Staying {
        self.sit()
    }

    fn has_seat_news(&self, draining: bool) -> bool {
        // What was on its way to it, and kept it here, may have turned back since it looked; the thread that did so woke no sleeper.
        let is_free = || !self.has_bound() && may_leave(&*self.shared, self.index);
        self.is_leaving() != draining || draining && is_free()
    }

    fn after_sleep(&self, unwatched: bool) {
        self.deliver_completions();
        if unwatched {
            self.shared.sysmon.wake(&self.shared);
        }
    }
}
