//! OS threads: starting named ones, giving the time slice away, and the names by which the system knows them.

#[cfg(loom)]
pub(crate) use loom::thread::yield_now;
#[cfg(all(shuttle, not(loom)))]
pub(crate) use shuttle::thread::yield_now;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::thread::yield_now;

pub(crate) use std::thread::JoinHandle;

#[cfg(not(loom))]
use super::sync::Mutex;

/// Starts a named OS thread. Fails (it does not panic) when the system has no thread left to give, or no memory for one, even after those
/// that are [kept ready](keep_ready) have ended.
///
/// std's threads map a little memory of their own after they have started (the stack of their signal handlers), and end the process if
/// they do not get it. So this checks first whether there is room for that too, and for the threads that are just starting; and fibra's own
/// stacks are mapped only when no thread is just starting ([`between_starts`]). Memory that foreign code takes meanwhile is not covered.
#[cfg(not(loom))]
pub(crate) fn start(name: String, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    // A start that fails drops what it was to run.
    let body = std::sync::Arc::new(Mutex::new(Some(body)));
    let start = |name| {
        let body = body.clone();
        start_if_room(name, move || {
            let body = body.lock().take();
            if let Some(body) = body {
                body();
            }
        })
    };
    match start(name.clone()) {
        #[cfg(not(shuttle))]
        Err(_) if ready::end_all() => start(name),
        started => started,
    }
}

/// The same, without ending any thread that is kept ready: for those threads themselves.
#[cfg(not(loom))]
fn start_if_room(name: String, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    #[cfg(all(test, not(shuttle)))]
    ready::refuse_in_test()?;
    #[cfg(not(shuttle))]
    let starting = starting::Starting::begin()?;
    std::thread::Builder::new().name(name).spawn(move || {
        #[cfg(not(shuttle))]
        drop(starting);
        body();
    })
}

#[cfg(not(any(loom, shuttle)))]
pub(crate) use starting::StartsLock;

/// Like [`start`], for a thread that wakes fibers only when a fiber or the system asked it to: the deadlock detector leaves it out.
#[cfg(not(loom))]
pub(crate) fn start_quiet(name: String, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    start(name, quietly(body))
}

/// The same for a thread that is kept ready, and for one that keeps them: it is not worth another that is ready.
#[cfg(not(loom))]
pub(crate) fn start_ready(name: String, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    start_if_room(name, quietly(body))
}

#[cfg(not(loom))]
fn quietly(body: impl FnOnce() + Send + 'static) -> impl FnOnce() + Send + 'static {
    move || {
        #[cfg(not(shuttle))]
        let _quiet = quiet::Quiet::new();
        body();
    }
}

/// Threads that were started before they are needed.
#[cfg(not(any(loom, shuttle)))]
pub(crate) trait Ready: Send + Sync {
    /// Ends them and waits for that. False: there are none. Called on any thread that failed to start another.
    fn end(&self) -> bool;
}

#[cfg(not(any(loom, shuttle)))]
pub(crate) use ready::keep as keep_ready;
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) use ready::refuse_next;

#[cfg(not(any(loom, shuttle)))]
mod ready {
    use super::Ready;
    use super::starting::ONE_AT_A_TIME;
    use crate::prim::bug::seeded_bug;
    use std::sync::{Arc, Weak};

    /// From now on these threads end when the system has no thread to give.
    pub(crate) fn keep(threads: Weak<dyn Ready>) {
        let all = &mut ONE_AT_A_TIME.lock().ready;
        all.retain(|threads| threads.strong_count() > 0);
        all.push(threads);
    }

    /// A thread could not be started: ends all that are kept ready. True: there were some, and another try may find room.
    pub(super) fn end_all() -> bool {
        if seeded_bug("ready_threads_stay") {
            return false;
        }
        let all: Vec<Arc<dyn Ready>> = ONE_AT_A_TIME.lock().ready.iter().filter_map(Weak::upgrade).collect();
        all.iter().filter(|threads| threads.end()).count() > 0
    }

    #[cfg(test)]
    thread_local!(static REFUSED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });

    /// For tests: the next start on this thread fails, as it does when the system has no thread to give.
    #[cfg(test)]
    pub(crate) fn refuse_next() {
        REFUSED.set(1);
    }

    #[cfg(test)]
    pub(super) fn refuse_in_test() -> std::io::Result<()> {
        match REFUSED.take() {
            0 => Ok(()),
            _ => Err(std::io::Error::from_raw_os_error(libc::EAGAIN)),
        }
    }
}

