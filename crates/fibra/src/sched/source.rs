//! Sources of readiness: what is known of one socket, who waits for it, and in which driver it is registered.
//!
//! Above: `wait::io`, which links waits here, and the worker's loop, which brings completions of its driver. Below: `driver`.
//!
//! A source has two sides, reading and writing. Each has a list of waits and a *home*: the driver in which that direction is registered.
//! It is made by the first who waits, stays after the wait (edge-triggered: the next wait costs no system call), and moves when somebody
//! of another worker waits. It ends before the descriptor is closed.
//!
//! **No edge is lost.** Whoever waits has tried, and has been told `EAGAIN`, before. Completions of a driver are brought by its worker's
//! loop alone, between two fibers. So:
//! * If the home is the waiter's own worker, no completion is brought between its try and its being linked: a fiber does not leave its
//!   worker in between. An edge in that time is in the kernel's queue, and finds the node.
//! * If the home is elsewhere, or there is none, linking registers here, and the kernel reports what is possible when an entry is made. The
//!   node is linked under the same lock, so that whoever moves the home on meanwhile reports to this node too.
//! * The thread of `outside_io` brings completions at any time, also between a thread's try and its being linked. There linking has the
//!   kernel report what is possible once more.
//! * A completion sets *everybody* going who waits for that direction: each tries again. One that is ended by time or cancellation
//!   meanwhile takes no edge from the others.
//!
//! **A completion of the past does no harm.** It carries index and generation. The source of that index is never freed, only reused, with
//! another generation; a completion that was fetched before the home moved sets waiters going, who try in vain and wait again.
//!
//! **Closing** needs the source by value, so nobody waits then; if somebody does all the same, it is set going and finds the descriptor
//! closed. A duplicate made by `try_clone` has a source, an entry and homes of its own.
//!
//! The lock of a source is held over `epoll_ctl` when the home changes; it is contended by users of this one socket only.

use std::io;
use std::os::fd::RawFd;

use super::current;
use super::enqueue::{Place, enqueue};
use super::worker::Worker;
use crate::driver::{Completion, Interest, Key, Registrar, Timeout, WeakRegistrar};
use crate::fiber::frame::Frame;
use crate::prim::atomic::{AtomicPtr, Ordering};
use crate::prim::clock;
use crate::prim::spin::SpinLock;
use crate::prim::sync::{Mutex, MutexGuard};
use crate::wait::node::{Node, WaitList, WaiterRef};
use crate::wait::waker::{Claimed, call_all};
use crate::wait::word::{Arm, Ticket};

/// Written into a node by the completion that ended its wait, for selects with many arms.
const DONE: u8 = 1;

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

    fn other(self) -> Self {
        match self {
            Self::Read => Self::Write,
            Self::Write => Self::Read,
        }
    }
}

/// See the header.
#[derive(Debug)]
pub(crate) struct Source {
    index: u32,
    state: SpinLock<State>,
}

#[derive(Debug)]
struct State {
    generation: u32,
    descriptor: RawFd,
    sides: [Side; 2],
}

#[derive(Debug)]
struct Side {
    waiting: WaitList,
    home: Option<WeakRegistrar>,
}

impl State {
    fn side(&self, direction: Direction) -> &Side {
        &self.sides[direction as usize]
    }

    /// What is registered in that driver.
    fn registered_in(&self, home: &WeakRegistrar) -> Interest {
        let is_home = |side: &Side| side.home.as_ref().is_some_and(|other| other.is_same(home));
        let interest = |direction: Direction| match is_home(self.side(direction)) {
            true => direction.interest(),
            false => Interest::NONE,
        };
        interest(Direction::Read) | interest(Direction::Write)
    }

