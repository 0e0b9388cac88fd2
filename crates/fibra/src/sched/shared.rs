//! The data that all threads of one runtime share: the workers' reachable halves, the injector, the idle protocol, roots, pools.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use super::breadth::Breadth;
use super::call_wakers::call_wakers_where_fit;
use super::complete::complete_wait;
use super::dealing::LastDeal;
use super::enqueue::QueueEnd;
use super::idle::Idle;
use super::kept::Kept;
use super::life::homing::Returns;
use super::members::root::Root;
use super::members::scope::{Order, ScopeRef};
use super::monitoring::StallConfig;
use super::monitoring::{OnDeadlock, QuietLook};
use super::queue::Entry;
use super::queue::fresh::Fresh;
use super::queue::injector::Injector;
use super::quiet::OwnLook;
use super::reach::{self, Reach, Sent, WorkerMail};
use super::rules::{CancelRules, IoRules};
use super::staff::elastic::ElasticConfig;
use super::staff::seats::{self, Seats, Staff};
use super::stats::WorkerStats;
use super::sysmon::Sysmon;
use super::timers::alarms::Alarms;
use super::timers::late::Late;
use super::timers::timing::WheelDue;
use super::timers::wheel::Wheel;
use super::visitors::Visitors;
use crate::driver::{Driver, Kicker};
use crate::fiber::donors::Donors;
use crate::fiber::frame::{Frame, FrameRef, NO_HOME, flag};
use crate::fiber::stack::StackSize;
use crate::prim::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::prim::linked::Linked;
use crate::prim::slab::{Free, Never, Record, Slab};
use crate::prim::sync::Mutex;
use crate::prim::thread::JoinHandle;
use crate::prim::{CacheLine, fence};
use crate::sched::timers::heap::Timer;
use crate::waiter::cancel_reason::ReasonKind;
use crate::waiter::flags::Flags;
use crate::waiter::record::call_wakers;
use crate::waiter::word::{ARM_FIRST, Ticket, is_spec_asserted};

/// Calls a function on this fiber, with thread-locals of the fiber's own.
pub(crate) type WithOwnLocals = fn(FrameRef, &dyn Fn() -> bool, &mut dyn FnMut());

/// What the builder settled.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) name: String,
    pub(crate) workers: usize,
    pub(crate) max_workers: usize,
    pub(crate) stack_size: StackSize,
    pub(crate) max_fibers: Option<usize>,
    pub(crate) max_blocking: usize,
    /// No thread but the caller's, deterministic order.
    pub(crate) current_thread: bool,
    pub(crate) sysmon: bool,
    pub(crate) elastic: ElasticConfig,
    /// The exit code of `#[fibra::main]` after a panic of which no joiner was told; 0: what it is without one.
    pub(crate) panic_exit: u8,
    /// Fibers that nothing could have woken are reported when the runtime ends.
    pub(crate) leaks: bool,
    /// Work that can move is gathered on fewer workers where they get in each other's way; see `breadth.rs`.
    pub(crate) gather: bool,
    /// Prints its statistics when it ends, if that is wanted.
    pub(crate) print_stats: Option<fn(&RuntimeShared)>,
    /// The functions that are told of the first and the last moment of a fiber with the flag HOOKED; on a higher floor.
    pub(crate) hooks: Option<FiberHooks>,
    /// Runs a function on the current fiber, which is about to start, with thread-locals of its own; on a higher floor.
    pub(crate) with_own_locals: Option<WithOwnLocals>,
    /// Every fiber wants thread-locals of its own.
    pub(crate) own_locals: bool,
    /// For tests: fibers that may move go to the next worker whenever they yield.
    pub(crate) force_moves: bool,
    /// Called when its threads have ended.
    pub(crate) at_end: Option<fn()>,
    /// How workers that stand still are reported; none: the monitor does not look for them.
    pub(crate) stall: Option<StallConfig>,
    /// Asked when nothing runs any more; see `quiet.rs`.
    pub(crate) quiet: Option<QuietLook>,
    /// What happens when a run is in a deadlock; read by the function in `quiet`.
    pub(crate) on_deadlock: OnDeadlock,
    /// Worker 0 runs on the thread of the caller.
    pub(crate) callers_thread: bool,
    /// Cancellation is observed, never delivered (the only way with `panic = "abort"`).
    pub(crate) cooperative: bool,
    /// The rules of cancellation, which is on a higher floor.
    pub(crate) rules: &'static dyn CancelRules,
    /// The reactor, which gets the reports of the drivers; on a higher floor too.
    pub(crate) io: &'static dyn IoRules,
    /// The monitor's thread.
    pub(crate) monitor: fn(&Arc<RuntimeShared>),
    pub(crate) seed: Option<u64>,
    #[cfg(feature = "unstable-migration")]
    pub(crate) migration: super::life::migrate::Migration,
}

