//! Gives memory that a flood of fibers left behind back to the system, in bounded time, and costs nothing when there is nothing to give.
//!
//! Above: workers and threads that find a pool too full call [`want`] and [`see_to_it`]. Below: `slab` and `stack`, which know what is
//! idle. A pool is *fat* if it holds more than is kept.
//!
//! One thread for the whole process, the *trimmer*, which exists only while a pool holds more than is kept: so it makes no difference how
//! many workers or runtimes there are, whether one runs just now, or whether they are gone. It looks once a second, and gives back what
//! was not needed since its last look. Then it ends. If no thread can be had, the memory stays until the next flood asks again.
//!
//! Its duty is one word: NONE, WANTED (a pool is fat, and the code that saw it runs on a fiber's stack, too small for starting a thread;
//! the worker below will start it), ON_DUTY (the trimmer exists, or is about to).
//!
//! Why no fat pool is left alone: a thread fills a pool under the pool's lock, and then looks at the word. The trimmer says that
//! it leaves, and then looks at the pools, under their locks. Of the two critical sections one comes first. If it is the filling, the
//! trimmer sees it and stays; if it is the trimmer's look, then the thread that filled the pool sees that the trimmer has left.
//!
//! Rejected: the system monitor of a runtime (there may be none, or one per runtime, and it is gone with the runtime); a worker that wakes
//! up for it (a runtime of the current thread has none between two runs, and what a thread gives back wakes no worker); trimming when a
//! runtime is dropped (what a million fibers leave behind takes most of a second).

use crate::prim::atomic::{AtomicU32, Ordering};
use crate::prim::bug::seeded_bug;

/// No pool is fat, as far as is known.
const NONE: u32 = 0;
/// A pool is fat, and a thread is to be started for it.
const WANTED: u32 = 1;
/// The trimmer exists, or is about to.
const ON_DUTY: u32 = 2;

/// Whether a trimmer looks after the pools. See the header.
#[derive(Debug)]
pub(crate) struct Duty(AtomicU32);

