//! The lock of a channel: a spin lock that may have a *home*, one worker that takes it without a read-modify-write.
//!
//! A locked instruction costs as much as twenty others, and most channels are used by one worker only. There, to lock is to store a byte
//! and to look whether this is still the home.
//!
//! * *A home is earned.* The fibers that wait for the channel say where they run ([`note_wait`](HomeLock::note_wait)). If the first
//!   [`FIRST_WAITS`] waits were all on one worker, that is its home. A wait on another worker, or on a plain thread, ends that for good, if
//!   there is no home at the moment. Plain sends and receives say so; selects, futures and waits with a deadline do not count.
//! * *A home is lost* to any other thread that takes the lock. All but the home take the spin lock first. Then such a thread says that
//!   the home ends, makes every thread of the process pass a fence (`fence.rs`) and waits until the home is not inside. The same worker
//!   may earn it again, with so many waits ([`WAITS_AGAIN`]) that what the fence costs is nothing beside them. A report, which only looks
//!   and does so seldom, gives it back ([`lock_to_look`](HomeLock::lock_to_look)).
//!
//! Invariants
//! * The holder has either set `inside`, as the home, or holds `spin`. Which of the two, `home` tells: it is even from the moment at which
//!   a worker becomes the home, under `spin`, until the home has ended and is not inside, under `spin`. So all that hold the lock one
//!   after the other agree on it.
//! * The home sets `inside`, passes the light fence and looks whether it is the home; a thread that ends that writes `home`, passes the
//!   heavy fence and looks at `inside`. One of the two sees the other.
//! * Only one worker is ever the home of a lock: so a worker that stands between its two looks, for however long, finds no other's
//!   `inside`.
//!
//! Eight bytes, since there may be a channel for each of a million fibers. Above: `channel::chan`. Below: `spin.rs`, `fence.rs`.

use super::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use super::bug::seeded_bug;
use super::fence;
use super::spin::{Patience, RawSpin};

/// Who locks: a worker, by a number that no other worker of this process ever has, or another thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lane(u32);

impl Lane {
    /// Any thread that is no worker.
    pub(crate) const NONE: Self = Self(0);

    /// The next worker's. (After a billion of them: none.)
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        // Relaxed, both: unique, that is all.
        let next = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| next.checked_add(1));
        next.map_or(Self::NONE, Self::numbered)
    }

    fn numbered(number: u32) -> Self {
        if number < 1 << (u32::BITS - TAG_BITS) { Self(number << TAG_BITS) } else { Self::NONE }
    }
}

/// What `home` says: a lane, and in its lowest bits one of these.
const TAG_BITS: u32 = 2;
/// The lane is the home.
const HOME: u32 = 0;
/// The lane alone has waited so far, or was the home and may be again. With no lane: no wait was noted.
const CANDIDATE: u32 = 1;
/// The lane was the home, and may still be inside.
const ENDING: u32 = 2;
/// There will be none.
const NEVER: u32 = 3;
/// Is this bit set, the lock is held by `spin`.
const BY_SPIN: u32 = 1;

/// So many waits of one worker make it the home, the first time.
const FIRST_WAITS: u16 = 64;
/// So many, after it was lost: then a fence costs less than a nanosecond for each wait.
const WAITS_AGAIN: u16 = 16_384;

/// A look at what the lock guards, and the home that it has ended for that.
#[must_use]
#[derive(Debug)]
pub(crate) struct Look(Option<u32>);

/// See the header.
#[derive(Debug)]
pub(crate) struct HomeLock {
    spin: RawSpin,
    inside: AtomicBool,
    /// How many more waits make the candidate the home. Only a guess: several threads may count at once.
    waits_left: AtomicU16,
    home: AtomicU32,
}

impl HomeLock {
    pub(crate) fn new() -> Self {
        Self {
            spin: RawSpin::new(),
            inside: AtomicBool::new(false),
            waits_left: AtomicU16::new(FIRST_WAITS),
            home: AtomicU32::new(CANDIDATE),
        }
    }

    #[inline(always)]
    pub(crate) fn lock(&self, me: Lane) {
        if !self.try_lock(me) {
            self.lock_slow(me);
        }
    }

