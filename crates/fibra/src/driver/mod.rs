//! The driver: the one place where a worker blocks in the kernel, and the only code that knows which kernel interface that is.
//!
//! Above: the worker's loop (and the event loop of machines), which asks to wait until its next timer. Below: [`epoll`].
//!
//! * [`Driver::wait`] is `platform_wait` of the specification: it returns when something happened or the deadline has passed, and
//!   it returns the current time, which is then the time for everything that the loop does in that round.
//! * [`Kicker::kick`] ends a wait from any thread. A kick is never lost: one that comes before the wait ends the next wait at once.
//!   Several kicks may end one wait. Whether a kick is needed at all is decided above (the idle handshake); it costs a
//!   system call.
//! * [`Registrar::watch`] submits a *standing operation*: from then on each [`Completion`] with its key says that reading or writing that
//!   descriptor may have become possible, beginning with what is possible at once. Watching [`Interest::NONE`] ends it, from any thread; a
//!   completion that was on its way by then may still arrive; its receiver recognises it by the generation in the key.
//! * [`Registrar::tell`] has a driver report a key for which the kernel reports nothing: a descriptor that another thread has closed.
//! * Completions are fetched by `wait` and taken one by one ([`Driver::next_completion`]): the loop completes them when it is awake again,
//!   and a bounded number at a time. Nothing here knows of waiters.
//! * The interface says nothing of epoll, so that another platform can stand in: for io_uring the standing operation is a multishot poll
//!   with the key as its user data, and ending it a cancellation of that poll.
//! * Every descriptor is close-on-exec. After `fork` the child shares the parent's descriptors, and must not wait on them.

#[cfg(not(any(loom, shuttle)))]
mod epoll;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod file;
mod interest;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod signal;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod socket;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod transfer;

#[cfg(not(any(loom, shuttle)))]
pub(crate) use epoll::{Registrar, WeakRegistrar};
pub(crate) use interest::{Completion, Interest, Key, OF_MACHINE};

use crate::prim::sync::Arc;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// How long to wait at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// Until this moment of `prim::policy`.
    Until(u64),
    /// Until something happens.
    Forever,
}

/// What a kernel interface must offer to carry a worker's loop.
pub(crate) trait Platform: Sized {
    type Registrar;
    fn new() -> io::Result<Self>;
    fn wait(&mut self, timeout: Timeout) -> io::Result<u64>;
    fn has_fetched(&self) -> bool;
    fn next_completion(&mut self) -> Option<Completion>;
    fn kicker(&self) -> Kicker;
    fn registrar(&self) -> Self::Registrar;
}

/// The driver of one worker.
#[cfg(not(any(loom, shuttle)))]
#[derive(Debug)]
pub(crate) struct Driver(epoll::Epoll);

#[cfg(not(any(loom, shuttle)))]
impl Driver {
    /// Takes two file descriptors. The error says what was missing and what to do about it.
    pub(crate) fn new() -> io::Result<Self> {
        Platform::new().map(Self)
    }

    /// Waits for an event, a kick, a signal or the end of `timeout`, and returns the time then. With [`Timeout::Until`] and
    /// nothing else to report, the returned time is never before the deadline.
    #[inline]
    pub(crate) fn wait(&mut self, timeout: Timeout) -> io::Result<u64> {
        self.0.wait(timeout)
    }

    /// Did an event or a kick end the last wait, and not the time alone? Asked before completions are taken.
    pub(crate) fn has_fetched(&self) -> bool {
        self.0.has_fetched()
    }

    /// The completions that the last wait has fetched, one by one. Those that are not taken are kept by the next wait.
    #[inline]
    pub(crate) fn next_completion(&mut self) -> Option<Completion> {
        self.0.next_completion()
    }

    /// A handle by which any thread begins and ends standing operations.
    pub(crate) fn registrar(&self) -> Registrar {
        self.0.registrar()
    }

    /// A handle that ends this driver's waits.
    pub(crate) fn kicker(&self) -> Kicker {
        self.0.kicker()
    }
}

/// Ends a wait of the driver it came from. It may outlive the driver; then it does nothing.
#[derive(Debug, Clone)]
pub(crate) struct Kicker {
    /// An eventfd that the driver watches for edges: every write is one, so the counter is never read.
    event: Arc<OwnedFd>,
}