    /// Makes `here` the home of a direction. True: it was not.
    fn settle(&mut self, index: u32, direction: Direction, here: &Registrar) -> io::Result<bool> {
        if self.side(direction).home.as_ref().is_some_and(|home| here.is(home)) {
            return Ok(false);
        }
        let key = Key { index, generation: self.generation };
        let new = here.downgrade();
        let before = self.registered_in(&new);
        // First there, then away from here: if that fails, everything is as it was.
        here.watch(self.descriptor, key, before, before | direction.interest())?;
        if let Some(old) = self.sides[direction as usize].home.replace(new)
            && let Some(registrar) = old.upgrade()
        {
            let left = self.registered_in(&old);
            // It was registered there, by this descriptor: nothing can go wrong that matters.
            let _ = registrar.watch(self.descriptor, key, left | direction.interest(), left);
        }
        Ok(true)
    }

    /// Has what is possible reported once more, in a driver where something is registered.
    fn report_again(&self, index: u32, here: &Registrar) -> io::Result<()> {
        let now = self.registered_in(&here.downgrade());
        here.watch(self.descriptor, Key { index, generation: self.generation }, now, now)
    }

    /// Ends all registrations.
    fn unsettle(&mut self, index: u32) {
        let key = Key { index, generation: self.generation };
        for direction in Direction::BOTH {
            let Some(home) = self.sides[direction as usize].home.take() else { continue };
            let other = &mut self.sides[direction.other() as usize].home;
            let both = other.as_ref().is_some_and(|other| other.is_same(&home));
            if both {
                *other = None;
            }
            let from = if both { Interest::READ | Interest::WRITE } else { direction.interest() };
            if let Some(registrar) = home.upgrade() {
                // As above.
                let _ = registrar.watch(self.descriptor, key, from, Interest::NONE);
            }
        }
    }

    /// Sets everybody going who waits for this direction.
    fn complete(&self, direction: Direction, owed: &mut Vec<std::task::Waker>) {
        let waiting = &self.side(direction).waiting;
        // SAFETY: the caller holds the lock, and linked nodes are alive; a node is not touched after its wait is set going.
        while let Some(node) = unsafe { waiting.front() } {
            // SAFETY: as above; it is in this list.
            unsafe { waiting.remove(node) };
            let (waiter, ticket, arm) = node.target();
            if let Some(claimed) = Claimed::of(waiter, ticket, arm) {
                node.outcome.set(DONE);
                owed.extend(claimed.go_with(|fiber| enqueue(Frame::from_waiter(fiber), Place::Tail)));
            }
        }
    }
}

impl Source {
    /// A source for an open descriptor, which is closed after the source.
    pub(crate) fn open(descriptor: RawFd) -> &'static Source {
        let source = Slab::take();
        source.state.with(|state| state.descriptor = descriptor);
        source
    }

    /// Ends the registrations and gives the source back. Nobody may use it after this.
    pub(crate) fn close(&'static self) {
        let mut owed = Vec::new();
        self.state.with(|state| {
            state.unsettle(self.index);
            state.generation = state.generation.wrapping_add(1);
            state.descriptor = -1;
            for direction in Direction::BOTH {
                state.complete(direction, &mut owed);
            }
        });
        call_all(owed);
        SOURCES.lock().free.push(self);
    }

    /// Registers a direction with the driver of whoever runs here, unless it is already.
    pub(crate) fn register(&self, direction: Direction) -> io::Result<()> {
        with_registrar(|registrar, _| self.state.with(|state| state.settle(self.index, direction, registrar)))
    }

    /// Links a wait, registered with the driver of whoever runs here. It stays where it is until it is unlinked.
    pub(crate) fn link(
        &self,
        direction: Direction,
        node: &Node,
        waiter: WaiterRef,
        ticket: Ticket,
        arm: Arm,
    ) -> io::Result<()> {
        with_registrar(|registrar, again| {
            self.state.with(|state| {
                let moved = state.settle(self.index, direction, registrar)?;
                if !moved && again {
                    state.report_again(self.index, registrar)?;
                }
                node.set(waiter, ticket, arm);
                node.outcome.set(0);
                // SAFETY: under the lock of the list; the node is not linked, and stays where it is until it is unlinked (this function's
                // contract, which waits and selects keep: they unlink before they return).
                unsafe { state.side(direction).waiting.push_back(node) };
                Ok(moved)
            })
        })
    }

    /// Takes a wait back, if it is still there.
    pub(crate) fn unlink(&self, direction: Direction, node: &Node) {
        // SAFETY: under the lock of the list, in which `link` has put it.
        self.state.with(|state| unsafe { state.side(direction).waiting.remove(node) });
    }
}

