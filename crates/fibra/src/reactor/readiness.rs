//! Readiness of one socket: how many reports came for it, which waits are linked, and in which drivers it is registered. This file is the
//! protocol alone, over any kind of driver, so that it can be model checked.
//!
//! Above: `source`, which has one for every socket and delivers the completions of real drivers. Below: `driver`'s words, wait nodes.
//!
//! A source has two sides, reading and writing. Each has a list of waits, its *homes*: the drivers in which that direction is registered,
//! and a count of reports. The first wait with a driver makes that driver a home. The home stays after the wait (edge-triggered: the next
//! wait costs no system call); when a waiter comes with another driver, homes without a waiter are given up. So a socket that
//! goes from worker to worker has one home at a time, and one that several workers wait for has one for each of them.
//!
//! **No edge is lost.** A waiter notes the count of reports ([`Source::reports`]), *then* tries, and gets `EAGAIN`. Linking its
//! node is refused if the count has changed since: then the waiter tries again. Otherwise, since its try,
//! * if its driver is a home, nothing was reported: an edge in that time is in that driver's queue, and finds the node;
//! * if its driver is not a home, linking registers there, and the kernel reports what is possible when an entry is made.
//!
//! Counting a report and waking the waiters are one step, and so are comparing the count, registering and linking: both steps hold the
//! lock. It does not matter which thread delivers a completion, nor when; and no waiter depends on a driver that another thread may cease
//! to run.
//!
//! **A report wakes every waiter** of that direction: each tries again. A wait that time or cancellation ends meanwhile takes no edge from
//! the others.
//!
//! **A short read means an empty queue**, on sockets where that holds (TCP). A reader that noted the count before such a
//! read and leaves that count in the source ([`Source::note_drained`]) spares the next reader a try: as long as the count is the same, all
//! of the above holds as if that reader had got `EAGAIN`. This does not hold once a report spoke of an end, an error or a mark: these are
//! there to be read and announce themselves only once.
//!
//! **A late completion does no harm.** It carries index and generation. A source is never freed, only reused, with another
//! generation; a completion that was fetched before wakes waiters, which try, get `EAGAIN` and wait again.
//!
//! **A driver that ends** takes its registrations along; a driver that rests, because its worker has left and the next worker of the seat
//! will have it, must not keep any. Fibers that wait with it have ended before; futures that were polled there may
//! wait on: they are woken ([`Source::abandon`]) and register where they are polled next.
//!
//! **Closing** needs the source by value, so the only waiters left then are futures that were forgotten; they are woken. A duplicate made
//! by `try_clone` has a source, an entry and homes of its own.
//!
//! The lock of a source is held over `epoll_ctl` when the homes change; it is contended by users of this one socket only.

use std::io;
use std::os::fd::RawFd;
use std::task::Waker;

use crate::driver::{Completion, Interest, Key};
use crate::prim::atomic::{AtomicU64, Ordering};
use crate::prim::bug::seeded_bug;
use crate::prim::spin::{Locked, SpinLock};
use crate::waiter::node::{Node, Outcome, WaitList, WaiterRef};
use crate::waiter::record::Claimed;

/// A driver, as a place where a socket can be registered.
pub(crate) trait RegisteringDriver: Sized {
    /// Names the driver without keeping it alive.
    type Weak: Send + std::fmt::Debug;
    fn weak(&self) -> Self::Weak;
    /// None: it is gone, and everything that was registered there.
    fn upgrade(weak: &Self::Weak) -> Option<Self>;
    /// The identity of the driver: the same for as long as a weak one exists, and different from that of every other driver.
    fn id(weak: &Self::Weak) -> *const ();
    fn own_id(&self) -> *const ();
    /// See `driver::Registrar::watch`.
    fn watch(&self, descriptor: RawFd, key: Key, from: Interest, to: Interest) -> io::Result<()>;
}

/// What is waited for on a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Direction {
    Read = 0,
    Write = 1,
}

impl Direction {
    const BOTH: [Self; 2] = [Self::Read, Self::Write];

