//! On which worker work goes on that could as well begin anew: a connection between two requests, say.
//!
//! A started fiber stays on its worker. But between two requests a connection is a few values that can be sent: its fiber may end, and
//! another go on with them elsewhere. Such work asks [`Worker::better_place`] at each of these moments; nearly always it should stay.
//! There are three reasons to go:
//!
//! 1. *Its worker leaves.*
//! 2. *Its worker is saturated*: for long it has not slept, has had its processor, and at least [`WAITING`] fibers could run there; and
//!    another worker, which has nothing to do at the moment, has less than half as many. Then so many go there that both have the same.
//! 3. *Workers get in each other's way.* If there are more threads than processors (a client, a compiler beside the server), workers that
//!    each have a few connections sleep and wake all the time, and those that are awake wait for a processor behind other threads,
//!    with all the requests of their connections. A worker that sleeps often and shortly ([`SHORT`]), and yet waits for a processor for
//!    more than an eighth of the time, says that there is one worker too many: work is *gathered*. The runtime's *width* is narrowed by
//!    one, and workers from that number on give theirs to those below.
//!
//! Gathering is tried, not trusted. When a worker is saturated and all others within the width are as busy, the width grows by one.
//! If workers get in each other's way again soon after that, the next widening waits twice as long, up to [`LONGEST_PAUSE`].
//!
//! And it ends with the load for which it was done. When a worker within the width is calm (`calm.rs`), work asks there, and an idle worker
//! has less than half as many fibers, the width grows by one likewise, and work that asks goes from there to that worker until both have
//! the same. It grows for another such worker when that has been done, or has taken too long. That too is a trial, which waits longer and
//! longer if it was wrong; but what a saturated worker needs does not wait for it.
//!
//! A runtime in which no fiber asks pays for one flag at each sleep.
//!
//! Above: `task::place`. Below: `stretch.rs`, `calm.rs`, `dealing.rs`, `stats.rs`, and the kernel's count of how long a thread waited.

use std::cell::{Cell, OnceCell};

use super::calm::Calm;
use super::phase::Phase;
use super::shared::RuntimeShared;
use super::stretch::Stretch;
use super::worker::Worker;
use crate::prim::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::prim::policy::{self, RunQueueClock};
use crate::prim::sync::Mutex;

/// At least so many fibers could run on a worker that is saturated, with the one that runs.
const WAITING: u64 = 3;
/// Cycles for which it has not slept, half of them measured (15 to 40 ms together).
const SATURATED: u64 = 20_000_000;
/// Sleeps of this many nanoseconds on average are short: to fall asleep and to wake costs about as much.
const SHORT: u64 = 30_000;
/// Nanoseconds between two looks at how long the thread waited for a processor.
const LOOK: u64 = 2_000_000;
/// A look that lies further back says nothing about now.
const OLD_LOOK: u64 = 50 * LOOK;
/// After a change of the width nothing is concluded for so long.
const SETTLING: u64 = 3 * LOOK;
/// How long the width is not grown after it was narrowed, at first and at most; doubled when a widening was wrong.
const FIRST_PAUSE: u64 = 100_000_000;
const LONGEST_PAUSE: u64 = 10_000_000_000;
/// A widening that is taken back within this time was wrong. (If there were two, both may have been.)
const TRIAL: u64 = 1_000_000_000;

/// For how long a worker that was calm gives work away.
const AGAIN: u64 = 1_000_000_000;

/// The width if all workers keep their work, however many there are.
const ALL: usize = usize::MAX;

/// What the workers of a runtime know about its width. See the header.
#[derive(Debug)]
pub(crate) struct Breadth {
    /// Does any fiber ask?
    is_asked: AtomicBool,
    /// Workers from this number on hand their work down.
    width: AtomicUsize,
    plan: Mutex<Plan>,
}

/// Why the width is grown.
#[derive(Clone, Copy, Debug)]
enum Why {
    /// One is saturated, and no other within it has room; or one above it finds none that does not stand still.
    Saturated,
    /// One is calm, and work asks there.
    Calm,
}

