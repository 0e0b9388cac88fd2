//! The lower half of the flight recorder: what each worker notes, on a tape of its own, while a recording is wanted.
//!
//! Above: `trace`, which switches it on, copies the tapes and makes a file of them. Below: `prim::tape`.
//!
//! *Off* it costs nothing, because no path asks for it; instead, paths are led elsewhere by tests that they make anyway:
//!
//! * a turn of the loop: there are two loops (`Worker::turns`), and a worker changes to the attentive one at its next fair point, or when
//!   it wakes;
//! * a wake: a worker that records does not take itself for the home of any fiber ([`Flight::mark`]), and so every wake goes the long way
//!   round, through `enqueue_elsewhere`;
//! * a spawn: `UNCAPPED` is not among the base flags of a runtime that records, as if it had a cap of fibers, and every spawn goes its slow
//!   way; a stack is not handed on (`succession.rs`) for the same reason.
//!
//! Invariants
//! * A tape is written by its worker alone; the one of threads from outside under its lock.
//! * One generation of the recorder: even while it is off. A worker whose own differs from the process's settles that before it sleeps
//!   again, and at its fair points. What it does before is not noted.
//! * A turn is noted when it ends, with both its times. The end of one is the beginning of the next, unless the worker had nothing to run
//!   in between: one look at the cycle counter per turn.

use std::cell::Cell;
use std::panic::Location;
use std::ptr;
use std::sync::Arc;

use super::shared::RuntimeShared;
use super::worker::{Worker, signal};
use crate::fiber::frame::{FrameRef, flag};
use crate::fiber::outcome::FiberEnd;
use crate::prim::atomic::{AtomicU64, Ordering};
use crate::prim::cell::OwnerCell;
use crate::prim::policy;
use crate::prim::sync::{Mutex, MutexGuard};
use crate::prim::tape::{Copied, Tape, TapeEntry, WORDS};
use crate::waiter::word::{ARM_CANCEL, ARM_TIMEOUT, is_spec_asserted};

/// What an entry is about: the lowest byte of its first word.
mod kind {
    // Numbers that tell entries apart; 0 is none, so that memory that was never written is no entry.
    pub(super) const TURN: u64 = 1;
    pub(super) const WAKE: u64 = 2;
    pub(super) const SPAWN: u64 = 3;
    pub(super) const STEAL: u64 = 4;
    pub(super) const NAME: u64 = 5;
    pub(super) const CANCEL: u64 = 6;
}

/// Bytes of a name that fit into an entry.
const NAME_BYTES: usize = (WORDS - 2) * 8;
/// Tapes of workers that have ended which are kept.
const KEPT: usize = 32;

/// Counts changes of the recorder between off (even) and on (odd).
static GENERATION: AtomicU64 = AtomicU64::new(0);
static TAPES: Mutex<Registry> = Mutex::new(Registry { wanted: 0, tracks: Vec::new() });
/// The tape of threads that are no workers, which write under this lock. Taken inside of others, and nothing is locked under it.
static OUTSIDE_TAPE: Mutex<Option<Arc<Track>>> = Mutex::new(None);

/// The tapes of the process, and how many want them.
#[derive(Debug, Default)]
struct Registry {
    wanted: usize,
    tracks: Vec<Arc<Track>>,
}

/// The lock of the registry, over a fork.
pub(crate) struct TapesLock {
    tapes: MutexGuard<'static, Registry>,
}

/// The other lock, over a fork.
pub(crate) struct OutsideTapeLock {
    tape: MutexGuard<'static, Option<Arc<Track>>>,
}

impl TapesLock {
    pub(crate) fn take() -> Self {
        Self { tapes: TAPES.lock() }
    }

    /// In the child of a fork nothing is recorded. The tapes are neither read nor freed there: only plain memory is touched.
    pub(crate) fn forget_in_child(&mut self) {
        self.tapes.wanted = 0;
        std::mem::forget(std::mem::take(&mut self.tapes.tracks));
        if is_on() {
            GENERATION.fetch_add(1, Ordering::Relaxed); // Relaxed: the child has one thread.
        }
    }
}

impl OutsideTapeLock {
    pub(crate) fn take() -> Self {
        Self { tape: OUTSIDE_TAPE.lock() }
    }

    /// As [`TapesLock::forget_in_child`].
    pub(crate) fn forget_in_child(&mut self) {
        std::mem::forget(self.tape.take());
    }
}