    pub(crate) fn interest(self) -> Interest {
        match self {
            Self::Read => Interest::READ,
            Self::Write => Interest::WRITE,
        }
    }
}

/// The count of reports at some moment before a try. Odd: a report has spoken of an end, an error or a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "linking compares it"]
pub(crate) struct Seen(u64);

/// The amount that one report adds to the count.
const ONE_REPORT: u64 = 2;
/// The bit of a count that says: something other than data (an end, an error, a mark) is or was to be read.
const ENDS: u64 = 1;
/// In the place of a count: the last read was not short.
const NOT_DRAINED: u64 = u64::MAX;

/// The result of linking a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Linkage {
    /// Something was reported since the try: nothing is linked, try again.
    Stale,
    /// The driver was a home.
    AtHome,
    /// The driver was not a home, and is one from now on.
    Registered,
}

/// See the header.
#[derive(Debug)]
pub(crate) struct Source<D: RegisteringDriver> {
    pub(crate) index: u32,
    /// How often something was reported for each direction. Changed under the lock.
    reports: [AtomicU64; 2],
    /// The count before the last read that was short.
    drained: AtomicU64,
    state: SpinLock<SourceState<D>>,
}

#[derive(Debug)]
struct SourceState<D: RegisteringDriver> {
    generation: u32,
    descriptor: RawFd,
    sides: [Side<D>; 2],
}

#[derive(Debug)]
struct Side<D: RegisteringDriver> {
    /// The linked waits. `slot` of a node holds the home of its waiter.
    waiting: WaitList,
    homes: Vec<D::Weak>,
}

impl<D: RegisteringDriver> Side<D> {
    fn new() -> Self {
        Self { waiting: WaitList::new(), homes: Vec::new() }
    }

    fn is_home(&self, id: *const ()) -> bool {
        self.homes.iter().any(|home| D::id(home) == id)
    }

    /// Is a wait linked whose home is this driver?
    fn has_waiting(&self, id: *const ()) -> bool {
        // SAFETY: the caller has the side by reference, hence the lock; linked nodes are alive.
        let mut node = unsafe { self.waiting.front() };
        while let Some(now) = node {
            if now.slot.get().cast_const() == id {
                return true;
            }
            // SAFETY: as above; it is linked.
            node = unsafe { self.waiting.after(now) };
        }
        false
    }
}

impl<D: RegisteringDriver> SourceState<D> {
    fn side(&self, direction: Direction) -> &Side<D> {
        &self.sides[direction as usize]
    }

    /// What is registered in that driver.
    fn registered_in(&self, id: *const ()) -> Interest {
        let interest = |direction: Direction| match self.side(direction).is_home(id) {
            true => direction.interest(),
            false => Interest::NONE,
        };
        interest(Direction::Read) | interest(Direction::Write)
    }

    /// Makes `here` a home of a direction. True: it was not.
    fn settle(&mut self, index: u32, direction: Direction, here: &D) -> io::Result<bool> {
        let id = here.own_id();
        if self.side(direction).is_home(id) {
            return Ok(false);
        }
        let key = Key { index, generation: self.generation };
        let before = self.registered_in(id);
        // Registered here first, then removed elsewhere: if the first step fails, everything is as it was.
        here.watch(self.descriptor, key, before, before | direction.interest())?;
        let mut at = 0;
        while let Some(home) = self.side(direction).homes.get(at) {
            if self.side(direction).has_waiting(D::id(home)) && !seeded_bug("source_moves_on") {
                at += 1;
                continue;
            }
            let home = self.sides[direction as usize].homes.swap_remove(at);
            if let Some(registrar) = D::upgrade(&home) {
                let left = self.registered_in(D::id(&home));
                // It was registered there, by this descriptor: an error has no consequence.
                let _ = registrar.watch(self.descriptor, key, left | direction.interest(), left);
            }
        }
        self.sides[direction as usize].homes.push(here.weak());
        Ok(true)
    }