    /// Takes the lock if it is free and that is simple. (Without a call, so that a path which goes elsewhere otherwise needs no frame.)
    #[inline(always)]
    #[must_use]
    pub(crate) fn try_lock(&self, me: Lane) -> bool {
        // (Models of channels have no lanes, and need not explore this look.)
        let may_be_home = !cfg!(any(loom, shuttle)) || me != Lane::NONE;
        // Relaxed: a guess. If it is this worker, it wrote that itself.
        if may_be_home && self.home.load(Ordering::Relaxed) == me.0 | HOME {
            return self.enter(me);
        }
        if !self.spin.try_lock() {
            return false;
        }
        let is_held = self.is_by_spin() || seeded_bug("home_overlooked");
        if !is_held {
            self.spin.unlock();
        }
        is_held
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, me: Lane) {
        if self.try_lock(me) {
            return;
        }
        self.spin.lock();
        if self.is_by_spin() || seeded_bug("home_overlooked") {
            return;
        }
        // Relaxed: while it is even, only a thread that holds `spin` writes it.
        if self.home.load(Ordering::Relaxed) == me.0 | HOME {
            // A look kept this worker out, and gave the home back meanwhile.
            // Relaxed: a thread that ends the home takes `spin` first, whose unlock shows it that this one is inside.
            self.inside.store(true, Ordering::Relaxed);
            return self.spin.unlock();
        }
        self.end_home();
    }

    /// Gives the lock back. Only its holder may call this.
    #[inline(always)]
    pub(crate) fn unlock(&self) {
        if self.is_by_spin() {
            self.spin.unlock();
        } else {
            // Release: pairs with the acquire in `end_home`: what was done inside is seen by the thread that ends it.
            self.inside.store(false, Ordering::Release);
        }
    }

    #[inline(always)]
    fn enter(&self, me: Lane) -> bool {
        // Relaxed: the fence orders it before the look.
        self.inside.store(true, Ordering::Relaxed);
        fence::light();
        // Acquire: what follows is not done before the look. (What the lock guards was last written by this worker, or before it became
        // the home.)
        let is_home = self.home.load(Ordering::Acquire) == me.0 | HOME || seeded_bug("home_looks_once");
        if !is_home {
            // Release: as in `unlock`, for what was done inside before: it may be this store that is seen. (No model would miss it: there
            // the light fence is a whole one.)
            self.inside.store(false, Ordering::Release);
        }
        is_home
    }

    /// For a thread that has taken `spin`, or holds the lock: is it held by that?
    #[inline(always)]
    fn is_by_spin(&self) -> bool {
        // Relaxed: a worker becomes the home under `spin`, whose acquire shows it; and the holder reads what it saw when it took the
        // lock, or a change that leaves the bit as it is.
        self.home.load(Ordering::Relaxed) & BY_SPIN != 0
    }

    #[cold]
    #[inline(never)]
    fn end_home(&self) {
        // Relaxed, all three: while it is even, only a thread that holds `spin` writes it; and the fence orders the write before the look.
        let lane = self.home.load(Ordering::Relaxed);
        self.home.store(lane | ENDING, Ordering::Relaxed);
        self.waits_left.store(WAITS_AGAIN, Ordering::Relaxed);
        if !seeded_bug("home_ends_without_fence") {
            fence::heavy();
        }
        let mut patience = Patience::new();
        // Acquire: pairs with the release in `unlock`.
        while self.inside.load(Ordering::Acquire) && !seeded_bug("home_not_awaited") {
            patience.wait();
        }
        // Relaxed: this thread is the holder; `unlock` publishes it.
        self.home.store(lane | CANDIDATE, Ordering::Relaxed);
    }

    /// Takes the lock for a look that changes nothing, of a thread that looks seldom: the home stays the home.
    pub(crate) fn lock_to_look(&self, me: Lane) -> Look {
        if self.try_lock(me) {
            return Look(None);
        }
        self.spin.lock();
        if self.is_by_spin() {
            return Look(None);
        }
        // Relaxed: while it is even, only a thread that holds `spin` writes it.
        let home = self.home.load(Ordering::Relaxed);
        self.end_home();
        Look(Some(home))
    }