/// Calls `f` with the registrar of the worker that runs here, or of the thread that serves threads; and whether completions may be
/// brought at this very moment. `f` says whether it registered.
fn with_registrar(f: impl FnOnce(&Registrar, bool) -> io::Result<bool>) -> io::Result<()> {
    match current::worker() {
        Some(worker) => {
            if f(&worker.registrar, false)? {
                worker.arm_driver();
            }
            Ok(())
        }
        None => f(&super::outside_io::registrar()?, true).map(|_| ()),
    }
}

/// What a driver has to report, to those who wait for it. Wakers of async waits come back, to be called where user code may run.
pub(crate) fn deliver(completion: Completion, owed: &mut Vec<std::task::Waker>) {
    let Some(source) = Slab::find(completion.key.index) else { return };
    source.state.with(|state| {
        // Otherwise it is of the past: the socket was closed meanwhile.
        if state.generation == completion.key.generation {
            for direction in Direction::BOTH {
                if completion.ready.contains(direction.interest()) {
                    state.complete(direction, owed);
                }
            }
        }
    });
}

impl Worker {
    /// Something is registered here from now on: a busy worker looks at its driver now and then.
    fn arm_driver(&self) {
        if !self.armed.replace(true) {
            self.polled_at.set(clock::cycles());
        }
    }

    /// What a busy worker does after a bounded time: fetches what has happened, without waiting.
    pub(super) fn look_at_driver(&self) {
        if self.registrar.is_in_use() {
            self.platform_wait(Timeout::Until(0));
            self.deliver_completions();
        }
    }

    /// Brings what the last wait has fetched to those who wait for it. Bounded by what one wait fetches.
    pub(super) fn deliver_completions(&self) {
        let mut owed = Vec::new();
        while let Some(completion) = self.driver.with(|driver| driver.next_completion()) {
            deliver(completion, &mut owed);
        }
        self.call_wakers(owed);
        self.polled_at.set(clock::cycles());
    }
}

// ---- The slab ---------------------------------------------------------------------------------------------------------------

/// Sources of the first chunk; each chunk is twice as large as the one before.
const FIRST_CHUNK: u32 = 64;
/// Enough for half of all indices, which is more descriptors than a process can have.
const CHUNKS: usize = 25;

/// The chunks, never freed: looked into without a lock by every completion.
static TABLE: [AtomicPtr<Source>; CHUNKS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS];
/// The sources that are free. Of the whole process: sockets are shared by its runtimes and its threads.
static SOURCES: Mutex<Slab> = Mutex::new(Slab { free: Vec::new(), chunks: 0 });

struct Slab {
    free: Vec<&'static Source>,
    chunks: usize,
}

/// Held over a fork; see `fork`.
pub(super) struct SlabLock {
    _sources: MutexGuard<'static, Slab>,
}

impl SlabLock {
    pub(super) fn take() -> Self {
        Self { _sources: SOURCES.lock() }
    }
}