/// See [`Config::hooks`]. Called on the fiber.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FiberHooks {
    pub(crate) started: fn(FrameRef),
    pub(crate) ended: fn(FrameRef),
    /// Does a fiber that is spawned now have hooks?
    pub(crate) are_installed: fn() -> bool,
}

/// What a worker is asked to do by others, between two fibers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Command {
    /// Add your difference for this root to its number.
    Flush(RootRef),
    /// Cancel the started fibers of this root in this life (of all roots, if none is given); only daemons, if so said.
    Cancel { root: Option<(RootRef, u32)>, daemons_only: bool, reason: ReasonKind },
    /// Cancel the started fiber with this number, if it is yours.
    CancelFiber(u64),
    /// Tell this to the started children of this scope in this life, and to the scopes that they have opened.
    Scope { scope: ScopeRef, life: u32, order: Order<ReasonKind> },
    /// Fibers that move have come back to this seat, which is yours: take them (`life::homing`).
    TakeReturns(usize),
}

/// A scope of a plain thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutsideScope {
    pub(crate) scope: ScopeRef,
    pub(crate) life: u32,
    /// It is behind a shield, which holds off shutdown too.
    pub(crate) shielded: bool,
}

/// A root of this runtime; valid as long as the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RootRef(NonNull<Root>);

// SAFETY: `Root` is all atomics and a lock; the pointer is to a box that the runtime keeps until its end.
unsafe impl Send for RootRef {}
// SAFETY: as above.
unsafe impl Sync for RootRef {}

impl RootRef {
    pub(crate) fn as_ptr(self) -> *const () {
        self.0.as_ptr().cast_const().cast()
    }
    /// # Safety
    /// `root` came from `as_ptr` of a root whose runtime still lives.
    #[inline(always)]
    pub(crate) unsafe fn from_ptr(root: *const ()) -> Self {
        // SAFETY: `as_ptr` never gives null.
        Self(unsafe { NonNull::new_unchecked(root.cast_mut().cast()) })
    }
}

impl std::ops::Deref for RootRef {
    type Target = Root;
    #[inline(always)]
    fn deref(&self) -> &Root {
        // SAFETY: roots lie in slabs, as they are or as the first field of a scope's record, and are never freed.
        unsafe { self.0.as_ref() }
    }
}

/// The roots of runs, of the whole process.
static ROOTS: Slab<Root> = Slab::new();

impl Record for Root {
    /// One per `run`: most processes never need a second chunk.
    const FIRST: usize = 16;
    type Aside = Never;
    fn slab() -> &'static Slab<Self> {
        &ROOTS
    }
    fn make(_: u32) -> Self {
        Self::new()
    }
    fn recall(aside: Never) -> &'static [Self] {
        match aside {}
    }
}

/// For a fork: no other thread is inside a registry meanwhile.
pub(crate) fn lock_roots() -> Free<Root> {
    ROOTS.lock()
}

/// All roots that this runtime has taken, and the free ones of these. They serve no other runtime before this one is gone: a worker that is
/// late with a command may still look at one.
#[derive(Debug, Default)]
struct RootPool {
    all: Vec<RootRef>,
    free: Vec<RootRef>,
}

