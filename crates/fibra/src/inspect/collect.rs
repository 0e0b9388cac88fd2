//! A snapshot is taken: a census of the frames, and then what the fibers wait for.
//!
//! * Nothing is stopped. A frame is read between two looks at its word: if the ticket has changed, it is read again.
//! * Locks and selects are found by the addresses in wait records. They belong to fibers that may go on and free them, so the kernel reads
//!   them (`prim::peek`), and what was read counts only if a fiber is still in that wait afterwards ([`ParkedFiber`]).
//! * Each address is read once, however many fibers wait for it.
//!
//! Above: `mod.rs`, `graph.rs`. Below: `fiber::frame` (the census), `monitor::objects`, `monitor::open_scopes`, `sync::seen`,
//! `select::sheet`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use super::snapshot::{
    ChannelInfo, FiberInfo, FiberState, LockHolder, LockInfo, LockKind, Object, ScopeInfo, SelectArm, SemaphoreInfo,
    Snapshot, SocketInfo, StackInfo, WaitInfo, WorkerInfo,
};
use crate::fiber::frame::{self, Counted, NO_HOME, ParkedFiber, flag};
use crate::fiber::id::FiberId;
use crate::monitor::deep_channels;
use crate::monitor::metrics::Metrics;
use crate::monitor::objects::{self, ChannelFacts};
use crate::monitor::open_scopes::{self, ScopeFacts};
use crate::monitor::stack_marks::{self, Mark, Marks};
use crate::prim::atomic::Ordering;
use crate::prim::policy;
use crate::sched::shared::RuntimeShared;
use crate::select::sheet;
use crate::sync::seen::{self, Holder};
use crate::wait::reason::WaitReason;
use crate::waiter::word::WaiterState;

/// How often a frame is read that changes meanwhile.
const READS: u32 = 3;

/// A fiber that was found, as far as its place in memory goes: the same order as in the snapshot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) watch: ParkedFiber,
    /// Its runtime, by address; compared only.
    pub(super) runtime: usize,
    /// Its root scope or scope, by address.
    pub(super) root: usize,
}

/// The snapshot of a runtime, or of all; and where the fibers in it are found.
pub(super) fn collect(only: Option<&RuntimeShared>) -> (Snapshot, Vec<Found>) {
    let start = policy::now();
    let others = if only.is_none() { objects::runtimes() } else { Vec::new() };
    let runtimes: Vec<&RuntimeShared> = only.into_iter().chain(others.iter().map(|other| &**other)).collect();
    let channels = objects::channels(objects::Asked::All);
    deep_channels::look(&channels);
    let scopes = open_scopes::open_scopes();
    let live = runtimes.iter().map(|runtime| Metrics::collect(runtime).live as usize).sum();
    let (mut fibers, mut found) = census(only.map(|only| std::ptr::from_ref(only).addr()), start, live);
    put_in_order(&mut fibers, &mut found);
    let mut snapshot = Snapshot { fibers, ..Snapshot::default() };
    snapshot.timers =
        snapshot.fibers.iter().filter(|fiber| fiber.wait.as_ref().is_some_and(|w| w.has_deadline)).count();
    snapshot.workers = workers(&runtimes, &snapshot.fibers, &found);
    snapshot.channels = channels.into_iter().map(channel).collect();
    snapshot.scopes = open(scopes, &snapshot.fibers, only.is_some(), start);
    contended(&mut snapshot, &found);
    count_waiting(&mut snapshot);
    snapshot.stacks = stacks(stack_marks::of_ended());
    snapshot.took = Duration::from_nanos(policy::now().saturating_sub(start));
    (snapshot, found)
}

/// The deepest first.
pub(super) fn stacks(marks: Marks) -> Vec<StackInfo> {
    let info = |(spawned_at, Mark { fibers, deepest, size })| StackInfo { spawned_at, fibers, deepest, size };
    let mut stacks: Vec<_> = marks.into_iter().map(info).collect();
    stacks.sort_by_key(|stack| (std::cmp::Reverse(stack.deepest), stack.spawned_at));
    stacks
}

/// A fiber that waits, by its number.
pub(super) fn find(fiber: FiberId) -> Option<ParkedFiber> {
    let mut found = None;
    frame::census(|frame| {
        // Relaxed: compared only.
        if frame.id.load(Ordering::Relaxed) == fiber.as_u64() {
            found = Some(frame.watch()).filter(|watch| watch.is_parked());
        }
    });
    found
}