/// A tape and whose it is.
#[derive(Debug)]
pub(crate) struct Track {
    tape: Tape,
    /// The fiber that runs there; 0: none. And since when, in cycles.
    running: AtomicU64,
    since: AtomicU64,
    /// The name of the runtime.
    pub(crate) runtime: String,
    /// `None`: threads that are no workers.
    pub(crate) worker: Option<usize>,
}

impl Track {
    fn new(runtime: String, worker: Option<usize>) -> Arc<Self> {
        let (running, since) = (AtomicU64::new(0), AtomicU64::new(policy::cycles()));
        Arc::new(Self { tape: Tape::new(), running, since, runtime, worker })
    }

    /// What is on the tape, and what runs now: a turn that has not ended.
    pub(crate) fn copy(&self) -> (Copied, Option<Event>) {
        // Relaxed, both: a hint. A turn that ends meanwhile is on the tape too, and then this one begins before its end.
        let (fiber, start) = (self.running.load(Ordering::Relaxed), self.since.load(Ordering::Relaxed));
        let copied = self.tape.copy();
        let open =
            Event::Turn { fiber, start, end: policy::cycles(), left: Left::Runs, reason: 0, object: 0, site: None };
        (copied, (fiber != 0).then_some(open))
    }
}

/// Why a wait was over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// What another fiber did, or its end.
    Fiber = 0,
    Timer = 1,
    Io = 2,
    Cancel = 3,
    /// Something that the worker did on its own stack.
    Scheduler = 4,
    /// A thread that is no worker.
    Outside = 5,
    /// It was called before it had left its stack; by what, was not noted.
    Early = 6,
}

impl Cause {
    const ALL: [Self; 7] =
        [Self::Fiber, Self::Timer, Self::Io, Self::Cancel, Self::Scheduler, Self::Outside, Self::Early];
}

/// Why a fiber left its worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// It has not: this is how it was found.
    Runs,
    Yielded,
    Parked,
    /// A future that is not ready.
    Pending,
    Returned,
    Panicked,
    Cancelled,
}

impl Left {
    fn from_signal(signal: usize) -> Self {
        const PANICKED: usize = signal::ENDED + FiberEnd::Panicked as usize;
        match signal {
            signal::YIELD => Self::Yielded,
            signal::PENDING => Self::Pending,
            signal::RETURNED => Self::Returned,
            PANICKED => Self::Panicked,
            ended if ended >= signal::ENDED => Self::Cancelled,
            _ => Self::Parked,
        }
    }

    /// Was that its end?
    pub(crate) fn is_end(self) -> bool {
        matches!(self, Self::Returned | Self::Panicked | Self::Cancelled)
    }
}

/// An entry, as `trace` reads it. Times are in cycles.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Turn {
        fiber: u64,
        start: u64,
        end: u64,
        left: Left,
        /// Of a fiber that parked: a `WaitReason` as a number, its object and its place.
        reason: u8,
        object: u64,
        site: Option<&'static Location<'static>>,
    },
    /// `by`: the fiber that ran then, or 0.
    Wake {
        fiber: u64,
        at: u64,
        by: u64,
        cause: Cause,
    },
    Spawn {
        fiber: u64,
        at: u64,
        by: u64,
        site: Option<&'static Location<'static>>,
    },
    Steal {
        at: u64,
        count: u64,
        victim: u64,
    },
    /// The name of a fiber that has ended.
    Name {
        fiber: u64,
        name: String,
    },
    /// It was asked to end.
    Cancel {
        fiber: u64,
        at: u64,
        by: u64,
    },
}

impl Event {
    /// What an entry says. `None`: nothing that is known here.
    pub(crate) fn decode(entry: &TapeEntry) -> Option<Self> {
        let [first, fiber, at, by, object, place, ..] = *entry;
        Some(match first & 0xFF {
            kind::TURN => Self::Turn {
                fiber,
                start: at,
                end: by,
                left: Left::from_signal((first >> 8 & 0xFF) as usize),
                reason: (first >> 16) as u8,
                object,
                site: site(place),
            },
            kind::WAKE => Self::Wake { fiber, at, by, cause: *Cause::ALL.get((first >> 8) as usize)? },
            kind::SPAWN => Self::Spawn { fiber, at, by, site: site(place) },
            kind::STEAL => Self::Steal { at, count: by, victim: object },
            kind::CANCEL => Self::Cancel { fiber, at, by },
            kind::NAME => {
                let bytes: Vec<u8> = entry[2..].iter().flat_map(|word| word.to_le_bytes()).collect();
                let len = ((first >> 8) as usize).min(NAME_BYTES);
                Self::Name { fiber, name: String::from_utf8_lossy(&bytes[..len]).into_owned() }
            }
            _ => return None,
        })
    }
}