#[cfg(all(fibra_force_moves, not(any(loom, shuttle))))]
pub(crate) use quiet::count as quiet_threads;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use quiet::{forget as forget_quiet_threads, others_among as threads_not_quiet};

#[cfg(not(any(loom, shuttle)))]
mod quiet {
    use crate::prim::atomic::{AtomicUsize, Ordering};

    // Both only grow: so a thread that is counted in between two reads is never taken for one that was there.
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    static ENDED: AtomicUsize = AtomicUsize::new(0);

    /// A quiet thread, from its own beginning to its end.
    pub(super) struct Quiet;

    impl Quiet {
        pub(super) fn new() -> Self {
            STARTED.fetch_add(1, Ordering::Relaxed); // Relaxed: a number; so are those below.
            Self
        }
    }

    impl Drop for Quiet {
        fn drop(&mut self) {
            ENDED.fetch_add(1, Ordering::Relaxed); // Relaxed: as above.
        }
    }

    /// Runs `count_all`, which counts the threads of the process: how many of them are not quiet. Threads that begin or end meanwhile make
    /// that too many, never too few.
    pub(crate) fn others_among(count_all: impl FnOnce() -> usize) -> usize {
        let started = STARTED.load(Ordering::Relaxed); // Relaxed: as above; a system call lies between the two.
        let all = count_all();
        all.saturating_sub(started.wrapping_sub(ENDED.load(Ordering::Relaxed))) // Relaxed: as above.
    }

    #[cfg(fibra_force_moves)]
    pub(crate) fn count() -> usize {
        STARTED.load(Ordering::Relaxed).wrapping_sub(ENDED.load(Ordering::Relaxed)) // Relaxed: as above.
    }

    /// In the child of a fork none of them exists.
    pub(crate) fn forget() {
        ENDED.store(0, Ordering::Relaxed); // Relaxed: as above.
        STARTED.store(0, Ordering::Relaxed); // Relaxed: as above.
    }
}

/// Runs `map`, which maps much memory, when no thread of fibra is on its way to its body: under a limit of address space it could take
/// memory that the thread cannot do without. Without such a limit, at once.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn between_starts<R>(map: impl FnOnce() -> R) -> R {
    starting::between(map)
}

#[cfg(any(loom, shuttle))]
pub(crate) fn between_starts<R>(map: impl FnOnce() -> R) -> R {
    map()
}

#[cfg(not(any(loom, shuttle)))]
mod starting {
    use super::Ready;
    use crate::prim::atomic::{AtomicUsize, Ordering};
    use crate::prim::instant::Instant;
    use crate::prim::sync::{Mutex, MutexGuard};
    use std::io;
    use std::sync::Weak;
    use std::time::Duration;

    /// The stack of a std thread with its guard, unless `RUST_MIN_STACK` says otherwise.
    const STACK: usize = (2 << 20) + (64 << 10);
    /// The memory that a thread maps in its first moments; this is far more than it really is, even with every register set that there is.
    const BESIDE: usize = 128 << 10;

    /// The mappings of a thread: its stack, that of its signal handlers, their guards, a heap of its own.
    const PARTS: usize = 8;
    /// To look takes a microsecond for each of them. So it is done for this many threads at once, and holds for these if they start soon: a
    /// fiber with thread-locals of its own takes a thread, and a thousand may start together.
    const TOGETHER: usize = 16;
    const SOON: Duration = Duration::from_millis(2);
    const PAGE: usize = 4096;

    /// The number of threads that have not reached their body yet. Raised only under `ONE_AT_A_TIME`.
    static STARTING: AtomicUsize = AtomicUsize::new(0);
    /// Held by a thread that looks for room for a new thread, and by a thread that maps memory where that room would be.
    pub(super) static ONE_AT_A_TIME: Mutex<Starts> = Mutex::new(Starts { ready: Vec::new(), mappings_for: None });

    /// What [`ONE_AT_A_TIME`] guards.
    pub(super) struct Starts {
        /// Those that keep threads ready.
        pub(super) ready: Vec<Weak<dyn Ready>>,
        /// For so many more threads there were mappings left, and when that was.
        mappings_for: Option<(usize, Instant)>,
    }