/// When the width may be grown again, for one of the reasons.
#[derive(Clone, Copy, Debug)]
struct Pause {
    from: u64,
    nanos: u64,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    /// [`ALL`], or less than there are workers.
    width: usize,
    changed_at: u64,
    /// For each reason, when the width was last grown for it, if that was since it was last narrowed.
    grown: [Option<u64>; 2],
    /// For each reason.
    pauses: [Pause; 2],
}

impl Plan {
    const fn new() -> Self {
        Self { width: ALL, changed_at: 0, grown: [None; 2], pauses: [Pause { from: 0, nanos: FIRST_PAUSE }; 2] }
    }

    /// A worker says that there is one too many, of so many.
    fn narrow(&mut self, now: u64, workers: usize) {
        let width = self.width.min(workers);
        if width <= 1 || now < self.changed_at + SETTLING {
            return;
        }
        for (pause, grown) in self.pauses.iter_mut().zip(&mut self.grown) {
            if let Some(at) = grown.take() {
                let was_wrong = now < at + TRIAL;
                pause.nanos = if was_wrong { (2 * pause.nanos).min(LONGEST_PAUSE) } else { FIRST_PAUSE };
            }
            pause.from = now + pause.nanos;
        }
        (self.width, self.changed_at) = (width - 1, now);
    }

    /// A worker says that there is one too few, of so many. True: there is one more from now on.
    fn widen(&mut self, why: Why, now: u64, workers: usize) -> bool {
        let may = self.width < workers && now >= self.pauses[why as usize].from;
        if may {
            self.width = if self.width + 1 < workers { self.width + 1 } else { ALL };
            (self.changed_at, self.grown[why as usize]) = (now, Some(now));
        }
        may
    }
}

impl Breadth {
    pub(super) fn new() -> Self {
        Self { is_asked: AtomicBool::new(false), width: AtomicUsize::new(ALL), plan: Mutex::new(Plan::new()) }
    }

    /// Workers below this number keep their work; [`ALL`] if all do.
    #[inline(always)]
    pub(crate) fn width(&self) -> usize {
        // Relaxed: a hint; work that sees an old one stays until the next request.
        self.width.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn is_asked(&self) -> bool {
        // Relaxed: it decides from when on sleeps are measured.
        self.is_asked.load(Ordering::Relaxed)
    }

    fn change<R>(&self, change: impl FnOnce(&mut Plan) -> R) -> R {
        let mut plan = self.plan.lock();
        let result = change(&mut plan);
        // Relaxed: as in `width`.
        self.width.store(plan.width, Ordering::Relaxed);
        result
    }
}

/// How a worker alternates between work and sleep. See the header.
#[derive(Debug)]
pub(super) struct Rhythm {
    /// How long it sleeps, on average over some sixteen times, in nanoseconds.
    average: Cell<u64>,
    /// When it last looked how long its thread had waited for a processor, and how long that was.
    looked: Cell<Option<Waited>>,
    clock: OnceCell<Option<RunQueueClock>>,
    /// For how long it has not slept.
    awake: Stretch,
    calm: Calm,
    /// Has work asked since it was last found calm?
    has_asked: Cell<bool>,
    /// What goes away at the moment.
    going: Cell<Option<Share>>,
}

/// So many more go to this worker.
#[derive(Clone, Copy, Debug)]
struct Share {
    left: u64,
    to: usize,
    /// Until when, if this one is calm. None: it is saturated, and none of them go any more once it sleeps.
    calm_until: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Waited {
    at: u64,
    nanos: u64,
}

impl Rhythm {
    pub(super) fn new() -> Self {
        Self {
            average: Cell::new(LOOK),
            looked: Cell::new(None),
            clock: OnceCell::new(),
            awake: Stretch::new(),
            calm: Calm::new(),
            has_asked: Cell::new(false),
            going: Cell::new(None),
        }
    }

