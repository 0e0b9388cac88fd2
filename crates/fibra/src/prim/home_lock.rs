//! The lock of a channel: a spin lock that may have a *home*, one worker that takes it without a read-modify-write.
//!
//! A locked instruction costs as much as twenty others, and most channels are used by one worker only. There, to lock is to store a byte
//! and to look whether this is still the home.
//!
//! * *A home is earned.* The fibers that wait for the channel say where they run ([`note_wait`](HomeLock::note_wait)). If the first
//!   [`FIRST_WAITS`] waits were all on one worker, that is its home. A wait on another worker, or on a plain thread, ends that for good.
//! * *A home is lost* to any other thread that takes the lock. It takes the spin lock first, which all do but the home; then it says that
//!   there is no home any more, makes every thread pass a fence (`fence.rs`) and waits until the home is not inside. The
//!   same worker may earn it again, with twice as many waits each time, so that what the fences cost is little beside what the waits cost.
//!
//! Invariants
//! * The holder has either set `inside`, as the home and in [`Mode::Home`], or holds `spin`. Mode changes only under `spin`,
//!   and from [`Mode::Home`] only when the home is not inside. So all that see each other take the same of the two.
//! * The home sets `inside`, passes the light fence and looks whether it is the home; who ends that writes `home`, passes the heavy fence and
//!   looks at `inside`. One of the two sees the other.
//! * Only one worker is ever the home of a lock: a worker that stands between its two looks, for however long, meets no other's `inside`.
//!   (A worker whose memory was another's before was not there while that one was.)
//!
//! Above: `channel::chan`. Below: `spin.rs`, `fence.rs`.

use super::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use super::bug::seeded_bug;
use super::cell::UnsafeCell;
use super::fence;
use super::spin::{Patience, RawSpin};

/// Who locks: a worker, as the address of its record, or [`NO_LANE`] for any other thread. Of two threads that run at the same time
/// not both have the same. (Such addresses are multiples of eight, at least.)
pub(crate) type Lane = usize;
/// See [`Lane`].
pub(crate) const NO_LANE: Lane = 0;

/// In `home`: it had none, and no wait was noted.
const NEW: usize = 1;
/// In `home`: there will be none.
const NEVER: usize = 3;
/// In `home`, with a lane: the only one that has waited so far.
const CANDIDATE: usize = 1;

/// So many waits of one worker make it the home, the first time.
const FIRST_WAITS: u32 = 64;
/// So often that number is doubled.
const MOST_DOUBLINGS: u8 = 8;

/// By what the lock is held, for all that take it now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// By the spin lock.
    Spin,
    /// By `inside`, for the home alone.
    Home,
}

/// See the header.
#[derive(Debug)]
pub(crate) struct HomeLock {
    spin: RawSpin,
    inside: AtomicBool,
    mode: UnsafeCell<Mode>,
    /// How often a home was lost, up to [`MOST_DOUBLINGS`].
    losses: AtomicU8,
    /// How many waits of the candidate were noted. Only a guess: several threads may count at once.
    waits: AtomicU32,
    /// The lane of the home; or what the constants say.
    home: AtomicUsize,
}

// SAFETY: `mode` is touched by the holder of the lock alone.
unsafe impl Sync for HomeLock {}
// SAFETY: there is nothing in it that belongs to a thread; a home is known by its number.
unsafe impl Send for HomeLock {}

impl HomeLock {
    pub(crate) fn new() -> Self {
        Self {
            spin: RawSpin::new(),
            inside: AtomicBool::new(false),
            mode: UnsafeCell::new(Mode::Spin),
            losses: AtomicU8::new(0),
            waits: AtomicU32::new(0),
            home: AtomicUsize::new(NEW),
        }
    }

    #[inline(always)]
    pub(crate) fn lock(&self, me: Lane) {
        if !self.enter_home(me) {
            self.spin.lock();
            self.end_home_if_any();
        }
    }

    /// Takes the lock if it is free.
    #[inline(always)]
    #[must_use]
    pub(crate) fn try_lock(&self, me: Lane) -> bool {
        self.enter_home(me) || self.spin.try_lock() && {
            self.end_home_if_any();
            true
        }
    }

    /// Gives the lock back. Only its holder may call this.
    #[inline(always)]
    pub(crate) fn unlock(&self) {
        // SAFETY: the lock is held.
        match self.mode.with(|mode| unsafe { *mode }) {
            Mode::Spin => self.spin.unlock(),
            // Release: pairs with the acquire in `end_home`: what was done inside is seen by the thread that ends it.
            Mode::Home => self.inside.store(false, Ordering::Release),
        }
    }