    /// Ends all registrations.
    fn unsettle(&mut self, index: u32) {
        let key = Key { index, generation: self.generation };
        for direction in Direction::BOTH {
            while let Some(home) = self.sides[direction as usize].homes.pop() {
                if let Some(registrar) = D::upgrade(&home) {
                    let left = self.registered_in(D::id(&home));
                    // As above.
                    let _ = registrar.watch(self.descriptor, key, left | direction.interest(), left);
                }
            }
        }
    }

    /// Wakes every waiter of this direction.
    fn complete(&self, direction: Direction, owed: &mut Vec<Waker>, mut enqueue: impl FnMut(WaiterRef)) {
        let waiting = &self.side(direction).waiting;
        // SAFETY: the caller holds the lock, and linked nodes are alive; a node is not touched after its waiter is woken.
        while let Some(node) = unsafe { waiting.front() } {
            // SAFETY: as above; it is in this list.
            unsafe { waiting.remove(node) };
            let (waiter, ticket, arm) = node.target();
            if let Some(claimed) = Claimed::of(waiter, ticket, arm) {
                // Selects with many arms read the outcome.
                node.outcome.set(Outcome::Done);
                owed.extend(claimed.make_runnable_with(&mut enqueue));
            }
        }
    }
}

/// A source that no other thread uses until this is dropped.
#[derive(Debug)]
pub(crate) struct LockedSource<'a, D: RegisteringDriver>(Locked<'a, SourceState<D>>);

impl<D: RegisteringDriver> LockedSource<'_, D> {
    /// In a child of a fork, which has no waiters: the threads that waited do not exist there.
    pub(crate) fn forget_waits(&mut self) {
        self.0.with(|state| state.sides.iter_mut().for_each(|side| side.waiting = WaitList::new()));
    }
}

impl<D: RegisteringDriver> Source<D> {
    pub(crate) fn new(index: u32) -> Self {
        Self {
            index,
            reports: [AtomicU64::new(0), AtomicU64::new(0)],
            drained: AtomicU64::new(NOT_DRAINED),
            state: SpinLock::new(SourceState { generation: 0, descriptor: -1, sides: [Side::new(), Side::new()] }),
        }
    }