/// The place that a word of an entry names.
fn site(word: u64) -> Option<&'static Location<'static>> {
    let place: *const Location<'static> = ptr::with_exposed_provenance(word as usize);
    // SAFETY: what is copied from a tape is as it was written (`prim::tape`), and only addresses of `&'static Location`s, and 0, are
    // written as places: by `note_turn`, from the wait record, and by `note_spawn`.
    unsafe { place.as_ref() }
}

// ---- The process ---------------------------------------------------------------------------------------------------------

/// Is the recorder on?
#[inline]
pub(crate) fn is_on() -> bool {
    generation() % 2 == 1
}

#[inline(always)]
fn generation() -> u64 {
    // Relaxed: a number; a worker that sees it later notes later.
    GENERATION.load(Ordering::Relaxed)
}

/// One more wants the recorder on. Every worker notes what it does from its next fair point on; the calling one from now on.
/// `runtimes`: those of the process.
pub(crate) fn want(runtimes: fn() -> Vec<Arc<RuntimeShared>>) {
    let mut registry = TAPES.lock();
    registry.wanted += 1;
    if registry.wanted == 1 {
        *OUTSIDE_TAPE.lock() = Some(Track::new(String::new(), None));
        turn(true, runtimes);
    }
    drop(registry);
    if let Some(worker) = super::current::worker() {
        worker.settle_flight();
        // (It is in the other loop still.)
        worker.flight.is_loop_settled.set(false);
        worker.look_around();
    }
}

/// A caller of `want` no longer wants the recording. When the last one has gone, the tapes are given up.
pub(crate) fn unwant(runtimes: fn() -> Vec<Arc<RuntimeShared>>) {
    let mut registry = TAPES.lock();
    registry.wanted = registry.wanted.saturating_sub(1);
    if registry.wanted == 0 {
        turn(false, runtimes);
        let gone = (std::mem::take(&mut registry.tracks), OUTSIDE_TAPE.lock().take());
        drop(registry);
        drop(gone);
    }
}

/// Under the lock of the registry.
fn turn(on: bool, runtimes: fn() -> Vec<Arc<RuntimeShared>>) {
    if is_on() != on {
        GENERATION.fetch_add(1, Ordering::Relaxed); // Relaxed: see `generation`.
    }
    runtimes().iter().for_each(|runtime| lead(runtime, on));
}

/// Leads the spawns of a runtime the slow way, or back; see the header.
fn lead(runtime: &RuntimeShared, on: bool) {
    if !runtime.has_plain_ends() || on {
        return runtime.base_flags.lower(flag::UNCAPPED);
    }
    // Announced (SeqCst), then looked: pairs with `RuntimeShared::refuse`, which closes the runtime and then lowers the flag. If it has
    // lowered it before, the closing is seen here, and the flag is lowered once more.
    runtime.base_flags.announce(flag::UNCAPPED);
    if runtime.is_closing() {
        runtime.base_flags.lower(flag::UNCAPPED);
    }
}

/// A runtime has been built.
pub(crate) fn add_runtime(runtime: &RuntimeShared) {
    let registry = TAPES.lock();
    lead(runtime, registry.wanted > 0);
}

/// The tapes, of workers that have ended too.
pub(crate) fn tracks() -> Vec<Arc<Track>> {
    let registry = TAPES.lock();
    registry.tracks.iter().chain(&*OUTSIDE_TAPE.lock()).cloned().collect()
}

fn add_track(track: &Arc<Track>) {
    let mut registry = TAPES.lock();
    let ended = registry.tracks.iter().filter(|track| Arc::strong_count(track) == 1).count();
    let mut surplus = ended.saturating_sub(KEPT - 1);
    registry.tracks.retain(|track| {
        let goes = surplus > 0 && Arc::strong_count(track) == 1;
        surplus -= usize::from(goes);
        !goes
    });
    if registry.wanted > 0 {
        registry.tracks.push(track.clone());
    }
}

