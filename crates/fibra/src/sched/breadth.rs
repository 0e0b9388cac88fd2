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
//! A runtime in which no fiber asks pays for one flag at each sleep.
//!
//! Above: `task::place`. Below: `stretch.rs`, `dealing.rs`, `stats.rs`, and the kernel's count of how long a thread waited.

use std::cell::{Cell, OnceCell};

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
/// A widening that is taken back within this time was wrong.
const TRIAL: u64 = 1_000_000_000;

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

#[derive(Clone, Copy, Debug)]
struct Plan {
    /// [`ALL`], or less than there are workers.
    width: usize,
    changed_at: u64,
    /// The last change was a widening.
    is_wider: bool,
    widen_from: u64,
    pause: u64,
}

impl Plan {
    const fn new() -> Self {
        Self { width: ALL, changed_at: 0, is_wider: false, widen_from: 0, pause: FIRST_PAUSE }
    }

    /// A worker says that there is one too many, of so many.
    fn narrow(&mut self, now: u64, workers: usize) {
        let width = self.width.min(workers);
        if width <= 1 || now < self.changed_at + SETTLING {
            return;
        }
        if self.is_wider {
            let was_wrong = now < self.changed_at + TRIAL;
            self.pause = if was_wrong { (2 * self.pause).min(LONGEST_PAUSE) } else { FIRST_PAUSE };
        }
        *self = Self { width: width - 1, changed_at: now, is_wider: false, widen_from: now + self.pause, ..*self };
    }

    /// A worker says that all those within the width are saturated; there are so many workers.
    fn widen(&mut self, now: u64, workers: usize) {
        if self.width < workers && now >= self.widen_from {
            let width = if self.width + 1 < workers { self.width + 1 } else { ALL };
            *self = Self { width, changed_at: now, is_wider: true, ..*self };
        }
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

    fn change(&self, change: impl FnOnce(&mut Plan)) {
        let mut plan = self.plan.lock();
        change(&mut plan);
        // Relaxed: as in `width`.
        self.width.store(plan.width, Ordering::Relaxed);
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
    /// So many more go to this worker, unless it comes to rest before.
    going: Cell<(u64, usize)>,
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
            going: Cell::new((0, 0)),
        }
    }