    #[inline(always)]
    fn enter_home(&self, me: Lane) -> bool {
        // (Models of channels have no lanes, and need not explore this look.)
        let may = !cfg!(any(loom, shuttle)) || me != NO_LANE;
        // Relaxed: a guess. In `home` is what this thread wrote itself, or the home is another.
        may && self.home.load(Ordering::Relaxed) == me && self.enter(me)
    }

    #[inline(always)]
    fn enter(&self, me: Lane) -> bool {
        // Relaxed: the fence orders it before the look.
        self.inside.store(true, Ordering::Relaxed);
        fence::light();
        // Acquire: what follows is not done before the look. (The values inside were last written by this worker, or before it became
        // the home.)
        if self.home.load(Ordering::Acquire) == me || seeded_bug("home_looks_once") {
            return true;
        }
        self.step_back();
        false
    }

    #[cold]
    #[inline(never)]
    fn step_back(&self) {
        // Release: as in `unlock`, for what was done inside at another time: this store may be the one that is seen.
        self.inside.store(false, Ordering::Release);
    }

    /// For a thread that has taken `spin`.
    #[inline(always)]
    fn end_home_if_any(&self) {
        // SAFETY: `spin` is held, under which alone the mode changes.
        if self.mode.with(|mode| unsafe { *mode }) == Mode::Home && !seeded_bug("home_overlooked") {
            self.end_home();
        }
    }

    #[cold]
    #[inline(never)]
    fn end_home(&self) {
        // Relaxed, all: in this mode only a thread that holds `spin` writes `home`, and the fence orders that before the look. The other
        // two decide nothing but when the next home is made.
        let home = self.home.load(Ordering::Relaxed);
        self.waits.store(0, Ordering::Relaxed);
        self.losses.store((self.losses.load(Ordering::Relaxed) + 1).min(MOST_DOUBLINGS), Ordering::Relaxed);
        self.home.store(home | CANDIDATE, Ordering::Relaxed);
        if !seeded_bug("home_ends_without_fence") {
            fence::heavy();
        }
        let mut patience = Patience::new();
        // Acquire: pairs with the release in `unlock`.
        while self.inside.load(Ordering::Acquire) {
            patience.wait();
        }
        // SAFETY: `spin` is held and the home is not inside: this thread is the holder.
        unsafe { self.mode.with_mut(|mode| *mode = Mode::Spin) };
    }

    /// Says that a fiber or thread of `me` is about to wait for what the lock guards. The lock is not held.
    #[inline(always)]
    pub(crate) fn note_wait(&self, me: Lane) {
        // Relaxed: a guess, which decides only what is counted.
        let home = self.home.load(Ordering::Relaxed);
        if home & CANDIDATE != 0 && home != NEVER {
            self.count_wait(me, home);
        }
    }

    #[inline(never)]
    fn count_wait(&self, me: Lane, home: usize) {
        // Relaxed, all: which waits are counted is of no consequence for who holds the lock.
        let change = |to| _ = self.home.compare_exchange(home, to, Ordering::Relaxed, Ordering::Relaxed);
        if me == NO_LANE || home != NEW && home != me | CANDIDATE {
            return change(NEVER);
        }
        if home == NEW {
            change(me | CANDIDATE);
        }
        let waits = self.waits.load(Ordering::Relaxed).saturating_add(1);
        self.waits.store(waits, Ordering::Relaxed);
        if waits >= FIRST_WAITS << self.losses.load(Ordering::Relaxed) {
            self.settle(me);
        }
    }

