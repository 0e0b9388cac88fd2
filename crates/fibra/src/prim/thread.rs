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
/// they do not get it. So this checks first whether there is room for that too (`starting.rs`).
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
    let started = std::thread::Builder::new().name(name).spawn(move || {
        #[cfg(not(shuttle))]
        drop(starting);
        body();
    });
    #[cfg(not(shuttle))]
    if started.is_err() {
        starting::forget_what_was_found();
    }
    started
}

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

#[cfg(not(any(loom, shuttle)))]
mod starting;

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
pub(crate) use starting::{StartsLock, take_mappings};

/// The system's number of the calling thread; never 0.
#[cfg(not(loom))]
pub(crate) fn os_id() -> u32 {
    // SAFETY: takes nothing, cannot fail. (The function of that name is missing from older C libraries.)
    let id = unsafe { libc::syscall(libc::SYS_gettid) };
    id as u32
}