impl Slab {
    fn take() -> &'static Source {
        let mut slab = SOURCES.lock();
        match slab.free.pop() {
            Some(source) => source,
            None => slab.grow(),
        }
    }

    fn grow(&mut self) -> &'static Source {
        let (first, len) = (FIRST_CHUNK * ((1 << self.chunks) - 1), FIRST_CHUNK << self.chunks);
        let side = || Side { waiting: WaitList::new(), home: None };
        let new = |index| Source {
            index,
            state: SpinLock::new(State { generation: 0, descriptor: -1, sides: [side(), side()] }),
        };
        let chunk: &'static mut [Source] = Box::leak((first..first + len).map(new).collect());
        let start = chunk.as_mut_ptr();
        // Lowest index last, so that it is taken first.
        self.free.extend(chunk.iter().rev());
        // Release: pairs with the acquire in `find`; whoever finds it finds it made.
        TABLE[self.chunks].store(start, Ordering::Release);
        self.chunks += 1;
        self.free.pop().expect("a chunk was added")
    }

    /// The source with this index. None: no driver has made such a key.
    fn find(index: u32) -> Option<&'static Source> {
        let chunk = (index / FIRST_CHUNK + 1).ilog2();
        // Acquire: pairs with the release in `grow`.
        let start = TABLE.get(chunk as usize)?.load(Ordering::Acquire);
        if start.is_null() {
            return None;
        }
        let offset = index - FIRST_CHUNK * ((1 << chunk) - 1);
        // SAFETY: chunk `n` has `FIRST_CHUNK << n` sources, from index `FIRST_CHUNK * (2^n - 1)` on, and `chunk` is the one of this index;
        // chunks are leaked, and shared only.
        Some(unsafe { &*start.add(offset as usize) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Driver;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn every_index_is_found() {
        let taken: Vec<_> = (0..300).map(|_| Slab::take()).collect();
        for source in &taken {
            assert!(std::ptr::eq(Slab::find(source.index).unwrap(), *source));
        }
        SOURCES.lock().free.extend(taken);
        assert!(Slab::find(u32::MAX).is_none() && Slab::find(u32::MAX - 1).is_none());
    }

    fn keys(driver: &mut Driver) -> Vec<(u32, Interest)> {
        driver.wait(Timeout::Until(0)).unwrap();
        std::iter::from_fn(|| driver.next_completion())
            .map(|completion| (completion.key.generation, completion.ready))
            .collect()
    }

    // Both directions in one entry, each of which moves on its own; the end takes all of them along.
    #[test]
    fn homes_move_by_direction_and_end_with_the_source() {
        let (mut one, mut two) = (Driver::new().unwrap(), Driver::new().unwrap());
        let (first, second) = (one.registrar(), two.registrar());
        let (here, mut there) = UnixStream::pair().unwrap();
        there.write_all(b"x").unwrap();
        let source = Source::open(here.as_raw_fd());
        let generation = source.state.with(|state| state.generation);
        let settle = |direction, registrar: &Registrar| {
            source.state.with(|state| state.settle(source.index, direction, registrar)).unwrap()
        };
        assert!(settle(Direction::Read, &first));
        assert!(!settle(Direction::Read, &first), "at home already");
        assert!(settle(Direction::Write, &first));
        assert_eq!(keys(&mut one), [(generation, Interest::READ | Interest::WRITE)]);
        // Reading moves, writing stays.
        assert!(settle(Direction::Read, &second));
        assert_eq!(keys(&mut two), [(generation, Interest::READ)], "what is possible is reported at the new home");
        keys(&mut one);
        there.write_all(b"y").unwrap();
        assert_eq!(keys(&mut two), [(generation, Interest::READ)]);
        assert!(first.is_in_use() && second.is_in_use());
        assert!(settle(Direction::Write, &second));
        assert!(!first.is_in_use());
        source.close();
        assert!(!second.is_in_use());
        assert_eq!(keys(&mut one), []);
        assert_ne!(source.state.with(|state| state.generation), generation);
    }

    // A driver that is gone has taken its registrations along.
    #[test]
    fn a_home_may_be_gone() {
        let (here, _there) = UnixStream::pair().unwrap();
        let source = Source::open(here.as_raw_fd());
        let mut driver = Driver::new().unwrap();
        for _ in 0..3 {
            let registrar = driver.registrar();
            assert!(source.state.with(|state| state.settle(source.index, Direction::Write, &registrar)).unwrap());
            assert_eq!(keys(&mut driver).len(), 1);
            drop(registrar);
            driver = Driver::new().unwrap();
        }
        source.close();
    }
}
