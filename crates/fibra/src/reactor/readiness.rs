//! Sources of readiness: what is known of one socket, who waits for it, and in which drivers it is registered. The protocol alone, over
//! any kind of driver, so that it can be model checked.
//!
//! Above: `source`, which has one for every socket and brings the completions of real drivers. Below: `driver`'s words, wait nodes.
//!
//! A source has two sides, reading and writing. Each has a list of waits, its *homes*: the drivers in which that direction is registered,
//! and a count of reports. A home is made by the first who waits with that driver and stays after the wait (edge-triggered: the next wait
//! costs no system call); when somebody waits with another driver, homes with which nobody waits any more are given up. So a socket that
//! goes from worker to worker has one home at a time, and one that several workers wait for has one for each of them.
//!
//! **No edge is lost.** Whoever waits notes the count of reports ([`Source::reports`]), *then* tries, and is told `EAGAIN`. Linking his
//! node is refused if the count has changed since: then he tries again. Otherwise, since his try,
//! * if his driver is a home, nothing was reported: an edge in that time is in that driver's queue, and finds the node;
//! * if it is not, linking registers there, and the kernel reports what is possible when an entry is made.
//!
//! Counting and setting going are one step, and so are comparing, registering and linking: both hold the lock. It does not matter who
//! brings a completion, nor when; and nobody depends on a driver that somebody else may cease to run.
//!
//! **A report sets everybody going** who waits for that direction: each tries again. One that is ended by time or cancellation meanwhile
//! takes no edge from the others.
//!
//! **A read that was short was the last one**, on sockets where it is (TCP: the queue was empty). Whoever noted the count before such a
//! read and leaves it in the source ([`Source::note_drained`]) spares the next reader a try: as long as the count is the same, all the
//! above holds as if that one had been told `EAGAIN`. Not once a report spoke of an end, an error or a mark: these are there to be read
//! and announce themselves only once.
//!
//! **A completion of the past does no harm.** It carries index and generation. A source is never freed, only reused, with another
//! generation; a completion that was fetched before sets waiters going, who try in vain and wait again.
//!
//! **A driver that ends** takes its registrations along; one that rests, because its worker has left and the next one of the seat will have
//! it, must not keep any. Fibers that wait with it have ended before; futures that were polled there may
//! wait on: they are set going ([`Source::abandon`]) and register where they are polled next.
//!
//! **Closing** needs the source by value, so nobody waits then but futures that were forgotten; they are set going. A duplicate made by
//! `try_clone` has a source, an entry and homes of its own.
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

/// A driver, as a place to be registered at.
pub(crate) trait Place: Sized {
    /// Names it without keeping it.
    type Weak: Send + std::fmt::Debug;
    fn weak(&self) -> Self::Weak;
    /// None: it is gone, and everything that was registered there.
    fn upgrade(weak: &Self::Weak) -> Option<Self>;
    /// The same for as long as a weak one exists, and nobody else's.
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

/// The count of reports at some moment before a try. Odd: they have spoken of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "linking compares it"]
pub(crate) struct Seen(u64);

/// What one report adds.
const ONE_REPORT: u64 = 2;
/// Something else than data is or was to be read.
const ENDS: u64 = 1;
/// No count: no read was short.
const NOT_DRAINED: u64 = u64::MAX;

/// What became of linking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Linkage {
    /// Something was reported since the try: nothing is linked, try again.
    Stale,
    /// The driver was a home.
    AtHome,
    /// It is one from now on.
    Registered,
}

/// See the header.
#[derive(Debug)]
pub(crate) struct Source<D: Place> {
    pub(crate) index: u32,
    /// How often something was reported for each direction. Changed under the lock.
    reports: [AtomicU64; 2],
    /// The count before the last read that was short.
    drained: AtomicU64,
    state: SpinLock<State<D>>,
}

#[derive(Debug)]
struct State<D: Place> {
    generation: u32,
    descriptor: RawFd,
    sides: [Side<D>; 2],
}

#[derive(Debug)]
struct Side<D: Place> {
    /// In `slot` of a node: the home of who waits.
    waiting: WaitList,
    homes: Vec<D::Weak>,
}

impl<D: Place> Side<D> {
    fn new() -> Self {
        Self { waiting: WaitList::new(), homes: Vec::new() }
    }

    fn is_home(&self, id: *const ()) -> bool {
        self.homes.iter().any(|home| D::id(home) == id)
    }

    /// Does anybody wait with this driver?
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

impl<D: Place> State<D> {
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
        // First here, then away from elsewhere: if this fails, everything is as it was.
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
                // It was registered there, by this descriptor: nothing can go wrong that matters.
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