    /// The look is over.
    pub(crate) fn end_look(&self, look: Look) {
        let Look(Some(home)) = look else { return self.unlock() };
        // Release: pairs with the acquire in `enter`: the look comes before what the home does next. Relaxed on failure: a wait elsewhere
        // was noted, and there will be no home.
        _ = self.home.compare_exchange(home | CANDIDATE, home, Ordering::Release, Ordering::Relaxed);
        // (Not `unlock`, as in `settle`.)
        self.spin.unlock();
    }

    /// Says that a fiber or thread of `me` is about to wait for what the lock guards. The lock is not held.
    #[inline(always)]
    pub(crate) fn note_wait(&self, me: Lane) {
        // Relaxed: a guess, which decides only what is counted.
        let home = self.home.load(Ordering::Relaxed);
        if home & BY_SPIN != 0 && home != NEVER {
            self.count_wait(me, home);
        }
    }

    /// `home`: what was seen there, a candidate's.
    #[inline(never)]
    fn count_wait(&self, me: Lane, home: u32) {
        // Relaxed, all: which waits are counted is of no consequence for who holds the lock. (A change fails if the lock has a home by now;
        // it never makes one, nor clears the lowest bit.)
        let change = |to| _ = self.home.compare_exchange(home, to, Ordering::Relaxed, Ordering::Relaxed);
        let is_first = home == CANDIDATE;
        if me == Lane::NONE || !is_first && home != me.0 | CANDIDATE {
            return change(NEVER);
        }
        if is_first {
            change(me.0 | CANDIDATE);
        }
        // Relaxed, both: a count that may be wrong.
        let left = self.waits_left.load(Ordering::Relaxed);
        if left <= 1 {
            return self.settle(me);
        }
        // Relaxed: as above.
        self.waits_left.store(left - 1, Ordering::Relaxed);
    }