/// A thread that is no worker has woken this fiber, which is RUNNABLE and in its hands.
pub(super) fn note_wake_outside(frame: FrameRef) {
    if let Some(track) = &*OUTSIDE_TAPE.lock() {
        // (The lock makes this thread the one writer.)
        track.tape.write([kind::WAKE | cause_of(frame, Cause::Outside), id(frame), policy::cycles(), 0]);
    }
}

/// A fiber was spawned, on this worker or from outside.
pub(crate) fn note_spawn(worker: Option<&Worker>, frame: FrameRef, place: &'static Location<'static>) {
    let place = ptr::from_ref(place).expose_provenance() as u64;
    let entry = |by: u64| [kind::SPAWN, id(frame), policy::cycles(), by, 0, place];
    match worker {
        Some(worker) => worker.flight.note(|track| track.tape.write(entry(worker.flight.by.get()))),
        None => {
            if let Some(track) = &*OUTSIDE_TAPE.lock() {
                track.tape.write(entry(0));
            }
        }
    }
}

/// A fiber was asked to end, for the first time. The caller keeps the frame from being recycled.
pub(crate) fn note_cancel(frame: FrameRef) {
    if let Some(worker) = super::current::worker() {
        let entry = || [kind::CANCEL, id(frame), policy::cycles(), worker.flight.by.get()];
        worker.flight.note(|track| track.tape.write(entry()));
    }
}

fn id(frame: FrameRef) -> u64 {
    // Relaxed: the id of a live fiber does not change.
    frame.id.load(Ordering::Relaxed)
}

/// What the wait was completed for: time and cancellation have arms of their own.
fn cause_of(frame: FrameRef, otherwise: Cause) -> u64 {
    let cause = match frame.waiter.word.snapshot().arm() {
        ARM_TIMEOUT => Cause::Timer,
        ARM_CANCEL => Cause::Cancel,
        _ => otherwise,
    };
    (cause as u64) << 8
}

// ---- A worker ------------------------------------------------------------------------------------------------------------

/// A worker's part: owner-only.
#[derive(Debug)]
pub(crate) struct Flight {
    /// The worker notes what it does if there is one.
    track: OwnerCell<Option<Arc<Track>>>,
    /// What of the process's generations it has seen.
    generation: Cell<u64>,
    /// Has its loop been asked since, whether it is the right one?
    is_loop_settled: Cell<bool>,
    /// The fiber that runs, or whose turn is being concluded; 0: none.
    by: Cell<u64>,
    /// What the worker does on its own stack.
    doing: Cell<Cause>,
    /// The runtime whose fibers this worker takes for its own in `enqueue`; null while it records. See the header.
    mark: Cell<*const RuntimeShared>,
}

impl Flight {
    pub(super) fn new(shared: *const RuntimeShared) -> Self {
        Self {
            track: OwnerCell::new(None),
            generation: Cell::new(0),
            is_loop_settled: Cell::new(true),
            by: Cell::new(0),
            doing: Cell::new(Cause::Scheduler),
            mark: Cell::new(shared),
        }
    }

    #[inline(always)]
    pub(super) fn mark(&self) -> *const RuntimeShared {
        self.mark.get()
    }

    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        self.mark.get().is_null()
    }

    /// Has the recorder been switched on or off since this worker looked?
    #[inline(always)]
    pub(super) fn is_stale(&self) -> bool {
        self.generation.get() != generation() || !self.is_loop_settled.get()
    }

    #[inline(always)]
    fn note(&self, write: impl FnOnce(&Track)) {
        self.track.with(|track| {
            if let Some(track) = track {
                write(track);
            }
        });
    }
}

impl Worker {
    /// Switches this worker's recorder on or off, as the process wants it.
    pub(super) fn settle_flight(&self) {
        let generation = generation();
        self.flight.is_loop_settled.set(true);
        if self.flight.generation.replace(generation) == generation {
            return;
        }
        let on = generation % 2 == 1;
        let track = on.then(|| Track::new(self.shared.config.name.clone(), Some(self.index)));
        if let Some(track) = &track {
            add_track(track);
        }
        let running = self.current.get().map_or(0, id);
        self.flight.by.set(running);
        if let Some(track) = &track {
            track.running.store(running, Ordering::Relaxed); // Relaxed: as in `Track::copy`.
        }
        drop(self.flight.track.with(|place| std::mem::replace(place, track)));
        self.flight.mark.set(if on { ptr::null() } else { self.shared_at });
        self.settle_hand_on();
    }