impl Duty {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(NONE))
    }
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(NONE))
    }

    /// A pool is fat. Called after the caller has let the pool's lock go.
    #[inline]
    pub(crate) fn want(&self) {
        // Relaxed, all: the pool's lock orders this look and the trimmer's leave, see the header; the word publishes nothing.
        if self.0.load(Ordering::Relaxed) == NONE {
            let _ = self.0.compare_exchange(NONE, WANTED, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Is a trimmer wanted, and not yet started?
    #[inline(always)]
    pub(crate) fn is_wanted(&self) -> bool {
        // Relaxed: the caller's own `want` is seen; that of another thread is seen by that thread.
        self.0.load(Ordering::Relaxed) == WANTED
    }

    /// Has there been a flood whose memory has not been given back yet?
    pub(crate) fn is_astir(&self) -> bool {
        self.0.load(Ordering::Relaxed) != NONE // Relaxed: a hint.
    }

    /// Takes the duty that was wanted. True: the caller has it, and must start the trimmer or give the duty up.
    pub(crate) fn take(&self) -> bool {
        self.0.compare_exchange(WANTED, ON_DUTY, Ordering::Relaxed, Ordering::Relaxed).is_ok() // Relaxed: as above.
    }

    /// The thread that took the duty cannot do it; another one will have to.
    pub(crate) fn give_up(&self) {
        self.0.store(WANTED, Ordering::Relaxed); // Relaxed: as above.
    }

    /// The trimmer has found nothing to do and wants to end. `is_needed` looks at every pool, under its lock. True: the trimmer may end.
    pub(crate) fn leave(&self, is_needed: impl FnOnce() -> bool) -> bool {
        if seeded_bug("trim_looks_before_it_leaves") {
            let needed = is_needed();
            if !needed {
                self.0.store(NONE, Ordering::Relaxed);
            }
            return !needed;
        }
        // Relaxed: ordered before the look by the locks that the look takes; see the header.
        self.0.store(NONE, Ordering::Relaxed);
        if !is_needed() {
            return true;
        }
        // Unless another thread has taken the duty meanwhile.
        self.want();
        !self.take()
    }

    /// In the child of a fork there is no trimmer.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn forget(&self) {
        self.0.store(NONE, Ordering::Relaxed); // Relaxed: the child has one thread.
    }
}

#[cfg(not(any(loom, shuttle)))]
pub(crate) use self::trimmer::{forget, is_astir, see_to_it, want};

#[cfg(not(any(loom, shuttle)))]
mod trimmer {
    use std::time::Duration;

    use super::Duty;
    use crate::fiber::{slab, stack};
    use crate::prim::atomic::{AtomicU64, Ordering};
    use crate::prim::{policy, thread};

    /// The time between two looks.
    const INTERVAL: Duration = Duration::from_secs(1);

    /// The memory for lists of stacks that go from one depot to another: more than a million stacks need.
    const ROOM: usize = 1 << 20;

    static DUTY: Duty = Duty::new();
    /// After a failure to start the thread: the time of the next try.
    static NEXT_TRY: AtomicU64 = AtomicU64::new(0);

    /// See [`Duty::want`].
    pub(crate) fn want() {
        DUTY.want();
    }

    /// See [`Duty::is_astir`].
    pub(crate) fn is_astir() -> bool {
        DUTY.is_astir()
    }

    /// See [`Duty::forget`].
    pub(crate) fn forget() {
        DUTY.forget();
    }

    /// Starts the trimmer if one is wanted. Not on a fiber's stack.
    #[inline(always)]
    pub(crate) fn see_to_it() {
        if DUTY.is_wanted() {
            start();
        }
    }

    #[cold]
    #[inline(never)]
    fn start() {
        let now = policy::now();
        // Relaxed, both: a hint that spares system calls.
        if now < NEXT_TRY.load(Ordering::Relaxed) || !DUTY.take() {
            return;
        }
        if thread::start_quiet("fibra-trim".to_owned(), trim).is_err() {
            NEXT_TRY.store(now + INTERVAL.as_nanos() as u64, Ordering::Relaxed); // Relaxed: as above.
            DUTY.give_up();
        }
    }

    fn trim() {
        loop {
            policy::sleep(INTERVAL);
            // An allocation that fails would end the process, which may be at its limit just because of the memory in the pools.
            if Vec::<u8>::new().try_reserve_exact(ROOM).is_ok() {
                stack::trim_depot(usize::MAX);
            }
            slab::trim();
            if DUTY.leave(|| stack::is_depot_fat() || slab::is_fat()) {
                return;
            }
        }
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model {
    use super::*;
    use crate::prim::model::{check, thread};
    use crate::prim::sync::{Arc, Mutex};

    struct World {
        duty: Duty,
        pool: Mutex<u32>,
    }

    impl World {
        fn fill(&self) {
            *self.pool.lock() += 1;
            self.duty.want();
            if self.duty.is_wanted() && self.duty.take() {
                self.trim();
            }
        }

        fn trim(&self) {
            loop {
                *self.pool.lock() = 0;
                if self.duty.leave(|| *self.pool.lock() > 0) {
                    return;
                }
            }
        }
    }

    /// A pool is filled while the trimmer is about to leave: in the end the pool is empty, and no thread is on duty.
    #[test]
    fn model_no_fat_pool_is_left_alone() {
        check(3, || {
            let world = Arc::new(World { duty: Duty::new(), pool: Mutex::new(0) });
            let other = {
                let world = world.clone();
                thread::spawn(move || world.fill())
            };
            world.fill();
            other.join().unwrap();
            assert_eq!(*world.pool.lock(), 0, "a fat pool has no trimmer");
            assert!(!world.duty.is_astir());
        });
    }
}
