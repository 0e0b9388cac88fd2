//! Entries of tapes become tracks: what each worker ran, and what each fiber did from its spawn to its end.
//!
//! Above: `mod.rs`, which asks for it, and `chrome.rs`, which writes it. Below: `sched::flight`, whose entries these are.
//!
//! The tapes are copied while workers write them, each at another moment, and the cycle counters of two cores may differ a little. So a
//! track is put in order here, whatever it came from:
//!
//! * times are nanoseconds since the recording began, and none lies before that;
//! * the slices of a track ascend and do not overlap, and each lasts a nanosecond at least;
//! * an arrow goes from a turn that is there to the beginning of a turn that is there, and never back in time. If one end is lost, because
//!   a tape has gone round, there is no arrow.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use crate::inspect;
use crate::inspect::collect::named;
use crate::inspect::{Object, Snapshot};
use crate::prim::policy;
use crate::sched::flight::{Cause, Event, Left, Track};
use crate::wait::reason::WaitReason;

/// A moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    cycles: u64,
    nanos: u64,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self { cycles: policy::cycles(), nanos: policy::now() }
    }
}

/// From cycles to nanoseconds since the beginning.
#[derive(Clone, Copy, Debug)]
struct Clock {
    start: u64,
    nanos_per_cycle: f64,
}

impl Clock {
    /// By two moments: the first is the beginning. The further they are apart, the better.
    fn new(from: Moment, to: Moment) -> Self {
        let cycles = to.cycles.saturating_sub(from.cycles);
        let nanos = to.nanos.saturating_sub(from.nanos);
        let nanos_per_cycle = if cycles == 0 { 1.0 } else { nanos as f64 / cycles as f64 };
        Self { start: from.cycles, nanos_per_cycle }
    }

    fn nanos(self, cycles: u64) -> u64 {
        (cycles.saturating_sub(self.start) as f64 * self.nanos_per_cycle) as u64
    }
}

/// Something that lasted.
#[derive(Debug, Clone)]
pub(super) struct Slice {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) name: String,
    pub(super) details: Vec<(&'static str, String)>,
}

/// Something that happened.
#[derive(Debug, Clone)]
pub(super) struct Mark {
    pub(super) at: u64,
    pub(super) name: String,
}

/// One line of the picture.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) slices: Vec<Slice>,
    pub(super) marks: Vec<Mark>,
}

/// From a turn of one fiber to the beginning of a turn of another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrow {
    pub(super) what: &'static str,
    pub(super) from: (u64, u64),
    pub(super) to: (u64, u64),
}

/// The whole picture. Fibers by their ids.
#[derive(Debug, Default)]
pub(super) struct Picture {
    pub(super) workers: Vec<Line>,
    pub(super) fibers: BTreeMap<u64, Line>,
    pub(super) arrows: Vec<Arrow>,
    /// Entries that were written over.
    pub(super) lost: u64,
}

/// What is known of a fiber.
#[derive(Debug, Default)]
struct Life {
    name: Option<Arc<str>>,
    spawn: Option<(u64, u64)>,
    site: Option<&'static Location<'static>>,
    turns: Vec<RecordedTurn>,
    /// When, by whom, why.
    wakes: Vec<(u64, u64, Cause)>,
    /// When, by whom.
    cancels: Vec<(u64, u64)>,
}

#[derive(Debug, Clone)]
struct RecordedTurn {
    start: u64,
    end: u64,
    worker: usize,
    left: Left,
    wait: Option<(WaitReason, u64, Option<&'static Location<'static>>)>,
}