    /// Sets everybody going who waits for this direction.
    fn complete(&self, direction: Direction, owed: &mut Vec<Waker>, mut enqueue: impl FnMut(WaiterRef)) {
        let waiting = &self.side(direction).waiting;
        // SAFETY: the caller holds the lock, and linked nodes are alive; a node is not touched after its wait is set going.
        while let Some(node) = unsafe { waiting.front() } {
            // SAFETY: as above; it is in this list.
            unsafe { waiting.remove(node) };
            let (waiter, ticket, arm) = node.target();
            if let Some(claimed) = Claimed::of(waiter, ticket, arm) {
                // For selects with many arms.
                node.outcome.set(Outcome::Done);
                owed.extend(claimed.go_with(&mut enqueue));
            }
        }
    }
}

/// A source that nobody else uses until this is dropped.
#[derive(Debug)]
pub(crate) struct LockedSource<'a, D: Place>(Locked<'a, State<D>>);

impl<D: Place> LockedSource<'_, D> {
    /// In a child of a fork, where nobody waits: their threads do not exist.
    pub(crate) fn forget_waits(&mut self) {
        self.0.with(|state| state.sides.iter_mut().for_each(|side| side.waiting = WaitList::new()));
    }
}

impl<D: Place> Source<D> {
    pub(crate) fn new(index: u32) -> Self {
        Self {
            index,
            reports: [AtomicU64::new(0), AtomicU64::new(0)],
            drained: AtomicU64::new(NOT_DRAINED),
            state: SpinLock::new(State { generation: 0, descriptor: -1, sides: [Side::new(), Side::new()] }),
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
                // Relaxed: whoever uses it next gets it by a lock.
                self.reports[direction as usize].store(0, Ordering::Relaxed);
                state.complete(direction, &mut owed, enqueue);
            }
            self.drained.store(NOT_DRAINED, Ordering::Relaxed); // Relaxed: as above.
        });
        owed
    }

    /// What has been reported so far. To be asked before a try.
    #[inline(always)]
    pub(crate) fn reports(&self, direction: Direction) -> Seen {
        // Acquire: the try comes after it. (A value that is too old costs another try.)
        Seen(self.reports[direction as usize].load(Ordering::Acquire))
    }

    /// A read between this count and now was short, on a socket where that means that there was nothing more.
    #[inline(always)]
    pub(crate) fn note_drained(&self, seen: Seen) {
        let seen = if seeded_bug("source_drained_late") { self.reports(Direction::Read) } else { seen };
        // Relaxed: compared with a count; whoever links compares that under the lock.
        self.drained.store(if seen.0 & ENDS == 0 { seen.0 } else { NOT_DRAINED }, Ordering::Relaxed);
    }

    /// Is there nothing to be read, as far as anybody knows? Then as if a try had been made at this count.
    #[inline(always)]
    pub(crate) fn is_drained(&self) -> Option<Seen> {
        let seen = self.reports(Direction::Read);
        // Relaxed: as above.
        (self.drained.load(Ordering::Relaxed) == seen.0).then_some(seen)
    }

    /// Registers a direction with a driver, unless it is already. True: it was not.
    pub(crate) fn register_with(&self, here: &D, direction: Direction) -> io::Result<bool> {
        self.state.with(|state| state.settle(self.index, direction, here))
    }

    /// Links a wait after a try that was in vain, registered with this driver. It stays where it is until it is unlinked.
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

    /// Takes a wait back, if it is still there. When this returns, nobody touches the node any more.
    pub(crate) fn unlink(&self, direction: Direction, node: &Node) {
        if seeded_bug("source_cancel_unconfirmed") {
            return;
        }
        // SAFETY: under the lock of the list, in which `link_with` has put it.
        self.state.with(|state| unsafe { state.side(direction).waiting.remove(node) });
    }

    /// What a driver has to report, to those who wait for it.
    pub(crate) fn report(&self, completion: Completion, owed: &mut Vec<Waker>, enqueue: impl FnMut(WaiterRef) + Copy) {
        self.state.with(|state| {
            // Otherwise it is of the past: the socket was closed meanwhile.
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

    /// A driver ends, or rests until the next worker of its seat comes: its registrations go, and everybody is set going who may have
    /// waited for it.
    pub(crate) fn abandon(&self, driver: &D, owed: &mut Vec<Waker>, enqueue: impl FnMut(WaiterRef) + Copy) {
        let id = driver.own_id();
        self.state.with(|state| {
            let key = Key { index: self.index, generation: state.generation };
            for direction in Direction::BOTH {
                let homes = &mut state.sides[direction as usize].homes;
                let Some(at) = homes.iter().position(|home| D::id(home) == id) else { continue };
                homes.swap_remove(at);
                let left = state.registered_in(id);
                // It was registered there, by this descriptor: nothing can go wrong that matters.
                let _ = driver.watch(state.descriptor, key, left | direction.interest(), left);
                self.count(direction, false);
                if !seeded_bug("source_abandons_silently") {
                    state.complete(direction, owed, enqueue);
                }
            }
        });
    }

    /// Under the lock.
    fn count(&self, direction: Direction, ends: bool) {
        let reports = &self.reports[direction as usize];
        // Relaxed: it changes under the lock only.
        let now = reports.load(Ordering::Relaxed).wrapping_add(ONE_REPORT) | if ends { ENDS } else { 0 };
        // Relaxed: the count is all there is to know; whoever links compares it under the lock.
        reports.store(now, Ordering::Relaxed);
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