/// Puts both in the order of the ids. Moved within their memory, since there is much of it: fresh memory costs more than all else here.
fn put_in_order(fibers: &mut [FiberInfo], found: &mut [Found]) {
    let mut order: Vec<(u64, usize)> = fibers.iter().enumerate().map(|(at, fiber)| (fiber.id.as_u64(), at)).collect();
    order.sort_unstable();
    let mut goes_to = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, (_, from))| goes_to[*from] = to);
    for at in 0..goes_to.len() {
        while goes_to[at] != at {
            let to = goes_to[at];
            fibers.swap(at, to);
            found.swap(at, to);
            goes_to.swap(at, to);
        }
    }
}

/// Every fiber that has not ended; there are about so many.
fn census(only: Option<usize>, now: u64, live: usize) -> (Vec<FiberInfo>, Vec<Found>) {
    let (mut fibers, mut all) = (Vec::with_capacity(live + live / 8), Vec::with_capacity(live + live / 8));
    frame::census(|frame| {
        // Relaxed: compared only.
        let runtime = frame.runtime.load(Ordering::Relaxed).addr();
        if only.is_some_and(|only| only != runtime) {
            return;
        }
        for _ in 0..READS {
            let watch = frame.watch();
            let Some(info) = fiber(frame, now) else { return };
            let found = Found { watch, runtime, root: frame.root.get().addr() };
            if watch.has_not_moved() {
                fibers.push(info);
                all.push(found);
                return;
            }
        }
    });
    (fibers, all)
}

/// One fiber, if it is there.
fn fiber(frame: Counted<'_>, now: u64) -> Option<FiberInfo> {
    let flags = frame.flags();
    let is_task = flags.has(flag::TASK);
    let top = frame.top();
    let state = match frame.waiter.word.snapshot().state() {
        WaiterState::Init | WaiterState::Done | WaiterState::Cancelled => return None,
        // A half of a `join` that no worker took is its joiner's business, and will not become a fiber.
        WaiterState::Runnable if flags.has(flag::HALF) && top.is_none() => return None,
        WaiterState::Runnable if top.is_none() && !is_task => FiberState::NotStarted,
        WaiterState::Runnable => FiberState::Ready,
        WaiterState::Running => FiberState::Running,
        WaiterState::Parking | WaiterState::Parked => FiberState::Parked,
    };
    let wait = top.filter(|_| state == FiberState::Parked).and_then(|top| {
        let has_deadline = top.is_timed();
        let (reason, object, at, since) = top.wait_record()?;
        let reason = WaitReason::from_bits(reason)?;
        let since = Duration::from_nanos(now.saturating_sub(since));
        Some(WaitInfo { reason, object: named(reason, object), at, since, has_deadline })
    });
    // Relaxed, both: a picture of a moving thing.
    let (id, home) = (frame.id.load(Ordering::Relaxed), frame.home.load(Ordering::Relaxed));
    Some(FiberInfo {
        id: FiberId::from_u64(id),
        name: frame.name().cloned(),
        status: top.map(|top| top.status()).unwrap_or_default(),
        state,
        wait,
        worker: (home != NO_HOME && top.is_some()).then_some(home as usize),
        scope: flags.has(flag::SCOPED).then(|| frame.root.get().addr() as u64),
        spawned_at: frame.site.get(),
        is_task,
        is_daemon: flags.has(flag::DAEMON),
        is_root: flags.has(flag::ROOT),
    })
}

/// What the word in a wait record stands for.
pub(crate) fn named(reason: WaitReason, object: u64) -> Object {
    use WaitReason as R;
    match reason {
        R::Join | R::JoinHalf => Object::Fiber(FiberId::from_u64(object)),
        R::ChannelSend | R::ChannelRecv | R::ChannelReserve | R::ChannelClosed => Object::Channel(object),
        // Read when the census is over; see `contended`.
        R::Select => Object::At(object),
        R::MutexLock | R::CondvarRelock | R::ReentrantLock | R::RwLockRead | R::RwLockWrite | R::RwLockUpgrade => {
            Object::Lock(object)
        }
        R::SemaphoreAcquire => Object::Semaphore(object),
        R::ScopeEnd => Object::Scope(object),
        R::NetRead | R::NetWrite | R::NetAccept | R::NetConnect | R::PipeRead | R::PipeWrite => {
            Object::Socket(object as i32)
        }
        _ if object == 0 => Object::None,
        R::BlockOn | R::BlockingQueued | R::BlockingRunning | R::FileCall => Object::None,
        _ => Object::At(object),
    }
}