    /// The worker has slept for so long, until now. True: it sleeps shortly, and waits for a processor; `waited`: for how long in all, so
    /// far.
    fn note_sleep(&self, nanos: u64, now: u64, waited: impl FnOnce() -> Option<u64>) -> bool {
        self.awake.end();
        self.going.set(self.going.get().filter(|share| share.calm_until.is_some()));
        let average = self.average.get();
        // Long sleeps count for at most [`LOOK`], so that a load which begins is noticed within a hundred short ones.
        self.average.set(average - average / 16 + nanos.min(LOOK) / 16);
        let looked = self.looked.get();
        if self.average.get() > SHORT || looked.is_some_and(|looked| now.saturating_sub(looked.at) < LOOK) {
            return false;
        }
        self.looked.set(waited().map(|nanos| Waited { at: now, nanos }));
        match (looked, self.looked.get()) {
            (Some(before), Some(after)) if after.at.saturating_sub(before.at) < OLD_LOOK => {
                8 * after.nanos.saturating_sub(before.nanos) > after.at.saturating_sub(before.at)
            }
            _ => false,
        }
    }

    /// Something asks: is it one of those that go away at the moment, if that may go now? Then where to.
    fn next_to_go(&self, width: usize, now: u64, may_go: impl FnOnce(Share) -> bool) -> Option<usize> {
        let share = self.going.get()?;
        if share.left == 0 || share.to >= width || share.calm_until.is_some_and(|until| now >= until) {
            self.going.set(None);
            return None;
        }
        may_go(share).then(|| {
            self.going.set(Some(Share { left: share.left - 1, ..share }));
            share.to
        })
    }

    /// Do some still go away since this worker was found calm?
    fn is_giving(&self, width: usize, now: u64) -> bool {
        let is_calm = |share: Share| share.calm_until.is_some_and(|until| now < until);
        self.going.get().is_some_and(|share| share.left > 0 && share.to < width && is_calm(share))
    }

    /// Of a worker with so many fibers that could run, or if it is calm of so many fibers, how many go to one with so many?
    fn share(own: u64, other: u64) -> u64 {
        if own >= WAITING && other < own / 2 { ((own - other) / 2).max(1) } else { 0 }
    }

    fn waited(&self) -> Option<u64> {
        self.clock.get_or_init(RunQueueClock::of_this_thread).as_ref()?.nanos()
    }
}

impl Worker {
    /// Where should work go on that asks between two requests? None: here.
    pub(crate) fn better_place(&self) -> Option<usize> {
        let place = self.look_for_better_place();
        if place.is_some() {
            self.stats().departures.add(1);
        }
        place
    }

    fn look_for_better_place(&self) -> Option<usize> {
        let shared = &*self.shared;
        if self.alone {
            return None;
        }
        if shared.config.force_moves {
            // For tests: at every question, to the next worker.
            let next = |worker: &usize| (*worker + shared.remotes.len() - self.index) % shared.remotes.len();
            return self.others_within(ALL).min_by_key(next);
        }
        let breadth = &shared.breadth;
        if !breadth.is_asked() {
            breadth.is_asked.store(true, Ordering::Relaxed); // Relaxed: as in `is_asked`.
        }
        let width = breadth.width();
        if self.index >= width || self.is_leaving() {
            return self.hand_down(width);
        }
        let (rhythm, own) = (&self.rhythm, self.stats().runnable());
        rhythm.has_asked.set(true);
        let may_go = |share: Share| match share.calm_until {
            None => own >= WAITING,
            // (What has begun to run there may be a long computation.)
            Some(_) => matches!(shared.idle.phase(share.to), Phase::Sleep | Phase::Spin),
        };
        if let Some(place) = rhythm.next_to_go(width, self.cached_now(), may_go) {
            return Some(place);
        }
        if own < WAITING {
            return None;
        }
        rhythm.awake.note(policy::cycles(), SATURATED / 2, || self.times());
        if !rhythm.awake.is_long() {
            return None;
        }
        rhythm.awake.begin(policy::cycles());
        self.part(own, width)
    }

