//! The worker: one OS thread's loop that runs fibers, and the switch into and out of them.
//!
//! Concepts
//! * A *started* fiber lives on one worker for ever: its stack is opaque to the compiler, so it cannot be proved `Send`.
//! * Everything a worker alone touches is in [`Worker`], without atomics; what others touch is in `shared::Remote`.
//! * The *scheduler's stack* is the thread's own. A fiber always suspends to it, saying why with one word; what follows a suspension
//!   (commit a park, put back a yielder, end a fiber) happens there, when nothing runs on the fiber's stack any more.
//!
//! The order of a turn: mail (inbox, commands); every 61st turn the injector; timers and driver if a bounded time has passed;
//! then `next`, `ready` and `fresh` in turn. If all that is empty: injector, timers, steal, spin briefly, sleep (see `search.rs`).
//!
//! Rejected: one global queue (every wake crosses cores: 30 to 60 µs against 3 ns for a switch); moving started fibers (miscompiles
//! programs that use thread-locals); symmetric switching from fiber to fiber (law 3 needs a stack to commit on); running the next fiber
//! on the stack of the one that parks (Go's `schedule` on g0 is the same answer).

use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::breadth::Rhythm;
use super::current;
use super::enqueue::QueueEnd;
use super::flight::Flight;
use super::here::Here;
use super::life::newest;
use super::life::offer::Offers;
use super::overload::Overload;
use super::parts::{Caches, LocalQueues, Looks, Residents, WorkerIo};
use super::queue::Entry;
use super::shared::{Remote, RootRef, RuntimeShared};
use super::staff::elastic::Sitting;
use super::staff::seats::Stay;
use super::stats::WorkerStats;
use super::surplus::Surplus;
use super::sysmon::Sysmon;
use super::timers::timing::Due;
use crate::driver::Driver;
use crate::fiber::context::{self, SchedulerContext};
use crate::fiber::frame::{FrameRef, NO_HOME, RunResult, flag};
use crate::fiber::outcome::FiberEnd;
use crate::fiber::slab::FrameCache;
use crate::fiber::trim;
use crate::prim::atomic::{AtomicU64, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::cell::{OwnerCell, UnsafeCell};
use crate::prim::home_lock::Lane;
use crate::prim::linked::is_linked;
use crate::prim::policy::{self, INJECTOR_PERIOD, Pick, Policy};
use crate::prim::{panics, prefetch};
use crate::sched::timers::heap::Timers;
use crate::waiter::revoke;
use crate::waiter::word::{Commit, Ticket, WaitKind, WaiterState};

/// Why a fiber came back to the scheduler's stack; the word it suspends with.
pub(crate) mod signal {
    pub(crate) const YIELD: usize = 0;
    pub(crate) const PARK: usize = 1;
    /// The same by a fiber that has to come back to this worker: its timer is here. Where all have to, there is no difference.
    pub(crate) const PARK_BOUND: usize = if cfg!(feature = "unstable-migration") { 3 } else { PARK };
    /// A future that is not ready: it keeps no stack.
    pub(crate) const PENDING: usize = 2;
    /// [`YIELD`] and [`PARK`] of a fiber that may go on on another worker; see `life/moving.rs`.
    pub(crate) const YIELD_MOVING: usize = 4;
    pub(crate) const PARK_MOVING: usize = 5;
    /// It ended; the outcome is added.
    pub(crate) const ENDED: usize = 16;
    /// It returned.
    pub(crate) const RETURNED: usize = ENDED + crate::fiber::outcome::FiberEnd::Value as usize;
}

/// Cycles after which a busy worker looks at its timers (20 to 100 µs).
pub(super) const POLL_CYCLES: u64 = 100_000;
/// Cycles after which it looks at its driver, too (100 to 400 µs): a system call, which the requests of that time share.
pub(super) const DRIVER_CYCLES: u64 = 4 * POLL_CYCLES;
/// Fair points after which the cached clock is read anew even if nothing is registered, for `since` in wait records.
const CLOCK_ROUNDS: u32 = 4;
/// Calls that need not wait, in a row, before other fibers of the worker have a turn; see `wait::park`.
pub(crate) const CALLS_PER_TURN: i32 = 512;
/// Ids a worker takes from the process-wide counter at once.
const ID_BLOCK: u64 = 256;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A block of fiber ids for one owner.
pub(crate) fn take_ids(count: u64) -> u64 {
    // Relaxed: unique, that is all.
    NEXT_ID.fetch_add(count, Ordering::Relaxed)
}

/// The half of a worker that only its own thread touches. See the header; its parts are in `parts.rs`.
#[derive(Debug)]
pub(crate) struct Worker {
    // What every switch touches, together.
    pub(crate) current: Cell<Option<FrameRef>>,
    /// What is left of the budget of calls that need not wait; see `wait::park`.
    pub(crate) calls_left: Cell<i32>,
    /// By which the locks of channels know it.
    pub(crate) lane: Lane,
    home: UnsafeCell<SchedulerContext>,
    pub(super) queues: LocalQueues,
    remote: NonNull<Remote>,
    pub(super) looks: Looks,

    pub(crate) index: usize,
    /// Where `shared` is.
    pub(super) shared_at: *const RuntimeShared,
    /// Whether there are no other workers, and never will be.
    pub(super) alone: bool,
    pub(crate) shared: Arc<RuntimeShared>,
    pub(super) policy: OwnerCell<Policy>,
    pub(crate) caches: Caches,
    pub(super) timers: OwnerCell<Timers<Due>>,
    pub(super) io: WorkerIo,
    pub(crate) residents: Residents,
    pub(super) search: super::search::SearchState,
    pub(super) rest: super::rest::Rest,
    pub(super) thinning: super::thinning::Thinning,
    pub(super) offers: Offers,
    surplus: Surplus,
    pub(super) overload: Overload,
    pub(super) rhythm: Rhythm,
    pub(super) sitting: Sitting,
    pub(super) flight: Flight,
}

impl Worker {
    pub(crate) fn new(index: usize, shared: Arc<RuntimeShared>, driver: Driver) -> Self {
        let remote = NonNull::from(&shared.remotes[index]);
        let surplus = Surplus::new(Sysmon::is_wanted(&shared.config));
        let seed = shared.config.seed.map(|seed| seed.wrapping_add(index as u64));
        let policy = Policy::new(seed);
        let seats = shared.remotes.len();
        let is_temporary = shared.seats.stay(index) != Stay::Permanent;
        let flight = Flight::new(Arc::as_ptr(&shared));
        let sitting = Sitting::new(&shared.remotes[index]);
        Self {
            current: Cell::new(None),
            calls_left: Cell::new(CALLS_PER_TURN),
            lane: Lane::new(),
            home: UnsafeCell::new(SchedulerContext::default()),
            queues: LocalQueues::new(policy.chain_length()),
            remote,
            looks: Looks::new(if is_temporary { 1 } else { INJECTOR_PERIOD }),
            index,
            shared_at: Arc::as_ptr(&shared),
            alone: seats == 1,
            caches: Caches::new(shared.config.stack_size),
            shared,
            policy: OwnerCell::new(policy),
            timers: OwnerCell::new(Timers::new()),
            io: WorkerIo::new(driver),
            residents: Residents::new(),
            search: super::search::SearchState::new(seats),
            rest: super::rest::Rest::new(),
            thinning: super::thinning::Thinning::new(),
            offers: Offers::new(),
            surplus,
            overload: Overload::new(),
            rhythm: Rhythm::new(),
            sitting,
            flight,
        }
    }

    #[inline(always)]
    pub(super) fn remote(&self) -> &Remote {
        // SAFETY: points into `self.shared`, which this worker keeps alive.
        unsafe { self.remote.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn stats(&self) -> &WorkerStats {
        &self.remote().stats
    }

    /// The worker's clock, as of its last look.
    #[inline(always)]
    pub(crate) fn cached_now(&self) -> u64 {
        self.looks.clock.get()
    }

    /// Runs fibers until `over` says so (asked whenever there is nothing to do, and after every fiber that ends).
    pub(crate) fn run_loop(&self, over: impl Fn() -> bool) {
        current::set_worker(self);
        // A loop inside a destructor of a thread that unwinds: it is that thread's frame below, and none of the fibers. (Asked in any case,
        // so that it is on this stack that a thread asks first.)
        let suspended = current::suspended_unwindings();
        let before = suspended.get();
        let below = match panics::count() {
            Some(count) => (count as u32).saturating_sub(before),
            None => u32::from(before == 0 && std::thread::panicking()),
        };
        suspended.set(before + below);
        // SAFETY: nothing runs from this loop yet.
        let words = self.home.with_mut(|home| unsafe { (*home).enter() });
        // Two loops, so that the one that neither checks nor records does not ask each time.
        self.settle_flight();
        while !if self.is_attentive() { self.turns::<true>(&over) } else { self.turns::<false>(&over) } {}
        SchedulerContext::leave(words);
        suspended.set(suspended.get() - below);
        self.leave_memory();
        current::set_worker(ptr::null());
    }

    /// Turn after turn, until it is `over`, or this worker has left: true. False: it is to go on in the other loop. `ATTENTIVE`: states are
    /// asserted (see [`Word::check_is`](crate::waiter::word::Word::check_is)), and turns are noted if the recorder is on.
    #[inline(always)]
    fn turns<const ATTENTIVE: bool>(&self, over: &impl Fn() -> bool) -> bool {
        loop {
            match self.take_next::<ATTENTIVE>() {
                Some(frame) => {
                    if ATTENTIVE {
                        frame.waiter.word.check_is(WaiterState::Running);
                    }
                    let ended = self.dispatch::<ATTENTIVE>(frame);
                    if ATTENTIVE {
                        self.conclude_turn();
                    }
                    if ended && over() {
                        return true;
                    }
                }
                None => {
                    if over() {
                        return true;
                    }
                    if self.is_to_change(ATTENTIVE) {
                        return false;
                    }
                    if ATTENTIVE {
                        self.note_idle();
                    }
                    self.find_work();
                    // Before it looks at timers and sockets again: what these set going would be this worker's to run.
                    if self.has_left() {
                        return true;
                    }
                    if self.is_to_change(ATTENTIVE) {
                        return false;
                    }
                    if ATTENTIVE {
                        self.note_idle_end();
                    }
                }
            }
        }
    }

    /// The next fiber to run, already RUNNING, from what this worker has.
    #[inline(always)]
    fn take_next<const ATTENTIVE: bool>(&self) -> Option<FrameRef> {
        let turn = self.looks.turn.get().wrapping_sub(1);
        self.looks.turn.set(turn);
        if turn == 0
            && let Some(taken) = self.fair_point(ATTENTIVE)
        {
            return taken;
        }
        if !self.remote().mail.inbox.is_empty() {
            self.read_mail();
        }
        if self.is_poll_due() {
            self.poll();
        }
        if let Some(frame) = self.queues.next.get() {
            self.queues.next.set(None);
            let chain = self.queues.chain.get() - 1;
            self.queues.chain.set(chain);
            if chain != 0 {
                if let Some(frame) = self.set_running(frame) {
                    return Some(frame);
                }
            } else {
                self.queues.chain.set(self.policy.with(|policy| policy.chain_length()));
                self.push_ready(frame);
            }
        }
        let pick = self.policy.with(|policy| policy.pick(turn));
        if pick != Pick::ReadyThenFresh
            && let Some(frame) = self.take_fresh(pick == Pick::OldestThenReady)
        {
            return Some(frame);
        }
        if let Some(frame) = self.take_ready() {
            return Some(frame);
        }
        self.take_fresh(false)
    }

    /// Once in a while: the injector before anything else, and what can wait that long. `Some(None)`: the loop is to be left for the other
    /// one.
    #[cold]
    #[inline(never)]
    fn fair_point(&self, attentive: bool) -> Option<Option<FrameRef>> {
        if self.flight.is_stale() && self.is_to_change(attentive) {
            self.look_around();
            return Some(None);
        }
        self.looks.turn.set(if self.is_temporary() { 1 } else { INJECTOR_PERIOD });
        self.follow_wish(self.is_leaving());
        let rounds = self.looks.rounds.get().wrapping_add(1);
        self.looks.rounds.set(rounds);
        // Relaxed: a hint; the sleeper's re-check is the one that must not miss it.
        if self.remote().mail.has_commands.load(Ordering::Relaxed) {
            self.read_mail();
        }
        self.shared.sysmon.start_if_late(&self.shared);
        trim::see_to_it();
        self.note_load();
        if rounds.is_multiple_of(CLOCK_ROUNDS) && !self.looks.armed.get() {
            self.looks.clock.set(policy::now());
            if self.shared.late.is_looked_at() {
                self.arm_timers();
            }
        }
        if self.remote().wheel.next_deadline().is_some() {
            // Another thread may have set it.
            self.arm_timers();
        }
        if self.is_draining() {
            self.hand_fresh_on();
            return None;
        }
        if self.leaves_injected() {
            return None;
        }
        self.take_injected_one().map(Some)
    }

    /// The next turn begins with the fair point.
    pub(super) fn look_around(&self) {
        self.looks.turn.set(1);
    }

    #[inline(always)]
    fn take_ready(&self) -> Option<FrameRef> {
        loop {
            // SAFETY: frames live for ever.
            let frame: FrameRef = unsafe { self.queues.ready.pop_front()?.as_ref() };
            self.prefetch_next();
            if let Some(frame) = self.set_running(frame) {
                return Some(frame);
            }
        }
    }

    /// While one fiber runs, the stack of the next and the frame of the one after it come closer: with many fibers every switch would
    /// otherwise begin with waiting for memory.
    #[inline(always)]
    fn prefetch_next(&self) {
        if let Some(next) = self.queues.ready.front() {
            // SAFETY: frames live for ever; the context of a queued fiber does not change, and a prefetch of any address does no harm.
            unsafe {
                let next = next.as_ref();
                let sp = next.context.with(|context| (*context).to_bits());
                prefetch(std::ptr::without_provenance(sp.wrapping_sub(64)));
                prefetch(std::ptr::without_provenance(sp));
                // Relaxed: a hint.
                prefetch(next.link.load(Ordering::Relaxed).cast_const().cast());
            }
        }
    }

    #[inline(always)]
    fn take_fresh(&self, oldest: bool) -> Option<FrameRef> {
        let fresh = &self.remote().fresh;
        loop {
            // SAFETY: this thread is the owner of its worker's deque.
            let Some(entry) = (unsafe { if oldest { fresh.pop_oldest() } else { fresh.pop_newest() } }) else {
                self.surplus.ends();
                return None;
            };
            if self.overload.is_long() && self.give(entry) {
                continue;
            }
            if let Some(frame) = self.start_entry(entry) {
                self.judge_surplus(entry, oldest);
                return Some(frame);
            }
        }
    }

    /// Surplus is judged after we took our own: the pop was the first half of the handshake with sleepers.
    #[inline(always)]
    pub(super) fn judge_surplus(&self, taken: Entry, oldest: bool) {
        if !self.alone && self.surplus.calls_one(taken, oldest, &self.remote().fresh, &self.shared.idle) {
            self.wake_for_surplus();
        }
    }

    /// Is the scheduler wanted before anything else runs: by `next`, or by what comes from outside?
    #[inline(always)]
    pub(super) fn is_called(&self) -> bool {
        self.queues.next.get().is_some() || !self.remote().mail.inbox.is_empty() || self.is_poll_due()
    }

    /// Has a bounded time passed since the last look at timers and driver, if there is anything to look at?
    #[inline(always)]
    fn is_poll_due(&self) -> bool {
        self.looks.armed.get() && policy::cycles().wrapping_sub(self.looks.polled_at.get()) > POLL_CYCLES
    }

    #[cold]
    #[inline(never)]
    pub(super) fn wake_for_surplus(&self) {
        if self.shared.wake_any_worker() {
            self.stats().surplus_wakes.add(1);
        }
    }

    /// Switches into a RUNNING fiber and does what has to be done when it comes back. True if it ended.
    #[inline(always)]
    fn dispatch<const ATTENTIVE: bool>(&self, frame: FrameRef) -> bool {
        self.current.set(Some(frame));
        if ATTENTIVE {
            self.begin_turn(frame);
        }
        self.stats().switches.add(1);
        let word = ptr::from_ref(self).expose_provenance();
        // SAFETY: the frame is RUNNING, which makes its context ours; `home` is this worker's, and this is its scheduler's stack.
        let said =
            frame.context.with_mut(|fiber| self.home.with_mut(|home| unsafe { context::resume(fiber, home, word) }));
        // SAFETY: the fiber that suspended is the current one: this one, or the last of those that its stack went to (`succession.rs`).
        let frame = unsafe { self.current.take().unwrap_unchecked() };
        if ATTENTIVE {
            self.note_turn(frame, said);
        }
        #[cfg(feature = "unstable-migration")]
        if self.let_go(frame, said) {
            return false;
        }
        if said == signal::PARK || said == signal::PARK_BOUND {
            // Law 3: only now, with the fiber off its stack.
            debug_assert!(!frame.is_stood_on(), "a park is committed on the stack that is being left");
            match revoke::commit(&frame.waiter, |kind| self.may_end(frame, kind)) {
                Commit::Parked => self.stats().parked.add(1),
                Commit::Requeue => {
                    if ATTENTIVE {
                        self.note_early_wake(frame);
                    }
                    self.push_ready(frame);
                }
            }
            return false;
        }
        if said == signal::YIELD {
            frame.waiter.word.yielded();
            self.push_ready(frame);
            return false;
        }
        if said == signal::RETURNED {
            self.end(frame);
            return true;
        }
        self.come_back(frame, said)
    }

    /// A cancel flag came up while this fiber parked: may that end its wait? Decided on the floor of shields and scopes.
    fn may_end(&self, frame: FrameRef, kind: WaitKind) -> bool {
        self.rules().may_end_parked(Here::on(self, frame), kind)
    }

    /// What follows the rarer ways of coming back to the scheduler's stack. True if it ended.
    #[cold]
    #[inline(never)]
    fn come_back(&self, frame: FrameRef, said: usize) -> bool {
        match said {
            signal::PENDING => {
                self.park_task(frame);
                return false;
            }
            signal::YIELD_MOVING | signal::PARK_MOVING => {
                self.let_move(frame, said == signal::PARK_MOVING);
                return false;
            }
            _ => {}
        }
        self.end_otherwise(frame, said - signal::ENDED);
        true
    }

    fn park_task(&self, frame: FrameRef) {
        self.unbind_stack(frame, || self.list_of(frame));
        // Relaxed: between two polls a task belongs to no worker.
        frame.home.store(NO_HOME, Ordering::Relaxed);
        // Relaxed: a gauge; the worker that starts the task again takes it back.
        self.shared.tasks_parked.fetch_add(1, Ordering::Relaxed);
        // A task between two polls holds nothing off: what is up is due.
        match revoke::commit(&frame.waiter, |_| true) {
            Commit::Parked => {}
            // The thread that woke it in this moment left it to this worker to queue the task.
            Commit::Requeue if seeded_bug("task_commit_drops_wake") => {}
            Commit::Requeue => self.push_fresh(frame),
        }
    }

    /// A task that was woken on this worker: stealable work again.
    pub(crate) fn push_task(&self, frame: FrameRef) {
        self.stats().wakes_local.add(1);
        #[cfg(fibra_force_moves)]
        if frame.has(flag::MOVES) && self.shared.config.force_moves {
            return self.send_on(frame);
        }
        if frame.has(flag::MOVES) && self.has_local_work() && self.shared.sends_back(frame, Some(self.index)) {
            return;
        }
        self.push_fresh(frame);
    }

    /// A task that is RUNNABLE.
    pub(crate) fn push_fresh(&self, frame: FrameRef) {
        let ticket = frame.waiter.word.snapshot().ticket().to_bits();
        self.push_entry(Entry::contested(frame.address(), ticket));
    }

    #[inline(always)]
    pub(super) fn push_entry(&self, entry: Entry) {
        // SAFETY: this thread is the owner of its worker's deque.
        unsafe { self.remote().fresh.push(entry) };
        self.shared.sysmon.arm(&self.shared);
    }

    /// A new fiber of this worker's: stays here unless an idle worker comes for it.
    #[inline(always)]
    pub(crate) fn push_spawned(&self, frame: FrameRef, ticket: Ticket) {
        self.push_entry(Entry::sole(frame.address(), ticket.to_bits()));
    }

    #[inline(always)]
    pub(super) fn push_ready(&self, frame: FrameRef) {
        debug_assert_eq!(
            frame.waiter.word.snapshot().state(),
            WaiterState::Runnable,
            "only RUNNABLE fibers are queued"
        );
        debug_assert!(!is_linked(frame), "a fiber is in one queue at a time");
        // SAFETY: RUNNABLE and in this worker's hands alone, so its link is free.
        unsafe { self.queues.ready.push_back(NonNull::from(frame)) };
    }

    /// A parked fiber of this worker was made RUNNABLE by code that runs on it.
    #[inline(always)]
    pub(crate) fn wake_here(&self, frame: FrameRef, place: QueueEnd) {
        let stats = self.stats();
        stats.wakes_local.add(1);
        stats.parked.sub(1);
        match place {
            QueueEnd::Next => {
                if let Some(displaced) = self.queues.next.replace(Some(frame)) {
                    self.push_ready(displaced);
                }
            }
            QueueEnd::Tail => self.push_ready(frame),
        }
    }

    /// The joiner of `frame` is about to park: if `frame` is the newest unstarted fiber here, run it as the next switch. True: so it is,
    /// and only this worker can start it now.
    #[inline(always)]
    pub(crate) fn run_next_if_newest(&self, frame: FrameRef) -> bool {
        // SAFETY: this thread is the owner of its worker's deque; the joiner's handle keeps the frame.
        let taken = unsafe { newest::take_newest(&self.remote().fresh, &frame.waiter.word, frame.address()) };
        if taken && let Some(displaced) = self.queues.next.replace(Some(frame)) {
            self.push_ready(displaced);
        }
        taken
    }

    pub(super) fn has_local_work(&self) -> bool {
        self.queues.next.get().is_some() || !self.queues.ready.is_empty() || !self.remote().fresh.is_empty()
    }

    pub(super) fn is_ready_empty(&self) -> bool {
        self.queues.next.get().is_none() && self.queues.ready.is_empty()
    }

    /// A frame for a new fiber.
    #[inline(always)]
    pub(crate) fn take_frame(&self) -> FrameRef {
        self.caches.frames.with(FrameCache::take)
    }

    /// A fresh fiber id.
    #[inline(always)]
    pub(crate) fn take_id(&self) -> u64 {
        let id = self.caches.next_id.get();
        if id == self.caches.last_id.get() {
            return self.take_id_of_new_block();
        }
        self.caches.next_id.set(id + 1);
        id
    }

    #[cold]
    #[inline(never)]
    fn take_id_of_new_block(&self) -> u64 {
        let id = take_ids(ID_BLOCK);
        self.caches.next_id.set(id + 1);
        self.caches.last_id.set(id + ID_BLOCK);
        id
    }

    /// Does this worker have fibers that must not change threads: started ones, or local ones that have not started (whatever waits in an
    /// owner-only queue counts as such)?
    pub(crate) fn has_bound(&self) -> bool {
        self.stats().started.get() != 0
            || !self.is_ready_empty()
            || !self.queues.stackless.with(|waiting| waiting.is_empty())
    }

    // ---- leaving a fiber: the only places in fibra that switch away

    /// Suspends the running fiber; returns when it is resumed, with the address of the worker that did so.
    ///
    /// # Safety
    /// Called on a fiber of this worker, which is the current one and not inside a call on the scheduler's stack. For PARK the word must be
    /// PARKING (or claimed), for YIELD RUNNING.
    #[inline(always)]
    pub(crate) unsafe fn suspend(&self, frame: FrameRef, signal: usize) -> usize {
        // SAFETY: the fiber is the current one, so its context slot is free and `home` holds its worker's suspended loop.
        let word =
            frame.context.with_mut(|fiber| self.home.with_mut(|home| unsafe { context::suspend(fiber, home, signal) }));
        if context::OWN_THREAD {
            // The worker that resumed the fiber passed its own address in the word.
            current::set_worker(ptr::with_exposed_provenance(word));
        }
        word
    }

    /// Runs `f(data)` on the scheduler's stack while the current fiber waits for it: for what needs more stack than a fiber has.
    ///
    /// # Safety
    /// Called on the current fiber; `f` neither unwinds nor suspends.
    pub(crate) unsafe fn call_on_scheduler(&self, f: unsafe extern "C" fn(*mut ()), data: *mut ()) {
        // SAFETY: the caller's promise; `home` holds the suspended loop.
        self.home.with(|home| unsafe { context::call_on_home(home, f, data) });
    }
}

/// The first and only function on every fiber's stack: runs one fiber after another, with or without the scheduler in between
/// (`succession.rs`). The word of each resume is the worker, so that nothing read from a thread-local survives on a stack that goes to
/// another worker between two fibers.
pub(super) unsafe extern "C-unwind" fn fiber_main(word: usize) -> ! {
    // SAFETY: `dispatch` passes its worker, which lives as long as its loop.
    let mut worker: &Worker = unsafe { &*ptr::with_exposed_provenance(word) };
    loop {
        if context::OWN_THREAD {
            current::set_worker(worker);
        }
        // SAFETY: a worker that resumes a stack, or takes it over, has made its fiber the current one; a published fiber has a thunk.
        let (frame, thunk) = unsafe {
            let frame = worker.current.get().unwrap_unchecked();
            (frame, frame.thunk.get().unwrap_unchecked())
        };
        // SAFETY: the root outlives its fibers.
        let root = unsafe { RootRef::from_ptr(frame.root.get()) };
        // A fiber that was cancelled before it started never starts: its closure is dropped, here and not on the scheduler's stack.
        let is_plain =
            !root.is_cancelled() && !frame.has(flag::CANCEL | flag::DAEMON | flag::HOOKED | flag::WANTS_LOCALS);
        let result = if is_plain {
            // SAFETY: RUNNING for the first time (or a task between polls): the closure is in the storage.
            unsafe { (thunk.run)(frame) }
        } else {
            // SAFETY: as above.
            let (result, ended_on) = unsafe { worker.run_closely(frame, root, thunk) };
            // SAFETY: the worker that it has ended on, whose loop waits for this stack to be left.
            worker = unsafe { &*ended_on };
            result
        };
        // It may have ended on another worker than it began on.
        #[cfg(feature = "unstable-migration")]
        {
            worker = current::worker().expect("a fiber runs on a worker");
        }
        if result == RunResult::Ended(FiberEnd::Value) && worker.hand_stack_on(frame) {
            continue;
        }
        let signal = match result {
            RunResult::Ended(outcome) => signal::ENDED + outcome as usize,
            RunResult::Pending => signal::PENDING,
        };
        // Where the stack's next fiber finds it.
        // SAFETY: a running fiber has a stack.
        let place = unsafe { &*frame.stack.load(Ordering::Relaxed) }.context_place(); // Relaxed: this worker's own.
        if context::OWN_THREAD {
            // If no other fiber comes, the thread ends, and destructors of its thread-locals run on no worker.
            current::set_worker(ptr::null());
        }
        // SAFETY: as in `Worker::suspend`; everything of the fiber that lived on this stack is gone.
        let word = worker.home.with_mut(|home| unsafe { context::suspend(place, home, signal) });
        // SAFETY: as above.
        worker = unsafe { &*ptr::with_exposed_provenance(word) };
    }
}
