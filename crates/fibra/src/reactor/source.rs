//! The table of the sources (readiness state) of all sockets of this process, and the path of a driver's completion to its source.
//!
//! Above: `wait::io`, which links waits, and the worker's loop, which delivers what its driver has fetched. Below: `readiness`, the
//! protocol of one source, which says why no edge is lost; `driver`.
//!
//! * Sources are in a slab that is never freed (`prim::slab`): a completion carries index and generation, and finds the source or another
//!   life of it.
//! * A wait on a worker is registered with that worker's driver; a wait on any other thread, with the driver of `outside_io`.
//! * A worker that ends wakes every waiter that is registered with its driver.
//! * Descriptors of machines have keys of their own (a bit says so), and a table of their own: `machine::platform::Reactor`.

use std::io;
use std::os::fd::RawFd;
use std::task::Waker;

pub(crate) use super::readiness::{Direction, Seen};
use super::readiness::{Linkage, LockedSource, RegisteringDriver};
use crate::driver::{Completion, Interest, Key, Registrar, WeakRegistrar};
use crate::fiber::frame::Frame;
use crate::prim::slab::{Free, Never, Record, Slab};
use crate::sched::current;
use crate::sched::enqueue::{QueueEnd, enqueue};
use crate::sched::rules::IoRules;
use crate::waiter::node::{Node, Outcome, WaiterRef};
use crate::waiter::record::call_wakers;

/// The source of one socket.
pub(crate) type Source = super::readiness::Source<Registrar>;

impl RegisteringDriver for Registrar {
    type Weak = WeakRegistrar;

    fn weak(&self) -> WeakRegistrar {
        self.downgrade()
    }
    fn upgrade(weak: &WeakRegistrar) -> Option<Self> {
        weak.upgrade()
    }
    #[inline]
    fn id(weak: &WeakRegistrar) -> *const () {
        weak.id()
    }
    #[inline]
    fn own_id(&self) -> *const () {
        self.id()
    }
    fn watch(&self, descriptor: RawFd, key: Key, from: Interest, to: Interest) -> io::Result<()> {
        Registrar::watch(self, descriptor, key, from, to)
    }
}

fn make_runnable(fiber: WaiterRef) {
    enqueue(Frame::from_waiter(fiber), QueueEnd::Tail);
}

impl Source {
    /// A source for an open descriptor, which is closed after the source.
    pub(crate) fn open(descriptor: RawFd) -> &'static Source {
        let source = SOURCES.take();
        source.begin(descriptor);
        source
    }

    /// Ends the registrations and gives the source back. The caller must not use the source after this.
    pub(crate) fn close(&'static self) {
        call_wakers(self.end(make_runnable));
        SOURCES.give(self);
    }

    /// Registers a direction with the driver of the calling worker (or with that of `outside_io`), unless it is registered there already.
    pub(crate) fn register(&self, direction: Direction) -> io::Result<()> {
        with_registrar(|registrar| self.register_with(registrar, direction).map(|is_new| (is_new, ())))
    }

    /// Links a wait after a try that failed with `EAGAIN`, registered with the driver of the calling worker (or with that of `outside_io`).
    /// The node stays where it is until it is unlinked. False: something was reported since the try; nothing is linked.
    pub(crate) fn link(&self, direction: Direction, seen: Seen, node: &Node) -> io::Result<bool> {
        with_registrar(|registrar| {
            let linked = self.link_with(registrar, direction, seen, node)?;
            Ok((linked == Linkage::Registered, linked != Linkage::Stale))
        })
    }

    /// The same from the stack of a fiber that is going to wait there: a call, whose frame is gone by then, and an answer of one word.
    /// `Pending`: it is linked; `Retry`: something was reported since the try; `Closed`: it cannot be registered, and
    /// [`register`](Self::register) says why.
    #[inline(never)]
    pub(crate) fn link_briefly(&self, direction: Direction, seen: Seen, node: &Node) -> Outcome {
        match self.link(direction, seen, node) {
            Ok(true) => Outcome::Pending,
            Ok(false) => Outcome::Retry,
            Err(_) => Outcome::Closed,
        }
    }
}