/// The half of a worker that other threads may touch.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) fresh: CacheLine<Fresh>,
    pub(crate) mail: CacheLine<WorkerMail<Frame, Command>>,
    pub(crate) stats: CacheLine<WorkerStats>,
    /// Set before the seat's first worker starts.
    pub(crate) kicker: OnceLock<Kicker>,
    /// Fibers that were sent to this worker by name and have not started: the next to spread one counts them too, and the worker does not
    /// leave (`seats.rs`).
    pub(crate) coming: AtomicU64,
    /// How the last spread fiber found this worker.
    pub(crate) last_deal: LastDeal,
    /// Fibers that move, last ran here, and were woken elsewhere while this worker had nothing to do.
    pub(crate) returns: Returns,
    /// Deadlines that fire even if this worker is stuck.
    pub(crate) wheel: CacheLine<Wheel<WheelDue>>,
    /// The driver of the seat while it has no worker, once it had one.
    pub(crate) spare: Mutex<Option<Driver>>,
    /// The system's number of the thread that runs its loop; 0: no thread does, or nothing in the runtime asks for it.
    pub(crate) thread: AtomicU32,
}

impl Remote {
    pub(crate) fn new() -> Self {
        Self {
            fresh: CacheLine(Fresh::new()),
            mail: CacheLine(WorkerMail::new()),
            stats: CacheLine(WorkerStats::default()),
            kicker: OnceLock::new(),
            coming: AtomicU64::new(0),
            last_deal: LastDeal::default(),
            returns: Returns::new(),
            wheel: CacheLine(Wheel::new()),
            spare: Mutex::new(None),
            thread: AtomicU32::new(0),
        }
    }
}

// SAFETY: one link word per frame, null in a new frame and whenever it is in no queue; a frame is in at most one queue at a time (F2, F4).
unsafe impl Linked for Frame {
    #[inline(always)]
    fn link(&self) -> &AtomicPtr<Frame> {
        &self.link
    }
}

/// See the header.
#[derive(Debug)]
pub(crate) struct RuntimeShared {
    pub(crate) config: Config,
    /// Flags every fiber starts with: HOLD_OFF if cancellation is cooperative, UNCAPPED if there is no cap of fibers (and transitions are
    /// not asserted: what is not UNCAPPED comes back to the worker's loop when it ends, where they are).
    ///
    /// While the recorder is on (see `flight.rs`), and after `refuse`, UNCAPPED is not among them: every spawn goes its slow way then.
    pub(crate) base_flags: Flags,
    /// A seat each: more than there are workers, usually.
    pub(crate) remotes: Box<[Remote]>,
    pub(crate) seats: Seats,
    pub(crate) staff: Staff<JoinHandle<()>>,
    /// How many workers stay for good.
    pub(crate) base: AtomicUsize,
    /// Workers that have left.
    pub(crate) retired: AtomicU64,
    pub(crate) injector: CacheLine<Injector>,
    pub(crate) idle: CacheLine<Idle>,
    pub(crate) sysmon: Sysmon,
    /// The pool for calls that block: `blocking`.
    pub(crate) blocking: Kept,
    /// Step 1 of shutdown: no new roots.
    pub(crate) closing: AtomicBool,
    /// Step 4 of shutdown: workers end.
    pub(crate) stop: AtomicBool,
    /// What is spawned from outside, and by `fibra::run`, counts here.
    pub(crate) root: RootRef,
    roots: Mutex<RootPool>,
    /// Daemons alive, in any root: counted directly, as in a root that is always draining.
    pub(crate) daemons: RootRef,
    /// Spawned by threads that are no workers.
    pub(crate) spawned_outside: AtomicU64,
    /// Panics that no joiner took and no scope passed on. Shared with the frames of fibers that have panicked, whose handles may outlive
    /// this.
    pub(crate) detached_panics: Arc<AtomicU64>,
    /// Fibers alive, counted only if there is a cap.
    pub(crate) counted: AtomicI64,
    /// Futures alive, by id: they live on no worker between polls, so shutdown finds them here. (With `unstable-migration` also started
    /// fibers that may be on no worker.)
    pub(crate) tasks: Mutex<HashMap<u64, FrameRef, BuildHasherDefault<DefaultHasher>>>,
    pub(crate) tasks_parked: AtomicI64,
    /// Fibers that wait, and move: on no worker. What they wait for is written down, unlike that of tasks.
    pub(crate) moving_parked: AtomicI64,
    /// Whether workers look at each other's deadlines.
    pub(crate) late: Late,
    /// Over how many workers work is spread that can move.
    pub(crate) breadth: Breadth,
    /// Scopes of plain threads that are open here: shutdown cancels them, and a worker looks after their deadlines.
    pub(crate) outside_scopes: Mutex<Vec<OutsideScope>>,
    pub(crate) alarms: Alarms,
    /// Threads that are no workers and touch this for a moment.
    pub(crate) visitors: Visitors,
    /// The fork generation it was made in; see `monitor::fork`.
    pub(crate) fork_epoch: u64,
    /// If no sysmon looks for deadlocks; see `quiet.rs`.
    pub(in crate::sched) own_look: Option<OwnLook>,
    /// The report of a deadlock that ends a run with a panic.
    pub(crate) deadlock: Mutex<Option<String>>,
    /// The loops of machines, one per worker, once there is a machine.
    pub(crate) machines: Kept,
    /// Threads that will lend their thread-locals to fibers.
    pub(crate) donors: Donors,
}

