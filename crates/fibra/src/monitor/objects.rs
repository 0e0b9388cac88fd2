//! The registries of runtimes and of channels: every runtime of the process, and every channel that can be sent to, so that a report can
//! list them.
//!
//! A channel has a [`Link`] in it, and is linked from when it was made to when it is freed, in one of a few lists, each under its own lock.
//! That costs a lock at both ends of a channel's life, and nothing in between: a report asks the channel only when the report is made.
//! While a list is locked, no channel in it is freed.
//!
//! Above: `channel::chan` links and describes itself; `inspect` asks. Below: `prim`. Order of locks: a list, then the channel.
//! `fork.rs` holds all of the lists over a fork.

use std::cell::Cell;
use std::panic::Location;
use std::ptr;
use std::sync::{Arc, Weak};

use crate::prim::sync::{Mutex, MutexGuard};
use crate::sched::shared::RuntimeShared;

/// The number of lists: several, so that workers that make channels at the same time seldom want the same lock.
const LISTS: usize = 16;

/// Which channels describe themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    All,
    /// Those without a bound.
    Unbounded,
}

/// A channel's description of itself, for reports.
#[derive(Debug, Clone)]
pub(crate) struct ChannelFacts {
    pub(crate) id: u64,
    /// The address of the channel; the stack of a fiber that has an end of it holds this address.
    pub(crate) address: usize,
    pub(crate) name: Option<Box<str>>,
    pub(crate) site: &'static Location<'static>,
    /// `None`: no bound.
    pub(crate) capacity: Option<usize>,
    pub(crate) len: usize,
    pub(crate) senders: usize,
    pub(crate) receivers: usize,
    pub(crate) closed: bool,
}

/// What the channel around a link says of itself, if it is asked.
type Describe = unsafe fn(*const Link, Asked) -> Option<ChannelFacts>;

/// The part of a channel that links it into a list of this registry.
#[derive(Debug)]
pub(crate) struct Link {
    prev: Cell<*const Link>,
    next: Cell<*const Link>,
    describe: Describe,
}

// SAFETY: the cells are touched only under the lock of the list.
unsafe impl Send for Link {}
// SAFETY: as above.
unsafe impl Sync for Link {}

impl Link {
    /// `describe` is called with the address of the link, while it is linked.
    pub(crate) fn new(describe: Describe) -> Self {
        Self { prev: Cell::new(ptr::null()), next: Cell::new(ptr::null()), describe }
    }
}

/// The first link of a list.
#[derive(Debug)]
struct First(Cell<*const Link>);

// SAFETY: touched only under its lock, and so is what it points to.
unsafe impl Send for First {}

static OBJECTS: [Mutex<First>; LISTS] = [const { Mutex::new(First(Cell::new(ptr::null()))) }; LISTS];

/// The list of the channel with this number.
fn list_of(id: u64) -> &'static Mutex<First> {
    &OBJECTS[(id % LISTS as u64) as usize]
}

/// Links the channel with this number.
///
/// # Safety
/// The link is linked nowhere, and stays where it is until [`remove`] was called.
pub(crate) unsafe fn add(link: *const Link, id: u64) {
    // SAFETY: the caller's promise.
    let new = unsafe { &*link };
    let first = list_of(id).lock();
    let next = first.0.replace(link);
    new.next.set(next);
    // SAFETY: a linked channel is alive, and the list is locked.
    if let Some(next) = unsafe { next.as_ref() } {
        next.prev.set(link);
    }
}

/// Unlinks a channel that [`add`] has linked, once: from now on the registry does not refer to it.
///
/// # Safety
/// It is linked, under this number.
pub(crate) unsafe fn remove(link: &Link, id: u64) {
    let first = list_of(id).lock();
    let (prev, next) = (link.prev.get(), link.next.get());
    // SAFETY: the neighbours of a linked channel are linked, and so they are alive; the list is locked.
    match unsafe { prev.as_ref() } {
        Some(prev) => prev.next.set(next),
        None => first.0.set(next),
    }
    // SAFETY: as above.
    if let Some(next) = unsafe { next.as_ref() } {
        next.prev.set(prev);
    }
}

/// The description of every channel of the process that is asked. The lists are locked one by one, so that a channel that is made or freed
/// meanwhile waits only for a short time.
pub(crate) fn channels(asked: Asked) -> Vec<ChannelFacts> {
    let mut facts = Vec::new();
    for list in &OBJECTS {
        let first = list.lock();
        let mut at = first.0.get();
        // SAFETY: a linked channel is alive as long as the list is locked.
        while let Some(link) = unsafe { at.as_ref() } {
            // SAFETY: the channel is linked, and so it may be asked.
            facts.extend(unsafe { (link.describe)(at, asked) });
            at = link.next.get();
        }
    }
    facts.sort_by_key(|channel| channel.id);
    facts
}

static RUNTIMES: Mutex<Vec<Weak<RuntimeShared>>> = Mutex::new(Vec::new());

/// A runtime has been built.
pub(crate) fn add_runtime(shared: &Arc<RuntimeShared>) {
    let mut runtimes = RUNTIMES.lock();
    runtimes.retain(|runtime| runtime.strong_count() > 0);
    runtimes.push(Arc::downgrade(shared));
}

/// The runtimes of this process, the oldest first. (Not those of the process that it was forked from.)
pub(crate) fn runtimes() -> Vec<Arc<RuntimeShared>> {
    let epoch = super::fork::epoch();
    let runtimes = RUNTIMES.lock();
    runtimes.iter().filter_map(Weak::upgrade).filter(|runtime| runtime.fork_epoch == epoch).collect()
}

/// For a fork: while the caller holds this, no other thread is inside a registry.
pub(crate) struct Locks {
    _runtimes: MutexGuard<'static, Vec<Weak<RuntimeShared>>>,
    _lists: [MutexGuard<'static, First>; LISTS],
}

impl Locks {
    pub(crate) fn take() -> Self {
        Self { _runtimes: RUNTIMES.lock(), _lists: OBJECTS.each_ref().map(Mutex::lock) }
    }
}