/// Calls `f` with the registrar of the worker that runs here, or, on a thread that is not a worker, with that of `outside_io`. `f` returns
/// whether it registered, and a result that is passed through.
fn with_registrar<T>(f: impl FnOnce(&Registrar) -> io::Result<(bool, T)>) -> io::Result<T> {
    match current::worker() {
        Some(worker) => {
            let (is_new, answer) = f(worker.registrar())?;
            if is_new {
                worker.arm_driver();
            }
            Ok(answer)
        }
        None => f(&super::outside_io::registrar()?).map(|(_, answer)| answer),
    }
}

/// Delivers a driver's report to the waiters of its source. Wakers of async waits are returned, to be called where user code may run.
pub(crate) fn deliver(completion: Completion, owed: &mut Vec<Waker>) {
    if let Some(source) = SOURCES.find(completion.key.index) {
        source.report(completion, owed, make_runnable);
    }
}

/// Is there a socket, in the process, whose next report calls a waker?
pub(crate) fn may_call_wakers() -> bool {
    SOURCES.all().any(|source| source.has_waker())
}

/// What the workers call: `sched::rules::IoRules`.
#[derive(Debug)]
pub(crate) struct Rules;

impl IoRules for Rules {
    fn deliver(&self, completion: Completion, owed: &mut Vec<Waker>) {
        deliver(completion, owed);
    }

    fn abandon(&self, registrar: &Registrar) {
        let mut owed = Vec::new();
        for source in SOURCES.all() {
            source.abandon(registrar, &mut owed, make_runnable);
        }
        call_wakers(owed);
    }
}

// ---- The slab ---------------------------------------------------------------------------------------------------------------

/// Looked into without a lock by every completion. Of the whole process: sockets are shared by its runtimes and its threads.
static SOURCES: Slab<Source> = Slab::new();

impl Record for Source {
    /// The sockets of a small program; a server grows by doubling.
    const FIRST: usize = 64;
    type Aside = Never;
    fn slab() -> &'static Slab<Self> {
        &SOURCES
    }
    fn make(number: u32) -> Self {
        Source::new(number)
    }
    fn recall(aside: Never) -> &'static [Self] {
        match aside {}
    }
}

/// Held over a fork; see `fork`. All sources too: a child may use a socket that another thread was using.
pub(crate) struct SlabLock {
    each: Vec<LockedSource<'static, Registrar>>,
    _sources: Free<Source>,
}

impl SlabLock {
    pub(crate) fn take() -> Self {
        let sources = SOURCES.lock();
        let mut each = Vec::with_capacity(SOURCES.made());
        each.extend(SOURCES.all().map(Source::lock));
        Self { each, _sources: sources }
    }

    /// In the child.
    pub(crate) fn forget_waits(&mut self) {
        self.each.iter_mut().for_each(LockedSource::forget_waits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Driver, Timeout};
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn every_index_is_found() {
        let taken: Vec<_> = (0..300).map(|_| SOURCES.take()).collect();
        for source in &taken {
            assert!(std::ptr::eq(SOURCES.find(source.index).unwrap(), *source));
        }
        taken.into_iter().for_each(|source| SOURCES.give(source));
        assert!(SOURCES.find(u32::MAX).is_none() && SOURCES.find(u32::MAX - 1).is_none());
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
        let settle = |direction, registrar: &Registrar| source.register_with(registrar, direction).unwrap();
        assert!(settle(Direction::Read, &first));
        assert!(!settle(Direction::Read, &first), "at home already");
        assert!(settle(Direction::Write, &first));
        let reported = keys(&mut one);
        let &[(generation, ready)] = &reported[..] else { panic!("{reported:?}") };
        assert_eq!(ready, Interest::READ | Interest::WRITE);
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
        let again = Source::open(here.as_raw_fd());
        if std::ptr::eq(again, source) {
            again.register_with(&second, Direction::Read).unwrap();
            assert_ne!(keys(&mut two)[0].0, generation);
        }
        again.close();
    }

    // A driver that is gone has taken its registrations along.
    #[test]
    fn a_home_may_be_gone() {
        let (here, _there) = UnixStream::pair().unwrap();
        let source = Source::open(here.as_raw_fd());
        let mut driver = Driver::new().unwrap();
        for _ in 0..3 {
            let registrar = driver.registrar();
            assert!(source.register_with(&registrar, Direction::Write).unwrap());
            assert_eq!(keys(&mut driver).len(), 1);
            drop(registrar);
            driver = Driver::new().unwrap();
        }
        source.close();
    }
}