    /// This worker keeps nothing that can go. A worker that stands still gets nothing: then this one does better.
    #[cold]
    #[inline(never)]
    fn hand_down(&self, width: usize) -> Option<usize> {
        let now = policy::now();
        let loads = self.others_within(width).map(|worker| self.shared.load_of(worker, false, now));
        let place = loads.filter(|load| !load.stands_still()).min_by_key(|load| load.fibers);
        if place.is_none() && !self.is_leaving() {
            self.shared.breadth.change(|plan| plan.widen(Why::Saturated, now, self.shared.permanent()));
        }
        place.map(|load| load.worker)
    }

    /// This worker is saturated, and so many fibers could run.
    #[cold]
    #[inline(never)]
    fn part(&self, own: u64, width: usize) -> Option<usize> {
        let now = policy::now();
        let loads = self.others_within(width).map(|worker| self.shared.load_of(worker, false, now));
        // (One that computes without a switch looks as if it had little to do. One that is awake now and then is met asleep soon.)
        let loads = loads.filter(|load| load.is_idle).map(|load| (load.runnable + load.coming, load.worker));
        match loads.min().map(|(load, worker)| (Rhythm::share(own, load), worker)) {
            Some((share @ 1.., to)) => {
                self.rhythm.going.set(Some(Share { left: share - 1, to, calm_until: None }));
                Some(to)
            }
            _ => {
                self.shared.breadth.change(|plan| plan.widen(Why::Saturated, now, self.shared.permanent()));
                None
            }
        }
    }

    /// This worker is calm: what was gathered here may spread again. (How many of the fibers can go is not known: those that ask.)
    #[cold]
    #[inline(never)]
    fn spread_again(&self, now: u64) {
        let (breadth, permanent) = (&self.shared.breadth, self.shared.permanent());
        if self.rhythm.is_giving(breadth.width(), now) {
            return;
        }
        let loads = self.others_within(breadth.width().saturating_add(1).min(permanent));
        let loads = loads.map(|worker| self.shared.load_of(worker, false, now)).filter(|load| load.is_idle);
        let Some((fibers, to)) = loads.map(|load| (load.fibers, load.worker)).min() else { return };
        let left = Rhythm::share(self.stats().started.get(), fibers);
        if left > 0 && breadth.change(|plan| plan.widen(Why::Calm, now, permanent)) {
            self.rhythm.going.set(Some(Share { left, to, calm_until: Some(now + AGAIN) }));
        }
    }

    fn others_within(&self, width: usize) -> impl Iterator<Item = usize> {
        self.shared.accepting_workers().filter(move |worker| *worker < width && *worker != self.index)
    }

    /// For a worker that is about to sleep: when that is, if sleeps are measured.
    pub(super) fn before_sleep(&self) -> Option<u64> {
        (!self.alone && self.shared.breadth.is_asked()).then(policy::now)
    }

    /// It is awake again, having looked at the clock.
    pub(super) fn note_sleep(&self, since: Option<u64>) {
        let Some(since) = since else { return };
        let now = self.cached_now();
        let (rhythm, breadth) = (&self.rhythm, &self.shared.breadth);
        let slept = now.saturating_sub(since);
        if rhythm.note_sleep(slept, now, || rhythm.waited()) {
            if self.shared.config.gather {
                breadth.change(|plan| plan.narrow(now, self.shared.permanent()));
            }
        } else if breadth.width() == ALL || self.index >= breadth.width() {
            rhythm.calm.forget();
        } else if rhythm.calm.note_sleep(slept, now, SHORT, || rhythm.waited()) && rhythm.has_asked.replace(false) {
            self.spread_again(now);
        }
    }
}

impl RuntimeShared {
    /// How many workers stay for good.
    fn permanent(&self) -> usize {
        // Relaxed: a number.
        self.base.load(Ordering::Relaxed)
    }

    /// On how many workers work is kept that can move: for reports.
    pub(crate) fn gathered_on(&self) -> usize {
        self.breadth.width().min(self.permanent())
    }
}

#[cfg(test)]
mod tests;