fn workers(runtimes: &[&RuntimeShared], fibers: &[FiberInfo], found: &[Found]) -> Vec<WorkerInfo> {
    let mut all = Vec::new();
    for shared in runtimes {
        let address = std::ptr::from_ref::<RuntimeShared>(shared).addr();
        let here = fibers.iter().zip(found).filter(|(_, found)| found.runtime == address);
        let running: HashMap<_, _> = here
            .filter(|(fiber, _)| fiber.state == FiberState::Running)
            .filter_map(|(fiber, _)| Some((fiber.worker?, fiber.id)))
            .collect();
        for metrics in Metrics::collect(shared).workers {
            // Relaxed: a number.
            let thread = shared.remotes[metrics.index].thread.load(Ordering::Relaxed);
            let running = running.get(&metrics.index).copied();
            all.push(WorkerInfo { runtime: shared.config.name.clone(), running, thread, metrics });
        }
    }
    all
}

fn channel(facts: ChannelFacts) -> ChannelInfo {
    ChannelInfo {
        id: facts.id,
        name: facts.name,
        made_at: facts.site,
        len: facts.len,
        capacity: facts.capacity,
        senders: facts.senders,
        receivers: facts.receivers,
        waiting_senders: 0,
        waiting_receivers: 0,
        closed: facts.closed,
        address: facts.address,
    }
}

/// The scopes; of one runtime those only that its fibers have opened.
fn open(facts: Vec<ScopeFacts>, fibers: &[FiberInfo], only_theirs: bool, now: u64) -> Vec<ScopeInfo> {
    let mut children: HashMap<u64, usize> = HashMap::new();
    // Siblings usually stand together.
    let mut last: (Option<u64>, usize) = (None, 0);
    for scope in fibers.iter().map(|fiber| fiber.scope).chain([None]) {
        if scope != last.0 {
            if let Some(before) = last.0 {
                *children.entry(before).or_default() += last.1;
            }
            last = (scope, 0);
        }
        last.1 += 1;
    }
    let is_there = |id: u64| fibers.binary_search_by_key(&id, |fiber| fiber.id.as_u64()).is_ok();
    let mut scopes: Vec<_> = facts
        .into_iter()
        .filter(|facts| !only_theirs || facts.owner.is_some_and(is_there))
        .map(|facts| ScopeInfo {
            id: facts.address as u64,
            name: facts.name,
            opened_at: facts.site,
            owner: facts.owner.map(FiberId::from_u64),
            parent: facts.outer.map(|outer| outer as u64),
            deadline_in: facts.deadline.map(|at| Duration::from_nanos(at.saturating_sub(now))),
            children: children.get(&(facts.address as u64)).copied().unwrap_or(0),
            is_ending: facts.over,
            is_cancelled: facts.cancelled,
            is_draining: facts.draining,
        })
        .collect();
    scopes.sort_unstable_by_key(|scope| scope.id);
    scopes
}

