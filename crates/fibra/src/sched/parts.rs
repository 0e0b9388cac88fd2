//! The parts of a worker: its fields, grouped by what they are for. Only the worker's own thread touches them; what other threads touch is
//! in `shared::Remote`.
//!
//! Above: `worker.rs`, which holds one of each, and the files of `sched` that use a part: `timers` and `completions.rs` (looks and
//! I/O), `life` (queues, caches), `members` (lists and counts), `rest.rs` (what the caches give back). Below: queues and caches.

use std::cell::{Cell, OnceCell};
use std::collections::VecDeque;
use std::ptr;
use std::rc::Rc;

use super::members::root::Tally;
use super::members::scope::ScopeCache;
use super::rules::MachineIo;
use super::shared::RootRef;
use crate::driver::{Driver, Registrar};
use crate::fiber::frame::{Frame, FrameRef};
use crate::fiber::slab::FrameCache;
use crate::fiber::stack::{StackCache, StackSize};
use crate::prim::cell::OwnerCell;
use crate::prim::fifo::Fifo;
use crate::prim::policy;
use crate::sched::timers::pace::Pace;
use crate::waiter::answer::AnswerCache;

/// The fibers that only this worker can run. (Unstarted ones, which thieves may take, are in `Remote::fresh`.)
#[derive(Debug)]
pub(in crate::sched) struct LocalQueues {
    pub(in crate::sched) next: Cell<Option<FrameRef>>,
    /// How often `next` may be served before what is ready has its turn.
    pub(in crate::sched) chain: Cell<u32>,
    pub(in crate::sched) ready: Fifo<Frame>,
    /// Unstarted fibers that could not get a stack; tried again when one comes free.
    pub(in crate::sched) stackless: OwnerCell<VecDeque<FrameRef>>,
}

impl LocalQueues {
    pub(in crate::sched) fn new(chain: u32) -> Self {
        Self {
            next: Cell::new(None),
            chain: Cell::new(chain),
            ready: Fifo::new(),
            stackless: OwnerCell::new(VecDeque::new()),
        }
    }
}

/// When the worker looked at the clock, its timers and its driver, and when it looks next.
#[derive(Debug)]
pub(in crate::sched) struct Looks {
    /// Turns until the next fair point.
    pub(in crate::sched) turn: Cell<u32>,
    /// Fair points so far.
    pub(in crate::sched) rounds: Cell<u32>,
    /// There is a timer or a registration to look at.
    pub(in crate::sched) armed: Cell<bool>,
    /// When it looked at its timers, and at its driver, in cycles.
    pub(in crate::sched) polled_at: Cell<u64>,
    pub(in crate::sched) looked_at: Cell<u64>,
    /// The time, as of its last look.
    pub(in crate::sched) clock: Cell<u64>,
    /// When it last looked at its timers.
    pub(in crate::sched) fired_at: Cell<u64>,
    /// How far apart it wakes for them.
    pub(in crate::sched) pace: Pace,
}

impl Looks {
    /// `turn`: turns until the first fair point.
    pub(in crate::sched) fn new(turn: u32) -> Self {
        Self {
            turn: Cell::new(turn),
            rounds: Cell::new(0),
            armed: Cell::new(false),
            polled_at: Cell::new(0),
            looked_at: Cell::new(0),
            clock: Cell::new(policy::now()),
            fired_at: Cell::new(0),
            pace: Pace::new(),
        }
    }
}

/// What the worker keeps for the next fibers: their frames, stacks, scopes and ids.
#[derive(Debug)]
pub(crate) struct Caches {
    pub(crate) frames: OwnerCell<FrameCache>,
    pub(in crate::sched) stacks: OwnerCell<StackCache>,
    pub(in crate::sched) stack_size: StackSize,
    /// May a stack be handed on? Only while no fiber waits for a stack and nothing is recorded. See `succession.rs`.
    pub(in crate::sched) hands_on: Cell<bool>,
    /// Records for the next scopes.
    pub(in crate::sched) scopes: OwnerCell<ScopeCache>,
    /// Records for the next calls of actors.
    pub(crate) answers: OwnerCell<AnswerCache>,
    /// The next fiber id, and the end of the block that it is from.
    pub(in crate::sched) next_id: Cell<u64>,
    pub(in crate::sched) last_id: Cell<u64>,
}

impl Caches {
    pub(in crate::sched) fn new(stack_size: StackSize) -> Self {
        Self {
            frames: OwnerCell::new(FrameCache::new()),
            stacks: OwnerCell::new(StackCache::new()),
            stack_size,
            hands_on: Cell::new(true),
            scopes: OwnerCell::new(ScopeCache::new()),
            answers: OwnerCell::new(AnswerCache::new()),
            next_id: Cell::new(0),
            last_id: Cell::new(0),
        }
    }
}

/// The worker's driver, and what is registered with it.
#[derive(Debug)]
pub(in crate::sched) struct WorkerIo {
    pub(in crate::sched) driver: OwnerCell<Driver>,
    pub(in crate::sched) registrar: Registrar,
    /// What its machines know of their descriptors, if there are machines.
    pub(in crate::sched) machines: OnceCell<Rc<dyn MachineIo>>,
}

impl WorkerIo {
    pub(in crate::sched) fn new(driver: Driver) -> Self {
        Self { registrar: driver.registrar(), driver: OwnerCell::new(driver), machines: OnceCell::new() }
    }
}

/// The fibers that live on this worker, as lists and as counts.
#[derive(Debug)]
pub(crate) struct Residents {
    /// Started fibers that live here, but for those in the lists of scopes.
    pub(crate) started: Cell<*const Frame>,
    /// Started fibers that live here and are children of scopes whose body runs elsewhere.
    pub(crate) foreign: Cell<*const Frame>,
    /// Fibers it has counted and not yet told their root.
    pub(in crate::sched) tally: Tally<RootRef>,
    /// Fibers of `call_wakers.rs` that have not ended.
    pub(in crate::sched) wakers_to_call: Cell<u32>,
}

impl Residents {
    pub(in crate::sched) fn new() -> Self {
        Self {
            started: Cell::new(ptr::null()),
            foreign: Cell::new(ptr::null()),
            tally: Tally::new(),
            wakers_to_call: Cell::new(0),
        }
    }
}