    /// The worker has slept for so long, until now. True: it sleeps shortly, and waits for a processor; `waited`: for how long in all, so
    /// far.
    fn note_sleep(&self, nanos: u64, now: u64, waited: impl FnOnce() -> Option<u64>) -> bool {
        self.awake.end();
        self.going.set((0, 0));
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

    /// Of a worker with so many fibers that could run, how many go to one with so many?
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
        let own = self.stats().runnable();
        if own < WAITING {
            return None;
        }
        let (left, to) = self.rhythm.going.get();
        if left > 0 && to < width {
            self.rhythm.going.set((left - 1, to));
            return Some(to);
        }
        self.rhythm.awake.note(policy::cycles(), SATURATED / 2, || self.times());
        if !self.rhythm.awake.is_long() {
            return None;
        }
        self.rhythm.awake.begin(policy::cycles());
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
            self.shared.breadth.change(|plan| plan.widen(now, self.shared.permanent()));
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
            Some((share @ 1.., worker)) => {
                self.rhythm.going.set((share - 1, worker));
                Some(worker)
            }
            _ => {
                self.shared.breadth.change(|plan| plan.widen(now, self.shared.permanent()));
                None
            }
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
        let is_one_too_many = self.rhythm.note_sleep(now.saturating_sub(since), now, || self.rhythm.waited());
        if is_one_too_many && self.shared.config.gather {
            self.shared.breadth.change(|plan| plan.narrow(now, self.shared.permanent()));
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
mod tests {
    use super::{ALL, FIRST_PAUSE, LONGEST_PAUSE, LOOK, OLD_LOOK, Plan, Rhythm, SETTLING, SHORT, TRIAL};

    /// Of a worker that has slept for so long, many times.
    fn rhythm_of(nanos: u64) -> Rhythm {
        let rhythm = Rhythm::new();
        for _ in 0..200 {
            assert!(!rhythm.note_sleep(nanos, 1, || None));
        }
        rhythm
    }

    /// Two sleeps, [`LOOK`] apart, of a thread that waited for this share of the time: is there a worker too many?
    fn is_one_too_many(rhythm: &Rhythm, from: u64, share: f64) -> bool {
        let nanos = rhythm.average.get();
        assert!(!rhythm.note_sleep(nanos, from, || Some(1000)), "one look says nothing");
        rhythm.note_sleep(nanos, from + LOOK, || Some(1000 + (LOOK as f64 * share) as u64))
    }

    #[test]
    fn a_worker_that_sleeps_shortly_and_waits_for_a_processor_is_one_too_many() {
        assert!(is_one_too_many(&rhythm_of(SHORT / 2), LOOK, 0.2));
        assert!(!is_one_too_many(&rhythm_of(SHORT / 2), LOOK, 0.1), "it has its processor");
        assert!(!is_one_too_many(&rhythm_of(2 * SHORT), LOOK, 0.9), "its sleeps are not short");
        assert!(!is_one_too_many(&Rhythm::new(), LOOK, 0.9), "it has not slept yet");
    }

    #[test]
    fn it_looks_seldom_and_believes_no_old_look() {
        let rhythm = rhythm_of(SHORT / 2);
        assert!(!rhythm.note_sleep(1, LOOK, || None), "the kernel does not count");
        assert!(!rhythm.note_sleep(1, LOOK, || Some(0)));
        assert!(!rhythm.note_sleep(1, 2 * LOOK - 1, || panic!("it has just looked")));
        assert!(!rhythm.note_sleep(1, LOOK + OLD_LOOK, || Some(OLD_LOOK)), "that was long ago");
        assert!(rhythm.note_sleep(1, 2 * LOOK + OLD_LOOK, || Some(OLD_LOOK + LOOK)));
    }

    #[test]
    fn work_goes_where_there_is_less_than_half_as_much() {
        assert_eq!(Rhythm::share(20, 0), 10);
        assert_eq!(Rhythm::share(20, 9), 5);
        assert_eq!(Rhythm::share(20, 10), 0);
        assert_eq!(Rhythm::share(3, 0), 1);
        assert_eq!(Rhythm::share(2, 0), 0, "one waits while one runs");
    }

    #[test]
    fn the_width_is_between_one_and_all_and_changes_slowly() {
        let mut plan = Plan::new();
        plan.narrow(SETTLING - 1, 3);
        assert_eq!(plan.width, ALL, "it has just begun");
        plan.narrow(SETTLING, 3);
        plan.narrow(2 * SETTLING - 1, 3);
        assert_eq!(plan.width, 2);
        plan.narrow(2 * SETTLING, 3);
        plan.narrow(9 * SETTLING, 3);
        assert_eq!(plan.width, 1);
        plan.widen(2 * SETTLING + FIRST_PAUSE - 1, 3);
        assert_eq!(plan.width, 1);
        plan.widen(2 * SETTLING + FIRST_PAUSE, 3);
        assert_eq!(plan.width, 2);
        for _ in 0..5 {
            plan.widen(2 * SETTLING + FIRST_PAUSE, 3);
        }
        assert_eq!(plan.width, ALL);
    }

    #[test]
    fn a_widening_that_was_wrong_is_tried_again_later_and_later() {
        let (mut plan, mut now) = (Plan::new(), SETTLING);
        plan.narrow(now, 2);
        for round in 1..12 {
            now = plan.widen_from;
            plan.widen(now, 2);
            assert_eq!(plan.width, ALL);
            now += SETTLING;
            plan.narrow(now, 2);
            assert_eq!((plan.width, plan.widen_from - now), (1, (FIRST_PAUSE << round).min(LONGEST_PAUSE)));
        }
        now = plan.widen_from;
        plan.widen(now, 2);
        plan.narrow(now + TRIAL, 2);
        assert_eq!(plan.pause, FIRST_PAUSE, "that one was right for a while");
    }
}