    /// Locks it over a fork, so that it is whole in the child.
    pub(crate) fn lock(&self) -> LockedSource<'_, D> {
        LockedSource(self.state.lock())
    }

    /// From now on it is the source of this descriptor.
    pub(crate) fn begin(&self, descriptor: RawFd) {
        self.state.with(|state| state.descriptor = descriptor);
    }

    /// Ends the registrations, and its being the source of that descriptor. The wakers are to be called.
    pub(crate) fn end(&self, enqueue: impl FnMut(WaiterRef) + Copy) -> Vec<Waker> {
        let mut owed = Vec::new();
        self.state.with(|state| {
            state.unsettle(self.index);
            if !seeded_bug("source_same_generation") {
                state.generation = state.generation.wrapping_add(1);
            }
            state.descriptor = -1;
            for direction in Direction::BOTH {
                // Relaxed: the next user of the source gets it by a lock.
                self.reports[direction as usize].store(0, Ordering::Relaxed);
                state.complete(direction, &mut owed, enqueue);
            }
            self.drained.store(NOT_DRAINED, Ordering::Relaxed); // Relaxed: as above.
        });
        owed
    }

    /// The count of reports so far. To be read before a try.
    #[inline(always)]
    pub(crate) fn reports(&self, direction: Direction) -> Seen {
        // Acquire: the try comes after it. (A value that is too old costs another try.)
        Seen(self.reports[direction as usize].load(Ordering::Acquire))
    }

    /// Notes that a read between this count and now was short, on a socket where that means that the queue was empty.
    #[inline(always)]
    pub(crate) fn note_drained(&self, seen: Seen) {
        let seen = if seeded_bug("source_drained_late") { self.reports(Direction::Read) } else { seen };
        // Relaxed: it is compared with a count, and the thread that links compares that count under the lock.
        self.drained.store(if seen.0 & ENDS == 0 { seen.0 } else { NOT_DRAINED }, Ordering::Relaxed);
    }

    /// Is the queue known to be empty? Then the caller goes on as if a try had failed with `EAGAIN` at this count.
    #[inline(always)]
    pub(crate) fn is_drained(&self) -> Option<Seen> {
        let seen = self.reports(Direction::Read);
        // Relaxed: as above.
        (self.drained.load(Ordering::Relaxed) == seen.0).then_some(seen)
    }

    /// Registers a direction with a driver, unless it is registered there already. True: it was not.
    pub(crate) fn register_with(&self, here: &D, direction: Direction) -> io::Result<bool> {
        self.state.with(|state| state.settle(self.index, direction, here))
    }

    /// Links a wait after a try that failed with `EAGAIN`, registered with this driver. The node stays where it is until it is unlinked.
    pub(crate) fn link_with(&self, here: &D, direction: Direction, seen: Seen, node: &Node) -> io::Result<Linkage> {
        self.state.with(|state| {
            // Relaxed: it changes under the lock.
            let now = self.reports[direction as usize].load(Ordering::Relaxed);
            if now != seen.0 && !seeded_bug("source_links_blindly") {
                return Ok(Linkage::Stale);
            }
            let is_new = state.settle(self.index, direction, here)?;
            node.slot.set(here.own_id().cast_mut());
            // SAFETY: under the lock of the list; the node is not linked, and stays where it is until it is unlinked (this function's
            // contract, which waits, selects and futures keep: they unlink before they return, or lie in a record that is never freed).
            unsafe { state.side(direction).waiting.push_back(node) };
            Ok(if is_new { Linkage::Registered } else { Linkage::AtHome })
        })
    }

    /// Takes a wait back, if it is still linked. When this returns, no other thread touches the node any more.
    pub(crate) fn unlink(&self, direction: Direction, node: &Node) {
        if seeded_bug("source_cancel_unconfirmed") {
            return;
        }
        // SAFETY: under the lock of the list, in which `link_with` has put it.
        self.state.with(|state| unsafe { state.side(direction).waiting.remove(node) });
    }

    /// Delivers a driver's report to the waiters of this source.
    pub(crate) fn report(&self, completion: Completion, owed: &mut Vec<Waker>, enqueue: impl FnMut(WaiterRef) + Copy) {
        self.state.with(|state| {
            // Another generation: the socket of this completion was closed meanwhile.
            if state.generation != completion.key.generation {
                return;
            }
            for direction in Direction::BOTH {
                if completion.ready.contains(direction.interest()) {
                    self.count(direction, completion.ends);
                    state.complete(direction, owed, enqueue);
                }
            }
        });
    }

    /// A driver ends, or rests until the next worker of its seat comes: its registrations go, and every waiter that may have
    /// waited with it is woken.
    pub(crate) fn abandon(&self, driver: &D, owed: &mut Vec<Waker>, enqueue: impl FnMut(WaiterRef) + Copy) {
        let id = driver.own_id();
        self.state.with(|state| {
            let key = Key { index: self.index, generation: state.generation };
            for direction in Direction::BOTH {
                let homes = &mut state.sides[direction as usize].homes;
                let Some(at) = homes.iter().position(|home| D::id(home) == id) else { continue };
                homes.swap_remove(at);
                let left = state.registered_in(id);
                // It was registered there, by this descriptor: an error has no consequence.
                let _ = driver.watch(state.descriptor, key, left | direction.interest(), left);
                self.count(direction, false);
                if !seeded_bug("source_abandons_silently") {
                    state.complete(direction, owed, enqueue);
                }
            }
        });
    }

    /// Counts a report. The caller holds the lock.
    fn count(&self, direction: Direction, ends: bool) {
        let reports = &self.reports[direction as usize];
        // Relaxed: it changes under the lock only.
        let now = reports.load(Ordering::Relaxed).wrapping_add(ONE_REPORT) | if ends { ENDS } else { 0 };
        // Relaxed: the count is all there is to know, and the thread that links compares it under the lock.
        reports.store(now, Ordering::Relaxed);
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