/// What these tapes say of the time since `from`.
pub(super) fn picture(tracks: &[Arc<Track>], from: Moment) -> Picture {
    let copies: Vec<_> = tracks.iter().map(|track| (track, track.copy())).collect();
    let clock = Clock::new(from, Moment::now());
    // After the tapes: a fiber on a tape that has ended since has its name there.
    let snapshot = inspect::snapshot();
    let mut picture = Picture::default();
    let mut lives: BTreeMap<u64, Life> = BTreeMap::new();
    let mut turns_of_workers: Vec<Vec<(u64, RecordedTurn)>> = Vec::new();
    for (worker, (track, (copied, open))) in copies.into_iter().enumerate() {
        picture.lost += copied.lost;
        let name = match track.worker {
            Some(index) => format!("{}-worker-{index}", track.runtime),
            None => "threads that are no workers".to_owned(),
        };
        let mut line = Line { name, ..Line::default() };
        let mut turns = Vec::new();
        for event in copied.entries.iter().filter_map(Event::decode).chain(open) {
            if let Some((fiber, turn)) = sort_in(event, clock, worker, &mut line, &mut lives) {
                turns.push((fiber, turn));
            }
        }
        line.marks.sort_by_key(|mark| mark.at);
        picture.workers.push(line);
        turns_of_workers.push(turns);
    }
    for fiber in snapshot.fibers() {
        // (Those that did nothing meanwhile are not shown.)
        if let Some(life) = lives.get_mut(&fiber.id.as_u64()) {
            life.name = life.name.take().or_else(|| fiber.name.clone());
            life.site = life.site.or(fiber.spawned_at);
        }
    }
    for (line, turns) in picture.workers.iter_mut().zip(turns_of_workers) {
        line.slices = worker_slices(turns, &lives);
    }
    let end = clock.nanos(policy::cycles());
    lives.values_mut().for_each(Life::put_in_order);
    for (fiber, life) in &lives {
        picture.fibers.insert(*fiber, life.line(*fiber, end, &snapshot));
        life.arrows(*fiber, &lives, &mut picture.arrows);
    }
    picture
}

/// Puts an event where it belongs; a turn comes back.
fn sort_in(
    event: Event,
    clock: Clock,
    worker: usize,
    line: &mut Line,
    lives: &mut BTreeMap<u64, Life>,
) -> Option<(u64, RecordedTurn)> {
    // What was over before the beginning is no part of the picture.
    let is_in = |cycles: u64| cycles >= clock.start;
    match event {
        Event::Turn { fiber, start, end, left, reason, object, site } if is_in(end) => {
            let wait = WaitReason::from_bits(reason).map(|reason| (reason, object, site));
            let turn = RecordedTurn { start: clock.nanos(start), end: clock.nanos(end), worker, left, wait };
            lives.entry(fiber).or_default().turns.push(turn.clone());
            return Some((fiber, turn));
        }
        Event::Wake { fiber, at, by, cause } if is_in(at) => {
            let at = clock.nanos(at);
            lives.entry(fiber).or_default().wakes.push((at, by, cause));
            if by == 0 && cause != Cause::Early {
                line.marks.push(Mark { at, name: format!("{} wakes #{fiber}", cause_text(cause)) });
            }
        }
        Event::Spawn { fiber, at, by, site } if is_in(at) => {
            let life = lives.entry(fiber).or_default();
            (life.spawn, life.site) = (Some((clock.nanos(at), by)), site);
        }
        Event::Steal { at, count, victim } if is_in(at) => {
            let name = format!("steals {count} from worker {victim}");
            line.marks.push(Mark { at: clock.nanos(at), name });
        }
        Event::Cancel { fiber, at, by } if is_in(at) => {
            lives.entry(fiber).or_default().cancels.push((clock.nanos(at), by));
        }
        Event::Name { fiber, name } => {
            // (Without turns it ended before the beginning.)
            if let Some(life) = lives.get_mut(&fiber) {
                life.name = Some(name.into());
            }
        }
        _ => {}
    }
    None
}

fn cause_text(cause: Cause) -> &'static str {
    match cause {
        Cause::Fiber => "a fiber",
        Cause::Timer => "a timer",
        Cause::Io => "I/O readiness",
        Cause::Cancel => "cancellation",
        Cause::Scheduler => "the worker",
        Cause::Outside => "a thread that is no worker",
        Cause::Early => "a call while it was parking",
    }
}