    /// This worker, which has waited often enough, is the home from now on.
    #[cold]
    #[inline(never)]
    fn settle(&self, me: Lane) {
        if !fence::is_cheap() {
            // It may be known to be later. Relaxed: as in `count_wait`.
            return self.waits_left.store(WAITS_AGAIN, Ordering::Relaxed);
        }
        self.lock(me);
        // Relaxed, both: this worker alone will act on it without taking `spin`, whose unlock shows it to all others.
        let change = self.home.compare_exchange(me.0 | CANDIDATE, me.0 | HOME, Ordering::Relaxed, Ordering::Relaxed);
        if change.is_err() {
            return self.unlock();
        }
        // (Not `unlock`, which asks `home`.)
        self.spin.unlock();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::{BY_SPIN, FIRST_WAITS, HomeLock, Lane, NEVER, Ordering, WAITS_AGAIN};
    use crate::prim::fence;

    fn lanes() -> (Lane, Lane) {
        // (In a process with several threads, as this is, `prepare` would not do it.)
        fence::heavy();
        (Lane::new(), Lane::new())
    }

    fn has_home(lock: &HomeLock) -> bool {
        lock.home.load(Ordering::Relaxed) & BY_SPIN == 0
    }

    fn wait(lock: &HomeLock, me: Lane, times: u16) {
        (0..times).for_each(|_| lock.note_wait(me));
    }

    #[test]
    fn no_two_workers_have_one_lane() {
        let (one, other) = lanes();
        assert!(one != other && one != Lane::NONE);
        assert_eq!(Lane::numbered(u32::MAX), Lane::NONE, "there are none left");
        assert_eq!(size_of::<HomeLock>(), 8);
    }

    #[test]
    fn waits_of_one_worker_make_it_the_home() {
        let (lock, (here, _)) = (HomeLock::new(), lanes());
        wait(&lock, here, FIRST_WAITS - 1);
        assert!(!has_home(&lock));
        wait(&lock, here, 1);
        assert_eq!(has_home(&lock), fence::is_cheap());
        lock.lock(here);
        lock.unlock();
        assert!(lock.try_lock(here));
        lock.unlock();
        assert_eq!(has_home(&lock), fence::is_cheap(), "its own worker does not end it");
    }

    #[test]
    fn another_thread_ends_it_and_it_is_earned_anew_by_many_more_waits() {
        let (lock, (here, there)) = (HomeLock::new(), lanes());
        let mut waits = FIRST_WAITS;
        for other in [there, Lane::NONE, there] {
            wait(&lock, here, waits - 1);
            assert!(!has_home(&lock));
            wait(&lock, here, 1);
            assert_eq!(has_home(&lock), fence::is_cheap());
            assert!(!fence::is_cheap() || !lock.try_lock(other), "not without ending it");
            lock.lock(other);
            assert!(!has_home(&lock));
            assert!(!lock.try_lock(here));
            lock.unlock();
            waits = WAITS_AGAIN;
        }
    }

    #[test]
    fn a_look_gives_the_home_back() {
        let (lock, (here, there)) = (HomeLock::new(), lanes());
        wait(&lock, here, FIRST_WAITS);
        for me in [here, there, Lane::NONE] {
            let look = lock.lock_to_look(me);
            assert!(me == here || !has_home(&lock), "{me:?}");
            lock.end_look(look);
            assert_eq!(has_home(&lock), fence::is_cheap(), "{me:?}");
            lock.lock(here);
            lock.unlock();
        }
        lock.lock(there);
        lock.unlock();
        lock.end_look(lock.lock_to_look(there));
        assert!(!has_home(&lock), "there was none to give back");
    }

    #[test]
    fn a_wait_elsewhere_ends_it_for_good() {
        let (here, there) = lanes();
        for other in [there, Lane::NONE] {
            let lock = HomeLock::new();
            wait(&lock, here, FIRST_WAITS - 1);
            wait(&lock, other, 1);
            wait(&lock, here, 3 * FIRST_WAITS);
            assert_eq!(lock.home.load(Ordering::Relaxed), NEVER);
        }
    }

    #[test]
    fn stress_a_home_and_two_others_are_never_inside_at_once() {
        const TIMES: u64 = 20_000;
        #[derive(Clone, Copy)]
        struct Guarded<'a>(&'a HomeLock, &'a std::cell::UnsafeCell<u64>);
        // SAFETY: the count is touched under the lock.
        unsafe impl Send for Guarded<'_> {}

        let (lock, count, (here, there)) = (HomeLock::new(), std::cell::UnsafeCell::new(0), lanes());
        let guarded = Guarded(&lock, &count);
        let run = move |me: Lane, pause: u64| {
            let Guarded(lock, count) = { guarded };
            for time in 0..TIMES {
                if me == here {
                    // So that it is the home again and again.
                    // Relaxed: a guess, as in `count_wait`.
                    lock.waits_left.store(1, Ordering::Relaxed);
                    lock.note_wait(me);
                }
                lock.lock(me);
                // SAFETY: the lock is held.
                unsafe { *count.get() += 1 };
                lock.unlock();
                if pause != 0 && time % pause == 0 {
                    crate::prim::policy::sleep(std::time::Duration::from_micros(50));
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(move || run(here, 0));
            scope.spawn(move || run(there, 50));
            scope.spawn(move || run(Lane::NONE, 70));
        });
        // SAFETY: the others have ended.
        assert_eq!(unsafe { *count.get() }, 3 * TIMES);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::{CANDIDATE, HomeLock, Lane, Ordering};
    use crate::prim::cell::UnsafeCell;
    use crate::prim::model::{check, thread};
    use crate::prim::sync::Arc;

    const HERE: Lane = Lane(64);
    const THERE: Lane = Lane(128);

    /// What the lock guards: loom reports two that touch it at once.
    struct Guarded {
        lock: HomeLock,
        count: UnsafeCell<u32>,
    }

    // SAFETY: the count is touched under the lock.
    unsafe impl Sync for Guarded {}
    // SAFETY: as above.
    unsafe impl Send for Guarded {}

    impl Guarded {
        fn new() -> Arc<Self> {
            Arc::new(Self { lock: HomeLock::new(), count: UnsafeCell::new(0) })
        }

        fn add(&self, me: Lane) {
            self.lock.lock(me);
            // SAFETY: the lock is held.
            self.count.with_mut(|count| unsafe { *count += 1 });
            self.lock.unlock();
        }

        /// As after many waits.
        fn settle(&self, me: Lane) {
            _ = self.lock.home.compare_exchange(CANDIDATE, me.0 | CANDIDATE, Ordering::Relaxed, Ordering::Relaxed);
            self.lock.settle(me);
        }

        fn look(&self) -> u32 {
            let look = self.lock.lock_to_look(THERE);
            // SAFETY: the lock is held.
            let count = self.count.with(|count| unsafe { *count });
            self.lock.end_look(look);
            count
        }

        fn count(&self) -> u32 {
            self.lock.lock(Lane::NONE);
            // SAFETY: the lock is held.
            let count = self.count.with(|count| unsafe { *count });
            self.lock.unlock();
            count
        }
    }

    /// The home locks while another thread ends its being the home.
    #[test]
    fn model_home_against_its_end() {
        check(3, || {
            let guarded = Guarded::new();
            guarded.settle(HERE);
            let other = guarded.clone();
            let thread = thread::spawn(move || other.add(Lane::NONE));
            guarded.add(HERE);
            guarded.add(HERE);
            thread.join().unwrap();
            assert_eq!(guarded.count(), 3);
        });
    }

    /// A worker becomes the home while another locks: that one looks at the mode after it has the spin lock.
    #[test]
    fn model_settling_against_another() {
        check(3, || {
            let guarded = Guarded::new();
            let other = guarded.clone();
            let thread = thread::spawn(move || other.add(THERE));
            guarded.settle(HERE);
            guarded.add(HERE);
            thread.join().unwrap();
            assert_eq!(guarded.count(), 2);
        });
    }

    /// The home is lost and earned again, while another locks twice.
    #[test]
    fn model_home_again_against_two_ends() {
        check(2, || {
            let guarded = Guarded::new();
            guarded.settle(HERE);
            let other = guarded.clone();
            let thread = thread::spawn(move || {
                other.add(THERE);
                other.add(THERE);
            });
            guarded.add(HERE);
            guarded.settle(HERE);
            guarded.add(HERE);
            thread.join().unwrap();
            assert_eq!(guarded.count(), 4);
        });
    }

    /// A look gives the home back, while it is inside or about to be.
    #[test]
    fn model_home_against_a_look() {
        check(3, || {
            let guarded = Guarded::new();
            guarded.settle(HERE);
            let other = guarded.clone();
            let thread = thread::spawn(move || other.look());
            guarded.add(HERE);
            guarded.add(HERE);
            assert!(thread.join().unwrap() <= 2);
            assert_eq!(guarded.count(), 2);
        });
    }

    /// A home that a look keeps out does not end itself: it is the home still when both are over.
    #[test]
    fn model_home_outlives_a_look() {
        check(3, || {
            let guarded = Guarded::new();
            guarded.settle(HERE);
            let other = guarded.clone();
            let thread = thread::spawn(move || other.look());
            guarded.add(HERE);
            thread.join().unwrap();
            assert!(!guarded.lock.is_by_spin(), "there is no home any more");
            assert_eq!(guarded.count(), 1);
        });
    }

    /// One looks, and another ends the home that the look gives back.
    #[test]
    fn model_look_against_an_end() {
        check(2, || {
            let guarded = Guarded::new();
            guarded.settle(HERE);
            let (looks, ends) = (guarded.clone(), guarded.clone());
            let threads = [thread::spawn(move || _ = looks.look()), thread::spawn(move || ends.add(THERE))];
            guarded.add(HERE);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(guarded.count(), 2);
        });
    }

    /// Two others end it at once.
    #[test]
    fn model_home_against_two_others() {
        check(2, || {
            let guarded = Guarded::new();
            guarded.settle(HERE);
            let threads = [THERE, Lane::NONE].map(|lane| {
                let other = guarded.clone();
                thread::spawn(move || other.add(lane))
            });
            guarded.add(HERE);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(guarded.count(), 3);
        });
    }
}