impl Kicker {
    pub(crate) fn kick(&self) {
        let one: u64 = 1;
        loop {
            // SAFETY: the descriptor is ours and open, and the eight bytes are valid for reading.
            let written = unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
            if written >= 0 {
                return;
            }
            match io::Error::last_os_error().kind() {
                io::ErrorKind::Interrupted => {}
                // The counter is full after 2^64 - 2 kicks, which no process lives to see. Nothing else can go wrong with an
                // eventfd that we own; if it does, other code has closed a descriptor that it does not own.
                io::ErrorKind::WouldBlock => return,
                kind => {
                    debug_assert!(false, "fibra: writing to a worker's eventfd failed: {kind}");
                    return;
                }
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::prim::{policy, thread};
    use std::collections::HashSet;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    #[test]
    fn a_kick_ends_an_endless_wait() {
        let mut driver = Driver::new().unwrap();
        let kicker = driver.kicker();
        let kicking = thread::start("kicking".into(), move || {
            std::thread::sleep(Duration::from_millis(20));
            kicker.kick();
        });
        driver.wait(Timeout::Forever).unwrap();
        kicking.unwrap().join().unwrap();
    }

    #[test]
    fn a_kick_before_the_wait_is_not_lost() {
        let mut driver = Driver::new().unwrap();
        let kicker = driver.kicker();
        // Each round would hang if its kick were lost; the counter is never read, and must not matter.
        for _ in 0..1000 {
            kicker.clone().kick();
            kicker.kick();
            driver.wait(Timeout::Forever).unwrap();
        }
        // All kicks have been delivered: now the deadline ends the wait.
        let deadline = policy::now() + 5_000_000;
        assert!(driver.wait(Timeout::Until(deadline)).unwrap() >= deadline);
    }

    #[test]
    fn kicks_and_waits_of_two_drivers_alternate() {
        // Ping-pong: every wait is ended by exactly one kick of the other side; a lost one hangs.
        const ROUNDS: usize = 2000;
        let mut here = Driver::new().unwrap();
        let mut there = Driver::new().unwrap();
        let (kick_here, kick_there) = (here.kicker(), there.kicker());
        let peer = thread::start("peer".into(), move || {
            for _ in 0..ROUNDS {
                there.wait(Timeout::Forever).unwrap();
                kick_here.kick();
            }
        });
        for _ in 0..ROUNDS {
            kick_there.kick();
            here.wait(Timeout::Forever).unwrap();
        }
        peer.unwrap().join().unwrap();
    }

    #[test]
    fn a_deadline_is_never_early_and_the_past_does_not_wait() {
        let mut driver = Driver::new().unwrap();
        for round in 0..200u64 {
            let deadline = policy::now() + round * 7_919;
            let now = driver.wait(Timeout::Until(deadline)).unwrap();
            assert!(now >= deadline && now <= policy::now());
        }
        // These return at once, or the test does not end.
        driver.wait(Timeout::Until(0)).unwrap();
        let before = policy::now();
        assert!(driver.wait(Timeout::Until(before)).unwrap() >= before);
    }

    #[test]
    fn a_deadline_in_the_far_future_still_hears_a_kick() {
        let mut driver = Driver::new().unwrap();
        driver.kicker().kick();
        driver.wait(Timeout::Until(u64::MAX)).unwrap();
    }

    fn completions(driver: &mut Driver) -> Vec<Completion> {
        driver.wait(Timeout::Until(0)).unwrap();
        std::iter::from_fn(|| driver.next_completion()).collect()
    }

    #[test]
    fn a_standing_operation_reports_what_is_possible_and_every_edge_after_it() {
        let mut driver = Driver::new().unwrap();
        let registrar = driver.registrar();
        let (here, mut there) = UnixStream::pair().unwrap();
        there.write_all(b"before").unwrap();
        let key = Key { index: 7, generation: 3 };
        registrar.watch(here.as_raw_fd(), key, Interest::NONE, Interest::READ).unwrap();
        assert!(registrar.is_in_use());
        let readable = Completion { key, ready: Interest::READ, ends: false };
        assert_eq!(completions(&mut driver), [readable], "it was possible when it was asked for");
        assert_eq!(completions(&mut driver), [], "once");
        there.write_all(b"after").unwrap();
        assert_eq!(completions(&mut driver), [readable], "an edge, although the byte was not read");
        // The other direction joins it: what is possible is reported anew.
        registrar.watch(here.as_raw_fd(), key, Interest::READ, Interest::READ | Interest::WRITE).unwrap();
        let both = Completion { key, ready: Interest::READ | Interest::WRITE, ends: false };
        assert_eq!(completions(&mut driver), [both]);
        drop(there);
        assert_eq!(completions(&mut driver), [Completion { ends: true, ..both }], "a hang-up is both");
        registrar.watch(here.as_raw_fd(), key, Interest::READ | Interest::WRITE, Interest::NONE).unwrap();
        assert_eq!(completions(&mut driver), []);
        assert!(!registrar.is_in_use());
    }

    #[test]
    fn completions_come_a_bounded_number_at_a_time_and_none_is_forgotten() {
        let mut driver = Driver::new().unwrap();
        let registrar = driver.registrar();
        let pairs: Vec<_> = (0..400).map(|_| UnixStream::pair().unwrap()).collect();
        for (index, (here, there)) in pairs.iter().enumerate() {
            let key = Key { index: index as u32, generation: 0 };
            registrar.watch(here.as_raw_fd(), key, Interest::NONE, Interest::READ).unwrap();
            (&*there).write_all(b"x").unwrap();
        }
        let mut seen = HashSet::new();
        let first = completions(&mut driver);
        assert!(!first.is_empty() && first.len() < pairs.len(), "{}", first.len());
        seen.extend(first.iter().map(|completion| completion.key.index));
        // One is taken, the rest is left to the next wait.
        driver.wait(Timeout::Until(0)).unwrap();
        seen.extend(driver.next_completion().map(|completion| completion.key.index));
        while seen.len() < pairs.len() {
            let more = completions(&mut driver);
            assert!(!more.is_empty(), "{} of {} were reported", seen.len(), pairs.len());
            seen.extend(more.iter().map(|completion| completion.key.index));
        }
    }

    #[test]
    fn two_drivers_watch_one_descriptor() {
        // As while a registration moves: added there, then removed here.
        let (mut one, mut two) = (Driver::new().unwrap(), Driver::new().unwrap());
        let (here, mut there) = UnixStream::pair().unwrap();
        let key = Key { index: 0, generation: 0 };
        one.registrar().watch(here.as_raw_fd(), key, Interest::NONE, Interest::READ).unwrap();
        there.write_all(b"x").unwrap();
        two.registrar().watch(here.as_raw_fd(), key, Interest::NONE, Interest::READ).unwrap();
        one.registrar().watch(here.as_raw_fd(), key, Interest::READ, Interest::NONE).unwrap();
        assert_eq!((completions(&mut one).len(), completions(&mut two).len()), (0, 1));
    }

    #[test]
    fn what_is_told_ends_a_wait_and_is_reported_once() {
        let mut driver = Driver::new().unwrap();
        let registrar = driver.registrar();
        let key = |index| Key { index, generation: 1 };
        let telling =
            thread::start("telling".into(), move || [1, 2].into_iter().for_each(|index| registrar.tell(key(index))))
                .unwrap();
        let mut seen = HashSet::new();
        while seen.len() < 2 {
            // Would hang if the kick came without the key, or before it.
            driver.wait(Timeout::Forever).unwrap();
            while let Some(completion) = driver.next_completion() {
                assert!(completion.ends && completion.ready == Interest::READ | Interest::WRITE);
                assert!(seen.insert(completion.key.index), "once");
            }
        }
        telling.join().unwrap();
        assert!(!driver.registrar().is_in_use() && completions(&mut driver).is_empty());
        driver.registrar().tell(key(3));
        assert!(driver.registrar().is_in_use(), "a busy loop looks here");
    }

    #[test]
    fn a_registrar_outlives_nothing() {
        let driver = Driver::new().unwrap();
        let weak = driver.registrar().downgrade();
        assert!(weak.upgrade().is_some() && driver.registrar().id() == weak.id());
        drop(driver);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn a_kicker_outlives_its_driver() {
        let kicker = Driver::new().unwrap().kicker();
        kicker.kick();
    }
}