fn left_text(left: Left) -> &'static str {
    match left {
        Left::Runs => "still runs",
        Left::Yielded => "yielded",
        Left::Parked => "parked",
        Left::Pending => "its future is pending",
        Left::Returned => "returned",
        Left::Panicked => "panicked",
        Left::Cancelled => "ended cancelled",
    }
}

/// Lets slices ascend without overlapping: moves this one behind the one that ended at `after`, and gives its end.
fn place(start: &mut u64, end: &mut u64, after: u64) -> u64 {
    *start = (*start).max(after);
    *end = (*end).max(*start + 1);
    *end
}

fn worker_slices(turns: Vec<(u64, RecordedTurn)>, lives: &BTreeMap<u64, Life>) -> Vec<Slice> {
    let mut after = 0;
    let slice = |(fiber, mut turn): (u64, RecordedTurn)| {
        after = place(&mut turn.start, &mut turn.end, after);
        let name = lives.get(&fiber).map_or_else(|| format!("#{fiber}"), |life| life.title(fiber));
        Slice { start: turn.start, end: turn.end, name, details: vec![("then", left_text(turn.left).to_owned())] }
    };
    turns.into_iter().map(slice).collect()
}

impl Life {
    fn title(&self, fiber: u64) -> String {
        self.name.as_ref().map_or_else(|| format!("#{fiber}"), |name| format!("#{fiber} {name}"))
    }

    fn put_in_order(&mut self) {
        self.turns.sort_by_key(|turn| (turn.start, turn.end));
        self.wakes.sort_by_key(|wake| wake.0);
        self.cancels.sort_unstable();
        let mut after = 0;
        for turn in &mut self.turns {
            after = place(&mut turn.start, &mut turn.end, after);
        }
        for number in 0..self.turns.len() {
            let from = number.checked_sub(1).map_or(0, |before| self.turns[before].end);
            let RecordedTurn { start, end, .. } = self.turns[number];
            // A turn is noted as beginning where the one before it on its worker ended: that may be a moment before the wake.
            let next = self.wakes.partition_point(|wake| wake.0 <= from);
            if let Some((at, ..)) = self.wakes.get(next).filter(|wake| wake.0 > start && wake.0 < end) {
                self.turns[number].start = *at;
            }
        }
    }

    /// The wake that ended the wait between these two moments: the last one there. Also one that came a little too early, by a clock that
    /// differs.
    fn wake_between(&self, from: u64, to: u64) -> Option<(u64, u64, Cause)> {
        let until = self.wakes.partition_point(|wake| wake.0 <= to);
        let ended = self.turns.partition_point(|turn| turn.end <= from);
        let before = ended.checked_sub(1).map_or(0, |last| self.turns[last].start);
        self.wakes[..until].last().filter(|wake| wake.0 >= before).copied()
    }

    fn line(&self, fiber: u64, end: u64, snapshot: &Snapshot) -> Line {
        let mut slices = Vec::new();
        if let (Some((spawned, _)), Some(first)) = (self.spawn, self.turns.first()) {
            gap(&mut slices, spawned, first.start, "unstarted", Vec::new());
        }
        for (number, turn) in self.turns.iter().enumerate() {
            let mut details = vec![("worker", turn.worker.to_string()), ("then", left_text(turn.left).to_owned())];
            if number == 0 {
                details.extend(self.site.map(|site| ("spawned_at", site.to_string())));
            }
            slices.push(Slice { start: turn.start, end: turn.end, name: "running".to_owned(), details });
            let next = self.turns.get(number + 1).map(|next| next.start);
            self.between(&mut slices, turn, next, end, snapshot);
        }
        let cancelled = |(at, by): &(u64, u64)| {
            let by = if *by == 0 { String::new() } else { format!(" by #{by}") };
            Mark { at: *at, name: format!("cancelled{by}") }
        };
        let marks = self.cancels.iter().map(cancelled).collect();
        Line { name: self.title(fiber), slices, marks }
    }