    /// Is this worker in the wrong loop? Settles what the recorder wants first.
    #[cold]
    #[inline(never)]
    pub(super) fn is_to_change(&self, attentive: bool) -> bool {
        self.settle_flight();
        self.is_attentive() != attentive
    }

    /// Is the loop the one that asserts transitions and notes turns?
    pub(super) fn is_attentive(&self) -> bool {
        is_spec_asserted() || self.flight.is_on()
    }

    /// A turn begins.
    #[inline(always)]
    pub(super) fn begin_turn(&self, frame: FrameRef) {
        let id = id(frame);
        self.flight.by.set(id);
        // Relaxed: as in `Track::copy`.
        self.flight.note(|track| track.running.store(id, Ordering::Relaxed));
    }

    /// The fiber is off its stack, and nothing was done about that yet.
    #[inline(always)]
    pub(super) fn note_turn(&self, frame: FrameRef, said: usize) {
        self.flight.note(|track| {
            let now = policy::cycles();
            // Relaxed, all: as in `Track::copy`.
            let start = track.since.load(Ordering::Relaxed);
            track.since.store(now, Ordering::Relaxed);
            track.running.store(0, Ordering::Relaxed);
            let (reason, object, place) = match frame.top() {
                Some(top) if said == signal::PARK || said == signal::PARK_BOUND => top.wait_words(),
                _ => (0, 0, 0),
            };
            let first = kind::TURN | (said as u64) << 8 | u64::from(reason) << 16;
            track.tape.write([first, id(frame), start, now, object, place]);
        });
        if said >= signal::ENDED && frame.has(flag::EXTRAS) {
            self.note_name(frame);
        }
    }

    #[cold]
    fn note_name(&self, frame: FrameRef) {
        // SAFETY: its own worker asks, and it has not been recycled.
        let Some(name) = (unsafe { frame.extras() }).and_then(|extras| extras.name.as_deref()) else { return };
        let mut len = name.len().min(NAME_BYTES);
        while !name.is_char_boundary(len) {
            len -= 1;
        }
        let mut entry: TapeEntry = [0; WORDS];
        entry[0] = kind::NAME | (len as u64) << 8;
        entry[1] = id(frame);
        for (at, byte) in name.as_bytes()[..len].iter().enumerate() {
            entry[2 + at / 8] |= u64::from(*byte) << (at % 8 * 8);
        }
        self.flight.note(|track| track.tape.write(entry));
    }

    /// A turn is over, and what it brought with it is done.
    #[inline(always)]
    pub(super) fn conclude_turn(&self) {
        self.flight.by.set(0);
    }

    /// The worker had nothing to run, or looked after timers and descriptors: the next turn begins now.
    pub(super) fn note_idle_end(&self) {
        // Relaxed: as in `Track::copy`.
        self.flight.note(|track| track.since.store(policy::cycles(), Ordering::Relaxed));
    }

    /// This fiber, which is RUNNABLE and in the caller's hands, was woken here.
    pub(super) fn note_wake(&self, frame: FrameRef) {
        let by = self.flight.by.get();
        let cause = if by == 0 { self.flight.doing.get() } else { Cause::Fiber };
        self.note_wake_as(frame, by, cause);
    }

    /// This fiber was woken while it parked.
    pub(super) fn note_early_wake(&self, frame: FrameRef) {
        self.note_wake_as(frame, 0, Cause::Early);
    }

    fn note_wake_as(&self, frame: FrameRef, by: u64, cause: Cause) {
        let entry = || [kind::WAKE | cause_of(frame, cause), id(frame), policy::cycles(), by];
        self.flight.note(|track| track.tape.write(entry()));
    }

    /// So many unstarted fibers were taken from that worker.
    pub(super) fn note_steal(&self, count: usize, victim: usize) {
        let entry = || [kind::STEAL, 0, policy::cycles(), count as u64, victim as u64];
        self.flight.note(|track| track.tape.write(entry()));
    }

    /// Whether wakes that follow come of readiness of descriptors.
    pub(super) fn note_io(&self, begins: bool) {
        self.flight.doing.set(if begins { Cause::Io } else { Cause::Scheduler });
    }
}