    /// This worker, which has waited often enough, is the home from now on.
    #[cold]
    #[inline(never)]
    fn settle(&self, me: Lane) {
        if !fence::is_cheap() {
            // Relaxed: it was a candidate; as in `count_wait`.
            return self.home.store(NEVER, Ordering::Relaxed);
        }
        self.lock(me);
        // SAFETY: the lock is held.
        let mode = self.mode.with(|mode| unsafe { *mode });
        let is_settled = mode == Mode::Spin
            // Relaxed: this worker alone will act on it without the lock.
            && self.home.compare_exchange(me | CANDIDATE, me, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !is_settled {
            return self.unlock();
        }
        // SAFETY: `spin` is held (the mode says so), and no home is inside, since there is none before this worker's next look.
        unsafe { self.mode.with_mut(|mode| *mode = Mode::Home) };
        // (Not `unlock`, which asks the mode.)
        self.spin.unlock();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::{FIRST_WAITS, HomeLock, Lane, Mode, NEVER, NO_LANE, Ordering};
    use crate::prim::fence;

    const HERE: Lane = 64;
    const THERE: Lane = 128;

    fn mode(lock: &HomeLock) -> Mode {
        // SAFETY: the tests that ask have one thread at this point.
        lock.mode.with(|mode| unsafe { *mode })
    }

    fn waits(lock: &HomeLock, me: Lane, times: u32) {
        (0..times).for_each(|_| lock.note_wait(me));
    }

    #[test]
    fn waits_of_one_worker_make_it_the_home() {
        let lock = HomeLock::new();
        waits(&lock, HERE, FIRST_WAITS - 1);
        assert_eq!(mode(&lock), Mode::Spin);
        waits(&lock, HERE, 1);
        let expected = if fence::is_cheap() { Mode::Home } else { Mode::Spin };
        assert_eq!(mode(&lock), expected);
        lock.lock(HERE);
        lock.unlock();
        assert!(lock.try_lock(HERE));
        lock.unlock();
        assert_eq!(mode(&lock), expected, "its own worker does not end it");
    }

    #[test]
    fn another_thread_ends_it_and_it_is_earned_anew_by_twice_as_many() {
        let lock = HomeLock::new();
        for losses in 0..4 {
            waits(&lock, HERE, (FIRST_WAITS << losses) - 1);
            assert_eq!(mode(&lock), Mode::Spin);
            waits(&lock, HERE, 1);
            assert_eq!(mode(&lock) == Mode::Home, fence::is_cheap());
            assert!(lock.try_lock(if losses % 2 == 0 { THERE } else { NO_LANE }));
            assert_eq!(mode(&lock), Mode::Spin);
            assert!(!lock.try_lock(HERE));
            lock.unlock();
        }
    }

    #[test]
    fn a_wait_elsewhere_ends_it_for_good() {
        for other in [THERE, NO_LANE] {
            let lock = HomeLock::new();
            waits(&lock, HERE, FIRST_WAITS - 1);
            waits(&lock, other, 1);
            waits(&lock, HERE, 3 * FIRST_WAITS);
            assert_eq!((mode(&lock), lock.home.load(Ordering::Relaxed)), (Mode::Spin, NEVER));
        }
    }

    #[test]
    fn stress_a_home_and_two_others_are_never_inside_at_once() {
        let lock = HomeLock::new();
        let count = std::cell::UnsafeCell::new(0_u64);
        #[derive(Clone, Copy)]
        struct Shared<'a>(&'a HomeLock, &'a std::cell::UnsafeCell<u64>);
        // SAFETY: the count is touched under the lock.
        unsafe impl Send for Shared<'_> {}
        let shared = Shared(&lock, &count);
        const TIMES: u64 = 20_000;
        let run = move |me: Lane, pause: u64| {
            let Shared(lock, count) = { shared };
            for time in 0..TIMES {
                if me == HERE {
                    // So often that it is the home again and again.
                    (0..8).for_each(|_| lock.note_wait(me));
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
            scope.spawn(move || run(HERE, 0));
            scope.spawn(move || run(THERE, 50));
            scope.spawn(move || run(NO_LANE, 70));
        });
        // SAFETY: the others have ended.
        assert_eq!(unsafe { *count.get() }, 3 * TIMES);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::{CANDIDATE, HomeLock, Lane, NEW, NO_LANE, Ordering};
    use crate::prim::cell::UnsafeCell;
    use crate::prim::model::{check, thread};
    use crate::prim::sync::Arc;

    const HERE: Lane = 64;
    const THERE: Lane = 128;

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
            _ = self.lock.home.compare_exchange(NEW, me | CANDIDATE, Ordering::Relaxed, Ordering::Relaxed);
            self.lock.settle(me);
        }

        fn count(&self) -> u32 {
            self.lock.lock(NO_LANE);
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
            let thread = thread::spawn(move || other.add(NO_LANE));
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

    /// Two others end it at once.
    #[test]
    fn model_home_against_two_others() {
        check(2, || {
            let guarded = Guarded::new();
            guarded.settle(HERE);
            let threads = [THERE, NO_LANE].map(|lane| {
                let other = guarded.clone();
                thread::spawn(move || other.add(lane))
            });
            guarded.add(HERE);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(guarded.count(), 3);
        });
    }
}