/// Are transitions asserted by the worker's loop? (Debug builds look at every edge where it is taken.)
fn asserts_slowly() -> bool {
    !cfg!(debug_assertions) && is_spec_asserted()
}

impl RuntimeShared {
    pub(crate) fn new(config: Config, remotes: Vec<Remote>) -> Arc<Self> {
        // For the locks of channels. (If there are several threads by now, the monitor does it.)
        fence::prepare();
        let mut roots = RootPool::default();
        let root = roots.take();
        let daemons = roots.take();
        let (seats, workers) = (remotes.len(), config.workers);
        let base_flags = Flags::new();
        base_flags.start_with(
            flag::HOLD_OFF.only_if(config.cooperative)
                | flag::UNCAPPED.only_if(config.max_fibers.is_none() && !asserts_slowly() && !cfg!(fibra_force_moves)),
        );
        Arc::new(Self {
            sysmon: Sysmon::new(&config),
            own_look: config.quiet.filter(|_| !Sysmon::is_wanted(&config)).map(OwnLook::new),
            blocking: Kept::default(),
            base_flags,
            config,
            remotes: remotes.into_boxed_slice(),
            seats: Seats::new(seats, workers),
            staff: Staff::new(),
            base: AtomicUsize::new(workers),
            retired: AtomicU64::new(0),
            injector: CacheLine(Injector::new()),
            idle: CacheLine(Idle::new(seats, workers)),
            closing: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            root,
            roots: Mutex::new(roots),
            daemons,
            spawned_outside: AtomicU64::new(0),
            detached_panics: Arc::new(AtomicU64::new(0)),
            counted: AtomicI64::new(0),
            tasks: Mutex::new(HashMap::default()),
            tasks_parked: AtomicI64::new(0),
            moving_parked: AtomicI64::new(0),
            late: Late::new(),
            breadth: Breadth::new(),
            outside_scopes: Mutex::new(Vec::new()),
            alarms: Alarms::default(),
            visitors: Visitors::new(),
            fork_epoch: crate::prim::epoch::epoch(),
            deadlock: Mutex::new(None),
            machines: Kept::default(),
            donors: Donors::new(|waiter, ticket| drop(complete_wait(waiter, ticket, ARM_FIRST, QueueEnd::Tail))),
        })
    }