    /// See [`super::between_starts`].
    pub(super) fn between<R>(map: impl FnOnce() -> R) -> R {
        if !address_space_is_limited() {
            return map();
        }
        loop {
            let one_at_a_time = ONE_AT_A_TIME.lock();
            // Relaxed: the lock orders it after every increment; a decrement that is seen late costs one more look.
            if STARTING.load(Ordering::Relaxed) == 0 {
                return map();
            }
            drop(one_at_a_time);
            super::yield_now();
        }
    }

    /// Over a fork: no thread looks for room then, and the child forgets the threads that were starting.
    pub(crate) struct StartsLock(MutexGuard<'static, Starts>);

    impl StartsLock {
        pub(crate) fn take() -> Self {
            Self(ONE_AT_A_TIME.lock())
        }

        pub(crate) fn forget_starts(&mut self) {
            let Self(starts) = self;
            STARTING.store(0, Ordering::Relaxed); // Relaxed: the child has one thread.
            // None of them exists there, and their locks may be held by a thread that does not either.
            std::mem::take(&mut starts.ready).into_iter().for_each(std::mem::forget);
        }
    }

    fn address_space_is_limited() -> bool {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the pointer is to a local.
        unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) != 0 || limit.rlim_cur != libc::RLIM_INFINITY }
    }

    /// A thread on its way to its body, or not even begun.
    pub(super) struct Starting;

    impl Starting {
        pub(super) fn begin() -> io::Result<Self> {
            loop {
                let mut starts = ONE_AT_A_TIME.lock();
                // Relaxed, here and below: incremented under the lock; a decrement that comes late asks for too much room.
                let others = STARTING.load(Ordering::Relaxed);
                if starts.take_mappings() {
                    look_for_room(others + 1, 0)?;
                } else if others == 0 {
                    if look_for_room(1, TOGETHER).is_ok() {
                        starts.mappings_for = Some((TOGETHER - 1, Instant::now()));
                    } else {
                        look_for_room(1, 1)?;
                    }
                } else {
                    // To look takes, for a moment, the very mappings that those that are on their way may need.
                    drop(starts);
                    super::yield_now();
                    continue;
                }
                return Ok(Self::count());
            }
        }

        fn count() -> Self {
            STARTING.fetch_add(1, Ordering::Relaxed); // Relaxed: as above.
            Self
        }
    }

    impl Drop for Starting {
        fn drop(&mut self) {
            STARTING.fetch_sub(1, Ordering::Relaxed); // Relaxed: as above.
        }
    }

    impl Starts {
        /// Are there mappings for one more thread, as was found a moment ago?
        fn take_mappings(&mut self) -> bool {
            let found = self.mappings_for.take().filter(|(left, when)| *left > 0 && when.elapsed() < SOON);
            self.mappings_for = found.map(|(left, when)| (left - 1, when));
            found.is_some()
        }
    }

    /// Is there room in the address space for `threads` that begin, and are there mappings left for `with_mappings` of them?
    fn look_for_room(threads: usize, with_mappings: usize) -> io::Result<()> {
        let len = STACK + BESIDE * threads;
        let (readable, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice, which no other code sees before it is gone again.
        unsafe {
            let room = libc::mmap(std::ptr::null_mut(), len, readable, private, -1, 0);
            if room == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let divided = divide(room, PARTS * with_mappings);
            libc::munmap(room, len);
            divided
        }
    }

    /// Divides this room into parts, as many as that: the system has a limit for the number of mappings, too.
    ///
    /// # Safety
    /// The caller's own mapping, which no other code uses, larger than a page for each part.
    unsafe fn divide(room: *mut libc::c_void, parts: usize) -> io::Result<()> {
        for part in (1..parts).step_by(2) {
            // SAFETY: a page of that mapping.
            if unsafe { libc::mprotect(room.byte_add(part * PAGE), PAGE, libc::PROT_NONE) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    const _: () = assert!(PARTS * TOGETHER * PAGE < STACK);
}

/// The system's number of the calling thread; never 0.
#[cfg(not(loom))]
pub(crate) fn os_id() -> u32 {
    // SAFETY: takes nothing, cannot fail. (The function of that name is missing from older C libraries.)
    let id = unsafe { libc::syscall(libc::SYS_gettid) };
    id as u32
}