    /// What a fiber did between this turn and the next, or until the end of the picture.
    fn between(&self, slices: &mut Vec<Slice>, turn: &RecordedTurn, next: Option<u64>, end: u64, snapshot: &Snapshot) {
        if turn.left.is_end() || turn.left == Left::Runs {
            return;
        }
        let until = next.unwrap_or(end);
        if turn.left == Left::Yielded {
            return gap(slices, turn.end, until, "ready", vec![("by", left_text(turn.left).to_owned())]);
        }
        let wake = self
            .wake_between(turn.end, until)
            .map(|(at, by, cause)| (at.clamp(turn.end, until.max(turn.end)), by, cause));
        let woken = wake.map_or(until, |(at, ..)| at);
        let (name, details) = match turn.wait {
            Some((reason, object, site)) => {
                let mut details = vec![];
                details.extend(object_text(reason, object, snapshot).map(|text| ("object", text)));
                details.extend(site.map(|site| ("at", site.to_string())));
                (reason.to_string(), details)
            }
            None => ("waiting".to_owned(), vec![]),
        };
        gap(slices, turn.end, woken, &name, details);
        if let Some((_, by, cause)) = wake {
            let by = if by == 0 { cause_text(cause).to_owned() } else { format!("#{by}") };
            gap(slices, woken, until, "ready", vec![("woken_by", by)]);
        }
    }

    /// The arrows that end here.
    fn arrows(&self, fiber: u64, lives: &BTreeMap<u64, Life>, arrows: &mut Vec<Arrow>) {
        let mut point = |what, at: u64, by: u64| {
            let to = self.turns.partition_point(|turn| turn.start < at);
            let (Some(to), Some(waker)) = (self.turns.get(to), lives.get(&by)) else { return };
            let begun = waker.turns.partition_point(|turn| turn.start <= at);
            let Some(from) = begun.checked_sub(1).and_then(|last| waker.turns.get(last)) else { return };
            // Inside the turn: what a fiber's end does comes a moment after it.
            let at = at.min(from.end - 1).max(from.start);
            arrows.push(Arrow { what, from: (by, at), to: (fiber, to.start.max(at)) });
        };
        if let Some((at, by)) = self.spawn.filter(|spawn| spawn.1 != 0) {
            point("spawn", at, by);
        }
        for (at, by, _) in self.wakes.iter().filter(|wake| wake.1 != 0) {
            point("wake", *at, *by);
        }
    }
}

/// A slice, if there is time for one.
fn gap(slices: &mut Vec<Slice>, start: u64, end: u64, name: &str, details: Vec<(&'static str, String)>) {
    let start = slices.last().map_or(start, |last| start.max(last.end));
    if start < end {
        slices.push(Slice { start, end, name: name.to_owned(), details });
    }
}

/// What a fiber waited for, in words.
fn object_text(reason: WaitReason, object: u64, snapshot: &Snapshot) -> Option<String> {
    Some(match named(reason, object) {
        Object::Fiber(fiber) => format!("fiber #{}", fiber.as_u64()),
        Object::Channel(id) => {
            let channel = snapshot.channels().iter().find(|channel| channel.id == id);
            match channel.and_then(|channel| channel.name.as_deref()) {
                Some(name) => format!("channel {id} \"{name}\""),
                None => format!("channel {id}"),
            }
        }
        Object::Lock(at) => format!("lock at {at:#x}"),
        Object::Semaphore(at) => format!("semaphore at {at:#x}"),
        Object::Scope(at) => format!("scope at {at:#x}"),
        Object::Socket(descriptor) => format!("descriptor {descriptor}"),
        Object::At(at) => format!("{at:#x}"),
        Object::None | Object::Select(..) => return None,
    })
}