    /// The runtime a live frame belongs to.
    ///
    /// # Safety
    /// The caller keeps the fiber from ending (it has claimed it, or runs on it, or is its worker), and with it the runtime.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(frame: FrameRef) -> &'a RuntimeShared {
        // Relaxed: written before the fiber was published.
        let shared = frame.runtime.load(Ordering::Relaxed).cast::<RuntimeShared>();
        // SAFETY: set at spawn from a live `Arc<RuntimeShared>`; the caller's promise keeps it alive.
        unsafe { &*shared }
    }

    pub(crate) fn take_root(&self) -> RootRef {
        let mut roots = self.roots.lock();
        match roots.free.pop() {
            Some(root) => {
                root.reset();
                root
            }
            None => roots.take(),
        }
    }

    /// The owner or a daemon is done with a root; recycles it if that was the last.
    pub(crate) fn release_root(&self, root: RootRef) {
        if root.remove_user() && root != self.root {
            self.roots.lock().free.push(root);
        }
    }

    /// How many roots are in use: those of the runtime's own included.
    #[cfg(test)]
    pub(crate) fn roots_in_use(&self) -> usize {
        let roots = self.roots.lock();
        roots.all.len() - roots.free.len()
    }

    /// Is there room for one more fiber under the cap? Counts it if so.
    pub(crate) fn admit(&self) -> bool {
        let Some(cap) = self.config.max_fibers else { return true };
        // Relaxed, both: a limit, not an order.
        let was = self.counted.fetch_add(1, Ordering::Relaxed);
        if was >= cap as i64 {
            self.counted.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Is there a cap of fibers? (Asked by every spawn, which needs the flags anyway.)
    #[inline(always)]
    pub(crate) fn is_capped(&self) -> bool {
        !self.base_flags.has(flag::UNCAPPED)
    }

    /// Is there neither a cap nor an assertion for which fibers come back to the worker's loop when they end?
    pub(super) fn has_plain_ends(&self) -> bool {
        self.config.max_fibers.is_none() && !asserts_slowly()
    }

    /// A fiber that was admitted has ended.
    #[inline(always)]
    pub(crate) fn dismiss(&self) {
        if self.config.max_fibers.is_some() {
            // Relaxed: as in `admit`.
            self.counted.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// From any thread: hands a RUNNABLE fiber (started, or bound to that worker) to its worker.
    pub(crate) fn deliver(&self, worker: usize, frame: FrameRef) {
        // SAFETY: RUNNABLE and in the hands of the caller alone, which gives it up.
        unsafe { reach::deliver(self, worker, frame) };
    }

    /// Workers that take new fibers. A choice among them is confirmed by [`reserve`](Self::reserve).
    pub(crate) fn accepting_workers(&self) -> impl Iterator<Item = usize> {
        (0..self.seats.made()).filter(|worker| self.idle.phase(*worker).accepts())
    }

    /// A new fiber is about to be delivered to this worker, or if that one is leaving to the first, which never does.
    pub(crate) fn reserve(&self, worker: usize) -> usize {
        if seats::reserve(self, worker) {
            return worker;
        }
        let reserved = seats::reserve(self, 0);
        debug_assert!(reserved, "the first worker never leaves");
        0
    }

    /// From any thread: an unstarted fiber or a task, for any worker.
    pub(crate) fn inject(&self, entry: Entry) {
        reach::inject(self, entry);
    }

    /// From any thread: a task that is RUNNABLE, for any worker.
    pub(crate) fn inject_task(&self, frame: FrameRef) {
        self.inject(Entry::contested(frame.address(), frame.waiter.word.snapshot().ticket().to_bits()));
    }

    /// From any thread: a new fiber, for any worker.
    pub(crate) fn inject_spawned(&self, frame: FrameRef, ticket: Ticket) {
        self.inject(Entry::sole(frame.address(), ticket.to_bits()));
    }

    /// An undirected wake: some sleeping worker, if no worker is searching. True if one was woken.
    pub(crate) fn wake_any_worker(&self) -> bool {
        reach::wake_any_worker(self)
    }

    /// Asks one worker to do something.
    pub(crate) fn post(&self, worker: usize, command: Command) {
        reach::post(self, worker, command);
    }

    /// Asks all workers: for each seat the command is obeyed, or answered, once.
    pub(crate) fn post_all(&self, command: Command) {
        for worker in 0..self.remotes.len() {
            self.post(worker, command);
        }
    }

    /// From any thread: sets a timer on the seat of `worker`, whose worker never leaves or is the caller. It may fire when what it was for
    /// is over, and does nothing then.
    pub(crate) fn set_wheel_timer(&self, worker: usize, due: WheelDue, deadline: u64) -> Timer {
        let (timer, is_first) = self.remotes[worker].wheel.insert(deadline, due);
        if is_first {
            reach::wake_worker(self, worker);
        }
        timer
    }

    /// Fires what is due on this seat, at most so many: by its worker, or by sysmon for one that is stuck. Says how many there were.
    pub(crate) fn fire_deadlines(&self, worker: usize, now: u64, most: u64) -> u64 {
        let mut fired = 0;
        while fired < most
            && let Some(due) = self.remotes[worker].wheel.pop_expired(now)
        {
            fired += 1;
            match due {
                WheelDue::Scope(due) => self.config.rules.fire(due.what, due.scope, due.life),
                WheelDue::Alarm(id) => self.ring(id),
                WheelDue::Wait(due) => due.complete(),
            }
        }
        fired
    }

    /// May started fibers of this runtime move? A constant without the feature.
    #[inline(always)]
    pub(crate) fn migrates(&self) -> bool {
        #[cfg(feature = "unstable-migration")]
        return self.config.migration != super::life::migrate::Migration::Off;
        #[cfg(not(feature = "unstable-migration"))]
        false
    }

    /// Step 1 of shutdown: no new roots, and no alarms.
    pub(crate) fn refuse(&self) {
        // AcqRel: pairs with `is_closing`.
        self.closing.swap(true, Ordering::AcqRel);
        // Spawns go their slow way from now on, where they are refused. (SeqCst read-modify-write, as the one in `flight::lead`: of the
        // two the later one sees the earlier. A flag that was raised before is lowered here; a thread that raises it later sees `closing`.)
        self.base_flags.retract(flag::UNCAPPED);
        call_wakers_where_fit(self.alarms.close());
    }

    /// Has shutdown begun?
    pub(crate) fn is_closing(&self) -> bool {
        // Acquire: pairs with the swap in `shutdown`.
        self.closing.load(Ordering::Acquire)
    }
}

impl Reach for RuntimeShared {
    type Fiber = Frame;
    type Command = Command;

    #[inline(always)]
    fn idle(&self) -> &Idle {
        &self.idle
    }

    #[inline(always)]
    fn injector(&self) -> &Injector {
        &self.injector
    }

    #[inline(always)]
    fn workers(&self) -> usize {
        self.seats.made()
    }

    fn seats(&self) -> usize {
        self.remotes.len()
    }

    fn coming(&self, worker: usize) -> &AtomicU64 {
        &self.remotes[worker].coming
    }

    #[inline(always)]
    fn mail(&self, worker: usize) -> &WorkerMail<Frame, Command> {
        &self.remotes[worker].mail
    }

    fn fresh(&self, worker: usize) -> &Fresh {
        &self.remotes[worker].fresh
    }

    fn visitors(&self) -> &Visitors {
        &self.visitors
    }

    fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    fn kick(&self, worker: usize) {
        self.remotes[worker].kicker.get().expect("a worker that sleeps has a driver").kick();
    }

    fn serve_vacant(&self, command: Command) {
        match command {
            // Its last worker has told its difference.
            Command::Flush(root) => {
                if let Some((waiter, ticket)) = root.flush(0) {
                    call_wakers(complete_wait(waiter, ticket, ARM_FIRST, QueueEnd::Tail).into_iter().collect());
                }
            }
            Command::TakeReturns(seat) => _ = self.rescue_returns(seat, u64::MAX),
            // No fiber has started there.
            Command::Cancel { .. } | Command::CancelFiber(_) | Command::Scope { .. } => {}
        }
    }

    fn send_home(&self, frame: FrameRef) -> bool {
        frame.has(flag::MOVES) && self.sends_back(frame, None)
    }

    #[cfg(feature = "unstable-migration")]
    fn send_adrift(&self, frame: FrameRef) -> bool {
        let is_adrift = frame.is_adrift();
        if is_adrift {
            self.requeue_adrift(frame);
        }
        is_adrift
    }
}

impl Sent for Frame {
    fn home(&self) -> Option<usize> {
        // Relaxed: written before the park was committed, which the claim has seen.
        let home = self.home.load(Ordering::Relaxed);
        (home != NO_HOME).then_some(home as usize)
    }

    fn entry(&'static self) -> Entry {
        Entry::contested(self.address(), self.waiter.word.snapshot().ticket().to_bits())
    }
}

impl RootPool {
    /// One more root, in a new life.
    fn take(&mut self) -> RootRef {
        let root = RootRef(NonNull::from(ROOTS.take()));
        root.reset();
        self.all.push(root);
        root
    }
}

impl Drop for RootPool {
    fn drop(&mut self) {
        // SAFETY: taken out of the slab by `take`, so they live for ever; the runtime is gone, and with it every other holder of them.
        self.all.drain(..).for_each(|root| ROOTS.give(unsafe { root.0.as_ref() }));
    }
}