/// What the fibers of the snapshot wait for, as far as that has to be read: locks, semaphores, the arms of selects; and sockets.
fn contended(snapshot: &mut Snapshot, found: &[Found]) {
    let is_lock = |fiber: &FiberInfo| fiber.wait.as_ref().is_some_and(|wait| matches!(wait.object, Object::Lock(_)));
    let mut by_frame: HashMap<usize, FiberId> = HashMap::new();
    if snapshot.fibers.iter().any(is_lock) {
        let fibers = snapshot.fibers.iter().zip(found);
        by_frame.extend(fibers.map(|(fiber, found)| (found.watch.address(), fiber.id)));
    }
    let holder = |holder| match holder {
        Holder::None => LockHolder::Nobody,
        Holder::Frame(frame) => by_frame.get(&frame).map_or(LockHolder::Unknown, |id| LockHolder::Fiber(*id)),
        Holder::Fiber(id) => LockHolder::Fiber(FiberId::from_u64(id)),
        Holder::Thread => LockHolder::Thread,
        Holder::Unnamed => LockHolder::Unknown,
    };
    let has_object = |fiber: &FiberInfo| {
        let object = fiber.wait.as_ref().map(|wait| (wait.reason, &wait.object));
        matches!(
            object,
            Some((WaitReason::Select, _) | (_, Object::Lock(_) | Object::Semaphore(_) | Object::Socket(_)))
        )
    };
    let mut waiting: Vec<usize> = (0..snapshot.fibers.len()).filter(|at| has_object(&snapshot.fibers[*at])).collect();
    waiting.sort_by_key(|at| snapshot.fibers[*at].wait.as_ref().map(|wait| std::cmp::Reverse(wait.since)));
    let (mut locks, mut semaphores, mut sockets) = (Numbering::default(), Numbering::default(), Numbering::default());
    for at in waiting {
        let (fiber, watch) = (&mut snapshot.fibers[at], found[at].watch);
        let id = fiber.id;
        let Some(wait) = &mut fiber.wait else { continue };
        match wait.object {
            Object::At(address) if wait.reason == WaitReason::Select => {
                let arms = sheet::read(address as usize).filter(|_| watch.is_parked()).unwrap_or_default();
                let others = arms.others || arms.channels.is_empty();
                let arms = arms.channels.into_iter().map(|(channel, sends)| SelectArm { channel, sends });
                wait.object = Object::Select(arms.collect(), others);
            }
            Object::Lock(address) => locks
                .of(address, || LockInfo {
                    address,
                    kind: lock_kind(wait.reason),
                    holder: lock_holder(wait.reason, address as usize, holder)
                        .filter(|_| watch.is_parked())
                        .unwrap_or(LockHolder::Unknown),
                    waiting: Vec::new(),
                })
                .waiting
                .push(id),
            Object::Semaphore(address) => {
                let read = || seen::semaphore(address as usize).filter(|_| watch.is_parked());
                let new = || {
                    let (available, total) = read().unzip();
                    SemaphoreInfo { address, available, total, waiting: Vec::new() }
                };
                semaphores.of(address, new).waiting.push(id);
            }
            Object::Socket(descriptor) => {
                let new = || SocketInfo { descriptor, waiting: Vec::new() };
                sockets.of(descriptor as u64, new).waiting.push((id, wait.reason));
            }
            _ => {}
        }
    }
    snapshot.locks = locks.all;
    snapshot.semaphores = semaphores.all;
    snapshot.sockets = sockets.all;
}

/// The fibers that wait at each channel.
fn count_waiting(snapshot: &mut Snapshot) {
    let at: HashMap<u64, usize> = snapshot.channels.iter().enumerate().map(|(at, channel)| (channel.id, at)).collect();
    // Fibers that wait for one channel usually stand together, so the last look-up is kept.
    let mut last = (0, None);
    let mut place = |id: u64| {
        if last.0 != id {
            last = (id, at.get(&id).copied());
        }
        last.1
    };
    for wait in snapshot.fibers.iter().filter_map(|fiber| fiber.wait.as_ref()) {
        let arms = match &wait.object {
            Object::Channel(id) => {
                let sends = matches!(wait.reason, WaitReason::ChannelSend | WaitReason::ChannelReserve);
                &[SelectArm { channel: *id, sends }][..]
            }
            Object::Select(arms, _) => arms,
            _ => continue,
        };
        for arm in arms {
            let Some(channel) = place(arm.channel).map(|at| &mut snapshot.channels[at]) else { continue };
            let count = if arm.sends { &mut channel.waiting_senders } else { &mut channel.waiting_receivers };
            *count += usize::from(wait.reason != WaitReason::ChannelClosed);
        }
    }
}

fn lock_kind(reason: WaitReason) -> LockKind {
    match reason {
        WaitReason::ReentrantLock => LockKind::Reentrant,
        WaitReason::RwLockRead | WaitReason::RwLockWrite | WaitReason::RwLockUpgrade => LockKind::RwLock,
        _ => LockKind::Mutex,
    }
}

fn lock_holder(reason: WaitReason, address: usize, holder: impl Fn(Holder) -> LockHolder) -> Option<LockHolder> {
    if lock_kind(reason) != LockKind::RwLock {
        return seen::mutex(address).map(holder);
    }
    seen::rwlock(address).map(|(writer, readers)| match writer {
        Holder::None if readers > 0 => LockHolder::Readers(readers),
        writer => holder(writer),
    })
}

/// Things by number, in the order in which they were first met.
struct Numbering<T> {
    all: Vec<T>,
    at: HashMap<u64, usize>,
}

impl<T> Default for Numbering<T> {
    fn default() -> Self {
        Self { all: Vec::new(), at: HashMap::new() }
    }
}

impl<T> Numbering<T> {
    fn of(&mut self, number: u64, new: impl FnOnce() -> T) -> &mut T {
        let at = match self.at.entry(number) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                self.all.push(new());
                *place.insert(self.all.len() - 1)
            }
        };
        &mut self.all[at]
    }
}
